//! One scenario per promise.

mod view;
mod server;
mod handlers;

use std::sync::Arc;

use parking_lot::Mutex;
use workload_operator::informer::Informer;
use workload_operator::object::Object;
use workload_operator::reflector::State;
use workload_operator::store::{Delta, Origin};

use crate::model::Model;
use crate::thing::Thing;

/// What an inline handler was told, one word each: `+a/x`, `~a/x`, `-a/x`; our own in brackets.
fn log(informer: &Informer<Thing>) -> Arc<Mutex<Vec<String>>> {
    let log = Arc::new(Mutex::new(Vec::new()));
    let told = log.clone();
    informer.handle(move |delta, _| told.lock().push(word(delta)));
    log
}

fn word(delta: &Delta<Thing>) -> String {
    let (sign, object, origin) = match delta {
        Delta::Added(object, origin) => ('+', object, origin),
        Delta::Updated { new, origin, .. } => ('~', new, origin),
        Delta::Deleted(object, origin) => ('-', object, origin),
    };
    match origin {
        Origin::Own => format!("({sign}{})", object.key()),
        Origin::Server | Origin::Unclaimed => format!("{sign}{}", object.key()),
    }
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
