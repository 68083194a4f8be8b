//! The way back: the directory becomes that of the server again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::{BlockId, GroupId, RealDisk, Role, SessionId};
use cairn_blocks::Store;
use cairn_meta::check;
use cairn_meta::dump;
use cairn_meta::engine::Snapshot;
use cairn_meta::keys;
use cairn_meta::rows::Place;

use super::later::Losses;
use super::{moves, parts};
use crate::dir::adoption::{Adoption, AdoptionStep};
use crate::dir::lock::Lock;
use crate::dir::{DataDir, MACHINE, MetaPlace, directory_of_role};
use crate::failure::{Failure, Result};
use crate::metadata::Metadata;
use crate::offline::store::frozen_rows;
use crate::output;

/// Number of blocks that are listed or deleted at once.
const PAGE: usize = 1000;

pub fn run(dir: &Path, dry_run: bool, accept_loss: bool) -> Result<()> {
    let shown = dir.display();
    let Some(mut adoption) = Adoption::read(dir)? else {
        let text = "was not adopted, or that is finalized: there is no way back to go";
        return Err(Failure::new(format!("{shown}: {text}")));
    };
    if adoption.step == AdoptionStep::Finalizing {
        return Err(Failure::new(format!(
            "{shown}: the adoption is being finalized, and there is no way back: go on with \
             `cairn cluster finalize {shown}`"
        )));
    }
    let own = Lock::take(dir)?;
    if adoption.step == AdoptionStep::Adopted {
        // The machine does not run, nor begins to.
        let roles = Role::ALL.map(|role| dir.join(directory_of_role(role)));
        let locks = roles.iter().filter(|part| part.exists()).map(|part| Lock::take(part));
        let locks = locks.collect::<Result<Vec<Lock>>>()?;
        let losses = Losses::of(dir)?;
        losses.show()?;
        if !losses.is_none() && !accept_loss && !dry_run {
            return Err(Failure::new(format!(
                "{shown}: nothing was changed: --undo --accept-loss goes back all the same"
            )));
        }
        if !dry_run {
            adoption.enter(dir, AdoptionStep::Undoing)?;
        }
        drop(locks);
    }
    if dry_run {
        return output::line("nothing was changed");
    }
    adoption.enter(dir, AdoptionStep::Undoing)?;
    go_back(dir, own)?;
    output::line(format!("The server is back: start it with `cairn server {shown}`"))
}

/// Goes back from any step; each part of it can be repeated.
fn go_back(dir: &Path, own: Lock) -> Result<()> {
    // Without it, no program starts the machine.
    parts::remove_all(&dir.join(MACHINE))?;
    let disk = dir.join(directory_of_role(Role::Chunkserver));
    if disk.exists() {
        moves::back(dir)?;
    }
    parts::remove(dir)?;
    drop(own);
    let server = DataDir::open(dir, MetaPlace::Directory)?;
    let metadata = Metadata::in_directory(&server)?;
    dump::skip_numbers(&*metadata.engine)?;
    if let Some(embedded) = &metadata.embedded {
        embedded.checkpoint()?;
    }
    drop(metadata);
    remove_later_blocks(&server)?;
    drop(server);
    Adoption::end(dir)
}

/// Deletes the blocks that were written after the adoption: those of other groups, and those of
/// sessions that the server does not know. A server would take them for blocks of another copy of
/// its metadata.
fn remove_later_blocks(server: &DataDir) -> Result<()> {
    let path = server.blocks();
    let rows = frozen_rows(&server.meta(), MetaPlace::Directory)?;
    let old = rows.snapshot()?;
    let known = sessions(&*old)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let _entered = runtime.enter();
    let disk = RealDisk::open(&path).map_err(|error| Failure::file(&path, &error))?;
    let config = server.sizes.of_blocks(server.format.cluster, server.format.disk);
    let opened = Store::open(Arc::new(disk), config);
    let store = opened.map_err(|error| Failure::from(error).of(path.display()))?;
    let mut later: BTreeMap<GroupId, BTreeSet<BlockId>> = BTreeMap::new();
    for group in store.groups() {
        let mut after = None;
        loop {
            let page = store.inventory_now(group, after, PAGE);
            let Some(last) = page.last() else { break };
            after = Some(last.block);
            let is_later =
                |block: &BlockId| group != GroupId::LOCAL || !known.contains(&block.session);
            let found = page.iter().map(|info| info.block).filter(is_later);
            later.entry(group).or_default().extend(found);
        }
    }
    // No session that is not known can have published a block. It is looked at all the same.
    check::each_chunk(&*old, &mut |chunk| {
        for extent in &chunk.extents.extents {
            if let Place::Block { group, block, .. } = extent.place {
                later.entry(group).or_default().remove(&block);
            }
        }
        Ok(())
    })?;
    for (group, blocks) in later {
        let blocks: Vec<BlockId> = blocks.into_iter().collect();
        for page in blocks.chunks(PAGE) {
            runtime.block_on(cairn_blocks::Blocks::delete(&store, group, page))?;
        }
    }
    Ok(store.close()?)
}

/// Returns all sessions that the server has known.
fn sessions(snapshot: &dyn Snapshot) -> Result<BTreeSet<SessionId>> {
    let ((mut start, end), mut known) = (keys::sessions(), BTreeSet::new());
    loop {
        let page = snapshot.scan(&start, &end, PAGE)?;
        let number = |key: &Bytes| Some(u64::from_be_bytes(key.get(1..9)?.try_into().ok()?));
        known.extend(page.iter().filter_map(|(key, _)| number(key)).map(SessionId));
        match page.last() {
            Some((last, _)) if page.len() == PAGE => start = [last, &b"\0"[..]].concat().into(),
            _ => return Ok(known),
        }
    }
}
