//! Decisions of a process that wants the lease. Pure: clock readings and answers are arguments,
//! and the only randomness is jitter from its own generator.

use std::time::Duration;

use fastrand::Rng;
use jiff::Timestamp;

use super::config::Config;
use super::record::{Claim, Record, decide};
use crate::object::{ResourceVersion, Uid};

/// A look at another process's lease is delayed by up to this share of `retry`, so that candidates
/// do not move in lockstep (client-go adds up to 1.2; a takeover should be quicker than that).
const JITTER: f64 = 0.2;
/// After an error the next try comes after this share of `retry`: the lease is running out.
const HASTE: f64 = 0.25;
/// … and while there is permission, after no more than this share of what is left of it.
const HURRY: f64 = 0.1;
/// A renewal may take this share of the permission that is left, so that the rest suffices to see
/// whether it was carried out.
const RENEW_SHARE: f64 = 2.0 / 3.0;
/// The least time that a request has.
const LEAST: Duration = Duration::from_millis(250);
/// The most writes without an answer that are remembered.
const REMEMBERED: usize = 8;
/// The longest wait for the holder of a Lease that was deleted, in durations of this process's own: the one in the
/// Lease may have been edited.
const LONGEST_WAIT: u32 = 4;

/// The next step.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step {
    /// Nothing, for this long.
    Wait(Duration),
    /// Read the Lease as the API server has it now.
    Read,
    /// Create it.
    Create(Record),
    /// Write it, if it still has this version.
    Update(Record, ResourceVersion),
    /// Nothing more: the lease was given up, or was not held.
    Done,
}

/// Answer of the API server.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Answer {
    /// The Lease, as read or as written. A Lease that was deleted and recreated has another UID.
    Lease(Record, ResourceVersion, Uid),
    /// There is none.
    Absent,
    /// Another process was faster.
    Conflict,
    /// No answer, or one that says nothing about the Lease. The request may be carried out all the
    /// same, now or later.
    Failed {
        /// Wait that the server asked for (Retry-After).
        retry_after: Duration,
    },
}

/// One process that wants the lease.
pub(super) struct Candidate {
    config: Config,
    me: String,
    seen: Seen,
    /// The request under way, and when it was sent.
    asked: Option<(Asked, Duration)>,
    /// Writes without an answer. The API server may have carried them out, or may still do so.
    unanswered: Vec<Unanswered>,
    /// End of permission. Set only by a write that was acknowledged, by its answer or by a read
    /// that shows exactly what was sent; withdrawn at once when the lease is seen to be another
    /// process's, deleted or given up.
    until: Option<Duration>,
    /// The Lease that was seen last, and the time for which it is valid unchanged. Once another Lease has replaced
    /// it, its holder may go on writing, and nothing says so: there is no permission before `not_before`.
    known: Option<(Uid, Duration)>,
    not_before: Duration,
    /// The newest version that was seen.
    newest: ResourceVersion,
    /// Nothing is done before this.
    due: Duration,
    /// A watch shows changes of the Lease, so no look is needed before it may have expired.
    watched: bool,
    giving_up: bool,
    rng: Rng,
}

/// Last known state of the Lease at the API server.
#[derive(Debug)]
enum Seen {
    /// Not known.
    Nothing,
    /// This Lease; it has had this version since `since` at the latest. If `stale`, it may have another by now.
    Lease { record: Record, version: ResourceVersion, since: Duration, stale: bool },
    /// No Lease.
    Absent,
}

/// A write without an answer.
#[derive(Debug)]
struct Unanswered {
    record: Record,
    /// The version that it replaces.
    at: ResourceVersion,
    /// The newest version that was known when it was sent; its own is newer.
    newest: ResourceVersion,
    sent: Duration,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Asked {
    Read,
    Create,
    Update,
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
            known: None,
            not_before: Duration::ZERO,
            newest: ResourceVersion::UNKNOWN,
            due: Duration::ZERO,
            watched: false,
            giving_up: false,
            rng,
        }
    }

    pub(super) fn config(&self) -> &Config {
        &self.config
    }

    /// Until when this process may write, if it may.
    pub(super) fn permitted_until(&self) -> Option<Duration> {
        self.until
    }

    /// Returns whether the lease was last seen to be this process's, with permission or without.
    pub(super) fn holds(&self) -> bool {
        matches!(&self.seen, Seen::Lease { record, .. } if record.holder() == Some(&self.me))
    }

    /// Returns whether the Lease was seen, or seen to be absent.
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

    /// Returns the time for which the holder of a former Lease may still be writing.
    pub(super) fn waits_for_former(&self, now: Duration) -> Option<Duration> {
        self.not_before.checked_sub(now).filter(|left| !left.is_zero())
    }

    /// From now on the only aim is to give the lease up. Permission ends with this call.
    pub(super) fn give_up(&mut self, now: Duration) {
        self.giving_up = true;
        self.until = None;
        self.due = now;
    }

    /// Returns whether the lease is being given up.
    pub(super) fn is_giving_up(&self) -> bool {
        self.giving_up
    }

    /// Returns the step to take at `now`. A request is sent after this call, so not before `now`.
    /// `wall` is written into the Lease for humans.
    pub(super) fn next(&mut self, now: Duration, wall: Timestamp) -> Step {
        if now < self.due {
            return Step::Wait(self.due - now);
        }
        let step = self.choose(now, wall);
        match &step {
            Step::Read => self.asked = Some((Asked::Read, now)),
            Step::Create(_) => self.asked = Some((Asked::Create, now)),
            Step::Update(record, at) => {
                self.asked = Some((Asked::Update, now));
                if self.unanswered.len() == REMEMBERED {
                    self.unanswered.remove(0);
                }
                let (record, at, newest) = (record.clone(), *at, self.newest);
                self.unanswered.push(Unanswered { record, at, newest, sent: now });
            }
            Step::Wait(_) | Step::Done => {}
        }
        step
    }

    /// Returns the longest duration of the request that is sent at `now`. An answer that comes later
    /// than the validity of what it acknowledges is of no use.
    pub(super) fn deadline(&self, now: Duration) -> Duration {
        let validity = self.config.validity();
        match self.until.and_then(|until| until.checked_sub(now)) {
            Some(left) => left.mul_f64(RENEW_SHARE).clamp(LEAST, validity.max(LEAST)),
            None => validity.max(LEAST),
        }
    }

    fn choose(&self, now: Duration, wall: Timestamp) -> Step {
        let Config { lease, .. } = self.config;
        match &self.seen {
            Seen::Nothing => Step::Read,
            Seen::Lease { stale: true, .. } => Step::Read,
            Seen::Lease { record, version, since, .. } => {
                let claim = decide(record, &self.me, *since, now, lease);
                match (claim, self.giving_up) {
                    // Before that, another may still be writing: it is left to expire.
                    (Claim::Mine, true) if now >= self.not_before => {
                        Step::Update(record.given_up(wall), *version)
                    }
                    (_, true) => Step::Done,
                    (Claim::Free, false) if now < self.not_before => {
                        Step::Wait(self.not_before - now)
                    }
                    (Claim::Mine | Claim::Free, false) => {
                        Step::Update(record.held_by(&self.me, lease, wall), *version)
                    }
                    (Claim::TakenUntil(_), false) => Step::Read,
                }
            }
            Seen::Absent if self.giving_up => Step::Done,
            Seen::Absent => Step::Create(Record::default().held_by(&self.me, lease, wall)),
        }
    }

    /// The request of the last [`Candidate::next`] has ended at `now`. Returns true if this was the
    /// holder's attempt at a renewal and it has to read the Lease again.
    pub(super) fn answered(&mut self, now: Duration, answer: Answer) -> bool {
        let Some((asked, sent)) = self.asked.take() else { return false };
        let held = self.holds();
        match answer {
            Answer::Lease(record, version, uid) if version.is_known() => {
                let renewed = match asked {
                    // It was carried out, whatever became of its answer.
                    Asked::Read => self.sent(&record, version),
                    Asked::Create | Asked::Update => Some(sent).filter(|_| !self.has_seen(version)),
                };
                self.meet((uid, &record, version), renewed.is_some(), now);
                self.see(record, version, now);
                let permitted = now >= self.not_before && !self.giving_up;
                if let Some(sent) = renewed.filter(|_| self.holds()) {
                    self.unanswered.clear();
                    if permitted {
                        let until = sent + self.config.validity();
                        self.until = Some(self.until.map_or(until, |known| known.max(until)));
                    }
                }
                self.due = self.when(now, asked, renewed);
            }
            Answer::Absent => {
                self.until = None;
                self.seen = Seen::Absent;
                self.due = self.when(now, asked, None);
            }
            Answer::Conflict => {
                // The Lease must be read to see who was faster; until then the last renewal counts:
                // a rival could not take the lease before that has run out.
                self.doubt();
                // It was not carried out, and a record that looks the same is another write's.
                if matches!(asked, Asked::Update) {
                    self.unanswered.pop();
                }
                // A pause, so that something that writes all the time does not make this a race.
                self.due = if self.giving_up { now } else { now + self.jittered(HASTE) };
                return held;
            }
            Answer::Lease(..) => self.due = now + self.config.retry,
            Answer::Failed { retry_after } => {
                // The Lease shows whether the write was carried out.
                if asked != Asked::Read && !self.giving_up {
                    self.doubt();
                }
                let pause = match self.until.and_then(|until| until.checked_sub(now)) {
                    Some(left) => self.jittered(HASTE).min(left.mul_f64(HURRY).max(LEAST / 5)),
                    None => self.jittered(HASTE),
                };
                self.due = now + retry_after.max(pause).min(self.config.retry);
            }
        }
        false
    }

    /// A watch of the Lease was opened, or has ended.
    pub(super) fn watched(&mut self, watched: bool, now: Duration) {
        self.watched = watched;
        if !watched {
            let look = now + self.jittered(1.0);
            self.due = self.due.min(look);
        }
    }

    /// A watch shows the Lease at `now`; as good as a read, if it is newer than what is known. A watch
    /// may lag, so a Lease that is not known, or seems to be absent, has to be read. Returns whether it
    /// was news.
    pub(super) fn shown(
        &mut self,
        now: Duration,
        record: Record,
        version: ResourceVersion,
        uid: Uid,
    ) -> bool {
        let known = match &self.seen {
            Seen::Lease { version, .. } => *version,
            Seen::Nothing | Seen::Absent => return false,
        };
        if self.asked.is_some() || !version.is_newer_than(known) {
            return false;
        }
        let (held, until, due) = (self.holds(), self.until, self.due);
        self.asked = Some((Asked::Read, now));
        self.answered(now, Answer::Lease(record, version, uid));
        if held && self.holds() && self.until == until {
            // Somebody edits a lease that stays this process's. A renewal at once could make them do
            // so again.
            self.due = due;
        }
        true
    }

    /// Something has happened to the Lease: it is looked at now.
    pub(super) fn look(&mut self, now: Duration) {
        self.due = self.due.min(now);
    }

    /// Returns the time at which the write that resulted in this record and version was sent, if it
    /// has had no answer. A read may show an older state that looks the same, where a wall clock
    /// stands still; so the version has to be newer than all that was known then.
    fn sent(&self, record: &Record, version: ResourceVersion) -> Option<Duration> {
        let sent = |it: &&Unanswered| it.record == *record && version.is_newer_than(it.newest);
        self.unanswered.iter().find(sent).map(|unanswered| unanswered.sent)
    }

    /// Returns the time of the next step, given what is known now, and the renewal that was `sent` then.
    fn when(&mut self, now: Duration, asked: Asked, sent: Option<Duration>) -> Duration {
        let look = now + self.jittered(1.0);
        match &self.seen {
            _ if self.giving_up => now,
            Seen::Nothing => now,
            Seen::Lease { record, since, .. } => {
                match decide(record, &self.me, *since, now, self.config.lease) {
                    // Just renewed. The pause counts from when that was sent, as the validity does.
                    // It is not jittered: it was chosen to fit the validity.
                    Claim::Mine if sent.is_some() => {
                        sent.map_or(now, |sent| now.max(sent + self.config.renewal()))
                    }
                    Claim::Mine if asked != Asked::Read => now + self.config.renewal(),
                    Claim::Mine | Claim::Free => now,
                    // A watch that has died silently is noticed then: the write conflicts.
                    Claim::TakenUntil(until) if self.watched => until,
                    Claim::TakenUntil(until) => until.min(look),
                }
            }
            // A write that found no Lease: it was deleted, or its namespace is missing.
            Seen::Absent if asked != Asked::Read => look,
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
            // One that replaces this very version may yet be carried out.
            self.unanswered.retain(|unanswered| unanswered.at.is_same_as(version));
        }
        if !self.newest.is_newer_than(version) {
            self.newest = version;
        }
        self.seen = Seen::Lease { record, version, since, stale: false };
    }

    /// Notes which Lease was met. If it replaced another, the holder of the old one may not know
    /// yet that it is gone; neither may that of a Lease between the two, which this process never saw. They were
    /// gone by `now` at the latest, so no holder can write once the old Lease's duration has passed since `now`.
    /// It is the same if somebody else has made this process the holder.
    fn meet(
        &mut self,
        (uid, record, version): (Uid, &Record, ResourceVersion),
        is_written: bool,
        now: Duration,
    ) {
        let own = self.config.lease;
        let is_given = !is_written
            && record.holder() == Some(&self.me)
            && !self.has_seen(version)
            && !self.is_own_term(record);
        if let Some((known, theirs)) = self.known
            && (known != uid || is_given)
        {
            self.wait_for_former(theirs, now);
        }
        self.known = Some((uid, record.duration(own)));
    }

    /// A Lease of this duration has gone by `now`.
    fn wait_for_former(&mut self, theirs: Duration, now: Duration) {
        let own = self.config.lease;
        let wait = theirs.clamp(own, own * LONGEST_WAIT);
        self.not_before = self.not_before.max(now + wait);
    }

    /// Returns whether a record is of the term in which this process was last seen to hold the Lease. Whoever
    /// takes it changes both.
    fn is_own_term(&self, record: &Record) -> bool {
        let Seen::Lease { record: known, .. } = &self.seen else { return false };
        known.holder() == Some(&self.me)
            && known.acquire_time == record.acquire_time
            && known.lease_transitions == record.lease_transitions
    }

    /// What is known may be outdated. That there was a Lease, and since when, is remembered: its holder may be
    /// writing, and if it has the same version still, nothing has happened to it.
    fn doubt(&mut self) {
        match &mut self.seen {
            Seen::Lease { stale, .. } => *stale = true,
            // Somebody created it first.
            Seen::Nothing | Seen::Absent => self.seen = Seen::Nothing,
        }
    }

    fn has_seen(&self, version: ResourceVersion) -> bool {
        matches!(&self.seen, Seen::Lease { version: known, .. } if known.is_same_as(version))
    }

    /// `share` of the retry period, plus up to a fifth of that.
    fn jittered(&mut self, share: f64) -> Duration {
        self.config.retry.mul_f64(share * (1.0 + JITTER * self.rng.f64()))
    }
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod simulation;
