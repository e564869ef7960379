//! Tests the complete program with a collector that decodes everything it receives.

use std::{
    collections::BTreeSet,
    io::{BufRead, BufReader, Read, Write},
    net::{SocketAddr, TcpListener},
    path::PathBuf,
    sync::mpsc::{self, Receiver},
    thread,
    time::Duration,
};

use opentelemetry_proto::tonic::{
    collector::{
        logs::v1::{ExportLogsPartialSuccess, ExportLogsServiceRequest, ExportLogsServiceResponse},
        metrics::v1::ExportMetricsServiceRequest,
        trace::v1::ExportTraceServiceRequest,
    },
    common::v1::{KeyValue, any_value::Value},
    logs::v1::LogRecord,
    metrics::v1::{Metric, metric::Data, number_data_point},
    trace::v1::Span,
};
use prost::Message;
use rustls::{ServerConfig, ServerConnection, StreamOwned};
use sdam_live::{Certificates, ServerCertificate};
use sdam_sim::serve::{Builder, ReplicaSet};
use tempfile::NamedTempFile;

use super::*;
use crate::{
    export::{Arguments, tests::Running},
    page,
    recording::tests::simulation,
    testing::{block_on, tls_server, tls_server_with_clients},
};

/// A collector on loopback that answers each request with the same status and body.
struct Fake {
    address: SocketAddr,
    requests: Receiver<Received>,
}

/// One request.
#[derive(Debug)]
struct Received {
    /// The request line and the headers.
    head: Vec<String>,
    body: Vec<u8>,
}

impl Fake {
    fn start(status: &'static str, answer: Vec<u8>) -> Self {
        Self::listen(TcpListener::bind("127.0.0.1:0").unwrap(), None, status, answer)
    }

    /// Starts a collector that uses TLS. Returns the collector and its URL.
    fn start_tls(tls: Arc<ServerConfig>) -> (Self, String) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let fake = Self::listen(listener, Some(tls), "200 OK", Vec::new());
        let url = format!("https://{}", fake.address);
        (fake, url)
    }

    fn listen(
        listener: TcpListener,
        tls: Option<Arc<ServerConfig>>,
        status: &'static str,
        answer: Vec<u8>,
    ) -> Self {
        let address = listener.local_addr().unwrap();
        let (sender, requests) = mpsc::channel();
        // The thread runs until the process ends.
        thread::spawn(move || {
            for stream in listener.incoming() {
                let (sender, answer, tls) = (sender.clone(), answer.clone(), tls.clone());
                thread::spawn(move || {
                    let stream = stream.unwrap();
                    let mut stream = BufReader::new(match tls {
                        Some(tls) => {
                            let tls = ServerConnection::new(tls).unwrap();
                            Box::new(StreamOwned::new(tls, stream)) as Box<dyn Stream>
                        }
                        None => Box::new(stream),
                    });
                    while let Some(request) = receive(&mut stream) {
                        let length = answer.len();
                        let head = format!("HTTP/1.1 {status}\r\nContent-Length: {length}\r\n\r\n");
                        // Ignore the error, because sending fails only if the test has ended.
                        let _ = sender.send(request);
                        let reply = [head.as_bytes(), &answer].concat();
                        if stream.get_mut().write_all(&reply).is_err() {
                            break;
                        }
                    }
                });
            }
        });
        Self { address, requests }
    }

    fn url(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Waits for the next request for `path`, and returns it.
    fn next(&self, path: &str) -> Received {
        let first = format!("POST {path} HTTP/1.1");
        let mut requests = self.requests.iter();
        requests.find(|request| request.head[0] == first).unwrap()
    }

    fn metrics(&self) -> (Vec<KeyValue>, Vec<Metric>) {
        metrics(&self.next("/v1/metrics").body)
    }

    fn logs(&self) -> Vec<LogRecord> {
        logs(&self.next("/v1/logs").body)
    }

    fn spans(&self) -> Vec<Span> {
        spans(&self.next("/v1/traces").body)
    }
}

fn metrics(body: &[u8]) -> (Vec<KeyValue>, Vec<Metric>) {
    let request = ExportMetricsServiceRequest::decode(body).unwrap();
    let [of] = <[_; 1]>::try_from(request.resource_metrics).unwrap();
    let [scope] = <[_; 1]>::try_from(of.scope_metrics).unwrap();
    assert_eq!(scope.scope.unwrap().name, "sdam-cli");
    (of.resource.unwrap().attributes, scope.metrics)
}

fn logs(body: &[u8]) -> Vec<LogRecord> {
    let all = ExportLogsServiceRequest::decode(body).unwrap().resource_logs;
    let scopes = all.into_iter().flat_map(|it| it.scope_logs);
    scopes.flat_map(|it| it.log_records).collect()
}

fn spans(body: &[u8]) -> Vec<Span> {
    let all = ExportTraceServiceRequest::decode(body).unwrap().resource_spans;
    let scopes = all.into_iter().flat_map(|it| it.scope_spans);
    scopes.flat_map(|it| it.spans).collect()
}

/// A connection, with or without TLS.
trait Stream: Read + Write {}

impl<T: Read + Write> Stream for T {}

/// Reads a request. Returns `None` if the client has closed the connection.
fn receive(stream: &mut BufReader<Box<dyn Stream>>) -> Option<Received> {
    let lines = stream.by_ref().lines().map_while(Result::ok);
    let head: Vec<_> = lines.take_while(|line| !line.is_empty()).collect();
    if head.is_empty() {
        return None;
    }
    let lengths = head.iter().filter_map(|line| {
        line.to_lowercase().strip_prefix("content-length: ")?.parse::<usize>().ok()
    });
    let mut body = vec![0; lengths.sum()];
    stream.read_exact(&mut body).ok()?;
    Some(Received { head, body })
}

/// Returns the command-line arguments for pushing to `url`.
fn pushing(uri: &str, url: &str, variables: &[(&str, &str)]) -> Arguments {
    let pairs = variables.iter().map(|(name, value)| (format!("OTEL_{name}"), (*value).to_owned()));
    Arguments {
        target: crate::target::Target::new(uri),
        otlp: Some(url.to_owned()),
        otel: pairs.collect(),
        ..Arguments::default()
    }
}

/// Returns a page with the gauge `a`, whose value is 1.
fn page_of_a() -> Page {
    let series = vec![page::Series { labels: Vec::new(), value: page::Value::Number(1.0) }];
    let metric = page::Metric { kind: page::Kind::Gauge, help: String::new(), series };
    Page([("a".to_owned(), metric)].into())
}

fn value<'a>(attributes: &'a [KeyValue], name: &str) -> Option<&'a str> {
    let found = attributes.iter().find(|it| it.key == name)?;
    match found.value.as_ref()?.value.as_ref()? {
        Value::StringValue(text) => Some(text),
        other => panic!("{other:?}"),
    }
}

/// Returns each series of a page, with its labels, as a string. All lines of a histogram are
/// combined into one string.
fn series_of_page(page: &str) -> BTreeSet<String> {
    let lines = page.lines().filter(|line| !line.is_empty() && !line.starts_with('#'));
    let series = lines.map(|line| {
        let head = line.rsplit_once(' ').unwrap().0;
        let (name, labels) = head.split_once('{').unwrap_or((head, ""));
        let labels = labels.trim_end_matches('}').replace('"', "");
        let labels = labels.split(',').filter(|it| !it.is_empty() && !it.starts_with("le="));
        let labels: BTreeSet<_> = labels.collect();
        let ends = ["_bucket", "_sum", "_count"];
        let name = ends.iter().find_map(|end| name.strip_suffix(end)).unwrap_or(name);
        format!("{name} {labels:?}")
    });
    series.collect()
}

fn series_of_metrics(metrics: &[Metric]) -> BTreeSet<String> {
    let series = metrics.iter().flat_map(|metric| {
        let all: Vec<_> = match metric.data.as_ref().unwrap() {
            Data::Gauge(data) => data.data_points.iter().map(|it| &it.attributes).collect(),
            Data::Sum(data) => data.data_points.iter().map(|it| &it.attributes).collect(),
            Data::Histogram(data) => data.data_points.iter().map(|it| &it.attributes).collect(),
            other => panic!("{other:?}"),
        };
        all.into_iter().map(|attributes| {
            let labels = attributes
                .iter()
                .map(|it| format!("{}={}", it.key, value(attributes, &it.key).unwrap()));
            let labels: BTreeSet<_> = labels.collect();
            format!("{} {labels:?}", metric.name)
        })
    });
    series.collect()
}

/// Returns the value of a metric without labels.
fn number(metrics: &[Metric], name: &str) -> u64 {
    let metric = metrics.iter().find(|metric| metric.name == name).unwrap();
    let points = match metric.data.as_ref().unwrap() {
        Data::Gauge(data) => &data.data_points,
        Data::Sum(data) => &data.data_points,
        other => panic!("{other:?}"),
    };
    match (&**points, points[0].value) {
        ([point], Some(number_data_point::Value::AsDouble(value)))
            if point.attributes.is_empty() =>
        {
            value as u64
        }
        other => panic!("{other:?}"),
    }
}

#[test]
fn metrics_arrive_with_the_names_labels_and_values_of_the_page() {
    let set = ReplicaSet::start(3).unwrap();
    let fake = Fake::start("200 OK", Vec::new());
    let variables = [
        ("METRIC_EXPORT_INTERVAL", "100"),
        ("EXPORTER_OTLP_HEADERS", "authorization=Bearer%20x"),
        ("SERVICE_NAME", "exporter"),
    ];
    let program = Running::start_with(pushing(set.uri(), &fake.url(), &variables));
    program.get_until("/healthz?read=secondary", 200);
    let mut page = series_of_page(&program.get("/metrics").1);
    let (resource, metrics) = loop {
        let (resource, metrics) = fake.metrics();
        // A server's first check may have ended in the meantime.
        let after = series_of_page(&program.get("/metrics").1);
        if series_of_metrics(&metrics) == page {
            break (resource, metrics);
        }
        page = after;
    };
    assert_eq!(value(&resource, "service.name"), Some("exporter"));
    assert_eq!(number(&metrics, "sdam_servers"), 3);
    assert_eq!(number(&metrics, "sdam_up"), 1);
    assert_eq!(number(&metrics, "sdam_failovers_total"), 0);
    let head = fake.next("/v1/metrics").head;
    let has = |line: &str| head.iter().any(|it| it.eq_ignore_ascii_case(line));
    assert!(has("content-type: application/x-protobuf"), "{head:?}");
    assert!(has("authorization: Bearer x"), "{head:?}");
    program.finish();
}

#[test]
fn a_failover_arrives_as_log_records_and_as_a_span() {
    let set = ReplicaSet::start(3).unwrap();
    let fake = Fake::start("200 OK", Vec::new());
    let mut file = NamedTempFile::new().unwrap();
    writeln!(file, "orders = '{}'", set.uri()).unwrap();
    let mut arguments = pushing("", &fake.url(), &[]);
    arguments.targets = Some(file.path().to_owned());
    let program = Running::start_with(arguments);
    let before = program.get_until("/primary?target=orders", 200);
    set.kill(set.primary().unwrap().unwrap()).unwrap();
    let [span] = <[_; 1]>::try_from(fake.spans()).unwrap();
    assert_eq!(span.name, "failover");
    assert_eq!((span.trace_id.len(), span.span_id.len()), (16, 8));
    assert!(span.start_time_unix_nano <= span.end_time_unix_nano, "{span:?}");
    let names: Vec<_> = span.events.iter().map(|it| &*it.name).collect();
    for name in ["loss noticed", "pool cleared", "writable again"] {
        assert!(names.contains(&name), "{names:?}");
    }
    assert_eq!(value(&span.attributes, "deployment"), Some("orders"));
    for event in &span.events {
        let within = span.start_time_unix_nano..=span.end_time_unix_nano;
        assert!(within.contains(&event.time_unix_nano), "{span:?}");
    }
    assert_eq!(value(&span.attributes, "sdam.primary.previous"), Some(before.trim_end()));
    let after = program.get("/primary?target=orders").1;
    assert_eq!(value(&span.attributes, "sdam.primary"), Some(after.trim_end()));
    program.finish();
}

/// If a deployment is removed from the targets file, its client is closed while the metrics of the
/// others are still pushed. The closing must not be reported as an outage.
#[test]
fn the_end_of_a_client_is_no_outage() {
    let sim = simulation();
    let queues = Queues::default();
    let runtime = sim.runtime();
    let records = Records::new(&[], &runtime.backend, queues.clone());
    sim.block_on(async {
        let builder = sdam::Topology::builder(&sim.uri()).unwrap();
        let topology = builder.sink(Arc::new(records)).start(runtime).unwrap();
        let primary = |now: &sdam::Snapshot| now.description().primary().map(drop);
        topology.wait_for(primary, Duration::from_secs(60)).await.unwrap();
        topology.close().await;
    });
    let logs = queues.logs.batch().records;
    let names: BTreeSet<_> = logs.iter().map(|it| &*it.event_name).collect();
    assert!(names.contains("sdam.primary.changed"), "{names:?}");
    assert!(!names.contains("sdam.outage.started"), "{names:?}");
    assert!(logs.iter().all(|it| it.severity_text == "INFO"), "{logs:?}");
}

#[test]
fn the_end_of_the_program_sends_what_is_left() {
    let set = ReplicaSet::start(3).unwrap();
    let fake = Fake::start("200 OK", Vec::new());
    let program = Running::start_with(pushing(set.uri(), &fake.url(), &[]));
    program.get_until("/healthz", 200);
    set.step_down().unwrap();
    while !program.get("/metrics").1.contains("sdam_failovers_total 1\n") {
        thread::yield_now();
    }
    // End the program before it pushes its first metrics, which by default happens after a minute.
    program.finish();
    let (mut logs, mut spans, mut failovers) = (Vec::new(), Vec::new(), None);
    while let Ok(Received { head, body }) = fake.requests.try_recv() {
        match &*head[0] {
            "POST /v1/logs HTTP/1.1" => logs.extend(self::logs(&body)),
            "POST /v1/traces HTTP/1.1" => spans.extend(self::spans(&body)),
            _ => {
                let (_, metrics) = metrics(&body);
                let number = |name| number(&metrics, name);
                failovers = Some((number("sdam_failovers_total"), number("sdam_up")));
            }
        }
    }
    assert_eq!(failovers, Some((1, 1)));
    let names: BTreeSet<_> = logs.iter().map(|it| &*it.event_name).collect();
    for name in ["failover.ended", "primary.changed", "server.changed", "topology.changed"] {
        assert!(names.contains(&*format!("sdam.{name}")), "{names:?}");
    }
    let [span] = &*spans else {
        panic!("{spans:?}");
    };
    let ended = logs.iter().find(|it| it.event_name == "sdam.failover.ended").unwrap();
    assert_eq!((&ended.trace_id, &ended.span_id), (&span.trace_id, &span.span_id));
    let last = logs.iter().rfind(|it| it.event_name == "sdam.topology.changed").unwrap();
    assert_eq!(value(&last.attributes, "sdam.topology.type"), Some("ReplicaSetWithPrimary"));
}

#[test]
fn a_collector_that_does_not_answer_is_reported_once_and_again_when_it_does() {
    let server = Builder::standalone().start().unwrap();
    // Use an open port whose listener never answers, because another test could open a closed port.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let variables = [("METRIC_EXPORT_INTERVAL", "20"), ("EXPORTER_OTLP_TIMEOUT", "500")];
    let program = Running::start_with(pushing(server.uri(), &url, &variables));
    let begun = program.remarks.recv().unwrap();
    let said = format!("warning: OTLP: {url}/v1/");
    assert!(begun.starts_with(&said), "{begun}");
    assert!(begun.contains("no answer within 500 ms"), "{begun}");
    assert_eq!(program.get_until("/healthz", 200), "ok\n");
    let fake = Fake::listen(silent, None, "200 OK", Vec::new());
    let ended = program.remarks.recv().unwrap();
    assert!(ended.starts_with("OTLP: "), "{ended}");
    assert!(ended.contains(" again"), "{ended}");
    // Check that the earlier records were not lost.
    let logs = fake.logs();
    assert!(logs.iter().any(|it| it.event_name == "sdam.server.changed"), "{logs:?}");
    program.finish();
}

/// Pushes the page from [`page_of_a`] to `url`, configured by the OpenTelemetry `variables`.
/// Returns the remarks.
fn push_a(url: &str, variables: &[(&str, PathBuf)]) -> Vec<String> {
    let pairs = variables.iter().map(|(name, value)| {
        (format!("OTEL_EXPORTER_OTLP_{name}"), value.to_str().unwrap().to_owned())
    });
    let push = Push::new(Some(url), &pairs.collect()).unwrap().unwrap();
    remarks_of(async |remark| {
        push.push_metrics(&page_of_a(), remark).await;
    })
}

/// Calls `action` with a function that collects remarks, and returns the remarks.
fn remarks_of(action: impl AsyncFnOnce(&dyn Fn(&dyn Display))) -> Vec<String> {
    let remarks = RefCell::new(Vec::new());
    let remark = |words: &dyn Display| remarks.borrow_mut().push(words.to_string());
    block_on(action(&remark));
    remarks.into_inner()
}

#[test]
fn refused_records_are_dropped_and_busy_collectors_are_asked_again() {
    let rejected = ExportLogsServiceResponse {
        partial_success: Some(ExportLogsPartialSuccess {
            rejected_log_records: 3,
            error_message: "too old".to_owned(),
        }),
    };
    let check_at = |url: &str, is_done: bool, said: &str| {
        let push = Push::new(Some(url), &BTreeMap::new()).unwrap().unwrap();
        let remarks = remarks_of(async |remark| {
            push.queues.logs.add([LogRecord::default()]);
            push.push_logs(remark).await;
            push.push_logs(remark).await;
        });
        assert_eq!(push.queues.logs.is_empty(), is_done, "{said}");
        assert!(remarks.iter().all(|it| it.contains(said)), "{remarks:?}");
        let expected = usize::from(!said.is_empty());
        assert_eq!(remarks.len(), expected, "{remarks:?}");
    };
    let check = |status, answer: Vec<u8>, is_done: bool, said: &str| {
        check_at(&Fake::start(status, answer).url(), is_done, said);
    };
    // No program listens on this port.
    check_at("http://127.0.0.1:1", false, "refused");
    check("200 OK", vec![], true, "");
    check("200 OK", rejected.encode_to_vec(), true, "it rejects 3 of the records: too old");
    check("503 Service Unavailable", vec![], false, "it answers 503 Service Unavailable");
    check("429 Too Many Requests", vec![], false, "it answers 429");
    check("404 Not Found", vec![], true, "/v1/logs does not take logs: it answers 404 Not Found");
}

/// The clock is virtual, so the time limit expires as soon as all tasks are waiting.
#[test]
fn a_silent_collector_delays_the_end_by_the_limit_at_most() {
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().start_paused(true).build();
    let push = Push::new(Some(&url), &BTreeMap::new()).unwrap().unwrap();
    push.queues.logs.add([LogRecord::default()]);
    push.queues.spans.add([Span::default()]);
    let remarks = RefCell::new(Vec::new());
    let remark = |words: &dyn Display| remarks.borrow_mut().push(words.to_string());
    let waited = runtime.unwrap().block_on(async {
        let start = tokio::time::Instant::now();
        push.flush(Duration::from_secs(2), &Page::default(), remark).await;
        start.elapsed()
    });
    let limit = Duration::from_secs(2);
    assert!(waited >= limit && waited < limit + Duration::from_millis(10), "{waited:?}");
    assert_eq!(remarks.into_inner(), ["warning: OTLP: the last push did not end within 2 s"]);
}

#[test]
fn a_collector_with_tls_is_checked_by_the_authority_of_the_variable() {
    let certificates = Certificates::create().unwrap();
    let (fake, url) = Fake::start_tls(tls_server(&certificates, ServerCertificate::Valid));
    let push = |authority| push_a(&url, &[("CERTIFICATE", authority)]);
    assert_eq!(push(certificates.authority()), [""; 0]);
    assert_eq!(number(&fake.metrics().1, "a"), 1);
    let said = push(certificates.other_authority());
    assert!(said[0].contains("certificate"), "{said:?}");
}

#[test]
fn messages_are_compressed_and_sent_with_a_client_certificate() {
    let certificates = Certificates::create().unwrap();
    let tls = tls_server_with_clients(&certificates, ServerCertificate::Valid);
    let (fake, url) = Fake::start_tls(tls);
    let authority = || ("CERTIFICATE", certificates.authority());
    let said = push_a(&url, &[authority()]);
    assert!(said[0].contains("does not take metrics"), "{said:?}");
    let own = [
        authority(),
        ("METRICS_CLIENT_CERTIFICATE", certificates.client()),
        ("METRICS_CLIENT_KEY", certificates.client()),
        ("COMPRESSION", "gzip".into()),
    ];
    assert_eq!(push_a(&url, &own), [""; 0]);
    let request = fake.next("/v1/metrics");
    assert!(request.head.iter().any(|line| line == "content-encoding: gzip"), "{request:?}");
    let mut body = Vec::new();
    flate2::read::GzDecoder::new(&*request.body).read_to_end(&mut body).unwrap();
    assert_eq!(number(&metrics(&body).1, "a"), 1);
}

#[test]
fn a_wrong_certificate_file_is_named() {
    let variables =
        BTreeMap::from([("OTEL_EXPORTER_OTLP_CERTIFICATE".to_owned(), "/no/such".to_owned())]);
    let said = Push::new(Some("https://a"), &variables).err().unwrap();
    assert!(said.starts_with("OTEL_EXPORTER_OTLP_CERTIFICATE is `/no/such`: "), "{said}");
    assert!(Push::new(Some("http://a"), &BTreeMap::new()).is_ok());
}
