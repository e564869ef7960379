//! Authentication: the traits of authenticators, and the exchange of their commands.

use std::fmt::{self, Debug};

use async_trait::async_trait;
#[cfg(doc)]
use sdam_core::error::REAUTHENTICATION_REQUIRED;
use sdam_core::{
    address::ServerAddress,
    error::{Error, Stage},
    hello::{HelloAuth, HelloRequest, without_speculative_reply},
    reply,
};

use crate::{
    connect::Line,
    wire::{WireError, WireMessage},
};

/// Authenticates the new connections of pools (Authentication: "Authentication Handshake").
///
/// A program passes the authenticator to the builder of a topology, and each pool finds it in
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
    /// The same as for [`begin`](Self::begin).
    ///
    /// # Cancel safety
    ///
    /// The same as for [`begin`](Self::begin).
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

/// Authenticates the connection `line` to `server`, on which hello has already been exchanged. A
/// single-threaded client needs this for the connection that it uses for both checks and
/// operations. A pool does not need this function: it begins to authenticate in the hello that
/// opens the connection; see [`PoolContext::establish`](super::PoolContext::establish).
///
/// `hello` is a hello request. The fields for authentication are added to it before it is sent.
///
/// The caller sets the deadline of the connection and reports the error. Returns the reply to
/// `hello`, for [`reauthenticate`].
///
/// # Errors
///
/// If the connection broke or received a message that is not the reply, if the server answered with
/// an error, if the client cannot authenticate, or if the client rejects the server's reply. The
/// stage of the error is [`Stage::Auth`].
///
/// # Cancel safety
///
/// The future may be dropped at any time. If it is dropped between two exchanges, the connection
/// stays usable, and another authentication may begin.
pub async fn authenticate(
    line: &mut Line,
    authenticator: &dyn Authenticator,
    server: &ServerAddress,
    mut hello: HelloRequest,
) -> Result<Box<[u8]>, Error> {
    let conversation = authenticator.begin(server).await;
    let mut conversation = conversation?;
    hello.auth = Some(Box::new(conversation.hello_auth()));
    let request = line.exchange().hello(&hello);
    let reply = answer(line, request).await?;
    finish(line, &mut *conversation, reply.body()).await?;
    Ok(without_speculative_reply(reply.body()).into())
}

/// Authenticates a connection again, because the server has answered a command on it with the error
/// [`ReauthenticationRequired`](REAUTHENTICATION_REQUIRED). `hello` is the reply to the hello that
/// preceded the first authentication of the connection.
///
/// # Errors
///
/// The same as for [`authenticate`]. The stage of the error is [`Stage::Operation`].
///
/// # Cancel safety
///
/// The same as for [`authenticate`].
pub async fn reauthenticate(
    line: &mut Line,
    authenticator: &dyn Authenticator,
    server: &ServerAddress,
    hello: &[u8],
) -> Result<(), Error> {
    let authentication = async {
        let mut conversation = authenticator.reauthenticate(server).await?;
        // No hello is sent that could contain these fields.
        drop(conversation.hello_auth());
        finish(line, &mut *conversation, hello).await
    };
    let outcome = authentication.await;
    outcome.map_err(|error| error.at(Stage::Operation).within("authenticating again"))
}

/// Runs `conversation` to its end. `hello` is the reply to the hello that contained the
/// conversation's first command.
pub(super) async fn finish(
    line: &mut Line,
    conversation: &mut dyn Conversation,
    hello: &[u8],
) -> Result<(), Error> {
    let mut step = conversation.start(hello).await;
    while let AuthStep::Send(command) = step? {
        let request = line.exchange().command(&command);
        let reply = answer(line, request).await?;
        step = conversation.next(reply.body()).await;
    }
    Ok(())
}

/// Sends a request and returns the successful reply.
async fn answer(
    line: &mut Line,
    request: Result<WireMessage, WireError>,
) -> Result<WireMessage, Error> {
    let reply = line.converse(request, Stage::Auth).await?;
    reply::check(reply.body(), Stage::Auth)?;
    Ok(reply)
}
