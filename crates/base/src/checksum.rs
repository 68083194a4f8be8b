//! crc32c, the checksum of everything Cairn stores (Castagnoli polynomial, as in iSCSI).

use crc_fast::{CrcAlgorithm, checksum};

/// The crc32c of `bytes`.
pub fn crc32c(bytes: &[u8]) -> u32 {
    checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32
}

#[cfg(test)]
mod tests {
    #[test]
    fn crc32c_check_value() {
        assert_eq!(super::crc32c(b"123456789"), 0xE306_9283);
    }
}
