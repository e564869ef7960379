//! Converts a metrics page in the text format of Prometheus into OTLP messages.
//!
//! The page is the one at `/metrics`, so names, labels and values are identical.

use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, Sum,
    metric::Data, number_data_point::Value,
};

use super::messages::attribute;

/// The start time of the counters and the time of rendering, in nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) end: u64,
}

/// A line of the page with a value.
struct Sample<'p> {
    /// The name, including a histogram's suffix.
    name: &'p str,
    labels: Vec<(&'p str, String)>,
    value: f64,
}

/// Converts the page.
pub(super) fn metrics(page: &str, span: Span) -> Vec<Metric> {
    let mut metrics = Vec::<Metric>::new();
    for line in page.lines() {
        let mut words = line.splitn(4, ' ');
        let (first, second) = (words.next(), words.next());
        match (first, second, words.next(), words.next()) {
            (Some("#"), Some("HELP"), Some(name), help) => {
                metric(&mut metrics, name).description =
                    help.map_or_else(String::new, str::to_owned);
            }
            (Some("#"), Some("TYPE"), Some(name), Some(kind)) => {
                metric(&mut metrics, name).data = Some(empty(kind));
            }
            _ => {
                if let (Some(sample), Some(metric)) = (sample(line), metrics.last_mut()) {
                    add(metric, sample, span);
                }
            }
        }
    }
    metrics
}

/// Returns the metric that is being described.
fn metric<'m>(metrics: &'m mut Vec<Metric>, name: &str) -> &'m mut Metric {
    if metrics.last().is_none_or(|last| last.name != name) {
        metrics.push(Metric {
            name: name.to_owned(),
            unit: if name.ends_with("_seconds") { "s" } else { "" }.to_owned(),
            ..Metric::default()
        });
    }
    let last = metrics.len() - 1;
    &mut metrics[last]
}

/// Returns a metric of this Prometheus type without values.
fn empty(kind: &str) -> Data {
    let aggregation_temporality = AggregationTemporality::Cumulative.into();
    match kind {
        "counter" => {
            Data::Sum(Sum { aggregation_temporality, is_monotonic: true, ..Sum::default() })
        }
        "histogram" => {
            Data::Histogram(Histogram { aggregation_temporality, ..Histogram::default() })
        }
        _ => Data::Gauge(Gauge::default()),
    }
}

/// Parses a line with a value.
fn sample(line: &str) -> Option<Sample<'_>> {
    let (head, value) = line.rsplit_once(' ')?;
    let (name, labels) = match head.split_once('{') {
        Some((name, labels)) => (name, parse_labels(labels.strip_suffix('}')?)?),
        None => (head, Vec::new()),
    };
    let value = value.parse().ok()?;
    Some(Sample { name, labels, value })
}

/// Parses `a="b",c="d"`.
fn parse_labels(mut rest: &str) -> Option<Vec<(&str, String)>> {
    let mut labels = Vec::new();
    while !rest.is_empty() {
        let (name, quoted) = rest.split_once("=\"")?;
        let mut value = String::new();
        let mut letters = quoted.char_indices();
        let end = loop {
            match letters.next()? {
                (end, '"') => break end,
                (_, '\\') => value.push(match letters.next()?.1 {
                    'n' => '\n',
                    other => other,
                }),
                (_, letter) => value.push(letter),
            }
        };
        labels.push((name, value));
        rest = quoted[end + 1..].trim_start_matches(',');
    }
    Some(labels)
}

fn add(metric: &mut Metric, sample: Sample<'_>, span: Span) {
    let Sample { name, mut labels, value } = sample;
    let bound = labels.iter().position(|(name, _)| *name == "le");
    let bound = bound.map(|place| labels.remove(place).1);
    let attributes: Vec<_> =
        labels.into_iter().map(|(name, value)| attribute(name, value)).collect();
    let point = |attributes| NumberDataPoint {
        attributes,
        start_time_unix_nano: span.start,
        time_unix_nano: span.end,
        value: Some(Value::AsDouble(value)),
        ..NumberDataPoint::default()
    };
    match &mut metric.data {
        Some(Data::Sum(sum)) => sum.data_points.push(point(attributes)),
        Some(Data::Histogram(histogram)) => {
            let points = &mut histogram.data_points;
            if points.last().is_none_or(|last| last.attributes != attributes) {
                points.push(HistogramDataPoint {
                    attributes,
                    start_time_unix_nano: span.start,
                    time_unix_nano: span.end,
                    ..HistogramDataPoint::default()
                });
            }
            if let Some(last) = points.last_mut() {
                let suffix = name.strip_prefix(&*metric.name).unwrap_or_default();
                measure(last, suffix, bound.as_deref(), value);
            }
        }
        Some(Data::Gauge(gauge)) => gauge.data_points.push(point(attributes)),
        _ => {}
    }
}

/// Adds a line of a histogram, whose buckets are in the order of their bounds.
fn measure(point: &mut HistogramDataPoint, suffix: &str, bound: Option<&str>, value: f64) {
    match (suffix, bound) {
        ("_bucket", Some(bound)) => {
            // Each bucket of the page includes all lower buckets.
            let before: u64 = point.bucket_counts.iter().sum();
            point.bucket_counts.push((value as u64).saturating_sub(before));
            point.explicit_bounds.extend(bound.parse().ok().filter(|it: &f64| it.is_finite()));
        }
        ("_sum", _) => point.sum = Some(value),
        ("_count", _) => point.count = value as u64,
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SPAN: Span = Span { start: 1, end: 2 };

    #[test]
    fn each_type_of_metric_has_its_counterpart() {
        let page = "# HELP a_total A b.\n# TYPE a_total counter\na_total{x=\"1\"} 3\n\n\
                    # TYPE b gauge\nb{x=\"q\\\"\\\\\\nz}, \",y=\"\"} -1.5\nb 2\n\n\
                    # TYPE c_seconds histogram\nc_seconds_bucket{m=\"s\",le=\"0.5\"} 1\n\
                    c_seconds_bucket{m=\"s\",le=\"1\"} 4\nc_seconds_bucket{m=\"s\",le=\"+Inf\"} 6\n\
                    c_seconds_sum{m=\"s\"} 7.5\nc_seconds_count{m=\"s\"} 6\n\
                    c_seconds_bucket{m=\"t\",le=\"0.5\"} 0\nc_seconds_count{m=\"t\"} 0\n\n";
        let found = metrics(page, SPAN);
        let names: Vec<_> =
            found.iter().map(|it| (&*it.name, &*it.description, &*it.unit)).collect();
        assert_eq!(names, [("a_total", "A b.", ""), ("b", "", ""), ("c_seconds", "", "s")]);
        let Some(Data::Sum(sum)) = &found[0].data else {
            panic!("{found:?}");
        };
        assert!(sum.is_monotonic);
        let point = &sum.data_points[0];
        assert_eq!(point.attributes, [attribute("x", "1")]);
        assert_eq!((point.start_time_unix_nano, point.time_unix_nano), (1, 2));
        assert_eq!(point.value, Some(Value::AsDouble(3.0)));
        let Some(Data::Gauge(gauge)) = &found[1].data else {
            panic!("{found:?}");
        };
        assert_eq!(
            gauge.data_points[0].attributes,
            [attribute("x", "q\"\\\nz}, "), attribute("y", "")]
        );
        assert_eq!(gauge.data_points[0].value, Some(Value::AsDouble(-1.5)));
        assert_eq!(gauge.data_points[1].attributes, []);
        let Some(Data::Histogram(histogram)) = &found[2].data else {
            panic!("{found:?}");
        };
        let [first, second] = &*histogram.data_points else {
            panic!("{histogram:?}");
        };
        assert_eq!(first.attributes, [attribute("m", "s")]);
        assert_eq!(first.explicit_bounds, [0.5, 1.0]);
        assert_eq!(first.bucket_counts, [1, 3, 2]);
        assert_eq!((first.count, first.sum), (6, Some(7.5)));
        assert_eq!(second.attributes, [attribute("m", "t")]);
    }
}
