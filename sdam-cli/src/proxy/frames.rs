//! Finds the boundaries of messages in relayed bytes.

use super::{mask::Mask, message::Message};

/// The state of a connection: the requests of the client, and the replies of the member.
#[derive(Clone, Debug, Default)]
pub(super) struct Exchange {
    requests: Message,
    replies: Message,
    /// The number of requests whose reply is not complete yet.
    outstanding: u64,
    /// True if the last reply announced that another reply follows without a request.
    streams: bool,
    /// True if a request other than hello was sent.
    commands: bool,
    /// The mask that changes hello replies; `None` if all replies are relayed unchanged.
    mask: Option<Mask>,
}

impl Exchange {
    /// Creates the state of a new connection on which hello replies are changed.
    pub(super) fn masked() -> Self {
        Self { mask: Some(Mask::default()), ..Self::default() }
    }

    /// Processes bytes that are sent to the member. Returns false if they are not valid messages.
    pub(super) fn send(&mut self, bytes: &[u8]) -> bool {
        let Self { requests, outstanding, streams, commands, mask, .. } = self;
        requests.take(bytes, |_, message| {
            if !message.is_complete() {
                return;
            }
            let is_hello = message.is_hello();
            *commands |= !is_hello;
            if message.is_answered() {
                *outstanding += 1;
                if let Some(mask) = mask.as_mut().filter(|_| is_hello) {
                    mask.asked(message.request_id());
                }
            }
            *streams = false;
        })
    }

    /// Processes bytes that the member has sent. Returns false if they are not valid messages.
    pub(super) fn receive(&mut self, bytes: &[u8]) -> bool {
        let Self { replies, outstanding, streams, mask, .. } = self;
        let mut mask = mask.as_mut().and_then(|mask| mask.begins().then_some(mask));
        replies.take(bytes, |piece, message| {
            if let Some(mask) = &mut mask {
                mask.take(piece, message);
            }
            if !message.is_complete() {
                return;
            }
            *streams = message.more_to_come();
            if !*streams {
                *outstanding = outstanding.saturating_sub(1);
            }
        })
    }

    /// Returns whether a request other than hello was sent.
    pub(super) fn has_commands(&self) -> bool {
        self.commands
    }

    /// Returns whether the client sees the members' own hello replies.
    pub(super) fn shows_members(&self) -> bool {
        self.mask.is_none()
    }

    /// Returns the bytes to send to the client instead of the bytes last received, or `None` if
    /// those can be sent unchanged.
    pub(super) fn instead(&mut self) -> Option<Vec<u8>> {
        self.mask.as_mut()?.instead()
    }

    /// Returns whether the client is between two requests.
    pub(super) fn is_between_requests(&self) -> bool {
        self.requests.is_empty()
    }

    /// Returns whether the connection could be closed now without truncating a message or losing a
    /// reply.
    pub(super) fn is_complete(&self) -> bool {
        let is_answered = self.outstanding == 0 || self.streams;
        self.is_between_requests() && self.replies.is_empty() && is_answered
    }

    /// Returns whether a reply is outstanding.
    pub(super) fn awaits(&self) -> bool {
        self.outstanding > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OP_MSG: i32 = 2013;
    const MORE_TO_COME: u32 = 1 << 1;

    fn message(code: i32, flags: u32, length: i32) -> Vec<u8> {
        let mut bytes = Vec::new();
        for word in [length, 1, 0, code, flags.cast_signed()] {
            bytes.extend(word.to_le_bytes());
        }
        bytes.resize(length as usize, 7);
        bytes
    }

    #[test]
    fn a_reply_is_complete_at_its_last_byte_however_it_is_cut() {
        let (request, reply) = (message(OP_MSG, 0, 60), message(OP_MSG, 0, 40_000));
        for size in [1, 3, 4, 19, 20, 33, 60, 40_000] {
            let mut exchange = Exchange::default();
            for piece in request.chunks(size) {
                assert!(exchange.send(piece));
            }
            assert!(exchange.awaits() && exchange.is_between_requests());
            let pieces: Vec<_> = reply.chunks(size).collect();
            for (number, piece) in (1..).zip(&pieces) {
                assert!(!exchange.is_complete());
                assert!(exchange.receive(piece));
                assert_eq!(exchange.is_complete(), number == pieces.len(), "{size}");
            }
        }
    }

    #[test]
    fn a_request_is_not_complete_before_its_end() {
        let mut exchange = Exchange::default();
        let request = message(2004, 0, 58);
        assert!(exchange.send(&request[..57]));
        assert!(!exchange.is_complete() && !exchange.is_between_requests());
        assert!(exchange.send(&request[57..]));
        assert!(exchange.is_between_requests() && !exchange.is_complete());
    }

    #[test]
    fn requests_without_a_reply_and_streams_of_replies_can_be_cut_between_messages() {
        let mut exchange = Exchange::default();
        for request in [message(OP_MSG, MORE_TO_COME, 30), message(2002, 0, 16)] {
            assert!(exchange.send(&request));
            assert!(exchange.is_complete());
        }
        // A streaming monitor permits the server to send several replies to its hello.
        assert!(exchange.send(&message(OP_MSG, 1 << 16, 40)));
        let reply = message(OP_MSG, MORE_TO_COME, 50);
        for _ in 0..2 {
            assert!(exchange.receive(&reply[..30]) && !exchange.is_complete());
            assert!(exchange.receive(&reply[30..]) && exchange.is_complete());
        }
        assert!(exchange.receive(&message(OP_MSG, 0, 50)) && !exchange.awaits());
    }

    #[test]
    fn other_protocols_are_noticed() {
        assert!(!Exchange::default().send(b"GET / HTTP/1.1\r\n"));
        assert!(!Exchange::default().send(&[15, 0, 0, 0]));
        assert!(!Exchange::default().receive(&(-1_i32).to_le_bytes()));
    }
}
