//! Pushes the exporter's observations to an OpenTelemetry collector, by OTLP over HTTP: the metrics
//! of the page `/metrics`, a log record for each change, and a span for each failover.
//!
//! If the collector is down or slow, the only effect on the exporter is the memory that a bounded
//! queue needs.

mod collector;
mod messages;
mod metrics;
mod queue;
mod records;
mod settings;
#[cfg(test)]
mod tests;

use std::{
    cell::RefCell,
    collections::{BTreeMap, BTreeSet},
    fmt::Display,
    pin::pin,
    sync::Arc,
    time::{Duration, SystemTime},
};

use futures::future::{join, join3, select};
use hyper::Uri;
use sdam::Backend;
use sdam_events::sink::EventSink;
use tokio::time::{sleep, timeout};

use self::{
    collector::{Collector, Trouble},
    messages::{Sender, nanos},
    metrics::Span,
    queue::{Queue, Queues},
    records::Records,
    settings::{Settings, Signal},
};

use crate::page::Page;

/// The time for which the first queued record waits, so that later records can be sent along with
/// it.
const DELAY: Duration = Duration::from_secs(1);
/// The longest pause between attempts to send records.
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The connections to the collectors, and the queued records.
pub(super) struct Push {
    /// The collector for each enabled kind of telemetry.
    collectors: BTreeMap<Signal, Collector>,
    /// The interval at which metrics are pushed.
    interval: Duration,
    sender: Sender,
    queues: Queues,
    /// The time at which the counters started.
    start: SystemTime,
    /// The problems that have been reported and still exist.
    troubles: RefCell<BTreeSet<Place>>,
}

/// The subject of a problem. Each problem is reported when it begins and when it ends.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Place {
    /// A host that does not answer.
    Host(String),
    /// A path that the collector refuses.
    Path(Signal),
}

impl Push {
    /// Prepares pushing. Returns `None` if no collector is configured.
    ///
    /// # Errors
    ///
    /// If an option or a variable is invalid. The error names it and the remedy.
    pub(super) fn new(
        option: Option<&str>,
        variables: &BTreeMap<String, String>,
    ) -> Result<Option<Self>, String> {
        let Some(settings) = Settings::new(option, variables)? else {
            return Ok(None);
        };
        let own = settings.destinations.iter();
        let own = own.map(|(&signal, to)| Ok((signal, Collector::new(to)?)));
        Ok(Some(Self {
            collectors: own.collect::<Result<_, String>>()?,
            interval: settings.interval,
            sender: Sender::new(&settings.resource),
            queues: Queues::default(),
            start: SystemTime::now(),
            troubles: RefCell::default(),
        }))
    }

    /// Returns a sink for the events of the deployment that has the given `labels`.
    pub(super) fn sink(&self, labels: &[(&str, String)], backend: &Backend) -> Arc<dyn EventSink> {
        Arc::new(Records::new(labels, backend, self.queues.clone()))
    }

    /// Pushes metrics at regular intervals, and pushes records soon after they are created. Never
    /// returns. Calls `remark` when a problem begins and when it ends.
    ///
    /// # Cancel safety
    ///
    /// If the future is dropped while records are being sent, they stay in the queue, so
    /// [`flush`](Self::flush) sends them again.
    pub(super) async fn run(&self, page: impl Fn() -> Page, remark: impl Fn(&dyn Display)) {
        let metrics = async {
            loop {
                sleep(self.interval).await;
                self.push_metrics(&page(), &remark).await;
            }
        };
        let records = async {
            let Queues { logs, spans } = &self.queues;
            let mut pause = DELAY;
            loop {
                select(pin!(logs.filled()), pin!(spans.filled())).await;
                sleep(pause).await;
                self.push_logs(&remark).await;
                self.push_spans(&remark).await;
                // Records that could not be sent stay in their queue.
                let is_done = logs.is_empty() && spans.is_empty();
                pause = if is_done { DELAY } else { (pause * 2).min(LONGEST_PAUSE) };
            }
        };
        join(metrics, records).await;
    }

    /// Pushes all metrics and records one last time, within `limit`.
    pub(super) async fn flush(&self, limit: Duration, page: &Page, remark: impl Fn(&dyn Display)) {
        let all = join3(
            self.push_metrics(page, &remark),
            self.push_logs(&remark),
            self.push_spans(&remark),
        );
        if timeout(limit, all).await.is_err() && self.troubles.borrow().is_empty() {
            let seconds = limit.as_secs_f64();
            remark(&format_args!("warning: OTLP: the last push did not end within {seconds} s"));
        }
    }

    async fn push_metrics(&self, page: &Page, remark: impl Fn(&dyn Display)) {
        let span = Span { start: nanos(self.start), end: nanos(SystemTime::now()) };
        let body = || self.sender.metrics(metrics::convert(page, span));
        // Ignore the result: the next push contains the current values of all metrics anyway.
        self.push(Signal::Metrics, body, remark).await;
    }

    async fn push_logs(&self, remark: impl Fn(&dyn Display)) {
        self.push_records(Signal::Logs, &self.queues.logs, Sender::logs, remark).await;
    }

    async fn push_spans(&self, remark: impl Fn(&dyn Display)) {
        self.push_records(Signal::Traces, &self.queues.spans, Sender::spans, remark).await;
    }

    async fn push_records<T: Clone>(
        &self,
        signal: Signal,
        queue: &Queue<T>,
        encode: impl FnOnce(&Sender, Vec<T>) -> Vec<u8>,
        remark: impl Fn(&dyn Display),
    ) {
        let batch = queue.batch();
        let body = || encode(&self.sender, batch.records.clone());
        if batch.records.is_empty() || self.push(signal, body, remark).await {
            queue.remove(&batch);
        }
    }

    /// Pushes a message if its kind of telemetry is enabled. Returns `false` if the message should
    /// be sent again later.
    async fn push(
        &self,
        signal: Signal,
        body: impl FnOnce() -> Vec<u8>,
        remark: impl Fn(&dyn Display),
    ) -> bool {
        let Some(collector) = self.collectors.get(&signal) else {
            return true;
        };
        let outcome = collector.send(body()).await;
        self.report(signal, &collector.endpoint, outcome.as_ref().err(), remark);
        matches!(outcome, Ok(()) | Err(Trouble::Refused(_)))
    }

    /// Reports a problem when it begins and when it ends.
    fn report(
        &self,
        signal: Signal,
        endpoint: &Uri,
        trouble: Option<&Trouble>,
        remark: impl Fn(&dyn Display),
    ) {
        let host = Place::Host(endpoint.authority().map(ToString::to_string).unwrap_or_default());
        let path = Place::Path(signal);
        let mut troubles = self.troubles.borrow_mut();
        let (ended, begun) = match trouble {
            None => (troubles.remove(&host) | troubles.remove(&path), false),
            Some(Trouble::Unreachable(_)) => (false, troubles.insert(host)),
            Some(_) => {
                troubles.remove(&host);
                (false, troubles.insert(path))
            }
        };
        let name = signal.as_str();
        if let Some(trouble) = trouble.filter(|_| begun) {
            remark(&format_args!(
                "warning: OTLP: {endpoint} does not take {name}: {trouble}; sdam goes on without it"
            ));
        }
        if ended {
            let lost = match self.queues.logs.take_lost() + self.queues.spans.take_lost() {
                0 => String::new(),
                lost => format!("; {lost} older records were lost"),
            };
            remark(&format_args!("OTLP: {endpoint} takes {name} again{lost}"));
        }
    }
}
