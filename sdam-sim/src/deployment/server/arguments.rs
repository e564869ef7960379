//! Checks of arguments that do not depend on what the command does. They validate the arguments
//! that all commands have in common, and refuse arguments that a command does not have. The error
//! codes are those of `mongod` 6.0. Older releases differ in some codes, and in the messages.

use bson::{Bson, Document, spec::BinarySubtype};

use crate::{
    member::{Kind, Member},
    message::{
        BAD_VALUE, CommandError, FAILED_TO_PARSE, INVALID_OPTIONS, INVALID_PARAMETER, INVALID_UUID,
        MISSING_FIELD, Request, TYPE_MISMATCH, UNKNOWN_FIELD, WRONG_DATABASE_TYPE, refuse,
        type_name,
    },
    version::ServerVersion,
};

/// The arguments that every command may have. Names that begin with `$` are not listed, because
/// servers ignore unknown arguments with such names.
const GENERIC: [&str; 12] = [
    "apiDeprecationErrors",
    "apiStrict",
    "apiVersion",
    "autocommit",
    "comment",
    "lsid",
    "maxTimeMS",
    "rawData",
    "readConcern",
    "startTransaction",
    "txnNumber",
    "writeConcern",
];

/// The commands for which every release refuses unknown arguments, with the arguments that they may
/// have in addition to the generic ones.
const OWN: [(&str, &[&str]); 4] = [
    ("insert", &["documents", "ordered", "bypassDocumentValidation", "bypassEmptyTsReplacement"]),
    (
        "update",
        &["updates", "ordered", "bypassDocumentValidation", "bypassEmptyTsReplacement", "let"],
    ),
    ("delete", &["deletes", "ordered", "let"]),
    (
        "find",
        &[
            "filter",
            "sort",
            "projection",
            "hint",
            "skip",
            "limit",
            "batchSize",
            "singleBatch",
            "max",
            "min",
            "returnKey",
            "showRecordId",
            "tailable",
            "oplogReplay",
            "noCursorTimeout",
            "awaitData",
            "allowPartialResults",
            "collation",
            "allowDiskUse",
            "let",
            "ntoreturn",
            "options",
        ],
    ),
];

/// Checks the arguments of `request` to `server`.
pub(super) fn check(server: &Member, request: &Request) -> Result<(), CommandError> {
    let version = server.version;
    let ignores_time = version.has_versioned_api() && matches!(server.kind, Kind::Standalone);
    let own = OWN.iter().find(|(name, _)| *name == request.name);
    for (key, value) in request.body.iter().filter(|(_, value)| **value != Bson::Null) {
        if key != "$clusterTime" || !ignores_time {
            check_generic(version, key, value)?;
        }
        let Some((command, fields)) = own else { continue };
        let is_generic = key.starts_with('$') || GENERIC.contains(&&**key);
        if key == command || is_generic || fields.contains(&&**key) {
            continue;
        }
        let command = match version.has_versioned_api() {
            true if *command == "find" => "FindCommandRequest",
            false if *command == "find" => {
                let message = format!("Failed to parse: Unrecognized field '{key}'.");
                return refuse(FAILED_TO_PARSE, message);
            }
            _ => command,
        };
        return refuse(UNKNOWN_FIELD, format!("BSON field '{command}.{key}' is an unknown field."));
    }
    Ok(())
}

fn check_generic(version: ServerVersion, key: &str, value: &Bson) -> Result<(), CommandError> {
    let wrong = |owner, expected| Err(wrong_type(&format!("{owner}.{key}"), value, expected));
    let session = |expected| wrong("OperationSessionInfo", expected);
    let api = |expected| wrong("APIParametersFromClient", expected);
    match (key, value) {
        ("lsid", Bson::Document(id)) => check_session(id),
        ("lsid", _) => session("object"),
        ("txnNumber", Bson::Int64(_))
        | (
            "autocommit" | "startTransaction" | "apiStrict" | "apiDeprecationErrors",
            Bson::Boolean(_),
        )
        | ("apiVersion" | "$db", Bson::String(_)) => Ok(()),
        ("txnNumber", _) => session("long"),
        ("autocommit" | "startTransaction", _) => session("bool"),
        ("apiVersion", _) if version.has_versioned_api() => api("string"),
        ("apiStrict" | "apiDeprecationErrors", _) if version.has_versioned_api() => api("bool"),
        ("$db", _) => {
            let actual = type_name(value);
            let message = format!("wrong type for field ($db) {actual} != string");
            refuse(WRONG_DATABASE_TYPE, message)
        }
        ("$clusterTime", Bson::Document(time)) => match time.get("clusterTime") {
            None | Some(Bson::Timestamp(_)) => Ok(()),
            Some(time) => had_the_wrong_type("clusterTime", "timestamp", time),
        },
        ("$clusterTime", _) => {
            refuse(INVALID_PARAMETER, "invalid parameter: expected an object ($clusterTime)")
        }
        ("maxTimeMS", _) => check_max_time(value),
        ("readConcern", Bson::Document(concern)) => check_read_concern(concern),
        ("readConcern", _) => refuse(FAILED_TO_PARSE, "readConcern field should be an object"),
        ("writeConcern", Bson::Document(concern)) => check_write_concern(concern),
        _ => Ok(()),
    }
}

fn check_session(id: &Document) -> Result<(), CommandError> {
    for (key, value) in id {
        let field = format!("OperationSessionInfo.lsid.{key}");
        match (&**key, value) {
            ("id", Bson::Binary(id)) if id.subtype != BinarySubtype::Uuid => {
                let message = format!(
                    "BSON field '{field}' is the wrong binData type 'general', expected type 'UUID'"
                );
                return refuse(TYPE_MISMATCH, message);
            }
            ("id", Bson::Binary(id)) if id.bytes.len() != 16 => {
                let message = "uuid must be a 16-byte binary field with UUID (4) subtype";
                return refuse(INVALID_UUID, message);
            }
            ("id", Bson::Binary(_)) | ("uid" | "txnNumber" | "txnUUID" | "stmtId", _) => {}
            ("id", _) => return Err(wrong_type(&field, value, "binData")),
            _ => {
                return refuse(UNKNOWN_FIELD, format!("BSON field '{field}' is an unknown field."));
            }
        }
    }
    if id.contains_key("id") {
        return Ok(());
    }
    let message = "BSON field 'OperationSessionInfo.lsid.id' is missing but a required field";
    refuse(MISSING_FIELD, message)
}

fn check_max_time(value: &Bson) -> Result<(), CommandError> {
    match value {
        Bson::Int32(0..) | Bson::Int64(0..) => Ok(()),
        Bson::Double(own) if own.fract() != 0.0 => {
            refuse(BAD_VALUE, "maxTimeMS has non-integral value")
        }
        Bson::Double(own) if *own >= 0.0 => Ok(()),
        Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_) => {
            refuse(BAD_VALUE, format!("{value} value for maxTimeMS is out of range"))
        }
        _ => refuse(BAD_VALUE, "maxTimeMS must be a number"),
    }
}

fn check_read_concern(concern: &Document) -> Result<(), CommandError> {
    for (key, value) in concern {
        match (&**key, value) {
            ("level", Bson::String(_))
            | ("afterClusterTime", Bson::Timestamp(_))
            | ("atClusterTime" | "afterOpTime" | "provenance", _) => {}
            ("level", _) => return had_the_wrong_type(key, "string", value),
            ("afterClusterTime", _) => return had_the_wrong_type(key, "timestamp", value),
            _ => {
                let message = format!("Unrecognized option in readConcern: {key}");
                return refuse(INVALID_OPTIONS, message);
            }
        }
    }
    Ok(())
}

fn check_write_concern(concern: &Document) -> Result<(), CommandError> {
    for (key, value) in concern {
        let is_number = matches!(value, Bson::Int32(_) | Bson::Int64(_) | Bson::Double(_));
        let expected = match (&**key, value) {
            ("w", Bson::String(_) | Bson::Document(_)) | ("j" | "fsync", Bson::Boolean(_)) => {
                continue;
            }
            ("w" | "j" | "fsync" | "wtimeout", _) if is_number => continue,
            ("provenance", _) => continue,
            ("w", _) => "[string, int, decimal, double, long']",
            ("j" | "fsync", _) => "[bool, long, int, decimal, double']",
            ("wtimeout", _) => "[long, int, decimal, double']",
            _ => {
                let message = format!("BSON field 'writeConcern.{key}' is an unknown field.");
                return refuse(UNKNOWN_FIELD, message);
            }
        };
        let actual = type_name(value);
        let message = format!(
            "BSON field 'writeConcern.{key}' is the wrong type '{actual}', expected types '{expected}"
        );
        return refuse(TYPE_MISMATCH, message);
    }
    Ok(())
}

/// Returns the error for a field whose BSON type is not the expected one.
pub(super) fn wrong_type(field: &str, value: &Bson, expected: &str) -> CommandError {
    let actual = type_name(value);
    CommandError::new(
        TYPE_MISMATCH,
        format!("BSON field '{field}' is the wrong type '{actual}', expected type '{expected}'"),
    )
}

pub(super) fn had_the_wrong_type<T>(
    key: &str,
    expected: &str,
    value: &Bson,
) -> Result<T, CommandError> {
    let actual = type_name(value);
    let message = format!("\"{key}\" had the wrong type. Expected {expected}, found {actual}");
    refuse(TYPE_MISMATCH, message)
}
