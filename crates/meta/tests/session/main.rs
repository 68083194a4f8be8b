//! Sessions over a network that loses connections: what a client keeps is never stale, and what
//! it sends twice is done once.

#![allow(clippy::disallowed_methods, reason = "tests run on this machine")]
#![allow(clippy::unwrap_used)]

mod audited;
mod bound;
mod delegated;
mod dumps;
mod ends;
mod executed;
mod held;
mod hostile;
mod inherited;
mod net;
mod not_serving;
mod recalls;
mod sampled;
mod slots;
mod stale_reads;
mod unanswered;
