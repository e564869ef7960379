//! Tests that a real Prometheus, with the files of `deploy`, scrapes the program during a failover.

#![expect(clippy::unwrap_used, reason = "a panic fails the test")]

mod pieces;

use std::{
    collections::BTreeSet,
    fs,
    io::{Read, Write},
    net::{Ipv4Addr, TcpStream},
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
use sdam_core::options::Options;
use sdam_live::{Dns, Prometheus, Record, or_skip};
use sdam_sim::serve::{Builder, ReplicaSet};
use serde_json::{Value, json};

use pieces::{Lines, TIMEOUT, block_on};

fn deploy() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy")
}

fn read(path: &str) -> String {
    fs::read_to_string(deploy().join(path)).unwrap()
}

/// Runs the program with a file of targets, and calls `scrape` with its address.
fn with_exporter(targets: &str, scrape: impl FnOnce(&str)) {
    let said = with_arguments(Arguments::default(), targets, scrape);
    assert_eq!(said, "");
}

/// Runs the program with these arguments and a file of targets, and calls `scrape` with its
/// address. Returns the remarks.
fn with_arguments(mut arguments: Arguments, targets: &str, scrape: impl FnOnce(&str)) -> String {
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(targets.as_bytes()).unwrap();
    arguments.targets = Some(file.path().to_owned());
    while_running(arguments, scrape)
}

/// Runs the program with these arguments while `scrape` runs with its address. Returns its remarks.
fn while_running(mut arguments: Arguments, scrape: impl FnOnce(&str)) -> String {
    arguments.listen = "127.0.0.1:0".parse().unwrap();
    let (sender, lines) = mpsc::channel();
    let (interrupt, interrupted) = oneshot::channel::<()>();
    let program = thread::spawn(move || {
        let stop = async {
            let _ = interrupted.await;
        };
        let mut remarks = Vec::new();
        let exit = block_on(run(&arguments, Lines::new(sender), &mut remarks, stop));
        assert_eq!(exit.unwrap(), Exit::SUCCESS);
        String::from_utf8(remarks).unwrap()
    });
    let first = lines.recv_timeout(TIMEOUT).unwrap();
    scrape(first.strip_prefix("http://").unwrap());
    interrupt.send(()).unwrap();
    program.join().unwrap()
}

fn get(address: &str, target: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    write!(stream, "GET {target} HTTP/1.1\r\nHost: h\r\n\r\n").unwrap();
    let mut reply = String::new();
    stream.read_to_string(&mut reply).unwrap();
    reply
}

/// Returns whether a result has a value and does not come from an empty histogram.
fn is_number(result: &Value) -> bool {
    result["value"][1].as_str() != Some("NaN")
}

/// Waits until a query has results, and returns their number.
fn wait_for(prometheus: &Prometheus, query: &str) -> usize {
    let start = Instant::now();
    loop {
        let answer = prometheus.query(query).unwrap();
        let json: Value = serde_json::from_str(&answer).unwrap();
        match json["data"]["result"].as_array() {
            Some(results) if results.iter().any(is_number) => return results.len(),
            _ => thread::yield_now(),
        }
        assert!(start.elapsed() < TIMEOUT, "no result of {query}: {answer}");
    }
}

/// Returns the dashboard's queries as Grafana sends them: for all panels, for annotations, and for
/// the deployments' names.
fn dashboard_queries() -> Vec<String> {
    let dashboard: Value = serde_json::from_str(&read("grafana/sdam.json")).unwrap();
    let list = |value: &Value| value.as_array().unwrap().clone();
    let panels = list(&dashboard["panels"]);
    let targets = panels.iter().flat_map(|panel| {
        let targets = list(&panel["targets"]);
        assert!(!targets.is_empty(), "{panel}");
        targets
    });
    let annotations = list(&dashboard["annotations"]["list"]);
    let expressions = targets.chain(annotations).map(|it| it["expr"].as_str().unwrap().to_owned());
    let variables = list(&dashboard["templating"]["list"]);
    let deployment = variables.iter().find(|it| it["name"] == "deployment").unwrap();
    let all = deployment["allValue"].as_str().unwrap();
    let names = deployment["query"]["query"].as_str().unwrap();
    let names = names.strip_prefix("label_values(").unwrap().strip_suffix(')');
    let (metric, label) = names.unwrap().split_once(", ").unwrap();
    let names = format!("group by ({label}) ({metric})");
    let substituted = expressions.chain([names]).map(|query| {
        let query = query
            .replace("$deployment", all)
            .replace("$__rate_interval", "1m")
            .replace("$__range", "6h");
        assert!(!query.contains('$'), "{query}");
        query
    });
    substituted.collect()
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
        let configuration = with_probes(&read("prometheus/prometheus.yml"))
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
        let queries = dashboard_queries();
        assert!(queries.len() > 15, "{queries:?}");
        for query in queries {
            ask(&query);
        }
        for name in names(&read("prometheus/sdam.rules.yml")) {
            ask(name);
        }

        let directory = deploy().join("prometheus");
        for arguments in [
            ["check", "config", "prometheus.yml"],
            ["check", "config", "shards.yml"],
            ["check", "rules", "sdam.rules.yml"],
            ["test", "rules", "sdam.rules.test.yml"],
        ] {
            let output = Prometheus::promtool(&directory, &arguments, "").unwrap();
            assert!(output.status.success(), "{arguments:?}: {output:?}");
        }
    });
}

/// Returns the deployments on the page of an exporter.
fn watched(address: &str) -> BTreeSet<String> {
    let page = get(address, "/metrics");
    let series = page.lines().filter_map(|line| line.strip_prefix("sdam_known{deployment=\""));
    series.map(|series| series.split('"').next().unwrap().to_owned()).collect()
}

/// Waits until each deployment is watched by one of two exporters, and scraped once.
fn wait_until_covered(prometheus: &Prometheus, exporters: [&str; 2], all: &BTreeSet<String>) {
    let start = Instant::now();
    loop {
        let [one, other] = exporters.map(watched);
        let is_shared = !one.is_empty() && !other.is_empty() && one.is_disjoint(&other);
        if is_shared && one.union(&other).eq(all) {
            break;
        }
        assert!(start.elapsed() < TIMEOUT, "{one:?} {other:?} {all:?}");
        thread::yield_now();
    }
    let number = all.len();
    let scraped = r#"count by (deployment) (sdam_up{job="sdam"} == 1) == 1"#;
    wait_for(prometheus, &format!("count({scraped}) == {number}"));
    wait_for(prometheus, &format!("count(sdam_up{{job=\"sdam\"}}) == {number}"));
}

#[test]
fn two_exporters_share_a_list_and_cover_each_target_exactly_once() {
    let server = Builder::standalone().start().unwrap();
    let options = Options::parse(server.uri()).unwrap();
    let seed = options.seeds[0].as_str();
    let folder = tempfile::tempdir().unwrap();
    let [file, new] = ["targets.json", "new"].map(|name| folder.path().join(name));
    // Writes the list and returns its names, of which one consists of hosts.
    let list = |names: &[&str]| {
        let group =
            |name| json!({ "targets": [seed], "labels": { "deployment": name, "team": "shop" } });
        let mut groups: Vec<_> = names.iter().map(group).collect();
        groups.push(json!({ "targets": [format!("mongodb://u:secret@{seed}/?appName=a")] }));
        // Prometheus must not read a part of it.
        fs::write(&new, Value::from(groups).to_string()).unwrap();
        fs::rename(&new, &file).unwrap();
        names.iter().copied().chain([seed]).map(str::to_owned).collect()
    };
    // Each exporter has some of these by their hashes.
    let all = list(&["orders", "users", "stock", "billing", "offers"]);
    let share = |exporters: [&str; 2]| {
        let rules = deploy().join("prometheus/sdam.rules.yml");
        let configuration = read("prometheus/shards.yml")
            .replace("127.0.0.1:9216", exporters[0])
            .replace("127.0.0.1:9217", exporters[1])
            .replace("15s", "200ms")
            .replace("/etc/sdam/targets.json", file.to_str().unwrap())
            .replace("sdam.rules.yml", rules.to_str().unwrap());
        let Some(prometheus) = or_skip(Prometheus::start(&configuration)).unwrap() else {
            return;
        };
        wait_until_covered(&prometheus, exporters, &all);
        for (query, number) in [
            (r#"sdam_up{instance="users",deployment="users",team="shop"} == 1"#, 1),
            (r#"sdam_config_last_reload_successful{job="sdam-exporter"} == 1"#, 2),
            ("count(up == 1) == 8", 1),
        ] {
            assert_eq!(wait_for(&prometheus, query), number, "{query}");
        }
        // One deployment leaves and another one joins.
        let all = list(&["orders", "users", "returns", "billing", "offers"]);
        wait_until_covered(&prometheus, exporters, &all);
    };
    let mut arguments = Arguments::default();
    arguments.targets = Some(file.clone());
    arguments.forget = Some(Duration::from_secs(2));
    while_running(arguments.clone(), |one| {
        while_running(arguments, |other| share([one, other]));
    });
}

/// Returns the configuration with both jobs, of which the second one is a comment.
fn with_probes(configuration: &str) -> String {
    let (first, second) = configuration.split_once("\n  #\n").unwrap();
    let second = second.lines().map(|line| line.replacen("  # ", "  ", 1) + "\n");
    format!("{first}\n{}", second.collect::<String>())
}

/// Repeats a request until the answer contains `text`.
fn get_until(address: &str, target: &str, text: &str) -> String {
    let start = Instant::now();
    loop {
        let answer = get(address, target);
        if answer.contains(text) {
            return answer;
        }
        assert!(start.elapsed() < TIMEOUT, "no {text}: {answer}");
        thread::yield_now();
    }
}

#[test]
fn a_failed_look_up_is_repeated_while_other_deployments_are_served() {
    let server = Builder::standalone().start().unwrap();
    let other = Record::address("other.example", Ipv4Addr::LOCALHOST);
    let Some(dns) = or_skip(Dns::start([other])).unwrap() else {
        return;
    };
    let port = Options::parse(server.uri()).unwrap().seeds[0].port().unwrap();
    let place = format!("a.shop.sdam.example:{port}=127.0.0.1:{port}");
    let mut arguments = Arguments::default();
    arguments.target.dns = Some(dns.address());
    arguments.target.translate = Some(place.parse().unwrap());
    let targets = format!(
        "alone = '{}'\nshop = 'mongodb+srv://shop.sdam.example/?tls=false'\n",
        server.uri()
    );
    let said = with_arguments(arguments, &targets, |address| {
        get_until(address, "/healthz?target=alone", "200 OK");
        let reason = "`SRV record _mongodb._tcp.shop.sdam.example`: there is none";
        let topology = get_until(address, "/topology?target=shop", reason);
        assert!(topology.contains("\"servers\":[]"), "{topology}");
        for page in ["/healthz?target=shop", "/primary?target=shop"] {
            let answer = get(address, page);
            assert!(answer.starts_with("HTTP/1.1 503 "), "{answer}");
            assert!(answer.contains(reason), "{answer}");
        }
        let down = get(address, "/probe?target=shop");
        for name in ["sdam_up", "sdam_primary_known", "sdam_writable", "sdam_servers"] {
            let sample = format!("\n{name}{{deployment=\"shop\"}} 0\n");
            assert!(down.contains(&sample), "no {sample}: {down}");
        }
        assert!(!down.contains("SRV"), "{down}");
        assert!(get(address, "/metrics").contains("sdam_up{deployment=\"alone\"} 1\n"));

        let service = "_mongodb._tcp.shop.sdam.example";
        let record = Record::srv(service, "a.shop.sdam.example", port);
        dns.set([record]).unwrap();
        get_until(address, "/healthz?target=shop", "200 OK");
        get_until(address, "/metrics", "sdam_up{deployment=\"shop\"} 1\n");
    });
    let said: Vec<_> = said.lines().collect();
    assert_eq!(said.len(), 2, "{said:?}");
    assert!(
        said[0].starts_with("warning: shop: the configuration is invalid: `SRV record "),
        "{said:?}"
    );
    assert_eq!(said[1], "shop: the hosts are known now");
}
