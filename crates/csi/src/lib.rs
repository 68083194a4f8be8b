//! A driver of the Container Storage Interface, by which Kubernetes makes volumes and mounts them.
//!
//! A volume is a bucket. It is reached by NFS of the kernel, or by `cairn mount`.
//!
//! ```text
//!   sidecars of Kubernetes ══ gRPC, a Unix socket ══► serve ─┬─► identity
//!                                                            ├─► controller ──► Store: a server
//!   kubelet ═════════════════ gRPC, a Unix socket ══► serve ─┴─► node ──► mounts: the kernel
//! ```
//!
//! It is not: a client of Cairn's doors. Its caller gives it a [`Store`] that is one.

#![allow(clippy::disallowed_methods, reason = "it mounts on this machine")]

/// Types generated from the published interface by `cargo xtask proto`.
#[allow(clippy::all, clippy::unwrap_used)]
#[allow(rustdoc::all)]
#[rustfmt::skip]
pub mod proto;

mod answer;
mod store;
mod volume;

mod capability;
mod mounts;

mod paths;

mod nfs;

mod fuse;

mod controller;
mod identity;
mod node;

mod serve;

pub use controller::Controller;
pub use fuse::Fuse;
pub use identity::Identity;
pub use nfs::Nfs;
pub use node::{Access, Node};
pub use serve::{Driver, Socket, serve};
pub use store::{Page, Store, StoreError, StoredVolume};

/// Default name of the driver.
pub const DRIVER_NAME: &str = "csi.cairn.store";
