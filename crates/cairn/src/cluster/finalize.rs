//! `cairn cluster finalize`: ends an adoption, and with it the way back.

use std::path::PathBuf;
use std::process::ExitCode;

use cairn_base::Role;
use cairn_meta::dump::{ADOPTION_HOLD, adoption_holder};
use serde::Deserialize;

use super::adopt::remove_all;
use crate::connection::Connection;
use crate::dir::adoption::{Adoption, AdoptionStep};
use crate::dir::lock::Lock;
use crate::dir::{ADOPTION_DUMP, DirectoryUse, Format, MACHINE, directory_of_role};
use crate::failure::{Failure, Result};
use crate::output;

/// Files that only the server used, and the dump of its metadata.
const REMOVED: [&str; 3] = ["meta", "secret.key", ADOPTION_DUMP];

/// End an adoption: remove what only a way back needs
///
/// While the machine runs, ask its gateway, as root, to end the hold on blocks that only the former
/// server names; they are deleted within a minute. Then remove the former server's metadata and the
/// dump of them. There is no way back afterwards: make a backup first. If the command is
/// interrupted, run it again.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn cluster finalize /srv/cairn
  cairn cluster finalize /srv/cairn --server https://one.example:8080")]
pub struct FinalizeArgs {
    /// The directory of the machine that was adopted
    dir: PathBuf,
    /// Go on although the cluster has no such hold, since somebody has ended it
    #[arg(long)]
    without_hold: bool,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Deserialize)]
struct HeldBlocks {
    id: String,
    owner: String,
}

#[derive(Deserialize)]
struct HoldList {
    holds: Vec<HeldBlocks>,
}

pub fn run(args: &FinalizeArgs) -> Result<ExitCode> {
    let (dir, shown) = (&args.dir, args.dir.display());
    DirectoryUse::Machine.require(dir)?;
    let Some(mut adoption) = Adoption::read(dir)? else {
        let text = "has no adoption to finalize: it was finalized, undone, or never begun";
        return Err(Failure::new(format!("{shown}: {text}")));
    };
    if !adoption.step.is_of_machine() || !dir.join(MACHINE).exists() {
        return Err(Failure::new(format!("{shown}: is not adopted: cairn cluster adopt {shown}")));
    }
    let _lock = Lock::take(dir)?;
    Adoption::require_unchanged(dir, Some(&adoption))?;
    let store = Format::read(&dir.join(directory_of_role(Role::Chunkserver)))?.cluster_number();
    let server = args.connection.open()?;
    let id = format!("{ADOPTION_HOLD:016x}");
    let listed = server.send("GET", "/admin/holds")?.json::<HoldList>()?;
    let held = listed.holds.iter().find(|hold| hold.id == id);
    if let Some(hold) = held
        && hold.owner != adoption_holder(store)
    {
        return Err(Failure::new(format!(
            "the cluster that answers was adopted from another store than {shown} ({}): name a \
             gateway of this one by --server. Nothing was changed",
            hold.owner
        )));
    }
    let begun = adoption.step == AdoptionStep::Finalizing;
    if held.is_none() && !begun && !args.without_hold {
        return Err(Failure::new(
            "the cluster that answers has no hold of an adoption: name a gateway of this one by \
             --server. If somebody has ended the hold, say --without-hold",
        ));
    }
    // From here on there is no way back: blocks that only the server names may go.
    adoption.enter(dir, AdoptionStep::Finalizing)?;
    if held.is_some() {
        server.send("DELETE", &format!("/admin/holds/{id}"))?;
    }
    for name in REMOVED {
        remove_all(&dir.join(name))?;
    }
    Adoption::end(dir)?;
    output::line(format!("Finalized: {shown} is a machine of its cluster, and nothing else"))?;
    Ok(ExitCode::SUCCESS)
}
