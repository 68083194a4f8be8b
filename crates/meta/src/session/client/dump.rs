//! A dump through a session: its rows come from the master, page by page.

use std::io::Write;

use bytes::Bytes;
use cairn_auth::Caller;
use cairn_base::{Error, Result};

use super::Client;
use crate::dump::{self, Summary};
use crate::session::connection::Attachment;
use crate::session::link::call;
use crate::session::messages::{DumpRows, DumpedRows, Reply, SessionMethod};

/// Attempts to get a page if connections are lost meanwhile.
const ATTEMPTS: usize = 3;

impl Client {
    /// Writes a dump of all current rows.
    ///
    /// # Errors
    /// `Denied` to anybody but root; `Unavailable` if another master serves meanwhile; `Io`.
    pub async fn dump(&self, caller: &Caller, out: &mut dyn Write) -> Result<Summary> {
        let number = self.inner.rng.next_u64();
        let mut page = self.dump_rows(caller, number, None).await?;
        let batch = page.batch;
        let mut dump = dump::Writer::begin(out, page.cluster, batch)?;
        loop {
            for (key, value) in &page.rows {
                dump.row(key, value)?;
            }
            let Some((last, _)) = page.rows.last().filter(|_| !page.is_last) else {
                return dump.finish();
            };
            let after = Some(last.clone());
            page = self.dump_rows(caller, number, after).await?;
            if page.batch != batch {
                return Err(Error::corrupt("batch of a page of a dump", page.batch, batch));
            }
        }
    }

    async fn dump_rows(
        &self,
        caller: &Caller,
        dump: u64,
        after: Option<Bytes>,
    ) -> Result<DumpedRows> {
        for _ in 0..ATTEMPTS {
            let Attachment { session, link, .. } = self.inner.connection.attached().await?;
            let caller = caller.to_relayed();
            let message = DumpRows { session, caller, dump, after: after.clone() };
            match call(&*link, SessionMethod::DumpRows, &message).await {
                Ok(Reply::Done(page)) => return Ok(page),
                Ok(Reply::Failed(error)) => return Err(error),
                Ok(Reply::NotAttached | Reply::NotServing(_)) | Err(_) => {
                    self.inner.connection.lost(&link);
                }
            }
        }
        let text = "the master gives no dump: is it of a version before?";
        Err(Error::Unavailable(text.to_owned()))
    }
}
