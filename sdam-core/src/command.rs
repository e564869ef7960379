//! The fields of a command that determine what a client adds to it.

use crate::document::Fields;

/// The commands that accept a read concern (Read and Write Concern: "On the Wire").
const READ_CONCERN: [&str; 4] = ["aggregate", "count", "distinct", "find"];

/// The fields of a command document that a client must not add a second time, or whose presence
/// prevents the client from adding other fields.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[expect(clippy::struct_excessive_bools, reason = "each is a field of the document")]
pub struct CommandFields<'a> {
    /// The name of the command, its first key.
    pub name: &'a str,
    /// True if the command has a `readConcern`.
    pub has_read_concern: bool,
    /// True if the command has a `writeConcern`.
    pub has_write_concern: bool,
    /// True if the command has an `autocommit` field. It then belongs to a transaction, whose read
    /// and write concerns apply to it.
    pub is_in_transaction: bool,
    /// `maxTimeMS`, in milliseconds.
    pub max_time: Option<i64>,
    is_tailable: bool,
    awaits_data: bool,
}

impl<'a> CommandFields<'a> {
    /// Reads the fields of `document`, up to the first malformed one.
    pub fn of(document: &'a [u8]) -> Self {
        let mut own = Self::default();
        // Sending a malformed command fails, so its remaining fields do not matter.
        for field in Fields::readable(document) {
            match field.key() {
                name if own.name.is_empty() => own.name = name,
                "readConcern" => own.has_read_concern = true,
                "writeConcern" => own.has_write_concern = true,
                "autocommit" => own.is_in_transaction = true,
                "maxTimeMS" => own.max_time = field.integer(),
                "tailable" => own.is_tailable = field.truth().unwrap_or_default(),
                "awaitData" => own.awaits_data = field.truth().unwrap_or_default(),
                _ => {}
            }
        }
        own
    }

    /// Returns whether a client adds its own read concern to the command.
    pub fn takes_read_concern(&self) -> bool {
        READ_CONCERN.contains(&self.name) && !self.has_read_concern && !self.is_in_transaction
    }

    /// Returns whether a client adds its own write concern to the command, assuming that the
    /// command is a write.
    pub fn takes_write_concern(&self) -> bool {
        !self.has_write_concern && !self.is_in_transaction
    }

    /// Returns the `maxTimeMS` to send if `left` milliseconds remain for the server to run the
    /// command (Client Side Operations Timeout: "Command Execution").
    ///
    /// The result replaces the command's own `maxTimeMS`. In a `getMore`, the command's own value
    /// is the time to wait for more documents, so it is kept unless it exceeds `left`. The result
    /// is `None` for a find with a tailable cursor that does not wait.
    pub fn max_time_within(&self, left: i64) -> Option<i64> {
        match self.name {
            "getMore" => self.max_time.map(|own| own.min(left)),
            _ if self.is_tailable && !self.awaits_data => None,
            _ => Some(left),
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::{Document, doc};

    use super::*;

    fn check(command: &Document, check: impl FnOnce(CommandFields<'_>)) {
        check(CommandFields::of(&command.to_vec().unwrap()));
    }

    #[test]
    fn reads_take_a_read_concern_unless_they_have_one_or_a_transaction_has() {
        // The client's read concern is added only to reads that support one (B-42).
        let takes = |command: &Document, expected| {
            check(command, |fields| {
                assert_eq!(fields.takes_read_concern(), expected, "{command}");
            });
        };
        for name in READ_CONCERN {
            takes(&doc! { name: "c" }, true);
            takes(&doc! { name: "c", "readConcern": {} }, false);
            takes(&doc! { name: "c", "autocommit": false }, false);
        }
        takes(&doc! { "listCollections": 1, "find": "c" }, false);
        takes(&doc! {}, false);
    }

    #[test]
    fn writes_take_a_write_concern_unless_they_have_one_or_a_transaction_has() {
        // The client's write concern is not added in a transaction, which has its own (B-42).
        let takes = |command: &Document, expected| {
            check(command, |fields| {
                assert_eq!(fields.takes_write_concern(), expected, "{command}");
            });
        };
        takes(&doc! { "insert": "c" }, true);
        takes(&doc! { "insert": "c", "writeConcern": {} }, false);
        takes(&doc! { "insert": "c", "autocommit": false }, false);
    }

    #[test]
    fn the_time_that_is_left_replaces_that_of_the_command_but_for_cursors() {
        // A `getMore` keeps its own shorter limit, and a tailable find gets no limit (I-70).
        let max_time = |command: &Document, expected| {
            check(command, |fields| {
                assert_eq!(fields.max_time_within(70), expected, "{command}");
            });
        };
        max_time(&doc! { "insert": "c" }, Some(70));
        max_time(&doc! { "find": "c", "maxTimeMS": 9 }, Some(70));
        max_time(&doc! { "getMore": 1_i64 }, None);
        max_time(&doc! { "getMore": 1_i64, "maxTimeMS": 9 }, Some(9));
        max_time(&doc! { "getMore": 1_i64, "maxTimeMS": 90.0 }, Some(70));
        max_time(&doc! { "find": "c", "tailable": true }, None);
        let awaiting = doc! { "find": "c", "tailable": true, "awaitData": true };
        max_time(&awaiting, Some(70));
    }
}
