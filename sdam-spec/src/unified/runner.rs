//! The entities of a running test, and the execution of operations on them.

use std::collections::BTreeMap;

use bson::{Document, doc};
use sdam_select::Criteria;
use sdam_transport::Runtime;

use super::{
    client::{Client, Failure},
    entity::{CollectionEntity, DatabaseEntity, Entity},
    log::Logs,
    operation::{Call, ClientWriteModel, Operation, WriteModel},
};

/// The entities that a test has created so far.
pub(super) struct Runner<'w> {
    uri: &'w str,
    runtime: &'w Runtime,
    clients: BTreeMap<String, Client>,
    databases: BTreeMap<String, DatabaseEntity>,
    collections: BTreeMap<String, CollectionEntity>,
    /// The number of commands so far.
    commands: i64,
}

/// A command, with the id of its client and the criteria for its server.
type Request = (String, Criteria, Document);

impl<'w> Runner<'w> {
    /// Creates a runner without entities for the deployment at `uri`.
    pub(super) fn new(uri: &'w str, runtime: &'w Runtime) -> Self {
        Self {
            uri,
            runtime,
            clients: BTreeMap::new(),
            databases: BTreeMap::new(),
            collections: BTreeMap::new(),
            commands: 0,
        }
    }

    /// Creates entities.
    pub(super) fn create(&mut self, entities: &[Entity]) -> Result<(), String> {
        for entity in entities {
            match entity {
                Entity::Client(entity) => {
                    let client = Client::start(self.uri, self.runtime, entity)?;
                    self.clients.insert(entity.id.clone(), client);
                }
                Entity::Collection(entity) => {
                    self.collections.insert(entity.id.clone(), entity.clone());
                }
                Entity::Database(entity) => {
                    self.databases.insert(entity.id.clone(), entity.clone());
                }
            }
        }
        Ok(())
    }

    /// Performs an operation and compares its outcome.
    pub(super) async fn run(&mut self, operation: &Operation) -> Result<(), String> {
        let outcome = self.perform(operation).await;
        outcome
            .and_then(|outcome| operation.compare(outcome))
            .map_err(|error| format!("{}: {error}", operation.name))
    }

    /// Performs an operation; the outer error is one of the test.
    async fn perform(&mut self, operation: &Operation) -> Result<Result<(), Failure>, String> {
        let object = &operation.object;
        let (client, criteria, command) = match &operation.call {
            Call::CreateEntities { entities } => return self.create(entities).map(Ok),
            Call::WaitForEvent {
                client,
                event,
                count,
            } => {
                let client = self.clients.get_mut(client);
                let client = client.ok_or("there is no such client")?;
                return client.wait_for(event, *count).await.map(Ok);
            }
            Call::Close {} => {
                find(&self.clients, object)?.close().await;
                return Ok(Ok(()));
            }
            Call::FailPoint { client, fail_point } => {
                let mut command = fail_point.clone();
                command.insert("$db", "admin");
                (client.clone(), Criteria::write(), command)
            }
            Call::ClientBulkWrite { models } => {
                (object.clone(), Criteria::write(), bulk_write(models))
            }
            Call::BulkWrite { requests } => {
                let documents = requests.iter();
                self.insert(
                    object,
                    documents.map(|WriteModel::InsertOne { document }| document),
                )?
            }
            Call::InsertOne { document } => self.insert(object, [document])?,
            Call::Find { filter } => self.find(object, filter)?,
        };
        self.commands += 1;
        let name = command.keys().next().cloned().unwrap_or_default();
        let criteria = criteria
            .with_operation_name(name)
            .with_operation_id(self.commands);
        Ok(find(&self.clients, &client)?.run(&criteria, &command).await)
    }

    fn insert<'d>(
        &self,
        collection: &str,
        documents: impl IntoIterator<Item = &'d Document>,
    ) -> Result<Request, String> {
        let (collection, database) = self.namespace(collection)?;
        let documents: Vec<_> = documents.into_iter().cloned().collect();
        let command = doc! {
            "insert": &collection.collection_name, "documents": documents,
            "$db": &database.database_name,
        };
        Ok((database.client.clone(), Criteria::write(), command))
    }

    fn find(&self, collection: &str, filter: &Document) -> Result<Request, String> {
        let (collection, database) = self.namespace(collection)?;
        let options = collection.collection_options.as_ref();
        let preference = options.map(|options| options.read_preference.0.clone());
        let criteria = Criteria::read(preference.unwrap_or_default());
        let command = doc! {
            "find": &collection.collection_name, "filter": filter,
            "$db": &database.database_name,
        };
        let criteria = criteria.map_err(|error| error.to_string())?;
        Ok((database.client.clone(), criteria, command))
    }

    /// Returns a collection and its database.
    fn namespace(&self, collection: &str) -> Result<(&CollectionEntity, &DatabaseEntity), String> {
        let collection = find(&self.collections, collection)?;
        Ok((collection, find(&self.databases, &collection.database)?))
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

fn bulk_write(models: &[ClientWriteModel]) -> Document {
    let (mut namespaces, mut operations) = (Vec::new(), Vec::new());
    for (index, model) in models.iter().enumerate() {
        let ClientWriteModel::InsertOne {
            namespace,
            document,
        } = model;
        namespaces.push(doc! { "ns": namespace });
        operations.push(doc! { "insert": index as i32, "document": document });
    }
    doc! { "bulkWrite": 1, "ops": operations, "nsInfo": namespaces, "$db": "admin" }
}

fn find<'m, T>(entities: &'m BTreeMap<String, T>, id: &str) -> Result<&'m T, String> {
    entities
        .get(id)
        .ok_or_else(|| format!("there is no entity {id}"))
}
