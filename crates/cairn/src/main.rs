//! The `cairn` binary: a server of a store, and tools for it.
//!
//! It is not: a place for anything a library could do. Every command is a file; what they share is
//! here (`failure`, `output`), in `dir` (the data directory), in `metadata` (where those are), in
//! `offline` (a store opened without a server) or in `client` (a server spoken to over HTTP).
//!
//! ```text
//!   cairn server DIR ──► server/: dir ─► engine, blocks ─► Master ─► Fs ─► doors
//!   cairn fsck, scrub, meta, key --dir ──► offline/: the same without doors
//!   cairn inflight ──► inflight/: a thread of each of these processes, over a local socket
//!   cairn mount ──► mount/: a session with a server, and the crate `fuse` over it
//!   cairn put, get, ls, rm, stat, bucket, key, gc ──► client/ ──► http door of a server
//!   cairn bench ──► the crate `bench`, which knows protocols only
//!   cairn doctor ──► the crate `doctor`, over what servers and the kernel say
//! ```

mod bench;
mod cli;
mod client;
mod cluster;
mod dir;
mod disk_cache;
mod doctor;
mod failure;
mod inflight;
mod metadata;
mod mount;
mod node;
mod offline;
mod output;
mod server;

use std::process::ExitCode;

use clap::Parser;
use mimalloc::MiMalloc;

/// Gives memory back after a load, where the allocator of the system keeps it.
#[global_allocator]
static ALLOCATOR: MiMalloc = MiMalloc;

fn main() -> ExitCode {
    server::process::keep_private();
    // For what makes TLS connections without saying by which library. Nothing was installed before.
    let _ = rustls::crypto::aws_lc_rs::default_provider().install_default();
    match cli::Cli::parse().run() {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
