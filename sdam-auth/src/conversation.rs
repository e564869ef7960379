//! The conversations of the authentication mechanisms, their commands, and the replies of servers.

#[cfg(test)]
mod tests;

use std::{mem, sync::Arc};

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use bson::{RawBsonRef, RawDocument};
use sdam_core::{document::DocumentWriter, error::Error, hello::HelloAuth};
use sdam_transport::{
    async_trait,
    pool::{AuthStep, Conversation},
    runtime::Entropy,
};
use zeroize::Zeroizing;

use crate::{
    account::{KeyId, Shared, User},
    scram::{ClientFinal, ClientFirst, Keys, Mechanism},
};

/// A PLAIN conversation, which sends the name and the password unencrypted (RFC 4616;
/// Authentication: "PLAIN").
pub(crate) struct PlainConversation(pub(crate) Arc<Shared>);

#[async_trait]
impl Conversation for PlainConversation {
    fn hello_auth(&self) -> HelloAuth {
        HelloAuth::default()
    }

    async fn start(&mut self, _: &[u8]) -> Result<AuthStep, Error> {
        let User { name, password, .. } = &self.0.user;
        let payload = Zeroizing::new(format!("\0{name}\0{}", **password));
        Ok(self.0.send(|command| sasl_start(command, "PLAIN", payload.as_bytes())))
    }

    async fn next(&mut self, reply: &[u8]) -> Result<AuthStep, Error> {
        if SaslReply::read(reply)?.done { Ok(AuthStep::Done) } else { Err(malformed("done")) }
    }
}

/// A MONGODB-X509 conversation, which consists of a single command. The server takes the user from
/// the client's certificate (Authentication: "MONGODB-X509").
pub(crate) struct X509Conversation(pub(crate) Arc<Shared>);

impl X509Conversation {
    fn write(&self, command: &mut DocumentWriter) {
        command.int32("authenticate", 1);
        command.text("mechanism", "MONGODB-X509");
        let user = &*self.0.user.name;
        command.text("user", (!user.is_empty()).then_some(user));
    }
}

#[async_trait]
impl Conversation for X509Conversation {
    fn hello_auth(&self) -> HelloAuth {
        self.0.speculate(|command| self.write(command))
    }

    async fn start(&mut self, hello: &[u8]) -> Result<AuthStep, Error> {
        Ok(match speculative(hello)? {
            Some(_) => AuthStep::Done,
            None => self.0.send(|command| self.write(command)),
        })
    }

    async fn next(&mut self, reply: &[u8]) -> Result<AuthStep, Error> {
        check_ok(reply)?;
        Ok(AuthStep::Done)
    }
}

/// A SCRAM conversation, whose first command is sent within hello.
pub(crate) struct ScramConversation {
    shared: Arc<Shared>,
    entropy: Arc<dyn Entropy>,
    is_negotiated: bool,
    mechanism: Mechanism,
    first: ClientFirst,
    /// The server's id for the conversation.
    id: i64,
    state: ScramState,
}

/// The next expected reply.
enum ScramState {
    First,
    Final { client: ClientFinal, key_id: KeyId, keys: Arc<Keys> },
    Empty,
    None,
}

impl ScramConversation {
    /// Creates a conversation. If `mechanism` is `None`, the mechanism is negotiated.
    pub(crate) fn new(
        shared: Arc<Shared>,
        mechanism: Option<Mechanism>,
        entropy: Arc<dyn Entropy>,
    ) -> Self {
        let first = ClientFirst::new(&shared.user.name, &nonce(&*entropy));
        Self {
            shared,
            entropy,
            is_negotiated: mechanism.is_none(),
            // Handshake: "drivers MUST use the SCRAM-SHA-256 mechanism for speculative
            // authentication".
            mechanism: mechanism.unwrap_or(Mechanism::ScramSha256),
            first,
            id: 0,
            state: ScramState::First,
        }
    }

    /// Returns the first command. Needed if the server ignored the command that was sent within
    /// hello.
    fn begin(&mut self, hello: &[u8]) -> Result<AuthStep, Error> {
        if self.is_negotiated && !supports(hello, Mechanism::ScramSha256.name())? {
            self.mechanism = Mechanism::ScramSha1;
        }
        // Create a new nonce, because a nonce must never be sent twice.
        self.first = ClientFirst::new(&self.shared.user.name, &nonce(&*self.entropy));
        Ok(self.shared.send(|command| self.write_start(command)))
    }

    /// Answers the server's first message.
    async fn answer(&mut self, reply: &SaslReply<'_>) -> Result<AuthStep, Error> {
        if reply.done {
            return Err(malformed("done"));
        }
        self.id = reply.conversation;
        let challenge = self.first.challenge(reply.payload)?;
        let (salt, iterations) = (challenge.salt().into(), challenge.iterations());
        let key_id = KeyId { mechanism: self.mechanism, salt, iterations };
        let keys = self.shared.keys(&key_id).await?;
        let client = challenge.answer(Arc::clone(&keys));
        let step = self.send_payload(client.message());
        self.state = ScramState::Final { client, key_id, keys };
        Ok(step)
    }

    fn write_start(&self, command: &mut DocumentWriter) {
        sasl_start(command, self.mechanism.name(), &self.first.message());
    }

    fn send_payload(&self, payload: &[u8]) -> AuthStep {
        self.shared.send(|command| sasl_continue(command, self.id, payload))
    }
}

#[async_trait]
impl Conversation for ScramConversation {
    fn hello_auth(&self) -> HelloAuth {
        let User { name, source, .. } = &self.shared.user;
        let mut auth = self.shared.speculate(|command| self.write_start(command));
        if self.is_negotiated {
            // Authentication: "The username MUST NOT be modified".
            auth.sasl_supported_mechs = Some(format!("{source}.{name}").into());
        }
        auth
    }

    async fn start(&mut self, hello: &[u8]) -> Result<AuthStep, Error> {
        match speculative(hello)? {
            Some(reply) => self.answer(&SaslReply::of(reply)?).await,
            None => self.begin(hello),
        }
    }

    async fn next(&mut self, reply: &[u8]) -> Result<AuthStep, Error> {
        let reply = SaslReply::read(reply)?;
        let state = mem::replace(&mut self.state, ScramState::None);
        if !matches!(state, ScramState::First) && reply.conversation != self.id {
            return Err(malformed("conversationId"));
        }
        match state {
            ScramState::First => self.answer(&reply).await,
            ScramState::Final { client, key_id, keys } => {
                client.verify(reply.payload)?;
                self.shared.remember(key_id, keys);
                if reply.done {
                    return Ok(AuthStep::Done);
                }
                // Old servers require an empty exchange (Authentication: "Backwards
                // Compatibility").
                self.state = ScramState::Empty;
                Ok(self.send_payload(&[]))
            }
            ScramState::Empty if reply.done => Ok(AuthStep::Done),
            ScramState::Empty | ScramState::None => Err(malformed("done")),
        }
    }
}

/// Returns a nonce: random printable characters without commas.
fn nonce(entropy: &dyn Entropy) -> String {
    let mut bytes = [0; 24];
    entropy.fill(&mut bytes);
    BASE64.encode(bytes)
}

/// Writes the first command of a SASL conversation (Authentication: "SASL Mechanisms").
fn sasl_start(command: &mut DocumentWriter, mechanism: &str, payload: &[u8]) {
    command.int32("saslStart", 1);
    command.text("mechanism", mechanism);
    command.binary("payload", payload);
    command.int32("autoAuthorize", 1);
    // Servers before MongoDB 4.4 ignore this option (Authentication: "skipEmptyExchange").
    command.document("options", |options| {
        options.boolean("skipEmptyExchange", true);
    });
}

/// Writes a subsequent command of a SASL conversation.
fn sasl_continue(command: &mut DocumentWriter, conversation: i64, payload: &[u8]) {
    command.int32("saslContinue", 1);
    match i32::try_from(conversation) {
        Ok(short) => command.int32("conversationId", short),
        Err(_) => command.int64("conversationId", conversation),
    }
    command.binary("payload", payload);
}

/// A reply in a SASL conversation, or the corresponding part of the reply to hello.
struct SaslReply<'r> {
    conversation: i64,
    payload: &'r [u8],
    done: bool,
}

impl<'r> SaslReply<'r> {
    /// Reads the reply to a command.
    fn read(reply: &'r [u8]) -> Result<Self, Error> {
        check_ok(reply)?;
        Self::of(document(reply)?)
    }

    /// Reads the reply to a speculative authentication.
    fn of(reply: &'r RawDocument) -> Result<Self, Error> {
        Ok(Self {
            conversation: number(reply, "conversationId")
                .ok_or_else(|| malformed("conversationId"))?,
            payload: reply.get_binary("payload").map_err(|_| malformed("payload"))?.bytes,
            done: reply.get_bool("done").map_err(|_| malformed("done"))?,
        })
    }
}

/// Checks that the reply reports success. It is not enough that the reply contains no error.
fn check_ok(reply: &[u8]) -> Result<(), Error> {
    match number(document(reply)?, "ok") {
        Some(1) => Ok(()),
        _ => Err(malformed("ok")),
    }
}

/// Returns the server's part of a speculative authentication in the reply to hello.
fn speculative(hello: &[u8]) -> Result<Option<&RawDocument>, Error> {
    match field(document(hello)?, "speculativeAuthenticate") {
        None => Ok(None),
        Some(RawBsonRef::Document(reply)) => Ok(Some(reply)),
        Some(_) => Err(malformed("speculativeAuthenticate")),
    }
}

/// Returns whether the reply to hello lists `mechanism` for the user.
fn supports(hello: &[u8], mechanism: &str) -> Result<bool, Error> {
    // Authentication: "Drivers MUST NOT validate the contents of the saslSupportedMechs".
    let list = document(hello)?.get_array("saslSupportedMechs");
    Ok(list.is_ok_and(|list| {
        let mut items = list.into_iter();
        items.any(|item| item.is_ok_and(|item| item.as_str() == Some(mechanism)))
    }))
}

/// Returns the error for a reply in which `field` is malformed.
fn malformed(field: &str) -> Error {
    Error::auth(format!("the server's reply to the authentication is malformed at `{field}`"))
}

fn document(reply: &[u8]) -> Result<&RawDocument, Error> {
    RawDocument::from_bytes(reply).map_err(|_| malformed("document"))
}

fn field<'r>(document: &'r RawDocument, name: &str) -> Option<RawBsonRef<'r>> {
    document.get(name).ok().flatten()
}

fn number(document: &RawDocument, name: &str) -> Option<i64> {
    match field(document, name)? {
        RawBsonRef::Int32(number) => Some(number.into()),
        RawBsonRef::Int64(number) => Some(number),
        RawBsonRef::Double(1.0) | RawBsonRef::Boolean(true) => Some(1),
        _ => None,
    }
}
