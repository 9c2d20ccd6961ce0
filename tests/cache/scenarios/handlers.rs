//! Notifications of handlers, and the end of an informer.

use parking_lot::Mutex;
use std::sync::Arc;
use workload_operator::client::{Preconditions, PropagationPolicy};
use workload_operator::informer::{Error, Informer};
use workload_operator::object::{Kind, Meta, Object};
use workload_operator::reflector::State;
use workload_operator::shutdown::Shutdown;

use serde_json::json;

use super::{log, state};
use crate::thing::{Thing, client, id, informer, key, pass, poison, thing, until};
use controller_machinery::testing::Server;

#[tokio::test(start_paused = true)]
async fn panicking_handlers_stop_neither_the_reflector_nor_others() {
    let model = Server::new(1);
    model.put(&id("a", "x"), thing(1));
    let informer = informer(&model);
    informer.handle(|_, _| panic!("a handler"));
    let log = log(&informer);
    informer.synced().await;
    model.put(&id("a", "x"), thing(2));
    until("the others are notified", || log.lock().len() == 2).await;
    assert_eq!(informer.handler_panics(), 2);
    assert_eq!(state(&informer), State::Live);
}

#[tokio::test(start_paused = true)]
async fn a_late_handler_receives_existing_objects_and_later_changes() {
    let model = Server::new(1);
    model.put(&id("a", "x"), thing(1));
    let informer = informer(&model);
    informer.synced().await;
    let (log, initial) = (log(&informer), Arc::new(Mutex::new(Vec::new())));
    assert_eq!(*log.lock(), ["+a/x"]);
    let sees = initial.clone();
    informer.handle(move |_, initial| sees.lock().push(initial));
    model.delete(&id("a", "x"));
    until("both are notified", || log.lock().len() == 2 && initial.lock().len() == 2).await;
    assert_eq!((&*log.lock()[1], initial.lock().clone()), ("-a/x", vec![true, false]));
}

#[tokio::test(start_paused = true)]
async fn a_late_handler_receives_the_store_including_own_writes() {
    let model = Server::new(1);
    model.put(&id("a", "x"), thing(1));
    let informer = informer(&model);
    let early = log(&informer);
    informer.synced().await;
    let (client, store) = (client(&model), informer.store());
    let mut body = thing(1);
    body["metadata"] = json!({ "name": "y", "namespace": "a" });
    let new = client.create::<Thing>(&key(&id("a", "y")), &body).await.unwrap();
    store.apply_response(new);
    let x = store.get(&key(&id("a", "x"))).unwrap();
    let preconditions = Preconditions { uid: x.uid(), version: x.meta().version };
    client.delete::<Thing>(x.key(), preconditions, PropagationPolicy::Background).await.unwrap();
    store.apply_delete(x.key(), x.uid());
    let late = log(&informer);
    pass(5).await;
    assert_eq!(*early.lock(), ["+a/x", "+a/y", "-a/x"]);
    assert_eq!(*late.lock(), ["+a/y"]);
}

/// A view whose decoding panics, as a bug would.
#[derive(Debug)]
struct Deadly {
    metadata: Meta,
}

workload_operator::view!(Deadly: Kind::namespaced("test.example.com", "v1", "Thing", "things"));

impl<'de> serde::Deserialize<'de> for Deadly {
    fn deserialize<D: serde::Deserializer<'de>>(_: D) -> Result<Deadly, D::Error> {
        unreachable!("the task dies");
    }
}

#[tokio::test(start_paused = true)]
async fn a_dead_task_is_an_error_and_a_state() {
    let model = Server::new(1);
    let informer = Informer::<Deadly>::builder(client(&model)).namespaces(["a", "b"]).build();
    let running = informer.clone();
    let ends = tokio::spawn(async move { running.run(Shutdown::manual()).await });
    informer.synced().await;
    model.put(&id("a", "x"), poison());
    let error = ends.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Died { .. }), "{error}");
    assert!(informer.health().iter().all(|(_, health)| health.state == State::Dead));
    assert!(informer.health().iter().any(|(_, h)| h.why.as_deref() == Some("its task panicked")));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_an_informer_that_runs_only_once() {
    let model = Server::new(1);
    let informer = Informer::<Thing>::builder(client(&model)).build();
    let shutdown = Shutdown::manual();
    let (running, until) = (informer.clone(), shutdown.clone());
    let ends = tokio::spawn(async move { running.run(until).await });
    informer.synced().await;
    shutdown.request();
    ends.await.unwrap().unwrap();
    assert_eq!(state(&informer), State::Dead);
    assert!(matches!(informer.run(shutdown).await, Err(Error::HasRun { .. })));
}
