//! The order in which Memcacheds get new images.

use serde_json::{Value, json};

use super::*;
use crate::workload::fixtures::{child, custom, rolled_out, wire};

const OLD: &str = "memcached:1";
const NEW: &str = "memcached:2";

fn key(name: &str) -> ObjectKey {
    ObjectKey::new("ns", name)
}

fn settings(image: &str) -> Settings {
    Settings {
        memcached_image: Some(image.into()),
        exporter_image: Some("exporter:2".into()),
        ..Settings::default()
    }
}

fn memcached(spec: &Value) -> Memcached {
    custom(&json!({"metadata": {"name": "a"}, "spec": spec}).to_string())
}

/// The Deployment of `memcached` with these images, after a change, with this many available pods.
fn deployment(memcached: &Memcached, images: &Images, available: i32) -> Deployment {
    let mut object = wire(memcached, &desired(memcached, images).deployment);
    object["metadata"]["generation"] = json!(2);
    object["status"] = rolled_out(memcached.spec.size);
    object["status"]["observedGeneration"] = json!(2);
    object["status"]["availableReplicas"] = json!(available);
    if available < memcached.spec.size {
        object["status"]["conditions"][1]["reason"] = json!("ReplicaSetUpdated");
    }
    child(&object)
}

/// A rollout within its deadline.
fn rolling() -> Standing {
    rolls(false, false)
}

fn rolls(fails: bool, late: bool) -> Standing {
    Standing::Rolling(Rolling { generation: 1, fails, late, longest: Duration::from_secs(600) })
}

/// The standing of a Memcached whose Deployment has the images `there`, while the administrator's image is
/// the new one.
fn standing(spec: &Value, there: &Images, available: i32) -> Option<Standing> {
    let memcached = memcached(spec);
    let deployment = deployment(&memcached, there, available);
    Standing::of(&memcached, Some(&deployment), &settings(NEW), None)
}

fn waits(image: &str) -> Standing {
    Standing::Waiting(Images::of(image))
}

#[test]
fn a_new_default_image_waits_for_its_turn_and_rolls_out() {
    let size = &json!({"size": 2});
    assert_eq!(standing(size, &Images::of(OLD), 2), Some(waits(OLD)));
    assert!(matches!(standing(size, &Images::of(NEW), 1), Some(Standing::Rolling(_))));
    assert_eq!(standing(size, &Images::of(NEW), 2), Some(Standing::Idle));
    let memcached = memcached(size);
    let mut unobserved = deployment(&memcached, &Images::of(NEW), 2);
    unobserved.meta.generation = 3;
    let settings = settings(NEW);
    let of = |there: Option<&Deployment>| Standing::of(&memcached, there, &settings, None);
    assert!(matches!(of(Some(&unobserved)), Some(Standing::Rolling(_))));
    unobserved.meta.generation = 1;
    unobserved.status.observed_generation = 0;
    assert_eq!(of(Some(&unobserved)), Some(Standing::Idle), "it is new");
    assert_eq!(of(None), Some(Standing::Idle), "it is to come");
}

#[test]
fn empty_caches_and_own_images_do_not_wait() {
    let own = json!({"image": "mine:2"});
    assert_eq!(standing(&own, &Images::of("mine:1"), 1), None);
    assert_eq!(standing(&json!({"size": 0}), &Images::of(OLD), 0), Some(Standing::Idle));
    let gets_exporter = json!({"exporter": {}});
    assert_eq!(standing(&gets_exporter, &Images::of(OLD), 1), Some(Standing::Idle));
    let with_exporter = Images { exporter: Some("exporter:1".into()), ..Images::of(OLD) };
    assert_eq!(standing(&json!({}), &with_exporter, 1), Some(Standing::Idle));
}

#[test]
fn a_waiting_memcached_keeps_default_images_and_gets_its_own() {
    let there = Images { exporter: Some("exporter:1".into()), ..Images::of(OLD) };
    let kept = Images { exporter: Some("exporter:1".into()), ..Images::of("mine:2") };
    let spec = json!({"image": "mine:2", "exporter": {}});
    assert_eq!(standing(&spec, &there, 1), Some(Standing::Waiting(kept)));
    let kept = Images { exporter: Some("mine:2".into()), ..Images::of(OLD) };
    let spec = json!({"exporter": {"image": "mine:2"}});
    assert_eq!(standing(&spec, &there, 1), Some(Standing::Waiting(kept)));
}

#[test]
fn a_paused_or_terminating_memcached_takes_no_turn() {
    let mut memcached = memcached(&json!({}));
    let there = deployment(&memcached, &Images::of(NEW), 0);
    let of = |memcached: &Memcached| Standing::of(memcached, Some(&there), &settings(NEW), None);
    assert_eq!(of(&memcached), Some(rolling()));
    memcached.meta.is_terminating = true;
    assert_eq!(of(&memcached), Some(Standing::Idle));
    let paused = json!({"spec": {}, "metadata": {"name": "a",
        "annotations": {"workload-operator.example.com/paused": "true"}}});
    assert_eq!(of(&custom(&paused.to_string())), Some(Standing::Idle));
}

#[test]
fn an_image_that_admission_pins_counts_as_applied() {
    let memcached = memcached(&json!({}));
    let pinned = Images::of("memcached@sha256:2");
    let there = deployment(&memcached, &pinned, 0);
    let admitted = (Images::of(NEW), pinned);
    let of = |image| Standing::of(&memcached, Some(&there), &settings(image), Some(&admitted));
    assert_eq!(of(NEW), Some(rolling()));
    let unready = Standing::Unready(Images::of("memcached@sha256:2"));
    assert_eq!(of("memcached:3"), Some(unready));
}

/// This many Memcacheds without need of a turn, and the named rolling and waiting ones.
fn found(settled: usize, rolling: &[&str], waiting: &[&str]) -> Vec<(ObjectKey, Standing)> {
    let settled = (0..settled).map(|n| (key(&format!("settled-{n}")), Standing::Idle));
    let rolling = rolling.iter().map(|name| (key(name), self::rolling()));
    let waiting = waiting.iter().map(|name| (key(name), waits(OLD)));
    settled.chain(rolling).chain(waiting).collect()
}

fn turns(found: Vec<(ObjectKey, Standing)>) -> Turns {
    let mut turns = Turns::default();
    turns.update(found, Instant::now());
    turns
}

/// Of two Memcacheds, `a` has the only turn. Returns whether `b` gets it when `a` has been in this state for this many
/// seconds.
fn passes_on(seconds: u64, a: &Standing) -> bool {
    let start = Instant::now();
    let (mut turns, limit) = (turns(found(0, &[], &["a", "b"])), Limit::Number(1));
    assert_eq!(granted(&mut turns, limit, &["a", "b"]), ["a"]);
    for second in 0..=seconds {
        let standings = vec![(key("a"), a.clone()), (key("b"), waits(OLD))];
        turns.update(standings, start + Duration::from_secs(second));
    }
    let now = start + Duration::from_secs(seconds);
    turns.grant(&key("b"), limit, now)
}

/// The Memcacheds that get a turn if they reconcile in this order.
fn granted<'a>(turns: &mut Turns, limit: Limit, names: &[&'a str]) -> Vec<&'a str> {
    names.iter().filter(|name| turns.grant(&key(name), limit, Instant::now())).copied().collect()
}

#[test]
fn the_limit_is_a_number_or_a_share_and_at_least_one() {
    let of = |limit: Limit| [0, 8, 39, 40, 1000].map(|all| limit.of(all));
    assert_eq!(of(Limit::default()), [1, 1, 1, 2, 50]);
    assert_eq!(of(Limit::Number(7)), [7; 5]);
    assert_eq!(of(Limit::Percentage(100)), [1, 8, 39, 40, 1000]);
}

#[test]
fn turns_are_granted_in_the_order_of_names() {
    let mut turns = turns(found(0, &[], &["a", "b", "c", "d"]));
    assert_eq!(granted(&mut turns, Limit::Number(2), &["d", "c", "b", "a", "c"]), ["b", "a"]);
    assert_eq!(granted(&mut turns, Limit::Number(2), &["a"]), ["a"], "it may try again");
}

#[test]
fn a_turn_lasts_until_the_rollout_has_completed() {
    let limit = Limit::Number(2);
    let mut turns = turns(found(0, &[], &["a", "b", "c", "d"]));
    assert_eq!(granted(&mut turns, limit, &["a", "b"]), ["a", "b"]);
    turns.update(found(0, &["a"], &["b", "c", "d"]), Instant::now());
    assert_eq!(granted(&mut turns, limit, &["c", "d"]), [""; 0], "b is about to roll out");
    turns.update(found(0, &["a", "b"], &["c", "d"]), Instant::now());
    assert_eq!(granted(&mut turns, limit, &["c", "d"]), [""; 0]);
    turns.update(found(1, &["a"], &["c", "d"]), Instant::now());
    assert_eq!(granted(&mut turns, limit, &["c", "d"]), ["c"]);
    assert_eq!(turns.granted.len(), 2);
    assert_eq!(turns.holders(), ", now ns/a, ns/c");
}

#[test]
fn only_a_failing_image_holds_its_turn() {
    assert!(!passes_on(599, &rolling()), "within the deadline");
    assert!(passes_on(601, &rolling()), "pods that stay pending");
    assert!(passes_on(1, &rolls(false, true)), "the Deployment's deadline has passed");
    assert!(!passes_on(9999, &rolls(true, true)), "the image crashes");
    assert!(passes_on(1, &Standing::Idle), "complete");
}

#[test]
fn a_user_cannot_hold_a_turn_by_edits() {
    let now = Instant::now();
    let rolling = |generation, fails, late| {
        let longest = Duration::from_secs(600);
        Rolling { generation, fails, late, longest }
    };
    let turn = Turn { since: now, rolling: None }.rolls(&rolling(1, false, false), now).unwrap();
    let edited = turn.rolls(&rolling(2, true, false), now).unwrap();
    let later = now + Duration::from_secs(599);
    let edited = edited.rolls(&rolling(3, true, false), later).unwrap();
    assert!(edited.rolls(&rolling(4, true, false), now + Duration::from_secs(600)).is_none());
}

#[test]
fn a_turn_that_is_not_taken_passes_to_the_next() {
    let start = Instant::now();
    let mut turns = turns(found(0, &[], &["a", "b"]));
    let mut gets = |name, second| {
        turns.grant(&key(name), Limit::Number(1), start + Duration::from_secs(second))
    };
    assert!(!gets("b", 0), "a is first");
    assert!(!gets("b", 29));
    assert!(gets("b", 30));
    assert!(!gets("a", 31));
}

#[test]
fn a_memcached_with_a_problem_takes_no_turn() {
    let spec = json!({"size": 2});
    let unready = Standing::Unready(Images::of(OLD));
    assert_eq!(standing(&spec, &Images::of(OLD), 1), Some(unready), "it is rolling out");
    let is = |kind: &str, status: &str, message: &str| {
        json!({"type": kind, "status": status, "reason": "CrashLoopBackOff", "message": message,
            "lastTransitionTime": "2026-01-01T00:00:00Z"})
    };
    let with = |message: &str| -> Memcached {
        custom(
            &json!({"metadata": {"name": "a"}, "spec": spec, "status": {"observedGeneration": 1,
            "conditions": [is("Ready", "False", message), is("Degraded", "True", message)]}})
            .to_string(),
        )
    };
    let of = |memcached: &Memcached, image: &str| {
        let there = deployment(memcached, &Images::of(image), 1);
        Standing::of(memcached, Some(&there), &settings(NEW), None)
    };
    assert_eq!(of(&with("Pod a-1 cannot be scheduled"), OLD), Some(Standing::Idle));
    let crashes = "Pod a-1 crashes: container memcached (exit code 1)";
    let standing = of(&with(crashes), OLD);
    assert!(matches!(standing, Some(Standing::Rolling(_))), "the others wait: {standing:?}");
    for (message, fails) in [
        (crashes, true),
        (
            "It timed out. Pod a-1 cannot pull image memcached:2: the registry does not have it",
            true,
        ),
        ("Pod a-1 crashes: container istio-proxy (exit code 1)", false),
        ("Pod a-1 cannot pull image memcached:2-mine", false),
        ("Pod a-1 cannot be scheduled: 0/3 nodes are available", false),
    ] {
        let standing = of(&with(message), NEW);
        assert!(
            matches!(&standing, Some(Standing::Rolling(rolling)) if rolling.fails == fails),
            "{message}: {standing:?}"
        );
    }
}

#[test]
fn a_broken_image_stops_at_the_limit_even_after_a_restart() {
    let seen = || found(36, &["a", "b"], &["c", "d"]);
    for mut turns in [turns(seen()), turns(seen())] {
        assert_eq!(granted(&mut turns, Limit::default(), &["c", "d"]), [""; 0]);
        assert_eq!(granted(&mut turns, Limit::Number(1), &["c", "d"]), [""; 0]);
        assert_eq!(granted(&mut turns, Limit::Number(3), &["d", "c"]), ["c"]);
    }
}

#[test]
fn a_memcached_with_a_refused_write_returns_its_turn() {
    let mut turns = turns(found(0, &[], &["a", "b"]));
    let limit = Limit::Number(1);
    assert_eq!(granted(&mut turns, limit, &["a", "b"]), ["a"]);
    let pace = Pace { turns: Arc::new(Mutex::new(turns)), ..Pace::new(limit) };
    pace.refused(&key("a"));
    assert_eq!(granted(&mut pace.turns.lock(), limit, &["a", "b"]), ["b"]);
    // If no other waits, it tries again: a refusal must not be hidden by the wait.
    pace.refused(&key("b"));
    assert_eq!(granted(&mut pace.turns.lock(), limit, &["a", "b"]), ["a"]);
}

#[test]
fn a_waiting_memcached_names_the_differing_images() {
    let images = |memcached: &str, exporter: &str| Images {
        exporter: Some(exporter.into()),
        ..Images::of(memcached)
    };
    let differences = images(OLD, "e:1").differences(&images(NEW, "e:2"));
    assert_eq!(differences, [NEW, "e:2"].map(InternedStr::from));
    let differences = images(OLD, "e:1").differences(&images(OLD, "e:2"));
    assert_eq!(differences, ["e:2"].map(InternedStr::from));
}

#[test]
fn a_kept_message_reports_the_wait_once() {
    let wait = "image a:2 waits until the current rollout is complete";
    let given =
        |waits: &str| Given { images: Images::of(OLD), waits: Some((waits.to_owned(), AGAIN)) };
    for first in ["0 of 1 replica is ready", "It rolls out."] {
        let once = given(wait).with_wait(Health::rolling_out(first));
        let twice = given("image a:3 waits").with_wait(given(wait).with_wait(once.clone()));
        assert_eq!(twice.message, join(first, "image a:3 waits"));
        let over = Given { waits: None, images: Images::of(OLD) };
        assert_eq!(over.with_wait(once).message, first);
    }
}
