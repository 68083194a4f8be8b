//! `cargo xtask <chore>`.

#![allow(clippy::disallowed_methods, reason = "chores")]

use std::io::{self, Write};
use std::path::PathBuf;
use std::process::{Command, ExitCode};

use clap::{Parser, Subcommand};

/// Chores of Cairn's developers.
#[derive(Parser)]
#[command(name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// Check what no compiler checks: directions between crates, lengths of functions and lines,
    /// licences and sources of dependencies, and the glossary.
    Tidy,
    /// Print the text of every error of the product, by crate, with file and line. A reviewer
    /// reads them as a whole: each says what is wrong, with what, and what to do next.
    Errors,
    /// Generate the files `proto.rs` of `crates/cluster` and `crates/csi` from the .proto files.
    Proto,
    /// Simulate clusters under faults, each from a seed. A failure is printed with its seed, so
    /// that it can be repeated.
    Simulate {
        /// The number of seeds to simulate.
        #[arg(long, default_value_t = 15_000)]
        seeds: u64,
        /// The first seed.
        #[arg(long, default_value_t = 1)]
        seed: u64,
        /// Print the log of the simulated nodes.
        #[arg(long)]
        verbose: bool,
    },
    /// Run a cluster on this machine, in a new directory, until the input ends: PostgreSQL, two
    /// masters, three chunkservers, two gateways.
    ClusterUp {
        #[arg(default_value = "target/cluster")]
        dir: PathBuf,
    },
    /// Make pictures of every screen of the console, light and dark, wide and on a phone. Wants
    /// what `tests/install` installs.
    Screenshots {
        #[arg(default_value = "target/screenshots")]
        into: PathBuf,
        /// Make the pictures that README.md and docs/console.md show, in docs/images. Takes
        /// minutes, because plots show minutes.
        #[arg(long, conflicts_with = "into")]
        docs: bool,
    },
    /// Make packages of Debian: of the client, of the server, and of debug symbols apart; also a
    /// list of all licences and a bill of materials.
    Dist(xtask::dist::Options),
    /// Make an image of containers, without a daemon: one layer, for a user other than root.
    Image(xtask::dist::Options),
}

fn main() -> ExitCode {
    match Arguments::parse().chore {
        Chore::Tidy => tidy(),
        Chore::Errors => shown("errors", errors()),
        Chore::Proto => shown("proto", xtask::proto::make(&root())),
        Chore::Simulate { seeds, seed, verbose } => simulate(seeds, seed, verbose),
        Chore::ClusterUp { dir } => shown("cluster-up", xtask::cluster::up(&root(), &dir)),
        Chore::Screenshots { docs: true, .. } => {
            let into = root().join(xtask::pictures::PLACE);
            shown("screenshots", xtask::screenshots::make(&root(), &into, true))
        }
        Chore::Screenshots { into, .. } => {
            shown("screenshots", xtask::screenshots::make(&root(), &into, false))
        }
        Chore::Dist(options) => shown("dist", xtask::dist::packages(&root(), &options)),
        Chore::Image(options) => shown("image", xtask::dist::image(&root(), &options)),
    }
}

fn shown(chore: &str, result: io::Result<()>) -> ExitCode {
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{chore}: {error}");
            ExitCode::FAILURE
        }
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn tidy() -> ExitCode {
    let findings = xtask::tidy::check(&root());
    findings.iter().for_each(|finding| eprintln!("{finding}"));
    if findings.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn errors() -> io::Result<()> {
    let mut out = io::stdout().lock();
    for (name, texts) in xtask::errors::list(&root())? {
        writeln!(out, "{name}: {} texts", texts.len())?;
        texts.iter().try_for_each(|text| writeln!(out, "  {text}"))?;
    }
    Ok(())
}

fn simulate(seeds: u64, seed: u64, verbose: bool) -> ExitCode {
    let mut cargo = Command::new("cargo");
    let test = "cluster::seeds_stay_right_and_become_well";
    cargo.args(["test", "--package", "cairn-sim", "--test", "it", "--", "--nocapture", test]);
    cargo.current_dir(root()).env("CAIRN_SEEDS", seeds.to_string());
    cargo.env("CAIRN_SEED", seed.to_string());
    cargo.env("RUST_LOG", if verbose { "it=debug,cairn=debug" } else { "off" });
    finish(cargo)
}

fn finish(mut cargo: Command) -> ExitCode {
    match cargo.status() {
        Ok(status) if status.success() => ExitCode::SUCCESS,
        Ok(_) => ExitCode::FAILURE,
        Err(error) => {
            eprintln!("cargo test: {error}");
            ExitCode::FAILURE
        }
    }
}
