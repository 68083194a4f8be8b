//! A newtype for every id: two bare numbers never meet in one signature.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::rng::Rng;

/// An id that is a number, and how people read it: those of nodes and groups are counted, so they
/// are decimal.
macro_rules! number_id {
    ($(#[$doc:meta])* $name:ident, $repr:ty, $shown:literal) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        #[derive(Serialize, Deserialize)]
        pub struct $name(pub $repr);

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "(", $shown, ")"), self.0)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, $shown, self.0)
            }
        }
    };
}

number_id!(
    /// Inode number: never reused within a store. 0 is no inode, 1 is the root.
    Ino, u64, "{:x}"
);
number_id!(
    /// A bucket, named by the inode number of its top-level directory.
    BucketId, u64, "{:x}"
);
number_id!(
    /// One client of the master for as long as it lives: random, never reused.
    SessionId, u64, "{:x}"
);

/// The highest bits of the numbers of inodes and sessions, and so of bodies and blocks: kept for
/// the shard of the metadata that gave the number. They are 0.
pub const SHARD_BITS: u32 = 10;

impl SessionId {
    pub fn random(rng: &dyn Rng) -> SessionId {
        SessionId(rng.next_u64() >> SHARD_BITS)
    }
}

number_id!(
    /// A set of chunkservers that hold the same blocks. One machine has group 1.
    GroupId, u32, "{}"
);
number_id!(
    /// A user. 0 is nobody, 1 is root. Never reused.
    UserId, u64, "{:x}"
);
number_id!(
    /// A multipart upload: the inode number under which its parts are kept. Never reused.
    UploadId, u64, "{:x}"
);

number_id!(
    /// All that one namespace is made of: random, given once, by `init`.
    ClusterId, u128, "{:x}"
);
number_id!(
    /// A process of a cluster that has a key and a place in the cluster map. 0 is no node. Never
    /// reused.
    NodeId, u64, "{}"
);
number_id!(
    /// A join token: random, never reused.
    TokenId, u64, "{:x}"
);

impl Ino {
    pub const ROOT: Ino = Ino(1);
}

impl BucketId {
    /// The inode of the bucket's top-level directory.
    pub fn ino(self) -> Ino {
        Ino(self.0)
    }
}

impl UploadId {
    /// The inode below which the parts are kept.
    pub fn ino(self) -> Ino {
        Ino(self.0)
    }
}

impl UserId {
    pub const NOBODY: UserId = UserId(0);
    pub const ROOT: UserId = UserId(1);
}

impl GroupId {
    /// The only group of a store on one machine.
    pub const LOCAL: GroupId = GroupId(1);
}

macro_rules! session_id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        #[derive(Serialize, Deserialize)]
        pub struct $name {
            pub session: SessionId,
            pub counter: u64,
        }

        impl $name {
            /// 16 bytes, big-endian, so that byte order is the order of ids.
            pub fn to_bytes(self) -> [u8; 16] {
                let mut out = [0; 16];
                out[..8].copy_from_slice(&self.session.0.to_be_bytes());
                out[8..].copy_from_slice(&self.counter.to_be_bytes());
                out
            }

            pub fn from_bytes(bytes: [u8; 16]) -> Self {
                let number = u128::from_be_bytes(bytes);
                Self { session: SessionId((number >> 64) as u64), counter: number as u64 }
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($name), "({})"), self)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:x}-{:x}", self.session.0, self.counter)
            }
        }
    };
}

session_id!(
    /// The contents of a file: the writer's session and a counter of that session.
    BodyId
);
session_id!(
    /// An immutable run of bytes on chunkservers: the writer's session and a counter.
    BlockId
);

/// The owner of a block: the 64 MiB chunk of a body whose extents name it. Whether the block lives
/// is one lookup of that chunk's row.
#[derive(
    Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Debug, Default, Serialize, Deserialize,
)]
pub struct Owner {
    pub body: BodyId,
    pub chunk: u32,
}
