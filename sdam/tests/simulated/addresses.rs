//! Tests deployments that cannot be reached by their members' names. Clients reach them through
//! address translation or proxies; without either, errors and events contain a diagnosis.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use sdam::runtime::{Wrap, Wrapped};
use sdam_core::topology::Obstacle;
use sdam_sim::{
    action::{Action, Impostor},
    runtime::ProxyFault,
};

use super::*;

/// The time limit of every wait.
const PATIENCE: Duration = Duration::from_secs(60);

fn address(text: &str) -> ServerAddress {
    ServerAddress::parse(text).unwrap()
}

const NAMES: [&str; 3] = ["mongo-0:27017", "mongo-1:27017", "mongo-2:27017"];

/// The local ends of the tunnels to the members.
const PLACES: [&str; 3] = ["localhost:30001", "localhost:30002", "localhost:30003"];

/// Returns the rows of a table that maps the names to the tunnels.
fn rows() -> impl Iterator<Item = (ServerAddress, ServerAddress)> {
    NAMES.map(address).into_iter().zip(PLACES.map(address))
}

/// Simulates a set whose members' names can only be resolved in its own network. The first of the
/// `forwarders` leads to the first member, and so on.
fn inside(forwarders: &[&str]) -> Sim {
    let config = SetConfig::new("rs", NAMES.map(address));
    let sim = Sim::new(7, &Blueprint::replica_set(config));
    for name in NAMES.map(address) {
        sim.dns().set_fault(name.host(), Some(DnsFault::NoSuchName));
    }
    for (member, place) in forwarders.iter().enumerate() {
        sim.network().forward(address(place), MemberId(member as u16));
    }
    sim
}

/// Lets a selection of the primary time out, and continues to monitor for ten minutes. Returns the
/// error message, first on one line and then in full, and the servers reported as unusable in
/// events, with the reasons.
fn select(sim: &Sim, builder: TopologyBuilder) -> ([String; 2], Vec<String>) {
    let (sink, mut events) = unbounded();
    let error = sim.block_on(async {
        let topology = builder.sink(sink).start(sim.runtime()).unwrap();
        let error = topology.select(&Criteria::write()).await.unwrap_err();
        close_later(sim, &topology).await;
        [error.to_string(), format!("{error:#}")]
    });
    (error, obstacles(&mut events))
}

/// Returns the servers reported as unusable in events, with the reasons.
fn obstacles(events: &mut EventStream) -> Vec<String> {
    let unusable = |event: Event| match event.kind {
        EventKind::ServerUnusable { address, obstacle, .. } => {
            Some(format!("{address}: {obstacle}"))
        }
        _ => None,
    };
    drain(events).into_iter().filter_map(unusable).collect()
}

/// Continues to monitor for ten minutes, and then closes the topology.
async fn close_later(sim: &Sim, topology: &Topology) {
    let clock = sim.runtime().backend.clock;
    let later = sim.now() + Duration::from_secs(600);
    clock.sleep_until(later).await;
    topology.close().await;
}

fn uri(uri: &str) -> TopologyBuilder {
    Topology::builder(uri).unwrap()
}

#[test]
fn a_tunnel_to_one_port_is_diagnosed_with_both_names_and_three_remedies() {
    // In each round, the tunnel leads to another member. One of the members is the primary.
    for member in 0..3 {
        let sim = inside(&[]);
        sim.network().forward(address("localhost:27017"), MemberId(member));
        let (error, mut unusable) = select(&sim, uri("mongodb://localhost:27017/"));
        let name = NAMES[usize::from(member)];
        let problem = format!(
            "the set calls itself {name}, you connected to localhost:27017: {name} cannot be \
             resolved from here"
        );
        let tail = format!(
            "; gave up after 30 s (serverSelectionTimeoutMS): {problem}; make the set's names usable \
             here (DNS, hosts file, or run in the servers' network), or connect to one member alone \
             (directConnection=true), or say where to dial for each name (address translation); \
             if the set has horizons for clients outside, connect with \
             TLS to the names of these"
        );
        assert!(error[0].ends_with(&tail), "{}", error[0]);
        let others = "named as members by the replica set: mongo-0:27017, mongo-1:27017, \
                      mongo-2:27017 cannot be resolved from here";
        assert!(error[1].contains(others), "{}", error[1]);
        // Each server's problem is published only once, although the server's checks have failed
        // dozens of times.
        let mut expected = NAMES.map(|other| {
            if other == name {
                format!("{name}: {problem}")
            } else {
                let reason = "the set names it as a member, but it cannot be resolved from here";
                format!("{other}: {reason}")
            }
        });
        unusable.sort();
        expected.sort();
        assert_eq!(unusable, expected);
    }
}

#[test]
fn a_misspelt_seed_is_not_blamed_on_the_set() {
    let sim = inside(&[]);
    let (error, unusable) = select(&sim, uri("mongodb://mongo-0/?replicaSet=rs"));
    let tail = ": mongo-0:27017 cannot be resolved from here; check the spelling of the host names, \
                and the name server";
    assert!(error[0].ends_with(tail), "{}", error[0]);
    assert_eq!(unusable, ["mongo-0:27017: it cannot be resolved from here"]);
}

/// Returns the obstacles that are published until `members` servers are available, and during the
/// ten minutes after that.
fn met(sim: &Sim, builder: TopologyBuilder, members: usize) -> Vec<String> {
    let (sink, mut events) = unbounded();
    sim.block_on(async {
        let topology = builder.sink(sink).start(sim.runtime()).unwrap();
        let found = |snapshot: &Snapshot| {
            let servers = snapshot.description().servers().iter();
            let known = servers.filter(|server| server.server_type.is_available());
            (known.count() == members).then_some(())
        };
        topology.wait_for(found, PATIENCE).await.unwrap();
        close_later(sim, &topology).await;
    });
    obstacles(&mut events)
}

#[test]
fn a_member_that_a_table_lacks_is_published_once_and_the_others_never() {
    let sim = inside(&PLACES);
    let table: AddressTable = rows().take(2).collect();
    let seeds = || uri("mongodb://localhost:30001,localhost:30002/?replicaSet=rs");
    let missing =
        "mongo-2:27017: the set names it as a member, but it cannot be resolved from here";
    assert_eq!(met(&sim, seeds().translate(table), 2), [missing]);
    let table: AddressTable = rows().collect();
    assert!(met(&sim, seeds().translate(table), 3).is_empty());
}

#[test]
fn a_set_whose_names_lead_to_it_is_usable_by_any_seed_and_in_every_outage() {
    let sim = inside(&["alias.example.com"]);
    sim.network().heal();
    let builder = uri("mongodb://alias.example.com/?replicaSet=rs");
    let (sink, mut events) = unbounded();
    sim.block_on(async {
        let topology = builder.sink(sink).start(sim.runtime()).unwrap();
        topology.wait_for(complete, PATIENCE).await.unwrap();
        for member in 0..3 {
            sim.network().refuse(MemberId(member), true);
            sim.network().reset(MemberId(member));
        }
        let lost = |snapshot: &Snapshot| {
            let mut servers = snapshot.description().servers().iter();
            servers.all(|server| server.error.is_some()).then_some(())
        };
        topology.wait_for(lost, PATIENCE).await.unwrap();
        let snapshot = topology.snapshot();
        let obstacle = |name: &ServerAddress| {
            let description = snapshot.description();
            description.obstacle(description.server(name).unwrap())
        };
        assert_eq!(NAMES.map(|name| obstacle(&address(name))), [const { None::<Obstacle> }; 3]);
        topology.close().await;
    });
    assert!(obstacles(&mut events).is_empty());
}

const PROXY: &str = "bastion:1080";

/// Returns a builder with the seeds of the set, which is reached through a proxy.
fn proxied(options: &str) -> TopologyBuilder {
    let seeds = NAMES.join(",");
    uri(&format!("mongodb://{seeds}/?replicaSet=rs&proxyHost=bastion{options}"))
}

#[test]
fn a_proxy_that_refuses_is_diagnosed_with_its_reason_and_published_once_for_each_server() {
    let rules = "the proxy's rules do not allow this connection";
    let login = "the proxy requires authentication: set proxyUsername and proxyPassword";
    let reached = "the proxy cannot be reached: could not connect: ";
    for (login, fault, cause) in [
        (None, Some(ProxyFault::Reject), rules),
        (None, Some(ProxyFault::Down), reached),
        (Some(("user", "password")), None, login),
    ] {
        let sim = inside(&[]);
        sim.proxies().add(address(PROXY), login);
        sim.proxies().set_fault(&address(PROXY), fault);
        let (error, unusable) = select(&sim, proxied(""));
        let problem =
            format!("no connection to mongo-0:27017 through the SOCKS5 proxy {PROXY}: {cause}");
        let others = " (2 more servers fail at the proxy, too); check that the proxy runs, that \
                      proxyHost, proxyPort, proxyUsername and proxyPassword are right, and that the \
                      proxy reaches the servers by their names";
        assert!(error[0].contains(&format!("(serverSelectionTimeoutMS): {problem}")));
        assert!(error[0].ends_with(others), "{}", error[0]);
        assert_eq!(unusable.len(), 3, "{unusable:?}");
        let first = format!("mongo-0:27017: {problem}");
        assert!(unusable.iter().any(|text| text.starts_with(&first)), "{unusable:?}");
    }
}

#[test]
fn members_that_drop_attempts_to_connect_are_named_before_the_attempts_time_out() {
    let error = |seeds: &str, dropping: &[u16]| {
        let sim = inside(&[]);
        sim.network().heal();
        for name in NAMES.map(address) {
            sim.dns().set_fault(name.host(), None);
        }
        for member in dropping {
            sim.network().blackhole(MemberId(*member), true);
        }
        let seeds = format!("mongodb://{seeds}/?replicaSet=rs&serverSelectionTimeoutMS=5000");
        select(&sim, uri(&seeds)).0[0].clone()
    };
    let check = |error: String, members: &str| {
        let tail = format!(
            "; gave up after 5 s (serverSelectionTimeoutMS): {members} for 5.0 s to an attempt to \
             connect; {}",
            Obstacle::SILENT
        );
        assert!(error.ends_with(&tail), "{error}");
    };
    check(error(NAMES[0], &[0, 1, 2]), "no answer from mongo-0:27017");
    let others = "named as members by the replica set: no answer from mongo-0:27017, mongo-1:27017";
    check(error(NAMES[2], &[0, 1]), others);
}

#[test]
fn a_set_that_was_never_initiated_is_not_told_to_wait_for_an_election() {
    let sim = simulation(1);
    for member in 0..3 {
        sim.apply(&Action::Impostor(MemberId(member).into(), Some(Impostor::Ghost))).unwrap();
    }
    let (error, _) = select(&sim, uri(&sim.uri()));
    assert!(error[0].contains("rs.initiate()"), "{}", error[0]);
    assert!(!error[1].contains("wait for the election"), "{}", error[1]);
}

/// Counts the attempts to connect.
#[derive(Clone, Debug, Default)]
struct Counting(Arc<AtomicU64>);

#[async_trait]
impl Wrap for Counting {
    async fn connect(
        &self,
        inner: &dyn Transport,
        target: &ServerAddress,
        deadline: Option<Instant>,
    ) -> Result<Box<dyn Connection>, Error> {
        self.0.fetch_add(1, Relaxed);
        inner.connect(target, deadline).await
    }
}

#[test]
fn a_wrapped_transport_keeps_translation_proxy_and_tls() {
    // With TLS, the certificate is compared with the seed's name. This is the server's name only if
    // the seed is not translated, so only the untranslated seed uses TLS.
    for (seed, encrypted) in [("inside", true), ("outside", false)] {
        // Only a proxy can resolve the server's name.
        let sim = Sim::new(3, &Blueprint::standalone().at([address("inside:27017")]));
        sim.dns().set_fault("inside", Some(DnsFault::NoSuchName));
        sim.proxies().add(address(PROXY), None);
        if encrypted {
            sim.tls().require();
        }
        let counting = Counting::default();
        let mut runtime = sim.runtime();
        runtime.backend.transport =
            Arc::new(Wrapped::new(runtime.backend.transport, counting.clone()));
        let uri = format!("mongodb://{seed}/?proxyHost=bastion&tls={encrypted}");
        let table = [(address("outside:27017"), address("inside:27017"))];
        let builder = Topology::builder(&uri).unwrap();
        let builder = builder.translate(AddressTable::from_iter(table));
        sim.block_on(async {
            let topology = builder.start(runtime).unwrap();
            topology.select(&Criteria::write()).await.unwrap();
            topology.close().await;
        });
        let (traffic, opened) = (sim.network().traffic(), counting.0.load(Relaxed));
        assert_eq!(traffic.direct, 0);
        // Closing may abandon an attempt before it reaches the proxy.
        assert!((1..=opened).contains(&traffic.proxied), "{traffic:?} {opened}");
        assert_eq!(traffic.encrypted > 0, encrypted);
        assert_eq!(traffic.plain_text > 0, !encrypted);
    }
}
