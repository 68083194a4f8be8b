//! The program for packages: built, stripped, with separate debug symbols.

use std::collections::BTreeSet;
use std::fs;
use std::io::{self, Error};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A platform for which packages are made.
pub struct Platform {
    /// Name of the platform for rustc.
    pub target: &'static str,
    /// Name of the platform for Debian.
    pub debian: &'static str,
    /// Prefix of the names of binutils and of the compiler, if this machine is of another platform.
    pub tools: &'static str,
}

pub const PLATFORMS: [Platform; 2] = [
    Platform { target: "x86_64-unknown-linux-gnu", debian: "amd64", tools: "x86_64-linux-gnu-" },
    // Not executed: no machine of this kind, and no standard library for it, was at hand.
    Platform { target: "aarch64-unknown-linux-gnu", debian: "arm64", tools: "aarch64-linux-gnu-" },
];

/// The stripped program, and its debug symbols.
pub struct Program {
    pub bytes: Vec<u8>,
    pub debug: Vec<u8>,
    /// Build id in hexadecimal digits; debuggers find `debug` by it.
    pub build_id: String,
    /// Oldest libc that has all symbols, such as `2.34`.
    pub libc: String,
    /// Path of the stripped program.
    pub path: PathBuf,
}

/// Builds the program; returns its path.
pub fn build(root: &Path, platform: &Platform, profile: &str) -> io::Result<PathBuf> {
    let mut cargo = Command::new("cargo");
    cargo.args(["build", "--locked", "--package", "cairn", "--profile", profile]);
    // The program must not contain the path of the sources.
    let home = std::env::var("CARGO_HOME")
        .or_else(|_| std::env::var("HOME").map(|home| format!("{home}/.cargo")));
    let mut flags = format!("--remap-path-prefix={}=/usr/src/cairn", root.display());
    if let Ok(home) = home {
        flags += &format!(" --remap-path-prefix={home}=/usr/src/cargo");
    }
    cargo.current_dir(root).env("RUSTFLAGS", flags);
    // Cargo's variables for the package of this process would cause other packages to be built
    // again.
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("CARGO_PKG_") || name == "CARGO_MANIFEST_DIR" {
            cargo.env_remove(name);
        }
    }
    let within = if is_native(platform) {
        String::new()
    } else {
        let name = platform.target.replace('-', "_").to_uppercase();
        let linker = format!("CARGO_TARGET_{name}_LINKER");
        cargo.args(["--target", platform.target]);
        cargo.env(linker, format!("{}gcc", platform.tools));
        format!("{}/", platform.target)
    };
    run(&mut cargo)?;
    let folder = if profile == "dev" { "debug" } else { profile };
    Ok(root.join(format!("target/{within}{folder}/cairn")))
}

/// Returns true if this machine can run the programs of a platform.
pub fn is_native(platform: &Platform) -> bool {
    platform.target.starts_with(std::env::consts::ARCH)
}

/// Strips a program into the folder `out`.
pub fn split(built: &Path, platform: &Platform, out: &Path) -> io::Result<Program> {
    let tool = |name: &str| {
        let before = if is_native(platform) { "" } else { platform.tools };
        Command::new(format!("{before}{name}"))
    };
    let (path, debug) = (out.join("cairn"), out.join("cairn.debug"));
    run(tool("objcopy")
        .args(["--only-keep-debug", "--compress-debug-sections"])
        .args([built, &debug]))?;
    run(tool("objcopy").arg("--strip-unneeded").args([built, &path]))?;
    let notes = said(tool("readelf").arg("--notes").arg(&path))?;
    let build_id = build_id(&notes)
        .ok_or_else(|| Error::other(format!("{}: has no build id", built.display())))?;
    let symbols = said(tool("objdump").arg("--dynamic-syms").arg(&path))?;
    let libc = oldest_libc(&symbols)
        .ok_or_else(|| Error::other(format!("{}: does not use libc", built.display())))?;
    let (bytes, debug) = (fs::read(&path)?, fs::read(&debug)?);
    Ok(Program { bytes, debug, build_id, libc, path })
}

/// Returns the build id in the output of `readelf --notes`.
pub fn build_id(notes: &str) -> Option<String> {
    let line = notes.lines().find_map(|line| line.trim().strip_prefix("Build ID:"))?;
    let id = line.trim();
    let is_id = id.len() > 2 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    is_id.then(|| id.to_owned())
}

/// Returns the newest version of a symbol in the output of `objdump --dynamic-syms`.
pub fn oldest_libc(symbols: &str) -> Option<String> {
    let versions: BTreeSet<(u32, u32)> = symbols
        .split("GLIBC_")
        .skip(1)
        .filter_map(|rest| {
            let version = rest.split(|c: char| !c.is_ascii_digit() && c != '.').next()?;
            let mut numbers = version.split('.').map(str::parse::<u32>);
            Some((numbers.next()?.ok()?, numbers.next()?.ok()?))
        })
        .collect();
    versions.last().map(|(major, minor)| format!("{major}.{minor}"))
}

/// Runs a command; an error names it.
pub fn run(command: &mut Command) -> io::Result<()> {
    let name = command.get_program().to_string_lossy().into_owned();
    match command.status() {
        Ok(status) if status.success() => Ok(()),
        Ok(status) => Err(Error::other(format!("{name}: {status}"))),
        Err(error) => Err(Error::other(format!("{name}: {error}"))),
    }
}

/// Returns the output of a command.
pub fn said(command: &mut Command) -> io::Result<String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let done = command.output().map_err(|error| Error::other(format!("{name}: {error}")))?;
    if done.status.success() {
        Ok(String::from_utf8_lossy(&done.stdout).into_owned())
    } else {
        let text = String::from_utf8_lossy(&done.stderr).into_owned();
        Err(Error::other(format!("{name}: {}: {text}", done.status)))
    }
}
