//! A metrics recorder whose series can be read and removed.

use std::{
    collections::BTreeMap,
    iter,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use metrics::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};

use super::{Distribution, Kind, Metric, Page, Series, Value};
use crate::lock::lock;

/// Upper bounds of the duration buckets, in seconds. They cover everything from a fast round trip
/// to a slow failover.
const BUCKETS: &[f64] = &[0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0];

/// The metrics of one subject, such as a deployment.
///
/// `metrics-exporter-prometheus` is not used because it can neither combine the metrics of several
/// deployments on one page, nor remove the series of a server that has left.
#[derive(Debug)]
pub(crate) struct Registry {
    /// The labels that every series of this registry has.
    labels: Vec<(String, String)>,
    cells: Mutex<BTreeMap<Key, Cell>>,
    help: Mutex<BTreeMap<String, String>>,
}

#[derive(Clone, Debug)]
enum Cell {
    Counter(Arc<AtomicU64>),
    /// A floating-point number, stored as its bits.
    Gauge(Arc<AtomicU64>),
    Histogram(Arc<Measured>),
}

#[derive(Debug)]
struct Measured(Mutex<Distribution>);

impl Registry {
    pub(crate) fn new(labels: &[(&str, String)]) -> Self {
        let labels = labels.iter().map(|(name, value)| ((*name).to_owned(), value.clone()));
        Self { labels: labels.collect(), cells: Mutex::default(), help: Mutex::default() }
    }

    /// Removes the series that `keep` rejects.
    pub(crate) fn retain(&self, keep: impl Fn(&Key) -> bool) {
        lock(&self.cells).retain(|key, _| keep(key));
    }

    /// Returns all series that have a value, sorted by name and labels.
    pub(crate) fn page(&self) -> Page {
        let (cells, help) = (lock(&self.cells), lock(&self.help));
        let mut page = Page::default();
        for (key, cell) in &*cells {
            let own = key.labels().map(|label| {
                // Prometheus does not allow dots in label names.
                (label.key().replace('.', "_"), label.value().to_owned())
            });
            let (kind, value) = cell.read();
            if matches!(value, Value::Number(number) if number.is_nan()) {
                continue;
            }
            let metric = page.0.entry(key.name().to_owned()).or_insert_with(|| Metric {
                kind,
                help: help.get(key.name()).cloned().unwrap_or_default(),
                series: Vec::new(),
            });
            let labels = self.labels.iter().cloned().chain(own).collect();
            metric.series.push(Series { labels, value });
        }
        page
    }

    fn cell(&self, key: &Key, new: impl FnOnce() -> Cell) -> Cell {
        lock(&self.cells).entry(key.clone()).or_insert_with(new).clone()
    }

    fn describe(&self, name: &KeyName, help: SharedString) {
        lock(&self.help).insert(name.as_str().to_owned(), help.into_owned());
    }
}

impl Cell {
    fn read(&self) -> (Kind, Value) {
        match self {
            Self::Counter(count) => {
                (Kind::Counter, Value::Number(count.load(Ordering::Relaxed) as f64))
            }
            Self::Gauge(bits) => {
                (Kind::Gauge, Value::Number(f64::from_bits(bits.load(Ordering::Relaxed))))
            }
            Self::Histogram(own) => (Kind::Histogram, Value::Distribution(lock(&own.0).clone())),
        }
    }
}

impl HistogramFn for Measured {
    fn record(&self, value: f64) {
        let mut own = lock(&self.0);
        let place = own.buckets.iter_mut().find(|(bound, _)| value <= *bound);
        if let Some((_, count)) = place {
            *count += 1;
        }
        own.count += 1;
        own.sum += value;
    }
}

impl Recorder for Registry {
    fn describe_counter(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, help);
    }

    fn describe_gauge(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, help);
    }

    fn describe_histogram(&self, name: KeyName, _: Option<Unit>, help: SharedString) {
        self.describe(&name, help);
    }

    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        match self.cell(key, || Cell::Counter(Arc::default())) {
            Cell::Counter(own) => Counter::from_arc(own),
            _ => Counter::noop(),
        }
    }

    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        match self.cell(key, || Cell::Gauge(Arc::default())) {
            Cell::Gauge(own) => Gauge::from_arc(own),
            _ => Gauge::noop(),
        }
    }

    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        let buckets = || BUCKETS.iter().copied().zip(iter::repeat(0)).collect();
        let new = || Distribution { buckets: buckets(), ..Distribution::default() };
        match self.cell(key, || Cell::Histogram(Arc::new(Measured(Mutex::new(new()))))) {
            Cell::Histogram(own) => Histogram::from_arc(own),
            _ => Histogram::noop(),
        }
    }
}
