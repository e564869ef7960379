//! The connections to a server process, and the requests on them.

mod admin;
mod arguments;
mod command;
mod data;
mod hello;
#[cfg(feature = "auth")]
mod sasl;
mod write;

use std::time::Duration;

use bson::{Document, doc};
use sdam_transport::wire::{Header, WireMessage};

pub(super) use self::{data::Cursors, write::Numbered};
use super::Timer;
use crate::{
    Cluster, ConnectionId, MemberId, Output,
    deployment::Role,
    fail_command::{BadReply, FailCommand},
    member::{Kind, Member},
    message::{
        CommandError, CommandResult, HANG_UP, INTERRUPTED_AT_SHUTDOWN, INTERRUPTED_BY_STATE_CHANGE,
        MAX_TIME_MS_EXPIRED, Request, number, refuse,
    },
    version::ServerVersion,
};

/// The maximum size of a message (`maxMessageSizeBytes`).
const MAX_MESSAGE_SIZE: usize = 48_000_000;

/// One client connection, as seen by its server.
#[derive(Debug, Default)]
pub(crate) struct Connection {
    /// `connectionId`.
    number: i32,
    /// Bytes that have arrived but are not parsed yet.
    inbound: Vec<u8>,
    /// Messages that are held back because clients are cut off.
    held: Vec<Vec<u8>>,
    task: Task,
    /// True if the client sent `helloOk: true`.
    hello_ok: bool,
    /// True if the client has sent its first hello.
    greeted: bool,
    app_name: Option<String>,
    #[cfg(feature = "auth")]
    sasl: sasl::Sasl,
}

/// The request in progress on a connection. Requests are served one at a time.
#[derive(Debug, Default)]
enum Task {
    #[default]
    Idle,
    /// An awaitable hello that waits for a topology change or its deadline.
    Hello(Request),
    /// The request is blocked by a fail point.
    Blocked(Request, FailCommand),
}

impl Connection {
    pub(crate) fn new(number: i32) -> Self {
        Self { number, ..Self::default() }
    }

    /// Takes one complete message from the received bytes.
    fn next_message(&mut self) -> Result<Option<WireMessage>, Violation> {
        let Some(header) = self.inbound.first_chunk() else {
            return Ok(None);
        };
        let length = Header::decode(header).map_err(|_| Violation)?.message_length();
        if length > MAX_MESSAGE_SIZE {
            return Err(Violation);
        }
        if self.inbound.len() < length {
            return Ok(None);
        }
        let rest = self.inbound.split_off(length);
        let bytes = std::mem::replace(&mut self.inbound, rest);
        WireMessage::decode(bytes).map(Some).map_err(|_| Violation)
    }

    /// Returns whether the connection is streaming replies.
    fn is_streaming(&self) -> bool {
        match &self.task {
            Task::Idle => false,
            Task::Hello(request) | Task::Blocked(request, _) => {
                request.is_hello() && request.exhaust_allowed()
            }
        }
    }
}

/// Removes the condition `sleep(n) || true` from the filter of a find or of the first update.
/// Returns a fail point that blocks the command for `n` milliseconds or, if `maxTimeMS` is shorter,
/// makes it fail after that time (M-48).
fn sleep(request: &mut Request) -> Option<FailCommand> {
    let body = &mut request.body;
    let filter = if body.contains_key("updates") {
        let updates = body.get_array_mut("updates").ok()?;
        updates.first_mut()?.as_document_mut()?.get_document_mut("q")
    } else {
        body.get_document_mut("filter")
    };
    let filter = filter.ok()?;
    let code = filter.get_str("$where").ok()?;
    let millis = code.strip_prefix("sleep(")?.strip_suffix(") || true")?;
    let millis = millis.parse().ok()?;
    filter.remove("$where");
    let limit = number(body, "maxTimeMS").and_then(|limit| u64::try_from(limit).ok());
    let limit = limit.filter(|limit| (1..millis).contains(limit));
    Some(FailCommand {
        block: Some(Duration::from_millis(limit.unwrap_or(millis))),
        error_code: limit.map(|_| MAX_TIME_MS_EXPIRED),
        ..FailCommand::default()
    })
}

/// Encodes a document. This cannot fail, because the simulation builds no keys that contain a NUL.
fn encoded(document: &Document) -> Vec<u8> {
    document.to_vec().unwrap_or_default()
}

/// A protocol violation by the client. It makes the server close the connection.
struct Violation;

impl Cluster {
    pub(crate) fn take_bytes(&mut self, id: ConnectionId, bytes: &[u8]) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        connection.inbound.extend_from_slice(bytes);
        self.serve(id);
    }

    /// Serves the received requests, one after another.
    fn serve(&mut self, id: ConnectionId) {
        while let Some(connection) = self.connections.get_mut(&id) {
            if !self.members[id.member.index()].answers() {
                return;
            }
            if connection.is_streaming() && !connection.inbound.is_empty() {
                // A request that arrives while the server streams replies is a protocol violation
                // (M-26).
                return self.close(id);
            }
            if !matches!(connection.task, Task::Idle) {
                return;
            }
            let message = match connection.next_message() {
                Ok(None) => return,
                Ok(Some(message)) => Request::read(&message),
                Err(Violation) => None,
            };
            let Some(request) = message else {
                return self.close(id);
            };
            self.begin(id, request);
        }
    }

    /// Begins serving `request`.
    fn begin(&mut self, id: ConnectionId, mut request: Request) {
        let Some(connection) = self.connections.get_mut(&id) else {
            return;
        };
        if request.is_hello() {
            // The fail point may be restricted to one application, whose name is in the first
            // hello.
            connection.learn_app_name(&request.body);
        }
        let Member { version, process, .. } = &mut self.members[id.member.index()];
        let app_name = connection.app_name.as_deref();
        // A command that the server does not know cannot trigger the fail point.
        let known = version.supports_hello() || !request.is_modern_hello();
        let struck = known
            && process
                .fail_command
                .as_mut()
                .is_some_and(|point| point.triggers(&request, app_name));
        process.fail_point_hits += i32::from(struck);
        let fail = process.fail_command.clone().filter(|_| struck);
        let Some(fail) = fail.or_else(|| sleep(&mut request)) else {
            return self.perform(id, request, None);
        };
        if let Some(block) = fail.block {
            connection.task = Task::Blocked(request, fail);
            self.timers.set(Timer::Connection(id), self.now + block);
        } else {
            self.perform(id, request, Some(&fail));
        }
    }

    /// Serves `request`. `fail` is the fail point that the request triggered, if any.
    fn perform(&mut self, id: ConnectionId, request: Request, fail: Option<&FailCommand>) {
        let member = id.member;
        if fail.is_some_and(|fail| fail.close_connection) {
            return self.close(id);
        }
        if let Some(code) = fail.and_then(|fail| fail.error_code) {
            let mut error = self.injected(member, code);
            if self.member(member).version.adds_error_labels() {
                error.labels = fail.and_then(|fail| fail.error_labels.clone());
            }
            return self.answer(id, &request, Err(error));
        }
        if request.is_hello() {
            return self.hello(id, request);
        }
        let mut result = self.run(id, member, &request);
        if result.as_ref().is_err_and(|error| error.code == HANG_UP) {
            return self.close(id);
        }
        if let (Ok(reply), Some(fail)) = (&mut result, fail) {
            self.add_write_concern_error(member, &request, reply, fail);
        }
        match fail.and_then(|fail| fail.bad_reply) {
            Some(bad) => self.misreply(id, request, result, bad),
            None => self.answer(id, &request, result),
        }
    }

    /// Sends an invalid reply to `request`.
    fn misreply(
        &mut self,
        id: ConnectionId,
        mut request: Request,
        result: CommandResult,
        bad: BadReply,
    ) {
        let mut document = self.reply_document(id.member, &request, result);
        if bad == BadReply::NoOk {
            document.remove("ok");
        }
        let mut body = encoded(&document);
        match bad {
            BadReply::Stray => {
                request.id -= 1;
                self.send(id, &request, false, &body);
                request.id += 1;
            }
            BadReply::WrongResponseTo => request.id += 1,
            // Sets the type of a field to an unknown type. The frame of the document stays valid.
            BadReply::Malformed => body[size_of::<i32>()] = 0x77,
            BadReply::NoOk | BadReply::MoreToCome => {}
        }
        self.send(id, &request, bad == BadReply::MoreToCome, &body);
    }

    /// Adds a fail point's write concern error, with its labels, to a reply.
    fn add_write_concern_error(
        &self,
        member: MemberId,
        request: &Request,
        reply: &mut Document,
        fail: &FailCommand,
    ) {
        let Some(code) = fail.write_concern_error else {
            return;
        };
        let error = CommandError::new(code, "");
        let labels = match &fail.error_labels {
            Some(labels) => labels.clone(),
            None if error.is_retryable() && request.body.contains_key("txnNumber") => {
                vec!["RetryableWriteError".to_owned()]
            }
            None => Vec::new(),
        };
        if self.member(member).version.adds_error_labels() && !labels.is_empty() {
            reply.insert("errorLabels", labels);
        }
        let mut error = doc! { "code": code };
        let message = fail.write_concern_message.clone();
        error.extend(message.map(|message| ("errmsg".to_owned(), message.into())));
        reply.insert("writeConcernError", error);
    }

    /// Returns the error that a fail point on `member` injects.
    ///
    /// mongod includes its topology version in injected NotWritablePrimary and node-is-recovering
    /// errors. A client that already knows this version therefore treats them as stale. Injected
    /// shutdown errors, and errors from servers outside a replica set, contain no topology version.
    fn injected(&self, member: MemberId, code: i32) -> CommandError {
        let own = self.member(member);
        let word = if own.version >= ServerVersion::V6_0.patch(0) { "via" } else { "due to" };
        if code == MAX_TIME_MS_EXPIRED {
            return CommandError::new(code, "operation exceeded time limit");
        }
        CommandError {
            versioned: !matches!(code, 91 | 10058 | 11600) && own.replica().is_some(),
            ..CommandError::new(code, format!("Failing command {word} 'failCommand' failpoint"))
        }
    }

    /// Sends the only or last reply to `request`.
    fn answer(&mut self, id: ConnectionId, request: &Request, result: CommandResult) {
        let document = self.reply_document(id.member, request, result);
        self.send(id, request, false, &encoded(&document));
    }

    /// Returns the complete reply from `member`, which consists of the command's own fields and the
    /// fields that all replies have in common.
    fn reply_document(
        &self,
        member: MemberId,
        request: &Request,
        result: CommandResult,
    ) -> Document {
        let own = self.member(member);
        let mut reply = match result {
            Ok(mut reply) => {
                reply.insert("ok", 1.0);
                reply
            }
            Err(error) => {
                let retried = request.body.contains_key("txnNumber");
                let labels: &[&str] =
                    if retried && error.is_retryable() && own.version.adds_error_labels() {
                        &["RetryableWriteError"]
                    } else {
                        &[]
                    };
                let mut reply = Document::new();
                // State change errors include the server's topology version (M-2).
                if error.is_state_change() && error.versioned && own.version.supports_streaming() {
                    reply.insert("topologyVersion", hello::topology_version(own));
                }
                reply.extend(error.document(own.version, labels));
                if error.is_overload() {
                    let millis = own.process.base_backoff;
                    reply.extend(millis.map(|millis| ("baseBackoffMS".to_owned(), millis.into())));
                }
                reply
            }
        };
        if let Some(time) = self.cluster_time(member) {
            reply.insert(
                "$clusterTime",
                doc! {
                    "clusterTime": time,
                    "signature": { "hash": hello::unsigned(), "keyId": 0_i64 },
                },
            );
            reply.insert("operationTime", time);
        }
        reply
    }

    /// Sends a reply. Returns the reply's request id, or `None` if nothing was sent.
    fn send(
        &mut self,
        id: ConnectionId,
        request: &Request,
        more_to_come: bool,
        body: &[u8],
    ) -> Option<i32> {
        let connection = self.connections.get_mut(&id)?;
        let member = &mut self.members[id.member.index()];
        let request_id = member.process.request_ids.wrapping_add(1);
        member.process.request_ids = request_id;
        let Ok(message) = request.reply(request_id, more_to_come, body) else {
            self.close(id);
            return None;
        };
        let bytes = message?.into_bytes();
        if member.cut_off {
            connection.held.push(bytes);
        } else {
            self.outputs.push(Output::Send { connection: id, bytes });
        }
        Some(request_id)
    }

    fn close(&mut self, id: ConnectionId) {
        self.closed(id);
        self.outputs.push(Output::Close { connection: id });
    }

    pub(crate) fn close_connections(&mut self, member: MemberId) {
        for id in self.connections_of(member) {
            self.close(id);
        }
    }

    fn connections_of(&self, member: MemberId) -> Vec<ConnectionId> {
        self.connections.keys().copied().filter(|id| id.member == member).collect()
    }

    /// Handles the deadline of the request in progress on the connection.
    pub(crate) fn connection_due(&mut self, id: ConnectionId) {
        match self.take_task_if(id, |_| true) {
            Some(Task::Hello(request)) => self.answer_hello(id, request),
            Some(Task::Blocked(request, fail)) => self.perform(id, request, Some(&fail)),
            Some(Task::Idle) | None => {}
        }
        self.serve(id);
    }

    /// Takes the request in progress from the connection if `is_one` returns true for it.
    fn take_task_if(&mut self, id: ConnectionId, is_one: impl Fn(&Task) -> bool) -> Option<Task> {
        let task = &mut self.connections.get_mut(&id)?.task;
        if !is_one(task) {
            return None;
        }
        self.timers.cancel(Timer::Connection(id));
        Some(std::mem::take(task))
    }

    /// Answers the hellos that are waiting for a newer topology version of `member`. If the member
    /// has stepped down, also interrupts its writes.
    pub(crate) fn topology_changed(&mut self, member: MemberId, stepped_down: bool) {
        for id in self.connections_of(member) {
            let Some(connection) = self.connections.get(&id) else {
                continue;
            };
            match &connection.task {
                Task::Hello(_) => self.connection_due(id),
                Task::Blocked(request, _) if stepped_down && request.is_write() => {
                    self.interrupt(id, INTERRUPTED_BY_STATE_CHANGE);
                }
                Task::Blocked(..) | Task::Idle => {}
            }
        }
    }

    /// Fails the blocked commands of `member`, whose process is about to end.
    pub(crate) fn interrupt_all(&mut self, member: MemberId) {
        for id in self.connections_of(member) {
            self.interrupt(id, INTERRUPTED_AT_SHUTDOWN);
        }
    }

    fn interrupt(&mut self, id: ConnectionId, code: i32) {
        if let Some(Task::Blocked(request, _)) =
            self.take_task_if(id, |task| matches!(task, Task::Blocked(..)))
        {
            self.answer(id, &request, refuse(code, "operation was interrupted"));
        }
    }

    /// Resumes the traffic between `member` and its clients.
    pub(crate) fn resume_clients(&mut self, member: MemberId) {
        if !self.member(member).answers() {
            return;
        }
        for id in self.connections_of(member) {
            if let Some(connection) = self.connections.get_mut(&id) {
                let held = std::mem::take(&mut connection.held);
                self.outputs
                    .extend(held.into_iter().map(|bytes| Output::Send { connection: id, bytes }));
            }
            self.serve(id);
        }
    }

    /// Returns the cluster time, which every reply from a replica set or sharded cluster includes.
    fn cluster_time(&self, member: MemberId) -> Option<bson::Timestamp> {
        let (time, increment) = match &self.member(member).kind {
            Kind::Mongos => {
                let seconds = self.date().div_euclid(1000);
                (u32::try_from(seconds).unwrap_or(0), 1)
            }
            Kind::Replica(replica) if matches!(replica.role, Role::Primary | Role::Secondary) => {
                let last = replica.oplog.last().time;
                (last.seconds, last.increment)
            }
            Kind::Standalone | Kind::Replica(_) => return None,
        };
        Some(bson::Timestamp { time, increment })
    }
}
