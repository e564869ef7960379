//! The format of the lines to replay.

use bson::Document;
use sdam_core::{
    address::ServerAddress,
    error::{Error, ErrorKind, Stage},
    hello::Hello,
    options::Options,
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Map, Value};

use super::application_error::ApplicationError;

/// The content of a line.
#[derive(Debug)]
pub(super) enum Step {
    /// The options of the client.
    Start(Box<Options>),
    /// The result of checking the server at this address.
    Check(ServerAddress, Box<Result<Hello, Error>>),
    /// An application error, in the format of the specification's tests.
    Report(ApplicationError),
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object", rename_all = "camelCase")]
struct Line {
    uri: Option<String>,
    address: Option<ServerAddress>,
    reply: Option<Document>,
    error: Option<CheckError>,
    application_error: Option<Map<String, Value>>,
}

#[derive(Deserialize)]
#[serde(rename_all = "lowercase")]
enum CheckError {
    Command,
    Network,
    Timeout,
}

impl Step {
    /// Parses a line; the error message describes the problem.
    pub(super) fn parse(line: &[u8]) -> Result<Self, String> {
        let value: Value =
            serde_json::from_slice(line.trim_ascii_end()).map_err(|error| not_json(&error))?;
        let line: Line = read(&value)?;
        match (line.uri, line.address, line.reply, line.error, line.application_error) {
            (Some(uri), None, None, None, None) => {
                if uri.starts_with("mongodb+srv://") {
                    return Err(
                        "uri: nothing is looked up here: list the hosts of the SRV record \
                                in a mongodb:// string"
                            .into(),
                    );
                }
                let options = Options::parse(&uri).map_err(|error| format!("uri: {error}"))?;
                Ok(Self::Start(Box::new(options)))
            }
            (None, Some(address), Some(reply), None, None) => {
                let reply = reply.to_vec().map_err(|error| error.to_string())?;
                Ok(Self::Check(address, Box::new(Hello::parse(&reply))))
            }
            (None, Some(address), None, Some(error), None) => {
                let kind = match error {
                    CheckError::Command => ErrorKind::Command,
                    CheckError::Network => ErrorKind::Network,
                    CheckError::Timeout => ErrorKind::Timeout,
                };
                let error = Error::new(kind, Stage::Hello, "replayed");
                Ok(Self::Check(address, Box::new(Err(error))))
            }
            (None, address, None, None, Some(error)) => application_error(address, error),
            _ => Err(
                "it must have a uri, or an address and one of reply, error and applicationError"
                    .into(),
            ),
        }
    }
}

/// Parses an application error. The specification's tests name the server inside the error; this
/// form is accepted, too, so that lines can be copied from the tests.
fn application_error(
    address: Option<ServerAddress>,
    mut error: Map<String, Value>,
) -> Result<Step, String> {
    if let Some(address) = &address {
        error.entry("address").or_insert(address.to_string().into());
    }
    let error: ApplicationError =
        read(&error.into()).map_err(|error| format!("applicationError: {error}"))?;
    match address {
        Some(outer) if outer != error.address => {
            Err(format!("it names two servers, {outer} and {}", error.address))
        }
        _ => Ok(Step::Report(error)),
    }
}

/// Formats a JSON error with the column, but without the line number, which is always 1.
fn not_json(error: &serde_json::Error) -> String {
    let text = error.to_string();
    let reason = text.split(" at line ").next().unwrap_or(&text);
    let column = error.column();
    format!(
        "it is not JSON, {reason} at column {column}; it needs an object, see `sdam help replay`"
    )
}

/// Converts `value`; the error contains the path of the invalid field.
fn read<T: DeserializeOwned>(value: &Value) -> Result<T, String> {
    serde_path_to_error::deserialize(value).map_err(|error| error.to_string())
}
