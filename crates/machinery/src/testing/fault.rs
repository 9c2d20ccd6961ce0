//! The faults that the server can inject, and the requests that they strike.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::time::Duration;

/// A fault. A scripted fault strikes the next request that it fits, a planned fault the request with a given number.
/// Random faults strike requests and frames at a given rate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fault {
    /// 410 as the HTTP response.
    Gone,
    /// 410 as an ERROR frame.
    GoneInStream,
    /// 410 on a continue token, once.
    GoneOnContinue,
    /// 429, with Retry-After in seconds.
    TooMany(u64),
    /// 429 as an ERROR frame.
    TooManyInStream,
    /// 401.
    Unauthorized,
    /// 403.
    Forbidden,
    /// 404.
    NotServed,
    /// 500.
    Internal,
    /// 500 as an ERROR frame.
    InternalInStream,
    /// 503.
    Unavailable,
    /// 504 "Too large resource version".
    TooLarge,
    /// The connection fails before a response.
    Refused,
    /// The body ends within a frame or item.
    Cut,
    /// The watch ends at once, cleanly.
    Close,
    /// Nothing more is sent, but the connection stays open.
    Silent,
    /// The watch first repeats events from before its version.
    Replay,
    /// One event is sent twice.
    Duplicate,
    /// The end bookmark of a streaming list is never sent.
    NoEndBookmark,
    /// The server does not support streaming lists.
    NoStreaming,
    /// The response shows an older state, whatever version was requested.
    Stale,
    /// The response is late.
    Delay(Duration),
    /// The request is executed, but the connection fails before the response.
    LostResponse,
    /// The request is not executed, and there is no response until the client gives up.
    Hang,
    /// The request is executed, but there is no response until the client gives up.
    Unanswered,
}

impl Fault {
    /// The number of kinds.
    pub const KINDS: usize = 25;
    /// Faults that can strike a list or a watch before the response.
    pub(super) const BEFORE: [Fault; 14] = [
        Fault::Gone,
        Fault::TooMany(7),
        Fault::Unauthorized,
        Fault::Forbidden,
        Fault::NotServed,
        Fault::Internal,
        Fault::Unavailable,
        Fault::TooLarge,
        Fault::Refused,
        Fault::Delay(Duration::from_secs(2)),
        Fault::LostResponse,
        Fault::Hang,
        Fault::Unanswered,
        Fault::Stale,
    ];
    /// Faults that can strike a request for one object.
    pub(super) const OF_OBJECT: [Fault; 10] = [
        Fault::TooMany(7),
        Fault::Unauthorized,
        Fault::Forbidden,
        Fault::Internal,
        Fault::Unavailable,
        Fault::Refused,
        Fault::Delay(Duration::from_secs(2)),
        Fault::LostResponse,
        Fault::Hang,
        Fault::Unanswered,
    ];
    /// Faults that can strike a list.
    pub(super) const LIST: [Fault; 2] = [Fault::GoneOnContinue, Fault::Cut];
    /// Faults that can strike a watch when it begins.
    pub(super) const WATCH: [Fault; 4] =
        [Fault::Replay, Fault::NoEndBookmark, Fault::NoStreaming, Fault::Close];
    /// Faults that can strike a watch before any of its frames.
    pub(super) const FRAME: [Fault; 7] = [
        Fault::GoneInStream,
        Fault::TooManyInStream,
        Fault::InternalInStream,
        Fault::Cut,
        Fault::Close,
        Fault::Silent,
        Fault::Duplicate,
    ];
}

/// A request or an event of a watch, identified by its number.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Moment {
    /// `get`, `list`, `watch`, `create`, `update`, `patch`, `delete`; `event` for an event in a watch.
    pub(super) verb: &'static str,
    pub(super) resource: String,
    /// Counted from 1, for each verb and resource.
    pub(super) number: u64,
}

/// A fault that was injected, or is planned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InjectedFault {
    pub(super) at: Moment,
    pub(super) fault: Fault,
}

impl fmt::Display for InjectedFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Moment { verb, resource, number } = &self.at;
        write!(f, "{:?} at {verb} {number} of {resource}", self.fault)
    }
}

/// The future faults, and those that were injected.
#[derive(Debug, Default)]
pub(super) struct Faults {
    /// The scripted faults, in order.
    pub(super) script: VecDeque<Fault>,
    pub(super) planned: Vec<InjectedFault>,
    /// The probability of a random fault per request, and per frame.
    pub(super) rates: (f64, f64),
    pub(super) injected: Vec<InjectedFault>,
    counts: HashMap<(&'static str, String), u64>,
}

impl Faults {
    /// Counts a request or an event.
    pub(super) fn next(&mut self, verb: &'static str, resource: &str) -> Moment {
        let count = self.counts.entry((verb, resource.to_owned())).or_insert(0);
        *count += 1;
        Moment { verb, resource: resource.to_owned(), number: *count }
    }

    /// Returns the moment of the `number`-th request from now on.
    pub(super) fn later(&self, verb: &'static str, resource: &str, number: u64) -> Moment {
        let count = self.counts.get(&(verb, resource.to_owned())).unwrap_or(&0);
        Moment { verb, resource: resource.to_owned(), number: count + number }
    }

    /// Returns the fault out of `which` that strikes now: the planned one, or the next scripted one if it fits,
    /// otherwise a random one at this rate.
    pub(super) fn inject(
        &mut self,
        which: &[Fault],
        at: &Moment,
        rate: f64,
        rng: &mut fastrand::Rng,
    ) -> Option<Fault> {
        let planned = |strike: &InjectedFault| strike.at == *at && strike.fault.is_in(which);
        let fault = if let Some(found) = self.planned.iter().position(planned) {
            Some(self.planned.swap_remove(found).fault)
        } else if self.script.front().is_some_and(|fault| fault.is_in(which)) {
            self.script.pop_front()
        } else {
            let strikes = rate > 0.0 && rng.f64() < rate;
            strikes.then(|| which[rng.usize(..which.len())])
        }?;
        self.injected.push(InjectedFault { at: at.clone(), fault });
        Some(fault)
    }

    /// Returns the number of events by resource.
    pub(super) fn events(&self) -> BTreeMap<String, u64> {
        let events = self.counts.iter().filter(|((verb, _), _)| *verb == "event");
        events.map(|((_, resource), count)| (resource.clone(), *count)).collect()
    }

    /// Returns the number of strikes by the name of the fault.
    pub(super) fn by_name(&self) -> BTreeMap<String, u64> {
        let mut counts = BTreeMap::new();
        for InjectedFault { fault, .. } in &self.injected {
            let name = format!("{fault:?}").split('(').next().unwrap_or_default().to_owned();
            *counts.entry(name).or_insert(0) += 1;
        }
        counts
    }
}

impl Fault {
    /// Returns the faults that can strike requests with this verb, which is one of [`Server::fault`](super::Server::fault).
    pub fn of(verb: &str) -> Vec<Fault> {
        let groups =
            [&Fault::BEFORE[..], &Fault::OF_OBJECT, &Fault::LIST, &Fault::WATCH, &Fault::FRAME];
        let mut all = Vec::new();
        for fault in groups.into_iter().flatten().filter(|fault| fault.fits(verb)) {
            if !all.contains(fault) {
                all.push(*fault);
            }
        }
        all
    }

    /// Returns whether it can strike requests with this verb.
    pub(super) fn fits(&self, verb: &str) -> bool {
        match verb {
            "list" => self.is_in(&Fault::BEFORE) || self.is_in(&Fault::LIST),
            "watch" => self.is_in(&Fault::BEFORE) || self.is_in(&Fault::WATCH),
            "event" => self.is_in(&Fault::FRAME),
            "get" | "create" | "update" | "patch" | "delete" => self.is_in(&Fault::OF_OBJECT),
            _ => false,
        }
    }

    /// Returns whether it is one of these, ignoring its number.
    fn is_in(&self, which: &[Fault]) -> bool {
        which.iter().any(|other| std::mem::discriminant(self) == std::mem::discriminant(other))
    }
}
