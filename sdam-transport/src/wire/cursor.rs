//! A forward cursor over bytes.

use std::ops::Range;

use super::WireError;

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

    pub(super) fn position(&self) -> usize {
        self.at
    }

    pub(super) fn rest(&self) -> &'a [u8] {
        self.bytes.get(self.at..).unwrap_or_default()
    }

    /// Returns all bytes, including those already read.
    pub(super) fn bytes(&self) -> &'a [u8] {
        self.bytes
    }

    /// Removes and returns the last `length` bytes.
    pub(super) fn split_off(
        &mut self,
        length: usize,
        field: &'static str,
    ) -> Result<&'a [u8], WireError> {
        let end = self.bytes.len().checked_sub(length).filter(|end| *end >= self.at);
        let (bytes, tail) = self.bytes.split_at(end.ok_or(WireError::Truncated { field })?);
        self.bytes = bytes;
        Ok(tail)
    }

    pub(super) fn take(
        &mut self,
        length: usize,
        field: &'static str,
    ) -> Result<&'a [u8], WireError> {
        let taken = self.rest().get(..length).ok_or(WireError::Truncated { field })?;
        self.at += length;
        Ok(taken)
    }

    pub(super) fn u8(&mut self, field: &'static str) -> Result<u8, WireError> {
        self.array(field).map(u8::from_le_bytes)
    }

    pub(super) fn u32(&mut self, field: &'static str) -> Result<u32, WireError> {
        self.array(field).map(u32::from_le_bytes)
    }

    pub(super) fn i32(&mut self, field: &'static str) -> Result<i32, WireError> {
        self.array(field).map(i32::from_le_bytes)
    }

    /// Reads a NUL-terminated string, without the NUL.
    pub(super) fn cstring(&mut self, field: &'static str) -> Result<Range<usize>, WireError> {
        let length =
            self.rest().iter().position(|byte| *byte == 0).ok_or(WireError::Truncated { field })?;
        let start = self.at;
        let text = self.take(length + 1, field)?;
        std::str::from_utf8(text).map_err(|_| WireError::NotUtf8 { field })?;
        Ok(start..start + length)
    }

    /// Reads a BSON document. Checks its length and last byte, but not its elements.
    pub(super) fn document(&mut self, field: &'static str) -> Result<Range<usize>, WireError> {
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
