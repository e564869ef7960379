//! SCRAM authentication. Most commands are refused until a connection has been authenticated.

use bson::{Binary, Document, doc, spec::BinarySubtype};
use sdam_auth::testing::ServerConversation;
use sdam_core::rng::mix;

use crate::{
    Cluster, ConnectionId,
    message::{
        AUTHENTICATION_FAILED, CommandError, CommandResult, PROTOCOL_ERROR, Request, UNAUTHORIZED,
        flag, number, refuse,
    },
    version::ServerVersion,
};

/// The conversation id, which is the same on every connection.
const CONVERSATION: i32 = 1;

/// Commands that need no authentication.
const OPEN_COMMANDS: &[&str] = &["ping", "buildInfo", "buildinfo", "logout"];

/// The authentication state of a connection.
#[derive(Debug, Default)]
pub(super) struct Sasl {
    is_authenticated: bool,
    state: Option<SaslState>,
}

/// The next message expected from the client.
#[derive(Debug)]
enum SaslState {
    Proof { conversation: ServerConversation, skips_empty_exchange: bool },
    Empty,
}

impl Cluster {
    /// Runs `request` if it is an authentication command, and refuses it if it requires
    /// authentication that has not taken place. Returns `None` if the command may run.
    pub(super) fn authenticate(
        &mut self,
        id: ConnectionId,
        version: ServerVersion,
        request: &Request,
        database: &str,
    ) -> Option<CommandResult> {
        if self.users.is_empty() {
            return None;
        }
        let sasl = &mut self.connections.get_mut(&id)?.sasl;
        match &*request.name {
            "saslStart" => Some(self.sasl_start(id, version, &request.body, database)),
            "saslContinue" => Some(sasl.proceed(&request.body)),
            name if sasl.is_authenticated || OPEN_COMMANDS.contains(&name) => None,
            name => Some(refuse(UNAUTHORIZED, format!("command {name} requires authentication"))),
        }
    }

    /// Returns the fields for authentication in the reply to hello.
    pub(super) fn hello_auth(
        &mut self,
        id: ConnectionId,
        version: ServerVersion,
        body: &Document,
    ) -> Document {
        let mut fields = Document::new();
        let user = body.get_str("saslSupportedMechs").ok();
        if let Some(mechanisms) = user.and_then(|user| self.users.mechanisms(user)) {
            fields.insert("saslSupportedMechs", mechanisms);
        }
        if let Ok(start) = body.get_document("speculativeAuthenticate")
            && version.authenticates_speculatively()
            && let Ok(database) = start.get_str("db")
            // If a speculative authentication fails, the server leaves it out of its reply.
            && let Ok(reply) = self.sasl_start(id, version, start, database)
        {
            fields.insert("speculativeAuthenticate", reply);
        }
        fields
    }

    fn sasl_start(
        &mut self,
        id: ConnectionId,
        version: ServerVersion,
        body: &Document,
        database: &str,
    ) -> CommandResult {
        let mechanism = body.get_str("mechanism").unwrap_or_default();
        let connection = self.connections.get_mut(&id).ok_or_else(failed)?;
        let number = u64::from(id.member.0) << 32 | u64::from(connection.number.unsigned_abs());
        let nonce = format!("{:016x}", mix(number));
        let begun = self.users.begin(database, mechanism, payload(body), &nonce);
        let conversation = begun.ok_or_else(failed)?;
        let reply = reply(conversation.message(), false);
        let options = body.get_document("options");
        let skips = options.is_ok_and(|options| flag(options, "skipEmptyExchange"));
        connection.sasl.state = Some(SaslState::Proof {
            conversation,
            skips_empty_exchange: skips && version.authenticates_speculatively(),
        });
        Ok(reply)
    }
}

impl Sasl {
    fn proceed(&mut self, body: &Document) -> CommandResult {
        if number(body, "conversationId") != Some(CONVERSATION.into()) {
            return refuse(PROTOCOL_ERROR, "sasl: Mismatched conversation id");
        }
        match self.state.take() {
            Some(SaslState::Proof { conversation, skips_empty_exchange }) => {
                let last = conversation.finish(payload(body)).ok_or_else(failed)?;
                if skips_empty_exchange {
                    self.is_authenticated = true;
                } else {
                    self.state = Some(SaslState::Empty);
                }
                Ok(reply(&last, skips_empty_exchange))
            }
            Some(SaslState::Empty) => {
                self.is_authenticated = true;
                Ok(reply(&[], true))
            }
            None => refuse(PROTOCOL_ERROR, "No SASL session state found"),
        }
    }
}

fn payload(body: &Document) -> &[u8] {
    body.get_binary_generic("payload").map_or(&[], Vec::as_slice)
}

fn reply(payload: &[u8], done: bool) -> Document {
    let payload = Binary { subtype: BinarySubtype::Generic, bytes: payload.to_vec() };
    doc! { "conversationId": CONVERSATION, "done": done, "payload": payload }
}

fn failed() -> CommandError {
    CommandError::new(AUTHENTICATION_FAILED, "Authentication failed.")
}
