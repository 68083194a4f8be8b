//! Bytes written to a file and not written back: runs that do not overlap. No run crosses a
//! boundary between blocks, so that each can become one block.

use std::collections::BTreeMap;
use std::ops::Range;

use bytes::Bytes;
use cairn_base::limits::BLOCK_BYTES;
use cairn_base::{Buffers, PooledBytes};

/// Length, bytes, from which on a growing run gets room for a whole block. The unused part costs
/// addresses and no memory, unless the memory was used before.
const GROWS_WHOLE: usize = 128 << 10;
/// Length, bytes, of a new run that will most likely become a whole block soon.
const BEGINS_WHOLE: usize = 1 << 20;
/// Number of buffers for blocks that are kept to be used again.
const WAITING: usize = 8;

/// Memory for runs that become whole blocks.
pub fn whole_blocks() -> Buffers {
    Buffers::new(BLOCK_BYTES, WAITING)
}

#[derive(Default)]
pub struct Runs {
    runs: BTreeMap<u64, PooledBytes>,
    bytes: u64,
    /// Memory for runs that become whole blocks; without it each run has its own.
    whole: Option<Buffers>,
}

/// Runs that are being written back.
pub type Frozen = Vec<(u64, Bytes)>;

fn block_of(offset: u64) -> u64 {
    offset / BLOCK_BYTES as u64
}

impl Runs {
    pub fn new(whole: Buffers) -> Runs {
        Runs { whole: Some(whole), ..Runs::default() }
    }

    pub fn clear(&mut self) {
        self.runs.clear();
        self.bytes = 0;
    }

    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns the end of the last run.
    pub fn end(&self) -> u64 {
        self.runs.last_key_value().map_or(0, |(start, run)| start + run.len() as u64)
    }

    pub fn write(&mut self, offset: u64, data: &[u8]) {
        let (mut offset, mut data) = (offset, data);
        while !data.is_empty() {
            let border = (block_of(offset) + 1) * BLOCK_BYTES as u64;
            let (now, later) = data.split_at(data.len().min((border - offset) as usize));
            self.write_within(offset, now);
            offset += now.len() as u64;
            data = later;
        }
    }

    fn write_within(&mut self, offset: u64, data: &[u8]) {
        let end = offset + data.len() as u64;
        let before = self.runs.range(..=offset).next_back();
        let start = match before {
            Some((start, run))
                if start + run.len() as u64 >= offset && block_of(*start) == block_of(offset) =>
            {
                *start
            }
            _ => offset,
        };
        let whole = self.whole.as_ref();
        let run = self.runs.entry(start).or_default();
        let at = (offset - start) as usize;
        let overlap = (run.len() - at).min(data.len());
        run[at..at + overlap].copy_from_slice(&data[..overlap]);
        let (had, len) = (run.len(), at + data.len());
        if run.capacity() < len {
            // A run that grows goes on growing: from some length on it gets room for a whole block,
            // so that it is not copied again.
            match at > 0 {
                _ if len >= BEGINS_WHOLE => move_to(run, room(whole)),
                true if len >= GROWS_WHOLE => move_to(run, room(whole)),
                true => run.memory().reserve_exact(4 * len - had),
                false => run.memory().reserve_exact(len - had),
            }
        }
        run.memory().extend_from_slice(&data[overlap..]);
        self.bytes += (data.len() - overlap) as u64;
        self.absorb(start, end);
    }

    /// Joins the run at `start`, which now reaches to `end`, with the runs behind it that it
    /// reaches.
    fn absorb(&mut self, start: u64, end: u64) {
        let behind = |runs: &BTreeMap<u64, PooledBytes>| {
            let next = runs.range(start + 1..=end).next()?;
            (block_of(*next.0) == block_of(start)).then_some(*next.0)
        };
        while let Some(next) = behind(&self.runs) {
            let Some(absorbed) = self.runs.remove(&next) else { return };
            let covered = (end - next).min(absorbed.len() as u64);
            self.bytes -= covered;
            if let Some(run) = self.runs.get_mut(&start) {
                run.memory().extend_from_slice(&absorbed[covered as usize..]);
            }
        }
    }

    /// Takes all runs, or only those that are whole blocks.
    pub fn take(&mut self, only_whole: bool) -> Frozen {
        let is_taken = |run: &PooledBytes| !only_whole || run.len() == BLOCK_BYTES;
        let mut taken = Vec::new();
        self.runs.retain(|start, run| {
            let takes = is_taken(run);
            if takes {
                taken.push((*start, Bytes::from_owner(std::mem::take(run))));
            }
            !takes
        });
        self.bytes -= taken.iter().map(|(_, run)| run.len() as u64).sum::<u64>();
        taken
    }

    /// Puts back runs that could not be written back; bytes that were written meanwhile are newer.
    pub fn put_back(&mut self, frozen: &Frozen) {
        let whole = self.whole.clone();
        let newer = std::mem::replace(self, Runs { whole, ..Runs::default() });
        for (start, run) in frozen {
            self.write(*start, run);
        }
        for (start, run) in newer.runs {
            self.write(start, &run);
        }
    }

    /// Returns copies of the runs that overlap `range`.
    pub fn copy(&self, range: &Range<u64>) -> Frozen {
        let from = self.runs.range(..=range.start).next_back().map_or(range.start, |(at, _)| *at);
        let mut copies = Frozen::new();
        for (start, run) in self.runs.range(from..range.end) {
            let first = start.max(&range.start);
            let last = (start + run.len() as u64).min(range.end);
            if *first < last {
                let bytes = &run[(first - start) as usize..(last - start) as usize];
                copies.push((*first, Bytes::copy_from_slice(bytes)));
            }
        }
        copies
    }

    pub fn overlaps(&self, range: &Range<u64>) -> bool {
        let before = self.runs.range(..range.end).next_back();
        before.is_some_and(|(start, run)| start + run.len() as u64 > range.start)
    }
}

/// Returns room for a whole block.
fn room(whole: Option<&Buffers>) -> PooledBytes {
    whole.map_or_else(|| PooledBytes::with_room(BLOCK_BYTES), Buffers::room)
}

/// Moves a run to other memory.
fn move_to(run: &mut PooledBytes, mut memory: PooledBytes) {
    memory.memory().extend_from_slice(run);
    *run = memory;
}

/// Copies the bytes of a run that lie in `range` over `bytes`, which begin at the start of `range`.
pub fn overlay(start: u64, run: &[u8], range: &Range<u64>, bytes: &mut [u8]) {
    let first = start.max(range.start);
    let last = (start + run.len() as u64).min(range.end);
    if first >= last {
        return;
    }
    let target = &mut bytes[(first - range.start) as usize..(last - range.start) as usize];
    target.copy_from_slice(&run[(first - start) as usize..(last - start) as usize]);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes at places that touch, overlap and contain each other, against one long array.
    #[test]
    fn runs_are_what_was_written() {
        let base = BLOCK_BYTES as u64 - 500;
        let mut seed = 7u64;
        let mut next = |below: u64| {
            seed = seed.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            (seed >> 33) % below
        };
        for _ in 0..300 {
            let mut runs = Runs::new(whole_blocks());
            let mut model = vec![None; 1000];
            for value in 0..20u8 {
                let at = next(900);
                let len = 1 + next(100);
                runs.write(base + at, &vec![value; len as usize]);
                model[at as usize..(at + len) as usize].fill(Some(value));
                let dirty = model.iter().flatten().count() as u64;
                assert_eq!(runs.bytes(), dirty);
            }
            let mut seen = vec![255; 1000];
            let show = |runs: &Runs, seen: &mut [u8]| {
                let range = base..base + 1000;
                for (start, run) in runs.copy(&range) {
                    overlay(start, &run, &range, seen);
                }
            };
            show(&runs, &mut seen);
            let expected: Vec<u8> = model.iter().map(|one| one.unwrap_or(255)).collect();
            assert_eq!(seen, expected);
            let frozen = runs.take(false);
            assert_eq!((runs.bytes(), runs.is_empty()), (0, true));
            for pair in frozen.windows(2) {
                let end = pair[0].0 + pair[0].1.len() as u64;
                assert!(end < pair[1].0 || end == BLOCK_BYTES as u64, "runs that touch");
            }
            runs.write(base + 3, b"newer");
            runs.put_back(&frozen);
            show(&runs, &mut seen);
            assert_eq!(&seen[3..8], b"newer");
        }
    }
}
