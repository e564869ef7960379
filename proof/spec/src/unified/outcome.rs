//! The errors that operations return, and expected errors.

use std::fmt;

use serde::Deserialize;
use serde_json::Value;

use super::matching::Expected;

/// An error from an operation.
#[derive(Debug, Default)]
pub(super) struct Failure {
    pub(super) message: String,
    /// True if the error was contained in a server's reply.
    pub(super) is_server_error: bool,
    pub(super) code: Option<i32>,
    pub(super) code_name: Option<String>,
    pub(super) labels: Vec<String>,
    pub(super) is_timeout: bool,
    /// The code and the message of the write concern error.
    pub(super) write_concern: Option<(i32, String)>,
    /// The result of the commands that ran before the failed one.
    pub(super) result: Value,
}

/// An expected error. The actual error must match all fields.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct ExpectedError {
    is_error: Option<bool>,
    /// True if the error must come from the client instead of a server's reply.
    is_client_error: Option<bool>,
    error_contains: Option<String>,
    error_code: Option<i32>,
    error_code_name: Option<String>,
    #[serde(default)]
    error_labels_contain: Vec<String>,
    #[serde(default)]
    error_labels_omit: Vec<String>,
    is_timeout_error: Option<bool>,
    #[serde(default)]
    write_concern_errors: Vec<WriteConcernError>,
    expect_result: Option<Expected>,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteConcernError {
    code: i32,
    message: String,
}

impl ExpectedError {
    /// Compares an error with the expected one.
    pub(super) fn compare(&self, failure: &Failure) -> Result<(), String> {
        let message = failure.message.to_lowercase();
        let has_text = |text: &String| message.contains(&text.to_lowercase());
        let has_label = |label: &String| failure.labels.contains(label);
        let checks = [
            ("isError", self.is_error != Some(false)),
            ("isClientError", self.is_client_error.is_none_or(|it| it != failure.is_server_error)),
            ("errorContains", self.error_contains.as_ref().is_none_or(has_text)),
            ("errorCode", self.error_code.is_none() || self.error_code == failure.code),
            (
                "errorCodeName",
                self.error_code_name.is_none() || self.error_code_name == failure.code_name,
            ),
            ("errorLabelsContain", self.error_labels_contain.iter().all(has_label)),
            ("errorLabelsOmit", !self.error_labels_omit.iter().any(has_label)),
            ("isTimeoutError", self.is_timeout_error.is_none_or(|it| it == failure.is_timeout)),
            (
                "writeConcernErrors",
                self.write_concern_errors.iter().all(|expected| {
                    let (code, message) = (expected.code, expected.message.clone());
                    failure.write_concern == Some((code, message))
                }),
            ),
        ];
        match checks.iter().find(|(_, holds)| !holds) {
            None => match &self.expect_result {
                Some(expected) => expected.compare(&failure.result),
                None => Ok(()),
            },
            Some((field, _)) => Err(format!("{field} does not hold of the error")),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        if !self.labels.is_empty() {
            write!(f, " {:?}", self.labels)?;
        }
        Ok(())
    }
}
