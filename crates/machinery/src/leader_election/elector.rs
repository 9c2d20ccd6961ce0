//! The elector, which executes the candidate's decisions.

use std::future::{Future, pending};
use std::time::Duration;

use fastrand::Rng;
use serde_json::json;
use tokio::time::{sleep, timeout};

use super::candidate::{Answer, Candidate, Step};
use super::config::{Config, ConfigError};
use super::leadership::{Leadership, Phase, Status};
use super::record::Record;
use crate::client::{Client, Error, Patch};
use crate::clock::{boottime, now};
use crate::instruments::{LEADERSHIP_GAINED, MASTER_STATUS, SLOW_PATH};
use crate::object::{Kind, Meta, NoMetadata, ObjectKey, Resource};

/// Time limit for releasing the lease, which usually takes one request. After that, the lease is left to expire.
const GIVE_UP: Duration = Duration::from_secs(4);

/// The reason why a process waits before it leads.
const FORMER_TERM: &str =
    "the lease was deleted or edited: its last holder may still write, so this process waits";

/// An elector, which takes part in the election while it runs.
#[must_use = "the process takes no part in the election until the elector runs"]
pub struct Elector {
    lease: ObjectKey,
    candidate: Candidate,
    leadership: Leadership,
    /// The error of the last request, if it failed.
    problem: Option<Error>,
    /// The end of the last logged wait.
    waits: Option<Duration>,
    /// True since the term began, unless another holder of the lease was seen.
    in_term: bool,
}

/// Creates a leadership, and the elector that must run to gain it.
///
/// `lease` names the Lease. `host` is this process's host or pod: its identity is `host` plus a random part, so that
/// a restarted process differs from its predecessor.
///
/// # Errors
/// If the durations of `config` are inconsistent.
pub fn new(
    lease: ObjectKey,
    host: &str,
    config: Config,
) -> Result<(Leadership, Elector), ConfigError> {
    config.validate()?;
    let name = || lease.name().to_string();
    MASTER_STATUS.with([name()]).set(0);
    drop((SLOW_PATH.with([name()]), LEADERSHIP_GAINED.with([name()])));
    let identity = format!("{host}_{:032x}", fastrand::u128(..));
    let leadership = Leadership::new(config.in_flight);
    let candidate = Candidate::new(config, identity, Rng::new());
    let elector = Elector {
        lease,
        candidate,
        leadership: leadership.clone(),
        problem: None,
        waits: None,
        in_term: false,
    };
    Ok((leadership, elector))
}

opaque!(Elector);

// === impl Elector ===

impl Elector {
    /// Takes part in the election until `stop`, then releases the lease if this process holds it. `stop` must complete
    /// after the workers have drained, because nothing can be written from then on.
    ///
    /// `client` must be a separate client without a gate: the process needs the lease to get permission.
    pub async fn run(self, client: Client, stop: impl Future<Output = ()> + Send) {
        self.run_with(&client, stop).await;
    }

    pub(super) async fn run_with(mut self, api: &impl Api, stop: impl Future<Output = ()> + Send) {
        self.elect(api, stop).await;
        self.candidate.give_up(boottime());
        self.leadership.permit_until(None);
        self.publish();
        // The lease is released when no write of this process can be applied any more.
        sleep(self.leadership.writes_until()).await;
        if timeout(GIVE_UP, self.elect(api, pending())).await.is_err() {
            tracing::debug!(lease = %self.lease, "Could not give the lease up; it will expire");
        }
        self.publish();
    }

    /// Executes steps until `stop`, or until the lease was released.
    async fn elect(&mut self, api: &impl Api, stop: impl Future<Output = ()> + Send) {
        let mut stop = std::pin::pin!(stop);
        loop {
            match self.candidate.next(boottime(), now()) {
                Step::Done => break,
                Step::Wait(time) => tokio::select! {
                    biased;
                    () = &mut stop => break,
                    () = sleep(time.min(self.rest())) => {}
                },
                step => {
                    let (answer, error) = tokio::select! {
                        biased;
                        answered = self.ask(api, &step) => answered,
                        () = &mut stop => break,
                    };
                    self.answered(answer, error);
                }
            }
            self.publish();
        }
    }

    /// Sends a request with its deadline. Publishes the end of permission in the meantime.
    async fn ask(&mut self, api: &impl Api, step: &Step) -> (Answer, Option<Error>) {
        let deadline = self.candidate.deadline(boottime());
        let lease = self.lease.clone();
        let mut request = std::pin::pin!(timeout(deadline, api.ask(&lease, step)));
        let answered = tokio::select! {
            biased;
            answered = &mut request => answered,
            () = sleep(self.rest()) => {
                self.publish();
                request.await
            }
        };
        answered.unwrap_or_else(|_| {
            let failed = Answer::Failed { retry_after: Duration::ZERO };
            (failed, Some(Error::Deadline(deadline)))
        })
    }

    /// Returns the label in metrics.
    fn name(&self) -> String {
        self.lease.name().to_string()
    }

    fn answered(&mut self, answer: Answer, error: Option<Error>) {
        let failed = matches!(answer, Answer::Failed { .. });
        if self.candidate.answered(boottime(), answer) {
            SLOW_PATH.with([self.name()]).inc();
        }
        let until = self.candidate.permitted_until();
        self.in_term &= self.candidate.holds();
        if until.is_some() && !self.in_term {
            self.in_term = true;
            self.leadership.begin_term();
        }
        self.leadership.permit_until(until);
        let before = std::mem::replace(&mut self.problem, error.filter(|_| failed));
        // The text is not compared: for a deadline, it contains the remaining time, which differs each time.
        let kind = |error: &Error| (std::mem::discriminant(error), error.code());
        if let Some(error) = &self.problem
            && before.as_ref().map(kind) != Some(kind(error))
        {
            let problem = error.to_string();
            tracing::warn!(lease = %self.lease, problem, "Could not reach the lease");
        }
    }

    /// Returns the remaining time of permission; an hour without permission.
    fn rest(&self) -> Duration {
        let now = boottime();
        match self.candidate.permitted_until() {
            Some(until) if until > now => until - now,
            _ => Duration::from_secs(3_600),
        }
    }

    /// Publishes the current state.
    fn publish(&mut self) {
        let permitted = self.leadership.is_permitted();
        let phase = match (permitted, self.candidate.holds()) {
            (true, _) => Phase::Leading,
            (false, true) => Phase::Suspended,
            (false, false) => Phase::Standby,
        };
        let holder = self.candidate.holder().map(str::to_owned);
        let now = boottime();
        let ends = Some(self.candidate.not_before).filter(|ends| !permitted && *ends > now);
        if self.waits != ends {
            self.waits = ends;
            if let Some(ends) = ends {
                tracing::warn!(lease = %self.lease, wait = ?(ends - now), "{FORMER_TERM}");
            }
        }
        let waits = ends.map(|ends| {
            format!("{FORMER_TERM}, for up to {:.0} s", (ends - now).as_secs_f64().ceil())
        });
        let problem = self.problem.as_ref().map(Error::to_string);
        let is_known = self.candidate.is_known();
        let status = Status { phase, holder: holder.clone(), problem, waits, is_known };
        let before = self.leadership.publish(status);
        let (lease, holder) = (&self.lease, holder.as_deref().unwrap_or("none"));
        match phase {
            _ if before == phase => {}
            Phase::Leading => tracing::info!(%lease, "This process leads"),
            Phase::Suspended if before == Phase::Leading && !self.candidate.giving_up => {
                tracing::warn!(
                    %lease,
                    "The lease was not renewed in time: nothing is written until it is, or another process leads"
                );
            }
            Phase::Suspended => {}
            Phase::Standby => tracing::info!(%lease, holder, "This process no longer leads"),
        }
        if (before == Phase::Leading) != permitted {
            MASTER_STATUS.with([self.name()]).set(i64::from(permitted));
            LEADERSHIP_GAINED.with([self.name()]).inc_by(u64::from(permitted));
        }
    }
}

/// A Lease.
#[derive(Debug, serde::Deserialize)]
pub(super) struct Lease {
    metadata: Meta,
    #[serde(default)]
    spec: Record,
}

crate::view!(Lease: Kind::namespaced("coordination.k8s.io", "v1", "Lease", "leases"));

/// The operations of a client that an elector needs.
pub(super) trait Api: Send + Sync {
    /// Sends the request `step`. The error is for humans; the response determines the next step.
    fn ask(
        &self,
        key: &ObjectKey,
        step: &Step,
    ) -> impl Future<Output = (Answer, Option<Error>)> + Send;
}

impl Api for Client {
    async fn ask(&self, key: &ObjectKey, step: &Step) -> (Answer, Option<Error>) {
        let result = match step {
            Step::Create(record) => {
                let metadata = Meta::<NoMetadata>::named(key.clone());
                let body = json!({"apiVersion": Lease::kind().api_version(), "kind": "Lease",
                    "metadata": metadata, "spec": record});
                self.create::<Lease>(key, &body).await
            }
            // The version in the patch is a precondition: for any other version, the response is 409.
            Step::Update(record, version) => {
                let body = json!({"metadata": {"resourceVersion": version}, "spec": record});
                self.patch::<Lease>(key, &Patch::Merge(&body)).await
            }
            Step::Read | Step::Wait(_) | Step::Done => self.get::<Lease>(key).await,
        };
        match result {
            Ok(Lease { metadata, spec }) => {
                (Answer::Lease(spec, metadata.version, metadata.uid), None)
            }
            Err(error) => (answer(&error), Some(error)),
        }
    }
}

fn answer(error: &Error) -> Answer {
    match error {
        // Includes "namespaces not found", the response to a create in a missing namespace; waiting is correct for
        // both. A 404 without a reason is not from the API server but, for example, from a proxy.
        Error::Api { code: 404, reason, .. } if !reason.is_empty() => Answer::Absent,
        Error::Api { code: 409, .. } => Answer::Conflict,
        Error::Api { retry_after, .. } => {
            Answer::Failed { retry_after: retry_after.unwrap_or_default() }
        }
        _ => Answer::Failed { retry_after: Duration::ZERO },
    }
}

#[cfg(test)]
mod tests;
