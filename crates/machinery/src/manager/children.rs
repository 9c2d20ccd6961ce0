//! Children: compared, applied, written through.

use std::any::TypeId;
use std::sync::Arc;

use serde::Serialize;
use serde_json::{Value, json};

use super::Context;
use super::compared::{APPLIED, contains, form, hash, project, without_nulls};
use super::wiring::{WiringError, view};
use crate::client::{Deletion, Preconditions};
use crate::controller::Problem;
use crate::object::{Keep, Meta, ObjectKey, Resource};
use crate::store::Store;

/// What the metadata of a child keeps, for [`Context::ensure`]: `Meta<Applied>`. A [`Keep`] of your
/// own may keep more; it has to keep this annotation, too: [`Applied::ANNOTATION`].
#[derive(Debug, Clone, Copy)]
pub enum Applied {}

impl Applied {
    /// The annotation that records the hash of what was applied.
    pub const ANNOTATION: &str = APPLIED;
}

impl Keep for Applied {
    fn label(_: &str) -> bool {
        false
    }
    fn annotation(key: &str) -> bool {
        key == APPLIED
    }
}

// === impl Context ===

impl<V: Resource> Context<V> {
    /// Has a child be as `desired`, and returns it. `desired` needs `metadata.name` and what the
    /// child is to have; its kind, its namespace (the object's own) and the owner reference are
    /// filled in.
    ///
    /// It is applied (server-side apply, by force) if it does not exist, if `desired` is not what was
    /// applied last, so that a field no longer set goes, or if a desired field that the view `C`
    /// shows is not as desired. A child that admission or another controller keeps from being as desired is
    /// accepted as it is after one try, until it changes. A child that is being deleted is left
    /// alone: its end wakes the object. What the view does not show is restored at the next apply.
    ///
    /// # Errors
    /// [`Problem::Taken`] (`ErrResourceExists`) if the name is taken by what the object does not control;
    /// `ErrWiring` if the controller does not own `C`; all that can go wrong with a write.
    pub async fn ensure<C>(&self, desired: Value) -> Result<Arc<C>, Problem>
    where
        C: Resource + Serialize,
        C::Keep: Keep,
    {
        let children = self.children::<C>()?;
        let (key, desired, hash) = self.complete::<C>(desired)?;
        let child = match children.get(&key) {
            Some(child) => child,
            None => match self.client().apply_new::<C>(&key, &desired).await {
                Ok(created) => return self.applied(&children, &desired, created),
                // The store lags, or does not hold whatever has the name.
                Err(error) if error.is_conflict() => match self.client().get::<C>(&key).await {
                    Ok(there) => children.learned(there),
                    Err(_) => return Err(error.into()),
                },
                Err(error) => return Err(error.into()),
            },
        };
        if !child.meta().is_controlled_by(self.object.uid()) {
            return Err(Problem::taken::<V, C>(&key));
        }
        let recorded = child.meta().annotations.get(APPLIED).is_some_and(|now| **now == *hash);
        if child.meta().deleting || recorded && self.is_settled(&wanted::<C>(&desired)?, &*child)? {
            return Ok(child);
        }
        let mut only = desired.clone();
        only["metadata"]["uid"] = json!(child.uid()); // This one, not a namesake.
        let applied = self.client().apply::<C>(&key, &only).await?;
        self.applied(&children, &desired, applied)
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
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error.into()),
            }
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

    /// The child's key, what is applied of it, and the hash of that.
    fn complete<C: Resource>(&self, desired: Value) -> Result<(ObjectKey, Value, String), Problem>
    where
        C::Keep: Keep,
    {
        if !C::Keep::annotation(APPLIED) {
            let view = view::<C>();
            let what = format!(
                "the view {view} does not keep the annotation {APPLIED}: give it `metadata: \
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
        desired["metadata"]["annotations"][APPLIED] = hash.clone().into();
        Ok((key, desired, hash))
    }

    /// Whether a child has what is wanted, or is accepted as it is.
    fn is_settled<C>(&self, wanted: &Value, child: &C) -> Result<bool, Problem>
    where
        C: Resource + Serialize,
    {
        let shown = json_of(child)?;
        let known = (TypeId::of::<C>(), child.key().clone());
        let form = || form(wanted, &project(&shown, wanted));
        Ok(contains(&shown, wanted) || self.pass.accepts(self.key(), &known, form()))
    }

    /// Takes in the answer to an apply.
    fn applied<C>(&self, children: &Store<C>, desired: &Value, answer: C) -> Result<Arc<C>, Problem>
    where
        C: Resource + Serialize,
    {
        let (wanted, shown) = (wanted::<C>(desired)?, json_of(&answer)?);
        let known = (TypeId::of::<C>(), answer.key().clone());
        let other = !contains(&shown, &wanted);
        let form = other.then(|| form(&wanted, &project(&shown, &wanted)));
        self.pass.accept(self.key(), known, form);
        Ok(children.wrote(answer))
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
