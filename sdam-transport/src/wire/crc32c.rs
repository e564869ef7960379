//! CRC-32C (Castagnoli), the checksum of OP_MSG.

pub(super) fn checksum(bytes: &[u8]) -> u32 {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_is_that_of_rfc_3720() {
        // The test vectors of RFC 3720, appendix B.4, and the customary check value.
        let ascending: Vec<u8> = (0..32).collect();
        let descending: Vec<u8> = (0..32).rev().collect();
        assert_eq!(checksum(b""), 0);
        assert_eq!(checksum(b"123456789"), 0xE306_9283);
        assert_eq!(checksum(&[0; 32]), 0x8A91_36AA);
        assert_eq!(checksum(&[0xFF; 32]), 0x62A8_AB43);
        assert_eq!(checksum(&ascending), 0x46DD_794E);
        assert_eq!(checksum(&descending), 0x113F_DB5C);
    }
}
