//! Round-trip times: moving average, recent minimum and percentile.

mod ping;

pub(crate) use self::ping::Ping;

use core::time::Duration;

use crate::server::Rtt;

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
    /// The times of the current samples, which are read more often than samples come.
    rtt: Option<Rtt>,
}

impl RttWindow {
    /// Creates a window without samples.
    pub fn new() -> Self {
        Self::default()
    }

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

#[cfg(test)]
mod tests {
    use super::*;

    fn window(samples: &[u64]) -> RttWindow {
        let mut window = RttWindow::new();
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
