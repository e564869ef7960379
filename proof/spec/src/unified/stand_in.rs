//! The parts of a driver that the client lacks and the tests implement.
//!
//! The client itself implements everything that the files expect of single commands: implicit
//! sessions, cluster time, transaction numbers, retries, the concerns and time limits of the
//! connection string, and write errors. This module implements the following parts. If a file [uses
//! any of these parts](stands_in), the verdict on the file depends on this module:
//!
//! - databases and collections with options. Their read or write concern is added to each command;
//!   their read preference and time limit are passed to the client.
//! - cursors. They send `getMore` and `killCursors`. Behind a load balancer, a cursor that a test
//!   iterates keeps its connection. A cursor that is read to its end at once does not keep its
//!   connection, because its commands may be retried.
//! - explicit sessions, which consist only of an id.
//! - transactions. A session has at most one, which keeps its connection and is never committed or
//!   aborted.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bson::{Binary, Bson, Document, doc, spec::BinarySubtype};
use sdam::client::PinnedConnection;
use sdam_core::{read_preference::ReadPreference, time::Instant, topology::TopologyType};
use sdam_pool::Pin;
use serde::Deserialize;
use serde_json::Value;

use super::{
    client::{Driver, Request},
    helper::{Kind, to_json},
    operation::Failure,
};
use crate::fields::{Preference, has_field};

/// The options of a database or a collection.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
pub(super) struct Options {
    read_concern: Option<Document>,
    read_preference: Option<Preference>,
    write_concern: Option<Document>,
    #[serde(rename = "timeoutMS")]
    timeout_ms: Option<u64>,
}

impl Options {
    /// Takes the options that are not set from `other`.
    pub(super) fn or(self, other: Self) -> Self {
        Self {
            read_concern: self.read_concern.or(other.read_concern),
            read_preference: self.read_preference.or(other.read_preference),
            write_concern: self.write_concern.or(other.write_concern),
            timeout_ms: self.timeout_ms.or(other.timeout_ms),
        }
    }

    /// Adds to a command the options that are valid for its kind.
    pub(super) fn apply(&self, request: &mut Request) {
        let concern = match request.kind {
            Kind::Read => ("readConcern", &self.read_concern),
            Kind::Write => ("writeConcern", &self.write_concern),
            Kind::List | Kind::Generic => ("", &None),
        };
        if let (name, Some(concern)) = concern {
            request.body.insert(name, concern.clone());
        }
        request.preference = match request.kind {
            Kind::Read => self.read_preference.clone().map(|preference| preference.0),
            // Only the primary is guaranteed to return a complete list.
            Kind::List => Some(ReadPreference::default()),
            _ => request.preference.take(),
        };
        request.timeout = self.timeout_ms.map(Duration::from_millis);
    }
}

/// An open cursor. Behind a load balancer, a cursor keeps its connection until it is closed.
pub(super) struct Cursor {
    driver: Arc<Driver>,
    database: String,
    collection: String,
    /// The id of the cursor, which is 0 after the server has closed the cursor.
    id: i64,
    /// Additional fields for `getMore`.
    get_more: Document,
    /// The cursor's time limit and deadline.
    timeout: Option<(Duration, Instant)>,
    /// The number of documents that a `find` may return in addition to those returned so far.
    left: Option<i32>,
    batch: VecDeque<Document>,
    /// The explicit session, if the command has one.
    session: Option<Bson>,
    connection: Option<PinnedConnection>,
}

impl Cursor {
    /// Runs a command that returns a cursor. `get_more` contains additional fields for `getMore`.
    /// `is_pinned` is true if the cursor keeps its connection behind a load balancer.
    pub(super) async fn open(
        driver: Arc<Driver>,
        request: Request,
        mut get_more: Document,
        is_pinned: bool,
    ) -> Result<Self, Failure> {
        let now = driver.runtime().backend.clock.now();
        let timeout = request.timeout.map(|timeout| (timeout, now + timeout));
        let description = Arc::clone(driver.topology().snapshot().description());
        let is_balanced = description.topology_type() == TopologyType::LoadBalanced;
        let mut connection =
            if is_pinned && is_balanced { Some(driver.pin(Pin::Cursor).await?) } else { None };
        let reply = driver.run_on(connection.as_mut(), &request).await?;
        let target = request.body.values().next();
        let collection = target.and_then(Bson::as_str).unwrap_or_default().to_owned();
        if request.kind != Kind::Generic
            && let Some(size) = request.body.get("batchSize")
        {
            get_more.insert("batchSize", size.clone());
        }
        let mut cursor = Self {
            driver,
            database: request.database,
            collection,
            id: 0,
            get_more,
            timeout,
            left: request.body.get_i32("limit").ok(),
            batch: VecDeque::new(),
            session: request.body.get("lsid").cloned(),
            connection,
        };
        cursor.take(&reply, "firstBatch");
        Ok(cursor)
    }

    /// Returns all documents. After an error, closes the cursor.
    pub(super) async fn collect(mut self) -> Result<Value, Failure> {
        let mut documents = Vec::new();
        loop {
            match self.next().await {
                Ok(Some(document)) => documents.push(to_json(Some(&document.into()))),
                Ok(None) => return Ok(documents.into()),
                Err(failure) => {
                    self.close(None).await;
                    return Err(failure);
                }
            }
        }
    }

    /// Returns the next document, or `None` after the last one.
    pub(super) async fn next(&mut self) -> Result<Option<Document>, Failure> {
        if self.batch.is_empty() && self.id != 0 {
            let mut body = doc! { "getMore": self.id, "collection": &self.collection };
            body.extend(self.get_more.clone());
            if let (Ok(size), Some(left)) = (self.get_more.get_i32("batchSize"), self.left) {
                body.insert("batchSize", left.min(size));
            }
            let now = self.driver.runtime().backend.clock.now();
            let timeout = self.timeout.map(|(_, deadline)| deadline.since(now));
            // The time limit must not become 0, because 0 means that there is no limit.
            let timeout = timeout.map(|left| left.max(Duration::from_millis(1)));
            let reply = self.run(body, timeout).await;
            if self.connection.is_some()
                && reply.as_ref().is_err_and(|it| it.error.reply().is_none())
            {
                // The cursor can be reached only on this connection, which is broken.
                self.id = 0;
            }
            self.take(&reply?, "nextBatch");
        }
        Ok(self.batch.pop_front())
    }

    /// Closes the cursor on the server and checks in its connection. The time limit is `timeout`,
    /// or the full time limit of the cursor if `timeout` is `None`.
    pub(super) async fn close(mut self, timeout: Option<Duration>) {
        if self.id != 0 {
            let body = doc! { "killCursors": &self.collection, "cursors": [self.id] };
            let timeout = timeout.or(self.timeout.map(|(timeout, _)| timeout));
            // Drivers ignore errors from `killCursors`.
            let _ = self.run(body, timeout).await;
        }
    }

    async fn run(
        &mut self,
        mut body: Document,
        timeout: Option<Duration>,
    ) -> Result<Document, Failure> {
        body.extend(self.session.iter().map(|session| ("lsid".to_owned(), session.clone())));
        let request = Request { timeout, ..Request::generic(&self.database, body) };
        let connection = self.connection.as_mut();
        self.driver.run_on(connection, &request).await
    }

    fn take(&mut self, reply: &Document, batch: &str) {
        let Ok(cursor) = reply.get_document("cursor") else {
            return;
        };
        self.id = cursor.get_i64("id").unwrap_or_default();
        let batch = cursor.get_array(batch).into_iter().flatten();
        let before = self.batch.len();
        self.batch.extend(batch.filter_map(|item| item.as_document().cloned()));
        self.left = self.left.map(|left| left - (self.batch.len() - before) as i32);
        if self.id == 0 {
            // An exhausted cursor no longer needs its connection.
            self.connection = None;
        }
    }
}

/// A session, which has at most one transaction. It keeps the connection of the transaction until
/// the session ends.
pub(super) struct Session {
    driver: Arc<Driver>,
    connection: Option<PinnedConnection>,
    is_in_transaction: bool,
}

impl Session {
    pub(super) fn new(driver: Arc<Driver>) -> Self {
        Self { driver, connection: None, is_in_transaction: false }
    }

    pub(super) fn start_transaction(&mut self) {
        self.is_in_transaction = true;
    }

    /// Runs a command of the session.
    pub(super) async fn run(&mut self, mut request: Request) -> Result<Document, Failure> {
        if self.is_in_transaction {
            request.body.extend(doc! { "txnNumber": 1_i64, "autocommit": false });
            if self.connection.is_none() {
                request.body.insert("startTransaction", true);
                self.connection = Some(self.driver.pin(Pin::Transaction).await?);
            }
        }
        let connection = self.connection.as_mut();
        self.driver.run_on(connection, &request).await
    }
}

/// Returns the id of the session named `name`.
pub(super) fn session_id(name: &str) -> Document {
    let mut bytes = [1; 16];
    for (byte, own) in bytes.iter_mut().zip(name.bytes()) {
        *byte = own;
    }
    let id = Binary { subtype: BinarySubtype::Uuid, bytes: bytes.to_vec() };
    doc! { "id": id }
}

/// Returns whether the verdict on `part`, the entities or the operations of a file, depends on this
/// module.
pub(super) fn stands_in(part: &Value) -> bool {
    has_field(part, &|name, value| match (name, value.as_str()) {
        ("batchSize", _) | ("session", Some(_)) => true,
        ("name", Some(call)) => CALLS.contains(&call),
        ("databaseOptions" | "collectionOptions", _) => {
            value.get("readConcern").or(value.get("writeConcern")).is_some()
        }
        _ => false,
    })
}

/// The operations that use this module.
const CALLS: [&str; 4] =
    ["createCommandCursor", "createFindCursor", "runCursorCommand", "startTransaction"];
