//! The seam to randomness.

#![expect(clippy::disallowed_methods, reason = "this is the chance")]

/// A source of random bytes.
pub trait Rng: Send + Sync + 'static {
    fn fill(&self, bytes: &mut [u8]);

    fn next_u64(&self) -> u64 {
        let mut bytes = [0; 8];
        self.fill(&mut bytes);
        u64::from_le_bytes(bytes)
    }
}

/// Cryptographic randomness from the operating system's entropy.
#[derive(Debug, Default)]
pub struct RealRng;

impl Rng for RealRng {
    /// Panics if the operating system has no randomness: nothing may go on without it.
    fn fill(&self, bytes: &mut [u8]) {
        aws_lc_rs::rand::fill(bytes).expect("the operating system gives random bytes");
    }
}

/// Reproducible randomness for tests (splitmix64): not for secrets.
#[derive(Debug)]
pub struct SeededRng {
    state: std::sync::atomic::AtomicU64,
}

impl SeededRng {
    pub fn new(seed: u64) -> SeededRng {
        SeededRng { state: seed.into() }
    }

    /// Returns a number in `0..bound`; `bound` must not be 0. The small bias does not matter in
    /// tests.
    pub fn below(&self, bound: u64) -> u64 {
        self.next_u64() % bound
    }
}

impl Rng for SeededRng {
    fn fill(&self, bytes: &mut [u8]) {
        const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
        for piece in bytes.chunks_mut(8) {
            let state = self.state.fetch_add(STEP, std::sync::atomic::Ordering::Relaxed);
            let mut z = state.wrapping_add(STEP);
            z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
            z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
            let word = (z ^ (z >> 31)).to_le_bytes();
            piece.copy_from_slice(&word[..piece.len()]);
        }
    }
}
