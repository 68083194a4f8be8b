//! Processors that stay awake while a program makes one request after another.
//!
//! Each request is answered by another thread, so a processor that went to sleep meanwhile has to
//! be woken. That takes a microsecond or two on some machines; on virtual ones, which have to ask
//! their host for it, thirty and more: longer than most requests take. The kernel keeps idle
//! processors from sleeping for whoever asks for a short enough latency (`PM QoS`), which costs
//! their power, and others on the same host their share of it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::sync::atomic::{AtomicBool, Ordering};

const DEVICE: &str = "/dev/cpu_dma_latency";
/// Microseconds: what a processor may take to wake.
const NONE: i32 = 0;
const ANY: i32 = -1;

/// The wish of this process, which goes with it.
pub struct Awake {
    device: File,
    is_held: AtomicBool,
}

impl Awake {
    /// # Errors
    /// As of opening the device: only root may.
    pub fn new() -> io::Result<Awake> {
        let device = OpenOptions::new().write(true).open(DEVICE).map_err(|error| {
            io::Error::new(error.kind(), format!("{DEVICE}, for low latency: {error}"))
        })?;
        Ok(Awake { device, is_held: AtomicBool::new(false) })
    }

    pub fn hold(&self) {
        if !self.is_held.swap(true, Ordering::SeqCst) {
            self.wish(NONE);
        }
    }

    pub fn release(&self) {
        if self.is_held.swap(false, Ordering::SeqCst) {
            self.wish(ANY);
        }
    }

    fn wish(&self, latency: i32) {
        if let Err(error) = (&self.device).write_all(&latency.to_ne_bytes()) {
            tracing::debug!(%error, latency, "processors sleep as they like");
        }
    }
}
