//! `cairn cluster remove` and `replace`: forget a node, after its blocks were moved elsewhere.

use std::collections::BTreeSet;
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use cairn_base::NodeId;
use cairn_cluster::control::Edit;
use cairn_cluster::control::forecast::{Forecast, bytes_by_group, emptying, replacing, unknown};

use super::edit::{self, NodeArgs};
use super::{add_disk, drain, reach, rebalance};
use crate::failure::{Failure, Result};
use crate::output;

/// Remove nodes; they are refused from then on
///
/// Chunkservers that hold blocks are drained first. The command says before what will move, where
/// to and how long that takes, and asks. It moves nothing if there is no room for it, or too few
/// other nodes. If a node is the master that serves, another one serves first.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn cluster remove /srv/cairn-master 4
  cairn cluster remove /srv/cairn-master 4 --yes
  cairn cluster remove /srv/cairn 4 5 6         # the three nodes of a machine")]
pub struct RemoveArgs {
    /// The directory of a master
    dir: PathBuf,
    /// The nodes, as `cairn cluster status` shows them
    #[arg(required = true, value_name = "NODE", value_parser = edit::node)]
    nodes: Vec<NodeId>,
    /// Do not ask before blocks are moved
    #[arg(long)]
    yes: bool,
}

/// Move the blocks of a chunkserver to another one, and remove it
///
/// The other one must have joined and run. The command says before what will move and how long that
/// takes, and asks. Some blocks go to whichever nodes the master chooses: those that the other one
/// has already, those that would have more replicas in one zone there, all of a chunkserver that is
/// down, and those of moves that fail. The command says how many moves failed.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn cluster replace /srv/cairn-master 4 9
  cairn cluster replace /srv/cairn-master 4 9 --yes")]
pub struct ReplaceArgs {
    #[command(flatten)]
    of: NodeArgs,
    /// The chunkserver that gets its blocks
    #[arg(value_parser = edit::node)]
    by: NodeId,
    /// Do not ask before blocks are moved
    #[arg(long)]
    yes: bool,
}

pub fn run(args: &RemoveArgs) -> Result<ExitCode> {
    let dir = &args.dir;
    let nodes: BTreeSet<NodeId> = args.nodes.iter().copied().collect();
    let mut status = reach::status(dir)?;
    let holds = |node: &NodeId| status.map.groups.values().any(|group| group.has(*node));
    let holding: Vec<NodeId> = nodes.iter().copied().filter(holds).collect();
    for node in &nodes {
        // None of the nodes takes the blocks of another.
        status.map.nodes.get_mut(node).ok_or_else(|| unknown(*node))?.is_draining = true;
    }
    for node in &holding {
        let forecast = emptying(&status, *node).map_err(reach::refusal)?;
        agree(*node, args.yes, &forecast)?;
    }
    for node in &holding {
        reach::edit(dir, Edit::Drain(*node))?;
    }
    for node in &holding {
        drain::wait(dir, &status.map, *node)?;
    }
    for node in nodes {
        reach::edit(dir, Edit::Remove(node))?;
        add_disk::forget(dir, node)?;
    }
    Ok(ExitCode::SUCCESS)
}

pub fn replace(args: &ReplaceArgs) -> Result<ExitCode> {
    let NodeArgs { dir, node } = &args.of;
    let status = reach::status(dir)?;
    let (forecast, moves) = replacing(&status, *node, args.by).map_err(reach::refusal)?;
    agree(*node, args.yes, &forecast)?;
    // Failed moves do no harm: the drain moves what they leave.
    let failed = rebalance::carry_out(dir, &bytes_by_group(&status), moves)?;
    if failed > 0 {
        let by = args.by;
        let text = "groups were not moved to node";
        output::complain(&format!("{failed} {text} {by}: they go to other nodes"));
    }
    reach::edit(dir, Edit::Drain(*node))?;
    drain::wait(dir, &reach::status(dir)?.map, *node)?;
    reach::edit(dir, Edit::Remove(*node))?;
    add_disk::forget(dir, *node)?;
    Ok(ExitCode::SUCCESS)
}

/// Prints what will move, and asks for a confirmation.
fn agree(node: NodeId, yes: bool, forecast: &Forecast) -> Result<()> {
    let groups = forecast.groups;
    if groups == 0 {
        return Ok(());
    }
    if !yes && !io::stdin().is_terminal() {
        return Err(Failure::new(format!(
            "node {node} is in {groups} groups: drain it, and wait until it is in none, or say \
             --yes"
        )));
    }
    let bytes = indicatif::BinaryBytes(forecast.bytes);
    output::line(format!("node {node} is in {groups} groups, {bytes}, which move:"))?;
    drain::show(forecast)?;
    if yes || asked(&format!("move them, and remove node {node} then?"))? {
        Ok(())
    } else {
        Err(Failure::new("nothing was moved"))
    }
}

/// Asks at the terminal for a confirmation.
fn asked(what: &str) -> Result<bool> {
    let mut stderr = io::stderr().lock();
    write!(stderr, "{what} [y/N] ")?;
    stderr.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes"))
}
