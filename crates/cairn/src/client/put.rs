//! `cairn put`

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use indicatif::ProgressBar;

use super::address::Address;
use super::pool;
use crate::connection::{Connection, Server};
use crate::failure::{Failure, Result};
use crate::output;

/// Store files as objects
///
/// A target that ends in `/`, or is a bucket alone, takes the name of the file. An object appears
/// when all of it is durable, in place of a former one.
#[derive(clap::Args)]
#[command(after_help = "With -r, the target gets what is in the directory, with or without / at
its end: `cairn put -r site www/new` makes www/new/index.html, and `cairn get -r www/new/ site`
fetches the same again. Empty directories are not stored.

Examples:
  cairn put cat.jpg photos/2024/
  tar c . | cairn put - backups/today.tar
  cairn put -r site/ www/")]
pub struct PutArgs {
    /// A file, a directory (with -r), or - for stdin
    source: PathBuf,
    /// BUCKET/KEY
    target: String,
    /// Store all files of a directory; symbolic links are left out
    #[arg(short, long)]
    recursive: bool,
    /// Transfers at the same time, with -r
    #[arg(short, long, value_name = "N", default_value_t = 8)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: u16,
    #[command(flatten)]
    connection: Connection,
}

/// A file, and the object that it becomes.
struct Job {
    file: PathBuf,
    target: Address,
}

pub fn run(args: &PutArgs) -> Result<ExitCode> {
    let target = Address::parse(&args.target)?;
    let server = args.connection.open()?;
    if args.source == Path::new("-") {
        return put_stdin(&server, &target);
    }
    let source = &args.source;
    let metadata = fs::metadata(source).map_err(|error| Failure::file(source, &error))?;
    if metadata.is_dir() {
        if !args.recursive {
            let shown = source.display();
            return Err(Failure::usage(format!("{shown}: is a directory: use -r")));
        }
        return put_directory(args, &server, &target);
    }
    let bar = output::bytes_bar(metadata.len(), &args.target);
    put_file(&server, &Job { file: source.clone(), target: named(target, source)? }, &bar)?;
    bar.finish_and_clear();
    Ok(ExitCode::SUCCESS)
}

/// Returns the target; a target without a name gets the name of the file.
fn named(target: Address, source: &Path) -> Result<Address> {
    if !target.key.is_empty() && !target.key.ends_with('/') {
        return Ok(target);
    }
    let name = source.file_name().and_then(|name| name.to_str()).ok_or_else(|| {
        Failure::usage(format!("{}: has no name for a key: give one", source.display()))
    })?;
    Ok(target.with_key(format!("{}{name}", target.key)))
}

fn put_stdin(server: &Server, target: &Address) -> Result<ExitCode> {
    if target.key.is_empty() || target.key.ends_with('/') {
        return Err(Failure::usage(format!("{target}: stdin has no name: give the whole key")));
    }
    let sent = server.send_body("PUT", &target.path(), None, &mut io::stdin());
    sent.map_err(|failure| hint(target, failure.of(target)))?;
    Ok(ExitCode::SUCCESS)
}

fn put_directory(args: &PutArgs, server: &Server, target: &Address) -> Result<ExitCode> {
    let mut prefix = target.key.clone();
    if !prefix.is_empty() && !prefix.ends_with('/') {
        prefix.push('/');
    }
    let bar = output::bytes_bar(0, &args.target);
    let mut found = DirectoryContents::default();
    let feed = |send: &mut dyn FnMut(Job) -> Result<()>| {
        each_file(&args.source, "", &mut found, &mut |file, name| {
            bar.inc_length(file.metadata().map_or(0, |metadata| metadata.len()));
            send(Job { file, target: target.with_key(format!("{prefix}{name}")) })
        })
    };
    pool::run(usize::from(args.jobs), feed, |job| put_file(server, &job, &bar))?;
    bar.finish_and_clear();
    found.show(bar.position())?;
    Ok(ExitCode::SUCCESS)
}

/// Contents of a directory.
#[derive(Default)]
struct DirectoryContents {
    files: u64,
    /// Number of entries that are neither files nor directories, and the first of them.
    others: u64,
    first: Option<PathBuf>,
}

impl DirectoryContents {
    fn show(&self, bytes: u64) -> Result<()> {
        let DirectoryContents { files, others, first } = self;
        let mut text = format!("{files} files, {}", output::human_bytes(bytes));
        if let Some(first) = first {
            let first = first.display().to_string();
            let first = output::name(&first);
            let what = "left out: neither files nor directories";
            text += &format!("; {others} {what}, such as {first}");
        }
        output::line(text)
    }
}

/// Calls `visit` with every file below a directory and its name relative to it, with `/` between
/// parts.
fn each_file(
    directory: &Path,
    above: &str,
    found: &mut DirectoryContents,
    visit: &mut dyn FnMut(PathBuf, String) -> Result<()>,
) -> Result<()> {
    let fail = |error| Failure::file(directory, &error);
    for entry in fs::read_dir(directory).map_err(fail)? {
        let entry = entry.map_err(fail)?;
        let (path, kind) = (entry.path(), entry.file_type().map_err(fail)?);
        let Ok(name) = entry.file_name().into_string() else {
            return Err(Failure::new(format!("{}: not UTF-8: rename it", path.display())));
        };
        let name = format!("{above}{name}");
        if kind.is_dir() {
            each_file(&path, &format!("{name}/"), found, visit)?;
        } else if kind.is_file() {
            found.files += 1;
            visit(path, name)?;
        } else {
            found.others += 1;
            found.first.get_or_insert(path);
        }
    }
    Ok(())
}

fn put_file(server: &Server, job: &Job, bar: &ProgressBar) -> Result<()> {
    let fail = |error: io::Error| Failure::file(&job.file, &error);
    let file = File::open(&job.file).map_err(fail)?;
    let length = file.metadata().map_err(fail)?.len();
    let mut body = Exact { file, left: length, bar };
    let sent = server.send_body("PUT", &job.target.path(), Some(length), &mut body);
    sent.map_err(|failure| {
        hint(&job.target, failure.of(format!("{} to {}", job.file.display(), job.target)))
    })?;
    Ok(())
}

/// Adds what to do about a bucket that does not exist.
fn hint(target: &Address, failure: Failure) -> Failure {
    if failure.is_not_found() {
        failure.and(&format!("make it by cairn bucket create {}", target.bucket))
    } else {
        failure
    }
}

/// Exactly the announced number of bytes of a file: a file that became shorter is an error, not an
/// object.
struct Exact<'a> {
    file: File,
    left: u64,
    bar: &'a ProgressBar,
}

impl Read for Exact<'_> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let most = usize::try_from(self.left).unwrap_or(usize::MAX).min(buffer.len());
        let read = self.file.read(&mut buffer[..most])?;
        if read == 0 && most > 0 {
            return Err(io::Error::other("the file became shorter while it was read"));
        }
        self.left -= read as u64;
        self.bar.inc(read as u64);
        Ok(read)
    }
}
