//! A scripted driver with virtual time.

use std::{
    fmt::Write as _,
    string::{String, ToString},
    sync::Arc,
    time::Duration,
    vec::Vec,
};

use bson::{Document, doc, oid::ObjectId};

pub(super) use super::{super::*, machine::*};
pub(super) use crate::{
    address::ServerAddress,
    error::Error,
    event::EventKind,
    hello::{Hello, HelloRequest},
    ids::{Generation, ServerId},
    time::Instant,
};
use crate::{
    error::{ErrorKind, Stage},
    event::Heartbeat,
};

/// An input of the script.
#[derive(Clone, Debug)]
pub(super) enum Say {
    Start,
    Connected,
    Reply {
        document: Document,
        more: bool,
    },
    Bytes(Vec<u8>),
    Failed(ErrorKind),
    Due,
    Request,
    Cancel(u64),
    Disconnected,
    Authenticated,
    /// No input of the monitor: an error has made the server Unknown, and the pool has this
    /// generation now.
    Pool(u64),
}

/// Options of a client that runs outside any FaaS platform, with a heartbeat and a connect timeout
/// of 10 seconds.
pub(super) fn options() -> Options {
    Options::new(Vec::new())
}

pub(super) fn config(options: &Options) -> MonitorConfig {
    MonitorConfig::new(options, Arc::new(Handshake::new([])), false)
}

pub(super) fn polling() -> MonitorConfig {
    let mut options = options();
    options.server_monitoring_mode = ServerMonitoringMode::Poll;
    config(&options)
}

pub(super) fn streaming() -> MonitorConfig {
    config(&options())
}

/// Returns the reply of a server that supports hello but not streaming.
pub(super) fn old() -> Document {
    doc! { "ok": 1, "maxWireVersion": 8, "helloOk": true, "connectionId": 42 }
}

/// Returns a reply of the first process, which supports streaming, with this counter.
pub(super) fn new(counter: i64) -> Document {
    new_process(0x11, counter)
}

/// Returns a reply of another process.
pub(super) fn new_process(process: u8, counter: i64) -> Document {
    let process = ObjectId::from_bytes([process; 12]);
    let mut reply = old();
    reply.insert(
        "topologyVersion",
        doc! { "processId": process, "counter": counter },
    );
    reply
}

/// Returns an error reply.
pub(super) fn refusal() -> Document {
    doc! { "ok": 0, "code": 91, "errmsg": "shutting down" }
}

pub(super) fn says(document: Document) -> Say {
    Say::Reply {
        document,
        more: false,
    }
}

pub(super) fn streams(document: Document) -> Say {
    Say::Reply {
        document,
        more: true,
    }
}

pub(super) fn encode(document: &Document) -> Vec<u8> {
    document.to_vec().unwrap()
}

/// Runs the script: at each time in milliseconds, passes the input and expects these effects in
/// this order, then `|` and the deadline in milliseconds.
#[track_caller]
pub(super) fn check(config: MonitorConfig, script: &[(u64, Say, &str)]) {
    let address = ServerAddress::new("db.lan", 27017);
    let mut machine = MonitorMachine::new(Arc::new(config), ServerId::from_u64(1), address);
    let mut status = ServerStatus::default();
    let mut asked = Instant::EPOCH;
    for (index, (at, say, expected)) in script.iter().enumerate() {
        let now = Instant::from_millis(*at);
        if let Say::Cancel(cleared) = say {
            status.clear(*cleared);
        }
        let mut handle = |input| machine.handle(now, status, input);
        let effects = match say {
            Say::Start => machine.start(now, status),
            Say::Connected => handle(MonitorInput::Connected),
            Say::Reply { document, more } => handle(reply(asked, now, encode(document), *more)),
            Say::Bytes(bytes) => handle(reply(asked, now, bytes.clone(), false)),
            Say::Failed(kind) => {
                let error = Error::new(*kind, Stage::Connect, "scripted");
                handle(MonitorInput::Failed { at: now, error })
            }
            Say::Due => handle(MonitorInput::DeadlineReached),
            Say::Request => handle(MonitorInput::CheckRequested),
            Say::Cancel(cleared) => handle(MonitorInput::Cancel {
                generation: Generation::from_u64(*cleared),
            }),
            Say::Disconnected => handle(MonitorInput::Disconnected),
            Say::Authenticated => handle(MonitorInput::Authenticated),
            Say::Pool(next) => {
                status.clear(*next);
                continue;
            }
        };
        let effects: Vec<_> = effects.into_iter().collect();
        if effects.iter().any(is_request) {
            asked = now;
        }
        for effect in &effects {
            if let MonitorEffect::Report { outcome } = effect {
                let hello = outcome.as_ref().ok();
                status.known = hello.is_some_and(|hello| hello.server_type.is_available());
            }
        }
        let said = match say {
            Say::Reply { document, .. } => encode(document),
            _ => Vec::new(),
        };
        let actual = describe(effects, machine.deadline(), &said);
        assert_eq!(actual, *expected, "step {index}, at {at}: {say:?}");
    }
}

/// Returns the input of a reply to a request of `sent` that has arrived at `at`.
pub(super) fn reply(
    sent: Instant,
    at: Instant,
    bytes: Vec<u8>,
    more_to_come: bool,
) -> MonitorInput {
    MonitorInput::Reply {
        sent,
        at,
        hello: Hello::parse(&bytes),
        bytes: bytes.into(),
        more_to_come,
    }
}

/// Returns whether `effect` sends a request or reads without one.
pub(super) fn is_request(effect: &MonitorEffect) -> bool {
    matches!(
        effect,
        MonitorEffect::Send { .. } | MonitorEffect::ReadNext { .. }
    )
}

impl ServerStatus {
    /// Sets the status after an error, if it is the first after which the pool has generation
    /// `next`.
    fn clear(&mut self, next: u64) {
        let next = Generation::from_u64(next);
        if self.generation < next {
            *self = Self {
                generation: next,
                known: false,
            };
        }
    }
}

/// Returns the effects of the reply `said`, or of another input, as text, and the deadline.
fn describe(effects: Vec<MonitorEffect>, deadline: Option<Instant>, said: &[u8]) -> String {
    let mut text = String::new();
    for effect in effects {
        if let MonitorEffect::Connect { deadline: own }
        | MonitorEffect::Send { deadline: own, .. }
        | MonitorEffect::ReadNext { deadline: own } = &effect
        {
            assert_eq!(*own, deadline, "the effect's deadline is the machine's");
        }
        write!(text, "{}, ", describe_effect(effect, said)).unwrap();
    }
    let deadline = deadline.map_or("never".to_string(), |at| {
        millis(at.since(Instant::EPOCH)).to_string()
    });
    std::format!(
        "{}| {deadline}",
        text.trim_end_matches(", ").to_string() + " "
    )
    .trim_start()
    .to_string()
}

fn describe_effect(effect: MonitorEffect, said: &[u8]) -> String {
    match effect {
        MonitorEffect::Connect { .. } => "connect".into(),
        MonitorEffect::Send { request, .. } => describe_request(&request),
        MonitorEffect::ReadNext { .. } => "read".into(),
        MonitorEffect::Disconnect => "disconnect".into(),
        MonitorEffect::RttSample(sample) => std::format!("sample {}", millis(sample)),
        MonitorEffect::Report { outcome: Ok(hello) } => {
            std::format!("report {}", hello.server_type)
        }
        MonitorEffect::Report {
            outcome: Err(error),
        } => std::format!("report {:?}", error.kind()),
        MonitorEffect::StartRtt => "start rtt".into(),
        MonitorEffect::StopRtt => "stop rtt".into(),
        MonitorEffect::Emit(kind) => describe_event(kind, said),
        MonitorEffect::Exit => "exit".into(),
    }
}

fn describe_request(request: &HelloRequest) -> String {
    let mut text = std::format!("send {}", request.command_name());
    if request.handshake.is_some() {
        text += " handshake";
    }
    if let Some((version, wait)) = request.awaiting {
        let process = version.process_id.bytes()[0];
        write!(text, " awaiting {process:x}/{} for {wait}", version.counter).unwrap();
    }
    if request.exhaust_allowed {
        text += " exhaust";
    }
    if request.op_query {
        text += " op_query";
    }
    if let Some(api) = &request.server_api {
        write!(text, " api {}", api.version).unwrap();
    }
    text
}

/// Returns an event as text. J-6, J-7, J-8: every field is checked, or part of the text.
fn describe_event(event: EventKind, said: &[u8]) -> String {
    let check = |heartbeat: &Heartbeat| {
        assert_eq!(heartbeat.server, ServerId::from_u64(1));
        assert_eq!(heartbeat.address.to_string(), "db.lan:27017");
        let server = match heartbeat.connection.server {
            Some(server) => std::format!("/{server}"),
            None => String::new(),
        };
        let awaited = if heartbeat.awaited { " awaited" } else { "" };
        std::format!("#{}{server}{awaited}", heartbeat.connection.driver)
    };
    match event {
        EventKind::ServerHeartbeatStarted(heartbeat) => {
            std::format!("started {}", check(&heartbeat))
        }
        EventKind::ServerHeartbeatSucceeded {
            heartbeat,
            duration,
            reply,
        } => {
            assert_eq!(&*reply, said, "the reply itself is published");
            let duration = millis(duration);
            std::format!("succeeded {} after {duration}", check(&heartbeat))
        }
        EventKind::ServerHeartbeatFailed {
            heartbeat,
            duration,
            failure,
        } => {
            let duration = millis(duration);
            let kind = failure.kind();
            std::format!("failed {} after {duration}: {kind:?}", check(&heartbeat))
        }
        other => panic!("a monitor does not publish {other:?}"),
    }
}

fn millis(duration: Duration) -> u128 {
    duration.as_millis()
}
