//! Strategies for giving up on a silent server before the time limit of its checks.

use core::time::Duration;

/// The highest threshold of [`Detector::PhiAccrual`].
pub(crate) const MAX_THRESHOLD: usize = 12;

/// A strategy for giving up on a silent server before the time limit of its checks, which is
/// `heartbeatFrequencyMS` + `connectTimeoutMS`. Only clients with background monitors use one.
///
/// All strategies test a suspicion in the same steps, but differ in how long they wait for answers.
///
/// 1. The answer to a check, to a measurement of the round-trip time, or to an operation whose pool
///    [reports it](crate::deployment::Input::Late) takes longer than the strategy's floor and
///    longer than two usual round trips.
/// 2. The server is pinged on the connection for measurements. If no answer arrives within 100
///    ms, or within two usual round trips if that is longer, it is pinged again on a new
///    connection. The servers that answered last are pinged, too.
/// 3. The server becomes Unknown, as after a time-out of its check, and connections in use are
///    interrupted, if three conditions hold: no operation has received an answer within the
///    strategy's wait; at least two of the server's connections (those for checks and for
///    measurements, and the new one) have not received one either; and another server has answered
///    since step 2. If no other server has answered, the network or this host may be to blame: as
///    soon as one answers, step 2 is repeated.
///
/// A server is not judged before its first answer, and the only server of a topology is never
/// judged. If timers of this host are late, the wait begins again, and later waits are longer until
/// answers come in time (Lifeguard, 2018: "Local Health Multiplier").
///
/// As long as every answer is on time, a detector sends nothing. A slow operation causes one ping
/// per wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize))]
#[cfg_attr(feature = "serde", serde(rename_all = "camelCase", deny_unknown_fields))]
pub enum Detector {
    /// Waits for `floor`, or for 400 ms plus 21 usual round trips if that is longer, which is long
    /// enough for replies that are twenty times slower than usual. The usual round trip is the
    /// lower quartile of the last ten.
    Probing {
        /// The minimum wait. It must exceed pauses of the servers and the time that TCP takes to
        /// retransmit lost segments.
        #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
        floor: Duration,
    },
    /// Waits for `floor` plus the time that an answer exceeds with a probability of only
    /// 10^-`threshold`, if round-trip times are normally distributed (Hayashibara et al., 2004:
    /// "The φ Accrual Failure Detector").
    ///
    /// The three longest of the last ten round trips are ignored; if there are only two to nine
    /// round trips, at least the longest one is ignored. The standard deviation of the others is
    /// taken to be at least 2.25 times their mean, because a few samples from an idle server say
    /// little about a busy one.
    PhiAccrual {
        /// The value of φ above which an answer is overdue, from 1 to 12.
        threshold: u8,
        /// The additional time that an answer may take.
        #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
        floor: Duration,
    },
}

impl Detector {
    /// [`Probing`](Self::Probing) with a floor of 750 ms, which gives up on a silent server after
    /// 1.5 s if round trips are short.
    pub const PROBING: Self = Self::Probing { floor: Duration::from_millis(750) };
    /// [`PhiAccrual`](Self::PhiAccrual) with a threshold of 12 and a floor of 650 ms.
    pub const PHI_ACCRUAL: Self =
        Self::PhiAccrual { threshold: 12, floor: Duration::from_millis(650) };

    /// Returns the minimum wait for an answer.
    pub fn floor(self) -> Duration {
        match self {
            Self::Probing { floor } | Self::PhiAccrual { floor, .. } => floor,
        }
    }
}
