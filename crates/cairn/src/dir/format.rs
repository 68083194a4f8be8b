//! The file `format`: what the directory is. Lines of a word and a value:
//!
//! ```text
//! cairn 1
//! cluster 0123456789abcdef0123456789abcdef
//! disk fedcba9876543210fedcba9876543210
//! ```
//!
//! and `meta postgres` if the metadata are in a database, or `meta raft` if several masters keep
//! them together, each in its directory.

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::Path;

use cairn_base::{ClusterId, Rng};
use cairn_roles::master::cluster_number;

use crate::failure::{Failure, Result};

pub const NAME: &str = "format";
/// Name of the file while it is being made.
pub const NEW_NAME: &str = "format.new";
/// Version of the layout that this program writes. It reads no other version.
const VERSION: u32 = 1;

/// Identity of a data directory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Format {
    pub cluster: [u8; 16],
    pub disk: [u8; 16],
    pub meta: MetaPlace,
}

/// Place of the metadata.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum MetaPlace {
    /// In this directory alone.
    Directory,
    /// In this directory, and in those of other masters.
    Members,
    Postgres,
}

const META_POSTGRES: &str = "meta postgres";
const META_RAFT: &str = "meta raft";

pub fn exists(directory: &Path) -> bool {
    directory.join(NAME).exists()
}

impl Format {
    pub fn read(directory: &Path) -> Result<Format> {
        let path = directory.join(NAME);
        let text = fs::read_to_string(&path).map_err(|error| Failure::file(&path, &error))?;
        parse(&text).map_err(|what| Failure::new(format!("{}: {what}", path.display())))
    }

    /// Draws new ids and makes them durable, before anything else is in the directory.
    pub fn create(directory: &Path, meta: MetaPlace, rng: &dyn Rng) -> Result<Format> {
        let mut cluster = [0; 16];
        rng.fill(&mut cluster);
        Format::create_of(directory, ClusterId(u128::from_be_bytes(cluster)), meta, rng)
    }

    /// Creates the file like `create`, for a part of a cluster.
    pub fn create_of(
        directory: &Path,
        cluster: ClusterId,
        meta: MetaPlace,
        rng: &dyn Rng,
    ) -> Result<Format> {
        let mut format = Format { cluster: cluster.0.to_be_bytes(), disk: [0; 16], meta };
        rng.fill(&mut format.disk);
        format.write(directory).map_err(|error| Failure::file(directory, &error))?;
        Ok(format)
    }

    fn write(&self, directory: &Path) -> io::Result<()> {
        let new = directory.join(NEW_NAME);
        let mut file = File::create(&new)?;
        file.write_all(self.text().as_bytes())?;
        file.sync_all()?;
        fs::rename(&new, directory.join(NAME))?;
        File::open(directory)?.sync_all()
    }

    fn text(&self) -> String {
        let [cluster, disk] = [self.cluster, self.disk].map(u128::from_be_bytes);
        let mut text = format!("cairn {VERSION}\ncluster {cluster:032x}\ndisk {disk:032x}\n");
        match self.meta {
            MetaPlace::Directory => {}
            MetaPlace::Members => text += &format!("{META_RAFT}\n"),
            MetaPlace::Postgres => text += &format!("{META_POSTGRES}\n"),
        }
        text
    }

    /// Returns the id by which the metadata know the store.
    pub fn cluster_number(&self) -> u64 {
        cluster_number(ClusterId(u128::from_be_bytes(self.cluster)))
    }
}

fn parse(text: &str) -> Result<Format, String> {
    let mut lines = text.lines();
    let mut value = |word: &str| {
        let line = lines.next().unwrap_or_default();
        line.strip_prefix(word).and_then(|rest| rest.strip_prefix(' ')).map(str::to_owned)
    };
    let version = value("cairn").ok_or("not the format file of a Cairn store: restore it")?;
    if version != VERSION.to_string() {
        return Err(format!(
            "format version {version}, this cairn knows {VERSION}: use the cairn that wrote it"
        ));
    }
    let mut id = |word: &str| {
        let text = value(word).filter(|text| text.len() == 32);
        let number = text.and_then(|text| u128::from_str_radix(&text, 16).ok());
        number.map(u128::to_be_bytes).ok_or_else(|| format!("no {word} id: restore the file"))
    };
    let (cluster, disk) = (id("cluster")?, id("disk")?);
    let meta = match lines.next() {
        None => MetaPlace::Directory,
        Some(META_POSTGRES) => MetaPlace::Postgres,
        Some(META_RAFT) => MetaPlace::Members,
        Some(_) => return Err("of a later version: use the cairn that wrote it".into()),
    };
    Ok(Format { cluster, disk, meta })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_reads_back_and_nothing_else_does() {
        let format = Format { cluster: [0xab; 16], disk: [1; 16], meta: MetaPlace::Directory };
        let text = format.text();
        assert_eq!(parse(&text), Ok(format));
        assert!(parse(&text.replace("cairn 1", "cairn 2")).unwrap_err().contains("version 2"));
        for cut in 0..text.len() - 1 {
            assert!(parse(&text[..cut]).is_err(), "{cut}");
        }
        for meta in [MetaPlace::Postgres, MetaPlace::Members] {
            let elsewhere = Format { meta, ..format };
            assert_eq!(parse(&elsewhere.text()), Ok(elsewhere));
        }
        assert!(parse(&format!("{text}meta moon\n")).is_err());
    }
}
