//! Writes of a pass whose news arrive over the watch before the answer.

use std::collections::VecDeque;
use std::sync::OnceLock;

use super::*;
use crate::controller::{Retries, enqueue};
use crate::object::fixtures::Thing;
use crate::object::{Meta, ResourceVersion, Uid};
use crate::store::{self, Store, Writer};
use crate::workqueue::Backoff;

/// `ns/thing`, as a write has left it.
fn thing(version: u64) -> Thing {
    let mut meta = Meta::named(ObjectKey::new("ns", "thing"));
    meta.uid = UID.parse::<Uid>().unwrap();
    meta.version = ResourceVersion::new(version);
    Thing { meta }
}

const UID: &str = "00000000-0000-4000-8000-000000000001";

/// What happens during a pass.
#[derive(Debug, Clone, Copy)]
enum Comes {
    /// The watch shows this version.
    News(u64),
    /// The watch shows that the thing is gone, as of this version.
    Gone(u64),
    /// The answer to our write that created this version.
    Answer(u64),
    /// The answer to our delete.
    AnswerToDelete,
    /// Nothing, forever.
    Nothing,
    /// The pass fails.
    Failure,
}

type Handler = Box<dyn Fn(&store::Delta<Thing>, bool) + Send + Sync>;

struct Writes {
    writer: Mutex<Writer<Thing>>,
    store: Store<Thing>,
    /// Enqueues as an informer's handler would.
    handler: OnceLock<Handler>,
    script: Mutex<VecDeque<Vec<Comes>>>,
    passes: Mutex<usize>,
}

struct Writing(Arc<Writes>);

impl Writes {
    fn passes(&self) -> usize {
        *self.passes.lock()
    }
}

impl Reconciler for Writing {
    type Error = Wrong;

    async fn reconcile(&self, _: &ObjectKey) -> Result<Action, Wrong> {
        *self.0.passes.lock() += 1;
        let script = self.0.script.lock().pop_front().unwrap_or_default();
        for comes in script {
            let handler = self.0.handler.get().unwrap();
            match comes {
                Comes::News(version) => {
                    self.0.writer.lock().apply(thing(version), |delta| handler(&delta, false));
                }
                Comes::Gone(version) => {
                    self.0.writer.lock().deleted(thing(version), |delta| handler(&delta, false));
                }
                Comes::Answer(version) => drop(self.0.store.wrote(thing(version))),
                Comes::AnswerToDelete => {
                    self.0.store.removed(&thing(0).meta.key, UID.parse().unwrap());
                }
                Comes::Nothing => std::future::pending().await,
                Comes::Failure => return Err(Wrong(Some(Class::Terminal), None)),
            }
            tokio::task::yield_now().await;
        }
        Ok(Action::Done)
    }
}

/// How many passes there are if this happens during the first.
async fn passes(first: &[Comes]) -> usize {
    let (writer, store) = store::new(Vec::new());
    let writes = Arc::new(Writes {
        writer: Mutex::new(writer),
        store,
        handler: OnceLock::new(),
        script: Mutex::new(VecDeque::from([first.to_vec()])),
        passes: Mutex::new(0),
    });
    writes.writer.lock().apply(thing(1), drop);
    // No retry comes before the end: only a request causes another pass.
    let late = Backoff { base: 1000 * SECOND, max: 1000 * SECOND };
    let retries = Retries { transient: late, ..Retries::default() };
    let options = Options { retries, ..Options::default() };
    let controller = Controller::new("test", Writing(writes.clone()), options);
    let handle = controller.handle();
    let _ = writes.handler.set(Box::new(enqueue::for_object(handle.clone())));
    handle.queue().add(thing(1).meta.key);
    // Time is paused, so it advances only when there is nothing else left to do.
    controller.run(sleep(600 * SECOND)).await;
    writes.passes()
}

#[tokio::test(start_paused = true)]
async fn the_echo_of_a_pass_wakes_nobody_whether_it_comes_after_the_answer_or_before() {
    use Comes::{Answer, News};
    assert_eq!(passes(&[Answer(2), News(2)]).await, 1);
    assert_eq!(passes(&[News(2), Answer(2)]).await, 1);
    assert_eq!(passes(&[News(2), News(3), Answer(2), Answer(3)]).await, 1);
    assert_eq!(passes(&[News(2), Answer(2), Answer(3), News(3)]).await, 1);
}

#[tokio::test(start_paused = true)]
async fn a_delete_of_a_pass_that_the_watch_shows_before_the_answer_wakes_nobody() {
    assert_eq!(passes(&[Comes::Gone(2), Comes::AnswerToDelete]).await, 1);
    assert_eq!(passes(&[Comes::Gone(2)]).await, 2);
}

#[tokio::test(start_paused = true)]
async fn what_others_wrote_during_a_pass_is_looked_at_after_it_before_or_between_own_writes() {
    use Comes::{Answer, News};
    assert_eq!(passes(&[News(2)]).await, 2);
    assert_eq!(passes(&[News(2), News(3), Answer(3)]).await, 2);
    assert_eq!(passes(&[News(2), Answer(2), News(3)]).await, 2);
    assert_eq!(passes(&[News(2), Answer(3), News(3)]).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_pass_that_fails_has_its_own_answers_and_only_those() {
    use Comes::{Answer, Failure, News};
    assert_eq!(passes(&[News(2), Answer(2), Failure]).await, 1);
    assert_eq!(passes(&[News(2), Failure]).await, 2);
}

#[tokio::test(start_paused = true)]
async fn of_a_pass_that_is_dropped_no_wish_is_lost() {
    assert_eq!(passes(&[Comes::News(2), Comes::Nothing]).await, 2);
}

#[tokio::test(start_paused = true)]
async fn however_much_comes_during_a_pass_it_is_one_more() {
    let news: Vec<Comes> = (2..300).map(Comes::News).collect();
    assert_eq!(passes(&news).await, 2);
}
