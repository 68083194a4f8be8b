//! The FUSE door: the store as a file system of this machine.
//!
//! It is not: the way to a server (that is `cluster::mount` and the binary), nor POSIX (that is
//! `cairn-posix`, which knows no kernel). It does not decide on rights: the kernel checks mode
//! bits, and the store's operations decide.
//!
//! ```text
//!   kernel ── request ──► door (threads, in turns) ── call ──► posix ──► Answer
//!   kernel ◄── reply ──── desk ◄── now, or from a task when the answer is there ──┘
//!   kernel ◄── invalidation ── kernel ◄── posix: a change, before it is acknowledged elsewhere
//! ```
//!
//! The parts that the kernel may keep, and until when, are decided in `posix/src/kernel_view.rs`
//! and `kernel.rs`. Modules stand in floors, below. Each uses floors above it only, and none of
//! its own.

mod kernel_request;
mod paths;

mod attributes;
mod awake;
mod errno;
mod flags;
mod kernel;
mod stats;
mod who;

mod desk;
mod turns;

mod files;
mod inodes;
mod listing;
mod locks;
mod names;

mod door;

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use cairn_auth::Caller;
use cairn_fs::Fs;
use cairn_posix::Posix;
use fuser::{Config, MountOption, Session, SessionACL};
use tokio::runtime::Handle;

use awake::Awake;
use desk::Desk;
use door::Door;
use kernel::Kernel;
use turns::Turns;

/// Length that the kernel reads ahead when a file is read in order: some requests at a time.
const READ_AHEAD_KIB: u32 = 8192;

/// Options of a mount.
#[derive(Clone, Debug)]
pub struct Options {
    /// Source that `/proc/mounts` shows.
    pub source: String,
    pub read_only: bool,
    /// Locks of a read-only mount hold on this machine only. The mount then needs to know nothing
    /// of opening and closing, so the kernel does both without asking.
    pub local_locks: bool,
    /// Only the user that mounted it sees it.
    pub private: bool,
    /// Threads that take requests from the kernel.
    pub threads: usize,
    /// Processors stay awake while a program makes one request after another. Only root may set it.
    pub low_latency: bool,
    /// Bytes of all files that may be written and not written back: beyond that writers wait.
    pub dirty_bytes: u64,
}

/// A mounted file system. Ends when it is unmounted.
pub struct FuseMount {
    posix: Arc<Posix>,
    runtime: Handle,
    session: Session<Door>,
    awake: Option<Arc<Awake>>,
    kernel: Arc<Kernel>,
}

/// Mounts the store as `caller` sees it. Requests that have to wait do so in tasks of `runtime`.
pub fn mount(
    fs: Fs,
    caller: Caller,
    runtime: Handle,
    at: &Path,
    options: &Options,
) -> io::Result<FuseMount> {
    let kernel = Arc::new(Kernel::default());
    let (dirty_bytes, opens_nothing) =
        (options.dirty_bytes, options.read_only && options.local_locks);
    let kept = cairn_posix::Options { dirty_bytes, dirty_bytes_each: dirty_bytes, opens_nothing };
    let posix = Posix::new(fs, caller, runtime.clone(), Arc::clone(&kernel) as _, kept);
    let threads = options.threads.max(1);
    let mut config = Config::default();
    config.n_threads = Some(threads);
    config.clone_fd = true;
    config.acl = if options.private { SessionACL::Owner } else { SessionACL::All };
    config.mount_options = vec![
        MountOption::FSName(options.source.clone()),
        subtype(),
        MountOption::DefaultPermissions,
        MountOption::NoDev,
        MountOption::NoSuid,
        if options.read_only { MountOption::RO } else { MountOption::RW },
    ];
    let awake = options.low_latency.then(Awake::new).transpose()?.map(Arc::new);
    let desk = Desk::new(Arc::clone(&posix), runtime.clone(), opens_nothing);
    let door = Door::new(desk, Turns::new(Arc::clone(&kernel), threads, awake.clone()));
    let session = Session::new(door, at, &config)?;
    kernel::read_ahead(at, READ_AHEAD_KIB);
    kernel.connect(session.as_fd().try_clone_to_owned()?);
    posix.follow_changes();
    Ok(FuseMount { posix, runtime, session, awake, kernel })
}

/// Returns the type that `/proc/mounts` shows, `fuse.cairn`. If root mounts, the kernel itself gets
/// it.
fn subtype() -> MountOption {
    if rustix::process::geteuid().is_root() {
        MountOption::CUSTOM("subtype=cairn".into())
    } else {
        MountOption::Subtype("cairn".into())
    }
}

impl FuseMount {
    /// Answers requests until it is unmounted.
    pub fn serve(self) -> io::Result<()> {
        let (swept, awake) = (Arc::downgrade(&self.posix), self.awake);
        self.runtime.spawn(async move {
            while let Some(posix) = swept.upgrade() {
                posix.sweep();
                drop(posix);
                // Some requests end without their thread looking out for more.
                if let Some(awake) = &awake {
                    awake.release();
                }
                tokio::time::sleep(Duration::from_secs(5)).await;
            }
        });
        self.session.run()
    }

    /// Writes back the written bytes of all files; failures are logged.
    pub fn flusher(&self) -> impl Future<Output = ()> + Send + use<> {
        let posix = Arc::clone(&self.posix);
        async move { posix.flush_all().await }
    }

    /// Waits until the kernel has ended the mount, whether or not [`FuseMount::serve`] has
    /// returned.
    pub fn disconnected(&self) -> impl Future<Output = ()> + Send + use<> {
        let kernel = Arc::clone(&self.kernel);
        async move {
            while !kernel.has_ended() {
                tokio::time::sleep(Duration::from_secs(1)).await;
            }
        }
    }

    /// Waits until no file is open. After an unmount, another mount namespace may still have a copy
    /// of the mount, which does not end on its own.
    pub fn closed(&self) -> impl Future<Output = ()> + Send + use<> {
        let posix = Arc::clone(&self.posix);
        async move {
            while posix.stats().files_open > 0 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
}
