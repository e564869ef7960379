//! A snapshot of metrics, and its text format for Prometheus; and a metrics recorder whose series can
//! be read and removed.

use std::{
    collections::BTreeMap,
    fmt::{self, Write},
    iter,
    sync::{
        Arc, Mutex,
        atomic::{AtomicU64, Ordering},
    },
};

use metrics::{
    Counter, Gauge, Histogram, HistogramFn, Key, KeyName, Metadata, Recorder, SharedString, Unit,
};

use crate::output::lock;

/// Upper bounds of the duration buckets, in seconds. They cover everything from a fast round trip
/// to a slow failover.
const BUCKETS: &[f64] = &[0.001, 0.005, 0.025, 0.1, 0.5, 1.0, 2.5, 5.0, 10.0, 15.0, 30.0, 60.0];

/// The type of a metric. Each variant has the name of the type in the text format.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

/// A snapshot of metrics, sorted by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Page(pub(crate) BTreeMap<String, Metric>);

/// A metric with its series.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Metric {
    pub(crate) kind: Kind,
    /// The description of the metric, in one sentence.
    help: String,
    series: Vec<Series>,
}

/// The value of a metric for one combination of labels.
#[derive(Clone, Debug, PartialEq)]
struct Series {
    /// The names and values of the labels.
    labels: Vec<(String, String)>,
    value: Value,
}

#[derive(Clone, Debug, PartialEq)]
enum Value {
    Number(f64),
    Distribution(Distribution),
}

/// The values of a histogram.
#[derive(Clone, Debug, Default, PartialEq)]
struct Distribution {
    /// The upper bounds of the buckets, in ascending order. Each bound is followed by the number of
    /// measurements in its bucket, that is, those that exceed the previous bound but not this one.
    buckets: Vec<(f64, u64)>,
    count: u64,
    sum: f64,
}

impl Page {
    /// Adds the series of another page.
    pub(crate) fn add(&mut self, other: Self) {
        for (name, metric) in other.0 {
            match self.0.get_mut(&name) {
                Some(own) => own.series.extend(metric.series),
                None => drop(self.0.insert(name, metric)),
            }
        }
    }
}

/// Formats the page in the text format of Prometheus, version 0.0.4.
impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (name, metric) in &self.0 {
            let help = metric.help.replace('\\', "\\\\").replace('\n', "\\n");
            writeln!(f, "# HELP {name} {help}\n# TYPE {name} {}", metric.kind)?;
            for Series { labels, value } in &metric.series {
                match value {
                    Value::Number(value) => line(f, name, labels, None, value)?,
                    Value::Distribution(own) => own.fmt(f, name, labels)?,
                }
            }
            f.write_char('\n')?;
        }
        Ok(())
    }
}

impl Distribution {
    fn fmt(
        &self,
        f: &mut fmt::Formatter<'_>,
        name: &str,
        labels: &[(String, String)],
    ) -> fmt::Result {
        let bucket = format!("{name}_bucket");
        let mut below = 0;
        for (bound, count) in &self.buckets {
            below += count;
            line(f, &bucket, labels, Some(&bound.to_string()), &below)?;
        }
        line(f, &bucket, labels, Some("+Inf"), &self.count)?;
        line(f, &format!("{name}_sum"), labels, None, &self.sum)?;
        line(f, &format!("{name}_count"), labels, None, &self.count)
    }
}

fn line(
    f: &mut fmt::Formatter<'_>,
    name: &str,
    labels: &[(String, String)],
    bound: Option<&str>,
    value: &impl fmt::Display,
) -> fmt::Result {
    let labels = labels.iter().map(|(name, value)| {
        let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
        format!("{name}=\"{value}\"")
    });
    let labels: Vec<_> = labels.chain(bound.map(|bound| format!("le=\"{bound}\""))).collect();
    match &*labels {
        [] => writeln!(f, "{name} {value}"),
        labels => writeln!(f, "{name}{{{}}} {value}", labels.join(",")),
    }
}

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

#[cfg(test)]
mod tests {
    use super::*;

    fn page(kind: Kind, label: &str, value: Value) -> Page {
        let labels = vec![("d".to_owned(), label.to_owned())];
        let series = vec![Series { labels, value }];
        let metric = Metric { kind, help: "A\nb.".to_owned(), series };
        Page([("a".to_owned(), metric)].into())
    }

    #[test]
    fn series_of_several_pages_follow_one_description() {
        let mut both = page(Kind::Gauge, "x", Value::Number(1.0));
        both.add(page(Kind::Gauge, "y\"\\\n", Value::Number(-0.5)));
        assert_eq!(
            both.to_string(),
            "# HELP a A\\nb.\n# TYPE a gauge\na{d=\"x\"} 1\na{d=\"y\\\"\\\\\\n\"} -0.5\n\n"
        );
    }

    #[test]
    fn each_bucket_includes_those_below() {
        let buckets = vec![(0.5, 1), (1.0, 3)];
        let own = Distribution { buckets, count: 6, sum: 7.5 };
        let page = page(Kind::Histogram, "x", Value::Distribution(own)).to_string();
        let (_, lines) = page.split_once("histogram\n").unwrap();
        assert_eq!(
            lines,
            "a_bucket{d=\"x\",le=\"0.5\"} 1\na_bucket{d=\"x\",le=\"1\"} 4\n\
             a_bucket{d=\"x\",le=\"+Inf\"} 6\na_sum{d=\"x\"} 7.5\na_count{d=\"x\"} 6\n\n"
        );
    }
}
