//! The evidence that a server no longer answers.

use crate::time::Instant;

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
