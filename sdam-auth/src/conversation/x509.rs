use std::sync::Arc;

use sdam_core::{document::DocumentWriter, error::Error, hello::HelloAuth};
use sdam_transport::{
    async_trait,
    pool::{AuthStep, Conversation},
};

use crate::{command, reply, shared::Shared};

const SOURCE: &str = "$external";

/// A conversation with a single command, after which the server takes the user from the client's
/// certificate (Authentication: "MONGODB-X509").
pub(crate) struct X509Conversation {
    shared: Arc<Shared>,
    user: Option<Box<str>>,
}

impl X509Conversation {
    pub(crate) fn new(shared: Arc<Shared>, user: Option<Box<str>>) -> Self {
        Self { shared, user }
    }

    fn write(&self, command: &mut DocumentWriter) {
        command.int32("authenticate", 1);
        command.text("mechanism", "MONGODB-X509");
        command.text("user", self.user.as_deref());
    }
}

#[async_trait]
impl Conversation for X509Conversation {
    fn hello_auth(&self) -> HelloAuth {
        let first = command::speculative(SOURCE, |command| self.write(command));
        HelloAuth::default().with_speculative_authenticate(first)
    }

    async fn start(&mut self, hello: &[u8]) -> Result<AuthStep, Error> {
        if reply::speculative(hello)?.is_some() {
            return Ok(AuthStep::Done);
        }
        let api = self.shared.server_api.as_ref();
        let first = command::command(SOURCE, api, |command| self.write(command));
        Ok(AuthStep::Send(first))
    }

    async fn next(&mut self, reply: &[u8]) -> Result<AuthStep, Error> {
        reply::check_ok(reply)?;
        Ok(AuthStep::Done)
    }
}
