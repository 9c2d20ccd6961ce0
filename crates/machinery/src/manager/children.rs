//! Owned objects: comparison, apply and write-through to the store.
//!
//! Guarantees
//! - Only objects that the owner (by UID) controls and that are not being deleted are written. Exception: an
//!   uncontrolled object is adopted if the caller recognizes it and it has the record of an apply.
//! - A create never overwrites. A change applies only to the object (UID) that it was decided for.
//! - After an owned object was deleted, nothing is created before the API server confirms that the owner still
//!   exists.
//! - If another program keeps undoing an apply, the apply is repeated at most a few times a minute. The other program
//!   can be a second installation with other settings.
//! - A change that admission makes to an apply is accepted after one attempt, by this process and by the next.

use std::any::TypeId;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};
use tokio::time::Instant;

use super::Context;
use super::compared::{Canonical, deviations, hash, hex, project, remove_nulls};
use super::context::Labelled;
use super::managed_fields::{Unwanted, conflict_if_another};
use super::throttle::WINDOW;
use super::wiring::{WiringError, view};
use crate::client::{self, Deletion, Patch, Preconditions, PropagationPolicy};
use crate::controller::{Name, ReconcileError};
use crate::object::{InternedStr, Meta, MetadataFilter, ObjectKey, Owner, Resource};
use crate::store::Store;

/// Options of [`Context::ensure_with`] for an object that exists.
pub struct EnsureOptions<'a, C> {
    unwanted: Option<Unwanted<'a, C>>,
    adopts: Option<Known<'a, C>>,
}

/// Returns whether an uncontrolled object belonged to the owner.
type Known<'a, C> = &'a (dyn Fn(&C) -> bool + Send + Sync);

/// A desired owned object.
pub(super) struct Desired {
    pub(super) key: ObjectKey,
    /// The body of the apply.
    pub(super) body: Value,
    pub(super) hash: u64,
    /// The record of its apply: the controller's name and the hash.
    record: String,
}

// === impl EnsureOptions ===

impl<'a, C> EnsureOptions<'a, C> {
    /// Sets the function that finds unwanted fields of other managers, which the API server accepts together with the
    /// desired state, such as another port of a Service. `unwanted` returns JSON patch operations that remove them, the
    /// last position of a list first. Fields that the API server refuses are found from its refusal.
    #[must_use]
    pub fn unwanted(self, unwanted: &'a (dyn Fn(&C) -> Vec<Value> + Send + Sync)) -> Self {
        EnsureOptions { unwanted: Some(unwanted), ..self }
    }

    /// Sets which uncontrolled objects are adopted. Objects lose their owner reference when they are restored from a
    /// backup, or when their owner is deleted with orphaning. `is_known` returns whether an object belonged to this
    /// owner. An object without the record of an apply is never adopted.
    #[must_use]
    pub fn adopt(self, is_known: &'a (dyn Fn(&C) -> bool + Send + Sync)) -> Self {
        EnsureOptions { adopts: Some(is_known), ..self }
    }

    /// Returns whether to adopt an object.
    fn adopts(&self, child: &C) -> bool
    where
        C: Resource,
    {
        record(child, C::MetadataFilter::APPLIED).is_some()
            && self.adopts.is_some_and(|is_known| is_known(child))
    }

    /// Returns the operations that remove unwanted fields from an object after the desired state was applied.
    pub(super) fn unwanted_in(&self, child: &C) -> Vec<Value> {
        self.unwanted.map_or_else(Vec::new, |unwanted| unwanted(child))
    }

    /// Returns the differences from the desired state.
    fn different(&self, desired: &Desired, child: &C) -> Result<Different, ReconcileError>
    where
        C: Resource + Serialize,
    {
        let observed = json_of(child)?;
        let mut different = deviations(&desired.body, &observed);
        if !different.is_empty() {
            // The view can show less than is desired.
            different = deviations(&wanted::<C>(&desired.body)?, &observed);
        }
        for operation in self.unwanted_in(child) {
            let path = operation["path"].as_str().unwrap_or_default();
            let value = observed.pointer(path).cloned().unwrap_or_default();
            different.push((path.trim_start_matches('/').replace('/', "."), value));
        }
        Ok(different)
    }
}

/// The path of a field, such as `spec.replicas`, and its value.
type Deviation = (String, Value);
type Different = Vec<Deviation>;

impl<C> Default for EnsureOptions<'_, C> {
    fn default() -> Self {
        EnsureOptions { unwanted: None, adopts: None }
    }
}

impl<C> Clone for EnsureOptions<'_, C> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<C> Copy for EnsureOptions<'_, C> {}

impl<C> std::fmt::Debug for EnsureOptions<'_, C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("EnsureOptions").finish_non_exhaustive()
    }
}

// === impl Context ===

impl<V: Resource> Context<V> {
    /// Creates or updates an owned object to match `desired`, and returns it. `desired` contains `metadata.name` and
    /// the desired fields. The kind, the owner reference and the namespace of the owner are filled in. Set the
    /// namespace if the owner is cluster-scoped, or owns the object by a label
    /// ([`ControllerBuilder::owns_labelled`](super::ControllerBuilder::owns_labelled)).
    ///
    /// The object is applied (server-side apply, forced) in three cases: it does not exist; `desired` differs from the
    /// last apply, which removes fields that are no longer set; or a desired field that the view `C` shows differs.
    /// Fields that the view does not show are restored at the next apply. Lists of containers, variables, volumes and
    /// ports are compared by their keys, and resource quantities by value. Changes by admission are recorded in an
    /// annotation and accepted.
    ///
    /// ```
    /// # use controller_machinery::{controller::ReconcileError, manager::Context, object::{Object, Typed}};
    /// # use {k8s_openapi::api::core::v1::ConfigMap, serde_json::json};
    /// # async fn example(cx: Context<Typed<ConfigMap>>) -> Result<(), ReconcileError> {
    /// let desired = json!({"metadata": {"name": "settings"}, "data": {"level": "info"}});
    /// let settings = cx.ensure::<Typed<ConfigMap>>(desired).await?;
    /// println!("{} is as desired", settings.key());
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// - [`ReconcileError::NotOwned`] if an object that the owner does not control has the name.
    /// - [`ReconcileError::Terminating`] if the object with this name is being deleted, or belongs to a former owner of the
    ///   same name and will be deleted.
    /// - [`ReconcileError::Immutable`] if the API server refuses to change a field.
    /// - [`ReconcileError::Contested`] if another program keeps undoing the apply.
    /// - `ErrNotWatched` if the object exists and its view does not select it.
    /// - `ErrUnnamed` if `desired` has no usable name or an impossible namespace.
    /// - `ErrNoNamespace` if the namespace does not exist.
    /// - `ErrWiring` if the controller does not own `C`.
    /// - All errors of a write.
    pub async fn ensure<C>(&self, desired: Value) -> Result<Arc<C>, ReconcileError>
    where
        C: Resource + Serialize,
    {
        self.ensure_with(desired, EnsureOptions::default()).await
    }

    /// Like [`Context::ensure`], with options for the objects of this view.
    ///
    /// # Errors
    /// Those of [`Context::ensure`].
    pub async fn ensure_with<C: Resource + Serialize>(
        &self,
        desired: Value,
        options: EnsureOptions<'_, C>,
    ) -> Result<Arc<C>, ReconcileError> {
        let children = self.children::<C>()?;
        let desired = self.desired::<C>(desired)?;
        if !children.covers(&desired.key) {
            let (kind, key) = (C::kind().kind, &desired.key);
            let what = format!("{kind} {key} is in a namespace that the program does not watch");
            return Err(ReconcileError::forbidden("ErrNotWatched", what));
        }
        match children.get(&desired.key) {
            Some(child) => self.ensure_existing(&children, &desired, options, (child, false)).await,
            None => self.create_child(&children, &desired, options).await,
        }
    }

    /// Returns whether an object matches the desired state, so that [`Context::ensure_with`] would write nothing.
    ///
    /// # Errors
    /// If the controller does not own `C`, or its view cannot show what is desired.
    pub fn is_ensured<C: Resource + Serialize>(
        &self,
        desired: Value,
        options: EnsureOptions<'_, C>,
        child: &C,
    ) -> Result<bool, ReconcileError> {
        let desired = self.desired::<C>(desired)?;
        let is_accepted = is_accepted(&options.different(&desired, child)?, child);
        let is_own = self.owns(child);
        Ok(is_own && is_accepted && is_applied(&desired, child))
    }

    async fn create_child<C: Resource + Serialize>(
        &self,
        children: &Store<C>,
        desired: &Desired,
        options: EnsureOptions<'_, C>,
    ) -> Result<Arc<C>, ReconcileError> {
        let (throttle, now) = (&self.controller.throttle, Instant::now());
        let creation = (self.object.uid(), key_hash::<C>(&desired.key));
        if let Some(wait) = throttle.wait(creation, desired.hash, now) {
            return Err(ReconcileError::contested::<C>(&desired.key, None, wait));
        }
        // The first creation is not counted.
        let is_again = self.lost_children() || throttle.knows(creation, now);
        // Nothing is created that the next pass could not compare.
        wanted::<C>(&desired.body)?;
        // The garbage collector deletes the objects of a deleted owner, and the watch of the owners can lag.
        if self.lost_children() {
            self.ask_for_owner().await?;
        }
        match self.client().apply_new::<C>(&desired.key, &desired.body).await {
            Ok(created) => {
                if is_again {
                    throttle.wrote(creation, desired.hash, now);
                }
                let note = format!("Created {} {}", C::kind().kind, desired.key.name());
                self.publish_write::<C>("Created", &note);
                self.applied(children, desired, options, (created, false)).await
            }
            // The store is out of date, or does not select the object with this name.
            Err(error) if error.is_conflict() => {
                let there = self.client().get::<C>(&desired.key).await;
                let there = there.map_err(|error| failed::<C>("get", &desired.key, error))?;
                let there = children.apply_read(there);
                // If the store still lacks it, the informer does not select it. The apply may add the missing label.
                let is_unseen = children.get(&desired.key).is_none();
                self.ensure_existing(children, desired, options, (there, is_unseen)).await
            }
            // The namespace is missing. An owner in it will be deleted, too.
            Err(error)
                if error.code() == Some(404)
                    && !error.is_not_served()
                    && desired.key.namespace() != self.key().namespace() =>
            {
                let (kind, key) = (C::kind().kind, &desired.key);
                let what = format!("the namespace of {kind} {key} does not exist: create it");
                Err(ReconcileError::forbidden("ErrNoNamespace", what))
            }
            Err(error) => Err(failed::<C>("create", &desired.key, error)),
        }
    }

    async fn ensure_existing<C: Resource + Serialize>(
        &self,
        children: &Store<C>,
        desired: &Desired,
        options: EnsureOptions<'_, C>,
        (child, is_unseen): (Arc<C>, bool),
    ) -> Result<Arc<C>, ReconcileError> {
        let (key, meta) = (&desired.key, child.meta());
        let is_adopted = self.may_write(&options, &*child)?;
        let different = options.different(desired, &*child)?;
        let mut is_applied = is_applied(desired, &*child);
        if is_applied && !is_adopted && !is_unseen && is_accepted(&different, &*child) {
            return Ok(child);
        }
        let (throttle, now) = (&self.controller.throttle, Instant::now());
        if let Some(wait) = throttle.wait((child.uid(), 0), desired.hash, now) {
            // A second installation with other settings also changes the record.
            let is_record = !is_applied && record(&*child, C::MetadataFilter::APPLIED).is_some();
            let field =
                if is_record { Some(record_at::<C>()) } else { blamed(&different, &*child) };
            return Err(ReconcileError::contested::<C>(key, field, wait));
        }
        if is_adopted {
            // If the owner was deleted with orphaning, its watch may not have reported the deletion yet.
            self.ask_for_owner().await?;
        }
        let applied = self.apply_over(desired, options, &*child, &mut is_applied).await?;
        throttle.wrote((child.uid(), 0), desired.hash, now);
        let is_changed = is_unseen || applied.meta().generation != meta.generation;
        if is_adopted {
            let note = format!("Adopted {} {}", C::kind().kind, key.name());
            self.publish_write::<C>("Adopted", &note);
        } else {
            self.publish_change(desired, &*child, is_applied, &different, is_changed);
        }
        let applied = self.applied(children, desired, options, (applied, is_unseen)).await?;
        if is_unseen && children.get(key).is_none() && !self.client().is_dry_run() {
            let kind = C::kind().kind;
            let what = format!(
                "{kind} {:?} exists, but is not among those that the controller watches: restore the \
                 labels that its informer selects, or delete it",
                key.name()
            );
            return Err(ReconcileError::forbidden("ErrNotWatched", what));
        }
        Ok(applied)
    }

    /// Returns whether to adopt an object. Fails if the object must not be written.
    fn may_write<C: Resource>(
        &self,
        options: &EnsureOptions<'_, C>,
        child: &C,
    ) -> Result<bool, ReconcileError> {
        let (key, meta) = (child.key(), child.meta());
        let is_adopted = self.is_orphan(child) && options.adopts(child);
        if !is_adopted && !self.owns(child) {
            let is_namesake =
                |owner: &Owner| owner.is_of(&V::kind()) && owner.name == *self.key().name();
            return Err(match &meta.owner {
                Some(owner) if is_namesake(owner) => ReconcileError::terminating::<C>(key),
                owner => ReconcileError::NotOwned {
                    owner: V::kind().kind.into(),
                    controller: owner.as_ref().map(|it| format!("{} {}", it.kind, it.name).into()),
                    name: Name { kind: C::kind(), key: key.clone() },
                },
            });
        }
        if meta.is_terminating {
            Err(ReconcileError::terminating::<C>(key))
        } else {
            Ok(is_adopted)
        }
    }

    /// Publishes that an object was changed, or restored if the same state was applied before. A change of only the
    /// record is not published.
    fn publish_change<C: Resource>(
        &self,
        desired: &Desired,
        child: &C,
        is_restored: bool,
        was: &Different,
        is_changed: bool,
    ) {
        let (kind, name) = (C::kind().kind, desired.key.name());
        if is_restored
            && !was.is_empty()
            && let Some(place) = blamed(was, child)
        {
            let note = format!("Restored {place} of {kind} {name} after another client changed it");
            self.publish_write::<C>("Restored", &note);
        } else if is_changed || !was.is_empty() {
            let place = was.first().map_or_else(String::new, |(place, _)| format!(": {place}"));
            self.publish_write::<C>("Updated", &format!("Updated {kind} {name}{place}"));
        }
    }

    /// Returns how a label assigns objects of `C` to their owner, if they have no owner reference.
    fn labelled<C: Resource>(&self) -> Option<&Labelled> {
        self.controller.declared.labelled.iter().find(|by| by.view == TypeId::of::<C>())
    }

    /// Returns whether the object has this owner.
    fn owns<C: Resource>(&self, child: &C) -> bool {
        let uid = self.object.uid();
        match self.labelled::<C>() {
            None => child.meta().is_controlled_by(uid),
            Some(by) => {
                child.meta().labels.get(by.label).is_some_and(|it| **it == *uid.to_string())
            }
        }
    }

    /// Returns whether an object has lost its owner reference.
    pub(super) fn is_orphan<C: Resource>(&self, child: &C) -> bool {
        self.labelled::<C>().is_none() && child.meta().owner.is_none()
    }

    /// Checks with the API server that the owner still exists and is not being deleted.
    async fn ask_for_owner(&self) -> Result<(), ReconcileError> {
        let (lost_children, key) = (&self.controller.parts.lost_children, self.key());
        let found = self.client().find::<V>(key).await;
        let live = found.map_err(|error| failed::<V>("list", key, error))?;
        let live = live.map(|live| self.controller.objects.apply_read(live));
        if live.is_none_or(|live| live.uid() != self.object.uid() || live.meta().is_terminating) {
            return Err(ReconcileError::Terminating(Name { kind: V::kind(), key: key.clone() }));
        }
        lost_children.lock().remove(key);
        Ok(())
    }

    /// Returns whether an owned object was deleted since the owner was last confirmed.
    pub(super) fn lost_children(&self) -> bool {
        self.controller.parts.lost_children.lock().contains(self.key())
    }

    /// Deletes the owned objects of view `C` that `keep` rejects, such as those with an earlier name. Objects that
    /// another controller applied stay.
    ///
    /// ```
    /// # use controller_machinery::{controller::ReconcileError, manager::Context, object::{Object, Typed}};
    /// # use k8s_openapi::api::core::v1::ConfigMap;
    /// # async fn example(cx: Context<Typed<ConfigMap>>) -> Result<(), ReconcileError> {
    /// cx.prune::<Typed<ConfigMap>>(|child| *child.key().name() == "settings").await?;
    /// # Ok(()) }
    /// ```
    ///
    /// # Errors
    /// If the controller does not own `C`; all errors of a delete.
    pub async fn prune<C: Resource>(
        &self,
        keep: impl Fn(&C) -> bool,
    ) -> Result<(), ReconcileError> {
        let children = self.children::<C>()?;
        let is_labelled = self.labelled::<C>().is_some();
        // After the owner is deleted, nothing would delete objects that are not listed yet.
        if is_labelled && !self.controller.parts.informer::<C>()?.has_synced() {
            let kind = C::kind().resource();
            let what = format!("{kind} cannot be listed in all namespaces, so some may be left");
            return Err(ReconcileError::transient("ErrNotListed", what));
        }
        for child in self.owned::<C>()? {
            let Meta { key, uid, version, is_terminating, .. } = child.meta();
            if *is_terminating
                || (!is_labelled && is_of_another(&*child, self.controller.parts.controller()))
                || keep(&child)
            {
                continue;
            }
            let only = Preconditions { uid: *uid, version: *version };
            match self.client().delete::<C>(key, only, PropagationPolicy::Background).await {
                Ok(Deletion::Deleted) if !self.client().is_dry_run() => {
                    self.deleted(&children, key, *uid);
                }
                Ok(Deletion::Deleted | Deletion::Terminating) => {}
                Err(error) if error.is_not_found() => continue,
                Err(error) => return Err(failed::<C>("delete", key, error)),
            }
            self.controller.throttle.forget((self.object.uid(), key_hash::<C>(key)));
            let note = format!("Deleted {} {}", C::kind().kind, key.name());
            self.publish_write::<C>("Deleted", &note);
        }
        Ok(())
    }

    /// Returns the objects of view `C` that this one owns, in no particular order, including those being deleted.
    ///
    /// # Errors
    /// If the controller does not own `C`.
    pub fn owned<C: Resource>(&self) -> Result<Vec<Arc<C>>, ReconcileError> {
        let children = self.children::<C>()?;
        Ok(match self.labelled::<C>() {
            None => children.controlled_by(&*self.object)?,
            Some(by) => children.by_index(&by.index, &self.object.uid().to_string())?,
        })
    }

    /// Returns the store of an owned view.
    pub(super) fn children<C: Resource>(&self) -> Result<Store<C>, ReconcileError> {
        if !self.controller.declared.owned.contains(&TypeId::of::<C>()) {
            let (controller, view) = (self.controller.parts.controller(), view::<C>());
            return Err(WiringError(format!(
                "the controller {controller} calls `ensure` for {view} without declaring it, so changes to these objects \
                 would not trigger a reconcile: add `.owns::<{view}>()`"
            ))
            .into());
        }
        self.store::<C>()
    }

    /// Completes the desired state of a caller.
    pub(super) fn desired<C>(&self, mut desired: Value) -> Result<Desired, ReconcileError>
    where
        C: Resource + Serialize,
    {
        if (C::kind().group, C::kind().kind) == ("", "Secret") && !desired["stringData"].is_null() {
            // `stringData` is write-only: a key that is removed from it would stay in `data`.
            let what = "a Secret to be ensured has `stringData`: use `data`, with values in base64";
            return Err(ReconcileError::terminal("ErrWiring", what));
        }
        remove_nulls(&mut desired);
        let key = self.child_key::<C>(&desired["metadata"])?;
        // The hash must not depend on the owner, which is filled in below.
        let hash = hash(&Canonical::of(&desired));
        desired["apiVersion"] = C::kind().api_version().into();
        desired["kind"] = C::kind().kind.into();
        let metadata = &mut desired["metadata"];
        if C::kind().namespaced {
            metadata["namespace"] = json!(key.namespace());
        }
        match self.labelled::<C>() {
            None => metadata["ownerReferences"] = json!([self.object.as_owner()]),
            Some(by) => metadata["labels"][by.label] = json!(self.object.uid()),
        }
        let record = format!("{}/{}", self.controller.parts.controller(), hex(hash));
        desired["metadata"]["annotations"][C::MetadataFilter::APPLIED] = json!(record);
        Ok(Desired { key, body: desired, hash, record })
    }

    /// Returns the key of an owned object with this metadata.
    fn child_key<C: Resource>(&self, metadata: &Value) -> Result<ObjectKey, ReconcileError> {
        let kind = C::kind().kind;
        let unusable = |what: String| {
            ReconcileError::terminal("ErrUnnamed", format!("a {kind} to be ensured has {what}"))
        };
        for field in ["annotations", "labels"] {
            if !(metadata[field].is_null() || metadata[field].is_object()) {
                return Err(unusable(format!("{field} that are no map")));
            }
        }
        let name = metadata["name"].as_str().filter(|name| client::is_name(name));
        let name = name.ok_or_else(|| unusable(format!("the name {}", metadata["name"])))?;
        if !C::kind().namespaced {
            return Ok(ObjectKey::new("", name));
        }
        let (own, wanted) = (self.key().namespace(), &metadata["namespace"]);
        let is_inside = V::kind().namespaced;
        let is_free = self.labelled::<C>().is_some() || !is_inside;
        match wanted.as_str() {
            Some(namespace) if is_free && client::is_name(namespace) => {
                Ok(ObjectKey::new(namespace, name))
            }
            Some(namespace) if is_inside && *namespace == **own => Ok(self.key().sibling(name)),
            None if is_inside && wanted.is_null() => Ok(self.key().sibling(name)),
            // The garbage collector would delete it.
            Some(_) if is_inside => Err(unusable(format!(
                "the namespace {wanted}, but owned objects of a {} must be in its own, {own:?}",
                V::kind().kind
            ))),
            _ => Err(unusable(format!("the namespace {wanted}: name one in its metadata"))),
        }
    }

    /// Stores the response of an apply. If admission changed it, records the change in an annotation, so that the
    /// next comparison accepts it. `is_unseen`: the informer may not select it, so the response is stored as a read
    /// and enqueues nothing.
    pub(super) async fn applied<C: Resource + Serialize>(
        &self,
        children: &Store<C>,
        desired: &Desired,
        options: EnsureOptions<'_, C>,
        (answer, is_unseen): (C, bool),
    ) -> Result<Arc<C>, ReconcileError> {
        if self.client().is_dry_run() {
            return Ok(Arc::new(answer));
        }
        // Compares the response: the store returns a newer object if the watch has reported another client's change.
        let is_applied = is_applied(desired, &answer);
        let admitted = admitted(&options.different(desired, &answer)?);
        let is_recorded = record(&answer, C::MetadataFilter::ADMITTED) == admitted.as_deref();
        let take_in = |answer| match is_unseen {
            true => children.apply_read(answer),
            false => children.apply_response(answer),
        };
        let child = take_in(answer);
        if !is_applied {
            // Admission removes the record itself.
            let field = Some(record_at::<C>());
            return Err(ReconcileError::contested::<C>(&desired.key, field, WINDOW));
        }
        if is_recorded {
            return Ok(child);
        }
        // This patch needs no version: a change in between would not match the record.
        let patch = json!({ "metadata": {
            "uid": child.uid(), "annotations": { C::MetadataFilter::ADMITTED: admitted },
        }});
        let recorded = self.client().patch::<C>(&desired.key, &Patch::Merge(&patch)).await;
        let recorded = recorded.map_err(conflict_if_another);
        let recorded = recorded.map_err(|error| failed::<C>("update", &desired.key, error))?;
        let different = options.different(desired, &recorded)?;
        let rejected = (!is_accepted(&different, &recorded)).then(|| blamed(&different, &recorded));
        let child = take_in(recorded);
        match rejected {
            None => Ok(child),
            // Admission makes a different change each time.
            Some(field) => Err(ReconcileError::contested::<C>(&desired.key, field, WINDOW)),
        }
    }
}

/// Returns the hash of an owned object's kind and key.
fn key_hash<C: Resource>(key: &ObjectKey) -> u64 {
    hash(&json!([C::kind().group, C::kind().kind, key.namespace(), key.name()]))
}

/// Returns the annotation of this name.
pub(super) fn record<'a, C: Resource>(child: &'a C, annotation: &str) -> Option<&'a str> {
    child.meta().annotations.get(annotation).map(InternedStr::as_str)
}

/// Returns the path of the record of the last apply.
fn record_at<C: Resource>() -> String {
    format!("metadata.annotations.{}", C::MetadataFilter::APPLIED)
}

/// Returns whether exactly this state was applied last. Records of earlier versions lack the controller.
fn is_applied<C: Resource>(desired: &Desired, child: &C) -> bool {
    record(child, C::MetadataFilter::APPLIED)
        .is_some_and(|record| record == desired.record || record == hex(desired.hash))
}

/// Returns whether another controller applied this object.
fn is_of_another<C: Resource>(child: &C, controller: &str) -> bool {
    let by = record(child, C::MetadataFilter::APPLIED).and_then(|record| record.split_once('/'));
    by.is_some_and(|(by, _)| by != controller)
}

/// Returns whether an object matches the desired state, apart from recorded changes by admission.
fn is_accepted<C: Resource>(different: &Different, child: &C) -> bool {
    different.is_empty()
        || record(child, C::MetadataFilter::ADMITTED) == admitted(different).as_deref()
}

/// Returns the hash of each difference, path and value; `None` if there is none.
fn admitted(different: &Different) -> Option<String> {
    let hash_of = |(place, value): &Deviation| hex(hash(&(place, Canonical::of(value))));
    let hashes: Vec<_> = different.iter().map(hash_of).collect();
    (!hashes.is_empty()).then(|| hashes.join(","))
}

/// Returns the path of the changed field, or `spec` if recorded admission changes make it ambiguous.
fn blamed<C: Resource>(different: &Different, child: &C) -> Option<String> {
    let is_admitted = record(child, C::MetadataFilter::ADMITTED).is_some();
    Some(match different.as_slice() {
        [] => "metadata".to_owned(),
        [_, _, ..] if is_admitted => "spec".to_owned(),
        [(place, _), ..] => place.clone(),
    })
}

pub(super) fn failed<C: Resource>(
    verb: &'static str,
    key: &ObjectKey,
    error: client::Error,
) -> ReconcileError {
    ReconcileError::Call { verb, kind: C::kind().kind, key: key.clone(), source: Box::new(error) }
}

/// Returns the part of `desired` that the view shows. Fails if the view cannot deserialize it.
fn wanted<C: Resource + Serialize>(desired: &Value) -> Result<Value, ReconcileError> {
    let read = C::deserialize(desired).map_err(|error| {
        let view = view::<C>();
        let what = format!(
            "the view {view} cannot read what is desired ({error}): give what is not always there \
             `#[serde(default)]`"
        );
        ReconcileError::terminal("ErrWiring", what)
    })?;
    let mut shown = json_of(&read)?;
    project(&mut shown, desired);
    // The record is compared separately.
    if let Some(annotations) = shown["metadata"]["annotations"].as_object_mut() {
        annotations.remove(C::MetadataFilter::APPLIED);
    }
    Ok(shown)
}

pub(super) fn json_of<V: Serialize>(object: &V) -> Result<Value, ReconcileError> {
    serde_json::to_value(object).map_err(|error| {
        let what = format!("{} cannot be represented as JSON: {error}", view::<V>());
        ReconcileError::terminal("ErrWiring", what)
    })
}
