//! The records of retryable writes, by which a server runs each of them once.

use std::collections::BTreeMap;

use bson::Document;

use crate::{
    reply::{CommandError, CommandResult, TRANSACTION_TOO_OLD},
    request::{Request, number},
};

/// The last retryable write of each session. All members share them, as they share the documents.
#[derive(Debug, Default)]
pub(crate) struct Sessions(BTreeMap<Vec<u8>, Record>);

#[derive(Debug)]
struct Record {
    number: i64,
    /// `None` until the write has succeeded.
    reply: Option<Document>,
}

impl Sessions {
    /// Begins the write `request`: returns the reply of an earlier attempt if it has one, and `None`
    /// if the write is to be run (M-47).
    pub(super) fn begin(&mut self, request: &Request) -> Option<CommandResult> {
        let (session, number) = transaction(request)?;
        let record = self.0.entry(session).or_insert(Record {
            number,
            reply: None,
        });
        if number < record.number {
            let message = format!(
                "Retryable write with txnNumber {number} is prohibited on session because a newer \
                 retryable write with txnNumber {} has already started on this session.",
                record.number
            );
            return Some(Err(CommandError::new(TRANSACTION_TOO_OLD, message)));
        }
        if number > record.number {
            record.number = number;
            record.reply = None;
        }
        record.reply.clone().map(Ok)
    }

    /// Keeps the reply of a write that has succeeded.
    pub(super) fn succeeded(&mut self, request: &Request, reply: &Document) {
        if let Some((session, _)) = transaction(request)
            && let Some(record) = self.0.get_mut(&session)
        {
            record.reply = Some(reply.clone());
        }
    }
}

/// Returns the session and the number of a retryable write; `None` for any other command.
fn transaction(request: &Request) -> Option<(Vec<u8>, i64)> {
    let body = &request.body;
    if body.contains_key("autocommit") {
        return None;
    }
    let session = body.get_document("lsid").ok()?.to_vec().ok()?;
    Some((session, number(body, "txnNumber")?))
}
