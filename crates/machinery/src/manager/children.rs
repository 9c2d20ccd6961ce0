//! Children: compared, applied, written through.
//!
//! Guarantees
//! - A child that the object (by UID) does not control is never touched, nor one that is being deleted.
//! - A create never overwrites, and a change applies only to the object (UID) that it was decided for.
//! - Nothing is created again for an owner that may be gone: after a child has gone, the API server is
//!   asked for the owner first.
//! - If somebody keeps undoing what is applied, even a second program with other settings, it is applied a
//!   few times a minute at most.
//! - What admission makes of an apply is accepted after one try, by this process and by the next.

use std::any::TypeId;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Context;
use super::compared::{ADMITTED, APPLIED, deviations, hash, hex, project, without_nulls};
use super::wiring::{WiringError, view};
use crate::client::{self, Deletion, Preconditions};
use crate::controller::{CallError, Name, Problem};
use crate::object::{Keep, Meta, ObjectKey, Owner, Resource, Text};
use crate::store::Store;

/// What the metadata of a child keeps, for [`Context::ensure`]: `Meta<Applied>`. A [`Keep`] of your
/// own may keep more; it has to keep these annotations, too: [`Applied::ANNOTATIONS`].
#[derive(Debug, Clone, Copy)]
pub enum Applied {}

impl Applied {
    /// The annotations that record the hash of what was applied, and of what admission made of it.
    pub const ANNOTATIONS: [&str; 2] = [APPLIED, ADMITTED];
}

impl Keep for Applied {
    fn label(_: &str) -> bool {
        false
    }
    fn annotation(key: &str) -> bool {
        Applied::ANNOTATIONS.contains(&key)
    }
}

/// A child as it is to be.
struct Desired {
    key: ObjectKey,
    /// What is applied.
    body: Value,
    /// What the view shows of it.
    wanted: Value,
    hash: u64,
}

// === impl Context ===

impl<V: Resource> Context<V> {
    /// Has a child be as `desired`, and returns it. `desired` needs `metadata.name` and what the
    /// child is to have; its kind, its namespace (the object's own) and the owner reference are
    /// filled in.
    ///
    /// It is applied (server-side apply, by force) if it does not exist, if `desired` is not what was
    /// applied last, so that a field no longer set goes, or if a desired field that the view `C`
    /// shows is not as desired. What the view does not show is restored at the next apply. Lists of
    /// containers, variables, volumes and ports are compared by their keys, and amounts of resources by
    /// value. What admission makes of an apply is recorded on the child and accepted.
    ///
    /// # Errors
    /// [`Problem::Taken`] if the name is taken by what the object does not control;
    /// [`Problem::Awaiting`] while a child under the name is being deleted, or is about to be, because it
    /// is of a former object of this name; [`Problem::Contested`] if somebody keeps undoing what is
    /// applied; `ErrNotWatched` if the child exists and the view of it does not select it; `ErrWiring` if
    /// the controller does not own `C`; all that can go wrong with a write.
    pub async fn ensure<C>(&self, desired: Value) -> Result<Arc<C>, Problem>
    where
        C: Resource + Serialize,
        C::Keep: Keep,
    {
        let children = self.children::<C>()?;
        let desired = self.complete::<C>(desired)?;
        match children.get(&desired.key) {
            Some(child) => self.ensure_existing(&children, &desired, child, false).await,
            None => self.create(&children, &desired).await,
        }
    }

    async fn create<C>(&self, children: &Store<C>, desired: &Desired) -> Result<Arc<C>, Problem>
    where
        C: Resource + Serialize,
    {
        self.confirm_owner().await?;
        match self.client().apply_new::<C>(&desired.key, &desired.body).await {
            Ok(created) => {
                let note = format!("Created {} {}", C::KIND.kind, desired.key.name());
                self.tell_write::<C>("Created", &note);
                self.applied(children, desired, created).await
            }
            // The store lags, or does not hold whatever has the name.
            Err(error) if error.is_conflict() => {
                let there = self.client().get::<C>(&desired.key).await;
                let there = there.map_err(|error| failed::<C>("get", &desired.key, error))?;
                let there = children.learned(there);
                // If the store still has none, its informer does not select it. Then the label that it
                // lacks may be one of those that are applied.
                let is_unseen = children.get(&desired.key).is_none();
                self.ensure_existing(children, desired, there, is_unseen).await
            }
            Err(error) => Err(failed::<C>("create", &desired.key, error).into()),
        }
    }

    async fn ensure_existing<C>(
        &self,
        children: &Store<C>,
        desired: &Desired,
        child: Arc<C>,
        is_unseen: bool,
    ) -> Result<Arc<C>, Problem>
    where
        C: Resource + Serialize,
    {
        let (key, meta) = (&desired.key, child.meta());
        if !meta.is_controlled_by(self.object.uid()) {
            return Err(match &meta.owner {
                Some(owner) if self.is_namesake(owner) => Problem::awaiting::<C>(key),
                _ => Problem::taken::<V, C>(key),
            });
        }
        if meta.deleting {
            return Err(Problem::awaiting::<C>(key));
        }
        let record = |annotation| meta.annotations.get(annotation).map(Text::as_str);
        let is_applied = record(APPLIED) == Some(&hex(desired.hash));
        if is_applied && !is_unseen && is_settled(desired, &*child)? {
            return Ok(child);
        }
        let (fights, now) = (&self.pass.fights, Instant::now());
        if let Some(wait) = fights.wait(child.uid(), desired.hash, now) {
            return Err(Problem::contested::<C>(key, wait));
        }
        let mut only = desired.body.clone();
        only["metadata"]["uid"] = json!(child.uid()); // This one, not a namesake.
        let applied = self.client().apply::<C>(key, &only).await;
        let applied =
            applied.map_err(|error| failed::<C>("update", key, conflict_if_another(error)))?;
        fights.applied(child.uid(), desired.hash, now);
        self.tell_change(desired, is_applied, &*child)?;
        let applied = self.applied(children, desired, applied).await?;
        if is_unseen && children.get(key).is_none() {
            let kind = C::KIND.kind;
            let what = format!(
                "{kind} {:?} exists, but is not among those that the controller watches: restore the \
                 labels that its informer selects, or delete it",
                key.name()
            );
            return Err(Problem::forbidden("ErrNotWatched", what));
        }
        Ok(applied)
    }

    /// Tells that a child was changed, or restored if it was applied like this before.
    fn tell_change<C>(
        &self,
        desired: &Desired,
        is_restored: bool,
        before: &C,
    ) -> Result<(), Problem>
    where
        C: Resource + Serialize,
    {
        let (kind, name) = (C::KIND.kind, desired.key.name());
        let changed = deviations(&desired.wanted, &json_of(before)?);
        match changed.first().filter(|_| is_restored) {
            Some((place, _)) => {
                let note = format!("Restored {place} of {kind} {name}, which was changed");
                self.tell_write::<C>("Restored", &note);
            }
            None => self.tell_write::<C>("Updated", &format!("Updated {kind} {name}")),
        }
        Ok(())
    }

    /// Asks the API server whether the object still exists, if one of its children has gone since it was
    /// last asked: the garbage collector deletes those of an object that is gone, and the watch of the
    /// objects may be behind that of the children.
    async fn confirm_owner(&self) -> Result<(), Problem> {
        let (bereaved, key) = (&self.pass.parts.bereaved, self.key());
        if !bereaved.lock().contains(key) {
            return Ok(());
        }
        let live = self.client().get::<V>(key).await;
        let live = live.map_err(|error| failed::<V>("get", key, error))?;
        let live = self.pass.objects.learned(live);
        if live.uid() != self.object.uid() || live.meta().deleting {
            return Err(Problem::Awaiting(Name { kind: V::KIND, key: key.clone() }));
        }
        bereaved.lock().remove(key);
        Ok(())
    }

    /// Returns whether this owner was an object of the same kind and name as this one.
    fn is_namesake(&self, owner: &Owner) -> bool {
        let group =
            |api_version: &str| api_version.split_once('/').map(|(group, _)| group.to_owned());
        let this = self.object.as_owner();
        (&owner.kind, &owner.name) == (&this.kind, &this.name)
            && group(&owner.api_version) == group(&this.api_version)
    }

    /// Deletes the children of view `C` that `keep` does not want, such as those of an earlier
    /// name.
    ///
    /// # Errors
    /// If the controller does not own `C`; all that can go wrong with a delete.
    pub async fn prune<C: Resource>(&self, keep: impl Fn(&C) -> bool) -> Result<(), Problem> {
        let children = self.children::<C>()?;
        for child in children.controlled_by(&*self.object)? {
            let Meta { key, uid, version, deleting, .. } = child.meta();
            if *deleting || keep(&child) {
                continue;
            }
            let only = Preconditions { uid: *uid, version: *version };
            match self.client().delete::<C>(key, only).await {
                Ok(Deletion::Final) => children.removed(key, *uid),
                Ok(Deletion::Started) => {}
                Err(error) if error.is_not_found() => continue,
                Err(error) => return Err(failed::<C>("delete", key, error).into()),
            }
            self.tell_write::<C>("Deleted", &format!("Deleted {} {}", C::KIND.kind, key.name()));
        }
        Ok(())
    }

    /// The store of an owned view that records what was applied.
    fn children<C: Resource>(&self) -> Result<Store<C>, Problem> {
        let (controller, view) = (self.pass.parts.controller(), view::<C>());
        if !self.pass.owned.contains(&TypeId::of::<C>()) {
            return Err(WiringError::NotOwned { controller, view }.into());
        }
        self.store::<C>()
    }

    /// Completes what is desired.
    fn complete<C: Resource + Serialize>(&self, desired: Value) -> Result<Desired, Problem>
    where
        C::Keep: Keep,
    {
        if !Applied::ANNOTATIONS.iter().all(|annotation| C::Keep::annotation(annotation)) {
            let view = view::<C>();
            let what = format!(
                "the view {view} does not keep the annotations {APPLIED} and {ADMITTED}: give it `metadata: \
                 Meta<Applied>` and `view!({view} {{ metadata: Meta<Applied> }}: …)`"
            );
            return Err(Problem::terminal("ErrWiring", what));
        }
        let mut desired = without_nulls(desired);
        let annotations = &desired["metadata"]["annotations"];
        if !desired["metadata"]["name"].is_string()
            || !(annotations.is_null() || annotations.is_object())
        {
            let what = format!("a {} to be ensured has no usable metadata", C::KIND.kind);
            return Err(Problem::terminal("ErrUnnamed", what));
        }
        desired["apiVersion"] = C::KIND.api_version().into();
        desired["kind"] = C::KIND.kind.into();
        let metadata = &mut desired["metadata"];
        if C::KIND.namespaced && metadata["namespace"].is_null() {
            metadata["namespace"] = json!(self.key().namespace());
        }
        metadata["ownerReferences"] = json!([self.object.as_owner()]);
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let key = ObjectKey::new(text(&metadata["namespace"]), text(&metadata["name"]));
        let hash = hash(&desired);
        desired["metadata"]["annotations"][APPLIED] = hex(hash).into();
        Ok(Desired { key, wanted: wanted::<C>(&desired)?, body: desired, hash })
    }

    /// Takes in the answer to an apply. What admission made of it is recorded on the child: it would make
    /// that of it each time.
    async fn applied<C>(
        &self,
        children: &Store<C>,
        desired: &Desired,
        answer: C,
    ) -> Result<Arc<C>, Problem>
    where
        C: Resource + Serialize,
    {
        let child = children.wrote(answer);
        let admitted = admitted(desired, &*child)?;
        let recorded = child.meta().annotations.get(ADMITTED).map(Text::as_str);
        if recorded == admitted.as_deref() {
            return Ok(child);
        }
        let meta = child.meta();
        let patch = json!({ "metadata": {
            "uid": meta.uid, "resourceVersion": meta.version, "annotations": { ADMITTED: admitted },
        }});
        let recorded = self.client().merge_patch::<C>(&desired.key, &patch).await;
        let recorded = recorded.map_err(|error| failed::<C>("update", &desired.key, error))?;
        Ok(children.wrote(recorded))
    }
}

/// Returns whether a child has what is wanted, or what admission made of it.
fn is_settled<C: Resource + Serialize>(desired: &Desired, child: &C) -> Result<bool, Problem> {
    let admitted = admitted(desired, child)?;
    let recorded = child.meta().annotations.get(ADMITTED).map(Text::as_str);
    Ok(admitted.is_none() || recorded == admitted.as_deref())
}

/// The hash of what is not as wanted; `None` if all is.
fn admitted<C: Resource + Serialize>(
    desired: &Desired,
    child: &C,
) -> Result<Option<String>, Problem> {
    let deviations = deviations(&desired.wanted, &json_of(child)?);
    Ok((!deviations.is_empty()).then(|| hex(hash(&json!(deviations)))))
}

pub(super) fn failed<C: Resource>(
    verb: &'static str,
    key: &ObjectKey,
    error: client::Error,
) -> CallError {
    CallError { verb, kind: C::KIND.kind, key: key.clone(), source: Box::new(error) }
}

/// Applying with the UID of another object is answered with 422, as a UID cannot be changed.
fn conflict_if_another(error: client::Error) -> client::Error {
    match error {
        client::Error::Api { code: 422, reason, message, causes, retry_after }
            if message.contains("metadata.uid: Invalid value") =>
        {
            client::Error::Api { code: 409, reason, message, causes, retry_after }
        }
        other => other,
    }
}

/// What the view shows of `desired`, which it has to be able to read, too.
fn wanted<C: Resource + Serialize>(desired: &Value) -> Result<Value, Problem> {
    let read = C::deserialize(desired).map_err(|error| {
        let view = view::<C>();
        let what = format!(
            "the view {view} cannot read what is desired ({error}): give what is not always there \
             `#[serde(default)]`"
        );
        Problem::terminal("ErrWiring", what)
    })?;
    Ok(project(&json_of(&read)?, desired))
}

pub(super) fn json_of<V: Serialize>(object: &V) -> Result<Value, Problem> {
    serde_json::to_value(object).map_err(|error| {
        let what = format!("{} cannot be represented as JSON: {error}", view::<V>());
        Problem::terminal("ErrWiring", what)
    })
}
