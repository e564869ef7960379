//! Runs the command exchanges of an authentication.

use sdam_core::{
    address::ServerAddress,
    error::{Error, Stage},
    hello::{HelloRequest, without_speculative_reply},
    reply,
};

#[cfg(doc)]
use sdam_core::error::REAUTHENTICATION_REQUIRED;

use super::{AuthStep, Authenticator, Conversation};
use crate::{
    connect::Line,
    wire::{WireError, WireMessage},
};

/// Authenticates the connection `line` to `server` that has already exchanged hello, such as the
/// one that a single-threaded client uses for both checks and operations. A pool does not need this:
/// it begins to authenticate in the hello that opens the connection; see
/// [`PoolContext::establish`](super::PoolContext::establish).
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
/// [`ReauthenticationRequired`](REAUTHENTICATION_REQUIRED). `hello` is the reply to the hello
/// before its first authentication.
///
/// # Errors
///
/// As [`authenticate`]. The stage of the error is [`Stage::Operation`].
///
/// # Cancel safety
///
/// As [`authenticate`].
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
