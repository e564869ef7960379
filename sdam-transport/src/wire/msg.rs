//! Encoding and decoding of OP_MSG.

use std::{collections::BTreeSet, ops::Range};

use super::{
    Layout, OP_MSG, OpCode, WireError, WireMessage, assemble, crc32c, cursor::Cursor, too_long,
};

pub(super) const CHECKSUM_PRESENT: u32 = 1;
pub(super) const MORE_TO_COME: u32 = 1 << 1;
pub(super) const EXHAUST_ALLOWED: u32 = 1 << 16;
/// The flags that a receiver must understand. If it does not know one that is set, it refuses the
/// message.
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
            bytes.extend_from_slice(&crc32c::checksum(&bytes).to_le_bytes());
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
    pub fn documents(&self) -> Documents<'a> {
        Documents { rest: self.documents }
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

/// The sections of kind 1 of a message, in order.
#[derive(Clone, Debug)]
pub struct Sequences<'a> {
    sections: &'a [u8],
}

impl<'a> Sequences<'a> {
    pub(super) fn new(sections: &'a [u8]) -> Self {
        Self { sections }
    }
}

impl<'a> Iterator for Sequences<'a> {
    type Item = Sequence<'a>;

    fn next(&mut self) -> Option<Sequence<'a>> {
        loop {
            let mut cursor = Cursor::new(self.sections, 0);
            // The sections were validated when the message was created, so an error can only mean
            // that there are no more sections.
            let section = Section::decode(&mut cursor).ok()?;
            let sections = self.sections;
            self.sections = cursor.rest();
            if let Section::Sequence { identifier, documents } = section {
                return Some(Sequence {
                    identifier: std::str::from_utf8(sections.get(identifier)?).ok()?,
                    documents: sections.get(documents)?,
                });
            }
        }
    }
}

/// An iterator over concatenated BSON documents.
#[derive(Clone, Debug)]
pub struct Documents<'a> {
    rest: &'a [u8],
}

impl<'a> Iterator for Documents<'a> {
    type Item = &'a [u8];

    fn next(&mut self) -> Option<&'a [u8]> {
        let mut cursor = Cursor::new(self.rest, 0);
        // An error means that a validated sequence has ended, or that the bytes are invalid and
        // `encode` will refuse them.
        let document = self.rest.get(cursor.document(DOCUMENT).ok()?);
        self.rest = cursor.rest();
        document
    }
}

/// Decodes and validates everything after the header of an OP_MSG.
pub(super) fn decode(cursor: &mut Cursor<'_>) -> Result<Layout, WireError> {
    let flags = cursor.u32("the flags")?;
    let unknown = flags & REQUIRED & !(CHECKSUM_PRESENT | MORE_TO_COME);
    if unknown != 0 {
        return Err(WireError::UnknownFlags(unknown));
    }
    if flags & CHECKSUM_PRESENT != 0 {
        let declared = cursor.split_off(size_of::<u32>(), "the checksum")?;
        let declared = Cursor::new(declared, 0).u32("the checksum")?;
        let actual = crc32c::checksum(cursor.bytes());
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

const SEQUENCE: &str = "a document sequence";
const IDENTIFIER: &str = "the identifier of a document sequence";
const DOCUMENT: &str = "a document of a sequence";
