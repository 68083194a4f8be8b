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
//!   DIR/adoption.toml  how far the store is on its way to be a machine of a cluster
//! ```

mod format;
pub mod lock;
mod names;

mod secret;
pub mod settings_file;
mod sizes;

pub mod adoption;

mod kind;

mod directory_use;

use std::fs;
use std::path::{Path, PathBuf};

use cairn_auth::SealKey;
use cairn_base::{ClusterId, Rng, Role, Secret};

use crate::failure::{Failure, Result};

pub use directory_use::DirectoryUse;
pub use format::{Format, MetaPlace};
pub use kind::DirectoryKind;
use lock::Lock;
pub use names::{ADOPTION_DUMP, CLUSTER_FILE, MACHINE, directory_of_role};
use sizes::Sizes;

/// Returns the directories of the nodes of a machine; `None` if `dir` is not that of a machine.
pub fn nodes_of_machine(dir: &Path) -> Option<Vec<PathBuf>> {
    let text = fs::read_to_string(dir.join(MACHINE)).ok()?;
    let table: toml::Table = toml::from_str(&text).unwrap_or_default();
    let disks = table.get("disks").and_then(toml::Value::as_array);
    let further = disks.into_iter().flatten().filter_map(|disk| disk.get("directory")?.as_str());
    let mut nodes: Vec<PathBuf> = Role::ALL.map(|role| dir.join(directory_of_role(role))).into();
    for disk in further.map(|disk| dir.join(disk)) {
        if !nodes.contains(&disk) {
            nodes.push(disk);
        }
    }
    Some(nodes)
}

/// A data directory in use by this process.
pub struct DataDir {
    path: PathBuf,
    pub format: Format,
    pub sizes: Sizes,
    lock: Lock,
}

/// Returns the key in the text of a file that a store keeps beside its data.
pub fn seal_of_text(text: &Secret<String>) -> Result<SealKey> {
    Ok(SealKey::new(&secret::parse_text(text)?))
}

impl DataDir {
    /// Opens a directory that is fit for the purpose, or makes one of an empty or missing
    /// directory.
    pub fn open_or_create(
        path: &Path,
        purpose: DirectoryUse,
        meta: MetaPlace,
        rng: &dyn Rng,
    ) -> Result<DataDir> {
        purpose.require(path)?;
        fs::create_dir_all(path).map_err(|error| Failure::file(path, &error))?;
        DataDir::begin(path, meta, || Format::create(path, meta, rng))
    }

    /// Opens the directory of a node that has joined `cluster`: its identity is there already.
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

    /// Opens the directory of a store with this number, or makes it, to restore into.
    pub fn of_restored(
        path: &Path,
        number: u64,
        meta: MetaPlace,
        rng: &dyn Rng,
    ) -> Result<DataDir> {
        DirectoryUse::Restore.require(path)?;
        fs::create_dir_all(path).map_err(|error| Failure::file(path, &error))?;
        let cluster = ClusterId(u128::from(number) << 64);
        let dir = DataDir::begin(path, meta, || Format::create_of(path, cluster, meta, rng))?;
        dir.require_number(number)?;
        Ok(dir)
    }

    /// Checks that this is the store with this number, which is that of a backup.
    pub fn require_number(&self, number: u64) -> Result<()> {
        if self.format.cluster_number() == number {
            return Ok(());
        }
        let shown = self.path.display();
        Err(Failure::new(format!(
            "{shown}: holds another store than the one of the backup: choose another directory"
        )))
    }

    /// Opens a directory, or makes it a store by `create`.
    fn begin(
        path: &Path,
        meta: MetaPlace,
        create: impl FnOnce() -> Result<Format>,
    ) -> Result<DataDir> {
        let lock = Lock::take(path)?;
        let sizes = Sizes::of(path)?;
        let format = if format::exists(path) {
            Format::read(path)?
        } else {
            require_space(path, sizes.new_store())?;
            create()?
        };
        require_place(path, format.meta, meta)?;
        Ok(DataDir { path: path.to_path_buf(), format, sizes, lock })
    }

    /// Opens a directory that is a store.
    pub fn open(path: &Path, meta: MetaPlace) -> Result<DataDir> {
        require_format(path)?;
        DataDir::with_lock(path, meta, Lock::take(path)?)
    }

    /// Opens a directory that is a store for reading only: nothing in it changes.
    pub fn look(path: &Path, meta: MetaPlace) -> Result<DataDir> {
        require_format(path)?;
        DataDir::with_lock(path, meta, Lock::take_unchanged(path)?)
    }

    fn with_lock(path: &Path, meta: MetaPlace, lock: Lock) -> Result<DataDir> {
        let (format, sizes) = (Format::read(path)?, Sizes::of(path)?);
        require_place(path, format.meta, meta)?;
        Ok(DataDir { path: path.to_path_buf(), format, sizes, lock })
    }

    /// Returns the remedy if `cairn cluster init` of an earlier version has replaced the metadata
    /// of a server; `None` if it has not.
    pub fn overwritten(&self) -> Option<Failure> {
        if self.format.meta != MetaPlace::Directory || !self.member().exists() {
            return None;
        }
        let what = "holds the metadata of a new cluster in place of those of a server, which \
                    `cairn cluster init` of a former version has replaced";
        let (shown, remedy) = (self.meta(), directory_use::overwritten(&self.path));
        Some(Failure::new(format!("{}: {what}: {remedy}", shown.display())))
    }

    /// Returns the key that seals secrets; makes it if there is no store yet.
    pub fn seal_key(&self, rng: &dyn Rng) -> Result<SealKey> {
        let has_store = self.meta().exists() || self.blocks().exists();
        secret::load_or_create(&self.path, has_store, rng)
    }

    /// Returns the bytes of that key, which other masters and gateways need too; `None` if there is
    /// none.
    pub fn seal_bytes(&self) -> Result<Option<Secret<[u8; 32]>>> {
        secret::load(&self.path)
    }

    /// Keeps the key in the text of a file.
    pub fn keep_seal_file(&self, text: &Secret<String>) -> Result<()> {
        secret::keep(&self.path, &secret::parse_text(text)?)
    }

    /// Keeps the key of another master.
    pub fn keep_seal(&self, bytes: &Secret<[u8; 32]>) -> Result<()> {
        secret::keep(&self.path, bytes)
    }

    /// Checks that the key has opened one of the sealed secrets of the store, if there are some.
    pub fn require_opened(&self, sealed: usize, opened: bool) -> Result<()> {
        if opened || sealed == 0 { Ok(()) } else { Err(secret::opens_none(&self.path, sealed)) }
    }

    /// Returns the reason why the key cannot be used, if there is none.
    pub fn no_seal(&self) -> Failure {
        secret::missing(&self.path)
    }

    /// Waits until another process may be using the directory: this one must end then.
    pub async fn lost(&self) -> Failure {
        self.lock.lost().await
    }

    pub fn meta(&self) -> PathBuf {
        self.path.join("meta")
    }

    /// Returns the path of the file that says that a member of several masters has begun here. It
    /// may have voted since.
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

/// Returns the place of the metadata according to a directory, and whether that directory has some;
/// `None` if it does not say.
pub fn place(path: &Path) -> Result<Option<(MetaPlace, bool)>> {
    if format::exists(path) {
        Ok(Some((Format::read(path)?.meta, path.join("meta").is_dir())))
    } else {
        Ok(None)
    }
}

fn require_format(path: &Path) -> Result<()> {
    if format::exists(path) {
        return Ok(());
    }
    let shown = path.display();
    let text = format!("{shown}: not a Cairn data directory: name one of `cairn server`");
    Err(Failure::new(text))
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

/// A new store takes the log of the metadata, and a reserve for deletions on a full disk.
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
