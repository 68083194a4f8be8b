//! The seam to disks: a flat or nested directory of files that are read and written at offsets.
//!
//! The contract is that of a POSIX file system after `fdatasync` and `fsync` of the directory. When
//! power fails, bytes that were written but not synced may be lost, in part or whole and in any
//! order. A name is durable once its directory was synced.

use std::fs::{self, File, OpenOptions};
use std::io::{self, IoSlice};
use std::num::NonZeroU64;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{Advice, fadvise};
use rustix::io::{Errno, IoSliceMut, ReadWriteFlags, preadv2};

/// A directory on a disk. Names are single path components chosen by Cairn, never by users.
pub trait Disk: Send + Sync + 'static {
    /// Opens a file for reading and writing; it must exist.
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Opens a file like `open`, where writing to it may not be allowed.
    fn open_to_read(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        self.open(name)
    }
    /// Makes a file; it must not exist. Its name is durable after [`Disk::sync`].
    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>>;
    /// Returns the names of all files here, in no order.
    fn list(&self) -> io::Result<Vec<String>>;
    fn remove(&self, name: &str) -> io::Result<()>;
    /// Renames a file; replaces `target` if it exists.
    fn rename(&self, source: &str, target: &str) -> io::Result<()>;
    /// Makes all creations, removals and renamings of files so far durable.
    fn sync(&self) -> io::Result<()>;
    /// Opens a directory below this one; makes it (durably) if it is missing.
    fn sub(&self, name: &str) -> io::Result<Arc<dyn Disk>>;
    /// Returns the number of bytes that can still be written here.
    fn free_bytes(&self) -> io::Result<u64>;
}

/// An open file. All calls may be made from several threads at once.
pub trait DiskFile: Send + Sync + 'static {
    /// Reads up to `buf.len()` bytes at `offset`; fewer only at the end of the file.
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize>;
    /// Reads like `read_at` if the bytes are in memory already; returns `None` if the read would
    /// wait for the device.
    fn read_at_nowait(&self, buf: &mut [u8], offset: u64) -> io::Result<Option<usize>>;
    /// Announces that these bytes are read soon: the system may bring them into memory. May block.
    fn will_read(&self, _offset: u64, _len: u64) {}
    /// Writes all of `bufs` one after another at `offset`.
    fn write_at(&self, bufs: &[&[u8]], offset: u64) -> io::Result<()>;
    /// Writes like `write_at`, for bytes that are not read soon: the system need not keep them in
    /// memory.
    fn write_behind_at(&self, bufs: &[&[u8]], offset: u64) -> io::Result<()> {
        self.write_at(bufs, offset)
    }
    /// Makes the data written so far durable (`fdatasync`), and the length with it.
    fn sync_data(&self) -> io::Result<()>;
    /// Reserves space so that writes below `len` do not fail for lack of it; extends the file.
    fn allocate(&self, len: u64) -> io::Result<()>;
    fn set_len(&self, len: u64) -> io::Result<()>;
    fn len(&self) -> io::Result<u64>;
    fn is_empty(&self) -> io::Result<bool> {
        Ok(self.len()? == 0)
    }
}

/// Reads exactly `buf.len()` bytes, or fails with `UnexpectedEof`.
pub fn read_exact_at(file: &dyn DiskFile, buf: &mut [u8], offset: u64) -> io::Result<()> {
    match file.read_at(buf, offset)? {
        n if n == buf.len() => Ok(()),
        _ => Err(io::ErrorKind::UnexpectedEof.into()),
    }
}

/// A directory of the operating system.
#[derive(Debug)]
pub struct RealDisk {
    root: PathBuf,
}

impl RealDisk {
    /// Returns a directory that exists already.
    pub fn existing(root: &Path) -> RealDisk {
        RealDisk { root: root.to_path_buf() }
    }

    /// Opens a directory; makes it if it is missing.
    pub fn open(root: &Path) -> io::Result<RealDisk> {
        fs::create_dir_all(root)?;
        Ok(RealDisk { root: root.to_path_buf() })
    }

    /// Returns the path of a file.
    ///
    /// # Panics
    /// If `name` is not one plain path component.
    fn path(&self, name: &str) -> PathBuf {
        assert!(!name.is_empty() && name != "." && name != ".." && !name.contains(['/', '\0']));
        self.root.join(name)
    }
}

impl Disk for RealDisk {
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file = OpenOptions::new().read(true).write(true).open(self.path(name))?;
        Ok(Arc::new(RealFile { file }))
    }

    fn open_to_read(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        Ok(Arc::new(RealFile { file: File::open(self.path(name))? }))
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create_new(true).open(self.path(name))?;
        Ok(Arc::new(RealFile { file }))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.root)? {
            let entry = entry?;
            if entry.file_type()?.is_file()
                && let Ok(name) = entry.file_name().into_string()
            {
                names.push(name);
            }
        }
        Ok(names)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        fs::remove_file(self.path(name))
    }

    fn rename(&self, source: &str, target: &str) -> io::Result<()> {
        fs::rename(self.path(source), self.path(target))
    }

    fn sync(&self) -> io::Result<()> {
        File::open(&self.root)?.sync_all()
    }

    fn sub(&self, name: &str) -> io::Result<Arc<dyn Disk>> {
        let root = self.path(name);
        if !root.is_dir() {
            fs::create_dir(&root)?;
            self.sync()?;
        }
        Ok(Arc::new(RealDisk { root }))
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let stat = rustix::fs::statvfs(&self.root)?;
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize))
    }
}

#[derive(Debug)]
struct RealFile {
    file: File,
}

impl DiskFile for RealFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match self.file.read_at(&mut buf[done..], offset + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn read_at_nowait(&self, buf: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        let mut done = 0;
        while done < buf.len() {
            let mut bufs = [IoSliceMut::new(&mut buf[done..])];
            match preadv2(&self.file, &mut bufs, offset + done as u64, ReadWriteFlags::NOWAIT) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(Errno::AGAIN | Errno::OPNOTSUPP) => return Ok(None),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Some(done))
    }

    fn will_read(&self, offset: u64, len: u64) {
        // Only a hint: pages that cannot be fetched now are fetched by the read.
        let _ = fadvise(&self.file, offset, NonZeroU64::new(len), Advice::WillNeed);
    }

    fn write_at(&self, bufs: &[&[u8]], offset: u64) -> io::Result<()> {
        self.write(bufs, offset, ReadWriteFlags::empty())
    }

    /// Uses `RWF_DONTCACHE` if the kernel and the file system have it (Linux 6.14, ext4, XFS). Then
    /// writing starts at once, and takes no page of memory that was not in use before; such pages
    /// are expensive on virtual machines.
    fn write_behind_at(&self, bufs: &[&[u8]], offset: u64) -> io::Result<()> {
        const RWF_DONTCACHE: ReadWriteFlags = ReadWriteFlags::from_bits_retain(0x80);
        static REFUSED: AtomicBool = AtomicBool::new(false);
        if REFUSED.load(Ordering::Relaxed) {
            return self.write_at(bufs, offset);
        }
        match self.write(bufs, offset, RWF_DONTCACHE) {
            Err(error) if error.raw_os_error() == Some(Errno::OPNOTSUPP.raw_os_error()) => {
                REFUSED.store(true, Ordering::Relaxed);
                self.write_at(bufs, offset)
            }
            written => written,
        }
    }

    fn sync_data(&self) -> io::Result<()> {
        self.file.sync_data()
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        rustix::fs::fallocate(&self.file, rustix::fs::FallocateFlags::empty(), 0, len)?;
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        self.file.set_len(len)
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }
}

impl RealFile {
    fn write(&self, bufs: &[&[u8]], offset: u64, flags: ReadWriteFlags) -> io::Result<()> {
        let total: usize = bufs.iter().map(|buf| buf.len()).sum();
        let mut done = 0;
        while done < total {
            let slices = remaining(bufs, done);
            match rustix::io::pwritev2(&self.file, &slices, offset + done as u64, flags) {
                Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

/// Returns the slices of `bufs` without their first `done` bytes, at most 1,024 of them
/// (`IOV_MAX`).
fn remaining<'a>(bufs: &[&'a [u8]], mut done: usize) -> Vec<IoSlice<'a>> {
    const IOV_MAX: usize = 1024;
    let mut slices = Vec::with_capacity(bufs.len().min(IOV_MAX));
    for buf in bufs {
        let skip = done.min(buf.len());
        done -= skip;
        if skip < buf.len() && slices.len() < IOV_MAX {
            slices.push(IoSlice::new(&buf[skip..]));
        }
    }
    slices
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn writes_are_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let disk = RealDisk::open(dir.path()).unwrap();
        let file = disk.create("a").unwrap();
        file.write_at(&[b"hello ", b"", b"world"], 3).unwrap();
        let mut buf = [0; 11];
        read_exact_at(&*file, &mut buf, 3).unwrap();
        assert_eq!(&buf, b"hello world");
        assert_eq!(file.len().unwrap(), 14);
        assert!(read_exact_at(&*file, &mut buf, 4).is_err());
        assert_eq!(disk.list().unwrap(), ["a"]);
        assert!(disk.create("a").is_err());
    }

    #[test]
    #[should_panic]
    fn a_name_is_one_component() {
        let dir = tempfile::tempdir().unwrap();
        let _ = RealDisk::open(dir.path()).unwrap().open("../escape");
    }
}
