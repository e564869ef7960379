//! Pooled connections that authenticate (test plan of the Authentication specification).

use sdam::{
    Authenticator, ErrorKind, Established, Options, ServerAddress, async_trait,
    pool::{AuthStep, Conversation},
};
use sdam_core::hello::HelloAuth;

use super::*;

const SHA_1: &str = "SCRAM-SHA-1";
const SHA_256: &str = "SCRAM-SHA-256";

/// Creates a user in `admin` with these mechanisms.
fn create(mongod: &Mongod, user: &str, password: &str, mechanisms: &[&str]) {
    let create = doc! {
        "createUser": user, "pwd": password, "roles": ["root"], "mechanisms": mechanisms.to_vec(),
    };
    mongod.run_command("admin", create).unwrap();
}

/// Creates the users of the test plan: with SHA-1, with SHA-256, and with both.
fn create_users(mongod: &Mongod) {
    create(mongod, "sha1", "sha1", &[SHA_1]);
    create(mongod, "sha256", "sha256", &[SHA_256]);
    create(mongod, "both", "both", &[SHA_1, SHA_256]);
}

/// Authenticates once with and once without a speculative command in hello, and checks each time
/// that the server reports the authenticated user. Returns the mechanism, which must be the same
/// both times.
#[track_caller]
fn authenticate(mongod: &Mongod, user_info: &str, options: &str, expected: [&str; 2]) -> String {
    let [user, source] = expected;
    let mut mechanisms = [true, false].map(|speculates| {
        let client = Client::start(mongod, user_info, options, speculates);
        let mut connection = client.open().unwrap();
        let status = run(&mut connection, &doc! { "connectionStatus": 1, "$db": source });
        let users = status.get_document("authInfo").unwrap();
        let users = users.get_array("authenticatedUsers").unwrap().clone();
        assert_eq!(users, [doc! { "user": user, "db": source }.into()]);
        run(&mut connection, &doc! { "dbStats": 1, "$db": "test" });
        connection.close();
        client.finish().mechanism
    });
    let [mechanism, same] = &mut mechanisms;
    assert_eq!(mechanism, same);
    std::mem::take(mechanism)
}

/// Checks that the server refuses the authentication, and is then marked Unknown.
#[track_caller]
fn refuse(mongod: &Mongod, user_info: &str, options: &str) {
    for speculates in [true, false] {
        let client = Client::start(mongod, user_info, options, speculates);
        let error = client.open().unwrap_err();
        assert_eq!(error.code(), Some(18), "{user_info}: {error}");
        assert_eq!(error.stage(), Stage::Auth);
        assert_eq!(error.labels().len(), 0);
        assert_eq!(error.outcome(), Some(ErrorOutcome::Cleared));
        client.assert_lost();
        client.finish();
    }
}

/// Authentication: "SCRAM-SHA-256 and mechanism negotiation", steps 1 and 2.
#[test]
#[ignore = "deep: real servers"]
fn each_user_authenticates_with_each_of_its_mechanisms_or_by_negotiation() {
    // Each user authenticates with each of its mechanisms, or with the best one (O-5, O-11, T-1,
    // T-5).
    let Some(mongod) = secured() else { return };
    create_users(&mongod);
    for (user, mechanisms) in
        [("sha1", &[SHA_1][..]), ("sha256", &[SHA_256]), ("both", &[SHA_1, SHA_256])]
    {
        let info = format!("{user}:{user}@");
        for mechanism in mechanisms {
            let option = format!("&authMechanism={mechanism}");
            let used = authenticate(&mongod, &info, &option, [user, "admin"]);
            assert_eq!(used, *mechanism);
        }
        let negotiated = authenticate(&mongod, &info, "", [user, "admin"]);
        assert_eq!(Some(&&*negotiated), mechanisms.last());
    }
}

/// Authentication: "Speculative Authentication".
#[test]
#[ignore = "deep: real servers"]
fn a_speculative_authentication_takes_one_command_less_from_4_4_on() {
    // The first message of the authentication conversation is sent with hello (O-5, O-7, T-6).
    let Some(mongod) = secured() else { return };
    create_users(&mongod);
    let commands = |user_info: &str, speculates| {
        let client = Client::start(&mongod, user_info, "", speculates);
        client.open().unwrap().close();
        client.finish().commands
    };
    let both = [true, false].map(|speculates| commands("both:both@", speculates));
    let sha_1 = commands("sha1:sha1@", true);
    // MongoDB 4.2 ignores the speculative command, and requires an empty exchange at the end.
    let expected = if wire_version(&mongod) < 9 { ([3, 3], 3) } else { ([1, 2], 2) };
    assert_eq!((both, sha_1), expected);
}

/// Authentication: "SCRAM-SHA-256 and mechanism negotiation", step 3.
#[test]
#[ignore = "deep: real servers"]
fn a_mechanism_that_the_user_lacks_and_an_unknown_user_are_refused_like_a_wrong_password() {
    // A rejected password is an authentication error, which marks the server Unknown (I-14, T-30).
    let Some(mongod) = secured() else { return };
    create_users(&mongod);
    refuse(&mongod, "sha1:sha1@", "&authMechanism=SCRAM-SHA-256");
    refuse(&mongod, "sha256:sha256@", "&authMechanism=SCRAM-SHA-1");
    refuse(&mongod, "unknown:both@", "");
    for user in ["sha1", "sha256", "both"] {
        refuse(&mongod, &format!("{user}:wrong@"), "");
        refuse(&mongod, &format!("{user}:@"), "");
    }
}

/// Authentication: "SCRAM-SHA-256 and mechanism negotiation", step 4.
#[test]
#[ignore = "deep: real servers"]
fn passwords_are_prepared_and_user_names_are_not() {
    // Passwords are prepared with SASLprep, user names are not (T-2).
    let Some(mongod) = secured() else { return };
    create(&mongod, "IX", "IX", &[SHA_256]);
    create(&mongod, "\u{2168}", "\u{2163}", &[SHA_256]);
    create(&mongod, "a=b,c:d@", "\u{e9}\u{df}\u{1e9b}/?", &[SHA_1, SHA_256]);
    for (info, user) in [
        ("IX:IX@", "IX"),
        ("IX:I%C2%ADX@", "IX"),
        ("%E2%85%A8:IV@", "\u{2168}"),
        ("%E2%85%A8:I%C2%ADV@", "\u{2168}"),
    ] {
        authenticate(&mongod, info, "", [user, "admin"]);
    }
    refuse(&mongod, "IX:IV@", "");
    let odd = "a%3Db%2Cc%3Ad%40:%C3%A9%C3%9F%E1%BA%9B%2F%3F@";
    for mechanism in [SHA_1, SHA_256] {
        let option = format!("&authMechanism={mechanism}");
        authenticate(&mongod, odd, &option, ["a=b,c:d@", "admin"]);
    }
}

#[test]
#[ignore = "deep: real servers"]
fn the_user_is_looked_up_in_the_auth_source() {
    // Users are authenticated in the `authSource` or, without it, in the database of the connection
    // string (T-20).
    let Some(mongod) = secured() else { return };
    let role = doc! { "role": "dbAdminAnyDatabase", "db": "admin" };
    let create = doc! { "createUser": "ada", "pwd": "pencil", "roles": [role] };
    mongod.run_command("staff", create).unwrap();
    authenticate(&mongod, "ada:pencil@", "&authSource=staff", ["ada", "staff"]);
    refuse(&mongod, "ada:pencil@", "");
    refuse(&mongod, "ada:pencil@", "&authSource=other");
}

#[test]
#[ignore = "deep: real servers"]
fn a_refused_hello_is_an_authentication_error() {
    // If the client has a credential, a refused hello counts as a failed authentication (I-21).
    let Some(mongod) = secured() else { return };
    if wire_version(&mongod) < 13 {
        // Before 5.0, a fail point with an `appName` does not affect handshakes.
        return;
    }
    for (user_info, stage) in [("root:root@", Stage::Auth), ("", Stage::Hello)] {
        let client = Client::start(&mongod, user_info, "", true);
        let hello = FailCommand::new(["hello", "isMaster"]).error_code(91);
        let fail = || mongod.fail_command(hello.app_name("auth")).unwrap();
        let error = client.open_after(fail).unwrap_err();
        assert_eq!((error.kind(), error.code()), (ErrorKind::Command, Some(91)));
        assert_eq!(error.stage(), stage);
        client.open().unwrap().close();
        client.finish();
    }
}

/// Starts a server that requires authentication. Returns `None` if no server is available.
fn secured() -> Option<Mongod> {
    or_skip(Mongod::start_secured(version())).unwrap()
}

/// Returns the server's maximum wire version: at least 9 since 4.4, and at least 13 since 5.0.
fn wire_version(mongod: &Mongod) -> i32 {
    mongod.hello().unwrap().get_i32("maxWireVersion").unwrap()
}

/// A topology of one server, with a connection string that names the user.
struct Client {
    // Declared before the runtime, because fields are dropped in order of their declaration, and
    // the topology must be dropped first.
    topology: Topology<RecordingPool>,
    authenticator: Option<Observed>,
    _host: Host,
}

impl Client {
    /// Connects directly to `mongod`; `user_info` is empty or ends with `@`.
    fn start(mongod: &Mongod, user_info: &str, options: &str, speculates: bool) -> Self {
        let host = mongod.host();
        let base = "directConnection=true&heartbeatFrequencyMS=500&appName=auth";
        let uri = format!("mongodb://{user_info}{host}/?{base}{options}");
        let authenticator = sdam_auth::authenticator(&Options::parse(&uri).unwrap()).unwrap();
        let runtime = Host::start();
        let mut builder = Topology::builder(&uri).unwrap().pools(RecordingPools::default());
        let authenticator =
            authenticator.map(|inner| Observed { inner, speculates, seen: Arc::default() });
        if let Some(own) = &authenticator {
            builder = builder.authenticator(Arc::new(own.clone()));
        }
        let topology = builder.start(runtime.runtime.clone()).unwrap();
        Self { topology, authenticator, _host: runtime }
    }

    /// Opens a connection to the server once the server is available.
    fn open(&self) -> Result<Established, Error> {
        self.open_after(|| ())
    }

    /// Like [`open`](Self::open), but calls `fail` before opening the connection, and keeps its
    /// result until the attempt has ended.
    fn open_after<G>(&self, fail: impl FnOnce() -> G) -> Result<Established, Error> {
        block_on(async {
            let server = self.topology.select(&Criteria::write()).await.unwrap();
            let _guard = fail();
            server.pool().context().establish(Some(PATIENCE)).await
        })
    }

    /// Checks that the last error that made the server Unknown came from authentication.
    fn assert_lost(&self) {
        let snapshot = self.topology.snapshot();
        let server = snapshot.servers().next().unwrap();
        assert_eq!(server.failures().last.unwrap().error.stage(), Stage::Auth);
    }

    /// Closes the topology and returns the record of sent messages.
    fn finish(self) -> Seen {
        block_on(self.topology.close());
        let seen = self.authenticator.map(|own| own.seen);
        seen.map_or_else(Seen::default, |seen| seen.lock().unwrap().clone())
    }
}

/// Runs a command and returns the reply, even if it contains an error.
fn run(connection: &mut Established, command: &Document) -> Document {
    let command = command.to_vec().unwrap();
    let reply = block_on(connection.run_command(&command, Some(PATIENCE)));
    let body = match &reply {
        Ok(reply) => reply.body(),
        Err(error) => error.reply().unwrap(),
    };
    Document::from_reader(body).unwrap()
}

/// A summary of the messages that an authenticator has sent.
#[derive(Clone, Debug, Default)]
struct Seen {
    /// The mechanism in the last command that specifies a mechanism.
    mechanism: String,
    /// The number of commands, excluding those within hello.
    commands: usize,
}

/// An authenticator that records its messages, and can omit the speculative command.
#[derive(Clone, Debug)]
struct Observed {
    inner: Arc<dyn Authenticator>,
    speculates: bool,
    seen: Arc<Mutex<Seen>>,
}

struct ObservedConversation {
    inner: Box<dyn Conversation>,
    speculates: bool,
    seen: Arc<Mutex<Seen>>,
}

impl ObservedConversation {
    /// Records the mechanism named in a command.
    fn note(&self, command: &[u8]) {
        let command = Document::from_reader(command).unwrap();
        if let Ok(name) = command.get_str("mechanism") {
            name.clone_into(&mut self.seen.lock().unwrap().mechanism);
        }
    }

    fn noted(&self, step: Result<AuthStep, Error>) -> Result<AuthStep, Error> {
        if let Ok(AuthStep::Send(command)) = &step {
            self.note(command);
            self.seen.lock().unwrap().commands += 1;
        }
        step
    }
}

#[async_trait]
impl Authenticator for Observed {
    async fn begin(&self, server: &ServerAddress) -> Result<Box<dyn Conversation>, Error> {
        Ok(Box::new(ObservedConversation {
            inner: self.inner.begin(server).await?,
            speculates: self.speculates,
            seen: Arc::clone(&self.seen),
        }))
    }
}

#[async_trait]
impl Conversation for ObservedConversation {
    fn hello_auth(&self) -> HelloAuth {
        let mut auth = self.inner.hello_auth();
        if !self.speculates {
            auth.speculative_authenticate = None;
        }
        if let Some(command) = &auth.speculative_authenticate {
            self.note(command);
        }
        auth
    }

    async fn start(&mut self, hello: &[u8]) -> Result<AuthStep, Error> {
        let step = self.inner.start(hello).await;
        self.noted(step)
    }

    async fn next(&mut self, reply: &[u8]) -> Result<AuthStep, Error> {
        let step = self.inner.next(reply).await;
        self.noted(step)
    }
}
