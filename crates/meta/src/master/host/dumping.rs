//! Answers a session's request for a page of rows.

use std::sync::Arc;

use cairn_auth::{Action, Resource, authorize};
use cairn_base::{Error, Result};

use super::dumps::{RunningDump, page};
use super::peer::Sender;
use super::sessions::Sessions;
use crate::engine::Snapshot;
use crate::session::{DumpRows, DumpedRows};

impl Sessions {
    pub(super) async fn dump_rows(
        &self,
        peer: &Sender,
        asked: DumpRows,
    ) -> Result<Option<DumpedRows>> {
        let DumpRows { session, caller, dump, after } = asked;
        if !self.is_attached(peer, session) {
            return Ok(None);
        }
        if peer.user.is_some() {
            let text = "a dump by a mount: ask at the HTTP door";
            return self.note_unread(peer, Err(Error::Denied(text.to_owned())));
        }
        let caller = peer.caller(caller);
        let context = caller.context(self.clock.now());
        authorize(&caller, Action::DumpMetadata, Resource::Store, &context)?;
        self.opened().await;
        let (of, now) = ((session, dump), self.clock.monotonic());
        let snapshot = match &after {
            Some(_) => self.dumps.lock().find(of, now)?,
            None => {
                let master = self.master.clone();
                let snapshot = self.master.blocking(move || master.snapshot()).await??;
                let snapshot: Arc<dyn Snapshot> = Arc::from(snapshot);
                let (number, asked) = (dump, self.clock.monotonic());
                let running = RunningDump { session, number, snapshot, asked };
                let snapshot = Arc::clone(&running.snapshot);
                self.dumps.lock().add(running)?;
                snapshot
            }
        };
        let page = self.master.blocking(move || page(&*snapshot, after.as_ref())).await??;
        self.master.check_serving()?;
        if page.is_last {
            self.dumps.lock().remove(of);
        }
        Ok(Some(page))
    }
}
