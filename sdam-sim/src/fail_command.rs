//! The fail point `failCommand`, with which tests make commands fail (M-46).

use std::time::Duration;

use bson::{Bson, Document};

use crate::{
    reply::{BAD_VALUE, CommandError, FAIL_POINT_SET_FAILED},
    request::{Request, flag, number},
    server::takes_write_concern,
};

/// The fail point `failCommand`: which commands fail, how often, and in what way.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct FailCommand {
    /// How often it strikes.
    pub mode: Mode,
    /// The names of the commands.
    pub commands: Vec<String>,
    /// Only connections whose client metadata name this application are struck.
    pub app_name: Option<String>,
    /// The command waits that long first.
    pub block: Option<Duration>,
    /// The connection is closed instead of answered.
    pub close_connection: bool,
    /// The command is answered with this error and not run.
    pub error_code: Option<i32>,
    /// The labels of that error, instead of those the server would give it.
    pub error_labels: Option<Vec<String>>,
    /// The command runs, and its reply has this code in its `writeConcernError`.
    pub write_concern_error: Option<i32>,
}

/// How often a fail point strikes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mode {
    /// Until it is turned off.
    #[default]
    AlwaysOn,
    /// That many times.
    Times(u32),
    /// Always, after that many commands went through.
    Skip(u32),
}

impl FailCommand {
    /// Whether the fail point strikes a command, which is then counted.
    pub(crate) fn strikes(&mut self, request: &Request, app_name: Option<&str>) -> bool {
        // Legacy hello has two spellings, and a fail point for the one catches the other.
        let named = self.commands.iter().any(|name| {
            *name == request.name
                || request.is_legacy_hello() && name.eq_ignore_ascii_case("ismaster")
        });
        let meant = self.app_name.is_none() || self.app_name.as_deref() == app_name;
        // Only commands that take a write concern can have its error.
        let able = self.write_concern_error.is_none() || takes_write_concern(&request.name);
        if !named || !meant || !able || request.name == "configureFailPoint" {
            return false;
        }
        match &mut self.mode {
            Mode::AlwaysOn | Mode::Skip(0) => true,
            Mode::Times(0) => false,
            Mode::Times(left) => {
                *left -= 1;
                true
            }
            Mode::Skip(left) => {
                *left -= 1;
                false
            }
        }
    }

    /// What the arguments of `configureFailPoint` ask for; `None` turns the fail point off.
    pub(crate) fn parse(body: &Document) -> Result<Option<Self>, CommandError> {
        let invalid = |message: &str| Err(CommandError::new(BAD_VALUE, message));
        let name = body.get_str("configureFailPoint").unwrap_or_default();
        if name != "failCommand" {
            return Err(CommandError::new(
                FAIL_POINT_SET_FAILED,
                format!("{name} not found"),
            ));
        }
        let mode = match body.get("mode") {
            Some(Bson::String(mode)) if mode == "off" => return Ok(None),
            Some(Bson::String(mode)) if mode == "alwaysOn" => Mode::AlwaysOn,
            Some(Bson::Document(mode)) => {
                let count = |key| number(mode, key).and_then(|count| u32::try_from(count).ok());
                match (count("times"), count("skip")) {
                    (Some(times), None) => Mode::Times(times),
                    (None, Some(skip)) => Mode::Skip(skip),
                    _ => return invalid("mode must be off, alwaysOn, {times: n} or {skip: n}"),
                }
            }
            _ => return invalid("mode must be off, alwaysOn, {times: n} or {skip: n}"),
        };
        let empty = Document::new();
        let data = body.get_document("data").unwrap_or(&empty);
        let code = |document: &Document, key| {
            number(document, key).and_then(|code| i32::try_from(code).ok())
        };
        let blocks = flag(data, "blockConnection");
        let millis = number(data, "blockTimeMS").and_then(|millis| u64::try_from(millis).ok());
        if blocks && millis.is_none() {
            return invalid("blockTimeMS must be given with blockConnection");
        }
        Ok(Some(Self {
            mode,
            commands: strings(data, "failCommands").unwrap_or_default(),
            app_name: data.get_str("appName").ok().map(str::to_owned),
            block: millis.filter(|_| blocks).map(Duration::from_millis),
            close_connection: flag(data, "closeConnection"),
            error_code: code(data, "errorCode"),
            error_labels: strings(data, "errorLabels"),
            write_concern_error: data
                .get_document("writeConcernError")
                .ok()
                .and_then(|error| code(error, "code")),
        }))
    }
}

fn strings(data: &Document, key: &str) -> Option<Vec<String>> {
    let array = data.get_array(key).ok()?;
    Some(
        array
            .iter()
            .filter_map(Bson::as_str)
            .map(str::to_owned)
            .collect(),
    )
}
