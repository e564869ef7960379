//! The boundaries of messages in relayed bytes.

/// The bytes at the beginning of a message that are looked at: the header and the flags.
const HEAD: usize = 20;
/// The length of a header, which is the least length of a message.
const HEADER: usize = 16;
/// The greatest length of a message that a member accepts, and some.
const MOST: usize = 64 << 20;

/// The operation codes of messages without a reply: update, insert, delete and killCursors.
const UNANSWERED: [i32; 4] = [2001, 2002, 2006, 2007];
const OP_MSG: i32 = 2013;
/// The flag of an `OP_MSG` that another message follows it: no reply to a request, or another reply.
const MORE_TO_COME: u32 = 1 << 1;

/// The requests of a client, and the replies of a member.
#[derive(Debug, Default)]
pub(super) struct Exchange {
    requests: Framer,
    replies: Framer,
    /// The number of requests without a complete reply.
    outstanding: u64,
    /// True if the last reply announced another one without a request.
    streams: bool,
}

impl Exchange {
    /// Takes bytes that are sent to the member. Returns false if they are no messages.
    pub(super) fn send(&mut self, bytes: &[u8]) -> bool {
        let Self { requests, outstanding, streams, .. } = self;
        requests.take(bytes, |message| {
            if !message.more_to_come() && !UNANSWERED.contains(&message.code()) {
                *outstanding += 1;
            }
            *streams = false;
        })
    }

    /// Takes bytes that the member has sent. Returns false if they are no messages.
    pub(super) fn receive(&mut self, bytes: &[u8]) -> bool {
        let Self { replies, outstanding, streams, .. } = self;
        replies.take(bytes, |message| {
            *streams = message.more_to_come();
            if !*streams {
                *outstanding = outstanding.saturating_sub(1);
            }
        })
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

/// The position in the messages of one direction.
#[derive(Debug, Default)]
struct Framer {
    head: Head,
    /// The number of bytes of the current message so far.
    at: usize,
}

#[derive(Debug, Default)]
struct Head([u8; HEAD]);

impl Framer {
    /// Takes the next bytes, and calls `end` at the end of each message. Returns false if the length
    /// of a message is impossible.
    fn take(&mut self, mut bytes: &[u8], mut end: impl FnMut(&Head)) -> bool {
        while !bytes.is_empty() {
            let until = if self.at < 4 { 4 } else { self.head.length() };
            let count = bytes.len().min(until - self.at);
            let (now, rest) = bytes.split_at(count);
            let head = self.head.0.get_mut(self.at..).unwrap_or_default();
            head.iter_mut().zip(now).for_each(|(head, byte)| *head = *byte);
            self.at += count;
            bytes = rest;
            if self.at == 4 && !(HEADER..=MOST).contains(&self.head.length()) {
                return false;
            }
            if self.at > 4 && self.at == self.head.length() {
                end(&self.head);
                *self = Self::default();
            }
        }
        true
    }
}

impl Head {
    fn length(&self) -> usize {
        usize::try_from(self.word(0)).unwrap_or_default()
    }

    fn code(&self) -> i32 {
        self.word(12)
    }

    fn more_to_come(&self) -> bool {
        self.code() == OP_MSG && self.word(HEADER).cast_unsigned() & MORE_TO_COME != 0
    }

    fn word(&self, at: usize) -> i32 {
        let bytes = self.0.get(at..).and_then(|bytes| bytes.first_chunk());
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
