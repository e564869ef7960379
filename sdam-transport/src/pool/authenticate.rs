//! The exchanges of an authentication.

use sdam_core::{
    address::ServerAddress,
    app_error::AppError,
    error::{ErrorKind, ServerError, Stage},
    hello::HelloRequest,
    ids::Generation,
    reply,
};

use super::{AuthError, AuthStep, Authenticator, Conversation, connection::converse};
use crate::{
    connect::Connection,
    error::TransportError,
    wire::{Exchange, WireError, WireMessage},
};

/// The reason why an authentication failed.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub enum AuthFailure {
    /// The connection broke, or received a message that is not the reply.
    Broken(TransportError),
    /// The server answered with this error, parsed from the document of the reply.
    Answered(ServerError, WireMessage),
    /// The client cannot authenticate or rejects the server's reply.
    Refused(AuthError),
}

impl AuthFailure {
    /// Returns the report about the connection of `generation`.
    pub fn app_error(&self, generation: Generation) -> AppError<'_> {
        match self {
            Self::Broken(error) => error.app_error(generation),
            Self::Answered(_, reply) => AppError::reply(generation, Stage::Auth, reply.body()),
            Self::Refused(error) => AppError::auth(generation, error.message()),
        }
    }
}

impl From<AuthFailure> for ServerError {
    fn from(failure: AuthFailure) -> Self {
        match failure {
            AuthFailure::Broken(error) => error.into(),
            AuthFailure::Answered(error, _) => error,
            AuthFailure::Refused(error) => {
                Self::new(ErrorKind::Command, Stage::Auth, error.message())
            }
        }
    }
}

/// Authenticates a connection to `server` that has already exchanged hello, such as a connection
/// that a single-threaded client uses for checks and operations. A pool authenticates in the hello
/// that opens the connection: see [`NewPool::establish_with`](super::NewPool::establish_with).
///
/// `hello` is a later message of the connection; the fields for authentication are added.
///
/// The caller sets the deadline of the connection and reports the failure.
///
/// # Cancel safety
///
/// May be dropped at any time. Between two exchanges the connection stays usable, and another
/// authentication may begin.
pub async fn authenticate(
    connection: &mut dyn Connection,
    exchange: &mut Exchange,
    authenticator: &dyn Authenticator,
    server: &ServerAddress,
    mut hello: HelloRequest,
) -> Result<(), AuthFailure> {
    let conversation = authenticator.begin(server).await;
    let mut conversation = conversation.map_err(AuthFailure::Refused)?;
    hello.auth = Some(Box::new(conversation.hello_auth()));
    let request = exchange.hello(&hello);
    let reply = answer(connection, exchange, request).await?;
    finish(connection, exchange, &mut *conversation, reply.body()).await
}

/// Runs `conversation` to its end. Its first command was part of the hello that `hello` answers.
pub(super) async fn finish(
    connection: &mut dyn Connection,
    exchange: &mut Exchange,
    conversation: &mut dyn Conversation,
    hello: &[u8],
) -> Result<(), AuthFailure> {
    let mut step = conversation.start(hello).await;
    while let AuthStep::Send(command) = step.map_err(AuthFailure::Refused)? {
        let request = exchange.command(&command);
        let reply = answer(connection, exchange, request).await?;
        step = conversation.next(reply.body()).await;
    }
    Ok(())
}

/// Sends a request and returns the successful reply.
async fn answer(
    connection: &mut dyn Connection,
    exchange: &mut Exchange,
    request: Result<WireMessage, WireError>,
) -> Result<WireMessage, AuthFailure> {
    let invalid = |error| AuthFailure::Broken(TransportError::from_wire(Stage::Auth, error));
    let reply = converse(connection, exchange, request.map_err(invalid)?, Stage::Auth).await;
    let reply = reply.map_err(AuthFailure::Broken)?;
    match reply::check(reply.body(), Stage::Auth) {
        Ok(_) => Ok(reply),
        Err(error) => Err(AuthFailure::Answered(error, reply)),
    }
}
