use std::sync::Arc;

use sdam_core::{error::Error, hello::HelloAuth};
use sdam_transport::{
    async_trait,
    pool::{AuthStep, Conversation},
};
use zeroize::Zeroizing;

use crate::{
    command,
    method::User,
    reply::{self, SaslReply},
    shared::Shared,
};

/// A PLAIN conversation, which sends the name and the password unencrypted (RFC 4616;
/// Authentication: "PLAIN").
pub(crate) struct PlainConversation {
    shared: Arc<Shared>,
    user: Arc<User>,
}

impl PlainConversation {
    pub(crate) fn new(shared: Arc<Shared>, user: Arc<User>) -> Self {
        Self { shared, user }
    }
}

#[async_trait]
impl Conversation for PlainConversation {
    fn hello_auth(&self) -> HelloAuth {
        HelloAuth::default()
    }

    async fn start(&mut self, _: &[u8]) -> Result<AuthStep, Error> {
        let User { name, password, source } = &*self.user;
        let payload = Zeroizing::new(format!("\0{name}\0{}", **password));
        let api = self.shared.server_api.as_ref();
        Ok(AuthStep::Send(command::command(source, api, |command| {
            command::sasl_start(command, "PLAIN", payload.as_bytes());
        })))
    }

    async fn next(&mut self, reply: &[u8]) -> Result<AuthStep, Error> {
        if SaslReply::read(reply)?.done {
            Ok(AuthStep::Done)
        } else {
            Err(reply::malformed("done"))
        }
    }
}
