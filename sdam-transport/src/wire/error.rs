//! Why bytes are no message.

use std::fmt;

/// Why bytes are no message, a message cannot be written, or one comes out of turn.
///
/// A connection that received such bytes is of no more use.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum WireError {
    /// There are fewer bytes than a header has.
    TooShort {
        /// How many there are.
        length: usize,
    },
    /// The message would be longer than its length field can say.
    TooLong {
        /// How long it would be.
        length: usize,
    },
    /// The header declares less than its own length.
    LengthBelowHeader {
        /// What it declares.
        declared: i32,
    },
    /// The header declares more than the receiver accepts.
    LengthAboveLimit {
        /// What it declares.
        declared: usize,
        /// What is accepted.
        limit: usize,
    },
    /// The header declares another length than the message has.
    WrongLength {
        /// What it declares.
        declared: usize,
        /// What is there.
        actual: usize,
    },
    /// The message is OP_COMPRESSED, which a client that offers no compressor is never sent.
    Compressed,
    /// The opcode is none of those this protocol uses.
    UnknownOpCode(i32),
    /// Flags are set that must be understood and are not (OP_MSG: bits 0 to 15).
    UnknownFlags(u32),
    /// A section is of a kind that is not known.
    UnknownSection(u8),
    /// The message ends inside a field.
    Truncated {
        /// The field.
        field: &'static str,
    },
    /// Bytes are left after the last field.
    TrailingBytes,
    /// A document is shorter than it can be, or does not end where it says.
    Document {
        /// Which document.
        field: &'static str,
    },
    /// A text is no UTF-8, or has a NUL inside.
    NotUtf8 {
        /// Which text.
        field: &'static str,
    },
    /// There is no section of kind 0, or no document in the reply.
    NoBody,
    /// There is more than one section of kind 0.
    SecondBody,
    /// Two sections of kind 1 have the same identifier.
    DuplicateSequence(Box<str>),
    /// The checksum is not that of the message.
    Checksum {
        /// What the message says.
        declared: u32,
        /// What its bytes yield.
        actual: u32,
    },
    /// The message answers another one than the one whose answer is due.
    WrongResponseTo {
        /// Whose answer is due.
        expected: i32,
        /// What the message answers.
        actual: i32,
    },
    /// A reply arrived while none was due.
    UnexpectedReply,
    /// A request was received where a reply is due.
    NotAReply,
    /// The reply announces more replies although the request did not allow it.
    UnexpectedMoreToCome,
    /// A request was made before the last reply to the one before had arrived.
    ReplyOutstanding,
    /// A request can only be framed as OP_MSG: streaming and `hello` do not exist in OP_QUERY.
    NotInOpQuery,
}

impl fmt::Display for WireError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::TooShort { length } => {
                write!(f, "a message of {length} bytes is shorter than a header")
            }
            Self::TooLong { length } => {
                write!(f, "a message of {length} bytes is longer than any may be")
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
                 either the peer is no MongoDB server, or the limit is too small \
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
            Self::TrailingBytes => f.write_str("the message goes on after its last field"),
            Self::Document { field } => write!(f, "{field} is no BSON document"),
            Self::NotUtf8 { field } => write!(f, "{field} is no valid text"),
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
                "the reply answers message {actual}, but the one to message {expected} is due"
            ),
            Self::UnexpectedReply => f.write_str("a reply arrived that nobody asked for"),
            Self::NotAReply => f.write_str("a request arrived where a reply is due"),
            Self::UnexpectedMoreToCome => {
                f.write_str("the reply announces more replies, which the request did not allow")
            }
            Self::ReplyOutstanding => {
                f.write_str("a request was made before the reply to the one before had arrived")
            }
            Self::NotInOpQuery => {
                f.write_str("only a legacy hello that does not stream can be sent as OP_QUERY")
            }
        }
    }
}

impl std::error::Error for WireError {}
