//! The simulated disk behind the seams `Disk` and `DiskFile`.

use std::collections::BTreeMap;
use std::io;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use cairn_base::rng::SeededRng;
use cairn_base::{Disk, DiskFile};

use crate::SECTOR_BYTES;
use crate::crash::crashed;
use crate::fault::{Call, Fault, Faults};
use crate::state::{DiskState, FileId, NameOp};

/// A handle to a directory of a simulated disk; clones and `sub` see the same disk.
#[derive(Clone)]
pub struct SimDisk {
    shared: Arc<SharedDisk>,
    directory: String,
}

struct SharedDisk {
    inner: Mutex<Inner>,
}

struct Inner {
    state: DiskState,
    faults: Faults,
    rng: SeededRng,
    recording: bool,
    snapshots: Vec<Snapshot>,
    mark: u64,
    cold: bool,
    /// Number of open handles of each file.
    open: BTreeMap<FileId, usize>,
}

impl SharedDisk {
    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Inner {
    fn forget(&mut self) {
        let open = &self.open;
        self.state.forget(|file| open.contains_key(&file));
    }

    fn snapshot(&self) -> Snapshot {
        Snapshot { state: Arc::new(self.state.clone()), mark: self.mark }
    }

    fn record(&mut self) {
        if self.recording {
            let snapshot = self.snapshot();
            self.snapshots.push(snapshot);
        }
    }
}

impl SimDisk {
    /// Creates an empty disk. The seed decides how much of a failing write reaches the disk.
    pub fn new(seed: u64) -> SimDisk {
        SimDisk::from_state(DiskState::default(), seed)
    }

    fn from_state(state: DiskState, seed: u64) -> SimDisk {
        let inner = Inner {
            state,
            faults: Faults::default(),
            rng: SeededRng::new(seed),
            recording: false,
            snapshots: Vec::new(),
            mark: 0,
            cold: false,
            open: BTreeMap::new(),
        };
        let shared = Arc::new(SharedDisk { inner: Mutex::new(inner) });
        SimDisk { shared, directory: String::new() }
    }

    /// Returns the current state of the disk, for drawing power cuts from it.
    pub fn snapshot(&self) -> Snapshot {
        self.shared.lock().snapshot()
    }

    /// Returns the disk after a power cut now. See [`Snapshot::crash_image`].
    pub fn crash_image(&self, seed: u64) -> SimDisk {
        self.snapshot().crash_image(seed)
    }

    /// Returns the disk after the death of the process now: the old handles no longer reach it.
    pub fn kill(&self) -> SimDisk {
        self.snapshot().kill_image()
    }

    /// From here on, takes a snapshot before every sync call and at every mark.
    pub fn record(&self) {
        self.shared.lock().recording = true;
    }

    /// Ends the recording and hands it over.
    pub fn recorded(&self) -> Vec<Snapshot> {
        let mut inner = self.shared.lock();
        inner.recording = false;
        std::mem::take(&mut inner.snapshots)
    }

    /// Notes how far the disk's user has come (such as acknowledged operations), so that each
    /// snapshot knows it.
    pub fn mark(&self, mark: u64) {
        let mut inner = self.shared.lock();
        inner.mark = mark;
        inner.record();
    }

    pub fn add_fault(&self, fault: Fault) {
        self.shared.lock().faults.add(fault);
    }

    pub fn clear_faults(&self) {
        self.shared.lock().faults.clear();
    }

    /// Returns the number of calls so far, of any kind.
    pub fn calls(&self) -> u64 {
        self.shared.lock().faults.calls()
    }

    /// Returns the number of planned faults that have happened.
    pub fn faults_fired(&self) -> u64 {
        self.shared.lock().faults.fired()
    }

    /// Limits the allocated bytes: beyond `bytes`, writes fail with `StorageFull`. `None`: no
    /// limit.
    pub fn set_capacity(&self, bytes: Option<u64>) {
        self.shared.lock().state.capacity = bytes;
    }

    pub fn used_bytes(&self) -> u64 {
        self.shared.lock().state.used_bytes()
    }

    /// Bytes of memory that the contents of files take, including removed files that are open or
    /// that a power cut may bring back.
    pub fn held_bytes(&self) -> u64 {
        self.shared.lock().state.held_bytes()
    }

    /// Sets whether `read_at_nowait` finds nothing in memory.
    pub fn set_cold(&self, cold: bool) {
        self.shared.lock().cold = cold;
    }

    /// Returns all bytes of a file as its readers see them.
    pub fn contents(&self, name: &str) -> io::Result<Vec<u8>> {
        let inner = self.shared.lock();
        let file = &inner.state.files[inner.state.find(&self.path(name))?];
        let mut bytes = vec![0; file.live_len as usize];
        file.read(&mut bytes, 0);
        Ok(bytes)
    }

    /// Changes bytes on the medium and in the page cache: rot, or a misdirected write.
    pub fn overwrite(&self, name: &str, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let mut inner = self.shared.lock();
        let file = inner.state.find(&self.path(name))?;
        inner.state.file(file).overwrite(bytes, offset);
        Ok(())
    }

    /// Flips one bit (0 to 7) of one byte, on the medium and in the page cache.
    pub fn flip_bit(&self, name: &str, offset: u64, bit: u32) -> io::Result<()> {
        let mut inner = self.shared.lock();
        let file = inner.state.find(&self.path(name))?;
        let mut byte = [0];
        inner.state.files[file].live.read(&mut byte, offset);
        inner.state.file(file).overwrite(&[byte[0] ^ (1 << bit)], offset);
        Ok(())
    }

    /// Returns the path of a file.
    ///
    /// # Panics
    /// If `name` is not one plain path component.
    fn path(&self, name: &str) -> String {
        assert!(!name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0']));
        format!("{}{name}", self.directory)
    }

    fn handle(&self, inner: &mut Inner, file: FileId) -> Arc<dyn DiskFile> {
        *inner.open.entry(file).or_default() += 1;
        let errors_seen = inner.state.files[file].sync_errors.into();
        Arc::new(SimFile { shared: Arc::clone(&self.shared), file, errors_seen })
    }

    fn call(&self, call: Call) -> io::Result<MutexGuard<'_, Inner>> {
        let mut inner = self.shared.lock();
        inner.faults.check(call)?;
        Ok(inner)
    }
}

impl Disk for SimDisk {
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut inner = self.call(Call::Open)?;
        let file = inner.state.find(&self.path(name))?;
        Ok(self.handle(&mut inner, file))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut inner = self.call(Call::Create)?;
        let file = inner.state.create(self.path(name))?;
        Ok(self.handle(&mut inner, file))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let inner = self.call(Call::List)?;
        let ours = inner.state.names.keys().filter_map(|path| path.strip_prefix(&self.directory));
        Ok(ours.filter(|name| !name.contains('/')).map(str::to_owned).collect())
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        let mut inner = self.call(Call::Remove)?;
        let path = self.path(name);
        inner.state.find(&path)?;
        inner.state.name_op(NameOp::Unlink { path });
        Ok(())
    }

    fn rename(&self, source: &str, target: &str) -> io::Result<()> {
        let mut inner = self.call(Call::Rename)?;
        let (source, target) = (self.path(source), self.path(target));
        let file = inner.state.find(&source)?;
        if source != target {
            inner.state.name_op(NameOp::Move { source, target, file });
        }
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        let mut inner = self.shared.lock();
        inner.record();
        inner.faults.check(Call::SyncNames)?;
        inner.state.sync_names(&self.directory);
        inner.forget();
        Ok(())
    }

    fn sub(&self, name: &str) -> io::Result<Arc<dyn Disk>> {
        let directory = format!("{}/", self.path(name));
        self.call(Call::Create)?.state.directories.insert(directory.clone());
        Ok(Arc::new(SimDisk { shared: Arc::clone(&self.shared), directory }))
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let inner = self.shared.lock();
        let capacity = inner.state.capacity.unwrap_or(1 << 50);
        Ok(capacity.saturating_sub(inner.state.used_bytes()))
    }
}

/// The state of a disk at one moment, from which any number of power cuts can be drawn.
#[derive(Clone, Debug)]
pub struct Snapshot {
    state: Arc<DiskState>,
    /// Last [`SimDisk::mark`] before this moment.
    pub mark: u64,
}

impl Snapshot {
    /// Returns the disk as it may be found after a power cut at this moment. Each un-synced sector
    /// holds its old bytes, those of any write since, a torn mix, or (rarely) zeros; each un-synced
    /// length and name was kept or not. A third of the seeds give the extremes: all kept, or none.
    pub fn crash_image(&self, seed: u64) -> SimDisk {
        SimDisk::from_state(crashed(&self.state, seed), seed)
    }

    /// Returns the disk after the death of the process, but not of the machine: everything that was
    /// written is there, and un-synced bytes are still un-synced.
    pub fn kill_image(&self) -> SimDisk {
        SimDisk::from_state((*self.state).clone(), self.mark)
    }
}

struct SimFile {
    shared: Arc<SharedDisk>,
    file: FileId,
    /// Number of failed syncs of the file that were reported here, or happened before this was
    /// opened.
    errors_seen: AtomicU64,
}

impl SimFile {
    fn call(&self, call: Call) -> io::Result<MutexGuard<'_, Inner>> {
        let mut inner = self.shared.lock();
        inner.faults.check(call)?;
        Ok(inner)
    }
}

impl Drop for SimFile {
    fn drop(&mut self) {
        let mut inner = self.shared.lock();
        if let Some(count) = inner.open.get_mut(&self.file) {
            *count -= 1;
            if *count == 0 {
                inner.open.remove(&self.file);
                inner.forget();
            }
        }
    }
}

impl DiskFile for SimFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        Ok(self.call(Call::Read)?.state.files[self.file].read(buf, offset))
    }

    fn read_at_nowait(&self, buf: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        let inner = self.call(Call::Read)?;
        if inner.cold {
            return Ok(None);
        }
        Ok(Some(inner.state.files[self.file].read(buf, offset)))
    }

    fn write_at(&self, bufs: &[&[u8]], offset: u64) -> io::Result<()> {
        let mut inner = self.shared.lock();
        let mut bytes = bufs.concat();
        let failed = inner.faults.check(Call::Write);
        if failed.is_err() {
            // Part of it may have reached the disk all the same.
            let sectors = (bytes.len() / SECTOR_BYTES) as u64 + 1;
            bytes.truncate(inner.rng.below(sectors) as usize * SECTOR_BYTES);
        }
        let written = inner.state.change(self.file, |inode| inode.write(&bytes, offset));
        failed.and(written)
    }

    fn sync_data(&self) -> io::Result<()> {
        let mut inner = self.shared.lock();
        inner.record();
        let failed = inner.faults.check(Call::SyncData);
        let inode = inner.state.file(self.file);
        if failed.is_err() {
            inode.fail_sync()
        } else {
            inode.sync()
        }
        let seen = self.errors_seen.swap(inode.sync_errors, Ordering::Relaxed);
        if seen < inode.sync_errors && failed.is_ok() {
            return Err(io::Error::other("an earlier sync of this file failed"));
        }
        failed
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        self.call(Call::Allocate)?.state.change(self.file, |inode| inode.allocate(len))
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.call(Call::SetLen)?.state.change(self.file, |inode| inode.set_len(len))
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.shared.lock().state.files[self.file].live_len)
    }
}
