//! The data directory of a server.
//!
//! ```text
//!   DIR/lock         who uses it: locked by the process that does, with its pid
//!   DIR/format       magic, version, cluster id, disk id: written first
//!   DIR/secret.key   seals secrets in the metadata: mode 0600, never in a backup of the rest
//!   DIR/meta/        the metadata engine's, unless they are in a database
//!   DIR/member       a member of several masters has begun here: it must not begin anew
//!   DIR/blocks/      the block store's
//!   DIR/scrub        when the last scrub ended and what it found
//! ```

mod format;
pub mod lock;
mod secret;
mod sizes;

use std::fs;
use std::path::{Path, PathBuf};

use cairn_auth::SealKey;
use cairn_base::{ClusterId, Rng, Secret};

use crate::failure::{Failure, Result};

pub use format::{Format, MetaPlace};
use lock::Lock;
use sizes::Sizes;

/// The files in the directory of a node of a cluster, once it has joined.
pub const CLUSTER_FILE: &str = "cluster.toml";
/// Says that a directory is that of a machine of `cairn node`.
pub const MACHINE: &str = "machine.toml";
/// Names that may be in a directory that is not a store yet.
const IGNORED: [&str; 3] = [lock::NAME, format::NEW_NAME, "lost+found"];

/// A data directory in use by this process.
pub struct DataDir {
    path: PathBuf,
    pub format: Format,
    pub sizes: Sizes,
    lock: Lock,
}

impl DataDir {
    /// Opens a store's directory, or makes one of an empty or missing directory.
    pub fn open_or_create(path: &Path, meta: MetaPlace, rng: &dyn Rng) -> Result<DataDir> {
        if !path.exists() {
            fs::create_dir_all(path).map_err(|error| Failure::file(path, &error))?;
        }
        if !format::exists(path) {
            refuse_strangers(path)?;
        }
        DataDir::begin(path, meta, || Format::create(path, meta, rng))
    }

    /// The directory of a node that has joined `cluster`: its identity is there already.
    pub fn of_node(
        path: &Path,
        cluster: ClusterId,
        meta: MetaPlace,
        rng: &dyn Rng,
    ) -> Result<DataDir> {
        let dir = DataDir::begin(path, meta, || Format::create_of(path, cluster, meta, rng))?;
        if dir.format.cluster != cluster.0.to_be_bytes() {
            let shown = path.display();
            return Err(Failure::new(format!(
                "{shown}: holds data of another cluster: choose another directory"
            )));
        }
        Ok(dir)
    }

    /// The directory of a store that is known by this number and is to be restored, or is there.
    pub fn of_restored(
        path: &Path,
        number: u64,
        meta: MetaPlace,
        rng: &dyn Rng,
    ) -> Result<DataDir> {
        if !path.exists() {
            fs::create_dir_all(path).map_err(|error| Failure::file(path, &error))?;
        }
        if !format::exists(path) {
            refuse_strangers(path)?;
        }
        let cluster = ClusterId(u128::from(number) << 64);
        let dir = DataDir::begin(path, meta, || Format::create_of(path, cluster, meta, rng))?;
        match dir.format.cluster_number() == number {
            true => Ok(dir),
            false => Err(Failure::new(format!(
                "{}: holds another store than the one of the backup: choose another directory",
                path.display()
            ))),
        }
    }

    /// Opens a directory, or makes it a store by `create`.
    fn begin(
        path: &Path,
        meta: MetaPlace,
        create: impl FnOnce() -> Result<Format>,
    ) -> Result<DataDir> {
        let lock = Lock::take(path)?;
        let sizes = Sizes::of(path)?;
        let format = match format::exists(path) {
            true => Format::read(path)?,
            false => {
                require_space(path, sizes.new_store())?;
                create()?
            }
        };
        require_place(path, format.meta, meta)?;
        Ok(DataDir { path: path.to_path_buf(), format, sizes, lock })
    }

    /// Opens a directory that is a store.
    pub fn open(path: &Path, meta: MetaPlace) -> Result<DataDir> {
        if !format::exists(path) {
            let shown = path.display();
            let text = format!("{shown}: not a Cairn data directory: name one of `cairn server`");
            return Err(Failure::new(text));
        }
        let lock = Lock::take(path)?;
        let (format, sizes) = (Format::read(path)?, Sizes::of(path)?);
        require_place(path, format.meta, meta)?;
        Ok(DataDir { path: path.to_path_buf(), format, sizes, lock })
    }

    /// The key that seals secrets; made if there is no store yet.
    pub fn seal_key(&self, rng: &dyn Rng) -> Result<SealKey> {
        let has_store = self.meta().exists() || self.blocks().exists();
        secret::load_or_create(&self.path, has_store, rng)
    }

    /// The bytes of that key, which other masters and gateways need too; `None` if there is none.
    pub fn seal_bytes(&self) -> Result<Option<Secret<[u8; 32]>>> {
        secret::load(&self.path)
    }

    /// Keeps the key that is in the text of a file.
    pub fn keep_seal_file(&self, text: &Secret<String>) -> Result<()> {
        secret::keep(&self.path, &secret::parse_text(text)?)
    }

    /// Keeps the key that another master has.
    pub fn keep_seal(&self, bytes: &Secret<[u8; 32]>) -> Result<()> {
        secret::keep(&self.path, bytes)
    }

    /// Checks that the key has opened one of the sealed secrets of the store, if there are some.
    pub fn require_opened(&self, sealed: usize, opened: bool) -> Result<()> {
        match opened || sealed == 0 {
            true => Ok(()),
            false => Err(secret::opens_none(&self.path, sealed)),
        }
    }

    /// Why the key is no good, if there is none.
    pub fn no_seal(&self) -> Failure {
        secret::missing(&self.path)
    }

    /// Waits until the directory may be used by another process: this one must end then.
    pub async fn lost(&self) -> Failure {
        self.lock.lost().await
    }

    pub fn meta(&self) -> PathBuf {
        self.path.join("meta")
    }

    /// Says that a member of several masters has begun here. It may have voted since.
    pub fn member(&self) -> PathBuf {
        self.path.join("member")
    }

    pub fn blocks(&self) -> PathBuf {
        self.path.join("blocks")
    }

    pub fn scrub(&self) -> PathBuf {
        self.path.join("scrub")
    }
}

/// Where the metadata are, by a directory, and whether that directory has some; `None` where it
/// does not say.
pub fn place(path: &Path) -> Result<Option<(MetaPlace, bool)>> {
    match format::exists(path) {
        true => Ok(Some((Format::read(path)?.meta, path.join("meta").is_dir()))),
        false => Ok(None),
    }
}

/// With the wrong metadata all blocks would look like garbage.
fn require_place(path: &Path, known: MetaPlace, given: MetaPlace) -> Result<()> {
    let shown = path.display();
    match (known, given) {
        (MetaPlace::Directory | MetaPlace::Members, MetaPlace::Postgres) => Err(Failure::new(
            format!("{shown}: its metadata are in {shown}/meta: leave out --meta and CAIRN_META"),
        )),
        (MetaPlace::Postgres, MetaPlace::Directory | MetaPlace::Members) => {
            Err(Failure::new(format!(
                "{shown}: its metadata are in a PostgreSQL database: name it by --meta or CAIRN_META"
            )))
        }
        _ => Ok(()),
    }
}

/// A new store takes the log of the metadata and what is kept back to delete on a full disk.
fn require_space(path: &Path, bytes: u64) -> Result<()> {
    let stat = rustix::fs::statvfs(path).map_err(|error| Failure::file(path, &error.into()))?;
    let free = stat.f_bavail.saturating_mul(stat.f_frsize);
    if free >= bytes {
        return Ok(());
    }
    let (shown, free, needed) = (path.display(), free >> 20, bytes >> 20);
    Err(Failure::new(format!(
        "{shown}: {free} MiB are free and a new store needs {needed}: make room or choose another"
    )))
}

/// A directory with things of somebody else is not made a store.
fn refuse_strangers(path: &Path) -> Result<()> {
    let fail = |error| Failure::file(path, &error);
    for entry in fs::read_dir(path).map_err(fail)? {
        let name = entry.map_err(fail)?.file_name();
        if !IGNORED.iter().any(|ignored| name == *ignored) {
            let (shown, name) = (path.display(), name.display());
            return Err(Failure::new(format!(
                "{shown}: holds {name} and is not a Cairn data directory: choose an empty one"
            )));
        }
    }
    Ok(())
}
