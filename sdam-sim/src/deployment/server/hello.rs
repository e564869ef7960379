//! `hello` and legacy hello.

use std::time::Duration;

use bson::{Binary, Bson, DateTime, Document, doc, oid::ObjectId, spec::BinarySubtype};

use super::{Connection, Task, arguments::wrong_type, encoded};
use crate::{
    Cluster, ConnectionId, MemberId,
    action::Impostor,
    config::{MemberConfig, SetConfig},
    deployment::{Role, Timer, election_id},
    member::{Kind, Member, ProcessState, Replica},
    message::{
        COUNTER_FROM_THE_FUTURE, COUNTER_FROM_THE_FUTURE_STANDALONE, CommandError,
        EXHAUST_WITHOUT_AWAIT, INVALID_PARAMETER, METADATA_APP_NAME_TOO_LARGE,
        METADATA_CANNOT_BE_MUTATED, METADATA_MISSING_FIELD, METADATA_TOO_LARGE, MISSING_FIELD,
        NEGATIVE_ARGUMENT, NEGATIVE_AWAIT, NEGATIVE_COUNTER, Request, SHUTDOWN_IN_PROGRESS,
        SPLIT_HORIZON_CHANGE, TOPOLOGY_VERSION_WITHOUT_AWAIT, flag, number, refuse,
    },
    version::ServerVersion,
};

/// The arguments of an awaitable hello: the process id, the counter, and the time to wait.
type Await = (ObjectId, i64, Duration);

/// The maximum size of the `client` document on a mongos (M-44).
const MAX_METADATA: usize = 512;
/// The maximum size of the `client` document on a mongod.
const MAX_METADATA_MONGOD: usize = 1024;
/// The maximum length of the application name (M-44).
const MAX_APP_NAME: usize = 128;

impl Cluster {
    /// Answers a hello, or makes the hello wait.
    pub(super) fn hello(&mut self, id: ConnectionId, request: Request) {
        match self.admit_hello(id, &request) {
            Err(error) => self.answer(id, &request, Err(error)),
            Ok(Some(max)) => {
                if let Some(connection) = self.connections.get_mut(&id) {
                    connection.task = Task::Hello(request);
                    self.timers.set(Timer::Connection(id), self.now + max);
                }
            }
            Ok(None) => self.answer_hello(id, request),
        }
    }

    /// Checks the arguments. Returns the time for which the hello should wait, or `None` if it
    /// should be answered immediately.
    fn admit_hello(
        &mut self,
        id: ConnectionId,
        request: &Request,
    ) -> Result<Option<Duration>, CommandError> {
        let Some(connection) = self.connections.get_mut(&id) else {
            return Ok(None);
        };
        let own = &self.members[id.member.index()];
        if request.is_modern_hello() && !own.version.supports_hello() {
            return Err(super::command::not_found(request));
        }
        super::command::check_api(own.version, &request.body)?;
        connection.take_metadata(own, &request.body)?;
        if own.version.supports_hello_ok() && flag(&request.body, "helloOk") {
            connection.hello_ok = true;
        }
        if !own.version.supports_streaming() {
            // Servers that cannot stream ignore `topologyVersion` and `maxAwaitTimeMS` (M-11).
            return Ok(None);
        }
        let Some((process_id, counter, max)) = parse_await(own.version, request)? else {
            return Ok(None);
        };
        let quiesces = matches!(own.state, ProcessState::Quiescing(_));
        if quiesces || process_id != object_id(own.process.id) {
            return Ok(None);
        }
        if counter > own.process.counter {
            let code = match own.kind {
                Kind::Standalone => COUNTER_FROM_THE_FUTURE_STANDALONE,
                Kind::Mongos | Kind::Replica(_) => COUNTER_FROM_THE_FUTURE,
            };
            return refuse(
                code,
                format!(
                    "Received a topology version with counter: {counter} which is greater than the \
                     server topology version counter: {}",
                    own.process.counter
                ),
            );
        }
        Ok((counter == own.process.counter && !max.is_zero()).then_some(max))
    }

    /// Answers a hello, and continues streaming if the client allows it.
    pub(super) fn answer_hello(&mut self, id: ConnectionId, mut request: Request) {
        let Some(connection) = self.connections.get(&id) else {
            return;
        };
        let member = id.member;
        if let ProcessState::Quiescing(until) = self.member(member).state {
            // This error announces the shutdown (M-31).
            let quiesces = "The server is in quiesce mode and will shut down";
            let error = refuse(SHUTDOWN_IN_PROGRESS, quiesces);
            let mut reply = self.reply_document(member, &request, error);
            let left = i64::try_from(until.since(self.now).as_millis()).unwrap_or(i64::MAX);
            reply.insert("remainingQuiesceTimeMillis", left);
            self.send(id, &request, false, &encoded(&reply));
            return;
        }
        let own = self.member(member);
        let version = own.version.supports_streaming().then(|| topology_version(own));
        // Without a time to wait, the server would send one reply after another without a pause. A
        // client that requests such a stream therefore gets only one reply.
        let streams = version.is_some()
            && own.exhaust
            && request.exhaust_allowed()
            && number(&request.body, "maxAwaitTimeMS").is_some_and(|max| max > 0);
        #[cfg_attr(not(feature = "auth"), expect(unused_mut, reason = "nothing is added"))]
        let mut fields = self.hello_fields(member, connection.number, &request);
        #[cfg(feature = "auth")]
        fields.extend(self.hello_auth(id, own.version, &request.body));
        let reply = self.reply_document(member, &request, Ok(fields));
        let sent = self.send(id, &request, streams, &encoded(&reply));
        if let (true, Some(version), Some(request_id)) = (streams, version, sent) {
            // The next reply is sent as if the client had sent another hello with this topology
            // version.
            request.body.insert("topologyVersion", version);
            request.id = request_id;
            self.begin(id, request);
        }
    }

    /// Fails waiting hellos with the error SplitHorizonChange, which ends their streams (M-30).
    pub(crate) fn fail_waiters_of_horizon_change(&mut self, member: MemberId) {
        for id in self.connections_of(member) {
            if let Some(Task::Hello(request)) =
                self.take_task_if(id, |task| matches!(task, Task::Hello(_)))
            {
                let reason = "Received a reconfig that changed the horizon parameters.";
                self.answer(id, &request, refuse(SPLIT_HORIZON_CHANGE, reason));
                self.serve(id);
            }
        }
    }

    /// Returns the fields of a hello reply, in the same order as a real server (M-42).
    fn hello_fields(&self, member: MemberId, connection: i32, request: &Request) -> Document {
        let own = self.member(member);
        let mut reply = Document::new();
        // Since 5.0, any value of `helloOk` counts as true.
        let names = own.version.has_versioned_api() && request.body.contains_key("helloOk");
        if own.version.supports_hello_ok() && (names || flag(&request.body, "helloOk")) {
            reply.insert("helloOk", true);
        }
        if own.version.supports_streaming() && !matches!(own.kind, Kind::Standalone) {
            reply.insert("topologyVersion", topology_version(own));
        }
        let writable = if request.is_modern_hello() { "isWritablePrimary" } else { "ismaster" };
        match &own.kind {
            Kind::Standalone => {
                reply.insert(writable, true);
                if own.version.supports_streaming() {
                    reply.insert("topologyVersion", topology_version(own));
                }
            }
            Kind::Mongos => {
                reply.insert(writable, true);
                reply.insert("msg", "isdbgrid");
            }
            Kind::Replica(replica) => self.replica_fields(&mut reply, own, replica, writable),
        }
        reply.extend(doc! {
            "maxBsonObjectSize": 16_777_216,
            "maxMessageSizeBytes": 48_000_000,
            "maxWriteBatchSize": 100_000,
            "localTime": DateTime::from_millis(self.date()),
            "logicalSessionTimeoutMinutes": 30,
            "connectionId": connection,
            "minWireVersion": 0,
            "maxWireVersion": own.version.max_wire_version(),
        });
        if !matches!(own.kind, Kind::Mongos) {
            reply.insert("readOnly", false);
        }
        let asks = flag(&request.body, "loadBalanced");
        if self.balanced && asks && own.version.supports_load_balancers() {
            reply.insert("serviceId", object_id(own.process.service_id));
        }
        if let Some(impostor) = own.impostor {
            let config = own.replica().and_then(|replica| replica.config.as_ref());
            let set = config.map_or(Impostor::SET, |config| &config.name);
            impostor.answer(&mut reply, writable, set, own.address.as_str());
        }
        reply
    }

    fn replica_fields(
        &self,
        reply: &mut Document,
        own: &Member,
        replica: &Replica,
        writable: &str,
    ) {
        let entry = own.config();
        let (Some(config), Some(entry)) = (&replica.config, entry) else {
            return ghost_fields(reply, writable);
        };
        if matches!(replica.role, Role::Startup | Role::Removed) {
            return ghost_fields(reply, writable);
        }
        host_fields(reply, config);
        reply.insert("setName", &*config.name);
        // Older releases send a large version as a double, newer ones as an int64. Clients accept
        // any number type.
        match i32::try_from(config.version) {
            Ok(version) => reply.insert("setVersion", version),
            Err(_) => reply.insert("setVersion", config.version),
        };
        // A new primary that has not caught up yet reports that it is a secondary, but its reply
        // already includes its election id.
        let catching_up = replica.role == Role::Primary && replica.draining;
        reply.insert(writable, replica.is_writable());
        reply.insert("secondary", replica.role == Role::Secondary || catching_up);
        if let Some(primary) = replica.primary {
            reply.insert("primary", self.member(primary).address.as_str());
        }
        entry_fields(reply, own, entry);
        reply.insert("me", own.address.as_str());
        if replica.role == Role::Primary {
            reply.insert("electionId", object_id(election_id(replica.term)));
        }
        if replica.role != Role::Arbiter {
            let last = replica.oplog.last();
            let time = bson::Timestamp { time: last.time.seconds, increment: last.time.increment };
            reply.insert(
                "lastWrite",
                doc! {
                    "opTime": { "ts": time, "t": last.time.term },
                    "lastWriteDate": DateTime::from_millis(last.date),
                },
            );
        }
    }
}

impl Connection {
    /// Stores the application name if `hello` is the first hello on the connection.
    pub(super) fn learn_app_name(&mut self, hello: &Document) {
        if let (false, Ok(client)) = (self.greeted, hello.get_document("client")) {
            self.app_name = app_name(client).map(str::to_owned);
        }
    }

    /// Stores the client's metadata, which only the first hello may contain (M-44).
    fn take_metadata(&mut self, server: &Member, hello: &Document) -> Result<(), CommandError> {
        let greeted = std::mem::replace(&mut self.greeted, true);
        let Ok(client) = hello.get_document("client") else {
            return Ok(());
        };
        if greeted {
            let word = if server.version.has_versioned_api() { "hello" } else { "isMaster" };
            return refuse(
                METADATA_CANNOT_BE_MUTATED,
                format!("The client metadata document may only be sent in the first {word}"),
            );
        }
        let length = client.to_vec().map_or(usize::MAX, |bytes| bytes.len());
        let most = match server.kind {
            Kind::Mongos => MAX_METADATA,
            Kind::Standalone | Kind::Replica(_) => MAX_METADATA_MONGOD,
        };
        if length > most {
            return refuse(
                METADATA_TOO_LARGE,
                format!("The client metadata document must be less then or equal to {most}bytes"),
            );
        }
        if app_name(client).is_some_and(|name| name.len() > MAX_APP_NAME) {
            return refuse(
                METADATA_APP_NAME_TOO_LARGE,
                format!(
                    "The 'application.name' field must be less then or equal to {MAX_APP_NAME} bytes in \
                     the client metadata document"
                ),
            );
        }
        let missing = ["driver", "os"].into_iter().find(|name| client.get_document(name).is_err());
        match missing {
            None => Ok(()),
            Some(name) => refuse(
                METADATA_MISSING_FIELD,
                format!("Missing required sub-document '{name}' in the client metadata document"),
            ),
        }
    }
}

fn app_name(client: &Document) -> Option<&str> {
    let application = client.get_document("application").ok()?;
    application.get_str("name").ok()
}

/// Parses the arguments that make a hello wait (M-4, M-7, M-25).
fn parse_await(server: ServerVersion, request: &Request) -> Result<Option<Await>, CommandError> {
    let body = &request.body;
    let modern = server.has_versioned_api();
    // Only newer releases treat a null `topologyVersion` as absent.
    let version = body.get("topologyVersion").filter(|version| !modern || **version != Bson::Null);
    let max = number(body, "maxAwaitTimeMS");
    if modern && let Some(max @ ..0) = max {
        return refuse(
            NEGATIVE_ARGUMENT,
            format!("BSON field 'maxAwaitTimeMS' value must be >= 0, actual value '{max}'"),
        );
    }
    let version = version.map(|version| parse_topology_version(modern, version)).transpose()?;
    let ((process_id, counter), max) = match (version, max) {
        (None, None) if request.exhaust_allowed() => {
            return refuse(
                EXHAUST_WITHOUT_AWAIT,
                "An isMaster or hello request with exhaust must specify 'maxAwaitTimeMS'",
            );
        }
        (None, None) => return Ok(None),
        (Some(version), Some(max)) => (version, max),
        (Some(_), None) => {
            return refuse(
                TOPOLOGY_VERSION_WITHOUT_AWAIT,
                "A request with a 'topologyVersion' must include 'maxAwaitTimeMS'",
            );
        }
        (None, Some(_)) => {
            return refuse(
                TOPOLOGY_VERSION_WITHOUT_AWAIT,
                "A request with 'maxAwaitTimeMS' must include a 'topologyVersion'",
            );
        }
    };
    if counter < 0 {
        return refuse(NEGATIVE_COUNTER, "topologyVersion must have a non-negative counter");
    }
    let Ok(millis) = u64::try_from(max) else {
        return refuse(NEGATIVE_AWAIT, "maxAwaitTimeMS must be a non-negative integer");
    };
    Ok(Some((process_id, counter, Duration::from_millis(millis))))
}

/// Parses the process id and the counter in `version`.
fn parse_topology_version(modern: bool, version: &Bson) -> Result<(ObjectId, i64), CommandError> {
    let Some(document) = version.as_document() else {
        return Err(if modern {
            wrong_type("hello.topologyVersion", version, "object")
        } else {
            CommandError::new(
                INVALID_PARAMETER,
                "invalid parameter: expected an object (topologyVersion)",
            )
        });
    };
    let parent = if modern { "hello.topologyVersion" } else { "TopologyVersion" };
    let field = |name: &str| {
        document.get(name).ok_or_else(|| {
            CommandError::new(
                MISSING_FIELD,
                format!("BSON field '{parent}.{name}' is missing but a required field"),
            )
        })
    };
    let wrong = |name: &str, value: &Bson, expected: &str| {
        wrong_type(&format!("{parent}.{name}"), value, expected)
    };
    let (process_id, counter) = (field("processId")?, field("counter")?);
    match (process_id, counter) {
        (Bson::ObjectId(process_id), Bson::Int64(counter)) => Ok((*process_id, *counter)),
        (Bson::ObjectId(_), counter) => Err(wrong("counter", counter, "long")),
        (process_id, _) => Err(wrong("processId", process_id, "objectId")),
    }
}

fn host_fields(reply: &mut Document, config: &SetConfig) {
    let names = |wanted: fn(&MemberConfig) -> bool| -> Vec<String> {
        let visible = config.members.iter().filter(|member| !member.hidden);
        visible.filter(|member| wanted(member)).map(|member| member.address.to_string()).collect()
    };
    reply.insert("hosts", names(MemberConfig::is_electable));
    for (field, names) in [
        ("passives", names(|member| !member.arbiter && !member.is_electable())),
        ("arbiters", names(|member| member.arbiter)),
    ] {
        if !names.is_empty() {
            reply.insert(field, names);
        }
    }
}

fn entry_fields(reply: &mut Document, own: &Member, entry: &MemberConfig) {
    if entry.arbiter {
        reply.insert("arbiterOnly", true);
    } else if !entry.is_electable() {
        reply.insert("passive", true);
    }
    if entry.hidden {
        reply.insert("hidden", true);
    }
    if !entry.delay.is_zero() {
        let name =
            if own.version.has_versioned_api() { "secondaryDelaySecs" } else { "slaveDelay" };
        reply.insert(name, entry.delay.as_secs() as i64);
    }
    if !entry.tags.is_empty() {
        reply.insert("tags", entry.tag_document());
    }
}

/// Writes the fields of a member that is not in a configuration (RSGhost).
fn ghost_fields(reply: &mut Document, writable: &str) {
    reply.extend(doc! {
        writable: false,
        "secondary": false,
        "info": "Does not have a valid replica set config",
        "isreplicaset": true,
    });
}

pub(super) fn topology_version(own: &Member) -> Document {
    doc! {
        "processId": object_id(own.process.id),
        "counter": own.process.counter,
    }
}

/// Returns the signature that a cluster time has if authentication is disabled.
pub(super) fn unsigned() -> Binary {
    Binary { subtype: BinarySubtype::Generic, bytes: vec![0; 20] }
}

pub(super) fn object_id(id: sdam_core::ids::ObjectId) -> ObjectId {
    ObjectId::from_bytes(id.bytes())
}
