//! The boundaries of messages in relayed bytes.

use super::mask::Mask;

/// The bytes at the beginning of a message that are looked at: the header, the flags, and the name
/// of a command to `admin`.
const HEAD: usize = 64;
/// The length of a header, which is the least length of a message.
const HEADER: usize = 16;
/// The greatest length of a message that a member accepts, and some.
const MOST: usize = 64 << 20;

/// The operation codes of messages without a reply: update, insert, delete and killCursors.
const UNANSWERED: [i32; 4] = [2001, 2002, 2006, 2007];
const OP_QUERY: i32 = 2004;
const OP_MSG: i32 = 2013;
/// The names of the command hello.
const HELLOS: [&[u8]; 3] = [b"hello", b"isMaster", b"ismaster"];
/// The flag of an `OP_MSG` that another message follows it: no reply to a request, or another reply.
const MORE_TO_COME: u32 = 1 << 1;

/// The requests of a client, and the replies of a member.
#[derive(Clone, Debug, Default)]
pub(super) struct Exchange {
    requests: Message,
    replies: Message,
    /// The number of requests without a complete reply.
    outstanding: u64,
    /// True if the last reply announced another one without a request.
    streams: bool,
    /// Changes hello replies; `None` if all replies are relayed unchanged.
    mask: Option<Mask>,
}

impl Exchange {
    /// Creates the state before the first message, with hello replies that are changed.
    pub(super) fn masked() -> Self {
        Self { mask: Some(Mask::default()), ..Self::default() }
    }

    /// Takes bytes that are sent to the member. Returns false if they are no messages.
    pub(super) fn send(&mut self, bytes: &[u8]) -> bool {
        let Self { requests, outstanding, streams, mask, .. } = self;
        requests.take(bytes, |_, message| {
            if !message.is_complete() {
                return;
            }
            if !message.more_to_come() && !UNANSWERED.contains(&message.code()) {
                *outstanding += 1;
                if let Some(mask) = mask.as_mut().filter(|_| message.is_hello()) {
                    mask.asked(message.request_id());
                }
            }
            *streams = false;
        })
    }

    /// Takes bytes that the member has sent. Returns false if they are no messages.
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

    /// Returns what the client gets instead of the bytes that were last received, if they are changed.
    pub(super) fn instead(&mut self) -> Option<Vec<u8>> {
        self.mask.as_mut()?.instead()
    }

    /// Returns whether the client is between two requests.
    pub(super) fn is_between_requests(&self) -> bool {
        self.requests.at == 0
    }

    /// Returns whether nothing is cut off if the connection is closed now.
    pub(super) fn is_complete(&self) -> bool {
        let is_answered = self.outstanding == 0 || self.streams;
        self.is_between_requests() && self.replies.at == 0 && is_answered
    }

    /// Returns whether a reply is outstanding.
    pub(super) fn awaits(&self) -> bool {
        self.outstanding > 0
    }
}

/// The current message of one direction, as far as it is known.
#[derive(Clone, Debug)]
pub(super) struct Message {
    /// Its first bytes; those that are not known yet are 0.
    head: [u8; HEAD],
    /// The number of bytes so far.
    at: usize,
}

impl Default for Message {
    fn default() -> Self {
        Self { head: [0; HEAD], at: 0 }
    }
}

impl Message {
    /// Takes the next bytes, and passes each piece of a message to `each`. Returns false if the
    /// length of a message is impossible.
    fn take(&mut self, mut bytes: &[u8], mut each: impl FnMut(&[u8], &Self)) -> bool {
        while !bytes.is_empty() {
            let until = if self.at < 4 { 4 } else { self.length() };
            let count = bytes.len().min(until - self.at);
            let (now, rest) = bytes.split_at(count);
            let head = self.head.get_mut(self.at..).unwrap_or_default();
            head.iter_mut().zip(now).for_each(|(head, byte)| *head = *byte);
            self.at += count;
            bytes = rest;
            if self.at == 4 && !(HEADER..=MOST).contains(&self.length()) {
                return false;
            }
            each(now, self);
            if self.is_complete() {
                *self = Self::default();
            }
        }
        true
    }

    /// Returns whether all of it is known.
    pub(super) fn is_complete(&self) -> bool {
        self.at > 4 && self.at == self.length()
    }

    fn length(&self) -> usize {
        usize::try_from(self.word(0)).unwrap_or_default()
    }

    pub(super) fn request_id(&self) -> i32 {
        self.word(4)
    }

    /// Returns the id of the request that this message answers, if it is known yet.
    pub(super) fn response_to(&self) -> Option<i32> {
        (self.at >= 12).then(|| self.word(8))
    }

    fn code(&self) -> i32 {
        self.word(12)
    }

    /// Returns whether this is a hello, which clients must not compress (OP_COMPRESSED).
    fn is_hello(&self) -> bool {
        let rest = self.head.get(HEADER + size_of::<u32>()..).unwrap_or_default();
        // An OP_MSG begins with the kind of its first section, an OP_QUERY with its collection and two
        // numbers.
        let document = match self.code() {
            OP_MSG if rest.first() == Some(&0) => rest.get(1..),
            OP_QUERY => {
                let end = rest.iter().position(|byte| *byte == 0);
                end.and_then(|end| rest.get(end + 1 + 2 * size_of::<i32>()..))
            }
            _ => None,
        };
        // The length of the document, and the type of its first field, whose name is the command.
        let name = document.and_then(|document| document.get(5..)).unwrap_or_default();
        name.split(|byte| *byte == 0).next().is_some_and(|name| HELLOS.contains(&name))
    }

    pub(super) fn more_to_come(&self) -> bool {
        self.code() == OP_MSG && self.word(HEADER).cast_unsigned() & MORE_TO_COME != 0
    }

    fn word(&self, at: usize) -> i32 {
        let bytes = self.head.get(at..).and_then(|bytes| bytes.first_chunk());
        bytes.map_or(0, |bytes| i32::from_le_bytes(*bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
        // Exhaust, of a streaming monitor.
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
