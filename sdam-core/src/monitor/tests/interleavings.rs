//! Every order of the steps of a monitor, its control word, its server and the operation that clears
//! the pool (F-71, F-72).
//!
//! The model is that of the engine: the monitor's view of its server is written under the
//! topology's lock and read without it, the control word is posted last, and a report waits for the
//! lock. Time stands still, so everything that is due happens, in every order.

use std::{collections::BTreeSet, format, string::String, sync::Arc, vec::Vec};

use super::script::{encode, new, reply, streaming};
use crate::{
    address::ServerAddress,
    error::{Error, ErrorKind, Stage},
    ids::{Generation, ServerId},
    monitor::{MonitorEffect, MonitorInput, MonitorMachine, ServerStatus},
    options::MIN_HEARTBEAT_FREQUENCY,
    time::Instant,
};

const NOW: Instant = Instant::from_millis(1_000);

/// The next step of an operation that has met a network error. It holds the lock from the first
/// step to the last.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Clearing {
    Not,
    Unknown,
    Raised,
}

/// The outstanding request on the connection.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Asked {
    Nothing,
    ToConnect,
    ToReply,
}

#[derive(Clone, Copy, Debug)]
enum Step {
    /// The monitor's task runs until it waits.
    Monitor,
    /// The connection opens, or a reply arrives.
    Answer,
    Break,
    /// The operation takes its next step.
    Clear,
    /// A pooled connection finds the server, and its monitor is asked to check.
    Find,
}

const STEPS: [Step; 5] = [
    Step::Monitor,
    Step::Answer,
    Step::Break,
    Step::Clear,
    Step::Find,
];

#[derive(Clone, Debug)]
struct World {
    machine: MonitorMachine,
    status: ServerStatus,
    /// The cancellation in the control word.
    cancel: Option<Generation>,
    check: bool,
    clearing: Clearing,
    asked: Asked,
    /// The next result on the connection; `true` for an answer.
    arrived: Option<bool>,
    /// The outcome of a report that waits for the lock.
    report: Option<bool>,
    /// The generation under which the connection began to be opened.
    connection: Option<Generation>,
    /// The number of connections closed because of a cancellation.
    cancelled: u32,
    clears: u32,
    /// The numbers of answers, breaks and finds that may still happen.
    answers: u32,
    breaks: u32,
    finds: u32,
}

impl World {
    fn new() -> Self {
        let address = ServerAddress::new("db.lan", 27017);
        let config = Arc::new(streaming());
        let mut world = Self {
            machine: MonitorMachine::new(config, ServerId::from_u64(1), address),
            status: ServerStatus::default(),
            cancel: None,
            check: false,
            clearing: Clearing::Not,
            asked: Asked::Nothing,
            arrived: None,
            report: None,
            connection: None,
            cancelled: 0,
            clears: 0,
            answers: 7,
            breaks: 2,
            finds: 2,
        };
        world.tell(MonitorInput::DeadlineReached);
        world
    }

    /// Takes the step, if it is possible now.
    fn take(&mut self, step: Step) -> bool {
        let unlocked = self.clearing == Clearing::Not;
        match step {
            Step::Monitor => return self.run(),
            Step::Answer if self.can_arrive() && self.answers > 0 => {
                self.answers -= 1;
                self.arrived = Some(true);
            }
            Step::Break if self.can_arrive() && self.breaks > 0 => {
                self.breaks -= 1;
                self.arrived = Some(false);
            }
            Step::Clear if !unlocked || self.clears < 3 => self.clear(),
            Step::Find if unlocked && self.finds > 0 => {
                self.finds -= 1;
                self.check |= !self.status.known;
                self.status.known = true;
            }
            Step::Answer | Step::Break | Step::Clear | Step::Find => return false,
        }
        true
    }

    fn can_arrive(&self) -> bool {
        self.asked != Asked::Nothing && self.arrived.is_none()
    }

    fn clear(&mut self) {
        self.clearing = match self.clearing {
            Clearing::Not => {
                self.clears += 1;
                self.status.known = false;
                Clearing::Unknown
            }
            Clearing::Unknown => {
                self.status.generation = self.status.generation.next();
                Clearing::Raised
            }
            Clearing::Raised => {
                self.cancel = Some(self.status.generation);
                Clearing::Not
            }
        };
    }

    /// Runs the task in the engine's order: pending report, mail, answers, deadlines.
    fn run(&mut self) -> bool {
        if let Some(found) = self.report {
            if self.clearing != Clearing::Not {
                return false;
            }
            self.report = None;
            self.status.known = found;
            if !found {
                self.status.generation = self.status.generation.next();
            }
        } else if self.cancel.is_some() || self.check {
            let check = core::mem::take(&mut self.check);
            if let Some(generation) = self.cancel.take() {
                self.read_cancel(generation);
            }
            if check {
                self.tell(MonitorInput::CheckRequested);
            }
        } else if let Some(answered) = self.arrived.take() {
            let asked = core::mem::replace(&mut self.asked, Asked::Nothing);
            if !answered {
                let error = Error::new(ErrorKind::Network, Stage::Hello, "reset");
                self.tell(MonitorInput::Failed { at: NOW, error });
            } else if asked == Asked::ToConnect {
                self.tell(MonitorInput::Connected);
            } else {
                self.tell(reply(NOW, NOW, encode(&new(1)), true));
            }
        } else if self.machine.deadline().is_some_and(|due| due <= NOW) {
            self.tell(MonitorInput::DeadlineReached);
        } else {
            return false;
        }
        true
    }

    fn read_cancel(&mut self, generation: Generation) {
        let before = self.connection;
        self.tell(MonitorInput::Cancel { generation });
        let closed = before.is_some() && self.connection.is_none();
        let older = before.is_some_and(|opened| opened < generation);
        assert_eq!(closed, older, "closes what is older than the clear");
        self.cancelled += u32::from(closed);
    }

    fn tell(&mut self, input: MonitorInput) {
        for effect in self.machine.handle(NOW, self.status, input) {
            match effect {
                MonitorEffect::Connect { .. } => {
                    assert_eq!(self.connection, None, "one connection at a time");
                    self.connection = Some(self.status.generation);
                    self.asked = Asked::ToConnect;
                }
                MonitorEffect::Send { .. } | MonitorEffect::ReadNext { .. } => {
                    self.asked = Asked::ToReply;
                }
                MonitorEffect::Disconnect => {
                    self.connection = None;
                    self.asked = Asked::Nothing;
                    self.arrived = None;
                }
                MonitorEffect::Report { outcome } => self.report = Some(outcome.is_ok()),
                MonitorEffect::RttSample(_)
                | MonitorEffect::StartRtt
                | MonitorEffect::StopRtt
                | MonitorEffect::Emit(_) => {}
                MonitorEffect::Exit => panic!("it was not stopped"),
            }
        }
    }

    /// Checks the invariants when the monitor is idle and no step is half-done.
    fn judge(&self) {
        assert!(
            self.connection
                .is_none_or(|opened| opened == self.status.generation),
            "the connection outlives a clear: {self:?}"
        );
        assert!(self.cancelled <= self.clears, "{self:?}");
        let floor = NOW + MIN_HEARTBEAT_FREQUENCY;
        let next = self.machine.deadline();
        assert!(
            !self.status.known
                || self.connection.is_some()
                || next.is_some_and(|next| next <= floor),
            "a known server is not watched: {self:?}"
        );
    }
}

#[test]
fn in_every_order_a_clear_closes_older_connections_and_a_known_server_is_checked() {
    let first = World::new();
    let mut seen = BTreeSet::<String>::new();
    let mut open = Vec::from([first]);
    let mut judged = 0;
    while let Some(world) = open.pop() {
        let mut idle = world.clearing == Clearing::Not;
        for step in STEPS {
            let mut next = world.clone();
            if !next.take(step) {
                continue;
            }
            idle &= !matches!(step, Step::Monitor);
            if seen.insert(format!("{next:?}")) {
                open.push(next);
            }
        }
        if idle {
            judged += 1;
            world.judge();
        }
    }
    assert!(
        seen.len() > 10_000 && judged > 1_000,
        "{} states, {judged} of them at rest",
        seen.len()
    );
}
