//! Commands from clients, and the errors with which servers answer them.

use bson::{Bson, Document, doc};
use sdam_transport::wire::{OpCode, OpMsg, OpQuery, OpReply, WireError, WireMessage};

use crate::version::ServerVersion;

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

/// The access of a command to documents, collections and databases.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    Read,
    Write,
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

    /// Returns the kind of access, or `None` for a command that is not about data.
    pub(crate) fn access(&self) -> Option<Access> {
        match &*self.name {
            "insert" | "update" | "delete" | "create" | "createIndexes" | "drop"
            | "dropDatabase" | "dropIndexes" | "findAndModify" | "bulkWrite" => Some(Access::Write),
            "find" | "aggregate" | "count" | "distinct" | "listCollections" | "listDatabases"
            | "listIndexes" | "mapReduce" | "getMore" => Some(Access::Read),
            _ => None,
        }
    }

    pub(crate) fn is_write(&self) -> bool {
        self.access() == Some(Access::Write)
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

/// The reason why a command failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandError {
    pub(crate) code: i32,
    pub(crate) message: String,
    /// Error labels that replace the labels that the server would otherwise add.
    pub(crate) labels: Option<Vec<String>>,
    /// True if the topology version is added to the error when the error is a state change error.
    pub(crate) versioned: bool,
    /// Additional fields for the error of a single write.
    pub(crate) details: Box<Document>,
}

/// The outcome of a command: the reply without the field `ok`, or the error.
pub(crate) type CommandResult = Result<Document, CommandError>;

/// Declares error codes, and the names that servers give them.
macro_rules! codes {
    ($($code:ident = $number:literal, $name:literal;)*) => {
        $(pub(crate) const $code: i32 = $number;)*

        fn known_name(code: i32) -> Option<&'static str> {
            match code {
                $($code => Some($name),)*
                _ => None,
            }
        }
    };
}

codes! {
    BAD_VALUE = 2, "BadValue";
    NO_SUCH_KEY = 4, "NoSuchKey";
    HOST_UNREACHABLE = 6, "HostUnreachable";
    HOST_NOT_FOUND = 7, "HostNotFound";
    FAILED_TO_PARSE = 9, "FailedToParse";
    UNAUTHORIZED = 13, "Unauthorized";
    TYPE_MISMATCH = 14, "TypeMismatch";
    PROTOCOL_ERROR = 17, "ProtocolError";
    AUTHENTICATION_FAILED = 18, "AuthenticationFailed";
    ILLEGAL_OPERATION = 20, "IllegalOperation";
    CURSOR_NOT_FOUND = 43, "CursorNotFound";
    MAX_TIME_MS_EXPIRED = 50, "MaxTimeMSExpired";
    COMMAND_NOT_FOUND = 59, "CommandNotFound";
    WRITE_CONCERN_FAILED = 64, "WriteConcernFailed";
    INVALID_OPTIONS = 72, "InvalidOptions";
    NO_REPLICATION_ENABLED = 76, "NoReplicationEnabled";
    NETWORK_TIMEOUT = 89, "NetworkTimeout";
    SHUTDOWN_IN_PROGRESS = 91, "ShutdownInProgress";
    NOT_SECONDARY = 95, "NotSecondary";
    NEW_CONFIG_INCOMPATIBLE = 103, "NewReplicaSetConfigurationIncompatible";
    READ_CONCERN_NOT_AVAILABLE = 134, "ReadConcernMajorityNotAvailableYet";
    MAX_STALENESS_OUT_OF_RANGE = 160, "MaxStalenessOutOfRange";
    METADATA_MISSING_FIELD = 183, "ClientMetadataMissingField";
    METADATA_APP_NAME_TOO_LARGE = 184, "ClientMetadataAppNameTooLarge";
    METADATA_TOO_LARGE = 185, "ClientMetadataDocumentTooLarge";
    METADATA_CANNOT_BE_MUTATED = 186, "ClientMetadataCannotBeMutated";
    PRIMARY_STEPPED_DOWN = 189, "PrimarySteppedDown";
    INVALID_UUID = 207, "InvalidUUID";
    TRANSACTION_TOO_OLD = 225, "TransactionTooOld";
    EXCEEDED_TIME_LIMIT = 262, "ExceededTimeLimit";
    FAIL_POINT_SET_FAILED = 266, "FailPointSetFailed";
    SPLIT_HORIZON_CHANGE = 317, "SplitHorizonChange";
    API_VERSION_ERROR = 322, "APIVersionError";
    API_STRICT_ERROR = 323, "APIStrictError";
    UNSUPPORTED_OP_QUERY = 352, "UnsupportedOpQueryCommand";
    RATE_LIMIT_EXCEEDED = 462, "IngressRequestRateLimitExceeded";
    SOCKET_EXCEPTION = 9001, "SocketException";
    LEGACY_NOT_PRIMARY = 10058, "LegacyNotPrimary";
    NOT_WRITABLE_PRIMARY = 10107, "NotWritablePrimary";
    DUPLICATE_KEY = 11000, "DuplicateKey";
    INTERRUPTED_AT_SHUTDOWN = 11600, "InterruptedAtShutdown";
    INTERRUPTED = 11601, "Interrupted";
    INTERRUPTED_BY_STATE_CHANGE = 11602, "InterruptedDueToReplStateChange";
    NOT_PRIMARY_NO_SECONDARY_OK = 13435, "NotPrimaryNoSecondaryOk";
    NOT_PRIMARY_OR_SECONDARY = 13436, "NotPrimaryOrSecondary";
}

/// A pseudo error code that makes the server close the connection instead of replying.
pub(crate) const HANG_UP: i32 = -1;
pub(crate) const INVALID_PARAMETER: i32 = 10065;
pub(crate) const WRONG_DATABASE_TYPE: i32 = 13111;
pub(crate) const TOPOLOGY_VERSION_WITHOUT_AWAIT: i32 = 31368;
pub(crate) const NEGATIVE_COUNTER: i32 = 31372;
pub(crate) const NEGATIVE_AWAIT: i32 = 31373;
pub(crate) const COUNTER_FROM_THE_FUTURE: i32 = 31382;
pub(crate) const MISSING_FIELD: i32 = 40414;
pub(crate) const UNKNOWN_FIELD: i32 = 40415;
pub(crate) const NO_DATABASE: i32 = 40571;
pub(crate) const NEGATIVE_ARGUMENT: i32 = 51024;
pub(crate) const EXHAUST_WITHOUT_AWAIT: i32 = 51756;
pub(crate) const COUNTER_FROM_THE_FUTURE_STANDALONE: i32 = 51764;
pub(crate) const API_WITHOUT_VERSION: i32 = 4_886_600;

/// Returns the error for a refused command.
pub(crate) fn refuse<T>(code: i32, message: impl Into<String>) -> Result<T, CommandError> {
    Err(CommandError::new(code, message))
}

impl CommandError {
    pub(crate) fn new(code: i32, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
            labels: None,
            versioned: true,
            details: Box::default(),
        }
    }

    /// Returns whether clients treat the code as a state change error (conformance rules, section
    /// I.3).
    pub(crate) fn is_state_change(&self) -> bool {
        matches!(self.code, 10107 | 13435 | 10058 | 11602 | 13436 | 189 | 11600 | 91)
    }

    /// Returns whether a retryable write may be retried after this error.
    pub(crate) fn is_retryable(&self) -> bool {
        self.is_state_change() || matches!(self.code, 6 | 7 | 89 | 134 | 262 | 9001)
    }

    /// Returns whether the error says that the server is overloaded.
    pub(crate) fn is_overload(&self) -> bool {
        let mut labels = self.labels.iter().flatten();
        labels.any(|label| label == "SystemOverloadedError")
    }

    /// Returns the error fields of a single write.
    pub(crate) fn write_error(&self) -> Document {
        let mut error = doc! { "code": self.code, "errmsg": &self.message };
        error.extend((*self.details).clone());
        error
    }

    /// Returns the fields of the error reply.
    pub(crate) fn document(&self, version: ServerVersion, labels: &[&str]) -> Document {
        let labels: Vec<String> = match &self.labels {
            Some(labels) => labels.clone(),
            None => labels.iter().map(|&label| label.to_owned()).collect(),
        };
        let mut document = Document::new();
        if !labels.is_empty() {
            document.insert("errorLabels", labels);
        }
        document.extend(doc! {
            "ok": 0.0,
            "errmsg": &self.message,
            "code": self.code,
            "codeName": code_name(self.code, version),
        });
        document
    }
}

/// Returns the name of an error code. Since 4.4, names contain "primary" instead of "master".
pub(crate) fn code_name(code: i32, version: ServerVersion) -> String {
    let old = version < ServerVersion::V4_4.patch(0);
    let name = match code {
        NOT_WRITABLE_PRIMARY if old => Some("NotMaster"),
        NOT_PRIMARY_NO_SECONDARY_OK if old => Some("NotMasterNoSlaveOk"),
        NOT_PRIMARY_OR_SECONDARY if old => Some("NotMasterOrSecondary"),
        LEGACY_NOT_PRIMARY if !version.has_versioned_api() => None,
        code => known_name(code),
    };
    // mongod names other codes after their numbers.
    name.map_or_else(|| format!("Location{code}"), str::to_owned)
}
