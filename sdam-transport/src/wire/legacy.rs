//! Encodes and decodes OP_QUERY and OP_REPLY, which carry legacy hello for servers that may not
//! support OP_MSG.

use super::{Layout, OP_QUERY, OP_REPLY, OpCode, WireError, WireMessage, assemble, cursor::Cursor};

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

    /// Encodes the message, and validates it in the same way as a received message.
    pub fn encode(&self) -> Result<WireMessage, WireError> {
        if self.collection.contains('\0') {
            return Err(WireError::NotUtf8 { field: COLLECTION });
        }
        let (number_to_skip, number_to_return) = (0_i32, -1_i32);
        let parts: [&[u8]; 6] = [
            &self.flags.to_le_bytes(),
            self.collection.as_bytes(),
            &[0],
            &number_to_skip.to_le_bytes(),
            &number_to_return.to_le_bytes(),
            self.body,
        ];
        WireMessage::decode(assemble([self.request_id, 0, OP_QUERY], &parts, 0)?)
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

    /// Encodes the message, and validates it in the same way as a received message.
    pub fn encode(&self) -> Result<WireMessage, WireError> {
        let (cursor_id, starting_from, number_returned) = (0_i64, 0_i32, 1_i32);
        let parts: [&[u8]; 5] = [
            &self.flags.to_le_bytes(),
            &cursor_id.to_le_bytes(),
            &starting_from.to_le_bytes(),
            &number_returned.to_le_bytes(),
            self.body,
        ];
        WireMessage::decode(assemble([self.request_id, self.response_to, OP_REPLY], &parts, 0)?)
    }
}

/// Decodes and validates everything after the header of an OP_QUERY.
pub(super) fn decode_query(cursor: &mut Cursor<'_>) -> Result<Layout, WireError> {
    let flags = cursor.u32("the flags")?;
    let collection = cursor.cstring(COLLECTION)?;
    cursor.i32("the number to skip")?;
    cursor.i32("the number to return")?;
    let body = cursor.document("the query")?;
    if !cursor.rest().is_empty() {
        cursor.document("the projection")?;
    }
    end(cursor)?;
    Ok(Layout { collection, ..Layout::new(OpCode::Query, flags, body) })
}

/// Decodes and validates everything after the header of an OP_REPLY.
pub(super) fn decode_reply(cursor: &mut Cursor<'_>) -> Result<Layout, WireError> {
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
    Ok(Layout::new(OpCode::Reply, flags, body))
}

fn end(cursor: &Cursor<'_>) -> Result<(), WireError> {
    if cursor.rest().is_empty() { Ok(()) } else { Err(WireError::TrailingBytes) }
}

const COLLECTION: &str = "the name of the collection";
