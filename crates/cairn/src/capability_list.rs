//! The list of capabilities, as commands print it.

use cairn_base::{Capability, CapabilitySet};

use crate::failure::Result;
use crate::output;

/// Prints each capability of this program, and whether it is on.
pub fn print(enabled: CapabilitySet) -> Result<()> {
    for one in Capability::ALL {
        let state = if enabled.contains(*one) { "on" } else { "off" };
        output::line(format!("{:<20} {state:<4} {}", one.name(), one.purpose()))?;
    }
    Ok(())
}
