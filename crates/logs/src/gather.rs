//! Gathers appends of many requests to one file into few appends, while others are under way.
//!
//! ```text
//!   append ──► queue of the file ──► a task for each such file: all lines that wait,
//!              ▲                     up to a block, in few appends; then the next
//!   append ────┘
//! ```
//!
//! Files do not wait for each other: the store makes appends to all of them durable together.

use std::any::Any;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use bytes::{Bytes, BytesMut};
use cairn_auth::{Caller, Origin, Principal};
use cairn_base::{Error, Result, limits};
use cairn_fs::Fs;
use cairn_fs::rows::ObjectAttributes;
use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::oneshot;

/// Bytes up to which waiting lines are appended inline.
const SMALL_BYTES: usize = 64 << 10;

/// A file that a user appends to. Rights may depend on the origin of a request, so one append is
/// for requests of one origin.
#[derive(Clone, PartialEq, Eq, Hash, Debug)]
struct File {
    principal: Principal,
    origin: Origin,
    bucket: String,
    key: String,
}

/// The memory that the lines take. It is held until they are appended, even if their sender has
/// gone.
pub type HeldMemory = Arc<dyn Any + Send + Sync>;

/// Lines that wait for their turn.
struct Waiting {
    caller: Caller,
    lines: Bytes,
    made: ObjectAttributes,
    _held: HeldMemory,
    reply: oneshot::Sender<Result<u64>>,
}

/// Appends to files, and the lines that wait for it.
pub struct Gather {
    fs: Fs,
    files: Mutex<HashMap<File, Vec<Waiting>>>,
}

/// Removes the queue of a file if its task ends early.
struct Working {
    gather: Arc<Gather>,
    file: File,
    has_ended: bool,
}

impl Drop for Working {
    fn drop(&mut self) {
        if !self.has_ended {
            self.gather.files.lock().remove(&self.file);
        }
    }
}

impl Gather {
    pub fn new(fs: Fs) -> Arc<Gather> {
        Arc::new(Gather { fs, files: Mutex::new(HashMap::new()) })
    }

    pub fn fs(&self) -> &Fs {
        &self.fs
    }

    /// Appends lines, at most a block of them, as one record. They are durable when this returns
    /// the offset at which they begin. The file gets the attributes `made` if it is made.
    pub async fn append(
        self: &Arc<Self>,
        caller: &Caller,
        bucket: &str,
        key: &str,
        lines: Bytes,
        made: ObjectAttributes,
        held: HeldMemory,
    ) -> Result<u64> {
        if lines.len() > limits::BLOCK_BYTES {
            let (len, most) = (lines.len(), limits::BLOCK_BYTES);
            return Err(Error::TooLarge(format!("lines of {len} bytes; at most {most} at once")));
        }
        let (reply, answer) = oneshot::channel();
        let (bucket, key) = (bucket.to_owned(), key.to_owned());
        let file = File { principal: caller.principal(), origin: *caller.origin(), bucket, key };
        let waiting = Waiting { caller: caller.clone(), lines, made, _held: held, reply };
        match self.files.lock().entry(file.clone()) {
            Entry::Occupied(mut queue) => queue.get_mut().push(waiting),
            Entry::Vacant(queue) => {
                queue.insert(vec![waiting]);
                let working = Working { gather: Arc::clone(self), file, has_ended: false };
                tokio::spawn(work(working));
            }
        }
        let lost = |_| Error::Unavailable("an append was given up: outcome unknown".into());
        answer.await.map_err(lost)?
    }

    /// Appends lines in one operation, and sends the outcome to the requests that wait for it.
    async fn append_part(
        &self,
        caller: &Caller,
        file: &File,
        part: Vec<Waiting>,
        made: ObjectAttributes,
    ) {
        let lines = match &part[..] {
            [one] => one.lines.clone(),
            part => {
                let bytes = part.iter().map(|waiting| waiting.lines.len()).sum();
                let mut all = BytesMut::with_capacity(bytes);
                part.iter().for_each(|waiting| all.extend_from_slice(&waiting.lines));
                all.freeze()
            }
        };
        let place = (file.bucket.as_str(), file.key.as_str());
        let appended = self.fs.append_as(caller, place, lines, made).await;
        let mut appended = appended.map(|(offset, ..)| offset);
        for Waiting { lines, reply, .. } in part {
            let outcome = match &mut appended {
                Ok(offset) => {
                    let at = *offset;
                    *offset += lines.len() as u64;
                    Ok(at)
                }
                Err(error) => Err(error.copy()),
            };
            // The receiver may be gone.
            let _ = reply.send(outcome);
        }
    }

    /// Returns what to append next: the oldest lines, as many as fit in a block. If there are none,
    /// the queue is removed, and its task ends.
    fn next(&self, file: &File) -> Vec<Waiting> {
        let mut files = self.files.lock();
        let Some(queue) = files.get_mut(file) else { return Vec::new() };
        let mut bytes = 0;
        let fits = |waiting: &&Waiting| {
            bytes += waiting.lines.len();
            bytes <= limits::BLOCK_BYTES
        };
        let count = queue.iter().take_while(fits).count();
        let rest = queue.split_off(count);
        let next = std::mem::replace(queue, rest);
        if next.is_empty() {
            // Removed under the same lock, so that no request waits for a task that has ended.
            files.remove(file);
        }
        next
    }
}

async fn work(mut working: Working) {
    loop {
        let Working { gather, file, .. } = &working;
        let waiting = gather.next(file);
        let Some(first) = waiting.first() else {
            working.has_ended = true;
            return;
        };
        let (caller, made) = (first.caller.clone(), first.made.clone());
        let appends = parts(waiting).into_iter().map(|part| {
            let (caller, made) = (&caller, made.clone());
            async move { gather.append_part(caller, file, part, made).await }
        });
        join_all(appends).await;
    }
}

/// Divides waiting lines into appends that are made at the same time. Bytes that are stored inline
/// are durable after one sync, a block after two: so few bytes go inline, in several appends that
/// become durable together.
fn parts(waiting: Vec<Waiting>) -> Vec<Vec<Waiting>> {
    let bytes: usize = waiting.iter().map(|waiting| waiting.lines.len()).sum();
    let most = if bytes <= SMALL_BYTES { limits::INLINE_BYTES } else { limits::BLOCK_BYTES };
    let mut parts: Vec<Vec<Waiting>> = Vec::new();
    let mut room = 0;
    for waiting in waiting {
        let bytes = waiting.lines.len();
        match parts.last_mut().filter(|_| bytes <= room) {
            Some(part) => part.push(waiting),
            None => {
                parts.push(vec![waiting]);
                room = most;
            }
        }
        room = room.saturating_sub(bytes);
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    fn waiting(bytes: usize) -> Waiting {
        let (caller, lines) = (Caller::system(), Bytes::from(vec![b'x'; bytes]));
        let (made, (reply, _)) = (ObjectAttributes::default(), oneshot::channel());
        Waiting { caller, lines, made, _held: Arc::new(()), reply }
    }

    fn divided(lengths: &[usize]) -> Vec<Vec<usize>> {
        let parts = parts(lengths.iter().map(|bytes| waiting(*bytes)).collect());
        let bytes = |part: &Vec<Waiting>| part.iter().map(|one| one.lines.len()).collect();
        parts.iter().map(bytes).collect()
    }

    #[test]
    fn what_is_little_goes_inline_in_several_appends_and_what_is_much_in_one() {
        let inline = limits::INLINE_BYTES;
        assert_eq!(divided(&[5]), [[5]]);
        assert_eq!(divided(&[inline - 1, 1, 1]), [vec![inline - 1, 1], vec![1]]);
        assert_eq!(
            divided(&[1, inline, inline + 1, 2]),
            [vec![1], vec![inline], vec![inline + 1], vec![2]]
        );
        assert_eq!(divided(&[SMALL_BYTES, 1]), [[SMALL_BYTES, 1]]);
        assert_eq!(divided(&[1000; 100]), [[1000; 100]]);
        assert_eq!(divided(&[430; 64]).len(), 2);
    }
}
