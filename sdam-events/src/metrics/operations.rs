use ::metrics::{counter, histogram};
use sdam_core::event::EventKind;

use super::{MetricsSink, names};

const CHECK_OUT: [&str; 2] = [names::CHECK_OUTS, names::CHECK_OUT_DURATION];
const COMMAND: [&str; 2] = [names::COMMANDS, names::COMMAND_DURATION];

impl MetricsSink {
    /// Counts an event of a pool, a connection or a command.
    pub(super) fn operation(&self, kind: &EventKind) {
        match kind {
            EventKind::ConnectionCreated { .. } => {
                counter!(names::CONNECTIONS_CREATED, self.labels.clone()).increment(1);
            }
            EventKind::ConnectionReady { duration, .. } => {
                histogram!(names::ESTABLISHMENT, self.labels.clone()).record(*duration);
            }
            EventKind::ConnectionClosed { reason, .. } => {
                let labels = self.with("reason", reason.as_str());
                counter!(names::CONNECTIONS_CLOSED, labels).increment(1);
            }
            EventKind::ConnectionCheckedOut { duration, .. } => {
                self.ended(CHECK_OUT, "ok", *duration);
            }
            EventKind::ConnectionCheckOutFailed { reason, duration, .. } => {
                self.ended(CHECK_OUT, reason.as_str(), *duration);
            }
            EventKind::CommandSucceeded { duration, .. } => self.ended(COMMAND, "ok", *duration),
            EventKind::CommandFailed { failure, duration, .. } => {
                self.ended(COMMAND, failure.kind().as_str(), *duration);
            }
            _ => {}
        }
    }
}
