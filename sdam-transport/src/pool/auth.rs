use std::fmt::{self, Debug};

use async_trait::async_trait;
use sdam_core::{address::ServerAddress, error::Error, hello::HelloAuth};

/// Authenticates the new connections of pools (Authentication: "Authentication Handshake").
///
/// The builder of a topology takes it, and each pool finds it in
/// [`PoolContext::authenticator`](super::PoolContext::authenticator).
/// [`PoolContext::establish`](super::PoolContext::establish) sends the commands, applies the time
/// limit and reports the errors. Monitors do not authenticate.
///
/// # Contract
///
/// Many connections call `begin` at the same time, with no lock held. Errors, which are created
/// with [`Error::auth`], and `Debug` output must not reveal secrets.
#[async_trait]
pub trait Authenticator: Send + Sync + Debug + 'static {
    /// Begins the authentication of one connection to `server`, before its hello is sent.
    ///
    /// # Errors
    ///
    /// If the conversation cannot begin, for example without credentials.
    ///
    /// # Cancel safety
    ///
    /// The future may be dropped at any time.
    async fn begin(&self, server: &ServerAddress) -> Result<Box<dyn Conversation>, Error>;

    /// Begins to authenticate a connection again, because the server has answered a command with
    /// the error `ReauthenticationRequired` (Authentication: "Reauthentication"). The default
    /// implementation [begins](Self::begin) like the first time; a mechanism with credentials that
    /// expire gets new ones first.
    ///
    /// The conversation gets the reply to the hello of the connection, without its speculative
    /// part. No other hello is sent.
    ///
    /// # Errors
    ///
    /// As [`begin`](Self::begin).
    ///
    /// # Cancel safety
    ///
    /// As [`begin`](Self::begin).
    async fn reauthenticate(&self, server: &ServerAddress) -> Result<Box<dyn Conversation>, Error> {
        self.begin(server).await
    }
}

/// The authentication of one connection, which takes replies and returns commands.
///
/// # Contract
///
/// [`hello_auth`](Self::hello_auth) is called first and once, then [`start`](Self::start) once with
/// the successful reply to hello, then [`next`](Self::next) with the successful reply to each
/// command. An error reply ends the conversation, which is then dropped. After an error or
/// [`AuthStep::Done`], no further method is called.
#[async_trait]
pub trait Conversation: Send {
    /// Returns the fields for authentication that are added to the hello of the connection.
    fn hello_auth(&self) -> HelloAuth;

    /// Processes the reply to hello, a BSON document, and returns the first step.
    ///
    /// # Errors
    ///
    /// If the server's part of a speculative authentication is not acceptable.
    async fn start(&mut self, hello: &[u8]) -> Result<AuthStep, Error>;

    /// Processes the reply to the last command, a BSON document, and returns the next step.
    ///
    /// # Errors
    ///
    /// If the reply is malformed, or if the server did not prove its identity.
    async fn next(&mut self, reply: &[u8]) -> Result<AuthStep, Error>;
}

/// The next step of an authentication.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum AuthStep {
    /// Send this command, a BSON document with `$db`, and process the reply.
    Send(Vec<u8>),
    /// The connection is authenticated.
    Done,
}

impl Debug for AuthStep {
    /// Formats the step without the command, which may contain secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Send(_) => "Send(<hidden>)",
            Self::Done => "Done",
        })
    }
}
