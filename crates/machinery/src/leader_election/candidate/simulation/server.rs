//! The API server, as far as candidates ask it: one Lease.

use fastrand::Rng;

use super::super::{Answer, Step};
use crate::leader_election::record::Record;
use crate::object::{ResourceVersion, Uid};

/// The Lease; `None` if there is none.
pub(super) type Lease = Option<(Record, u64, Uid)>;

pub(super) struct Server {
    /// All states of the Lease so far; the last is the current one. Never empty.
    history: Vec<Lease>,
    version: u64,
}

impl Server {
    /// With a Lease without a holder.
    pub(super) fn new() -> Server {
        Server { history: vec![Some((Record::default(), 1, uid(1)))], version: 1 }
    }

    pub(super) fn lease(&self) -> &Lease {
        &self.history[self.history.len() - 1]
    }

    /// Carries out a request; an update must name the current version.
    pub(super) fn serve(&mut self, step: Step) -> Answer {
        let current = self.lease().clone();
        let (record, expected) = match (step, &current) {
            (Step::Read, current @ Some(_)) => return answer(current),
            (Step::Read | Step::Update(..), None) => return Answer::Absent,
            (Step::Create(_), Some(_)) => return Answer::Conflict,
            (Step::Create(record), None) => (record, None),
            (Step::Update(record, expected), Some(_)) => (record, expected.number()),
            (Step::Wait(_) | Step::Done, _) => unreachable!("not sent"),
        };
        if let Some((known, version, _)) = &current {
            if expected != Some(*version) {
                return Answer::Conflict;
            }
            // A patch that changes nothing is not written.
            if *known == record {
                return answer(&current);
            }
        }
        self.store(Some(record));
        answer(self.lease())
    }

    /// Writes the Lease, or deletes it.
    pub(super) fn store(&mut self, record: Option<Record>) {
        self.version += 1;
        // A recreated Lease has another UID.
        let same = self.lease().as_ref().map(|(_, _, uid)| *uid);
        let uid = same.unwrap_or_else(|| uid(self.version));
        self.history.push(record.map(|record| (record, self.version, uid)));
    }

    /// Answers a read with a state that may be over.
    pub(super) fn stale(&self, rng: &mut Rng) -> Answer {
        let back = 1 + rng.usize(..5).min(self.history.len() - 1);
        answer(&self.history[self.history.len() - back])
    }
}

fn answer(lease: &Lease) -> Answer {
    match lease {
        Some((record, version, uid)) => {
            Answer::Lease(record.clone(), ResourceVersion::new(*version), *uid)
        }
        None => Answer::Absent,
    }
}

fn uid(number: u64) -> Uid {
    format!("00000000-0000-0000-0000-{number:012x}").parse().unwrap()
}
