//! One scenario per promise.

mod view;
mod server;
mod handlers;

use std::sync::Arc;

use parking_lot::Mutex;
use workload_operator::informer::Informer;
use workload_operator::object::Object;
use workload_operator::reflector::State;
use workload_operator::store::Delta;

use crate::thing::Thing;
use controller_machinery::testing::{Received, Server};

/// Notifications of a handler, one word each: `+a/x`, `~a/x`, `-a/x`.
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
    format!("{sign}{key}")
}

fn state(informer: &Informer<Thing>) -> State {
    informer.health()[0].1.state
}

fn lists(model: &Server) -> usize {
    let begins = |request: &&Received| {
        let has = |parameter: &str| request.uri.contains(parameter);
        (!has("watch=") || has("sendInitialEvents=true")) && !has("continue=")
    };
    model.requests().iter().filter(begins).count()
}
