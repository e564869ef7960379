use std::io::ErrorKind as Io;

use sdam_core::app_error::Cause;

use super::*;

#[test]
fn only_own_deadlines_and_connect_timeouts_are_timeouts() {
    let check = |stage, error: io::Error, kind| {
        assert_eq!(TransportError::from_io(stage, "x", error).kind(), kind);
    };
    let own = || io::Error::from(io::ErrorKind::TimedOut);
    check(Stage::Connect, own(), ErrorKind::Timeout);
    check(Stage::Hello, own(), ErrorKind::Timeout);
    for refused in [
        io::ErrorKind::ConnectionRefused,
        io::ErrorKind::ConnectionReset,
        io::ErrorKind::UnexpectedEof,
        io::ErrorKind::WouldBlock,
        io::ErrorKind::Interrupted,
    ] {
        check(Stage::Hello, refused.into(), ErrorKind::Network);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn etimedout_on_an_open_connection_is_a_network_error() {
    let system = || io::Error::from_raw_os_error(110);
    assert_eq!(system().kind(), io::ErrorKind::TimedOut);
    let kind = |stage| TransportError::from_io(stage, "x", system()).kind();
    assert_eq!(kind(Stage::Connect), ErrorKind::Timeout);
    assert_eq!(kind(Stage::Hello), ErrorKind::Network);
}

#[test]
fn text_is_one_line_with_server_kind_stage_and_every_cause() {
    let inner = TransportError::network(Stage::Connect, "refused").with_source("by peer");
    let error = TransportError::network(Stage::Connect, "connecting").with_source(inner);
    let line = "network error at connect: connecting: network error at connect: refused: by peer";
    assert_eq!(error.to_string(), line);
    let named = error.clone().with_target(&ServerAddress::new("a", 1));
    assert_eq!(named.to_string(), format!("a:1: {line}"));
    assert_eq!(format!("{named:?}"), named.to_string());
    assert_eq!(format!("{named:#?}"), named.to_string());
    // A program that prints the chain of sources must not print the causes twice.
    assert!(error.source().is_none());

    let plain = ServerError::from(&named.at(Stage::Tls));
    assert_eq!((plain.kind, plain.stage), (ErrorKind::Network, Stage::Tls));
    assert_eq!(format!("network error at connect: {}", plain.message), line);
}

#[test]
fn the_original_error_is_kept_by_what_is_made_of_it() {
    let refused = || io::Error::from(io::ErrorKind::ConnectionRefused);
    let error = TransportError::from_io(Stage::Connect, "connecting", refused());
    let kind = |source: Option<&io::Error>| source.map(io::Error::kind);
    let expected = Some(io::ErrorKind::ConnectionRefused);
    assert_eq!(kind(error.clone().at(Stage::Tls).source_as()), expected);
    assert_eq!(kind(ServerError::from(&error).source_as()), expected);
    let report = error.app_error(Generation::FIRST);
    assert_eq!(kind(report.source.downcast_ref()), expected);
    assert!(error.source_as::<fmt::Error>().is_none());
    let plain = TransportError::network(Stage::Connect, "refused");
    assert!(plain.source_as::<io::Error>().is_none());
}

#[test]
fn nested_causes_are_in_the_text() {
    #[derive(Debug)]
    struct Outer(io::Error);
    impl fmt::Display for Outer {
        fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str("outer")
        }
    }
    impl Error for Outer {
        fn source(&self) -> Option<&(dyn Error + 'static)> {
            Some(&self.0)
        }
    }
    let source = Outer(io::Error::from(io::ErrorKind::BrokenPipe));
    let error = TransportError::network(Stage::Hello, "sending").with_source(source);
    assert_eq!(error.message(), "sending: outer: broken pipe");
}

/// I-10, I-11, I-14, I-16; the report for each failure of a pooled connection, and the failures
/// with overload labels.
#[test]
fn io_errors_and_timeouts_up_to_hello_are_labelled_as_overload_and_nothing_else_is() {
    let check = |error: &TransportError, labelled| {
        let message = error.message().to_owned().into();
        let cause = match error.kind() {
            ErrorKind::Network => Cause::Network(message),
            ErrorKind::Timeout => Cause::Timeout(message),
            _ => Cause::Protocol(message),
        };
        let generation = Generation::from_u64(7);
        let report = error.app_error(generation);
        assert_eq!(report, AppError::new(generation, error.stage(), cause));
        let labels: &[&str] = if labelled {
            &["SystemOverloadedError", "RetryableError"]
        } else {
            &[]
        };
        assert_eq!(report.labels(), labels, "{error}");
    };
    let io = |stage, kind: Io| TransportError::from_io(stage, "x", kind.into());
    let slow = |stage| TransportError::timeout(stage, "too slow");
    let wire = |stage| TransportError::from_wire(stage, WireError::Compressed);

    // Refused, reset, end of file and silence, at every step of an exchange with the server.
    for stage in [Stage::Connect, Stage::Tls, Stage::Hello] {
        for kind in [
            Io::ConnectionRefused,
            Io::ConnectionReset,
            Io::UnexpectedEof,
            Io::TimedOut,
        ] {
            check(&io(stage, kind), true);
        }
        check(&slow(stage), true);
    }
    let eof = TransportError::network(Stage::Hello, "the server closed the connection");
    check(&eof, true);

    // A name that is not found, or times out; a proxy that refuses, disconnects or does not answer.
    for stage in [Stage::Dns, Stage::Proxy] {
        check(&io(stage, Io::NotFound), false);
        check(&io(stage, Io::UnexpectedEof), false);
        check(&slow(stage), false);
    }
    // A bad certificate, in each form in which the library may report it.
    let certificate = TransportError::protocol(Stage::Tls, "the certificate has expired");
    check(&certificate, false);
    for kind in [Io::InvalidData, Io::InvalidInput, Io::Other] {
        check(&io(Stage::Tls, kind), false);
    }
    // Bytes of another protocol.
    check(&wire(Stage::Hello), false);

    // Authentication and operations on an established connection.
    for stage in [Stage::Auth, Stage::Operation] {
        check(&io(stage, Io::ConnectionReset), false);
        check(&eof.clone().at(stage), false);
        check(&slow(stage), false);
        check(&wire(stage), false);
    }
}
