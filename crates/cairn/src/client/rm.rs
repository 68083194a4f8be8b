//! `cairn rm`

use std::process::ExitCode;

use super::address::Address;
use super::server::{Connection, Server};
use super::{api, pool};
use crate::failure::{Failure, Result};

/// Delete objects
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn rm photos/2024/cat.jpg
  cairn rm -r photos/2023/")]
pub struct Args {
    /// BUCKET/KEY, or with -r BUCKET/PREFIX
    #[arg(required = true)]
    target: Vec<String>,
    /// Delete everything below a prefix
    #[arg(short, long)]
    recursive: bool,
    /// Requests at the same time, with -r
    #[arg(short, long, value_name = "N", default_value_t = 8)]
    #[arg(value_parser = clap::value_parser!(u16).range(1..=64))]
    jobs: u16,
    #[command(flatten)]
    connection: Connection,
}

pub fn run(args: &Args) -> Result<ExitCode> {
    let parse = if args.recursive { Address::parse } else { Address::parse_object };
    let targets: Vec<Address> =
        args.target.iter().map(|text| parse(text)).collect::<Result<_>>()?;
    let server = args.connection.open()?;
    for target in targets {
        if args.recursive {
            remove_all(&server, &target, usize::from(args.jobs))?;
        } else {
            remove(&server, &target)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn remove_all(server: &Server, under: &Address, jobs: usize) -> Result<()> {
    let feed = |send: &mut dyn FnMut(Address) -> Result<()>| {
        api::each_object(server, under, &mut |object| send(under.with_key(object.key)))
    };
    // What somebody else deleted meanwhile is gone all the same.
    let work = |target: Address| match remove(server, &target) {
        Err(failure) if failure.is_not_found() => Ok(()),
        removed => removed,
    };
    pool::run(jobs, feed, work)
}

fn remove(server: &Server, target: &Address) -> Result<()> {
    let sent = server.send("DELETE", &target.path());
    sent.map(|_| ()).map_err(|failure: Failure| failure.of(target))
}
