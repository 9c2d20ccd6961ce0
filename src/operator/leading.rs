//! Reconciling only while this process leads.

use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Notify;
use tokio::time::sleep;

use crate::controller::{Action, Reconciler};
use crate::leader_election::Leadership;
use crate::object::{Object, ObjectKey};
use crate::store::Store;
use crate::workqueue::{Band, WorkQueue};

/// How soon it is noticed that this process leads again.
const NOTICE: Duration = Duration::from_secs(1);

/// A reconciler whose passes do nothing while another process leads.
///
/// Every write checks leadership anyway. This keeps a standby from trying: a pass that would be
/// refused at its first write is not a failure and must not inflate the key's backoff.
pub(super) struct WhileLeading<R> {
    pub(super) reconciler: R,
    /// `None` if there is no election: this process always leads.
    pub(super) leadership: Option<Leadership>,
    /// A pass did nothing: [`catch_up`] has to follow.
    pub(super) skipped: Arc<Notify>,
}

impl<R: Reconciler> Reconciler for WhileLeading<R> {
    type Error = R::Error;

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, R::Error> {
        if !self.leadership.as_ref().is_none_or(Leadership::is_permitted) {
            self.skipped.notify_one();
            return Ok(Action::Done);
        }
        self.reconciler.reconcile(key).await
    }
}

/// Whenever this process leads again after passes were skipped: a pass for every object. (Keeping
/// the skipped keys in the queue until then would have them come round for as long as another
/// process leads; a process that never led gets none, as its handlers are not added before.)
pub(super) async fn catch_up<V: Object>(
    leadership: Leadership,
    skipped: Arc<Notify>,
    objects: Store<V>,
    queue: WorkQueue<ObjectKey>,
) -> Infallible {
    loop {
        skipped.notified().await;
        while !leadership.is_permitted() {
            sleep(NOTICE).await;
        }
        for object in objects.list() {
            queue.add_with(object.key(), Band::Initial);
        }
    }
}

#[cfg(test)]
mod tests {
    use parking_lot::Mutex;

    use super::*;
    use crate::controller::{Controller, Options};
    use crate::object::{Kind, Meta};
    use crate::store;

    #[derive(Debug, serde::Deserialize)]
    struct Thing {
        metadata: Meta,
    }

    crate::view!(Thing: Kind::namespaced("example.com", "v1", "Thing", "things"));

    #[derive(Clone, Default)]
    struct Reconciled(Arc<Mutex<Vec<ObjectKey>>>);

    impl Reconciler for Reconciled {
        type Error = Infallible;
        async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Infallible> {
            self.0.lock().push(key.clone());
            Ok(Action::Done)
        }
    }

    #[tokio::test(start_paused = true)]
    async fn passes_skipped_while_another_led_are_made_up_for_when_this_process_leads_again() {
        let (leadership, skipped) = (Leadership::of_tests(), Arc::new(Notify::new()));
        let (mut writer, objects) = store::new(Vec::new());
        let keys = ["a", "b"].map(|name| ObjectKey::new("ns", name));
        for key in &keys {
            writer.apply(Thing { metadata: Meta::named(key.clone()) });
        }
        let reconciled = Reconciled::default();
        let reconciler = WhileLeading {
            reconciler: reconciled.clone(),
            leadership: Some(leadership.clone()),
            skipped: skipped.clone(),
        };
        let controller = Controller::new("test", reconciler, Options::default());
        let queue = controller.handle().queue().clone();
        tokio::spawn(controller.run(std::future::pending()));
        tokio::spawn(catch_up(leadership.clone(), skipped, objects, queue.clone()));

        queue.add(&keys[0]);
        sleep(Duration::from_secs(3600)).await;
        assert!(reconciled.0.lock().is_empty(), "{:?}", reconciled.0.lock());
        let seen = queue.snapshot();
        assert_eq!((seen.adds, seen.delayed), (1, 0), "it has come round");

        for _ in 0..2 {
            leadership.permit(true);
            sleep(2 * NOTICE).await;
            let mut caught_up = std::mem::take(&mut *reconciled.0.lock());
            caught_up.sort();
            assert_eq!(caught_up, keys, "each object once");
            leadership.permit(false);
            for key in &keys {
                queue.add(key);
                sleep(NOTICE).await;
            }
        }
    }
}
