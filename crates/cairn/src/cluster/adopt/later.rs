//! Losses of a way back: writes after the adoption, and blocks of the server that are gone.

use std::collections::BTreeSet;
use std::path::Path;

use cairn_base::{Ino, NodeId, Role};
use cairn_meta::check::{self, Bound};
use cairn_meta::dump::{self, ClusterRows, RowDifference};
use cairn_meta::engine::{Engine, Snapshot};
use cairn_meta::rows::{Hold, Place};

use super::parts::{is_own, map_in};
use crate::dir::{Format, MetaPlace, directory_of_role};
use crate::failure::Result;
use crate::offline::store::{frozen_blocks, frozen_rows};
use crate::output;

/// Number of changed inodes that are looked up to be named.
const LOOKED_UP: usize = 1000;
/// Number of names that are shown.
const NAMED: usize = 20;
/// Tables whose rows users have written: inodes, entries, extended attributes, uploads and
/// their parts, buckets, users and credentials.
const TABLES: &[u8] = b"idxupbk";

/// Losses, as they are shown.
#[derive(Default)]
pub struct Losses {
    /// Number of files, objects and directories that were made, changed or removed.
    changed: u64,
    /// Their names, as far as they were looked up.
    names: BTreeSet<String>,
    /// Number of other rows that differ.
    others: u64,
    /// Nodes of other machines.
    nodes: Vec<(NodeId, String)>,
    /// Blocks of the server that are not there.
    absent_blocks: u64,
    /// Reason why the metadata of the cluster could not be read.
    unread: Option<String>,
}

impl Losses {
    /// Finds out what a way back to these rows would lose. Changes nothing.
    pub fn of(dir: &Path, server: &dyn Engine) -> Result<Losses> {
        let old = server.snapshot()?;
        let mut losses = Losses::default();
        let master = dir.join(directory_of_role(Role::Master)).join("meta");
        let read = frozen_rows(&master, MetaPlace::Members).and_then(|new| {
            let new = new.snapshot()?;
            losses.add_writes(&*old, &*new)
        });
        losses.unread = read.err().map(|failure| failure.to_string());
        losses.add_absent_blocks(dir, &*old)?;
        Ok(losses)
    }

    fn add_writes(&mut self, old: &dyn Snapshot, new: &dyn Snapshot) -> Result<()> {
        let map = map_in(new)?.unwrap_or_default();
        let others = map.nodes.iter().filter(|(node, _)| !is_own(**node));
        self.nodes = others.map(|(id, node)| (*id, node.address.clone())).collect();
        let hold = Hold { owner: "none".into(), ..Hold::default() };
        let (mut inodes, mut of_inodes, mut of_others) = (BTreeSet::new(), BTreeSet::new(), 0);
        let mut differs = |one: RowDifference| {
            let Some(table) = one.key.first().filter(|table| TABLES.contains(table)) else {
                return;
            };
            match (table, one.key.get(1..9).and_then(|ino| ino.try_into().ok())) {
                (b'i' | b'd' | b'x', Some(ino)) => {
                    let ino = Ino(u64::from_be_bytes(ino));
                    if *table == b'i' && inodes.len() < LOOKED_UP {
                        inodes.insert(ino);
                    }
                    of_inodes.insert(ino);
                }
                _ => of_others += 1,
            }
        };
        let rows = ClusterRows { map, hold };
        dump::compare(old, new, &rows, &mut differs, &mut |_| {})?;
        (self.changed, self.others) = (of_inodes.len() as u64, of_others);
        for snapshot in [old, new] {
            let named = check::name_inodes(snapshot, &inodes, &mut Bound::none())?;
            self.names.extend(named.into_values().flatten());
        }
        Ok(())
    }

    /// Looks for each block that the metadata of the server name.
    fn add_absent_blocks(&mut self, dir: &Path, old: &dyn Snapshot) -> Result<()> {
        let disk = dir.join(directory_of_role(Role::Chunkserver));
        let blocks = frozen_blocks(&disk.join("blocks"), &Format::read(&disk)?)?;
        let mut absent = BTreeSet::new();
        check::each_chunk(old, &mut |chunk| {
            for extent in &chunk.extents.extents {
                if let Place::Block { group, block, .. } = extent.place
                    && blocks.stat(group, block).is_err()
                {
                    absent.insert(block);
                }
            }
            Ok(())
        })?;
        self.absent_blocks = absent.len() as u64;
        Ok(())
    }

    pub fn is_none(&self) -> bool {
        self.changed == 0
            && self.others == 0
            && self.nodes.is_empty()
            && self.absent_blocks == 0
            && self.unread.is_none()
    }

    pub fn show(&self) -> Result<()> {
        if self.is_none() {
            return output::line("Nothing was written after the adoption: nothing would be lost.");
        }
        output::line("A way back loses what was written after the adoption:\n")?;
        if self.changed > 0 {
            let changed = self.changed;
            output::line(format!("  {changed} files, objects and directories made or changed"))?;
        }
        for name in self.names.iter().take(NAMED) {
            output::line(format!("    {}", output::name(name)))?;
        }
        if self.names.len() > NAMED {
            output::line(format!("    and {} more", self.names.len() - NAMED))?;
        }
        if self.others > 0 {
            let others = self.others;
            output::line(format!("  {others} changes of buckets, users, keys and uploads"))?;
        }
        for (node, address) in &self.nodes {
            output::line(format!(
                "  node {node} {address} is on another machine, which may have later writes: stop \
                 it, and never start it again"
            ))?;
        }
        if let Some(why) = &self.unread {
            output::line(format!("  the metadata of the cluster cannot be read: {why}"))?;
        }
        if self.absent_blocks > 0 {
            let absent = self.absent_blocks;
            output::line(format!(
                "  {absent} blocks that the server names are GONE: files of before the adoption \
                 would be damaged"
            ))?;
        }
        Ok(())
    }
}
