//! Operations on their way to a master on another machine: a number for each verb, and the verb and
//! its reply as bytes ([postcard](https://postcard.jamesmunns.com/wire-format)).
//!
//! A verb whose fields change gets a new number, so that nodes of two versions never misread each
//! other: a master that does not know a number answers `NotImplemented`.

use std::sync::Arc;

use bytes::Bytes;
use cairn_base::{BlockId, Error, Result, SessionId};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::erased::{AnyReply, AnyVerb};
use crate::mounts::{self, Mounted, Use};
use crate::ops::*;
use crate::rows::{Extent, Place};
use crate::shown::Shown;
use crate::{Stop, Verb};

/// A verb that can be sent to a master, and whose reply can be sent back.
pub trait WireVerb:
    Mounted<Reply: Serialize + DeserializeOwned> + Serialize + DeserializeOwned
{
    /// Names the verb and the format of its fields. Never used again for anything else.
    const NUMBER: u16;
}

/// A verb of any type that came as bytes.
pub trait ReceivedVerb: AnyVerb {
    fn traits(&self) -> Traits;

    /// As [`mounts::check`].
    fn check_mount(&self, session: SessionId, wanted: Use) -> Result<()>;

    /// As [`Mounted::show`].
    fn show_any(&self, shown: &mut Shown<'_, '_>, reply: &mut AnyReply) -> Result<(), Stop>;

    fn encode_reply(&self, reply: &AnyReply) -> Result<Bytes>;
}

/// The constants of [`WireVerb`] and [`Verb`].
#[derive(Clone, Copy, Debug)]
pub struct Traits {
    pub number: u16,
    pub runs_when_full: bool,
    pub leases_ranges: bool,
    pub leases_changes: bool,
    pub posts: bool,
}

impl<V: WireVerb> ReceivedVerb for V {
    fn traits(&self) -> Traits {
        Traits {
            number: V::NUMBER,
            runs_when_full: V::RUNS_WHEN_FULL,
            leases_ranges: V::LEASES_RANGES,
            leases_changes: V::LEASES_CHANGES,
            posts: V::POSTS,
        }
    }

    fn check_mount(&self, session: SessionId, wanted: Use) -> Result<()> {
        mounts::check(self, session, wanted)
    }

    fn show_any(&self, shown: &mut Shown<'_, '_>, reply: &mut AnyReply) -> Result<(), Stop> {
        match reply.downcast_mut::<V::Reply>() {
            Some(reply) => self.show(shown, reply),
            None => unreachable!("not a reply of {}", V::NAME),
        }
    }

    fn encode_reply(&self, reply: &AnyReply) -> Result<Bytes> {
        match reply.downcast_ref::<V::Reply>() {
            Some(reply) => encode(reply),
            None => unreachable!("not a reply of {}", V::NAME),
        }
    }
}

macro_rules! verbs {
    ($($number:literal => $module:ident::$verb:ident,)*) => {
        $(impl WireVerb for $module::$verb {
            const NUMBER: u16 = $number;
        })*

        /// Decodes the verb `number`.
        ///
        /// # Errors
        /// `NotImplemented` for a number this version does not know, `Invalid` for bytes that are
        /// no such verb.
        pub fn receive(number: u16, bytes: &[u8]) -> Result<Arc<dyn ReceivedVerb>> {
            match number {
                $($number => Ok(Arc::new(decode::<$module::$verb>(bytes)?)),)*
                _ => Err(Error::NotImplemented(format!("operation {number}"))),
            }
        }

        /// The number and the name of every verb.
        pub const NUMBERS: &[(u16, &str)] = &[$(($number, $module::$verb::NAME)),*];

        /// What a mount may use every verb for.
        pub const USES: &[(u16, &str, Use)] =
            &[$(($number, $module::$verb::NAME, $module::$verb::USE)),*];
    };
}

/// The name of the verb `number`, to be shown.
pub fn name(number: u16) -> &'static str {
    NUMBERS.iter().find(|(of, _)| *of == number).map_or("unknown", |(_, name)| name)
}

verbs! {
    16 => sessions::Format,
    17 => sessions::OpenSession,
    18 => sessions::EndSession,
    19 => sessions::ListSessions,
    20 => sessions::OpenRemoteSession,
    21 => sessions::ReserveInodes,
    24 => cluster::GetMap,
    25 => cluster::PutMap,
    26 => cluster::IssueToken,
    27 => cluster::RedeemToken,
    32 => buckets::CreateBucket,
    33 => buckets::GetBucket,
    34 => buckets::ListBuckets,
    35 => buckets::UpdateBucket,
    36 => buckets::DeleteBucket,
    37 => buckets::CreateTaggedBucket,
    38 => buckets::DropUploads,
    48 => credentials::AddAccessKey,
    49 => credentials::AddToken,
    50 => credentials::FindAccessKey,
    51 => credentials::FindToken,
    52 => credentials::RemoveCredential,
    53 => credentials::ListCredentials,
    54 => credentials::UserName,
    55 => credentials::ListUsers,
    56 => credentials::DisableUser,
    64 => open_object::OpenObject,
    66 => open_object::OpenInode,
    67 => open_object::ReadExtents,
    80 => lookup::Lookup,
    96 => getattr::Getattr,
    97 => getattr::Access,
    112 => readdir::Readdir,
    128 => readlink::Readlink,
    144 => list_objects::ListObjects,
    160 => put_object::StageExtents,
    161 => put_object::AbandonBody,
    162 => put_object::PutObject,
    163 => put_object::MayWrite,
    176 => delete_object::DeleteObject,
    177 => delete_object::DeleteObjects,
    192 => copy_object::CopyObject,
    193 => move_object::MoveObject,
    194 => copy_object::CopyCheckedObject,
    208 => tags::GetTags,
    209 => tags::PutTags,
    224 => append::Append,
    240 => multipart::CreateUpload,
    241 => multipart::GetUpload,
    242 => multipart::PutPart,
    243 => multipart::CopyPart,
    244 => multipart::ListParts,
    245 => multipart::PartTable,
    246 => multipart::AbortUpload,
    247 => multipart::TakeParts,
    248 => multipart::CompleteUpload,
    249 => multipart::CopyCheckedPart,
    256 => list_uploads::ListUploads,
    272 => create::Create,
    273 => create::Mknod,
    288 => mkdir::Mkdir,
    304 => symlink::Symlink,
    320 => link::Link,
    336 => unlink::Unlink,
    352 => rmdir::Rmdir,
    368 => rename::Rename,
    384 => setattr::Setattr,
    400 => xattr::GetXattr,
    401 => xattr::SetXattr,
    402 => xattr::RemoveXattr,
    403 => xattr::ListXattrs,
    416 => truncate::Truncate,
    417 => truncate::PunchHole,
    418 => truncate::Extend,
    432 => write::Write,
    448 => coalesce::Coalesce,
    449 => coalesce::ReadChunk,
    464 => statfs::Statfs,
    465 => statfs::Replicas,
    480 => gc::ListDrains,
    481 => gc::DrainStep,
    482 => gc::ListFreed,
    483 => gc::ForgetFreed,
    484 => gc::FreeOrphans,
    496 => retain::Retain,
    497 => retain::LetGo,
    498 => retain::LetGoAll,
    512 => lock::TakeLock,
    513 => lock::ReleaseLock,
    514 => lock::TestLock,
    515 => lock::ReleaseAll,
    528 => clone::CloneFile,
    529 => copy_range::CopyRange,
    544 => buckets::Decide,
    545 => buckets::FindWritable,
    560 => exports::AddExport,
    561 => exports::RemoveExport,
    562 => exports::ListExports,
    563 => exports::FindExport,
}

/// What is sent for `value`.
pub fn encode<T: Serialize>(value: &T) -> Result<Bytes> {
    let bytes = postcard::to_stdvec(value);
    bytes.map(Bytes::from).map_err(|error| Error::Invalid(format!("cannot be sent: {error}")))
}

/// What was sent as `bytes`, all of them.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => {
            Err(Error::Invalid(format!("a message with {} bytes too many", rest.len())))
        }
        Err(error) => Err(Error::Invalid(format!("a message that cannot be read: {error}"))),
    }
}

/// Blocks that an operation publishes if it succeeds.
pub fn published(number: u16, fields: &[u8]) -> Result<Vec<BlockId>> {
    let of = |extents: &[Extent]| {
        let block = |extent: &Extent| match extent.place {
            Place::Block { block, .. } => Some(block),
            Place::Inline(_) | Place::Body { .. } => None,
        };
        extents.iter().filter_map(block).collect()
    };
    let data = match number {
        append::Append::NUMBER => decode::<append::Append>(fields)?.data,
        write::Write::NUMBER => decode::<write::Write>(fields)?.data,
        coalesce::Coalesce::NUMBER => {
            return Ok(of(&decode::<coalesce::Coalesce>(fields)?.with));
        }
        _ => return Ok(Vec::new()),
    };
    Ok(match data {
        body::Data::Blocks { extents, .. } => of(&extents),
        body::Data::Inline(_) => Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use cairn_base::Ino;
    use proptest::prelude::*;

    #[test]
    fn numbers_are_unique() {
        let mut numbers: Vec<u16> = NUMBERS.iter().map(|(number, _)| *number).collect();
        numbers.sort_unstable();
        numbers.dedup();
        assert_eq!(numbers.len(), NUMBERS.len());
    }

    #[test]
    fn errors_keep_their_kind() {
        let text = || "x".to_owned();
        let all = [
            Error::NotFound(text()),
            Error::Exists(text()),
            Error::Denied(text()),
            Error::Conflict(text()),
            Error::PreconditionFailed(text()),
            Error::NotModified(text()),
            Error::Unavailable(text()),
            Error::Full(text()),
            Error::corrupt("x", "y", "z"),
            Error::Invalid(text()),
            Error::BadDigest(text()),
            Error::TooLarge(text()),
            Error::RangeNotSatisfiable { size: 7 },
            Error::NotEmpty(text()),
            Error::IsDirectory(text()),
            Error::NotDirectory(text()),
            Error::CrossBucket(text()),
            Error::NotImplemented(text()),
            Error::Io(std::io::Error::other("x")),
        ];
        for error in all {
            let sent: Error = decode(&encode(&error).unwrap()).unwrap();
            assert_eq!((sent.kind(), sent.to_string()), (error.kind(), error.to_string()));
        }
    }

    #[test]
    fn a_verb_finds_its_type() {
        let bytes = encode(&lookup::Lookup { parent: Ino(7), name: b"x".to_vec() });
        assert_eq!(receive(lookup::Lookup::NUMBER, &bytes.unwrap()).unwrap().name(), "lookup");
        assert_eq!(receive(1, &[]).err().unwrap().kind(), "not_implemented");
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100_000))]
        #[test]
        fn any_bytes_are_a_verb_or_an_error(
            at in 0..NUMBERS.len(),
            bytes in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let _ = receive(NUMBERS[at].0, &bytes);
        }
    }
}
