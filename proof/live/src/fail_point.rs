//! Fail points of real servers.

use std::time::Duration;

use bson::{Bson, Document, doc};

use crate::error::Error;
use crate::mongod::Mongod;

/// The settings of the fail point `failCommand`. They determine which commands fail, how they fail,
/// and how often.
///
/// The fail point lasts until it is disabled, unless [`FailCommand::times`] is set. The command
/// name `isMaster` selects legacy hello in both spellings; name it together with `hello` to affect
/// every check.
#[derive(Clone, Debug)]
#[must_use]
pub struct FailCommand {
    mode: Bson,
    data: Document,
}

impl FailCommand {
    /// Creates settings that make the given commands fail. Other methods determine how they fail.
    pub fn new<'a>(commands: impl IntoIterator<Item = &'a str>) -> Self {
        let commands: Vec<_> = commands.into_iter().map(Bson::from).collect();
        Self { mode: "alwaysOn".into(), data: doc! { "failCommands": commands } }
    }

    /// Ends the fail point after the given number of failures.
    pub fn times(mut self, times: i32) -> Self {
        self.mode = doc! { "times": times }.into();
        self
    }

    /// Restricts the fail point to connections whose handshake named this application. This needs a
    /// server of version 4.4 or newer, because 4.2 does not distinguish applications. Before 5.0,
    /// the handshake itself never fails.
    ///
    /// Without this restriction, the selected commands also fail for the clients of this crate.
    pub fn app_name(self, name: &str) -> Self {
        self.with("appName", name)
    }

    /// Makes the server answer with the error code `code`.
    pub fn error_code(self, code: i32) -> Self {
        self.with("errorCode", code)
    }

    /// Makes the server close the connection instead of answering.
    pub fn close_connection(self) -> Self {
        self.with("closeConnection", true)
    }

    /// Delays the reply by `time`, in whole milliseconds (4.4 and newer).
    pub fn block_for(self, time: Duration) -> Self {
        let millis = i64::try_from(time.as_millis()).unwrap_or(i64::MAX);
        self.with("blockConnection", true).with("blockTimeMS", millis)
    }

    fn with(mut self, key: &str, value: impl Into<Bson>) -> Self {
        self.data.insert(key, value);
        self
    }
}

/// The guard of a fail point. The fail point is enabled until the guard is dropped or the server
/// dies.
#[derive(Debug)]
#[must_use = "dropping it disables the fail point"]
pub struct FailPoint<'a> {
    mongod: &'a Mongod,
    name: String,
    enabled: bool,
}

impl FailPoint<'_> {
    /// Disables the fail point and returns how often it was triggered, if the server counts it (4.4
    /// and newer).
    pub fn disable(mut self) -> Result<Option<i64>, Error> {
        let reply = self.turn_off()?;
        Ok(match reply.get("count") {
            Some(Bson::Int32(count)) => Some(i64::from(*count)),
            Some(Bson::Int64(count)) => Some(*count),
            _ => None,
        })
    }

    fn turn_off(&mut self) -> Result<Document, Error> {
        self.enabled = false;
        let off = doc! { "configureFailPoint": &self.name, "mode": "off" };
        self.mongod.run_command("admin", off)
    }
}

impl Drop for FailPoint<'_> {
    fn drop(&mut self) {
        // If the server is stopped, the command would block the thread that drops the guard until
        // the command times out.
        if self.enabled && self.mongod.is_responsive() {
            let _ = self.turn_off();
        }
    }
}

impl Mongod {
    /// Enables `failCommand`.
    pub fn fail_command(&self, fail: FailCommand) -> Result<FailPoint<'_>, Error> {
        self.fail_point("failCommand", fail.mode, fail.data)
    }

    /// Enables the fail point `name`, which can be any fail point of the server.
    pub fn fail_point(
        &self,
        name: &str,
        mode: impl Into<Bson>,
        data: Document,
    ) -> Result<FailPoint<'_>, Error> {
        let on = doc! { "configureFailPoint": name, "mode": mode.into(), "data": data };
        self.run_command("admin", on)?;
        Ok(FailPoint { mongod: self, name: name.to_owned(), enabled: true })
    }
}
