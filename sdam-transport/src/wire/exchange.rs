//! Checks the order in which a client sends requests and receives replies on one connection.

use std::mem;

use sdam_core::hello::{Hello, HelloRequest};

use super::{OpCode, OpMsg, OpQuery, WireError, WireMessage};

/// The client's view of one connection: the next request id, and the outstanding reply.
///
/// Only one request is outstanding at a time. Its reply must name the request or, within a stream,
/// the previous reply, so that an unrelated message is never mistaken for the reply. Any other
/// message permanently breaks the exchange, because later messages may answer other requests.
#[derive(Clone, Debug)]
pub struct Exchange {
    last_request_id: i32,
    state: ExchangeState,
    max_message_size: usize,
    max_command_size: usize,
}

#[derive(Clone, Copy, Debug, Default)]
enum ExchangeState {
    /// A request may be sent.
    #[default]
    Idle,
    Due(Due),
    Broken,
}

/// The next expected reply.
#[derive(Clone, Copy, Debug)]
struct Due {
    response_to: i32,
    streaming_allowed: bool,
}

impl Default for Exchange {
    fn default() -> Self {
        Self::new()
    }
}

impl Exchange {
    /// Creates the state of a connection on which nothing has been sent.
    pub fn new() -> Self {
        let hello = Hello::default();
        Self {
            last_request_id: 0,
            state: ExchangeState::Idle,
            max_message_size: hello.max_message_size(),
            max_command_size: hello.max_command_size(),
        }
    }

    /// Makes later requests obey the size limits that the server has announced in its reply to
    /// hello. Until then, the limits are those that every supported server accepts.
    pub(crate) fn set_limits(&mut self, hello: &Hello) {
        self.max_message_size = hello.max_message_size();
        self.max_command_size = hello.max_command_size();
    }

    /// Creates the message for `hello`. From then on, the reply to it is outstanding.
    ///
    /// # Errors
    ///
    /// [`WireError::ReplyOutstanding`] if the reply to an earlier request, or the end of a stream,
    /// has not arrived; [`WireError::BrokenOff`] after a message that was out of order;
    /// [`WireError::NotInOpQuery`] if `hello` requires OP_QUERY but cannot be sent that way
    /// (Handshake: "`hello` is never sent by OP_QUERY").
    pub fn hello(&mut self, hello: &HelloRequest) -> Result<WireMessage, WireError> {
        if hello.op_query && (hello.modern || hello.awaiting.is_some() || hello.exhaust_allowed) {
            return Err(WireError::NotInOpQuery);
        }
        let body = hello.encode();
        self.request(hello.exhaust_allowed, |request_id| {
            if hello.op_query {
                OpQuery {
                    request_id,
                    flags: OpQuery::SECONDARY_OK,
                    collection: "admin.$cmd",
                    body: &body,
                }
                .encode()
            } else {
                OpMsg {
                    request_id,
                    exhaust_allowed: hello.exhaust_allowed,
                    body: &body,
                    ..OpMsg::default()
                }
                .encode()
            }
        })
    }

    /// Creates the message for the BSON document `command`. From then on, the reply to it is
    /// outstanding.
    ///
    /// # Errors
    ///
    /// Fails in the same cases as [`hello`](Self::hello), with [`WireError::Document`] if `command`
    /// is not BSON, and with [`WireError::CommandTooLong`] or [`WireError::TooLong`] if the server
    /// does not accept its size. The exchange then stays usable.
    pub fn command(&mut self, command: &[u8]) -> Result<WireMessage, WireError> {
        self.request(false, |request_id| {
            OpMsg { request_id, body: command, ..OpMsg::default() }.encode()
        })
    }

    /// Notes that `message`, which a driver has framed itself, is being sent. From then on, its
    /// reply is outstanding, unless it has none ([`WireMessage::more_to_come`]). If another reply is
    /// outstanding, the exchange is broken.
    ///
    /// # Errors
    ///
    /// If the server does not accept the size of `message`, see [`command`](Self::command).
    pub(crate) fn sending(&mut self, message: &WireMessage) -> Result<(), WireError> {
        self.check_size(message)?;
        let due =
            Due { response_to: message.request_id(), streaming_allowed: message.exhaust_allowed() };
        self.state = match self.state {
            ExchangeState::Idle if message.more_to_come() => ExchangeState::Idle,
            ExchangeState::Idle => ExchangeState::Due(due),
            ExchangeState::Due(_) | ExchangeState::Broken => ExchangeState::Broken,
        };
        Ok(())
    }

    /// Checks that `message` is the outstanding reply. If [more](WireMessage::more_to_come) replies
    /// follow it, no request may be sent until the last one has arrived.
    ///
    /// # Errors
    ///
    /// A [`WireError`] if the message is out of order. From then on, the connection is unusable and
    /// every call fails.
    pub fn accept(&mut self, message: &WireMessage) -> Result<(), WireError> {
        // The exchange is broken from now on, unless the message passes every check.
        let due = match mem::replace(&mut self.state, ExchangeState::Broken) {
            ExchangeState::Due(due) => due,
            ExchangeState::Idle => return Err(WireError::UnexpectedReply),
            ExchangeState::Broken => return Err(WireError::BrokenOff),
        };
        if message.op_code() == OpCode::Query {
            return Err(WireError::NotAReply);
        }
        if message.response_to() != due.response_to {
            return Err(WireError::WrongResponseTo {
                expected: due.response_to,
                actual: message.response_to(),
            });
        }
        let more_to_come = message.more_to_come();
        if more_to_come && !due.streaming_allowed {
            return Err(WireError::UnexpectedMoreToCome);
        }
        self.state = if more_to_come {
            ExchangeState::Due(Due { response_to: message.request_id(), ..due })
        } else {
            ExchangeState::Idle
        };
        Ok(())
    }

    /// Breaks the exchange because a reply could not be understood. From then on, the exchange
    /// neither creates nor accepts messages.
    pub fn break_off(&mut self) {
        self.state = ExchangeState::Broken;
    }

    /// Returns whether a request may be sent: no reply is outstanding, and the exchange is not
    /// broken.
    pub fn is_usable(&self) -> bool {
        matches!(self.state, ExchangeState::Idle)
    }

    fn request(
        &mut self,
        streaming_allowed: bool,
        encode: impl FnOnce(i32) -> Result<WireMessage, WireError>,
    ) -> Result<WireMessage, WireError> {
        match self.state {
            ExchangeState::Idle => {}
            ExchangeState::Due(_) => return Err(WireError::ReplyOutstanding),
            ExchangeState::Broken => return Err(WireError::BrokenOff),
        }
        // An id only has to differ from the ids of outstanding requests. It must not be 0, which
        // means "no message" in `responseTo`.
        let request_id = self.last_request_id.checked_add(1).unwrap_or(1);
        let message = encode(request_id)?;
        self.check_size(&message)?;
        self.last_request_id = request_id;
        self.state = ExchangeState::Due(Due { response_to: request_id, streaming_allowed });
        Ok(message)
    }

    fn check_size(&self, message: &WireMessage) -> Result<(), WireError> {
        let (length, limit) = (message.body().len(), self.max_command_size);
        if length > limit {
            return Err(WireError::CommandTooLong { length, limit });
        }
        let (length, limit) = (message.as_bytes().len(), self.max_message_size);
        if length > limit {
            return Err(WireError::TooLong { length, limit });
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests;
