//! The operations of drivers that are one command, and the commands that they send.

use bson::{Bson, Document, doc};
use sdam_core::read_preference::ReadPreference;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::fields::Preference;

/// The method of a driver with its arguments.
#[derive(Clone, Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub(super) enum Method {
    Aggregate {
        pipeline: Vec<Document>,
        batch_size: Option<i32>,
    },
    BulkWrite {
        requests: Vec<WriteModel>,
        ordered: Option<bool>,
    },
    ClientBulkWrite {
        models: Vec<ClientWriteModel>,
    },
    CountDocuments {
        filter: Document,
    },
    CreateChangeStream {
        pipeline: Vec<Document>,
    },
    CreateIndex {
        keys: Document,
        name: String,
    },
    DeleteMany {
        filter: Document,
    },
    DeleteOne {
        filter: Document,
    },
    Distinct {
        field_name: String,
        filter: Document,
    },
    DropIndex {
        name: String,
    },
    DropIndexes {},
    EstimatedDocumentCount {},
    Find {
        filter: Document,
        batch_size: Option<i32>,
        sort: Option<Document>,
    },
    FindOne {
        filter: Document,
    },
    FindOneAndDelete {
        filter: Document,
    },
    FindOneAndReplace {
        filter: Document,
        replacement: Document,
    },
    FindOneAndUpdate {
        filter: Document,
        update: Document,
    },
    InsertMany {
        documents: Vec<Document>,
    },
    InsertOne {
        document: Document,
        session: Option<String>,
    },
    ListCollectionNames {
        filter: Option<Document>,
    },
    ListCollections {
        filter: Option<Document>,
    },
    ListDatabaseNames {},
    ListDatabases {
        filter: Option<Document>,
    },
    ListIndexNames {},
    ListIndexes {},
    ReplaceOne {
        filter: Document,
        replacement: Document,
    },
    RunCommand {
        command_name: String,
        command: Document,
        read_preference: Option<Preference>,
    },
    UpdateMany {
        filter: Document,
        update: Document,
    },
    UpdateOne {
        filter: Document,
        update: Document,
    },
}

/// A write to the collection that performs it.
#[derive(Clone, Debug, Deserialize)]
#[serde(
    deny_unknown_fields,
    rename_all = "camelCase",
    rename_all_fields = "camelCase"
)]
pub(super) enum WriteModel {
    InsertOne {
        document: Document,
    },
    ReplaceOne {
        filter: Document,
        replacement: Document,
    },
}

/// A write to the collection that it names.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) enum ClientWriteModel {
    InsertOne {
        namespace: String,
        document: Document,
    },
}

/// The entity that performs a method.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Scope<'n> {
    Client,
    Database,
    /// The collection of this name.
    Collection(&'n str),
}

/// Which servers may run a command, and whether it may be retried.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Access {
    /// A read with the preference of its collection, or of its arguments; it may be retried.
    Read(Option<ReadPreference>),
    /// A write; only one with single-document statements may be retried.
    Write { is_retryable: bool },
    /// A command of the application: with the preference of its arguments, and not retried.
    Generic(Option<ReadPreference>),
}

impl Method {
    /// Returns the command's body for what performs it.
    pub(super) fn body(&self, scope: Scope<'_>) -> Document {
        let name = match scope {
            Scope::Client | Scope::Database => "",
            Scope::Collection(name) => name,
        };
        // Of a database or a client, commands of collections have the number 1.
        let target = if name.is_empty() {
            Bson::Int32(1)
        } else {
            name.into()
        };
        match self {
            Self::Aggregate {
                pipeline,
                batch_size,
            } => aggregate(target, pipeline, *batch_size),
            Self::CountDocuments { filter } => {
                let count = doc! { "$group": { "_id": 1, "n": { "$sum": 1 } } };
                aggregate(target, &[doc! { "$match": filter }, count], None)
            }
            Self::CreateChangeStream { pipeline } => {
                let options = match scope {
                    Scope::Client => doc! { "allChangesForCluster": true },
                    Scope::Database | Scope::Collection(_) => Document::new(),
                };
                let mut stages = vec![doc! { "$changeStream": options }];
                stages.extend(pipeline.iter().cloned());
                aggregate(target, &stages, None)
            }
            Self::Distinct { field_name, filter } => {
                doc! { "distinct": name, "key": field_name, "query": filter }
            }
            Self::EstimatedDocumentCount {} => doc! { "count": name },
            Self::Find {
                filter,
                batch_size,
                sort,
            } => {
                let mut body = doc! { "find": name, "filter": filter };
                body.extend(batch_size.map(|size| ("batchSize".to_owned(), size.into())));
                body.extend(sort.clone().map(|sort| ("sort".to_owned(), sort.into())));
                body
            }
            Self::FindOne { filter } => {
                doc! { "find": name, "filter": filter, "limit": 1, "singleBatch": true }
            }
            Self::ListCollectionNames { filter } | Self::ListCollections { filter } => {
                doc! { "listCollections": 1, "filter": filter.clone().unwrap_or_default() }
            }
            Self::ListDatabaseNames {} => doc! { "listDatabases": 1, "nameOnly": true },
            Self::ListDatabases { filter } => {
                doc! { "listDatabases": 1, "filter": filter.clone().unwrap_or_default() }
            }
            Self::ListIndexNames {} | Self::ListIndexes {} => doc! { "listIndexes": name },
            Self::RunCommand {
                command_name,
                command,
                ..
            } => {
                // Readers of JSON sort the keys.
                let mut body = doc! { command_name: command.get(command_name) };
                body.extend(command.clone());
                body
            }
            write => write.write_body(name),
        }
    }

    /// Returns the body of a write; of anything else, an empty one.
    fn write_body(&self, name: &str) -> Document {
        let updates = |q: &Document, u: &Document, multi: bool| {
            doc! { "update": name, "updates": [{ "q": q, "u": u, "multi": multi }] }
        };
        let deletes = |q: &Document, limit: i32| {
            doc! { "delete": name, "deletes": [{ "q": q, "limit": limit }] }
        };
        match self {
            Self::BulkWrite { requests, ordered } => bulk_write(name, requests, *ordered),
            Self::ClientBulkWrite { models } => client_bulk_write(models),
            Self::CreateIndex { keys, name: index } => {
                doc! { "createIndexes": name, "indexes": [{ "key": keys, "name": index }] }
            }
            Self::DeleteMany { filter } => deletes(filter, 0),
            Self::DeleteOne { filter } => deletes(filter, 1),
            Self::DropIndex { name: index } => doc! { "dropIndexes": name, "index": index },
            Self::DropIndexes {} => doc! { "dropIndexes": name, "index": "*" },
            Self::FindOneAndDelete { filter } => {
                doc! { "findAndModify": name, "query": filter, "remove": true }
            }
            Self::FindOneAndReplace {
                filter,
                replacement: update,
            }
            | Self::FindOneAndUpdate { filter, update } => {
                doc! { "findAndModify": name, "query": filter, "update": update }
            }
            Self::InsertMany { documents } => doc! { "insert": name, "documents": documents },
            Self::InsertOne { document, .. } => doc! { "insert": name, "documents": [document] },
            Self::ReplaceOne {
                filter,
                replacement: update,
            }
            | Self::UpdateOne { filter, update } => updates(filter, update, false),
            Self::UpdateMany { filter, update } => updates(filter, update, true),
            _ => Document::new(),
        }
    }

    /// Returns which servers may run the command, and whether it may be retried.
    pub(super) fn access(&self) -> Access {
        match self {
            Self::Aggregate { pipeline, .. }
                if pipeline
                    .last()
                    .is_some_and(|stage| stage.contains_key("$out")) =>
            {
                Access::Write {
                    is_retryable: false,
                }
            }
            Self::Aggregate { .. }
            | Self::CountDocuments { .. }
            | Self::CreateChangeStream { .. }
            | Self::Distinct { .. }
            | Self::EstimatedDocumentCount {}
            | Self::Find { .. }
            | Self::FindOne { .. } => Access::Read(None),
            // Only the primary knows what exists.
            Self::ListCollectionNames { .. }
            | Self::ListCollections { .. }
            | Self::ListDatabaseNames {}
            | Self::ListDatabases { .. }
            | Self::ListIndexNames {}
            | Self::ListIndexes {} => Access::Read(Some(ReadPreference::default())),
            Self::RunCommand {
                read_preference, ..
            } => Access::Generic(read_preference.clone().map(|preference| preference.0)),
            Self::CreateIndex { .. }
            | Self::DeleteMany { .. }
            | Self::DropIndex { .. }
            | Self::DropIndexes {}
            | Self::UpdateMany { .. } => Access::Write {
                is_retryable: false,
            },
            Self::BulkWrite { .. }
            | Self::ClientBulkWrite { .. }
            | Self::DeleteOne { .. }
            | Self::FindOneAndDelete { .. }
            | Self::FindOneAndReplace { .. }
            | Self::FindOneAndUpdate { .. }
            | Self::InsertMany { .. }
            | Self::InsertOne { .. }
            | Self::ReplaceOne { .. }
            | Self::UpdateOne { .. } => Access::Write { is_retryable: true },
        }
    }

    /// Returns the result of the operation, whose command was answered with `reply`.
    pub(super) fn result(&self, reply: &Document) -> Value {
        match self {
            Self::InsertOne { document, .. } => {
                json!({ "insertedId": to_json(document.get("_id")) })
            }
            _ => to_json(Some(&Bson::Document(reply.clone()))),
        }
    }
}

/// Converts a value to relaxed extended JSON, in which tests are written.
pub(super) fn to_json(value: Option<&Bson>) -> Value {
    value
        .cloned()
        .map_or(Value::Null, Bson::into_relaxed_extjson)
}

fn aggregate(target: Bson, pipeline: &[Document], batch_size: Option<i32>) -> Document {
    let mut cursor = Document::new();
    cursor.extend(batch_size.map(|size| ("batchSize".to_owned(), size.into())));
    doc! { "aggregate": target, "pipeline": pipeline, "cursor": cursor }
}

/// Builds the command of a bulk write, all of whose writes are of one kind in the files here.
fn bulk_write(name: &str, requests: &[WriteModel], ordered: Option<bool>) -> Document {
    let (mut documents, mut updates) = (Vec::new(), Vec::new());
    for request in requests {
        match request {
            WriteModel::InsertOne { document } => documents.push(document.clone()),
            WriteModel::ReplaceOne {
                filter,
                replacement,
            } => updates.push(doc! { "q": filter, "u": replacement }),
        }
    }
    let mut body = if updates.is_empty() {
        doc! { "insert": name, "documents": documents }
    } else {
        doc! { "update": name, "updates": updates }
    };
    body.extend(ordered.map(|ordered| ("ordered".to_owned(), ordered.into())));
    body
}

fn client_bulk_write(models: &[ClientWriteModel]) -> Document {
    let (mut namespaces, mut operations) = (Vec::new(), Vec::new());
    for (index, model) in models.iter().enumerate() {
        let ClientWriteModel::InsertOne {
            namespace,
            document,
        } = model;
        namespaces.push(doc! { "ns": namespace });
        operations.push(doc! { "insert": index as i32, "document": document });
    }
    doc! { "bulkWrite": 1, "ops": operations, "nsInfo": namespaces }
}
