//! The intervals between checks, and the moving average that a test of the driver uses.

use std::time::Duration;

use ::sdam::discovery::options;

pub(crate) const DEFAULT_HEARTBEAT_FREQUENCY: Duration = options::DEFAULT_HEARTBEAT_FREQUENCY;
pub(crate) const MIN_HEARTBEAT_FREQUENCY: Duration = options::MIN_HEARTBEAT_FREQUENCY;

#[cfg(test)]
pub(crate) struct RttInfo {
    pub(crate) average: Option<Duration>,
}

#[cfg(test)]
impl RttInfo {
    pub(crate) fn add_sample(&mut self, sample: Duration) {
        use ::sdam::discovery::rtt::RttWindow;
        let mut window = match self.average {
            Some(average) => RttWindow::with_average(average.as_secs_f64() * 1e3),
            None => RttWindow::new(),
        };
        window.add(sample);
        self.average = window.rtt().map(|rtt| rtt.average);
    }
}
