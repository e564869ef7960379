//! The format of the lines.

use bson::Document;
use sdam_core::{
    address::ServerAddress,
    app_error::{AppError, Cause},
    error::{ErrorKind, ServerError, Stage},
    hello::Hello,
    ids::Generation,
    options::Options,
};
use sdam_spec::json::{self, Object};
use serde_json::Value;

/// The content of a line.
#[derive(Debug)]
pub(super) enum Step {
    /// The options of the client.
    Start(Box<Options>),
    /// The result of a server's check.
    Check(ServerAddress, Box<Result<Hello, ServerError>>),
    /// An application error on a connection to a server.
    Report(ServerAddress, Report),
}

/// An application error in the format of the specification's tests.
#[derive(Debug)]
pub(super) struct Report {
    /// The connection's generation; `None` for the current one.
    generation: Option<Generation>,
    max_wire_version: i32,
    stage: Stage,
    cause: Cause<'static>,
}

impl Step {
    /// Parses a line; the error message describes what is invalid.
    pub(super) fn parse(line: &[u8]) -> Result<Self, String> {
        let value: Value =
            serde_json::from_slice(line.trim_ascii_end()).map_err(|error| not_json(&error))?;
        let keys = ["uri", "address", "reply", "error", "applicationError"];
        let line = Object::new(&value, "line", &keys)?;
        let contents = keys.map(|key| line.optional(key).is_some());
        let address = || line.read("address", address);
        match contents {
            [true, false, false, false, false] => line.read("uri", start).map(Self::Start),
            [false, true, true, false, false] => {
                let reply = line.read("reply", document)?;
                Ok(Self::Check(address()?, Box::new(Hello::parse(&reply))))
            }
            [false, true, false, true, false] => {
                let error = line.read("error", failed_check)?;
                Ok(Self::Check(address()?, Box::new(Err(error))))
            }
            [false, _, false, false, true] => {
                let inner = line.required("applicationError")?;
                let (named, report) = Report::parse(inner)?;
                // The tests name the server inside of the error, where a copied line may keep it.
                let address = match (line.read_optional("address", self::address)?, named) {
                    (Some(outer), Some(inner)) if outer != inner => {
                        return Err(format!("it names two servers, {outer} and {inner}"));
                    }
                    (outer, inner) => outer.or(inner).ok_or("line has no address")?,
                };
                Ok(Self::Report(address, report))
            }
            _ => Err(
                "it must have a uri, or an address and one of reply, error and applicationError"
                    .into(),
            ),
        }
    }
}

impl Report {
    /// Parses an application error, and its server if that is named inside.
    fn parse(value: &Value) -> Result<(Option<ServerAddress>, Self), String> {
        let keys = [
            "address",
            "generation",
            "maxWireVersion",
            "when",
            "type",
            "response",
        ];
        let error = Object::new(value, "applicationError", &keys)?;
        let response = error.read_optional("response", document)?;
        let cause = match (error.read("type", json::text)?, response) {
            ("network", None) => Cause::Network(REPLAYED.into()),
            ("timeout", None) => Cause::Timeout(REPLAYED.into()),
            ("command", Some(reply)) => Cause::Reply(reply.into()),
            ("command", None) => return Err("a command error needs its response".into()),
            ("network" | "timeout", Some(_)) => {
                return Err("only a command error has a response".into());
            }
            (other, _) => return Err(unknown("applicationError.type", other, CHECK_ERRORS)),
        };
        let stage = match error.read("when", json::text)? {
            "beforeHandshakeCompletes" => Stage::Hello,
            "afterHandshakeCompletes" => Stage::Operation,
            other => {
                let known = "beforeHandshakeCompletes and afterHandshakeCompletes";
                return Err(unknown("applicationError.when", other, known));
            }
        };
        let generation = error.read_optional("generation", json::natural)?;
        let report = Self {
            generation: generation.map(Generation::from_u64),
            max_wire_version: error.read("maxWireVersion", |value| {
                i32::try_from(json::integer(value)?).map_err(|error| error.to_string())
            })?,
            stage,
            cause,
        };
        Ok((error.read_optional("address", address)?, report))
    }

    /// Returns the report of a pool whose generation is `current`.
    pub(super) fn app_error(&self, current: Generation) -> AppError<'_> {
        let generation = self.generation.unwrap_or(current);
        AppError::new(generation, self.stage, self.cause.clone())
            .with_max_wire_version(self.max_wire_version)
    }
}

/// Reads the options of the client.
fn start(value: &Value) -> Result<Box<Options>, String> {
    let options = Options::parse(json::text(value)?).map_err(|error| error.to_string())?;
    Ok(Box::new(options))
}

fn address(value: &Value) -> Result<ServerAddress, String> {
    ServerAddress::parse(json::text(value)?).map_err(|error| error.to_string())
}

/// Converts extended JSON to the BSON document that a server would send.
fn document(value: &Value) -> Result<Vec<u8>, String> {
    let Value::Object(fields) = value.clone() else {
        return Err(format!("{value} is not a document"));
    };
    let document = Document::try_from(fields).map_err(|error| error.to_string())?;
    document.to_vec().map_err(|error| error.to_string())
}

fn failed_check(value: &Value) -> Result<ServerError, String> {
    let kind = match json::text(value)? {
        "network" => ErrorKind::Network,
        "timeout" => ErrorKind::Timeout,
        "command" => ErrorKind::Command,
        other => return Err(unknown("error", other, CHECK_ERRORS)),
    };
    Ok(ServerError::new(kind, Stage::Hello, REPLAYED))
}

fn unknown(what: &str, value: &str, known: &str) -> String {
    format!("{what} is {value}, which is not one of {known}")
}

/// Formats a JSON error without the line number, which is always the first, but with the column.
fn not_json(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let reason = text.split(" at line ").next().unwrap_or(&text);
    format!("it is not JSON, {reason} at column {}", error.column())
}

const CHECK_ERRORS: &str = "network, timeout and command";
const REPLAYED: &str = "replayed";
