//! How fast the executor reads what is not in memory.

use cairn_base::Error;

use super::shared::MasterShared;
use super::source::Inline;

/// The executor reads missing rows itself while that is fast: cheaper than two threads talking.
/// After two of sixteen that were not, so many operations go to the fetch threads. A single one
/// proves nothing: the thread may just have lost its core.
const ALOOF_OPS: usize = 256;
const SLOW_SCORE: u32 = 8;

/// Whether the engine has to wait for the disk.
#[derive(Default)]
pub struct Disk {
    /// How slow it was of late.
    score: u32,
    /// Operations that are not to read missing rows here.
    pub aloof: usize,
}

impl Disk {
    /// Takes note of how long it took to read here, and returns why it was not possible.
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
