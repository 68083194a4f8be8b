//! The way back: the directory becomes that of the server again.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use cairn_base::{BlockId, GroupId, RealDisk, Role, SessionId};
use cairn_blocks::Store;
use cairn_meta::check;
use cairn_meta::dump::{self, Contents};
use cairn_meta::engine::{Engine, Snapshot};
use cairn_meta::keys;
use cairn_meta::rows::Place;

use super::later::Losses;
use super::{moves, parts};
use crate::dir::adoption::{Adoption, AdoptionStep};
use crate::dir::lock::Lock;
use crate::dir::{ADOPTION_DUMP, DataDir, Format, MACHINE, MetaPlace, directory_of_role};
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
    let take: fn(&Path) -> Result<Lock> = if dry_run { Lock::take_unchanged } else { Lock::take };
    let own = take(dir)?;
    Adoption::require_unchanged(dir, Some(&adoption))?;
    let rows = require_rows(dir)?;
    moves::require_one_disk(dir)?;
    if adoption.step == AdoptionStep::Adopted {
        // The machine does not run, nor begins to.
        let roles = Role::ALL.map(|role| dir.join(directory_of_role(role)));
        let locks = roles.iter().filter(|part| part.exists()).map(|part| take(part));
        let locks = locks.collect::<Result<Vec<Lock>>>()?;
        let losses = Losses::of(dir, &*rows)?;
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
    drop(rows);
    adoption.enter(dir, AdoptionStep::Undoing)?;
    go_back(dir, own, &adoption)?;
    output::line(format!("The server is back: start it with `cairn server {shown}`"))
}

/// Returns the rows of the server. In their absence a new table would be made, to which all blocks
/// are later ones.
fn require_rows(dir: &Path) -> Result<Arc<dyn Engine>> {
    let disk = dir.join(directory_of_role(Role::Chunkserver));
    let place = if dir.join("format").exists() { dir } else { &disk };
    let store = Contents::Store(Format::read(place)?.cluster_number());
    let meta = dir.join("meta");
    if meta.is_dir() {
        let rows = frozen_rows(&meta, MetaPlace::Directory)?;
        if dump::contents(&*rows)? == store {
            return Ok(rows);
        }
    }
    Err(Failure::damage(format!(
        "{}: holds no metadata of this store: is its disk mounted? Nothing was changed",
        meta.display()
    )))
}

/// Goes back from any step; each part of it can be repeated.
fn go_back(dir: &Path, own: Lock, adoption: &Adoption) -> Result<()> {
    // Without it, no program starts the machine.
    parts::remove_all(&dir.join(MACHINE))?;
    let disk = dir.join(directory_of_role(Role::Chunkserver));
    if disk.exists() {
        moves::back(dir)?;
    }
    // The server needs room to begin.
    parts::remove_all(&dir.join(ADOPTION_DUMP))?;
    drop(own);
    let server = DataDir::open(dir, MetaPlace::Directory)?;
    Adoption::require_unchanged(dir, Some(adoption))?;
    let metadata = Metadata::in_directory(&server)?;
    dump::skip_numbers(&*metadata.engine)?;
    if let Some(embedded) = &metadata.embedded {
        embedded.checkpoint()?;
    }
    drop(metadata);
    remove_later_blocks(&server, &sessions_of_cluster(dir, &server.format))?;
    parts::remove(dir)?;
    // Another user may run the command. The metadata may be behind a link.
    for part in [server.meta(), server.blocks()] {
        let place = part.canonicalize().map_err(|error| Failure::file(&part, &error))?;
        parts::give(&place, dir)?;
    }
    drop(server);
    Adoption::end(dir)
}

/// Returns the sessions that the cluster has known. After a crash its metadata may be gone: then
/// there are none.
fn sessions_of_cluster(dir: &Path, format: &Format) -> BTreeSet<SessionId> {
    let meta = dir.join(directory_of_role(Role::Master)).join("meta");
    if !meta.is_dir() {
        return BTreeSet::new();
    }
    let found = frozen_rows(&meta, MetaPlace::Members).and_then(|rows| {
        match dump::contents(&*rows)? {
            Contents::Store(number) if number == format.cluster_number() => {}
            _ => return Ok(BTreeSet::new()),
        }
        sessions(&*rows.snapshot()?)
    });
    found.unwrap_or_else(|failure| {
        output::complain(&format!(
            "{failure}: blocks that were written after the adoption stay, and `cairn fsck` counts \
             them as unknown"
        ));
        BTreeSet::new()
    })
}

/// Deletes the blocks that were written after the adoption, which the server would take for those
/// of another copy of its metadata: blocks of other groups, and of sessions that the server does
/// not know. Blocks of sessions that the cluster did not know either stay: an older copy of the
/// metadata may have been restored beside them before the adoption.
fn remove_later_blocks(server: &DataDir, of_cluster: &BTreeSet<SessionId>) -> Result<()> {
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
            let is_later = |block: &BlockId| {
                of_cluster.contains(&block.session)
                    && (group != GroupId::LOCAL || !known.contains(&block.session))
            };
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

/// Returns all sessions in a snapshot of metadata.
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
