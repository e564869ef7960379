use std::time::Duration;

use ::metrics::{counter, histogram};
use sdam_core::event::EventKind;

use super::{MetricsSink, names};

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
            EventKind::ConnectionCheckedOut { duration, .. } => self.check_out("ok", *duration),
            EventKind::ConnectionCheckOutFailed { reason, duration, .. } => {
                self.check_out(reason.as_str(), *duration);
            }
            EventKind::CommandSucceeded { duration, .. } => self.command("ok", *duration),
            EventKind::CommandFailed { failure, duration, .. } => {
                self.command(failure.kind().as_str(), *duration);
            }
            _ => {}
        }
    }

    fn check_out(&self, result: &'static str, duration: Duration) {
        let labels = self.with("result", result);
        histogram!(names::CHECK_OUT_DURATION, labels.clone()).record(duration);
        counter!(names::CHECK_OUTS, labels).increment(1);
    }

    fn command(&self, result: &'static str, duration: Duration) {
        let labels = self.with("result", result);
        histogram!(names::COMMAND_DURATION, labels.clone()).record(duration);
        counter!(names::COMMANDS, labels).increment(1);
    }
}
