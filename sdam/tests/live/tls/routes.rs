//! Members whose names do not lead to them: the certificate must contain the member's own name.

use sdam::{EventKind, ServerType, Stage, TopologyBuilder};
use sdam_live::{Certificates, Mongod, ServerCertificate, ServerTls, Socks, or_skip};
use sdam_tls::Rustls;
use sdam_transport::AddressTable;

use super::{accept, certificates, refuse, start};
use crate::{observer::Observer, runtime::Host};

/// Translates a name to the server's address.
fn translated(
    mongod: &Mongod,
    name: &str,
) -> (
    String,
    impl FnOnce(TopologyBuilder) -> TopologyBuilder + use<>,
) {
    let name = format!("{name}:{}", mongod.address().port());
    let table = format!("{name}={}", mongod.host());
    let table: AddressTable = table.parse().unwrap();
    (name, move |builder| builder.translate(table))
}

/// Checks the accepted names of a server, with these additional options.
fn check(
    certificates: &Certificates,
    certificate: ServerCertificate,
    mongod: &Mongod,
    options: &str,
) {
    let trusting = certificates.options();
    let uri = |name: &str| format!("mongodb://{name}/?directConnection=true&{trusting}{options}");
    for name in ["a.sdam.example", "other.example", "third.example"] {
        let (host, change) = translated(mongod, name);
        let is_named = match certificate {
            ServerCertificate::WrongName => name == "other.example",
            _ => name == "a.sdam.example",
        };
        if is_named {
            accept(&uri(&host), change);
        } else {
            let error = refuse(&uri(&host), Rustls::ring(), Stage::Tls, change);
            assert!(error.contains(name), "{error}");
        }
    }
}

#[test]
fn the_certificate_has_to_name_the_member_and_not_where_it_is_dialled() {
    // U-5, V-10
    let certificates = certificates();
    let Some(socks) = or_skip(Socks::start()).unwrap() else {
        return;
    };
    let address = socks.address();
    let proxy = format!("&proxyHost={}&proxyPort={}", address.ip(), address.port());
    for certificate in [ServerCertificate::Valid, ServerCertificate::WrongName] {
        let tls = ServerTls::new(&certificates).certificate(certificate);
        let Some(mongod) = start(&tls) else { return };
        for options in ["", &proxy] {
            check(&certificates, certificate, &mongod, options);
        }
    }
}

#[test]
fn a_proxy_that_dies_ends_the_monitor_and_its_restart_brings_the_server_back() {
    // U-4
    let certificates = certificates();
    let Some(mongod) = start(&ServerTls::new(&certificates)) else {
        return;
    };
    let Some(socks) = or_skip(Socks::start_secured("ada", "pencil")).unwrap() else {
        return;
    };
    let address = socks.address();
    let uri = format!(
        "{}&{}&heartbeatFrequencyMS=500&proxyHost={}&proxyPort={}",
        mongod.uri(),
        certificates.options(),
        address.ip(),
        address.port(),
    );
    let wrong = format!("{uri}&proxyUsername=ada&proxyPassword=wrong");
    let error = refuse(&wrong, Rustls::ring(), Stage::Proxy, |builder| builder);
    assert!(error.contains("proxyPassword"), "{error}");
    let host = Host::start().with_tls(Rustls::ring());
    let observer = Observer::start_on(
        host,
        &format!("{uri}&proxyUsername=ada&proxyPassword=pencil"),
    );
    let mark = observer.wait_for_server(0, &mongod.host(), ServerType::Standalone);
    socks.kill().unwrap();
    let mark = observer.wait_for_server(mark, &mongod.host(), ServerType::Unknown);
    let (error, mark) =
        observer.wait_for("a check through the dead proxy", mark, |kind| match kind {
            EventKind::ServerHeartbeatFailed { failure: error, .. } => Some(error.clone()),
            _ => None,
        });
    assert_eq!(error.stage(), Stage::Proxy, "{error}");
    socks.restart().unwrap();
    observer.wait_for_server(mark, &mongod.host(), ServerType::Standalone);
    observer.finish();
}
