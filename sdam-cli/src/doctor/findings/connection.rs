//! Findings about the steps of the connection to one server.

use std::time::Duration;

use sdam::select::Diagnosis;
use sdam::tls::{Reason, rustls};
use sdam_core::{
    address::ServerAddress,
    error::{Error, ErrorKind, Stage},
    options::Options,
    server::{ServerType, WireVersions},
    topology::Obstacle,
};
use sdam_transport::wire::WireError;
use serde_json::Value;

use super::{MORE_TIME, counted, text};
use crate::doctor::{
    finding::{Check, Finding, Status},
    observation::{Greeting, Host, Reached, TlsSession},
};

/// The number of days before a certificate's expiry at which the warnings begin.
const EXPIRES_SOON: i64 = 30;

/// Returns the findings about one server, in order; steps after the first failure are skipped.
pub(super) fn of(host: &Host, options: &Options) -> Vec<Finding> {
    let mut findings = Vec::new();
    findings.extend(look_up(host));
    findings.extend(dials(host));
    if options.tls.is_some() {
        findings.extend(host.session.iter().flat_map(session));
    }
    findings.extend(host.greeting.as_ref().map(|greeting| hello(greeting, options)));
    if let Some(error) = &host.error {
        let mut finding = failure(host, error);
        let step = finding.check;
        findings.retain(|own| own.check != step);
        // A member's name comes from the set's configuration and not from the user, so the finding
        // is about the configuration instead of the failed step.
        if let Some(by) = &host.named_by {
            finding = member(finding, by.as_str());
        }
        let name = Some(format!("{} {}", finding.check, host.address));
        findings.push(finding);
        let steps = [Check::Tcp, Check::TlsHandshake, Check::TlsVerify, Check::Hello];
        let is_tls = |check| matches!(check, Check::TlsHandshake | Check::TlsVerify);
        for check in steps.into_iter().filter(|check| *check > step) {
            if options.tls.is_some() || !is_tls(check) {
                let mut skipped = Finding::new(check, Status::Skip, "an earlier step has failed");
                skipped.blocked_by.clone_from(&name);
                findings.push(skipped);
            }
        }
    }
    for finding in &mut findings {
        finding.subject = Some(host.address.to_string());
    }
    findings
}

fn look_up(host: &Host) -> Option<Finding> {
    let found = host.look_up.as_ref()?;
    let addresses: Vec<Value> =
        found.addresses.iter().map(|address| address.ip().to_string().into()).collect();
    let place = host.place.as_ref().unwrap_or(&host.address);
    let is_local = found.addresses.iter().all(|address| address.ip().is_loopback());
    // On the machine of a member, the member's own name may lead to loopback: Debian adds the name
    // of the machine to /etc/hosts with the address 127.0.1.1.
    let me = host.greeting.as_ref().and_then(|greeting| greeting.hello.me.as_ref());
    let is_itself = me == Some(&host.address);
    let finding = if is_local && !is_itself && !place.host().starts_with("localhost") {
        Finding::warn(Check::DnsAddr, "the name leads to this machine itself")
            .cause("an entry of /etc/hosts, or a name server that blocks the name")
            .remedy("look the name up elsewhere, and correct the entry")
    } else {
        Finding::ok(Check::DnsAddr, counted(addresses.len(), "address", "addresses"))
    };
    Some(finding.evidence("addresses", addresses).took(found.took))
}

/// Returns the finding about the host's addresses if at least one of them accepts connections.
fn dials(host: &Host) -> Option<Finding> {
    let fastest = host.dials.iter().filter(|dial| dial.outcome == Reached::Yes);
    let fastest = fastest.map(|dial| dial.took).min()?;
    let lost = host.dials.iter().filter(|dial| dial.outcome != Reached::Yes);
    let lost: Vec<_> = lost.map(|dial| dial.to.to_string()).collect();
    let finding = if lost.is_empty() {
        Finding::ok(Check::Tcp, "every address accepts connections")
    } else {
        let title =
            format!("{} does not accept connections, but another address does", lost.join(", "));
        Finding::new(Check::Tcp, Status::Info, title)
            .remedy("remove the record, or let the server listen there (net.bindIp, net.ipv6)")
    };
    Some(finding.evidence("addresses", attempts(host)).took(fastest))
}

fn attempts(host: &Host) -> Vec<Value> {
    let dials = host.dials.iter();
    dials
        .map(|dial| {
            let words = match &dial.outcome {
                Reached::Yes => "accepts",
                Reached::Refused => "refuses",
                Reached::Silent => "does not answer",
                Reached::NoDescriptor => "no file descriptor is left",
                Reached::Failed(error) => error,
            };
            let ms = dial.took.as_secs_f64() * 1e3;
            format!("{} {words} ({ms:.1} ms)", dial.to).into()
        })
        .collect()
}

fn session(session: &TlsSession) -> [Finding; 2] {
    let handshake = Finding::ok(Check::TlsHandshake, session.protocol.clone())
        .evidence("protocol", session.protocol.clone())
        .evidence("cipher", session.cipher.clone());
    let days = session.not_after.map(|end| (end - session.now) / 86_400);
    let verify = match days {
        Some(days) if days < EXPIRES_SOON => {
            Finding::warn(Check::TlsVerify, format!("the certificate expires in {days} days"))
                .remedy("renew the certificate, and let the server load it (rotateCertificates)")
        }
        Some(days) => {
            Finding::ok(Check::TlsVerify, format!("the certificate is valid for {days} more days"))
        }
        None => Finding::ok(Check::TlsVerify, "the certificate is accepted"),
    };
    let verify = verify.evidence("names", session.names.clone());
    [handshake, verify.evidence("days", days)]
}

fn hello(greeting: &Greeting, options: &Options) -> Finding {
    let hello = &greeting.hello;
    let (own, wanted) = (hello.wire_versions, options.wire_versions);
    let finding = if hello.server_type == ServerType::RsGhost {
        Finding::fail(Check::Hello, "the server was started for a set, but belongs to none")
            .cause("the set was not initiated yet, or the server was removed from it")
            .remedy(Diagnosis::NotInitiated { addresses: Vec::new() }.remedy())
    } else if own.min > wanted.max || own.max < wanted.min {
        let title = format!(
            "the server speaks wire versions {} to {}, this client {} to {}",
            own.min, own.max, wanted.min, wanted.max
        );
        Finding::fail(Check::Hello, title)
            .remedy("update the older of the two: the server, or the driver")
    } else {
        Finding::ok(Check::Hello, format!("{}, {}", hello.server_type, release(own)))
    };
    let first = greeting.round_trips.first().copied();
    finding
        .evidence("type", hello.server_type.to_string())
        .evidence("wire", vec![own.min, own.max])
        .evidence("setName", hello.set_name.as_deref())
        .evidence("me", hello.me.as_ref().map(ServerAddress::as_str))
        .took(first.unwrap_or(Duration::ZERO))
}

/// Returns the MongoDB release that has these wire versions.
fn release(wire: WireVersions) -> String {
    let release = match wire.max {
        25 => "MongoDB 8.0",
        21 => "MongoDB 7.0",
        17 => "MongoDB 6.0",
        13 => "MongoDB 5.0",
        9 => "MongoDB 4.4",
        8 => "MongoDB 4.2",
        7 => "MongoDB 4.0",
        6 => "MongoDB 3.6",
        version => return format!("wire version {version}"),
    };
    release.to_owned()
}

/// Turns the failed step of a connection into a finding about a name in the set's configuration.
fn member(mut finding: Finding, named_by: &str) -> Finding {
    finding.step = Some(finding.check);
    finding.title = format!("the set names this member, but from here {}", finding.title);
    let names = || Obstacle::NAMES.replace("address translation", "--translate");
    match finding.check {
        // The set spells the name, so the user has not misspelled it.
        Check::DnsAddr => finding.remedies = vec![names()],
        // The name can be resolved on this machine, but possibly to the address of another host.
        Check::Tcp => finding.remedies.push(format!("if the address is wrong: {}", names())),
        _ => {}
    }
    finding.check = Check::TopoMembers;
    finding.evidence("namedBy", named_by)
}

/// Returns the finding about the failed step.
fn failure(host: &Host, error: &Error) -> Finding {
    let is_late = error.kind() == ErrorKind::Timeout;
    let finding = match error.stage() {
        _ if error.kind() == ErrorKind::Internal => {
            Finding::new(Check::Hello, Status::Error, "the check itself has failed")
                .remedy("report this as a bug of sdam, with the connection string without password")
        }
        Stage::Dns if is_late => {
            Finding::fail(Check::DnsAddr, "the name was not looked up in time")
                .cause("the name servers of this machine do not answer, or are slow")
                .remedy(format!("check the name servers of this machine; or {MORE_TIME}"))
        }
        Stage::Dns => {
            Finding::fail(Check::DnsAddr, "the name cannot be looked up").remedy(Obstacle::SPELLING)
        }
        Stage::Connect => unreachable(host, is_late),
        Stage::Proxy if is_late => {
            Finding::fail(Check::Tcp, "there is no connection through the proxy in time")
                .remedy(format!("{}; or {MORE_TIME}", Obstacle::PROXY))
        }
        Stage::Proxy => Finding::fail(Check::Tcp, "there is no connection through the proxy")
            .remedy(Obstacle::PROXY),
        Stage::Tls => tls(host, error),
        _ => no_hello(host, error),
    };
    let finding = match &host.place {
        Some(place) => finding.evidence("dialled", place.as_str()),
        None => finding,
    };
    // The attempts to connect are listed with their outcomes, so do not repeat their error.
    if host.dials.is_empty() || error.stage() != Stage::Connect {
        finding.evidence("error", text(error))
    } else {
        finding
    }
}

fn unreachable(host: &Host, is_late: bool) -> Finding {
    if host.dials.iter().any(|dial| dial.outcome == Reached::NoDescriptor) {
        let title = "this machine lets the program open no further connection";
        return Finding::new(Check::Tcp, Status::Error, title)
            .cause("the limit of open files or sockets is reached")
            .remedy("raise the limit (`ulimit -n 1024`), or end other programs of this user")
            .evidence("addresses", attempts(host));
    }
    if host.place.as_ref().unwrap_or(&host.address).is_unix() {
        return Finding::fail(Check::Tcp, "the socket cannot be connected to")
            .remedy(Obstacle::SOCKET);
    }
    let finding = if host.dials.iter().any(|dial| dial.outcome == Reached::Refused) {
        Finding::fail(Check::Tcp, "the host refuses the connection")
            .cause("the host is up, but no server listens at this port")
            .remedy("start the server, or correct the port; check net.port and net.bindIp")
    } else if is_late || host.dials.is_empty() {
        Finding::fail(Check::Tcp, "the host does not answer")
            .cause("a firewall or an allow list drops the packets")
            .cause("the host is down, or farther away than the limit of time")
            .remedy(Obstacle::SILENT)
            .remedy(MORE_TIME)
    } else {
        Finding::fail(Check::Tcp, "the host cannot be reached")
            .remedy("check the network and the routes of this machine")
    };
    finding.evidence("addresses", attempts(host))
}

fn tls(host: &Host, error: &Error) -> Finding {
    let cause = error.source_as::<rustls::Error>();
    let reason = cause.map(Reason::of);
    // A server that uses TLS may also accept connections without it, so `is_reverse` alone does not
    // prove that the server does not use TLS.
    let spoke_tls = !matches!(reason, None | Some(Reason::PlainText | Reason::Other));
    if host.is_reverse && !spoke_tls {
        return Finding::fail(Check::TlsHandshake, "the server does not use TLS at this port")
            .remedy("connect to its TLS port, or remove tls=true if plain text is acceptable");
    }
    let verify = |title: &str| Finding::fail(Check::TlsVerify, title);
    let finding = match reason {
        Some(Reason::Expired) => verify("the certificate has expired"),
        Some(Reason::NotYetValid) => verify("the certificate is not valid yet"),
        Some(Reason::UnknownIssuer) => verify("no trusted authority has issued the certificate"),
        Some(Reason::WrongName) => verify("the certificate is for other names"),
        Some(Reason::Revoked) => verify("the certificate has been revoked"),
        Some(Reason::Certificate) => verify("the certificate is not acceptable"),
        Some(Reason::ClientCertificate) => Finding::fail(
            Check::TlsHandshake,
            "the server wants a certificate of the client, or rejects the one it got",
        )
        .remedy(CLIENT_CERTIFICATE),
        _ if error.kind() == ErrorKind::Timeout => {
            Finding::fail(Check::TlsHandshake, "the TLS handshake did not end in time")
                .cause("the server is farther away than the limit of time, or overloaded")
                .cause("the server does not use TLS at this port, and waits for a message")
                .cause("something in between, such as a proxy, has no server behind it")
                .remedy(format!("{MORE_TIME}; look at the server and its log"))
        }
        _ => Finding::fail(Check::TlsHandshake, "TLS cannot be negotiated")
            .cause("the server does not use TLS at this port")
            .cause("an allow list ends the connection, as hosting services do")
            .cause("client and server have no version or cipher suite in common")
            .remedy("check the port and the allow list of the server; it needs TLS 1.2 or newer"),
    };
    match error.message().split_once("; ") {
        Some((cause, remedy)) if finding.check == Check::TlsVerify => {
            finding.cause(cause).remedy(remedy)
        }
        _ => finding,
    }
}

const CLIENT_CERTIFICATE: &str =
    "set tlsCertificateKeyFile to a certificate that the servers' authority has issued";

fn no_hello(host: &Host, error: &Error) -> Finding {
    let wire = error.source_as::<WireError>();
    if let Some(first) = wire.and_then(first_letters) {
        let title = format!("this is not MongoDB: the answer begins with {first:?}");
        return Finding::fail(Check::Hello, title)
            .remedy("correct the port: another service listens there");
    }
    if host.is_reverse {
        return Finding::fail(Check::Hello, "the server expects TLS").remedy(
            "add tls=true to the connection string, and tlsCAFile if its authority is private",
        );
    }
    match error.kind() {
        ErrorKind::Timeout => {
            Finding::fail(Check::Hello, "the server accepts connections but does not answer")
                .cause("the server hangs or is overloaded, or is stopped in a debugger")
                .cause("something else listens there, such as a proxy without a server behind it")
                .remedy(format!("look at the server and its log; or {MORE_TIME}"))
        }
        // With TLS 1.3, a server that rejects the client's certificate does so only after the
        // handshake.
        ErrorKind::Network if host.session.is_some() => {
            Finding::fail(Check::Hello, "the server ends the connection after the TLS handshake")
                .cause("it requires a certificate of the client, or rejects the one it got")
                .cause("it has too many connections, or is shutting down")
                .remedy(CLIENT_CERTIFICATE)
                .remedy("look at the log of the server")
        }
        ErrorKind::Network => {
            Finding::fail(Check::Hello, "the server closes the connection without an answer")
                .cause("it requires TLS, or a certificate of the client")
                .cause("it is too old, or has too many connections")
                .cause("it is no MongoDB server")
                .remedy("add tls=true if the deployment uses TLS; look at the log of the server")
        }
        ErrorKind::Protocol => Finding::fail(Check::Hello, "this is not MongoDB")
            .remedy("correct the port: another service listens there"),
        _ => Finding::fail(Check::Hello, format!("the server refuses hello: {}", error.message()))
            .remedy(error.remedy().unwrap_or("look at the log of the server")),
    }
}

/// Returns the first four bytes of an invalid reply, which were mistaken for its length, as
/// letters. Returns `None` if they are not printable.
fn first_letters(error: &WireError) -> Option<String> {
    let bytes = match error {
        WireError::LengthAboveLimit { declared, .. } => u32::try_from(*declared).ok()?,
        WireError::LengthBelowHeader { declared } => declared.cast_unsigned(),
        _ => return None,
    }
    .to_le_bytes();
    let printable = bytes.iter().all(u8::is_ascii_graphic);
    printable.then(|| String::from_utf8_lossy(&bytes).into_owned())
}
