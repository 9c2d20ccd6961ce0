//! Handlers that enqueue the keys to reconcile after a change in a store.
//!
//! `initial` means that the delta comes from the first list or a resync: no user waits for it, so it gets
//! [`Priority::Low`].

use super::{Handle, Name};
use crate::object::{Kind, Object, ObjectKey, Resource};
use crate::store::Delta;
use crate::workqueue::{Key, Priority};

impl Key for ObjectKey {
    type Tenant = crate::object::InternedStr;

    /// The namespace. All cluster-scoped objects are one tenant.
    fn tenant(&self) -> &crate::object::InternedStr {
        self.namespace()
    }
}

/// Enqueues the object itself, for the kind that the controller reconciles.
pub fn for_object<V: Object>(handle: Handle) -> impl Fn(&Delta<V>, bool) + Send + Sync + 'static {
    move |delta, initial| {
        handle.queue.add_with(delta.object().key(), priority(initial));
    }
}

/// Enqueues the controller of the object, if it is of this kind (same group, any version). If the object got another
/// controller, enqueues both.
pub fn for_owner<V: Object>(
    handle: Handle,
    kind: Kind,
) -> impl Fn(&Delta<V>, bool) + Send + Sync + 'static {
    for_mapped(handle, move |object| owner(&kind, object))
}

/// Enqueues the keys, for example a `Vec` of them, that `keys` returns for the new and the old state of the object.
/// `keys` can read stores, for example through an index. It is called while the change is being reported: it must
/// neither block nor write to a store.
pub fn for_mapped<V: Object, K: PartialEq>(
    handle: Handle,
    keys: impl Fn(&V) -> K + Send + Sync + 'static,
) -> impl Fn(&Delta<V>, bool) + Send + Sync + 'static
where
    for<'a> &'a K: IntoIterator<Item = &'a ObjectKey>,
{
    move |delta, initial| {
        let add = |key: &ObjectKey| handle.queue.add_with(key, priority(initial));
        let now = keys(delta.object());
        if let Delta::Updated { old, .. } = delta
            && let before = keys(old)
            // Added twice, a key that a worker has already taken would run twice.
            && before != now
        {
            (&before).into_iter().for_each(add);
        }
        (&now).into_iter().for_each(add);
    }
}

/// Enqueues every key whose last reconcile waited for the name of an object ([`ErrorClass::Waiting`](super::ErrorClass::Waiting))
/// when that object is deleted or gets another controller. Also when the labels or annotations of an uncontrolled
/// object change, which can make it adoptable. The view has a kind, because keys wait for a name of a kind.
pub fn waiting_when_freed<V: Resource>(
    handle: Handle,
) -> impl Fn(&Delta<V>, bool) + Send + Sync + 'static {
    move |delta, _| {
        let freed = match delta {
            Delta::Added(..) => false,
            Delta::Updated { old, new } => {
                let (old, new) = (old.meta(), new.meta());
                let is_changed = (&old.labels, &old.annotations) != (&new.labels, &new.annotations);
                old.owner != new.owner || (new.owner.is_none() && is_changed)
            }
            Delta::Deleted(..) => true,
        };
        if freed {
            handle.wake_waiting(&Name { kind: V::kind(), key: delta.object().key().clone() });
        }
    }
}

fn priority(initial: bool) -> Priority {
    if initial { Priority::Low } else { Priority::High }
}

/// Returns the key of the object's controller, if the controller is of this kind.
pub(crate) fn owner<V: Object>(kind: &Kind, object: &V) -> Option<ObjectKey> {
    let meta = object.meta();
    let owner = meta.owner.as_deref().filter(|owner| owner.is_of(kind))?;
    Some(match kind.namespaced {
        true => meta.key.sibling(owner.name.clone()),
        false => ObjectKey::new("", owner.name.clone()),
    })
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use futures::FutureExt;

    use super::*;
    use crate::object::fixtures::Thing;
    use crate::object::{Meta, Owner, Uid};
    use crate::store::{self, Index};
    use crate::workqueue::WorkQueue;

    const APP: Kind = Kind::namespaced("app.example.com", "v1", "App", "apps");

    /// `ns/child`, controlled by an object of this apiVersion, kind and name.
    fn child(owner: Option<(&str, &str, &str)>) -> Arc<Thing> {
        let owner = owner.map(|(api_version, kind, name)| Owner {
            api_version: api_version.into(),
            kind: kind.into(),
            name: name.into(),
            uid: Uid::NONE,
            block_owner_deletion: true,
        });
        let mut meta = Meta::named(ObjectKey::new("ns", "child"));
        meta.owner = owner.map(Box::new);
        Arc::new(Thing { meta })
    }

    /// Returns the keys and priorities that this handler enqueues.
    async fn enqueued<H: Fn(&Delta<Thing>, bool)>(
        handler: impl Fn(Handle) -> H,
        delta: Delta<Thing>,
        initial: bool,
    ) -> Vec<(String, Priority)> {
        let handle = Handle::new(WorkQueue::new());
        handler(handle.clone())(&delta, initial);
        let queue = handle.queue;
        let mut keys = Vec::new();
        while let Some(Some(taken)) = queue.get().now_or_never() {
            keys.push((taken.key().to_string(), taken.priority()));
        }
        keys
    }

    fn people(keys: &[&str]) -> Vec<(String, Priority)> {
        keys.iter().map(|key| ((*key).to_owned(), Priority::High)).collect()
    }

    #[tokio::test]
    async fn a_mapping_can_read_a_store() {
        let (mut writer, users) = store::new(vec![Index::new("uses", |thing: &Thing, each| {
            let owner = thing.meta.owner.as_ref();
            owner.into_iter().for_each(|owner| each(owner.name.clone()));
        })]);
        let mut user = Meta::named(ObjectKey::new("ns", "user"));
        user.owner = child(Some(("v1", "Thing", "child"))).meta.owner.clone();
        writer.apply(Thing { meta: user });
        let keys = move |used: &Thing| {
            let users = users.by_index("uses", used.meta.key.name()).expect("it has this index");
            users.iter().map(|user| user.meta.key.clone()).collect::<Vec<_>>()
        };
        let handle = Handle::new(WorkQueue::new());
        for_mapped(handle.clone(), keys)(&Delta::Added(child(None)), false);
        assert_eq!(handle.queue.get().await.unwrap().key().to_string(), "ns/user");
    }

    #[tokio::test]
    async fn an_object_is_enqueued_with_the_priority_of_its_delta() {
        let added = || Delta::Added(child(None));
        assert_eq!(enqueued(for_object, added(), false).await, people(&["ns/child"]));
        let initial = enqueued(for_object, added(), true).await;
        assert_eq!(initial, [("ns/child".to_owned(), Priority::Low)]);
    }

    #[tokio::test]
    async fn the_controller_of_an_object_is_found_by_group_and_kind() {
        let owned = |handle| for_owner(handle, APP);
        for (owner, expected) in [
            (Some(("app.example.com/v1", "App", "web")), people(&["ns/web"])),
            (Some(("app.example.com/v2", "App", "web")), people(&["ns/web"])),
            (Some(("other.example.com/v1", "App", "web")), people(&[])),
            (Some(("app.example.com/v1", "Foo", "web")), people(&[])),
            (None, people(&[])),
        ] {
            let delta = Delta::Deleted(child(owner));
            assert_eq!(enqueued(owned, delta, false).await, expected, "{owner:?}");
        }
    }

    #[tokio::test]
    async fn a_change_of_the_controller_enqueues_both_controllers() {
        let delta = Delta::Updated {
            old: child(Some(("app.example.com/v1", "App", "before"))),
            new: child(Some(("app.example.com/v1", "App", "after"))),
        };
        let keys = enqueued(|handle| for_owner(handle, APP), delta, false).await;
        assert_eq!(keys, people(&["ns/before", "ns/after"]));
    }

    #[tokio::test]
    async fn the_owner_of_an_object_can_be_cluster_scoped() {
        let kind = Kind { namespaced: false, ..APP };
        let delta = Delta::Added(child(Some(("app.example.com/v1", "App", "web"))));
        assert_eq!(
            enqueued(|handle| for_owner(handle, kind), delta, false).await,
            people(&["web"])
        );
    }

    #[tokio::test]
    async fn mapped_keys_of_old_and_new_state_are_enqueued_once() {
        let keys = |thing: &Thing| {
            let owner =
                thing.meta.owner.as_ref().map(|owner| thing.meta.key.sibling(owner.name.clone()));
            owner.into_iter().chain([thing.meta.key.clone()]).collect::<Vec<_>>()
        };
        let delta = Delta::Updated {
            old: child(Some(("v1", "Node", "before"))),
            new: child(Some(("v1", "Node", "after"))),
        };
        let keys = enqueued(|handle| for_mapped(handle, keys), delta, false).await;
        assert_eq!(keys, people(&["ns/before", "ns/child", "ns/after"]));
    }
}
