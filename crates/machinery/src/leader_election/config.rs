//! Durations of a lease and their constraints.

use std::time::Duration;

/// Durations of a lease.
///
/// The first three have the names and defaults of Kubernetes' own components
/// (k8s.io/component-base/config: LeaderElectionConfiguration).
#[derive(Debug, Clone, PartialEq)]
pub struct Config {
    /// Time without changes before others can take the lease. In whole seconds, as in the API. Default 15 s.
    pub lease_duration: Duration,
    /// Longest time for which the holder writes after a renewal. Default 10 s; the effective limit is
    /// [`Config::validity`], which is shorter with the other defaults.
    pub renew_deadline: Duration,
    /// Pause between two renewals ([`Config::renewal`] is shorter for a short lease), and between two reads of
    /// another process's lease. Default 2 s.
    pub retry_period: Duration,
    /// Time limit of a write after the check of its permission. No other process writes before it has elapsed. Default
    /// 2 s.
    pub in_flight: Duration,
    /// Largest tolerated ratio of the rates of two clocks. Default 2: one clock at double rate. Clocks synchronized by
    /// NTP differ by a factor of less than 1.001. With 1.02, the holder of a 15 s lease can write for 10 s
    /// (`renew_deadline`) without a response from the API server, instead of 5.5 s.
    pub clock_ratio: f64,
}

/// The reason why the durations of a [`Config`] are inconsistent, as a sentence.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ConfigError(String);

/// The shortest validity. A renewal takes tens of milliseconds, and is sent twice in that time.
const SHORTEST: Duration = Duration::from_millis(500);

// === impl Config ===

impl Default for Config {
    fn default() -> Config {
        Config {
            lease_duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            in_flight: Duration::from_secs(2),
            clock_ratio: 2.0,
        }
    }
}

impl Config {
    /// Returns the time for which the holder can write after a renewal was sent: `min(renew_deadline, lease_duration /
    /// clock_ratio - in_flight)`; 5.5 s with the defaults.
    pub fn validity(&self) -> Duration {
        let ratio = if self.clock_ratio >= 1.0 { self.clock_ratio } else { 1.0 };
        self.lease_duration.div_f64(ratio).saturating_sub(self.in_flight).min(self.renew_deadline)
    }

    /// Returns the pause between two renewals: `retry_period`, but short enough to send a second one while the first is
    /// valid. With 15, 10 and 5 s, controller-runtime's older defaults, it is 2.75 s.
    pub fn renewal(&self) -> Duration {
        self.retry_period.min(self.validity() / 2)
    }

    /// Checks that the durations are consistent.
    ///
    /// # Errors
    /// If durations are inconsistent; the error names them.
    pub fn validate(&self) -> Result<(), ConfigError> {
        let Config { lease_duration, renew_deadline, retry_period, clock_ratio, .. } = *self;
        let validity = self.validity();
        let is_whole = lease_duration.subsec_nanos() == 0;
        let fault = if !is_whole || !(1..=86_400).contains(&lease_duration.as_secs()) {
            format!(
                "the lease duration must be between 1 s and 1 day in whole seconds, not {lease_duration:?}"
            )
        } else if lease_duration <= renew_deadline {
            format!(
                "the lease duration ({lease_duration:?}) must be longer than the renew deadline ({renew_deadline:?})"
            )
        } else if !(1.0..=10.0).contains(&clock_ratio) {
            format!("the clock ratio must be between 1 and 10, not {clock_ratio}")
        } else if retry_period.is_zero() || retry_period >= renew_deadline {
            format!(
                "the retry period must be more than 0 and less than the renew deadline ({renew_deadline:?}), not \
                 {retry_period:?}"
            )
        } else if validity < SHORTEST {
            format!(
                "the lease duration ({lease_duration:?}) leaves its holder {validity:?} to write after a renewal, and \
                 at least {SHORTEST:?} are needed; make it longer, or the clock ratio or the time for writes in flight \
                 smaller"
            )
        } else {
            return Ok(());
        };
        Err(ConfigError(fault))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[test]
    fn the_defaults_are_valid_and_tolerate_a_clock_at_double_rate() {
        let config = Config::default();
        assert_eq!(config.validate(), Ok(()));
        assert_eq!(config.validity(), Duration::from_millis(5_500));
        assert!((config.validity() + config.in_flight).mul_f64(2.0) <= config.lease_duration);
    }

    #[test]
    fn with_accurate_clocks_a_ten_second_lease_permits_almost_eight_seconds() {
        let config = Config {
            lease_duration: 10 * SECOND,
            renew_deadline: Duration::from_millis(9_900),
            clock_ratio: 1.0 / 0.99,
            ..Config::default()
        };
        assert_eq!(config.validity().as_millis(), 7_900);
    }

    #[test]
    fn the_durations_of_controller_runtime_are_accepted() {
        let config = Config { retry_period: 5 * SECOND, ..Config::default() };
        assert_eq!(config.validate(), Ok(()));
        assert_eq!(config.renewal(), Duration::from_millis(2_750));
        assert_eq!(Config::default().renewal(), 2 * SECOND);
    }

    #[test]
    fn inconsistent_durations_are_refused_with_the_reason() {
        let bad = |change: fn(&mut Config)| {
            let mut config = Config::default();
            change(&mut config);
            config.validate().unwrap_err().to_string()
        };
        assert!(bad(|c| c.lease_duration = Duration::from_millis(1_500)).contains("whole seconds"));
        assert!(bad(|c| c.renew_deadline = 15 * SECOND).contains("renew deadline"));
        assert!(bad(|c| c.retry_period = 10 * SECOND).contains("less than the renew deadline"));
        assert!(bad(|c| c.retry_period = Duration::ZERO).contains("more than 0"));
        let short = bad(|c| (c.lease_duration, c.renew_deadline) = (4 * SECOND, 3 * SECOND));
        assert!(short.contains("make it longer"), "{short}");
        assert!(bad(|c| c.clock_ratio = f64::NAN).contains("clock ratio"));
    }
}
