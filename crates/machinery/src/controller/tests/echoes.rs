//! Passes whose writes come back: as answers, and over the watch.

use std::collections::VecDeque;

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

/// An event during a pass.
#[derive(Debug, Clone, Copy)]
enum Comes {
    /// The watch shows this version.
    News(u64),
    /// The watch shows that the thing is gone, as of this version.
    Gone(u64),
    /// The answer to our write that created this version.
    Answer(u64),
    /// The answer to our write to `ns/other`.
    AnswerOfOther(u64),
    /// The answer to our delete.
    AnswerToDelete,
    /// Nothing, forever.
    Nothing,
    /// The pass fails.
    Failure,
}

struct Writes {
    writer: Mutex<Writer<Thing>>,
    store: Store<Thing>,
    /// The events in the passes of the first controller.
    script: Mutex<VecDeque<Vec<Comes>>>,
    /// The passes of both controllers.
    passes: [Mutex<Vec<String>>; 2],
}

/// One of two controllers on one store.
struct Writing(Arc<Writes>, usize);

impl Reconciler for Writing {
    type Error = Wrong;

    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, Wrong> {
        self.0.passes[self.1].lock().push(key.name().to_string());
        let script = match self.1 {
            0 => self.0.script.lock().pop_front().unwrap_or_default(),
            _ => Vec::new(),
        };
        for comes in script {
            match comes {
                Comes::News(version) => self.0.writer.lock().apply(thing(version)),
                Comes::Gone(version) => self.0.writer.lock().deleted(thing(version)),
                Comes::Answer(version) => drop(self.0.store.apply_response(thing(version))),
                Comes::AnswerOfOther(version) => {
                    drop(self.0.store.apply_response(named("other", version)));
                }
                Comes::AnswerToDelete => {
                    self.0.store.apply_delete(&thing(0).meta.key, UID.parse().unwrap());
                }
                Comes::Nothing => std::future::pending().await,
                Comes::Failure => return Err(wrong(Class::Terminal)),
            }
            tokio::task::yield_now().await;
        }
        Ok(Action::Done)
    }
}

/// The passes of two controllers of one kind if this happens during the first pass of the first
/// one, over `ns/thing`.
async fn of_both(first: &[Comes]) -> [Vec<String>; 2] {
    // No retry comes before the end: only a request causes another pass.
    let late = Backoff { base: 1000 * SECOND, max: 1000 * SECOND };
    of_both_with(first, Retries { transient: late, ..Retries::default() }).await
}

async fn of_both_with(first: &[Comes], retries: Retries) -> [Vec<String>; 2] {
    let (mut writer, store) = store::new(Vec::new());
    writer.apply(thing(1));
    let writes = Arc::new(Writes {
        writer: Mutex::new(writer),
        store,
        script: Mutex::new(VecDeque::from([first.to_vec()])),
        passes: [Mutex::default(), Mutex::default()],
    });
    let controllers = [0, 1].map(|number| {
        let options = Options { retries, ..Options::default() };
        Controller::new("test", Writing(writes.clone(), number), options)
    });
    let handlers = controllers.each_ref().map(|one| enqueue::for_object(one.handle()));
    writes.writer.lock().on_delta(move |delta, initial| {
        handlers.iter().for_each(|handler| handler(delta, initial));
    });
    controllers[0].handle().queue().add(thing(1).meta.key);
    // Time is paused, so it advances only when there is nothing else left to do.
    futures::future::join_all(controllers.map(|one| one.run(sleep(600 * SECOND)))).await;
    writes.passes.each_ref().map(|passes| std::mem::take(&mut *passes.lock()))
}

/// Returns the number of passes of the first controller.
async fn passes(first: &[Comes]) -> usize {
    of_both(first).await[0].len()
}

#[tokio::test(start_paused = true)]
async fn a_pass_that_writes_is_not_woken_by_its_answer_nor_by_the_watch_after_it() {
    use Comes::{Answer, News};
    assert_eq!(passes(&[Answer(2), News(2)]).await, 1);
    assert_eq!(passes(&[Answer(2), Answer(3), News(2), News(3)]).await, 1);
    assert_eq!(passes(&[Answer(3), Answer(2), News(2), News(3)]).await, 1);
    assert_eq!(passes(&[Answer(2), Comes::Failure]).await, 1);
    assert_eq!(passes(&[News(2), Answer(2)]).await, 2, "nobody could know whose it was");
}

#[tokio::test(start_paused = true)]
async fn a_pass_that_deletes_is_not_woken_by_its_answer_nor_by_the_watch_after_it() {
    assert_eq!(passes(&[Comes::AnswerToDelete, Comes::Gone(2)]).await, 1);
    assert_eq!(passes(&[Comes::Gone(2)]).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_pass_that_writes_another_key_of_its_kind_wakes_that_key() {
    let [first, _] = of_both(&[Comes::AnswerOfOther(2)]).await;
    assert_eq!(first, ["thing", "other"]);
}

#[tokio::test(start_paused = true)]
async fn a_pass_that_writes_wakes_the_other_controller_of_the_kind() {
    let [first, second] = of_both(&[Comes::Answer(2), Comes::News(2)]).await;
    assert_eq!((first.len(), second), (1, vec!["thing".to_owned()]), "once");
    let [_, second] = of_both(&[Comes::AnswerToDelete]).await;
    assert_eq!(second, ["thing"]);
}

#[tokio::test(start_paused = true)]
async fn what_others_wrote_during_a_pass_is_looked_at_after_it_before_or_between_own_writes() {
    use Comes::{Answer, News};
    assert_eq!(passes(&[News(2)]).await, 2);
    assert_eq!(passes(&[News(2), Answer(3), News(3)]).await, 2);
    assert_eq!(passes(&[Answer(2), News(2), News(3)]).await, 2);
    assert_eq!(passes(&[Answer(3), News(2), News(3)]).await, 2);
    assert_eq!(passes(&[Answer(2), Answer(4), News(2), News(3), News(4)]).await, 2);
    assert_eq!(passes(&[News(2), Comes::Failure]).await, 2);
}

#[tokio::test(start_paused = true)]
async fn a_pass_whose_answer_is_overtaken_by_the_end_of_its_object_looks_again() {
    let overtaken = [Comes::AnswerToDelete, Comes::Answer(2)];
    let [first, _] = of_both_with(&overtaken, Retries::default()).await;
    assert_eq!(first.len(), 2);
}

#[tokio::test(start_paused = true)]
async fn a_pass_that_is_dropped_loses_no_request() {
    assert_eq!(passes(&[Comes::News(2), Comes::Nothing]).await, 2);
}

#[tokio::test(start_paused = true)]
async fn however_much_comes_during_a_pass_it_is_one_more() {
    let news: Vec<Comes> = (2..300).map(Comes::News).collect();
    assert_eq!(passes(&news).await, 2);
}
