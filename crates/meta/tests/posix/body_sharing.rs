//! Bodies that several files share: a write leaves the others as they were.

use cairn_base::{BodyId, Ino};
use cairn_meta::ops::create::Create;
use cairn_meta::ops::edit::leaf_extents;
use cairn_meta::ops::namespace::{count_usage, load_inode, retain_body, store};
use cairn_meta::rows::{Content, Extent, Inode};
use cairn_meta::{Context, Stop, Verb, View, keys};

/// Makes a file with the body of another, as a copy does.
pub struct Share {
    pub ino: Ino,
    pub parent: Ino,
    pub name: Vec<u8>,
}

impl Verb for Share {
    type Reply = Ino;
    const NAME: &'static str = "share";

    fn apply(&self, view: &mut View<'_>, context: &Context) -> Result<Ino, Stop> {
        let source = load_inode(view, self.ino)?;
        let create =
            Create { parent: self.parent, name: self.name.clone(), mode: 0o644, exclusive: true };
        let (ino, plain, _) = create.apply(view, context)?;
        if let Content::Body(body) = source.content {
            retain_body(view, body, 1)?;
        }
        count_usage(view, plain.bucket, 0, source.size as i64)?;
        let inode = Inode { size: source.size, content: source.content, ..plain };
        store(view, keys::inode(ino), &inode);
        Ok(ino)
    }
}

/// Reads the leaves of a body.
pub struct Leaves {
    pub body: BodyId,
    pub start: u64,
    pub end: u64,
}

impl Verb for Leaves {
    type Reply = Vec<Extent>;
    const NAME: &'static str = "leaves";

    fn apply(&self, view: &mut View<'_>, _: &Context) -> Result<Vec<Extent>, Stop> {
        leaf_extents(view, self.body, self.start, self.end)
    }
}
