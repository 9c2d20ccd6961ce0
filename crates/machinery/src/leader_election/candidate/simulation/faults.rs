//! Faults of processes and of the Lease; the network's faults are in `send`.

use super::super::Seen;
use super::{Event, FAULTS, Process, Simulation};
use crate::leader_election::record::Record;

impl Simulation {
    pub(super) fn fault(&mut self) {
        if self.now > FAULTS {
            return;
        }
        let next = self.now + 0.5 + 8.0 * self.rng.f64();
        self.at(next, Event::Fault);
        let victim = self.rng.usize(..self.processes.len());
        match self.rng.u8(..7) {
            0..3 => self.processes[victim].paused_until = self.now + 30.0 * self.rng.f64(),
            3 | 4 if self.world.by_hand => self.edit_by_hand(),
            3..6 if self.world.crashes => self.crash(victim),
            _ => self.shut_down(victim),
        }
    }

    fn crash(&mut self, victim: usize) {
        let (now, in_flight) = (self.now, self.config.in_flight.as_secs_f64());
        let it = &mut self.processes[victim];
        if !std::mem::replace(&mut it.crashed, true) {
            it.permitted = it.permitted.min(now);
            it.set_writing(in_flight);
            self.start_process();
        }
    }

    /// Shuts a process down in an orderly way: it is drained, so no write is in progress.
    fn shut_down(&mut self, victim: usize) {
        let (local, _) = self.clocks(victim);
        let now = self.now;
        let alive = self.processes.iter().filter(|p| !p.crashed && !p.candidate.giving_up).count();
        let it = &mut self.processes[victim];
        if alive > 1 && !it.crashed && it.paused_until <= now && it.request.is_none() {
            it.candidate.give_up(local);
            it.permitted = it.permitted.min(now);
            it.writing = it.permitted;
            self.wake(victim);
        }
    }

    /// The identity of a process, perhaps of one that has crashed.
    fn anybody(&mut self) -> String {
        let chosen = self.rng.usize(..self.processes.len());
        self.processes[chosen].candidate.me.clone()
    }

    fn edit_by_hand(&mut self) {
        let Some((record, ..)) = self.server.lease().clone() else { return };
        let edited = match self.rng.u8(..10) {
            0 if !self.world.crashes => None,
            1 => Some(Record { holder_identity: Some(String::new()), ..record }),
            2 => Some(Record { holder_identity: Some("nobody".into()), ..record }),
            3 => Some(Record { renew_time: None, ..record }),
            4 => Some(Record { lease_duration_seconds: Some(1), ..record }),
            5 => Some(Record { lease_duration_seconds: Some(30), ..record }),
            6 => Some(Record { lease_duration_seconds: None, ..record }),
            7 => Some(Record { renew_time: Some("2000-01-01T00:00:00.000000Z".into()), ..record }),
            8 => Some(Record { holder_identity: Some(self.anybody()), ..record }),
            _ => Some(Record::default()),
        };
        // A manual edit that equals a holder's release of the lease releases it.
        if edited.as_ref().is_some_and(Record::is_given_up) {
            return;
        }
        // Only once all have seen that there is a Lease: to one that has not, a deleted Lease looks
        // like a new cluster (a caveat of the room).
        let seen = |p: &Process| !matches!(p.candidate.seen, Seen::Nothing);
        if self.processes.iter().all(seen) {
            self.server.store(edited);
        }
    }
}
