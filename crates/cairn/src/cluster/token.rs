//! `cairn cluster token`: lets one more node in.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use cairn_base::clock::RealClock;
use cairn_base::rng::RealRng;
use cairn_base::{Clock, Role, Roles, Timestamp};
use cairn_cluster::identity::JoinToken;

use super::reach;
use crate::dir::{self, MetaPlace};
use crate::failure::{Failure, Result};
use crate::node::ThisNode;
use crate::output;

/// Print a token with which one new node may join, once, until it expires
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn cluster token /srv/cairn-master --role chunkserver
  cairn cluster token /srv/cairn-master --role gateway --expires 3600")]
pub struct TokenArgs {
    /// The directory of a master
    dir: PathBuf,
    /// Role of the new node; may be given several times
    #[arg(long, value_name = "ROLE", required = true)]
    #[arg(value_parser = ["master", "chunkserver", "gateway"])]
    role: Vec<String>,
    /// Seconds until the token expires
    #[arg(long, value_name = "SECONDS", default_value_t = 24 * 3600)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=30 * 24 * 3600))]
    expires: u64,
}

pub fn run(args: &TokenArgs) -> Result<ExitCode> {
    let roles: cairn_base::Result<Roles> =
        args.role.iter().map(|role| role.parse::<Role>()).collect();
    let roles = roles?;
    let in_directory = matches!(dir::place(&args.dir)?, Some((MetaPlace::Directory, _)));
    if roles.contains(Role::Master) && in_directory {
        let text = "several masters need their metadata in a database: there is one master where \
                    cairn cluster init had no --meta";
        return Err(Failure::new(text));
    }
    let map = reach::status(&args.dir)?.map;
    let masters = map.nodes.values().filter(|node| node.pin.roles.contains(Role::Master));
    let addresses: Vec<String> = masters
        .map(|node| node.address.clone())
        .filter(|address| !address.is_empty())
        .take(16)
        .collect();
    let authority = {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let _entered = runtime.enter();
        ThisNode::open(&args.dir, Role::Master)?.loaded.identity.authority().clone()
    };
    let token = JoinToken::new(&authority, addresses, roles, &RealRng)?;
    let lasts = i64::try_from(Duration::from_secs(args.expires).as_nanos()).map_err(|_| {
        Failure::usage(format!("--expires {} s is too long: use less", args.expires))
    })?;
    let expires = Timestamp(RealClock::default().now().0.saturating_add(lasts));
    let grant = token.grant(expires);
    reach::issue(&args.dir, token.id, &grant)?;
    output::line(token.to_text().expose())?;
    Ok(ExitCode::SUCCESS)
}
