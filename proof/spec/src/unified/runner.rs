//! Creates the entities of a running test, and performs its operations on them.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use futures::{FutureExt, future::BoxFuture};
use sdam_core::{address::ServerAddress, topology::TopologyDescription};
use serde_json::Value;

use super::{
    client::{Client, Driver, Published, Request},
    format::{CollectionEntity, DatabaseEntity, Entity},
    helper::{Answer, Method, Scope, to_json},
    operation::{Call, EntityCall, Failure, Operation, RunnerCall},
    stand_in::{Cursor, Options, Session, session_id},
};
use crate::host::{Target, Thread};

/// The time limit for threads and for the election of a primary, as set by the test format.
const TIMEOUT: Duration = Duration::from_secs(10);

/// The result of an operation. An error at the outer level means that the test itself failed.
type Outcome = Result<Result<Value, Failure>, String>;

/// The entities that a test has created so far.
pub(super) struct Runner<'t> {
    target: &'t Target,
    clients: BTreeMap<String, Client>,
    databases: BTreeMap<String, DatabaseEntity>,
    collections: BTreeMap<String, CollectionEntity>,
    cursors: BTreeMap<String, Cursor>,
    sessions: BTreeMap<String, Session>,
    threads: BTreeMap<String, Thread<String>>,
    topologies: BTreeMap<String, Arc<TopologyDescription>>,
}

impl<'t> Runner<'t> {
    /// Creates a runner without entities for the deployment at `target`.
    pub(super) fn new(target: &'t Target) -> Self {
        Self {
            target,
            clients: BTreeMap::new(),
            databases: BTreeMap::new(),
            collections: BTreeMap::new(),
            cursors: BTreeMap::new(),
            sessions: BTreeMap::new(),
            threads: BTreeMap::new(),
            topologies: BTreeMap::new(),
        }
    }

    pub(super) async fn create(&mut self, entities: &[Entity]) -> Result<(), String> {
        for entity in entities {
            match entity {
                Entity::Bucket(_) => {}
                Entity::Client(entity) => {
                    let uri = self.target.uri(entity.use_multiple_mongoses);
                    let mut client = Client::start(uri, self.target.runtime(), entity)?;
                    client.fill_pools(entity).await?;
                    self.clients.insert(entity.id.clone(), client);
                }
                Entity::Collection(entity) => {
                    self.collections.insert(entity.id.clone(), entity.clone());
                }
                Entity::Database(entity) => {
                    self.databases.insert(entity.id.clone(), entity.clone());
                }
                Entity::Session { id, client } => {
                    let driver = find(&self.clients, client)?.driver();
                    self.sessions.insert(id.clone(), Session::new(driver));
                }
                Entity::Thread { id } => {
                    let thread = Thread::start(self.target.runtime());
                    self.threads.insert(id.clone(), thread);
                }
            }
        }
        Ok(())
    }

    /// Performs an operation, and compares its outcome with the expected one.
    pub(super) async fn run(&mut self, operation: &Operation) -> Result<(), String> {
        let outcome = match &operation.call {
            Call::Runner(call) => self.perform(call).await.and(Ok(Ok(Value::Null))),
            Call::Entity(call) => self.perform_on(operation, call).await,
            Call::Method(method) => self.call(&operation.object, method).await,
        };
        outcome
            .and_then(|outcome| operation.compare(outcome))
            .map_err(|error| format!("{}: {error}", operation.name))
    }

    async fn call(&mut self, object: &str, method: &Method) -> Outcome {
        let single = method.session.as_ref().filter(|_| method.answer != Answer::Documents);
        let Some(session) = single else {
            return Ok(self.prepare(object, method)?.await);
        };
        let (_, requests) = self.requests(object, method)?;
        let session = find_mut(&mut self.sessions, session)?;
        let mut replies = Vec::new();
        for request in requests {
            match session.run(request).await {
                Ok(reply) => replies.push(reply),
                Err(failure) => return Ok(Err(failure)),
            }
        }
        Ok(Ok(method.result(&replies)))
    }

    async fn perform_on(&mut self, operation: &Operation, call: &EntityCall) -> Outcome {
        let object = &operation.object;
        match call {
            EntityCall::AppendMetadata { driver_info_options } => {
                find(&self.clients, object)?.append_metadata(driver_info_options)?;
            }
            EntityCall::Close { timeout_ms } => match self.cursors.remove(object) {
                Some(cursor) => cursor.close(timeout_ms.map(Duration::from_millis)).await,
                None => find(&self.clients, object)?.close().await,
            },
            EntityCall::CreateFindCursor(arguments)
            | EntityCall::CreateCommandCursor(arguments) => {
                let is_find = matches!(call, EntityCall::CreateFindCursor(_));
                let command = if is_find { "find" } else { "runCursorCommand" };
                let method = Method::read(command, arguments.clone())?;
                let (driver, requests) = self.requests(object, &method)?;
                let request = requests.into_iter().next().ok_or("no command")?;
                match Cursor::open(driver, request, method.get_more, true).await {
                    Ok(cursor) => {
                        let id = operation.save_result_as_entity.clone();
                        self.cursors.insert(id.unwrap_or_default(), cursor);
                    }
                    Err(failure) => return Ok(Err(failure)),
                }
            }
            EntityCall::IterateUntilDocumentOrError {} => {
                let next = find_mut(&mut self.cursors, object)?.next().await;
                return match next {
                    Ok(Some(document)) => Ok(Ok(to_json(Some(&document.into())))),
                    Ok(None) => Err("the cursor has no more documents".to_owned()),
                    Err(failure) => Ok(Err(failure)),
                };
            }
            EntityCall::StartTransaction {} => {
                find_mut(&mut self.sessions, object)?.start_transaction();
            }
        }
        Ok(Ok(Value::Null))
    }

    async fn perform(&mut self, call: &RunnerCall) -> Result<(), String> {
        match call {
            RunnerCall::AssertDifferentLsidOnLastTwoCommands { client } => {
                find_mut(&mut self.clients, client)?.assert_sessions(false).await
            }
            RunnerCall::AssertSameLsidOnLastTwoCommands { client } => {
                find_mut(&mut self.clients, client)?.assert_sessions(true).await
            }
            RunnerCall::AssertEventCount { client, event, count } => {
                let client = find_mut(&mut self.clients, client)?;
                client.assert_count(event, *count).await
            }
            RunnerCall::WaitForEvent { client, event, count } => {
                let client = find_mut(&mut self.clients, client)?;
                client.wait_for(event, *count).await
            }
            RunnerCall::AssertNumberConnectionsCheckedOut { client, connections } => {
                find(&self.clients, client)?.assert_checked_out(*connections)
            }
            RunnerCall::CreateEntities { entities } => self.create(entities).await,
            RunnerCall::FailPoint { client, fail_point } => {
                let request = Request::generic("admin", fail_point.clone());
                let driver = find(&self.clients, client)?.driver();
                let reply = driver.run(&request).await;
                reply.map(drop).map_err(|failure| failure.to_string())
            }
            RunnerCall::RunOnThread { thread, operation } => {
                let Call::Method(method) = &operation.call else {
                    return Err(format!("{} does not run on threads", operation.name));
                };
                let job = self.prepare(&operation.object, method)?;
                let operation = Arc::clone(operation);
                let job = async move {
                    let outcome = operation.compare(job.await);
                    outcome.map_err(|error| format!("{}: {error}", operation.name))
                };
                find(&self.threads, thread)?.run(job.boxed())
            }
            RunnerCall::WaitForThread { thread } => {
                let ended = self.threads.remove(thread);
                let ended = ended.ok_or_else(|| format!("there is no thread {thread}"))?;
                let clock = &self.target.runtime().backend.clock;
                ended.join(clock, TIMEOUT).await?
            }
            RunnerCall::Wait { ms } => {
                let clock = &self.target.runtime().backend.clock;
                clock.sleep_until(clock.now() + Duration::from_millis(*ms)).await;
                Ok(())
            }
            call => self.perform_on_topology(call).await,
        }
    }

    async fn perform_on_topology(&mut self, call: &RunnerCall) -> Result<(), String> {
        match call {
            RunnerCall::RecordTopologyDescription { client, id } => {
                let driver = find(&self.clients, client)?.driver();
                let description = Arc::clone(driver.topology().snapshot().description());
                self.topologies.insert(id.clone(), description);
                Ok(())
            }
            RunnerCall::AssertTopologyType { topology_description, topology_type } => {
                let description = find(&self.topologies, topology_description)?;
                let actual = description.topology_type().as_str();
                if actual == topology_type {
                    return Ok(());
                }
                Err(format!("the type is {actual}, expected {topology_type}"))
            }
            RunnerCall::WaitForPrimaryChange { client, prior_topology_description, timeout_ms } => {
                let prior = find(&self.topologies, prior_topology_description)?;
                let prior = primary(prior);
                let driver = find(&self.clients, client)?.driver();
                let limit = timeout_ms.map_or(TIMEOUT, Duration::from_millis);
                let is_changed = |description: &TopologyDescription| {
                    let new = primary(description);
                    (new.is_some() && new != prior).then_some(())
                };
                let waiting = driver
                    .topology()
                    .wait_for(|snapshot| is_changed(snapshot.description()), limit);
                waiting.await.ok_or_else(|| "the primary has not changed in time".to_owned())
            }
            call => Err(format!("{call:?} is not an operation on topologies")),
        }
    }

    /// Returns a future that calls a method on `object`.
    fn prepare(
        &self,
        object: &str,
        method: &Method,
    ) -> Result<BoxFuture<'static, Result<Value, Failure>>, String> {
        let (driver, requests) = self.requests(object, method)?;
        let method = method.clone();
        let execution = async move {
            let mut replies = Vec::new();
            for request in requests {
                if method.answer == Answer::Documents {
                    let cursor = Cursor::open(driver, request, method.get_more, false);
                    return cursor.await?.collect().await;
                }
                match driver.run(&request).await {
                    Ok(reply) => replies.push(reply),
                    Err(mut failure) => {
                        failure.result = method.result(&replies);
                        return Err(failure);
                    }
                }
            }
            Ok(method.result(&replies))
        };
        Ok(execution.boxed())
    }

    /// Returns the requests for a method call on `object`, which is a collection, a database or a
    /// client.
    fn requests(
        &self,
        object: &str,
        method: &Method,
    ) -> Result<(Arc<Driver>, Vec<Request>), String> {
        let collection = self.collections.get(object);
        let database = match collection {
            Some(collection) => Some(find(&self.databases, &collection.database)?),
            None => self.databases.get(object),
        };
        let scope = match (collection, database) {
            (Some(collection), _) => Scope::Collection(&collection.collection_name),
            (None, Some(_)) => Scope::Database,
            (None, None) => Scope::Client,
        };
        let client = database.map_or(object, |database| &database.client);
        let mut options = database.map_or_else(Options::default, |it| it.database_options.clone());
        if let Some(collection) = collection {
            options = collection.collection_options.clone().or(options);
        }
        if let Some(session) = &method.session {
            find(&self.sessions, session)?;
        }
        let requests = method.steps(scope).into_iter().map(|step| {
            let mut request = Request::generic("admin", step.body);
            if let Some(database) = database {
                request.database.clone_from(&database.database_name);
            }
            request.kind = step.kind;
            request.preference = method.preference.clone().map(|preference| preference.0);
            options.apply(&mut request);
            request.timeout = method.timeout.or(request.timeout);
            if let Some(session) = &method.session {
                request.body.insert("lsid", session_id(session));
            }
            request
        });
        Ok((find(&self.clients, client)?.driver(), requests.collect()))
    }

    /// Closes all clients, and returns everything that they published before they were closed.
    pub(super) async fn end(self) -> BTreeMap<String, Published> {
        let mut published = BTreeMap::new();
        for (id, client) in self.clients {
            published.insert(id, client.end().await);
        }
        published
    }
}

fn primary(description: &TopologyDescription) -> Option<ServerAddress> {
    description.primary().map(|server| server.address.clone())
}

fn find<'m, T>(entities: &'m BTreeMap<String, T>, id: &str) -> Result<&'m T, String> {
    entities.get(id).ok_or_else(|| format!("there is no entity {id}"))
}

fn find_mut<'m, T>(entities: &'m mut BTreeMap<String, T>, id: &str) -> Result<&'m mut T, String> {
    entities.get_mut(id).ok_or_else(|| format!("there is no entity {id}"))
}
