//! Commands by which an operator changes the cluster map.

use std::path::PathBuf;
use std::process::ExitCode;

use cairn_base::NodeId;
use cairn_cluster::control::Edit;

use super::reach;
use crate::failure::Result;
use crate::output;

#[derive(clap::Args)]
pub struct NodeArgs {
    /// The directory of a master
    pub dir: PathBuf,
    /// The node, as `cairn cluster status` shows it
    #[arg(value_parser = node)]
    pub node: NodeId,
}

pub fn node(text: &str) -> Result<NodeId, String> {
    text.parse().map(NodeId).map_err(|_| {
        format!("{text:?} is not the number of a node: `cairn cluster status` lists them")
    })
}

pub fn undrain(args: &NodeArgs) -> Result<ExitCode> {
    reach::edit(&args.dir, Edit::Undrain(args.node))?;
    Ok(ExitCode::SUCCESS)
}

/// Say how many replicas new blocks get, and with how few a write is still acknowledged
#[derive(clap::Args)]
#[command(after_help = "Example:
  cairn cluster replicas /srv/cairn-master 3 --minimum 2")]
pub struct ReplicasArgs {
    /// The directory of a master
    dir: PathBuf,
    /// Number of replicas of new blocks, 1 to 5
    #[arg(value_parser = clap::value_parser!(u8).range(1..=5))]
    replicas: u8,
    /// Least number of replicas of an acknowledged write while nodes are away
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=5))]
    minimum: Option<u8>,
}

pub fn replicas(args: &ReplicasArgs) -> Result<ExitCode> {
    let replicas = args.replicas;
    let minimum = args.minimum.unwrap_or(replicas.min(2));
    reach::edit(&args.dir, Edit::Replicas { replicas, minimum })?;
    output::line(
        "This holds for blocks that are written from now on. To change that of others, write their \
         objects again.",
    )?;
    Ok(ExitCode::SUCCESS)
}
