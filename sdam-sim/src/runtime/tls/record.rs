//! Records, the frames of TLS, with the standard header.

use sdam_core::rng::mix;

/// The content type of a record (RFC 8446: "ContentType").
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Alert = 21,
    Handshake = 22,
    Data = 23,
}

/// The length of a header: the type, the version, and the length of the payload.
pub(super) const HEADER: usize = 5;
/// The maximum length of a payload.
pub(super) const MAX_PAYLOAD: usize = 1 << 14;

/// Returns whether `bytes`, at least one, may be the beginning of a simulated or real TLS record.
pub(in super::super) fn is_header(bytes: &[u8]) -> bool {
    matches!(bytes[0], 20..=23)
        && bytes.get(1).is_none_or(|major| *major == 3)
        && bytes.get(2).is_none_or(|minor| *minor <= 4)
        && bytes
            .get(3)
            .is_none_or(|high| usize::from(*high) <= MAX_PAYLOAD >> 8)
}

/// Returns the length of the payload after a whole header.
pub(super) fn payload_length(header: [u8; HEADER]) -> usize {
    usize::from(u16::from_be_bytes([header[3], header[4]]))
}

/// Returns a record with this payload of at most [`MAX_PAYLOAD`] bytes.
pub(super) fn encode(content: Content, payload: &[u8]) -> Vec<u8> {
    let length = u16::try_from(payload.len()).unwrap_or(u16::MAX);
    let mut record = vec![content as u8, 3, 3];
    record.extend(length.to_be_bytes());
    record.extend(payload);
    record
}

/// Takes a whole record from the front of `bytes`.
///
/// # Errors
///
/// [`NoRecord`] if `bytes` does not begin with a record.
pub(super) fn take(bytes: &mut Vec<u8>) -> Result<Option<(Content, Vec<u8>)>, NoRecord> {
    if bytes.is_empty() {
        return Ok(None);
    }
    if !is_header(bytes) {
        return Err(NoRecord);
    }
    let Some(header) = bytes.first_chunk() else {
        return Ok(None);
    };
    let content = match bytes[0] {
        21 => Content::Alert,
        22 => Content::Handshake,
        23 => Content::Data,
        _ => return Err(NoRecord),
    };
    let length = HEADER + payload_length(*header);
    if bytes.len() < length {
        return Ok(None);
    }
    let rest = bytes.split_off(length);
    let mut record = std::mem::replace(bytes, rest);
    Ok(Some((content, record.split_off(HEADER))))
}

/// The error of bytes that are not a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct NoRecord;

/// A key stream that changes every byte depending on its position.
#[derive(Debug)]
pub(super) struct Cipher {
    key: u64,
    at: u64,
}

impl Cipher {
    pub(super) fn new(key: u64) -> Self {
        Self { key, at: 0 }
    }

    /// Encrypts or decrypts the next bytes of the stream.
    pub(super) fn apply(&mut self, bytes: &mut [u8]) {
        for byte in bytes {
            let word = mix(self.key.wrapping_add(self.at / 8)).to_le_bytes();
            *byte ^= word[(self.at % 8) as usize];
            self.at += 1;
        }
    }

    /// Returns the records for the next plain bytes.
    pub(super) fn seal(&mut self, plain: &[u8]) -> Vec<u8> {
        let mut records = Vec::with_capacity(plain.len() + HEADER);
        for chunk in plain.chunks(MAX_PAYLOAD) {
            let mut payload = chunk.to_vec();
            self.apply(&mut payload);
            records.extend(encode(Content::Data, &payload));
        }
        records
    }
}

/// The keys of a connection.
pub(super) struct Keys {
    pub(super) to_server: Cipher,
    pub(super) to_client: Cipher,
}

impl Keys {
    /// Derives the keys from the numbers of the two hellos.
    pub(super) fn new(client: u64, server: u64) -> Self {
        let key = mix(client ^ server.rotate_left(32));
        Self {
            to_server: Cipher::new(mix(key)),
            to_client: Cipher::new(mix(key ^ 1)),
        }
    }
}
