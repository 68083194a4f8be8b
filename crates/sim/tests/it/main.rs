//! The simulated disk, and a simulated cluster.
#![allow(clippy::disallowed_methods, reason = "tests run on this machine")]
#![allow(clippy::unwrap_used)]

mod a_power_cut_takes_only_what_was_not_synced;
mod cluster;
mod faults_happen_when_planned;
mod masters;
mod member;
