use std::sync::Arc;

use base64::{Engine as _, engine::general_purpose::STANDARD as BASE64};
use sdam_core::{document::DocumentWriter, error::Error, hello::HelloAuth};
use sdam_transport::{
    async_trait,
    entropy::Entropy,
    pool::{AuthStep, Conversation},
};

use crate::{
    cache::KeyId,
    command,
    reply::{self, SaslReply},
    scram::{ClientFinal, ClientFirst, Keys, Mechanism},
    shared::{Shared, User},
};

/// Returns a nonce: random printable characters without commas.
fn nonce(entropy: &dyn Entropy) -> String {
    let mut bytes = [0; 24];
    entropy.fill(&mut bytes);
    BASE64.encode(bytes)
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
    state: State,
}

/// The next expected reply.
enum State {
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
            state: State::First,
        }
    }

    /// Returns the first command. Needed if the server ignored the command that was sent within
    /// hello.
    fn begin(&mut self, hello: &[u8]) -> Result<AuthStep, Error> {
        if self.is_negotiated && !reply::supports(hello, Mechanism::ScramSha256.name())? {
            self.mechanism = Mechanism::ScramSha1;
        }
        // Create a new nonce, because a nonce must never be sent twice.
        self.first = ClientFirst::new(&self.shared.user.name, &nonce(&*self.entropy));
        Ok(self.shared.send(|command| self.write_start(command)))
    }

    /// Answers the server's first message.
    async fn answer(&mut self, reply: &SaslReply<'_>) -> Result<AuthStep, Error> {
        if reply.done {
            return Err(reply::malformed("done"));
        }
        self.id = reply.conversation;
        let challenge = self.first.challenge(reply.payload)?;
        let (salt, iterations) = (challenge.salt().into(), challenge.iterations());
        let key_id = KeyId { mechanism: self.mechanism, salt, iterations };
        let keys = self.shared.keys(&key_id).await?;
        let client = challenge.answer(Arc::clone(&keys));
        let step = self.send_payload(client.message());
        self.state = State::Final { client, key_id, keys };
        Ok(step)
    }

    fn write_start(&self, command: &mut DocumentWriter) {
        command::sasl_start(command, self.mechanism.name(), &self.first.message());
    }

    fn send_payload(&self, payload: &[u8]) -> AuthStep {
        self.shared.send(|command| command::sasl_continue(command, self.id, payload))
    }
}

#[async_trait]
impl Conversation for ScramConversation {
    fn hello_auth(&self) -> HelloAuth {
        let User { name, source, .. } = &self.shared.user;
        let auth = self.shared.speculate(|command| self.write_start(command));
        if self.is_negotiated {
            // Authentication: "The username MUST NOT be modified".
            auth.with_sasl_supported_mechs(format!("{source}.{name}"))
        } else {
            auth
        }
    }

    async fn start(&mut self, hello: &[u8]) -> Result<AuthStep, Error> {
        match reply::speculative(hello)? {
            Some(reply) => self.answer(&SaslReply::of(reply)?).await,
            None => self.begin(hello),
        }
    }

    async fn next(&mut self, reply: &[u8]) -> Result<AuthStep, Error> {
        let reply = SaslReply::read(reply)?;
        let state = std::mem::replace(&mut self.state, State::None);
        if !matches!(state, State::First) && reply.conversation != self.id {
            return Err(reply::malformed("conversationId"));
        }
        match state {
            State::First => self.answer(&reply).await,
            State::Final { client, key_id, keys } => {
                client.verify(reply.payload)?;
                self.shared.remember(key_id, keys);
                if reply.done {
                    return Ok(AuthStep::Done);
                }
                // Old servers require an empty exchange (Authentication: "Backwards
                // Compatibility").
                self.state = State::Empty;
                Ok(self.send_payload(&[]))
            }
            State::Empty if reply.done => Ok(AuthStep::Done),
            State::Empty | State::None => Err(reply::malformed("done")),
        }
    }
}
