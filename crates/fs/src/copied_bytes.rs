//! Copies of bytes, where a file has too many pieces to be shared: blocks are read and written one
//! after another, and the copy is published by one operation. Nobody else's file costs more after.

use std::ops::Range;

use cairn_auth::Caller;
use cairn_base::{Error, Result, limits};
use futures_util::TryStreamExt;

use crate::Fs;
use crate::digest::{Digester, Digests};
use crate::multipart::{CopiedPart, PartSource, check_source, range_of};
use crate::object::Object;
use crate::ops::copy_object::{CopyObject, CopyObjectBytes, CopyReply, SourceState};
use crate::ops::multipart::UploadName;
use crate::rows::Algorithm;
use crate::write::WrittenBody;

impl Fs {
    /// Copies the bytes of an object.
    ///
    /// # Errors
    /// `Invalid` for an object that is longer than a part; `Conflict` if the source changes
    /// meanwhile.
    pub(crate) async fn copy_object_bytes(
        &self,
        caller: &Caller,
        copy: CopyObject,
        checksum: Option<Algorithm>,
    ) -> Result<CopyReply> {
        let object = self.open(caller, &copy.source_bucket, &copy.source_key).await?;
        check_source(&object, &copy.source_conditions)?;
        let size = object.size();
        if size > limits::PART_BYTES_MAX {
            let what = "the object has too many pieces to be shared, and more than 5 GiB: copy it \
                        in parts";
            return Err(Error::Invalid(what.into()));
        }
        let digester = Digester::new(false, checksum.as_slice());
        let place = (copy.bucket.as_str(), Some(copy.key.as_str()));
        let (written, digests) = self.write_copy(caller, &object, 0..size, place, digester).await?;
        let state = SourceState::of(object.ino(), object.inode());
        let checksums = checksum.map(|_| digests.checksums);
        written
            .publish(|session, content| {
                self.run(caller, CopyObjectBytes { copy, state, session, content, checksums })
            })
            .await
    }

    /// Makes a part of the bytes of a range of an object. Its ETag is their MD5.
    ///
    /// # Errors
    /// `Conflict` if the source changes meanwhile.
    pub(crate) async fn copy_part_bytes(
        &self,
        caller: &Caller,
        name: UploadName,
        number: u32,
        source: PartSource,
        checksum: Option<Algorithm>,
    ) -> Result<CopiedPart> {
        let object = self.open(caller, &source.bucket, &source.key).await?;
        check_source(&object, &source.conditions)?;
        let range = range_of(&object, source.range)?;
        let digester = Digester::new(true, checksum.as_slice());
        let place = (name.bucket.as_str(), None);
        let (written, digests) = self.write_copy(caller, &object, range, place, digester).await?;
        let state = SourceState::of(object.ino(), object.inode());
        let now = self.open(caller, &source.bucket, &source.key).await?;
        state.check(now.ino(), now.inode())?;
        let (etag, checksums) = (digests.md5_hex(), digests.checksums);
        let modified = self.inner.clock.now();
        self.put_part(caller, name, number, written, etag.clone(), checksums.clone()).await?;
        Ok(CopiedPart { etag, modified, checksums })
    }

    async fn write_copy(
        &self,
        caller: &Caller,
        object: &Object,
        range: Range<u64>,
        place: (&str, Option<&str>),
        mut digester: Digester,
    ) -> Result<(WrittenBody, Digests)> {
        let (bucket, key) = place;
        let mut writer = self.begin(caller, bucket).await?;
        writer.expect(Some(range.end - range.start), key).await?;
        let mut bytes = object.read(range);
        while let Some(piece) = bytes.try_next().await? {
            digester.update(&piece);
            writer.push(piece).await?;
        }
        Ok((writer.finish().await?, digester.finish()))
    }
}
