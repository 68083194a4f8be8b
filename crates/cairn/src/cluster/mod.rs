//! `cairn cluster`: creation of a cluster, admission of nodes, its status, and changes.

mod add_disk;
mod adopt;
pub mod anew;
pub mod bundle;
pub mod copies;
mod drain;
pub mod edit;
mod enable;
mod finalize;
mod fsck;
pub mod init;
pub mod join;
pub mod members;
mod objects;
pub mod reach;
mod rebalance;
mod recover;
mod remove;
mod scrub;
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
    Adopt(adopt::AdoptArgs),
    Finalize(finalize::FinalizeArgs),
    AddDisk(add_disk::AddDiskArgs),
    Drain(drain::DrainArgs),
    /// Cancel the drain of a node
    #[command(after_help = "Example:\n  cairn cluster undrain /srv/cairn-master 4")]
    Undrain(edit::NodeArgs),
    Remove(remove::RemoveArgs),
    Replace(remove::ReplaceArgs),
    Rebalance(rebalance::RebalanceArgs),
    Scrub(scrub::ClusterScrubArgs),
    Fsck(fsck::ClusterFsckArgs),
    Recover(recover::RecoverArgs),
    UpgradeCheck(upgrade_check::UpgradeCheckArgs),
    Enable(enable::EnableArgs),
    Replicas(edit::ReplicasArgs),
}

pub fn run(args: &ClusterArgs, whole: &clap::Command) -> Result<ExitCode> {
    match &args.command {
        Command::Init(args) => init::run(args),
        Command::Token(args) => token::run(args),
        Command::Join(args) => join::run(args),
        Command::Status(args) => status::run(args),
        Command::Adopt(args) => adopt::run(args, whole),
        Command::Finalize(args) => finalize::run(args),
        Command::AddDisk(args) => add_disk::run(args),
        Command::Drain(args) => drain::run(args),
        Command::Undrain(args) => edit::undrain(args),
        Command::Remove(args) => remove::run(args),
        Command::Replace(args) => remove::replace(args),
        Command::Rebalance(args) => rebalance::run(args),
        Command::Scrub(args) => scrub::run(args),
        Command::Fsck(args) => fsck::run(args),
        Command::Recover(args) => recover::run(args),
        Command::UpgradeCheck(args) => upgrade_check::run(args),
        Command::Enable(args) => enable::run(args),
        Command::Replicas(args) => edit::replicas(args),
    }
}
