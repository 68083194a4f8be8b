//! What every other crate of Cairn stands on: ids, limits, errors, checksums, the row codec, and
//! the seams through which the outside world (disk, clock, randomness) comes in.
//!
//! It is not: an async runtime, a utility drawer, a place for anything that knows what a file is.
//!
//! ```text
//!   blocks, meta, fs, doors ──►  id  limits  error  checksum  codec  secret
//!                           ──►  Disk   Clock   Rng     (faults enter here in tests)
//! ```

pub mod checksum;
pub mod clock;
pub mod codec;
pub mod disk;
mod error;
mod error_wire;
mod id;
pub mod limits;
pub mod rng;
mod secret;

pub use clock::{Clock, Timestamp};
pub use disk::{Disk, DiskFile, RealDisk};
pub use error::{Error, Result};
pub use id::{BlockId, BodyId, BucketId, GroupId, Ino, Owner, SessionId, UploadId, UserId};
pub use rng::Rng;
pub use secret::Secret;
