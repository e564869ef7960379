//! Tests TLS between clients and real servers.

use std::path::Path;

use sdam::Options;
use sdam_dns::DnsResolver;
use sdam_live::{Dns, Record, ServerCertificate, Socks};
use sdam_tls::rustls::pki_types::{CertificateRevocationListDer, pem::PemObject};
use sdam_transport::layers::AddressTable;

use super::*;

pub(crate) fn certificates() -> Arc<Certificates> {
    Arc::new(Certificates::create().unwrap())
}

/// Starts one server. Returns `None` if no server is available.
pub(crate) fn start(tls: &ServerTls) -> Option<Mongod> {
    or_skip(Mongod::start_tls(version(), tls)).unwrap()
}

/// Returns the options of a client that presents its certificate.
pub(crate) fn with_client(certificates: &Certificates) -> String {
    let file = certificates.client();
    let options = certificates.options();
    format!("{options}&tlsCertificateKeyFile={}", file.display())
}

/// Waits for the first check of the only server, which must succeed.
#[track_caller]
fn accept(uri: &str, change: impl FnOnce(TopologyBuilder) -> TopologyBuilder) {
    let host = Host::start().with_tls(Rustls::ring());
    let observer = Observer::build(host, Options::parse(uri).unwrap(), change);
    observer.wait_for("a check to succeed", 0, |kind| {
        if let EventKind::ServerHeartbeatFailed { failure: error, .. } = kind {
            panic!("{uri}: {error}");
        }
        matches!(kind, EventKind::ServerHeartbeatSucceeded { .. }).then_some(())
    });
    observer.finish();
}

/// Waits for the first check of the only server, which must fail at the given stage. Returns the
/// error that a selection then reports.
#[track_caller]
fn refuse(
    uri: &str,
    provider: Rustls,
    stage: Stage,
    change: impl FnOnce(TopologyBuilder) -> TopologyBuilder,
) -> String {
    let host = Host::start().with_tls(provider);
    let observer = Observer::build(host, Options::parse(uri).unwrap(), change);
    let (error, mark) = observer.wait_for("a check to fail", 0, |kind| match kind {
        EventKind::ServerHeartbeatFailed { failure: error, .. } => Some(error.clone()),
        EventKind::ServerHeartbeatSucceeded { .. } => panic!("{uri}: accepted"),
        _ => None,
    });
    assert_eq!(error.stage(), stage, "{uri}: {error}");
    observer.wait_for_topology("the error in the description", mark, |topology| {
        topology.servers()[0].error.is_some()
    });
    let write = Criteria::write();
    let now = observer.topology.select_within(&write, Duration::ZERO);
    let Err(SelectionError::Timeout(timeout)) = block_on(now) else {
        panic!("{uri}: selected");
    };
    observer.finish();
    timeout.to_string()
}

/// Starts a set that requires client certificates. If a client connects to a name such as
/// `a.sdam.example`, the member learns this through SNI, and then uses names of this form for all
/// members in its hello replies.
fn replica_set(certificates: &Arc<Certificates>) -> Option<ReplicaSet> {
    let member = |name| MemberSpec::new().horizon(&format!("{name}.sdam.example"));
    let tls = ServerTls::new(certificates).require_client_certificates();
    let set = ReplicaSet::builder(version()).tls(tls);
    or_skip(set.start(&["a", "b", "c"].map(member))).unwrap()
}

/// Returns the names by which external clients know the members.
fn outside(set: &ReplicaSet) -> Vec<String> {
    let ports = set.members().map(|member| member.address().port());
    let names = ["a", "b", "c"].into_iter().zip(ports);
    names.map(|(name, port)| format!("{name}.sdam.example:{port}")).collect()
}

fn primary(topology: &TopologyDescription) -> Option<String> {
    Some(topology.primary()?.address.to_string())
}

#[test]
#[ignore = "deep: real servers"]
fn a_set_with_tls_behind_an_srv_record_is_followed_through_failovers() {
    let certificates = certificates();
    let Some(set) = replica_set(&certificates) else {
        return;
    };
    let names = outside(&set);
    // The SRV record names only one member, which is enough to find all members.
    let (seed, port) = names[0].split_once(':').unwrap();
    let records = [
        Record::srv("_mongodb._tcp.cluster.sdam.example", seed, port.parse().unwrap()),
        Record::txt("cluster.sdam.example", ["replicaSet=", set.name()]),
    ];
    let Some(dns) = or_skip(Dns::start(records)).unwrap() else {
        return;
    };
    let mut host = Host::start().with_tls(Rustls::ring());
    let resolver = DnsResolver::with_servers([dns.address()]);
    host.runtime.backend.resolver = Some(Arc::new(resolver));
    let uri = format!(
        "mongodb+srv://cluster.sdam.example/?heartbeatFrequencyMS=500&{}",
        with_client(&certificates),
    );
    let options = block_on(sdam::resolve(&uri, &host.runtime.backend)).unwrap();
    let places = names.iter().zip(set.members());
    let places: Vec<_> = places.map(|(name, member)| format!("{name}={}", member.host())).collect();
    let table: AddressTable = places.join(",").parse().unwrap();
    let observer = Observer::build(host, options, |builder| builder.translate(table));

    let (found, mark) = observer.wait_for_topology("the whole set", 0, is_complete);
    let known = found.servers().iter().map(|server| server.address.to_string());
    assert_eq!(known.collect::<Vec<_>>(), names, "the names for external clients");
    let old = set.step_down().unwrap();
    let (_, mark) = observer.wait_for_topology("another primary", mark, |topology| {
        primary(topology).is_some_and(|primary| primary != names[old])
    });
    let victim = set.primary().unwrap();
    set.member(victim).kill().unwrap();
    let (_, mark) = observer.wait_for_topology("the next primary", mark, |topology| {
        primary(topology).is_some_and(|primary| primary != names[victim])
    });
    set.member(victim).restart().unwrap();
    observer.wait_for_topology("the whole set again", mark, is_complete);
    observer.finish();
}

/// Checks that a server is refused, and that the error contains these words.
#[track_caller]
fn check(mongod: &Mongod, options: &str, provider: Rustls, words: &[&str]) {
    let uri = format!("{}&{options}", mongod.uri());
    let error = refuse(&uri, provider, Stage::Tls, |builder| builder);
    for word in words.iter().chain(&["tls"]) {
        assert!(error.contains(word), "`{word}` is missing: {error}");
    }
}

#[track_caller]
fn check_accepted(mongod: &Mongod, options: &str) {
    accept(&format!("{}&{options}", mongod.uri()), |builder| builder);
}

fn option(name: &str, file: &Path) -> String {
    format!("&{name}={}", file.display())
}

#[test]
#[ignore = "deep: real servers"]
fn each_fault_of_a_server_certificate_is_named_in_the_error_of_a_selection() {
    let certificates = certificates();
    let server = |certificate| ServerTls::new(&certificates).certificate(certificate);
    let options = certificates.options();
    thread::scope(|scope| {
        for certificate in ServerCertificate::ALL {
            let (tls, options) = (server(certificate), &options);
            let list = certificates.revocations();
            scope.spawn(move || {
                let Some(mongod) = start(&tls) else { return };
                let words: &[&str] = match certificate {
                    ServerCertificate::Valid => return check_accepted(&mongod, options),
                    ServerCertificate::Expired => &["expired", "2021"],
                    ServerCertificate::NotYetValid => &["not valid", "2048"],
                    ServerCertificate::WrongName => &["127.0.0.1", "other.example"],
                    ServerCertificate::UnknownIssuer | ServerCertificate::SelfSigned => {
                        &["unknown authority"]
                    }
                    ServerCertificate::Revoked => &["revoked"],
                };
                let mut provider = Rustls::ring();
                if certificate == ServerCertificate::Revoked {
                    // Without a revocation list, the client accepts even this certificate, because
                    // it cannot know that the certificate has been revoked.
                    check_accepted(&mongod, options);
                    let list = CertificateRevocationListDer::from_pem_file(list).unwrap();
                    provider = provider.with_revocation_lists([list]);
                }
                check(&mongod, options, provider, words);
                check_accepted(&mongod, "tls=true&tlsInsecure=true");
            });
        }
    });
}

#[test]
#[ignore = "deep: real servers"]
fn a_server_that_demands_a_certificate_accepts_that_of_its_authority_alone() {
    let certificates = certificates();
    let tls = ServerTls::new(&certificates).require_client_certificates();
    for tls in [tls.clone(), tls.without_tls_1_3()] {
        let Some(mongod) = start(&tls) else { return };
        let trusting = certificates.options();
        check_accepted(&mongod, &with_client(&certificates));
        check(&mongod, &trusting, Rustls::ring(), &["client certificate"]);
        let unknown = option("tlsCertificateKeyFile", &certificates.unknown_client());
        let options = format!("{trusting}{unknown}");
        check(&mongod, &options, Rustls::ring(), &["certificate"]);
    }
}

#[test]
#[ignore = "deep: real servers"]
fn a_server_that_demands_tls_closes_connections_in_plain_text() {
    let certificates = certificates();
    let Some(mongod) = start(&ServerTls::new(&certificates)) else {
        return;
    };
    let error = refuse(&mongod.uri(), Rustls::ring(), Stage::Hello, |builder| builder);
    assert!(error.contains("requires TLS"), "{error}");
}

/// Connects to a server with this certificate by several names, with these additional options, and
/// checks that the server is accepted only under the name in its certificate.
fn check_names(certificates: &Arc<Certificates>, certificate: ServerCertificate, options: &[&str]) {
    let tls = ServerTls::new(certificates).certificate(certificate);
    let Some(mongod) = start(&tls) else { return };
    let trusting = certificates.options();
    for name in ["a.sdam.example", "other.example", "third.example"] {
        let is_named = match certificate {
            ServerCertificate::WrongName => name == "other.example",
            _ => name == "a.sdam.example",
        };
        let host = format!("{name}:{}", mongod.address().port());
        let table: AddressTable = format!("{host}={}", mongod.host()).parse().unwrap();
        for options in options {
            let uri = format!("mongodb://{host}/?directConnection=true&{trusting}{options}");
            let table = table.clone();
            let change = |builder: TopologyBuilder| builder.translate(table);
            if is_named {
                accept(&uri, change);
            } else {
                let error = refuse(&uri, Rustls::ring(), Stage::Tls, change);
                assert!(error.contains(name), "{error}");
            }
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
        check_names(&certificates, certificate, &["", &proxy]);
    }
}
