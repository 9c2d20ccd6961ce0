//! What handlers are told, and how an informer ends.

use parking_lot::Mutex;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Semaphore;
use workload_operator::client::Preconditions;
use workload_operator::informer::{Error, Informer};
use workload_operator::object::{Kind, Object};
use workload_operator::reflector::{Observer, State};
use workload_operator::shutdown::Shutdown;

use serde_json::json;

use super::{log, state, word};
use crate::model::Model;
use crate::thing::{Thing, client, held, id, informer, key, pass, run, served, thing, until};

#[tokio::test(start_paused = true)]
async fn a_slow_subscriber_holds_one_change_per_object_and_misses_none() {
    let model = Model::new(1);
    for name in ["x", "y"] {
        model.put(&id("a", name), thing(0));
    }
    let informer = informer(&model);
    let (gate, last) = (Arc::new(Semaphore::new(0)), Arc::new(Mutex::new(Vec::new())));
    let (held_up, told) = (gate.clone(), last.clone());
    let subscription = informer.subscribe(move |delta, _| {
        let (gate, told) = (held_up.clone(), told.clone());
        async move {
            gate.acquire().await.unwrap().forget();
            told.lock().push(word(&delta));
        }
    });
    informer.synced().await;
    for value in 0..500 {
        model.put(&id("a", "x"), thing(value));
        model.put(&id("a", "z"), thing(value));
        model.delete(&id("a", "z"));
        pass(0).await;
        tokio::task::yield_now().await;
    }
    until("all is held", || held(&informer) == served(&model)).await;
    assert!(subscription.backlog() <= 3, "{}", subscription.backlog());
    assert!(!subscription.has_synced());
    gate.add_permits(1000);
    subscription.synced().await;
    until("all is told", || subscription.backlog() == 0).await;
    assert!(last.lock().len() <= 6, "{:?}", last.lock());
}

#[tokio::test(start_paused = true)]
async fn handlers_that_panic_stop_neither_the_reflector_nor_the_others() {
    let model = Model::new(1);
    model.put(&id("a", "x"), thing(1));
    let informer = informer(&model);
    informer.handle(|_, _| panic!("an inline handler"));
    let log = log(&informer);
    let subscription = informer.subscribe(|_, _| async { panic!("a subscriber") });
    informer.synced().await;
    subscription.synced().await;
    model.put(&id("a", "x"), thing(2));
    until("the others are told", || log.lock().len() == 2).await;
    until("all panics are counted", || informer.handler_panics() == 4).await;
    assert_eq!(state(&informer), State::Live);
}

#[tokio::test(start_paused = true)]
async fn a_late_handler_is_told_of_what_is_there_and_of_what_comes() {
    let model = Model::new(1);
    model.put(&id("a", "x"), thing(1));
    let informer = informer(&model);
    informer.synced().await;
    let log = log(&informer);
    assert_eq!(*log.lock(), ["+a/x"]);
    let told = Arc::new(Mutex::new(Vec::new()));
    let sees = told.clone();
    let subscription = informer.subscribe(move |delta, initial| {
        sees.lock().push((word(&delta), initial));
        std::future::ready(())
    });
    subscription.synced().await;
    model.delete(&id("a", "x"));
    until("both are told", || log.lock().len() == 2 && told.lock().len() == 2).await;
    assert_eq!(*told.lock(), [("+a/x".to_owned(), true), ("-a/x".to_owned(), false)]);
}

#[tokio::test(start_paused = true)]
async fn a_late_handler_is_told_what_the_others_were_and_then_of_our_writes_as_they_are_confirmed()
{
    let model = Model::new(1);
    model.put(&id("a", "x"), thing(1));
    let informer = informer(&model);
    let early = log(&informer);
    informer.synced().await;
    let (client, store) = (client(&model), informer.store());
    let mut body = thing(1);
    body["metadata"] = json!({ "name": "y", "namespace": "a" });
    let new = client.create::<Thing>(&key(&id("a", "y")), &body).await.unwrap();
    store.wrote(new);
    let x = store.get(&key(&id("a", "x"))).unwrap();
    let preconditions = Preconditions { uid: x.uid(), version: x.meta().version };
    client.delete::<Thing>(x.key(), preconditions).await.unwrap();
    store.removed(x.key(), x.uid());
    assert_eq!(*early.lock(), ["+a/x"], "nothing is confirmed yet");
    let late = log(&informer);
    pass(5).await;
    assert_eq!(*late.lock(), ["+a/x", "+a/y", "(-a/x)"], "it did not make y");
}

/// Kills the reflector's task at the first event.
struct Deadly;

impl Observer for Deadly {
    fn event(&self, _: &Kind) {
        unreachable!("the task dies");
    }
}

#[tokio::test(start_paused = true)]
async fn a_task_that_dies_is_an_error_and_a_state() {
    let model = Model::new(1);
    let builder = Informer::<Thing>::builder(client(&model)).namespaces(["a", "b"]);
    let informer = builder.observer(Arc::new(Deadly)).build();
    let running = informer.clone();
    let ends = tokio::spawn(async move { running.run(Shutdown::manual()).await });
    informer.synced().await;
    model.put(&id("a", "x"), thing(1));
    let error = ends.await.unwrap().unwrap_err();
    assert!(matches!(error, Error::Died { .. }), "{error}");
    assert!(informer.health().iter().all(|(_, health)| health.state == State::Dead));
    assert!(informer.health().iter().any(|(_, h)| h.why.as_deref() == Some("its task panicked")));
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_ends_it_in_good_order_and_it_runs_only_once() {
    let model = Model::new(1);
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

#[tokio::test(start_paused = true)]
async fn a_resync_tells_the_handlers_again_of_what_is_held() {
    let model = Model::new(1);
    model.put(&id("a", "x"), thing(1));
    let every = Duration::from_secs(60);
    let informer = run(Informer::<Thing>::builder(client(&model)).resync(every).build());
    let log = log(&informer);
    let changed = Arc::new(AtomicUsize::new(0));
    let counted = changed.clone();
    informer.handle(move |_, initial| {
        counted.fetch_add(usize::from(!initial), Ordering::Relaxed);
    });
    informer.synced().await;
    pass(70).await;
    assert_eq!(*log.lock(), ["+a/x", "~a/x"]);
    assert_eq!(changed.load(Ordering::Relaxed), 0, "nobody waits for it");
}

#[tokio::test(start_paused = true)]
async fn a_resync_tells_nothing_of_what_we_made_before_it_is_confirmed() {
    let model = Model::new(1);
    model.put(&id("a", "x"), thing(1));
    let every = Duration::from_secs(60);
    let informer = run(Informer::<Thing>::builder(client(&model)).resync(every).build());
    let log = log(&informer);
    informer.synced().await;
    let mut ours = thing(1);
    ours["metadata"] = json!({
        "name": "y", "namespace": "a", "resourceVersion": "1000000",
        "uid": "00000000-0000-4000-8000-00000000000a",
    });
    informer.store().wrote(serde_json::from_value(ours).unwrap());
    pass(70).await;
    assert_eq!(*log.lock(), ["+a/x", "~a/x"]);
}
