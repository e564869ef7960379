//! TLS between a complete topology and a simulated deployment, with rustls on both sides.

use std::{
    error::Error,
    io::{self, Read as _, Write as _},
    sync::Arc,
    time::Duration,
};

use sdam::{Clock, Criteria, Event, Instant, Runtime, ServerAddress, Snapshot, Stage, Topology};
use sdam_events::channel::unbounded;
use sdam_sim::{
    Blueprint, MemberId,
    config::SetConfig,
    runtime::{Latency, Sim, TlsAcceptor, TlsFault, TlsMode, TlsSession},
};
use sdam_tls::{
    FixedConfig,
    rustls::{
        ClientConfig, ServerConfig, ServerConnection, client::Resumption, pki_types::UnixTime,
        time_provider::TimeProvider,
    },
};
use sdam_transport::TlsProvider;

use crate::{
    certificates::{Authority, Issued, crypto},
    server::serve,
};

const LONG: Duration = Duration::from_secs(600);
const HOSTS: [&str; 3] = ["a", "b", "c"];
const MEMBERS: [MemberId; 3] = [MemberId(0), MemberId(1), MemberId(2)];

/// The TLS library of the simulated members, with each member's configuration.
#[derive(Debug)]
pub(crate) struct Library([Arc<ServerConfig>; 3]);

impl Library {
    /// Makes all members present the same certificate.
    pub(crate) fn with(issued: &Issued) -> Self {
        let config = serve(issued);
        Self(HOSTS.map(|_| Arc::clone(&config)))
    }
}

impl TlsAcceptor for Library {
    fn accept(&self, member: MemberId) -> Box<dyn TlsSession> {
        let config = Arc::clone(&self.0[usize::from(member.0)]);
        let mut session = ServerConnection::new(config).unwrap();
        session.set_buffer_limit(None);
        Box::new(Session(session))
    }
}

#[derive(Debug)]
struct Session(ServerConnection);

impl TlsSession for Session {
    fn receive(&mut self, mut bytes: &[u8]) -> io::Result<Vec<u8>> {
        let mut plain = Vec::new();
        while !bytes.is_empty() {
            self.0.read_tls(&mut bytes)?;
            let state = self.0.process_new_packets().map_err(io::Error::other)?;
            let begin = plain.len();
            plain.resize(begin + state.plaintext_bytes_to_read(), 0);
            self.0.reader().read_exact(&mut plain[begin..])?;
        }
        Ok(plain)
    }

    fn send(&mut self, data: &[u8]) {
        self.0.writer().write_all(data).unwrap();
    }

    fn outgoing(&mut self) -> Vec<u8> {
        let mut bytes = Vec::new();
        while self.0.wants_write() {
            self.0.write_tls(&mut bytes).unwrap();
        }
        bytes
    }

    fn is_handshaking(&self) -> bool {
        self.0.is_handshaking()
    }
}

/// Returns a simulation whose members require TLS with this library.
fn world(seed: u64, library: Library) -> Sim {
    let hosts = HOSTS.map(|host| ServerAddress::new(host, 27017));
    let sim = Sim::new(seed, &Blueprint::replica_set(SetConfig::new("rs", hosts)));
    sim.tls().require();
    sim.tls().accept_by(library);
    sim
}

/// Returns the runtime of the simulation, with this TLS library in place of the simulated one.
pub(crate) fn with_tls(sim: &Sim, tls: impl TlsProvider) -> Runtime {
    let mut runtime = sim.runtime();
    runtime.io = runtime.io.with_tls(Arc::new(tls));
    runtime
}

/// Returns the primary once all members are available.
fn complete(snapshot: &Snapshot) -> Option<ServerAddress> {
    let description = snapshot.description();
    let mut servers = description.servers().iter();
    let available = servers.all(|server| server.server_type.is_available());
    let primary = description.primary().filter(|_| available)?;
    Some(primary.address.clone())
}

fn start(uri: &str, runtime: Runtime) -> Result<Topology, Box<dyn Error>> {
    Ok(Topology::builder(uri)?.start(runtime)?)
}

/// Discovers the set and follows a failover; returns the events.
fn failover(seed: u64, authority: &Authority, issued: &Issued) -> Vec<Event> {
    let sim = world(seed, Library::with(issued));
    sim.network().set_latency(Latency::WAN);
    let runtime = with_tls(&sim, authority.provider());
    let (sink, mut events) = unbounded();
    sim.block_on(async {
        let builder = Topology::builder(&sim.uri()).unwrap().sink(sink);
        let topology = builder.start(runtime).unwrap();
        let first = topology.wait_for(complete, LONG).await.unwrap();
        sim.step_down().unwrap();
        let other = |snapshot: &Snapshot| complete(snapshot).filter(|primary| *primary != first);
        let second = topology.wait_for(other, LONG).await.unwrap();
        let selected = topology.select(&Criteria::write()).await.unwrap();
        assert_eq!(*selected.address(), second);
        drop(selected);
        topology.close().await;
    });
    let traffic = sim.network().traffic();
    assert!(traffic.encrypted >= 3, "a connection to each member");
    assert_eq!(traffic.plain_text, 0);
    assert_eq!((sim.tasks(), sim.connections(), sim.timers()), (0, 0, 0));
    std::iter::from_fn(|| events.try_next()).collect()
}

#[test]
fn a_seed_reproduces_a_failover_that_is_encrypted_by_rustls() {
    let authority = Authority::new("one");
    let issued = authority.issue_steady(&HOSTS);
    for seed in 0..20 {
        let events = failover(seed, &authority, &issued);
        let again = failover(seed, &authority, &issued);
        assert_eq!(format!("{events:#?}"), format!("{again:#?}"), "seed {seed}");
    }
}

#[test]
fn a_member_with_the_certificate_of_another_host_is_left_out() {
    let authority = Authority::new("one");
    let (right, wrong) = (authority.issue(&HOSTS), authority.issue(&["other"]));
    let mut library = Library::with(&right);
    library.0[1] = serve(&wrong);
    let sim = world(1, library);
    let runtime = with_tls(&sim, authority.provider());
    sim.block_on(async {
        let topology = start(&sim.uri(), runtime).unwrap();
        let settled = |snapshot: &Snapshot| {
            let description = snapshot.description();
            let [a, b, c] = <&[_; 3]>::try_from(description.servers()).ok()?;
            let others = a.server_type.is_available() && c.server_type.is_available();
            b.error.clone().filter(|_| others)
        };
        let error = topology.wait_for(settled, LONG).await.unwrap();
        assert_eq!(error.stage, Stage::Tls);
        assert!(error.to_string().contains("other"), "{error}");
        topology.close().await;
    });
}

#[test]
fn faults_of_handshakes_are_those_of_the_simulated_tls() {
    let authority = Authority::new("one");
    let issued = authority.issue(&HOSTS);
    for (fault, words) in [
        (TlsFault::Stall, "in time"),
        (TlsFault::Cut, "closed"),
        (TlsFault::PlainText, "does not answer in TLS"),
    ] {
        let sim = world(1, Library::with(&issued));
        for member in MEMBERS {
            sim.tls().set_fault(member, Some(fault));
        }
        let runtime = with_tls(&sim, authority.provider());
        sim.block_on(async {
            let topology = start(&sim.uri(), runtime).unwrap();
            let minute = Duration::from_secs(60);
            let write = Criteria::write();
            let error = topology.select_within(&write, minute).await.unwrap_err();
            let error = error.to_string();
            assert!(
                error.contains("tls") && error.contains(words),
                "{fault:?}: {error}"
            );
            for member in MEMBERS {
                sim.tls().set_fault(member, None);
            }
            topology.select_within(&write, minute).await.unwrap();
            topology.close().await;
        });
    }
}

#[test]
fn members_without_tls_end_the_handshake_and_plain_text_is_refused() {
    let authority = Authority::new("one");
    let sim = world(1, Library::with(&authority.issue(&HOSTS)));
    let runtime = with_tls(&sim, authority.provider());
    sim.tls().set_mode(MEMBERS[0], TlsMode::Disabled);
    sim.block_on(async {
        let secured = start(&sim.uri(), runtime.clone()).unwrap();
        let plain = start(&sim.uri().replace("tls=true", ""), runtime).unwrap();
        let seen = |available: [bool; 3]| {
            move |snapshot: &Snapshot| {
                let servers = snapshot.description().servers().iter();
                let seen = servers.map(|server| server.server_type.is_available());
                seen.eq(available).then_some(())
            }
        };
        secured
            .wait_for(seen([false, true, true]), LONG)
            .await
            .unwrap();
        plain
            .wait_for(seen([true, false, false]), LONG)
            .await
            .unwrap();
        secured.close().await;
        plain.close().await;
    });
}

/// A client's wall clock in virtual time, which begins at 2024-01-01 23:00.
#[derive(Debug)]
struct Wall(Arc<dyn Clock>);

impl TimeProvider for Wall {
    fn current_time(&self) -> Option<UnixTime> {
        let begin = Duration::from_secs(1_704_150_000);
        Some(UnixTime::since_unix_epoch(
            begin + self.0.now().since(Instant::EPOCH),
        ))
    }
}

#[test]
fn a_certificate_that_expires_in_virtual_time_fails_the_next_handshake() {
    let authority = Authority::new("one");
    let issued = authority.issue_with(&HOSTS, |params| {
        params.not_after = rcgen::date_time_ymd(2024, 1, 2);
    });
    let sim = world(1, Library::with(&issued));
    let clock = Arc::clone(&sim.runtime().io.clock);
    let config = ClientConfig::builder_with_details(crypto(), Arc::new(Wall(clock)));
    let config = config.with_safe_default_protocol_versions().unwrap();
    let mut config = config
        .with_root_certificates(authority.roots())
        .with_no_client_auth();
    // A resumed session would rely on the earlier check.
    config.resumption = Resumption::disabled();
    let runtime = with_tls(&sim, FixedConfig::new(config));
    sim.block_on(async {
        let topology = start(&sim.uri(), runtime).unwrap();
        topology.wait_for(complete, LONG).await.unwrap();
        let later = sim.now() + Duration::from_secs(2 * 3600);
        sim.runtime().io.clock.sleep_until(later).await;
        let snapshot = topology.snapshot();
        assert!(complete(&snapshot).is_some(), "connections live on");
        for member in MEMBERS {
            sim.network().reset(member);
        }
        let expired = |snapshot: &Snapshot| {
            let servers = snapshot.description().servers().iter();
            let mut errors = servers.map(|server| server.error.as_ref());
            let expired = errors.all(|error| {
                error.is_some_and(|it| it.stage == Stage::Tls && it.to_string().contains("expired"))
            });
            expired.then_some(())
        };
        topology.wait_for(expired, LONG).await.unwrap();
        topology.close().await;
    });
}
