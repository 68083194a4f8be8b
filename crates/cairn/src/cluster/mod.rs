//! `cairn cluster`: making a cluster, letting nodes in, looking at it, changing it.

pub mod bundle;
mod drain;
mod edit;
pub mod init;
pub mod join;
mod members;
pub mod reach;
mod rebalance;
mod recover;
mod status;
mod token;
mod upgrade_check;

use std::process::ExitCode;

use clap::Subcommand;

use crate::failure::Result;

/// Make a cluster of many machines, let nodes in, look at it
///
/// Commands that ask the cluster take the directory of one of its nodes: they speak as that node.
/// Commands that change the cluster need the directory of a master.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn cluster init /srv/cairn-master --address 10.0.0.1:7400
  cairn cluster token /srv/cairn-master --role chunkserver
  cairn cluster join /srv/cairn-disk TOKEN        (on the new node)
  cairn cluster status /srv/cairn-master")]
pub struct ClusterArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Init(init::InitArgs),
    Token(token::TokenArgs),
    Join(join::JoinArgs),
    Status(status::StatusArgs),
    Drain(drain::DrainArgs),
    /// Cancel the drain of a node
    Undrain(edit::NodeArgs),
    /// Remove a node that was drained, or that held no blocks, or a master that does not serve; it
    /// is refused from then on
    Remove(edit::NodeArgs),
    Rebalance(rebalance::RebalanceArgs),
    Recover(recover::RecoverArgs),
    UpgradeCheck(upgrade_check::UpgradeCheckArgs),
    Replicas(edit::ReplicasArgs),
}

pub fn run(args: &ClusterArgs) -> Result<ExitCode> {
    match &args.command {
        Command::Init(args) => init::run(args),
        Command::Token(args) => token::run(args),
        Command::Join(args) => join::run(args),
        Command::Status(args) => status::run(args),
        Command::Drain(args) => drain::run(args),
        Command::Undrain(args) => edit::undrain(args),
        Command::Remove(args) => edit::remove(args),
        Command::Rebalance(args) => rebalance::run(args),
        Command::Recover(args) => recover::run(args),
        Command::UpgradeCheck(args) => upgrade_check::run(args),
        Command::Replicas(args) => edit::replicas(args),
    }
}
