//! Operations on files. Each load finds or makes what it needs before its time is measured.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use rustix::fs::{Advice, fadvise};

use crate::closed_loop::noise;
use crate::cpu::Processes;
use crate::error::{Error, Result};
use crate::load::{Sample, Tally};
use crate::stop;
use crate::values::human_size;

/// Files of each thread that are served in turn.
pub const SERVED: usize = 50;

#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Load {
    Write,
    Read,
    RandomRead,
    RandomWrite,
    Create,
    Stat,
    List,
    Unlink,
    /// Serves files of that size.
    Serve(u64),
}

pub struct Sizes {
    pub file: u64,
    pub block: u64,
    pub random_block: u64,
    /// Size of a small file.
    pub small: u64,
    /// Number of small files of each thread.
    pub files: usize,
    pub duration: Duration,
}

impl Load {
    pub fn name(self, sizes: &Sizes) -> String {
        let small = human_size(sizes.small);
        let (block, random) = (human_size(sizes.block), human_size(sizes.random_block));
        match self {
            Load::Write => format!("write in sequence, {block} at a time, synced at the end"),
            Load::Read => format!("read in sequence, {block} at a time"),
            Load::RandomRead => format!("read at random, {random}"),
            Load::RandomWrite => format!("write at random, {random}, each synced"),
            Load::Create => format!("create files of {small}"),
            Load::Stat => format!("stat files of {small}"),
            Load::List => format!("list directories of {} files, files a second", sizes.files),
            Load::Unlink => format!("unlink files of {small}"),
            Load::Serve(size) => format!("serve files of {} (open, read, close)", human_size(size)),
        }
    }
}

/// One thread of a load.
struct Hand<'a> {
    load: Load,
    sizes: &'a Sizes,
    /// Directory of the thread.
    home: PathBuf,
    number: u64,
    tally: Tally,
}

/// Runs a load on `threads` threads.
pub fn run(
    load: Load,
    directory: &Path,
    sizes: &Sizes,
    threads: usize,
    server: &[u32],
) -> Result<Sample> {
    let barrier = Barrier::new(threads + 1);
    thread::scope(|scope| {
        let hands: Vec<_> = (0..threads)
            .map(|number| {
                let home = directory.join(number.to_string());
                let number = number as u64;
                let mut hand = Hand { load, sizes, home, number, tally: Tally::default() };
                let barrier = &barrier;
                scope.spawn(move || {
                    let prepared = hand.prepare();
                    barrier.wait();
                    let outcome = prepared.and_then(|()| hand.work());
                    (hand.tally, outcome)
                })
            })
            .collect();
        barrier.wait();
        let began = Instant::now();
        let has_server = !server.is_empty();
        let (client, server) = (Processes::this(), Processes::of(server));
        let (client_mark, server_mark) = (client.mark(), server.mark());
        let (mut tally, mut broken) = (Tally::default(), None);
        for hand in hands {
            let joined = hand.join().map_err(|_| {
                Error::failed("a thread of the client panicked: see its message above")
            })?;
            tally.add(&joined.0);
            if let Err(error) = joined.1 {
                broken.get_or_insert(format!("{}: {}", load.name(sizes), explain(&error)));
            }
        }
        Ok(Sample {
            began,
            seconds: began.elapsed().as_secs_f64().max(1e-9),
            asked: tally.replies(),
            unsent: 0,
            tally,
            client_cores: client.cores_since(&client_mark),
            server_cores: has_server.then(|| server.cores_since(&server_mark)),
            broken,
        })
    })
}

fn explain(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            format!("{error}: free some space, or give a smaller --size or fewer --files")
        }
        _ => error.to_string(),
    }
}

impl Hand<'_> {
    fn big(&self) -> PathBuf {
        self.home.join("big")
    }

    fn small_dir(&self) -> PathBuf {
        self.home.join("small")
    }

    fn small(&self, number: usize) -> PathBuf {
        self.small_dir().join(format!("file-{number:06}"))
    }

    fn served(&self, size: u64, number: usize) -> PathBuf {
        self.home.join(format!("served-{size}-{number:03}"))
    }

    /// Makes what the load needs, unless it is there.
    fn prepare(&mut self) -> io::Result<()> {
        fs::create_dir_all(self.small_dir())?;
        match self.load {
            Load::Write => forget_file(&self.big()),
            Load::Read | Load::RandomRead | Load::RandomWrite => {
                if fs::metadata(self.big()).map_or(0, |found| found.len()) != self.sizes.file {
                    self.write_big(false)?;
                }
                fadvise(File::open(self.big())?, 0, None, Advice::DontNeed)?;
                Ok(())
            }
            Load::Create => {
                (0..self.sizes.files).try_for_each(|number| forget_file(&self.small(number)))
            }
            Load::Stat | Load::List | Load::Unlink => {
                let body = noise(self.sizes.small as usize);
                (0..self.sizes.files).try_for_each(|number| make(&self.small(number), &body))
            }
            Load::Serve(size) => {
                let body = noise(size as usize);
                (0..SERVED).try_for_each(|number| make(&self.served(size, number), &body))?;
                (0..SERVED).try_for_each(|number| fs::read(self.served(size, number)).map(drop))
            }
        }
    }

    fn work(&mut self) -> io::Result<()> {
        match self.load {
            Load::Write => self.write_big(true),
            Load::Read => self.read_big(),
            Load::RandomRead | Load::RandomWrite => self.random(),
            Load::Create => {
                let body = noise(self.sizes.small as usize);
                self.each_small(|path| fs::write(path, &body))
            }
            Load::Stat => self.each_small(|path| fs::metadata(path).map(drop)),
            Load::Unlink => self.each_small(|path| fs::remove_file(path)),
            Load::List => self.list(),
            Load::Serve(size) => self.serve(size),
        }
    }

    fn count(&mut self, begun: Instant, bytes: u64) {
        self.tally.latency.record(begun.elapsed());
        self.tally.in_time += 1;
        self.tally.bytes_in_time += bytes;
    }

    fn write_big(&mut self, is_counted: bool) -> io::Result<()> {
        let mut file = File::create(self.big())?;
        let mut block = noise(self.sizes.block as usize);
        let mut left = self.sizes.file;
        while left > 0 && !stop::is_stopped() {
            // Each block differs from all others.
            let stamp = (left ^ self.number << 48).to_le_bytes();
            let stamped = stamp.len().min(block.len());
            block[..stamped].copy_from_slice(&stamp[..stamped]);
            let part = left.min(self.sizes.block);
            let begun = Instant::now();
            file.write_all(&block[..part as usize])?;
            left -= part;
            if left == 0 {
                file.sync_all()?;
            }
            if is_counted {
                self.count(begun, part);
            }
        }
        Ok(())
    }

    fn read_big(&mut self) -> io::Result<()> {
        let mut file = File::open(self.big())?;
        let mut block = vec![0; self.sizes.block as usize];
        while !stop::is_stopped() {
            let begun = Instant::now();
            match file.read(&mut block)? {
                0 => break,
                read => self.count(begun, read as u64),
            }
        }
        Ok(())
    }

    fn random(&mut self) -> io::Result<()> {
        let writes = self.load == Load::RandomWrite;
        let file = OpenOptions::new().read(true).write(writes).open(self.big())?;
        let mut block = noise(self.sizes.random_block as usize);
        let places = self.sizes.file / self.sizes.random_block;
        let mut random = 0x9E37_79B9_7F4A_7C15_u64 ^ (self.number + 1);
        let start = Instant::now();
        while start.elapsed() < self.sizes.duration && !stop::is_stopped() {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            let offset = random % places * self.sizes.random_block;
            let begun = Instant::now();
            if writes {
                file.write_all_at(&block, offset)?;
                file.sync_data()?;
            } else {
                file.read_exact_at(&mut block, offset)?;
            }
            self.count(begun, block.len() as u64);
        }
        Ok(())
    }

    fn each_small(&mut self, act: impl Fn(&Path) -> io::Result<()>) -> io::Result<()> {
        for number in 0..self.sizes.files {
            if stop::is_stopped() {
                break;
            }
            let path = self.small(number);
            let begun = Instant::now();
            act(&path)?;
            self.count(begun, 0);
        }
        Ok(())
    }

    /// Counts files; the time is that of the whole directory.
    fn list(&mut self) -> io::Result<()> {
        let start = Instant::now();
        while start.elapsed() < self.sizes.duration && !stop::is_stopped() {
            let begun = Instant::now();
            let mut found = 0;
            for entry in fs::read_dir(self.small_dir())? {
                entry?;
                found += 1;
            }
            if found != self.sizes.files {
                let text = format!("{found} files listed, {} made", self.sizes.files);
                return Err(io::Error::other(text));
            }
            self.tally.latency.record(begun.elapsed());
            self.tally.in_time += found as u64;
        }
        Ok(())
    }

    fn serve(&mut self, size: u64) -> io::Result<()> {
        let mut body = vec![0; size as usize];
        let start = Instant::now();
        let mut number = 0;
        while start.elapsed() < self.sizes.duration && !stop::is_stopped() {
            let path = self.served(size, number % SERVED);
            number += 1;
            let begun = Instant::now();
            let mut file = File::open(path)?;
            file.read_exact(&mut body)?;
            drop(file);
            self.count(begun, size);
        }
        Ok(())
    }
}

/// Removes a file if it is there.
fn forget_file(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Makes a file unless it is there.
fn make(path: &Path, body: &[u8]) -> io::Result<()> {
    match fs::metadata(path) {
        Ok(found) if found.len() == body.len() as u64 => Ok(()),
        _ => fs::write(path, body),
    }
}
