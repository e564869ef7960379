//! A snapshot of metrics, and its text format for Prometheus; and a metrics recorder whose series
//! can be read and removed.

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

/// A snapshot of metrics, sorted by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Page(pub(crate) BTreeMap<String, Metric>);

/// A metric with its series.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Metric {
    /// The type of the metric in the text format.
    pub(crate) kind: &'static str,
    /// The description of the metric, in one sentence.
    help: String,
    /// The lines of the text format. Each consists of the end of the metric's name, and of the
    /// labels with the value.
    lines: Vec<(&'static str, String)>,
}

impl Page {
    /// Adds the series of another page.
    pub(crate) fn add(&mut self, other: Self) {
        for (name, metric) in other.0 {
            match self.0.get_mut(&name) {
                Some(own) => own.lines.extend(metric.lines),
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
            for (end, rest) in &metric.lines {
                writeln!(f, "{name}{end}{rest}")?;
            }
            f.write_char('\n')?;
        }
        Ok(())
    }
}

impl Metric {
    /// Adds the lines of the series with these labels.
    fn add(&mut self, labels: &[String], cell: &Cell) {
        let own = match cell {
            Cell::Counter(count) => return self.line("", labels, &count.load(Ordering::Relaxed)),
            Cell::Gauge(bits) => return self.line("", labels, &number(bits)),
            Cell::Histogram(own) => lock(&own.0),
        };
        let with = |bound: &str| [labels, &[label("le", bound)]].concat();
        let mut below = 0;
        for (bound, count) in &own.buckets {
            below += count;
            self.line("_bucket", &with(&bound.to_string()), &below);
        }
        self.line("_bucket", &with("+Inf"), &own.count);
        self.line("_sum", labels, &own.sum);
        self.line("_count", labels, &own.count);
    }

    fn line(&mut self, end: &'static str, labels: &[String], value: &impl fmt::Display) {
        let rest = match labels {
            [] => format!(" {value}"),
            labels => format!("{{{}}} {value}", labels.join(",")),
        };
        self.lines.push((end, rest));
    }
}

fn label(name: &str, value: &str) -> String {
    let value = value.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n");
    format!("{name}=\"{value}\"")
}

/// The metrics of one subject, such as a deployment.
///
/// `metrics-exporter-prometheus` is not used because it can neither combine the metrics of several
/// deployments on one page, nor remove the series of a server that has left.
#[derive(Debug)]
pub(crate) struct Registry {
    /// The labels that every series of this registry has.
    labels: Vec<String>,
    cells: Mutex<BTreeMap<Key, Cell>>,
    help: Mutex<BTreeMap<String, String>>,
}

/// The value of a series. Each variant has the name of its type in the text format.
#[derive(Clone, Debug, strum::IntoStaticStr)]
#[strum(serialize_all = "snake_case")]
enum Cell {
    Counter(Arc<AtomicU64>),
    /// A floating-point number, stored as its bits.
    Gauge(Arc<AtomicU64>),
    Histogram(Arc<Measured>),
}

#[derive(Debug)]
struct Measured(Mutex<Distribution>);

/// The values of a histogram.
#[derive(Debug)]
struct Distribution {
    /// The upper bounds of the buckets, in ascending order. Each bound is paired with the number of
    /// measurements in its bucket: measurements that exceed the previous bound but not this bound.
    buckets: Vec<(f64, u64)>,
    count: u64,
    sum: f64,
}

impl Registry {
    pub(crate) fn new(labels: &[(&str, String)]) -> Self {
        let labels = labels.iter().map(|(name, value)| label(name, value));
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
            if matches!(cell, Cell::Gauge(bits) if number(bits).is_nan()) {
                continue;
            }
            // Prometheus does not allow dots in label names.
            let own = key.labels().map(|it| label(&it.key().replace('.', "_"), it.value()));
            let labels: Vec<_> = self.labels.iter().cloned().chain(own).collect();
            let metric = page.0.entry(key.name().to_owned()).or_insert_with(|| Metric {
                kind: cell.into(),
                help: help.get(key.name()).cloned().unwrap_or_default(),
                lines: Vec::new(),
            });
            metric.add(&labels, cell);
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

fn number(bits: &AtomicU64) -> f64 {
    f64::from_bits(bits.load(Ordering::Relaxed))
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
        let new = || Distribution { buckets: buckets(), count: 0, sum: 0.0 };
        match self.cell(key, || Cell::Histogram(Arc::new(Measured(Mutex::new(new()))))) {
            Cell::Histogram(own) => Histogram::from_arc(own),
            _ => Histogram::noop(),
        }
    }
}

#[cfg(test)]
mod tests {
    use metrics::{describe_gauge, gauge, histogram, with_local_recorder};

    use super::*;

    fn page(label: &str, record: impl FnOnce()) -> Page {
        let registry = Registry::new(&[("d", label.to_owned())]);
        with_local_recorder(&registry, record);
        registry.page()
    }

    #[test]
    fn series_of_several_pages_follow_one_description() {
        let gauge = |value: f64| {
            describe_gauge!("a", "A\nb.");
            gauge!("a").set(value);
        };
        let mut both = page("x", || gauge(1.0));
        both.add(page("y\"\\\n", || gauge(-0.5)));
        assert_eq!(
            both.to_string(),
            "# HELP a A\\nb.\n# TYPE a gauge\na{d=\"x\"} 1\na{d=\"y\\\"\\\\\\n\"} -0.5\n\n"
        );
    }

    #[test]
    fn each_bucket_includes_those_below() {
        let values = [0.25, 0.75, 0.75, 80.0];
        let page = page("x", || values.iter().for_each(|value| histogram!("a").record(*value)));
        let page = page.to_string();
        for line in [
            "# TYPE a histogram\n",
            "a_bucket{d=\"x\",le=\"0.5\"} 1\na_bucket{d=\"x\",le=\"1\"} 3\n",
            "le=\"60\"} 3\na_bucket{d=\"x\",le=\"+Inf\"} 4\na_sum{d=\"x\"} 81.75\na_count{d=\"x\"} 4\n",
        ] {
            assert!(page.contains(line), "{page}");
        }
    }
}
