//! Command errors as reported by servers.

use bson::{Document, doc};

use crate::version::ServerVersion;

/// The reason why a command failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct CommandError {
    pub(crate) code: i32,
    pub(crate) message: String,
    /// Labels that replace the server's.
    pub(crate) labels: Option<Vec<String>>,
    /// True if a state change error includes the topology version.
    pub(crate) versioned: bool,
    /// Additional fields of the error of a single write.
    pub(crate) details: Box<Document>,
}

/// The outcome of a command: its reply without `ok`, or its error.
pub(crate) type CommandResult = Result<Document, CommandError>;

/// The pseudo error code for closing the connection instead of replying.
pub(crate) const HANG_UP: i32 = -1;
pub(crate) const BAD_VALUE: i32 = 2;
pub(crate) const NO_SUCH_KEY: i32 = 4;
pub(crate) const HOST_UNREACHABLE: i32 = 6;
pub(crate) const FAILED_TO_PARSE: i32 = 9;
pub(crate) const UNAUTHORIZED: i32 = 13;
pub(crate) const TYPE_MISMATCH: i32 = 14;
#[cfg(feature = "auth")]
pub(crate) const PROTOCOL_ERROR: i32 = 17;
#[cfg(feature = "auth")]
pub(crate) const AUTHENTICATION_FAILED: i32 = 18;
pub(crate) const ILLEGAL_OPERATION: i32 = 20;
pub(crate) const CURSOR_NOT_FOUND: i32 = 43;
pub(crate) const MAX_TIME_MS_EXPIRED: i32 = 50;
pub(crate) const COMMAND_NOT_FOUND: i32 = 59;
pub(crate) const INVALID_OPTIONS: i32 = 72;
pub(crate) const NO_REPLICATION_ENABLED: i32 = 76;
pub(crate) const NOT_SECONDARY: i32 = 95;
pub(crate) const SHUTDOWN_IN_PROGRESS: i32 = 91;
pub(crate) const NEW_CONFIG_INCOMPATIBLE: i32 = 103;
pub(crate) const MAX_STALENESS_OUT_OF_RANGE: i32 = 160;
pub(crate) const METADATA_MISSING_FIELD: i32 = 183;
pub(crate) const METADATA_APP_NAME_TOO_LARGE: i32 = 184;
pub(crate) const METADATA_TOO_LARGE: i32 = 185;
pub(crate) const METADATA_CANNOT_BE_MUTATED: i32 = 186;
pub(crate) const TRANSACTION_TOO_OLD: i32 = 225;
pub(crate) const EXCEEDED_TIME_LIMIT: i32 = 262;
pub(crate) const FAIL_POINT_SET_FAILED: i32 = 266;
pub(crate) const SPLIT_HORIZON_CHANGE: i32 = 317;
pub(crate) const API_VERSION_ERROR: i32 = 322;
pub(crate) const API_STRICT_ERROR: i32 = 323;
pub(crate) const API_WITHOUT_VERSION: i32 = 4_886_600;
pub(crate) const UNSUPPORTED_OP_QUERY: i32 = 352;
pub(crate) const INVALID_PARAMETER: i32 = 10065;
pub(crate) const NOT_WRITABLE_PRIMARY: i32 = 10107;
pub(crate) const DUPLICATE_KEY: i32 = 11000;
pub(crate) const INTERRUPTED_AT_SHUTDOWN: i32 = 11600;
pub(crate) const INTERRUPTED_BY_STATE_CHANGE: i32 = 11602;
pub(crate) const NOT_PRIMARY_NO_SECONDARY_OK: i32 = 13435;
pub(crate) const NOT_PRIMARY_OR_SECONDARY: i32 = 13436;
pub(crate) const TOPOLOGY_VERSION_WITHOUT_AWAIT: i32 = 31368;
pub(crate) const NEGATIVE_COUNTER: i32 = 31372;
pub(crate) const NEGATIVE_AWAIT: i32 = 31373;
pub(crate) const COUNTER_FROM_THE_FUTURE: i32 = 31382;
pub(crate) const MISSING_FIELD: i32 = 40414;
pub(crate) const NO_DATABASE: i32 = 40571;
pub(crate) const NEGATIVE_ARGUMENT: i32 = 51024;
pub(crate) const EXHAUST_WITHOUT_AWAIT: i32 = 51756;
pub(crate) const COUNTER_FROM_THE_FUTURE_STANDALONE: i32 = 51764;

/// Refuses a command.
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

    /// Returns whether clients treat the code as a state change error (section I.3).
    pub(crate) fn is_state_change(&self) -> bool {
        matches!(self.code, 10107 | 13435 | 10058 | 11602 | 13436 | 189 | 11600 | 91)
    }

    /// Returns whether a retryable write may be retried after this error.
    pub(crate) fn is_retryable(&self) -> bool {
        self.is_state_change() || matches!(self.code, 6 | 7 | 89 | 134 | 262 | 9001)
    }

    /// Returns whether the server refuses the command because of overload.
    pub(crate) fn is_overload(&self) -> bool {
        let mut labels = self.labels.iter().flatten();
        labels.any(|label| label == "SystemOverloadedError")
    }

    /// Returns the fields of the error of a single write.
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

/// Returns the name of an error code. Since 5.0 the names avoid the word master.
pub(crate) fn code_name(code: i32, version: ServerVersion) -> String {
    let primary = version.has_primary_code_names();
    let name = match code {
        BAD_VALUE => "BadValue",
        NO_SUCH_KEY => "NoSuchKey",
        HOST_UNREACHABLE => "HostUnreachable",
        7 => "HostNotFound",
        FAILED_TO_PARSE => "FailedToParse",
        UNAUTHORIZED => "Unauthorized",
        TYPE_MISMATCH => "TypeMismatch",
        17 => "ProtocolError",
        18 => "AuthenticationFailed",
        ILLEGAL_OPERATION => "IllegalOperation",
        CURSOR_NOT_FOUND => "CursorNotFound",
        MAX_TIME_MS_EXPIRED => "MaxTimeMSExpired",
        COMMAND_NOT_FOUND => "CommandNotFound",
        64 => "WriteConcernFailed",
        89 => "NetworkTimeout",
        INVALID_OPTIONS => "InvalidOptions",
        NO_REPLICATION_ENABLED => "NoReplicationEnabled",
        SHUTDOWN_IN_PROGRESS => "ShutdownInProgress",
        NOT_SECONDARY => "NotSecondary",
        NEW_CONFIG_INCOMPATIBLE => "NewReplicaSetConfigurationIncompatible",
        134 => "ReadConcernMajorityNotAvailableYet",
        MAX_STALENESS_OUT_OF_RANGE => "MaxStalenessOutOfRange",
        METADATA_MISSING_FIELD => "ClientMetadataMissingField",
        METADATA_APP_NAME_TOO_LARGE => "ClientMetadataAppNameTooLarge",
        METADATA_TOO_LARGE => "ClientMetadataDocumentTooLarge",
        METADATA_CANNOT_BE_MUTATED => "ClientMetadataCannotBeMutated",
        189 => "PrimarySteppedDown",
        TRANSACTION_TOO_OLD => "TransactionTooOld",
        EXCEEDED_TIME_LIMIT => "ExceededTimeLimit",
        FAIL_POINT_SET_FAILED => "FailPointSetFailed",
        SPLIT_HORIZON_CHANGE => "SplitHorizonChange",
        API_VERSION_ERROR => "APIVersionError",
        API_STRICT_ERROR => "APIStrictError",
        UNSUPPORTED_OP_QUERY => "UnsupportedOpQueryCommand",
        462 => "IngressRequestRateLimitExceeded",
        9001 => "SocketException",
        10058 if version.has_versioned_api() => "LegacyNotPrimary",
        NOT_WRITABLE_PRIMARY if primary => "NotWritablePrimary",
        NOT_WRITABLE_PRIMARY => "NotMaster",
        DUPLICATE_KEY => "DuplicateKey",
        INTERRUPTED_AT_SHUTDOWN => "InterruptedAtShutdown",
        11601 => "Interrupted",
        INTERRUPTED_BY_STATE_CHANGE => "InterruptedDueToReplStateChange",
        NOT_PRIMARY_NO_SECONDARY_OK if primary => "NotPrimaryNoSecondaryOk",
        NOT_PRIMARY_NO_SECONDARY_OK => "NotMasterNoSlaveOk",
        NOT_PRIMARY_OR_SECONDARY if primary => "NotPrimaryOrSecondary",
        NOT_PRIMARY_OR_SECONDARY => "NotMasterOrSecondary",
        // mongod names other assertions by their numbers.
        code => return format!("Location{code}"),
    };
    name.to_owned()
}
