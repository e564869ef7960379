//! The errors of the wire codec.

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
