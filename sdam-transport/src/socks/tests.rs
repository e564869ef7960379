use std::{
    collections::VecDeque,
    io::{Read, Write},
};

use futures::{FutureExt as _, io::AllowStdIo};
use sdam_core::error::Error;

use super::*;
use crate::stream::NonBlocking;

/// A proxy that expects certain bytes and answers with fixed bytes. Each read returns one byte. The
/// proxy is never pending, like a blocking socket.
#[derive(Debug, Default)]
struct Proxy {
    script: VecDeque<(Vec<u8>, Vec<u8>)>,
    sent: Vec<u8>,
    to_read: VecDeque<u8>,
    /// The result of reads after the end of the script; `None` means that the stream has ended.
    end: Option<io::ErrorKind>,
}

impl Read for Proxy {
    fn read(&mut self, space: &mut [u8]) -> io::Result<usize> {
        if self.to_read.is_empty()
            && let Some((expected, reply)) = self.script.pop_front()
        {
            assert_eq!(self.sent, expected);
            self.sent.clear();
            self.to_read = reply.into();
        }
        match (self.to_read.pop_front(), self.end) {
            (Some(byte), _) => space[0] = byte,
            (None, Some(kind)) => return Err(kind.into()),
            (None, None) => return Ok(0),
        }
        Ok(1)
    }
}

impl Write for Proxy {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let count = bytes.len().min(3);
        self.sent.extend(&bytes[..count]);
        Ok(count)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn proxy(script: &[(&[u8], &[u8])]) -> Proxy {
    let script = script.iter();
    Proxy {
        script: script.map(|(expected, reply)| (expected.to_vec(), reply.to_vec())).collect(),
        ..Proxy::default()
    }
}

fn options() -> ProxyOptions {
    ProxyOptions::new("bastion", 1080)
}

fn with_credential() -> ProxyOptions {
    options().with_credential("user", "secret")
}

/// Returns the outcome of a handshake, and the proxy after it.
fn run(proxy: Proxy, options: &ProxyOptions, target: &str) -> (Result<(), Error>, Proxy) {
    let mut stream = NonBlocking(AllowStdIo::new(proxy));
    let target = ServerAddress::parse(target).unwrap();
    let done = connect(&mut stream, options, &target).now_or_never();
    let outcome = done.expect("it never waits").map_err(Error::without_context);
    (outcome, stream.0.into_inner())
}

/// The greeting without a credential, and the proxy's answer that no authentication is necessary.
const OPEN: (&[u8], &[u8]) = (&[5, 1, 0], &[5, 0]);
/// The request for `a:27017`.
const ASK: &[u8] = &[5, 1, 0, 3, 1, b'a', 0x69, 0x89];
/// The successful reply to a request, with an IPv4 address.
const CONNECTED: &[u8] = &[5, 0, 0, 1, 127, 0, 0, 1, 0, 80];
/// The greeting with a credential, and the proxy's answer that the credential is necessary.
const SECURED: (&[u8], &[u8]) = (&[5, 2, 0, 2], &[5, 2]);
const LOGIN: &[u8] = b"\x01\x04user\x06secret";

#[test]
fn host_names_are_sent_as_they_are_and_ip_addresses_as_numbers() {
    // Host names are sent unchanged, and IP addresses in binary form (U-1).
    let check = |target: &str, request: &[u8]| {
        run(proxy(&[OPEN, (request, CONNECTED)]), &options(), target).0.unwrap();
    };
    check("a", ASK);
    check("mongo-0.db:1", b"\x05\x01\x00\x03\x0amongo-0.db\x00\x01");
    check("10.0.0.7:258", &[5, 1, 0, 1, 10, 0, 0, 7, 1, 2]);
    let mut v6 = vec![5, 1, 0, 4];
    v6.extend([0; 15]);
    v6.extend([1, 0x69, 0x89]);
    check("[::1]", &v6);
}

#[test]
fn exactly_the_reply_is_read_whatever_the_type_of_its_address() {
    // No byte after the proxy's reply is read (U-7).
    let check = |address: &[u8]| {
        let mut reply = vec![5, 0, 0];
        reply.extend(address);
        reply.extend(b"ab!");
        let (outcome, proxy) = run(proxy(&[OPEN, (ASK, &reply)]), &options(), "a");
        outcome.unwrap();
        assert_eq!(proxy.to_read, [b'!']);
    };
    check(&[1, 0, 0, 0, 0]);
    check(&[&[4][..], &[9; 16]].concat());
    check(b"\x03\x05proxy");
    check(&[3, 0]);
}

#[test]
fn a_credential_is_offered_beside_no_authentication_and_sent_only_if_the_proxy_chooses_it() {
    // With a credential, both methods are offered (U-2).
    let scripts: [&[(&[u8], &[u8])]; 3] = [
        &[(SECURED.0, &[5, 0]), (ASK, CONNECTED)],
        &[SECURED, (LOGIN, &[1, 0]), (ASK, CONNECTED)],
        &[SECURED, (LOGIN, &[5, 0]), (ASK, CONNECTED)],
    ];
    for script in scripts {
        let (outcome, proxy) = run(proxy(script), &with_credential(), "a");
        outcome.unwrap();
        assert_eq!(proxy.script.len(), 0);
    }
}

/// Checks the error of a handshake: its kind and cause, and that it names the proxy and `target`
/// without the credential. Returns the proxy.
#[track_caller]
fn refused(
    proxy: Proxy,
    options: &ProxyOptions,
    target: &str,
    (kind, cause): (ErrorKind, &str),
) -> Proxy {
    let (outcome, proxy) = run(proxy, options, target);
    let error = outcome.unwrap_err();
    assert_eq!((error.kind(), error.stage()), (kind, Stage::Proxy));
    let target = ServerAddress::parse(target).unwrap();
    let message =
        format!("no connection to {target} through the SOCKS5 proxy bastion:1080: {cause}");
    assert_eq!(error.message(), message);
    // The credential of the proxy is never printed.
    let text = format!("{error:?} {options:?}");
    assert!(!text.contains("secret"), "{text}");
    proxy
}

#[test]
fn a_refusal_names_proxy_target_and_cause() {
    // An error names the proxy, the target and the cause (U-6).
    let check = |target: &str, request: &[u8], code, cause: &str| {
        let script: &[(&[u8], &[u8])] = &[OPEN, (request, &[5, code, 0, 1, 0, 0, 0, 0, 0, 0])];
        refused(proxy(script), &options(), target, (ErrorKind::Network, cause));
    };
    check("a", ASK, 1, "the proxy reports a general failure");
    check("a", ASK, 2, "the proxy's rules do not allow this connection");
    check("a", ASK, 3, "the network cannot be reached from the proxy");
    let cause = "the host cannot be reached from the proxy, or its name cannot be resolved there";
    check("a", ASK, 4, cause);
    check("a", ASK, 5, "the server refuses connections from the proxy");
    check("a", ASK, 6, "the TTL of a packet expired between the proxy and the server");
    check("a", ASK, 7, "the proxy does not support the command CONNECT");
    check("a", ASK, 8, "the proxy does not support host names");
    let ip_v4: &[u8] = &[5, 1, 0, 1, 1, 2, 3, 4, 0x69, 0x89];
    check("1.2.3.4", ip_v4, 8, "the proxy does not support IPv4 addresses");
    let ip_v6 = [&[5, 1, 0, 4][..], &[0; 15], &[1, 0x69, 0x89]].concat();
    check("[::1]", &ip_v6, 8, "the proxy does not support IPv6 addresses");
    check("a", ASK, 99, "the proxy refuses with the unknown code 99");
}

#[test]
fn an_answer_that_cannot_be_accepted_says_what_the_proxy_wants_or_is() {
    // An error states that the peer is not a SOCKS5 server (U-6).
    let check = |options: &ProxyOptions, script: &[(&[u8], &[u8])], kind, cause: &str| {
        refused(proxy(script), options, "a", (kind, cause));
    };
    let (network, protocol) = (ErrorKind::Network, ErrorKind::Protocol);
    let cause = "the proxy requires authentication: set proxyUsername and proxyPassword";
    check(&options(), &[(OPEN.0, &[5, 0xff])], network, cause);
    let cause = "the proxy does not authenticate by user name and password";
    check(&with_credential(), &[(SECURED.0, &[5, 0xff])], network, cause);
    let cause = "the proxy rejects proxyUsername and proxyPassword";
    check(&with_credential(), &[SECURED, (LOGIN, &[1, 1])], network, cause);
    let cause = "the proxy chose the authentication method 2, which was not offered";
    check(&options(), &[(OPEN.0, &[5, 2])], protocol, cause);
    let cause = "the proxy chose the authentication method 1, which was not offered";
    check(&with_credential(), &[(SECURED.0, &[5, 1])], protocol, cause);
    let cause = "this is no SOCKS5 server, it answers as an HTTP server or HTTP proxy";
    check(&options(), &[(OPEN.0, b"HTTP/1.1 400 Bad Request\r\n")], protocol, cause);
    let cause = "this is no SOCKS5 server, it answers as SOCKS4";
    check(&options(), &[(OPEN.0, &[0, 91, 0, 0])], protocol, cause);
    let cause = "this is no SOCKS5 server, its answer begins with the byte 50";
    check(&options(), &[(OPEN.0, b"220 smtp")], protocol, cause);
    let cause = "the proxy's reply has an address of unknown type 9";
    check(&options(), &[OPEN, (ASK, &[5, 0, 0, 9, 9])], protocol, cause);
}

#[test]
fn a_proxy_that_closes_breaks_or_is_silent_is_distinguished() {
    // No error shows the credential either (U-9).
    let check = |script: &[_], end, kind, cause: &str| {
        let proxy = Proxy { end, ..proxy(script) };
        refused(proxy, &with_credential(), "a", (kind, cause));
    };
    let (network, timeout) = (ErrorKind::Network, ErrorKind::Timeout);
    let asked = [SECURED, (LOGIN, &[1, 0])];
    let half = [SECURED, (LOGIN, &[1, 0]), (ASK, &[5, 0, 0, 1, 1])];
    for (script, part) in [
        (&[][..], "the greeting"),
        (&[SECURED], "authentication"),
        (&asked, "the request to connect"),
        (&half, "the request to connect"),
    ] {
        let cause = format!("the proxy closed the connection during {part}");
        check(script, None, network, &cause);
    }
    let cause = "the connection to the proxy broke during authentication: connection reset";
    check(&[SECURED], Some(io::ErrorKind::ConnectionReset), network, cause);
    let cause = "the proxy did not answer in time";
    check(&asked, Some(io::ErrorKind::TimedOut), timeout, cause);
}

#[test]
fn what_the_protocol_cannot_express_is_refused_before_anything_is_sent() {
    // A name or credential that the protocol cannot express is refused (U-8).
    let check = |options: &ProxyOptions, target: &str, cause: &str| {
        let proxy = refused(proxy(&[]), options, target, (ErrorKind::Network, cause));
        assert!(proxy.sent.is_empty());
    };
    let name = format!("{}.example", "a".repeat(250));
    check(&options(), &name, "a host name may be 255 bytes long");
    check(&options(), "/tmp/mongodb-27017.sock", "no proxy connects to a Unix domain socket");
    let length = "proxyUsername and proxyPassword have to be 1 to 255 bytes long";
    let long = "p".repeat(256);
    check(&options().with_credential("user", &long), "a", length);
    check(&options().with_credential(&*long, "p"), "a", length);
    check(&options().with_credential("", "p"), "a", length);
}
