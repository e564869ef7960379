//! Reads and writes documents, with cursors for results that do not fit in one batch. Only the
//! features that clients of the simulation need are supported.

use std::collections::BTreeMap;

use bson::{Bson, Document, doc};

use super::write::Write;
use crate::{
    Cluster, MemberId,
    deployment::Role,
    message::{
        BAD_VALUE, CURSOR_NOT_FOUND, CommandError, CommandResult, Framing,
        NOT_PRIMARY_NO_SECONDARY_OK, NOT_PRIMARY_OR_SECONDARY, NOT_WRITABLE_PRIMARY, Request, flag,
        number, refuse,
    },
    store::{matching, order, project},
};

/// Pipeline stages that return no documents in the simulation.
const EMPTY_STAGES: [&str; 4] = ["$changeStream", "$listLocalSessions", "$merge", "$out"];

impl Cluster {
    /// Checks whether the role of `member` allows `request`.
    pub(super) fn check_role(
        &self,
        member: MemberId,
        request: &Request,
        hello_ok: bool,
    ) -> Result<(), CommandError> {
        let Some(replica) = self.replica(member) else {
            return Ok(());
        };
        let role = if replica.role == Role::Primary && !replica.is_writable() {
            Role::Secondary
        } else {
            replica.role
        };
        // Error messages use the new terms only if the client sent `helloOk` (M-45).
        let word = if hello_ok { "primary" } else { "master" };
        let secondary_ok = if hello_ok { "secondaryOk" } else { "slaveOk" };
        match role {
            Role::Primary => Ok(()),
            _ if request.is_write() => refuse(NOT_WRITABLE_PRIMARY, format!("not {word}")),
            Role::Secondary if allows_secondary(request) => Ok(()),
            Role::Secondary => {
                refuse(NOT_PRIMARY_NO_SECONDARY_OK, format!("not {word} and {secondary_ok}=false"))
            }
            Role::Recovering => refuse(NOT_PRIMARY_OR_SECONDARY, "node is recovering"),
            _ => refuse(
                NOT_PRIMARY_OR_SECONDARY,
                format!("not {word} or secondary; cannot currently read from this replSet member"),
            ),
        }
    }

    pub(super) fn run_data(
        &mut self,
        member: MemberId,
        request: &Request,
        database: &str,
    ) -> CommandResult {
        let body = &request.body;
        let collection = body.get_str(&request.name).unwrap_or_default();
        let namespace = format!("{database}.{collection}");
        let write = |namespace| Write { member, namespace, body };
        let reply = match &*request.name {
            "insert" | "update" | "delete" => self.write(&write(namespace)),
            "bulkWrite" => self.once(&write(namespace), 0, |own| own.bulk_write(database, body)),
            "find" => self.find(&namespace, body),
            "count" => self.count(&namespace, body),
            "aggregate" => self.aggregate(&namespace, body),
            "distinct" => self.distinct(&namespace, body),
            "findAndModify" => self.find_and_modify(&write(namespace)),
            "mapReduce" => self.map_reduce(&namespace, body),
            // Indexes are not simulated; there is only the index on `_id`.
            "create" | "createIndexes" | "dropIndexes" => Ok(Document::new()),
            "listIndexes" => {
                let index = doc! { "v": 2, "key": { "_id": 1 }, "name": "_id_" };
                Ok(cursor(&namespace, vec![index]))
            }
            "drop" => {
                self.store.drop_collection(&namespace);
                Ok(doc! { "ns": &namespace })
            }
            "dropDatabase" => {
                self.store.drop_prefix(&format!("{database}."));
                Ok(doc! { "dropped": database })
            }
            "listCollections" => Ok(self.list_collections(database)),
            "listDatabases" => Ok(self.list_databases()),
            "getMore" => self.get_more(database, body),
            name => refuse(BAD_VALUE, format!("{name} is not simulated")),
        }?;
        if request.is_write() {
            self.record_write(member);
        }
        Ok(reply)
    }

    fn find(&mut self, namespace: &str, body: &Document) -> CommandResult {
        let empty = Document::new();
        let part = |key: &str| body.get_document(key).unwrap_or(&empty);
        let found = self.store.find_sorted(namespace, part("filter"), part("sort"))?;
        let skip = count_argument(body, "skip").unwrap_or(0);
        let limit = count_argument(body, "limit").filter(|limit| *limit > 0);
        // The only index is the one on `_id`.
        let key = doc! { "_id": 1 };
        let returns_key = flag(body, "returnKey");
        let projection = if returns_key { &key } else { part("projection") };
        let found = found.into_iter().skip(skip).take(limit.unwrap_or(usize::MAX));
        let found: Vec<Document> = found.map(|found| project(projection, found)).collect();
        let size = count_argument(body, "batchSize");
        let size = size.filter(|_| !flag(body, "singleBatch"));
        Ok(self.cursors.open(namespace, found, size))
    }

    fn get_more(&mut self, database: &str, body: &Document) -> CommandResult {
        let collection = body.get_str("collection").unwrap_or_default();
        let namespace = format!("{database}.{collection}");
        let id = number(body, "getMore").unwrap_or_default();
        self.cursors.next(&namespace, id, count_argument(body, "batchSize"))
    }

    fn distinct(&self, namespace: &str, body: &Document) -> CommandResult {
        let empty = Document::new();
        let filter = body.get_document("query").unwrap_or(&empty);
        let key = body.get_str("key").unwrap_or_default();
        let mut values: Vec<Bson> = Vec::new();
        for document in self.store.find(namespace, filter)? {
            let value = document.get(key).filter(|value| !values.contains(value));
            values.extend(value.cloned());
        }
        Ok(doc! { "values": values })
    }

    fn count(&self, namespace: &str, body: &Document) -> CommandResult {
        let empty = Document::new();
        let filter = body.get_document("query").unwrap_or(&empty);
        Ok(doc! { "n": self.store.find(namespace, filter)?.len() as i32 })
    }

    /// Runs a pipeline of simulated stages. Change streams and session lists return no documents,
    /// and the output of a pipeline is not stored.
    fn aggregate(&self, namespace: &str, body: &Document) -> CommandResult {
        let pipeline = documents(body, "pipeline")?;
        let all = self.store.find(namespace, &Document::new())?;
        let mut batch: Vec<Document> = all.into_iter().cloned().collect();
        for stage in pipeline {
            let Some((name, value)) = stage.iter().next() else {
                return Err(unsimulated_pipeline());
            };
            if EMPTY_STAGES.contains(&&**name) {
                return Ok(cursor(namespace, Vec::new()));
            }
            let options = value.as_document().ok_or_else(unsimulated_pipeline)?;
            match &**name {
                "$match" => batch = matching(options, batch)?,
                "$sort" => batch.sort_by(|a, b| order(options, a, b)),
                "$project" => batch = batch.iter().map(|it| project(options, it)).collect(),
                "$group" if options.contains_key("n") => {
                    let count = (!batch.is_empty()).then_some(batch.len() as i32);
                    batch = count.map(|count| doc! { "_id": 1, "n": count }).into_iter().collect();
                }
                _ => return Err(unsimulated_pipeline()),
            }
        }
        Ok(cursor(namespace, batch))
    }

    /// Runs map-reduce. Only one pair of functions is simulated: the map function emits `x + 1`
    /// under a single key, and the reduce function adds up the values.
    fn map_reduce(&self, namespace: &str, body: &Document) -> CommandResult {
        let is_known = |key: &str, code: &str| match body.get(key) {
            Some(Bson::JavaScriptCode(own)) => own.contains(code),
            _ => false,
        };
        if !is_known("map", "emit(0, this.x + 1)") || !is_known("reduce", "acc + x") {
            return refuse(BAD_VALUE, "these functions are not simulated");
        }
        let found = self.store.find(namespace, &Document::new())?;
        let values = found.iter().filter_map(|found| number(found, "x"));
        let sum: i64 = values.map(|value| value + 1).sum();
        Ok(doc! { "results": [{ "_id": 0, "value": sum }] })
    }

    fn list_collections(&self, database: &str) -> Document {
        let prefix = format!("{database}.");
        let names = self.store.namespaces();
        let batch = names
            .filter_map(|name| name.strip_prefix(&prefix))
            .map(|name| doc! { "name": name, "type": "collection", "options": {} })
            .collect();
        cursor(&format!("{database}.$cmd.listCollections"), batch)
    }

    fn list_databases(&self) -> Document {
        let names = self.store.namespaces();
        let mut names: Vec<&str> =
            names.filter_map(|name| name.split_once('.').map(|(database, _)| database)).collect();
        names.dedup();
        let list: Vec<Document> = names
            .into_iter()
            .map(|name| doc! { "name": name, "empty": false, "sizeOnDisk": 4096 })
            .collect();
        doc! { "databases": list }
    }
}

/// Returns whether the client allows reads from secondaries.
fn allows_secondary(request: &Request) -> bool {
    let preference = request.body.get_document("$readPreference");
    let mode = preference.and_then(|preference| preference.get_str("mode"));
    match mode {
        Ok(mode) => mode != "primary",
        Err(_) => matches!(request.framing, Framing::Query { secondary_ok: true, .. }),
    }
}

pub(super) fn cursor(namespace: &str, batch: Vec<Document>) -> Document {
    doc! { "cursor": { "firstBatch": batch, "id": 0_i64, "ns": namespace } }
}

fn count_argument(body: &Document, key: &str) -> Option<usize> {
    number(body, key).and_then(|number| usize::try_from(number.abs()).ok())
}

pub(super) fn argument<'a>(body: &'a Document, key: &str) -> Result<&'a Document, CommandError> {
    body.get_document(key)
        .map_err(|_| CommandError::new(BAD_VALUE, format!("`{key}` must be a document")))
}

pub(super) fn documents<'a>(
    body: &'a Document,
    key: &str,
) -> Result<Vec<&'a Document>, CommandError> {
    let invalid = || CommandError::new(BAD_VALUE, format!("`{key}` must be an array of documents"));
    let array = body.get_array(key).map_err(|_| invalid())?;
    array.iter().map(|value| value.as_document().ok_or_else(invalid)).collect()
}

fn unsimulated_pipeline() -> CommandError {
    CommandError::new(BAD_VALUE, "such a pipeline is not simulated")
}

/// The open cursors of a deployment. All members share them, just as they share the documents.
#[derive(Debug, Default)]
pub(crate) struct Cursors {
    opened: i64,
    /// The documents that have not been returned yet.
    open: BTreeMap<i64, Vec<Document>>,
}

impl Cursors {
    /// Returns the first batch of `documents`, and opens a cursor if there are more documents. If
    /// `size` is `None`, the batch contains all documents.
    pub(super) fn open(
        &mut self,
        namespace: &str,
        mut documents: Vec<Document>,
        size: Option<usize>,
    ) -> Document {
        let rest = documents.split_off(size.unwrap_or(usize::MAX).min(documents.len()));
        let mut reply = cursor(namespace, documents);
        if !rest.is_empty() {
            self.opened += 1;
            self.open.insert(self.opened, rest);
            if let Ok(cursor) = reply.get_document_mut("cursor") {
                cursor.insert("id", self.opened);
            }
        }
        reply
    }

    /// Returns the next batch.
    pub(super) fn next(&mut self, namespace: &str, id: i64, size: Option<usize>) -> CommandResult {
        let Some(mut batch) = self.open.remove(&id) else {
            let message = format!("cursor id {id} not found");
            return refuse(CURSOR_NOT_FOUND, message);
        };
        let rest = batch.split_off(size.unwrap_or(usize::MAX).min(batch.len()));
        let left = if rest.is_empty() { 0 } else { id };
        if left != 0 {
            self.open.insert(id, rest);
        }
        Ok(doc! { "cursor": { "nextBatch": batch, "id": left, "ns": namespace } })
    }

    /// Closes the cursors listed in `body`.
    pub(super) fn kill(&mut self, body: &Document) -> Document {
        let (mut killed, mut missing) = (Vec::new(), Vec::new());
        let ids = body.get_array("cursors").into_iter().flatten();
        for id in ids.filter_map(bson::Bson::as_i64) {
            match self.open.remove(&id) {
                Some(_) => killed.push(id),
                None => missing.push(id),
            }
        }
        doc! {
            "cursorsKilled": killed, "cursorsNotFound": missing,
            "cursorsAlive": [], "cursorsUnknown": [],
        }
    }
}
