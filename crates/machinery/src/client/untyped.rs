//! Calls for interactive commands, with objects of any kind as JSON.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::APIResourceList;
use kube::core::params::PostParams;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

use super::Error;
use super::call::{Client, decode};
use super::query::{self, segment};
use super::types::{Page, PageEnd, Scope};
use crate::object::{Kind, ObjectKey};

/// Objects per page.
const PAGE: u32 = 100;
/// The kind in metrics of paths without a kind.
const NO_KIND: Kind = Kind::cluster_scoped("", "", "", "");

// === impl Client ===

impl Client {
    /// Gets a path that belongs to no kind, such as `/version`.
    ///
    /// # Errors
    /// Any error of a call.
    pub async fn read_path(&self, path: &str) -> Result<Value, Error> {
        decode(&self.call("get", &NO_KIND, query::at(path)?).await?)
    }

    /// Returns the API server's clock, in whole seconds; `None` if a proxy removed the header.
    ///
    /// # Errors
    /// Any error of a call.
    pub async fn server_time(&self) -> Result<Option<Timestamp>, Error> {
        let mut observe = self.observe("get", &NO_KIND);
        let answer = self.open(query::at("/version")?, &mut observe).await?;
        observe.code = answer.status().as_u16();
        let date = answer.headers().get(http::header::DATE).and_then(|date| date.to_str().ok());
        let date = date.and_then(|date| jiff::fmt::rfc2822::parse(date).ok());
        Ok(date.map(|date| date.timestamp()))
    }

    /// Returns the API server's definition of a kind: its plural, and whether it is namespaced. `group` is empty for
    /// the core group.
    ///
    /// # Errors
    /// [`Error::is_not_served`] if it is not served; any other error of a call.
    pub async fn discover(&self, group: &str, version: &str, kind: &str) -> Result<Kind, Error> {
        let not_served = || {
            let message = format!("the API server serves no {kind} in {group}/{version}");
            Error::api(404, "", message)
        };
        let version_segment = segment("version", version)?;
        let path = match group {
            "" => format!("/api/{version_segment}"),
            group => format!("/apis/{}/{version_segment}", segment("group", group)?),
        };
        let asked = self.call("get", &NO_KIND, query::at(path)?).await;
        let body =
            asked.map_err(|error| if error.code() == Some(404) { not_served() } else { error })?;
        let all: APIResourceList = decode(&body)?;
        // Skips subresources such as `deployments/scale`: some have the kind of their object.
        let mut whole = all.resources.into_iter().filter(|served| !served.name.contains('/'));
        let found = whole.find(|served| served.kind == kind).ok_or_else(not_served)?;
        Ok(Kind::named(group, version, kind, &found.name, found.namespaced))
    }

    /// Reads one object of any kind as JSON.
    ///
    /// # Errors
    /// [`Error::is_not_found`] if there is none; any other error of a call.
    pub async fn read(&self, kind: &Kind, key: &ObjectKey) -> Result<Value, Error> {
        decode(&self.call("get", kind, query::object(kind, key)?).await?)
    }

    /// Reads all objects of any kind as JSON, page by page.
    ///
    /// # Errors
    /// Any error of a call.
    pub async fn read_all(&self, kind: &Kind, scope: &Scope) -> Result<Vec<Value>, Error> {
        let (mut all, mut page) = (Vec::new(), Page { limit: Some(PAGE), ..Page::default() });
        loop {
            let each = |json: &[u8]| decode(json).map(|object| all.push(object));
            match self.list_json(kind, scope, &page, each).await {
                Ok(PageEnd { continue_token: None, .. }) => return Ok(all),
                Ok(end) => page.continue_token = end.continue_token,
                // The list expired between two pages. A new list without pages cannot expire.
                Err(error) if error.is_expired() && page.continue_token.is_some() => {
                    (all, page) = (Vec::new(), Page::default());
                }
                Err(error) => return Err(error),
            }
        }
    }

    /// Posts a review (such as `SelfSubjectAccessReview`) with this `spec` and returns its `status`. Does not ask
    /// the gate, because nothing is stored.
    ///
    /// # Errors
    /// Any error of a call.
    pub async fn review<S: DeserializeOwned>(&self, kind: &Kind, spec: &Value) -> Result<S, Error> {
        #[derive(Deserialize)]
        struct Review<S> {
            status: S,
        }
        let body = json!({"apiVersion": kind.api_version(), "kind": kind.kind, "spec": spec});
        let review: Review<S> = self.post(kind, None, &PostParams::default(), &body).await?;
        Ok(review.status)
    }

    /// Returns the response to a create as a dry run, with full validation and admission. Does not ask the gate,
    /// because nothing is stored.
    ///
    /// # Errors
    /// The errors of a create; any other error of a call.
    pub async fn try_create(
        &self,
        kind: &Kind,
        namespace: &str,
        body: &Value,
    ) -> Result<Value, Error> {
        let params = PostParams { dry_run: true, ..self.post_params() };
        self.post(kind, Some(namespace), &params, body).await
    }

    async fn post<T: DeserializeOwned>(
        &self,
        kind: &Kind,
        namespace: Option<&str>,
        params: &PostParams,
        body: &Value,
    ) -> Result<T, Error> {
        let request =
            query::objects(kind, namespace)?.create(params, body.to_string().into_bytes());
        decode(&self.call("create", kind, query::built(request)?).await?)
    }
}
