//! The conversations of the authentication mechanisms.

mod scram;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use sdam_core::{document::DocumentWriter, error::Error, hello::HelloAuth};
use sdam_transport::{
    async_trait,
    pool::{AuthStep, Conversation},
};
use zeroize::Zeroizing;

pub(crate) use self::scram::ScramConversation;
use crate::{
    command,
    reply::{self, SaslReply},
    shared::{Shared, User},
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
        Ok(self.0.send(|command| command::sasl_start(command, "PLAIN", payload.as_bytes())))
    }

    async fn next(&mut self, reply: &[u8]) -> Result<AuthStep, Error> {
        if SaslReply::read(reply)?.done {
            Ok(AuthStep::Done)
        } else {
            Err(reply::malformed("done"))
        }
    }
}

/// A conversation that consists of a single command. The server then takes the user from the
/// client's certificate (Authentication: "MONGODB-X509").
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
        Ok(match reply::speculative(hello)? {
            Some(_) => AuthStep::Done,
            None => self.0.send(|command| self.write(command)),
        })
    }

    async fn next(&mut self, reply: &[u8]) -> Result<AuthStep, Error> {
        reply::check_ok(reply)?;
        Ok(AuthStep::Done)
    }
}
