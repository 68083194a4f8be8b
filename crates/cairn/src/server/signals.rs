//! Signals of the operating system.

use cairn_doors::tls::Tls;
use tokio::signal::unix::{Signal, SignalKind, signal};

use crate::failure::Result;

pub struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hangup: Signal,
}

impl Signals {
    /// From here on no signal ends the process by itself.
    pub fn new() -> Result<Signals> {
        Ok(Signals {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hangup: signal(SignalKind::hangup())?,
        })
    }

    /// Waits until the server gets a signal to stop; reloads the certificate when a signal asks for
    /// it.
    pub async fn stop(&mut self, tls: Option<&Tls>) {
        loop {
            tokio::select! {
                _ = self.terminate.recv() => return,
                _ = self.interrupt.recv() => return,
                _ = self.hangup.recv() => reload(tls),
            }
        }
    }

    /// Waits for another signal to stop.
    pub async fn again(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}

fn reload(tls: Option<&Tls>) {
    let Some(tls) = tls else {
        tracing::info!("SIGHUP: there is no certificate to read again");
        return;
    };
    match tls.reload() {
        Ok(()) => tracing::info!("certificate reloaded"),
        Err(error) => tracing::error!(%error, "certificate not reloaded, the former stays"),
    }
}
