//! Objects with keys that POSIX cannot show, such as `a//b`, or `a` beside `a/b`, in buckets for
//! programs of S3.

use cairn_base::Error;
use cairn_fs::ops::list_objects::{ListObjects, ListedObject};
use cairn_fs::ops::lookup::Lookup;
use cairn_fs::rows::Kind;

use super::report::Trouble;
use super::selection::{Part, Selection, names};
use super::tree::Tree;
use crate::failure::Result;

/// Objects of a page of a listing.
const PAGE: usize = 1000;

/// Walks over all objects that the walk over directories could not see.
pub async fn run(tree: &Tree<'_>) -> Result<()> {
    let Selection { path, prefix, .. } = tree.walk.selection;
    let prefix = path.as_ref().unwrap_or(prefix);
    let mut after = String::new();
    loop {
        let verb = ListObjects {
            bucket: tree.buckets.source.clone(),
            prefix: prefix.clone(),
            delimiter: String::new(),
            after,
            max_keys: PAGE,
        };
        let page = match tree.walk.stored.read(verb).await {
            Ok(page) => page,
            Err(error) => {
                let text = format!("in the backup: {error}");
                return tree.walk.report.failed(&tree.shown(b""), text);
            }
        };
        for listed in page.objects {
            let key = listed.key.as_bytes();
            if tree.walk.selection.part(key, false) == Part::Nothing {
                continue;
            }
            let done = match is_hidden(tree, &listed).await {
                Ok(true) => tree.hidden(&listed).await,
                Ok(false) => Ok(()),
                Err(error) => Err(Trouble::in_backup(error)),
            };
            tree.walk.report.settle(&tree.shown(key), done)?;
        }
        let Some(next) = page.next else { return Ok(()) };
        after = next;
    }
}

/// Returns whether a walk by names does not reach an object.
async fn is_hidden(tree: &Tree<'_>, listed: &ListedObject) -> cairn_base::Result<bool> {
    if listed.inode.kind == Kind::Directory {
        return Ok(false);
    }
    if listed.key.split('/').any(str::is_empty) {
        return Ok(true);
    }
    let mut ino = tree.buckets.source_root;
    for name in names(&listed.key) {
        match tree.walk.stored.read(Lookup { parent: ino, name: name.as_bytes().to_vec() }).await {
            Ok((found, _)) => ino = found,
            Err(
                Error::NotFound(_)
                | Error::Invalid(_)
                | Error::TooLarge(_)
                | Error::NotDirectory(_),
            ) => return Ok(true),
            Err(error) => return Err(error),
        }
    }
    Ok(ino != listed.ino)
}
