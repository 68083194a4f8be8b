//! Creates or replaces an object.

use bytes::Bytes;
use cairn_auth::Action;
use cairn_base::{BodyId, Error, Ino, Redundancy, SessionId};
use serde::{Deserialize, Serialize};

use super::body::check_block;
use super::conditions::{Conditions, Current};
use super::key_names::{check_key, check_names, is_directory_key, no_bytes, of_files, split_key};
use super::namespace::{
    BucketEntry, add_entry, count_usage, directory_of, drop_link, load, load_inode, new_inode,
    next_ino, no_bucket, open_bucket, open_bucket_for, release_body, replace_entry,
    require_session, store, store_extents, walk_or_make,
};
use super::posix::without_privileges;
use super::tags::{drop_tags, store_tags};
use crate::rows::{
    BucketKind, Content, Drain, Draining, Entry, Extents, Inode, Kind, ObjectAttributes,
};
use crate::{Context, Stop, Verb, View, keys};

/// Bytes that are about to be published.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub enum NewContent {
    Inline(Bytes),
    /// A body of blocks written by this session. Chunks that were staged before ([`StageExtents`])
    /// are not repeated.
    Body {
        body: BodyId,
        chunks: Vec<(u32, Extents)>,
        staged: bool,
    },
}

/// Stores extent rows of a body before its publication, so that no operation is large. Until it is
/// published, the body is noted for draining when its session ends.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct StageExtents {
    pub session: SessionId,
    pub body: BodyId,
    pub chunks: Vec<(u32, Extents)>,
}

impl Verb for StageExtents {
    type Reply = ();
    const NAME: &'static str = "stage_extents";

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<(), Stop> {
        require_session(view, self.session)?;
        check_chunks(&self.chunks, self.session)?;
        let drain = Drain::Prepared { session: self.session };
        store(view, keys::drain_body(self.body), &Draining::from(drain));
        for (chunk, extents) in &self.chunks {
            store_extents(view, self.body, *chunk, extents)?;
        }
        Ok(())
    }
}

/// Gives up the staged rows of a body that will not be published.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct AbandonBody {
    pub body: BodyId,
}

impl Verb for AbandonBody {
    type Reply = ();
    const NAME: &'static str = "abandon_body";
    const RUNS_WHEN_FULL: bool = true;

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<(), Stop> {
        let key = keys::drain_body(self.body);
        if let Some(mut found) = load::<Draining>(view, &key)? {
            found.drain = Drain::Prepared { session: SessionId(0) };
            store(view, key, &found);
        }
        Ok(())
    }
}

/// Checks the blocks.
///
/// # Errors
/// `Invalid` unless all are blocks of the session: those of another may be reaped already.
fn check_chunks(chunks: &[(u32, Extents)], session: SessionId) -> Result<(), Error> {
    let mut extents = chunks.iter().flat_map(|(_, row)| &row.extents);
    extents.try_for_each(|extent| check_block(extent, session))
}

/// Turns written bytes into the content of an inode.
pub fn publish_content(
    view: &mut View<'_>,
    session: SessionId,
    content: &NewContent,
) -> Result<Content, Stop> {
    match content {
        NewContent::Inline(bytes) if bytes.is_empty() => Ok(Content::Empty),
        NewContent::Inline(bytes) => Ok(Content::Inline(bytes.clone())),
        NewContent::Body { body, chunks, staged } => {
            require_session(view, session)?;
            if *staged {
                let key = keys::drain_body(*body);
                let staged = load::<Draining>(view, &key)?.map(|found| found.drain);
                if staged != Some(Drain::Prepared { session }) {
                    let what = format!("body {body} was not staged by this session");
                    return Err(Error::Conflict(what).into());
                }
                view.delete(key);
            }
            check_chunks(chunks, session)?;
            for (chunk, extents) in chunks {
                store_extents(view, *body, *chunk, extents)?;
            }
            Ok(Content::Body(*body))
        }
    }
}

/// Creates an object or replaces the existing one, atomically. Other names and open descriptors of
/// a replaced file keep the former bytes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PutObject {
    pub bucket: String,
    pub key: String,
    pub session: SessionId,
    pub content: NewContent,
    pub size: u64,
    pub object: ObjectAttributes,
    pub tags: Vec<(String, String)>,
    pub conditions: Conditions,
}

/// The result of a PUT.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PutReply {
    pub ino: Ino,
    pub etag: String,
    pub modified: cairn_base::Timestamp,
    /// Set if an object was replaced.
    pub replaced: bool,
}

impl Verb for PutObject {
    type Reply = PutReply;
    const NAME: &'static str = "put_object";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<PutReply, Stop> {
        let place = Placement::find(view, context, &self.bucket, &self.key, &self.conditions)?;
        let content = publish_content(view, self.session, &self.content)?;
        place.put(view, context, content, self.size, self.object.clone(), &self.tags)
    }
}

/// The place where an object is about to be put, and the current object there. PUT, copy and
/// multipart completion share it.
#[derive(Debug, Serialize, Deserialize)]
pub struct Placement {
    pub opened: BucketEntry,
    parent: Ino,
    name: Vec<u8>,
    current: Option<(Ino, Inode)>,
}

impl Placement {
    /// Checks the caller's rights and the conditions; makes missing directories.
    pub fn find(
        view: &mut View<'_>,
        context: &Context,
        bucket: &str,
        key: &str,
        conditions: &Conditions,
    ) -> Result<Placement, Stop> {
        check_key(key)?;
        let opened = open_bucket_for(view, context, bucket, key, Action::PutObject)?;
        let is_directory = is_directory_key(&opened.bucket, key);
        let names = if is_directory { key.strip_suffix('/').unwrap_or(key) } else { key };
        check_names(&opened.bucket, names)?;
        let (directories, name) = split_key(key);
        let parent = walk_or_make(view, context, &opened, &directories)?;
        let current = if is_directory {
            Some((parent, load_inode(view, parent)?)).filter(|(_, inode)| !inode.implicit)
        } else {
            current_file(view, &opened, parent, name)?
        };
        conditions
            .check_change(current.as_ref().map(|(ino, inode)| Current { ino: *ino, inode }))?;
        Ok(Placement { opened, parent, name: name.as_bytes().to_vec(), current })
    }

    /// Returns whether this is the key `x/` of a directory: no file has an empty name in a bucket
    /// of kind `posix`.
    fn is_directory(&self) -> bool {
        self.name.is_empty() && self.opened.bucket.kind == BucketKind::Posix
    }

    /// Makes the directory on the way to a key `x/` explicit, with headers, metadata and tags.
    fn put_directory(
        self,
        view: &mut View<'_>,
        context: &Context,
        size: u64,
        mut object: ObjectAttributes,
        tags: &[(String, String)],
    ) -> Result<PutReply, Stop> {
        if size > 0 {
            return Err(no_bytes(&self.opened.bucket).into());
        }
        let ino = self.parent;
        let mut inode = load_inode(view, ino)?;
        drop_tags(view, ino, &inode)?;
        object.tag_count = store_tags(view, ino, tags)?;
        inode.object = Some(Box::new(object));
        inode.implicit = false;
        inode.touch(context.batch, context.now);
        let (etag, modified) = (inode.etag(ino), inode.mtime);
        store(view, keys::inode(ino), &inode);
        Ok(PutReply { ino, etag, modified, replaced: self.current.is_some() })
    }

    /// Puts a new inode there. The former inode loses this name. A key `x/` in a bucket of kind
    /// `posix` makes the directory explicit instead.
    pub fn put(
        self,
        view: &mut View<'_>,
        context: &Context,
        content: Content,
        size: u64,
        mut object: ObjectAttributes,
        tags: &[(String, String)],
    ) -> Result<PutReply, Stop> {
        if self.is_directory() {
            // An empty object that was made of parts has a body all the same.
            if let (Content::Body(body), 0) = (&content, size) {
                release_body(view, *body)?;
            }
            return self.put_directory(view, context, size, object, tags);
        }
        let ino = next_ino(view)?;
        object.tag_count = store_tags(view, ino, tags)?;
        let mut inode = Inode {
            content,
            size,
            object: Some(Box::new(object)),
            ..new_inode(Kind::File, self.opened.id, context)
        };
        let entry = Entry::new(ino, Kind::File);
        let replaced = self.current.is_some();
        if let Some((former_ino, former)) = self.current {
            // With a list, the bits of the group are its mask: both are taken over together.
            inode.mode = without_privileges(context, &former);
            inode.acl = former.acl.clone();
            inode.uid = former.uid;
            inode.gid = former.gid;
            drop_link(view, context, former_ino, former)?;
            replace_entry(view, self.parent, &self.name, &entry)?;
        } else {
            if let Some(directory) = directory_of(view, context, self.parent)? {
                (inode.uid, inode.gid) = (directory.uid, directory.gid);
            }
            add_entry(view, context, self.parent, &self.name, &entry)?;
        }
        let etag = inode.etag(ino);
        store(view, keys::inode(ino), &inode);
        count_usage(view, self.opened.id, 1, size as i64)?;
        Ok(PutReply { ino, etag, modified: context.now, replaced })
    }
}

/// Returns the file that a PUT would replace. Refuses anything but a plain file, and in a bucket of
/// kind `posix` a directory of the same name.
fn current_file(
    view: &mut View<'_>,
    opened: &BucketEntry,
    parent: Ino,
    name: &str,
) -> Result<Option<(Ino, Inode)>, Stop> {
    let name = name.as_bytes();
    if opened.bucket.kind == BucketKind::Posix
        && view.get(&keys::directory_entry(parent, name))?.is_some()
    {
        let rule = "where no file has the name of a directory";
        let what = String::from_utf8_lossy(name);
        let what = format!("{what}: {}", of_files(&opened.bucket, rule));
        return Err(Error::IsDirectory(what).into());
    }
    let Some(entry) = load::<Entry>(view, &keys::file_entry(parent, name))? else {
        return Ok(None);
    };
    if entry.kind != Kind::File {
        let what = format!("{} is not a plain file", String::from_utf8_lossy(name));
        return Err(Error::Exists(what).into());
    }
    Ok(Some((entry.ino, load_inode(view, entry.ino)?)))
}

/// Checks that the caller may write in a bucket, before the first byte of a body is read. The
/// deciding check is made again when the body is published.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MayWrite {
    pub bucket: String,
}

impl Verb for MayWrite {
    /// Number of replicas that the object's blocks should have; 0 for the default of the cluster.
    type Reply = u8;
    const NAME: &'static str = "may_write";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<u8, Stop> {
        if self.bucket.is_empty() {
            return Err(no_bucket(&self.bucket));
        }
        let bucket = open_bucket(view, context, &self.bucket, Action::PutObject)?.bucket;
        Ok(bucket.redundancy.map_or(0, Redundancy::number))
    }
}
