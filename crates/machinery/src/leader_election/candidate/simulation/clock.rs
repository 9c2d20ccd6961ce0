//! Clocks that do not run as fast as true time.

use fastrand::Rng;

use super::{FAULTS, REST};

/// A clock: true times, each with what the clock showed then and the rate at which it went on.
pub(super) struct LocalClock(Vec<(f64, f64, f64)>);

// === impl LocalClock ===

impl LocalClock {
    pub(super) fn new(rng: &mut Rng, ratio: f64) -> LocalClock {
        let (mut true_time, mut shown) = (0.0, rng.f64() * 1e6);
        let mut pieces = Vec::new();
        while true_time < FAULTS + REST {
            let rate = match rng.u8(..4) {
                0 => 1.0,
                1 => ratio,
                _ => 1.0 + (ratio - 1.0) * rng.f64(),
            };
            pieces.push((true_time, shown, rate));
            let length = 1.0 + 40.0 * rng.f64();
            true_time += length;
            shown += length * rate;
        }
        LocalClock(pieces)
    }

    pub(super) fn shows(&self, at: f64) -> f64 {
        let &(begin, shown, rate) = self.0.iter().rev().find(|p| p.0 <= at).unwrap();
        shown + (at - begin) * rate
    }

    /// Returns the true time at which it shows `time`.
    pub(super) fn when(&self, time: f64) -> f64 {
        let &(begin, shown, rate) = self.0.iter().rev().find(|p| p.1 <= time).unwrap();
        begin + (time - shown) / rate
    }
}
