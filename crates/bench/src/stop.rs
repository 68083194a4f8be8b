//! Ctrl-C: measured results are kept, and test data are removed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

static STOPPED: AtomicBool = AtomicBool::new(false);

/// From now on SIGINT and SIGTERM only set a flag that it is time to end.
pub fn listen() {
    thread::spawn(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        let Ok(runtime) = runtime else { return };
        runtime.block_on(async {
            use tokio::signal::unix::{SignalKind, signal};
            let Ok(mut terminate) = signal(SignalKind::terminate()) else { return };
            tokio::select! {
                _ = tokio::signal::ctrl_c() => {}
                _ = terminate.recv() => {}
            }
            STOPPED.store(true, Ordering::Relaxed);
        });
    });
}

pub fn is_stopped() -> bool {
    STOPPED.load(Ordering::Relaxed)
}
