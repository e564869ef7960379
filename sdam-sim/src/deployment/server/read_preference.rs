//! Validates `$readPreference`. As in real servers, unknown fields in it are ignored.

use bson::{Bson, Document};
use sdam_core::{options::SMALLEST_MAX_STALENESS, read_preference::ReadMode};

use crate::{
    reply::{
        BAD_VALUE, CommandError, FAILED_TO_PARSE, MAX_STALENESS_OUT_OF_RANGE, NO_SUCH_KEY,
        TYPE_MISMATCH, refuse,
    },
    request::type_name,
    version::ServerVersion,
};

/// Checks the read preference in the command `body`, if it has one.
pub(super) fn check(version: ServerVersion, body: &Document) -> Result<(), CommandError> {
    let preference = match body.get("$readPreference") {
        None => return Ok(()),
        Some(Bson::Document(preference)) => preference,
        Some(other) => {
            let found = type_name(other);
            return refuse(
                TYPE_MISMATCH,
                format!("$readPreference has incorrect type: expected object but got {found}"),
            );
        }
    };
    let mode = mode(version, preference)?;
    if has_tags(preference)? && mode == ReadMode::Primary {
        return refuse(BAD_VALUE, "Only empty tags are allowed with primary read preference");
    }
    if is_limited(preference)? && mode == ReadMode::Primary {
        return refuse(BAD_VALUE, "maxStalenessSeconds can not be set for the primary mode");
    }
    Ok(())
}

fn mode(version: ServerVersion, preference: &Document) -> Result<ReadMode, CommandError> {
    let name = match preference.get("mode") {
        Some(Bson::String(name)) => name,
        Some(other) => return Err(wrong_type("mode", "string", other)),
        None => {
            return refuse(NO_SUCH_KEY, "Missing expected field \"mode\"");
        }
    };
    if let Some(mode) = ReadMode::parse(name).filter(|mode| mode.as_str() == name) {
        return Ok(mode);
    }
    let mut message = format!(
        "Could not parse $readPreference mode '{name}'. Only the modes 'primary', \
         'primaryPreferred', 'secondary', 'secondaryPreferred', and 'nearest' are supported."
    );
    if version < ServerVersion::V4_4.patch(0) {
        return refuse(FAILED_TO_PARSE, message);
    }
    message += " :: caused by :: Enumeration value '";
    message += name;
    message += "' for field 'mode' is not a valid value.";
    refuse(BAD_VALUE, message)
}

/// Returns whether the tag sets exclude any servers.
fn has_tags(preference: &Document) -> Result<bool, CommandError> {
    match preference.get("tags") {
        None => Ok(false),
        Some(Bson::Array(sets)) => {
            Ok(sets.iter().any(|set| set.as_document().is_none_or(|set| !set.is_empty())))
        }
        Some(other) => Err(wrong_type("tags", "array", other)),
    }
}

/// Returns whether the preference limits the staleness. A limit of zero means no limit.
fn is_limited(preference: &Document) -> Result<bool, CommandError> {
    let seconds = match preference.get("maxStalenessSeconds") {
        None => return Ok(false),
        Some(Bson::Int32(seconds)) => i64::from(*seconds),
        Some(Bson::Int64(seconds)) => *seconds,
        Some(Bson::Double(seconds)) if seconds.fract() == 0.0 => *seconds as i64,
        Some(Bson::Double(seconds)) => {
            return refuse(
                BAD_VALUE,
                format!(
                    "Expected field \"maxStalenessSeconds\" to have a value exactly representable \
                     as a 64-bit integer, but found maxStalenessSeconds: {seconds}"
                ),
            );
        }
        Some(other) => {
            return refuse(
                TYPE_MISMATCH,
                format!(
                    "Expected field \"maxStalenessSeconds\" to have numeric type, but found {}",
                    type_name(other)
                ),
            );
        }
    };
    let refusal = match seconds {
        0 => return Ok(false),
        ..0 => CommandError::new(BAD_VALUE, "maxStalenessSeconds must be a non-negative integer"),
        i64::MAX => CommandError::new(
            BAD_VALUE,
            format!("maxStalenessSeconds value can not exceed {}", i64::MAX),
        ),
        _ if seconds.unsigned_abs() < SMALLEST_MAX_STALENESS.as_secs() => CommandError::new(
            MAX_STALENESS_OUT_OF_RANGE,
            "maxStalenessSeconds value can not be less than 90",
        ),
        _ => return Ok(true),
    };
    Err(refusal)
}

fn wrong_type(field: &str, expected: &str, found: &Bson) -> CommandError {
    let found = type_name(found);
    CommandError::new(
        TYPE_MISMATCH,
        format!("\"{field}\" had the wrong type. Expected {expected}, found {found}"),
    )
}
