use sdam_core::{
    error::{Error, ErrorKind, Stage},
    reply::{self, WriteError},
};

use crate::wire::WireMessage;

/// The reply to a successful command: its `ok` is 1.
#[derive(Clone, Debug)]
pub struct CommandReply {
    message: WireMessage,
    write_concern_error: Option<Error>,
}

impl CommandReply {
    /// Checks `message`, which is the reply to a command. If it contains an error, passes the error
    /// to `report`, which reports the error to the topology, and uses the error that `report`
    /// returns.
    ///
    /// # Errors
    ///
    /// If `ok` is not 1, the server's error with its [reply](Error::reply). If `ok` is missing or
    /// the document is not BSON, an error of the kind
    /// [`ErrorKind::Protocol`](sdam_core::error::ErrorKind::Protocol); close the connection in this
    /// case.
    pub fn check(message: WireMessage, report: impl FnOnce(Error) -> Error) -> Result<Self, Error> {
        // Only errors concern the topology, so it is not locked for a successful reply.
        match reply::check(message.body(), Stage::Operation) {
            Ok(error) => Ok(Self { message, write_concern_error: error.map(report) }),
            Err(error) => Err(report(error)),
        }
    }

    /// Returns the BSON document of the reply.
    pub fn body(&self) -> &[u8] {
        self.message.body()
    }

    /// Returns the errors of individual writes, `writeErrors`. These errors do not concern the
    /// state of the server.
    pub fn write_errors(&self) -> Vec<WriteError> {
        reply::write_errors(self.body())
    }

    /// Returns the write concern error, or the error of a legacy getLastError: the command has run,
    /// but its writes may not be durable, or may not have reached every required member. The
    /// topology has already handled the error.
    pub fn write_concern_error(&self) -> Option<&Error> {
        self.write_concern_error.as_ref()
    }

    /// Returns the error of a command that has run, if some of its writes failed or their write
    /// concern was not met: an error of kind [`ErrorKind::Write`] with the code and the message of
    /// the first failed write, and with this reply.
    pub fn write_error(&self) -> Option<Error> {
        let (errors, concern) = (self.write_errors(), self.write_concern_error());
        let error = match (&*errors, concern) {
            ([first, rest @ ..], _) => {
                let more = match rest.len() {
                    0 => String::new(),
                    count => format!("; {count} more of its writes failed"),
                };
                let message = format!("write {}: {}{more}", first.index, first.message);
                Error::new(ErrorKind::Write, Stage::Operation, message).with_code(first.code)
            }
            ([], Some(concern)) => {
                let message = format!("the write concern was not met: {}", concern.message());
                Error::new(ErrorKind::Write, Stage::Operation, message)
                    .with_code(concern.code())
                    .with_code_name(concern.code_name())
            }
            ([], None) => return None,
        };
        let labels = concern.into_iter().flat_map(Error::labels);
        let version = concern.and_then(Error::topology_version);
        Some(error.with_labels(labels).with_topology_version(version).with_reply(self.body()))
    }

    /// Adds a label to the [`write_concern_error`](Self::write_concern_error), if any.
    #[must_use]
    pub fn with_label(mut self, label: &str) -> Self {
        self.write_concern_error = self.write_concern_error.map(|error| error.with_label(label));
        self
    }
}
