//! The readers' view.

use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use workload_operator::client::{Patch, Preconditions, PropagationPolicy};
use workload_operator::informer::Informer;
use workload_operator::object::Object;
use workload_operator::reflector::State;

use super::{lists, log, state};
use crate::thing::{
    Thing, client, held, id, informer, key, pass, poison, run, served, thing, until,
};
use controller_machinery::testing::{Fault, Server};

#[tokio::test(start_paused = true)]
async fn a_change_on_the_server_reaches_the_store_and_the_handlers() {
    let model = Server::new(1);
    model.put(&id("a", "x"), thing(1));
    let informer = informer(&model);
    let log = log(&informer);
    informer.synced().await;
    assert_eq!(*log.lock(), ["+a/x"]);
    model.put(&id("a", "x"), thing(2));
    model.put(&id("a", "y"), thing(1));
    model.delete(&id("a", "x"));
    until("the changes arrive", || log.lock().len() == 4).await;
    assert_eq!(*log.lock(), ["+a/x", "~a/x", "+a/y", "-a/x"]);
    assert_eq!(held(&informer), served(&model));
}

#[tokio::test(start_paused = true)]
async fn a_relist_of_unchanged_objects_calls_no_handler_and_replaces_no_object() {
    let model = Server::new(1);
    model.put(&id("a", "x"), thing(1));
    let informer = informer(&model);
    let log = log(&informer);
    informer.synced().await;
    let before = informer.store().get(&key(&id("a", "x"))).unwrap();
    let listed = lists(&model);
    model.script([Fault::GoneInStream]);
    until("it lists again", || lists(&model) > listed).await;
    pass(60).await;
    let after = informer.store().get(&key(&id("a", "x"))).unwrap();
    assert!(Arc::ptr_eq(&before, &after));
    assert_eq!(*log.lock(), ["+a/x"]);
}

#[tokio::test(start_paused = true)]
async fn a_list_reports_deletions_and_replacements_during_a_gap() {
    let model = Server::new(1);
    for name in ["gone", "replaced", "same"] {
        model.put(&id("a", name), thing(1));
    }
    let informer = informer(&model);
    let log = log(&informer);
    informer.synced().await;
    model.script([Fault::TooManyInStream]);
    pass(0).await;
    model.delete(&id("a", "gone"));
    model.delete(&id("a", "replaced"));
    model.put(&id("a", "replaced"), thing(1));
    model.compact();
    until("the gap is closed", || held(&informer) == served(&model)).await;
    let mut told = log.lock()[3..].to_vec();
    told.sort();
    assert_eq!(told, ["+a/replaced", "-a/gone", "-a/replaced"]);
    let at = |word: &str| log.lock().iter().rposition(|told| told == word);
    assert!(at("-a/replaced") < at("+a/replaced"), "the delete comes first");
}

#[tokio::test(start_paused = true)]
async fn an_own_write_is_visible_and_reported_exactly_once() {
    let model = Server::new(1);
    let informer = informer(&model);
    let log = log(&informer);
    informer.synced().await;
    let (client, store, id) = (client(&model), informer.store(), id("a", "x"));
    let mut body = thing(1);
    body["metadata"] = json!({ "name": "x", "namespace": "a" });
    let new = client.create::<Thing>(&key(&id), &body).await.unwrap();
    store.apply_response(new);
    assert_eq!(store.get(&key(&id)).unwrap().spec.value, 1);
    assert_eq!(*log.lock(), ["+a/x"]);
    let patch = json!({ "spec": { "value": 2 } });
    let new = client.patch::<Thing>(&key(&id), &Patch::Merge(&patch)).await.unwrap();
    store.apply_response(new);
    assert_eq!(store.get(&key(&id)).unwrap().spec.value, 2);
    pass(5).await;
    let old = store.get(&key(&id)).unwrap();
    let preconditions = Preconditions { uid: old.uid(), version: old.meta().version };
    client.delete::<Thing>(&key(&id), preconditions, PropagationPolicy::Background).await.unwrap();
    store.apply_delete(&key(&id), old.uid());
    assert!(store.get(&key(&id)).is_none());
    pass(5).await;
    assert!(store.get(&key(&id)).is_none(), "the echo of the patch must not bring it back");
    assert_eq!(*log.lock(), ["+a/x", "~a/x", "-a/x"]);
}

#[tokio::test(start_paused = true)]
async fn an_undecodable_object_affects_no_other_and_recovers() {
    let model = Server::new(1);
    model.set_streaming(false);
    for name in ["bad", "good"] {
        model.put(&id("a", name), thing(1));
    }
    model.put(&id("a", "worse"), poison());
    let informer = informer(&model);
    let log = log(&informer);
    informer.synced().await;
    let mut told = log.lock().clone();
    told.sort();
    assert_eq!(told, ["+a/bad", "+a/good"]);
    let quarantined = || informer.health()[0].1.quarantined;
    assert_eq!(quarantined(), 1);
    model.put(&id("a", "bad"), poison());
    until("the bad one is seen", || quarantined() == 2).await;
    assert_eq!(informer.store().get(&key(&id("a", "bad"))).unwrap().spec.value, 1);
    let listed = lists(&model);
    model.script([Fault::GoneInStream]);
    until("it lists again", || lists(&model) > listed).await;
    pass(5).await;
    assert_eq!((log.lock().len(), quarantined()), (2, 2), "a list leaves it as it was");
    model.put(&id("a", "bad"), thing(3));
    model.delete(&id("a", "worse"));
    until("both heal", || quarantined() == 0).await;
    assert_eq!(held(&informer), served(&model));
    assert_eq!(log.lock().last().map(String::as_str), Some("~a/bad"));
}

#[tokio::test(start_paused = true)]
async fn a_response_older_than_the_store_is_not_shown() {
    let model = Server::new(1);
    model.put(&id("a", "x"), thing(1));
    let informer = informer(&model);
    let log = log(&informer);
    informer.synced().await;
    for value in 0..20 {
        model.put(&id("a", &format!("new-{value}")), thing(value));
    }
    until("they arrive", || held(&informer) == served(&model)).await;
    let before = held(&informer);
    model.script([Fault::GoneInStream, Fault::Stale, Fault::Stale, Fault::Stale]);
    for _ in 0..1200 {
        tokio::time::sleep(Duration::from_millis(50)).await;
        assert_eq!(held(&informer), before);
    }
    until("it lives", || state(&informer) == State::Live).await;
    assert!(lists(&model) >= 5, "the stale answers were asked for: {}", lists(&model));
    assert_eq!(log.lock().len(), 21);
}

#[tokio::test(start_paused = true)]
async fn a_relist_of_one_namespace_does_not_affect_the_others() {
    let model = Server::new(1);
    for namespace in ["a", "b", "other"] {
        model.put(&id(namespace, "x"), thing(1));
    }
    let builder = Informer::<Thing>::builder(client(&model)).namespaces(["a", "b"]);
    let informer = run(builder.build());
    let log = log(&informer);
    informer.synced().await;
    let listed = lists(&model);
    model.script([Fault::GoneInStream]);
    until("one lists again", || lists(&model) > listed).await;
    pass(60).await;
    let mut told = log.lock().clone();
    told.sort();
    assert_eq!(told, ["+a/x", "+b/x"]);
    assert_eq!(informer.health().len(), 2);
}

#[tokio::test(start_paused = true)]
async fn an_informer_is_synced_after_every_namespace_was_listed() {
    let model = Server::new(1);
    model.put(&id("a", "x"), thing(1));
    model.put(&id("b", "y"), thing(1));
    // The delay strikes one of the two lists.
    model.script([Fault::Delay(Duration::from_secs(5))]);
    let informer = run(Informer::<Thing>::builder(client(&model)).namespaces(["a", "b"]).build());
    until("one of them is there", || held(&informer).len() == 1).await;
    pass(1).await;
    assert!(!informer.has_synced());
    informer.synced().await;
    assert_eq!(held(&informer), served(&model));
}
