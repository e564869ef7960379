//! Tests pools that authenticate to simulated deployments with users, in virtual time.

use std::{sync::Arc, time::Duration};

use bson::{Document, doc};
use sdam::{
    Authenticator, Criteria, Error, ErrorKind, Options, ServerAddress, Topology, TopologyBuilder,
    async_trait,
    error::{ErrorOutcome, Stage},
    options::Credential,
    pool::Conversation,
};
use sdam_pool::{Pool, Pools};
use sdam_sim::{
    Action, Blueprint, ServerVersion, Target, User,
    action::{FailCommand, Mode},
    runtime::Sim,
    users::Mechanism,
};

use sdam_testkit::RecordingPools;

use crate::{replica_set, uri_of_user};

/// The `connectTimeoutMS` of all tests.
const TIMEOUT: Duration = Duration::from_secs(10);

fn set(users: impl IntoIterator<Item = User>) -> Blueprint {
    users.into_iter().fold(replica_set(), Blueprint::user)
}

/// Starts a topology whose pools authenticate as the user in `user_info`.
fn start(sim: &Sim, user_info: &str) -> Topology<Pool> {
    let uri = uri_of_user(sim, user_info);
    let mut options = Options::parse(&uri).unwrap();
    options.connect_timeout = Some(TIMEOUT);
    let builder = TopologyBuilder::new(options).authenticate().unwrap().pools(Pools::new());
    builder.start(sim.runtime()).unwrap()
}

/// Reads from the primary on a pooled connection, and returns the reply, even if it contains an
/// error.
async fn find(topology: &Topology<Pool>) -> Result<Document, Error> {
    let server = topology.select(&Criteria::write()).await.unwrap();
    let mut connection = server.pool().check_out().await?;
    let command = doc! { "find": "c", "$db": "test" }.to_vec().unwrap();
    let reply = connection.run_command(&command, None).await;
    let body = match &reply {
        Ok(reply) => reply.body(),
        Err(error) => error.reply().ok_or_else(|| error.clone())?,
    };
    Ok(Document::from_reader(body).unwrap())
}

/// Runs a failover with authenticated operations before and after; returns the hash of the trace.
fn failover(seed: u64, version: ServerVersion, user: &User) -> u64 {
    let sim = Sim::new(seed, &set([user.clone()]).version(version));
    sim.block_on(async {
        let stranger = start(&sim, "");
        let reply = find(&stranger).await.unwrap();
        assert_eq!(reply.get_i32("code").unwrap(), 13, "{reply}");
        stranger.close().await;
        let topology = start(&sim, "ada:pencil@");
        let reply = find(&topology).await.unwrap();
        assert!(reply.contains_key("cursor"), "{reply}");
        sim.step_down().unwrap();
        // A selection may choose the old primary once more, which then replies that it is not
        // primary.
        let mut reply = find(&topology).await.unwrap();
        while reply.get_i32("code").is_ok_and(|code| code == 13435) {
            reply = find(&topology).await.unwrap();
        }
        assert!(reply.contains_key("cursor"), "{reply}");
        topology.close().await;
    });
    assert_eq!((sim.tasks(), sim.connections(), sim.timers()), (0, 0, 0));
    sim.trace()
}

#[test]
fn every_server_authenticates_users_of_each_mechanism_and_a_seed_reproduces_the_run() {
    // Pooled connections authenticate after the handshake (O-5, O-11).
    let user = User::new("ada", "pencil");
    let users =
        [user.clone(), user.clone().only(Mechanism::ScramSha1), user.only(Mechanism::ScramSha256)];
    let versions = [ServerVersion::V4_2, ServerVersion::V4_4, ServerVersion::V8_0];
    for version in versions {
        for user in &users {
            assert_eq!(failover(1, version, user), failover(1, version, user));
        }
    }
}

/// An authenticator of the program, which begins no conversation.
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
    // A password is never sent in clear text because TLS was removed later (T-21).
    let uri = "mongodb://ada:pencil@a/?authMechanism=PLAIN&authSource=$external&tls=true";
    let builder = Topology::builder(uri).unwrap().authenticate().unwrap();
    let builder = builder.options(|options| options.tls = None);
    let error = builder.start(Sim::new(1, &replica_set()).runtime()).unwrap_err();
    assert_eq!(error.option(), "authMechanism", "{error}");
}

#[test]
fn an_authenticator_of_the_program_takes_precedence() {
    let own = Topology::builder("mongodb://ada:pencil@a/").unwrap().authenticator(Arc::new(Deaf));
    // Without a mechanism that this library has, only its own authenticator can be meant.
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

/// The commands that the server answers with the error ReauthenticationRequired, and how often. The
/// command is run again, if the server accepts another authentication, and the connection is closed
/// if not. Each case has the code of the error, if there is one.
pub(crate) const REAUTHENTICATIONS: [(&[&str], u32, Option<i32>); 3] =
    [(&["find"], 1, None), (&["find"], 2, Some(391)), (&["find", "saslStart"], 2, Some(391))];

/// Makes the primary demand another authentication.
pub(crate) fn demand_authentication(sim: &Sim, commands: &[&str], times: u32) {
    let mut fail = FailCommand::default();
    fail.commands = commands.iter().map(ToString::to_string).collect();
    fail.mode = Mode::Times(times);
    fail.error_code = Some(391);
    sim.apply(&Action::FailPoint(Target::Primary, Some(fail))).unwrap();
}

#[test]
fn a_connection_is_authenticated_again_when_the_server_demands_it() {
    // No hello is sent, and the server does not become Unknown (O-13).
    for (commands, times, code) in REAUTHENTICATIONS {
        let sim = Sim::new(1, &set([User::new("ada", "pencil")]));
        sim.block_on(async {
            let topology = start(&sim, "ada:pencil@");
            find(&topology).await.unwrap();
            let pool = topology.select(&Criteria::write()).await.unwrap().pool().clone();
            let before = topology.snapshot().description().clone();
            demand_authentication(&sim, commands, times);
            let reply = find(&topology).await.unwrap();
            assert_eq!(reply.get_i32("code").ok(), code, "{reply}");
            assert_eq!(pool.stats().idle, usize::from(code.is_none()), "{commands:?}");
            let reply = find(&topology).await.unwrap();
            assert!(reply.contains_key("cursor"), "{reply}");
            assert_eq!(topology.snapshot().description().clone(), before);
            topology.close().await;
        });
    }
}

/// Checks the error that an operation returns while the authentication command `command` fails.
#[track_caller]
fn check_fault(command: &str, fault: impl Fn(&mut FailCommand), kind: ErrorKind, time: Duration) {
    let sim = Sim::new(3, &set([User::new("ada", "pencil").only(Mechanism::ScramSha1)]));
    let mut fail = FailCommand::default();
    fail.commands.push(command.to_owned());
    fault(&mut fail);
    sim.block_on(async {
        let topology = start(&sim, "ada:pencil@");
        let server = topology.select(&Criteria::write()).await.unwrap();
        sim.apply(&Action::FailPoint(Target::Primary, Some(fail))).unwrap();
        let before = sim.now();
        let error = find(&topology).await.unwrap_err();
        let passed = sim.now().since(before);
        assert!(passed >= time && passed < time + Duration::from_secs(1), "{passed:?}");
        assert_eq!((error.kind(), error.stage()), (kind, Stage::Auth), "{error}");
        assert_eq!(error.labels().len(), 0);
        assert_eq!(error.outcome(), Some(ErrorOutcome::Cleared));
        let stats = server.pool().stats();
        assert_eq!((stats.opened, stats.waiting), (0, 0), "{stats:?}");
        // The pool is paused until a check succeeds.
        let outcome = server.pool().check_out().await;
        assert!(
            matches!(&outcome, Err(error) if error.kind() == ErrorKind::PoolCleared),
            "{outcome:?}"
        );
        sim.apply(&Action::FailPoint(Target::Primary, None)).unwrap();
        find(&topology).await.unwrap();
        topology.close().await;
    });
    assert_eq!((sim.tasks(), sim.connections(), sim.timers()), (0, 0, 0));
}

#[test]
fn a_fault_at_each_command_is_reported_in_time_and_leaves_no_connection() {
    // I-14, T-30, T-31: a user that has only SHA-1 credentials still needs `saslStart`, because the
    // speculative command uses SHA-256.
    for command in ["saslStart", "saslContinue"] {
        let at_once = Duration::ZERO;
        check_fault(command, |fail| fail.close_connection = true, ErrorKind::Network, at_once);
        check_fault(command, |fail| fail.error_code = Some(91), ErrorKind::Command, at_once);
        let slow = Duration::from_secs(60);
        check_fault(command, |fail| fail.block = Some(slow), ErrorKind::Timeout, TIMEOUT);
    }
}
