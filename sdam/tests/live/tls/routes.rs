//! Tests members that cannot be reached by their own names. Their certificates must still contain
//! these names.

use sdam::{TopologyBuilder, error::Stage};
use sdam_live::{Certificates, Mongod, ServerCertificate, ServerTls, Socks, or_skip};
use sdam_tls::Rustls;
use sdam_transport::translate::AddressTable;

use super::{accept, certificates, refuse, start};

/// Returns the host and port for `name`, and a function that makes a builder translate them to the
/// server's address.
fn translated(
    mongod: &Mongod,
    name: &str,
) -> (String, impl FnOnce(TopologyBuilder) -> TopologyBuilder + use<>) {
    let name = format!("{name}:{}", mongod.address().port());
    let table = format!("{name}={}", mongod.host());
    let table: AddressTable = table.parse().unwrap();
    (name, move |builder| builder.translate(table))
}

/// Connects to the server by several names, with these additional options, and checks that it is
/// accepted only under the name in its certificate.
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
#[ignore = "deep: real servers"]
fn the_certificate_has_to_name_the_member_and_not_where_it_is_dialled() {
    // The certificate must contain the member's name, not the proxy's or the translated address
    // (U-5, V-10).
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
