//! Workers, and the reconcile of one key.

use std::any::Any;
use std::fmt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures::FutureExt;
use parking_lot::Mutex;
use tokio::time::Instant;
use tracing::field::Empty;
use tracing::{Instrument, Level, Span};

use super::policy::{Failing, FailureStreak, level};
use super::{Action, ErrorClass, Options, Outcome, ReconcileError, Reconciler};
use crate::informer::message;
use crate::instruments::{
    ACTIVE_WORKERS, DROPPED, FAILURES, PANICS, RECONCILE_ERRORS, RECONCILE_SECONDS, RECONCILES,
    TERMINAL_ERRORS, TIMEOUTS, WORKERS,
};
use crate::object::ObjectKey;
use crate::workqueue::{Backoff, Retry, WorkItem, WorkQueue};

/// Fraction of a RequeueAfter up to which a random time is added, see [`Action::RequeueAfter`].
const REQUEUE_JITTER: f64 = 0.1;
/// The longest random time in seconds: a tenth of a day would be too long.
const REQUEUE_JITTER_AT_MOST: f64 = 60.0;
/// The shortest RequeueAfter.
const REQUEUE_AT_LEAST: Duration = Duration::from_millis(100);

/// State that the workers of a controller share.
pub(super) struct Core<R> {
    pub(super) name: &'static str,
    pub(super) reconciler: R,
    pub(super) queue: WorkQueue<ObjectKey>,
    pub(super) options: Options,
    /// Keys whose last reconcile failed.
    pub(super) failing: Arc<Mutex<Failing>>,
    pub(super) reconciles: AtomicU64,
    pub(super) dropped: AtomicU64,
}

/// A running reconcile. Dropping it counts the outcome, and schedules a retry if there is none.
struct Pass<'a, R: Reconciler> {
    core: &'a Core<R>,
    key: &'a ObjectKey,
    began: Instant,
    outcome: Outcome,
}

// === impl Core ===

impl<R: Reconciler> Core<R> {
    /// Reconciles keys until the queue is shut down.
    pub(super) async fn work(self: Arc<Self>) {
        let mut next = self.queue.get().await;
        while let Some(taken) = next {
            let key = taken.key();
            let span = tracing::info_span!(
                "reconcile",
                controller = self.name,
                namespace = %key.namespace(),
                // Not `name`: in JSON log lines, that is the span's own name.
                object = %key.name(),
                id = %format_args!("{:016x}", fastrand::u64(..)),
                result = Empty,
                error.type = Empty,
                otel.status_code = Empty,
                otel.status_description = Empty,
            );
            self.pass(&taken).instrument(span).await;
            // Without this, reconciles that never wait would starve the other tasks of the thread.
            tokio::task::consume_budget().await;
            next = self.queue.done_and_get(taken).await;
        }
    }

    /// Reconciles a key, and forgets it or schedules its retry while it is still being processed.
    async fn pass(&self, taken: &WorkItem<ObjectKey>) {
        let key = taken.key();
        let held = catch_unwind(AssertUnwindSafe(|| self.reconciler.delay(key)));
        let held = held.unwrap_or_else(|panic| {
            tracing::error!(why = message(&*panic), "a delay is not known: `delay` panicked");
            None
        });
        if let Some(wait) = held {
            return self.queue.requeue_after(key, wait.max(REQUEUE_AT_LEAST));
        }
        let mut pass = Pass { core: self, key, began: Instant::now(), outcome: Outcome::Dropped };
        ACTIVE_WORKERS.with([self.name]).inc();
        // `catch_unwind` encloses the timeout because a reconcile can also panic while it is dropped. After a panic, only
        // the message is used.
        let bounded = async {
            tokio::time::timeout(self.options.deadline, self.reconciler.reconcile(key)).await
        };
        let ended = AssertUnwindSafe(bounded).catch_unwind().await;
        // The methods of an error can panic.
        let concluded = catch_unwind(AssertUnwindSafe(|| match ended {
            Ok(Ok(Ok(action))) => self.succeeded(key, action),
            Ok(Ok(Err(problem))) => {
                self.failed(key, pass.began, &problem, None);
                Outcome::Failed(problem.class())
            }
            Ok(Err(_)) => {
                let why = format!("a reconcile did not end within {:?}", self.options.deadline);
                let problem = ReconcileError::transient("ErrTimedOut", why);
                self.failed(key, pass.began, &problem, None);
                Outcome::TimedOut
            }
            Err(said) => self.panicked(key, &*said),
        }));
        pass.outcome = concluded.unwrap_or_else(|panic| self.panicked(key, &*panic));
    }

    fn panicked(&self, key: &ObjectKey, panic: &(dyn Any + Send)) -> Outcome {
        let why = format!("a reconcile panicked, which is a bug: {}", message(panic));
        let problem = ReconcileError::transient("ErrPanicked", why);
        self.failed(key, Instant::now(), &problem, Some(Level::ERROR));
        Outcome::Panicked
    }

    fn succeeded(&self, key: &ObjectKey, action: Action) -> Outcome {
        tracing::debug!(?action, "reconciled");
        self.clear_retries(key);
        match action {
            Action::Done => Outcome::Success,
            Action::RequeueAfter(delay) => {
                // A delay of zero must not cause a busy loop.
                let delay = delay.max(REQUEUE_AT_LEAST);
                let most = (delay.as_secs_f64() * REQUEUE_JITTER).min(REQUEUE_JITTER_AT_MOST);
                let jitter = Duration::from_secs_f64(most * fastrand::f64());
                // A delay that overflows never ends.
                self.queue.requeue_after(key, delay.saturating_add(jitter));
                Outcome::RequeueAfter
            }
        }
    }

    /// Schedules the retry of a reconcile that started at `began`, and logs its problem. `loudness` overrides the log
    /// level of the class.
    fn failed(
        &self,
        key: &ObjectKey,
        began: Instant,
        problem: &ReconcileError,
        loudness: Option<Level>,
    ) {
        let class = problem.class();
        let asked =
            problem.retry_after().map(|asked| asked.min(self.options.retries.retry_after_max));
        let streak = {
            let mut failing = self.failing.lock();
            let (before, names, now) = (failing.get(key), problem.waits_for(), Instant::now());
            let streak = FailureStreak::after(before, class, asked, &names, now);
            if failing.put(key, streak.clone(), began) {
                self.queue.add(key);
            }
            streak
        };
        let retry_in = self.options.retries.of(&streak).map(|retry| {
            let backoff = problem.retry_in().map_or(retry.backoff, Backoff::always);
            self.queue.add_rate_limited(key, Retry { backoff, ..retry })
        });
        let failures = self.queue.requeues(key);
        if retry_in.is_none() {
            self.clear_retries(key);
        }
        let (class, error) = (class.as_str(), Chain(problem));
        match loudness.unwrap_or_else(|| level(&streak, failures)) {
            Level::ERROR => tracing::error!(%error, class, failures, ?retry_in, "reconcile failed"),
            Level::WARN => tracing::warn!(%error, class, failures, ?retry_in, "reconcile failed"),
            Level::INFO => tracing::info!(%error, class, failures, ?retry_in, "reconcile waits"),
            _ => tracing::debug!(%error, class, failures, ?retry_in, "reconcile failed"),
        }
    }

    /// Cancels the retries and timers of earlier reconciles, and removes the failure streak.
    fn clear_retries(&self, key: &ObjectKey) {
        self.queue.forget(key);
        self.failing.lock().remove(key);
    }
}

// === impl Pass ===

impl<R: Reconciler> Drop for Pass<'_, R> {
    fn drop(&mut self) {
        let counter = match self.outcome {
            Outcome::Dropped => {
                // After shutdown, the queue ignores this. Otherwise, the worker itself was dropped.
                let retry =
                    Retry { backoff: self.core.options.retries.transient, ..Retry::default() };
                self.core.queue.add_rate_limited(self.key, retry);
                &self.core.dropped
            }
            _ => &self.core.reconciles,
        };
        counter.fetch_add(1, Ordering::Relaxed);
        record(self.outcome);
        count(self.core.name, self.outcome, self.began.elapsed());
        if let Some(finished) = &self.core.options.finished {
            // A panic would end the worker.
            let finished = || finished(self.core.name, self.key, self.outcome);
            drop(catch_unwind(AssertUnwindSafe(finished)));
        }
    }
}

/// Exports the metrics of a controller as 0 instead of omitting them.
pub(super) fn export(name: &'static str, workers: usize) {
    for result in ["success", "error", "requeue_after", "requeue"] {
        drop(RECONCILES.with([name, result]));
    }
    for series in [&RECONCILE_ERRORS, &TERMINAL_ERRORS, &PANICS, &TIMEOUTS, &DROPPED] {
        drop(series.with([name]));
    }
    for class in ErrorClass::ALL {
        drop(FAILURES.with([name, class.as_str()]));
    }
    drop(RECONCILE_SECONDS.with([name]));
    drop(ACTIVE_WORKERS.with([name]));
    WORKERS.with([name]).set(i64::try_from(workers).unwrap_or(i64::MAX));
}

/// Counts a reconcile, as controller-runtime does.
fn count(controller: &'static str, outcome: Outcome, took: Duration) {
    ACTIVE_WORKERS.with([controller]).dec();
    RECONCILE_SECONDS.with([controller]).observe(took.as_secs_f64());
    RECONCILES.with([controller, outcome.result()]).inc();
    let (also, class) = match outcome {
        Outcome::Success | Outcome::RequeueAfter => return,
        Outcome::Dropped => (Some(&DROPPED), None),
        Outcome::Failed(ErrorClass::Terminal) => {
            (Some(&TERMINAL_ERRORS), Some(ErrorClass::Terminal))
        }
        Outcome::Failed(class) => (None, Some(class)),
        Outcome::Panicked => (Some(&PANICS), Some(ErrorClass::Transient)),
        Outcome::TimedOut => (Some(&TIMEOUTS), Some(ErrorClass::Transient)),
    };
    RECONCILE_ERRORS.with([controller]).inc();
    if let Some(series) = also {
        series.with([controller]).inc();
    }
    if let Some(class) = class {
        FAILURES.with([controller, class.as_str()]).inc();
    }
}

/// Records the outcome of a reconcile on the current span.
fn record(outcome: Outcome) {
    let span = Span::current();
    span.record("result", outcome.result());
    let class = match outcome {
        Outcome::Success | Outcome::RequeueAfter => return,
        Outcome::Failed(class) => class.as_str(),
        Outcome::Panicked => "Panicked",
        Outcome::TimedOut => "TimedOut",
        Outcome::Dropped => "Dropped",
    };
    span.record("error.type", class);
    // The order matters: tracing-opentelemetry drops the description when it sets the status code.
    span.record("otel.status_code", "ERROR");
    span.record("otel.status_description", class);
}

/// An error and its sources. Omits the text of a source if the preceding text ends with it.
pub(super) struct Chain<'a>(pub(super) &'a dyn std::error::Error);

impl fmt::Display for Chain<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = self.0.to_string();
        write!(f, "{said}")?;
        let mut source = self.0.source();
        while let Some(error) = source {
            let text = error.to_string();
            if !said.ends_with(&text) {
                write!(f, ": {text}")?;
                said = text;
            }
            source = error.source();
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_outcome_is_counted_as_in_controller_runtime() {
        let name = "outcomes";
        export(name, 1);
        for outcome in [
            Outcome::Success,
            Outcome::RequeueAfter,
            Outcome::Failed(ErrorClass::Conflict),
            Outcome::Failed(ErrorClass::Terminal),
            Outcome::Panicked,
            Outcome::TimedOut,
            Outcome::Dropped,
        ] {
            count(name, outcome, Duration::ZERO);
        }
        let results = ["success", "requeue_after", "error", "requeue"];
        let counted = results.map(|result| RECONCILES.with([name, result]).get());
        assert_eq!(counted, [1, 1, 5, 0]);
        let each = [&RECONCILE_ERRORS, &TERMINAL_ERRORS, &PANICS, &TIMEOUTS, &DROPPED];
        assert_eq!(each.map(|series| series.with([name]).get()), [5, 1, 1, 1, 1]);
        let classes = [
            ErrorClass::Conflict,
            ErrorClass::Terminal,
            ErrorClass::Transient,
            ErrorClass::Forbidden,
        ];
        let failed = classes.map(|class| FAILURES.with([name, class.as_str()]).get());
        assert_eq!(failed, [1, 1, 2, 0]);
    }

    #[derive(Debug, thiserror::Error)]
    #[error("{said}")]
    struct Because {
        said: &'static str,
        source: Option<Box<Because>>,
    }

    #[test]
    fn the_source_of_an_error_is_printed_once() {
        let because =
            |said, source: Option<Because>| Because { said, source: source.map(Box::new) };
        let root = || because("no route", None);
        let repeats = because("the request failed: no route", Some(root()));
        let outer = because("cannot create it: the request failed: no route", Some(repeats));
        assert_eq!(Chain(&outer).to_string(), outer.said);
        let silent = because("cannot create it", Some(because("the request failed", Some(root()))));
        assert_eq!(Chain(&silent).to_string(), "cannot create it: the request failed: no route");
    }
}
