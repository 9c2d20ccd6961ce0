//! Many candidates, one Lease, and all faults between them, in virtual time.
//!
//! True time exists only here. Each process has its own clock, whose rate changes within the
//! promised ratio. Its wall clock is off by up to 30 s, and some wall clocks stand still. Processes
//! pause, crash and restart under another identity. Requests are delayed or lost, get a late
//! response or none, and are executed long after their sender has given up. Reads can be stale. The
//! Lease is deleted or overwritten manually. Watches show the Lease late, or never.
//!
//! Whenever a process gets permission, the simulation checks that no other process has it, and that
//! no write that another process began with permission can still be in progress.

mod clock;
mod faults;
mod server;

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use self::clock::LocalClock;
use self::server::Server;
use super::*;

/// Duration of the faults, in true time, and longest duration of the recovery.
const FAULTS: f64 = 60.0;
const REST: f64 = 90.0;

/// Possible faults.
#[derive(Clone, Copy)]
struct World {
    /// Ratio of the rates of the fastest and the slowest clock.
    ratio: f64,
    /// True if users edit the Lease.
    by_hand: bool,
    /// True if processes crash and restart. The Lease is then edited but not deleted, because to a
    /// new process, a deleted Lease looks like a new cluster (a caveat of the module).
    crashes: bool,
}

/// The outcome.
#[derive(Default, Debug)]
struct Report {
    takeovers: u64,
    renewals: u64,
    /// The longest time during which two could have been writing, in true seconds.
    overlap: f64,
    led_at_the_end: bool,
    worst_seed: u64,
}

struct Process {
    candidate: Candidate,
    clock: LocalClock,
    wall_offset: f64,
    wall_stands: bool,
    /// Nothing runs before this.
    paused_until: f64,
    crashed: bool,
    /// The number of the request that is waited for.
    request: Option<u64>,
    /// In true time: the end of its permission, and of the last write begun with it.
    permitted: f64,
    writing: f64,
}

enum Event {
    Wake(usize),
    Arrive { process: usize, request: u64, step: Step, stale: bool, back: Option<f64> },
    Answer { process: usize, request: u64, answer: Answer },
    TimeOut { process: usize, request: u64 },
    Fault,
}

struct Simulation {
    rng: Rng,
    world: World,
    config: Config,
    now: f64,
    queue: BinaryHeap<Reverse<(u64, u64)>>,
    events: std::collections::HashMap<u64, Event>,
    serial: u64,
    processes: Vec<Process>,
    server: Server,
    report: Report,
}

// === impl Process ===

impl Process {
    /// Writes outlast the permission they were begun with, except in a process that gives up, which
    /// has drained, and in one that never had permission.
    fn set_writing(&mut self, in_flight: f64) {
        if self.permitted > 0.0 && !self.candidate.giving_up {
            let ends = self.clock.shows(self.permitted) + in_flight;
            self.writing = self.clock.when(ends);
        }
    }
}

// === impl Simulation ===

impl Simulation {
    fn run(seed: u64, config: Config, world: World) -> Report {
        let mut rng = Rng::with_seed(seed);
        let candidates = 2 + rng.usize(..4);
        let mut simulation = Simulation {
            rng,
            world,
            config,
            now: 0.0,
            queue: BinaryHeap::new(),
            events: Default::default(),
            serial: 0,
            processes: Vec::new(),
            server: Server::new(),
            report: Report::default(),
        };
        for _ in 0..candidates {
            simulation.start_process();
        }
        simulation.at(3.0, Event::Fault);
        simulation.work();
        simulation.report
    }

    fn work(&mut self) {
        while let Some(Reverse((time, serial))) = self.queue.pop() {
            self.now = time as f64 / 1e9;
            if self.now > FAULTS + REST - 1.0 {
                break;
            }
            let Some(event) = self.events.remove(&serial) else { continue };
            self.happen(event);
        }
        let now = self.now;
        self.report.led_at_the_end = self.processes.iter().any(|p| p.permitted > now);
    }

    fn at(&mut self, time: f64, event: Event) {
        self.serial += 1;
        self.events.insert(self.serial, event);
        // Rounded up, so that no process wakes up early.
        self.queue.push(Reverse(((time * 1e9).ceil() as u64, self.serial)));
    }

    fn start_process(&mut self) {
        let name = self.processes.len();
        let seed = self.rng.u64(..);
        let candidate =
            Candidate::new(self.config.clone(), format!("p{name}"), Rng::with_seed(seed));
        self.processes.push(Process {
            candidate,
            clock: LocalClock::new(&mut self.rng, self.world.ratio),
            wall_offset: 60.0 * self.rng.f64() - 30.0,
            wall_stands: self.rng.u8(..8) == 0,
            paused_until: 0.0,
            crashed: false,
            request: None,
            permitted: 0.0,
            writing: 0.0,
        });
        let delay = self.rng.f64() * 5.0;
        self.at(self.now + delay, Event::Wake(name));
    }

    fn happen(&mut self, event: Event) {
        let process = match &event {
            Event::Wake(process)
            | Event::Answer { process, .. }
            | Event::TimeOut { process, .. } => Some(*process),
            Event::Arrive { .. } | Event::Fault => None,
        };
        if let Some(process) = process {
            let it = &self.processes[process];
            if it.crashed {
                return;
            }
            if it.paused_until > self.now {
                let later = it.paused_until;
                return self.at(later, event);
            }
        }
        match event {
            Event::Wake(process) => self.wake(process),
            Event::Arrive { process, request, step, stale, back } => {
                let answer =
                    if stale { self.server.stale(&mut self.rng) } else { self.server.serve(step) };
                if let Some(back) = back {
                    self.at(self.now + back, Event::Answer { process, request, answer });
                }
            }
            Event::Answer { process, request, answer } => self.answer(process, request, answer),
            Event::TimeOut { process, request } => {
                let retry_after = Duration::ZERO;
                self.answer(process, request, Answer::Failed { retry_after });
            }
            Event::Fault => self.fault(),
        }
    }

    fn wake(&mut self, process: usize) {
        let (local, wall) = self.clocks(process);
        let it = &mut self.processes[process];
        if it.request.is_some() {
            return;
        }
        let step = it.candidate.next(local, wall);
        let deadline = it.candidate.deadline(local);
        let shown = it.clock.shows(self.now);
        match step {
            Step::Done => {}
            Step::Wait(time) => {
                let at = it.clock.when(shown + time.as_secs_f64());
                self.at(at.max(self.now) + 1e-6, Event::Wake(process));
            }
            step => {
                self.serial += 1;
                let request = self.serial;
                it.request = Some(request);
                let timeout = it.clock.when(shown + deadline.as_secs_f64());
                self.at(timeout, Event::TimeOut { process, request });
                self.send(process, request, step);
            }
        }
    }

    /// Sends `step` through a network in which anything can happen.
    fn send(&mut self, process: usize, request: u64, step: Step) {
        let calm = self.now > FAULTS;
        let mut delay = || match self.rng.u8(..20) {
            0..14 => 0.001 + 0.05 * self.rng.f64(),
            14..18 => 2.5 * self.rng.f64(),
            _ => 25.0 * self.rng.f64(),
        };
        let (there, back) = if calm { (0.01, 0.01) } else { (delay(), delay()) };
        let lost_there = !calm && self.rng.u8(..20) == 0;
        let back = (calm || self.rng.u8(..12) != 0).then_some(back);
        let stale = !calm && step == Step::Read && self.rng.u8(..20) == 0;
        if !lost_there {
            self.at(self.now + there, Event::Arrive { process, request, step, stale, back });
        }
    }

    fn answer(&mut self, process: usize, request: u64, answer: Answer) {
        let (local, _) = self.clocks(process);
        let it = &mut self.processes[process];
        if it.request == Some(request) {
            it.request = None;
            it.candidate.answered(local, answer);
            self.decided(process);
        }
    }

    /// Handles a decision of the candidate, which may have gained or lost permission.
    fn decided(&mut self, process: usize) {
        let in_flight = self.config.in_flight.as_secs_f64();
        let now = self.now;
        let it = &mut self.processes[process];
        let had = it.permitted;
        it.permitted = match it.candidate.permitted_until() {
            Some(until) => it.clock.when(until.as_secs_f64()),
            None => had.min(now),
        };
        it.set_writing(in_flight);
        if it.permitted > now {
            self.report.renewals += 1;
            self.report.takeovers += u64::from(had <= now);
            self.check(process);
        }
        self.wake(process);
    }

    /// Checks that, while `process` can write, no other process can write or has a write in progress.
    fn check(&mut self, process: usize) {
        let permitted = self.processes[process].permitted;
        for (other, it) in self.processes.iter().enumerate() {
            if other != process && it.writing > self.now {
                let overlap = it.writing.min(permitted) - self.now;
                self.report.overlap = self.report.overlap.max(overlap);
            }
        }
    }

    fn clocks(&self, process: usize) -> (Duration, Timestamp) {
        let it = &self.processes[process];
        let true_wall = if it.wall_stands { 0.0 } else { self.now };
        let wall = 1.8e9 + true_wall + it.wall_offset;
        let local = Duration::from_secs_f64(it.clock.shows(self.now));
        (local, Timestamp::from_microsecond((wall * 1e6) as i64).unwrap())
    }
}

/// The number of worlds of each kind without `LEASE_WORLDS`.
const WORLDS: u64 = 500;

/// Runs the worlds from this seed on.
fn run_from(first: u64, config: &Config, world: World) -> Report {
    let asked = std::env::var("LEASE_WORLDS").ok().and_then(|worlds| worlds.parse().ok());
    let worlds = asked.unwrap_or(WORLDS);
    let mut all = Report { led_at_the_end: true, ..Report::default() };
    for seed in first..first + worlds {
        let one = Simulation::run(seed, config.clone(), world);
        assert!(one.led_at_the_end, "seed {seed}: nobody leads though all is well again");
        all.takeovers += one.takeovers;
        all.renewals += one.renewals;
        if one.overlap > all.overlap {
            all.overlap = one.overlap;
            all.worst_seed = seed;
        }
    }
    let busy = all.takeovers > worlds && all.renewals > 12 * worlds;
    assert!(busy, "too quiet: {all:?}");
    all
}

#[test]
fn two_never_write_at_once_with_crashes_and_clocks_at_double_rate() {
    let world = World { ratio: 2.0, by_hand: false, crashes: true };
    let report = run_from(0, &Config::default(), world);
    assert_eq!(report.overlap, 0.0, "{report:?}");
}

#[test]
fn two_never_write_at_once_with_a_manually_edited_lease() {
    let world = World { ratio: 2.0, by_hand: true, crashes: false };
    let report = run_from(10_000, &Config::default(), world);
    assert_eq!(report.overlap, 0.0, "{report:?}");
}

#[test]
fn two_never_write_at_once_with_edits_and_crashes() {
    let world = World { ratio: 2.0, by_hand: true, crashes: true };
    let report = run_from(40_000, &Config::default(), world);
    assert_eq!(report.overlap, 0.0, "{report:?}");
}

#[test]
fn two_never_write_at_once_with_ordinary_clocks_and_a_longer_permission() {
    let config = Config { clock_ratio: 1.02, ..Config::default() };
    assert_eq!(config.validity(), Duration::from_secs(10));
    let report = run_from(20_000, &config, World { ratio: 1.02, by_hand: false, crashes: true });
    assert_eq!(report.overlap, 0.0, "{report:?}");
}

#[test]
fn clocks_beyond_the_ratio_overlap_no_longer_than_documented() {
    let config = Config { clock_ratio: 1.02, ..Config::default() };
    let report = run_from(30_000, &config, World { ratio: 2.0, by_hand: false, crashes: true });
    let bound = (config.validity() + config.in_flight).as_secs_f64() - 15.0 / 2.0;
    assert!(report.overlap > 0.5, "the simulation must be able to fail: {report:?}");
    assert!(report.overlap <= bound, "{report:?}, stated {bound}");
}
