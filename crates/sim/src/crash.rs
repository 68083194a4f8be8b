//! Power cuts: the possible states of the medium afterwards.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use cairn_base::Rng;
use cairn_base::rng::SeededRng;

use crate::SECTOR_BYTES;
use crate::inode::{Inode, Sector};
use crate::state::DiskState;

/// Returns a possible state of `state` after a power cut, see [`crate::Snapshot::crash_image`].
pub(crate) fn crashed(state: &DiskState, seed: u64) -> DiskState {
    let rng = SeededRng::new(seed ^ 0xC0FF_EE00_DEAD_BEEF);
    let chances = Chances::draw(&rng);
    let mut names = state.durable_names.clone();
    for op in &state.name_ops {
        if chances.keeps(&rng) {
            op.apply(&mut names);
        }
    }
    let mut files = Vec::with_capacity(names.len());
    let mut moved = BTreeMap::new();
    for file in names.values_mut() {
        *file = *moved.entry(*file).or_insert_with(|| {
            files.push(Arc::new(cut(&state.files[*file], &chances, &rng)));
            files.len() - 1
        });
    }
    DiskState {
        files,
        durable_names: names.clone(),
        names,
        name_ops: Vec::new(),
        directories: state.directories.clone(),
        capacity: state.capacity,
        removed: BTreeSet::new(),
    }
}

/// Chances out of 16 that an un-synced change was kept, and that a sector is torn.
struct Chances {
    keep: u64,
    tear: u64,
}

impl Chances {
    fn draw(rng: &SeededRng) -> Chances {
        const KEEP: [u64; 6] = [0, 16, 8, 8, 15, 1];
        let keep = KEEP[rng.below(KEEP.len() as u64) as usize];
        let tear = if matches!(keep, 0 | 16) { 0 } else { rng.below(3) };
        Chances { keep, tear }
    }

    fn keeps(&self, rng: &SeededRng) -> bool {
        rng.below(16) < self.keep
    }
}

fn cut(inode: &Inode, chances: &Chances, rng: &SeededRng) -> Inode {
    let mut image = inode.durable.clone();
    for (&sector, dirty) in &inode.dirty {
        let offset = sector * SECTOR_BYTES as u64;
        let mut old = [0; SECTOR_BYTES];
        image.read(&mut old, offset);
        let kept = chances.keeps(rng);
        let Some(last) = dirty.versions.len().checked_sub(1) else { continue };
        // Mostly the newest version; otherwise any.
        let pick = if rng.below(4) > 0 { last } else { rng.below(last as u64 + 1) as usize };
        let new: &Sector = &dirty.versions[pick];
        if rng.below(16) < chances.tear {
            image.write(&torn(&old, new, rng), offset);
        } else if kept {
            image.write(&new[..], offset);
        }
    }
    let mut len = inode.durable_len;
    if let Some(last) = inode.dirty_lens.last()
        && chances.keeps(rng)
    {
        let any = inode.dirty_lens[rng.below(inode.dirty_lens.len() as u64) as usize];
        len = if rng.below(2) == 0 { *last } else { any };
    }
    image.cut(len);
    Inode {
        live: image.clone(),
        live_len: len,
        durable: image,
        durable_len: len,
        reserved: inode.reserved.min(len),
        ..Inode::default()
    }
}

fn torn(old: &Sector, new: &Sector, rng: &SeededRng) -> Sector {
    let split = rng.below(SECTOR_BYTES as u64) as usize;
    let (mut out, other) = if rng.below(2) == 0 { (*old, new) } else { (*new, old) };
    match rng.below(4) {
        0 => out.fill(0),
        1 => rng.fill(&mut out[split..]),
        _ => out[split..].copy_from_slice(&other[split..]),
    }
    out
}
