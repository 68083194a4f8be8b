//! Copies an object by reference: no byte moves.

use cairn_auth::Action;
use cairn_base::{BodyId, Error, Ino, SessionId, Timestamp};
use serde::{Deserialize, Serialize};

use super::conditions::{Conditions, Current};
use super::key_names::check_key;
use super::namespace::{no_object, open_bucket_for, retain_body};
use super::open_object::{FoundObject, find};
use super::put_object::{NewContent, Placement, PutReply, publish_content};
use super::sharing::{check_shared, unshared};
use super::tags::load_tags;
use crate::rows::{Checksum, Content, Inode, ObjectAttributes};
use crate::{Context, Stop, Verb, View};

/// Copies an object. The copy shares the body of its source until one of them is written to.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CopyObject {
    pub source_bucket: String,
    pub source_key: String,
    /// Conditions on the source.
    pub source_conditions: Conditions,
    pub bucket: String,
    pub key: String,
    /// Conditions on the target.
    pub conditions: Conditions,
    /// Headers and user metadata of the copy, or `None` to take the source's.
    pub object: Option<ObjectAttributes>,
    /// Tags of the copy, or `None` to take the source's.
    pub tags: Option<Vec<(String, String)>>,
}

/// The result of a copy.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CopyReply {
    pub put: PutReply,
    /// Attributes of the copy.
    pub object: ObjectAttributes,
}

impl Verb for CopyObject {
    type Reply = CopyReply;
    const NAME: &'static str = "copy_object";

    /// Copies the object.
    ///
    /// # Errors
    /// `NotImplemented` if the source has too many pieces to be shared: see [`CopyObjectBytes`].
    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<CopyReply, Stop> {
        let (reply, unshared) = self.share(view, context, None)?;
        check_shared(view, unshared)?;
        Ok(reply)
    }
}

/// The state of an object whose bytes were read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SourceState {
    pub ino: Ino,
    pub change: u64,
    pub size: u64,
    pub modified: Timestamp,
    pub content: Option<BodyId>,
}

impl SourceState {
    pub fn of(ino: Ino, inode: &Inode) -> SourceState {
        let content = match inode.content {
            Content::Body(body) => Some(body),
            Content::Empty | Content::Inline(_) => None,
        };
        let (change, size, modified) = (inode.change, inode.size, inode.mtime);
        SourceState { ino, change, size, modified, content }
    }

    /// Checks that the object is in this state.
    ///
    /// # Errors
    /// `Conflict` if it is not.
    pub fn check(&self, ino: Ino, inode: &Inode) -> Result<(), Error> {
        let now = SourceState::of(ino, inode);
        let same = (self.ino, self.change, self.size, self.modified, self.content)
            == (now.ino, now.change, now.size, now.modified, now.content);
        if same {
            Ok(())
        } else {
            Err(Error::Conflict("the source changed while it was read".into()))
        }
    }
}

/// Copies like [`CopyObject`], with checksums that were computed of a state of the source.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CopyCheckedObject {
    pub copy: CopyObject,
    pub state: SourceState,
    pub checksums: Vec<Checksum>,
}

impl Verb for CopyCheckedObject {
    type Reply = CopyReply;
    const NAME: &'static str = "copy_checked_object";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<CopyReply, Stop> {
        let checked = Some((&self.state, &self.checksums[..]));
        let (reply, unshared) = self.copy.share(view, context, checked)?;
        check_shared(view, unshared)?;
        Ok(reply)
    }
}

/// Copies like [`CopyObject`], but shares nothing: the bytes of a state of the source were read and
/// written again.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct CopyObjectBytes {
    pub copy: CopyObject,
    pub state: SourceState,
    pub session: SessionId,
    pub content: NewContent,
    /// Checksums of the copy, or `None` to take the source's.
    pub checksums: Option<Vec<Checksum>>,
}

impl Verb for CopyObjectBytes {
    type Reply = CopyReply;
    const NAME: &'static str = "copy_object_bytes";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<CopyReply, Stop> {
        let found = self.copy.open_source(view, context, Some(&self.state))?;
        let content = publish_content(view, self.session, &self.content)?;
        self.copy.put(view, context, &found, content, self.checksums.as_deref())
    }
}

impl CopyObject {
    /// Copies the object by reference. Returns the source's body, too, if nothing else shared it.
    /// The caller checks it by [`check_shared`].
    pub(super) fn share(
        &self,
        view: &mut View<'_>,
        context: &Context,
        checked: Option<(&SourceState, &[Checksum])>,
    ) -> Result<(CopyReply, Option<BodyId>), Stop> {
        let found = self.open_source(view, context, checked.map(|(state, _)| state))?;
        let unshared = unshared(view, &found.inode.content)?;
        if let Content::Body(body) = found.inode.content {
            retain_body(view, body, 1)?;
        }
        let content = found.inode.content.clone();
        let reply = self.put(view, context, &found, content, checked.map(|(_, sums)| sums))?;
        Ok((reply, unshared))
    }

    fn open_source(
        &self,
        view: &mut View<'_>,
        context: &Context,
        state: Option<&SourceState>,
    ) -> Result<FoundObject, Stop> {
        check_key(&self.source_key)?;
        let source = open_bucket_for(
            view,
            context,
            &self.source_bucket,
            &self.source_key,
            Action::GetObject,
        )?;
        let Some(found) = find(view, source.id, &self.source_key)? else {
            return Err(no_object(&self.source_bucket, &self.source_key));
        };
        if let Some(state) = state {
            state.check(found.ino, &found.inode)?;
        }
        let current = Current { ino: found.ino, inode: &found.inode };
        self.source_conditions.check_read(current).map_err(|error| match error {
            Error::NotModified(what) => Error::PreconditionFailed(what),
            other => other,
        })?;
        let onto_itself = self.source_bucket == self.bucket && self.source_key == self.key;
        if onto_itself && self.object.is_none() && self.tags.is_none() {
            let what = "copying an object onto itself must change its metadata";
            return Err(Error::Invalid(what.into()).into());
        }
        Ok(found)
    }

    /// Makes the copy with its content. Its checksums are the source's unless others are given.
    fn put(
        &self,
        view: &mut View<'_>,
        context: &Context,
        found: &FoundObject,
        content: Content,
        checksums: Option<&[Checksum]>,
    ) -> Result<CopyReply, Stop> {
        let tags = match &self.tags {
            Some(tags) => tags.clone(),
            None => load_tags(view, found.ino, &found.inode)?,
        };
        let mut object = self.attributes(found.inode.object.as_deref());
        if let Some(checksums) = checksums {
            object.checksums = checksums.to_vec();
        }
        let place = Placement::find(view, context, &self.bucket, &self.key, &self.conditions)?;
        let size = if found.inode.is_directory() { 0 } else { found.inode.size };
        let put = place.put(view, context, content, size, object.clone(), &tags)?;
        Ok(CopyReply { put, object })
    }
}

impl CopyObject {
    /// Returns the attributes of the copy. Digests of the bytes are copied; the part table is not.
    fn attributes(&self, source: Option<&ObjectAttributes>) -> ObjectAttributes {
        let source = source.cloned().unwrap_or_default();
        let headers = self.object.clone().unwrap_or_else(|| source.clone());
        ObjectAttributes {
            etag: source.etag,
            checksums: source.checksums,
            part_count: source.part_count,
            part_table: None,
            ..headers
        }
    }
}
