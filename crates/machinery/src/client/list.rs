//! Lists, item by item.

use std::marker::PhantomData;

use bytes::BytesMut;
use http::header::{ACCEPT, HeaderValue};

use super::call::Client;
use super::item_scanner::{Envelope, ItemScanner, ItemVisitor};
use super::query::{self, by_name};
use super::types::{Page, PageEnd, Scope, Undecodable};
use super::{Error, status, undecodable};
use crate::object::{ObjectKey, Resource};

/// The `Accept` header of a metadata-only list; plain JSON if that is unavailable.
const METADATA: &str =
    "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json";

/// Size up to which chunks are gathered before parsing. The API server writes a list in chunks of a few kB, smaller
/// than its objects. Copying them is cheaper than reassembling every object.
const GATHERED: usize = 64 << 10;

/// Passes the items of a list to `each`.
struct Reading<E, V> {
    each: E,
    view: PhantomData<fn() -> V>,
}

// === impl Client ===

impl Client {
    /// Lists one page. Items are passed on as they arrive, before the page is known to be complete: after an error,
    /// discard the items already received.
    ///
    /// The beginning of the response has its own deadline ([`Options::list_deadline`]). After that, the deadline counts
    /// from the last chunk of the body, without the time that `each` takes.
    ///
    /// [`Options::list_deadline`]: super::Options::list_deadline
    ///
    /// # Errors
    /// Any error of a call; [`Error::Cut`] if the list breaks off.
    pub async fn list<V: Resource>(
        &self,
        scope: &Scope,
        page: &Page,
        each: impl FnMut(Result<V, Undecodable>) + Send,
    ) -> Result<PageEnd, Error> {
        self.list_as(false, scope, page, each).await
    }

    /// Like [`Client::list`], but metadata only (PartialObjectMetadata): `V` is decoded from `metadata`, `kind` and
    /// `apiVersion`.
    ///
    /// # Errors
    /// As [`Client::list`].
    pub async fn list_metadata<V: Resource>(
        &self,
        scope: &Scope,
        page: &Page,
        each: impl FnMut(Result<V, Undecodable>) + Send,
    ) -> Result<PageEnd, Error> {
        self.list_as(true, scope, page, each).await
    }

    /// Gets one object with a list that selects its name. A controller always has `list` permission, because it
    /// watches; it may not have `get`. `None` if the object does not exist. The response is as
    /// new as etcd, although from Kubernetes 1.31 on it can come from the watch cache (`ConsistentListFromCache`,
    /// KEP-2340).
    ///
    /// # Errors
    /// As [`Client::list`], and [`Error::Decode`] if the object does not fit its view.
    pub async fn find<V: Resource>(&self, key: &ObjectKey) -> Result<Option<V>, Error> {
        let namespace = V::kind().namespaced.then(|| key.namespace().clone());
        let fields = Some(by_name(key.name()));
        let scope = Scope { namespace, labels: None, fields };
        let mut found = None;
        let each = |object: Result<V, Undecodable>| {
            let name = object.as_ref().map_or_else(|bad| &bad.key, |object| object.key());
            if name == key {
                found = Some(object);
            }
        };
        self.list(&scope, &Page::default(), each).await?;
        let undecodable =
            |bad: Undecodable| Error::Decode { why: bad.why, excerpt: bad.key.to_string() };
        found.transpose().map_err(undecodable)
    }

    async fn list_as<V: Resource>(
        &self,
        metadata_only: bool,
        scope: &Scope,
        page: &Page,
        each: impl FnMut(Result<V, Undecodable>) + Send,
    ) -> Result<PageEnd, Error> {
        let kind = V::kind();
        let mut request = query::list(&kind, scope, page)?;
        if metadata_only {
            request.headers_mut().insert(ACCEPT, HeaderValue::from_static(METADATA));
        }
        let mut observe = self.observe("list", &kind);
        let answer = self.open(request, &mut observe).await?;
        let code = answer.status().as_u16();
        let mut body = answer.into_body();
        let mut scanner = ItemScanner::default();
        let mut reading = Reading { each, view: PhantomData };
        let mut gathered = BytesMut::new();
        loop {
            let piece = self.piece(&mut body).await?;
            let last = piece.is_none();
            gathered.extend_from_slice(&piece.unwrap_or_default());
            if gathered.len() < GATHERED && !last {
                continue;
            }
            scanner.arrived(&gathered, &mut reading)?;
            gathered.clear();
            if last {
                break;
            }
        }
        let body = scanner.end()?;
        let Envelope { kind, metadata, .. } = Envelope::decode(&body)?;
        observe.code = code;
        if kind.as_deref() == Some("Status") {
            return Err(status::error(code, None, &body));
        }
        let meta = metadata.ok_or_else(|| Error::Decode {
            why: "a list without metadata".to_owned(),
            excerpt: String::new(),
        })?;
        let continue_token = meta.r#continue.filter(|token| !token.is_empty());
        Ok(PageEnd { version: meta.resource_version, continue_token })
    }
}

// === impl Reading ===

impl<E: FnMut(Result<V, Undecodable>), V: Resource> ItemVisitor for Reading<E, V> {
    fn item(&mut self, rest: &[u8]) -> Option<usize> {
        let mut items = serde_json::Deserializer::from_slice(rest).into_iter::<V>();
        // `Err` means incomplete or mismatched: the end of the item shows which.
        let item = items.next()?.ok()?;
        let length = items.byte_offset();
        (self.each)(Ok(item));
        Some(length)
    }

    fn complete(&mut self, bytes: &[u8]) -> Result<(), Error> {
        match serde_json::from_slice::<V>(bytes) {
            Ok(item) => (self.each)(Ok(item)),
            Err(_) => (self.each)(Err(undecodable::name::<V>(bytes, false)?)),
        }
        Ok(())
    }
}
