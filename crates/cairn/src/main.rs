//! The `cairn` binary: a server of a store, and tools for it.
//!
//! It is not: a place for anything a library could do. Every command is a file. Shared parts are
//! here (`failure`, `output`), in `dir` (the data directory), in `memory` (what a process may take
//! of it) or in `metadata` (the place of the metadata). Others are in `offline` (a store opened
//! without a server) or in `connection` (a server spoken to over HTTP).
//!
//! ```text
//!   cairn server DIR ──► server/: dir ─► engine, blocks ─► Master ─► Fs ─► doors
//!   cairn master, chunkserver, gateway ──► node/: keys, TLS, sockets ─► the crate `roles`
//!   cairn node ──► machine: these three in one process
//!   cairn fsck, scrub, key --dir ──► offline/: the same without doors
//!   cairn meta ──► meta: a dump of the metadata of a store or of a cluster
//!   cairn inflight ──► inflight/: a thread of each of these processes, over a local socket
//!   cairn mount ──► mount/: a session with a server, and the crate `fuse` over it
//!   cairn csi ──► the crate `csi`, over the HTTP door of a server
//!   cairn put, get, ls, rm, stat, bucket, key, gc ──► client/ ──► http door of a server
//!   cairn bench ──► the crate `bench`, which knows protocols only
//!   cairn top ──► top/: what servers count while it asks
//!   cairn cert ──► cert/: keys and certificates in a directory, without a server
//!   cairn config, and --config of these ──► config: options in a file, before clap sees them
//!   cairn completions, man ──► describe: the command line itself
//!   cairn doctor ──► the crate `doctor`, over what servers and the kernel say
//! ```

#![allow(clippy::disallowed_methods, reason = "the program: what is simulated is in libraries")]

mod failure;
mod listen_address;

mod connection;
mod dir;
mod memory;
mod output;

mod capability_list;
mod disk_cache;
mod inflight;
mod metadata;
mod secret_file;

mod config;
mod members;

mod offline;

mod server;

mod bench;
mod client;
mod node;

mod cluster;
mod mount;

mod csi;

mod doctor;
mod top;

mod backup;
mod cert;
mod describe;
mod machine;
mod meta;

mod cli;

use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};
use mimalloc::MiMalloc;

/// Gives memory back after a load; the allocator of the system would keep it.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    server::process::keep_private();
    // For code that makes TLS connections without naming a library. Nothing was installed before.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match run() {
        Ok(code) => code,
        Err(failure) => output::report(&failure),
    }
}

fn run() -> failure::Result<ExitCode> {
    let matches = config::matches(std::env::args_os().collect(), &cli::Cli::command())?;
    cli::Cli::from_arg_matches(&matches).unwrap_or_else(|error| error.exit()).run()
}
