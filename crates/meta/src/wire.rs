//! Operations on their way to a master on another machine: a number for each verb, and the encoding
//! of the verb and its reply ([postcard](https://postcard.jamesmunns.com/wire-format)).
//!
//! A verb whose fields change gets a new number, so that nodes of two versions never misread each
//! other: a master that does not know a number answers `NotImplemented`. Rows in these fields are
//! sent as they are stored, so a field of a row changes no number. `tests/wire` has every number.

use std::sync::Arc;

use bytes::Bytes;
use cairn_auth::Action::{self, *};
use cairn_auth::ActionSet;
use cairn_base::{BlockId, Error, Party, Result, SessionId};
use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::erased::{AnyReply, AnyVerb};
use crate::mounts::{self, MountVerb, Use};
use crate::needs::{Needs, VerbNeeds};
use crate::ops::for_call::ForCall;
use crate::ops::*;
use crate::rows::{Extent, Place};
use crate::shown::ShownToMount;
use crate::{Stop, Verb};

/// A verb that can be sent to a master, and whose reply can be sent back.
pub trait WireVerb:
    MountVerb<Reply: Serialize + DeserializeOwned> + Serialize + DeserializeOwned
{
    /// Number of the verb and of the format of its fields. Never reused.
    const NUMBER: u16;
}

/// A verb of any type that was received.
pub trait ReceivedVerb: AnyVerb {
    fn traits(&self) -> Traits;

    /// See [`Verb::takes_reserve_of`].
    fn takes_reserve_of(&self) -> Option<Party>;

    /// See [`mounts::check`].
    fn check_mount(&self, session: SessionId, wanted: Use) -> Result<()>;

    /// See [`MountVerb::subject`].
    fn subject(&self) -> Option<String>;

    /// See [`MountVerb::show`].
    fn show_any(&self, shown: &mut ShownToMount<'_, '_>, reply: &mut AnyReply) -> Result<(), Stop>;

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

    fn takes_reserve_of(&self) -> Option<Party> {
        Verb::takes_reserve_of(self)
    }

    fn check_mount(&self, session: SessionId, wanted: Use) -> Result<()> {
        mounts::check(self, session, wanted)
    }

    fn subject(&self) -> Option<String> {
        MountVerb::subject(self)
    }

    fn show_any(&self, shown: &mut ShownToMount<'_, '_>, reply: &mut AnyReply) -> Result<(), Stop> {
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

/// A visitor of the types of all verbs.
pub trait Visitor {
    fn verb<V: WireVerb>(&mut self);
}

macro_rules! verbs {
    ($($number:literal => $module:ident::$verb:ident, $needs:expr;)*) => {
        $(impl VerbNeeds for $module::$verb {
            const NEEDS: Needs = $needs;
        }

        impl WireVerb for $module::$verb {
            const NUMBER: u16 = $number;
        })*

        /// Decodes the verb `number`.
        ///
        /// # Errors
        /// `NotImplemented` for a number that this version does not know, `Invalid` for bytes that
        /// do not encode such a verb.
        pub fn receive(number: u16, bytes: &[u8]) -> Result<Arc<dyn ReceivedVerb>> {
            match number {
                $($number => Ok(Arc::new(decode::<$module::$verb>(bytes)?)),)*
                _ => receive_for_call(number, bytes),
            }
        }

        /// Shows a visitor the type of every verb.
        pub fn visit(visitor: &mut impl Visitor) {
            $(visitor.verb::<$module::$verb>();)*
            visit_for_calls(visitor);
        }

        /// The number and the name of every verb.
        pub const NUMBERS: &[(u16, &str)] = &[$(($number, $module::$verb::NAME)),*];

        /// The rights that every verb needs.
        pub const NEEDS: &[(u16, &str, Needs)] =
            &[$(($number, $module::$verb::NAME, $module::$verb::NEEDS)),*];

        /// The use that a mount may make of every verb.
        pub const USES: &[(u16, &str, Use)] =
            &[$(($number, $module::$verb::NAME, $module::$verb::USE)),*];
    };
}

/// The name of the verb `number`, to be shown.
pub fn name(number: u16) -> &'static str {
    let number = number & !FOR_CALL;
    NUMBERS.iter().find(|(of, _)| *of == number).map_or("unknown", |(_, name)| name)
}

const fn store(action: Action) -> Needs {
    Needs::Store(action)
}

const fn all(actions: &[Action]) -> Needs {
    Needs::All(ActionSet::of(actions))
}

const fn some(actions: &[Action]) -> Needs {
    Needs::Some(ActionSet::of(actions))
}

const fn others(actions: &[Action]) -> Needs {
    Needs::Others(ActionSet::of(actions))
}

const OWN: Needs = Needs::Nothing("it gives up what its own session has");
const CALLERS: Needs = Needs::Nothing("it is about credentials of its caller");
const ANSWERS: Needs = Needs::Nothing("it answers where its caller may write");

// The number of a verb, and what it needs. `docs/rights.md` has the same, and a test sees to it.
verbs! {
    16 => sessions::Format, store(Operate);
    17 => sessions::OpenSession, store(Operate);
    18 => sessions::EndSession, store(Operate);
    1019 => sessions::ListSessions, store(Operate);
    20 => sessions::OpenRemoteSession, store(Operate);
    21 => sessions::ReserveInodes, store(Mount);
    22 => sessions::BindSession, store(Operate);
    24 => cluster::GetMap, store(Operate);
    25 => cluster::PutMap, store(Operate);
    26 => cluster::IssueToken, store(Operate);
    27 => cluster::RedeemToken, store(Operate);
    32 => buckets::CreateBucket, store(CreateBucket);
    1033 => buckets::GetBucket, all(&[GetBucketSettings]);
    1034 => buckets::ListBuckets, store(ListAllMyBuckets);
    1035 => buckets::UpdateBucket, some(buckets::UPDATES);
    36 => buckets::DeleteBucket, all(&[DeleteBucket]);
    37 => buckets::CreateTaggedBucket, store(CreateBucket);
    38 => buckets::DropUploads, all(&[DeleteBucket]);
    39 => cors::PutCors, all(&[PutBucketCors]);
    40 => cors::FindCors, store(Operate);
    41 => buckets::SetListing, some(buckets::UPDATES);
    42 => buckets::FindBucket, store(Operate);
    43 => website::PutWebsite, all(&[PutBucketWebsite]);
    46 => public_access::PutPublicAccessBlock, all(&[PutBucketPublicAccessBlock]);
    47 => public_access::MarkBucket, some(public_access::MARKS);
    48 => credentials::AddAccessKey, store(ManageUsers);
    49 => credentials::AddToken, store(ManageUsers);
    1050 => credentials::FindAccessKey, store(Operate);
    1051 => credentials::FindToken, store(Operate);
    52 => credentials::RemoveCredential, store(ManageUsers);
    53 => credentials::ListCredentials, store(ManageUsers);
    54 => credentials::UserName, store(Operate);
    55 => credentials::ListUsers, store(ManageUsers);
    56 => credentials::DisableUser, store(ManageUsers);
    57 => credentials::AddOwnKey, CALLERS;
    58 => credentials::RemoveOwnCredential, CALLERS;
    59 => credentials::ListOwnCredentials, CALLERS;
    1064 => open_object::OpenObject, all(&[GetObject]);
    1066 => open_object::OpenInode, all(&[GetObject]);
    1067 => open_object::ReadExtents, all(&[GetObject]);
    68 => open_object::OpenRange, all(&[GetObject]);
    1080 => lookup::Lookup, all(&[GetObject]);
    1096 => getattr::Getattr, all(&[GetObject]);
    1097 => getattr::Access, some(&[GetObject, PutObject]);
    1112 => readdir::Readdir, all(&[ListBucket]);
    113 => readdir_in_order::ReaddirInOrder, all(&[ListBucket]);
    114 => order_directory::OrderDirectory, all(&[ListBucket]);
    128 => readlink::Readlink, all(&[GetObject]);
    1144 => list_objects::ListObjects, all(&[ListBucket]);
    1160 => put_object::StageExtents, store(Operate);
    161 => put_object::AbandonBody, store(Operate);
    1162 => put_object::PutObject, all(&[PutObject]);
    163 => put_object::MayWrite, all(&[PutObject]);
    176 => delete_object::DeleteObject, all(&[DeleteObject]);
    177 => delete_object::DeleteObjects, all(&[DeleteObject]);
    1192 => copy_object::CopyObject, all(&[GetObject, PutObject]);
    1193 => move_object::MoveObject, all(&[GetObject, PutObject, DeleteObject]);
    1194 => copy_object::CopyCheckedObject, all(&[GetObject, PutObject]);
    195 => copy_object::CopyObjectBytes, all(&[GetObject, PutObject]);
    208 => tags::GetTags, all(&[GetObjectTagging]);
    209 => tags::PutTags, some(&[PutObjectTagging, DeleteObjectTagging]);
    1224 => append::Append, all(&[PutObject]);
    1225 => append_once::AppendOnce, all(&[PutObject]).or_done_before();
    1240 => multipart::CreateUpload, all(&[PutObject]);
    1241 => multipart::GetUpload, all(&[PutObject]);
    1242 => multipart::PutPart, all(&[PutObject]);
    243 => multipart::CopyPart, all(&[GetObject, PutObject]);
    1244 => multipart::ListParts, all(&[ListMultipartUploadParts]);
    1245 => multipart::PartTable, store(Operate);
    246 => multipart::AbortUpload, all(&[AbortMultipartUpload]);
    1247 => multipart::TakeParts, all(&[PutObject]);
    248 => multipart::CompleteUpload, all(&[PutObject]);
    249 => multipart::CopyCheckedPart, all(&[GetObject, PutObject]);
    1256 => list_uploads::ListUploads, all(&[ListBucketMultipartUploads]);
    1272 => create::Create, all(&[PutObject]);
    1273 => create::Mknod, all(&[PutObject]);
    1288 => mkdir::Mkdir, all(&[PutObject]);
    1304 => symlink::Symlink, all(&[PutObject]);
    1320 => link::Link, all(&[PutObject]);
    336 => unlink::Unlink, all(&[DeleteObject]);
    352 => rmdir::Rmdir, all(&[DeleteObject]);
    368 => rename::Rename, all(&[PutObject, DeleteObject]);
    1384 => setattr::Setattr, all(&[PutObject]);
    400 => xattr::GetXattr, all(&[GetObject]);
    401 => xattr::SetXattr, all(&[PutObject]);
    402 => xattr::RemoveXattr, all(&[PutObject]);
    403 => xattr::ListXattrs, all(&[GetObject]);
    1416 => truncate::Truncate, all(&[PutObject]);
    1417 => truncate::PunchHole, all(&[PutObject]);
    1418 => truncate::Extend, all(&[PutObject]);
    1432 => write::Write, all(&[PutObject]);
    1433 => write_over::WriteOver, all(&[PutObject]);
    1448 => coalesce::Coalesce, all(&[PutObject]);
    1449 => coalesce::ReadChunk, all(&[GetObject]);
    1464 => statfs::Statfs, all(&[GetObject]);
    465 => statfs::Replicas, all(&[PutObject]);
    480 => gc::ListDrains, store(CollectGarbage);
    481 => gc::DrainStep, store(CollectGarbage);
    482 => gc::ListFreed, store(CollectGarbage);
    483 => gc::ForgetFreed, store(CollectGarbage);
    484 => gc::FreeOrphans, store(CollectGarbage);
    496 => retain::Retain, all(&[DeleteObject]);
    497 => retain::LetGo, OWN;
    498 => retain::LetGoAll, store(CollectGarbage);
    512 => lock::TakeLock, some(&[GetObject, PutObject]);
    513 => lock::ReleaseLock, OWN;
    514 => lock::TestLock, some(&[GetObject, PutObject]);
    515 => lock::ReleaseAll, store(CollectGarbage);
    1528 => clone::CloneFile, all(&[GetObject, PutObject]);
    1529 => copy_range::CopyRange, all(&[GetObject, PutObject]);
    2544 => buckets::Decide, some(Action::ALL);
    545 => buckets::FindWritable, ANSWERS;
    560 => exports::AddExport, store(ManageExports);
    561 => exports::RemoveExport, store(ManageExports);
    1562 => exports::ListExports, store(ManageExports);
    1563 => exports::FindExport, store(Operate);
    564 => exports::AddExportAt, store(ManageExports);
    565 => exports::FindExportAt, store(Operate);
    576 => for_call::FindCall, store(Operate);
    577 => for_call::ForgetCalls, store(CollectGarbage);
    578 => for_call::SettleCall, store(Operate);
    592 => share_links::AddShareLink, some(&[GetObject, ListBucket, PutObject]);
    593 => share_links::RemoveShareLink, others(&[Administer]);
    594 => share_links::ListShareLinks, others(&[Administer]);
    595 => share_links::FindShareLink, store(Operate);
    596 => share_links::UseShareLink, store(Operate);
    597 => share_links::ReturnShareLink, store(Operate);
    608 => resumable::BeginResumable, all(&[PutObject]);
    609 => resumable::FindResumable, all(&[PutObject]);
    610 => resumable::PutResumable, all(&[PutObject]);
    611 => resumable::FinishResumable, all(&[PutObject]);
    612 => resumable::AbortResumable, all(&[AbortMultipartUpload]);
    613 => resumable::ExpireResumable, store(CollectGarbage);
    640 => logins::AddLogin, store(Operate);
    641 => logins::FindLogin, store(Operate);
    642 => logins::TouchLogin, store(Operate);
    643 => logins::EndLogins, store(Operate);
    656 => holds::AddHold, store(DumpMetadata);
    657 => holds::RenewHold, store(DumpMetadata);
    658 => holds::RemoveHold, store(DumpMetadata);
    659 => holds::ListHolds, store(DumpMetadata);
    660 => holds::EndHolds, store(CollectGarbage);
    672 => read_only::SetReadOnly, some(&[PutBucketSettings, Administer]);
    673 => read_only::IsReadOnly, store(ListAllMyBuckets);
    700 => list_locks::ListLocks, store(Administer);
    701 => cluster::DrainNode, store(Administer);
    702 => cluster::RemoveNode, store(Administer);
    710 => look::LookFolder, all(&[ListBucket]);
    711 => look::LookBuckets, store(Operate);
    720 => user_limits::SetUserLimits, store(ManageUsers);
    721 => user_limits::FindUserLimits, store(Operate);
    722 => user_limits::ListUserLimits, store(ManageUsers);
    723 => user_quotas::SetUserQuotas, store(ManageUsers);
    724 => user_quotas::ListUserQuotas, store(ManageUsers);
    725 => user_quotas::FindRoom, store(Operate);
    744 => restore::RestoreAttributes, store(Administer);
    745 => restore::RestoreUser, store(Administer);
    746 => restore::RestoreToken, store(Administer);
    747 => restore::RestoreBucket, store(Administer);
    748 => restore::RestoreShareLink, store(Administer);
    749 => restore::FindKey, store(Administer);
    750 => restore::RestoreKey, store(Administer);
}

/// Bit in the number of a verb that is run for a call of a client.
const FOR_CALL: u16 = 1 << 15;

macro_rules! for_calls {
    ($($module:ident::$verb:ident,)*) => {
        $(impl WireVerb for ForCall<$module::$verb> {
            const NUMBER: u16 = FOR_CALL | $module::$verb::NUMBER;
        })*

        fn visit_for_calls(visitor: &mut impl Visitor) {
            $(visitor.verb::<ForCall<$module::$verb>>();)*
        }

        fn receive_for_call(number: u16, bytes: &[u8]) -> Result<Arc<dyn ReceivedVerb>> {
            $(if number == <ForCall<$module::$verb>>::NUMBER {
                return Ok(Arc::new(decode::<ForCall<$module::$verb>>(bytes)?));
            })*
            Err(Error::NotImplemented(format!("this version does not know operation \
                {number}: upgrade this node")))
        }
    };
}

for_calls! {
    create::Create,
    create::Mknod,
    link::Link,
    mkdir::Mkdir,
    rename::Rename,
    rmdir::Rmdir,
    setattr::Setattr,
    symlink::Symlink,
    truncate::Truncate,
    unlink::Unlink,
}

/// Encodes `value`.
pub fn encode<T: Serialize>(value: &T) -> Result<Bytes> {
    let bytes = postcard::to_stdvec(value);
    bytes
        .map(Bytes::from)
        .map_err(|error| Error::Invalid(format!("the message cannot be encoded: {error}")))
}

/// Decodes a value; it must take all of `bytes`.
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T> {
    match postcard::take_from_bytes(bytes) {
        Ok((value, [])) => Ok(value),
        Ok((_, rest)) => {
            Err(Error::Invalid(format!("the message has {} bytes after its end", rest.len())))
        }
        Err(error) => Err(Error::Invalid(format!("the message cannot be decoded: {error}"))),
    }
}

/// Returns the blocks that an operation publishes if it succeeds.
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
    use crate::ops::for_call::CallId;
    use cairn_auth::{
        Caller, CredentialId, Holder, Origin, Posix, Principal, RelayedCaller, Rights,
    };
    use cairn_base::{Ino, UserId};
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
            Error::ReadOnly(text()),
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

    /// A caller as sent by versions that knew no origin.
    #[derive(Serialize, serde::Deserialize)]
    struct Former {
        principal: Principal,
        posix: Option<Posix>,
    }

    #[test]
    fn callers_of_versions_before_are_understood() {
        let posix = Posix { uid: 7, gid: 8, groups: vec![9] };
        for caller in [Caller::anonymous(), Caller::system(), Caller::verified(UserId(300))] {
            for caller in [caller.clone(), caller.with_posix(posix.clone())] {
                let former =
                    Former { principal: caller.principal(), posix: caller.posix().cloned() };
                let sent = encode(&former).unwrap();
                let relayed: RelayedCaller = decode(&sent).unwrap();
                assert_eq!(relayed, caller.to_relayed());
                assert_eq!(encode(&relayed).unwrap(), sent);
            }
        }
    }

    #[test]
    fn a_caller_is_relayed_with_its_origin() {
        let origin = Origin {
            source: Some("2001:db8::1".parse().unwrap()),
            tls: true,
            credential: CredentialId::new("CK7"),
        };
        for caller in [Caller::anonymous(), Caller::verified(UserId(7))] {
            let caller = caller.with_origin(origin);
            let sent = encode(&caller.to_relayed()).unwrap();
            let relayed = Caller::relayed(decode(&sent).unwrap());
            assert_eq!(relayed.origin(), &origin);
            assert_eq!(relayed.principal(), caller.principal());
            for len in 0..sent.len() {
                assert!(decode::<RelayedCaller>(&sent[..len]).is_err());
            }
        }
    }

    /// `Decide` sends actions as numbers, of which these five had other names.
    #[test]
    fn actions_keep_their_numbers() {
        let former =
            [GetObject, ListBucket, PutObject, GetBucketSettings, PutBucketSettings, DeleteObject];
        for (number, action) in former.into_iter().enumerate() {
            assert_eq!(encode(&action).unwrap(), [number as u8][..]);
        }
    }

    /// `docs/rights.md` has all actions and all declarations: a change of one is a change of both.
    #[test]
    fn what_is_declared_is_written_down() {
        let with = |right: Rights| format!("right `{right}` in the bucket");
        let actions = Action::ALL.iter().map(|action| {
            let holder = match action.holder() {
                Holder::Root => "root".to_owned(),
                Holder::User => "every user".to_owned(),
                Holder::With(right) => with(right),
                Holder::WithOrPublic(right) => {
                    format!("{}; everybody in a public bucket", with(right))
                }
            };
            format!("| `{action}` | {holder} |")
        });
        let verbs = NEEDS.iter().zip(USES).map(|((number, name, needs), (of, _, by_mount))| {
            assert_eq!(number, of);
            let needs = match needs {
                Needs::Store(action) => format!("{action}, of the store"),
                Needs::Nothing(why) => format!("nothing: {why}"),
                Needs::Once(actions) => format!("{actions}, or nothing where it was done before"),
                Needs::Others(actions) => {
                    format!("{actions}, or nothing for what its caller has made")
                }
                Needs::All(actions) => actions.to_string(),
                Needs::Some(all) if *all == ActionSet::of(Action::ALL) => {
                    "what it asks about".to_owned()
                }
                Needs::Some(actions) => format!("one or more of {actions}"),
            };
            let by_mount = if *by_mount == Use::Never { "" } else { "yes" };
            format!("| {number} | {name} | {needs} | {by_mount} |")
        });
        let expected: Vec<String> = actions.chain(verbs).collect();
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/rights.md");
        let text = std::fs::read_to_string(path).unwrap();
        let is_row = |line: &&str| {
            let cell = line.strip_prefix("| ");
            cell.is_some_and(|cell| cell.starts_with(|c: char| c == '`' || c.is_ascii_digit()))
        };
        let found: Vec<&str> = text.lines().filter(is_row).collect();
        assert_eq!(found, expected, "docs/rights.md should have:\n{}", expected.join("\n"));
    }

    #[test]
    fn a_verb_finds_its_type() {
        let bytes = encode(&lookup::Lookup { parent: Ino(7), name: b"x".to_vec() });
        assert_eq!(receive(lookup::Lookup::NUMBER, &bytes.unwrap()).unwrap().name(), "lookup");
        assert_eq!(receive(1, &[]).err().unwrap().kind(), "not_implemented");
        assert_eq!(receive(FOR_CALL | 1, &[]).err().unwrap().kind(), "not_implemented");
        let call = CallId { client: [1; 16], checksum: [2; 16], step: 3 };
        let verb = mkdir::Mkdir { parent: Ino(7), name: b"x".to_vec(), mode: 0, umask: 0 };
        let (number, bytes) = (<ForCall<mkdir::Mkdir>>::NUMBER, encode(&ForCall { call, verb }));
        assert_eq!(receive(number, &bytes.unwrap()).unwrap().traits().number, number);
        assert_eq!(name(number), "mkdir");
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
