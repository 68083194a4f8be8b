//! The hold of a backup that runs: renewed on a thread of its own.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{RecvTimeoutError, Sender, channel};
use std::thread::JoinHandle;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::connection::Server;
use crate::failure::{Failure, Result};
use crate::output;

/// A hold is renewed so many times before it would end.
const RENEWALS: u32 = 3;

/// As the server shows it.
#[derive(Clone, Serialize, Deserialize)]
pub struct ShownHold {
    pub id: String,
    pub owner: String,
    pub batch: u64,
    pub begun: String,
    pub ends: String,
}

#[derive(Deserialize)]
struct List {
    holds: Vec<ShownHold>,
}

pub fn list(server: &Server) -> Result<Vec<ShownHold>> {
    Ok(server.send("GET", "/admin/holds")?.json::<List>()?.holds)
}

pub fn end(server: &Server, id: &str) -> Result<()> {
    let is_id = id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_id {
        return Err(Failure::usage(format!("{id:?}: not an id of a hold")));
    }
    server.send("DELETE", &format!("/admin/holds/{id}")).map(drop)
}

/// A hold that lasts while this does.
pub struct BackupHold {
    server: Arc<Server>,
    id: String,
    seconds: u32,
    ended: Arc<AtomicBool>,
    stop: Option<Sender<()>>,
    renewing: Option<JoinHandle<()>>,
}

fn renew(server: &Server, id: &str, seconds: u32) -> Result<()> {
    let wanted = serde_json::json!({ "seconds": seconds });
    server.send_json("PATCH", &format!("/admin/holds/{id}"), &wanted).map(drop)
}

impl BackupHold {
    pub fn take(server: &Arc<Server>, owner: &str, seconds: u32) -> Result<BackupHold> {
        let wanted = serde_json::json!({ "owner": owner, "seconds": seconds });
        let ShownHold { id, .. } = server.send_json("POST", "/admin/holds", &wanted)?.json()?;
        let ended = Arc::new(AtomicBool::new(false));
        let (stop, stopped) = channel::<()>();
        let pause = Duration::from_secs(u64::from(seconds)) / RENEWALS;
        let (of_thread, its_id, flag) = (Arc::clone(server), id.clone(), Arc::clone(&ended));
        let renewing = std::thread::spawn(move || {
            while stopped.recv_timeout(pause) == Err(RecvTimeoutError::Timeout) {
                match renew(&of_thread, &its_id, seconds) {
                    Ok(()) => {}
                    Err(failure) if failure.is_not_found() => {
                        flag.store(true, Ordering::Release);
                        return;
                    }
                    // It may be reached again before the end.
                    Err(failure) => output::complain(&format!("the hold: {failure}")),
                }
            }
        });
        let server = Arc::clone(server);
        let (stop, renewing) = (Some(stop), Some(renewing));
        Ok(BackupHold { server, id, seconds, ended, stop, renewing })
    }

    /// # Errors
    /// It has ended, as far as that is known without asking.
    pub fn check(&self) -> Result<()> {
        match self.ended.load(Ordering::Acquire) {
            true => Err(ended()),
            false => Ok(()),
        }
    }

    /// Asks the server: a hold that can be renewed has lasted all the time.
    pub fn confirm(&self) -> Result<()> {
        match renew(&self.server, &self.id, self.seconds) {
            Err(failure) if failure.is_not_found() => Err(ended()),
            renewed => renewed,
        }
    }
}

fn ended() -> Failure {
    Failure::new(
        "the hold on deleted blocks has ended, so this backup is not complete: run it again \
         (--hold makes it longer)",
    )
}

impl Drop for BackupHold {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(renewing) = self.renewing.take() {
            let _ = renewing.join();
        }
        // If it cannot be told, the hold ends by itself.
        let _ = self.server.send("DELETE", &format!("/admin/holds/{}", self.id));
    }
}
