//! The fields of a command that determine what a client adds to it.

use alloc::format;

use crate::{
    document::{Field, Fields},
    error::{Error, ErrorKind, Stage},
};

/// The commands that accept a read concern (Read and Write Concern: "On the Wire").
const READ_CONCERN: [&str; 4] = ["aggregate", "count", "distinct", "find"];

/// The commands that a server runs with a transaction number, if they affect single documents
/// (Retryable Writes: "Supported Write Operations").
const RETRYABLE_WRITES: [&str; 6] =
    ["bulkWrite", "delete", "findAndModify", "findandmodify", "insert", "update"];

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
    /// True if the command has an `lsid`: its caller has chosen the session.
    has_session: bool,
    has_transaction_number: bool,
    /// True if the command has a `$clusterTime`.
    pub has_cluster_time: bool,
    /// True if the command has a `maxTimeMS`, even if the value is not an integer.
    pub has_max_time: bool,
    /// The first of the fields `$db` and `$readPreference`, which every client adds itself.
    pub reserved: Option<&'a str>,
    /// `maxTimeMS`, in milliseconds.
    max_time: Option<i64>,
    is_tailable: bool,
    awaits_data: bool,
    /// True if a write of the command affects several documents.
    affects_several: bool,
    is_unacknowledged: bool,
}

impl<'a> CommandFields<'a> {
    /// Reads the fields of `document`.
    ///
    /// # Errors
    ///
    /// [`ErrorKind::Invalid`] if `document` is not a BSON document, or is empty.
    pub fn of(document: &'a [u8]) -> Result<Self, Error> {
        let invalid = |reason: &str| {
            let message = format!("the command is no BSON document with a name: {reason}");
            Error::new(ErrorKind::Invalid, Stage::Operation, message)
        };
        let mut own = Self::default();
        for field in Fields::of(document).map_err(|malformed| invalid(&malformed.0))? {
            let field = field.map_err(|malformed| invalid(&malformed.0))?;
            match field.key() {
                name if own.name.is_empty() => own.name = name,
                "updates" | "deletes" | "ops" => own.affects_several |= affects_several(field),
                "readConcern" => own.has_read_concern = true,
                "writeConcern" => {
                    own.has_write_concern = true;
                    own.is_unacknowledged = integer(field, "w") == Some(0);
                }
                "$clusterTime" => own.has_cluster_time = true,
                "lsid" => own.has_session = true,
                "txnNumber" => own.has_transaction_number = true,
                "autocommit" => own.is_in_transaction = true,
                "maxTimeMS" => (own.has_max_time, own.max_time) = (true, field.integer()),
                name @ ("$db" | "$readPreference") => own.reserved = own.reserved.or(Some(name)),
                "tailable" => own.is_tailable = field.truth().unwrap_or_default(),
                "awaitData" => own.awaits_data = field.truth().unwrap_or_default(),
                _ => {}
            }
        }
        if own.name.is_empty() { Err(invalid("it has no fields")) } else { Ok(own) }
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

    /// Returns whether a client adds its own session to the command (Driver Sessions: "Sending the
    /// session ID to the server on all commands").
    pub fn takes_session(&self) -> bool {
        !self.has_session && !self.is_unacknowledged && self.name != "endSessions"
    }

    /// Returns whether a client adds its own session and a transaction number to the command,
    /// assuming that the command is a write. The transaction number allows the command to be run
    /// again. True only for acknowledged writes of single documents (Retryable Writes: "Supported
    /// Write Operations", "Unsupported Write Operations").
    pub fn takes_transaction_number(&self) -> bool {
        RETRYABLE_WRITES.contains(&self.name) && !self.affects_several && self.takes_session()
    }

    /// Returns whether the caller has given the command a session and a transaction number, so that
    /// the command may be run again. False in a transaction.
    pub fn has_own_transaction_number(&self) -> bool {
        self.has_session && self.has_transaction_number && !self.is_in_transaction
    }

    /// Returns whether a client may run the command again, assuming that the command is a read.
    /// False for `getMore`, because the batch of the first attempt would be lost, and in a
    /// transaction (Retryable Reads: "Unsupported Read Operations").
    pub fn is_retryable_read(&self) -> bool {
        self.name != "getMore" && !self.is_in_transaction
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

/// Returns whether one of the statements affects several documents: an update or the delete of a
/// `bulkWrite` with `multi: true`, or a delete with a `limit` other than 1.
fn affects_several(statements: Field<'_>) -> bool {
    statements.elements().map_while(Result::ok).any(|statement| {
        statement.fields().map_while(Result::ok).any(|field| match field.name() {
            b"multi" => field.truth() == Some(true),
            b"limit" => field.integer() != Some(1),
            _ => false,
        })
    })
}

/// Returns the integer in the field `name` of an embedded document.
fn integer(document: Field<'_>, name: &str) -> Option<i64> {
    let mut fields = document.fields().map_while(Result::ok);
    fields.find(|field| field.name() == name.as_bytes())?.integer()
}

#[cfg(test)]
mod tests {
    use alloc::vec;

    use bson::{Document, doc};

    use super::*;

    fn check(command: &Document, check: impl FnOnce(CommandFields<'_>)) {
        check(CommandFields::of(&command.to_vec().unwrap()).unwrap());
    }

    #[test]
    fn bytes_that_are_no_document_with_a_name_are_refused() {
        let ping = doc! { "ping": 1, "comment": "text" }.to_vec().unwrap();
        let nothing = doc! {}.to_vec().unwrap();
        for length in 0..ping.len() {
            assert!(CommandFields::of(&ping[..length]).is_err(), "{length}");
        }
        let error = CommandFields::of(&nothing).unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Invalid);
        assert!(error.message().contains("it has no fields"), "{error}");
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
    fn acknowledged_writes_of_single_documents_take_a_transaction_number() {
        // Other writes get no transaction number, because servers refuse it.
        let takes = |command: Document, expected| {
            check(&command, |fields| {
                assert_eq!(fields.takes_transaction_number(), expected, "{command}");
            });
        };
        let update = |multi: bool| doc! { "q": {}, "u": {}, "multi": multi };
        let delete = |limit: i32| doc! { "q": {}, "limit": limit };
        takes(doc! { "insert": "c", "documents": [{ "multi": true }] }, true);
        takes(doc! { "findAndModify": "c", "update": {} }, true);
        takes(doc! { "update": "c", "updates": [update(false), { "q": {}, "u": {} }] }, true);
        takes(doc! { "update": "c", "updates": [update(false), update(true)] }, false);
        takes(doc! { "delete": "c", "deletes": [delete(1)] }, true);
        takes(doc! { "delete": "c", "deletes": [delete(1), delete(0)] }, false);
        let single = doc! { "update": 0, "filter": {}, "updateMods": {}, "multi": false };
        let several = doc! { "delete": 0, "filter": {}, "multi": true };
        takes(doc! { "bulkWrite": 1, "ops": [&single, { "delete": 0, "filter": {} }] }, true);
        takes(doc! { "bulkWrite": 1, "ops": [single, several] }, false);
        for own in [
            doc! { "writeConcern": { "j": false, "w": 0 } },
            doc! { "lsid": {} },
            doc! { "lsid": {}, "txnNumber": 1_i64, "autocommit": false },
        ] {
            let mut insert = doc! { "insert": "c" };
            insert.extend(own);
            takes(insert, false);
        }
        takes(doc! { "insert": "c", "writeConcern": { "w": 1 } }, true);
        takes(doc! { "create": "c" }, false);
        takes(doc! { "aggregate": "c", "pipeline": [{ "$out": "d" }] }, false);
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
