//! The command line.

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};

use crate::backup::{self, restore};
use crate::bench;
use crate::cert;
use crate::client::{
    bucket, export, gc, get, key, logs, ls, put, read_only, rm, share, stat, user,
};
use crate::cluster;
use crate::config;
use crate::csi;
use crate::describe;
use crate::doctor;
use crate::failure::Result;
use crate::inflight;
use crate::machine;
use crate::meta;
use crate::mount;
use crate::node::{chunkserver, gateway, master};
use crate::offline::{fsck, scrub};
use crate::server;
use crate::top;

/// One store, many doors: keeps files and serves them through S3, HTTP, FUSE and NFS
#[derive(Parser)]
#[command(
    version,
    propagate_version = true,
    after_help = "Exit codes: 0 done, 1 failed or damage found, 2 the command line makes no sense.

Examples:
  cairn server /srv/cairn
  cairn bucket create photos
  cairn put cat.jpg photos/
  cairn ls photos"
)]
pub struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Server(server::ServerArgs),
    Master(master::MasterArgs),
    Chunkserver(chunkserver::ChunkserverArgs),
    Gateway(gateway::GatewayArgs),
    Node(machine::NodeArgs),
    Mount(Box<mount::MountArgs>),
    Stats(mount::stats::StatsArgs),
    Inflight(inflight::InflightArgs),
    Cluster(cluster::ClusterArgs),
    Put(put::PutArgs),
    Get(get::GetArgs),
    Ls(ls::LsArgs),
    Rm(rm::RmArgs),
    Stat(stat::StatArgs),
    Bucket(bucket::BucketArgs),
    ReadOnly(read_only::ReadOnlyArgs),
    Share(share::ShareArgs),
    Key(key::KeyArgs),
    User(user::UserArgs),
    Logs(logs::LogsArgs),
    Export(export::ExportArgs),
    Gc(gc::GcArgs),
    Fsck(fsck::FsckArgs),
    Scrub(scrub::ScrubArgs),
    Meta(meta::MetaCommandArgs),
    Bench(bench::BenchArgs),
    Doctor(doctor::DoctorArgs),
    Top(top::TopArgs),
    Backup(backup::BackupArgs),
    Restore(restore::RestoreArgs),
    Cert(cert::CertArgs),
    Config(config::ConfigCommandArgs),
    Csi(Box<csi::CsiArgs>),
    Completions(describe::CompletionsArgs),
    Man(describe::ManArgs),
}

impl Cli {
    pub fn run(&self) -> Result<ExitCode> {
        match &self.command {
            Command::Server(args) => server::run(args),
            Command::Master(args) => master::run(args),
            Command::Chunkserver(args) => chunkserver::run(args),
            Command::Gateway(args) => gateway::run(args),
            Command::Node(args) => machine::run(args, &Cli::command()),
            Command::Mount(args) => mount::run(args),
            Command::Stats(args) => mount::stats::run(args),
            Command::Inflight(args) => inflight::run(args),
            Command::Cluster(args) => cluster::run(args, &Cli::command()),
            Command::Put(args) => put::run(args),
            Command::Get(args) => get::run(args),
            Command::Ls(args) => ls::run(args),
            Command::Rm(args) => rm::run(args),
            Command::Stat(args) => stat::run(args),
            Command::Bucket(args) => bucket::run(args),
            Command::ReadOnly(args) => read_only::run(args),
            Command::Share(args) => share::run(args),
            Command::Key(args) => key::run(args),
            Command::User(args) => user::run(args),
            Command::Logs(args) => logs::run(args),
            Command::Export(args) => export::run(args),
            Command::Gc(args) => gc::run(args),
            Command::Fsck(args) => fsck::run(args),
            Command::Scrub(args) => scrub::run(args),
            Command::Meta(args) => meta::run(args),
            Command::Bench(args) => bench::run(args),
            Command::Doctor(args) => doctor::run(args),
            Command::Top(args) => top::run(args),
            Command::Backup(args) => backup::run(args),
            Command::Restore(args) => restore::run(args),
            Command::Cert(args) => cert::run(args),
            Command::Config(args) => config::run(args, &Cli::command()),
            Command::Csi(args) => csi::run(args),
            Command::Completions(args) => describe::completions(args, Cli::command()),
            Command::Man(args) => describe::man(args, Cli::command()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Adds the faults of a command and of those below it.
    fn check(command: &clap::Command, above: &str, faults: &mut Vec<String>) {
        let path = format!("{above} {}", command.get_name());
        let after = command.get_after_help().map(ToString::to_string).unwrap_or_default();
        if !after.contains("Example") || !after.contains("  cairn ") {
            faults.push(format!("{path}: no example"));
        }
        let silent = command.get_arguments().filter(|argument| argument.get_help().is_none());
        faults.extend(silent.map(|argument| format!("{path}: {} has no help", argument.get_id())));
        command.get_subcommands().for_each(|below| check(below, &path, faults));
    }

    #[test]
    fn every_command_has_an_example_and_every_argument_help() {
        let (command, mut faults) = (Cli::command(), Vec::new());
        check(&command, "", &mut faults);
        assert!(faults.is_empty(), "{faults:#?}");
        command.debug_assert();
    }

    #[test]
    fn options_of_a_server_become_those_of_a_machine() {
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("server.toml");
        let text = "[server]\ns3 = \"127.0.0.1:9100\"\ncache-mib = 77\ndurability = \"async\"\n";
        std::fs::write(&file, text).unwrap();
        let made = config::machine_options::of_server(&file, &Cli::command()).unwrap();
        let table: toml::Table = toml::from_str(&made.text).unwrap();
        let value = |role: &str, name: &str| table[role].get(name).map(ToString::to_string);
        assert_eq!(value("node", "s3").as_deref(), Some("\"127.0.0.1:9100\""));
        // The default of a machine is another.
        assert_eq!(value("node", "http").as_deref(), Some("\"127.0.0.1:8080\""));
        assert_eq!(value("gateway", "cache-mib").as_deref(), Some("77"));
        assert_eq!(made.left_out.len(), 1, "{:?}", made.left_out);
        assert!(made.left_out[0].starts_with("durability: "));
        std::fs::write(&file, "[server]\nno-such-option = 1\n").unwrap();
        assert!(config::machine_options::of_server(&file, &Cli::command()).is_err());
    }
}
