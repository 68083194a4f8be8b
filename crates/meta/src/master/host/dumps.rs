//! Rows of one state, page by page, for gateways that write dumps.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cairn_base::{Error, Result, SessionId};

use crate::engine::Snapshot;
use crate::keys;
use crate::rows::StoreIdentity;
use crate::session::DumpedRows;

/// Most states that are kept for dumps at the same time. Each keeps files of the engine.
const DUMPS: usize = 4;
/// Time without requests after which a state is dropped.
const ABANDONED: Duration = Duration::from_mins(2);
/// Rows that are read at once, and bytes of a page: a message has room for one more row.
const PAGE: usize = 256;
const PAGE_BYTES: usize = 4 << 20;
/// Key after all keys.
const END: &[u8] = b"\xff";

/// The states of the dumps that are under way.
#[derive(Default)]
pub struct Dumps(Vec<RunningDump>);

pub struct RunningDump {
    pub session: SessionId,
    pub number: u64,
    pub snapshot: Arc<dyn Snapshot>,
    /// Time of the last request, by the monotonic clock.
    pub asked: Duration,
}

impl Dumps {
    /// Forgets states that nobody has asked for in a while.
    pub fn let_go(&mut self, now: Duration) {
        self.0.retain(|one| now.saturating_sub(one.asked) < ABANDONED);
    }

    pub fn find(&mut self, of: (SessionId, u64), now: Duration) -> Result<Arc<dyn Snapshot>> {
        let found = self.0.iter_mut().find(|one| (one.session, one.number) == of);
        let gone = || Error::Unavailable("the dump has ended: begin it again".to_owned());
        let found = found.ok_or_else(gone)?;
        found.asked = now;
        Ok(Arc::clone(&found.snapshot))
    }

    pub fn remove(&mut self, of: (SessionId, u64)) {
        self.0.retain(|one| (one.session, one.number) != of);
    }

    pub fn add(&mut self, dump: RunningDump) -> Result<()> {
        self.let_go(dump.asked);
        self.remove((dump.session, dump.number));
        if self.0.len() >= DUMPS {
            let text = format!("{DUMPS} dumps are being made: try again later");
            return Err(Error::Unavailable(text));
        }
        self.0.push(dump);
        Ok(())
    }
}

/// Returns the rows after a key, or the first rows.
pub fn page(snapshot: &dyn Snapshot, after: Option<&Bytes>) -> Result<DumpedRows> {
    let next = after.map(|key| [&key[..], b"\0"].concat()).unwrap_or_default();
    let found = snapshot.scan(&next, END, PAGE)?;
    let mut is_last = found.len() < PAGE;
    let (mut rows, mut bytes) = (Vec::new(), 0);
    for (key, value) in found {
        let length = key.len() + value.len();
        if !rows.is_empty() && bytes + length > PAGE_BYTES {
            is_last = false;
            break;
        }
        bytes += length;
        rows.push((key, value));
    }
    let cluster = snapshot.get(&[keys::cluster()])?.pop().flatten();
    let no_store = || Error::NotFound("these metadata hold no store".to_owned());
    let cluster = StoreIdentity::decode_cluster(&cluster.ok_or_else(no_store)?)?;
    Ok(DumpedRows { cluster, batch: snapshot.batch(), rows, is_last })
}
