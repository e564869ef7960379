//! Writes documents, by the commands of each collection or by `bulkWrite` of MongoDB 8.0. In a set
//! or cluster, a statement with a transaction number is run only once.

use std::collections::BTreeMap;

use bson::{Bson, Document, doc};

use super::data::{argument, cursor, documents};
use crate::{
    Cluster, MemberId,
    member::Kind,
    message::{
        BAD_VALUE, CommandError, CommandResult, HANG_UP, ILLEGAL_OPERATION, TRANSACTION_TOO_OLD,
        UNAUTHORIZED, flag, number, refuse,
    },
};

/// The last write with a transaction number in each session. All members share these writes, just
/// as they share the documents.
#[derive(Debug, Default)]
pub(crate) struct Numbered(BTreeMap<String, Last>);

#[derive(Debug, Default)]
struct Last {
    number: i64,
    /// The replies to executed statements, keyed by the index of the statement.
    done: BTreeMap<usize, Document>,
}

/// A write command of one client.
pub(super) struct Write<'r> {
    pub(super) member: MemberId,
    pub(super) namespace: String,
    pub(super) body: &'r Document,
}

/// A single statement.
enum Statement<'r> {
    Insert(&'r Document),
    Update { filter: &'r Document, change: &'r Document, limit: usize, upserts: bool },
    Delete { filter: &'r Document, limit: usize },
}

impl Cluster {
    /// Runs an insert, update or delete.
    pub(super) fn write(&mut self, write: &Write<'_>) -> CommandResult {
        let body = write.body;
        let ordered = !matches!(body.get("ordered"), Some(Bson::Boolean(false)));
        let statements = Statement::parse(body)?;
        let is_update = body.contains_key("updates");
        let (mut written, mut modified) = (0, 0);
        let (mut errors, mut upserted) = (Vec::new(), Vec::new());
        for (index, statement) in statements.iter().enumerate() {
            let result =
                self.once(write, index, |own| own.run_statement(&write.namespace, statement));
            let number = index as i32;
            match result {
                Ok(done) => {
                    written += done.get_i32("n").unwrap_or_default();
                    modified += done.get_i32("nModified").unwrap_or_default();
                    let id = done.get("upserted");
                    upserted.extend(id.map(|id| doc! { "index": number, "_id": id }));
                }
                // These errors make the command fail or break its connection, instead of appearing
                // in `writeErrors`.
                Err(error)
                    if [HANG_UP, ILLEGAL_OPERATION, TRANSACTION_TOO_OLD].contains(&error.code) =>
                {
                    return Err(error);
                }
                Err(error) => {
                    let mut shown = doc! { "index": number };
                    shown.extend(error.write_error());
                    errors.push(shown);
                    if ordered {
                        break;
                    }
                }
            }
        }
        let mut reply = doc! { "n": written };
        if is_update {
            reply.insert("nModified", modified);
        }
        for (key, items) in [("upserted", upserted), ("writeErrors", errors)] {
            if !items.is_empty() {
                reply.insert(key, items);
            }
        }
        Ok(reply)
    }

    /// Updates or removes one document.
    pub(super) fn find_and_modify(&mut self, write: &Write<'_>) -> CommandResult {
        let (namespace, body) = (&*write.namespace, write.body);
        let filter = argument(body, "query")?;
        let empty = Document::new();
        let sort = body.get_document("sort").unwrap_or(&empty);
        self.once(write, 0, |own| {
            let found = own.store.find_sorted(namespace, filter, sort)?;
            let Some(before) = found.first().map(|found| (*found).clone()) else {
                return Ok(doc! { "lastErrorObject": { "n": 0 }, "value": Bson::Null });
            };
            let only = doc! { "_id": before.get("_id") };
            let mut value = before;
            if flag(body, "remove") {
                own.store.delete(namespace, &only, 1)?;
            } else {
                own.store.update(namespace, &only, argument(body, "update")?, 1)?;
                if flag(body, "new") {
                    let after = own.store.find(namespace, &only)?;
                    value = after.first().map(|after| (*after).clone()).unwrap_or(value);
                }
            }
            Ok(doc! { "lastErrorObject": { "n": 1 }, "value": value })
        })
    }

    /// Runs a statement, unless the session has already run it with the same transaction number.
    /// The fail point for such writes takes effect before or after the statement.
    pub(super) fn once(
        &mut self,
        write: &Write<'_>,
        index: usize,
        run: impl FnOnce(&mut Self) -> CommandResult,
    ) -> CommandResult {
        let Some(txn) = number(write.body, "txnNumber") else {
            return run(self);
        };
        if matches!(self.member(write.member).kind, Kind::Standalone) {
            let reason = "Transaction numbers are only allowed on a replica set member or mongos";
            return refuse(ILLEGAL_OPERATION, reason);
        }
        let session = write.body.get("lsid").map(Bson::to_string);
        let session = session.unwrap_or_default();
        let last = self.numbered.0.entry(session.clone()).or_default();
        if txn < last.number {
            let reason = format!("Retryable write with txnNumber {txn} is prohibited on session");
            return refuse(TRANSACTION_TOO_OLD, reason);
        }
        if txn > last.number {
            *last = Last { number: txn, done: BTreeMap::new() };
        }
        if let Some(done) = last.done.get(&index) {
            return Ok(done.clone());
        }
        let point = self.member_mut(write.member).process.fail_write.as_mut();
        let strike = point.and_then(|point| point.mode.strikes().then_some(point.error_code));
        let hang_up = || CommandError::new(HANG_UP, "");
        if let Some(Some(_)) = strike {
            return Err(hang_up());
        }
        let done = run(self)?;
        if let Some(last) = self.numbered.0.get_mut(&session) {
            last.done.insert(index, done.clone());
        }
        strike.map_or(Ok(done), |_| Err(hang_up()))
    }

    fn run_statement(&mut self, namespace: &str, statement: &Statement<'_>) -> CommandResult {
        match *statement {
            Statement::Insert(document) => {
                self.store.insert(namespace, document.clone())?;
                Ok(doc! { "n": 1 })
            }
            Statement::Update { filter, change, limit, upserts } => {
                let hits = self.store.update(namespace, filter, change, limit)? as i32;
                if hits > 0 || !upserts {
                    return Ok(doc! { "n": hits, "nModified": hits });
                }
                let Some(id) = filter.get("_id") else {
                    let reason = "an upsert without _id in its filter is not simulated";
                    return refuse(BAD_VALUE, reason);
                };
                self.store.insert(namespace, filter.clone())?;
                self.store.update(namespace, filter, change, 1)?;
                Ok(doc! { "n": 1, "nModified": 0, "upserted": id })
            }
            Statement::Delete { filter, limit } => {
                let deleted = self.store.delete(namespace, filter, limit)?;
                Ok(doc! { "n": deleted as i32 })
            }
        }
    }
}

impl<'r> Statement<'r> {
    fn parse(body: &'r Document) -> Result<Vec<Self>, CommandError> {
        if body.contains_key("documents") {
            let documents = documents(body, "documents")?;
            return Ok(documents.into_iter().map(Self::Insert).collect());
        }
        let is_update = body.contains_key("updates");
        let key = if is_update { "updates" } else { "deletes" };
        let statements = documents(body, key)?.into_iter().map(|statement| {
            let filter = argument(statement, "q")?;
            Ok(if is_update {
                Self::Update {
                    filter,
                    change: argument(statement, "u")?,
                    limit: if flag(statement, "multi") { usize::MAX } else { 1 },
                    upserts: flag(statement, "upsert"),
                }
            } else {
                let is_single = number(statement, "limit") == Some(1);
                let limit = if is_single { 1 } else { usize::MAX };
                Self::Delete { filter, limit }
            })
        });
        statements.collect()
    }
}

/// The counts that the reply contains, such as `nErrors` and `nInserted`.
#[derive(Default)]
struct Counts {
    errors: i32,
    inserted: i32,
    matched: i32,
    deleted: i32,
}

impl Cluster {
    pub(super) fn bulk_write(&mut self, database: &str, body: &Document) -> CommandResult {
        if database != "admin" {
            return refuse(UNAUTHORIZED, "bulkWrite may only be run against the admin database.");
        }
        let namespaces = documents(body, "nsInfo")?;
        let ordered = body.get_bool("ordered").unwrap_or(true);
        let (mut counts, mut results) = (Counts::default(), Vec::new());
        for (index, operation) in documents(body, "ops")?.into_iter().enumerate() {
            let result = self.bulk_operation(&namespaces, operation, &mut counts)?;
            let failed = result.contains_key("code");
            let mut shown = doc! { "ok": if failed { 0.0 } else { 1.0 }, "idx": index as i32 };
            shown.extend(result);
            if failed || !flag(body, "errorsOnly") {
                results.push(shown);
            }
            if failed && ordered {
                break;
            }
        }
        let mut reply = cursor("admin.$cmd.bulkWrite", results);
        reply.extend(doc! {
            "nErrors": counts.errors,
            "nInserted": counts.inserted,
            "nMatched": counts.matched,
            "nModified": counts.matched,
            "nUpserted": 0,
            "nDeleted": counts.deleted,
        });
        Ok(reply)
    }

    /// Performs one of the writes and returns its reply.
    fn bulk_operation(
        &mut self,
        namespaces: &[&Document],
        operation: &Document,
        counts: &mut Counts,
    ) -> CommandResult {
        let name = operation.keys().next().map(String::as_str);
        let Some(name @ ("insert" | "update" | "delete")) = name else {
            return refuse(BAD_VALUE, "an operation of unknown kind");
        };
        let limit = if flag(operation, "multi") { usize::MAX } else { 1 };
        let index = number(operation, name).and_then(|index| usize::try_from(index).ok());
        let namespace = index.and_then(|index| namespaces.get(index)?.get_str("ns").ok());
        let Some(namespace) = namespace else {
            return refuse(BAD_VALUE, "BulkWrite ops entry has an invalid nsInfo index.");
        };
        let (statement, count) = match name {
            "insert" => (Statement::Insert(argument(operation, "document")?), &mut counts.inserted),
            "update" if flag(operation, "upsert") => {
                return refuse(BAD_VALUE, "upserts are not simulated here");
            }
            "update" => {
                let filter = argument(operation, "filter")?;
                let change = argument(operation, "updateMods")?;
                let update = Statement::Update { filter, change, limit, upserts: false };
                (update, &mut counts.matched)
            }
            _ => {
                let filter = argument(operation, "filter")?;
                (Statement::Delete { filter, limit }, &mut counts.deleted)
            }
        };
        match self.run_statement(namespace, &statement) {
            Err(error) if name == "insert" => {
                counts.errors += 1;
                let mut error = error.write_error();
                error.insert("n", 0);
                Ok(error)
            }
            result => {
                *count += result.as_ref().map_or(0, |done| done.get_i32("n").unwrap_or_default());
                result
            }
        }
    }
}
