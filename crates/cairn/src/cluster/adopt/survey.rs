//! Facts about a server that is to be adopted, which a dry run shows.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use cairn_base::{Error, Role};
use cairn_meta::dump::{self, Contents};
use cairn_meta::{capabilities, keys};

use crate::dir::adoption::Adoption;
use crate::dir::{ADOPTION_DUMP, DataDir, MACHINE, MetaPlace, directory_of_role};
use crate::failure::{Failure, Result};
use crate::node::Machine;
use crate::offline::store::frozen_rows;
use crate::output;

/// Number of copies of the metadata that the adoption makes: the dump, and the new table.
const COPIES: u64 = 2;

/// Facts that decide whether a server can be adopted.
pub struct Survey {
    dir: PathBuf,
    /// Bytes of the server's metadata.
    metadata: u64,
    /// Bytes that the adoption takes, and that are free.
    needed: u64,
    free: u64,
    capabilities: Vec<String>,
    /// Set if the metadata are on another disk than the directory.
    is_metadata_elsewhere: bool,
}

impl Survey {
    /// Examines a server, whose directory is locked. Changes nothing. `goes_on` says that an
    /// adoption was begun before.
    ///
    /// # Errors
    /// It cannot be adopted.
    pub fn of(dir: &Path, server: &DataDir, goes_on: bool) -> Result<Survey> {
        let shown = dir.display();
        if server.format.meta != MetaPlace::Directory {
            return Err(Failure::new(format!(
                "{shown}: its metadata are not those of one server: restore a backup of it"
            )));
        }
        let blocks = server.blocks();
        let own = fs::metadata(dir).map_err(|error| Failure::file(dir, &error))?;
        let of_blocks = fs::symlink_metadata(&blocks);
        let of_blocks = of_blocks.map_err(|error| Failure::file(&blocks, &error))?;
        if !of_blocks.is_dir() || of_blocks.dev() != own.dev() {
            return Err(Failure::new(format!(
                "{}: is a link or on another disk, and cannot be renamed: make it a directory on \
                 the disk of {shown}",
                blocks.display()
            )));
        }
        if !goes_on {
            refuse_occupied(dir)?;
        }
        let engine = frozen_rows(&server.meta(), MetaPlace::Directory)?;
        match dump::contents(&*engine)? {
            Contents::Store(number) if number == server.format.cluster_number() => {}
            _ => return Err(Failure::new(format!("{shown}: holds no metadata of this store"))),
        }
        if engine.read(&[keys::map()])?.1.iter().any(Option::is_some) {
            return Err(Error::Invalid("these are the metadata of a cluster".into()).into());
        }
        let set = capabilities::enabled(&*engine)?;
        let capabilities = cairn_base::Capability::ALL.iter().filter(|one| set.contains(**one));
        let of_meta = fs::symlink_metadata(server.meta());
        let of_meta = of_meta.map_err(|error| Failure::file(&server.meta(), &error))?;
        let table = server.meta().join("rows.redb");
        let metadata = fs::metadata(&table).map_err(|error| Failure::file(&table, &error))?.len();
        let stat = rustix::fs::statvfs(dir).map_err(|error| Failure::file(dir, &error.into()))?;
        Ok(Survey {
            dir: dir.to_path_buf(),
            metadata,
            needed: metadata.saturating_mul(COPIES).saturating_add(server.sizes.new_store()),
            free: stat.f_bavail.saturating_mul(stat.f_frsize),
            capabilities: capabilities.map(ToString::to_string).collect(),
            is_metadata_elsewhere: !of_meta.is_dir() || of_meta.dev() != own.dev(),
        })
    }

    /// Checks that the disk has room for the dump and the new metadata.
    pub fn require_room(&self) -> Result<()> {
        if self.free >= self.needed {
            return Ok(());
        }
        let (free, needed) = (output::human_bytes(self.free), output::human_bytes(self.needed));
        let shown = self.dir.display();
        Err(Failure::full(format!(
            "{shown}: {free} are free, and the adoption needs {needed}: make room, and run it again"
        )))
    }

    /// Shows what the adoption does.
    pub fn show(&self, machine: &Machine, adoption: &Adoption) -> Result<()> {
        let (shown, host) = (self.dir.display(), machine.at(0));
        let replicas = adoption.replicas;
        let (metadata, needed) =
            (output::human_bytes(self.metadata), output::human_bytes(self.needed));
        output::line(format!(
            "{shown} becomes the first machine of a cluster, whose master is reached at {host}.
  metadata  {metadata}, dumped to {ADOPTION_DUMP}, and made anew in master/
  blocks    renamed to disk/blocks, and not copied; one group, with {replicas} replicas wanted
  space     {needed} at most, {} are free",
            output::human_bytes(self.free)
        ))?;
        if !self.capabilities.is_empty() {
            let words = self.capabilities.join(", ");
            output::line(format!("  enabled   {words}, in the cluster as well"))?;
        }
        if self.is_metadata_elsewhere {
            output::line(format!(
                "  note      meta/ is on another disk, and the new metadata are on that of {shown}"
            ))?;
        }
        if self.free < self.needed {
            output::line("  note      that is too little room")?;
        }
        Ok(())
    }
}

/// Refuses names that the adoption would make.
fn refuse_occupied(dir: &Path) -> Result<()> {
    let roles = Role::ALL.map(directory_of_role);
    for name in roles.into_iter().chain([MACHINE, ADOPTION_DUMP]) {
        let path = dir.join(name);
        if path.symlink_metadata().is_ok() {
            let shown = path.display();
            return Err(Failure::new(format!(
                "{shown}: is there, and the adoption makes it: move it away"
            )));
        }
    }
    Ok(())
}
