//! The client metadata of pooled connections (MongoDB Handshake: "Client Metadata Update Prose
//! Tests"). The messages are read from the simulated network.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bson::{Document, doc};
use sdam::{Topology, TopologyBuilder, options::DriverInfo};
use sdam_pool::Pool;
use sdam_sim::{
    MemberId,
    runtime::{Direction, Sim, Verdict},
};
use sdam_transport::handshake::{ClientMetadata, Environment};

use super::{builder, ping_primary, simulation};

/// A duration after which an idle connection has certainly expired if `maxIdleTimeMS` is 1.
const IDLE: Duration = Duration::from_millis(5);

/// The first messages of the connections to one server.
type Handshakes = Arc<Mutex<Vec<Document>>>;

/// A client whose connections expire, so that each ping opens a new connection.
struct World {
    sim: Sim,
    topology: Topology<Pool>,
    handshakes: Handshakes,
}

impl World {
    /// Starts a client with these libraries.
    fn start(libraries: &[DriverInfo], options: &str) -> Self {
        let environment = Environment::default();
        let metadata = ClientMetadata::new("driver", "0.1", &environment).unwrap();
        let mut metadata = metadata.with_application("app").unwrap();
        for library in libraries {
            assert!(metadata.append(library.clone()).unwrap());
        }
        let options = format!("serverMonitoringMode=poll&{options}");
        Self::build(&options, |builder| builder.metadata(metadata))
    }

    fn build(
        options: &str,
        change: impl FnOnce(TopologyBuilder<Pool>) -> TopologyBuilder<Pool>,
    ) -> Self {
        let sim = simulation(1);
        sim.run_for(Duration::from_secs(20));
        let member = sim.status().primary().unwrap().id;
        let handshakes = record(&sim, member);
        let uri = format!("{}&{options}", sim.uri());
        let topology = change(builder(&uri)).start(sim.runtime()).unwrap();
        Self { sim, topology, handshakes }
    }

    /// Starts a client with one library, which is either set initially or appended after the start.
    fn with(library: &DriverInfo, is_initial: bool) -> Self {
        if is_initial {
            return Self::start(std::slice::from_ref(library), "maxIdleTimeMS=1");
        }
        let world = Self::start(&[], "maxIdleTimeMS=1");
        world.append(library);
        world
    }

    fn append(&self, library: &DriverInfo) {
        self.topology.append_metadata(library.clone()).unwrap();
    }

    /// Runs a ping on a new connection and returns its client metadata.
    fn ping(&self) -> Document {
        self.sim.run_for(IDLE);
        let count = || self.handshakes.lock().unwrap().len();
        let before = count();
        self.sim.block_on(ping_primary(&self.topology)).unwrap();
        assert!(count() > before, "a connection was opened");
        self.last()
    }

    fn last(&self) -> Document {
        let handshakes = self.handshakes.lock().unwrap();
        let last = handshakes.last().unwrap();
        last.get_document("client").unwrap().clone()
    }
}

fn record(sim: &Sim, member: MemberId) -> Handshakes {
    let handshakes = Handshakes::default();
    let recorded = Arc::clone(&handshakes);
    sim.network().add_rule(move |frame| {
        if frame.direction == Direction::ToServer && frame.member == member {
            // The command follows the header, the flags, and the kind of the only section.
            let command = Document::from_reader(&frame.bytes[21..]).unwrap();
            if command.contains_key("client") {
                recorded.lock().unwrap().push(command);
            }
        }
        Verdict::Pass
    });
    handshakes
}

/// Creates a library. An empty string means that the value is absent.
fn library(name: &str, version: &str, platform: &str) -> DriverInfo {
    let library = DriverInfo::new(name).with_version(version);
    library.with_platform(platform)
}

fn own() -> DriverInfo {
    library("library", "1.2", "Library Platform")
}

/// Starts two clients that know the library `known`: one has it from the start, and the other has
/// it appended later. Appends `between`, if there is one, and then `next` to each client. Checks
/// that `next` changes the metadata's name, version and platform to `added`, or that it changes
/// nothing if `added` is `None`.
fn check(
    known: &DriverInfo,
    between: Option<&DriverInfo>,
    next: &DriverInfo,
    added: Option<[&str; 3]>,
) {
    for is_initial in [true, false] {
        let world = World::with(known, is_initial);
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

/// O-27, prose tests 1 (in which the first library is set before the start) and 2 (in which it is
/// appended).
#[test]
fn metadata_1_2_a_library_is_appended_and_nothing_else_changes() {
    let platforms = "Library Platform|Framework Platform";
    for (version, platform, versions, platforms) in [
        ("2.0", "Framework Platform", "0.1|1.2|2.0", platforms),
        ("2.0", "", "0.1|1.2|2.0", "Library Platform"),
        ("", "Framework Platform", "0.1|1.2", platforms),
        ("", "", "0.1|1.2", "Library Platform"),
    ] {
        let added = ["driver|library|framework", versions, platforms];
        check(&own(), None, &library("framework", version, platform), Some(added));
    }
}

/// O-27, prose test 3: a library is appended unless it equals one that was appended before.
#[test]
fn metadata_3_a_library_that_differs_in_one_text_is_appended() {
    for name in ["library", "framework"] {
        for version in ["1.2", "2.0"] {
            for platform in ["Library Platform", "Framework Platform"] {
                let next = library(name, version, platform);
                let names = format!("driver|library|{name}");
                let versions = format!("0.1|1.2|{version}");
                let platforms = format!("Library Platform|{platform}");
                let added = Some([&*names, &versions, &platforms]);
                check(&own(), None, &next, added.filter(|_| next != own()));
            }
        }
    }
}

/// O-27, prose tests 4 to 8: a known library is not appended again, whether it was set initially or
/// appended, and whether it comes again at once or later. An empty string is the same as an absent
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
    let world = World::start(&[], "maxIdleTimeMS=1");
    world.ping();
    let handshakes = world.handshakes.lock().unwrap();
    assert!(handshakes.len() > 1, "a monitor's and a pool's");
    for handshake in &*handshakes {
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
    World::build("maxIdleTimeMS=1&appName=unused", |builder| {
        builder.client_document(is_faas, encode)
    })
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
    world.handshakes.lock().unwrap().clear();
    let primary = world.sim.status().primary().unwrap().id;
    world.sim.network().reset(primary);
    world.sim.run_for(Duration::from_secs(30));
    let handshakes = world.handshakes.lock().unwrap().clone();
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
        let opened = world.handshakes.lock().unwrap().len();
        assert_eq!(opened, connections, "only a stream needs measurements");
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
