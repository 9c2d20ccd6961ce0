use std::time::Duration;

use super::*;
use crate::object::ObjectKey;

/// A correlator and a clock.
struct Bench {
    correlator: Correlator,
    now: Instant,
    wall: Timestamp,
}

impl Bench {
    fn new() -> Bench {
        let wall = "2026-01-01T00:00:00Z".parse().unwrap();
        Bench { correlator: Correlator::new(7), now: Instant::now(), wall }
    }

    fn pass(&mut self, time: Duration) {
        self.now += time;
        self.wall += jiff::SignedDuration::try_from(time).unwrap();
    }

    fn observe(&mut self, object: &str, note: &str) -> Result<bool, Dropped> {
        self.observe_in("ns", object, note)
    }

    fn observe_in(&mut self, namespace: &str, object: &str, note: &str) -> Result<bool, Dropped> {
        let mut said = occurrence(object, note);
        said.regarding.key = ObjectKey::new(namespace, object);
        self.correlator.observe(said, self.now, self.wall)
    }

    /// Takes and completes all waiting writes.
    fn write(&mut self) -> Vec<Job> {
        let write = || {
            let job = self.correlator.take()?;
            self.correlator.finish(&job.said, true);
            Some(job)
        };
        std::iter::from_fn(write).collect()
    }
}

fn occurrence(object: &str, note: &str) -> Event {
    let regarding = Regarding {
        api_version: "apps/v1".into(),
        kind: "Deployment".into(),
        key: ObjectKey::new("ns", object),
        uid: "01234567-89ab-cdef-0123-456789abcdef".parse().unwrap(),
    };
    let (kind, reason, note) = (Type::Warning, "FailedCreate", note.to_owned());
    Event {
        controller: "memcached",
        regarding,
        kind,
        reason: reason.into(),
        action: "Create".into(),
        note,
    }
}

#[tokio::test]
async fn an_equal_event_is_written_again_after_a_while_or_a_failure() {
    let mut bench = Bench::new();
    assert_eq!(bench.observe("a", "no quota"), Ok(true));
    assert_eq!(bench.observe("a", "no quota"), Ok(false), "it waits");
    let first = bench.correlator.take().unwrap();
    assert_eq!(bench.observe("a", "no quota"), Ok(false), "it is being written");
    bench.correlator.finish(&first.said, false);
    assert_eq!(bench.correlator.busy(), 0);
    assert_eq!(bench.observe("a", "no quota"), Ok(true), "it was lost");
    assert_ne!(bench.write()[0].name, first.name);
    bench.pass(AGAIN - Duration::from_secs(1));
    assert_eq!(bench.observe("a", "no quota"), Ok(false));
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.observe("a", "no quota"), Ok(true));
}

#[tokio::test]
async fn repetitions_leave_the_reserve_to_new_events() {
    let mut bench = Bench::new();
    let mut writes = 0;
    for _ in 0..30 {
        let _ = bench.observe("a", "no quota");
        writes += bench.write().len();
        bench.now += AGAIN;
    }
    assert!(writes < 30, "{writes}");
    assert_eq!(bench.observe("a", "no node"), Ok(true));
}

#[tokio::test]
async fn the_limit_of_one_object_does_not_affect_another() {
    let mut bench = Bench::new();
    let mut said = occurrence("a", "x");
    let verdicts: Vec<Result<bool, Dropped>> = (0..40)
        .map(|i| {
            said.reason = format!("Reason{i}").into();
            bench.correlator.observe(said.clone(), bench.now, bench.wall)
        })
        .collect();
    let accepted = verdicts.iter().filter(|v| **v == Ok(true)).count();
    assert_eq!(accepted as u32, BURST);
    assert_eq!(verdicts[30], Err(Dropped::Spam));
    assert_eq!(bench.observe("b", "x"), Ok(true));
    bench.pass(REFILL - Duration::from_secs(1));
    assert_eq!(bench.observe("a", "1"), Err(Dropped::Spam));
    bench.pass(Duration::from_secs(1));
    assert_eq!(bench.observe("a", "2"), Ok(true));
    assert_eq!(bench.observe("a", "3"), Err(Dropped::Spam), "one more");
}

#[tokio::test]
async fn the_queue_and_the_memory_are_bounded() {
    let mut bench = Bench::new();
    for i in 0..QUEUE {
        let namespace = format!("ns-{}", i / QUEUE_OF_ONE);
        assert_eq!(bench.observe_in(&namespace, &format!("o{i}"), "x"), Ok(true));
    }
    assert_eq!(bench.observe("more", "x"), Err(Dropped::QueueFull));
    assert_eq!(bench.observe_in("ns-0", "o1", "x"), Ok(false), "what waits needs no room");
    for i in 0..20_000 {
        bench.write();
        let _ = bench.observe(&format!("p{i}"), "x");
    }
    let Correlator { recent, budgets, .. } = &bench.correlator;
    assert!(recent.len() <= MEMORY && budgets.len() <= MEMORY);
}

#[tokio::test]
async fn one_namespace_does_not_fill_the_queue() {
    let mut bench = Bench::new();
    for i in 0..QUEUE_OF_ONE {
        assert_eq!(bench.observe_in("hangs", &format!("o{i}"), "x"), Ok(true));
    }
    assert_eq!(bench.observe_in("hangs", "more", "x"), Err(Dropped::QueueFull));
    assert_eq!(bench.observe_in("other", "more", "x"), Ok(true));
    bench.write();
    assert_eq!(bench.observe_in("hangs", "more", "x"), Ok(true));
    bench.write();
    assert!(bench.correlator.busy() == 0);
}

#[tokio::test]
async fn names_never_repeat_even_when_the_wall_clock_goes_back() {
    let mut bench = Bench::new();
    let mut names = std::collections::HashSet::new();
    for i in 0..2_000 {
        bench.wall -= jiff::SignedDuration::from_secs(1);
        let _ = bench.observe(&format!("same-{}", i % 3), &format!("{i}"));
        bench.pass(REFILL);
        for job in bench.write() {
            assert!(names.insert(job.name.clone()), "{} twice", job.name);
        }
    }
    assert!(names.len() > 10);
}

#[test]
fn what_no_longer_matters_takes_no_memory() {
    let mut bench = Bench::new();
    for object in 0..100 {
        assert_eq!(bench.observe(&object.to_string(), "a"), Ok(true));
        bench.write();
    }
    bench.pass(REFILL * BURST + Duration::from_secs(1));
    assert_eq!(bench.observe("new", "a"), Ok(true));
    assert_eq!((bench.correlator.recent.len(), bench.correlator.budgets.len()), (1, 1));
}
