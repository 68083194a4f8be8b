//! `cairn cluster token`: admits one more node.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use cairn_base::{Role, Roles};

use super::{bundle, reach};
use crate::dir::{self, MetaPlace};
use crate::failure::{Failure, Result};
use crate::node::directory_of;
use crate::output;

/// Print a token with which one new node may join, once, until it expires
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn cluster token /srv/cairn-master --role chunkserver
  cairn cluster token /srv/cairn-master --role gateway --expires 3600
  cairn cluster token /srv/cairn --machine")]
pub struct TokenArgs {
    /// The directory of a master
    dir: PathBuf,
    /// Role of the new node; may be given several times
    #[arg(long, value_name = "ROLE", required_unless_present = "machine")]
    #[arg(value_parser = ["master", "chunkserver", "gateway"])]
    role: Vec<String>,
    /// For a whole machine: prints the command `cairn node` for it
    #[arg(long, conflicts_with = "role")]
    machine: bool,
    /// Seconds until the token expires
    #[arg(long, value_name = "SECONDS", default_value_t = 24 * 3600)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=30 * 24 * 3600))]
    expires: u64,
}

pub fn run(args: &TokenArgs) -> Result<ExitCode> {
    let roles: cairn_base::Result<Roles> =
        args.role.iter().map(|role| role.parse::<Role>()).collect();
    let roles = roles?;
    let master = directory_of(&args.dir, Role::Master);
    let in_directory = matches!(dir::place(&master)?, Some((MetaPlace::Directory, _)));
    if (roles.contains(Role::Master) || args.machine) && in_directory {
        let text = "the metadata of this cluster are on the disk of one master (cairn cluster init \
                    had --engine embedded): there is no second master";
        return Err(Failure::new(text));
    }
    let expires = Some(Duration::from_secs(args.expires));
    if !args.machine {
        let token = reach::new_token(&args.dir, roles, expires)?;
        output::line(token.to_text().expose())?;
        return Ok(ExitCode::SUCCESS);
    }
    let mut tokens = Vec::new();
    for role in bundle::ROLES {
        tokens.push(reach::new_token(&args.dir, role.into(), expires)?);
    }
    let (token, dir) = (bundle::write(&tokens), args.dir.display());
    output::line("On the other machine, with the name under which this one reaches it:\n")?;
    output::line(format!("cairn node {dir} --address HOST --join {}", token.expose()))?;
    Ok(ExitCode::SUCCESS)
}
