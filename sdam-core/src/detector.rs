//! Strategies for giving up on a silent server before the time limit of its checks.

use core::time::Duration;

/// The highest threshold of [`Detector::PhiAccrual`].
pub(crate) const MAX_THRESHOLD: usize = 12;

/// A strategy for giving up on a silent server before the time limit of its checks, which is
/// `heartbeatFrequencyMS` + `connectTimeoutMS`. Only clients with background monitors use one.
///
/// All strategies test a suspicion in the same steps, and differ in how long they wait for a ping.
///
/// 1. An answer takes longer than the floor, and longer than two usual round trips: that of a
///    check, of a measurement of the round-trip time, or of an operation whose pool [reports
///    it](crate::deployment::Input::Late).
/// 2. The server gets a ping on the connection of measurements. If there is no answer within
///    100 ms, or within two usual round trips if that is longer, it gets another one on a new
///    connection. The servers that answered last get a ping, too.
/// 3. If at least two of its connections (checks, measurements, the new one) and all its operations
///    have brought no answer within the wait of the strategy, and another server has answered
///    since step 2, the server becomes Unknown as after a time-out of its check, and connections in
///    use are interrupted. If no other server has answered, the network or this host may be to
///    blame: as soon as one answers, step 2 is repeated.
///
/// A server that has not answered yet is not judged, nor is the only server of a topology. If
/// timers of this host are late, the wait begins again, and later waits are longer until answers
/// come in time (Lifeguard, 2018: "Local Health Multiplier").
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
    /// replies that are twenty times slower than usual. The usual round trip is the lower quartile
    /// of the last ten.
    Probing {
        /// The minimum wait. It has to exceed the pauses of the servers and the time in which TCP
        /// repeats lost segments.
        #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
        floor: Duration,
    },
    /// Waits for `floor` plus the time after which an answer would come with a probability of
    /// 10^-`threshold` only, if round-trip times are normally distributed (Hayashibara et al.,
    /// 2004: "The φ Accrual Failure Detector").
    ///
    /// The three longest of the last ten round trips are left out, and at least the longest of two
    /// to nine. The standard deviation of the others is taken to be at least 2.25 times their mean,
    /// because few samples of a server without load say little about one with load.
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
