//! Behaviour that the server may show, and its consequences.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, Full};
use parking_lot::Mutex;
use serde_json::{Value, json};
use tokio::time::Instant;
use tower::Service;
use workload_operator::client::{Client, Options};
use workload_operator::informer::Informer;
use workload_operator::reflector::State;

use super::{lists, log, state};
use crate::thing::{THINGS, Thing, held, id, informer, pass, run, served, thing, until};
use controller_machinery::testing::{Fault, Received, Server};

#[tokio::test(start_paused = true)]
async fn a_silent_watch_is_replaced_within_150_seconds() {
    let model = Server::new(1);
    let informer = informer(&model);
    informer.synced().await;
    pass(30).await;
    model.script([Fault::Silent]);
    pass(0).await;
    model.put(&id("a", "x"), thing(1));
    let silent_since = Instant::now();
    until("the change arrives", || held(&informer) == served(&model)).await;
    let took = silent_since.elapsed();
    assert!(took > Duration::from_secs(60) && took <= Duration::from_secs(151), "{took:?}");
    let streamed =
        model.requests().iter().filter(|it| it.uri.contains("sendInitialEvents")).count();
    assert_eq!(streamed, 1, "the next watch shows what it hid");
}

#[tokio::test(start_paused = true)]
async fn staleness_is_reported_while_a_watch_is_silent() {
    let model = Server::new(1);
    let informer = informer(&model);
    informer.synced().await;
    model.script([Fault::Silent]);
    pass(100).await;
    let (_, health) = &informer.health()[0];
    assert!(health.staleness(Instant::now()) >= Duration::from_secs(99));
}

#[tokio::test(start_paused = true)]
async fn a_missing_end_bookmark_causes_paged_lists() {
    let model = Server::new(1);
    model.put(&id("a", "x"), thing(1));
    model.script([Fault::NoEndBookmark]);
    let informer = informer(&model);
    let begun = Instant::now();
    informer.synced().await;
    assert!(begun.elapsed() <= Duration::from_secs(16), "{:?}", begun.elapsed());
    assert_eq!(held(&informer), served(&model));
}

#[tokio::test(start_paused = true)]
async fn a_server_without_streaming_lists_is_paged_at_once() {
    let model = Server::new(1);
    model.set_streaming(false);
    model.set_page(2);
    for name in ["v", "w", "x", "y", "z"] {
        model.put(&id("a", name), thing(1));
    }
    let informer = informer(&model);
    let begun = Instant::now();
    informer.synced().await;
    assert!(begun.elapsed() < Duration::from_secs(1));
    assert_eq!(held(&informer), served(&model));
    let pages = model.requests().iter().filter(|r| r.uri.contains("continue=")).count();
    assert_eq!(pages, 2);
}

/// A kube-apiserver does this if its etcd is older than 3.4.31 or 3.5.13.
#[tokio::test(start_paused = true)]
async fn a_server_whose_streaming_lists_fail_is_paged() {
    let model = Server::new(1);
    model.break_streams();
    model.put(&id("a", "x"), thing(1));
    let informer = informer(&model);
    let synced = tokio::time::timeout(Duration::from_secs(30), informer.synced()).await;
    assert!(synced.is_ok(), "only streaming lists: {:#?}", model.requests());
    assert_eq!(held(&informer), served(&model));
    model.put(&id("a", "y"), thing(1));
    until("the watch goes on", || held(&informer) == served(&model)).await;
}

#[tokio::test(start_paused = true)]
async fn a_list_completes_although_its_token_always_expires() {
    let model = Server::new(1);
    model.set_streaming(false);
    model.set_page(1);
    for name in ["x", "y", "z"] {
        model.put(&id("a", name), thing(1));
    }
    model.script([Fault::GoneOnContinue; 1]);
    let informer = informer(&model);
    informer.synced().await;
    assert_eq!(held(&informer), served(&model));
}

#[tokio::test(start_paused = true)]
async fn forbidden_and_not_served_are_states_and_never_an_empty_list() {
    let model = Server::new(1);
    model.put(&id("a", "x"), thing(1));
    let informer = informer(&model);
    let log = log(&informer);
    informer.synced().await;
    let before = held(&informer);
    model.set_served(THINGS, false);
    until("it is seen", || state(&informer) == State::NotServed).await;
    pass(300).await;
    assert_eq!((held(&informer), log.lock().len()), (before.clone(), 1));
    model.set_served(THINGS, true);
    until("it heals", || state(&informer) == State::Live).await;
    model.set_allowed(THINGS, false);
    model.script([Fault::Close]);
    until("it is seen", || state(&informer) == State::Forbidden).await;
    model.delete(&id("a", "x"));
    pass(300).await;
    assert_eq!(held(&informer), before);
    model.set_allowed(THINGS, true);
    until("it heals", || held(&informer).is_empty()).await;
    assert_eq!(*log.lock(), ["+a/x", "-a/x"]);
}

#[tokio::test(start_paused = true)]
async fn an_unserved_kind_at_start_is_listed_when_it_appears() {
    let model = Server::new(1);
    model.set_served(THINGS, false);
    let informer = informer(&model);
    until("it is seen", || state(&informer) == State::NotServed).await;
    assert!(!informer.has_synced());
    let since = informer.health()[0].1.since;
    pass(600).await;
    assert_eq!(informer.health()[0].1.since, since, "it began once");
    model.set_served(THINGS, true);
    let healed = Instant::now();
    informer.synced().await;
    assert!(healed.elapsed() <= Duration::from_secs(30));
}

#[tokio::test(start_paused = true)]
async fn reconnects_back_off_and_recover() {
    let model = Server::new(1);
    let informer = informer(&model);
    informer.synced().await;
    pass(10).await;
    let before = model.requests().len();
    model.script([Fault::Close]);
    model.script([Fault::Refused; 6]);
    pass(20).await;
    let tries = model.requests().len() - before;
    assert!((3..=6).contains(&tries), "800 ms, doubling: {tries} tries in 20 s");
    assert_eq!(state(&informer), State::Stale);
    assert!(informer.health()[0].1.why.is_some());
    until("it heals", || state(&informer) == State::Live).await;
    assert_eq!(lists(&model), 1);
}

#[tokio::test(start_paused = true)]
async fn events_between_outages_reset_the_backoff() {
    let model = Server::new(1);
    let informer = informer(&model);
    informer.synced().await;
    for outage in 0..10 {
        model.script([Fault::Close, Fault::Refused]);
        model.put(&id("a", "x"), thing(outage));
        let broken = Instant::now();
        until("it heals", || held(&informer) == served(&model)).await;
        assert!(broken.elapsed() <= Duration::from_secs(2), "{outage}: {:?}", broken.elapsed());
        model.compact();
        model.script([Fault::GoneInStream]);
        model.put(&id("a", "x"), thing(-outage));
        let expired = Instant::now();
        until("it heals", || held(&informer) == served(&model)).await;
        assert!(expired.elapsed() <= Duration::from_secs(1), "{outage}: {:?}", expired.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn watch_timeouts_differ() {
    let model = Server::new(1);
    let informer = informer(&model);
    informer.synced().await;
    pass(3600).await;
    let timeout = |request: &Received| {
        let rest = request.uri.split("timeoutSeconds=").nth(1)?;
        rest.split('&').next()?.parse::<u64>().ok()
    };
    let (lists, watches): (Vec<Received>, Vec<Received>) =
        model.requests().into_iter().partition(|request| request.uri.contains("sendInitialEvents"));
    let timeouts: std::collections::BTreeSet<_> = watches.iter().filter_map(timeout).collect();
    assert!(timeouts.len() >= 10, "{timeouts:?}");
    // Its objects alone may take minutes.
    let of_list: Vec<u64> = lists.iter().filter_map(timeout).collect();
    assert!(of_list.len() == 1 && (300..600).contains(&of_list[0]), "{of_list:?}");
    assert!(timeouts.iter().all(|seconds| (120..230).contains(seconds)), "{timeouts:?}");
    assert_eq!(self::lists(&model), 1, "bookmarks keep the version young");
}

/// An informer whose lists have all objects but `y` as they were at version 1, as long as the flag is set.
fn twisted(model: &Server) -> (Arc<AtomicBool>, Informer<Thing>) {
    let (twist, wire) = (Arc::new(AtomicBool::new(false)), model.clone());
    let twists = twist.clone();
    let service = tower::service_fn(move |request: Request<Bytes>| {
        let (mut wire, uri) = (wire.clone(), request.uri().to_string());
        let lists = !uri.contains("watch=") && uri.contains('?');
        let twist = lists && twists.swap(false, Ordering::Relaxed);
        async move {
            let (head, body) = wire.call(request).await?.into_parts();
            if !twist {
                return Ok::<_, std::io::Error>(Response::from_parts(head, body));
            }
            let mut said: Value = serde_json::from_slice(&body.collect().await?.to_bytes())?;
            for object in said["items"].as_array_mut().into_iter().flatten() {
                if object["metadata"]["name"] != "y" {
                    object["metadata"]["resourceVersion"] = json!("1");
                }
            }
            let body = Full::new(Bytes::from(said.to_string())).map_err(|never| match never {});
            Ok(Response::from_parts(head, UnsyncBoxBody::new(body)))
        }
    });
    (twist, Informer::builder(Client::from_service(service, Options::default())).build())
}

/// As in client-go. A watch cache that has lost an event shows it so, or an etcd that was restored and has caught up.
#[tokio::test(start_paused = true)]
async fn a_list_that_is_not_older_replaces_the_store() {
    let model = Server::new(1);
    model.set_streaming(false);
    for value in [1, 2] {
        model.put(&id("a", "x"), thing(value));
    }
    let (twist, informer) = twisted(&model);
    run(informer.clone());
    let log = log(&informer);
    informer.synced().await;
    twist.store(true, Ordering::Relaxed);
    model.script([Fault::GoneInStream]);
    model.put(&id("a", "y"), thing(1));
    until("it lists again", || informer.store().len() == 2).await;
    assert_eq!(state(&informer), State::Live);
    let mut told = log.lock()[1..].to_vec();
    told.sort();
    assert_eq!(told, ["+a/y", "~a/x"]);
    let listed = lists(&model);
    model.script([Fault::GoneInStream]);
    until("and again", || lists(&model) > listed).await;
    pass(60).await;
    assert_eq!(held(&informer), served(&model));
}

/// An informer of a server that answers its requests with these frames, and then no more.
fn scripted(answers: &[&[(&str, u64, &str)]]) -> Informer<Thing> {
    let frame = |&(kind, number, version): &(&str, u64, &str)| {
        let name = ["", "x", "y"][number as usize];
        let uid = format!("00000000-0000-4000-8000-{number:012x}");
        let annotations = match kind {
            "BOOKMARK" => json!({"k8s.io/initial-events-end": "true"}),
            _ => json!({}),
        };
        let meta = json!({"namespace": "a", "name": name, "uid": uid, "resourceVersion": version,
            "annotations": annotations});
        let object = json!({"metadata": meta, "spec": {"value": 1}});
        format!("{}\n", json!({"type": kind, "object": object}))
    };
    let answers = answers.iter().map(|frames| frames.iter().map(frame).collect::<String>());
    let answers: Arc<Mutex<Vec<String>>> = Arc::new(Mutex::new(answers.rev().collect()));
    let service = tower::service_fn(move |_: Request<Bytes>| {
        let next = answers.lock().pop();
        async move {
            let Some(next) = next else { return std::future::pending().await };
            let body = Full::new(Bytes::from(next)).map_err(|never| match never {});
            Ok::<_, std::io::Error>(Response::new(UnsyncBoxBody::new(body)))
        }
    });
    let informer = Informer::builder(Client::from_service(service, Options::default())).build();
    run(informer.clone());
    informer
}

#[tokio::test(start_paused = true)]
async fn late_visible_objects_are_stored_and_hidden_ones_removed() {
    let listed = &[("ADDED", 1, "5"), ("BOOKMARK", 0, "10")];
    let late = &[&listed[..], &[("ADDED", 2, "7")]].concat();
    let both = &[&[("ADDED", 2, "7")], &listed[..]].concat();
    let informer = scripted(&[late, both]);
    until("it is listed", || informer.store().len() == 2).await;

    let gone = &[&listed[..], &[("DELETED", 1, "5")]].concat();
    let informer = scripted(&[gone]);
    informer.synced().await;
    until("it is gone", || informer.store().is_empty()).await;
}
