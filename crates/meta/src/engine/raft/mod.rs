//! The disk of a member of several masters that keep metadata together: a log of entries
//! and votes, and the rows of those that are applied. The consensus library decides on both.
//!
//! ```text
//!   vote, append ──► record in the ring, one fdatasync        (entries may yet be replaced)
//!   apply ─────────► row store ──► visible                    (committed entries only)
//!                        │
//!                        └──► checkpoint: rows, and a mark: vote, last entry, members
//! ```
//!
//! It is not an engine yet, and no command can choose it: docs/decisions/0033. Bytes:
//! docs/format-engine.md.

mod apply;
pub mod entry;
mod held;
mod index;
mod record;
mod recover;
mod snapshot;
mod store;

pub use self::apply::Outcome;
pub use self::held::Membership;
pub use self::record::Vote;
pub use self::snapshot::{Incoming, Outgoing, Taken};
pub use self::store::MemberStore;
