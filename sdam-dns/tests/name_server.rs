//! Look-ups with a real name server on loopback.
#![expect(clippy::unwrap_used, reason = "a failed set-up fails the test")]

use std::{
    net::{Ipv4Addr, SocketAddr, UdpSocket},
    task::{Context, Waker},
    time::{Duration, Instant},
};

use futures::executor::block_on;
use sdam_core::srv::SrvRecords;
use sdam_core::{address::ServerAddress, error::Stage};
use sdam_dns::DnsResolver;
use sdam_live::{Dns, Record, RecordType, or_skip};
use sdam_transport::resolve::Resolver;

const NAME: &str = "_mongodb._tcp.s.example.com";
const PATIENCE: Option<Duration> = Some(Duration::from_secs(30));

fn hosts(count: u16) -> Vec<ServerAddress> {
    let host = |port| ServerAddress::new("a-rather-long-name-of-a-host.example.com", port);
    (1..=count).map(host).collect()
}

fn records(count: u16, ttl: u32) -> impl Iterator<Item = Record> {
    let hosts = hosts(count).into_iter();
    hosts.map(move |host| Record::srv(NAME, host.host(), host.port().unwrap()).ttl(ttl))
}

/// Starts a name server. Returns `None` if no name server is installed on this machine.
fn serve(records: impl IntoIterator<Item = Record>) -> Option<(Dns, DnsResolver)> {
    let dns = or_skip(Dns::start(records)).unwrap()?;
    let resolver = DnsResolver::with_servers([dns.address()]);
    Some((dns, resolver))
}

/// Looks up `name` and returns its SRV records, with the hosts in sorted order.
fn srv(resolver: &DnsResolver, name: &str) -> SrvRecords {
    let mut found = block_on(resolver.lookup_srv(name, PATIENCE)).unwrap();
    found.hosts.sort();
    found
}

#[test]
fn srv_records_are_found_with_their_ttl_under_no_runtime_and_under_smol() {
    // The resolver returns the TTL, after which records are looked up again (N-3, N-21).
    let Some((dns, resolver)) = serve(records(2, 90)) else {
        return;
    };
    let expected = SrvRecords::new(hosts(2), Duration::from_secs(90));
    assert_eq!(srv(&resolver, NAME), expected);
    assert_eq!(srv(&resolver, "_MONGODB._tcp.s.Example.com."), expected);
    let found = smol::block_on(resolver.lookup_srv(NAME, None)).unwrap();
    assert_eq!(found.hosts.len(), 2);
    // Nothing is cached.
    dns.set(records(1, 5)).unwrap();
    let expected = SrvRecords::new(hosts(1), Duration::from_secs(5));
    assert_eq!(srv(&resolver.blocking(), NAME), expected);
}

#[test]
fn a_missing_name_and_a_missing_record_are_empty_answers() {
    let Some((dns, resolver)) = serve(records(1, 60)) else {
        return;
    };
    let none = SrvRecords::new(Vec::new(), Duration::ZERO);
    assert_eq!(srv(&resolver, "s.example.com"), none);
    assert_eq!(block_on(resolver.lookup_txt(NAME, PATIENCE)).unwrap(), []);
    dns.remove(NAME, RecordType::Srv).unwrap();
    assert_eq!(srv(&resolver, NAME), none);
}

#[test]
fn the_strings_of_each_txt_record_are_joined() {
    // The resolver returns all TXT records, and its caller refuses a second one (N-8).
    let name = "s.example.com";
    let several = Record::txt(name, ["replicaS", "et=rep", "l0"]);
    let Some((dns, resolver)) = serve([several]) else {
        return;
    };
    let txt = || block_on(resolver.lookup_txt(name, PATIENCE)).unwrap();
    assert_eq!(txt(), ["replicaSet=repl0".into()]);
    let two = ["replicaSet=repl0", "authSource=otherDB"];
    dns.set(two.map(|text| Record::txt(name, [text]))).unwrap();
    assert_eq!(txt().len(), 2);
}

#[test]
fn an_answer_too_large_for_udp_comes_over_tcp() {
    let Some((_dns, resolver)) = serve(records(500, 60)) else {
        return;
    };
    let mut expected = hosts(500);
    expected.sort();
    assert!(srv(&resolver, NAME).hosts == expected);
}

/// Returns a port that ignores queries.
fn silent() -> (UdpSocket, SocketAddr) {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let address = socket.local_addr().unwrap();
    (socket, address)
}

#[test]
fn silence_is_a_timeout_that_names_the_server() {
    let (_socket, address) = silent();
    for resolver in
        [DnsResolver::with_servers([address]), DnsResolver::with_servers([address]).blocking()]
    {
        let timeout = Duration::from_millis(300);
        let started = Instant::now();
        let error = block_on(resolver.lookup_srv(NAME, Some(timeout))).unwrap_err();
        assert!(started.elapsed() >= timeout);
        assert!(error.is_timeout());
        assert_eq!(error.stage(), Stage::Dns);
        assert_eq!(error.message(), format!("no answer from name server {address}"));
    }
}

#[test]
fn a_query_that_is_lost_is_repeated_within_the_timeout() {
    let (socket, address) = silent();
    let resolver = DnsResolver::with_servers([address]);
    let timeout = Some(Duration::from_secs(2));
    assert!(block_on(resolver.lookup_srv(NAME, timeout)).is_err());
    socket.set_nonblocking(true).unwrap();
    let queries = std::iter::from_fn(|| socket.recv(&mut [0; 512]).ok());
    assert!(queries.count() > 1);
}

#[test]
fn a_dead_server_is_named_and_asked_again_once_it_is_back() {
    let Some((dns, resolver)) = serve(records(1, 60)) else {
        return;
    };
    dns.kill().unwrap();
    let timeout = Some(Duration::from_secs(1));
    let error = block_on(resolver.lookup_srv(NAME, timeout)).unwrap_err();
    let server = dns.address().to_string();
    assert!(error.message().contains(&server), "{error}");
    dns.restart().unwrap();
    assert_eq!(srv(&resolver, NAME).hosts, hosts(1));
}

#[test]
fn an_invalid_name_and_a_list_without_servers_are_errors() {
    let resolver = DnsResolver::with_servers([]);
    assert!(block_on(resolver.lookup_srv(NAME, PATIENCE)).is_err());
    let label = "a".repeat(64);
    let error = block_on(resolver.lookup_txt(&label, PATIENCE)).unwrap_err();
    assert_eq!(error.stage(), Stage::Dns);
}

#[test]
fn a_dropped_look_up_ends_its_thread() {
    let (socket, address) = silent();
    let resolver = DnsResolver::with_servers([address]);
    let mut lookup = resolver.lookup_srv(NAME, None);
    let mut cx = Context::from_waker(Waker::noop());
    assert!(lookup.as_mut().poll(&mut cx).is_pending());
    // The query has arrived, so the thread is waiting for the answer.
    let (_, client) = socket.recv_from(&mut [0; 512]).unwrap();
    drop(lookup);
    // The thread closes its port, so the system then refuses packets to it.
    socket.connect(client).unwrap();
    while socket.send(b"anyone?").is_ok() {}
}
