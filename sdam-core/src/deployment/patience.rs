//! Computes, from a server's round-trip times, how long a [`Detector`] waits for answers.

use core::time::Duration;

use crate::{
    options::{Detector, MAX_THRESHOLD},
    rtt::RttWindow,
};

/// The time that an answer may take before the server is pinged, as a number of usual round trips.
const PROMPT_TRIPS: u32 = 2;

/// The time for which [`Detector::Probing`] waits for the answer to a ping, as a number of usual
/// round trips. This tolerates replies that are twenty times slower than usual.
const TRIPS: u32 = 21;

/// An additional wait that allows TCP to retransmit a lost segment.
const REPETITION: Duration = Duration::from_millis(400);

/// The minimum standard deviation of [`Detector::PhiAccrual`], in quarters of the mean. With a
/// threshold of 12, it makes the detector tolerate replies that are sixteen times slower than
/// usual.
const LEAST_DEVIATION: u32 = 9;

/// The minimum time to wait for the answer to a ping before a new connection is opened.
const HURRY: Duration = Duration::from_millis(100);

/// Quantiles of the normal distribution, in thousandths of the standard deviation: a value exceeds
/// entry `n - 1` with a probability of 10^-n.
const QUANTILES: [u32; MAX_THRESHOLD] =
    [1282, 2326, 3090, 3719, 4265, 4753, 5199, 5612, 5998, 6361, 6706, 7034];

impl Detector {
    /// Returns how long an answer may take before the server is pinged.
    pub(crate) fn prompt(self, rtt: &RttWindow) -> Duration {
        self.floor().max(rtt.lower_quartile().saturating_mul(PROMPT_TRIPS))
    }

    /// Returns how long to wait for the answer to a ping before a new connection is opened.
    pub(crate) fn hurry(rtt: &RttWindow) -> Duration {
        HURRY.max(rtt.lower_quartile().saturating_mul(PROMPT_TRIPS))
    }

    /// Returns how long the answer to a ping may take.
    pub(crate) fn patience(self, rtt: &RttWindow) -> Duration {
        match self {
            Self::Probing { floor } => {
                floor.max(rtt.lower_quartile().saturating_mul(TRIPS).saturating_add(REPETITION))
            }
            Self::PhiAccrual { threshold, floor } => {
                let (mean, deviation) = rtt.distribution();
                let quantile = QUANTILES.get(usize::from(threshold.max(1)) - 1);
                let deviations =
                    deviation.max(mean * LEAST_DEVIATION / 4) * *quantile.unwrap_or(&0) / 1000;
                floor.saturating_add(mean).saturating_add(deviations)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patience(detector: Detector, samples: &[u64]) -> u128 {
        let mut rtt = RttWindow::new();
        for sample in samples {
            rtt.add(Duration::from_millis(*sample));
        }
        detector.patience(&rtt).as_millis()
    }

    #[test]
    fn probing_waits_for_its_floor_or_for_many_usual_round_trips_and_a_repetition() {
        let check = |samples: &[u64], millis| {
            assert_eq!(patience(Detector::PROBING, samples), millis, "{samples:?}");
        };
        check(&[], 750);
        check(&[1, 2, 3], 750);
        check(&[100], 2500);
        check(&[200, 100, 2000, 2000, 2000, 2000, 2000, 2000], 4600);
        check(&[100, 2000, 2000, 2000, 2000, 2000], 42_400);
    }

    #[test]
    fn phi_accrual_waits_for_its_floor_and_the_quantile_of_its_threshold() {
        let check = |threshold, samples: &[u64], millis| {
            let floor = Duration::from_millis(500);
            let detector = Detector::PhiAccrual { threshold, floor };
            assert_eq!(patience(detector, samples), millis, "{threshold} {samples:?}");
        };
        check(8, &[], 500);
        // A standard deviation of 0 is raised to 2.25 times the mean.
        check(1, &[100], 500 + 100 + 288);
        check(8, &[100, 100], 500 + 100 + 1262);
        check(12, &[100], 500 + 100 + 1582);
        check(8, &[100, 100, 100, 100, 100, 100, 100, 2000, 2000, 2000], 500 + 100 + 1262);
        // The first hello was answered late, because the server had been suspended.
        check(12, &[9000, 1], 500 + 1 + 15);
        // The three greatest round trips are left out. The mean of the others is 100, and their
        // standard deviation is 245.
        check(3, &[0, 0, 0, 0, 0, 0, 700, 2000, 2000, 2000], 500 + 100 + 756);
    }

    #[test]
    fn a_server_is_asked_after_the_floor_or_two_usual_round_trips() {
        let mut rtt = RttWindow::new();
        assert_eq!(Detector::PROBING.prompt(&rtt), Duration::from_millis(750));
        rtt.add(Duration::from_secs(1));
        assert_eq!(Detector::PHI_ACCRUAL.prompt(&rtt), Duration::from_secs(2));
    }
}
