//! A command, and the fields that the client adds to it.

use std::{borrow::Cow, time::Duration};

use sdam_core::{
    command::CommandFields,
    document::{DocumentWriter, MalformedDocument, without},
    options::{Acknowledgment, Options},
    server::ServerType,
};
use sdam_pool::Pool;
use sdam_select::{
    command::{Additions, Opcode},
    criteria::{self, Criteria},
};

use super::{
    attempt::{Operation, Sent},
    retry::{Budget, Limit},
};
use crate::select::selected::SelectedServer;

/// A command to run on a database.
///
/// The document must not contain `$db`, the declared API version or a read preference: the client
/// adds them. The client also adds a session, unless the document has an `lsid` or is not
/// acknowledged (`w: 0`). A [read](Self::read) that supports a read concern gets the read concern
/// of the connection string, and a [write](Self::write) gets the write concern of the connection
/// string, unless the document has its own concern or belongs to a transaction. The constructor
/// determines the kind of the command.
///
/// With `timeoutMS`, or a [time limit](Self::with_timeout) of the command, the client sets
/// `maxTimeMS` to the remaining time less a round trip, replacing the document's own value. A
/// `getMore` keeps its own `maxTimeMS` if that is shorter, and a find with a tailable cursor that
/// does not await data gets none (Client Side Operations Timeout: "Command Execution").
#[derive(Clone, Debug)]
#[must_use = "a command does nothing until a client runs it"]
pub struct Command<'c> {
    pub(super) database: &'c str,
    pub(super) document: &'c [u8],
    pub(super) kind: Kind,
    pub(super) timeout: Option<Duration>,
    pub(super) is_retryable: bool,
    criteria: Option<Criteria>,
}

/// The kind of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// A command of unknown kind (`runCommand`).
    Generic,
    Read,
    Write,
}

impl<'c> Command<'c> {
    /// Creates a generic command (Run Command). By default, it runs on the primary. It is retried
    /// only after a server has refused it because of overload.
    pub fn new(database: &'c str, document: &'c [u8]) -> Self {
        Self {
            database,
            document,
            kind: Kind::Generic,
            timeout: None,
            is_retryable: true,
            criteria: None,
        }
    }

    /// Creates a read that may be retried, such as `find`, `aggregate` without a write stage,
    /// `distinct` or `count` (Retryable Reads: "Supported Read Operations"). By default, it uses
    /// the read preference from the connection string.
    pub fn read(database: &'c str, document: &'c [u8]) -> Self {
        Self { kind: Kind::Read, ..Self::new(database, document) }
    }

    /// Creates a write. It runs on a writable server, and is retried if it is an `insert`, a
    /// `findAndModify`, or an `update`, `delete` or `bulkWrite` of single documents (Retryable
    /// Writes: "Supported Write Operations"). The client then adds a transaction number, so that
    /// the server runs the write only once. If the document has its own `lsid` and `txnNumber`, all
    /// attempts use that number.
    ///
    /// Other writes are run once: those that affect several documents (`multi: true`, `limit: 0`),
    /// those that are not acknowledged (`w: 0`), and those of a transaction.
    pub fn write(database: &'c str, document: &'c [u8]) -> Self {
        Self { kind: Kind::Write, ..Self::new(database, document) }
    }

    /// Sets the selection criteria. Their read preference is also sent to the server.
    pub fn with_criteria(mut self, criteria: Criteria) -> Self {
        self.criteria = Some(criteria);
        self
    }

    /// Sets the time limit for all attempts together, in place of `timeoutMS`. Zero means no
    /// limit.
    pub fn with_timeout(mut self, timeout: Duration) -> Self {
        self.timeout = Some(timeout);
        self
    }

    /// Runs the command without a transaction number, and retries it only after a server has
    /// refused it because of overload.
    pub fn without_retry(mut self) -> Self {
        self.is_retryable = false;
        self
    }

    /// Returns the command's own selection criteria. Without them, returns `read` for a read,
    /// `generic` for a generic command, and `Criteria::write()` for a write.
    pub(super) fn criteria(&self, read: &Criteria, generic: &Criteria) -> Criteria {
        self.criteria.clone().unwrap_or_else(|| match self.kind {
            Kind::Generic => generic.clone(),
            Kind::Read => read.clone(),
            Kind::Write => Criteria::write(),
        })
    }

    /// Returns the document to send to `server`.
    pub(super) fn encode(
        &self,
        server: &SelectedServer<Pool>,
        operation: &Operation<'_>,
        session: Option<Sent>,
        budget: Budget,
    ) -> Result<Vec<u8>, MalformedDocument> {
        let (client, fields) = (operation.client, &operation.fields);
        let max_time = budget.max_time.map(|left| fields.max_time_within(left));
        // The time limit replaces the document's own `maxTimeMS`.
        let own = match max_time {
            Some(_) if fields.has_max_time => without(self.document, "maxTimeMS"),
            _ => None,
        };
        let own = own.map_or(Cow::Borrowed(self.document), Cow::Owned);
        let mut document = DocumentWriter::extending(&own)?;
        document.int64("maxTimeMS", max_time.flatten());
        append_concern(&mut document, client.options(), self.kind, fields, operation.limit);
        if let Some(session) = session {
            session.append_to(&mut document);
        }
        if server.server_type() != ServerType::Standalone
            && !fields.has_cluster_time
            && let Some(time) = &*client.0.cluster_time.load()
        {
            time.append_to(&mut document);
        }
        if let Some(api) = &client.topology().options().server_api {
            api.declare(&mut document);
        }
        document.text("$db", self.database);
        let document = document.finish();
        let preference = match operation.criteria.operation() {
            criteria::Operation::Read(preference) if !server.overrides_read_preference() => {
                Some(&**preference)
            }
            _ => None,
        };
        let (topology_type, server_type) = (server.topology_type(), server.server_type());
        let additions = match (self.kind, preference) {
            (Kind::Read, preference) => {
                Additions::for_read(topology_type, server_type, preference, Opcode::Msg)
            }
            (Kind::Generic, Some(preference)) => {
                Additions::for_run_command(server_type, preference)
            }
            _ => Additions::default(),
        };
        match additions.read_preference {
            Some(preference) => preference.append_to(&document),
            None => Ok(document),
        }
    }
}

/// Adds the connection string's read or write concern to a command that supports it, but never to a
/// generic command (Read and Write Concern: "Generic Command Method").
fn append_concern(
    document: &mut DocumentWriter,
    options: &Options,
    kind: Kind,
    fields: &CommandFields<'_>,
    limit: Limit,
) {
    match kind {
        Kind::Read if fields.takes_read_concern() => {
            document.document_unless_empty("readConcern", |concern| {
                concern.text("level", options.read_concern_level.as_deref());
            });
        }
        Kind::Write if fields.takes_write_concern() => {
            document.document_unless_empty("writeConcern", |concern| {
                match &options.w {
                    Some(Acknowledgment::Nodes(nodes)) => concern.int64("w", i64::from(*nodes)),
                    Some(Acknowledgment::Named(name)) => concern.text("w", &**name),
                    _ => {}
                }
                concern.boolean("j", options.journal);
                // The time limit of the operation replaces `wTimeoutMS`.
                let time = options.w_timeout.filter(|_| !limit.is_set());
                let millis = time.and_then(|time| i64::try_from(time.as_millis()).ok());
                concern.int64("wtimeout", millis);
            });
        }
        _ => {}
    }
}
