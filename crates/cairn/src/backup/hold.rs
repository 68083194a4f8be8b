//! The hold of a running backup, which a separate thread renews.

use std::sync::Arc;

use cairn_meta::dump::ADOPTION_HOLD;
use serde::{Deserialize, Serialize};

use super::renewing::Renewing;
use super::target::Again;
use crate::connection::Server;
use crate::failure::{Failure, Result};
use crate::output;

/// A hold as the server shows it.
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

/// Ends a hold. That of an adoption has to be meant by `of_adoption`, and no other.
pub fn end(server: &Server, id: &str, of_adoption: bool) -> Result<()> {
    let is_id = id.len() == 16 && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_id {
        return Err(Failure::usage(format!("{id:?}: not an id of a hold")));
    }
    let is_of_adoption = id.eq_ignore_ascii_case(&format!("{ADOPTION_HOLD:016x}"));
    if of_adoption && !is_of_adoption {
        return Err(Failure::usage(format!("{id}: is not the hold of an adoption")));
    }
    if is_of_adoption && !of_adoption {
        return Err(Failure::new(
            "this hold keeps what the way back of an adoption needs: `cairn cluster finalize DIR` \
             ends it, on the machine that was adopted. If that machine is gone, or the metadata \
             came from a dump, end it by --of-adoption: there is no way back afterwards",
        ));
    }
    server.send("DELETE", &format!("/admin/holds/{id}")).map(drop)
}

/// A hold that lasts as long as this.
pub struct BackupHold {
    server: Arc<Server>,
    id: String,
    seconds: u32,
    renewing: Renewing,
}

fn renew(server: &Server, id: &str, seconds: u32) -> Result<()> {
    let wanted = serde_json::json!({ "seconds": seconds });
    server.send_json("PATCH", &format!("/admin/holds/{id}"), &wanted).map(drop)
}

impl BackupHold {
    pub fn take(server: &Arc<Server>, owner: &str, seconds: u32) -> Result<BackupHold> {
        let wanted = serde_json::json!({ "owner": owner, "seconds": seconds });
        let ShownHold { id, .. } = server.send_json("POST", "/admin/holds", &wanted)?.json()?;
        let (of_thread, its_id) = (Arc::clone(server), id.clone());
        let renewing =
            Renewing::start(seconds, move || match renew(&of_thread, &its_id, seconds) {
                Ok(()) => true,
                Err(failure) if failure.is_not_found() => false,
                // The server may be reached again before the end.
                Err(failure) => {
                    output::complain(&format!("the hold: {failure}"));
                    true
                }
            });
        Ok(BackupHold { server: Arc::clone(server), id, seconds, renewing })
    }

    /// Checks that the hold lasts.
    ///
    /// # Errors
    /// It has ended, as far as this process knows.
    pub fn check(&self) -> Result<()> {
        if self.renewing.has_ended() { Err(ended()) } else { Ok(()) }
    }

    /// Asks the server: a hold that can be renewed has lasted all the time.
    pub fn confirm(&self) -> Result<()> {
        match Again::reached().run(|| renew(&self.server, &self.id, self.seconds)) {
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
        self.renewing.stop();
        // If the server cannot be reached, the hold expires.
        let _ = self.server.send("DELETE", &format!("/admin/holds/{}", self.id));
    }
}
