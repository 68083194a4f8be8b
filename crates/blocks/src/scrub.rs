//! Scrubbing: reads and verifies every record of every block before a client needs it.

use std::ops::ControlFlow;

use cairn_base::{BlockId, Error, GroupId, Owner, Result};

use crate::format::Key;
use crate::store::Store;

/// Number of blocks looked up at a time.
const PAGE_BLOCKS: usize = 1024;

/// A block that cannot be read.
#[derive(Debug)]
pub struct SickBlock {
    pub group: GroupId,
    pub block: BlockId,
    pub owner: Owner,
    /// The error, `Corrupt` or `Io`.
    pub error: Error,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct ScrubProgress {
    pub blocks: u64,
    /// Bytes of data, verified or not.
    pub bytes: u64,
    /// Number of blocks at the start.
    pub total_blocks: u64,
}

#[derive(Debug, Default)]
pub struct ScrubReport {
    pub blocks: u64,
    pub bytes: u64,
    pub sick: Vec<SickBlock>,
    /// True if the callback stopped the scrub.
    pub stopped: bool,
}

impl Store {
    /// Reads and verifies all blocks. Calls `progress` after each, with the block if it is sick;
    /// `progress` may sleep to limit the rate, or break to stop. Blocks that appear or vanish
    /// meanwhile are skipped. Blocks the thread.
    pub fn scrub(
        &self,
        mut progress: impl FnMut(&ScrubProgress, Option<&SickBlock>) -> ControlFlow<()>,
    ) -> Result<ScrubReport> {
        let mut report = ScrubReport::default();
        let total_blocks = self.shared.state.read().index.len();
        for group in self.groups() {
            let mut after = None;
            loop {
                let page = self.inventory_now(group, after, PAGE_BLOCKS);
                let Some(last) = page.last() else { break };
                after = Some(last.block);
                for info in page {
                    let key = Key { group, block: info.block };
                    let sick = match self.shared.read(key, &(0..info.length)) {
                        Ok(_) => None,
                        Err(Error::NotFound(_)) => continue,
                        Err(error) => {
                            let (block, owner) = (info.block, info.owner);
                            Some(SickBlock { group, block, owner, error })
                        }
                    };
                    report.blocks += 1;
                    report.bytes += u64::from(info.length);
                    let (blocks, bytes) = (report.blocks, report.bytes);
                    let told =
                        progress(&ScrubProgress { blocks, bytes, total_blocks }, sick.as_ref());
                    report.sick.extend(sick);
                    if told.is_break() {
                        report.stopped = true;
                        return Ok(report);
                    }
                }
            }
        }
        Ok(report)
    }
}
