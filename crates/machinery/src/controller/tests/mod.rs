//! A controller with a reconciler that follows a script.

mod retries;
mod isolation;
mod shutdown;
mod echoes;

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use parking_lot::{Condvar, Mutex};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep};

use super::{
    Action, Controller, ErrorClass, Finished, Handle, Name, Options, Outcome, ReconcileError,
    Reconciler, Summary,
};
use crate::client;
use crate::object::{Kind, ObjectKey};
use crate::workqueue::Limits;

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn wrong(class: ErrorClass) -> ReconcileError {
    ReconcileError::Custom {
        class,
        reason: "ErrTest".into(),
        message: "as the test wants it".to_owned(),
    }
}

/// The name of a child.
fn child(name: &str) -> Name {
    let kind = Kind::namespaced("example.com", "v1", "Child", "children");
    Name { kind, key: ObjectKey::new("ns", name) }
}

/// Behaviour of the reconciles over a key.
#[derive(Debug, Clone, Copy)]
enum Does {
    Succeed,
    Again(Duration),
    Fail(ErrorClass),
    Refuse(Duration),
    /// Fails, and names the pause before the next try.
    Pause(Duration),
    /// Waits until the name of this child is free.
    Wait(&'static str),
    /// The same, after a while.
    WaitAfter(Duration, &'static str),
    Panic,
    PanicWhenDropped,
    Hang,
    Take(Duration),
    /// Blocks its thread until released.
    Block,
}

/// Does what the script says and notes when each reconcile began.
#[derive(Default)]
struct ScriptState {
    script: Mutex<HashMap<String, Does>>,
    began: Mutex<Vec<(String, Instant)>>,
    ended: Mutex<Vec<String>>,
    outcomes: Mutex<Vec<Outcome>>,
    released: (Mutex<bool>, Condvar),
}

struct Script(Arc<ScriptState>);

impl Reconciler for Script {
    async fn reconcile(&self, key: &ObjectKey) -> Result<Action, ReconcileError> {
        let name = key.name().to_string();
        self.0.began.lock().push((name.clone(), Instant::now()));
        let does = self.0.script.lock().get(&name).copied().unwrap_or(Does::Succeed);
        match does {
            Does::Succeed => {}
            Does::Again(after) => return Ok(Action::RequeueAfter(after)),
            Does::Fail(class) => return Err(wrong(class)),
            Does::Refuse(after) => {
                let (code, reason, message) = (429, String::new(), "later".to_owned());
                let (causes, retry_after) = (Vec::new(), Some(after));
                let error = client::Error::Api { code, reason, message, causes, retry_after };
                return Err(error.into());
            }
            Does::Pause(wait) => {
                return Err(ReconcileError::Contested { name: child("c"), field: None, wait });
            }
            Does::Panic => panic!("as the test wants it"),
            Does::Wait(name) => return Err(ReconcileError::Terminating(child(name))),
            Does::WaitAfter(after, name) => {
                sleep(after).await;
                return Err(ReconcileError::Terminating(child(name)));
            }
            Does::PanicWhenDropped => {
                struct Bomb;
                impl Drop for Bomb {
                    fn drop(&mut self) {
                        panic!("while dropped");
                    }
                }
                let _bomb = Bomb;
                std::future::pending::<()>().await;
            }
            Does::Hang => std::future::pending().await,
            Does::Take(time) => sleep(time).await,
            Does::Block => self.0.block(),
        }
        self.0.ended.lock().push(name);
        Ok(Action::Done)
    }
}

impl ScriptState {
    /// Bounded, so that a test that fails before releasing anything still ends.
    fn block(&self) {
        let (released, changed) = &self.released;
        let mut released = released.lock();
        changed.wait_while_for(&mut released, |released| !*released, 60 * SECOND);
    }

    fn release(&self) {
        *self.released.0.lock() = true;
        self.released.1.notify_all();
    }

    fn set(&self, name: &str, does: Does) {
        self.script.lock().insert(name.to_owned(), does);
    }

    /// Returns the number of reconciles over `name` that began.
    fn passes(&self, name: &str) -> usize {
        self.began.lock().iter().filter(|(began, _)| began == name).count()
    }

    /// Milliseconds between reconciles over `name`.
    fn gaps(&self, name: &str) -> Vec<u128> {
        let began = self.began.lock();
        let times: Vec<Instant> =
            began.iter().filter(|(began, _)| began == name).map(|(_, at)| *at).collect();
        times.windows(2).map(|pair| (pair[1] - pair[0]).as_millis()).collect()
    }
}

struct Running {
    told: Arc<ScriptState>,
    handle: Handle,
    stop: oneshot::Sender<()>,
    ended: JoinHandle<Summary>,
}

impl Running {
    fn add(&self, name: &str) {
        self.handle.queue.add(ObjectKey::new("ns", name));
    }

    async fn stop(self) -> Summary {
        self.stop.send(()).unwrap();
        self.ended.await.unwrap()
    }
}

/// A controller with exact backoffs and this many workers, whose keys do what `script` says.
fn start(workers: usize, script: &[(&str, Does)]) -> Running {
    start_with(Options { workers, ..Options::default() }, script)
}

fn start_with(options: Options, script: &[(&str, Does)]) -> Running {
    let told = Arc::new(ScriptState::default());
    script.iter().for_each(|(name, does)| told.set(name, *does));
    let limits = Limits { jitter: 0.0, ..Limits::default() };
    let seen = told.clone();
    let finished: Finished = Arc::new(move |_, _, outcome| seen.outcomes.lock().push(outcome));
    let options = Options { finished: Some(finished), limits, ..options };
    let controller = Controller::new("test", Script(told.clone()), options);
    let handle = controller.handle();
    let (stop, stopped) = oneshot::channel();
    let ended = tokio::spawn(controller.run(async {
        let _ = stopped.await;
    }));
    Running { told, handle, stop, ended }
}
