//! Parses the beginning of each message in the relayed bytes: its length, its ids, and the name of
//! its command.

/// The number of bytes that are kept from the beginning of a message. They are enough for the
/// header, the flags, and the name of a command that is sent to `admin`.
const HEAD: usize = 64;
/// The length of a message header, which is also the minimum length of a message.
const HEADER: usize = 16;
/// The maximum length of a message. It is greater than the limit of any member.
const MOST: usize = 64 << 20;

/// The operation codes of requests that have no reply: update, insert, delete and killCursors.
const UNANSWERED: [i32; 4] = [2001, 2002, 2006, 2007];
const OP_QUERY: i32 = 2004;
const OP_MSG: i32 = 2013;
/// The names of the command hello.
const HELLOS: [&[u8]; 3] = [b"hello", b"isMaster", b"ismaster"];
/// The flag of an `OP_MSG` that announces another message. A request with this flag has no reply; a
/// reply with this flag is followed by another reply.
const MORE_TO_COME: u32 = 1 << 1;

/// The message that is being transferred in one direction, of which a part may have been received.
#[derive(Clone, Debug)]
pub(super) struct Message {
    /// The first bytes of the message; those not received yet are 0.
    head: [u8; HEAD],
    /// The number of bytes received so far.
    at: usize,
}

impl Default for Message {
    fn default() -> Self {
        Self { head: [0; HEAD], at: 0 }
    }
}

impl Message {
    /// Processes the next bytes, and calls `each` with every piece of a message among them. Returns
    /// false if a message states an impossible length.
    pub(super) fn take(&mut self, mut bytes: &[u8], mut each: impl FnMut(&[u8], &Self)) -> bool {
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

    /// Returns whether no byte of the message has been received.
    pub(super) fn is_empty(&self) -> bool {
        self.at == 0
    }

    /// Returns whether the whole message has been received.
    pub(super) fn is_complete(&self) -> bool {
        self.at > 4 && self.at == self.length()
    }

    fn length(&self) -> usize {
        usize::try_from(self.word(0)).unwrap_or_default()
    }

    pub(super) fn request_id(&self) -> i32 {
        self.word(4)
    }

    /// Returns the id of the request that this message answers, or `None` if the id has not been
    /// received yet.
    pub(super) fn response_to(&self) -> Option<i32> {
        (self.at >= 12).then(|| self.word(8))
    }

    fn code(&self) -> i32 {
        self.word(12)
    }

    /// Returns whether this request has a reply.
    pub(super) fn is_answered(&self) -> bool {
        !self.more_to_come() && !UNANSWERED.contains(&self.code())
    }

    /// Returns whether this is a hello request. Clients must not compress a hello (OP_COMPRESSED),
    /// so its name can be read.
    pub(super) fn is_hello(&self) -> bool {
        let rest = self.head.get(HEADER + size_of::<u32>()..).unwrap_or_default();
        // In an OP_MSG, the document follows the kind of the first section; in an OP_QUERY, it
        // follows the name of the collection and two numbers.
        let document = match self.code() {
            OP_MSG if rest.first() == Some(&0) => rest.get(1..),
            OP_QUERY => {
                let end = rest.iter().position(|byte| *byte == 0);
                end.and_then(|end| rest.get(end + 1 + 2 * size_of::<i32>()..))
            }
            _ => None,
        };
        // Skip the length of the document and the type of its first field. The name of that field
        // is the name of the command.
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
