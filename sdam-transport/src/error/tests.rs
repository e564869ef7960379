use std::io::ErrorKind as Io;

use sdam_core::{ids::Generation, report::ErrorReport};

use super::*;

#[test]
fn only_own_deadlines_are_timeouts_and_only_errors_of_tls_itself_violate_its_protocol() {
    let check = |stage, error: io::Error, kind| {
        assert_eq!(from_io(stage, "x", error).kind(), kind);
    };
    for stage in [Stage::Connect, Stage::Hello] {
        check(stage, Io::TimedOut.into(), ErrorKind::Timeout);
    }
    for other in [Io::ConnectionRefused, Io::UnexpectedEof, Io::WouldBlock, Io::InvalidInput] {
        check(Stage::Hello, other.into(), ErrorKind::Network);
    }
    check(Stage::Tls, Io::InvalidInput.into(), ErrorKind::Protocol);
    #[cfg(target_os = "linux")]
    {
        let (etimedout, einval) = (110, 22);
        let system = io::Error::from_raw_os_error;
        assert_eq!(
            [etimedout, einval].map(|it| system(it).kind()),
            [Io::TimedOut, Io::InvalidInput]
        );
        check(Stage::Connect, system(etimedout), ErrorKind::Timeout);
        check(Stage::Hello, system(etimedout), ErrorKind::Network);
        check(Stage::Tls, system(einval), ErrorKind::Network);
    }
}

#[test]
fn the_original_error_is_kept_by_what_is_made_of_it() {
    let refused = || io::Error::from(Io::ConnectionRefused);
    let error = from_io(Stage::Connect, "connecting", refused());
    let kind = |source: Option<&io::Error>| source.map(io::Error::kind);
    let expected = Some(Io::ConnectionRefused);
    assert_eq!(kind(error.clone().at(Stage::Tls).source_as()), expected);
    assert_eq!(kind(error.clone().without_context().source_as()), expected);
    let report = ErrorReport::new(Generation::FIRST, error);
    assert_eq!(kind(report.error.source_as()), expected);
    let plain = Error::network(Stage::Connect, "refused");
    assert!(plain.source_as::<io::Error>().is_none());
}

/// Errors of pooled connections get overload labels only for certain failures (I-10, I-11, I-14,
/// I-16).
#[test]
fn io_errors_and_timeouts_up_to_hello_are_labelled_as_overload_and_nothing_else_is() {
    let check = |error: &Error, labelled| {
        let report = ErrorReport::new(Generation::from_u64(7), error.clone());
        assert_eq!(report.error.message(), error.message());
        let labels: &[&str] =
            if labelled { &["SystemOverloadedError", "RetryableError"] } else { &[] };
        assert_eq!(report.error.labels().collect::<Vec<_>>(), labels, "{error}");
    };
    let io = |stage, kind: Io| from_io(stage, "x", kind.into());
    let slow = |stage| Error::timeout(stage, "too slow");
    let wire = |stage| from_wire(stage, WireError::Compressed);

    // Labelled: the server refuses, resets or closes the connection, or does not answer.
    for stage in [Stage::Connect, Stage::Tls, Stage::Hello] {
        for kind in [Io::ConnectionRefused, Io::ConnectionReset, Io::UnexpectedEof, Io::TimedOut] {
            check(&io(stage, kind), true);
        }
        check(&slow(stage), true);
    }
    let eof = Error::network(Stage::Hello, "the server closed the connection");
    check(&eof, true);

    // Not labelled: a host name is not found or times out; a proxy refuses, disconnects or is
    // silent.
    for stage in [Stage::Dns, Stage::Proxy] {
        check(&io(stage, Io::NotFound), false);
        check(&io(stage, Io::UnexpectedEof), false);
        check(&slow(stage), false);
    }
    // Not labelled: a bad certificate, in each form in which a TLS library may report it.
    let certificate = Error::protocol(Stage::Tls, "the certificate has expired");
    check(&certificate, false);
    for kind in [Io::InvalidData, Io::InvalidInput, Io::Other] {
        check(&io(Stage::Tls, kind), false);
    }
    // Not labelled: the server answers in another protocol.
    check(&wire(Stage::Hello), false);

    // Not labelled: errors during authentication and operations, after the handshake.
    for stage in [Stage::Auth, Stage::Operation] {
        check(&io(stage, Io::ConnectionReset), false);
        check(&eof.clone().at(stage), false);
        check(&slow(stage), false);
        check(&wire(stage), false);
    }
}
