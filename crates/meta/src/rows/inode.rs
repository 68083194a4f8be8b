//! Inodes.

use bytes::Bytes;
use cairn_base::codec::{Fields, Writer};
use cairn_base::{BodyId, BucketId, Error, Ino, Result, Timestamp};
use serde::{Deserialize, Serialize};

use super::{Acl, FORMAT, ObjectAttributes, Row, array, narrow, unexpected, unzigzag, zigzag};

/// The kind of an inode.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default, Serialize, Deserialize)]
pub enum Kind {
    #[default]
    File,
    Directory,
    Symlink,
    Fifo,
    Socket,
}

impl Kind {
    pub fn number(self) -> u64 {
        match self {
            Kind::File => 1,
            Kind::Directory => 2,
            Kind::Symlink => 3,
            Kind::Fifo => 4,
            Kind::Socket => 5,
        }
    }

    pub fn from_number(number: u64) -> Result<Kind> {
        match number {
            1 => Ok(Kind::File),
            2 => Ok(Kind::Directory),
            3 => Ok(Kind::Symlink),
            4 => Ok(Kind::Fifo),
            5 => Ok(Kind::Socket),
            other => Err(unexpected("kind of inode", other)),
        }
    }
}

/// The content of a file, or the place of its bytes.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub enum Content {
    /// Only zeros, up to the size.
    #[default]
    Empty,
    /// All bytes up to the last one outside a hole; also the target of a symbolic link.
    Inline(Bytes),
    Body(BodyId),
}

/// An inode: the row `i <ino>`.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Inode {
    pub kind: Kind,
    /// Bucket that it belongs to for life. The root belongs to none (0).
    pub bucket: BucketId,
    /// Directory that contains this one; only directories have it.
    pub parent: Ino,
    /// Permission bits with setuid, setgid and sticky, no kind bits.
    pub mode: u32,
    pub uid: u32,
    pub gid: u32,
    /// Number of names of a file. Directories count 1 here; their subdirectories are in the tally.
    pub nlink: u32,
    /// Bytes of a file or of the target of a symbolic link.
    pub size: u64,
    pub atime: Timestamp,
    pub mtime: Timestamp,
    pub ctime: Timestamp,
    /// Time of creation.
    pub btime: Timestamp,
    /// Number of the last change, greater than that of the change before. Together with the inode
    /// number it names one state of the file.
    pub change: u64,
    /// Number of the last change of the bytes other than by a PUT, which makes a new inode.
    pub data_change: u64,
    /// Set for a directory that a deeper PUT made. It vanishes with its last child.
    pub implicit: bool,
    pub content: Content,
    /// Number of extended attributes in the inode's `x` rows.
    pub xattr_count: u32,
    /// Rights beyond the mode; `None` if the mode expresses them all. Owner, mask and others are
    /// those of the mode.
    pub acl: Option<Box<Acl>>,
    /// List that new entries of a directory start with.
    pub default_acl: Option<Box<Acl>>,
    /// The attributes of S3 and HTTP beyond POSIX.
    pub object: Option<Box<ObjectAttributes>>,
    /// Fields of a newer version.
    pub unknown: Vec<u8>,
}

impl Inode {
    /// The tag of the bucket in the row.
    pub const BUCKET_TAG: u32 = 2;

    /// Numbers from here on are no batches: they stand for operations that a session has run on its
    /// own, which get a batch when the master has run them.
    pub const NO_BATCH: u64 = 1 << 63;

    pub fn is_directory(&self) -> bool {
        self.kind == Kind::Directory
    }

    /// Returns the ETag without quotes: the stored one, or else a name of this state of the file
    /// that no other state ever has.
    pub fn etag(&self, ino: Ino) -> String {
        match &self.object {
            Some(object) if !object.etag.is_empty() => object.etag.clone(),
            _ => format!("{:x}-{:x}", ino.0, self.change),
        }
    }

    /// Numbers a change made in `batch`, and sets its time. Both grow with every change, also if
    /// several changes come in one batch, within one tick of the clock, or after the clock was set
    /// back.
    pub fn touch(&mut self, batch: u64, now: Timestamp) {
        self.touch_number(batch);
        self.touch_time(now);
    }

    /// Raises the change number like [`Inode::touch`], for a change that no program sees.
    pub fn touch_number(&mut self, batch: u64) {
        self.change = batch.max(self.change.saturating_add(1));
    }

    /// Sets the time of change like [`Inode::touch`], for a change that keeps ETags valid.
    pub fn touch_time(&mut self, now: Timestamp) {
        self.ctime = now.max(Timestamp(self.ctime.0.saturating_add(1)));
    }

    /// Clears the digests of the former bytes after a change of the bytes other than by a PUT.
    pub fn forget_digests(&mut self) {
        if let Some(object) = &mut self.object {
            object.etag.clear();
            object.checksums.clear();
            object.part_count = 0;
        }
    }
}

impl Row for Inode {
    fn encode(&self) -> Bytes {
        let mut writer = Writer::new(FORMAT);
        writer
            .number(1, self.kind.number())
            .number(Inode::BUCKET_TAG, self.bucket.0)
            .number(3, self.parent.0)
            .number(4, u64::from(self.mode))
            .number(5, u64::from(self.uid))
            .number(6, u64::from(self.gid))
            .number(7, u64::from(self.nlink))
            .number(8, self.size)
            .number(9, zigzag(self.atime.0))
            .number(10, zigzag(self.mtime.0))
            .number(11, zigzag(self.ctime.0))
            .number(12, zigzag(self.btime.0))
            .number(13, self.change)
            .number(14, u64::from(self.implicit));
        match &self.content {
            Content::Empty => {}
            Content::Inline(bytes) => {
                writer.bytes(15, bytes);
            }
            Content::Body(body) => {
                writer.bytes(16, &body.to_bytes());
            }
        }
        if let Some(object) = &self.object {
            writer.bytes(17, &object.encode());
        }
        writer.number(18, u64::from(self.xattr_count)).number(19, self.data_change);
        for (tag, acl) in [(20, &self.acl), (21, &self.default_acl)] {
            if let Some(acl) = acl {
                writer.bytes(tag, &acl.encode());
            }
        }
        writer.raw(&self.unknown);
        writer.finish()
    }

    fn decode(row: &Bytes) -> Result<Inode> {
        let mut inode = Inode::default();
        let mut fields = Fields::open(row, FORMAT)?;
        while let Some(field) = fields.next_field()? {
            match field.tag {
                1 => inode.kind = Kind::from_number(field.number()?)?,
                2 => inode.bucket = BucketId(field.number()?),
                3 => inode.parent = Ino(field.number()?),
                4 => inode.mode = narrow("mode", field.number()?)?,
                5 => inode.uid = narrow("uid", field.number()?)?,
                6 => inode.gid = narrow("gid", field.number()?)?,
                7 => inode.nlink = narrow("nlink", field.number()?)?,
                8 => inode.size = field.number()?,
                9 => inode.atime = Timestamp(unzigzag(field.number()?)),
                10 => inode.mtime = Timestamp(unzigzag(field.number()?)),
                11 => inode.ctime = Timestamp(unzigzag(field.number()?)),
                12 => inode.btime = Timestamp(unzigzag(field.number()?)),
                13 => inode.change = field.number()?,
                14 => inode.implicit = field.number()? != 0,
                15 => inode.content = Content::Inline(field.value),
                16 => {
                    let body = BodyId::from_bytes(array("body id", &field.value)?);
                    inode.content = Content::Body(body);
                }
                17 => inode.object = Some(Box::new(ObjectAttributes::decode(&field.value)?)),
                18 => inode.xattr_count = narrow("xattr count", field.number()?)?,
                19 => inode.data_change = field.number()?,
                20 => inode.acl = acl(&field.value)?,
                21 => inode.default_acl = acl(&field.value)?,
                _ => field.keep(&mut inode.unknown),
            }
        }
        Ok(inode)
    }
}

fn acl(value: &[u8]) -> Result<Option<Box<Acl>>> {
    let corrupt = |error| Error::corrupt("access control list of an inode", error, "a valid one");
    Ok(Acl::parse(value).map_err(corrupt)?.map(Box::new))
}
