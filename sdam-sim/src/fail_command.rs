//! The fail point `failCommand`, which makes commands fail in tests (M-46).

use std::time::Duration;

use bson::{Bson, Document};

use crate::message::{BAD_VALUE, CommandError, Request, flag, number, refuse};

/// The settings of the fail point `failCommand`: which commands fail, how often, and how.
#[derive(Clone, Debug, Default, PartialEq)]
#[non_exhaustive]
pub struct FailCommand {
    /// The mode, which determines how often the fail point is triggered.
    pub mode: Mode,
    /// The names of the commands.
    pub commands: Vec<String>,
    /// Restricts the fail point to connections whose client metadata has this application name.
    pub app_name: Option<String>,
    /// The time for which the command is blocked before it has any other effect.
    pub block: Option<Duration>,
    /// True if the server closes the connection instead of replying.
    pub close_connection: bool,
    /// The error code in the reply. If it is set, the command is not run.
    pub error_code: Option<i32>,
    /// The labels of the error in the reply, which replace the labels that the server would
    /// otherwise add.
    pub error_labels: Option<Vec<String>>,
    /// The code of the `writeConcernError` in the reply. The command is still run.
    pub write_concern_error: Option<i32>,
    /// The kind of message that is sent instead of the reply. The command is still run. This option
    /// does not apply to hello, and real servers do not have it.
    pub bad_reply: Option<BadReply>,
    /// The message of the `writeConcernError`.
    pub(crate) write_concern_message: Option<String>,
}

/// An invalid reply to a command, as a broken proxy might send it. Its name is used in actions
/// and in `data.badReply` of `configureFailPoint`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[derive(strum::Display, strum::EnumString, strum::VariantArray)]
#[strum(serialize_all = "kebab-case")]
pub enum BadReply {
    /// A reply to an earlier request, followed by the correct reply.
    Stray,
    /// A reply whose `responseTo` refers to another request.
    WrongResponseTo,
    /// A reply without `ok`.
    NoOk,
    /// A reply that is not BSON.
    Malformed,
    /// A reply that announces more replies although the request did not allow them.
    MoreToCome,
}

impl BadReply {
    /// Every value, in declaration order.
    pub const ALL: &'static [Self] = <Self as strum::VariantArray>::VARIANTS;
}

/// The number of times that a fail point is triggered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Mode {
    /// The fail point is triggered by every matching command until it is turned off.
    #[default]
    AlwaysOn,
    /// The fail point is triggered this many times.
    Times(u32),
    /// The fail point ignores this many matching commands and is triggered by every later one.
    Skip(u32),
}

impl Mode {
    /// Counts a matching command. Returns whether it triggers the fail point.
    pub(crate) fn strikes(&mut self) -> bool {
        match self {
            Self::AlwaysOn | Self::Skip(0) => true,
            Self::Times(0) => false,
            Self::Times(left) => {
                *left -= 1;
                true
            }
            Self::Skip(left) => {
                *left -= 1;
                false
            }
        }
    }
}

impl FailCommand {
    /// Counts a command if it matches. Returns whether it triggers the fail point.
    pub(crate) fn triggers(&mut self, request: &Request, app_name: Option<&str>) -> bool {
        // A fail point that names one spelling of legacy hello also matches the other spelling.
        let is_named = self.commands.iter().any(|name| {
            *name == request.name
                || request.is_legacy_hello() && name.eq_ignore_ascii_case("ismaster")
        });
        let has_app_name = self.app_name.is_none() || self.app_name.as_deref() == app_name;
        // Only commands that accept a write concern can have a write concern error.
        let takes_concern = request.is_write()
            || matches!(&*request.name, "commitTransaction" | "abortTransaction");
        let is_applicable = self.write_concern_error.is_none() || takes_concern;
        if !is_named || !has_app_name || !is_applicable || request.name == "configureFailPoint" {
            return false;
        }
        self.mode.strikes()
    }

    /// Parses the arguments of `configureFailPoint`. Returns `None` if they turn the fail point
    /// off.
    pub(crate) fn parse(body: &Document) -> Result<Option<Self>, CommandError> {
        let invalid = |message: &str| refuse(BAD_VALUE, message);
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
        let bad_reply = data.get_str("badReply").ok().map(str::parse).transpose();
        let Ok(bad_reply) = bad_reply else {
            return invalid("badReply is unknown");
        };
        if blocks && millis.is_none() {
            return invalid("blockTimeMS must be given with blockConnection");
        }
        let concern = data.get_document("writeConcernError").ok();
        Ok(Some(Self {
            mode,
            commands: strings(data, "failCommands").unwrap_or_default(),
            app_name: data.get_str("appName").ok().map(str::to_owned),
            block: millis.filter(|_| blocks).map(Duration::from_millis),
            close_connection: flag(data, "closeConnection"),
            error_code: code(data, "errorCode").or(code(data, "failBeforeCommitExceptionCode")),
            error_labels: strings(data, "errorLabels"),
            write_concern_error: concern.and_then(|error| code(error, "code")),
            write_concern_message: concern
                .and_then(|error| error.get_str("errmsg").ok())
                .map(str::to_owned),
            bad_reply,
        }))
    }
}

fn strings(data: &Document, key: &str) -> Option<Vec<String>> {
    let array = data.get_array(key).ok()?;
    Some(array.iter().filter_map(Bson::as_str).map(str::to_owned).collect())
}
