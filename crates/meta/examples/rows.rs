//! Makes a dump of many rows, and checks rows at rest; `bench/rows` uses both.
//!
//! `rows fill DUMP NEW BUCKET ROWS` copies the dump of a store with an empty bucket, and adds files
//! of 100 bytes to that bucket until there are about ROWS rows. Directories are called `d0000000`,
//! `d0000001`, and so on; each has the files `f000` to `f999`. Rows are made one by one, in the
//! order of their keys, so memory does not grow with them.
//!
//! `rows check DIR` opens the engine in DIR, which no server may use, and reads all rows and pages
//! as fast as possible, as a pass of the scrub does slowly. Prints seconds and bytes read.
#![allow(clippy::disallowed_methods)]

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, BufWriter, Write as _};
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use cairn_base::rng::SeededRng;
use cairn_base::{BucketId, Error, Ino, RealDisk, Result, Rng, Timestamp};
use cairn_meta::dump;
use cairn_meta::engine::embedded::Config;
use cairn_meta::engine::{EmbeddedEngine, Pace};
use cairn_meta::keys;
use cairn_meta::rows::{
    Bucket, Content, Counter, Entry, Inode, Kind, ObjectAttributes, Row, Tally, Usage, UserTotals,
};
use md5::{Digest, Md5};

const FILES: u64 = 1000;
const FILE_BYTES: usize = 100;
/// Rows of a directory and its files: inode, entry and tally; inode and entry of each file.
const DIRECTORY_ROWS: u64 = 3 + 2 * FILES;
const BUFFER: usize = 1 << 20;

fn main() -> Result<()> {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["fill", old, new, bucket, rows] => {
            let rows = rows.parse().map_err(|_| invalid(&format!("{rows}: no number of rows")))?;
            fill(Path::new(old), Path::new(new), bucket, rows)
        }
        ["check", dir] => check(Path::new(dir)),
        _ => Err(invalid("rows fill DUMP NEW BUCKET ROWS, or rows check DIR")),
    }
}

fn invalid(text: &str) -> Error {
    Error::Invalid(text.into())
}

fn check(dir: &Path) -> Result<()> {
    let begun = Instant::now();
    let engine = EmbeddedEngine::open(Arc::new(RealDisk::open(dir)?), Config::default())?;
    let (opened, before) = (begun.elapsed(), read_bytes()?);
    engine.check_rows(&Pace::default())?;
    let (checked, read) = (begun.elapsed() - opened, read_bytes()? - before);
    println!("opened {:.3}\nchecked {:.3}", opened.as_secs_f64(), checked.as_secs_f64());
    println!("read_bytes {read}");
    engine.abandon();
    Ok(())
}

/// Returns the bytes that this process has read from files, cached ones too.
fn read_bytes() -> Result<u64> {
    let counters = std::fs::read_to_string("/proc/self/io")?;
    let read = counters.lines().find_map(|line| line.strip_prefix("rchar: "));
    let read = read.and_then(|text| text.parse().ok());
    read.ok_or_else(|| invalid("/proc/self/io has no rchar"))
}

type Rows = BTreeMap<Bytes, Bytes>;

fn fill(old: &Path, new: &Path, bucket: &str, rows: u64) -> Result<()> {
    let mut base = Rows::new();
    let mut input = BufReader::with_capacity(BUFFER, File::open(old)?);
    let summary = dump::each(&mut input, &mut |key, row| {
        base.insert(key, row);
        Ok(())
    })?;
    let plan = Plan::make(&mut base, bucket, summary.batch, rows)?;
    let mut out = BufWriter::with_capacity(BUFFER, File::create_new(new)?);
    let mut writer = dump::Writer::begin(&mut out, summary.cluster, summary.batch)?;
    let mut live_bytes = 0;
    let mut write = |key: &[u8], row: &[u8]| {
        live_bytes += key.len() + row.len();
        writer.row(key, row)
    };
    let mut base = base.into_iter().peekable();
    for (key, row) in plan.rows() {
        while let Some((key, row)) = base.next_if(|(before, _)| *before < key) {
            write(&key, &row)?;
        }
        write(&key, &row)?;
    }
    base.try_for_each(|(key, row)| write(&key, &row))?;
    let written = writer.finish()?;
    out.flush()?;
    out.get_ref().sync_all()?;
    let Plan { directories, .. } = plan;
    println!("rows {}\ndump_bytes {}\nlive_bytes {live_bytes}", written.rows, written.bytes);
    println!("directories {directories}\nfiles {}", directories * FILES);
    Ok(())
}

/// The rows to add to a store.
struct Plan {
    bucket: BucketId,
    /// Inode number of the first directory. Its files follow, then the next directory.
    first: u64,
    directories: u64,
    batch: u64,
    now: Timestamp,
    /// User and group of all inodes.
    ids: (u32, u32),
}

impl Plan {
    /// Counts the added rows in those of the store.
    fn make(base: &mut Rows, name: &str, batch: u64, rows: u64) -> Result<Plan> {
        let (start, end) = keys::buckets_after(BucketId(0));
        let found = base.range(start..end).find_map(|(key, row)| {
            let bucket = Bucket::decode(row).ok().filter(|bucket| bucket.name == name)?;
            let id = key.get(1..)?.try_into().ok().map(u64::from_be_bytes)?;
            Some((BucketId(id), bucket))
        });
        let missing = || Error::NotFound(format!("bucket {name} in the dump"));
        let (id, bucket) = found.ok_or_else(missing)?;
        let directories = rows.saturating_sub(base.len() as u64).div_ceil(DIRECTORY_ROWS).max(1);
        let (files, bytes) = (directories * FILES, directories * FILES * FILE_BYTES as u64);
        let mut first = 0;
        change(base, keys::config("next_ino"), |next: &mut Counter| {
            first = next.value;
            next.value += directories * (1 + FILES);
        })?;
        change_or_add(base, keys::tally(id.ino()), |tally: &mut Tally| {
            tally.entries += directories;
            tally.directories += directories;
        })?;
        change_or_add(base, keys::usage(id), |usage: &mut Usage| {
            usage.objects += files;
            usage.bytes += bytes;
        })?;
        change_or_add(base, keys::owned(bucket.owner), |totals: &mut UserTotals| {
            totals.objects += files;
            totals.bytes += bytes;
        })?;
        let mut top = Inode::default();
        change(base, keys::inode(id.ino()), |inode: &mut Inode| top = inode.clone())?;
        let (now, ids) = (bucket.created, (top.uid, top.gid));
        Ok(Plan { bucket: id, first, directories, batch, now, ids })
    }

    /// Returns the rows in the order of their keys.
    fn rows(&self) -> impl Iterator<Item = (Bytes, Bytes)> + '_ {
        let each =
            move || (0..self.directories).map(move |number| (number, self.directory(number)));
        let top = self.bucket.ino();
        let in_bucket = each().map(move |(number, ino)| {
            let name = format!("d{number:07}");
            let entry = Entry::new(ino, Kind::Directory);
            (keys::directory_entry(top, name.as_bytes()), entry.encode())
        });
        let entries = each().flat_map(|(_, parent)| {
            (0..FILES).map(move |number| {
                let name = format!("f{number:03}");
                let entry = Entry::new(file(parent, number), Kind::File);
                (keys::file_entry(parent, name.as_bytes()), entry.encode())
            })
        });
        let inodes = each().flat_map(move |(_, ino)| {
            let files = (0..FILES).map(move |number| file(ino, number));
            let files = files.map(move |ino| (keys::inode(ino), self.file_inode(ino).encode()));
            let inode = Inode { implicit: true, parent: top, mode: 0o755, ..self.inode() };
            let inode = Inode { kind: Kind::Directory, ..inode };
            std::iter::once((keys::inode(ino), inode.encode())).chain(files)
        });
        let tally = Tally { entries: FILES, mtime: self.now, ..Tally::default() }.encode();
        let tallies = each().map(move |(_, ino)| (keys::tally(ino), tally.clone()));
        in_bucket.chain(entries).chain(inodes).chain(tallies)
    }

    fn directory(&self, number: u64) -> Ino {
        Ino(self.first + number * (1 + FILES))
    }

    fn inode(&self) -> Inode {
        let (now, (uid, gid)) = (self.now, self.ids);
        Inode {
            bucket: self.bucket,
            mode: 0o644,
            uid,
            gid,
            nlink: 1,
            atime: now,
            mtime: now,
            ctime: now,
            btime: now,
            change: self.batch,
            ..Inode::default()
        }
    }

    /// Returns a file as a PUT through the S3 door leaves it.
    fn file_inode(&self, ino: Ino) -> Inode {
        let mut content = vec![0; FILE_BYTES];
        SeededRng::new(ino.0).fill(&mut content);
        let etag = Md5::digest(&content).iter().map(|byte| format!("{byte:02x}")).collect();
        let content_type = "application/octet-stream".into();
        let object = ObjectAttributes { etag, content_type, ..ObjectAttributes::default() };
        Inode {
            size: FILE_BYTES as u64,
            content: Content::Inline(content.into()),
            object: Some(Box::new(object)),
            ..self.inode()
        }
    }
}

/// Returns the inode number of a file, by its number in its directory.
fn file(directory: Ino, number: u64) -> Ino {
    Ino(directory.0 + 1 + number)
}

/// Changes a row of the store, or adds it: an empty bucket has no counts.
fn change_or_add<R: Row + Default>(
    base: &mut Rows,
    key: Bytes,
    change: impl FnOnce(&mut R),
) -> Result<()> {
    let mut row = base.get(&key).map(R::decode).transpose()?.unwrap_or_default();
    change(&mut row);
    base.insert(key, row.encode());
    Ok(())
}

/// Changes a row of the store, which must be there.
fn change<R: Row>(base: &mut Rows, key: Bytes, change: impl FnOnce(&mut R)) -> Result<()> {
    let missing = || Error::NotFound(format!("row {} in the dump", key.escape_ascii()));
    let slot = base.get_mut(&key).ok_or_else(missing)?;
    let mut row = R::decode(slot)?;
    change(&mut row);
    *slot = row.encode();
    Ok(())
}
