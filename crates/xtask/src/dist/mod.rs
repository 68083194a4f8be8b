//! `cargo xtask dist` and `cargo xtask image`: packages of Debian and a container image, from one
//! build of the program. docs/decisions/0045-packages.md gives the reasons.
//!
//! Two packages of the same program have the same bytes: files have the time of the commit, or that
//! of SOURCE_DATE_EPOCH.

pub mod date;
pub mod tree;

pub mod deb;
pub mod parts;
pub mod program;

pub mod help_files;

pub mod packages;

pub mod image;

pub mod sums;

use std::fs;
use std::io::{self, Error};
use std::path::{Path, PathBuf};
use std::process::Command;

use self::deb::Release;
use self::packages::Texts;
use self::program::{PLATFORMS, Platform, Program};

/// The packages to make, and their source.
#[derive(clap::Args)]
pub struct Options {
    /// Profile of cargo to build with
    #[arg(long, default_value = "dist")]
    pub profile: String,
    /// Platform to build for; aarch64-unknown-linux-gnu is prepared, but was never executed
    #[arg(long, default_value = "x86_64-unknown-linux-gnu")]
    pub target: String,
    /// Pack this program, and build none
    #[arg(long, value_name = "FILE")]
    pub program: Option<PathBuf>,
    /// Version of the packages
    #[arg(long, default_value = env!("CARGO_PKG_VERSION"))]
    pub release: String,
    /// Maintainer of the packages
    #[arg(long, default_value = "Cairn developers <cairn-store@users.noreply.github.com>")]
    pub maintainer: String,
    /// Directory for what is made
    #[arg(long, value_name = "DIR", default_value = "target/packages")]
    pub out: PathBuf,
    /// Sign SHA256SUMS with this key of OpenSSH (ssh-keygen -t ed25519): SHA256SUMS.sig
    #[arg(long, value_name = "FILE")]
    pub sign: Option<PathBuf>,
}

/// Makes the packages of Debian; prints their paths.
pub fn packages(root: &Path, options: &Options) -> io::Result<()> {
    let (platform, release, program, texts) = prepare(root, options)?;
    for package in packages::all(root, &release, &program, &texts)? {
        let name = format!("{}_{}_{}.deb", package.name, release.version, platform.debian);
        write(&options.out.join(name), &package.bytes(&release)?)?;
    }
    write(&options.out.join("sbom.cdx.json"), texts.bill.as_bytes())?;
    write(&options.out.join("licences"), texts.licences.as_bytes())?;
    finish(options)
}

/// Writes the sums of all that was made, and signs them if there is a key.
fn finish(options: &Options) -> io::Result<()> {
    sums::write(&options.out)?;
    options.sign.as_deref().map_or(Ok(()), |key| sums::sign(&options.out, key))
}

/// Makes the container image; prints its path.
pub fn image(root: &Path, options: &Options) -> io::Result<()> {
    let (platform, release, program, texts) = prepare(root, options)?;
    if !program::is_native(platform) {
        return Err(Error::other("an image is made from libraries of this machine: run it there"));
    }
    let bytes = image::archive(root, &release, &program, &texts.licences, &texts.bill)?;
    let name = format!("cairn_{}_{}.oci.tar", release.version, platform.debian);
    write(&options.out.join(name), &bytes)?;
    finish(options)
}

type PreparedRelease = (&'static Platform, Release, Program, Texts);

fn prepare(root: &Path, options: &Options) -> io::Result<PreparedRelease> {
    let root = root.canonicalize()?;
    let platform = PLATFORMS.iter().find(|it| it.target == options.target);
    let platform = platform.ok_or_else(|| {
        let known: Vec<&str> = PLATFORMS.iter().map(|it| it.target).collect();
        Error::other(format!("--target {}: use {}", options.target, known.join(" or ")))
    })?;
    let built = match &options.program {
        Some(program) => program.clone(),
        None => program::build(&root, platform, &options.profile)?,
    };
    fs::create_dir_all(&options.out)?;
    let program = program::split(&built, platform, &options.out)?;
    let release = Release {
        version: options.release.clone(),
        architecture: platform.debian,
        maintainer: options.maintainer.clone(),
        time: time(&root)?,
    };
    let parts = parts::list(&root, platform.target)?;
    let made = if program::is_native(platform) {
        help_files::made(&program.path, &options.out)?
    } else {
        // This machine cannot run the program.
        Vec::new()
    };
    let texts = Texts {
        licences: parts::licences(&parts)?,
        bill: parts::bill(&parts, &release.version)?,
        made,
    };
    Ok((platform, release, program, texts))
}

/// Returns SOURCE_DATE_EPOCH, or the time of the commit.
fn time(root: &Path) -> io::Result<u64> {
    let text = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text,
        Err(_) => {
            let mut git = Command::new("git");
            program::said(git.args(["log", "-1", "--format=%ct"]).current_dir(root))?
        }
    };
    text.trim().parse().map_err(|_| Error::other(format!("{text}: not a number of seconds")))
}

fn write(path: &Path, bytes: &[u8]) -> io::Result<()> {
    fs::write(path, bytes)?;
    println!("{} {}", path.display(), bytes.len());
    Ok(())
}
