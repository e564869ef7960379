//! Invariants under arbitrary inputs.

use std::{sync::Arc, time::Duration, vec::Vec};

use proptest::{collection::vec, prelude::*};

use super::machine::{MonitorEffect, MonitorInput, MonitorMachine, ServerStatus};
use super::script::{config, encode, new, old, options, refusal, reply};
use crate::{
    address::ServerAddress,
    error::{Error, ErrorKind, Stage},
    event::{EventKind, Heartbeat},
    hello::Hello,
    ids::{Generation, ServerId},
    monitor::MonitorConfig,
    options::MIN_HEARTBEAT_FREQUENCY,
    time::Instant,
};

/// The next external event.
#[derive(Clone, Debug)]
enum Act {
    /// Lets time pass up to the deadline, and this much longer.
    Wait(u64),
    Connected,
    Reply {
        bytes: Vec<u8>,
        more: bool,
    },
    Failed(ErrorKind),
    Request,
    /// An operation meets a network error: the pool is cleared, and the server Unknown.
    Clear,
    /// The monitor is notified of the latest clear, possibly repeatedly.
    Cancel,
    /// A pooled connection finds the server.
    Found,
    Stop,
}

fn act() -> impl Strategy<Value = Act> {
    let bytes = prop_oneof![
        4 => (0_i64..5).prop_map(|counter| encode(&new(counter))),
        3 => Just(encode(&old())),
        2 => Just(encode(&refusal())),
        1 => vec(any::<u8>(), 0..40),
    ];
    let kind = prop_oneof![
        Just(ErrorKind::Network),
        Just(ErrorKind::Timeout),
        Just(ErrorKind::Protocol)
    ];
    prop_oneof![
        9 => prop_oneof![Just(0), 0..2_000_u64, 9_000..60_000_u64].prop_map(Act::Wait),
        9 => Just(Act::Connected),
        15 => (bytes, any::<bool>()).prop_map(|(bytes, more)| Act::Reply { bytes, more }),
        4 => kind.prop_map(Act::Failed),
        4 => Just(Act::Request),
        2 => Just(Act::Clear),
        3 => Just(Act::Cancel),
        1 => Just(Act::Found),
        1 => Just(Act::Stop),
    ]
}

fn any_config() -> impl Strategy<Value = MonitorConfig> {
    let heartbeat = prop_oneof![Just(500), Just(700), Just(10_000)];
    let limit = prop_oneof![Just(None), Just(Some(200)), Just(Some(10_000))];
    let switches = (any::<bool>(), any::<bool>());
    (heartbeat, limit, switches).prop_map(|(heartbeat, limit, (streaming, legacy))| {
        let mut config = config(&options());
        config.heartbeat_frequency = Duration::from_millis(heartbeat);
        config.connect_timeout = limit.map(Duration::from_millis);
        config.streaming = streaming;
        config.legacy_retry_before_unknown = legacy;
        config
    })
}

/// The end of the last check.
#[derive(Clone, Copy, Debug, PartialEq)]
enum End {
    Succeeded,
    /// With an error that allows an immediate retry if the server was known.
    Lost {
        was_known: bool,
    },
    Otherwise,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Outstanding {
    Connection,
    Reply,
}

/// A driver that keeps its contract and checks the machine's.
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a fact of its own about the machine under test"
)]
struct Driver {
    machine: MonitorMachine,
    config: Arc<MonitorConfig>,
    now: Instant,
    status: ServerStatus,
    /// The generation under which the newest connection began to be opened.
    opened_under: Generation,
    connected: bool,
    outstanding: Option<Outstanding>,
    /// The instant of the newest request.
    asked: Instant,
    running: Option<Heartbeat>,
    /// The time and the outcome of the last check's end.
    ended: Option<(Instant, End)>,
    /// True if the last failure of a check was not reported.
    withheld: bool,
    /// True if the round-trip time was ever measured.
    measured: bool,
    rtt_started: bool,
    exited: bool,
}

impl Driver {
    fn new(config: MonitorConfig) -> Self {
        let config = Arc::new(config);
        let address = ServerAddress::new("db.lan", 27017);
        Self {
            machine: MonitorMachine::new(Arc::clone(&config), ServerId::from_u64(1), address),
            config,
            now: Instant::from_millis(1_000),
            status: ServerStatus::default(),
            opened_under: Generation::FIRST,
            connected: false,
            outstanding: None,
            asked: Instant::EPOCH,
            running: None,
            ended: None,
            withheld: false,
            measured: false,
            rtt_started: false,
            exited: false,
        }
    }

    fn act(&mut self, act: Act) {
        let answers = match &act {
            Act::Connected => self.outstanding == Some(Outstanding::Connection),
            Act::Reply { .. } => self.outstanding == Some(Outstanding::Reply),
            Act::Failed(_) => self.outstanding.is_some(),
            _ => true,
        };
        let before = self.machine.deadline();
        let effects = match act {
            Act::Wait(longer) => {
                let Some(deadline) = self.machine.deadline() else {
                    return;
                };
                self.now = self.now.max(deadline) + Duration::from_millis(longer);
                self.input(MonitorInput::DeadlineReached)
            }
            Act::Connected => self.input(MonitorInput::Connected),
            Act::Reply { bytes, more } => self.input(reply(self.asked, self.now, bytes, more)),
            Act::Failed(kind) => {
                let error = Error::new(kind, Stage::Hello, "random");
                self.input(MonitorInput::Failed {
                    at: self.now,
                    error,
                })
            }
            Act::Request => self.input(MonitorInput::CheckRequested),
            Act::Clear => {
                self.status = ServerStatus {
                    generation: self.status.generation.next(),
                    known: false,
                };
                return;
            }
            Act::Found => {
                self.status.known = true;
                return;
            }
            Act::Cancel => return self.cancel(),
            Act::Stop => self.input(MonitorInput::Stop),
        };
        if !answers {
            assert!(
                effects.is_empty(),
                "an answer without a request has effects: {effects:?}"
            );
            assert_eq!(self.machine.deadline(), before);
        }
        self.execute(effects);
    }

    fn cancel(&mut self) {
        let generation = self.status.generation;
        let affected = self.opened_under < generation && self.connected_or_running();
        let effects = self.input(MonitorInput::Cancel { generation });
        let closed = effects.contains(&MonitorEffect::Disconnect);
        assert_eq!(closed, affected, "closes what is older than the clear");
        self.execute(effects);
        let (Some(next), Some((ended, _))) = (self.machine.deadline(), self.ended) else {
            return;
        };
        if closed && self.status.known {
            let floor = ended + MIN_HEARTBEAT_FREQUENCY;
            assert!(next <= self.now.max(floor), "what is known is watched");
        }
    }

    fn connected_or_running(&self) -> bool {
        self.connected || self.running.is_some()
    }

    fn input(&mut self, input: MonitorInput) -> Vec<MonitorEffect> {
        match (&input, self.outstanding) {
            (MonitorInput::Connected, Some(Outstanding::Connection)) => {
                self.connected = true;
                self.outstanding = None;
            }
            (MonitorInput::Reply { .. }, Some(Outstanding::Reply))
            | (MonitorInput::Failed { .. }, Some(_)) => self.outstanding = None,
            _ => {}
        }
        let effects = self.machine.handle(self.now, self.status, input);
        effects.into_iter().collect()
    }

    fn execute(&mut self, effects: Vec<MonitorEffect>) {
        assert!(
            !self.exited || effects.is_empty(),
            "after exit: {effects:?}"
        );
        let mut ended = None;
        let mut sampled = false;
        for effect in effects {
            match effect {
                MonitorEffect::Connect { deadline } => {
                    assert!(!self.connected, "one connection at a time");
                    self.opened_under = self.status.generation;
                    self.ask(Outstanding::Connection, deadline);
                }
                MonitorEffect::Send { deadline, .. } | MonitorEffect::ReadNext { deadline } => {
                    assert!(self.connected, "on the connection");
                    self.ask(Outstanding::Reply, deadline);
                }
                MonitorEffect::Disconnect => {
                    self.connected = false;
                    self.outstanding = None;
                }
                MonitorEffect::RttSample(_) => {
                    let heartbeat = self.running.as_ref().expect("a sample belongs to a check");
                    assert!(!heartbeat.awaited, "awaited replies measure nothing");
                    sampled = true;
                }
                MonitorEffect::Report { outcome } => {
                    let reported: Option<bool> = ended.take();
                    assert_eq!(
                        reported,
                        Some(outcome.is_ok()),
                        "reports the check that ended"
                    );
                    self.measured |= sampled;
                    assert!(
                        self.measured || outcome.is_err(),
                        "what is known was measured"
                    );
                    self.status.known = outcome.is_ok();
                }
                MonitorEffect::StartRtt => {
                    assert!(self.config.streaming && !self.rtt_started);
                    self.rtt_started = true;
                }
                MonitorEffect::StopRtt => {
                    assert!(self.rtt_started);
                    self.rtt_started = false;
                }
                MonitorEffect::Emit(event) => ended = self.event(event).or(ended),
                MonitorEffect::Exit => self.exited = true,
            }
        }
        if ended == Some(false) && !self.exited {
            self.unreported();
        }
        assert_ne!(ended, Some(true), "every success is reported");
        self.rest();
    }

    fn ask(&mut self, what: Outstanding, deadline: Option<Instant>) {
        assert_eq!(self.outstanding, None, "one request at a time");
        assert!(self.running.is_some(), "requests belong to checks");
        assert_eq!(deadline, self.machine.deadline());
        self.outstanding = Some(what);
        self.asked = self.now;
    }

    /// Returns whether the event ends a check, and whether successfully.
    fn event(&mut self, event: EventKind) -> Option<bool> {
        match event {
            EventKind::ServerHeartbeatStarted(heartbeat) => {
                assert_eq!(self.running, None, "checks do not overlap");
                self.pause_was_long_enough(&heartbeat);
                self.running = Some(heartbeat);
                None
            }
            EventKind::ServerHeartbeatSucceeded { heartbeat, .. } => {
                self.withheld = false;
                self.end(&heartbeat, End::Succeeded);
                Some(true)
            }
            EventKind::ServerHeartbeatFailed {
                heartbeat, failure, ..
            } => {
                let end = match failure.kind() {
                    // The check that repeats one whose failure was withheld is the last.
                    ErrorKind::Network | ErrorKind::Timeout => End::Lost {
                        was_known: self.status.known && !self.withheld,
                    },
                    _ => End::Otherwise,
                };
                if failure.kind() != ErrorKind::Cancelled {
                    self.withheld = false;
                }
                self.end(&heartbeat, end);
                Some(false)
            }
            other => panic!("not a monitor's event: {other:?}"),
        }
    }

    fn end(&mut self, heartbeat: &Heartbeat, end: End) {
        let started = self.running.take().expect("only what has started ends");
        assert_eq!(started.connection.driver, heartbeat.connection.driver);
        assert_eq!(started.awaited, heartbeat.awaited);
        self.ended = Some((self.now, end));
    }

    /// Checks the minimum wait of 500 ms and its exceptions.
    fn pause_was_long_enough(&self, next: &Heartbeat) {
        let Some((at, end)) = self.ended else {
            return;
        };
        let exempt = match end {
            End::Succeeded => next.awaited,
            End::Lost { was_known } => was_known,
            End::Otherwise => false,
        };
        assert!(
            exempt || self.now.since(at) >= MIN_HEARTBEAT_FREQUENCY,
            "{end:?} at {at:?}, next at {:?}",
            self.now
        );
    }

    /// Checks that an unreported failure was cancelled or waits for its retry.
    fn unreported(&mut self) {
        match self.ended {
            Some((_, End::Lost { was_known })) => {
                assert!(was_known && self.config.legacy_retry_before_unknown);
                self.withheld = true;
            }
            ended => assert!(matches!(ended, Some((_, End::Otherwise))), "{ended:?}"),
        }
    }

    /// Checks the invariants between two inputs.
    fn rest(&self) {
        let deadline = self.machine.deadline();
        if self.exited {
            assert_eq!((deadline, self.outstanding), (None, None));
            assert!(self.running.is_none() && !self.connected);
        } else if self.outstanding.is_some() {
            assert!(self.running.is_some());
            let limited = self.config.connect_timeout.is_some();
            assert_eq!(
                deadline.is_some(),
                limited,
                "waits for ever only for the network"
            );
        } else {
            assert_eq!(self.running, None, "a check waits for something");
            let (ended, _) = self.ended.expect("it was started");
            let latest = ended + self.config.heartbeat_frequency;
            assert!(deadline.is_some_and(|deadline| deadline <= latest));
        }
    }
}

proptest! {
    /// J-31, F-40, F-41, F-51, F-71, F-72, G-5, G-8: heartbeats pair, one request is outstanding,
    /// checks keep their minimum interval, there are no effects after the end, and every wait but
    /// that for the network is bounded.
    #[test]
    fn the_machine_keeps_its_contract_for_random_inputs(config in any_config(), acts in vec(act(), 0..200)) {
        let mut driver = Driver::new(config);
        let effects = driver.machine.start(driver.now, driver.status).into_iter().collect();
        driver.execute(effects);
        for act in acts {
            driver.act(act);
        }
        driver.act(Act::Stop);
        prop_assert!(driver.exited);
        for act in [Act::Connected, Act::Request, Act::Clear, Act::Cancel, Act::Wait(0), Act::Stop] {
            driver.act(act);
        }
    }

    /// Replies are untrusted.
    #[test]
    fn a_reply_of_any_bytes_ends_the_check(bytes in vec(any::<u8>(), 0..100), more in any::<bool>()) {
        let mut driver = Driver::new(config(&options()));
        let effects = driver.machine.start(driver.now, driver.status).into_iter().collect();
        driver.execute(effects);
        driver.act(Act::Connected);
        let known = Hello::parse(&bytes).is_ok();
        driver.act(Act::Reply { bytes, more });
        prop_assert_eq!(driver.running, None);
        prop_assert_eq!(driver.status.known, known);
    }
}
