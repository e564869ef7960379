//! Tests of accepted handshakes, and of the errors of rejected handshakes.

use std::sync::{Arc, Mutex};

use futures::executor::block_on;
use rcgen::{
    BasicConstraints, CertificateParams, ExtendedKeyUsagePurpose, IsCa, KeyUsagePurpose,
    date_time_ymd,
};
use sdam_core::{
    address::ServerAddress,
    error::{Error, ErrorKind, Stage},
    ids::Generation,
    options::TlsOptions,
    report::ErrorReport,
};
use sdam_tls::{
    FixedConfig, Reason, Rustls,
    rustls::{
        self, AlertDescription, ClientConfig, HandshakeKind,
        version::{TLS12, TLS13},
    },
};
use sdam_transport::{
    stream::ByteStream,
    tls::{Tls, TlsProvider},
};

use crate::{
    certificates::{Authority, File, Issued, RevocationList, SERIAL, crypto},
    server::{Peer, Waiting, Wire, serve, serve_pem, serve_with},
};

/// Negotiates with the server at the other end of `wire`.
pub(crate) fn negotiate(
    tls: &Arc<dyn Tls>,
    wire: Wire,
    host: &str,
) -> Result<Box<dyn ByteStream>, Error> {
    let server = ServerAddress::parse(host).unwrap();
    block_on(tls.negotiate(Box::new(wire), &server))
}

fn accepted(tls: &Arc<dyn Tls>, issued: &Issued, host: &str) {
    negotiate(tls, Wire::tls(&serve(issued)), host).unwrap();
}

/// Checks the error of a handshake with the server at the other end of `wire`.
#[track_caller]
fn refused(
    tls: &Arc<dyn Tls>,
    wire: Wire,
    host: &str,
    kind: ErrorKind,
    reason: Option<Reason>,
    message: &str,
) {
    let seen = wire.seen();
    let error = negotiate(tls, wire, host).unwrap_err();
    assert_eq!(error.message(), message);
    assert_eq!((error.kind(), error.stage()), (kind, Stage::Tls));
    assert_eq!(reason_of(&error), reason);
    // Overload may break a connection, but it does not cause errors about certificates (I-10,
    // I-11).
    let report = ErrorReport::new(Generation::FIRST, error);
    assert_eq!(report.error.is_overload(), kind != ErrorKind::Protocol);
    assert_eq!(Arc::strong_count(&seen), 1, "the socket is closed");
}

/// Checks the error of a handshake in which the server presents the certificate of `issued`.
#[track_caller]
fn untrusted(tls: &Arc<dyn Tls>, issued: &Issued, host: &str, reason: Reason, message: &str) {
    let wire = Wire::tls(&serve(issued));
    refused(tls, wire, host, ErrorKind::Protocol, Some(reason), message);
}

fn reason_of(error: &Error) -> Option<Reason> {
    error.source_as::<rustls::Error>().map(Reason::of)
}

/// Returns the TLS that `provider` creates from the default options as modified by `change`.
pub(crate) fn with(provider: &Rustls, change: impl FnOnce(&mut TlsOptions)) -> Arc<dyn Tls> {
    let mut options = TlsOptions::default();
    change(&mut options);
    provider.tls(&options).unwrap()
}

/// Returns TLS that trusts `authority` and presents the certificate `client`.
pub(crate) fn presenting(client: &Issued, authority: &Authority) -> Arc<dyn Tls> {
    let file = File::new(client.pem());
    with(&authority.provider(), |it| it.certificate_key_file = Some(file.path().into()))
}

/// Returns TLS whose `tlsCAFile` contains the certificate of `issued`.
fn trusting(issued: &Issued) -> Arc<dyn Tls> {
    let file = File::new(issued.pem());
    with(&Rustls::ring(), |it| it.ca_file = Some(file.path().into()))
}

fn expire(params: &mut CertificateParams) {
    params.not_before = date_time_ymd(2019, 1, 1);
    params.not_after = date_time_ymd(2020, 2, 29);
}

#[test]
fn an_observer_sees_the_certificates_of_successful_handshakes_only() {
    let authority = Authority::new("one");
    let issued = authority.issue(&["db.example"]);
    let seen = Arc::new(Mutex::new(Vec::new()));
    let kept = Arc::clone(&seen);
    let provider = authority.provider().with_observer(move |server, session| {
        let count = session.peer_certificates().map(<[_]>::len);
        kept.lock().unwrap().push((server.to_string(), count));
    });
    let tls = provider.tls(&TlsOptions::default()).unwrap();
    accepted(&tls, &issued, "db.example:1");
    negotiate(&tls, Wire::tls(&serve(&issued)), "other.example").unwrap_err();
    let seen = seen.lock().unwrap();
    assert_eq!(*seen, [("db.example:1".to_owned(), Some(1))]);
}

#[test]
fn a_certificate_is_valid_for_each_of_its_names_and_addresses() {
    // A certificate must name the member as the deployment does (V-10).
    let authority = Authority::new("one");
    let issued = authority.issue(&["db.example", "*.set.example", "127.0.0.1", "fd00::5"]);
    let tls = authority.tls();
    for host in ["db.example", "DB.EXAMPLE:7", "db-0.set.example", "127.0.0.1", "[fd00::5]:7"] {
        accepted(&tls, &issued, host);
    }
    for (host, shown) in [
        ("other.example", "other.example"),
        ("a.b.set.example", "a.b.set.example"),
        ("127.0.0.2", "127.0.0.2"),
        ("[::2]:7", "::2"),
    ] {
        let message = format!(
            "the server's certificate names `db.example`, `*.set.example`, `127.0.0.1`, `fd00::5`, \
             and not `{shown}`; connect by a name that it has, or issue it for this one as well"
        );
        untrusted(&tls, &issued, host, Reason::WrongName, &message);
    }
}

#[test]
fn the_server_is_told_the_name_of_the_member_unless_it_is_an_address() {
    // Server Name Indication cannot contain an IP address (V-11).
    let authority = Authority::new("one");
    let issued = authority.issue(&["db.example", "127.0.0.1"]);
    for (host, told) in [("db.example:7", Some("db.example")), ("127.0.0.1:7", None)] {
        let wire = Wire::tls(&serve(&issued));
        let seen = wire.seen();
        negotiate(&authority.tls(), wire, host).unwrap();
        assert_eq!(seen.lock().unwrap().server_name.as_deref(), told);
    }
}

#[test]
fn a_certificate_that_is_not_acceptable_is_refused_with_its_fault_and_the_remedy() {
    // A trusted authority must have issued the certificate, for a server, and it must be valid at the
    // time of the handshake (V-10).
    let authority = Authority::new("one");
    let check = |issued: &Issued, host, reason, message: &str| {
        untrusted(&authority.tls(), issued, host, reason, message);
    };
    for (host, name) in [("a", "DNS:a"), ("127.0.0.1", "IP:127.0.0.1")] {
        let message = format!(
            "the server's certificate names no host, as it has no subjectAltName; issue it again \
             with a subjectAltName (`openssl req -addext subjectAltName={name}`)"
        );
        check(&authority.issue(&[]), host, Reason::WrongName, &message);
    }
    let many = ["1.x", "2.x", "3.x", "4.x", "5.x", "6.x", "7.x", "8.x", "9.x", "10.x"];
    check(
        &authority.issue(&many),
        "a",
        Reason::WrongName,
        "the server's certificate names `1.x`, `2.x`, `3.x`, `4.x`, `5.x`, `6.x`, `7.x`, `8.x` and \
         2 more, and not `a`; connect by a name that it has, or issue it for this one as well",
    );
    check(&authority.issue_with(&["a"], expire), "a", Reason::Expired, EXPIRED);
    check(
        &authority.issue_with(&["a"], |it| it.not_before = date_time_ymd(2999, 12, 31)),
        "a",
        Reason::NotYetValid,
        "the server's certificate is not valid before 2999-12-31; issue it again, or correct the \
         clock of this machine",
    );
    check(
        &Authority::new("other").issue(&["a"]),
        "a",
        Reason::UnknownIssuer,
        "the server's certificate is issued by an unknown authority; add that authority's \
         certificate, or the certificate itself if it is self-signed, to the file of `tlsCAFile`",
    );
    let client = vec![ExtendedKeyUsagePurpose::ClientAuth];
    let issued = authority.issue_with(&["a"], |it| it.extended_key_usages = client);
    check(&issued, "a", Reason::Certificate, NOT_OF_A_SERVER);
    let message = "no certificate can have the name of this server; connect by a host name or an \
                   IP address";
    let wire = Wire::tls(&serve(&authority.issue(&["a"])));
    let (host, kind) = ("/tmp/mongodb.sock", ErrorKind::Protocol);
    refused(&authority.tls(), wire, host, kind, None, message);
}

const EXPIRED: &str = "the server's certificate expired on 2020-02-29; renew it, or correct the \
                       clock of this machine";
const NOT_OF_A_SERVER: &str = "the server's certificate is not one of a server; issue it with the \
                               extended key usage `serverAuth`, and with `digitalSignature` if it \
                               has a key usage";

#[test]
fn certificates_of_old_formats_are_refused_with_a_way_to_issue_others() {
    let check = |certificate, message: &str| {
        let file = File::new(include_str!("keys/authority.crt.pem"));
        let tls = with(&Rustls::ring(), |it| it.ca_file = Some(file.path().into()));
        let wire = Wire::tls(&serve_pem(certificate, include_str!("keys/ec.pkcs8.pem")));
        let (kind, reason) = (ErrorKind::Protocol, Some(Reason::Certificate));
        refused(&tls, wire, "a", kind, reason, message);
    };
    check(
        include_str!("keys/version1.crt.pem"),
        "the server's certificate has an older X.509 version than 3; issue it again with a \
         subjectAltName (`openssl req -addext subjectAltName=DNS:a`), or with `openssl x509 -req \
         -extfile`",
    );
    check(
        include_str!("keys/sha1.crt.pem"),
        "the server's certificate is signed with SHA-1, which is not accepted; issue it again with \
         SHA-256 (`openssl x509 -req -sha256`)",
    );
}

#[test]
fn a_server_is_told_why_its_certificate_is_refused() {
    // The client's alert contains the reason (V-13).
    let authority = Authority::new("one");
    let wire = Wire::tls(&serve(&authority.issue(&["b"])));
    let seen = wire.seen();
    negotiate(&authority.tls(), wire, "a").unwrap_err();
    let alert = rustls::Error::AlertReceived(AlertDescription::BadCertificate);
    assert_eq!(seen.lock().unwrap().failure, Some(alert));
}

/// Checks that revocation lists decide whether `issued` is accepted. `own` creates lists that are
/// signed by the issuer of `issued`. `provider` trusts that issuer. `change` sets further options.
fn check_revocation(
    issued: &Issued,
    own: impl Fn(u64, i32) -> RevocationList,
    provider: &Rustls,
    change: impl Fn(&mut TlsOptions),
    overdue: &str,
) {
    let tls = |list, disabled| {
        with(&provider.clone().with_revocation_lists([list]), |it| {
            change(it);
            it.disable_certificate_revocation_check = disabled;
        })
    };
    accepted(&tls(own(SERIAL + 1, 2999), false), issued, "a");
    accepted(&tls(own(SERIAL + 1, 2049), false), issued, "a");
    accepted(&tls(own(SERIAL, 2999), true), issued, "a");
    let check = |list, message: &str| {
        let message = format!("the server's certificate {message}");
        untrusted(&tls(list, false), issued, "a", Reason::Revoked, &message);
    };
    check(own(SERIAL, 2999), "has been revoked; replace it");
    let message = format!("is covered by a revocation list that {overdue}; renew the list");
    check(own(SERIAL + 1, 2025), &message);
    check(
        Authority::new("other").revoke(SERIAL, 2999),
        "is not covered by the revocation lists of this program; add the list of its authority",
    );
}

#[test]
fn revocation_lists_decide_unless_they_are_disabled() {
    // Revocation lists come from the application (V-21).
    let authority = Authority::new("one");
    let own = |serial, next_update| authority.revoke(serial, next_update);
    let provider = authority.provider();
    check_revocation(&authority.issue(&["a"]), own, &provider, |_| {}, "expired on 2025-01-01");
    let provider = provider.with_revocation_lists([b"junk".to_vec().into()]);
    let error = provider.tls(&TlsOptions::default()).unwrap_err();
    assert!(error.reason().starts_with("a revocation list of this program is not valid"));
}

#[test]
fn invalid_host_names_are_allowed_apart_from_all_else() {
    // The option disables only the check of the name (V-4).
    let authority = Authority::new("one");
    let tls = with(&authority.provider(), |it| it.allow_invalid_hostnames = true);
    accepted(&tls, &authority.issue(&["b"]), "a");
    accepted(&tls, &authority.issue(&["b"]), "127.0.0.1");
    accepted(&tls, &authority.issue(&[]), "/tmp/mongodb.sock");
    let expired = authority.issue_with(&["b"], expire);
    for issued in [expired, Authority::new("other").issue(&["b"])] {
        negotiate(&tls, Wire::tls(&serve(&issued)), "a").unwrap_err();
    }
}

#[test]
fn invalid_certificates_are_allowed_with_every_name() {
    // The option disables all checks of the certificate (V-4).
    let authority = Authority::new("one");
    let tls = with(&authority.provider(), |it| it.allow_invalid_certificates = true);
    let expired = authority.issue_with(&["b"], expire);
    for version in [&TLS12, &TLS13] {
        let wire = Wire::tls(&serve_with(&expired, None, &[version]));
        negotiate(&tls, wire, "a").unwrap();
    }
    accepted(&tls, &Authority::new("other").issue(&["b"]), "a");
    accepted(&tls, &Authority::new("other").issue(&["b"]), "/tmp/mongodb.sock");
}

#[test]
fn a_self_signed_certificate_of_the_ca_file_is_that_of_a_server_too() {
    for is_ca in [OF_AUTHORITY, IsCa::ExplicitNoCa, IsCa::NoCa] {
        let issued = Issued::self_signed(&["a"], is_ca, |_| {});
        let tls = trusting(&issued);
        accepted(&tls, &issued, "a");
        let error = negotiate(&tls, Wire::tls(&serve(&issued)), "b").unwrap_err();
        assert_eq!(reason_of(&error), Some(Reason::WrongName));
    }
    let expired = Issued::self_signed(&["a"], OF_AUTHORITY, expire);
    let tls = trusting(&expired);
    untrusted(&tls, &expired, "a", Reason::Expired, EXPIRED);
    // A different certificate with the same name is not trusted.
    let other = Issued::self_signed(&["a"], OF_AUTHORITY, |_| {});
    negotiate(&tls, Wire::tls(&serve(&other)), "a").unwrap_err();
}

#[test]
fn a_self_signed_certificate_of_the_ca_file_has_to_be_one_for_servers() {
    let with = |extended: &[ExtendedKeyUsagePurpose], usages: &[KeyUsagePurpose]| {
        Issued::self_signed(&["a"], OF_AUTHORITY, |params| {
            params.extended_key_usages = extended.to_vec();
            params.key_usages = usages.to_vec();
        })
    };
    let (server, client) =
        (ExtendedKeyUsagePurpose::ServerAuth, ExtendedKeyUsagePurpose::ClientAuth);
    let (signing, certifying) = (KeyUsagePurpose::DigitalSignature, KeyUsagePurpose::KeyCertSign);
    for (extended, usages) in
        [(&[][..], &[][..]), (&[client.clone(), server], &[]), (&[], &[certifying, signing])]
    {
        let issued = with(extended, usages);
        accepted(&trusting(&issued), &issued, "a");
    }
    for (extended, usages) in [(&[client][..], &[][..]), (&[], &[certifying])] {
        let issued = with(extended, usages);
        untrusted(&trusting(&issued), &issued, "a", Reason::Certificate, NOT_OF_A_SERVER);
    }
}

#[test]
fn revocation_lists_cover_a_self_signed_certificate_of_the_ca_file_too() {
    let issued = Issued::self_signed(&["a"], OF_AUTHORITY, |_| {});
    let file = File::new(issued.pem());
    let trust = |it: &mut TlsOptions| it.ca_file = Some(file.path().into());
    let own = |serial, next_update| issued.revoke(serial, next_update);
    check_revocation(&issued, own, &Rustls::ring(), trust, "has expired");
    // A list from another authority does not count, even if that authority has the same name.
    let namesake = Issued::self_signed(&["a"], OF_AUTHORITY, |_| {});
    let list = namesake.revoke(SERIAL + 1, 2999);
    let tls = with(&Rustls::ring().with_revocation_lists([list]), trust);
    let error = negotiate(&tls, Wire::tls(&serve(&issued)), "a").unwrap_err();
    assert!(error.message().contains("not acceptable"), "{error}");
}

/// The rights of an authority, which OpenSSL gives to self-signed certificates.
const OF_AUTHORITY: IsCa = IsCa::Ca(BasicConstraints::Unconstrained);

#[test]
fn an_answer_in_plain_text_is_named() {
    // The error says that the answer was in plain text (V-12).
    let tls = Authority::new("one").tls();
    let message = "the server does not answer in TLS; connect to its TLS port, or without TLS if \
                   it has none";
    let answers: [&[u8]; 4] = [
        b"HTTP/1.1 400 Bad Request\r\n\r\n",
        b"SSH-2.0-OpenSSH_9.2\r\n",
        b"\x4a\0\0\0\x0a8.0.36\0",
        // To a TLS client, the length of a wire message looks like a TLS record with an unknown
        // version.
        b"\x16\0\0\0\x01\0\0\0\x01\0\0\0\xdd\x07\0\0",
    ];
    for answer in answers {
        let wire = Wire::new(Peer::Plain(answer.to_vec()));
        let reason = Some(Reason::PlainText);
        refused(&tls, wire, "a", ErrorKind::Protocol, reason, message);
    }
}

#[test]
fn a_connection_that_the_server_closes_or_leaves_waiting_is_named() {
    let tls = Authority::new("one").tls();
    let message = "the server closed the connection during the TLS handshake; it may not use TLS \
                   at this port, or require a client certificate (`tlsCertificateKeyFile`): \
                   unexpected end of file";
    let wire = Wire::new(Peer::Plain(Vec::new()));
    refused(&tls, wire, "a", ErrorKind::Network, None, message);
    let message = "the server did not finish the TLS handshake in time; it may not use TLS at this \
                   port: timed out";
    let wire = Wire { waiting: Waiting::Blocks, ..Wire::new(Peer::Silent) };
    refused(&tls, wire, "a", ErrorKind::Timeout, None, message);
}

#[test]
fn a_server_without_a_common_version_or_algorithm_is_named() {
    let authority = Authority::new("one");
    let issued = authority.issue(&["a"]);
    let config = ClientConfig::builder_with_provider(crypto())
        .with_protocol_versions(&[&TLS13])
        .unwrap()
        .with_root_certificates(authority.roots())
        .with_no_client_auth();
    let tls = FixedConfig::new(config).tls(&TlsOptions::default()).unwrap();
    let message = "the server speaks neither TLS 1.2 nor TLS 1.3, which this client requires; \
                   update the server";
    let wire = Wire::tls(&serve_with(&issued, None, &[&TLS12]));
    let reason = Some(Reason::Incompatible);
    refused(&tls, wire, "a", ErrorKind::Protocol, reason, message);
    // The answer is a record with the alert `handshake_failure`.
    let wire = Wire::new(Peer::Plain(b"\x15\x03\x03\0\x02\x02\x28".to_vec()));
    let message = "the server refuses the handshake; it has no cipher suite in common with this \
                   client, or requires a client certificate (`tlsCertificateKeyFile`)";
    refused(&tls, wire, "a", ErrorKind::Protocol, reason, message);
}

#[test]
fn a_session_is_resumed_on_the_next_connection_to_the_same_member() {
    for version in [&TLS12, &TLS13] {
        let authority = Authority::new("one");
        let config = serve_with(&authority.issue(&["a"]), None, &[version]);
        let tls = authority.tls();
        let kinds: Vec<_> = [0, 1, 2]
            .map(|_| {
                let wire = Wire::tls(&config);
                let seen = wire.seen();
                let mut stream = negotiate(&tls, wire, "a").unwrap();
                crate::streams::exchange(&mut stream, b"hello");
                seen.lock().unwrap().kind.unwrap()
            })
            .into();
        let resumed = HandshakeKind::Resumed;
        assert_eq!(kinds, [HandshakeKind::Full, resumed, resumed], "{version:?}");
    }
}

#[test]
fn a_finished_configuration_decides_alone() {
    let authority = Authority::new("one");
    let config = || {
        let config = ClientConfig::builder_with_provider(crypto());
        let config = config.with_safe_default_protocol_versions().unwrap();
        config.with_root_certificates(authority.roots())
    };
    let client = authority.issue(&["client"]);
    let config_of_client =
        config().with_client_auth_cert(vec![client.certificate()], client.key()).unwrap();
    let none = TlsOptions::default();
    assert!(FixedConfig::new(config_of_client).has_client_certificate(&none));
    let provider = FixedConfig::new(config().with_no_client_auth());
    assert!(!provider.has_client_certificate(&none));
    let tls = provider.tls(&TlsOptions::default()).unwrap();
    accepted(&tls, &authority.issue(&["a"]), "a");
    let mut insecure = TlsOptions::default();
    insecure.allow_invalid_hostnames = true;
    let error = provider.tls(&insecure).unwrap_err();
    assert_eq!(error.option(), "tlsAllowInvalidHostnames");
    assert_eq!(error.remedy(), "remove the option, or set it in the program");
}
