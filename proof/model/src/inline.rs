//! The steps of single-threaded clients and of SRV polling, and their invariants.

use std::time::Duration;

use sdam_core::{
    deployment::{Input, Output, ScanRequest, Timer},
    error::{Error, Stage},
    ids::ServerId,
    srv::SrvRecords,
    time::Instant,
};

use crate::{
    oracle::ensure,
    start::{Call, Purpose},
    step::{MEMBERS, Request, Step, members},
    watch::{Phase, Watch},
    world::World,
};

/// A time after which an idle connection must be probed before it is used.
const IDLE: Duration = Duration::from_secs(9);

impl World {
    /// Returns whether a step that does not concern a single member is possible.
    pub(crate) fn can_go_on(&self, step: Step) -> bool {
        match step {
            Step::Hosts(_) | Step::Suspended => true,
            Step::LookUp => self.first_look_up().is_some(),
            Step::LookedUp(_) => matches!(self.asked, Some(Output::LookUp { .. })),
            Step::Request(Request::Check) => self.start.is_inline() && self.watch(0).is_some(),
            Step::Request(_) => self.start.is_inline(),
            Step::Wait => self.deployment.deadline_of(Timer::Scan, false).is_some(),
            Step::Chosen { server, idle } => {
                let chosen = self.chosen(server);
                let open =
                    chosen.is_some_and(|own| own.check.phase == Phase::Open) || self.start.balanced;
                let exists = chosen.is_some() || server >= MEMBERS;
                self.asked == Some(Output::Choose) && exists && (open || !idle)
            }
            Step::Probed { .. } => matches!(self.asked, Some(Output::Probe { .. })),
            Step::Service(service, own) => self.can_serve(service, own),
            _ => false,
        }
    }

    /// Takes a step that does not concern a single member.
    pub(crate) fn go_on(&mut self, step: Step) -> Result<(), String> {
        let asked = self.asked.clone();
        match (step, asked) {
            (Step::Hosts(mask), _) => {
                let hosts: Vec<_> = members(mask).collect();
                self.handle(Call::default(), Input::Hosts(hosts.into()))
            }
            (Step::LookUp | Step::LookedUp(_), _) => self.poll_srv(step),
            (Step::Request(request), _) => {
                let request = match request {
                    Request::Select => ScanRequest::Select { timeout: Duration::from_secs(1) },
                    Request::Scan => ScanRequest::Scan,
                    Request::Check => match self.watch(0) {
                        Some(watch) => ScanRequest::Check { server: watch.id },
                        None => return Ok(()),
                    },
                    Request::Settle => ScanRequest::Settle,
                };
                self.is_requested = true;
                self.reply(None, Input::Scan(request))
            }
            (Step::Wait, _) => {
                let deadline = self.deployment.deadline_of(Timer::Scan, false);
                self.now = self.now.max(deadline.unwrap_or(self.now));
                let (timer, wanted) = (Timer::Scan, false);
                let checking = self.watches.iter().find(|watch| watch.checking);
                let checking = checking.map(|own| own.id);
                if let Some(server) = checking {
                    self.extend(server);
                }
                self.reply(checking, Input::Due { timer, wanted })?;
                let next = self.deployment.deadline_of(Timer::Scan, false);
                ensure(next.is_none_or(|next| next > self.now), || {
                    format!("the timer of the request is due again at once, at {:?}", self.now)
                })
            }
            (Step::Chosen { server, idle }, _) => {
                let server = self.chosen(server).map(|own| own.id);
                let idle = server.map(|_| if idle { IDLE } else { Duration::ZERO });
                self.reply(None, Input::Chosen { server, idle })
            }
            (Step::Probed { alive }, Some(Output::Probe { server })) => {
                let outcome = if alive {
                    Ok(())
                } else {
                    self.double(server, |own| own.check.phase = Phase::Closed);
                    Err(Error::network(Stage::Operation, "silent"))
                };
                self.reply(Some(server), Input::Probed { server, outcome })
            }
            (Step::Suspended, _) => {
                self.now = self.now + Duration::from_secs(60);
                Ok(())
            }
            (Step::Service(service, own), _) => self.serve(service, own),
            _ => Ok(()),
        }
    }

    fn poll_srv(&mut self, step: Step) -> Result<(), String> {
        match step {
            Step::LookUp => {
                self.now = self.first_look_up().unwrap_or(self.now);
                let (timer, wanted) = (Timer::Srv, false);
                self.handle(Call::default(), Input::Due { timer, wanted })?;
                let again = self.deployment.deadline_of(Timer::Srv, false);
                ensure(self.asked.is_some() && again.is_none(), || {
                    format!("N-21: {:?} is looked up, and again at {again:?}", self.asked)
                })
            }
            Step::LookedUp(mask) => {
                let hosts: Vec<_> = members(mask).collect();
                let failed = hosts.is_empty();
                let outcome = Ok(SrvRecords::new(hosts, Duration::ZERO));
                self.reply(None, Input::LookedUp(outcome))?;
                let next = self.deployment.deadline_of(Timer::Srv, false);
                let least = if failed { self.start.heartbeat() } else { Duration::from_secs(60) };
                let polls = self.published.topology_type().polls_srv() && !self.start.is_inline();
                ensure(next == polls.then(|| self.now + least), || {
                    format!("N-21, N-23: the next look-up is at {next:?}, now is {:?}", self.now)
                })
            }
            _ => Ok(()),
        }
    }

    /// Records the action that the client must perform for its request, or the end of the request.
    pub(crate) fn require(&mut self, call: Call, output: &Output) -> Result<(), String> {
        let is_look_up = matches!(output, Output::LookUp { .. });
        let expected = if self.start.is_inline() {
            self.is_requested && call.purpose == Purpose::Request
        } else {
            is_look_up
        };
        ensure(expected, || format!("{output:?} is required without a request"))?;
        match output {
            Output::Finish(_) => self.is_requested = false,
            _ => self.asked = Some(output.clone()),
        }
        Ok(())
    }

    fn chosen(&self, server: u8) -> Option<&Watch> {
        self.watch(server).filter(|_| server < MEMBERS)
    }

    /// Closes the monitoring connection to the server between two checks.
    pub(crate) fn close_connection(&mut self, server: ServerId) -> Result<(), String> {
        let closed = self.double(server, |own| {
            own.check.phase = Phase::Closed;
            own.check.id
        });
        closed.map_or(Ok(()), |conn| self.handle(Call::default(), Input::ConnectionLost { conn }))
    }

    /// Passes the deployment an input that answers its pending action or begins a request. `about`
    /// is the server that the input concerns, if any.
    fn reply(&mut self, about: Option<ServerId>, input: Input) -> Result<(), String> {
        self.asked = None;
        let purpose = if self.start.is_inline() { Purpose::Request } else { Purpose::Other };
        let call = Call { about, purpose, ..Call::default() };
        self.handle(call, input)
    }

    /// Checks that a request makes progress, and that no action is pending if there is no request.
    pub(crate) fn judge_request(&self, call: Call) -> Result<(), String> {
        let running = |watch: &&Watch| watch.check.is_asked();
        let count = self.watches.iter().filter(running).count();
        ensure(count <= 1, || "H-5: two servers are checked at once".into())?;
        let deadline = self.deployment.deadline(true);
        if !self.is_requested {
            return ensure(deadline.is_none() && count == 0 && self.asked.is_none(), || {
                format!("without a request, {count} checks run, and a timer is due at {deadline:?}")
            });
        }
        let limit = self.watches.iter().find(running).and_then(|own| own.check.deadline);
        ensure(limit.is_none_or(|limit| deadline.is_some_and(|own| own <= limit)), || {
            format!("a check of a request has until {limit:?}, and no timer: {deadline:?}")
        })?;
        let waits = self.asked.is_some() || deadline.is_some() || count > 0;
        ensure(waits || call.purpose == Purpose::Other, || "a request waits for nothing".into())?;
        ensure(self.asked.is_none() || count == 0, || {
            format!("{:?} is required while a check runs", self.asked)
        })
    }

    /// Returns the time of the next look-up, if no other timer is due earlier.
    fn first_look_up(&self) -> Option<Instant> {
        let own = self.deployment.deadline_of(Timer::Srv, false)?;
        let first = self.deployment.deadline(false)?.max(self.now);
        (own <= first).then(|| own.max(self.now))
    }
}
