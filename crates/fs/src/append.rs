//! Appends. The master orders appenders, so each record is stored whole and once, at the end that
//! the file has at its turn.

use bytes::{Bytes, BytesMut};
use cairn_auth::Caller;
use cairn_base::waits;
use cairn_base::{BodyId, Error, Ino, Owner, Redundancy, Result, limits};
use cairn_blocks::Wish;
use tokio::time::sleep;

use crate::Fs;
use crate::garbage::GarbageItem;
use crate::ops::append::{Append, AppendReply};
use crate::ops::append_once::{AppendOnce, AppendedOnce};
use crate::ops::body::{Data, FILE_BYTES};
use crate::ops::coalesce::{Coalesce, ReadChunk};
use crate::ops::conditions::{Conditions, EtagMatch};
use crate::ops::edit::COALESCE_BYTES;
use crate::ops::for_call::CallId;
use crate::ops::statfs::Replicas;
use crate::rows::{Content, Extent, Inode, ObjectAttributes, Place};
use crate::write::PutRequest;

/// Lost rounds against other appenders after which the caller has to try again.
const TRIES: u32 = 16;

/// Rounds without any inline bytes moved into blocks after which the caller has to try again.
const FUTILE: u32 = 2;

/// Number of inline bytes of a chunk from which on appenders wait until they are moved into blocks.
const WAIT_BYTES: u64 = COALESCE_BYTES as u64 / 2 * 3;

/// A file whose inline extents are being moved into blocks.
struct Coalescing {
    fs: Fs,
    ino: Ino,
}

impl Drop for Coalescing {
    fn drop(&mut self) {
        self.fs.inner.coalescing.lock().remove(&self.ino);
    }
}

impl Fs {
    /// Appends one record of at most [`limits::BLOCK_BYTES`] to an object, which is made if it does
    /// not exist. The record is durable when this returns its offset and the object's new state.
    /// The caller needs only the right to write.
    pub async fn append(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &str,
        record: Bytes,
    ) -> Result<(u64, Ino, Inode)> {
        self.append_as(caller, (bucket, key), record, ObjectAttributes::default()).await
    }

    /// Appends like [`Fs::append`]. If the object is made, it gets the attributes `made`.
    pub async fn append_as(
        &self,
        caller: &Caller,
        place: (&str, &str),
        record: Bytes,
        made: ObjectAttributes,
    ) -> Result<(u64, Ino, Inode)> {
        match self.append_for(caller, None, place.0, place.1, record, made).await? {
            (ino, AppendedOnce::Done(appended)) => Ok((appended.offset, ino, appended.inode)),
            (_, AppendedOnce::Before(_)) => unreachable!("it is for no call"),
        }
    }

    /// Appends like [`Fs::append_as`], for a request that its user may send again: the record is
    /// appended only once. Returns the offset of the record.
    pub async fn append_once(
        &self,
        caller: &Caller,
        call: CallId,
        place: (&str, &str),
        record: Bytes,
        made: ObjectAttributes,
    ) -> Result<(Ino, AppendedOnce)> {
        self.append_for(caller, Some(call), place.0, place.1, record, made).await
    }

    async fn append_for(
        &self,
        caller: &Caller,
        call: Option<CallId>,
        bucket: &str,
        key: &str,
        record: Bytes,
        made: ObjectAttributes,
    ) -> Result<(Ino, AppendedOnce)> {
        if record.len() > limits::BLOCK_BYTES {
            let most = limits::BLOCK_BYTES;
            let what =
                format!("record of {} bytes; at most {most}: append it in parts", record.len());
            return Err(Error::TooLarge(what));
        }
        self.inner.meta.check_space()?;
        let (mut use_spare, mut futile) = (false, 0);
        for round in 1..=TRIES {
            // The object is opened to find its end. The caller sees nothing of it, and the
            // operation that appends decides whether the caller may write.
            let object = match self.open(&Caller::system(), bucket, key).await {
                Ok(object) => object,
                Err(Error::NotFound(_)) => {
                    self.create_empty(caller, bucket, key, made.clone()).await?;
                    continue;
                }
                Err(error) => return Err(error),
            };
            let (ino, file) = (object.ino(), (object.inode(), false));
            match self.append_to_for(caller, call, (ino, file), &record, use_spare).await {
                // The end moved on, the body became shared, or the object was replaced.
                Err(Error::Conflict(_)) => use_spare = !use_spare,
                Err(Error::NotFound(_)) => {}
                // Too many inline bytes: others appended faster than these were moved.
                Err(why @ Error::TooLarge(_)) if round < TRIES => {
                    self.make_room(ino, object.size(), &record, why, &mut futile).await?;
                }
                Err(error) => return Err(error),
                Ok(outcome) => {
                    if let AppendedOnce::Done(appended) = &outcome {
                        self.coalesce_soon(ino, appended).await;
                    }
                    return Ok((ino, outcome));
                }
            }
        }
        Err(Error::Unavailable(format!(
            "appending to {key}: too many clients append to it at once"
        )))
    }

    async fn create_empty(
        &self,
        caller: &Caller,
        bucket: &str,
        key: &str,
        object: ObjectAttributes,
    ) -> Result<()> {
        let written = self.begin(caller, bucket).await?.finish().await?;
        let conditions =
            Conditions { if_none_match: Some(EtagMatch::Any), ..Conditions::default() };
        let (bucket, key) = (bucket.to_owned(), key.to_owned());
        let request = PutRequest { bucket, key, object, tags: Vec::new(), conditions };
        match self.put_object(caller, request, written).await {
            Ok(_) | Err(Error::PreconditionFailed(_)) => Ok(()),
            Err(error) => Err(error),
        }
    }

    /// Appends once to a file in the given state. The flag says whether the caller has the file
    /// open.
    pub(crate) async fn append_to(
        &self,
        caller: &Caller,
        ino: Ino,
        file: (&Inode, bool),
        record: &Bytes,
        use_spare: bool,
    ) -> Result<AppendReply> {
        match self.append_to_for(caller, None, (ino, file), record, use_spare).await? {
            AppendedOnce::Done(appended) => Ok(appended),
            AppendedOnce::Before(_) => unreachable!("it is for no call"),
        }
    }

    async fn append_to_for(
        &self,
        caller: &Caller,
        call: Option<CallId>,
        (ino, (inode, opened)): (Ino, (&Inode, bool)),
        record: &Bytes,
        use_spare: bool,
    ) -> Result<AppendedOnce> {
        let spare = self.inner.new_body();
        let chunk = (inode.size / limits::CHUNK_BYTES) as u32;
        let session = self.inner.meta.session();
        if record.len() <= limits::INLINE_BYTES {
            let data = Data::Inline(record.clone());
            let verb = Append { ino, session, opened, spare, chunk, data };
            return self.run_append(caller, call, verb).await;
        }
        let body = match inode.content {
            Content::Body(body) if !use_spare => body,
            _ => spare,
        };
        let owner = Owner { body, chunk };
        let extent = self.write_block(caller, ino, owner, false, record.clone()).await?;
        let given_up = extent.place.clone();
        let data = Data::Blocks { body, extents: vec![extent] };
        let verb = Append { ino, session, opened, spare, chunk, data };
        let outcome = self.run_append(caller, call, verb).await;
        if !matches!(outcome, Ok(AppendedOnce::Done(_)) | Err(Error::Unavailable(_))) {
            self.abandon(&given_up);
        }
        outcome
    }

    async fn run_append(
        &self,
        caller: &Caller,
        call: Option<CallId>,
        append: Append,
    ) -> Result<AppendedOnce> {
        match call {
            Some(call) => self.run(caller, AppendOnce { call, append }).await,
            None => self.run(caller, append).await.map(AppendedOnce::Done),
        }
    }

    /// Writes one block of a file, with as many replicas as its bucket requires, and returns its
    /// extent, at offset 0. `compress` says whether the block is to be compressed.
    pub(crate) async fn write_block(
        &self,
        caller: &Caller,
        ino: Ino,
        owner: Owner,
        compress: bool,
        data: Bytes,
    ) -> Result<Extent> {
        let (inner, session) = (&self.inner, self.session());
        let replicas = self.read(caller, Replicas { ino }).await?;
        let redundancy = Redundancy::from_number(replicas);
        let wish = Wish { redundancy, compress, ..Wish::default() };
        let len = data.len() as u64;
        let until = inner.clock.monotonic() + inner.blocks.manner().patience;
        loop {
            let block = inner.new_block()?;
            match inner.blocks.write(wish, block, owner, data.clone()).await {
                Ok(group) => {
                    let place = Place::Block { group, block, offset: 0 };
                    return Ok(Extent { offset: 0, len, place });
                }
                // Remains of the first attempt are deleted when the session has ended.
                Err(Error::Unavailable(why))
                    if inner.clock.monotonic() < until && self.session() == session =>
                {
                    tracing::debug!(%block, why, "a block is written once more");
                    sleep(waits::APPEND_RETRY).await;
                }
                Err(error) => return Err(error),
            }
        }
    }

    pub(crate) fn abandon(&self, place: &Place) {
        if let Place::Block { group, block, .. } = place {
            self.inner.abandoned.lock().push(GarbageItem::Block(*group, *block));
        }
    }

    /// Moves inline extents into blocks once there are many. The appender does not wait for that,
    /// unless there are very many.
    async fn coalesce_soon(&self, ino: Ino, appended: &AppendReply) {
        let (bytes, offset) = (appended.inline_bytes, appended.offset);
        if bytes < COALESCE_BYTES as u64 {
            return;
        }
        if bytes >= WAIT_BYTES {
            self.coalesce(&Caller::system(), ino, offset).await;
            return;
        }
        if !self.inner.coalescing.lock().insert(ino) {
            return;
        }
        let coalescing = Coalescing { fs: self.clone(), ino };
        tokio::spawn(async move {
            let Coalescing { fs, ino } = &coalescing;
            fs.coalesce(&Caller::system(), *ino, offset).await;
        });
    }

    /// Moves inline bytes of the chunk at the end of the file into blocks, after an append was
    /// refused as `TooLarge`.
    ///
    /// # Errors
    /// `refused`, if inline bytes were not the reason. `Unavailable` once too many attempts were
    /// `futile`.
    pub(crate) async fn make_room(
        &self,
        ino: Ino,
        size: u64,
        record: &Bytes,
        refused: Error,
        futile: &mut u32,
    ) -> Result<()> {
        let end = size.saturating_add(record.len() as u64);
        if record.len() > limits::INLINE_BYTES || end > FILE_BYTES {
            return Err(refused);
        }
        if !self.coalesce(&Caller::system(), ino, size).await {
            *futile += 1;
        }
        if *futile >= FUTILE {
            let what = "inline bytes cannot be moved into blocks now";
            return Err(Error::Unavailable(what.into()));
        }
        Ok(())
    }

    /// Moves the inline extents of the chunk at `offset`, all but the last, into blocks. The next
    /// append retries what fails. Returns false if everything failed.
    pub(crate) async fn coalesce(&self, caller: &Caller, ino: Ino, offset: u64) -> bool {
        let chunk = (offset / limits::CHUNK_BYTES) as u32;
        let Ok(read) = self.read(caller, ReadChunk { ino, chunk }).await else { return false };
        let Some((body, extents)) = read else { return true };
        let settled = &extents[..extents.len().saturating_sub(1)];
        let (mut done, mut failed) = (0, 0);
        for run in inline_runs(settled) {
            match self.coalesce_run(caller, ino, body, chunk, run).await {
                Ok(()) => done += 1,
                Err(error) => {
                    tracing::debug!(%ino, %error, "inline extents stay");
                    failed += 1;
                }
            }
        }
        done > 0 || failed == 0
    }

    async fn coalesce_run(
        &self,
        caller: &Caller,
        ino: Ino,
        body: BodyId,
        chunk: u32,
        replaces: Vec<Extent>,
    ) -> Result<()> {
        let Some(start) = replaces.first().map(|extent| extent.offset) else { return Ok(()) };
        let mut data = BytesMut::new();
        for extent in &replaces {
            if let Place::Inline(bytes) = &extent.place {
                data.extend_from_slice(bytes);
            }
        }
        let owner = Owner { body, chunk };
        let block = self.write_block(caller, ino, owner, false, data.freeze()).await?;
        let with = Extent { offset: start, ..block };
        self.replace(caller, ino, body, chunk, replaces, with).await.map(drop)
    }

    /// Replaces extents by a block if they have not changed; otherwise the block is abandoned.
    /// Returns whether they were replaced.
    pub(crate) async fn replace(
        &self,
        caller: &Caller,
        ino: Ino,
        body: BodyId,
        chunk: u32,
        replaces: Vec<Extent>,
        with: Extent,
    ) -> Result<bool> {
        let (place, session) = (with.place.clone(), self.session());
        let verb = Coalesce { ino, session, body, chunk, replaces, with: vec![with] };
        let outcome = self.run(caller, verb).await;
        if !matches!(outcome, Ok(true) | Err(Error::Unavailable(_))) {
            self.abandon(&place);
        }
        outcome
    }
}

/// Returns runs of adjacent inline extents, each run at most one block long.
fn inline_runs(extents: &[Extent]) -> Vec<Vec<Extent>> {
    let mut runs: Vec<Vec<Extent>> = Vec::new();
    for extent in extents.iter().filter(|extent| matches!(extent.place, Place::Inline(_))) {
        let fits = |run: &Vec<Extent>| {
            let start = run.first().map_or(0, |first| first.offset);
            run.last().is_some_and(|last| last.end() == extent.offset)
                && extent.end() - start <= limits::BLOCK_BYTES as u64
        };
        match runs.last_mut() {
            Some(run) if fits(run) => run.push(extent.clone()),
            _ => runs.push(vec![extent.clone()]),
        }
    }
    runs
}
