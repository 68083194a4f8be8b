//! Roles without a cluster around them. Whole clusters of them are simulated: `crates/sim/tests`.
#![allow(clippy::disallowed_methods, reason = "tests run on this machine")]
#![allow(clippy::unwrap_used)]

mod masters_hand_over;
mod masters_take_turns;
