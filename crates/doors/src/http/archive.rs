//! GET of a path that ends in `/` with `zip`: sends all objects below as a zip archive, which is
//! made while it is sent.

use std::sync::Arc;
use std::vec::IntoIter;

use bytes::{Bytes, BytesMut};
use cairn_auth::Caller;
use cairn_base::{Error, Party, Result, Share, limits as store_limits};
use cairn_fs::ops::list_objects::ListObjects;
use cairn_fs::{ByteStream, Fs, Object};
use crc_fast::{CrcAlgorithm, Digest};
use futures_util::{StreamExt, stream};
use http::header::{
    CACHE_CONTROL, CONTENT_DISPOSITION, CONTENT_SECURITY_POLICY, CONTENT_TYPE,
    X_CONTENT_TYPE_OPTIONS,
};
use http::{HeaderValue, Response};
use tokio::time::timeout;

use super::error::Failure;
use super::inner::Inner;
use super::zip::{Archive, Entry, entry_name};
use super::{Body, get, headers};
use crate::content_type;
use crate::limits;
use crate::serve::{HeldRoom, Seat};

const CRC: CrcAlgorithm = CrcAlgorithm::Crc32IsoHdlc;
/// Bytes of memory for an object in addition to its key: the rest of its record in the directory,
/// and the list.
const OVERHEAD: usize = 256;
/// Bytes that are sent at once if objects are small.
const BATCH: usize = 64 << 10;

/// Returns the reply to a GET or HEAD. The archive has the objects that exist now; each is sent in
/// its state at its turn.
///
/// # Errors
/// `TooLarge` for more objects than an archive has memory for, `Busy` if others have it and do not
/// give it back in time.
pub async fn reply(
    door: &Inner,
    caller: &Caller,
    party: Party,
    bucket: &str,
    prefix: &str,
) -> Result<Response<Body>, Failure> {
    let found = find(door, caller, party, bucket, prefix).await?;
    let held = Arc::new(HeldRoom::new(&door.zip_memory, party));
    let seat = Seat::holding(&held);
    let making = Making {
        fs: door.fs().clone(),
        caller: caller.clone(),
        bucket: bucket.to_owned(),
        prefix_bytes: prefix.len(),
        note: note_name(&found.keys, prefix.len()),
        keys: found.keys.into_iter(),
        archive: Some(Archive::default()),
        current: None,
        gone: Vec::new(),
        hidden: found.hidden,
        _room: (found.room, held),
    };
    let pieces = stream::try_unfold(making, |mut making| async move {
        Ok(making.next().await?.map(|piece| (piece, making)))
    });
    let mut reply = Response::new(Body::unmeasured(pieces.boxed()));
    reply.extensions_mut().insert(seat);
    let named = content_type::last_component(prefix.trim_end_matches('/'));
    let name = if named.is_empty() { bucket } else { named };
    let headers = reply.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/zip"));
    headers.insert(CONTENT_DISPOSITION, headers::attachment(&format!("{name}.zip")));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    headers.insert(CONTENT_SECURITY_POLICY, get::INERT);
    Ok(reply)
}

/// The objects of an archive.
struct ArchiveContents {
    keys: Vec<Box<str>>,
    /// Number of files whose names are no keys.
    hidden: u64,
    room: Vec<Share>,
}

async fn find(
    door: &Inner,
    caller: &Caller,
    party: Party,
    bucket: &str,
    prefix: &str,
) -> Result<ArchiveContents, Failure> {
    let mut found = ArchiveContents { keys: Vec::new(), hidden: 0, room: Vec::new() };
    let (mut after, mut bytes) = (String::new(), 0);
    loop {
        let verb = ListObjects {
            bucket: bucket.to_owned(),
            prefix: prefix.to_owned(),
            delimiter: String::new(),
            after,
            max_keys: store_limits::LIST_KEYS,
        };
        let page = door.fs().read(caller, verb).await?;
        // Each name is stored twice in the end: here, and in the directory.
        let cost = |key: &str| 6 * key.len() + OVERHEAD;
        let more: usize = page.objects.iter().map(|listed| cost(&listed.key)).sum();
        bytes += more;
        if bytes > limits::ZIP_BYTES {
            let what = format!(
                "an archive of more than {} objects: ask for directories in it one by one",
                found.keys.len()
            );
            return Err(Error::TooLarge(what).into());
        }
        let share = timeout(limits::ZIP_WAIT, door.zip_memory.take(party, more as u64)).await;
        let busy = |_| Failure::Busy("too many archives are made at once");
        found.room.push(share.map_err(busy)?);
        found.hidden += page.hidden;
        found.keys.extend(page.objects.into_iter().map(|listed| listed.key.into_boxed_str()));
        match page.next {
            Some(next) => after = next,
            None => return Ok(found),
        }
    }
}

/// Returns a name for the note that no object has: its number is above those of all objects.
fn note_name(keys: &[Box<str>], prefix_bytes: usize) -> String {
    let number = |key: &str| {
        let name = key.get(prefix_bytes..)?.strip_prefix("MISSING-")?;
        name.strip_suffix(".txt")?.parse::<u32>().ok().map(u64::from)
    };
    let highest = keys.iter().filter_map(|key| number(key)).max().unwrap_or(0);
    format!("MISSING-{}.txt", highest + 1)
}

/// An archive that is being sent.
struct Making {
    fs: Fs,
    caller: Caller,
    bucket: String,
    prefix_bytes: usize,
    keys: IntoIter<Box<str>>,
    /// `None` when its last byte was sent.
    archive: Option<Archive>,
    current: Option<(ByteStream, Digest)>,
    /// Keys that were deleted meanwhile.
    gone: Vec<Box<str>>,
    hidden: u64,
    note: String,
    _room: (Vec<Share>, Arc<HeldRoom>),
}

impl Making {
    /// Returns the next piece. An error ends the connection before the directory is sent, so that
    /// no client mistakes the part for an archive.
    async fn next(&mut self) -> Result<Option<Bytes>> {
        let Some(archive) = &mut self.archive else { return Ok(None) };
        if let Some((contents, digest)) = &mut self.current {
            if let Some(piece) = contents.next().await.transpose()? {
                digest.update(&piece);
                return Ok(Some(piece));
            }
            let descriptor = archive.end(digest.finalize() as u32);
            self.current = None;
            return Ok(Some(descriptor.into()));
        }
        let mut batch = BytesMut::new();
        while let Some(key) = self.keys.next() {
            let (fs, place) = (&self.fs, (&*self.bucket, &*key));
            match fs.open_for(&self.caller, place.0, place.1, |object| Some(0..object.size())).await
            {
                Ok(object) => self.add(&object, &key, &mut batch),
                Err(Error::NotFound(_)) => self.gone.push(key),
                Err(error) => return Err(error),
            }
            if self.current.is_some() || batch.len() >= BATCH {
                return Ok(Some(batch.freeze()));
            }
        }
        let mut archive = self.archive.take().unwrap_or_default();
        if let Some(text) = self.note() {
            let entry = Entry {
                name: &self.note,
                size: text.len() as u64,
                modified: self.fs.clock().now(),
                mode: 0o644,
            };
            let crc = crc_fast::checksum(CRC, text.as_bytes()) as u32;
            batch.extend_from_slice(&archive.begin(&entry, Some(crc)));
            batch.extend_from_slice(text.as_bytes());
        }
        batch.extend_from_slice(&archive.finish());
        Ok(Some(batch.freeze()))
    }

    /// Adds an object: all of it if it is in memory, or its header.
    fn add(&mut self, object: &Object, key: &str, batch: &mut BytesMut) {
        let Some(archive) = &mut self.archive else { return };
        let size = object.size();
        let name = entry_name(key.get(self.prefix_bytes..).unwrap_or(key), size == 0);
        if name.is_empty() {
            return;
        }
        let inode = object.inode();
        let entry = Entry { name: &name, size, modified: inode.mtime, mode: inode.mode };
        match object.read_now(0..size) {
            Some(bytes) => {
                let crc = crc_fast::checksum(CRC, &bytes) as u32;
                batch.extend_from_slice(&archive.begin(&entry, Some(crc)));
                batch.extend_from_slice(&bytes);
            }
            None => {
                batch.extend_from_slice(&archive.begin(&entry, None));
                self.current = Some((object.send(0..size), Digest::new(CRC)));
            }
        }
    }

    /// Returns the text that names the missing objects; `None` if all are there.
    fn note(&self) -> Option<String> {
        let mut text = String::new();
        if self.hidden > 0 {
            text.push_str(&format!("{} files whose names are no keys are missing.\n", self.hidden));
        }
        if !self.gone.is_empty() {
            text.push_str("These objects were deleted while the archive was made:\n");
        }
        for key in &self.gone {
            text.push_str(&entry_name(key.get(self.prefix_bytes..).unwrap_or(key), false));
            text.push('\n');
        }
        (!text.is_empty()).then_some(text)
    }
}
