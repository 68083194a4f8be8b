//! `cairn cluster enable`: turns capabilities on that all nodes must have.

use std::process::ExitCode;

use cairn_cluster::control::Edit;

use super::reach;
use crate::capability_list::{self, CapabilityArgs};
use crate::failure::Result;
use crate::output;

/// Turn a capability on, for good, or list what can be turned on
///
/// A capability lets the store write what programs before it must not read. It can be turned on
/// when all nodes are up and their programs have it: `cairn cluster upgrade-check` shows which
/// have. From then on a program without it is refused, at nodes and at mounts. There is no way
/// back: make a backup first. Without a name, the capabilities of this program are listed; the
/// directory may be that of any node then.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn cluster enable /srv/cairn                     (lists them)
  cairn cluster enable /srv/cairn required-fields")]
pub struct EnableArgs {
    #[command(flatten)]
    capability: CapabilityArgs,
}

pub fn run(args: &EnableArgs) -> Result<ExitCode> {
    let CapabilityArgs { dir, name } = &args.capability;
    let status = reach::status(dir)?;
    let Some(name) = *name else {
        capability_list::print(status.map.capabilities)?;
        return Ok(ExitCode::SUCCESS);
    };
    if status.map.capabilities.contains(name) {
        output::line(format!("{name} is on already"))?;
        return Ok(ExitCode::SUCCESS);
    }
    reach::edit(dir, Edit::Enable(name))?;
    output::line(format!("{name} is on: programs without it are refused from now on"))?;
    Ok(ExitCode::SUCCESS)
}
