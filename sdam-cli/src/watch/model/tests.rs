use bson::{Bson, doc, oid::ObjectId as BsonObjectId};
use sdam_core::{
    deployment::{ConnId, Deployment, Input, Output, Timer},
    error::{Error, ErrorKind, Stage},
    event::{ConnectionId, Heartbeat},
    hello::{Handshake, HelloReply},
    ids::{ObjectId, ServerId},
    monitor::MonitorConfig,
    read_preference::ReadMode,
    rng::Rng,
    rtt::RttWindow,
};
use sdam_events::facts::Loss;
use sdam_select::explain::Verdict;

use super::*;

/// Feeds a model with the events of a topology whose servers answer as scripted.
pub(crate) struct Script {
    pub(crate) model: Model,
    /// A client that polls. Its own heartbeats are replaced with those of the script.
    client: Deployment,
    /// The outstanding request of each server's check.
    asked: BTreeMap<ServerId, ConnId>,
    now: Instant,
    ids: BTreeMap<ServerAddress, ServerId>,
    times: BTreeMap<ServerAddress, RttWindow>,
    /// The members listed in replies.
    members: Vec<String>,
    streaming: bool,
}

/// The servers' wall-clock time at the beginning, in milliseconds.
pub(crate) const EPOCH: i64 = 1_700_000_000_000;

impl Script {
    /// Opens a topology with the connection string `uri`.
    pub(crate) fn open(uri: &str) -> Self {
        let mut options = Options::parse(uri).unwrap();
        options.deviations.min_heartbeat_frequency = Duration::ZERO;
        let mut config = MonitorConfig::new(&options, Arc::new(Handshake::new([])), false);
        config.streaming = false;
        let mut script = Self {
            model: Model::new(&options),
            client: Deployment::new(options.clone(), Arc::new(config), Rng::new(1)),
            asked: BTreeMap::new(),
            now: Instant::EPOCH,
            ids: BTreeMap::new(),
            times: BTreeMap::new(),
            members: options.seeds.iter().map(ToString::to_string).collect(),
            streaming: true,
        };
        script.handle(Input::Open);
        script
    }

    /// Opens a replica set `rs0` with the members `hosts`; the first one becomes primary after 100
    /// ms.
    pub(crate) fn replica_set(hosts: &[&str]) -> Self {
        let uri = format!("mongodb://{}/?replicaSet=rs0", hosts.join(","));
        let mut script = Self::open(&uri).at(100);
        for (index, host) in hosts.iter().enumerate() {
            let role = if index == 0 { Role::Primary(7) } else { Role::Secondary };
            script = script.answers(host, role, 2 + index as u64);
        }
        script
    }

    /// Sets the time, in milliseconds since the beginning.
    pub(crate) fn at(mut self, millis: u64) -> Self {
        self.now = Instant::from_millis(millis);
        self.model.advance(self.now);
        self
    }

    /// Makes the client poll the servers from now on, as if they did not support streaming.
    pub(crate) fn polled(mut self) -> Self {
        self.streaming = false;
        self
    }

    /// Simulates an answer of the server at `host` to a check.
    pub(crate) fn answers(self, host: &str, role: Role, rtt: u64) -> Self {
        self.answers_with(host, role, rtt, &doc! {})
    }

    /// Simulates an answer to a check, with additional `fields` in the reply.
    pub(crate) fn answers_with(
        mut self,
        host: &str,
        role: Role,
        rtt: u64,
        fields: &bson::Document,
    ) -> Self {
        let address = ServerAddress::parse(host).unwrap();
        let took = Duration::from_millis(rtt);
        let mut reply = self.reply(&address, role);
        reply.extend(fields.clone());
        let reply = bson::serialize_to_vec(&reply).unwrap();
        let server = self.ids[&address];
        let heartbeat = self.heartbeat(&address, self.streaming);
        let answer = HelloReply::parse(reply.clone());
        self.emit(EventKind::ServerHeartbeatSucceeded {
            heartbeat: heartbeat.clone(),
            duration: took,
            reply: reply.into(),
        });
        let times = self.times.entry(address.clone()).or_default();
        times.add(took);
        let rtt = times.rtt();
        self.emit(EventKind::RttMeasured { server, address, rtt: rtt.unwrap() });
        let (at, sent) = (self.now, self.now - took);
        self.checked(server, |conn| Input::Reply {
            conn,
            sent,
            at,
            reply: answer.clone(),
            more_to_come: false,
        });
        self.emit(EventKind::ServerHeartbeatStarted(heartbeat));
        self
    }

    fn reply(&self, address: &ServerAddress, role: Role) -> bson::Document {
        let written = EPOCH + (self.now.as_nanos() / 1_000_000) as i64;
        let mut reply = doc! {
            "ok": 1, "minWireVersion": 0, "maxWireVersion": 25, "helloOk": true,
            "lastWrite": { "lastWriteDate": bson::DateTime::from_millis(written) },
        };
        if role == Role::Mongos {
            reply.extend(doc! { "msg": "isdbgrid", "isWritablePrimary": true });
            return reply;
        }
        reply.extend(doc! {
            "setName": "rs0", "setVersion": 4, "me": address.as_str(),
            "hosts": self.members.clone(),
            "isWritablePrimary": matches!(role, Role::Primary(_)),
            "secondary": role == Role::Secondary,
        });
        if let Role::Primary(term) = role {
            let mut id = [0x7f, 0xff, 0xff, 0xff, 0, 0, 0, 0, 0, 0, 0, 0];
            id[4..].copy_from_slice(&u64::to_be_bytes(term));
            reply.insert("electionId", Bson::ObjectId(BsonObjectId::from_bytes(id)));
            reply.insert("primary", address.as_str());
        }
        reply
    }

    /// Reports that the server has not answered for `millis` milliseconds.
    pub(crate) fn falls_silent(mut self, host: &str, millis: u64) -> Self {
        let address = ServerAddress::parse(host).unwrap();
        let server = self.ids[&address];
        let silence = Duration::from_millis(millis);
        self.emit(EventKind::ServerSuspected { server, address, silence });
        self
    }

    /// Simulates a failed check of the server at `host`.
    pub(crate) fn fails(mut self, host: &str, message: &str) -> Self {
        let address = ServerAddress::parse(host).unwrap();
        let stage = if message.contains("refused") { Stage::Connect } else { Stage::Hello };
        let error = Error::new(ErrorKind::Network, stage, message);
        self.emit(EventKind::ServerHeartbeatFailed {
            heartbeat: self.heartbeat(&address, self.streaming),
            duration: Duration::from_millis(1),
            failure: error.clone(),
        });
        let server = self.ids[&address];
        let at = self.now;
        self.checked(server, |conn| Input::Failed { conn, at, error: error.clone() });
        self
    }

    fn heartbeat(&self, address: &ServerAddress, awaited: bool) -> Heartbeat {
        let connection = ConnectionId { driver: 1, server: None };
        Heartbeat::new(self.ids[address], address.clone(), connection, awaited)
    }

    fn emit(&mut self, kind: EventKind) {
        let event = Event::new(0, self.now, ObjectId::default(), kind);
        self.model.observe(&event);
    }

    /// Makes the client check the server. The connection opens at once, and `answer` returns the
    /// result of the check.
    fn checked(&mut self, server: ServerId, answer: impl Fn(ConnId) -> Input) {
        if !self.asked.contains_key(&server) {
            let (timer, wanted) = (Timer::Server(server), true);
            self.handle(Input::Due { timer, wanted });
        }
        self.handle(Input::Connected { conn: self.asked[&server] });
        let conn = self.asked.remove(&server).unwrap();
        self.handle(answer(conn));
    }

    fn handle(&mut self, input: Input) {
        let address = |ids: &BTreeMap<ServerAddress, ServerId>, server| {
            ids.iter().find(|(_, id)| **id == server).unwrap().0.clone()
        };
        for output in self.client.handle(self.now, input) {
            match output {
                Output::OpenServer { server, address, .. } => {
                    self.ids.insert(address, server);
                }
                Output::Connect { conn, .. } | Output::Send { conn, .. } => {
                    self.asked.insert(conn.server, conn);
                }
                Output::Emit(
                    EventKind::ServerHeartbeatStarted(_)
                    | EventKind::ServerHeartbeatSucceeded { .. }
                    | EventKind::ServerHeartbeatFailed { .. },
                ) => {}
                Output::Emit(kind) => self.emit(kind),
                Output::PoolReady { server } => {
                    let address = address(&self.ids, server);
                    self.emit(EventKind::PoolReady { server, address });
                }
                Output::PoolClear { server, clear } if !clear.was_paused => {
                    let address = address(&self.ids, server);
                    self.emit(EventKind::PoolCleared { server, address, clear });
                }
                _ => {}
            }
        }
    }

    fn server(&self, host: &str) -> &Server {
        &self.model.servers[&ServerAddress::parse(host).unwrap()]
    }
}

/// The role that a reply reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Role {
    /// The server is the primary of the given election term.
    Primary(u64),
    Secondary,
    Mongos,
}

const RESET: &str = "connection reset by peer";

#[test]
fn a_primary_that_steps_down_has_no_error_as_cause() {
    let script = Script::replica_set(&["a", "b"]).at(1000).answers("a", Role::Secondary, 2);
    let run = script.model.stopwatch.current.as_ref().unwrap();
    assert_eq!(run.outage.loss, Loss::SteppedDown(ServerType::RsSecondary));
    assert_eq!(run.pool_cleared, None);
    assert_eq!(script.model.flaps(None), 1, "a step-down counts");
}

#[test]
fn losses_are_counted_for_an_hour() {
    let script = Script::replica_set(&["a", "b"]).at(1500).fails("a", RESET);
    let mut script = script.at(1700).fails("a", "connection refused");
    assert_eq!(script.model.flaps(None), 1);
    let address = |host| ServerAddress::parse(host).unwrap();
    assert_eq!(script.model.flaps(Some(&address("a"))), 1);
    assert_eq!(script.model.flaps(Some(&address("b"))), 0);
    script = script.at(1500 + 3_599_999);
    assert_eq!(script.model.flaps(None), 1);
    script = script.at(1500 + 3_600_000);
    assert_eq!(script.model.flaps(None), 0);
}

#[test]
fn lag_is_the_distance_to_the_last_write_of_the_primary() {
    let late = |millis: i64| {
        let written = bson::DateTime::from_millis(EPOCH + millis);
        doc! { "lastWrite": { "lastWriteDate": written } }
    };
    let script = Script::replica_set(&["a", "b"])
        .at(10_000)
        .answers("a", Role::Primary(7), 2)
        .at(11_000)
        .answers_with("b", Role::Secondary, 2, &late(4000));
    let lag = |script: &Script, host: &str| {
        script.model.lag(&script.model.current(), script.server(host))
    };
    assert_eq!(lag(&script, "b"), None, "it may have the new write by now");
    let script = script.at(14_000).answers_with("b", Role::Secondary, 2, &late(7000));
    assert_eq!(lag(&script, "b"), Some(Duration::from_secs(7)));
    assert_eq!(lag(&script, "a"), None, "the primary has none");
    // Without a primary, the lag is measured against the most recent secondary.
    let script = script.fails("a", RESET);
    assert_eq!(lag(&script, "b"), Some(Duration::ZERO));
}

#[test]
fn streaming_servers_are_told_from_polled_ones() {
    let script = Script::replica_set(&["a"]);
    assert_eq!(script.server("a").mode, Some(Mode::Streaming));
    let script =
        Script::open("mongodb://a/?replicaSet=rs0").polled().answers("a", Role::Primary(1), 2);
    assert_eq!(script.server("a").mode, Some(Mode::Polling));
}

#[test]
fn selections_use_the_round_trip_times_of_the_last_check() {
    let eligible = |script: &Script| -> Vec<String> {
        let nearest = ReadPreference::new(ReadMode::Nearest);
        let explanation = script.model.explain(Some(&nearest)).unwrap();
        let servers = explanation.eligible();
        servers.map(|server| server.address.host().to_owned()).collect()
    };
    let script = Script::replica_set(&["a", "b"]);
    assert_eq!(eligible(&script), ["a", "b"]);
    // A reply that changes only the round-trip time causes no event about a changed description.
    let slow = (0..20).fold(script, |script, _| script.answers("b", Role::Secondary, 200));
    assert_eq!(eligible(&slow), ["a"]);
    let writes = slow.model.explain(None).unwrap();
    let verdicts = writes.servers.iter().map(|server| &server.verdict);
    let rejected = verdicts.filter(|verdict| matches!(verdict, Verdict::Rejected(_)));
    assert_eq!(rejected.count(), 1);
}

#[test]
fn checks_that_were_cancelled_are_no_losses_of_probes() {
    let mut script = Script::replica_set(&["a"]);
    let heartbeat = script.heartbeat(&ServerAddress::parse("a").unwrap(), true);
    let failure = Error::new(ErrorKind::Cancelled, Stage::Hello, "cancelled");
    script.emit(EventKind::ServerHeartbeatFailed { heartbeat, duration: Duration::ZERO, failure });
    assert_eq!(script.server("a").trouble, None);
}

#[test]
fn old_entries_are_removed() {
    let mut log = Log::default();
    for number in 0..ENTRIES as u64 + 3 {
        log.add(Instant::from_millis(number), "set", Tone::Normal, number.to_string());
    }
    assert_eq!(log.iter().len(), ENTRIES);
    assert_eq!(log.iter().next().map(|first| &*first.words), Some("3"));
}
