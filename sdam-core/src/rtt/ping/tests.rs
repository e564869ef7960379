mod machine;

use std::{
    string::{String, ToString},
    vec::Vec,
};

use bson::{Document, RawDocumentBuf, doc};
use proptest::{collection::vec, prelude::*};

use self::machine::*;
use super::*;
use crate::{
    hello::{Handshake, HelloRequest},
    options::{Options, ServerApi},
};

#[derive(Clone, Debug)]
enum Say {
    Start,
    Connected,
    Reply(Document),
    Bytes(Vec<u8>),
    Failed,
    Due,
    Stop,
}

fn config() -> MonitorConfig {
    let options = Options::new(Vec::new());
    MonitorConfig::new(&options, Arc::new(Handshake::new([])), false)
}

fn ok() -> Say {
    Say::Reply(doc! { "ok": 1, "helloOk": true, "maxWireVersion": 17 })
}

/// Passes what is said at `now`. A reply answers the request that was sent at `asked`.
fn tell(machine: &mut RttMachine, asked: &mut Instant, now: Instant, say: &Say) -> Vec<RttEffect> {
    let reply = |bytes: &[u8]| RttInput::Reply {
        sent: *asked,
        at: now,
        hello: Hello::parse(bytes),
    };
    let effects = match say {
        Say::Start => machine.start(now),
        Say::Connected => machine.handle(now, RttInput::Connected),
        Say::Reply(document) => {
            let encoded = RawDocumentBuf::try_from(document).unwrap();
            machine.handle(now, reply(encoded.as_bytes()))
        }
        Say::Bytes(bytes) => machine.handle(now, reply(bytes)),
        Say::Failed => machine.handle(now, RttInput::Failed),
        Say::Due => machine.handle(now, RttInput::DeadlineReached),
        Say::Stop => machine.handle(now, RttInput::Stop),
    };
    let effects: Vec<_> = effects.into_iter().collect();
    if effects
        .iter()
        .any(|effect| matches!(effect, RttEffect::Send { .. }))
    {
        *asked = now;
    }
    effects
}

/// Runs the script: at each time in milliseconds, passes the input and expects these effects, then
/// `|` and the deadline in milliseconds.
#[track_caller]
fn check(config: MonitorConfig, script: &[(u64, Say, &str)]) {
    let mut machine = RttMachine::new(Arc::new(config));
    let mut asked = Instant::EPOCH;
    for (index, (at, say, expected)) in script.iter().enumerate() {
        let mut words: Vec<String> = Vec::new();
        let effects = tell(&mut machine, &mut asked, Instant::from_millis(*at), say);
        for effect in effects {
            words.push(match effect {
                RttEffect::Connect { deadline } => {
                    assert_eq!(deadline, machine.deadline());
                    "connect".into()
                }
                RttEffect::Send { request, deadline } => {
                    assert_eq!(deadline, machine.deadline());
                    describe(&request)
                }
                RttEffect::Disconnect => "disconnect".into(),
                RttEffect::Sample(sample) => std::format!("sample {}", sample.as_millis()),
                RttEffect::Exit => "exit".into(),
            });
        }
        let deadline = machine.deadline().map_or("never".to_string(), |deadline| {
            deadline.since(Instant::EPOCH).as_millis().to_string()
        });
        let actual = std::format!("{} | {deadline}", words.join(", "));
        assert_eq!(
            actual.trim_start(),
            *expected,
            "step {index}, at {at}: {say:?}"
        );
    }
}

fn describe(request: &HelloRequest) -> String {
    assert_eq!(request.awaiting, None);
    assert!(!request.exhaust_allowed);
    let handshake = if request.handshake.is_some() {
        " handshake"
    } else {
        ""
    };
    let api = if request.server_api.is_some() {
        " api"
    } else {
        ""
    };
    std::format!("{}{handshake}{api}", request.command_name())
}

#[test]
fn hello_is_measured_once_per_heartbeat_on_one_connection() {
    // G-7, G-13, G-16: the first sample is that of the handshake, without the connect.
    check(
        config(),
        &[
            (0, Say::Start, "connect | 10000"),
            (50, Say::Connected, "isMaster handshake | 10050"),
            (53, ok(), "sample 3 | 10053"),
            (10_052, Say::Due, "| 10053"),
            (10_053, Say::Due, "hello | 20053"),
            (10_057, ok(), "sample 4 | 20057"),
            (20_057, Say::Due, "hello | 30057"),
        ],
    );
}

#[test]
fn an_error_closes_the_connection_and_waits_a_heartbeat() {
    // G-11, G-13: the negotiation is reset.
    let begin = [
        (0, Say::Start, "connect | 10000"),
        (0, Say::Connected, "isMaster handshake | 10000"),
        (0, ok(), "sample 0 | 10000"),
        (10_000, Say::Due, "hello | 20000"),
    ];
    let again = [
        (20_001, Say::Due, "connect | 30001"),
        (20_001, Say::Connected, "isMaster handshake | 30001"),
    ];
    let run = |error| {
        let error = [(10_001, error, "disconnect | 20001")];
        check(config(), &[&begin[..], &error, &again].concat());
    };
    run(Say::Failed);
    run(Say::Reply(doc! { "ok": 0, "errmsg": "no" }));
    run(Say::Bytes([1, 2, 3].into()));
    check(
        config(),
        &[
            &begin[..],
            &[
                (20_000, Say::Due, "disconnect | 30000"),
                (30_000, Say::Due, "connect | 40000"),
                (40_000, Say::Due, "disconnect | 50000"),
                (50_000, Say::Due, "connect | 60000"),
                (50_001, Say::Failed, "disconnect | 60001"),
            ],
        ]
        .concat(),
    );
}

#[test]
fn declared_api_is_sent_and_rules_out_legacy_hello() {
    // G-13
    let mut declared = config();
    declared.server_api = Some(Arc::new(ServerApi::v1()));
    let reply = Say::Reply(doc! { "ok": 1 });
    check(
        declared,
        &[
            (0, Say::Start, "connect | 10000"),
            (0, Say::Connected, "hello handshake api | 10000"),
            (0, reply, "sample 0 | 10000"),
            (10_000, Say::Due, "hello api | 20000"),
        ],
    );
}

#[test]
fn no_connect_timeout_sets_no_deadline() {
    // G-13, F-11
    let mut patient = config();
    patient.connect_timeout = None;
    check(
        patient,
        &[
            (0, Say::Start, "connect | never"),
            (90_000, Say::Due, "| never"),
            (90_000, Say::Connected, "isMaster handshake | never"),
            (200_000, ok(), "sample 110000 | 210000"),
        ],
    );
}

#[test]
fn a_reply_after_its_deadline_is_no_sample() {
    check(
        config(),
        &[
            (0, Say::Start, "connect | 10000"),
            (0, Say::Connected, "isMaster handshake | 10000"),
            (10_001, ok(), "| 20001"),
            (20_001, Say::Due, "hello | 30001"),
        ],
    );
}

#[test]
fn stop_ends_the_machine_in_every_state() {
    // G-13
    let stop = |at| (at, Say::Stop, "disconnect, exit | never");
    let start = (0, Say::Start, "connect | 10000");
    let connected = (0, Say::Connected, "isMaster handshake | 10000");
    let measured = (0, ok(), "sample 0 | 10000");
    check(config(), &[start.clone(), stop(1)]);
    check(config(), &[start.clone(), connected.clone(), stop(1)]);
    check(config(), &[start, connected, measured, stop(1)]);
    check(
        config(),
        &[
            stop(0),
            (1, Say::Start, "| never"),
            (2, Say::Connected, "| never"),
            (3, ok(), "| never"),
            (4, Say::Stop, "| never"),
        ],
    );
}

#[test]
fn the_sample_is_the_time_on_the_wire_whenever_the_reply_is_processed() {
    // G-7, G-11
    let at = Instant::from_millis;
    let check = |sent, arrived, processed, sample: Option<u64>| {
        let mut machine = RttMachine::new(Arc::new(config()));
        let _ = machine.start(at(0));
        let _ = machine.handle(at(0), RttInput::Connected);
        let reply = RttInput::Reply {
            sent: at(sent),
            at: at(arrived),
            hello: Ok(Hello::default()),
        };
        let effects: Vec<_> = machine.handle(at(processed), reply).into_iter().collect();
        let sample = sample.map(|sample| RttEffect::Sample(Duration::from_millis(sample)));
        assert_eq!(effects, Vec::from_iter(sample));
    };
    check(5, 25, 25, Some(20));
    check(5, 25, 9_000, Some(20));
    // Processed after the deadline of 10 s, but not late.
    check(5, 25, 11_000, Some(20));
    check(5, 10_001, 11_000, None);
    // Clamped: a reply does not arrive before its request or after it is processed.
    check(30, 25, 40, Some(0));
    check(5, 50, 40, Some(35));
}

fn say() -> impl Strategy<Value = Say> {
    prop_oneof![
        3 => Just(Say::Due),
        3 => Just(Say::Connected),
        4 => Just(ok()),
        1 => Just(Say::Reply(doc! { "ok": 0 })),
        1 => vec(any::<u8>(), 0..40).prop_map(Say::Bytes),
        1 => Just(Say::Failed),
    ]
}

proptest! {
    /// G-7, G-11, G-13: one request at a time, on a connection, a heartbeat after the last.
    #[test]
    fn the_machine_keeps_its_contract_for_random_inputs(script in vec((0_u64..12_000, say()), 0..100)) {
        let mut machine = RttMachine::new(Arc::new(config()));
        let mut now = Instant::from_millis(1);
        let mut asked = now;
        let (mut connected, mut outstanding, mut rested) = (false, None, None);
        let start = core::iter::once((0, Say::Start));
        for (wait, say) in start.chain(script) {
            now = now + Duration::from_millis(wait);
            let answered = match (&say, outstanding) {
                (Say::Connected, Some("connection")) => {
                    connected = true;
                    true
                }
                (Say::Reply(_) | Say::Bytes(_), Some("reply")) | (Say::Failed, Some(_)) => true,
                _ => false,
            };
            if answered {
                outstanding = None;
            }
            let effects = tell(&mut machine, &mut asked, now, &say);
            if !answered && !matches!(say, Say::Due | Say::Start) {
                prop_assert!(effects.is_empty(), "an answer without a request has effects: {say:?}");
            }
            for effect in effects {
                match effect {
                    RttEffect::Connect { .. } => {
                        prop_assert!(!connected && outstanding.is_none());
                        prop_assert!(rested.is_none_or(|until| until <= now));
                        outstanding = Some("connection");
                    }
                    RttEffect::Send { .. } => {
                        prop_assert!(connected && outstanding.is_none());
                        let first = matches!(say, Say::Connected);
                        prop_assert!(first || rested.is_some_and(|until| until <= now));
                        outstanding = Some("reply");
                    }
                    RttEffect::Disconnect => (connected, outstanding) = (false, None),
                    RttEffect::Sample(_) => prop_assert!(connected && answered),
                    RttEffect::Exit => prop_assert!(false, "the machine ended without a stop"),
                }
            }
            if outstanding.is_none() && (answered || machine.deadline() != rested) {
                rested = Some(now + Duration::from_secs(10));
            }
            prop_assert!(outstanding.is_some() || machine.deadline() == rested);
        }
    }
}
