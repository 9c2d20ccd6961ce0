//! Random histories of the three kinds: users, nodes, pods, faults and two processes of the operator, from one seed.
//!
//! Laws, of each version of every object
//! - The conditions of a status agree with each other and with their generation (status.rs).
//! - Ready means that the cluster's own counts have said so since the last change.
//! - Only the process that holds the Lease writes, and not more often than something changes (writes.rs).
//! - One Memcached at a time gets a new image of the administrator's (pace.rs).
//!
//! Laws, after the last problem has ended
//! - Each custom resource becomes Ready, and its owned objects are as the spec says, and like those of a new object.
//! - Nothing is written while nothing changes.
//! - After the deletion, nothing is left.
//!
//! An optimized build plays 1,000 histories and 200 of the day; others play a few, because they are ten times slower.
//! `hack/campaigns/histories.sh` plays as many as one likes.

mod columns;
mod equal;
mod events;
mod laws;
mod pace;
mod play;
mod schema;
mod status;
mod steps;
pub mod values;
mod writes;

use controller_machinery::testing::histories;

use self::play::Play;

/// Number of histories by default: half a minute on two cores.
const HISTORIES: u64 = if cfg!(debug_assertions) { 40 } else { 1_000 };

#[test]
fn every_history_ends_well() {
    histories(HISTORIES, steps::plan, async |server, steps| {
        Play::run(server, steps, laws::check).await;
    });
}
