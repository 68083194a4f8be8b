//! Arguments of commands that turn a capability on, and the list of capabilities that they print.

use std::path::PathBuf;

use cairn_base::{Capability, CapabilitySet};

use crate::failure::Result;
use crate::output;

// No doc comment: clap would take it for the text of the command.
#[derive(clap::Args)]
pub struct CapabilityArgs {
    /// Data directory of the server, or of a master of the cluster
    pub dir: PathBuf,
    /// The capability; without it they are listed
    pub name: Option<Capability>,
}

/// Prints each capability of this program, and whether it is on.
pub fn print(enabled: CapabilitySet) -> Result<()> {
    for one in Capability::ALL {
        let state = if enabled.contains(*one) { "on" } else { "off" };
        output::line(format!("{:<20} {state:<4} {}", one.name(), one.purpose()))?;
    }
    Ok(())
}
