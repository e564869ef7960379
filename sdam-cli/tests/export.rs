//! A real Prometheus, with the files of `deploy`, scrapes the program during a failover.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

use std::{
    collections::BTreeSet,
    fs,
    io::{self, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    sync::mpsc,
    thread,
    time::{Duration, Instant},
};

use futures::channel::oneshot;
use sdam_cli::{
    exit::Exit,
    export::{Arguments, run},
};
use sdam_live::{Prometheus, or_skip};
use sdam_sim::serve::ReplicaSet;
use serde_json::Value;

/// The time limit of every wait, for a machine under load.
const TIMEOUT: Duration = Duration::from_secs(60);

/// A writer that sends every piece of text to a channel.
struct Pieces(mpsc::Sender<String>);

impl Write for Pieces {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let text = String::from_utf8_lossy(bytes).into_owned();
        self.0.send(text).map_err(io::Error::other)?;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy")
}

fn read(path: &str) -> String {
    fs::read_to_string(deploy().join(path)).unwrap()
}

/// Runs the program with a file of targets while `scrape` runs with its address.
fn with_exporter(targets: &str, scrape: impl FnOnce(&str)) {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(targets.as_bytes()).unwrap();
    let mut arguments = Arguments::default();
    arguments.targets = Some(file.path().to_owned());
    arguments.listen = "127.0.0.1:0".parse().unwrap();
    let (sender, pieces) = mpsc::channel();
    let (interrupt, interrupted) = oneshot::channel::<()>();
    let program = thread::spawn(move || {
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .unwrap();
        let stop = async {
            let _ = interrupted.await;
        };
        runtime.block_on(run(&arguments, Pieces(sender), io::stderr(), stop))
    });
    let mut first = String::new();
    while !first.ends_with('\n') {
        first += &pieces.recv_timeout(TIMEOUT).unwrap();
    }
    scrape(first.trim().strip_prefix("http://").unwrap());
    interrupt.send(()).unwrap();
    assert_eq!(program.join().unwrap().unwrap(), Exit::SUCCESS);
}

fn get(address: &str, target: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {target} HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

/// Waits until a query has results, and returns their number.
fn wait_for(prometheus: &Prometheus, query: &str) -> usize {
    let start = Instant::now();
    loop {
        let answer = prometheus.query(query).unwrap();
        let json: Value = serde_json::from_str(&answer).unwrap();
        match json["data"]["result"].as_array() {
            Some(results) if !results.is_empty() => return results.len(),
            _ => thread::yield_now(),
        }
        assert!(start.elapsed() < TIMEOUT, "no result of {query}: {answer}");
    }
}

/// Returns the names of metrics in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("sdam_")).collect()
}

#[test]
fn prometheus_follows_a_failover() {
    let set = ReplicaSet::start(3).unwrap();
    let closed = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let dead = closed.local_addr().unwrap();
    drop(closed);
    let targets = format!("orders = '{}'\ngone = 'mongodb://{dead}'\n", set.uri());
    with_exporter(&targets, |address| {
        let rules = deploy().join("prometheus/sdam.rules.yml");
        let configuration = read("prometheus/prometheus.yml")
            .replace("127.0.0.1:9216", address)
            .replace("15s", "200ms")
            .replace("sdam.rules.yml", rules.to_str().unwrap());
        let Some(prometheus) = or_skip(Prometheus::start(&configuration)).unwrap() else {
            return;
        };
        let ask = |query: &str| wait_for(&prometheus, query);
        assert_eq!(ask(r#"sdam_up{job="sdam",deployment="orders"} == 1"#), 1);
        assert_eq!(ask(r#"sdam_up{job="sdam",deployment="gone"} == 0"#), 1);
        ask(r#"sdam_primary_known{job="sdam-probe",instance="orders",deployment="orders"} == 1"#);
        ask(r#"sdam_failovers_total{job="sdam",deployment="orders"} == 0"#);
        set.step_down().unwrap();
        ask(r#"sdam_failovers_total{job="sdam",deployment="orders"} == 1"#);
        ask(r#"increase(sdam_failovers_total{job="sdam",deployment="orders"}[5m]) > 0.9"#);
        ask(r#"sdam_failover_duration_seconds_count{job="sdam",deployment="orders"} == 1"#);
        ask(r#"ALERTS{alertname="SdamNoPrimary",deployment="gone"}"#);
        let primaries = r#"sdam_server_type{job="sdam",deployment="orders",type="RSPrimary"} == 1"#;
        assert_eq!(ask(primaries), 1);

        let directory = deploy().join("prometheus");
        for arguments in [
            ["check", "config", "prometheus.yml"],
            ["check", "rules", "sdam.rules.yml"],
            ["test", "rules", "sdam.rules.test.yml"],
        ] {
            let output = prometheus.promtool(&directory, &arguments).unwrap();
            assert!(output.status.success(), "{arguments:?}: {output:?}");
        }
    });
}

#[test]
fn the_dashboard_and_the_alerts_name_metrics_that_exist() {
    let set = ReplicaSet::start(3).unwrap();
    with_exporter(&format!("orders = '{}'\n", set.uri()), |address| {
        while !get(address, "/healthz?target=orders").starts_with("HTTP/1.1 200") {
            thread::yield_now();
        }
        set.step_down().unwrap();
        let page = loop {
            let page = get(address, "/metrics");
            if page.contains("sdam_failovers_total{deployment=\"orders\"} 1\n") {
                break page;
            }
        };
        let existing = names(&page);
        let dashboard = read("grafana/sdam.json");
        serde_json::from_str::<Value>(&dashboard).unwrap();
        for text in [dashboard, read("prometheus/sdam.rules.yml")] {
            let named = names(&text);
            assert!(named.len() > 4, "{named:?}");
            let missing: Vec<_> = named.difference(&existing).collect();
            assert!(missing.is_empty(), "{missing:?}");
        }
    });
}
