//! `cairn logs zip`

use std::fs::{self, File};
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use flate2::Compression;
use flate2::write::GzEncoder;
use tar::{Builder, Header};

use super::place::{DayFile, files_of};
use super::times::Range;
use crate::connection::Server;
use crate::failure::{Failure, Result};
use crate::output;
use crate::server::process;

/// Fetch the files of a log source as one archive (tar, packed with gzip)
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn logs zip nginx
  cairn logs zip nginx november.tar.gz --since 2026-11-01 --until 2026-12-01")]
pub struct ZipArgs {
    /// The log source, as `cairn logs ls` shows it
    source: String,
    /// File of the archive, or - for stdout [default: SOURCE.tar.gz]
    file: Option<PathBuf>,
    #[command(flatten)]
    range: Range,
}

pub fn run(server: &Server, bucket: &str, args: &ZipArgs) -> Result<ExitCode> {
    process::write_for_caller();
    let files = files_of(server, bucket, &args.source, &args.range)?;
    let file =
        args.file.clone().unwrap_or_else(|| PathBuf::from(format!("{}.tar.gz", args.source)));
    if file == Path::new("-") {
        archive(server, bucket, &files, io::stdout().lock())?;
        return Ok(ExitCode::SUCCESS);
    }
    let Some(name) = file.file_name() else {
        return Err(Failure::usage(format!("{}: not the name of a file", file.display())));
    };
    // The file appears under its name when all of it is there.
    let mut part = std::ffi::OsString::from(".");
    part.push(name);
    part.push(format!(".{}.cairn-part", std::process::id()));
    let part = file.with_file_name(part);
    let failed = |path: &Path, error: io::Error| Failure::file(path, &error);
    let made = File::create(&part)
        .map_err(|error| failed(&part, error))
        .and_then(|out| archive(server, bucket, &files, io::BufWriter::new(out)))
        .and_then(|()| fs::rename(&part, &file).map_err(|error| failed(&file, error)));
    if made.is_err() {
        // The file may be gone, and there is an earlier failure to report.
        let _ = fs::remove_file(&part);
    }
    made.map(|()| ExitCode::SUCCESS)
}

/// Writes an archive front to back, since it may go to a pipe.
fn archive(server: &Server, bucket: &str, files: &[DayFile], out: impl Write) -> Result<()> {
    let bar = output::bytes_bar(files.iter().map(|file| file.size).sum(), "zip");
    let mut archive = Builder::new(GzEncoder::new(out, Compression::default()));
    for file in files {
        // A file of today grows meanwhile: the length in the reply counts.
        let Some((length, reader)) = file.open(server, bucket)? else { continue };
        let mut header = Header::new_gnu();
        header.set_size(length);
        header.set_mode(0o644);
        header.set_mtime(u64::try_from(file.day).unwrap_or(0) * 86_400);
        archive
            .append_data(&mut header, file.name(), bar.wrap_read(reader))
            .map_err(|error| Failure::new(format!("{}: {error}: try again", file.name())))?;
    }
    archive.into_inner()?.finish()?.flush()?;
    bar.finish_and_clear();
    Ok(())
}
