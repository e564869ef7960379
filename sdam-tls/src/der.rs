//! A DER reader.

#[derive(Clone, Copy, Debug)]
pub(crate) struct Value<'a> {
    pub(crate) tag: u8,
    pub(crate) content: &'a [u8],
    /// All bytes of the value, including tag and length.
    pub(crate) whole: &'a [u8],
}

impl<'a> Value<'a> {
    /// Reads the first value of `bytes`.
    pub(crate) fn of(bytes: &'a [u8]) -> Option<Self> {
        let (&[tag, short], rest) = bytes.split_first_chunk()?;
        let (length, header) = match short {
            0..=0x7f => (usize::from(short), 2),
            // The length has at most four bytes, so it is below 4 GiB.
            0x81..=0x84 => {
                let digits = rest.get(..usize::from(short & 0x7f))?;
                let add = |length, digit: &u8| (length << 8) | usize::from(*digit);
                (digits.iter().fold(0, add), 2 + digits.len())
            }
            _ => return None,
        };
        let whole = bytes.get(..header.checked_add(length)?)?;
        Some(Self { tag, content: whole.get(header..)?, whole })
    }

    /// Returns the values inside this one.
    pub(crate) fn values(self) -> impl Iterator<Item = Value<'a>> {
        let mut rest = self.content;
        std::iter::from_fn(move || {
            let value = Value::of(rest)?;
            rest = rest.get(value.whole.len()..)?;
            Some(value)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_have_one_byte_or_say_how_many() {
        let check = |head: &[u8], length: usize| {
            let bytes = [head, &vec![7; length]].concat();
            let value = Value::of(&[&bytes[..], &[1, 2]].concat()).map(|it| it.content.len());
            assert_eq!(value, Some(length));
            assert!(Value::of(&bytes[..bytes.len() - 1]).is_none());
        };
        check(&[0x30, 0], 0);
        check(&[0x30, 0x7f], 127);
        check(&[0x30, 0x81, 0x80], 128);
        check(&[0x30, 0x82, 1, 2], 258);
        assert!(Value::of(&[0x30, 0x80, 0, 0]).is_none());
        assert!(Value::of(&[0x30, 0x88, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff]).is_none());
    }
}
