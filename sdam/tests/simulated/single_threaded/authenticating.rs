//! Authenticated operations on the connections used for checks, with simulated deployments that
//! have users.

use bson::{Document, doc};
use sdam::{
    Criteria, Error, ErrorKind, Options, ScanTopology, ServerType, TopologyBuilder, error::Stage,
    snapshot::ServerId,
};
use sdam_sim::{Blueprint, ServerVersion, User, config::SetConfig, runtime::Sim, users::Mechanism};

use super::harness::bytes;
use crate::{
    authentication::{REAUTHENTICATIONS, demand_authentication},
    hosts, uri_of_user,
};

/// Returns a deployment of three members, the last of which is an arbiter.
fn world(version: ServerVersion, user: User) -> Sim {
    let mut config = SetConfig::new("rs", hosts());
    config.members[2].arbiter = true;
    Sim::new(1, &Blueprint::replica_set(config).version(version).user(user))
}

fn options(sim: &Sim, user_info: &str) -> Options {
    Options::parse(&uri_of_user(sim, user_info)).unwrap()
}

/// Starts a topology that authenticates as the user in `user_info`.
fn start(sim: &Sim, user_info: &str) -> ScanTopology {
    let options = options(sim, user_info);
    let builder = TopologyBuilder::new(options).authenticate().unwrap();
    builder.scan(sim.runtime().backend).unwrap()
}

async fn primary(topology: &mut ScanTopology) -> ServerId {
    topology.select(&Criteria::write()).await.unwrap().id()
}

async fn run(
    topology: &mut ScanTopology,
    server: ServerId,
    command: &Document,
) -> Result<Document, Error> {
    let reply = topology.run_command(server, &bytes(command), None).await?;
    Ok(Document::from_reader(reply.body()).unwrap())
}

fn find() -> Document {
    doc! { "find": "c", "$db": "test" }
}

/// Authenticates, breaks the connection and authenticates again; returns the hash of the trace.
fn authenticated(version: ServerVersion, user: &User) -> u64 {
    let sim = world(version, user.clone());
    sim.block_on(async {
        let mut topology = start(&sim, "ada:pencil@");
        let server = primary(&mut topology).await;
        // Operations use the connections opened by checks, but only once these are authenticated.
        let connections = sim.connections();
        assert!(topology.connection(server).is_none());
        let reply = run(&mut topology, server, &find()).await.unwrap();
        assert!(reply.contains_key("cursor"), "{reply}");
        assert!(topology.connection(server).is_some());
        // After a check, the connection is still authenticated.
        topology.check(server).await;
        run(&mut topology, server, &find()).await.unwrap();
        assert_eq!(sim.connections(), connections);

        topology.disconnect(server);
        topology.connect(server).await.unwrap();
        assert!(topology.connection(server).is_some());
        run(&mut topology, server, &find()).await.unwrap();
        topology.close();
    });
    assert_eq!((sim.connections(), sim.timers()), (0, 0));
    sim.trace()
}

#[test]
fn h_17_o_11_the_connection_of_checks_is_authenticated_before_an_operation() {
    let user = User::new("ada", "pencil");
    for version in [ServerVersion::V4_2, ServerVersion::V4_4, ServerVersion::V8_0] {
        for user in [
            user.clone(),
            user.clone().only(Mechanism::ScramSha1),
            user.clone().only(Mechanism::ScramSha256),
        ] {
            assert_eq!(
                authenticated(version, &user),
                authenticated(version, &user),
                "a seed reproduces the run"
            );
        }
    }
}

#[test]
fn the_connection_is_authenticated_again_when_the_server_demands_it() {
    // O-13
    for (commands, times, code) in REAUTHENTICATIONS {
        let sim = world(ServerVersion::V8_0, User::new("ada", "pencil"));
        sim.block_on(async {
            let mut topology = start(&sim, "ada:pencil@");
            let server = primary(&mut topology).await;
            run(&mut topology, server, &find()).await.unwrap();
            demand_authentication(&sim, commands, times);
            let outcome = run(&mut topology, server, &find()).await;
            assert_eq!(outcome.err().and_then(|error| error.code()), code, "{commands:?}");
            assert_eq!(topology.connection(server).is_some(), code.is_none(), "{commands:?}");
            run(&mut topology, server, &find()).await.unwrap();
            topology.close();
        });
    }
}

#[test]
fn h_17_an_arbiter_is_never_authenticated() {
    let sim = world(ServerVersion::V8_0, User::new("ada", "pencil"));
    sim.block_on(async {
        let mut topology = start(&sim, "ada:wrong@");
        topology.scan().await;
        let description = topology.description();
        let mut servers = description.servers().iter();
        let arbiter = servers.find(|server| server.server_type == ServerType::RsArbiter);
        let arbiter = arbiter.unwrap().id;
        let ping = doc! { "ping": 1, "$db": "admin" };
        run(&mut topology, arbiter, &ping).await.unwrap();
        assert!(topology.connection(arbiter).is_some());
    });
}

#[test]
fn without_an_authenticator_no_command_runs_for_a_user() {
    // A connection must be authenticated before an operation uses it (H-17).
    let sim = world(ServerVersion::V8_0, User::new("ada", "pencil"));
    sim.block_on(async {
        let options = options(&sim, "ada:pencil@");
        let mut topology = TopologyBuilder::new(options).scan(sim.runtime().backend).unwrap();
        let server = primary(&mut topology).await;
        let error = run(&mut topology, server, &find()).await.unwrap_err();
        assert_eq!((error.kind(), error.stage()), (ErrorKind::Internal, Stage::Auth));
        let remedy = "`authenticator` of the topology's builder";
        assert!(error.to_string().contains(remedy), "{error}");
        assert_eq!(error.outcome(), None);
        // A driver that authenticates the connection itself calls `set_authenticated`.
        topology.connection(server).unwrap().set_authenticated();
        let error = run(&mut topology, server, &find()).await.unwrap_err();
        assert_eq!(error.code(), Some(13), "{error}");
    });
}
