//! The verbs of mounts: which verbs a mount may use, which ids such a verb names as the mount's
//! own, and what its reply shows. There is no default: a verb of the wire that is in no list here
//! does not compile.

use cairn_base::{BodyId, Error, Ino, Result, SessionId};

use crate::ops::for_call::{Callable, ForCall};
use crate::ops::*;
use crate::rows::Content;
use crate::shown::ShownToMount;
use crate::{Stop, Verb};

/// The use that a mount may make of a verb.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Use {
    /// None: the verb is for nodes.
    Never,
    Read,
    Run,
}

/// The ids in an operation that must belong to the session that sends it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Own {
    pub session: Option<SessionId>,
    /// Body that is to be used for the first time.
    pub spare: Option<BodyId>,
}

/// A verb, as far as mounts use it.
pub trait MountVerb: Verb {
    const USE: Use;

    fn own(&self) -> Own;

    /// Subject for the verb's record in the audit: an inode, or a name in a directory. `None` if
    /// only the mount itself can see what the verb does.
    fn subject(&self) -> Option<String>;

    /// Removes from a reply what its caller may not see.
    fn show(&self, shown: &mut ShownToMount<'_, '_>, reply: &mut Self::Reply) -> Result<(), Stop>;
}

/// Checks that a mount may use `verb` in this way, in this session.
///
/// # Errors
/// `Denied` if not; `Unavailable` if it is for a former session.
pub fn check<V: MountVerb>(verb: &V, session: SessionId, wanted: Use) -> Result<()> {
    if V::USE != wanted {
        return Err(Error::Denied(format!("operation {} is not for a mount", V::NAME)));
    }
    let Own { session: named, spare } = verb.own();
    if let Some(named) = named.filter(|named| *named != session) {
        // The session lapsed while this was on its way: the data is written once more, in the new
        // session.
        return Err(Error::Unavailable(format!(
            "the mount has session {session} now, and the operation is of session {named}"
        )));
    }
    if let Some(spare) = spare.filter(|spare| spare.session != session) {
        return Err(Error::Denied(format!("body {spare} does not belong to session {session}")));
    }
    Ok(())
}

/// Calls come from clients of a gateway.
impl<V: Callable> MountVerb for ForCall<V> {
    const USE: Use = Use::Never;

    fn own(&self) -> Own {
        Own::default()
    }

    fn subject(&self) -> Option<String> {
        Some(String::new())
    }

    fn show(&self, _: &mut ShownToMount<'_, '_>, _: &mut Self::Reply) -> Result<(), Stop> {
        Err(Error::Denied(format!("operation {} for a call is not for a mount", Self::NAME)).into())
    }
}

/// Verbs for nodes only.
macro_rules! never {
    ($($module:ident::$verb:ident,)*) => {
        $(impl MountVerb for $module::$verb {
            const USE: Use = Use::Never;

            fn own(&self) -> Own {
                Own::default()
            }

            fn subject(&self) -> Option<String> {
                Some(String::new())
            }

            fn show(&self, _: &mut ShownToMount<'_, '_>, _: &mut Self::Reply) -> Result<(), Stop> {
                Err(Error::Denied(format!("operation {} is not for a mount", Self::NAME)).into())
            }
        })*
    };
}

/// Verbs for mounts: how they are used, what they name, what they are about, and what is shown.
macro_rules! mounted {
    ($($module:ident::$verb:ident $use:ident, $own:expr, $subject:expr, $show:expr;)*) => {
        $(impl MountVerb for $module::$verb {
            const USE: Use = Use::$use;

            fn own(&self) -> Own {
                let own: fn(&Self) -> Own = $own;
                own(self)
            }

            fn subject(&self) -> Option<String> {
                let subject: fn(&Self) -> Option<String> = $subject;
                subject(self)
            }

            fn show(
                &self,
                shown: &mut ShownToMount<'_, '_>,
                reply: &mut Self::Reply,
            ) -> Result<(), Stop> {
                let show: Show<Self> = $show;
                show(self, shown, reply)
            }
        })*
    };
}

type Show<V> = fn(&V, &mut ShownToMount<'_, '_>, &mut <V as Verb>::Reply) -> Result<(), Stop>;

fn none<V>(_: &V) -> Own {
    Own::default()
}

fn inode(ino: Ino) -> Option<String> {
    Some(format!("(inode {ino})"))
}

fn below(parent: Ino, name: &[u8]) -> Option<String> {
    Some(format!("(inode {parent})/{}", name.escape_ascii()))
}

fn both(first: Option<String>, second: Option<String>) -> Option<String> {
    Some(format!("{} to {}", first?, second?))
}

fn unseen<V>(_: &V) -> Option<String> {
    None
}

/// The reply tells nothing about the contents of the bucket, or the verb has checked the right to
/// read.
fn all<V: Verb>(_: &V, _: &mut ShownToMount<'_, '_>, _: &mut V::Reply) -> Result<(), Stop> {
    Ok(())
}

fn in_session(session: SessionId) -> Own {
    Own { session: Some(session), spare: None }
}

fn with_spare(session: SessionId, spare: BodyId) -> Own {
    Own { session: Some(session), spare: Some(spare) }
}

mounted! {
    append::Append Run, |v| with_spare(v.session, v.spare), |v| inode(v.ino),
        |_, s, r| s.inode(&mut r.inode);
    clone::CloneFile Run, |v| in_session(v.session), |v| both(inode(v.source), inode(v.ino)),
        |_, s, r| s.inode(r);
    coalesce::Coalesce Run, |v| in_session(v.session), unseen, all;
    coalesce::ReadChunk Read, none, |v| inode(v.ino), |_, s, r| {
        if let Some((body, _)) = r {
            s.reads(*body);
        }
        Ok(())
    };
    copy_range::CopyRange Run, |v| with_spare(v.session, v.spare),
        |v| both(inode(v.source), inode(v.ino)), |_, s, r| s.inode(&mut r.inode);
    create::Create Run, none, |v| below(v.parent, &v.name), |_, s, r| s.inode(&mut r.1);
    create::Mknod Run, none, |v| below(v.parent, &v.name), |_, s, r| s.inode(&mut r.1);
    buckets::GetBucket Read, none, |v| Some(format!("bucket {}", v.name)), |_, s, r| {
        s.bucket(r.0.id, &mut r.0.bucket)
    };
    getattr::Access Read, none, |v| inode(v.ino), |_, s, r| s.inode(&mut r.0);
    getattr::Getattr Read, none, |v| inode(v.ino), |_, s, r| s.inode(&mut r.0);
    link::Link Run, none, |v| both(inode(v.ino), below(v.parent, &v.name)), |_, s, r| s.inode(r);
    lock::ReleaseLock Run, |v| in_session(v.lock.session), unseen, all;
    lock::TakeLock Run, |v| in_session(v.lock.session), unseen, all;
    lock::TestLock Read, none, |v| inode(v.ino), all;
    lookup::Lookup Read, none, |v| below(v.parent, &v.name), |_, s, r| s.inode(&mut r.1);
    mkdir::Mkdir Run, none, |v| below(v.parent, &v.name), |_, s, r| s.inode(&mut r.1);
    open_object::OpenInode Read, none, |v| inode(v.ino), |_, s, r| {
        if let Content::Body(body) = r.inode.content {
            s.reads(body);
        }
        s.inode(&mut r.inode)?;
        s.bucket(r.opened.id, &mut r.opened.bucket)
    };
    open_object::ReadExtents Read, none, |v| Some(format!("(bucket {})", v.bucket)), |v, s, _| {
        s.reads(v.body);
        Ok(())
    };
    readdir::Readdir Read, none, |v| inode(v.ino), |_, s, r| {
        r.entries.iter_mut().filter_map(|e| e.inode.as_mut()).try_for_each(|i| s.inode(i))
    };
    readlink::Readlink Read, none, |v| inode(v.ino), all;
    rename::Rename Run, none, |v| {
        both(below(v.source_parent, &v.source_name), below(v.target_parent, &v.target_name))
    }, all;
    restore::FindKey Read, none, |v| Some(format!("{}/{}", v.bucket, v.key)), all;
    restore::RestoreAttributes Run, none, |v| inode(v.ino), all;
    restore::RestoreBucket Run, none, |v| Some(format!("bucket {}", v.bucket.name)), all;
    restore::RestoreKey Run, none, |v| {
        both(below(v.parent, &v.name), Some(format!("{}/{}", v.bucket, v.key)))
    }, all;
    restore::RestoreShareLink Run, none, |v| Some(format!("share link {}", v.id)), all;
    restore::RestoreToken Run, none, |v| Some(format!("token {}", v.id)), all;
    restore::RestoreUser Run, none, |v| Some(format!("user {}", v.name)), all;
    retain::LetGo Run, |v| in_session(v.session), unseen, all;
    retain::Retain Run, |v| in_session(v.session), unseen, all;
    rmdir::Rmdir Run, none, |v| below(v.parent, &v.name), all;
    sessions::ReserveInodes Run, |v| in_session(v.session), unseen, all;
    setattr::Setattr Run, none, |v| inode(v.ino), |_, s, r| s.inode(&mut r.0);
    statfs::Replicas Read, none, |v| inode(v.ino), all;
    statfs::Statfs Read, none, |v| inode(v.ino), all;
    symlink::Symlink Run, none, |v| below(v.parent, &v.name), |_, s, r| s.inode(&mut r.1);
    tags::GetTags Read, none, |v| Some(format!("{}/{}", v.bucket, v.key)), all;
    truncate::Extend Run, |v| in_session(v.session), |v| inode(v.ino), |_, s, r| s.inode(r);
    truncate::PunchHole Run, |v| with_spare(v.session, v.spare), |v| inode(v.ino),
        |_, s, r| s.inode(&mut r.inode);
    truncate::Truncate Run, |v| with_spare(v.session, v.spare), |v| inode(v.ino),
        |_, s, r| s.inode(&mut r.inode);
    unlink::Unlink Run, none, |v| below(v.parent, &v.name), all;
    write::Write Run, |v| with_spare(v.session, v.spare), |v| inode(v.ino), |_, s, r| s.inode(r);
    xattr::GetXattr Read, none, |v| inode(v.ino), all;
    xattr::ListXattrs Read, none, |v| inode(v.ino), all;
    xattr::RemoveXattr Run, none, |v| inode(v.ino), all;
    xattr::SetXattr Run, none, |v| inode(v.ino), all;
}

never! {
    append_once::AppendOnce,
    buckets::CreateBucket,
    buckets::CreateTaggedBucket,
    buckets::Decide,
    buckets::DeleteBucket,
    buckets::DropUploads,
    buckets::FindBucket,
    buckets::FindWritable,
    buckets::ListBuckets,
    buckets::SetListing,
    buckets::UpdateBucket,
    cluster::DrainNode,
    cluster::GetMap,
    cluster::IssueToken,
    cluster::PutMap,
    cluster::RedeemToken,
    cluster::RemoveNode,
    copy_object::CopyCheckedObject,
    copy_object::CopyObject,
    copy_object::CopyObjectBytes,
    cors::FindCors,
    cors::PutCors,
    credentials::AddAccessKey,
    credentials::AddOwnKey,
    credentials::AddToken,
    credentials::DisableUser,
    credentials::FindAccessKey,
    credentials::FindToken,
    credentials::ListCredentials,
    credentials::ListOwnCredentials,
    credentials::ListUsers,
    credentials::RemoveCredential,
    credentials::RemoveOwnCredential,
    credentials::UserName,
    delete_object::DeleteObject,
    delete_object::DeleteObjects,
    exports::AddExport,
    exports::AddExportAt,
    exports::FindExport,
    exports::FindExportAt,
    exports::ListExports,
    exports::RemoveExport,
    for_call::FindCall,
    for_call::ForgetCalls,
    for_call::SettleCall,
    gc::DrainStep,
    gc::ForgetFreed,
    gc::FreeOrphans,
    gc::ListDrains,
    gc::ListFreed,
    list_locks::ListLocks,
    holds::AddHold,
    holds::EndHolds,
    holds::ListHolds,
    holds::RemoveHold,
    holds::RenewHold,
    list_objects::ListObjects,
    list_uploads::ListUploads,
    lock::ReleaseAll,
    logins::AddLogin,
    logins::EndLogins,
    logins::FindLogin,
    logins::TouchLogin,
    look::LookBuckets,
    look::LookFolder,
    move_object::MoveObject,
    multipart::AbortUpload,
    multipart::CompleteUpload,
    multipart::CopyCheckedPart,
    multipart::CopyPart,
    multipart::CreateUpload,
    multipart::GetUpload,
    multipart::ListParts,
    multipart::PartTable,
    multipart::PutPart,
    multipart::TakeParts,
    open_object::OpenObject, open_object::OpenRange,
    order_directory::OrderDirectory,
    public_access::MarkBucket,
    public_access::PutPublicAccessBlock,
    put_object::AbandonBody,
    put_object::MayWrite,
    put_object::PutObject,
    put_object::StageExtents,
    read_only::IsReadOnly,
    readdir_in_order::ReaddirInOrder,
    read_only::SetReadOnly,
    resumable::AbortResumable,
    resumable::BeginResumable,
    resumable::ExpireResumable,
    resumable::FindResumable,
    resumable::FinishResumable,
    resumable::PutResumable,
    retain::LetGoAll,
    sessions::BindSession,
    sessions::EndSession,
    sessions::Format,
    sessions::ListSessions,
    sessions::OpenRemoteSession,
    sessions::OpenSession,
    share_links::AddShareLink,
    share_links::FindShareLink,
    share_links::ListShareLinks,
    share_links::RemoveShareLink,
    share_links::ReturnShareLink,
    share_links::UseShareLink,
    tags::PutTags,
    user_limits::FindUserLimits,
    user_limits::ListUserLimits,
    user_limits::SetUserLimits,
    user_quotas::FindRoom,
    user_quotas::ListUserQuotas,
    user_quotas::SetUserQuotas,
    website::PutWebsite,
    write_over::WriteOver,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ops::body::Data;
    use crate::{WireVerb, wire};
    use bytes::Bytes;
    use cairn_base::Ino;

    const OWN: SessionId = SessionId(7);
    const OTHER: SessionId = SessionId(8);

    #[test]
    fn a_mount_runs_what_a_file_system_needs_and_nothing_else() {
        let never =
            |number: u16| wire::USES.iter().any(|(n, _, u)| *n == number && *u == Use::Never);
        for verb in [
            credentials::AddAccessKey::NUMBER,
            credentials::FindAccessKey::NUMBER,
            put_object::PutObject::NUMBER,
            put_object::StageExtents::NUMBER,
            sessions::EndSession::NUMBER,
            retain::LetGoAll::NUMBER,
            lock::ReleaseAll::NUMBER,
        ] {
            assert!(never(verb), "{verb}");
        }
        assert!(!never(write::Write::NUMBER));
    }

    #[test]
    fn a_mount_names_no_session_and_no_body_of_others() {
        let write = |session: SessionId, spare: SessionId| {
            let spare = BodyId { session: spare, counter: 1 };
            let data = Data::Inline(Bytes::from_static(b"x"));
            let verb = write::Write { ino: Ino(5), session, opened: true, spare, offset: 0, data };
            check(&verb, OWN, Use::Run)
        };
        write(OWN, OWN).unwrap();
        assert!(write(OTHER, OWN).is_err());
        assert!(write(OWN, OTHER).is_err());
        let let_go = retain::LetGo { ino: Ino(5), session: OTHER };
        assert!(check(&let_go, OWN, Use::Run).is_err());
        assert!(check(&let_go, OTHER, Use::Run).is_ok());
        assert!(check(&let_go, OTHER, Use::Read).is_err());
    }
}
