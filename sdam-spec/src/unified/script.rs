//! The entities of a test and the operations on them.

use std::collections::BTreeMap;

use bson::{Bson, Document, doc};
use sdam_core::read_preference::{ReadMode, ReadPreference, TagSet};
use sdam_select::Criteria;
use sdam_transport::Runtime;
use serde_json::Value;

use super::{
    client::{Client, Failure},
    log::Logs,
};
use crate::json::{self, Object};

/// The entities that a test has created so far.
pub(super) struct Script<'w> {
    uri: &'w str,
    runtime: &'w Runtime,
    clients: BTreeMap<String, Client>,
    databases: BTreeMap<String, Database>,
    collections: BTreeMap<String, Collection>,
    /// The number of operations so far.
    operations: i64,
}

#[derive(Clone)]
struct Database {
    client: String,
    name: String,
}

#[derive(Clone)]
struct Collection {
    database: Database,
    name: String,
    read_preference: ReadPreference,
}

/// A request of an operation to a client.
struct Request {
    client: String,
    criteria: Criteria,
    command: Document,
}

impl<'w> Script<'w> {
    pub(super) fn new(uri: &'w str, runtime: &'w Runtime) -> Self {
        Self {
            uri,
            runtime,
            clients: BTreeMap::new(),
            databases: BTreeMap::new(),
            collections: BTreeMap::new(),
            operations: 0,
        }
    }

    /// Creates a list of entities.
    pub(super) fn create(&mut self, entities: &Value) -> Result<(), String> {
        json::list(entities, |entity| {
            let entity = Object::new(entity, "entity", &["client", "database", "collection"])?;
            if let Some(client) = entity.optional("client") {
                self.create_client(client)
            } else if let Some(database) = entity.optional("database") {
                self.create_database(database)
            } else {
                self.create_collection(entity.required("collection")?)
            }
        })
        .map(drop)
    }

    fn create_client(&mut self, client: &Value) -> Result<(), String> {
        let keys = [
            "id",
            "uriOptions",
            "observeLogMessages",
            "observeEvents",
            "useMultipleMongoses",
        ];
        let client = Object::new(client, "client", &keys)?;
        let id = client.read("id", json::text)?.to_owned();
        let started = Client::start(self.uri, self.runtime, &client)?;
        self.clients.insert(id, started);
        Ok(())
    }

    fn create_database(&mut self, database: &Value) -> Result<(), String> {
        let database = Object::new(database, "database", &["id", "client", "databaseName"])?;
        let text = |key| database.read(key, json::text).map(str::to_owned);
        let entity = Database {
            client: text("client")?,
            name: text("databaseName")?,
        };
        self.databases.insert(text("id")?, entity);
        Ok(())
    }

    fn create_collection(&mut self, collection: &Value) -> Result<(), String> {
        let keys = ["id", "database", "collectionName", "collectionOptions"];
        let collection = Object::new(collection, "collection", &keys)?;
        let text = |key| collection.read(key, json::text).map(str::to_owned);
        let read_preference = collection.read_optional("collectionOptions", |options| {
            let options = Object::new(options, "collectionOptions", &["readPreference"])?;
            options.read("readPreference", read_preference)
        })?;
        let entity = Collection {
            database: find(&self.databases, &text("database")?)?.clone(),
            name: text("collectionName")?,
            read_preference: read_preference.unwrap_or_default(),
        };
        self.collections.insert(text("id")?, entity);
        Ok(())
    }

    /// Performs an operation and compares its outcome.
    pub(super) async fn run(&mut self, operation: &Value) -> Result<(), String> {
        let keys = ["name", "object", "arguments", "expectError"];
        let operation = Object::new(operation, "operation", &keys)?;
        let name = operation.read("name", json::text)?;
        let object = operation.read("object", json::text)?;
        let nothing = Value::Object(serde_json::Map::new());
        let arguments = operation.optional("arguments").unwrap_or(&nothing);
        let outcome = match (name, object) {
            ("createEntities", "testRunner") => {
                let arguments = Object::new(arguments, "arguments", &["entities"])?;
                return self.create(arguments.required("entities")?);
            }
            ("waitForEvent", "testRunner") => {
                let arguments = Object::new(arguments, "arguments", &["client", "event", "count"])?;
                let client = arguments.read("client", json::text)?;
                let count = arguments.read("count", json::natural)?;
                let client = self.clients.get_mut(client);
                let client = client.ok_or("there is no such client")?;
                return client.wait_for(arguments.required("event")?, count).await;
            }
            ("close", client) => {
                find(&self.clients, client)?.close().await;
                return Ok(());
            }
            _ => {
                let request = self.request(name, object, arguments)?;
                let client = find(&self.clients, &request.client)?;
                client.run(&request.criteria, &request.command).await
            }
        };
        compare(operation.optional("expectError"), outcome)
            .map_err(|error| format!("{name}: {error}"))
    }

    fn request(&mut self, name: &str, object: &str, arguments: &Value) -> Result<Request, String> {
        self.operations += 1;
        let (client, criteria, command) = match name {
            "failPoint" => {
                let arguments = Object::new(arguments, "arguments", &["client", "failPoint"])?;
                let fail_point = arguments.read("failPoint", document)?;
                let client = arguments.read("client", json::text)?.to_owned();
                let command = command("configureFailPoint", fail_point, "admin");
                (client, Criteria::write(), command)
            }
            "clientBulkWrite" => {
                let arguments = Object::new(arguments, "arguments", &["models"])?;
                let writes = arguments.read("models", |models| json::list(models, insert_model))?;
                let (mut namespaces, mut operations) = (Vec::new(), Vec::new());
                for (index, (namespace, document)) in writes.into_iter().enumerate() {
                    namespaces.push(doc! { "ns": namespace.ok_or("a model has no namespace")? });
                    operations.push(doc! { "insert": index as i32, "document": document });
                }
                let command = doc! {
                    "bulkWrite": 1, "ops": operations, "nsInfo": namespaces, "$db": "admin",
                };
                (object.to_owned(), Criteria::write(), command)
            }
            _ => {
                let collection = find(&self.collections, object)?;
                let (criteria, command) = collection.request(name, arguments)?;
                (collection.database.client.clone(), criteria, command)
            }
        };
        let operation = command.keys().next().cloned().unwrap_or_default();
        Ok(Request {
            client,
            criteria: criteria
                .with_operation_name(operation)
                .with_operation_id(self.operations),
            command,
        })
    }

    /// Closes every client and returns their log messages.
    pub(super) async fn end(self) -> Logs {
        let mut logs = Logs::new();
        for (id, client) in self.clients {
            client.close().await;
            logs.insert(id, client.messages());
        }
        logs
    }
}

impl Collection {
    fn request(&self, name: &str, arguments: &Value) -> Result<(Criteria, Document), String> {
        let insert = |documents: Vec<Document>| {
            let body = doc! { "insert": &self.name, "documents": documents };
            (
                Criteria::write(),
                command("insert", body, &self.database.name),
            )
        };
        Ok(match name {
            "insertOne" => {
                let arguments = Object::new(arguments, "arguments", &["document"])?;
                insert(vec![arguments.read("document", document)?])
            }
            "bulkWrite" => {
                let arguments = Object::new(arguments, "arguments", &["requests"])?;
                let models = arguments.read("requests", |models| json::list(models, insert_model));
                insert(models?.into_iter().map(|(_, document)| document).collect())
            }
            "find" => {
                let arguments = Object::new(arguments, "arguments", &["filter"])?;
                let body =
                    doc! { "find": &self.name, "filter": arguments.read("filter", document)? };
                let criteria = Criteria::read(self.read_preference.clone());
                let criteria = criteria.map_err(|error| error.to_string())?;
                (criteria, command("find", body, &self.database.name))
            }
            _ => return Err(format!("the operation {name} is unknown")),
        })
    }
}

/// Builds the command `name` for `database`: `body` with the name in the first place.
fn command(name: &str, mut body: Document, database: &str) -> Document {
    let mut command = Document::new();
    command.insert(name, body.remove(name).unwrap_or(Bson::Int32(1)));
    command.extend(body);
    command.insert("$db", database);
    command
}

/// Reads the only write model of the files, an insert; returns its namespace and document.
fn insert_model(value: &Value) -> Result<(Option<String>, Document), String> {
    let model = Object::new(value, "model", &["insertOne"])?;
    let insert = Object::new(
        model.required("insertOne")?,
        "insertOne",
        &["namespace", "document"],
    )?;
    let namespace = insert.read_optional("namespace", json::text)?;
    let namespace = namespace.map(str::to_owned);
    Ok((namespace, insert.read("document", document)?))
}

fn document(value: &Value) -> Result<Document, String> {
    Document::from_reader(&*json::document(value)?).map_err(|error| error.to_string())
}

fn read_preference(value: &Value) -> Result<ReadPreference, String> {
    let preference = Object::new(value, "readPreference", &["mode", "tagSets"])?;
    let mode = preference.read("mode", |value| {
        let name = json::text(value)?;
        ReadMode::parse(name).ok_or_else(|| format!("{name} is not a read preference mode"))
    })?;
    let preference_with = ReadPreference::new(mode);
    let tag_sets = preference.read_optional("tagSets", |sets| json::list(sets, tag_set))?;
    Ok(match tag_sets {
        Some(tag_sets) => preference_with.with_tag_sets(tag_sets),
        None => preference_with,
    })
}

fn tag_set(value: &Value) -> Result<TagSet, String> {
    let tags = value.as_object().ok_or("a tag set is an object")?;
    let tags = tags.iter();
    tags.map(|(name, value)| Ok((name.as_str(), json::text(value)?)))
        .collect()
}

fn find<'m, T>(entities: &'m BTreeMap<String, T>, id: &str) -> Result<&'m T, String> {
    entities
        .get(id)
        .ok_or_else(|| format!("there is no entity {id}"))
}

/// Compares the outcome of an operation with the expected one.
fn compare(expected: Option<&Value>, outcome: Result<(), Failure>) -> Result<(), String> {
    let Some(expected) = expected else {
        return match outcome {
            Ok(()) => Ok(()),
            Err(Failure::Client(error) | Failure::Server(error)) => Err(error),
        };
    };
    let expected = Object::new(expected, "expectError", &["isClientError"])?;
    let by_client = expected.read("isClientError", json::boolean)?;
    match outcome {
        Err(Failure::Client(_)) if by_client => Ok(()),
        Err(Failure::Server(_)) if !by_client => Ok(()),
        Err(Failure::Client(error) | Failure::Server(error)) => {
            Err(format!("failed with an unexpected error: {error}"))
        }
        Ok(()) => Err("should fail".to_owned()),
    }
}
