//! The wire protocol: complete, validated messages. The formats are OP_MSG and, for servers that
//! may not support it, OP_QUERY and OP_REPLY.
//!
//! Both directions are supported, for clients and for simulated servers: [`OpMsg`], [`OpQuery`] and
//! [`OpReply`] are messages to encode, [`WireMessage`] is an encoded message, and [`Exchange`]
//! enforces the order in which a client may send and receive. This module does no I/O, and no input
//! can make it panic.

mod exchange;
mod format;
#[cfg(test)]
mod tests;

use std::ops::Range;

use self::format::Cursor;
pub use self::{
    exchange::Exchange,
    format::{OpMsg, OpQuery, OpReply, Sequence},
};

/// One message of the MongoDB wire protocol, complete and with valid framing.
///
/// When a message is created, its header, flags, sections and checksum and the lengths of all its
/// documents are checked. The contents of the documents are not checked.
///
/// `Debug` output omits the contents of documents, which may hold a password.
#[derive(Clone, PartialEq, Eq)]
pub struct WireMessage {
    bytes: Vec<u8>,
    header: Header,
    layout: Layout,
}

/// The flags of a message, and the positions of its parts. A part that is missing has an empty
/// range.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Layout {
    op_code: OpCode,
    flags: u32,
    body: Range<usize>,
    /// The collection of an OP_QUERY.
    collection: Range<usize>,
    /// The sections of an OP_MSG.
    sections: Range<usize>,
}

impl Layout {
    fn new(op_code: OpCode, flags: u32, body: Range<usize>) -> Self {
        Self { op_code, flags, body, collection: 0..0, sections: 0..0 }
    }
}

/// The kind of a [`WireMessage`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum OpCode {
    /// OP_MSG, a request or a reply.
    Msg,
    /// OP_QUERY, a request.
    Query,
    /// OP_REPLY, the reply to OP_QUERY.
    Reply,
}

impl WireMessage {
    /// Decodes the message that consists of exactly `bytes`.
    pub fn decode(bytes: Vec<u8>) -> Result<Self, WireError> {
        let too_short = WireError::TooShort { length: bytes.len() };
        let header = Header::decode(bytes.first_chunk().ok_or(too_short)?)?;
        if header.length != bytes.len() {
            return Err(WireError::WrongLength { declared: header.length, actual: bytes.len() });
        }
        let mut cursor = Cursor::new(&bytes, Header::LENGTH);
        let layout = match header.op_code {
            OP_MSG => format::decode_msg(&mut cursor)?,
            OP_QUERY => format::decode_query(&mut cursor)?,
            OP_REPLY => format::decode_reply(&mut cursor)?,
            OP_COMPRESSED => return Err(WireError::Compressed),
            other => return Err(WireError::UnknownOpCode(other)),
        };
        Ok(Self { bytes, header, layout })
    }

    /// Returns the encoded message, header included.
    pub fn as_bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the encoded message, header included.
    pub fn into_bytes(self) -> Vec<u8> {
        self.bytes
    }

    /// Returns the request id that the sender gave the message.
    pub fn request_id(&self) -> i32 {
        self.header.request_id
    }

    /// Returns the request id that this message answers, or 0 if this message is a request.
    pub fn response_to(&self) -> i32 {
        self.header.response_to
    }

    /// Returns the kind of message.
    pub fn op_code(&self) -> OpCode {
        self.layout.op_code
    }

    /// Returns the command or its reply as one BSON document: the section of kind 0 of an OP_MSG,
    /// the query of an OP_QUERY, or the first document of an OP_REPLY.
    pub fn body(&self) -> &[u8] {
        self.slice(&self.layout.body)
    }

    /// Returns whether the sender will send another message without a request (OP_MSG:
    /// "moreToCome").
    pub fn more_to_come(&self) -> bool {
        self.has(OpCode::Msg, format::MORE_TO_COME)
    }

    /// Returns whether the request allows a stream of replies (OP_MSG: "exhaustAllowed").
    pub fn exhaust_allowed(&self) -> bool {
        self.has(OpCode::Msg, format::EXHAUST_ALLOWED)
    }

    /// Returns whether the message has a checksum, which was verified (OP_MSG: "checksumPresent").
    pub fn has_checksum(&self) -> bool {
        self.has(OpCode::Msg, format::CHECKSUM_PRESENT)
    }

    /// Returns the sections of kind 1 of an OP_MSG. Other kinds of messages have no such sections.
    pub fn sequences(&self) -> impl Iterator<Item = Sequence<'_>> {
        format::sequences(self.slice(&self.layout.sections))
    }

    /// Returns the collection of an OP_QUERY, such as `admin.$cmd`, or `None` for other messages.
    pub fn collection(&self) -> Option<&str> {
        // The collection was validated as UTF-8 when the message was created.
        let collection = std::str::from_utf8(self.slice(&self.layout.collection)).ok();
        collection.filter(|_| self.op_code() == OpCode::Query)
    }

    /// Returns the flags of an OP_QUERY (see [`OpQuery::SECONDARY_OK`]), or `None` for other
    /// messages.
    pub fn query_flags(&self) -> Option<u32> {
        (self.op_code() == OpCode::Query).then_some(self.layout.flags)
    }

    /// Returns whether the message is an OP_REPLY that reports a failure, with `$err` in its body
    /// (OP_REPLY: "QueryFailure").
    pub fn is_query_failure(&self) -> bool {
        self.has(OpCode::Reply, OpReply::QUERY_FAILURE)
    }

    fn has(&self, op_code: OpCode, flag: u32) -> bool {
        self.op_code() == op_code && self.layout.flags & flag != 0
    }

    fn slice(&self, range: &Range<usize>) -> &[u8] {
        // Layouts are decoded from these bytes, so the range is always valid.
        self.bytes.get(range.clone()).unwrap_or_default()
    }
}

sdam_core::opaque!(WireMessage, |this|
    op_code: this.op_code(),
    request_id: this.request_id(),
    response_to: this.response_to(),
    length: this.bytes.len()
);

/// The header of every message; 16 bytes long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    length: usize,
    request_id: i32,
    response_to: i32,
    op_code: i32,
}

impl Header {
    /// The length of a header.
    pub const LENGTH: usize = 16;

    /// Decodes a header. An invalid header is refused before memory for the message is allocated.
    pub fn decode(bytes: &[u8; Self::LENGTH]) -> Result<Self, WireError> {
        let mut cursor = Cursor::new(bytes, 0);
        let length = cursor.i32("the length")?;
        let header = Self {
            length: usize::try_from(length).unwrap_or_default(),
            request_id: cursor.i32("the request id")?,
            response_to: cursor.i32("the id answered")?,
            op_code: cursor.i32("the opcode")?,
        };
        if header.length < Self::LENGTH {
            return Err(WireError::LengthBelowHeader { declared: length });
        }
        Ok(header)
    }

    /// Returns the length of the whole message, including the header. It is at least
    /// [`Self::LENGTH`].
    pub fn message_length(&self) -> usize {
        self.length
    }
}

/// The error for a message that cannot be encoded or decoded, or that is out of order.
///
/// A connection that received an invalid message is unusable.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WireError {
    /// The message is shorter than a header.
    #[error("a message of {length} bytes is shorter than a header")]
    TooShort {
        /// The length of the message.
        length: usize,
    },
    /// The message to send is longer than the server accepts (`maxMessageSizeBytes`), or than the
    /// length field can express.
    #[error("a message of {length} bytes is longer than the {limit} allowed")]
    TooLong {
        /// The length of the message.
        length: usize,
        /// The maximum length.
        limit: usize,
    },
    /// The document of the command to send is longer than the server accepts.
    #[error(
        "a command of {length} bytes is longer than the {limit} that the server accepts \
         (maxBsonObjectSize and 16 KiB)"
    )]
    CommandTooLong {
        /// The length of the document.
        length: usize,
        /// The maximum length.
        limit: usize,
    },
    /// The header declares a message length that is smaller than the header itself.
    #[error("the message declares a length of {declared} bytes, less than its header")]
    LengthBelowHeader {
        /// The declared length.
        declared: i32,
    },
    /// The header declares a length greater than the receiver's limit: `Options::max_hello_size`
    /// for checks, [`Connection::set_max_message_size`](crate::connect::Connection::set_max_message_size)
    /// for pools.
    #[error(
        "the message declares a length of {declared} bytes, more than the {limit} accepted: either \
         the peer is not a MongoDB server, or the client's limit is too small"
    )]
    LengthAboveLimit {
        /// The declared length.
        declared: usize,
        /// The receiver's limit.
        limit: usize,
    },
    /// The declared length differs from the actual length of the message.
    #[error("the message declares a length of {declared} bytes, but has {actual}")]
    WrongLength {
        /// The declared length.
        declared: usize,
        /// The length of the message.
        actual: usize,
    },
    /// The message is OP_COMPRESSED, although the client offers no compressor.
    #[error("the message is compressed (OP_COMPRESSED), which was not negotiated")]
    Compressed,
    /// The opcode is unknown.
    #[error("the opcode {0} is unknown")]
    UnknownOpCode(i32),
    /// The message has required flags that the receiver does not know (OP_MSG: bits 0 to 15).
    #[error("the required flags {0:#06x} of the message are unknown")]
    UnknownFlags(u32),
    /// The kind of a section is unknown.
    #[error("the section kind {0} is unknown")]
    UnknownSection(u8),
    /// The message ends inside a field.
    #[error("the message ends inside {field}")]
    Truncated {
        /// The name of the field.
        field: &'static str,
    },
    /// Bytes follow the last field.
    #[error("the message has bytes after its last field")]
    TrailingBytes,
    /// The length of a document is too small, or the document does not end where its length says
    /// that it ends.
    #[error("{field} is not a BSON document")]
    Document {
        /// The name of the document.
        field: &'static str,
    },
    /// A string is not UTF-8, or contains a NUL.
    #[error("{field} is not valid UTF-8")]
    NotUtf8 {
        /// The name of the string.
        field: &'static str,
    },
    /// There is no section of kind 0, or no document in the reply.
    #[error("the message has no document")]
    NoBody,
    /// There is more than one section of kind 0.
    #[error("the message has more than one body section")]
    SecondBody,
    /// Two sections of kind 1 have the same identifier.
    #[error("the message has two document sequences called `{0}`")]
    DuplicateSequence(Box<str>),
    /// The checksum does not match the message.
    #[error("the message's checksum is {actual:#010x}, but it declares {declared:#010x}")]
    Checksum {
        /// The checksum in the message.
        declared: u32,
        /// The checksum of its bytes.
        actual: u32,
    },
    /// The message is not the reply to the outstanding request.
    #[error("the reply is to message {actual}, but the reply to message {expected} is expected")]
    WrongResponseTo {
        /// The id of the outstanding request.
        expected: i32,
        /// The request id that the message answers.
        actual: i32,
    },
    /// A reply arrived although none was outstanding.
    #[error("a reply arrived without a request")]
    UnexpectedReply,
    /// A request was received instead of a reply.
    #[error("a request arrived instead of a reply")]
    NotAReply,
    /// The reply announces more replies, although the request did not allow them.
    #[error("the reply announces more replies, which the request did not allow")]
    UnexpectedMoreToCome,
    /// A request was started before the last reply to the previous request had arrived.
    #[error("a request was made before the reply to the previous one had arrived")]
    ReplyOutstanding,
    /// An earlier message on the connection was out of order or could not be understood.
    #[error("an earlier message on the connection was not the reply that was due: close it")]
    BrokenOff,
    /// The request requires OP_MSG: OP_QUERY supports neither streaming nor `hello`.
    #[error("only a legacy hello that does not stream can be sent as OP_QUERY")]
    NotInOpQuery,
}

/// Writes a message that consists of a header and `parts`. The length in the header includes
/// `trailer` bytes that the caller appends.
fn assemble(
    [request_id, response_to, op_code]: [i32; 3],
    parts: &[&[u8]],
    trailer: usize,
) -> Result<Vec<u8>, WireError> {
    let length = Header::LENGTH + parts.iter().map(|part| part.len()).sum::<usize>() + trailer;
    let declared = i32::try_from(length).map_err(|_| too_long(length))?;
    let mut bytes = Vec::with_capacity(length);
    for field in [declared, request_id, response_to, op_code] {
        bytes.extend_from_slice(&field.to_le_bytes());
    }
    for part in parts {
        bytes.extend_from_slice(part);
    }
    Ok(bytes)
}

fn too_long(length: usize) -> WireError {
    WireError::TooLong { length, limit: usize::try_from(i32::MAX).unwrap_or(usize::MAX) }
}

const OP_REPLY: i32 = 1;
const OP_QUERY: i32 = 2004;
const OP_COMPRESSED: i32 = 2012;
const OP_MSG: i32 = 2013;
