//! `cairn logs`

mod events;
mod lines;
mod place;
mod times;

mod grep;
mod ls;
mod retention;
mod tail;
mod zip;

use std::process::ExitCode;

use crate::connection::Connection;
use crate::failure::Result;

/// Read log sources, and set how long their files are kept
///
/// SOURCE is the name of a log source, as `cairn logs ls` shows it.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn logs ls
  cairn logs tail -f nginx
  cairn logs grep 'timed? out' nginx --since 2h
  cairn logs zip nginx --since 2026-11-01
  cairn logs retention --all --days 30")]
pub struct LogsArgs {
    #[command(subcommand)]
    command: Command,
    /// Bucket of the logs [default: the only one you may read whose name begins with logs-]
    #[arg(long, value_name = "NAME", global = true)]
    bucket: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

#[derive(clap::Subcommand)]
enum Command {
    Tail(tail::TailArgs),
    Grep(grep::GrepArgs),
    Ls(ls::LsArgs),
    Zip(zip::ZipArgs),
    Retention(retention::RetentionArgs),
}

pub fn run(args: &LogsArgs) -> Result<ExitCode> {
    let server = args.connection.open()?;
    let bucket = place::bucket(&server, args.bucket.as_deref())?;
    match &args.command {
        Command::Tail(args) => tail::run(&server, &bucket, args),
        Command::Grep(args) => grep::run(&server, &bucket, args),
        Command::Ls(args) => ls::run(&server, &bucket, args),
        Command::Zip(args) => zip::run(&server, &bucket, args),
        Command::Retention(args) => retention::run(&server, &bucket, args),
    }
}
