//! The errors after which an operation may be run again, and those that report a change of a
//! server's state.

use super::{Error, ErrorKind, RETRYABLE_ERROR, RETRYABLE_WRITE_ERROR, SYSTEM_OVERLOADED_ERROR};

/// The codes after which a write may be retried if the server is too old to label errors (Retryable
/// Writes: "RetryableWriteError Labels").
const WRITE_CODES: [i32; 12] = [6, 7, 89, 91, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436];

/// The code after which only reads may be retried (Retryable Reads: "Retryable Error").
const READ_CONCERN_MAJORITY_NOT_AVAILABLE_YET: i32 = 134;

/// The wire version of MongoDB 4.4, the first version whose servers label their errors.
const LABELS_WIRE_VERSION: i32 = 9;

impl Error {
    /// Returns whether a read may be run again after this error (Retryable Reads: "Retryable
    /// Error"): the pool was not usable, the connection broke, or the server has changed its state
    /// or cannot reach another server.
    ///
    /// The options, the number of attempts and the time limit decide whether the read is actually
    /// retried.
    #[doc(alias = "retryReads")]
    pub fn is_retryable_read(&self) -> bool {
        self.is_network()
            || self.is_retryable_pool()
            || self.has_code(&WRITE_CODES)
            || self.has_code(&[READ_CONCERN_MAJORITY_NOT_AVAILABLE_YET])
    }

    /// Returns whether a write with a [transaction](crate::session::Transaction) number may be run
    /// again after this error, on a server whose greatest wire version is `max_wire_version`
    /// (Retryable Writes: "RetryableWriteError Labels").
    ///
    /// True if the pool was not usable, if the connection broke, or if the server has labelled the
    /// error. Servers before 4.4 do not label errors, so the error's code decides in their case.
    /// After a write concern error from a mongos before 4.4, however, a write is never run again.
    ///
    /// A write without a transaction number could take effect twice, so it is run again only after
    /// an [overload](Self::is_retryable_overload), or if it was not sent.
    #[doc(alias("retryWrites", "RetryableWriteError"))]
    pub fn is_retryable_write(&self, max_wire_version: i32) -> bool {
        let is_old = max_wire_version < LABELS_WIRE_VERSION;
        self.is_network()
            || self.is_retryable_pool()
            || self.has_label(RETRYABLE_WRITE_ERROR)
            || is_old && self.has_code(&WRITE_CODES)
    }

    /// Returns whether any command may be run again after this error and a backoff: the server was
    /// overloaded and did not begin the command (Client Backpressure: "Overload retry policy").
    pub fn is_retryable_overload(&self) -> bool {
        self.has_label(SYSTEM_OVERLOADED_ERROR) && self.has_label(RETRYABLE_ERROR)
    }

    fn has_code(&self, codes: &[i32]) -> bool {
        self.kind() == ErrorKind::Command && self.code().is_some_and(|code| codes.contains(&code))
    }
}

/// A change of a server's state that an error reports (SDAM: "not writable primary" and
/// "node is recovering" errors).
#[doc(alias("isNotWritablePrimary", "isRecovering"))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub(crate) enum StateChange {
    /// The server is no longer the primary.
    NotWritablePrimary,
    /// The server is recovering, or its replication state is changing.
    NodeIsRecovering,
    /// The server is recovering because it is shutting down.
    ShuttingDown,
}

impl StateChange {
    /// Classifies an error by `code` if there is one, and otherwise by `message` (SDAM: "the code
    /// takes precedence").
    pub(crate) fn classify(code: Option<i32>, message: &str) -> Option<Self> {
        match code {
            Some(10107 | 13435 | 10058) => Some(Self::NotWritablePrimary),
            Some(11602 | 13436 | 189) => Some(Self::NodeIsRecovering),
            Some(11600 | 91) => Some(Self::ShuttingDown),
            None if message.contains("not master or secondary")
                || message.contains("node is recovering") =>
            {
                Some(Self::NodeIsRecovering)
            }
            None if message.contains("not master") => Some(Self::NotWritablePrimary),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Stage;

    fn error(kind: ErrorKind, code: Option<i32>, labels: &[&str]) -> Error {
        Error::new(kind, Stage::Operation, "no").with_code(code).with_labels(labels.iter().copied())
    }

    /// Clients label network errors themselves, so the server's label is not needed (I-74, I-75).
    #[test]
    fn a_broken_connection_allows_to_retry_reads_and_writes() {
        for kind in ErrorKind::ALL {
            let error = error(*kind, None, &[]);
            let expected = error.is_network() || error.is_retryable_pool();
            assert_eq!(error.is_retryable_read(), expected, "{error}");
            assert_eq!(error.is_retryable_write(21), expected, "{error}");
        }
    }

    /// Servers before 4.4 do not label errors, so clients judge by the code (I-74, I-75).
    #[test]
    fn codes_decide_for_reads_and_for_writes_of_servers_that_label_no_errors() {
        let check = |code, read, write| {
            let error = error(ErrorKind::Command, Some(code), &[]);
            assert_eq!(error.is_retryable_read(), read, "{error}");
            assert_eq!(error.is_retryable_write(8), write, "{error}");
            assert!(!error.is_retryable_write(9), "{error}");
        };
        for code in WRITE_CODES {
            check(code, true, true);
        }
        check(134, true, false);
        check(13, false, false);
        check(50, false, false);
    }

    #[test]
    fn the_label_decides_for_writes() {
        let labelled = error(ErrorKind::Command, Some(13), &[RETRYABLE_WRITE_ERROR]);
        assert!(labelled.is_retryable_write(21) && !labelled.is_retryable_read());
    }

    #[test]
    fn an_overload_may_be_retried_if_both_labels_say_so() {
        // The label of an overload alone does not allow a retry (I-62).
        let both = [SYSTEM_OVERLOADED_ERROR, RETRYABLE_ERROR];
        for (labels, expected) in [(&both[..], true), (&both[..1], false), (&both[1..], false)] {
            let error = error(ErrorKind::Command, Some(462), labels);
            assert_eq!(error.is_retryable_overload(), expected, "{labels:?}");
        }
    }

    #[test]
    fn codes_take_precedence_over_messages() {
        // The message decides only if there is no code (I-30, I-31).
        let check = |code, message, expected| {
            let found = StateChange::classify(code, message);
            assert_eq!(found, expected, "{code:?} {message}");
        };
        let not_writable = Some(StateChange::NotWritablePrimary);
        let recovering = Some(StateChange::NodeIsRecovering);
        let shutting_down = Some(StateChange::ShuttingDown);
        check(Some(10107), "", not_writable);
        check(Some(13436), "not master", recovering);
        check(Some(91), "", shutting_down);
        check(Some(11600), "", shutting_down);
        check(Some(1), "not master", None);
        check(None, "not master", not_writable);
        check(None, "not master or secondary", recovering);
        check(None, "the node is recovering", recovering);
        check(None, "not primary", None);
    }
}
