//! The master against an engine whose commits are held up, fail and get lost.

mod acknowledged_is_seen_by_every_thread;
mod engine;
mod verbs;
