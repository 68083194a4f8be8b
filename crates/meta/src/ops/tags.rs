//! Tags of objects.

use cairn_auth::Action;
use cairn_base::{Error, Ino, limits};
use serde::{Deserialize, Serialize};

use super::key_names::check_key;
use super::namespace::{no_object, open_bucket_for, store};
use super::open_object::find;
use crate::rows::{Inode, ObjectAttributes};
use crate::{Context, Stop, Verb, View, keys};

/// Checks the number of tags, that no key comes twice, and that there are no control characters;
/// their lengths are limited as in S3 (key 1 to 128, value up to 256 characters).
pub fn check_tags(tags: &[(String, String)], most: usize) -> Result<(), Error> {
    if tags.len() > most {
        return Err(Error::Invalid(format!("{} tags; must be at most {most}", tags.len())));
    }
    for (at, (key, value)) in tags.iter().enumerate() {
        if key.is_empty() || key.chars().count() > 128 || value.chars().count() > 256 {
            let what = "tag: a key has 1 to 128 characters, a value up to 256";
            return Err(Error::Invalid(what.into()));
        }
        // XML cannot represent most of them.
        let bad = |char: char| char.is_control() || matches!(char, '\u{fffe}' | '\u{ffff}');
        if key.chars().chain(value.chars()).any(bad) {
            return Err(Error::Invalid("tag: control characters are not allowed".into()));
        }
        if tags[..at].iter().any(|(other, _)| other == key) {
            return Err(Error::Invalid(format!("tag key {key} given twice")));
        }
    }
    Ok(())
}

/// Writes the tags of a new inode; returns their number.
pub fn store_tags(view: &mut View<'_>, ino: Ino, tags: &[(String, String)]) -> Result<u32, Stop> {
    check_tags(tags, limits::OBJECT_TAGS)?;
    for (key, value) in tags {
        let row = keys::attribute(ino, keys::Attribute::Tag, key.as_bytes());
        view.put(row, value.clone().into());
    }
    Ok(tags.len() as u32)
}

/// Returns the tags of an inode, by key.
pub fn load_tags(
    view: &mut View<'_>,
    ino: Ino,
    inode: &Inode,
) -> Result<Vec<(String, String)>, Stop> {
    if inode.object.as_ref().is_none_or(|object| object.tag_count == 0) {
        return Ok(Vec::new());
    }
    let (start, end) = keys::attributes(ino, keys::Attribute::Tag);
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let rows = view.scan(&start, &end, limits::OBJECT_TAGS)?;
    Ok(rows.iter().map(|(key, value)| (text(&keys::attribute_name(key)), text(value))).collect())
}

/// Deletes the tags of an object. The caller stores the inode with their new number.
pub fn drop_tags(view: &mut View<'_>, ino: Ino, inode: &Inode) -> Result<(), Stop> {
    for (key, _) in load_tags(view, ino, inode)? {
        view.delete(keys::attribute(ino, keys::Attribute::Tag, key.as_bytes()));
    }
    Ok(())
}

/// Reads the tags of an object.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct GetTags {
    pub bucket: String,
    pub key: String,
}

impl Verb for GetTags {
    type Reply = Vec<(String, String)>;
    const NAME: &'static str = "get_tags";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Self::Reply, Stop> {
        check_key(&self.key)?;
        let opened =
            open_bucket_for(view, context, &self.bucket, &self.key, Action::GetObjectTagging)?;
        match find(view, opened.id, &self.key)? {
            Some(found) => load_tags(view, found.ino, &found.inode),
            None => Err(no_object(&self.bucket, &self.key)),
        }
    }
}

/// Replaces all tags of an object; an empty list removes them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct PutTags {
    pub bucket: String,
    pub key: String,
    pub tags: Vec<(String, String)>,
}

impl Verb for PutTags {
    type Reply = ();
    const NAME: &'static str = "put_tags";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<(), Stop> {
        check_key(&self.key)?;
        let action = if self.tags.is_empty() {
            Action::DeleteObjectTagging
        } else {
            Action::PutObjectTagging
        };
        let opened = open_bucket_for(view, context, &self.bucket, &self.key, action)?;
        let Some(found) = find(view, opened.id, &self.key)? else {
            return Err(no_object(&self.bucket, &self.key));
        };
        let (ino, mut inode) = (found.ino, found.inode);
        drop_tags(view, ino, &inode)?;
        let tag_count = store_tags(view, ino, &self.tags)?;
        let object = inode.object.get_or_insert_with(Box::<ObjectAttributes>::default);
        object.tag_count = tag_count;
        inode.touch(context.batch, context.now);
        store(view, keys::inode(ino), &inode);
        Ok(())
    }
}
