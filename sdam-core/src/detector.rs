//! Strategies for leaving a silent server before the time limit of its checks.

use core::time::Duration;

use crate::rtt::RttWindow;

/// How many usual round trips an answer may take before the server is asked.
const PROMPT_TRIPS: u32 = 2;

/// How many usual round trips [`Detector::Probing`] waits for the answer to a ping: replies that
/// become twenty times slower are in time.
const TRIPS: u32 = 21;

/// The additional wait, in which TCP repeats a lost segment.
const REPETITION: Duration = Duration::from_millis(400);

/// The least standard deviation of [`Detector::PhiAccrual`], in means.
const LEAST_DEVIATION: u32 = 3;

/// The least time for which the answer to a ping is awaited before a new connection is opened.
const HURRY: Duration = Duration::from_millis(100);

/// Quantiles of the normal distribution in thousandths of its standard deviation: entry `n - 1` is
/// exceeded with a probability of 10^-n.
const QUANTILES: [u32; 12] =
    [1282, 2326, 3090, 3719, 4265, 4753, 5199, 5612, 5998, 6361, 6706, 7034];

/// A strategy for leaving a silent server before the time limit of its checks, which is
/// `heartbeatFrequencyMS` + `connectTimeoutMS`. Only clients with background monitors have one.
///
/// All strategies put a suspicion to the test, and differ in how long they wait for a ping.
///
/// 1. An answer takes longer than the floor, and than two usual round trips: that of a check, of a
///    measurement of the round-trip time, or of an operation whose pool [says
///    so](crate::deployment::Input::Late).
/// 2. The server gets a ping on the connection of measurements and, if that brings no answer within
///    100 ms and two usual round trips, another one on a new connection. The servers that answered
///    last get a ping, too.
/// 3. If two of its connections (checks, measurements, the new one) have brought no answer after the
///    wait of the strategy, nor an operation, and another server has answered since step 2, the
///    server becomes Unknown as after a time-out of its check, and connections in use are
///    interrupted. If no other server has answered, the network or this host may be to blame: as
///    soon as one answers, step 2 is repeated.
///
/// A server that has not answered yet is not judged, nor is one that is alone. If timers of this
/// host are late, the wait begins again, and later ones are longer until answers come in time
/// (Lifeguard, 2018: "Local Health Multiplier").
///
/// While every answer is on time, nothing is sent. While an operation takes long, there is one ping
/// for each wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(rename_all = "camelCase", deny_unknown_fields)
)]
pub enum Detector {
    /// Waits for `floor`, or for 400 ms and 21 usual round trips if that is longer: long enough for
    /// replies that are twenty times slower than usual. The usual round trip is the lower quartile of
    /// the last ten.
    Probing {
        /// The minimum wait. It has to exceed the pauses of the servers and the time in which TCP
        /// repeats lost segments.
        #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
        floor: Duration,
    },
    /// Waits for `floor` plus the time after which an answer would come with a probability of
    /// 10^-`threshold` only, if round-trip times are normally distributed (Hayashibara et al., 2004:
    /// "The φ Accrual Failure Detector").
    ///
    /// Their standard deviation is taken to be at least three times their mean, because ten samples
    /// of a server without load say little about one with load.
    PhiAccrual {
        /// The value of φ that is overdue, from 1 to 12.
        threshold: u8,
        /// The time that an answer may take in addition.
        #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
        floor: Duration,
    },
}

impl Detector {
    /// [`Probing`](Self::Probing) with a floor of 750 ms, which leaves a silent server after 1.5 s
    /// if round trips are short.
    pub const PROBING: Self = Self::Probing { floor: Duration::from_millis(750) };
    /// [`PhiAccrual`](Self::PhiAccrual) with a threshold of 8 and a floor of 600 ms.
    pub const PHI_ACCRUAL: Self =
        Self::PhiAccrual { threshold: 8, floor: Duration::from_millis(600) };

    /// Returns the minimum wait for an answer.
    pub fn floor(self) -> Duration {
        match self {
            Self::Probing { floor } | Self::PhiAccrual { floor, .. } => floor,
        }
    }

    /// Returns the highest threshold of [`PhiAccrual`](Self::PhiAccrual).
    pub(crate) const fn max_threshold() -> usize {
        QUANTILES.len()
    }

    /// Returns how long an answer may take before the server is asked.
    pub(crate) fn prompt(self, rtt: &RttWindow) -> Duration {
        self.floor().max(rtt.lower_quartile().saturating_mul(PROMPT_TRIPS))
    }

    /// Returns after how long a ping without an answer is followed by a new connection.
    pub(crate) fn hurry(self, rtt: &RttWindow) -> Duration {
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
                    deviation.max(mean * LEAST_DEVIATION) * *quantile.unwrap_or(&0) / 1000;
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
        samples.iter().for_each(|sample| rtt.add(Duration::from_millis(*sample)));
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
        // A deviation of 0 counts as three means.
        check(1, &[100], 500 + 100 + 384);
        check(8, &[100, 100], 500 + 100 + 1683);
        check(12, &[100], 500 + 100 + 2110);
        // The mean is 10, and the deviation 35.
        check(3, &[0, 0, 0, 0, 0, 0, 0, 0, 0, 120], 500 + 12 + 111);
    }

    #[test]
    fn a_server_is_asked_after_the_floor_or_two_usual_round_trips() {
        let mut rtt = RttWindow::new();
        assert_eq!(Detector::PROBING.prompt(&rtt), Duration::from_millis(750));
        rtt.add(Duration::from_secs(1));
        assert_eq!(Detector::PHI_ACCRUAL.prompt(&rtt), Duration::from_secs(2));
    }
}
