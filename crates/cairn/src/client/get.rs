//! `cairn get`

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};

use indicatif::ProgressBar;
use parking_lot::Mutex;

use super::address::Address;
use super::{api, pool};
use crate::connection::{Connection, Server};
use crate::failure::{Failure, Result};
use crate::output;
use crate::server::process;

/// Bytes that are copied at a time.
const BUFFER: usize = 256 << 10;
/// Failures of single objects that are printed one by one, at most.
const SHOWN: usize = 20;
/// Number of files begun so far.
static PARTS: AtomicU64 = AtomicU64::new(0);

/// Fetch objects into files
///
/// A file appears under its name when all of it is there.
#[derive(clap::Args)]
#[command(after_help = "With -r, a prefix that ends in / stands for what is below it:
`cairn get -r www/site/ out` makes out/index.html, and so undoes `cairn put -r out www/site`.
Without / at the end, names begin with the last part of the prefix, and everything that begins
like it comes along: `cairn get -r www/site out` makes out/site/index.html, and
out/site-2/index.html if there is that.

Examples:
  cairn get photos/2024/cat.jpg
  cairn get photos/2024/cat.jpg - | file -
  cairn get -r www/ site")]
pub struct GetArgs {
    /// BUCKET/KEY, or with -r BUCKET/PREFIX
    source: String,
    /// A file or directory, or - for stdout [default: the current directory]
    target: Option<PathBuf>,
    /// Fetch everything below a prefix into a directory
    #[arg(short, long)]
    recursive: bool,
    /// Transfers at the same time, with -r
    #[arg(short, long, value_name = "N", default_value_t = 8)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: u16,
    #[command(flatten)]
    connection: Connection,
}

/// An object, and the file that it becomes.
struct Job {
    source: Address,
    file: PathBuf,
}

pub fn run(args: &GetArgs) -> Result<ExitCode> {
    process::write_for_caller();
    let target = args.target.clone().unwrap_or_else(|| PathBuf::from("."));
    if args.recursive {
        return get_all(args, &Address::parse(&args.source)?, &target);
    }
    let source =
        Address::parse_object(&args.source, [", or -r for all", ", or -r for all below it"])?;
    let server = args.connection.open()?;
    if target == Path::new("-") {
        let bar = ProgressBar::hidden();
        fetch(&server, &source, &mut io::stdout().lock(), &bar)?;
        return Ok(ExitCode::SUCCESS);
    }
    let name = source.key.rsplit('/').next().unwrap_or_default().to_owned();
    let file = if target.is_dir() { target.join(safe(&name)?) } else { target };
    let bar = output::bytes_bar(0, &args.source);
    let fetched = get_file(&server, &Job { source, file }, &bar, true);
    // Nothing stands before an error.
    bar.finish_and_clear();
    fetched?;
    Ok(ExitCode::SUCCESS)
}

fn get_all(args: &GetArgs, source: &Address, target: &Path) -> Result<ExitCode> {
    let server = args.connection.open()?;
    let left = FailedFetches::default();
    // Names begin behind the last slash of the prefix.
    let skip = source.key.rfind('/').map_or(0, |slash| slash + 1);
    let bar = output::bytes_bar(0, &args.source);
    let (mut found, fetched) = (0_u64, AtomicU64::new(0));
    let feed = |send: &mut dyn FnMut(Job) -> Result<()>| {
        api::each_object(&server, source, &mut |object| {
            found += 1;
            let name = object.key.get(skip..).unwrap_or_default();
            if name.is_empty() {
                return Ok(());
            }
            let file = match safe(name) {
                Ok(name) => target.join(name),
                Err(failure) => return left.unless_of_one(Err(failure)),
            };
            if name.ends_with('/') {
                let made = fs::create_dir_all(&file);
                let made = made.map_err(|error| Failure::file(&file, &error));
                return left.unless_of_one(made);
            }
            bar.inc_length(object.size);
            send(Job { source: source.with_key(&object.key), file })
        })
    };
    let work = |job| {
        let done = get_file(&server, &job, &bar, false);
        fetched.fetch_add(u64::from(done.is_ok()), Ordering::Relaxed);
        left.unless_of_one(done)
    };
    let done = pool::run(usize::from(args.jobs), feed, work);
    let bytes = bar.position();
    bar.finish_and_clear();
    done?;
    // A bucket may be empty; a prefix that nothing has is a wrong name.
    if found == 0 && !source.key.is_empty() {
        return Err(Failure::not_found(format!("{source}: there is no such object or prefix")));
    }
    fs::create_dir_all(target).map_err(|error| Failure::file(target, &error))?;
    let (files, size) = (fetched.into_inner(), output::human_bytes(bytes));
    output::note(&format!("{files} files, {size}, to {}", target.display()));
    left.report()
}

/// Objects that could not be fetched for a reason of their own. Such a key must not keep the others
/// from being fetched.
#[derive(Default)]
struct FailedFetches(Mutex<(u64, Vec<Failure>)>);

impl FailedFetches {
    /// Notes a failure that concerns one object only, and goes on.
    fn unless_of_one(&self, done: Result<()>) -> Result<()> {
        match done {
            Err(failure) if failure.is_of_a_name() || failure.is_not_found() => {
                let mut left = self.0.lock();
                left.0 += 1;
                if left.1.len() < SHOWN {
                    left.1.push(failure);
                }
                Ok(())
            }
            done => done,
        }
    }

    fn report(self) -> Result<ExitCode> {
        let (count, shown) = self.0.into_inner();
        for failure in &shown {
            output::complain(&failure.to_string());
        }
        match count {
            0 => Ok(ExitCode::SUCCESS),
            1 => Err(Failure::new("1 object was left out, all others are fetched")),
            _ => {
                Err(Failure::new(format!("{count} objects were left out, all others are fetched")))
            }
        }
    }
}

/// Returns a key as a path below a directory; refuses keys that would lead out of it or lose a
/// part.
fn safe(key: &str) -> Result<PathBuf> {
    let path = Path::new(key);
    let plain = path.components().all(|part| matches!(part, Component::Normal(_)));
    let whole = !key.contains("//") && !key.split('/').any(|part| part == "." || part == "..");
    if plain && whole && !key.contains('\0') {
        return Ok(path.to_path_buf());
    }
    Err(Failure::of_a_name(format!(
        "key {key:?} cannot be the path of a file: fetch this object alone, and name the file"
    )))
}

fn get_file(server: &Server, job: &Job, bar: &ProgressBar, sizes_bar: bool) -> Result<()> {
    let fail = |path: &Path, error: io::Error| Failure::file(path, &error);
    if let Some(directory) = job.file.parent()
        && !directory.as_os_str().is_empty()
    {
        fs::create_dir_all(directory).map_err(|error| fail(directory, error))?;
    }
    if job.file.file_name().is_none() {
        return Err(Failure::usage(format!("{}: not the name of a file", job.file.display())));
    }
    // Independent of the name, which may have the greatest length already.
    let (process, number) = (std::process::id(), PARTS.fetch_add(1, Ordering::Relaxed));
    let part = job.file.with_file_name(format!(".{process}-{number}.cairn-part"));
    let mut file = File::create(&part).map_err(|error| fail(&part, error))?;
    let bar_of_one = if sizes_bar { Some(bar) } else { None };
    if let Some(bar) = bar_of_one {
        bar.set_length(0);
    }
    let fetched = fetch(server, &job.source, &mut file, bar)
        .and_then(|()| fs::rename(&part, &job.file).map_err(|error| fail(&job.file, error)));
    if fetched.is_err() {
        // The file may be gone, and there is an earlier failure to report.
        let _ = fs::remove_file(&part);
    }
    fetched
}

/// Copies an object; fails unless all of it arrived.
fn fetch(
    server: &Server,
    source: &Address,
    target: &mut dyn Write,
    bar: &ProgressBar,
) -> Result<()> {
    // This client knows no certificates of chunkservers, nor whether it can reach them.
    let path = format!("{}?no-redirect", source.path());
    let failed = |failure| api::of_object(server, source, failure, "use -r");
    let reply = server.send("GET", &path).map_err(failed)?;
    let (announced, mut reader) = reply.into_reader();
    if bar.length() == Some(0) {
        bar.set_length(announced.unwrap_or(0));
    }
    let mut buffer = vec![0; BUFFER];
    let mut copied = 0;
    loop {
        let read = match reader.read(&mut buffer) {
            Ok(0) => break,
            Ok(read) => read,
            Err(error) => return Err(Failure::new(format!("{source}: {error}: try again"))),
        };
        target.write_all(&buffer[..read])?;
        copied += read as u64;
        bar.inc(read as u64);
    }
    target.flush()?;
    match announced {
        Some(length) if length != copied => {
            Err(Failure::new(format!("{source}: {copied} of {length} bytes came: try again")))
        }
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_stay_below_the_directory() {
        for good in ["a", "a/b", "a/", ".a", "a..b/c"] {
            assert!(safe(good).is_ok(), "{good}");
        }
        for bad in ["..", "a/../b", "/a", "a//b", "./a", "a/.", "", "a\0b"] {
            assert!(bad.is_empty() || safe(bad).is_err(), "{bad}");
        }
    }
}
