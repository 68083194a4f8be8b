//! Appends lines to a file, which is rotated.

use std::fs::{self, DirBuilder, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

use cairn_audit::LineSink;
use rustix::fs::{FallocateFlags, FlockOperation, fallocate, flock};
use rustix::io::Errno;

use crate::failure::{Failure, Result};

/// Length at the end of a file that is searched for the end of its last whole line, bytes.
const TAIL_BYTES: u64 = 4 << 20;

/// Appends lines to a file. A full file is renamed: `FILE` to `FILE.1`, `FILE.1` to `FILE.2`.
pub struct FileSink {
    path: PathBuf,
    file: File,
    len: u64,
    /// Length from which on it is rotated, bytes.
    most: u64,
    kept: Retention,
}

/// Retention of rotated files.
#[derive(Clone, Copy, Debug)]
pub struct Retention {
    /// Number of files that are kept in any case.
    pub files: u32,
    /// Time for which further files are kept after their last line.
    pub time: Duration,
}

/// Number of rotated files, at most, however young they are.
const FILES_MAX: u32 = 10_000;

impl FileSink {
    /// Opens the file; makes its directories if they are missing.
    pub fn open(path: &Path, most: u64, kept: Retention) -> Result<FileSink> {
        if let Some(parent) = path.parent() {
            let made = DirBuilder::new().recursive(true).mode(0o700).create(parent);
            made.map_err(|error| Failure::file(parent, &error))?;
        }
        let (file, len) = open(path).map_err(|error| Failure::file(path, &error))?;
        Ok(FileSink { path: path.to_owned(), file, len, most, kept })
    }

    /// Returns true if the file was renamed or removed by another process.
    fn is_gone(&self) -> io::Result<bool> {
        let own = self.file.metadata()?;
        match fs::metadata(&self.path) {
            Ok(there) => Ok((there.dev(), there.ino()) != (own.dev(), own.ino())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(true),
            Err(error) => Err(error),
        }
    }

    fn numbered(&self, number: u32) -> PathBuf {
        let mut path = self.path.clone().into_os_string();
        path.push(format!(".{number}"));
        path.into()
    }

    /// Returns true if a rotated file is to be kept for its age.
    fn is_young(&self, path: &Path) -> bool {
        let age = fs::metadata(path).and_then(|there| there.modified());
        age.is_ok_and(|at| at.elapsed().is_ok_and(|age| age < self.kept.time))
    }

    fn rotate(&self) -> io::Result<()> {
        // Up to the first free number: a rotation that fails may be tried again and again.
        let goes_on = |number: &u32| {
            let path = self.numbered(*number);
            let is_kept = *number < self.kept.files || *number < FILES_MAX && self.is_young(&path);
            is_kept && path.exists()
        };
        let moved = (1..).take_while(goes_on).count() as u32;
        for number in (1..=moved).rev() {
            match fs::rename(self.numbered(number), self.numbered(number + 1)) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
                _ => {}
            }
        }
        // Without the room that is reserved behind its end.
        self.file.set_len(self.len)?;
        fs::rename(&self.path, self.numbered(1))?;
        if self.kept.time.is_zero() {
            return Ok(());
        }
        // Files that were kept for their age, and are old now.
        let old = (self.kept.files.max(moved + 1) + 1..).map(|number| self.numbered(number));
        for path in old.take_while(|path| path.exists() && !self.is_young(path)) {
            fs::remove_file(path)?;
        }
        Ok(())
    }
}

/// Opens a file, and cuts off half a line at its end. No other process writes it.
fn open(path: &Path) -> io::Result<(File, u64)> {
    let mut options = OpenOptions::new();
    let mut file = options.append(true).read(true).create(true).mode(0o600).open(path)?;
    if !file.metadata()?.is_file() {
        return Err(io::Error::other("not a regular file"));
    }
    flock(&file, FlockOperation::NonBlockingLockExclusive)
        .map_err(|_| io::Error::other("another process writes it: give each its own file"))?;
    let len = file.metadata()?.len();
    let start = len.saturating_sub(TAIL_BYTES);
    file.seek(SeekFrom::Start(start))?;
    let mut tail = Vec::new();
    file.read_to_end(&mut tail)?;
    let whole = match tail.iter().rposition(|byte| *byte == b'\n') {
        Some(at) => start + at as u64 + 1,
        None if start == 0 => 0,
        None => return Err(io::Error::other("no lines of JSON")),
    };
    if whole < len {
        file.set_len(whole)?;
    }
    Ok((file, whole))
}

impl LineSink for FileSink {
    fn write(&mut self, lines: &[u8]) -> io::Result<()> {
        let added = lines.len() as u64;
        if self.len > 0 && self.len + added > self.most && !self.is_gone()? {
            self.rotate()?;
        }
        if self.is_gone()? {
            (self.file, self.len) = open(&self.path)?;
        }
        if let Err(error) = self.file.write_all(lines) {
            // Lines are either whole or absent.
            self.file.set_len(self.len)?;
            return Err(error);
        }
        self.len += added;
        Ok(())
    }

    /// Reserves room behind the end of the file, if the file system can.
    fn reserve(&mut self, bytes: u64) -> io::Result<()> {
        if self.is_gone()? {
            (self.file, self.len) = open(&self.path)?;
        }
        match fallocate(&self.file, FallocateFlags::KEEP_SIZE, self.len, bytes) {
            Err(Errno::OPNOTSUPP | Errno::NOSYS) => Ok(()),
            reserved => Ok(reserved?),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TWO: Retention = Retention { files: 2, time: Duration::ZERO };

    #[test]
    fn files_are_kept_for_their_age_and_then_removed() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        let count = || fs::read_dir(directory.path()).unwrap().count();
        let day = Duration::from_secs(24 * 3600);
        let mut sink = FileSink::open(&path, 4, Retention { time: day, ..TWO }).unwrap();
        (0..8).for_each(|_| sink.write(b"a line\n").unwrap());
        assert_eq!(count(), 8, "all are young");
        let long_ago = std::time::SystemTime::UNIX_EPOCH + day;
        for number in 3..8 {
            let file = File::open(sink.numbered(number)).unwrap();
            file.set_modified(long_ago).unwrap();
        }
        sink.write(b"a line\n").unwrap();
        assert_eq!(count(), 4, "those of one day are kept");
    }

    fn read(path: &Path) -> String {
        fs::read_to_string(path).unwrap()
    }

    #[test]
    fn files_are_rotated_and_the_oldest_go() {
        let scratch = tempfile::tempdir().unwrap();
        let directory = scratch.path().join("made/for/it");
        let path = directory.join("audit.jsonl");
        let mut sink = FileSink::open(&path, 25, TWO).unwrap();
        for line in ["first line\n", "second line\n", "third line\n", "fourth line\n", "fifth\n"] {
            sink.write(line.as_bytes()).unwrap();
        }
        assert_eq!(read(&path), "fifth\n");
        assert_eq!(read(&directory.join("audit.jsonl.1")), "third line\nfourth line\n");
        assert_eq!(read(&directory.join("audit.jsonl.2")), "first line\nsecond line\n");
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o777, 0o600);
        sink.write(&[b'x'; 30]).unwrap();
        sink.write(b"\nlast line that makes four\n").unwrap();
        assert_eq!(fs::read_dir(&directory).unwrap().count(), 3, "two are kept");
    }

    #[test]
    fn half_a_line_is_cut_off_and_a_file_that_is_moved_is_made_again() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("audit.jsonl");
        fs::write(&path, "{\"a\":1}\n{\"b").unwrap();
        let mut sink = FileSink::open(&path, 1 << 20, TWO).unwrap();
        assert!(FileSink::open(&path, 1 << 20, TWO).is_err(), "it is in use");
        sink.write(b"{\"c\":1}\n").unwrap();
        assert_eq!(read(&path), "{\"a\":1}\n{\"c\":1}\n");
        let moved = directory.path().join("moved");
        fs::rename(&path, &moved).unwrap();
        sink.write(b"{\"d\":1}\n").unwrap();
        assert_eq!((read(&path), read(&moved).lines().count()), ("{\"d\":1}\n".to_owned(), 2));
    }
}
