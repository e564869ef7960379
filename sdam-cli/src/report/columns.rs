//! Compact columns of numbers.

use base64::{Engine as _, engine::general_purpose::STANDARD};

/// Numbers encoded as LEB128, with one byte for every 7 bits, and stored in the page as base64.
#[derive(Debug, Default)]
pub(super) struct Column(Vec<u8>);

impl Column {
    pub(super) fn push(&mut self, mut number: u64) {
        loop {
            let low = (number & 0x7f) as u8;
            number >>= 7;
            if number == 0 {
                self.0.push(low);
                return;
            }
            self.0.push(low | 0x80);
        }
    }

    pub(super) fn encode(&self) -> String {
        STANDARD.encode(&self.0)
    }
}

impl Extend<u64> for Column {
    fn extend<I: IntoIterator<Item = u64>>(&mut self, numbers: I) {
        numbers.into_iter().for_each(|number| self.push(number));
    }
}

impl FromIterator<u64> for Column {
    fn from_iter<I: IntoIterator<Item = u64>>(numbers: I) -> Self {
        let mut column = Self::default();
        column.extend(numbers);
        column
    }
}

/// Returns the differences between consecutive numbers of an ascending sequence.
pub(super) fn deltas(numbers: impl IntoIterator<Item = u64>) -> impl Iterator<Item = u64> {
    let mut previous = 0;
    numbers.into_iter().map(move |number| {
        let delta = number - previous;
        previous = number;
        delta
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_take_one_byte_for_each_seven_bits() {
        let check = |number, expected: &[u8]| {
            let column: Column = [number].into_iter().collect();
            assert_eq!(column.0, expected);
        };
        check(0, &[0]);
        check(127, &[127]);
        check(128, &[0x80, 1]);
        check(300, &[0xac, 2]);
        check(u64::MAX, &[255, 255, 255, 255, 255, 255, 255, 255, 255, 1]);
        assert_eq!([3, 1, 4].into_iter().collect::<Column>().encode(), "AwEE", "base64");
        assert!(deltas([5, 5, 9]).eq([5, 0, 4]));
    }
}
