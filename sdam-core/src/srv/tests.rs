//! Hosts of SRV records, and the times of look-ups.

use std::{collections::BTreeSet, string::ToString, vec};

use super::*;

fn addresses(names: &str) -> Vec<ServerAddress> {
    let of = |name| ServerAddress::new(name, 27017);
    names.split_whitespace().map(of).collect()
}

#[test]
fn the_domain_is_what_follows_the_first_of_three_or_more_labels() {
    // N-2
    for (host, domain) in [
        ("cluster_1.tests.mongodb.co.uk", "tests.mongodb.co.uk"),
        ("hosts_34.example.com", "example.com"),
        ("localhost", "localhost"),
        ("mongodb.local", "mongodb.local"),
        ("A.Example.COM.", "example.com"),
    ] {
        assert_eq!(Srv::new(host).domain(), domain);
    }
}

#[test]
fn hosts_end_with_the_domain_after_a_dot() {
    // N-5, N-6
    let check = |host: &str, name: &str, expected| {
        let allowed = Srv::new(host).allows(&ServerAddress::new(name, 1));
        assert_eq!(allowed, expected, "{name} for {host}");
    };
    for (host, name) in [
        ("localhost", "test_1.localhost"),
        ("mongo.local", "test_1.mongo.local"),
        ("mongo.local", "a.b.mongo.local"),
        ("blogs.mongodb.com", "blogs.mongodb.com"),
        ("blogs.mongodb.com", "a.b.MONGODB.com"),
        ("BLOGS.mongodb.com.", "a.mongodb.com."),
    ] {
        check(host, name, true);
    }
    for (host, name) in [
        ("localhost", "localhost"),
        ("localhost", ".localhost"),
        ("localhost", "localhost.mongodb"),
        ("localhost", "test_1.cluster_1localhost"),
        ("mongo.local", "mongo.local"),
        ("mongo.local", "test_1.evil.local"),
        ("mongo.local", "test_1.my_hostmongo.local"),
        ("blogs.mongodb.com", "mongodb.com"),
        ("blogs.mongodb.com", "blogs.evil.com"),
        ("blogs.mongodb.com", "cluster.testmongodb.com"),
        ("blogs.mongodb.com", "blogs.mongodb.com.evil.org"),
    ] {
        check(host, name, false);
    }
}

#[test]
fn seeds_are_all_hosts_or_random_ones_up_to_srv_max_hosts() {
    // N-7
    let hosts = addresses("a.b.c d.b.c e.b.c d.b.c");
    let mut srv = Srv::new("x.b.c");
    let mut seen = BTreeSet::new();
    for (max_hosts, expected) in [(0, 3), (3, 3), (4, 3), (2, 2), (1, 1)] {
        srv.max_hosts = max_hosts;
        for seed in 0..20 {
            let seeds = srv.seeds(&hosts, &mut Rng::new(seed)).unwrap();
            assert_eq!(seeds.len(), expected);
            seen.extend((max_hosts == 1).then_some(seeds));
        }
    }
    assert_eq!(seen.len(), 3, "every host is chosen at some time");
}

#[test]
fn no_host_and_a_host_outside_the_domain_are_errors() {
    // N-4, N-5
    let seeds = |names| Srv::new("x.b.c").seeds(&addresses(names), &mut Rng::new(1));
    assert_eq!(
        seeds("").unwrap_err().to_string(),
        "`SRV record _mongodb._tcp.x.b.c`: there is none; create the record, or list the servers \
         in a mongodb:// string",
    );
    assert_eq!(
        seeds("a.b.c a.evil.c").unwrap_err().to_string(),
        "`SRV record _mongodb._tcp.x.b.c` is `a.evil.c:27017`: the host is not in the domain b.c; \
         correct the record, or list the servers in a mongodb:// string",
    );
}

const HEARTBEAT: Duration = Duration::from_secs(10);

fn machine(ttl: u64) -> SrvMachine {
    let mut srv = Srv::new("x.b.c");
    srv.ttl = Duration::from_secs(ttl);
    SrvMachine::new(srv, HEARTBEAT, Instant::EPOCH)
}

fn answer(names: &str, ttl: u64) -> SrvRecords {
    SrvRecords::new(addresses(names), Duration::from_secs(ttl))
}

/// Rescans at `now` seconds, and returns the effects and the seconds until the next rescan.
fn rescan(
    machine: &mut SrvMachine,
    now: u64,
    outcome: Result<SrvRecords, ServerError>,
) -> (Vec<SrvEffect>, u64) {
    let now = Instant::from_millis(now * 1000);
    let effects = machine.rescanned(now, outcome);
    (effects, machine.next_rescan().since(now).as_secs())
}

#[test]
fn the_interval_is_the_ttl_and_at_least_60_seconds() {
    // N-21
    for (ttl, expected) in [(0, 60), (59, 60), (60, 60), (61, 61), (86_400, 86_400)] {
        let mut machine = machine(ttl);
        assert_eq!(machine.next_rescan(), Instant::from_millis(expected * 1000));
        let (effects, next) = rescan(&mut machine, 100_000, Ok(answer("a.b.c", ttl)));
        assert_eq!(effects, [SrvEffect::Hosts(addresses("a.b.c"))]);
        assert_eq!(next, expected);
    }
}

#[test]
fn failures_are_told_and_repeated_after_a_heartbeat_until_one_succeeds() {
    // N-23
    let failed = |failure: ServerError| {
        SrvEffect::Emit(EventKind::SrvLookupFailed {
            name: "_mongodb._tcp.x.b.c".into(),
            failure: failure.shared(),
            next: HEARTBEAT,
        })
    };
    let mut machine = machine(300);
    let timeout = ServerError::new(ErrorKind::Timeout, Stage::Dns, "no answer");
    let (effects, next) = rescan(&mut machine, 300, Err(timeout.clone()));
    assert_eq!((effects, next), (vec![failed(timeout)], 10));
    let (effects, next) = rescan(&mut machine, 310, Ok(answer("", 300)));
    let reason = unusable("the name has no SRV record");
    assert_eq!((effects, next), (vec![failed(reason)], 10));
    let (effects, next) = rescan(&mut machine, 320, Ok(answer("a.b.c", 300)));
    assert_eq!(effects, [SrvEffect::Hosts(addresses("a.b.c"))]);
    assert_eq!(next, 300);
}

#[test]
fn hosts_outside_the_domain_are_told_and_left_out() {
    // N-22
    let ignored = |hosts| {
        SrvEffect::Emit(EventKind::SrvHostsIgnored {
            name: "_mongodb._tcp.x.b.c".into(),
            domain: "b.c".into(),
            hosts: addresses(hosts).into(),
        })
    };
    let mut machine = machine(0);
    let records = answer("a.b.c a.evil.c d.b.c", 0);
    let (effects, next) = rescan(&mut machine, 60, Ok(records));
    let hosts = SrvEffect::Hosts(addresses("a.b.c d.b.c"));
    assert_eq!((effects, next), (vec![ignored("a.evil.c"), hosts], 60));

    // N-23: without any other host, the look-up counts as failed.
    let (effects, next) = rescan(&mut machine, 120, Ok(answer("a.evil.c", 0)));
    let [
        first,
        SrvEffect::Emit(EventKind::SrvLookupFailed { failure, .. }),
    ] = &*effects
    else {
        panic!("{effects:?}");
    };
    assert_eq!(*first, ignored("a.evil.c"));
    assert_eq!(
        **failure,
        unusable("no host of the SRV record is in its domain")
    );
    assert_eq!(next, 10);
}
