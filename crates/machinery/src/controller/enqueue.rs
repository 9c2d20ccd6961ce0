//! From a change in a store to the keys that must be reconciled for it.
//!
//! Each function makes a handler of deltas. `initial` means that the delta comes from the first
//! list or a resync: nobody waits for it in particular, so it goes to [`Band::Initial`].

use super::Handle;
use crate::object::{Kind, Object, ObjectKey, Owner};
use crate::store::{Delta, Origin, Write};
use crate::workqueue::{Band, Key};

impl Key for ObjectKey {
    type Tenant = crate::object::Text;

    /// The namespace. All cluster-scoped objects are one tenant.
    fn tenant(&self) -> &crate::object::Text {
        self.namespace()
    }

    fn prefetch(&self) {
        self.fetch_ahead();
    }
}

/// Enqueues the object itself, for the kind that the controller reconciles. The controller's own
/// writes (status, finalizers) do not wake it.
pub fn for_object<V: Object>(handle: Handle) -> impl Fn(&Delta<V>, bool) + Send + Sync + 'static {
    move |delta, initial| {
        if delta.origin() != Origin::Own {
            handle.changed(delta.object().key(), Write::unclaimed(delta), band(initial));
        }
    }
}

/// Enqueues the controller of the object, if it is of this kind (same group, any version). If the
/// object changed hands, enqueues both. A controller's own writes to its children do not wake it.
pub fn for_owner<V: Object>(
    handle: Handle,
    kind: Kind,
) -> impl Fn(&Delta<V>, bool) + Send + Sync + 'static {
    move |delta, initial| {
        if delta.origin() == Origin::Own {
            return;
        }
        let (old, new) = sides(delta);
        let before = old.and_then(|old| owner(&kind, old));
        let now = owner(&kind, new);
        let write = Write::unclaimed(delta);
        if before != now {
            before.iter().for_each(|key| handle.changed(key, write, band(initial)));
        }
        now.iter().for_each(|key| handle.changed(key, write, band(initial)));
    }
}

/// Enqueues the keys that `keys` returns for the object, and for what it was before. A controller's
/// own writes count here: made for one key, they may affect another.
pub fn for_mapped<V: Object>(
    handle: Handle,
    keys: impl Fn(&V) -> Vec<ObjectKey> + Send + Sync + 'static,
) -> impl Fn(&Delta<V>, bool) + Send + Sync + 'static {
    move |delta, initial| {
        let (old, new) = sides(delta);
        for side in old.into_iter().chain([new]) {
            // A key named by both sides is one piece of work.
            keys(side).iter().for_each(|key| handle.changed(key, None, band(initial)));
        }
    }
}

/// Enqueues the key of an object that is gone, whoever removed it. For children named after their
/// owner: the owner may have been waiting for the name.
pub fn for_freed_name<V: Object>(
    handle: Handle,
) -> impl Fn(&Delta<V>, bool) + Send + Sync + 'static {
    move |delta, initial| {
        if let Delta::Deleted(gone, _) = delta {
            handle.changed(gone.key(), None, band(initial));
        }
    }
}

/// Wakes every key whose last pass was [`Class::Forbidden`](super::Class::Forbidden) when an object
/// is removed or changes hands: one of them may have been waiting for its name.
pub fn forbidden_when_freed<V: Object>(
    handle: Handle,
) -> impl Fn(&Delta<V>, bool) + Send + Sync + 'static {
    move |delta, _| {
        let freed = match delta {
            Delta::Added(..) => false,
            Delta::Updated { old, new, .. } => old.meta().owner != new.meta().owner,
            Delta::Deleted(..) => true,
        };
        if freed {
            handle.wake_forbidden();
        }
    }
}

fn band(initial: bool) -> Band {
    if initial { Band::Initial } else { Band::People }
}

/// What the object was, and what it is or last was.
fn sides<V>(delta: &Delta<V>) -> (Option<&V>, &V) {
    match delta {
        Delta::Added(new, _) | Delta::Deleted(new, _) => (None, new),
        Delta::Updated { old, new, .. } => (Some(old), new),
    }
}

/// The key of the object's controller, if the controller is of this kind.
fn owner<V: Object>(kind: &Kind, object: &V) -> Option<ObjectKey> {
    let meta = object.meta();
    let Owner { api_version, kind: name_of_kind, name, .. } = meta.owner.as_ref()?;
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    if group != kind.group || *name_of_kind != *kind.kind {
        return None;
    }
    Some(match kind.namespaced {
        true => meta.key.sibling(name.clone()),
        false => ObjectKey::new("", name.clone()),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::object::fixtures::Thing;
    use crate::object::{Meta, Uid};
    use crate::workqueue::WorkQueue;

    const APP: Kind = Kind::namespaced("app.example.com", "v1", "App", "apps");

    /// `ns/child`, controlled by an object of this apiVersion, kind and name.
    fn child(owner: Option<(&str, &str, &str)>) -> Arc<Thing> {
        let owner = owner.map(|(api_version, kind, name)| Owner {
            api_version: api_version.into(),
            kind: kind.into(),
            name: name.into(),
            uid: Uid::NONE,
        });
        let mut meta = Meta::named(ObjectKey::new("ns", "child"));
        meta.owner = owner;
        Arc::new(Thing { meta })
    }

    /// What this handler enqueues.
    async fn enqueued<H: Fn(&Delta<Thing>, bool)>(
        handler: impl Fn(Handle) -> H,
        delta: Delta<Thing>,
        initial: bool,
    ) -> Vec<(String, Band)> {
        let handle = Handle::new(WorkQueue::new());
        handler(handle.clone())(&delta, initial);
        let queue = handle.queue();
        queue.shut_down();
        let mut keys = Vec::new();
        while let Some(taken) = queue.get().await {
            keys.push((taken.key().to_string(), taken.band()));
        }
        keys
    }

    fn people(keys: &[&str]) -> Vec<(String, Band)> {
        keys.iter().map(|key| ((*key).to_owned(), Band::People)).collect()
    }

    #[tokio::test]
    async fn an_object_is_enqueued_in_the_band_of_its_delta_unless_we_changed_it_ourselves() {
        let added = |origin| Delta::Added(child(None), origin);
        assert_eq!(enqueued(for_object, added(Origin::Server), false).await, people(&["ns/child"]));
        let initial = enqueued(for_object, added(Origin::Server), true).await;
        assert_eq!(initial, [("ns/child".to_owned(), Band::Initial)]);
        assert!(enqueued(for_object, added(Origin::Own), false).await.is_empty());
    }

    #[tokio::test]
    async fn the_controller_of_a_child_is_enqueued_by_group_and_kind_whatever_the_version() {
        let owned = |handle| for_owner(handle, APP);
        for (owner, expected) in [
            (Some(("app.example.com/v1", "App", "web")), people(&["ns/web"])),
            (Some(("app.example.com/v2", "App", "web")), people(&["ns/web"])),
            (Some(("other.example.com/v1", "App", "web")), people(&[])),
            (Some(("app.example.com/v1", "Foo", "web")), people(&[])),
            (None, people(&[])),
        ] {
            let delta = Delta::Deleted(child(owner), Origin::Server);
            assert_eq!(enqueued(owned, delta, false).await, expected, "{owner:?}");
        }
    }

    #[tokio::test]
    async fn a_name_that_is_freed_is_enqueued_whoever_freed_it() {
        for origin in [Origin::Server, Origin::Own] {
            let gone = Delta::Deleted(child(None), origin);
            assert_eq!(enqueued(for_freed_name, gone, false).await, people(&["ns/child"]));
            let new = Delta::Added(child(None), origin);
            assert!(enqueued(for_freed_name, new, false).await.is_empty());
        }
    }

    #[tokio::test]
    async fn of_a_child_that_changes_hands_both_controllers_are_enqueued() {
        let delta = Delta::Updated {
            old: child(Some(("app.example.com/v1", "App", "before"))),
            new: child(Some(("app.example.com/v1", "App", "after"))),
            origin: Origin::Server,
        };
        let keys = enqueued(|handle| for_owner(handle, APP), delta, false).await;
        assert_eq!(keys, people(&["ns/before", "ns/after"]));
    }

    #[tokio::test]
    async fn a_controllers_own_write_to_a_child_does_not_wake_it() {
        let app = Some(("app.example.com/v1", "App", "web"));
        let delta = Delta::Updated { old: child(app), new: child(app), origin: Origin::Own };
        assert!(enqueued(|handle| for_owner(handle, APP), delta, false).await.is_empty());
    }

    #[tokio::test]
    async fn the_owner_of_a_child_may_be_cluster_scoped() {
        let kind = Kind { namespaced: false, ..APP };
        let delta = Delta::Added(child(Some(("app.example.com/v1", "App", "web"))), Origin::Server);
        assert_eq!(
            enqueued(|handle| for_owner(handle, kind), delta, false).await,
            people(&["web"])
        );
    }

    #[tokio::test]
    async fn mapped_keys_of_both_sides_are_enqueued_once_each() {
        let keys = |thing: &Thing| {
            let owner =
                thing.meta.owner.as_ref().map(|owner| thing.meta.key.sibling(owner.name.clone()));
            owner.into_iter().chain([thing.meta.key.clone()]).collect()
        };
        let delta = Delta::Updated {
            old: child(Some(("v1", "Node", "before"))),
            new: child(Some(("v1", "Node", "after"))),
            origin: Origin::Own,
        };
        let keys = enqueued(|handle| for_mapped(handle, keys), delta, false).await;
        assert_eq!(keys, people(&["ns/before", "ns/child", "ns/after"]));
    }
}
