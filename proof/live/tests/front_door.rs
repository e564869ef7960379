//! Tests of the DNS servers and SOCKS5 proxies for the workspace's other live tests.
#![expect(clippy::unwrap_used, reason = "a failed set-up fails the test")]

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::time::Duration;

use sdam_live::{Dns, Record, RecordType, Socks, or_skip};

const A: u16 = 1;
const TXT: u16 = 16;
const AAAA: u16 = 28;
const SRV: u16 = 33;

/// The flag of a truncated answer in a DNS header.
const TRUNCATED: u8 = 2;

/// The parts of an answer that the tests check.
#[derive(Debug, PartialEq)]
struct Answer {
    code: u8,
    truncated: bool,
    /// Time to live and data of each record.
    records: Vec<(u32, Vec<u8>)>,
}

/// Returns a query (RFC 1035, section 4) without EDNS, so that an answer over UDP has at most 512
/// bytes.
fn query(name: &str, record_type: u16) -> Vec<u8> {
    let mut query = vec![0, 7, 0, 0, 0, 1, 0, 0, 0, 0, 0, 0];
    for label in name.split('.') {
        query.push(label.len() as u8);
        query.extend(label.as_bytes());
    }
    query.push(0);
    query.extend(record_type.to_be_bytes());
    query.extend([0, 1]);
    query
}

fn parse(query: &[u8], answer: &[u8]) -> Answer {
    let count = u16::from_be_bytes([answer[6], answer[7]]);
    // Each record begins with a pointer to the name in the question.
    let mut rest = &answer[query.len()..];
    let records = (0..count).map(|_| {
        let (head, tail) = rest.split_at(12);
        assert_eq!(head[..2], [0xc0, 12]);
        let ttl = u32::from_be_bytes(head[6..10].try_into().unwrap());
        let (data, tail) = tail.split_at(usize::from(u16::from_be_bytes([head[10], head[11]])));
        rest = tail;
        (ttl, data.to_vec())
    });
    let records = records.collect();
    Answer {
        code: answer[3] & 15,
        truncated: answer[2] & TRUNCATED != 0,
        records,
    }
}

fn ask(server: SocketAddr, name: &str, record_type: u16) -> Answer {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    socket
        .set_read_timeout(Some(Duration::from_secs(30)))
        .unwrap();
    let query = query(name, record_type);
    socket.send_to(&query, server).unwrap();
    let mut answer = [0; 512];
    let length = socket.recv(&mut answer).unwrap();
    parse(&query, &answer[..length])
}

fn ask_over_tcp(server: SocketAddr, name: &str, record_type: u16) -> Answer {
    let mut stream = TcpStream::connect(server).unwrap();
    let query = query(name, record_type);
    stream
        .write_all(&(query.len() as u16).to_be_bytes())
        .unwrap();
    stream.write_all(&query).unwrap();
    let mut length = [0; 2];
    stream.read_exact(&mut length).unwrap();
    let mut answer = vec![0; usize::from(u16::from_be_bytes(length))];
    stream.read_exact(&mut answer).unwrap();
    parse(&query, &answer)
}

#[test]
fn a_dns_server_answers_with_each_type_of_record_and_its_time_to_live() {
    let records = [
        Record::address("a.example", Ipv4Addr::new(127, 0, 0, 2)).ttl(5),
        Record::address("a.example", Ipv6Addr::LOCALHOST),
        Record::srv("_mongodb._tcp.s.example", "a.example", 27_017),
        Record::txt("s.example", ["a=\"b\"", "\\c;\u{e9} d"]).ttl(0),
        Record::alias("b.example", "a.example"),
    ];
    let Some(dns) = or_skip(Dns::start(records)).unwrap() else {
        return;
    };
    let one = |ttl, data: &[u8]| Answer {
        code: 0,
        truncated: false,
        records: vec![(ttl, data.to_vec())],
    };
    let ask = |name, record_type| ask(dns.address(), name, record_type);
    assert_eq!(ask("a.example", A), one(5, &[127, 0, 0, 2]));
    assert_eq!(
        ask("A.Example", AAAA),
        one(60, &Ipv6Addr::LOCALHOST.octets())
    );
    let target = b"\0\0\0\0\x69\x89\x01a\x07example\0";
    assert_eq!(ask("_mongodb._tcp.s.example", SRV), one(60, target));
    let text = b"\x05a=\"b\"\x07\\c;\xc3\xa9 d";
    assert_eq!(ask("s.example", TXT), one(0, text));
    assert_eq!(
        ask("s.example", A),
        Answer {
            code: 0,
            truncated: false,
            records: Vec::new()
        }
    );
    assert_eq!(ask("c.example", A).code, 3, "the name does not exist");
}

#[test]
fn an_answer_that_is_too_long_for_udp_is_truncated_and_whole_over_tcp() {
    let string = "x".repeat(255);
    let long = Record::txt("long.example", [&*string; 3]);
    let Some(dns) = or_skip(Dns::start([long])).unwrap() else {
        return;
    };
    let answer = ask(dns.address(), "long.example", TXT);
    assert!(answer.truncated && answer.records.is_empty(), "{answer:?}");
    let answer = ask_over_tcp(dns.address(), "long.example", TXT);
    assert!(!answer.truncated, "{answer:?}");
    assert_eq!(answer.records[0].1.len(), 3 * 256);
}

#[test]
fn records_are_replaced_and_removed_while_the_dns_server_runs() {
    let a = |last| Record::address("a.example", Ipv4Addr::new(127, 0, 0, last));
    let Some(dns) = or_skip(Dns::start([a(1), a(2)])).unwrap() else {
        return;
    };
    let last = || {
        let answer = ask(dns.address(), "a.example", A);
        let mut last: Vec<_> = answer.records.iter().map(|(_, ip)| ip[3]).collect();
        last.sort_unstable();
        last
    };
    assert_eq!(last(), [1, 2]);
    dns.set([a(3), Record::txt("a.example", ["kept"])]).unwrap();
    assert_eq!(last(), [3]);
    dns.remove("A.example.", RecordType::A).unwrap();
    assert_eq!(last(), [0; 0]);
    assert_eq!(ask(dns.address(), "a.example", TXT).records.len(), 1);
    dns.set([a(4)]).unwrap();
    dns.kill().unwrap();
    TcpStream::connect(dns.address()).unwrap_err();
    dns.restart().unwrap();
    assert_eq!(last(), [4]);
}

#[test]
fn records_that_the_server_refuses_are_an_error() {
    let Some(dns) = or_skip(Dns::start([])).unwrap() else {
        return;
    };
    let error = dns.set([Record::txt("a..example", ["x"])]).unwrap_err();
    assert!(error.to_string().contains("refuses"), "{error}");
}

/// Sends a greeting and the further messages of RFC 1928 and 1929. After each message, reads
/// `length` bytes or until the proxy closes the connection, and returns everything read.
fn converse(stream: &mut TcpStream, messages: &[(&[u8], usize)]) -> Vec<u8> {
    let mut answers = Vec::new();
    for (message, length) in messages {
        stream.write_all(message).unwrap();
        let mut answer = vec![0; *length];
        if stream.read_exact(&mut answer).is_err() {
            break;
        }
        answers.extend(answer);
    }
    answers
}

/// Returns a listener and the request that connects to it.
fn target() -> (TcpListener, Vec<u8>) {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let mut request = vec![5, 1, 0, 1, 127, 0, 0, 1];
    request.extend(listener.local_addr().unwrap().port().to_be_bytes());
    (listener, request)
}

#[test]
fn a_proxy_connects_until_it_is_killed_and_again_after_its_restart() {
    let Some(socks) = or_skip(Socks::start()).unwrap() else {
        return;
    };
    let (listener, request) = target();
    let mut stream = TcpStream::connect(socks.address()).unwrap();
    let answers = converse(&mut stream, &[(&[5, 1, 0], 2), (&request, 10)]);
    assert_eq!(answers[..4], [5, 0, 5, 0]);
    let (mut accepted, _) = listener.accept().unwrap();
    stream.write_all(b"x").unwrap();
    accepted.read_exact(&mut [0]).unwrap();
    socks.kill().unwrap();
    assert_eq!(
        stream.read(&mut [0]).unwrap_or(0),
        0,
        "the connection has ended"
    );
    TcpStream::connect(socks.address()).unwrap_err();
    socks.restart().unwrap();
    let mut stream = TcpStream::connect(socks.address()).unwrap();
    let answers = converse(&mut stream, &[(&[5, 1, 0], 2), (&request, 10)]);
    assert_eq!(answers[..4], [5, 0, 5, 0]);
}

#[test]
fn a_secured_proxy_demands_its_user_name_and_password() {
    let Some(socks) = or_skip(Socks::start_secured("ada", "pencil")).unwrap() else {
        return;
    };
    let (_listener, request) = target();
    let connect = || TcpStream::connect(socks.address()).unwrap();
    assert_eq!(converse(&mut connect(), &[(&[5, 1, 0], 2)]), [5, 0xff]);
    let login = |password: &str| {
        let login = format!("\x01\x03ada{}{password}", char::from(password.len() as u8));
        let messages: [(&[u8], usize); 3] =
            [(&[5, 1, 2], 2), (login.as_bytes(), 2), (&request, 10)];
        converse(&mut connect(), &messages)
    };
    assert_eq!(login("pencil")[..6], [5, 2, 1, 0, 5, 0]);
    assert_ne!(login("wrong")[3], 0);
}
