//! Tracks how fast the executor reads rows that are not in memory.

use cairn_base::Error;

use super::shared::MasterShared;
use super::source::Inline;

/// Number of operations whose missing rows go to the fetch threads after slow reads. While reads
/// are fast, the executor reads missing rows itself: that is cheaper than two threads talking. A
/// slow read adds [`SLOW_SCORE`], a fast one subtracts 1. A single slow read proves nothing, as the
/// thread may just have lost its core; two in a row do.
const ALOOF_OPS: usize = 256;
const SLOW_SCORE: u32 = 8;

/// Tracks whether the engine has to wait for the disk.
#[derive(Default)]
pub struct Disk {
    /// Score of recent slow reads.
    score: u32,
    /// Number of further operations whose missing rows are not read by the executor.
    pub aloof: usize,
}

impl Disk {
    /// Notes the time that the reads of the executor took. Returns the error if they failed.
    pub fn look_at(&mut self, inline: &Inline<'_>, shared: &MasterShared) -> Option<Error> {
        let reads = inline.take()?;
        shared.counters.rows_inline.add(reads.rows);
        if shared.monotonic_us() - reads.begun_us <= shared.config.inline_us {
            self.score = self.score.saturating_sub(1);
        } else {
            self.score += SLOW_SCORE;
        }
        if self.score >= 2 * SLOW_SCORE {
            *self = Disk { score: 0, aloof: ALOOF_OPS };
        }
        reads.failed
    }
}
