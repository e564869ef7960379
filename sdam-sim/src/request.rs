//! Commands from clients.

use bson::{Bson, Document};
use sdam_transport::wire::{OpCode, OpMsg, OpQuery, OpReply, WireError, WireMessage};

const WRITES: [&str; 10] = [
    "insert",
    "update",
    "delete",
    "create",
    "createIndexes",
    "drop",
    "dropDatabase",
    "dropIndexes",
    "findAndModify",
    "bulkWrite",
];
const READS: [&str; 9] = [
    "find",
    "aggregate",
    "count",
    "distinct",
    "listCollections",
    "listDatabases",
    "listIndexes",
    "mapReduce",
    "getMore",
];

/// A command from a client, independent of its framing.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// The id of the request message, to which the reply refers.
    pub(crate) id: i32,
    pub(crate) framing: Framing,
    /// The first key of the body.
    pub(crate) name: String,
    pub(crate) body: Document,
}

/// The framing of a request. The reply is framed the same way.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Framing {
    Msg {
        /// True if the client accepts a stream of replies (`exhaustAllowed`).
        exhaust_allowed: bool,
        /// True if the client expects no reply (`moreToCome`).
        silent: bool,
    },
    Query {
        collection: String,
        /// True if secondaries may answer (`secondaryOk`).
        secondary_ok: bool,
    },
}

impl Request {
    /// Reads the command in `message`. Returns `None` if the message is invalid; the connection
    /// cannot be used any more in that case.
    pub(crate) fn read(message: &WireMessage) -> Option<Self> {
        let mut body = Document::from_reader(message.body()).ok()?;
        let framing = match message.op_code() {
            OpCode::Msg => Framing::Msg {
                exhaust_allowed: message.exhaust_allowed(),
                silent: message.more_to_come(),
            },
            OpCode::Query => Framing::Query {
                collection: message.collection()?.to_owned(),
                secondary_ok: message.query_flags()? & OpQuery::SECONDARY_OK != 0,
            },
            _ => return None,
        };
        for sequence in message.sequences() {
            let documents: Result<Vec<Bson>, _> = sequence
                .documents()
                .map(|bytes| Document::from_reader(bytes).map(Bson::Document))
                .collect();
            body.insert(sequence.identifier(), documents.ok()?);
        }
        if let (Framing::Query { .. }, Ok(query)) = (&framing, body.get_document("$query")) {
            body = query.clone();
        }
        let name = body.keys().next().cloned().unwrap_or_default();
        Some(Self { id: message.request_id(), framing, name, body })
    }

    /// Returns whether the command is hello or legacy hello.
    pub(crate) fn is_hello(&self) -> bool {
        self.is_modern_hello() || self.is_legacy_hello()
    }

    pub(crate) fn is_modern_hello(&self) -> bool {
        self.name == "hello"
    }

    /// Returns whether the command is legacy hello, in either spelling (M-41).
    pub(crate) fn is_legacy_hello(&self) -> bool {
        matches!(&*self.name, "isMaster" | "ismaster")
    }

    /// Returns whether the client accepts a stream of replies.
    pub(crate) fn exhaust_allowed(&self) -> bool {
        matches!(self.framing, Framing::Msg { exhaust_allowed: true, .. })
    }

    /// Returns the database of the command.
    pub(crate) fn database(&self) -> Option<&str> {
        match &self.framing {
            Framing::Msg { .. } => self.body.get_str("$db").ok(),
            Framing::Query { collection, .. } => collection.split_once('.').map(|(name, _)| name),
        }
    }

    /// Builds the reply with the document `body`. Returns `None` if the client expects no reply.
    pub(crate) fn reply(
        &self,
        request_id: i32,
        more_to_come: bool,
        body: &[u8],
    ) -> Result<Option<WireMessage>, WireError> {
        let response_to = self.id;
        let message = match &self.framing {
            Framing::Msg { silent: true, .. } => return Ok(None),
            Framing::Msg { .. } => {
                OpMsg { request_id, response_to, more_to_come, body, ..OpMsg::default() }.encode()
            }
            Framing::Query { .. } => {
                OpReply { request_id, response_to, flags: OpReply::AWAIT_CAPABLE, body }.encode()
            }
        };
        message.map(Some)
    }
}

pub(crate) fn is_write(name: &str) -> bool {
    WRITES.contains(&name)
}

pub(crate) fn takes_write_concern(name: &str) -> bool {
    is_write(name) || matches!(name, "commitTransaction" | "abortTransaction")
}

pub(crate) fn is_data_command(name: &str) -> bool {
    is_write(name) || READS.contains(&name)
}

/// Reads a number of any BSON type.
pub(crate) fn number(body: &Document, key: &str) -> Option<i64> {
    match body.get(key)? {
        Bson::Int32(number) => Some(i64::from(*number)),
        Bson::Int64(number) => Some(*number),
        Bson::Double(number) => Some(*number as i64),
        _ => None,
    }
}

/// Reads a flag of any BSON type. An absent flag is false.
pub(crate) fn flag(body: &Document, key: &str) -> bool {
    match body.get(key) {
        Some(Bson::Boolean(flag)) => *flag,
        Some(_) => number(body, key).is_some_and(|number| number != 0),
        None => false,
    }
}

/// Returns the name by which servers refer to the BSON type of `value`.
pub(crate) fn type_name(value: &Bson) -> &'static str {
    match value {
        Bson::Double(_) => "double",
        Bson::String(_) => "string",
        Bson::Document(_) => "object",
        Bson::Array(_) => "array",
        Bson::ObjectId(_) => "objectId",
        Bson::Boolean(_) => "bool",
        Bson::DateTime(_) => "date",
        Bson::Null => "null",
        Bson::Int32(_) => "int",
        Bson::Int64(_) => "long",
        _ => "binData",
    }
}
