//! The error of the wire codec.

use std::fmt;

/// The error of decoding or encoding a message, or of a message out of order.
///
/// A connection that received such bytes is unusable.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WireError {
    /// The message is shorter than a header.
    TooShort {
        /// The length of the message.
        length: usize,
    },
    /// The message exceeds the maximum of the length field.
    TooLong {
        /// The length of the message.
        length: usize,
    },
    /// The header declares a length smaller than its own.
    LengthBelowHeader {
        /// The declared length.
        declared: i32,
    },
    /// The header declares a length greater than the receiver's limit.
    LengthAboveLimit {
        /// The declared length.
        declared: usize,
        /// The limit.
        limit: usize,
    },
    /// The declared length differs from the message's length.
    WrongLength {
        /// The declared length.
        declared: usize,
        /// The length of the message.
        actual: usize,
    },
    /// The message is OP_COMPRESSED, although the client offers no compressor.
    Compressed,
    /// The opcode is unknown.
    UnknownOpCode(i32),
    /// Unknown required flags are set (OP_MSG: bits 0 to 15).
    UnknownFlags(u32),
    /// The kind of a section is unknown.
    UnknownSection(u8),
    /// The message ends inside a field.
    Truncated {
        /// The field.
        field: &'static str,
    },
    /// Bytes follow the last field.
    TrailingBytes,
    /// The length of a document is too small, or the document does not end where its length says.
    Document {
        /// The document.
        field: &'static str,
    },
    /// A string is not UTF-8, or contains a NUL.
    NotUtf8 {
        /// The string.
        field: &'static str,
    },
    /// There is no section of kind 0, or no document in the reply.
    NoBody,
    /// There is more than one section of kind 0.
    SecondBody,
    /// Two sections of kind 1 have the same identifier.
    DuplicateSequence(Box<str>),
    /// The checksum does not match the message.
    Checksum {
        /// The checksum in the message.
        declared: u32,
        /// The checksum of its bytes.
        actual: u32,
    },
    /// The message is not the reply to the outstanding request.
    WrongResponseTo {
        /// The id of the outstanding request.
        expected: i32,
        /// The request id that the message answers.
        actual: i32,
    },
    /// A reply arrived although none was outstanding.
    UnexpectedReply,
    /// A request was received instead of a reply.
    NotAReply,
    /// The reply announces more replies, although the request did not allow them.
    UnexpectedMoreToCome,
    /// A request was started before the last reply to the previous one arrived.
    ReplyOutstanding,
    /// An earlier message on the connection was out of order or could not be understood.
    BrokenOff,
    /// The request requires OP_MSG: OP_QUERY supports neither streaming nor `hello`.
    NotInOpQuery,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort { length } => {
                write!(f, "a message of {length} bytes is shorter than a header")
            }
            Self::TooLong { length } => {
                write!(
                    f,
                    "a message of {length} bytes is longer than the protocol allows"
                )
            }
            Self::LengthBelowHeader { declared } => {
                write!(
                    f,
                    "the message declares a length of {declared} bytes, less than its header"
                )
            }
            Self::LengthAboveLimit { declared, limit } => write!(
                f,
                "the message declares a length of {declared} bytes, more than the {limit} accepted: \
                 either the peer is not a MongoDB server, or the limit is too small \
                 (`Options::max_hello_size` for checks, `Connection::set_max_message_size` for pools)"
            ),
            Self::WrongLength { declared, actual } => write!(
                f,
                "the message declares a length of {declared} bytes, but has {actual}"
            ),
            Self::Compressed => {
                f.write_str("the message is compressed (OP_COMPRESSED), which was not negotiated")
            }
            Self::UnknownOpCode(code) => write!(f, "the opcode {code} is unknown"),
            Self::UnknownFlags(flags) => {
                write!(
                    f,
                    "the required flags {flags:#06x} of the message are unknown"
                )
            }
            Self::UnknownSection(kind) => write!(f, "the section kind {kind} is unknown"),
            Self::Truncated { field } => write!(f, "the message ends inside {field}"),
            Self::TrailingBytes => f.write_str("the message has bytes after its last field"),
            Self::Document { field } => write!(f, "{field} is not a BSON document"),
            Self::NotUtf8 { field } => write!(f, "{field} is not valid UTF-8"),
            Self::NoBody => f.write_str("the message has no document"),
            Self::SecondBody => f.write_str("the message has more than one body section"),
            Self::DuplicateSequence(identifier) => {
                write!(
                    f,
                    "the message has two document sequences called `{identifier}`"
                )
            }
            Self::Checksum { declared, actual } => write!(
                f,
                "the message's checksum is {actual:#010x}, but it declares {declared:#010x}"
            ),
            Self::WrongResponseTo { expected, actual } => write!(
                f,
                "the reply is to message {actual}, but the reply to message {expected} is expected"
            ),
            Self::UnexpectedReply => f.write_str("a reply arrived without a request"),
            Self::NotAReply => f.write_str("a request arrived instead of a reply"),
            Self::UnexpectedMoreToCome => {
                f.write_str("the reply announces more replies, which the request did not allow")
            }
            Self::ReplyOutstanding => {
                f.write_str("a request was made before the reply to the previous one had arrived")
            }
            Self::BrokenOff => f.write_str(
                "an earlier message on the connection was not the reply that was due: close it",
            ),
            Self::NotInOpQuery => {
                f.write_str("only a legacy hello that does not stream can be sent as OP_QUERY")
            }
        }
    }
}

impl std::error::Error for WireError {}
