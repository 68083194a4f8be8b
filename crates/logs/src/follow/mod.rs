//! Following: sends the bytes of a file as it grows, or of the files of a source, day after day.
//!
//! ```text
//!   change of an inode ──► Tail: one read of new bytes, for all followers of the file here
//!                            ├─► FileFollower ─┐
//!                            └─► FileFollower ─┴─► Feed: a file, or the days of a source ──► Sse
//! ```
//!
//! A slow follower finds that the tail has gone on, and reads on its own. It blocks no other
//! follower.

mod checker;
mod event;
mod position;
mod sse;
mod tail;

mod file;
mod last_lines;

mod source;

mod feed;

pub use checker::Checker;
pub use event::FeedEvent;
pub use feed::{Feed, FollowRequest, From, last_lines};
pub use position::Position;
pub use sse::Sse;
pub use tail::{FollowCounts, Tails};
