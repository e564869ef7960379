//! Converts the page of metrics into OTLP messages.

use opentelemetry_proto::tonic::metrics::v1::{
    AggregationTemporality, Gauge, Histogram, HistogramDataPoint, Metric, NumberDataPoint, Sum,
    metric::Data, number_data_point,
};

use super::messages::attribute;
use crate::page::{self, Distribution, Kind, Page, Series, Value};

/// The time at which the counters started, and the time at which the page was created, in
/// nanoseconds since the Unix epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Span {
    pub(super) start: u64,
    pub(super) end: u64,
}

/// Converts the page without changing names, labels or values.
pub(super) fn convert(page: &Page, span: Span) -> Vec<Metric> {
    let metrics = page.0.iter();
    metrics.map(|(name, metric)| convert_one(name, metric, span)).collect()
}

fn convert_one(name: &str, metric: &page::Metric, span: Span) -> Metric {
    let aggregation_temporality = AggregationTemporality::Cumulative.into();
    let series = metric.series.iter();
    let numbers = series.clone().filter_map(|series| match series.value {
        Value::Number(value) => Some(number(series, value, span)),
        Value::Distribution(_) => None,
    });
    let distributions = series.filter_map(|series| match &series.value {
        Value::Distribution(own) => Some(distribution(series, own, span)),
        Value::Number(_) => None,
    });
    let data = match metric.kind {
        Kind::Counter => Data::Sum(Sum {
            data_points: numbers.collect(),
            aggregation_temporality,
            is_monotonic: true,
        }),
        Kind::Gauge => Data::Gauge(Gauge { data_points: numbers.collect() }),
        Kind::Histogram => Data::Histogram(Histogram {
            data_points: distributions.collect(),
            aggregation_temporality,
        }),
    };
    let is_time = name.trim_end_matches("_total").ends_with("_seconds");
    Metric {
        name: name.to_owned(),
        description: metric.help.clone(),
        unit: if is_time { "s" } else { "" }.to_owned(),
        data: Some(data),
        ..Metric::default()
    }
}

fn number(series: &Series, value: f64, span: Span) -> NumberDataPoint {
    NumberDataPoint {
        attributes: attributes(series),
        start_time_unix_nano: span.start,
        time_unix_nano: span.end,
        value: Some(number_data_point::Value::AsDouble(value)),
        ..NumberDataPoint::default()
    }
}

fn distribution(series: &Series, own: &Distribution, span: Span) -> HistogramDataPoint {
    let within: u64 = own.buckets.iter().map(|(_, count)| count).sum();
    let counts = own.buckets.iter().map(|(_, count)| *count);
    HistogramDataPoint {
        attributes: attributes(series),
        start_time_unix_nano: span.start,
        time_unix_nano: span.end,
        count: own.count,
        sum: Some(own.sum),
        explicit_bounds: own.buckets.iter().map(|(bound, _)| *bound).collect(),
        bucket_counts: counts.chain([own.count - within]).collect(),
        ..HistogramDataPoint::default()
    }
}

fn attributes(series: &Series) -> Vec<opentelemetry_proto::tonic::common::v1::KeyValue> {
    let labels = series.labels.iter();
    labels.map(|(name, value)| attribute(name, value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_type_of_metric_has_its_counterpart() {
        let metric = |kind, value| {
            let labels = vec![("x".to_owned(), "1".to_owned())];
            let series = vec![Series { labels, value }];
            page::Metric { kind, help: "A b.".to_owned(), series }
        };
        let buckets = vec![(0.5, 1), (1.0, 3)];
        let own = Distribution { buckets, count: 6, sum: 7.5 };
        let page = Page(
            [
                ("a_total".to_owned(), metric(Kind::Counter, Value::Number(3.0))),
                ("b_seconds_total".to_owned(), metric(Kind::Gauge, Value::Number(-1.5))),
                ("c_seconds".to_owned(), metric(Kind::Histogram, Value::Distribution(own))),
            ]
            .into(),
        );
        let found = convert(&page, Span { start: 1, end: 2 });
        let units: Vec<_> = found.iter().map(|it| (&*it.name, &*it.unit)).collect();
        assert_eq!(units, [("a_total", ""), ("b_seconds_total", "s"), ("c_seconds", "s")]);
        assert!(found.iter().all(|it| it.description == "A b."));
        let Some(Data::Sum(sum)) = &found[0].data else {
            panic!("{found:?}");
        };
        assert!(sum.is_monotonic);
        let point = &sum.data_points[0];
        assert_eq!(point.attributes, [attribute("x", "1")]);
        assert_eq!((point.start_time_unix_nano, point.time_unix_nano), (1, 2));
        assert_eq!(point.value, Some(number_data_point::Value::AsDouble(3.0)));
        let Some(Data::Gauge(gauge)) = &found[1].data else {
            panic!("{found:?}");
        };
        assert_eq!(gauge.data_points[0].value, Some(number_data_point::Value::AsDouble(-1.5)));
        let Some(Data::Histogram(histogram)) = &found[2].data else {
            panic!("{found:?}");
        };
        let point = &histogram.data_points[0];
        assert_eq!(point.explicit_bounds, [0.5, 1.0]);
        assert_eq!(point.bucket_counts, [1, 3, 2]);
        assert_eq!((point.count, point.sum), (6, Some(7.5)));
    }
}
