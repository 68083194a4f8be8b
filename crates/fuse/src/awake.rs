//! Keeps processors awake while a program makes one request after another.
//!
//! Each request is answered by another thread, so a processor that went to sleep meanwhile has to
//! be woken. On virtual machines, which have to ask their host for it, that takes longer than most
//! requests do. The kernel keeps idle processors awake for a process that asks for a short enough
//! latency (`PM QoS`). That costs their power, and other machines on the same host their share of
//! it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};

use parking_lot::Mutex;

const DEVICE: &str = "/dev/cpu_dma_latency";
/// Time that a processor may take to wake, microseconds.
const NONE: i32 = 0;
const ANY: i32 = -1;

/// Request of this process to the kernel, which ends with it.
pub struct Awake {
    device: File,
    is_held: Mutex<bool>,
}

impl Awake {
    /// Opens the device.
    ///
    /// # Errors
    /// Those of opening the device: only root may.
    pub fn new() -> io::Result<Awake> {
        let device = OpenOptions::new().write(true).open(DEVICE).map_err(|error| {
            io::Error::new(error.kind(), format!("{DEVICE}, for low latency: {error}"))
        })?;
        Ok(Awake { device, is_held: Mutex::new(false) })
    }

    pub fn hold(&self) {
        self.set(true);
    }

    pub fn release(&self) {
        self.set(false);
    }

    fn set(&self, held: bool) {
        let mut is_held = self.is_held.lock();
        if *is_held == held {
            return;
        }
        *is_held = held;
        let latency = if held { NONE } else { ANY };
        if let Err(error) = (&self.device).write_all(&latency.to_ne_bytes()) {
            tracing::debug!(%error, latency, "processors sleep as they like");
        }
    }
}
