//! Parts of a machine, made beside the server that is adopted: the identities of its three nodes,
//! and the metadata of the cluster. Nothing of the server changes.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, ErrorKind, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt, lchown};
use std::path::Path;

use bytes::Bytes;
use cairn_base::clock::RealClock;
use cairn_base::map::{Group, Member, Node};
use cairn_base::rng::RealRng;
use cairn_base::{
    Clock, ClusterId, ClusterMap, GroupId, NodeId, Pin, Redundancy, Role, Roles, Timestamp,
};
use cairn_cluster::identity::{Ca, Directory, JoinResult, KnownNode};
use cairn_meta::dump::{self, ClusterRows, RowDifference, Summary};
use cairn_meta::engine::{Engine, Snapshot};
use cairn_meta::rows::{Bucket, Hold, Row};
use cairn_meta::{capabilities, keys};

use crate::dir::adoption::Adoption;
use crate::dir::{ADOPTION_DUMP, DataDir, MetaPlace, directory_of_role};
use crate::failure::{Failure, Result};
use crate::members::{self, Alone};
use crate::node::Machine;
use crate::offline::store::frozen_rows;
use crate::output;

/// Nodes of the machine.
const MASTER: NodeId = NodeId(1);
const CHUNKSERVER: NodeId = NodeId(2);
const GATEWAY: NodeId = NodeId(3);
/// Number of the next node.
const NEXT_NODE: u64 = 4;
/// End of the hold on what the server names: the year 2200. Finalizing ends it before.
const HOLD_ENDS: i64 = 7_258_118_400;
/// Number of differences that are named.
const NAMED: usize = 10;
/// Number of rows read at a time.
const PAGE: usize = 500;
/// Bytes read or written at a time.
const BUFFER: usize = 256 << 10;

/// Removes the parts, and the dump; what is not there is no error. Must not be called while the
/// blocks are in one of them.
pub fn remove(dir: &Path) -> Result<()> {
    let disk = dir.join(directory_of_role(Role::Chunkserver));
    for name in ["blocks", "format"] {
        let kept = disk.join(name);
        if kept.symlink_metadata().is_ok() {
            return Err(Failure::new(format!("{}: is not to be removed", kept.display())));
        }
    }
    for role in Role::ALL {
        remove_all(&dir.join(directory_of_role(role)))?;
    }
    remove_all(&dir.join(ADOPTION_DUMP))?;
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(|error| Failure::file(dir, &error))
}

/// Removes a file, or a directory with all that is in it. Where a disk is mounted, an empty
/// directory stays.
pub fn remove_all(path: &Path) -> Result<()> {
    let removed = match path.symlink_metadata() {
        Ok(found) if found.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if matches!(error.kind(), ErrorKind::NotFound | ErrorKind::ResourceBusy) => {
            Ok(())
        }
        removed => removed.map_err(|error| Failure::file(path, &error)),
    }
}

/// Makes the parts, and compares the metadata of the cluster with those of the server.
pub fn make(dir: &Path, server: &DataDir, machine: &Machine, adoption: &Adoption) -> Result<()> {
    let old = frozen_rows(&server.meta(), MetaPlace::Directory)?;
    let summary = write_dump(&dir.join(ADOPTION_DUMP), &*old)?;
    let nodes = join_nodes(dir, server, machine)?;
    let rows = cluster_rows(&*old, &summary, nodes, adoption.replicas)?;
    let master = dir.join(directory_of_role(Role::Master));
    load(&master, &dir.join(ADOPTION_DUMP), server, &rows)?;
    let new = frozen_rows(&master.join("meta"), MetaPlace::Members)?;
    compare(&*old.snapshot()?, &*new.snapshot()?, &rows)?;
    for role in Role::ALL {
        give(&dir.join(directory_of_role(role)), dir)?;
    }
    give(&dir.join(ADOPTION_DUMP), dir)
}

/// Writes all rows of the server to a file, durably, and verifies it.
fn write_dump(path: &Path, old: &dyn Engine) -> Result<Summary> {
    let fail = |error: io::Error| Failure::file(path, &error);
    let mut options = OpenOptions::new();
    let file = options.write(true).create_new(true).mode(0o600).open(path).map_err(fail)?;
    let bar = output::count_bar(0, "dumping rows");
    let mut out = BufWriter::with_capacity(BUFFER, &file);
    let written = dump::write(&*old.snapshot()?, &mut out, &mut |rows| bar.set_position(rows))?;
    out.flush().and_then(|()| file.sync_all()).map_err(fail)?;
    drop(out);
    bar.finish_and_clear();
    let mut input = BufReader::with_capacity(BUFFER, File::open(path).map_err(fail)?);
    let read = dump::verify(&mut input, &mut |_| {})?;
    if read != written {
        return Err(Failure::damage(format!("{}: does not read back", path.display())));
    }
    Ok(written)
}

/// Makes the authority of the cluster and the identities of the three nodes; returns these as the
/// map has them.
fn join_nodes(dir: &Path, server: &DataDir, machine: &Machine) -> Result<[(NodeId, Node); 3]> {
    let now = RealClock::default().now();
    let cluster = ClusterId(u128::from_be_bytes(server.format.cluster));
    let ca = Ca::init(cluster, now, &RealRng)?;
    let places =
        [(MASTER, Role::Master), (CHUNKSERVER, Role::Chunkserver), (GATEWAY, Role::Gateway)];
    let mut masters = Vec::new();
    let mut nodes = Vec::new();
    for (node, role) in places {
        let directory = Directory::open(&dir.join(directory_of_role(role)))?;
        let (key, roles) = (directory.key()?, Roles::from(role));
        let pin = Pin { key: key.public().hash(), roles };
        let certificate = ca.issue(node, roles, &key.public(), now, &RealRng)?;
        if role == Role::Master {
            masters.push(KnownNode { node, pin });
            directory.save_ca(&ca)?;
        }
        let authority = ca.authority().clone();
        let joined = JoinResult { node, roles, certificate, authority, masters: masters.clone() };
        directory.save(&joined, &[machine.at(0)])?;
        nodes.push(Node::new(pin));
    }
    let [mut master, mut chunkserver, gateway] = <[Node; 3]>::try_from(nodes)
        .map_err(|_| Failure::new("a machine has another number of nodes"))?;
    master.address = machine.at(0);
    chunkserver.address = machine.at(1);
    // A chunkserver with another disk would count as one without blocks.
    chunkserver.disk = u128::from_be_bytes(server.format.disk);
    Ok([(MASTER, master), (CHUNKSERVER, chunkserver), (GATEWAY, gateway)])
}

/// Makes the rows that the server has not: the map, with all blocks of the server as one group, and
/// the hold.
fn cluster_rows(
    old: &dyn Engine,
    summary: &Summary,
    nodes: [(NodeId, Node); 3],
    replicas: u8,
) -> Result<ClusterRows> {
    let members = vec![Member::new(CHUNKSERVER, true)];
    let redundancy = Redundancy::Copies(replicas);
    let group = Group { redundancy, changed: 1, members, ..Group::default() };
    let map = ClusterMap {
        epoch: 1,
        replicas,
        // As with one server: writes must go on before the other machines are there.
        minimum: 1,
        replica_counts: replica_counts(&*old.snapshot()?)?,
        nodes: nodes.into(),
        groups: [(GroupId::LOCAL, group)].into(),
        next_node: NEXT_NODE,
        next_group: GroupId::LOCAL.0 + 1,
        capabilities: capabilities::enabled(old)?,
        ..ClusterMap::default()
    };
    map.check()?;
    let ends = Timestamp::from_secs(HOLD_ENDS);
    let begun = RealClock::default().now();
    let (owner, batch) = (dump::adoption_holder(summary.cluster), summary.batch);
    Ok(ClusterRows { map, hold: Hold { owner, batch, begun, ends, unknown: Vec::new() } })
}

/// Returns the numbers of replicas that buckets ask for.
fn replica_counts(snapshot: &dyn Snapshot) -> Result<BTreeSet<u8>> {
    let (mut start, mut counts) = (Bytes::from_static(b"b"), BTreeSet::new());
    loop {
        let page = snapshot.scan(&start, b"c", PAGE)?;
        for (_, row) in &page {
            counts.extend(Bucket::decode(row)?.redundancy.map(Redundancy::number));
        }
        match page.last() {
            Some((last, _)) if page.len() == PAGE => start = [last, &b"\0"[..]].concat().into(),
            _ => return Ok(counts),
        }
    }
}

/// Loads a dump of the server into a new log, whose only member is the master of the machine.
fn load(master: &Path, dump: &Path, server: &DataDir, rows: &ClusterRows) -> Result<()> {
    let cluster = ClusterId(u128::from_be_bytes(server.format.cluster));
    let dir = DataDir::of_node(master, cluster, MetaPlace::Members, &RealRng)?;
    dir.keep_seal(&server.seal_bytes()?.ok_or_else(|| server.no_seal())?)?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let alone = runtime.block_on(Alone::found(&dir, MASTER, members::FIRST_GENERATION))?;
    let bar = output::count_bar(0, "loading rows");
    let loaded = File::open(dump).map_err(|error| Failure::file(dump, &error)).and_then(|file| {
        let mut input = BufReader::with_capacity(BUFFER, file);
        let mut progress = |rows| bar.set_position(rows);
        Ok(rows.adopt(&*alone.metadata.engine, &mut input, &mut progress)?)
    });
    bar.finish_and_clear();
    runtime.block_on(alone.close());
    loaded.map(drop)
}

/// Compares the metadata of the cluster, as they are on the disk, with those of the server.
fn compare(old: &dyn Snapshot, new: &dyn Snapshot, rows: &ClusterRows) -> Result<()> {
    let bar = output::count_bar(0, "comparing rows");
    let (mut differences, mut count) = (Vec::new(), 0u64);
    let mut differs = |one: RowDifference| {
        count += 1;
        if differences.len() < NAMED {
            differences.push(shown(&one));
        }
    };
    let compared = dump::compare(old, new, rows, &mut differs, &mut |rows| bar.set_position(rows));
    bar.finish_and_clear();
    let compared = compared?;
    if count == 0 {
        return output::line(format!("{compared} rows of metadata compared: none differs"));
    }
    let named = differences.join(", ");
    Err(Failure::damage(format!(
        "{count} rows of the new metadata differ from those of the server ({named}). Nothing of \
         the server has changed: check it with `cairn fsck`, and run this again, or with --undo"
    )))
}

fn shown(difference: &RowDifference) -> String {
    let digits: String = difference.key.iter().map(|byte| format!("{byte:02x}")).collect();
    format!("{digits} {:?}", difference.fault).to_lowercase()
}

/// Gives a file, or a directory with all that is in it, to the owner of `dir`, if another user runs
/// the command.
pub fn give(path: &Path, dir: &Path) -> Result<()> {
    let fail = |error: io::Error| Failure::file(path, &error);
    let (owner, found) = (fs::metadata(dir).map_err(fail)?, path.symlink_metadata().map_err(fail)?);
    if (owner.uid(), owner.gid()) != (found.uid(), found.gid()) {
        lchown(path, Some(owner.uid()), Some(owner.gid())).map_err(fail)?;
    }
    if found.is_dir() {
        for entry in fs::read_dir(path).map_err(fail)? {
            give(&entry.map_err(fail)?.path(), dir)?;
        }
    }
    Ok(())
}

/// Returns the cluster map in a snapshot of metadata; `None` if there is none.
pub fn map_in(snapshot: &dyn Snapshot) -> Result<Option<ClusterMap>> {
    let row = snapshot.get(&[keys::map()])?.pop().flatten();
    Ok(row.as_ref().map(ClusterMap::decode).transpose()?)
}

/// Returns true if a node is one of those that the adoption made.
pub fn is_own(node: NodeId) -> bool {
    node.0 < NEXT_NODE
}
