//! The tests of the simulated disk.
mod a_power_cut_takes_only_what_was_not_synced;
mod faults_happen_when_planned;
