//! Reads and writes of documents, as far as clients of the simulation need them.

use bson::{Bson, Document, doc};
use sdam_core::time::Instant;

use crate::{
    Deployment, MemberId,
    deployment::Role,
    reply::{
        BAD_VALUE, CommandError, CommandResult, NOT_PRIMARY_NO_SECONDARY_OK,
        NOT_PRIMARY_OR_SECONDARY, NOT_WRITABLE_PRIMARY,
    },
    request::{Framing, Request, flag, number},
};

const WRITES: [&str; 10] = [
    "insert",
    "update",
    "delete",
    "create",
    "createIndexes",
    "drop",
    "dropDatabase",
    "dropIndexes",
    "findAndModify",
    "bulkWrite",
];
const READS: [&str; 8] = [
    "find",
    "aggregate",
    "count",
    "distinct",
    "listCollections",
    "listDatabases",
    "listIndexes",
    "getMore",
];

/// Stages that begin a pipeline, and whose results are not simulated.
const EMPTY_SOURCES: [&str; 3] = ["$changeStream", "$listLocalSessions", "$out"];

pub(super) fn is_write(name: &str) -> bool {
    WRITES.contains(&name)
}

pub(crate) fn takes_write_concern(name: &str) -> bool {
    is_write(name) || matches!(name, "commitTransaction" | "abortTransaction")
}

pub(super) fn is_data_command(name: &str) -> bool {
    is_write(name) || READS.contains(&name)
}

impl Deployment {
    /// Checks whether `member` may run `request` in its role.
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
        // Only clients that sent `helloOk` get the new wording (M-45).
        let word = if hello_ok { "primary" } else { "master" };
        let secondary_ok = if hello_ok { "secondaryOk" } else { "slaveOk" };
        match role {
            Role::Primary => Ok(()),
            _ if is_write(&request.name) => Err(CommandError::new(
                NOT_WRITABLE_PRIMARY,
                format!("not {word}"),
            )),
            Role::Secondary if allows_secondary(request) => Ok(()),
            Role::Secondary => Err(CommandError::new(
                NOT_PRIMARY_NO_SECONDARY_OK,
                format!("not {word} and {secondary_ok}=false"),
            )),
            Role::Recovering => Err(CommandError::new(
                NOT_PRIMARY_OR_SECONDARY,
                "node is recovering",
            )),
            _ => Err(CommandError::new(
                NOT_PRIMARY_OR_SECONDARY,
                format!("not {word} or secondary; cannot currently read from this replSet member"),
            )),
        }
    }

    pub(super) fn run_data(
        &mut self,
        now: Instant,
        member: MemberId,
        request: &Request,
        database: &str,
    ) -> CommandResult {
        let is_write = is_write(&request.name);
        if is_write && let Some(reply) = self.sessions.begin(request) {
            return reply;
        }
        let reply = self.run_once(request, database)?;
        if is_write {
            self.sessions.succeeded(request, &reply);
            self.record_write(now, member);
        }
        Ok(reply)
    }

    fn run_once(&mut self, request: &Request, database: &str) -> CommandResult {
        let body = &request.body;
        let collection = body.get_str(&request.name).unwrap_or_default();
        let namespace = format!("{database}.{collection}");
        match &*request.name {
            "insert" => self.insert(&namespace, body),
            "bulkWrite" => self.bulk_write(database, body),
            "update" => self.update(&namespace, body),
            "delete" => self.delete(&namespace, body),
            "find" => self.find(&namespace, body),
            "count" => self.count(&namespace, body),
            "aggregate" => self.aggregate(&namespace, body),
            "distinct" => self.distinct(&namespace, body),
            "findAndModify" => self.find_and_modify(&namespace, body),
            // Indexes are not simulated, so there is only that of `_id`.
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
            name => Err(CommandError::new(
                BAD_VALUE,
                format!("{name} is not simulated"),
            )),
        }
    }

    fn insert(&mut self, namespace: &str, body: &Document) -> CommandResult {
        let documents = documents(body, "documents")?;
        let ordered = !matches!(body.get("ordered"), Some(Bson::Boolean(false)));
        let mut inserted = 0;
        let mut errors = Vec::new();
        for (index, document) in documents.into_iter().enumerate() {
            if self.store.insert(namespace, document.clone()) {
                inserted += 1;
                continue;
            }
            let mut error = doc! { "index": index as i32 };
            error.extend(duplicate_key(namespace, document));
            errors.push(error);
            if ordered {
                break;
            }
        }
        let mut reply = doc! { "n": inserted };
        if !errors.is_empty() {
            reply.insert("writeErrors", errors);
        }
        Ok(reply)
    }

    fn update(&mut self, namespace: &str, body: &Document) -> CommandResult {
        let mut matched = 0;
        let mut upserted = Vec::new();
        for (index, update) in documents(body, "updates")?.into_iter().enumerate() {
            let filter = argument(update, "q")?;
            let change = argument(update, "u")?;
            let limit = if flag(update, "multi") { usize::MAX } else { 1 };
            let hits = self.store.update(namespace, filter, change, limit)?;
            matched += hits;
            if hits == 0 && flag(update, "upsert") {
                let Some(id) = filter.get("_id") else {
                    return Err(CommandError::new(
                        BAD_VALUE,
                        "an upsert without _id in its filter is not simulated",
                    ));
                };
                self.store.insert(namespace, filter.clone());
                self.store.update(namespace, filter, change, 1)?;
                matched += 1;
                upserted.push(doc! { "index": index as i32, "_id": id });
            }
        }
        let mut reply = doc! {
            "n": matched as i32,
            "nModified": (matched - upserted.len()) as i32,
        };
        if !upserted.is_empty() {
            reply.insert("upserted", upserted);
        }
        Ok(reply)
    }

    fn delete(&mut self, namespace: &str, body: &Document) -> CommandResult {
        let mut deleted = 0;
        for delete in documents(body, "deletes")? {
            let limit = match number(delete, "limit") {
                Some(1) => 1,
                _ => usize::MAX,
            };
            let filter = argument(delete, "q")?;
            deleted += self.store.delete(namespace, filter, limit)?;
        }
        Ok(doc! { "n": deleted as i32 })
    }

    fn find(&mut self, namespace: &str, body: &Document) -> CommandResult {
        let empty = Document::new();
        let filter = body.get_document("filter").unwrap_or(&empty);
        let sort = body.get_document("sort").unwrap_or(&empty);
        let found = self.store.find_sorted(namespace, filter, sort)?;
        let skip = count_argument(body, "skip").unwrap_or(0);
        let limit = count_argument(body, "limit").filter(|limit| *limit > 0);
        let found = found.into_iter().skip(skip);
        let found: Vec<Document> = found.take(limit.unwrap_or(usize::MAX)).cloned().collect();
        let size = count_argument(body, "batchSize");
        let size = size.filter(|_| !flag(body, "singleBatch"));
        Ok(self.cursors.open(namespace, found, size))
    }

    fn get_more(&mut self, database: &str, body: &Document) -> CommandResult {
        let collection = body.get_str("collection").unwrap_or_default();
        let namespace = format!("{database}.{collection}");
        let id = number(body, "getMore").unwrap_or_default();
        self.cursors
            .next(&namespace, id, count_argument(body, "batchSize"))
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

    /// Changes or removes one document. The reply has the document of before.
    fn find_and_modify(&mut self, namespace: &str, body: &Document) -> CommandResult {
        let filter = argument(body, "query")?;
        let found = self.store.find(namespace, filter)?;
        let before = found.first().map(|document| (*document).clone());
        let count = if flag(body, "remove") {
            self.store.delete(namespace, filter, 1)?
        } else {
            self.store
                .update(namespace, filter, argument(body, "update")?, 1)?
        };
        let value = before.map_or(Bson::Null, Bson::Document);
        Ok(doc! { "lastErrorObject": { "n": count as i32 }, "value": value })
    }

    fn count(&self, namespace: &str, body: &Document) -> CommandResult {
        let empty = Document::new();
        let filter = body.get_document("query").unwrap_or(&empty);
        Ok(doc! { "n": self.store.find(namespace, filter)?.len() as i32 })
    }

    /// Runs the count pipeline of clients: one `$match`, then a `$group` that sums ones. Change
    /// streams and lists of sessions are empty.
    fn aggregate(&self, namespace: &str, body: &Document) -> CommandResult {
        let mut filter = &Document::new();
        let mut counts = None;
        let pipeline = documents(body, "pipeline")?;
        let source = pipeline.first().and_then(|stage| stage.keys().next());
        if source.is_some_and(|name| EMPTY_SOURCES.contains(&&**name)) {
            return Ok(cursor(namespace, Vec::new()));
        }
        for stage in pipeline {
            if let Ok(matches) = stage.get_document("$match") {
                filter = matches;
            } else if let Ok(group) = stage.get_document("$group") {
                let sum = group.get_document("n").ok();
                counts = sum.and_then(|sum| number(sum, "$sum"));
                if counts.is_none() {
                    return Err(unsimulated_pipeline());
                }
            } else {
                return Err(unsimulated_pipeline());
            }
        }
        let found = self.store.find(namespace, filter)?;
        let batch = match counts {
            None => found.into_iter().cloned().collect(),
            Some(_) if found.is_empty() => Vec::new(),
            Some(_) => vec![doc! { "_id": 1, "n": found.len() as i32 }],
        };
        Ok(cursor(namespace, batch))
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
        let mut names: Vec<&str> = names
            .filter_map(|name| name.split_once('.').map(|(database, _)| database))
            .collect();
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
        Err(_) => matches!(
            request.framing,
            Framing::Query {
                secondary_ok: true,
                ..
            }
        ),
    }
}

/// Returns the write error for a document whose `_id` is taken.
pub(super) fn duplicate_key(namespace: &str, document: &Document) -> Document {
    let id = document.get("_id").cloned().unwrap_or(Bson::Null);
    let message = format!(
        "E11000 duplicate key error collection: {namespace} index: _id_ dup key: {{ _id: {id} }}"
    );
    doc! {
        "code": 11000,
        "errmsg": message,
        "keyPattern": { "_id": 1 },
        "keyValue": { "_id": id },
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
    array
        .iter()
        .map(|value| value.as_document().ok_or_else(invalid))
        .collect()
}

fn unsimulated_pipeline() -> CommandError {
    CommandError::new(
        BAD_VALUE,
        "only pipelines that count documents are simulated",
    )
}
