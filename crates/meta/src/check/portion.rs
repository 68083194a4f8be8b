//! A part of all inodes, bodies and uploads.

use cairn_base::{BodyId, Ino, UploadId};

/// The inodes, bodies and uploads that one pass over the rows compares.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Portion {
    number: u64,
    of: u64,
}

impl Portion {
    /// Returns all portions, which together have every inode, body and upload.
    pub fn each(of: u64) -> impl Iterator<Item = Portion> {
        let of = of.max(1);
        (0..of).map(move |number| Portion { number, of })
    }

    /// Returns whether this portion also checks rows that belong to no inode, body or upload.
    pub fn is_first(self) -> bool {
        self.number == 0
    }

    pub fn has_inode(self, ino: Ino) -> bool {
        self.has(ino.0)
    }

    pub fn has_body(self, body: BodyId) -> bool {
        self.has(body.session.0.rotate_left(32) ^ body.counter)
    }

    pub fn has_upload(self, upload: UploadId) -> bool {
        self.has(upload.0)
    }

    fn has(self, number: u64) -> bool {
        let mixed = number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        self.of == 1 || mixed % self.of == self.number
    }
}
