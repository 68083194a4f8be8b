//! `cairn bench`: the crate `bench`, and the layers of Cairn one by one.

mod blocks;
mod doors;
mod layer_error;
mod meta;

use std::process::ExitCode;

use cairn_bench::Error;
use clap::Subcommand;

use crate::failure::{Failure, Result};
use crate::server::process;

/// Measure a server, a store or a file system, of any make; or a layer of Cairn alone
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn bench http http://127.0.0.1:8080/x --json before.json
  cairn bench blocks /var/tmp")]
pub struct BenchArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    #[command(flatten)]
    Any(cairn_bench::Command),
    Meta(Box<meta::MetaBenchArgs>),
    Blocks(Box<blocks::BlocksBenchArgs>),
    Doors(Box<doors::DoorsBenchArgs>),
}

pub fn run(args: &BenchArgs) -> Result<ExitCode> {
    let outcome = match &args.command {
        Command::Any(command) => {
            process::write_for_caller();
            cairn_bench::run(command)
        }
        Command::Meta(args) => meta::run(args),
        Command::Blocks(args) => blocks::run(args),
        Command::Doors(args) => return doors::run(args),
    };
    match outcome {
        Ok(()) => Ok(ExitCode::SUCCESS),
        Err(Error::Usage(text)) => Err(Failure::usage(text)),
        Err(error) => Err(Failure::new(error.to_string())),
    }
}
