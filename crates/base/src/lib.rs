//! The foundation of all other crates: ids, limits, errors, checksums and the row codec. It also
//! has the seams to the outside world (disk, clock, randomness, threads).
//!
//! A request carries its [`stage`]s and its [`trace`] with it, and while it waits it is [in
//! flight](inflight).
//!
//! It is not: an async runtime, a utility drawer, or a place for anything that knows what a file
//! is.
//!
//! ```text
//!   blocks, meta, fs, doors ──►  id  limits  error  checksum  codec  secret  node  join  map
//!                           ──►  Disk  Clock  Rng  Threads  (faults enter here in tests)
//! ```

pub mod rng;

mod buffers;
pub mod checksum;
pub mod clock;
pub mod disk;
mod error;
mod id;
pub mod limits;
pub mod planted;
pub mod redundancy;
mod secret;
mod threads;
pub mod trace;
pub mod waits;

pub mod accept;
mod capability;
mod date;
mod node;
pub mod scrub;
pub mod shares;
pub mod stage;

pub mod codec;

mod error_bytes;
pub mod inflight;
mod join;
pub mod map;

mod allowance;
pub mod fsck;
mod scope;

pub use allowance::Allowance;
pub use buffers::{Buffers, PooledBytes};
pub use capability::{Capability, CapabilitySet};
pub use clock::{Clock, Timestamp};
pub use date::{civil, day, rfc3339};
pub use disk::{Disk, DiskFile, RealDisk};
pub use error::{Error, Result};
pub use id::{
    BlockId, BodyId, BucketId, ClusterId, GroupId, Ino, NodeId, Owner, SHARD_BITS, SessionId,
    TokenId, UploadId, UserId,
};
pub use join::{Applicant, JoinGrant, TokenHash};
pub use map::ClusterMap;
pub use node::{KeyHash, Pin, Role, Roles};
pub use redundancy::Redundancy;
pub use rng::Rng;
pub use scope::Scope;
pub use secret::Secret;
pub use shares::{Party, Share, Shares};
pub use stage::{Stage, Stages};
pub use threads::{Thread, Threads};
