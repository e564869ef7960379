//! Trials, in which a [`Detector`](crate::options::Detector) judges silent servers.

use core::{mem, time::Duration};

use super::{
    Deployment, Outputs,
    server::Server,
    silence::{Host, STALL, Standing},
};
use crate::{
    error::{Error, ErrorKind, Stage},
    ids::ServerId,
    options::Detector,
    rtt::RttWindow,
    time::Instant,
};

/// The longest time that may pass between a probe and the start of a requested check.
const LATEST_CHECK: Duration = Duration::from_millis(600);

/// The state of a server's trial.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Trial {
    /// The time at which the operation that has waited longest was sent; `None` if no operation is
    /// known to wait. A waiting operation can start a trial but is not evidence in it, because the
    /// operation may simply be slow.
    late: Option<Instant>,
    state: TrialState,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum TrialState {
    /// No answer is overdue.
    #[default]
    None,
    /// The server and the witnesses (the servers that answered last) were asked at this time.
    Asked(Instant),
    /// The server and the witnesses were asked, and a probe was begun at `at`.
    Probed { asked: Instant, at: Instant },
    /// Neither the server nor a witness has answered, so the network or this host may be to blame.
    /// As soon as a witness answers, the server and all witnesses are asked again.
    Undecided { asked: Instant },
}

impl Trial {
    /// Writes the state that determines the outcome of the trial.
    #[cfg(feature = "model")]
    pub(super) fn write_key(&self, now: Instant, hasher: &mut impl core::hash::Hasher) {
        use core::hash::Hash;

        self.late.map(|late| now.since(late)).hash(hasher);
        mem::discriminant(&self.state).hash(hasher);
    }

    /// Returns the time at which the server was asked; `None` if it was not.
    pub(super) fn asked(&self) -> Option<Instant> {
        match self.state {
            TrialState::Asked(asked)
            | TrialState::Probed { asked, .. }
            | TrialState::Undecided { asked } => Some(asked),
            TrialState::None => None,
        }
    }
}

impl Server {
    /// Returns the times at which the outstanding answers become overdue, the earliest first.
    fn signals(&self, host: Host) -> [Option<Instant>; 3] {
        let begun = match self.answers.trial.state {
            TrialState::Probed { at, .. } => at,
            TrialState::None | TrialState::Asked(_) | TrialState::Undecided { .. } => {
                Instant::EPOCH
            }
        };
        let outstanding = [self.check.expected(), self.ping.expected(), self.probe.expected()];
        let mut signals =
            outstanding.map(|since| Some(self.excused(since?.max(begun), host)? + self.wait(host)));
        signals.sort_unstable_by_key(|signal| signal.unwrap_or(Instant::MAX));
        signals
    }

    /// Returns the time at which the detector has to judge the server again, or `None` if there is
    /// no such time.
    pub(super) fn next_judgment(&self, host: Host) -> Option<Instant> {
        host.detector.filter(|_| self.answers.standing != Standing::Excused)?;
        let [first, second, _] = self.signals(host);
        match self.answers.trial.state {
            TrialState::None => {
                let late = self.answers.trial.late.and_then(|late| self.excused(late, host));
                first.into_iter().chain(late.map(|late| late + self.wait(host))).min()
            }
            TrialState::Asked(asked) => {
                Some(self.excused(asked, host)? + Detector::hurry(&self.rtt))
            }
            TrialState::Probed { .. } => second,
            TrialState::Undecided { .. } => None,
        }
    }

    /// Returns how long an answer may currently take. During a trial, this is the wait for a ping
    /// or a probe.
    fn wait(&self, host: Host) -> Duration {
        match (self.answers.trial.state, host.detector) {
            (TrialState::None, Some(detector)) => host.extended(detector.prompt(&self.rtt)),
            _ => self.patience(host),
        }
    }

    /// Returns how late a timer may be before this host counts as stalled. The tolerance is smaller
    /// during a trial, because a stall of this host must not be mistaken for silence of the server.
    pub(super) fn tolerance(&self, host: Host) -> Duration {
        match self.answers.trial.state {
            TrialState::None | TrialState::Undecided { .. } => STALL,
            TrialState::Asked(_) | TrialState::Probed { .. } => STALL.min(self.wait(host) / 4),
        }
    }

    /// Sends a ping if round-trip times are being measured. Otherwise, or if an earlier ping is
    /// overdue, begins a probe.
    fn ask(&mut self, now: Instant, host: Host, out: &mut Outputs) {
        let overdue = self.ping.expected().and_then(|since| self.excused(since, host));
        let is_silent = overdue.is_some_and(|overdue| overdue + self.wait(host) <= now);
        self.answers.trial.state = TrialState::Asked(now);
        let pings = self.ping.hasten(now, out);
        if !pings {
            // In polling mode there are no pings, so a check is requested instead.
            self.check.request(now);
        }
        if is_silent || !pings {
            self.begin_probe(now, out);
        }
    }

    /// Returns whether the witnesses' answers are too old to decide a trial whose probe began at
    /// `at`: either this host has stalled since then, or too much time has passed because the
    /// request on the second silent connection was sent much later.
    fn is_outdated(&self, at: Instant, now: Instant, host: Host) -> bool {
        self.excused(at, host) != Some(at) || now.since(at) > self.wait(host) + LATEST_CHECK
    }

    /// Sends a hello on a new connection.
    fn begin_probe(&mut self, now: Instant, out: &mut Outputs) {
        let asked = self.answers.trial.asked().unwrap_or(now);
        self.answers.trial.state = TrialState::Probed { asked, at: now };
        // An earlier probe may still be waiting for TCP to retransmit a segment that was lost in an
        // outage.
        self.probe.stop(out);
        self.probe.start(now);
        let _ = self.probe.hasten(now, out);
    }

    /// Ends the trial, because the server has answered, is Unknown or has left the topology.
    pub(super) fn acquit(&mut self, out: &mut Outputs) {
        self.answers.trial = Trial::default();
        self.probe.stop(out);
    }
}

impl Deployment {
    /// Notes that an operation has waited for an answer since `sent`. Any answer from the server
    /// clears the note, because the operation may just be slow.
    pub(super) fn late(&mut self, server: ServerId, sent: Instant) {
        if self.detector().is_some() {
            self.with(server, |own| {
                let late = &mut own.answers.trial.late;
                *late = Some(late.map_or(sent, |earlier| earlier.min(sent)));
            });
        }
    }

    /// Judges the server if a judgment is due at `now`. Called when the server's timer is due.
    pub(super) fn judge(&mut self, now: Instant, server: ServerId, out: &mut Outputs) {
        let host = self.servers.host();
        let witness = self.evidence.witness(server);
        let Some(own) = self.servers.get_mut(server) else {
            return;
        };
        if own.next_judgment(host).is_none_or(|judgment| judgment > now) {
            return;
        }
        match own.answers.trial.state {
            TrialState::None => self.ask(now, server, out),
            TrialState::Asked(_) => own.begin_probe(now, out),
            TrialState::Probed { at, .. } if own.is_outdated(at, now, host) => {
                self.ask(now, server, out);
            }
            TrialState::Probed { asked, .. } if witness.is_none_or(|at| at <= asked) => {
                own.answers.trial.state = TrialState::Undecided { asked };
                self.evidence.undecided.push(server);
            }
            TrialState::Probed { .. } => self.convict(now, server, out),
            TrialState::Undecided { .. } => {}
        }
    }

    /// Repeats the requests of all undecided trials, to the silent servers and to the witnesses.
    /// Called after an answer from any server.
    pub(super) fn retry(&mut self, now: Instant, out: &mut Outputs) {
        for server in mem::take(&mut self.evidence.undecided) {
            let state = self.servers.get(server).map(|own| own.answers.trial.state);
            if let Some(TrialState::Undecided { .. }) = state {
                self.ask(now, server, out);
            }
        }
    }

    fn ask(&mut self, now: Instant, server: ServerId, out: &mut Outputs) {
        let host = self.servers.host();
        self.with(server, |own| own.ask(now, host, out));
        for witness in self.evidence.witnesses(server) {
            self.with(witness, |own| {
                if !own.ping.hasten(now, out) {
                    own.check.request(now);
                }
            });
        }
    }

    /// Treats the server's silence as a time-out of its check.
    fn convict(&mut self, now: Instant, server: ServerId, out: &mut Outputs) {
        let Some(own) = self.servers.get_mut(server) else {
            return;
        };
        own.accuse(now, out);
        // The message omits the elapsed time, so that repeated failures have equal messages.
        let message = "no answer, not even to a ping, while another server answers";
        let error = Error::new(ErrorKind::Timeout, Stage::Hello, message);
        own.check.give_up(now, error.clone(), out);
        own.ping.failed(now, out);
        self.report(now, server, Err(error), out);
    }
}

/// The time that an answer may take before the server is pinged, as a number of usual round trips.
const PROMPT_TRIPS: u32 = 2;

/// The time to wait for the answer to a ping, as a number of usual round trips. This tolerates
/// replies that are twenty times slower than usual.
const TRIPS: u32 = 21;

/// An additional wait that allows TCP to retransmit a lost segment.
const REPETITION: Duration = Duration::from_millis(400);

/// The minimum time to wait for the answer to a ping before a new connection is opened.
const HURRY: Duration = Duration::from_millis(100);

impl Detector {
    /// Returns how long an answer may take before the server is pinged.
    pub(super) fn prompt(self, rtt: &RttWindow) -> Duration {
        self.floor.max(rtt.lower_quartile().saturating_mul(PROMPT_TRIPS))
    }

    /// Returns how long to wait for the answer to a ping before a new connection is opened.
    pub(super) fn hurry(rtt: &RttWindow) -> Duration {
        HURRY.max(rtt.lower_quartile().saturating_mul(PROMPT_TRIPS))
    }

    /// Returns how long the answer to a ping may take.
    pub(super) fn patience(self, rtt: &RttWindow) -> Duration {
        self.floor.max(rtt.lower_quartile().saturating_mul(TRIPS).saturating_add(REPETITION))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_detector_waits_for_its_floor_or_for_many_usual_round_trips_and_a_repetition() {
        let check = |samples: &[u64], millis| {
            let mut rtt = RttWindow::default();
            for sample in samples {
                rtt.add(Duration::from_millis(*sample));
            }
            assert_eq!(Detector::PROBING.patience(&rtt).as_millis(), millis, "{samples:?}");
        };
        check(&[], 750);
        check(&[1, 2, 3], 750);
        check(&[100], 2500);
        check(&[200, 100, 2000, 2000, 2000, 2000, 2000, 2000], 4600);
        check(&[100, 2000, 2000, 2000, 2000, 2000], 42_400);
    }

    #[test]
    fn a_server_is_asked_after_the_floor_or_two_usual_round_trips() {
        let mut rtt = RttWindow::default();
        assert_eq!(Detector::PROBING.prompt(&rtt), Duration::from_millis(750));
        rtt.add(Duration::from_secs(1));
        assert_eq!(Detector::PROBING.prompt(&rtt), Duration::from_secs(2));
    }
}
