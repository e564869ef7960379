//! The client metadata of pooled connections (MongoDB Handshake: "Client Metadata Update Prose
//! Tests"). The messages are read from the simulated network.

use sdam::options::DriverInfo;
use sdam_transport::handshake::{ClientMetadata, Environment};

use super::*;

/// A duration after which an idle connection has certainly expired if `maxIdleTimeMS` is 1.
const IDLE: Duration = Duration::from_millis(5);

/// A client whose connections expire, so that each ping opens a new connection.
struct World {
    sim: Sim,
    topology: Topology<Pool>,
    member: MemberId,
    sent: Arc<Mutex<Vec<Sent>>>,
}

impl World {
    /// Starts a client with the library `initial`, if there is one.
    fn start(initial: Option<&DriverInfo>) -> Self {
        let environment = Environment::default();
        let metadata = ClientMetadata::new("driver", "0.1", &environment).unwrap();
        let mut metadata = metadata.with_application("app").unwrap();
        if let Some(library) = initial {
            assert!(metadata.append(library.clone()).unwrap());
        }
        Self::build("serverMonitoringMode=poll", |builder| builder.metadata(metadata))
    }

    fn build(
        options: &str,
        change: impl FnOnce(TopologyBuilder<Pool>) -> TopologyBuilder<Pool>,
    ) -> Self {
        let sim = simulation(1);
        sim.run_for(Duration::from_secs(20));
        let member = sim.status().primary().unwrap().id;
        let sent = record(&sim);
        let uri = format!("{}&maxIdleTimeMS=1&{options}", sim.uri());
        let topology = change(builder(&uri)).start(sim.runtime()).unwrap();
        Self { sim, topology, member, sent }
    }

    fn append(&self, library: &DriverInfo) {
        self.topology.append_metadata(library.clone()).unwrap();
    }

    /// Returns the first messages of all connections to the primary.
    fn handshakes(&self) -> Vec<Document> {
        let sent = self.sent.lock().unwrap();
        let own = sent.iter().filter(|sent| sent.member == self.member && sent.is_handshake());
        own.map(|sent| sent.command.clone()).collect()
    }

    /// Runs a ping on a new connection and returns its client metadata.
    fn ping(&self) -> Document {
        self.sim.run_for(IDLE);
        let before = self.handshakes().len();
        self.sim.block_on(ping_primary(&self.topology)).unwrap();
        let handshakes = self.handshakes();
        assert!(handshakes.len() > before, "a connection was opened");
        handshakes.last().unwrap().get_document("client").unwrap().clone()
    }
}

/// Creates a library. An empty string means that the value is absent.
fn library(name: &str, version: &str, platform: &str) -> DriverInfo {
    let library = DriverInfo::new(name).with_version(version);
    library.with_platform(platform)
}

fn own() -> DriverInfo {
    library("library", "1.2", "Library Platform")
}

/// Starts two clients that know the library `known`: one has the library from the start, and the
/// library is appended to the other later. Appends `between`, if there is one, and then `next` to
/// each client. Checks that `next` changes the metadata's name, version and platform to `added`, or
/// that it changes nothing if `added` is `None`.
fn check(
    known: &DriverInfo,
    between: Option<&DriverInfo>,
    next: &DriverInfo,
    added: Option<[&str; 3]>,
) {
    for is_initial in [true, false] {
        let world = World::start(is_initial.then_some(known));
        if !is_initial {
            world.append(known);
        }
        if let Some(between) = between {
            world.append(between);
        }
        let mut expected = world.ping();
        if let Some([name, version, platform]) = added {
            let driver = expected.get_document_mut("driver").unwrap();
            driver.insert("name", name);
            driver.insert("version", version);
            expected.insert("platform", platform);
        }
        world.append(next);
        assert_eq!(world.ping(), expected, "{next:?} {is_initial}");
    }
}

/// O-27, prose tests 1 (in which the first library is set before the start), 2 (in which it is
/// appended) and 3: a library that differs from the one before is appended, and nothing else
/// changes.
#[test]
fn metadata_1_to_3_a_library_that_differs_in_one_text_is_appended() {
    for name in ["library", "framework"] {
        for version in ["1.2", "2.0", ""] {
            for platform in ["Library Platform", "Framework Platform", ""] {
                let next = library(name, version, platform);
                let joined = |texts: &[&str]| texts.join("|").trim_end_matches('|').to_owned();
                let names = joined(&["driver", "library", name]);
                let versions = joined(&["0.1", "1.2", version]);
                let platforms = joined(&["Library Platform", platform]);
                let added = Some([&*names, &versions, &platforms]);
                check(&own(), None, &next, added.filter(|_| next != own()));
            }
        }
    }
}

/// O-27, prose tests 4 to 8: a known library is not appended again, whether it was set initially or
/// appended, and whether it is repeated at once or later. An empty string is the same as an absent
/// value.
#[test]
fn metadata_4_to_8_a_known_library_is_not_appended_again() {
    let framework = library("framework", "2.0", "Framework Platform");
    let no_version = DriverInfo::new("library").with_platform("Library Platform");
    let no_platform = DriverInfo::new("library").with_version("1.2");
    check(&own(), Some(&framework), &own(), None);
    check(&own(), None, &own(), None);
    check(&no_version, None, &library("library", "", "Library Platform"), None);
    check(&no_platform, None, &library("library", "1.2", ""), None);
}

/// O-20, O-28, prose test 9: the handshakes of monitors and pools contain `backpressure: "2"` and
/// the application's name.
#[test]
fn metadata_9_every_handshake_announces_backpressure_and_the_application() {
    let world = World::start(None);
    world.ping();
    let handshakes = world.handshakes();
    assert!(handshakes.len() > 1, "a monitor's and a pool's");
    for handshake in handshakes {
        assert_eq!(handshake.get_str("backpressure").unwrap(), "2");
        let client = handshake.get_document("client").unwrap();
        let application = client.get_document("application").unwrap();
        assert_eq!(application.get_str("name").unwrap(), "app");
    }
}

/// A driver's client metadata document, which the driver changes at run time.
type Shared = Arc<Mutex<Document>>;

fn document(name: &str) -> Document {
    doc! { "driver": { "name": name, "version": "3" }, "os": { "type": "Linux" } }
}

fn start_driver(is_faas: bool, document: &Shared) -> World {
    let document = Arc::clone(document);
    let encode = move || document.lock().unwrap().to_vec().unwrap();
    World::build("appName=unused", |builder| builder.client_document(is_faas, encode))
}

#[test]
fn monitors_and_pools_send_the_current_document_of_a_driver() {
    let shared = Shared::new(document("mine").into());
    let world = start_driver(false, &shared);
    assert_eq!(world.ping(), document("mine"));
    let changed = document("mine|wrapper");
    shared.lock().unwrap().clone_from(&changed);
    assert_eq!(world.ping(), changed);
    let refused = world.topology.append_metadata(own()).unwrap_err();
    assert!(refused.to_string().contains("append the library to that"));

    // After the reset, the monitor opens its connections for checks and for measurements again.
    world.sent.lock().unwrap().clear();
    world.sim.network().reset(world.member);
    world.sim.run_for(Duration::from_secs(30));
    let handshakes = world.handshakes();
    assert_eq!(handshakes.len(), 2);
    for handshake in &handshakes {
        assert_eq!(handshake.get_document("client").unwrap(), &changed);
    }
}

/// F-21: the driver states whether it runs on a FaaS platform.
#[test]
fn monitors_of_a_driver_in_a_function_poll() {
    for (is_faas, connections) in [(true, 1), (false, 2)] {
        let world = start_driver(is_faas, &Shared::new(document("mine").into()));
        world.sim.run_for(Duration::from_secs(60));
        assert_eq!(world.handshakes().len(), connections, "only a stream needs measurements");
    }
}

#[test]
fn an_invalid_document_of_a_driver_is_refused_at_the_start_and_left_out_later() {
    let long = document(&"x".repeat(512));
    let invalid = [long.to_vec().unwrap(), b"no document".to_vec()];
    for (bytes, reason) in invalid.into_iter().zip(["at most 512", "not a BSON document"]) {
        let builder = builder("mongodb://a").client_document(false, move || bytes.clone());
        let error = builder.start(simulation(1).runtime()).unwrap_err();
        assert!(error.to_string().contains(reason), "{error}");
    }
    let shared = Shared::new(document("mine").into());
    let world = start_driver(false, &shared);
    *shared.lock().unwrap() = long;
    assert!(world.topology.hello().handshake.unwrap().client.is_empty());
}
