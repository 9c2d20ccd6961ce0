//! Passes whose writes come back: as responses, and over the watch.

use super::*;
use crate::controller::{Retries, enqueue};
use crate::object::fixtures::Thing;
use crate::object::{Meta, ResourceVersion, Uid};
use crate::store::{self, Store, Writer};
use crate::workqueue::Backoff;

/// `ns/NAME`, as a write has left it.
fn named(name: &str, version: u64) -> Thing {
    let mut meta = Meta::named(ObjectKey::new("ns", name));
    meta.uid = UID.parse::<Uid>().unwrap();
    meta.version = ResourceVersion::new(version);
    Thing { meta }
}

fn thing(version: u64) -> Thing {
    named("thing", version)
}

const UID: &str = "00000000-0000-4000-8000-000000000001";

/// An event during a reconcile.
#[derive(Debug, Clone, Copy)]
enum Comes {
    /// The watch shows this version.
    News(u64),
    /// The watch shows that the thing is gone, as of this version.
    Gone(u64),
    /// The response to our write that created this version.
    Response(u64),
    /// The response to our write to `ns/other`.
    ResponseOfOther(u64),
    /// The response to our delete.
    ResponseToDelete,
    /// Nothing, forever.
    Nothing,
    /// The pass fails.
    Failure,
}

struct Writing {
    writer: Mutex<Writer<Thing>>,
    store: Store<Thing>,
    /// The events in the first reconcile.
    script: Mutex<Vec<Comes>>,
    passes: Arc<Mutex<Vec<String>>>,
}

impl Reconciler for Writing {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        self.passes.lock().push(key.name().to_string());
        let script = std::mem::take(&mut *self.script.lock());
        for comes in script {
            match comes {
                Comes::News(version) => self.writer.lock().apply(thing(version)),
                Comes::Gone(version) => self.writer.lock().delete(thing(version)),
                Comes::Response(version) => drop(self.store.apply_response(thing(version))),
                Comes::ResponseOfOther(version) => {
                    drop(self.store.apply_response(named("other", version)));
                }
                Comes::ResponseToDelete => {
                    self.store.apply_delete(&thing(0).meta.key, UID.parse().unwrap());
                }
                Comes::Nothing => std::future::pending().await,
                Comes::Failure => return Err(wrong(ErrorClass::Terminal)),
            }
            tokio::task::yield_now().await;
        }
        Ok(Action::Done)
    }
}

/// The passes, if this happens during the first one, over `ns/thing`.
async fn passes(first: &[Comes]) -> Vec<String> {
    let (mut writer, store) = store::new(Vec::new());
    writer.apply(thing(1));
    let passes: Arc<Mutex<Vec<String>>> = Arc::default();
    let (script, passed) = (Mutex::new(first.to_vec()), passes.clone());
    // The handler comes later: what writes is inside of the controller whose queue it fills.
    let (sender, queue) = std::sync::mpsc::channel::<Handle>();
    let handler = std::sync::OnceLock::new();
    writer.on_delta(move |delta, initial| {
        let enqueue = handler.get_or_init(|| enqueue::for_object(queue.recv().unwrap()));
        enqueue(delta, initial);
    });
    let reconciler = Writing { writer: Mutex::new(writer), store, script, passes: passed };
    // No retry comes before the end: only a request causes another reconcile.
    let late = Backoff { base: 1000 * SECOND, max: 1000 * SECOND };
    let retries = Retries { transient: late, ..Retries::default() };
    let controller = Controller::new("test", reconciler, Options { retries, ..Options::default() });
    sender.send(controller.handle()).unwrap();
    controller.handle().queue.add(thing(1).meta.key);
    // Time is paused, so it advances only when there is nothing else left to do.
    controller.run(sleep(600 * SECOND)).await;
    std::mem::take(&mut *passes.lock())
}

#[tokio::test(start_paused = true)]
async fn one_more_reconcile_follows_a_write_in_any_order_of_events() {
    use Comes::{Failure, Gone, News, Nothing, Response, ResponseToDelete};
    for first in [
        &[Response(2), News(2)][..],
        &[News(2), Response(2)],
        &[Response(3), Response(2), News(2), News(3)],
        &[Response(3), News(2), News(3)],
        &[News(2), Response(3), News(3)],
        &[Response(2), Failure],
        &[News(2), Failure],
        &[News(2), Nothing],
        &[ResponseToDelete, Gone(2)],
        &[ResponseToDelete, Response(2)],
        &[Gone(2)],
    ] {
        assert_eq!(passes(first).await.len(), 2, "{first:?}");
    }
    assert_eq!(passes(&[News(1)]).await.len(), 1, "nothing has changed");
    let news: Vec<Comes> = (2..300).map(News).collect();
    assert_eq!(passes(&news).await.len(), 2, "however much comes");
}

#[tokio::test(start_paused = true)]
async fn a_reconcile_that_writes_another_object_of_its_kind_enqueues_that() {
    assert_eq!(passes(&[Comes::ResponseOfOther(2)]).await, ["thing", "other"]);
}
