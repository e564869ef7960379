//! Tests the program with a real Prometheus, which uses the files of `deploy`.

use std::net::Ipv4Addr;

use sdam_live::{Dns, Record};

use super::*;

/// Returns whether a result is a number. A quantile of an empty histogram is not a number.
fn is_number(result: &Value) -> bool {
    result["value"][1].as_str() != Some("NaN")
}

/// Repeats a query until it has results, and returns the number of results.
fn wait_for(prometheus: &Prometheus, query: &str) -> usize {
    let mut count = 0;
    wait_until(query, || {
        let answer: Value = serde_json::from_str(&prometheus.query(query).unwrap()).unwrap();
        let results = answer["data"]["result"].as_array();
        count = results.filter(|all| all.iter().any(is_number)).map_or(0, Vec::len);
        count > 0
    });
    count
}

/// Returns the queries that Grafana sends for the dashboard: for all panels, for annotations, and
/// for the names of deployments.
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

/// Returns the names of metrics that occur in a text.
fn names(text: &str) -> BTreeSet<&str> {
    let words = text.split(|letter: char| !letter.is_ascii_alphanumeric() && letter != '_');
    words.filter(|word| word.starts_with("sdam_")).collect()
}

#[test]
#[ignore = "deep: scrapes of a real Prometheus"]
fn prometheus_follows_a_failover() {
    let set = Blueprint::replica_set(3).serve().unwrap();
    let closed = Port::reserve().unwrap();
    let dead = closed.address();
    let program =
        Running::start_many(&format!("orders = '{}'\ngone = 'mongodb://{dead}'\n", set.uri()));
    let rules = deploy().join("prometheus/sdam.rules.yml");
    let configuration = with_probes(&read("prometheus/prometheus.yml"))
        .replace("127.0.0.1:9216", &program.address.to_string())
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
    ask(r#"ALERTS{alertname="SdamDeploymentDown",deployment="gone"}"#);
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
        ["check", "rules", "sdam.rules.yml"],
        ["test", "rules", "sdam.rules.test.yml"],
    ] {
        let output = Prometheus::promtool(&directory, &arguments, "").unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
    }
    program.finish();
}

/// Returns the configuration with its second job enabled, which is commented out in the file.
fn with_probes(configuration: &str) -> String {
    let (first, second) = configuration.split_once("\n  #\n").unwrap();
    let second = second.lines().map(|line| line.replacen("  # ", "  ", 1) + "\n");
    format!("{first}\n{}", second.collect::<String>())
}

#[test]
#[ignore = "deep: waits until a look-up is repeated"]
fn a_failed_look_up_is_repeated_while_other_deployments_are_served() {
    let server = Blueprint::standalone().serve().unwrap();
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
    let program = Running::follow(&targets, arguments);
    let get_until =
        |target: &str, text: &str| program.get_while(target, |_, body| !body.contains(text));
    program.get_until("/healthz?target=alone", 200);
    let reason = "`SRV record _mongodb._tcp.shop.sdam.example`: there is none";
    let topology = get_until("/topology?target=shop", reason);
    assert!(topology.contains("\"servers\":[]"), "{topology}");
    for page in ["/healthz?target=shop", "/primary?target=shop"] {
        let (status, answer) = program.get(page);
        assert!(status == 503 && answer.contains(reason), "{answer}");
    }
    let (_, down) = program.get("/probe?target=shop");
    for name in ["sdam_up", "sdam_primary_known", "sdam_writable", "sdam_servers"] {
        let sample = format!("\n{name}{{deployment=\"shop\"}} 0\n");
        assert!(down.contains(&sample), "no {sample}: {down}");
    }
    assert!(!down.contains("SRV"), "{down}");
    assert!(program.get("/metrics").1.contains("sdam_up{deployment=\"alone\"} 1\n"));
    let said = program.remarks.recv().unwrap();
    assert!(
        said.starts_with("warning: shop: the configuration is invalid: `SRV record "),
        "{said:?}"
    );

    let service = "_mongodb._tcp.shop.sdam.example";
    let record = Record::srv(service, "a.shop.sdam.example", port);
    dns.set([record]).unwrap();
    program.get_until("/healthz?target=shop", 200);
    get_until("/metrics", "sdam_up{deployment=\"shop\"} 1\n");
    assert_eq!(program.remarks.recv().unwrap(), "shop: the hosts are known now");
    program.finish();
}
