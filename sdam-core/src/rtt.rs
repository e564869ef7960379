//! Round-trip times: moving average, recent minimum and percentile, and their measurement.

use alloc::sync::Arc;
use core::time::Duration;

use crate::{
    deployment::{ConnId, Output, Outputs, Role},
    hello::Hello,
    ids::ServerId,
    monitor::{MonitorConfig, Negotiation, Trip, Waiting},
    server::Rtt,
    time::Instant,
};

/// The weight of a new sample (Server Selection: "alpha").
const ALPHA: f64 = 0.2;
/// The number of recent samples from which the minimum and the percentile are computed.
const WINDOW: usize = 10;

/// A window of round-trip time samples for one server.
///
/// The average is kept in fractional milliseconds, so that no precision is lost between samples.
#[doc(alias = "EWMA")]
#[derive(Clone, Debug, Default, PartialEq)]
pub struct RttWindow {
    /// The exponentially weighted moving average in milliseconds.
    average: Option<f64>,
    /// The most recent samples in nanoseconds; a new sample overwrites the oldest.
    recent: [u64; WINDOW],
    /// The number of samples since the last reset.
    count: usize,
    /// The newest sample, which is kept across resets.
    newest: Option<Duration>,
    /// The current round-trip times, which are read more often than samples are added.
    rtt: Option<Rtt>,
}

impl RttWindow {
    /// Creates a window with an average of `average` milliseconds, for tests and replays.
    pub fn with_average(average: f64) -> Self {
        let window = Self { average: Some(average), ..Self::default() };
        Self { rtt: window.computed(), ..window }
    }

    /// Adds a sample (Server Selection: "Calculation of Average Round Trip Times").
    pub fn add(&mut self, sample: Duration) {
        self.add_millis(sample.as_secs_f64() * 1e3);
    }

    /// Adds a sample in fractional milliseconds; negative values and NaN are rejected (G-2).
    pub fn add_millis(&mut self, sample: f64) {
        let Ok(duration) = Duration::try_from_secs_f64(sample / 1e3) else {
            return;
        };
        self.newest = Some(duration);
        self.average = Some(match self.average {
            None => sample,
            Some(average) => ALPHA * sample + (1.0 - ALPHA) * average,
        });
        if let Some(slot) = self.recent.get_mut(self.count % WINDOW) {
            *slot = duration.as_nanos().try_into().unwrap_or(u64::MAX);
        }
        self.count = self.count.saturating_add(1);
        self.rtt = self.computed();
    }

    /// Discards every sample but the newest, because the server was lost (Server Selection:
    /// "reset").
    ///
    /// Until the next sample arrives, the newest one serves as the average, so that a server that
    /// has just recovered can be compared with others at once.
    pub(crate) fn reset(&mut self) {
        *self = Self { newest: self.newest, ..Self::default() };
        self.rtt = self.computed();
    }

    /// Returns the average of the samples since the last reset, in fractional milliseconds.
    pub fn average_millis(&self) -> Option<f64> {
        self.average
    }

    /// Returns the average, the minimum and the percentile, or `None` if there was never a sample.
    pub fn rtt(&self) -> Option<Rtt> {
        self.rtt
    }

    fn computed(&self) -> Option<Rtt> {
        let Some(average) = self.average else {
            // The values are the same as after a single sample.
            return self.newest.map(|newest| Rtt {
                average: newest,
                minimum: Duration::ZERO,
                p90: newest,
            });
        };
        let (sorted, count) = self.sorted();
        // By the nearest-rank method, this is the second largest of ten samples, or the largest if
        // there are fewer than ten.
        let p90 = sorted.get((count * 9).div_ceil(10).saturating_sub(1));
        Some(Rtt {
            average: Duration::try_from_secs_f64(average / 1e3).unwrap_or_default(),
            // With only one sample, the minimum remains zero (G-9).
            minimum: nanos(sorted.first().filter(|_| count > 1)).unwrap_or_default(),
            p90: nanos(p90).unwrap_or_default(),
        })
    }

    /// Returns the lower quartile of the last ten samples, by the nearest-rank method; zero if
    /// there has never been a sample.
    pub(crate) fn lower_quartile(&self) -> Duration {
        let (sorted, count) = self.sorted();
        let quartile = sorted.get(count.div_ceil(4).saturating_sub(1)).filter(|_| count > 0);
        nanos(quartile).or(self.newest).unwrap_or_default()
    }

    /// Returns the last ten samples in ascending order, and their number.
    fn sorted(&self) -> ([u64; WINDOW], usize) {
        let mut sorted = self.recent;
        let count = self.count.min(WINDOW);
        sorted.get_mut(..count).unwrap_or_default().sort_unstable();
        (sorted, count)
    }
}

fn nanos(sample: Option<&u64>) -> Option<Duration> {
    sample.copied().map(Duration::from_nanos)
}

/// The measurements of a server's round-trip time, as one part of a deployment (Server Monitoring:
/// "Measuring RTT").
///
/// Sends a hello on a dedicated connection once per heartbeat, from [`start`](Self::start) to
/// [`stop`](Self::stop), and measures the time to the reply.
///
/// Emits no events, reports no errors and never resets the round-trip times, because the checks
/// detect the same failures themselves. After an error, a new connection is opened one heartbeat
/// later.
///
/// A second instance serves as the [probe](Role::Probe) of a silent server: it has its own
/// connection, and stops after it has received an answer.
#[derive(Clone, Debug)]
pub(crate) struct Ping {
    config: Arc<MonitorConfig>,
    server: ServerId,
    role: Role,
    state: PingState,
    /// The negotiation on the open connection.
    connection: Option<Negotiation>,
    /// The number of connections requested so far.
    connections: u64,
    slack: Duration,
    /// True if the measurement in progress was [hastened](Self::hasten).
    hastened: bool,
}

#[derive(Clone, Copy, Debug)]
enum PingState {
    Stopped,
    Idle {
        /// The earliest time at which a measurement may begin during a call made for another
        /// purpose.
        from: Instant,
        /// The time at which the measurement is due.
        until: Instant,
    },
    /// An answer that was requested at `since` is outstanding.
    Asked {
        answer: Waiting,
        since: Instant,
    },
}

impl Ping {
    /// Creates the measurements of `server` without starting them. They are one heartbeat apart,
    /// plus or minus `slack`, so that most of them can begin when the server is handled for another
    /// reason.
    pub(crate) fn new(
        config: Arc<MonitorConfig>,
        (server, role): (ServerId, Role),
        slack: Duration,
    ) -> Self {
        let (state, connection) = (PingState::Stopped, None);
        Self { config, server, role, state, connection, connections: 0, slack, hastened: false }
    }

    /// Makes the first measurement due at `first`, unless the measurements have already started.
    pub(crate) fn start(&mut self, first: Instant) {
        if let PingState::Stopped = self.state {
            self.state = PingState::Idle { from: first, until: first };
        }
    }

    /// Returns the time from the start to the first measurement.
    pub(crate) fn delay(&self) -> Duration {
        self.config.ping_delay
    }

    /// Ends the measurement in progress and closes the connection. No other measurement begins
    /// until the next [`start`](Self::start).
    pub(crate) fn stop(&mut self, out: &mut Outputs) {
        if self.expected().is_some() || self.connection.is_some() {
            self.disconnect(out);
        }
        self.state = PingState::Stopped;
    }

    /// Returns the most recently requested connection.
    pub(crate) fn conn(&self) -> ConnId {
        ConnId { server: self.server, role: self.role, number: self.connections }
    }

    /// Returns the kind of answer that is outstanding on `conn`, if any.
    pub(crate) fn awaits(&self, conn: ConnId) -> Option<Waiting> {
        match self.state {
            PingState::Asked { answer, .. } if conn == self.conn() => Some(answer),
            _ => None,
        }
    }

    /// Begins a measurement if it is not too early for one. Called whenever the server is handled
    /// for another reason.
    pub(crate) fn proceed(&mut self, now: Instant, out: &mut Outputs) {
        if let PingState::Idle { from, .. } = self.state
            && from <= now
        {
            self.begin(now, out);
        }
    }

    /// Begins a measurement at once, if measurements have started and none is in progress. Returns
    /// whether a measurement is in progress afterwards. The measurement yields no sample, because
    /// it is made when the server seems slow.
    pub(crate) fn hasten(&mut self, now: Instant, out: &mut Outputs) -> bool {
        match self.state {
            PingState::Stopped => false,
            PingState::Idle { .. } => {
                self.hastened = true;
                self.begin(now, out);
                true
            }
            PingState::Asked { .. } => true,
        }
    }

    /// Begins a measurement that is due, or ends one whose deadline has passed.
    pub(crate) fn due(&mut self, now: Instant, out: &mut Outputs) {
        match self.state {
            PingState::Idle { until, .. } if until <= now => self.begin(now, out),
            PingState::Asked { .. } if self.deadline().is_some_and(|own| own <= now) => {
                self.fail(now, out);
            }
            _ => {}
        }
    }

    /// Handles the opening of the [awaited](Self::awaits) connection.
    pub(crate) fn connected(&mut self, now: Instant, out: &mut Outputs) {
        let negotiation = Negotiation::Handshake;
        self.connection = Some(negotiation);
        self.send(now, negotiation, out);
    }

    /// Handles the [awaited](Self::awaits) reply. Returns the round-trip time if it counts as a
    /// sample. `hello` is `None` if the reply is an error.
    pub(crate) fn reply(
        &mut self,
        now: Instant,
        trip: Trip,
        hello: Option<&Hello>,
        out: &mut Outputs,
    ) -> Option<Duration> {
        let PingState::Asked { answer: Waiting::Reply, since } = self.state else {
            return None;
        };
        // Only the negotiation uses the contents of the reply.
        let (Some(hello), Some(negotiation)) = (hello, &mut self.connection) else {
            self.fail(now, out);
            return None;
        };
        *negotiation = Negotiation::after(hello, &self.config);
        // A reply that arrives after the deadline was delayed by this host, which was suspended or
        // stalled.
        let counts = !self.hastened && !trip.is_late(self.limit(since));
        self.pause(now);
        counts.then(|| trip.duration())
    }

    /// Ends the measurement in progress, if there is one, and closes its connection.
    pub(crate) fn failed(&mut self, now: Instant, out: &mut Outputs) {
        if self.expected().is_some() {
            self.fail(now, out);
        }
    }

    /// Returns the time at which [`due`](Self::due) must be called, or `None` if there is no such
    /// time.
    pub(crate) fn deadline(&self) -> Option<Instant> {
        match self.state {
            PingState::Stopped => None,
            PingState::Idle { until, .. } => Some(until),
            PingState::Asked { since, .. } => self.limit(since),
        }
    }

    /// Returns the time at which the outstanding answer was requested; `None` if no answer is
    /// outstanding.
    pub(crate) fn expected(&self) -> Option<Instant> {
        match self.state {
            PingState::Stopped | PingState::Idle { .. } => None,
            PingState::Asked { since, .. } => Some(since),
        }
    }

    fn begin(&mut self, now: Instant, out: &mut Outputs) {
        if let Some(negotiation) = self.connection {
            return self.send(now, negotiation, out);
        }
        self.connections = self.connections.saturating_add(1);
        self.state = PingState::Asked { answer: Waiting::Connection, since: now };
        out.push(Output::Connect { conn: self.conn(), deadline: self.limit(now) });
    }

    fn send(&mut self, now: Instant, negotiation: Negotiation, out: &mut Outputs) {
        self.state = PingState::Asked { answer: Waiting::Reply, since: now };
        out.push(Output::Send {
            conn: self.conn(),
            request: negotiation.request(&self.config).into(),
            deadline: self.limit(now),
        });
    }

    fn fail(&mut self, now: Instant, out: &mut Outputs) {
        self.disconnect(out);
        self.pause(now);
    }

    fn disconnect(&mut self, out: &mut Outputs) {
        self.connection = None;
        out.push(Output::Disconnect { conn: self.conn() });
    }

    fn pause(&mut self, now: Instant) {
        self.hastened = false;
        let next = now + self.config.wait();
        self.state = PingState::Idle { from: next - self.slack, until: next + self.slack };
    }

    /// Returns the time at which a request made at `since` fails, or `None` if there is no time
    /// limit.
    fn limit(&self, since: Instant) -> Option<Instant> {
        self.config.limit(false).map(|limit| since + limit)
    }
}

/// Computes keys that identify the state of a server's round-trip measurements, for state-space
/// searches.
#[cfg(feature = "model")]
mod key {
    use core::hash::{Hash, Hasher};

    use super::{Ping, PingState};
    use crate::time::Instant;

    impl Ping {
        /// Writes all state that determines the behavior of the measurements from `now` on.
        pub(crate) fn write_key(&self, now: Instant, hasher: &mut impl Hasher) {
            match self.state {
                PingState::Stopped => 1_u8.hash(hasher),
                PingState::Idle { from, until } => {
                    (2_u8, from.since(now), until.since(now)).hash(hasher);
                }
                PingState::Asked { answer, since } => {
                    (3_u8, answer, left(now, self.limit(since))).hash(hasher);
                }
            }
            self.connection.hash(hasher);
        }
    }

    /// Returns the time until the deadline, and whether the deadline has passed.
    fn left(now: Instant, deadline: Option<Instant>) -> Option<(core::time::Duration, bool)> {
        deadline.map(|deadline| (deadline.since(now), deadline < now))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn window(samples: &[u64]) -> RttWindow {
        let mut window = RttWindow::default();
        for sample in samples {
            window.add(Duration::from_millis(*sample));
        }
        window
    }

    #[test]
    fn the_average_starts_with_the_first_sample_and_weighs_later_ones_by_a_fifth() {
        // Every sample after the first has a weight of one fifth (G-1, A-9).
        assert_eq!(window(&[10]).average_millis(), Some(10.0));
        let average = window(&[10, 20]).average_millis().unwrap();
        assert!((average - 12.0).abs() < 1e-9, "{average}");
        let rtt = window(&[10, 20]).rtt().unwrap();
        assert_eq!(rtt.average, Duration::from_millis(12));
    }

    #[test]
    fn the_minimum_covers_the_last_ten_samples_and_is_zero_before_the_second() {
        // Only the last ten samples count (G-9, A-9, A-24).
        let check = |samples: &[u64], minimum| {
            let rtt = window(samples).rtt().unwrap();
            assert_eq!(rtt.minimum, Duration::from_millis(minimum), "{samples:?}");
        };
        check(&[5], 0);
        check(&[5, 9], 5);
        check(&[1, 9, 9, 9, 9, 9, 9, 9, 9, 7], 1);
        check(&[1, 9, 9, 9, 9, 9, 9, 9, 9, 7, 8], 7);
    }

    #[test]
    fn p90_leaves_out_one_outlier_of_ten() {
        let check = |samples: &[u64], p90| {
            let rtt = window(samples).rtt().unwrap();
            assert_eq!(rtt.p90, Duration::from_millis(p90), "{samples:?}");
        };
        check(&[5], 5);
        check(&[9, 1, 1, 1, 1, 1, 1, 1, 1], 9);
        check(&[9, 1, 1, 1, 1, 1, 1, 1, 1, 7], 7);
        check(&[1, 1, 1, 1, 1, 1, 1, 1, 7, 7], 7);
        check(&[9, 1, 1, 1, 1, 1, 1, 1, 1, 7, 2], 2);
    }

    #[test]
    fn negative_samples_are_rejected() {
        // An invalid sample changes nothing (G-2).
        let mut rtt = window(&[10]);
        rtt.add_millis(-1.0);
        rtt.add_millis(f64::NAN);
        assert_eq!(rtt.average_millis(), Some(10.0));
    }

    #[test]
    fn after_a_reset_the_newest_sample_is_kept_until_the_next_one() {
        // After a reset, the next sample starts a new average (G-3).
        let mut rtt = window(&[]);
        rtt.reset();
        assert_eq!(rtt.rtt(), None);
        rtt = window(&[90, 10, 30]);
        for _ in 0..2 {
            rtt.reset();
            assert_eq!(rtt.average_millis(), None, "the average is cleared");
            assert_eq!(rtt.rtt(), window(&[30]).rtt());
        }
        rtt.add(Duration::ZERO);
        assert_eq!(rtt, window(&[0]), "nothing earlier is left");
    }
}
