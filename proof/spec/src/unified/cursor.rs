//! Cursors and transactions, which require several commands.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use bson::{Bson, Document, doc};
use sdam::client::PinnedConnection;
use sdam_core::{time::Instant, topology::TopologyType};
use sdam_pool::Pin;
use serde_json::Value;

use super::{
    command::to_json,
    driver::{Driver, Request, session_id},
    helper::Kind,
    outcome::Failure,
};

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
    connection: Option<PinnedConnection>,
    is_broken: bool,
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
            connection,
            is_broken: false,
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
            // The limit must not become 0, because that would mean no limit.
            let timeout = timeout.map(|left| left.max(Duration::from_millis(1)));
            let reply = self.run(body, timeout).await;
            self.is_broken = reply.as_ref().is_err_and(|failure| !failure.is_server_error);
            self.take(&reply?, "nextBatch");
        }
        Ok(self.batch.pop_front())
    }

    /// Closes the cursor on the server and checks in its connection. The time limit is `timeout`,
    /// or the full time limit of the cursor if `timeout` is `None`.
    pub(super) async fn close(mut self, timeout: Option<Duration>) {
        if self.id != 0 && !self.is_broken {
            let body = doc! { "killCursors": &self.collection, "cursors": [self.id] };
            let timeout = timeout.or(self.timeout.map(|(timeout, _)| timeout));
            // Drivers ignore errors from `killCursors`.
            let _ = self.run(body, timeout).await;
        }
    }

    async fn run(
        &mut self,
        body: Document,
        timeout: Option<Duration>,
    ) -> Result<Document, Failure> {
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
    id: Document,
    connection: Option<PinnedConnection>,
    is_in_transaction: bool,
}

impl Session {
    pub(super) fn new(driver: Arc<Driver>, name: &str) -> Self {
        Self { driver, id: session_id(name), connection: None, is_in_transaction: false }
    }

    pub(super) fn start_transaction(&mut self) {
        self.is_in_transaction = true;
    }

    /// Runs a command in the session.
    pub(super) async fn run(&mut self, mut request: Request) -> Result<Document, Failure> {
        request.body.insert("lsid", self.id.clone());
        if self.is_in_transaction {
            let number = doc! { "txnNumber": 1_i64, "autocommit": false };
            request.body.extend(number);
            request.kind = Kind::Generic;
            if self.connection.is_none() {
                request.body.insert("startTransaction", true);
                self.connection = Some(self.driver.pin(Pin::Transaction).await?);
            }
        }
        let connection = self.connection.as_mut();
        self.driver.run_on(connection, &request).await
    }
}
