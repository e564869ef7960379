use super::{destination::TIMEOUT, *};

fn read(option: Option<&str>, variables: &[(&str, &str)]) -> Result<Option<Settings>, String> {
    let pairs = variables.iter().map(|(name, value)| (format!("OTEL_{name}"), (*value).to_owned()));
    Settings::new(option, &pairs.collect())
}

#[test]
fn endpoints_follow_the_specification() {
    let check = |option: Option<&str>, variables: &[(&str, &str)], expected: &[&str]| {
        let settings = read(option, variables).unwrap();
        let found: Vec<_> = settings
            .iter()
            .flat_map(|it| it.destinations.values())
            .map(|it| it.endpoint.to_string())
            .collect();
        assert_eq!(found, expected, "{option:?} {variables:?}");
    };
    let base = "EXPORTER_OTLP_ENDPOINT";
    let all = ["http://a:4318/v1/metrics", "http://a:4318/v1/logs", "http://a:4318/v1/traces"];
    check(None, &[], &[]);
    check(None, &[("SERVICE_NAME", "x")], &[]);
    check(Some("http://a:4318"), &[], &all);
    check(Some("http://a:4318/"), &[(base, "http://b")], &all);
    check(None, &[(base, "http://a:4318")], &all);
    check(None, &[(base, "http://a:4318"), ("SDK_DISABLED", "true")], &[]);
    check(
        None,
        &[(base, "https://a/otlp/"), ("LOGS_EXPORTER", "none"), ("TRACES_EXPORTER", "console")],
        &["https://a/otlp/v1/metrics"],
    );
    let own = ("EXPORTER_OTLP_METRICS_ENDPOINT", "http://b:9090/api/v1/otlp/v1/metrics");
    check(None, &[own], &["http://b:9090/api/v1/otlp/v1/metrics"]);
    check(None, &[own, (base, "http://a:4318")], &[own.1, all[1], all[2]]);
}

#[test]
fn other_variables_are_decoded() {
    let settings = read(
        Some("http://a"),
        &[
            ("EXPORTER_OTLP_HEADERS", "authorization=Basic%20YTpi, x-tenant = shop "),
            ("RESOURCE_ATTRIBUTES", "service.name=a,service.instance.id=i%2C1"),
            ("SERVICE_NAME", "exporter"),
            ("METRIC_EXPORT_INTERVAL", "5000"),
            ("EXPORTER_OTLP_TIMEOUT", "250"),
        ],
    );
    let settings = settings.unwrap().unwrap();
    assert_eq!(settings.resource["service.name"], "exporter");
    assert_eq!(settings.resource["service.instance.id"], "i,1");
    assert_eq!(settings.interval, Duration::from_secs(5));
    for to in settings.destinations.values() {
        assert_eq!(to.headers["authorization"], "Basic YTpi");
        assert_eq!(to.headers["x-tenant"], "shop");
        assert_eq!(to.timeout, Duration::from_millis(250));
        assert!(!to.has_tls());
    }
    let defaults = read(Some("https://a"), &[]).unwrap().unwrap();
    assert_eq!(defaults.resource["service.name"], "sdam");
    assert_eq!(defaults.interval, INTERVAL);
    let to = &defaults.destinations[&Signal::Logs];
    assert_eq!((to.timeout, to.is_compressed, &to.client), (TIMEOUT, false, &None));
    assert!(to.has_tls());
}

#[test]
fn variables_of_one_kind_override_those_for_all() {
    let settings = read(
        Some("https://a"),
        &[
            ("EXPORTER_OTLP_HEADERS", "x-of=all"),
            ("EXPORTER_OTLP_LOGS_HEADERS", "x-only=logs"),
            ("EXPORTER_OTLP_TIMEOUT", "250"),
            ("EXPORTER_OTLP_TRACES_TIMEOUT", "500"),
            ("EXPORTER_OTLP_COMPRESSION", "gzip"),
            ("EXPORTER_OTLP_METRICS_COMPRESSION", "none"),
            ("EXPORTER_OTLP_CERTIFICATE", "/all.pem"),
            ("EXPORTER_OTLP_LOGS_CERTIFICATE", "/logs.pem"),
            ("EXPORTER_OTLP_LOGS_CLIENT_CERTIFICATE", "/own.pem"),
            ("EXPORTER_OTLP_CLIENT_KEY", "/key.pem"),
            ("EXPORTER_OTLP_CLIENT_CERTIFICATE", "/client.pem"),
        ],
    );
    let all = settings.unwrap().unwrap().destinations;
    let [metrics, logs, traces] =
        [Signal::Metrics, Signal::Logs, Signal::Traces].map(|it| &all[&it]);
    assert_eq!((&metrics.headers["x-of"], metrics.headers.len()), (&"all".parse().unwrap(), 1));
    assert_eq!((&logs.headers["x-only"], logs.headers.len()), (&"logs".parse().unwrap(), 1));
    assert_eq!([metrics, logs, traces].map(|it| it.timeout.as_millis()), [250, 250, 500]);
    assert_eq!([metrics, logs, traces].map(|it| it.is_compressed), [false, true, true]);
    let file = |to: &Destination| to.authorities.as_ref().unwrap().1.display().to_string();
    assert_eq!([metrics, logs, traces].map(file), ["/all.pem", "/logs.pem", "/all.pem"]);
    let client = |to: &Destination| {
        let files = to.client.as_ref().unwrap();
        [&files.0, &files.1].map(|(_, path)| path.display().to_string())
    };
    assert_eq!(client(logs), ["/own.pem", "/key.pem"]);
    assert_eq!(client(traces), ["/client.pem", "/key.pem"]);
}

#[test]
fn errors_name_the_input_and_the_remedy_but_no_secret() {
    let check = |option: Option<&str>, variables: &[(&str, &str)], expected: &[&str]| {
        let said = read(option, variables).unwrap_err();
        for expected in expected {
            assert!(said.contains(expected), "{said}");
        }
        assert!(!said.contains("secret"), "{said}");
    };
    for (bad, shown) in [
        ("collector", "collector"),
        ("127.0.0.1:4318", "127.0.0.1:4318"),
        ("grpc://a:4317", "grpc://a:4317"),
        ("http://", "http://"),
        ("http://u:secret@a", "http://***@a"),
        ("http://a?b=secret", "http://a?***"),
    ] {
        check(Some(bad), &[], &["--otlp", shown, "http://127.0.0.1:4318"]);
        check(None, &[("EXPORTER_OTLP_ENDPOINT", bad)], &["OTEL_EXPORTER_OTLP_ENDPOINT", shown]);
        check(
            None,
            &[("EXPORTER_OTLP_LOGS_ENDPOINT", bad)],
            &["OTEL_EXPORTER_OTLP_LOGS_ENDPOINT", shown],
        );
    }
    let with = |name: &str, value, words: &str| {
        let variable = format!("OTEL_{name}");
        let expected: Vec<_> = words.split(", ").chain([&*variable]).collect();
        check(Some("http://a"), &[(name, value)], &expected);
    };
    with("EXPORTER_OTLP_PROTOCOL", "grpc", "grpc, 4318");
    with("METRIC_EXPORT_INTERVAL", "0", "`0`, 60000");
    with("EXPORTER_OTLP_TIMEOUT", "2s", "`2s`, 10000");
    let headers = "EXPORTER_OTLP_HEADERS";
    with(headers, "a=b,secret", "item 2, Bearer%20TOKEN");
    with(headers, "a=secret%", "item 1");
    with(headers, "a b=secret", "\"a b\"");
    with("RESOURCE_ATTRIBUTES", "=x", "item 1");
    with("EXPORTER_OTLP_LOGS_HEADERS", "a=b,secret", "item 2");
    with("EXPORTER_OTLP_COMPRESSION", "zstd", "`zstd`, gzip");
    with("EXPORTER_OTLP_CLIENT_KEY", "/key.pem", "OTEL_EXPORTER_OTLP_CLIENT_CERTIFICATE");
}
