//! Makes the ordered entries of a directory, by which clients of NFS list it: docs/decisions/0058.

use bytes::Bytes;
use cairn_auth::Action;
use cairn_base::Ino;
use serde::{Deserialize, Serialize};

use super::ordered_entries::ordered_since;
use super::posix::{READ, open_directory};
use super::typed_rows::{load, store};
use crate::order::hash_of;
use crate::rows::{EntryOrder, OrderStage, Tally};
use crate::{Context, Stop, Verb, View, keys};

/// Entries that one operation orders, and bytes of their names. The master does nothing else
/// meanwhile.
const STEP_ROWS: usize = 1000;
const STEP_BYTES: usize = 256 << 10;

/// Goes on making the ordered entries of a directory, whoever began. It may be run by callers who
/// only list the directory: it changes nothing that anybody sees.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OrderDirectory {
    pub ino: Ino,
}

impl Verb for OrderDirectory {
    /// True if all entries have ordered entries now.
    type Reply = bool;
    const NAME: &'static str = "order_directory";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<bool, Stop> {
        open_directory(view, context, self.ino, Action::ListBucket, READ)?;
        let since = ordered_since(view)?;
        let key = keys::tally(self.ino);
        let mut tally: Tally = load(view, &key)?.unwrap_or_default();
        let current = tally.order.take().filter(|order| order.since == since);
        let stage = match current.map_or(OrderStage::Clear, |order| order.stage) {
            OrderStage::Complete => return Ok(true),
            OrderStage::Clear => clear(view, self.ino)?,
            OrderStage::Build(after) => build(view, self.ino, &after)?,
        };
        let is_complete = stage == OrderStage::Complete;
        tally.order = Some(EntryOrder { since, stage });
        store(view, key, &tally);
        Ok(is_complete)
    }
}

fn clear(view: &mut View<'_>, directory: Ino) -> Result<OrderStage, Stop> {
    let (start, end) = keys::ordered_from(directory, 0);
    let rows = view.scan(&start, &end, STEP_ROWS)?;
    let is_last = rows.len() < STEP_ROWS;
    rows.into_iter().for_each(|(key, _)| view.delete(key));
    Ok(if is_last { OrderStage::Build(Bytes::new()) } else { OrderStage::Clear })
}

fn build(view: &mut View<'_>, directory: Ino, after: &[u8]) -> Result<OrderStage, Stop> {
    // S3 has objects with the empty name: the first step begins with it.
    let from = if after.is_empty() { Vec::new() } else { [after, b"\0"].concat() };
    let (start, end) = keys::entries_from(directory, &from);
    let rows = view.scan(&start, &end, STEP_ROWS)?;
    let is_last = rows.len() < STEP_ROWS;
    let (mut bytes, mut last) = (0, Bytes::new());
    for (key, row) in rows {
        let name = keys::entry_name(&key);
        bytes += name.len();
        view.put(keys::ordered_entry(directory, hash_of(&name), &name), row);
        if bytes > STEP_BYTES {
            return Ok(OrderStage::Build(name));
        }
        last = name;
    }
    Ok(if is_last { OrderStage::Complete } else { OrderStage::Build(last) })
}
