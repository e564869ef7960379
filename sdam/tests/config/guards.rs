//! Nothing connects without TLS or a proxy when a connection string asks for it, in any spelling.

use std::sync::Arc;

use futures::FutureExt;
use sdam::{Runtime, StartError, Topology};
use sdam_testkit::HeldTasks;

use crate::{Refusing, poll};

/// Starts each kind of topology with `options`; returns its error and connection count.
fn attempts(options: &str) -> [(Option<StartError>, usize); 2] {
    let builder = || Topology::builder(&format!("mongodb://a/?{options}")).unwrap();
    let (server, tasks) = (Refusing::new(), HeldTasks::default());
    let started = builder().start(Runtime::new(server.io(), Arc::new(tasks.clone())));
    poll(&tasks);
    let threaded = (started.err(), server.attempts());

    let server = Refusing::new();
    let mut scanned = builder().scan(server.io());
    if let Ok(topology) = &mut scanned {
        let _unfinished = topology.scan().now_or_never();
    }
    [threaded, (scanned.err(), server.attempts())]
}

/// Asserts that neither kind of topology starts or connects because of `option`.
#[track_caller]
fn check_refused(options: &str, option: &str) {
    for (error, connections) in attempts(options) {
        let Some(StartError::Config(error)) = error else {
            unreachable!("{options}: {error:?}");
        };
        assert_eq!(error.option(), option, "{options}: {error}");
        assert!(!error.remedy().is_empty());
        assert_eq!(connections, 0, "{options}");
    }
}

const TLS: [&str; 8] = [
    "tls",
    "ssl",
    "tlsAllowInvalidCertificates",
    "tlsAllowInvalidHostnames",
    "tlsDisableCertificateRevocationCheck",
    "tlsDisableOCSPEndpointCheck",
    "tlsInsecure",
    "sslVerifyCertificate",
];

#[test]
fn both_kinds_of_topology_connect_without_tls_or_a_proxy() {
    // Control: otherwise the other tests would prove nothing.
    for options in ["", "tls=false", "ssl=false&compressors=x&foo=1"] {
        for (error, connections) in attempts(options) {
            assert_eq!((error, connections), (None, 1), "{options}");
        }
    }
}

#[test]
fn malformed_tls_and_proxy_values_are_refused() {
    // B-35, B-36
    for option in TLS {
        for value in ["1", "0", "True", "TRUE", "yes", "on", "x", "", "true%20"] {
            check_refused(&format!("{option}={value}"), option);
        }
    }
    for option in [
        "tlsCAFile",
        "tlsCertificateKeyFile",
        "tlsCertificateKeyFilePassword",
        "proxyHost",
    ] {
        check_refused(&format!("{option}="), option);
    }
    for value in ["x", "0", "65536", "-1", ""] {
        check_refused(&format!("proxyHost=b&proxyPort={value}"), "proxyPort");
    }
    check_refused("tls=1&tls=false", "tls");
    check_refused("tls=false&ssl=1", "ssl");
}

#[test]
fn unsupported_tls_and_proxy_options_are_refused() {
    for option in TLS {
        let own = if option == "ssl" { "tls" } else { option };
        check_refused(&format!("{option}=true"), own);
        if own != "tls" {
            check_refused(&format!("{option}=false"), own);
        }
    }
    check_refused("tlsCAFile=ca.pem", "tlsCAFile");
    check_refused("tls=false&tlsCertificateKeyFile=a", "tlsCertificateKeyFile");
    check_refused("proxyHost=b", "proxyHost");
    check_refused("proxyHost=b&proxyPort=1080", "proxyHost");
    check_refused("proxyHost=b&proxyUsername=c&proxyPassword=d", "proxyHost");
    let [(error, _), _] = attempts("tls=true");
    assert_eq!(
        error.unwrap().to_string(),
        "`tls` is `true`: the engine does not negotiate TLS; leave it out and start the topology \
         on a runtime whose transport negotiates TLS itself"
    );
    let [(error, _), _] = attempts("tls=1");
    // The output of `fn main() -> Result<(), StartError>`.
    assert_eq!(
        format!("{:?}", error.unwrap()),
        "`tls` is `1`: it must be `true` or `false`; correct the value, or leave the option out if \
         nothing needs it"
    );
    let [_, (error, _)] = attempts("proxyHost=b");
    assert_eq!(
        error.unwrap().to_string(),
        "`proxyHost` is `b`: the engine does not connect through a proxy; leave it out and start \
         the topology on a runtime whose transport connects through the proxy itself"
    );
}
