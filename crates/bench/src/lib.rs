//! Measures HTTP servers, S3 stores and file systems, Cairn's and others alike: it speaks protocols
//! only, and does not depend on the software behind them.
//!
//! It is not: a profiler. It says how fast, and which phase took how long, not why.
//!
//! ```text
//!   http, rate, s3 ──► load: threads, connections ──► client ──► the target
//!   fs ──────────────► threads ─────────────────────────────► a directory
//!   nfs ─────────────► threads, connections ────────────────► an export
//!        └──► Sample ──► session (rounds, alternately) ──► report: JSON, Markdown, HTML ──► diff
//!   reports: starts Cairn and its peers as processes, and runs these loads on them
//!   null: a target that does nothing, as slowly as its options say
//! ```

#![allow(clippy::disallowed_methods, reason = "it measures real time, by real threads")]

mod alarm;
mod cpu;
pub mod distribution;
mod error;
mod machine;
mod progress;
pub mod stats;
pub mod stop;
pub mod values;

pub mod client;
pub mod null;
pub mod report;

mod diff;
pub mod load;

pub mod session;

mod closed_loop;

mod fs;
mod nfs;
mod rate;
mod s3;

mod reports;

use clap::Subcommand;

pub use error::{Error, Result};
pub use fs::Scratch;
pub use machine::cores;

/// The kinds of benchmarks.
#[derive(Subcommand)]
pub enum Command {
    Http(Box<closed_loop::HttpArgs>),
    Rate(Box<rate::RateArgs>),
    S3(Box<s3::S3Args>),
    Fs(Box<fs::FsArgs>),
    Nfs(Box<nfs::NfsArgs>),
    Reports(Box<reports::ReportsArgs>),
    Diff(diff::DiffArgs),
    Null(null::NullArgs),
}

/// Runs a command to its end.
pub fn run(command: &Command) -> Result<()> {
    stop::listen();
    match command {
        Command::Http(args) => closed_loop::run(args),
        Command::Rate(args) => rate::run(args),
        Command::S3(args) => s3::run(args),
        Command::Fs(args) => fs::run(args),
        Command::Nfs(args) => nfs::run(args),
        Command::Reports(args) => reports::run(args),
        Command::Diff(args) => diff::run(args),
        Command::Null(args) => null::run(args),
    }
}
