//! A snapshot of metrics, and its text format for Prometheus.

mod registry;

use std::{
    collections::BTreeMap,
    fmt::{self, Write},
};

pub(crate) use self::registry::Registry;

/// The type of a metric. Each variant has the name of the type in the text format.
#[derive(
    Clone, Copy, Debug, PartialEq, Eq, strum::Display, strum::IntoStaticStr, strum::VariantArray,
)]
#[strum(serialize_all = "snake_case")]
pub(crate) enum Kind {
    Counter,
    Gauge,
    Histogram,
}

impl Kind {
    /// Returns the name, for logs, records and counters.
    pub(crate) fn as_str(self) -> &'static str {
        self.into()
    }
}

/// A snapshot of metrics, sorted by name.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Page(pub(crate) BTreeMap<String, Metric>);

/// A metric with its series.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Metric {
    pub(crate) kind: Kind,
    /// The description of the metric, in one sentence.
    pub(crate) help: String,
    pub(crate) series: Vec<Series>,
}

/// The value of a metric for one combination of labels.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Series {
    /// The names and values of the labels.
    pub(crate) labels: Vec<(String, String)>,
    pub(crate) value: Value,
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Number(f64),
    Distribution(Distribution),
}

/// The values of a histogram.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Distribution {
    /// The upper bounds of the buckets, in ascending order. Each bound is followed by the number of
    /// measurements in its bucket, that is, those that exceed the previous bound but not this one.
    pub(crate) buckets: Vec<(f64, u64)>,
    pub(crate) count: u64,
    pub(crate) sum: f64,
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
            writeln!(f, "# HELP {name} {help}\n# TYPE {name} {}", metric.kind.as_str())?;
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
