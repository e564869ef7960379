//! Tests authentication to simulated deployments with users, in virtual time: by pools, and on the
//! connections of a single-threaded topology.

use sdam::{Authenticator, ErrorKind, error::Stage, options::Credential, pool::Conversation};
use sdam_sim::{Action, Target};

use super::*;

/// A custom authenticator that begins no conversation.
#[derive(Debug)]
struct Deaf;

#[async_trait]
impl Authenticator for Deaf {
    async fn begin(&self, _: &ServerAddress) -> Result<Box<dyn Conversation>, Error> {
        Err(Error::auth("it is deaf"))
    }
}

#[test]
fn authentication_follows_the_options_with_which_the_topology_starts() {
    // If TLS is removed from the options after `authenticate`, the topology does not start, so that
    // the password is never sent in clear text (T-21).
    let uri = "mongodb://ada:pencil@a/?authMechanism=PLAIN&authSource=$external&tls=true";
    let builder = Topology::builder(uri).unwrap().authenticate().unwrap();
    let builder = builder.options(|options| options.tls = None);
    let error = builder.start(Sim::new(1, &replica_set()).runtime()).unwrap_err();
    assert_eq!(error.option(), "authMechanism", "{error}");
}

#[test]
fn an_authenticator_of_the_program_takes_precedence() {
    let own = Topology::builder("mongodb://ada:pencil@a/").unwrap().authenticator(Arc::new(Deaf));
    // This library does not support GSSAPI, so the program's own authenticator is used.
    let own = own.options(|options| {
        let mut credential = Credential::new("ada", "pencil");
        credential.mechanism = Some("GSSAPI".into());
        options.credential = Some(credential);
    });
    let topology = own.authenticate().unwrap().pools(Pools::new());
    drop(topology.start(Sim::new(1, &replica_set()).runtime()).unwrap());
}

#[test]
fn pools_of_the_program_without_an_authenticator_are_warned_about() {
    let start = |uri: &str| {
        let builder = Topology::builder(uri).unwrap().pools(RecordingPools::default());
        let topology = builder.start(Sim::new(1, &replica_set()).runtime()).unwrap();
        topology.warnings().iter().map(|it| it.option().to_owned()).collect::<Vec<_>>()
    };
    assert_eq!(start("mongodb://ada:pencil@a/"), ["user name"]);
    assert_eq!(start("mongodb://a/"), <[&str; 0]>::default());
}

#[test]
fn pools_without_an_authenticator_refuse_options_with_a_credential() {
    let builder = Topology::builder("mongodb://ada:pencil@a/").unwrap().pools(Pools::new());
    let error = builder.start(Sim::new(1, &replica_set()).runtime()).unwrap_err();
    assert_eq!((error.option(), error.value()), ("user name", "ada"));
}

/// Simulates a set with the user `ada`, whose third member is an arbiter.
fn secured() -> Sim {
    let mut config = SetConfig::new("rs", hosts());
    config.members[2].arbiter = true;
    Sim::new(1, &Blueprint::replica_set(config).user(User::new("ada", "pencil")))
}

/// Cases of reauthentication: the commands that the server answers with the error
/// ReauthenticationRequired, the number of these answers, and the code of the resulting error, if
/// any. If the server accepts another authentication, the command is run again; otherwise, the
/// connection is closed.
const REAUTHENTICATIONS: [(&[&str], u32, Option<i32>); 3] =
    [(&["find"], 1, None), (&["find"], 2, Some(391)), (&["find", "saslStart"], 2, Some(391))];

/// Makes the primary demand another authentication.
fn demand_authentication(sim: &Sim, commands: &[&str], times: u32) {
    let mut fail = fail_command(commands, Mode::Times(times));
    fail.error_code = Some(391);
    sim.apply(&Action::FailPoint(Target::Primary, Some(fail))).unwrap();
}

fn find() -> Vec<u8> {
    doc! { "find": "c", "$db": "test" }.to_vec().unwrap()
}

#[test]
fn a_pooled_connection_is_authenticated_again_when_the_server_demands_it() {
    // No hello is sent, and the server does not become Unknown (O-13).
    for (commands, times, code) in REAUTHENTICATIONS {
        let sim = secured();
        sim.block_on(async {
            let builder = Topology::builder(&uri_of_user(&sim, "ada:pencil@")).unwrap();
            let builder = builder.authenticate().unwrap().pools(Pools::new());
            let topology = builder.start(sim.runtime()).unwrap();
            let pool = topology.select(&Criteria::write()).await.unwrap().pool().clone();
            let run = async || {
                let reply = pool.check_out().await.unwrap().run_command(&find(), None).await;
                reply.map_err(|error| error.code().unwrap())
            };
            run().await.unwrap();
            let before = topology.snapshot().description().clone();
            demand_authentication(&sim, commands, times);
            assert_eq!(run().await.err(), code, "{commands:?}");
            assert_eq!(pool.stats().idle, usize::from(code.is_none()), "{commands:?}");
            run().await.unwrap();
            assert_eq!(*topology.snapshot().description(), before);
            topology.close().await;
        });
    }
}

/// Starts a single-threaded topology that authenticates as the user in `user_info`.
fn scan(sim: &Sim, user_info: &str) -> ScanTopology {
    let builder = Topology::builder(&uri_of_user(sim, user_info)).unwrap();
    builder.authenticate().unwrap().scan(sim.runtime().backend).unwrap()
}

async fn primary(topology: &mut ScanTopology) -> ServerId {
    topology.select(&Criteria::write()).await.unwrap().id()
}

#[test]
fn h_17_the_connection_of_checks_is_authenticated_before_an_operation_and_on_demand() {
    // The connection is authenticated again when the server demands it (O-13).
    for (commands, times, code) in REAUTHENTICATIONS {
        let sim = secured();
        sim.block_on(async {
            let mut topology = scan(&sim, "ada:pencil@");
            let server = primary(&mut topology).await;
            let connections = sim.connections();
            assert!(topology.connection(server).is_none(), "it is not authenticated");
            topology.run_command(server, &find(), None).await.unwrap();
            topology.check(server).await;
            assert!(topology.connection(server).is_some());
            assert_eq!(sim.connections(), connections);
            demand_authentication(&sim, commands, times);
            let outcome = topology.run_command(server, &find(), None).await;
            assert_eq!(outcome.err().and_then(|error| error.code()), code, "{commands:?}");
            assert_eq!(topology.connection(server).is_some(), code.is_none(), "{commands:?}");
            topology.run_command(server, &find(), None).await.unwrap();
            topology.close();
        });
    }
}

#[test]
fn h_17_an_arbiter_is_never_authenticated() {
    let sim = secured();
    sim.block_on(async {
        let mut topology = scan(&sim, "ada:wrong@");
        topology.scan().await;
        let description = topology.description();
        let mut servers = description.servers().iter();
        let arbiter = servers.find(|server| server.server_type == ServerType::RsArbiter);
        let arbiter = arbiter.unwrap().id;
        let ping = doc! { "ping": 1, "$db": "admin" }.to_vec().unwrap();
        topology.run_command(arbiter, &ping, None).await.unwrap();
        assert!(topology.connection(arbiter).is_some());
    });
}

#[test]
fn without_an_authenticator_no_command_runs_for_a_user() {
    // A connection must be authenticated before an operation uses it (H-17).
    let sim = secured();
    sim.block_on(async {
        let builder = Topology::builder(&uri_of_user(&sim, "ada:pencil@")).unwrap();
        let mut topology = builder.scan(sim.runtime().backend).unwrap();
        let server = primary(&mut topology).await;
        let error = topology.run_command(server, &find(), None).await.unwrap_err();
        assert_eq!((error.kind(), error.stage()), (ErrorKind::Internal, Stage::Auth));
        let remedy = "`authenticator` of the topology's builder";
        assert!(error.to_string().contains(remedy), "{error}");
        assert_eq!(error.outcome(), None);
        // A driver that authenticates the connection itself calls `set_authenticated`.
        topology.connection(server).unwrap().set_authenticated();
        let error = topology.run_command(server, &find(), None).await.unwrap_err();
        assert_eq!(error.code(), Some(13), "{error}");
    });
}
