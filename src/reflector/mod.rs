//! 2. List, then watch, for ever.
//!
//! Guarantees
//! - After any faults the store equals the server at some version, and that version only grows:
//!   every list asks for nothing older than what is held, and an answer that is older all the same
//!   is refused. Events from before the held version are dropped.
//! - A list is shown whole or not at all. Until it is complete, and if it never is, readers see
//!   what was there before; unchanged objects are neither replaced nor told.
//! - What harms the view does not happen by an error: 403 and 404 are states ([`State::Forbidden`],
//!   [`State::NotServed`]) with the old view kept, never an empty list. They heal by themselves.
//! - A streaming list is preferred, and given up for pages where the server has none, its end does
//!   not come in time, or three in a row fail; that is remembered for an hour. An expired continue token leads to one
//!   list in a single page, not to page one for ever.
//! - A broken or ended watch goes on from its version; only 410, or a version the server cannot get
//!   past, lists anew. A watch that is silent for 150 s, when a bookmark comes once a minute, is
//!   dead, and what it may have hidden is listed: where no bookmark ever comes, once. One that is not
//!   accepted within the client's deadline, or 30 s if that is longer, is opened anew.
//! - Failures wait 800 ms, doubling to 30 s with jitter, started over by a watch that delivers
//!   something new, by two minutes of health, or by an API server that was away and answers again
//!   ([`Reach`](crate::client::Reach)), which also cuts the pause short; while nobody calls, the
//!   reflectors ask in turns whether it does, every two seconds. A version that has expired
//!   is no failure unless it does so again before a watch has delivered anything. `Retry-After` is a
//!   lower bound. `timeoutSeconds` is drawn from 120 to 230 s, so that replicas do not move in
//!   lockstep.
//! - An object that cannot be decoded is left as it last was and counted; its neighbours are
//!   unharmed, and its next version or its deletion heals it.
//! - A server whose data went back in time is found out ([`Rewound`]): by an answer older than what is
//!   held to a list that asked for the newest, three times in a row; or, where its versions have come
//!   as far again, by a list with an older state of an object than one before it.
//! - How it is can be read at any time ([`HealthHandle`]), the end by a panic included; what a
//!   person must mend is one line in the log when it begins and one when it is over.
//!
//! Assumptions
//! - resourceVersions of one kind are numbers that grow (KEP-5504). Where they are not, nothing can
//!   be refused for its age, and the server is trusted.
//! - No two objects of a kind change at one version: of several events with the same version the
//!   first is taken and the others are held for repetitions. The API server writes each object in a
//!   transaction of its own. What etcd removes by itself, when a lease ends, it removes in one: of
//!   Kubernetes' own kinds Events alone have leases (`--event-ttl`), and a view of them keeps some
//!   that have expired until the next list.

mod position;
mod backoff;
mod failure;
mod state;
mod rewound;
mod action;
mod step;
mod quarantine;
mod observer;
mod sink;
mod inlet;
mod report;
mod run;

pub use action::Reason;
pub use observer::{Observer, Unobserved};
pub use rewound::Rewound;
pub use run::Reflector;
pub use sink::Sink;
pub use state::{Health, HealthHandle, State};
