//! Tests that encrypted and plain traffic are distinguished.

use super::*;

/// Reads `sent` at once and byte by byte, and checks the numbers of encrypted and plain
/// connections.
#[track_caller]
fn check(to_proxy: bool, sent: &[u8], encrypted: u64, plain_text: u64) {
    for size in [1, sent.len()] {
        let (mut tap, mut traffic) = (Tap::new(to_proxy), Traffic::default());
        sent.chunks(size).for_each(|bytes| tap.read(bytes, &mut traffic));
        assert_eq!((traffic.encrypted, traffic.plain_text), (encrypted, plain_text), "{sent:?}");
    }
}

/// The first bytes of a hello to a server.
const MESSAGE: [u8; 16] = [0x2d, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0xdd, 7, 0, 0];
/// Two TLS 1.3 records. The first has version 1.0, and the second is empty.
const RECORDS: [u8; 12] = [22, 3, 1, 0, 2, 0xdd, 7, 23, 3, 3, 0, 0];
/// A greeting without authentication and a request for `a:27017`.
const OPENING: [u8; 11] = [5, 1, 0, 5, 1, 0, 3, 1, b'a', 0x69, 0x89];
/// A greeting, a login and a request for `127.0.0.1:27017`.
const LOGIN: [u8; 19] = [5, 2, 0, 2, 1, 1, b'u', 1, b'p', 5, 1, 0, 1, 127, 0, 0, 1, 0x69, 0x89];

#[test]
fn records_are_encrypted_and_everything_else_is_plain_text() {
    check(false, &RECORDS, 1, 0);
    check(false, &MESSAGE, 0, 1);
    check(false, &[&RECORDS[..], &MESSAGE].concat(), 1, 1);
    check(false, &OPENING, 0, 1);
}

#[test]
fn a_proxy_reads_its_messages_and_nothing_else_before_the_records() {
    for opening in [&OPENING[..], &LOGIN] {
        check(true, &[opening, &RECORDS].concat(), 1, 0);
        check(true, &[opening, &MESSAGE].concat(), 0, 1);
    }
    check(true, &RECORDS, 0, 1);
    check(true, &MESSAGE, 0, 1);
}
