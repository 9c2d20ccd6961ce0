//! The decisions of a candidate for the lease, without I/O. Clock readings and responses are arguments; the only random
//! values are jitter from its own generator.

use std::time::Duration;

use fastrand::Rng;
use jiff::Timestamp;

use super::config::Config;
use super::record::{Claim, Record, decide};
use crate::object::{ResourceVersion, Uid};

/// Largest random delay of a read of another process's lease, as a share of `retry_period`. It spreads the reads of the
/// candidates. (client-go adds up to 1.2, which would make takeovers slower.)
const JITTER: f64 = 0.2;
/// Delay before a retry after an error, as a share of `retry_period`. It is short because the lease is running out.
const HASTE: f64 = 0.25;
/// Largest such delay of a leader, as a share of its remaining permission.
const HURRY: f64 = 0.1;
/// Longest renewal, as a share of the remaining permission. The rest suffices to check whether it was applied. After a
/// slower renewal, the next may take longer.
const RENEW_SHARE: f64 = 2.0 / 3.0;
/// The shortest deadline of a request.
const LEAST: Duration = Duration::from_millis(250);
/// The largest number of unanswered writes that are remembered.
const REMEMBERED: usize = 8;
/// The longest wait for the holder of a deleted Lease, in multiples of this process's own duration: the recorded one
/// can have been edited.
const LONGEST_WAIT: u32 = 4;

/// The next step.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    /// Nothing, for this long.
    Wait(Duration),
    /// Read the current Lease from the API server.
    Read,
    /// Create it.
    Create(Record),
    /// Write it, if it still has this version.
    Update(Record, ResourceVersion),
    /// Nothing more: the lease was released, or was not held.
    Done,
}

/// The response of the API server.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Answer {
    /// The Lease, as read or written. After a deletion, a new Lease has another UID.
    Lease(Record, ResourceVersion, Uid),
    /// There is no Lease.
    Absent,
    /// Another process wrote first.
    Conflict,
    /// No response, or one without information about the Lease. The request can still be applied, now or later.
    Failed {
        /// Wait requested by the server (Retry-After).
        retry_after: Duration,
    },
}

/// A process that competes for the lease.
pub(super) struct Candidate {
    config: Config,
    me: String,
    seen: Seen,
    /// The request in progress, and when it was sent.
    asked: Option<(Step, Duration)>,
    /// Writes without a response. The API server can have applied them, or can still apply them.
    unanswered: Vec<Unanswered>,
    /// End of permission. Set only by an acknowledged write: by its response, or by a read of exactly what was sent.
    /// Withdrawn at once when the lease turns out to be deleted, released or held by another process.
    until: Option<Duration>,
    /// Duration of the last acknowledged write.
    took: Duration,
    /// The last Lease, and its validity without changes. If the Lease is deleted and recreated, the old holder may
    /// still be writing, so this process does not lead before `not_before`.
    known: Option<(Uid, Duration)>,
    /// The end of that time. It can be in the past.
    pub(super) not_before: Duration,
    /// The newest known version.
    newest: ResourceVersion,
    /// The time of the next step.
    due: Duration,
    /// True if the candidate only tries to release the lease.
    pub(super) giving_up: bool,
    rng: Rng,
}

/// The last known state of the Lease.
#[derive(Debug)]
enum Seen {
    /// Unknown.
    Nothing,
    /// This Lease, with this version since `since` at the latest. If `stale`, it can have another by now.
    Lease { record: Record, version: ResourceVersion, since: Duration, stale: bool },
    /// No Lease.
    Absent,
}

/// A write without a response.
#[derive(Debug)]
struct Unanswered {
    record: Record,
    /// The version that it replaces.
    at: ResourceVersion,
    /// The newest version known when it was sent; its own is newer.
    newest: ResourceVersion,
    sent: Duration,
}

// === impl Candidate ===

impl Candidate {
    pub(super) fn new(config: Config, me: String, rng: Rng) -> Candidate {
        Candidate {
            config,
            me,
            seen: Seen::Nothing,
            asked: None,
            unanswered: Vec::new(),
            until: None,
            took: Duration::ZERO,
            known: None,
            not_before: Duration::ZERO,
            newest: ResourceVersion::UNKNOWN,
            due: Duration::ZERO,
            giving_up: false,
            rng,
        }
    }

    /// Returns the end of this process's permission to write, if it has one.
    pub(super) fn permitted_until(&self) -> Option<Duration> {
        self.until
    }

    /// Returns whether this process was the last known holder of the lease, with or without permission.
    pub(super) fn holds(&self) -> bool {
        matches!(&self.seen, Seen::Lease { record, .. } if record.holder() == Some(&self.me))
    }

    /// Returns whether the state of the Lease is known.
    pub(super) fn is_known(&self) -> bool {
        !matches!(self.seen, Seen::Nothing)
    }

    /// Returns the last known holder.
    pub(super) fn holder(&self) -> Option<&str> {
        match &self.seen {
            Seen::Lease { record, .. } => record.holder(),
            Seen::Nothing | Seen::Absent => None,
        }
    }

    /// Withdraws permission at once. From now on, the candidate only tries to release the lease.
    pub(super) fn give_up(&mut self, now: Duration) {
        self.giving_up = true;
        self.until = None;
        self.due = now;
        // The API server may still apply a request that is cancelled now.
        if self.is_writing() {
            self.invalidate();
        }
    }

    fn is_writing(&self) -> bool {
        matches!(self.asked, Some((Step::Create(_) | Step::Update(..), _)))
    }

    /// Returns the next step at `now`. A request is sent after this call, so not before `now`. `wall` is written into
    /// the Lease for humans.
    pub(super) fn next(&mut self, now: Duration, wall: Timestamp) -> Step {
        if now < self.due {
            return Step::Wait(self.due - now);
        }
        let step = self.choose(now, wall);
        if let Step::Update(record, at) = &step {
            if self.unanswered.len() == REMEMBERED {
                self.unanswered.remove(0);
            }
            let (record, at, newest) = (record.clone(), *at, self.newest);
            self.unanswered.push(Unanswered { record, at, newest, sent: now });
        }
        if !matches!(step, Step::Wait(_) | Step::Done) {
            self.asked = Some((step.clone(), now));
        }
        step
    }

    /// Returns the time limit of the request that is sent at `now`. A response after the renewal has expired is
    /// useless.
    pub(super) fn deadline(&self, now: Duration) -> Duration {
        let validity = self.config.validity();
        match self.until.and_then(|until| until.checked_sub(now)) {
            Some(left) => {
                // A write that is given up too early is sent again and takes as long again.
                let took = if self.is_writing() { self.took } else { Duration::ZERO };
                let slow = took.mul_f64(1.25).min(left.saturating_sub(LEAST));
                left.mul_f64(RENEW_SHARE).max(slow).clamp(LEAST, validity.max(LEAST))
            }
            None => validity.max(LEAST),
        }
    }

    fn choose(&self, now: Duration, wall: Timestamp) -> Step {
        let lease = self.config.lease_duration;
        match &self.seen {
            Seen::Nothing | Seen::Lease { stale: true, .. } => Step::Read,
            Seen::Lease { record, version, since, .. } => {
                let claim = decide(record, &self.me, *since, now, lease);
                match (claim, self.giving_up) {
                    // Before `not_before`, another process may still be writing. Then the lease is left to expire.
                    (Claim::Mine, true) if now >= self.not_before => {
                        Step::Update(record.released(wall), *version)
                    }
                    (_, true) => Step::Done,
                    (Claim::Free, false) if now < self.not_before => {
                        Step::Wait(self.not_before - now)
                    }
                    (Claim::Mine | Claim::Free, false) => {
                        Step::Update(record.held_by(&self.me, lease, wall), *version)
                    }
                    (Claim::HeldUntil(_), false) => Step::Read,
                }
            }
            Seen::Absent if self.giving_up => Step::Done,
            Seen::Absent => Step::Create(Record::default().held_by(&self.me, lease, wall)),
        }
    }

    /// Handles the end of the last request at `now`. Returns true if a renewal by the holder met a conflict, so that
    /// the holder must read the Lease.
    pub(super) fn answered(&mut self, now: Duration, answer: Answer) -> bool {
        let Some((asked, sent)) = self.asked.take() else { return false };
        let held = self.holds();
        match answer {
            Answer::Lease(record, version, uid) if version.is_known() => {
                let renewed = match asked {
                    // A write whose response was lost has been applied.
                    Step::Read => self.sent(&record, version),
                    _ => Some(sent).filter(|_| !self.has_seen(version)),
                };
                let is_handover = renewed.is_none()
                    && record.holder() == Some(&self.me)
                    && !self.has_seen(version)
                    && !self.is_own_term(&record);
                self.observe(uid, &record, is_handover, now);
                self.see(record, version, now);
                let permitted = now >= self.not_before && !self.giving_up;
                if let Some(sent) = renewed.filter(|_| self.holds()) {
                    self.unanswered.clear();
                    if asked != Step::Read {
                        self.took = now.saturating_sub(sent);
                    }
                    if permitted {
                        let until = sent + self.config.validity();
                        self.until = Some(self.until.map_or(until, |known| known.max(until)));
                    }
                }
                self.due = self.when(now, &asked, renewed);
            }
            Answer::Absent => {
                self.until = None;
                self.seen = Seen::Absent;
                self.due = self.when(now, &asked, None);
            }
            Answer::Conflict => {
                // The Lease must be read to see the other write. Until then, the last renewal counts: no other process
                // can take the lease before it has expired.
                self.invalidate();
                // It was not applied; an equal record comes from another write.
                if matches!(asked, Step::Update(..)) {
                    self.unanswered.pop();
                }
                // Without a pause, a client that writes continuously would cause a busy loop.
                self.due = if self.giving_up { now } else { now + self.jittered(HASTE) };
                return held;
            }
            Answer::Lease(..) => self.due = now + self.config.retry_period,
            Answer::Failed { retry_after } => {
                self.took = Duration::ZERO;
                // A read shows whether the write was applied.
                if asked != Step::Read && !self.giving_up {
                    self.invalidate();
                }
                let pause = match self.until.and_then(|until| until.checked_sub(now)) {
                    Some(left) => self.jittered(HASTE).min(left.mul_f64(HURRY).max(LEAST / 5)),
                    None => self.jittered(HASTE),
                };
                self.due = now + retry_after.max(pause).min(self.config.retry_period);
            }
        }
        false
    }

    /// Returns the time at which the unanswered write of this record and version was sent. A read can return an
    /// older state that looks the same, if a wall clock stands still. So the version must be newer than all that was
    /// known then.
    fn sent(&self, record: &Record, version: ResourceVersion) -> Option<Duration> {
        let sent = |it: &&Unanswered| it.record == *record && version.is_newer_than(it.newest);
        self.unanswered.iter().find(sent).map(|unanswered| unanswered.sent)
    }

    /// Returns the time of the next step. `sent`: the time of the renewal just acknowledged.
    fn when(&mut self, now: Duration, asked: &Step, sent: Option<Duration>) -> Duration {
        let look = now + self.jittered(1.0);
        match &self.seen {
            _ if self.giving_up => now,
            Seen::Nothing => now,
            Seen::Lease { record, since, .. } => {
                match decide(record, &self.me, *since, now, self.config.lease_duration) {
                    // The pause counts from when the renewal was sent, as the validity does. It has no jitter, because
                    // it fits the validity. A renewal at the end of the wait for a former holder gives permission.
                    Claim::Mine if sent.is_some() => {
                        let renewal = sent.map_or(now, |sent| sent + self.config.renewal());
                        let ends = Some(self.not_before).filter(|ends| *ends > now);
                        now.max(ends.map_or(renewal, |ends| ends.min(renewal)))
                    }
                    Claim::Mine if *asked != Step::Read => now + self.config.renewal(),
                    Claim::Mine | Claim::Free => now,
                    Claim::HeldUntil(until) => until.min(look),
                }
            }
            // A write without a Lease: it was deleted, or its namespace is missing.
            Seen::Absent if *asked != Step::Read => look,
            Seen::Absent => now,
        }
    }

    fn see(&mut self, record: Record, version: ResourceVersion, now: Duration) {
        let since = match &self.seen {
            Seen::Lease { version: known, since, .. } if known.is_same_as(version) => *since,
            _ => now,
        };
        if record.holder() != Some(&self.me) {
            self.until = None;
            // A write that replaces this version can still be applied.
            self.unanswered.retain(|unanswered| unanswered.at.is_same_as(version));
        }
        if !self.newest.is_newer_than(version) {
            self.newest = version;
        }
        self.seen = Seen::Lease { record, version, since, stale: false };
    }

    /// Records the current Lease. If it replaced another Lease, the old holder may not know this yet, nor may the
    /// holder of a Lease in between that this process never saw. Both were deleted by `now` at the latest, so no such
    /// holder can write when the old Lease's duration has elapsed since `now`. The same applies if another client has
    /// made this process the holder (`is_handover`).
    fn observe(&mut self, uid: Uid, record: &Record, is_handover: bool, now: Duration) {
        let own = self.config.lease_duration;
        if let Some((known, theirs)) = self.known
            && (known != uid || is_handover)
        {
            let wait = theirs.clamp(own, own * LONGEST_WAIT);
            self.not_before = self.not_before.max(now + wait);
        }
        self.known = Some((uid, record.duration(own)));
    }

    /// Returns whether a record belongs to the last known term in which this process held the Lease. A takeover changes
    /// both fields.
    fn is_own_term(&self, record: &Record) -> bool {
        let Seen::Lease { record: known, .. } = &self.seen else { return false };
        known.holder() == Some(&self.me)
            && known.acquire_time == record.acquire_time
            && known.lease_transitions == record.lease_transitions
    }

    /// Marks the known state as possibly outdated. Keeps the Lease and its time: its holder can be writing, and the
    /// time still counts if the version is unchanged.
    fn invalidate(&mut self) {
        match &mut self.seen {
            Seen::Lease { stale, .. } => *stale = true,
            // Another process created it first.
            Seen::Nothing | Seen::Absent => self.seen = Seen::Nothing,
        }
    }

    fn has_seen(&self, version: ResourceVersion) -> bool {
        matches!(&self.seen, Seen::Lease { version: known, .. } if known.is_same_as(version))
    }

    /// Returns `share` of the retry period, plus up to a fifth of that.
    fn jittered(&mut self, share: f64) -> Duration {
        self.config.retry_period.mul_f64(share * (1.0 + JITTER * self.rng.f64()))
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod simulation;
