//! Roles without a cluster around them. Whole clusters of them are simulated: `crates/sim/tests`.
#![allow(clippy::unwrap_used)]

mod masters_hand_over;
mod masters_take_turns;
