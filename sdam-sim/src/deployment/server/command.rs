//! All commands except hello, and the options that they share. As in real servers, unknown fields
//! in `$readPreference` are ignored.

use bson::{Bson, Document, doc};
use sdam_core::{options::SMALLEST_MAX_STALENESS, read_preference::ReadMode};

use super::arguments::{self, had_the_wrong_type};
use crate::{
    Cluster, ConnectionId, MemberId,
    fail_command::FailCommand,
    member::Kind,
    message::{
        API_STRICT_ERROR, API_VERSION_ERROR, API_WITHOUT_VERSION, BAD_VALUE, COMMAND_NOT_FOUND,
        CommandError, CommandResult, FAIL_POINT_SET_FAILED, FAILED_TO_PARSE, Framing,
        INVALID_OPTIONS, MAX_STALENESS_OUT_OF_RANGE, NO_DATABASE, NO_SUCH_KEY, Request,
        TYPE_MISMATCH, UNSUPPORTED_OP_QUERY, flag, number, refuse, type_name,
    },
    version::ServerVersion,
};

impl Cluster {
    /// Runs `request` on `member` and returns the fields of its reply.
    pub(super) fn run(
        &mut self,
        id: ConnectionId,
        member: MemberId,
        request: &Request,
    ) -> CommandResult {
        let version = self.member(member).version;
        if let Framing::Query { collection, .. } = &request.framing
            && (version >= ServerVersion::V6_0.patch(0) || !collection.ends_with(".$cmd"))
        {
            return refuse(
                UNSUPPORTED_OP_QUERY,
                format!(
                    "Unsupported OP_QUERY command: {}. The client driver may require an upgrade. \
                     For more details see https://dochub.mongodb.org/core/legacy-opcode-removal",
                    request.name
                ),
            );
        }
        arguments::check(self.member(member), request)?;
        let Some(database) = request.database() else {
            return refuse(NO_DATABASE, "OP_MSG requests require a $db argument");
        };
        check_api(version, &request.body)?;
        check_strict(request)?;
        #[cfg(feature = "auth")]
        if let Some(result) = self.authenticate(id, version, request, database) {
            return result;
        }
        check_read_preference(version, &request.body)?;
        if request.name == "bulkWrite" && version < ServerVersion::V8_0.patch(0) {
            return Err(not_found(request));
        }
        if request.access().is_some() {
            let hello_ok = self.connections.get(&id).is_some_and(|own| own.hello_ok);
            self.check_role(member, request, hello_ok)?;
            return self.run_data(member, request, database);
        }
        match &*request.name {
            "ping" | "endSessions" | "refreshSessions" | "killSessions" | "killAllSessions"
            | "logout" | "abortTransaction" | "commitTransaction" => Ok(Document::new()),
            "getnonce" if version < ServerVersion::V7_0.patch(0) => {
                Ok(doc! { "nonce": "2375531c32080ae8" })
            }
            "killCursors" => Ok(self.cursors.kill(&request.body)),
            "buildInfo" | "buildinfo" => Ok(build_info(version)),
            "getCmdLineOpts" => Ok(command_line()),
            "getParameter" => Ok(doc! { "enableTestCommands": true }),
            "setParameter" => self.set_parameter(member, &request.body),
            "configureFailPoint" => {
                let own = self.member_mut(member);
                let point = match request.body.get_str("configureFailPoint") {
                    Ok("failCommand") => &mut own.process.fail_command,
                    Ok("onPrimaryTransactionalWrite") => &mut own.process.fail_write,
                    other => {
                        let message = format!("{} not found", other.unwrap_or_default());
                        return refuse(FAIL_POINT_SET_FAILED, message);
                    }
                };
                *point = FailCommand::parse(&request.body)?;
                Ok(doc! { "count": own.process.fail_point_hits })
            }
            "serverStatus" => Ok(self.server_status(member)),
            "shutdown" => {
                self.shut_down(member);
                Ok(Document::new())
            }
            name if name.starts_with("replSet") => self.run_replica(member, request),
            _ => Err(not_found(request)),
        }
    }

    /// Sets the value of `baseBackoffMS` in overload errors, which is the only simulated parameter.
    /// Real servers have it only in releases after 8.0, but every simulated release has it.
    fn set_parameter(&mut self, member: MemberId, body: &Document) -> CommandResult {
        let name = "externalClientBaseBackoffMS";
        let Some(millis) = number(body, name) else {
            return refuse(INVALID_OPTIONS, "unrecognized parameter");
        };
        let process = &mut self.member_mut(member).process;
        let was = process.base_backoff.unwrap_or_default();
        process.base_backoff = (millis > 0).then_some(millis);
        Ok(doc! { "was": was })
    }

    fn server_status(&self, member: MemberId) -> Document {
        let own = self.member(member);
        let open = self.connections_of(member).len();
        doc! {
            "host": own.address.as_str(),
            "version": own.version.to_string(),
            "process": if matches!(own.kind, Kind::Mongos) { "mongos" } else { "mongod" },
            "uptimeMillis": (self.now.as_nanos() / 1_000_000) as i64,
            "connections": { "current": open as i32 },
        }
    }
}

pub(super) fn not_found(request: &Request) -> CommandError {
    CommandError::new(COMMAND_NOT_FOUND, format!("no such command: '{}'", request.name))
}

/// Checks the declared API version. Only version 1 of the versioned API exists.
pub(super) fn check_api(version: ServerVersion, body: &Document) -> Result<(), CommandError> {
    match body.get_str("apiVersion") {
        Err(_) if version.has_versioned_api() => {
            match body.keys().find(|key| matches!(&***key, "apiStrict" | "apiDeprecationErrors")) {
                Some(key) => refuse(
                    API_WITHOUT_VERSION,
                    format!("Provided {key} without passing apiVersion"),
                ),
                None => Ok(()),
            }
        }
        Ok("1") | Err(_) => Ok(()),
        Ok(_) if !version.has_versioned_api() => Ok(()),
        Ok(other) => refuse(API_VERSION_ERROR, format!("Cannot accept API version {other}")),
    }
}

/// The simulated commands that are not in version 1 of the API. Real servers have `testVersion2`
/// only in builds for tests.
const NOT_IN_API: [&str; 3] = ["distinct", "mapReduce", "testVersion2"];
/// The simulated pipeline stage that is not in version 1 of the API.
const STAGE_NOT_IN_API: &str = "$listLocalSessions";

/// Refuses commands that are not in the versioned API if the client requested strict mode.
fn check_strict(request: &Request) -> Result<(), CommandError> {
    let (name, body) = (&*request.name, &request.body);
    let stages = body.get_array("pipeline").into_iter().flatten();
    let mut stages = stages.filter_map(|stage| stage.as_document());
    let refused = if NOT_IN_API.contains(&name) {
        format!("the command {name}")
    } else if stages.any(|stage| stage.contains_key(STAGE_NOT_IN_API)) {
        format!("the stage {STAGE_NOT_IN_API}")
    } else {
        return Ok(());
    };
    if !flag(body, "apiStrict") {
        return Ok(());
    }
    refuse(
        API_STRICT_ERROR,
        format!("Provided apiStrict:true, but {refused} is not in API Version 1"),
    )
}

fn build_info(version: ServerVersion) -> Document {
    let [major, minor, patch] = version.numbers();
    doc! {
        "version": version.to_string(),
        "versionArray": [major, minor, patch, 0],
        "gitVersion": "simulated",
        "modules": [],
        "bits": 64,
        "debug": false,
        "maxBsonObjectSize": 16_777_216,
    }
}

fn command_line() -> Document {
    doc! {
        "argv": ["mongod", "--setParameter", "enableTestCommands=1"],
        "parsed": { "setParameter": { "enableTestCommands": "1" } },
    }
}

/// Checks the read preference in the command `body`, if it has one.
fn check_read_preference(version: ServerVersion, body: &Document) -> Result<(), CommandError> {
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
        Some(other) => return had_the_wrong_type("mode", "string", other),
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
        Some(other) => had_the_wrong_type("tags", "array", other),
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
