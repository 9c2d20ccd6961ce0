use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use parking_lot::Mutex;
use tokio::time::Instant;

use super::*;
use crate::client::WriteGate;
use crate::object::{ResourceVersion, Uid};

/// One Lease.
#[derive(Default)]
struct Server {
    lease: Mutex<Option<(Record, u64)>>,
    /// Answers given instead of the true ones.
    instead: Mutex<VecDeque<Answer>>,
    unreachable: Mutex<bool>,
    /// Time from a write to its answer, beside the usual 5 ms.
    slow: Mutex<Duration>,
    /// Carries out writes whose client has given up. The API server itself cancels those of a closed connection.
    persists: AtomicBool,
    /// Number of Leases created so far: each has a UID of its own.
    created: AtomicUsize,
    /// Carries out this many writes without an answer.
    silent: AtomicUsize,
    asked: AtomicUsize,
}

impl Server {
    fn uid(&self) -> Uid {
        let number = self.created.load(Ordering::Relaxed);
        format!("00000000-0000-0000-0000-{number:012x}").parse().unwrap()
    }
}

impl Server {
    async fn carry_out(self: Arc<Server>, step: Step) -> (Answer, Option<Error>) {
        self.asked.fetch_add(1, Ordering::Relaxed);
        sleep(Duration::from_millis(5)).await;
        if step != Step::Read {
            let slow = *self.slow.lock();
            sleep(slow).await;
        }
        if *self.unreachable.lock() {
            pending::<()>().await;
        }
        if let Some(answer) = self.instead.lock().pop_front() {
            return (answer, None);
        }
        let mut lease = self.lease.lock();
        let next = lease.as_ref().map_or(1, |(_, version)| version + 1);
        let answer = match (&step, &*lease) {
            (Step::Read, Some((record, version))) => {
                Answer::Lease(record.clone(), ResourceVersion::new(*version), self.uid())
            }
            (Step::Update(record, at), Some((_, v))) if at.number() == Some(*v) => {
                *lease = Some((record.clone(), next));
                Answer::Lease(record.clone(), ResourceVersion::new(next), self.uid())
            }
            (Step::Create(record), None) => {
                self.created.fetch_add(1, Ordering::Relaxed);
                *lease = Some((record.clone(), next));
                Answer::Lease(record.clone(), ResourceVersion::new(next), self.uid())
            }
            (_, None) => Answer::Absent,
            _ => Answer::Conflict,
        };
        let loses = |left: usize| left.checked_sub(1);
        if step != Step::Read
            && self.silent.fetch_update(Ordering::Relaxed, Ordering::Relaxed, loses).is_ok()
        {
            return (Answer::Failed { retry_after: Duration::ZERO }, None);
        }
        (answer, None)
    }
}

impl Api for Arc<Server> {
    async fn ask(&self, _: &ObjectKey, step: &Step) -> (Answer, Option<Error>) {
        let work = self.clone().carry_out(step.clone());
        match self.persists.load(Ordering::Relaxed) {
            true => tokio::spawn(work).await.unwrap(),
            false => work.await,
        }
    }
}

struct Running {
    leadership: Leadership,
    stop: tokio::sync::oneshot::Sender<()>,
    task: tokio::task::JoinHandle<()>,
}

impl Running {
    /// Returns when `phase` is reached; fails instead of waiting forever.
    async fn reached(&self, phase: Phase) {
        let limit = Duration::from_secs(600);
        let mut changes = self.leadership.changes();
        let reached = changes.wait_for(|status| status.phase == phase);
        timeout(limit, reached).await.expect("the phase is reached").unwrap();
    }
}

/// Returns a server, whose processes use tokio's time.
fn server() -> Arc<Server> {
    crate::clock::simulate(jiff::Timestamp::UNIX_EPOCH);
    Arc::default()
}

fn start(server: &Arc<Server>, host: &str) -> Running {
    let key = ObjectKey::new("ns", "workload-operator");
    let config = Config::default();
    let (leadership, elector) = new(key, host, config).unwrap();
    let (stop, stopped) = tokio::sync::oneshot::channel();
    let server = server.clone();
    let task = tokio::spawn(async move {
        elector.run_with(&server, async { drop(stopped.await) }).await;
    });
    Running { leadership, stop, task }
}

#[tokio::test(start_paused = true)]
async fn a_standby_takes_over_within_three_seconds() {
    let server = server();
    let first = start(&server, "a");
    first.reached(Phase::Leading).await;
    let second = start(&server, "b");
    sleep(Duration::from_secs(60)).await;
    assert!(first.leadership.may_write().is_ok());
    let refused = second.leadership.may_write().unwrap_err();
    assert!(refused.starts_with("a_") && refused.ends_with(" leads"), "{refused}");
    let told = Instant::now();
    drop(first.stop);
    first.task.await.unwrap();
    assert!(first.leadership.may_write().is_err());
    second.reached(Phase::Leading).await;
    assert!(told.elapsed() < Duration::from_secs(3), "{:?}", told.elapsed());
    assert_eq!(server.lease.lock().as_ref().unwrap().0.lease_transitions, Some(1));
}

#[tokio::test(start_paused = true)]
async fn a_term_begins_although_the_response_to_the_first_write_was_lost() {
    let server = server();
    server.silent.store(1, Ordering::Relaxed);
    let process = start(&server, "a");
    process.reached(Phase::Leading).await;
    assert_eq!(process.leadership.term(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_standby_that_recreates_the_lease_begins_a_term() {
    let server = server();
    let first = start(&server, "a");
    first.reached(Phase::Leading).await;
    let second = start(&server, "b");
    sleep(Duration::from_secs(5)).await;
    first.task.abort();
    *server.lease.lock() = None;
    second.reached(Phase::Leading).await;
    assert_eq!(second.leadership.term(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_leader_notices_at_its_next_renewal_that_another_has_its_lease() {
    let server = server();
    let process = start(&server, "a");
    process.reached(Phase::Leading).await;
    sleep(Duration::from_millis(100)).await;
    let stolen = Instant::now();
    if let Some((record, version)) = &mut *server.lease.lock() {
        record.holder_identity = Some("thief".to_owned());
        *version += 1;
    }
    process.reached(Phase::Standby).await;
    assert!(stolen.elapsed() < Duration::from_secs(3), "{:?}", stolen.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_dead_leader_is_not_replaced_before_its_lease_has_expired() {
    let server = server();
    let first = start(&server, "a");
    first.reached(Phase::Leading).await;
    let second = start(&server, "b");
    sleep(Duration::from_secs(60)).await;
    first.task.abort();
    let killed = Instant::now();
    second.reached(Phase::Leading).await;
    let took = killed.elapsed();
    assert!(took > Duration::from_secs(12) && took < Duration::from_secs(17), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_process_that_recreates_the_lease_reports_and_restarts_its_wait() {
    let server = server();
    let process = start(&server, "a");
    process.reached(Phase::Leading).await;
    let mut deleted = Instant::now();
    for lives in [10, 0] {
        (*server.lease.lock(), deleted) = (None, Instant::now());
        // The next renewal finds no Lease, and the one after it creates one.
        sleep(Duration::from_secs(5)).await;
        let waits = process.leadership.status().waits.unwrap();
        let all = ["to 12 s", "to 13 s", "to 14 s", "to 15 s"];
        assert!(all.iter().any(|it| waits.contains(it)), "{waits}");
        assert_eq!(process.leadership.may_write().unwrap_err(), waits);
        sleep(Duration::from_secs(lives)).await;
    }
    process.reached(Phase::Leading).await;
    let waited = deleted.elapsed().as_secs_f64();
    assert!(waited > 16.9 && waited < 19.5, "{waited}");
    assert_eq!(process.leadership.status().waits, None);
}

#[tokio::test(start_paused = true)]
async fn a_resumed_machine_cannot_write_before_a_renewal() {
    let server = server();
    let process = start(&server, "a");
    process.reached(Phase::Leading).await;
    crate::clock::suspend(Duration::from_secs(30));
    // No task has run since, so the gate itself reads the clock.
    assert!(process.leadership.may_write().is_err());
    process.reached(Phase::Suspended).await;
    process.reached(Phase::Leading).await;
    assert!(process.leadership.may_write().is_ok(), "nobody had taken it");
}

#[tokio::test(start_paused = true)]
async fn an_outage_suspends_permission_and_its_end_restores_it() {
    let server = server();
    let process = start(&server, "a");
    process.reached(Phase::Leading).await;
    *server.unreachable.lock() = true;
    let begin = Instant::now();
    process.reached(Phase::Suspended).await;
    assert!(process.leadership.may_write().unwrap_err().contains("not renewed"));
    let lasted = begin.elapsed();
    assert!(lasted <= Config::default().validity(), "{lasted:?}");
    sleep(Duration::from_secs(5)).await;
    assert!(process.leadership.status().problem.unwrap().contains("did not respond"));
    *server.unreachable.lock() = false;
    let back = Instant::now();
    process.reached(Phase::Leading).await;
    assert!(back.elapsed() < Duration::from_secs(4), "{:?}", back.elapsed());
    assert_eq!(process.leadership.status().problem, None);
}

#[tokio::test(start_paused = true)]
async fn slow_writes_of_the_lease_do_not_end_leadership() {
    // The last is longer than the period between two renewals.
    for at in 0..8 {
        let (millis, persists) = ([10, 500, 1_500, 2_500][at / 2], at % 2 == 0);
        let server = server();
        *server.slow.lock() = Duration::from_millis(millis);
        server.persists.store(persists, Ordering::Relaxed);
        let process = start(&server, "a");
        process.reached(Phase::Leading).await;
        for _ in 0..120 {
            sleep(Duration::from_secs(1)).await;
            assert!(process.leadership.may_write().is_ok(), "{millis} ms, {persists}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn an_unresponsive_api_server_delays_the_release_no_longer_than_its_limit() {
    let server = server();
    let process = start(&server, "a");
    process.reached(Phase::Leading).await;
    *server.unreachable.lock() = true;
    let begin = Instant::now();
    drop(process.stop);
    process.task.await.unwrap();
    assert!(begin.elapsed() <= GIVE_UP);
}

#[tokio::test(start_paused = true)]
async fn permanent_conflicts_cause_no_busy_loop() {
    let server = server();
    server.instead.lock().extend(std::iter::repeat_n(Answer::Conflict, 1_000));
    let process = start(&server, "a");
    sleep(Duration::from_secs(10)).await;
    let asked = 1_000 - server.instead.lock().len();
    assert!(asked < 25, "{asked} requests in ten seconds");
    assert_eq!(process.leadership.status().phase, Phase::Standby);
}

#[tokio::test(start_paused = true)]
async fn the_lease_is_released_only_after_the_last_possible_write() {
    for unanswered in [false, true] {
        let server = server();
        let process = start(&server, "a");
        process.reached(Phase::Leading).await;
        if unanswered {
            process.leadership.unanswered();
        }
        let begin = Instant::now();
        drop(process.stop);
        process.task.await.unwrap();
        let in_flight = Config::default().in_flight;
        assert_eq!(begin.elapsed() >= in_flight, unanswered, "{:?}", begin.elapsed());
        let lease = server.lease.lock().clone().unwrap().0;
        assert_eq!(lease.holder(), None);
    }
}

#[test]
fn an_error_page_of_a_proxy_does_not_mean_an_absent_lease() {
    assert_eq!(answer(&Error::api(404, "NotFound", "leases \"a\" not found")), Answer::Absent);
    let failed = Answer::Failed { retry_after: Duration::ZERO };
    assert_eq!(answer(&Error::api(404, "", "default backend - 404")), failed);
}
