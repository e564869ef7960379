//! OP_QUERY and OP_REPLY, for legacy hello to servers that may not support OP_MSG.

use std::ops::Range;

use super::{Header, OP_QUERY, OP_REPLY, WireError, WireMessage, cursor::Cursor, set_length};

/// An OP_QUERY to encode: a command for servers before 3.6.
#[derive(Clone, Copy, Debug)]
pub struct OpQuery<'a> {
    /// The request id, which the reply names.
    pub request_id: i32,
    /// Flag bits, see [`Self::SECONDARY_OK`].
    pub flags: u32,
    /// The queried collection: `admin.$cmd` for commands.
    pub collection: &'a str,
    /// The command, one BSON document.
    pub body: &'a [u8],
}

impl OpQuery<'_> {
    /// The flag that allows secondaries to answer.
    pub const SECONDARY_OK: u32 = 1 << 2;

    /// Encodes the message and validates it like a received one.
    pub fn encode(&self) -> Result<WireMessage, WireError> {
        if self.collection.contains('\0') {
            return Err(WireError::NotUtf8 { field: COLLECTION });
        }
        let capacity = self.collection.len() + self.body.len() + 16;
        let mut bytes = Header::start(self.request_id, 0, OP_QUERY, capacity);
        bytes.extend_from_slice(&self.flags.to_le_bytes());
        bytes.extend_from_slice(self.collection.as_bytes());
        bytes.push(0);
        let (number_to_skip, number_to_return) = (0_i32, -1_i32);
        bytes.extend_from_slice(&number_to_skip.to_le_bytes());
        bytes.extend_from_slice(&number_to_return.to_le_bytes());
        bytes.extend_from_slice(self.body);
        let length = bytes.len();
        set_length(&mut bytes, length)?;
        WireMessage::decode(bytes)
    }
}

/// An OP_REPLY to encode: the reply to a command sent as [`OpQuery`].
#[derive(Clone, Copy, Debug)]
pub struct OpReply<'a> {
    /// The request id of the message.
    pub request_id: i32,
    /// The request id that this message answers.
    pub response_to: i32,
    /// Flag bits, see [`Self::QUERY_FAILURE`] and [`Self::AWAIT_CAPABLE`].
    pub flags: u32,
    /// The command's reply, one BSON document.
    pub body: &'a [u8],
}

impl OpReply<'_> {
    /// The flag of a reply with `$err` in its document.
    pub const QUERY_FAILURE: u32 = 1 << 1;
    /// The flag that every server since 1.6 sets.
    pub const AWAIT_CAPABLE: u32 = 1 << 3;

    /// Encodes the message and validates it like a received one.
    pub fn encode(&self) -> Result<WireMessage, WireError> {
        let capacity = self.body.len() + 20;
        let mut bytes = Header::start(self.request_id, self.response_to, OP_REPLY, capacity);
        bytes.extend_from_slice(&self.flags.to_le_bytes());
        let (cursor_id, starting_from, number_returned) = (0_i64, 0_i32, 1_i32);
        bytes.extend_from_slice(&cursor_id.to_le_bytes());
        bytes.extend_from_slice(&starting_from.to_le_bytes());
        bytes.extend_from_slice(&number_returned.to_le_bytes());
        bytes.extend_from_slice(self.body);
        let length = bytes.len();
        set_length(&mut bytes, length)?;
        WireMessage::decode(bytes)
    }
}

/// The positions of an OP_QUERY's parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct QueryLayout {
    pub(super) flags: u32,
    pub(super) collection: Range<usize>,
    pub(super) body: Range<usize>,
}

impl QueryLayout {
    /// Decodes and validates everything after the header.
    pub(super) fn decode(cursor: &mut Cursor<'_>) -> Result<Self, WireError> {
        let flags = cursor.u32("the flags")?;
        let collection = cursor.cstring(COLLECTION)?;
        cursor.i32("the number to skip")?;
        cursor.i32("the number to return")?;
        let body = cursor.document("the query")?;
        if !cursor.rest().is_empty() {
            cursor.document("the projection")?;
        }
        end(cursor)?;
        Ok(Self { flags, collection, body })
    }
}

/// The positions of an OP_REPLY's parts.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ReplyLayout {
    pub(super) flags: u32,
    pub(super) body: Range<usize>,
}

impl ReplyLayout {
    /// Decodes and validates everything after the header.
    pub(super) fn decode(cursor: &mut Cursor<'_>) -> Result<Self, WireError> {
        let flags = cursor.u32("the flags")?;
        cursor.take(size_of::<i64>(), "the cursor id")?;
        cursor.i32("the position in the cursor")?;
        let returned = cursor.i32("the number of documents")?;
        if returned < 1 {
            return Err(WireError::NoBody);
        }
        let body = cursor.document("the reply")?;
        for _ in 1..returned {
            cursor.document("a further document of the reply")?;
        }
        end(cursor)?;
        Ok(Self { flags, body })
    }
}

fn end(cursor: &Cursor<'_>) -> Result<(), WireError> {
    if cursor.rest().is_empty() { Ok(()) } else { Err(WireError::TrailingBytes) }
}

const COLLECTION: &str = "the name of the collection";
