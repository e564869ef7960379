//! The evidence that a server no longer answers, and when to give up on it.

use core::time::Duration;

use crate::{rtt::RttWindow, time::Instant};

/// The evidence for and against a server's silence.
///
/// A frozen process, a full disk or a cut cable does not close connections: the server's answers
/// just stop. The server keeps its type until the time limit of its check has passed, unless a
/// [`Detector`](crate::options::Detector) gives up on it sooner.
///
/// An answer is a reply to a check or to a measurement, the reply to hello on a pooled connection,
/// a reported error that the server has sent, or a reply to an operation that arrives while a
/// detector is asking the server. Opening a connection does not count as an answer, because the
/// operating system accepts connections even for a frozen process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Silence {
    /// The time of the last answer; `None` if there was none.
    pub answered: Option<Instant>,
    /// The time after which an outstanding answer counts as late; `None` if no answer is
    /// outstanding. This time is usually up to `heartbeatFrequencyMS` in the future, or one round
    /// trip in the past.
    pub expected: Option<Instant>,
    /// The time at which the server became suspect: its own answer was overdue, although another
    /// server had answered since the time at which that answer was expected. `None` if the server
    /// is not suspected.
    pub suspected: Option<Instant>,
    /// The time at which a [detector](crate::options::Detector) asked the server for an answer;
    /// `None` if the server has answered since, or if there is no detector.
    pub asked: Option<Instant>,
    /// The number of operations that were reported to have timed out since the last answer.
    pub timeouts: u32,
}

/// Gives up on a silent server before the time limit of its checks, which is
/// `heartbeatFrequencyMS` + `connectTimeoutMS`. Only clients with background monitors use a
/// detector.
///
/// It tests a suspicion in these steps:
///
/// 1. The answer to a check, to a measurement of the round-trip time, or to an operation whose pool
///    [reports it](crate::deployment::Input::Late) takes longer than [`floor`](Self::floor) and
///    longer than two usual round trips. The usual round trip is the lower quartile of the last
///    ten.
/// 2. The server is pinged on the connection for measurements. If no answer arrives within 100
///    ms, or within two usual round trips if that is longer, it is pinged again on a new
///    connection. The servers that answered last are pinged, too.
/// 3. The server becomes Unknown, as after a time-out of its check, and connections in use are
///    interrupted, if three conditions hold: no operation has received an answer within the wait,
///    which is [`floor`](Self::floor), or 400 ms plus 21 usual round trips if that is longer; at
///    least two of the server's connections (those for checks and for measurements, and the new
///    one) have not received one either; and another server has answered since step 2. If no other
///    server has answered, the network or this host may be to blame: as soon as one answers, step 2
///    is repeated.
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
pub struct Detector {
    /// The minimum wait for an answer. It must exceed pauses of the servers and the time that TCP
    /// takes to retransmit lost segments.
    #[cfg_attr(feature = "serde", serde(with = "crate::encoding::nanos"))]
    pub floor: Duration,
}

/// The time that an answer may take before the server is pinged, as a number of usual round trips.
const PROMPT_TRIPS: u32 = 2;

/// The time to wait for the answer to a ping, as a number of usual round trips. This tolerates
/// replies that are twenty times slower than usual.
const TRIPS: u32 = 21;

/// An additional wait that allows TCP to retransmit a lost segment.
const REPETITION: Duration = Duration::from_millis(400);

/// The minimum time to wait for the answer to a ping before a new connection is opened.
const HURRY: Duration = Duration::from_millis(100);

impl Detector {
    /// A detector with a floor of 750 ms, which gives up on a silent server after 1.5 s if round
    /// trips are short.
    pub const PROBING: Self = Self { floor: Duration::from_millis(750) };

    /// Returns how long an answer may take before the server is pinged.
    pub(crate) fn prompt(self, rtt: &RttWindow) -> Duration {
        self.floor.max(rtt.lower_quartile().saturating_mul(PROMPT_TRIPS))
    }

    /// Returns how long to wait for the answer to a ping before a new connection is opened.
    pub(crate) fn hurry(rtt: &RttWindow) -> Duration {
        HURRY.max(rtt.lower_quartile().saturating_mul(PROMPT_TRIPS))
    }

    /// Returns how long the answer to a ping may take.
    pub(crate) fn patience(self, rtt: &RttWindow) -> Duration {
        self.floor.max(rtt.lower_quartile().saturating_mul(TRIPS).saturating_add(REPETITION))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detector_waits_for_its_floor_or_for_many_usual_round_trips_and_a_repetition() {
        let check = |samples: &[u64], millis| {
            let mut rtt = RttWindow::new();
            for sample in samples {
                rtt.add(Duration::from_millis(*sample));
            }
            assert_eq!(Detector::PROBING.patience(&rtt).as_millis(), millis, "{samples:?}");
        };
        check(&[], 750);
        check(&[1, 2, 3], 750);
        check(&[100], 2500);
        check(&[200, 100, 2000, 2000, 2000, 2000, 2000, 2000], 4600);
        check(&[100, 2000, 2000, 2000, 2000, 2000], 42_400);
    }

    #[test]
    fn a_server_is_asked_after_the_floor_or_two_usual_round_trips() {
        let mut rtt = RttWindow::new();
        assert_eq!(Detector::PROBING.prompt(&rtt), Duration::from_millis(750));
        rtt.add(Duration::from_secs(1));
        assert_eq!(Detector::PROBING.prompt(&rtt), Duration::from_secs(2));
    }
}
