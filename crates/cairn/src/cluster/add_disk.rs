//! `cairn cluster add-disk`: adds a disk to a machine that `cairn node` runs.

use std::fs::{self, Metadata};
use std::os::unix::fs::{MetadataExt, lchown};
use std::path::{Path, PathBuf, absolute};
use std::process::ExitCode;

use cairn_base::clock::RealClock;
use cairn_base::{Clock, NodeId, Role, Roles};
use cairn_cluster::control::Status;
use cairn_cluster::control::forecast::{Forecast, adding};
use cairn_cluster::identity::{Directory, DirectoryContents};
use indicatif::BinaryBytes;
use rustix::fs::{stat, statvfs};

use super::{drain, join, reach};
use crate::dir::DirectoryUse;
use crate::failure::{Failure, Result};
use crate::node::{Disk, Machine, directory_of};
use crate::output;

/// Give a machine that `cairn node` runs one more disk
///
/// The disk becomes a chunkserver of its own, which `cairn node` runs from its next start on. All
/// disks of a machine are one zone: no block has two replicas there. The command says before what
/// `cairn cluster rebalance` will move to it. New data go to it without that.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn cluster add-disk /srv/cairn /srv/disk2/cairn --dry-run
  cairn cluster add-disk /srv/cairn /srv/disk2/cairn")]
pub struct AddDiskArgs {
    /// The directory of the machine
    dir: PathBuf,
    /// A directory on the new disk: missing or empty
    disk: PathBuf,
    /// Say what would move, and add nothing
    #[arg(long)]
    dry_run: bool,
}

pub fn run(args: &AddDiskArgs) -> Result<ExitCode> {
    let (dir, shown) = (&args.dir, args.dir.display());
    let machine = Machine::read(dir)?.ok_or_else(|| {
        Failure::new(format!(
            "{shown}: is not the directory of a machine that `cairn node` runs: let the disk join \
             by `cairn cluster token DIR --role chunkserver` and `cairn cluster join`"
        ))
    })?;
    let disk = absolute(&args.disk)?;
    let same = |known: &Path| match (known.canonicalize(), disk.canonicalize()) {
        (Ok(known), Ok(disk)) => known == disk,
        _ => known == disk,
    };
    if machine.chunkservers(dir).iter().any(|(known, _)| same(known)) {
        let disk = disk.display();
        return Err(Failure::new(format!("{disk}: is a disk of this machine already")));
    }
    match known(&disk)? {
        // This command was interrupted earlier, or is refused below.
        Some(_) => DirectoryUse::Role(Role::Chunkserver).require(&disk)?,
        None => DirectoryUse::Join.require(&disk)?,
    }
    let status = reach::status(dir)?;
    let zone = machine.zone().unwrap_or(&machine.host);
    let own: Vec<Option<NodeId>> =
        machine.chunkservers(dir).iter().map(|(disk, _)| node_of(disk)).collect();
    let own_ids: Vec<NodeId> = own.iter().flatten().copied().collect();
    say(&machine, dir, &disk, &adding(&status, &own_ids, zone))?;
    if args.dry_run {
        return Ok(ExitCode::SUCCESS);
    }
    let node = match known(&disk)? {
        // It was interrupted between the two.
        Some(loaded) => joined_before(dir, &disk, &loaded, &status)?,
        None => join::join_as(&disk, &reach::new_token(dir, Role::Chunkserver.into(), None)?)?,
    };
    give_to(&fs::metadata(dir).map_err(|error| Failure::file(dir, &error))?, &disk)?;
    let mut machine = machine;
    for (disk, own) in machine.disks.iter_mut().zip(own) {
        own.into_iter().for_each(|node| disk.set_node(node));
    }
    machine.disks.push(Disk::new(disk, node));
    machine.save(dir)?;
    output::line(format!(
        "joined as node {node}; start `cairn node {shown}` again, and it runs there. Then `cairn \
         cluster rebalance {shown}` moves its share to it"
    ))?;
    Ok(ExitCode::SUCCESS)
}

/// Gives files that root made to the owner of the machine's directory. The entries of a directory
/// are given before the directory itself, so that no other user can change them meanwhile.
fn give_to(owner: &Metadata, made: &Path) -> Result<()> {
    let of = |error| Failure::file(made, &error);
    let found = fs::symlink_metadata(made).map_err(of)?;
    if found.is_dir() {
        for entry in fs::read_dir(made).map_err(of)? {
            give_to(owner, &entry.map_err(of)?.path())?;
        }
    }
    if (found.uid(), found.gid()) == (owner.uid(), owner.gid()) {
        return Ok(());
    }
    lchown(made, Some(owner.uid()), Some(owner.gid())).map_err(of)
}

/// Forgets the disk of a node that was removed, if this machine has it.
pub fn forget(dir: &Path, node: NodeId) -> Result<()> {
    let Some(mut machine) = Machine::read(dir)? else { return Ok(()) };
    let is_of_node = |disk: &Disk| {
        let read = node_of(&dir.join(&disk.directory));
        read.map_or_else(|| disk.is_of(node), |read| read == node)
    };
    let (gone, left): (Vec<Disk>, Vec<Disk>) = machine.disks.into_iter().partition(is_of_node);
    machine.disks = left;
    for disk in &gone {
        let disk = dir.join(&disk.directory);
        output::line(format!("{} is no disk of this machine any more", disk.display()))?;
    }
    if gone.is_empty() { Ok(()) } else { machine.save(dir) }
}

/// Returns the node to which a directory belongs; `None` if there is none.
fn known(dir: &Path) -> Result<Option<DirectoryContents>> {
    if !dir.exists() {
        return Ok(None);
    }
    let shown = dir.display().to_string();
    let of = |error: cairn_base::Error| Failure::from(error).of(&shown);
    Directory::open(dir).map_err(of)?.load(RealClock::default().now()).map_err(of)
}

/// Returns the node of a disk; `None` if the disk cannot be read.
fn node_of(disk: &Path) -> Option<NodeId> {
    known(disk).ok().flatten().map(|loaded| loaded.identity.node())
}

/// Returns the node to which a directory belongs already, if this command made it before.
fn joined_before(
    dir: &Path,
    disk: &Path,
    loaded: &DirectoryContents,
    status: &Status,
) -> Result<NodeId> {
    let (node, shown) = (loaded.identity.node(), disk.display());
    let own = known(&directory_of(dir, Role::Master))?;
    let of_own = own.is_some_and(|own| own.identity.cluster() == loaded.identity.cluster());
    if !of_own || loaded.roles != Roles::from(Role::Chunkserver) {
        let text = format!("{shown}: belongs to a node already: choose another directory");
        return Err(Failure::new(text));
    }
    if status.map.is_up(node) {
        let text = format!("{shown}: is node {node}, which runs by itself: stop it first");
        return Err(Failure::new(text));
    }
    Ok(node)
}

/// Prints what will move, and whether the disk is a separate one.
fn say(machine: &Machine, dir: &Path, disk: &Path, forecast: &Forecast) -> Result<()> {
    let there = disk.ancestors().find(|path| path.exists()).unwrap_or(disk);
    let device = |path: &Path| stat(path).map(|found| found.st_dev).ok();
    let beside = machine
        .chunkservers(dir)
        .into_iter()
        .find(|(other, _)| device(other).is_some_and(|other| Some(other) == device(there)));
    if let Some((other, _)) = beside {
        output::complain(&format!(
            "{} is on the same disk as {}: that gives no more room, and both die together",
            disk.display(),
            other.display()
        ));
    }
    let space = statvfs(there).map_err(|error| Failure::file(there, &error.into()))?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    output::line(format!("{} has {} free", disk.display(), BinaryBytes(free)))?;
    if forecast.groups == 0 {
        return output::line("nothing has to move to it");
    }
    let (groups, bytes) = (forecast.groups, BinaryBytes(forecast.bytes));
    output::line(format!("its share is {groups} groups, {bytes}:"))?;
    drain::show(forecast)?;
    if forecast.bytes > free {
        return Err(Failure::new("its share does not fit there: choose a larger disk"));
    }
    Ok(())
}
