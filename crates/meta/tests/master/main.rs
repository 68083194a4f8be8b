//! The master against an engine whose commits are held up, fail and get lost.

mod acknowledged_is_seen_by_every_thread;
mod any_interleaving_equals_a_serial_order;
mod engine;
mod model;
mod verbs;
