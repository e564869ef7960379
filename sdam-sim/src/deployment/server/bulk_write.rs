//! The command `bulkWrite` of MongoDB 8.0, which writes to several collections.

use bson::{Document, doc};

use super::{
    data::{argument, cursor, documents},
    write::Statement,
};
use crate::{
    Deployment,
    reply::{BAD_VALUE, CommandResult, UNAUTHORIZED, refuse},
    request::{flag, number},
};

/// The counts that the reply contains, such as `nErrors` and `nInserted`.
#[derive(Default)]
struct Counts {
    errors: i32,
    inserted: i32,
    matched: i32,
    deleted: i32,
}

impl Deployment {
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
