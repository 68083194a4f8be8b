//! The history of a run, in one number.

/// FNV-1a.
#[derive(Clone, Copy)]
pub struct Digest(u64);

impl Default for Digest {
    fn default() -> Digest {
        Digest(0xCBF2_9CE4_8422_2325)
    }
}

impl Digest {
    pub fn add(&mut self, numbers: &[u64]) {
        for number in numbers {
            self.0 = (self.0 ^ number).wrapping_mul(0x0100_0000_01B3);
            self.0 ^= self.0 >> 29;
        }
    }

    pub fn add_bytes(&mut self, bytes: &[u8]) {
        self.add(&[u64::from(cairn_base::checksum::crc32c(bytes))]);
    }

    pub fn value(self) -> u64 {
        self.0
    }
}
