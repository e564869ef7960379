use std::{
    cell::Cell,
    rc::Rc,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

use bson::{Binary, Bson, Document, bson, doc, spec::BinarySubtype};
use futures::{
    executor::{LocalPool, block_on},
    task::LocalSpawnExt as _,
};
use sdam_core::{
    address::ServerAddress,
    error::Error,
    hello::HelloAuth,
    options::{Credential, Options, ServerApi},
};
use sdam_transport::{
    pool::{AuthStep, Authenticator, Conversation},
    runtime::Entropy,
    spawn::yield_now,
};

use crate::{
    account::Account,
    config::tests::with_credential,
    scram::{MAX_ITERATIONS, Mechanism},
    testing::{ServerConversation, StoredUser},
};

/// Fills with zeros, then with ones, and so on.
#[derive(Debug, Default)]
struct Counting(AtomicU8);

impl Entropy for Counting {
    fn fill(&self, bytes: &mut [u8]) {
        bytes.fill(self.0.fetch_add(1, Ordering::Relaxed));
    }
}

/// Creates an account whose nonces are predictable: the first consists of zeros, the second of
/// ones, and so on.
fn account(options: &Options) -> Account {
    Account::of(options).unwrap().unwrap().with_entropy(Arc::<Counting>::default())
}

fn options(mechanism: Option<&str>) -> Options {
    let mut credential = Credential::new("ada", "pencil");
    credential.source = Some("staff".into());
    credential.mechanism = mechanism.map(Into::into);
    with_credential(credential)
}

fn begin(account: &Account) -> Box<dyn Conversation> {
    block_on(account.begin(&ServerAddress::new("a", 27017))).unwrap()
}

fn start(conversation: &mut dyn Conversation, hello: &Document) -> Result<AuthStep, Error> {
    block_on(conversation.start(&hello.to_vec().unwrap()))
}

fn next(conversation: &mut dyn Conversation, reply: &Document) -> Result<AuthStep, Error> {
    block_on(conversation.next(&reply.to_vec().unwrap()))
}

fn decode(document: &[u8]) -> Document {
    Document::from_reader(document).unwrap()
}

/// Returns the command that a step sends.
fn sent(step: Result<AuthStep, Error>) -> Document {
    match step {
        Ok(AuthStep::Send(command)) => decode(&command),
        other => panic!("a command is expected: {other:?}"),
    }
}

fn speculative(conversation: &dyn Conversation) -> Document {
    let auth = conversation.hello_auth();
    decode(&auth.speculative_authenticate.unwrap())
}

fn binary(bytes: &[u8]) -> Binary {
    Binary { subtype: BinarySubtype::Generic, bytes: bytes.to_vec() }
}

fn payload(command: &Document) -> Vec<u8> {
    command.get_binary_generic("payload").unwrap().clone()
}

fn sasl(payload: &[u8], done: bool) -> Document {
    doc! { "conversationId": 7, "done": done, "payload": binary(payload), "ok": 1.0 }
}

/// Creates the server's side of a conversation that begins with `command`.
fn serve(mechanism: Mechanism, command: &Document) -> ServerConversation {
    assert_eq!(command.get_str("mechanism").unwrap(), mechanism.name());
    let user = StoredUser::new(mechanism, "ada", "pencil", b"0123456789", 4096).unwrap();
    ServerConversation::begin(&payload(command), &user, "server").unwrap()
}

/// Returns a reply to hello with the server's part of a speculative authentication.
fn hello(server: &ServerConversation) -> Document {
    let mut speculative = sasl(server.message(), false);
    speculative.remove("ok");
    doc! { "ok": 1, "speculativeAuthenticate": speculative }
}

#[test]
fn the_mechanism_is_the_given_one_or_else_the_best_that_the_user_has() {
    // The mechanism is negotiated (T-5, O-7; Authentication: "Default Authentication Methods").
    let check = |given: Option<Mechanism>, hello: Document, expected: Mechanism| {
        let account = account(&options(given.map(Mechanism::name)));
        let mut conversation = begin(&account);
        let auth = conversation.hello_auth();
        assert_eq!(auth.sasl_supported_mechs.is_some(), given.is_none());
        let first = speculative(&*conversation);
        let speculated = given.unwrap_or(Mechanism::ScramSha256).name();
        assert_eq!(first.get_str("mechanism").unwrap(), speculated);
        let command = sent(start(&mut *conversation, &hello));
        assert_eq!(command.get_i32("saslStart").unwrap(), 1);
        assert_eq!(command.get_str("$db").unwrap(), "staff");
        assert!(!command.contains_key("db"));
        assert_ne!(payload(&command), payload(&first), "a nonce was used twice");
        // A server before MongoDB 4.4 requires an additional exchange, which is empty.
        let server = serve(expected, &command);
        let command = sent(next(&mut *conversation, &sasl(server.message(), false)));
        let last = server.finish(&payload(&command)).unwrap();
        let command = sent(next(&mut *conversation, &sasl(&last, false)));
        assert_eq!(payload(&command), b"");
        let step = next(&mut *conversation, &sasl(b"", true));
        assert_eq!(step, Ok(AuthStep::Done));
    };
    let [sha_1, sha_256] = Mechanism::ALL;
    let with = |mechanisms: Bson| doc! { "ok": 1, "saslSupportedMechs": mechanisms };
    let both = || with(bson!(["SCRAM-SHA-1", "SCRAM-SHA-256"]));
    let one = || with(bson!(["SCRAM-SHA-1"]));
    check(None, both(), sha_256);
    check(None, one(), sha_1);
    check(None, with(bson!(["PLAIN", "new"])), sha_1);
    check(None, with(bson!([5, "SCRAM-SHA-256"])), sha_256);
    check(None, with(bson!("SCRAM-SHA-256")), sha_1);
    check(None, doc! { "ok": 1 }, sha_1);
    check(Some(sha_1), both(), sha_1);
    check(Some(sha_256), one(), sha_256);
}

#[test]
fn the_source_of_the_connection_string_is_that_of_a_credential_in_code() {
    // The connection string or its TXT record names the database (B-38).
    let check = |mechanism: Option<&str>, source: &str| {
        let mut options = Options::parse("mongodb://a/?authSource=staff").unwrap();
        let mut credential = Credential::new("ada", "pencil");
        credential.mechanism = mechanism.map(Into::into);
        options.credential = Some(credential);
        let first = speculative(&*begin(&account(&options)));
        assert_eq!(first.get_str("db").unwrap(), source, "{mechanism:?}");
    };
    check(None, "staff");
    check(Some("SCRAM-SHA-1"), "staff");
    assert_eq!(Credential::x509().source_or(Some("staff")), "$external");
}

#[test]
fn a_declared_api_is_in_every_command_but_the_one_within_hello() {
    // The API version is declared by the hello itself, not by the command within it (O-9).
    let mut options = options(None);
    options.server_api = Some(ServerApi::v1());
    let mut conversation = begin(&account(&options));
    let first = speculative(&*conversation);
    assert!(!first.contains_key("apiVersion"));
    let command = sent(start(&mut *conversation, &doc! { "ok": 1 }));
    assert_eq!(command.get_str("apiVersion").unwrap(), "1");
    let server = serve(Mechanism::ScramSha1, &command);
    let command = sent(next(&mut *conversation, &sasl(server.message(), false)));
    assert_eq!(command.get_str("apiVersion").unwrap(), "1");
}

#[test]
fn a_reply_that_is_malformed_or_out_of_turn_is_refused() {
    // A malformed or unexpected reply ends the conversation (T-32).
    let account = account(&options(Some("SCRAM-SHA-256")));
    let check = |stage: usize, reply: &dyn Fn(Document) -> Document, part: &str| {
        let mut conversation = begin(&account);
        let server = serve(Mechanism::ScramSha256, &speculative(&*conversation));
        let mut hello = hello(&server);
        if stage == 0 {
            let first = hello.get_document("speculativeAuthenticate").unwrap();
            let first = reply(first.clone());
            hello.insert("speculativeAuthenticate", first);
        }
        let mut step = start(&mut *conversation, &hello);
        if stage > 0 {
            let last = server.finish(&payload(&sent(step))).unwrap();
            let own = sasl(&last, false);
            step = next(&mut *conversation, &if stage == 1 { reply(own) } else { own });
        }
        if stage > 1 {
            sent(step);
            step = next(&mut *conversation, &reply(sasl(b"", true)));
        }
        let error = step.unwrap_err().to_string();
        assert!(error.contains(part), "{error}");
    };
    for stage in 0..=2 {
        for name in ["conversationId", "payload", "done"] {
            let without = |mut reply: Document| {
                reply.remove(name);
                reply
            };
            check(stage, &without, name);
            let other = |mut reply: Document| {
                reply.insert(name, "other");
                reply
            };
            check(stage, &other, name);
        }
        let done = |mut reply: Document| {
            reply.insert("done", stage == 0);
            reply
        };
        if stage != 1 {
            check(stage, &done, "done");
        }
    }
    for stage in 1..=2 {
        let other = |mut reply: Document| {
            reply.insert("conversationId", 8);
            reply
        };
        check(stage, &other, "conversationId");
        let without_ok = |mut reply: Document| {
            reply.remove("ok");
            reply
        };
        check(stage, &without_ok, "ok");
    }
    check(1, &|_| sasl(b"v=AAAA", true), "has not proved");
    check(1, &|_| sasl(b"", true), "malformed at `v`");
    check(0, &|_| sasl(b"r=other,s=QSXC,i=4096", false), "does not belong");
    let mut conversation = begin(&account);
    let error = start(&mut *conversation, &doc! { "ok": 1, "speculativeAuthenticate": 1 });
    assert!(error.unwrap_err().message().contains("speculativeAuthenticate"));
    let error = block_on(begin(&account).start(&[1, 2, 3])).unwrap_err();
    assert!(error.message().contains("document"), "{error}");
}

#[test]
fn the_number_of_a_conversation_is_sent_back_whatever_its_type() {
    let check = |id: Bson, expected: Bson| {
        let mut conversation = begin(&account(&options(None)));
        let server = serve(Mechanism::ScramSha256, &speculative(&*conversation));
        let mut hello = hello(&server);
        let reply = hello.get_document_mut("speculativeAuthenticate").unwrap();
        reply.insert("conversationId", id);
        let command = sent(start(&mut *conversation, &hello));
        assert_eq!(command.get("conversationId"), Some(&expected));
    };
    check(Bson::Int32(-7), Bson::Int32(-7));
    check(Bson::Int64(7), Bson::Int32(7));
    check(Bson::Int64(1 << 40), Bson::Int64(1 << 40));
    check(Bson::Double(1.0), Bson::Int32(1));
}

#[test]
fn the_keys_of_a_password_are_kept_once_the_server_has_proved_that_it_knows_the_user() {
    // Keys are cached for later conversations (T-9).
    let account = account(&options(Some("SCRAM-SHA-256")));

    let mut conversation = begin(&account);
    let server = serve(Mechanism::ScramSha256, &speculative(&*conversation));
    let command = sent(start(&mut *conversation, &hello(&server)));
    next(&mut *conversation, &sasl(b"v=AAAA", true)).unwrap_err();
    assert_eq!(account.shared.cache().0.len(), 0);
    for _ in 0..2 {
        let mut conversation = begin(&account);
        let server = serve(Mechanism::ScramSha256, &speculative(&*conversation));
        let proof = payload(&sent(start(&mut *conversation, &hello(&server))));
        assert_ne!(proof, payload(&command));
        let last = server.finish(&proof).unwrap();
        let step = next(&mut *conversation, &sasl(&last, true));
        assert_eq!(step, Ok(AuthStep::Done));
        assert_eq!(account.shared.cache().0.len(), 1);
    }
}

#[test]
fn other_tasks_run_while_keys_are_derived() {
    // Keys are derived in slices (O-12, T-10).
    let account = account(&options(Some("SCRAM-SHA-256")));
    let mut conversation = begin(&account);
    let nonce = "A".repeat(32);
    let challenge = format!("r={nonce}server,s=QSXCR+Q6sek8bf92,i={MAX_ITERATIONS}");
    let mut speculative = sasl(challenge.as_bytes(), false);
    speculative.remove("ok");
    let hello = doc! { "ok": 1, "speculativeAuthenticate": speculative };
    let hello = hello.to_vec().unwrap();
    let is_answered = Rc::new(Cell::new(false));
    let answered = Rc::clone(&is_answered);
    let mut executor = LocalPool::new();
    let answering = async move {
        conversation.start(&hello).await.unwrap();
        answered.set(true);
    };
    executor.spawner().spawn_local(answering).unwrap();
    executor.run_until(async {
        for _ in 0..10 {
            yield_now().await;
        }
    });
    assert!(!is_answered.get());
    assert!(Rc::strong_count(&is_answered) > 1, "the answer is on its way");
    drop(executor);
    assert_eq!(account.shared.cache().0.len(), 0);
}

#[test]
fn a_prohibited_password_is_an_error_of_the_client() {
    let prohibited = Credential::new("ada", "a\u{7}");
    let options = with_credential(prohibited);
    let account = Account::of(&options).unwrap().unwrap();
    let mut conversation = begin(&account);
    let server = serve(Mechanism::ScramSha256, &speculative(&*conversation));
    let error = start(&mut *conversation, &hello(&server)).unwrap_err();
    assert!(error.message().contains("prohibits"), "{error}");
}

#[test]
fn nonces_of_the_system_differ() {
    let account = Account::of(&options(None)).unwrap().unwrap();
    let nonce = || payload(&speculative(&*begin(&account)));
    assert_ne!(nonce(), nonce());
}

#[test]
fn plain_sends_name_and_password_in_one_command_and_never_within_hello() {
    // A single message contains the name and the password (T-8; Authentication: "PLAIN",
    // "Conversation").
    let uri = "mongodb://user:pencil@a/?authMechanism=PLAIN&tls=true";
    let mut conversation = begin(&account(&Options::parse(uri).unwrap()));
    assert_eq!(conversation.hello_auth(), HelloAuth::default());
    let command = sent(start(&mut *conversation, &doc! { "ok": 1 }));
    assert_eq!(command.get_str("mechanism").unwrap(), "PLAIN");
    assert_eq!(command.get_str("$db").unwrap(), "$external");
    assert_eq!(payload(&command), b"\0user\0pencil");
    next(&mut *conversation, &sasl(b"", false)).unwrap_err();
    assert_eq!(next(&mut *conversation, &sasl(b"", true)), Ok(AuthStep::Done));
}
