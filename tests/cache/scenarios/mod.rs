//! One scenario per promise.

mod view;
mod server;
mod handlers;

use std::future::Future;
use std::sync::Arc;

use parking_lot::Mutex;
use workload_operator::informer::Informer;
use workload_operator::object::{Object, ObjectKey};
use workload_operator::reflector::State;
use workload_operator::store::{ControllerId, Delta, WriteOrigin};

use crate::model::Model;
use crate::thing::Thing;

/// Notifications of a handler, one word each: `+a/x`, `~a/x`, `-a/x`; with an author in brackets.
type Log = Arc<Mutex<Vec<String>>>;

fn log(informer: &Informer<Thing>) -> Log {
    let log = Arc::new(Mutex::new(Vec::new()));
    let notified = log.clone();
    informer.handle(move |delta, _| notified.lock().push(word(delta)));
    log
}

fn word(delta: &Delta<Thing>) -> String {
    let sign = match delta {
        Delta::Added(..) => '+',
        Delta::Updated { .. } => '~',
        Delta::Deleted(..) => '-',
    };
    let key = delta.object().key();
    match delta.origin() {
        Some(_) => format!("({sign}{key})"),
        None => format!("{sign}{key}"),
    }
}

/// Does this in a pass.
async fn in_a_pass<T>(does: impl Future<Output = T>) -> T {
    let origin =
        WriteOrigin { controller: ControllerId::new(), key: ObjectKey::new("a", "parent") };
    origin.scope(does).await.0
}

fn state(informer: &Informer<Thing>) -> State {
    informer.health()[0].1.state
}

fn lists(model: &Model) -> usize {
    let begins = |request: &&String| {
        (!request.contains("watch=") || request.contains("sendInitialEvents=true"))
            && !request.contains("continue=")
    };
    model.requests().iter().filter(begins).count()
}
