//! A read-only view of a disk: writes stay in memory and are gone in the end. So a store can be
//! opened, with all its recovery, and nothing of it changes.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use cairn_base::{Disk, DiskFile};
use parking_lot::Mutex;
use rustix::fs::statvfs;

/// Unit in which written parts of a file are kept in memory, bytes.
const PAGE: usize = 4096;

/// A directory of the operating system in its present state.
pub struct FrozenDisk {
    root: PathBuf,
    /// Files that were opened, made or renamed so far; `None` if removed.
    files: Mutex<BTreeMap<String, Option<Arc<FrozenFile>>>>,
}

impl FrozenDisk {
    pub fn open(root: &Path) -> FrozenDisk {
        FrozenDisk { root: root.to_path_buf(), files: Mutex::new(BTreeMap::new()) }
    }

    fn find(&self, name: &str) -> io::Result<Arc<FrozenFile>> {
        let mut files = self.files.lock();
        if let Some(known) = files.get(name) {
            return known.clone().ok_or_else(|| io::ErrorKind::NotFound.into());
        }
        let base = File::open(self.root.join(name))?;
        let len = base.metadata()?.len();
        let file = FrozenFile::new(Some(base), len);
        files.insert(name.to_owned(), Some(Arc::clone(&file)));
        Ok(file)
    }
}

impl Disk for FrozenDisk {
    fn open(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        let file: Arc<dyn DiskFile> = self.find(name)?;
        Ok(file)
    }

    fn create(&self, name: &str) -> io::Result<Arc<dyn DiskFile>> {
        match self.find(name) {
            Ok(_) => return Err(io::ErrorKind::AlreadyExists.into()),
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            Err(_) => {}
        }
        let file = FrozenFile::new(None, 0);
        self.files.lock().insert(name.to_owned(), Some(Arc::clone(&file)));
        Ok(file)
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
        for (name, file) in self.files.lock().iter() {
            names.retain(|other| other != name);
            if file.is_some() {
                names.push(name.clone());
            }
        }
        Ok(names)
    }

    fn remove(&self, name: &str) -> io::Result<()> {
        self.find(name)?;
        self.files.lock().insert(name.to_owned(), None);
        Ok(())
    }

    fn rename(&self, source: &str, target: &str) -> io::Result<()> {
        let file = self.find(source)?;
        let mut files = self.files.lock();
        files.insert(source.to_owned(), None);
        files.insert(target.to_owned(), Some(file));
        Ok(())
    }

    fn sync(&self) -> io::Result<()> {
        Ok(())
    }

    fn sub(&self, name: &str) -> io::Result<Arc<dyn Disk>> {
        Ok(Arc::new(FrozenDisk::open(&self.root.join(name))))
    }

    fn free_bytes(&self) -> io::Result<u64> {
        let stat = statvfs(&self.root)?;
        // At least a gibibyte: none of it is really taken.
        Ok(stat.f_bavail.saturating_mul(stat.f_frsize).max(1 << 30))
    }
}

struct FrozenFile {
    base: Option<File>,
    state: Mutex<WrittenPages>,
}

struct WrittenPages {
    len: u64,
    /// Length up to which bytes are those of `base`: the file was cut to this length once.
    base_len: u64,
    pages: BTreeMap<u64, Box<[u8; PAGE]>>,
}

impl FrozenFile {
    fn new(base: Option<File>, len: u64) -> Arc<FrozenFile> {
        let state = WrittenPages { len, base_len: len, pages: BTreeMap::new() };
        Arc::new(FrozenFile { base, state: Mutex::new(state) })
    }

    /// Reads bytes of the file below, zeros behind its end.
    fn read_base(&self, written: &WrittenPages, buf: &mut [u8], offset: u64) -> io::Result<()> {
        let end = (offset + buf.len() as u64).min(written.base_len);
        let inside = end.saturating_sub(offset) as usize;
        let (read, rest) = buf.split_at_mut(inside);
        rest.fill(0);
        match &self.base {
            Some(base) if !read.is_empty() => base.read_exact_at(read, offset),
            _ => {
                read.fill(0);
                Ok(())
            }
        }
    }
}

impl DiskFile for FrozenFile {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        let written = self.state.lock();
        let len = (buf.len() as u64).min(written.len.saturating_sub(offset)) as usize;
        let buf = &mut buf[..len];
        self.read_base(&written, buf, offset)?;
        let end = offset + len as u64;
        for (number, page) in written.pages.range(offset / PAGE as u64..end.div_ceil(PAGE as u64)) {
            let start = number * PAGE as u64;
            let (from, to) = (start.max(offset), (start + PAGE as u64).min(end));
            let source = &page[(from - start) as usize..(to - start) as usize];
            buf[(from - offset) as usize..(to - offset) as usize].copy_from_slice(source);
        }
        Ok(len)
    }

    fn read_at_nowait(&self, buf: &mut [u8], offset: u64) -> io::Result<Option<usize>> {
        self.read_at(buf, offset).map(Some)
    }

    fn write_at(&self, bufs: &[&[u8]], offset: u64) -> io::Result<()> {
        let mut written = self.state.lock();
        let mut at = offset;
        for mut rest in bufs.iter().copied() {
            while !rest.is_empty() {
                let (number, skip) = (at / PAGE as u64, (at % PAGE as u64) as usize);
                let (now, later) = rest.split_at(rest.len().min(PAGE - skip));
                if !written.pages.contains_key(&number) {
                    let mut page = Box::new([0; PAGE]);
                    self.read_base(&written, &mut page[..], number * PAGE as u64)?;
                    written.pages.insert(number, page);
                }
                if let Some(page) = written.pages.get_mut(&number) {
                    page[skip..skip + now.len()].copy_from_slice(now);
                }
                at += now.len() as u64;
                rest = later;
            }
        }
        written.len = written.len.max(at);
        Ok(())
    }

    fn sync_data(&self) -> io::Result<()> {
        Ok(())
    }

    fn allocate(&self, len: u64) -> io::Result<()> {
        let mut written = self.state.lock();
        written.len = written.len.max(len);
        Ok(())
    }

    fn set_len(&self, len: u64) -> io::Result<()> {
        let mut written = self.state.lock();
        if len < written.len {
            written.base_len = written.base_len.min(len);
            written.pages.split_off(&len.div_ceil(PAGE as u64));
            let inside = (len % PAGE as u64) as usize;
            if inside > 0
                && let Some(page) = written.pages.get_mut(&(len / PAGE as u64))
            {
                page[inside..].fill(0);
            }
        }
        written.len = len;
        Ok(())
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.state.lock().len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(file: &dyn DiskFile) -> Vec<u8> {
        let mut bytes = vec![1; 20_000];
        let len = file.read_at(&mut bytes, 0).unwrap();
        bytes.truncate(len);
        bytes
    }

    #[test]
    fn writes_are_seen_and_change_nothing_on_the_disk() {
        let directory = tempfile::tempdir().unwrap();
        let before: Vec<u8> = (0..10_000u32).map(|at| at as u8).collect();
        fs::write(directory.path().join("a"), &before).unwrap();
        let disk = FrozenDisk::open(directory.path());
        let file = disk.open("a").unwrap();
        let mut expected = before.clone();
        file.write_at(&[b"hello ", b"world"], 4090).unwrap();
        expected[4090..4101].copy_from_slice(b"hello world");
        assert_eq!(read(&*file), expected);
        file.set_len(4095).unwrap();
        file.set_len(9000).unwrap();
        expected.truncate(4095);
        expected.resize(9000, 0);
        assert_eq!(read(&*file), expected);
        file.write_at(&[b"!"], 12_000).unwrap();
        expected.resize(12_000, 0);
        expected.push(b'!');
        assert_eq!(read(&*file), expected);
        disk.rename("a", "b").unwrap();
        disk.create("c").unwrap();
        assert_eq!(disk.list().unwrap(), ["b", "c"]);
        assert!(disk.open("a").is_err());
        disk.remove("b").unwrap();
        assert_eq!(fs::read(directory.path().join("a")).unwrap(), before);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}
