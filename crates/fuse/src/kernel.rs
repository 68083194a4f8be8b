//! Notices to the kernel that something in its caches must be asked for again.
//!
//! Only notices that take no lock are sent, since callers wait for them. Attributes of an inode
//! become invalid, and with them, before the next `read`, its pages (`posix/src/kernel_view.rs`).
//! The epoch of all names is raised. A kernel that knows no epochs (before 6.16) keeps no names at
//! all.

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};
use std::{fs, io};

use cairn_base::Ino;
use cairn_posix::Keeper;
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{AtFlags, StatxFlags};

/// Codes of `enum fuse_notify_code`.
const INVAL_INODE: i32 = 2;
const INC_EPOCH: i32 = 8;
const HEADER_BYTES: u32 = 16;

/// Sets the length that the kernel reads ahead when a file of this mount is read in order. Only
/// root may set it; for other users it stays at 128 KiB, and these are requested one after another.
pub fn read_ahead(at: &Path, kib: u32) {
    // This does not ask the mount, which answers nothing yet.
    let flags = AtFlags::STATX_DONT_SYNC | AtFlags::NO_AUTOMOUNT;
    let set = rustix::fs::statx(rustix::fs::CWD, at, flags, StatxFlags::empty())
        .map_err(io::Error::from)
        .and_then(|found| {
            let device = format!("{}:{}", found.stx_dev_major, found.stx_dev_minor);
            fs::write(format!("/sys/class/bdi/{device}/read_ahead_kb"), kib.to_string())
        });
    if let Err(error) = set {
        tracing::debug!(%error, "the kernel reads ahead as it does by default");
    }
}

/// The kernel's end of a mount.
#[derive(Default)]
pub struct Kernel {
    device: OnceLock<OwnedFd>,
    has_epochs: AtomicBool,
}

impl Kernel {
    /// Takes the device of a mount, and finds out what the kernel supports.
    pub fn connect(&self, device: OwnedFd) {
        // A mount has one device.
        let _ = self.device.set(device);
        self.has_epochs.store(true, Ordering::SeqCst);
        self.forget_names();
    }

    /// Returns true if a request waits to be taken, or the mount has ended.
    pub fn has_requests(&self) -> bool {
        let Some(device) = self.device.get() else { return false };
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        poll(&mut [PollFd::new(device, PollFlags::IN)], Some(&now)).is_ok_and(|ready| ready > 0)
    }

    /// Returns true if the mount has ended: the kernel sends no more requests.
    pub fn has_ended(&self) -> bool {
        let Some(device) = self.device.get() else { return false };
        let now = Timespec { tv_sec: 0, tv_nsec: 0 };
        // The kernel reports `POLLERR` even if it is not asked for.
        let mut told = [PollFd::new(device, PollFlags::empty())];
        let is_told = poll(&mut told, Some(&now)).is_ok_and(|ready| ready > 0);
        is_told && told[0].revents().contains(PollFlags::ERR)
    }

    fn has_epochs(&self) -> bool {
        self.has_epochs.load(Ordering::Relaxed)
    }

    fn send(&self, code: i32, body: &[u8]) -> io::Result<()> {
        let Some(device) = self.device.get() else { return Ok(()) };
        let length = HEADER_BYTES + body.len() as u32;
        let mut message = Vec::with_capacity(length as usize);
        message.extend_from_slice(&length.to_ne_bytes());
        message.extend_from_slice(&code.to_ne_bytes());
        message.extend_from_slice(&0u64.to_ne_bytes());
        message.extend_from_slice(body);
        rustix::io::write(device, &message)?;
        Ok(())
    }
}

impl Keeper for Kernel {
    fn counts(&self) -> bool {
        true
    }

    fn keeps_names(&self) -> bool {
        self.has_epochs()
    }

    fn forget_names(&self) {
        if !self.has_epochs() {
            return;
        }
        if let Err(error) = self.send(INC_EPOCH, &[]) {
            tracing::info!(%error, "this kernel is asked for names again and again: it has no epochs");
            self.has_epochs.store(false, Ordering::SeqCst);
        }
    }

    fn forget_attributes(&self, ino: Ino) -> bool {
        // An offset below 0 leaves the pages alone.
        let body = [ino.0.to_ne_bytes(), (-1i64).to_ne_bytes(), [0; 8]].concat();
        self.send(INVAL_INODE, &body).is_ok()
    }
}
