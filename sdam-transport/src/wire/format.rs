//! The formats of messages, encoding and decoding: OP_MSG, and OP_QUERY and OP_REPLY, which carry
//! legacy hello for servers that may not support OP_MSG.

use std::{collections::BTreeSet, iter, mem, ops::Range};

use super::{
    Layout, OP_MSG, OP_QUERY, OP_REPLY, OpCode, WireError, WireMessage, assemble, too_long,
};

pub(super) const CHECKSUM_PRESENT: u32 = 1;
pub(super) const MORE_TO_COME: u32 = 1 << 1;
pub(super) const EXHAUST_ALLOWED: u32 = 1 << 16;
/// The flags that a receiver must understand. If one of these flags is set and the receiver does
/// not know it, the receiver refuses the message.
const REQUIRED: u32 = 0xFFFF;

const KIND_BODY: u8 = 0;
const KIND_SEQUENCE: u8 = 1;

/// An OP_MSG to encode.
#[derive(Clone, Copy, Debug, Default)]
pub struct OpMsg<'a> {
    /// The request id, which the reply names.
    pub request_id: i32,
    /// The request id that this message answers, or 0 if this message is a request.
    pub response_to: i32,
    /// True if another reply follows this one without a request, or if this request expects no
    /// reply.
    pub more_to_come: bool,
    /// True if this request allows a stream of replies.
    pub exhaust_allowed: bool,
    /// True to append a checksum.
    pub checksum: bool,
    /// The command or its reply, one BSON document.
    pub body: &'a [u8],
    /// The document sequences, written before the body.
    pub sequences: &'a [Sequence<'a>],
}

impl OpMsg<'_> {
    /// Encodes the message, and validates it in the same way as a received message.
    pub fn encode(&self) -> Result<WireMessage, WireError> {
        let flag = |set: bool, flag| if set { flag } else { 0_u32 };
        let flags = flag(self.checksum, CHECKSUM_PRESENT)
            | flag(self.more_to_come, MORE_TO_COME)
            | flag(self.exhaust_allowed, EXHAUST_ALLOWED);
        let mut sequences = Vec::new();
        for sequence in self.sequences {
            sequence.encode(&mut sequences)?;
        }
        let parts = [&flags.to_le_bytes(), &*sequences, &[KIND_BODY], self.body];
        let checksum = usize::from(self.checksum) * size_of::<u32>();
        let ids = [self.request_id, self.response_to, OP_MSG];
        let mut bytes = assemble(ids, &parts, checksum)?;
        if self.checksum {
            bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
        }
        WireMessage::decode(bytes)
    }
}

/// A section of kind 1, which is a sequence of documents that form one argument of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence<'a> {
    identifier: &'a str,
    documents: &'a [u8],
}

impl<'a> Sequence<'a> {
    /// Creates the argument `identifier`. `documents` are concatenated BSON documents.
    pub fn new(identifier: &'a str, documents: &'a [u8]) -> Self {
        Self { identifier, documents }
    }

    /// Returns the name of the argument, such as `documents`.
    pub fn identifier(&self) -> &'a str {
        self.identifier
    }

    /// Returns the documents, in order.
    pub fn documents(&self) -> impl Iterator<Item = &'a [u8]> + use<'a> {
        let mut rest = self.documents;
        iter::from_fn(move || {
            let mut cursor = Cursor::new(rest, 0);
            // An error means that a validated sequence has ended, or that the bytes are invalid and
            // `encode` will refuse them.
            let document = cursor.document(DOCUMENT).ok()?;
            mem::replace(&mut rest, cursor.rest()).get(document)
        })
    }

    fn encode(&self, bytes: &mut Vec<u8>) -> Result<(), WireError> {
        if self.identifier.contains('\0') {
            return Err(WireError::NotUtf8 { field: IDENTIFIER });
        }
        let length = size_of::<i32>() + self.identifier.len() + 1 + self.documents.len();
        let size = i32::try_from(length).map_err(|_| too_long(length))?;
        bytes.push(KIND_SEQUENCE);
        bytes.extend_from_slice(&size.to_le_bytes());
        bytes.extend_from_slice(self.identifier.as_bytes());
        bytes.push(0);
        bytes.extend_from_slice(self.documents);
        Ok(())
    }
}

/// Returns the sections of kind 1 among `sections`, in order.
pub(super) fn sequences(mut sections: &[u8]) -> impl Iterator<Item = Sequence<'_>> {
    iter::from_fn(move || {
        loop {
            let mut cursor = Cursor::new(sections, 0);
            // The sections were validated when the message was created, so an error can only mean
            // that there are no more sections.
            let section = Section::decode(&mut cursor).ok()?;
            let all = mem::replace(&mut sections, cursor.rest());
            if let Section::Sequence { identifier, documents } = section {
                return Some(Sequence {
                    identifier: std::str::from_utf8(all.get(identifier)?).ok()?,
                    documents: all.get(documents)?,
                });
            }
        }
    })
}

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

/// Decodes and validates everything after the header of an OP_MSG.
pub(super) fn decode_msg(cursor: &mut Cursor<'_>) -> Result<Layout, WireError> {
    let flags = cursor.u32("the flags")?;
    let unknown = flags & REQUIRED & !(CHECKSUM_PRESENT | MORE_TO_COME);
    if unknown != 0 {
        return Err(WireError::UnknownFlags(unknown));
    }
    if flags & CHECKSUM_PRESENT != 0 {
        let declared = cursor.split_off(size_of::<u32>(), "the checksum")?;
        let declared = Cursor::new(declared, 0).u32("the checksum")?;
        let actual = crc32c(cursor.bytes());
        if declared != actual {
            return Err(WireError::Checksum { declared, actual });
        }
    }
    let start = cursor.position();
    let mut body = None;
    // A set finds duplicates fast even if there are many identifiers. Only the length of the
    // message limits their number.
    let mut identifiers: BTreeSet<&[u8]> = BTreeSet::new();
    while !cursor.rest().is_empty() {
        match Section::decode(cursor)? {
            Section::Body(range) if body.is_none() => body = Some(range),
            Section::Body(_) => return Err(WireError::SecondBody),
            Section::Sequence { identifier, .. } => {
                let identifier = cursor.bytes().get(identifier).unwrap_or_default();
                if !identifiers.insert(identifier) {
                    return Err(WireError::DuplicateSequence(
                        String::from_utf8_lossy(identifier).into(),
                    ));
                }
            }
        }
    }
    let sections = start..cursor.position();
    Ok(Layout { sections, ..Layout::new(OpCode::Msg, flags, body.ok_or(WireError::NoBody)?) })
}

/// The positions of one section's parts.
enum Section {
    Body(Range<usize>),
    Sequence { identifier: Range<usize>, documents: Range<usize> },
}

impl Section {
    fn decode(cursor: &mut Cursor<'_>) -> Result<Self, WireError> {
        match cursor.u8("the kind of a section")? {
            KIND_BODY => cursor.document("the body").map(Self::Body),
            KIND_SEQUENCE => Self::decode_sequence(cursor),
            other => Err(WireError::UnknownSection(other)),
        }
    }

    fn decode_sequence(cursor: &mut Cursor<'_>) -> Result<Self, WireError> {
        let start = cursor.position();
        let size = cursor.i32(SEQUENCE)?;
        let end = usize::try_from(size)
            .ok()
            .and_then(|size| start.checked_add(size))
            .filter(|end| *end <= cursor.bytes().len())
            .ok_or(WireError::Truncated { field: SEQUENCE })?;
        // Documents must not extend beyond the section.
        let section = cursor.bytes().get(..end).unwrap_or_default();
        let mut inner = Cursor::new(section, cursor.position());
        let identifier = inner.cstring(IDENTIFIER)?;
        let documents = inner.position()..end;
        while !inner.rest().is_empty() {
            inner.document(DOCUMENT)?;
        }
        cursor.take(end - cursor.position(), SEQUENCE)?;
        Ok(Self::Sequence { identifier, documents })
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

/// Reads little-endian fields. If a read goes beyond the end, the error names the field.
#[derive(Debug)]
pub(super) struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(bytes: &'a [u8], at: usize) -> Self {
        Self { bytes, at }
    }

    fn position(&self) -> usize {
        self.at
    }

    fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// Returns all bytes, including those already read.
    fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Removes and returns the last `length` bytes.
    fn split_off(&mut self, length: usize, field: &'static str) -> Result<&'a [u8], WireError> {
        let end = self.bytes.len().checked_sub(length).filter(|end| *end >= self.at);
        let (bytes, tail) = self.bytes.split_at(end.ok_or(WireError::Truncated { field })?);
        self.bytes = bytes;
        Ok(tail)
    }

    fn take(&mut self, length: usize, field: &'static str) -> Result<&'a [u8], WireError> {
        let taken = self.rest().get(..length).ok_or(WireError::Truncated { field })?;
        self.at += length;
        Ok(taken)
    }

    fn u8(&mut self, field: &'static str) -> Result<u8, WireError> {
        self.array(field).map(u8::from_le_bytes)
    }

    fn u32(&mut self, field: &'static str) -> Result<u32, WireError> {
        self.array(field).map(u32::from_le_bytes)
    }

    pub(super) fn i32(&mut self, field: &'static str) -> Result<i32, WireError> {
        self.array(field).map(i32::from_le_bytes)
    }

    /// Reads a NUL-terminated string, without the NUL.
    fn cstring(&mut self, field: &'static str) -> Result<Range<usize>, WireError> {
        let length =
            self.rest().iter().position(|byte| *byte == 0).ok_or(WireError::Truncated { field })?;
        let start = self.at;
        let text = self.take(length + 1, field)?;
        std::str::from_utf8(text).map_err(|_| WireError::NotUtf8 { field })?;
        Ok(start..start + length)
    }

    /// Reads a BSON document. Checks its length and last byte, but not its elements.
    fn document(&mut self, field: &'static str) -> Result<Range<usize>, WireError> {
        let start = self.at;
        let length = Self::new(self.bytes, start).i32(field)?;
        // An empty document consists of its length and a NUL.
        let length = usize::try_from(length)
            .ok()
            .filter(|length| *length >= 5)
            .ok_or(WireError::Document { field })?;
        match self.take(length, field)?.last() {
            Some(0) => Ok(start..self.at),
            _ => Err(WireError::Document { field }),
        }
    }

    fn array<const N: usize>(&mut self, field: &'static str) -> Result<[u8; N], WireError> {
        let array = *self.rest().first_chunk().ok_or(WireError::Truncated { field })?;
        self.at += N;
        Ok(array)
    }
}

/// Computes the checksum of OP_MSG, CRC-32C (Castagnoli).
pub(super) fn crc32c(bytes: &[u8]) -> u32 {
    !bytes.iter().fold(!0, |crc, byte| (crc >> 8) ^ TABLE[usize::from(crc as u8 ^ byte)])
}

/// The polynomial. Its bits are in reversed order, because the checksum processes the lowest bit
/// first.
const POLYNOMIAL: u32 = 0x82F6_3B78;

/// The contribution of the lowest byte to the checksum, for each value of that byte.
const TABLE: [u32; 256] = {
    let mut table = [0; 256];
    let mut index = 0;
    while index < table.len() {
        let mut crc = index as u32;
        let mut bit = 0;
        while bit < 8 {
            crc = (crc >> 1) ^ if crc & 1 == 1 { POLYNOMIAL } else { 0 };
            bit += 1;
        }
        table[index] = crc;
        index += 1;
    }
    table
};

const COLLECTION: &str = "the name of the collection";
const SEQUENCE: &str = "a document sequence";
const IDENTIFIER: &str = "the identifier of a document sequence";
const DOCUMENT: &str = "a document of a sequence";
