use std::{
    collections::VecDeque,
    pin::Pin,
    task::{Context, Poll},
};

use futures::{
    FutureExt as _,
    io::{AsyncRead, AsyncWrite},
};
use sdam_core::error::Error;

use super::*;

/// A proxy that expects certain bytes and answers with fixed bytes. Each read returns one byte. Its
/// polls are always ready, like those of a blocking socket.
#[derive(Debug, Default)]
struct Proxy {
    script: VecDeque<(Vec<u8>, Vec<u8>)>,
    sent: Vec<u8>,
    to_read: VecDeque<u8>,
    /// The result of reads after the end of the script; `None` means that the stream has ended.
    end: Option<io::ErrorKind>,
}

impl ByteStream for Proxy {}

impl AsyncRead for Proxy {
    fn poll_read(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        space: &mut [u8],
    ) -> Poll<io::Result<usize>> {
        if self.to_read.is_empty()
            && let Some((expected, reply)) = self.script.pop_front()
        {
            assert_eq!(self.sent, expected);
            self.sent.clear();
            self.to_read = reply.into();
        }
        match (self.to_read.pop_front(), self.end) {
            (Some(byte), _) => {
                space[0] = byte;
                Poll::Ready(Ok(1))
            }
            (None, Some(kind)) => Poll::Ready(Err(kind.into())),
            (None, None) => Poll::Ready(Ok(0)),
        }
    }
}

impl AsyncWrite for Proxy {
    fn poll_write(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let count = bytes.len().min(3);
        self.sent.extend(&bytes[..count]);
        Poll::Ready(Ok(count))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
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

fn run(proxy: &mut Proxy, options: &ProxyOptions, target: &str) -> Result<(), Error> {
    let target = ServerAddress::parse(target).unwrap();
    let done = connect(proxy, options, &target).now_or_never();
    done.expect("polls are always ready").map_err(Error::without_context)
}

/// The greeting without a credential, and the proxy's answer that no authentication is necessary.
const OPEN: (&[u8], &[u8]) = (&[5, 1, 0], &[5, 0]);
/// The request for `a:27017`.
const ASK: &[u8] = &[5, 1, 0, 3, 1, b'a', 0x69, 0x89];
/// The successful reply to a request, with an IPv4 address.
const CONNECTED: &[u8] = &[5, 0, 0, 1, 127, 0, 0, 1, 0, 80];
const LOGIN: &[u8] = b"\x01\x04user\x06secret";

#[test]
fn host_names_are_sent_as_they_are_and_ip_addresses_as_numbers() {
    // Host names are sent unchanged, and IP addresses in binary form (U-1).
    let check = |target: &str, request: &[u8]| {
        run(&mut proxy(&[OPEN, (request, CONNECTED)]), &options(), target).unwrap();
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
        let mut proxy = proxy(&[OPEN, (ASK, &reply)]);
        run(&mut proxy, &options(), "a").unwrap();
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
    let both: &[u8] = &[5, 2, 0, 2];
    let scripts: [&[(&[u8], &[u8])]; 3] = [
        &[(both, &[5, 0]), (ASK, CONNECTED)],
        &[(both, &[5, 2]), (LOGIN, &[1, 0]), (ASK, CONNECTED)],
        &[(both, &[5, 2]), (LOGIN, &[5, 0]), (ASK, CONNECTED)],
    ];
    for script in scripts {
        let mut proxy = proxy(script);
        run(&mut proxy, &with_credential(), "a").unwrap();
        assert_eq!(proxy.script.len(), 0);
    }
}

/// Checks the error of a handshake: its kind and cause, and that it names the proxy and `target`.
#[track_caller]
fn refused(
    proxy: &mut Proxy,
    options: &ProxyOptions,
    target: &str,
    (kind, cause): (ErrorKind, &str),
) {
    let error = run(proxy, options, target).unwrap_err();
    assert_eq!((error.kind(), error.stage()), (kind, Stage::Proxy));
    let target = ServerAddress::parse(target).unwrap();
    let message =
        format!("no connection to {target} through the SOCKS5 proxy bastion:1080: {cause}");
    assert_eq!(error.message(), message);
}

#[test]
fn a_refusal_names_proxy_target_and_cause() {
    // An error names the proxy, the target and the cause (U-6).
    let check = |target: &str, request: &[u8], code, cause: &str| {
        let script: &[(&[u8], &[u8])] = &[OPEN, (request, &[5, code, 0, 1, 0, 0, 0, 0, 0, 0])];
        refused(&mut proxy(script), &options(), target, (ErrorKind::Network, cause));
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
fn a_failed_authentication_says_what_the_proxy_wants() {
    let check = |options: &ProxyOptions, script: &[(&[u8], &[u8])], kind, cause: &str| {
        refused(&mut proxy(script), options, "a", (kind, cause));
    };
    let (network, protocol) = (ErrorKind::Network, ErrorKind::Protocol);
    let (none, both): (&[u8], &[u8]) = (&[5, 1, 0], &[5, 2, 0, 2]);
    let cause = "the proxy requires authentication: set proxyUsername and proxyPassword";
    check(&options(), &[(none, &[5, 0xff])], network, cause);
    let cause = "the proxy does not authenticate by user name and password";
    check(&with_credential(), &[(both, &[5, 0xff])], network, cause);
    let cause = "the proxy rejects proxyUsername and proxyPassword";
    check(&with_credential(), &[(both, &[5, 2]), (LOGIN, &[1, 1])], network, cause);
    let cause = "the proxy chose the authentication method 2, which was not offered";
    check(&options(), &[(none, &[5, 2])], protocol, cause);
    let cause = "the proxy chose the authentication method 1, which was not offered";
    check(&with_credential(), &[(both, &[5, 1])], protocol, cause);
}

#[test]
fn a_peer_that_is_no_socks5_server_is_named_by_its_answer() {
    // An error states that the peer is not a SOCKS5 server (U-6).
    let check = |script: &[_], cause: &str| {
        refused(&mut proxy(script), &options(), "a", (ErrorKind::Protocol, cause));
    };
    let answer = |answer: &'static [u8]| [(OPEN.0, answer)];
    let cause = "this is no SOCKS5 server, it answers as an HTTP server or HTTP proxy";
    check(&answer(b"HTTP/1.1 400 Bad Request\r\n"), cause);
    check(&answer(&[0, 91, 0, 0]), "this is no SOCKS5 server, it answers as SOCKS4");
    let cause = "this is no SOCKS5 server, its answer begins with the byte 50";
    check(&answer(b"220 smtp"), cause);
    let cause = "the proxy's reply has an address of unknown type 9";
    check(&[OPEN, (ASK, &[5, 0, 0, 9, 9])], cause);
}

#[test]
fn a_proxy_that_closes_breaks_or_is_silent_is_distinguished() {
    let login: (&[u8], &[u8]) = (&[5, 2, 0, 2], &[5, 2]);
    let check = |script: &[_], end, kind, cause: &str| {
        let mut proxy = Proxy { end, ..proxy(script) };
        refused(&mut proxy, &with_credential(), "a", (kind, cause));
    };
    let (network, timeout) = (ErrorKind::Network, ErrorKind::Timeout);
    let asked = [login, (LOGIN, &[1, 0])];
    let half = [login, (LOGIN, &[1, 0]), (ASK, &[5, 0, 0, 1, 1])];
    for (script, part) in [
        (&[][..], "the greeting"),
        (&[login], "authentication"),
        (&asked, "the request to connect"),
        (&half, "the request to connect"),
    ] {
        let cause = format!("the proxy closed the connection during {part}");
        check(script, None, network, &cause);
    }
    let cause = "the connection to the proxy broke during authentication: connection reset";
    check(&[login], Some(io::ErrorKind::ConnectionReset), network, cause);
    let cause = "the proxy did not answer in time";
    check(&asked, Some(io::ErrorKind::TimedOut), timeout, cause);
}

#[test]
fn what_the_protocol_cannot_express_is_refused_before_anything_is_sent() {
    // A name or credential that the protocol cannot express is refused (U-8).
    let check = |options: &ProxyOptions, target: &str, cause: &str| {
        let mut proxy = proxy(&[]);
        refused(&mut proxy, options, target, (ErrorKind::Network, cause));
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

#[test]
fn the_credential_is_printed_nowhere() {
    // The credential of the proxy is never printed (U-9).
    let login: (&[u8], &[u8]) = (&[5, 2, 0, 2], &[5, 2]);
    let mut proxy = proxy(&[login, (LOGIN, &[1, 1])]);
    let error = run(&mut proxy, &with_credential(), "a").unwrap_err();
    let text = format!("{error} {error:?} {:?}", with_credential());
    assert!(!text.contains("secret"), "{text}");
}
