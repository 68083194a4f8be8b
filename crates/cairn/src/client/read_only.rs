//! `cairn read-only`

use std::process::ExitCode;

use serde::Deserialize;

use super::address::bucket_path;
use super::api::Bucket;
use crate::connection::Connection;
use crate::failure::{Failure, Result};
use crate::output;

/// Refuse all changes of what is in a bucket or the store, or take them again
///
/// Reads go on. When the command has returned, nothing is written any more, by mounts neither. The
/// store still collects garbage, deletes old logs and writes its audit.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn read-only on photos
  cairn read-only on
  cairn read-only off
  cairn read-only show")]
pub struct ReadOnlyArgs {
    /// Refuse changes, take them again, or show the state
    #[arg(value_enum)]
    order: Order,
    /// The bucket; without it, the whole store, and only root may
    bucket: Option<String>,
    #[command(flatten)]
    connection: Connection,
}

#[derive(Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
enum Order {
    On,
    Off,
    /// Print on or off
    Show,
}

#[derive(Deserialize)]
struct ShownReadOnly {
    read_only: bool,
}

pub fn run(args: &ReadOnlyArgs) -> Result<ExitCode> {
    let server = args.connection.open()?;
    let (word, read_only) = match args.order {
        Order::On => ("on", true),
        Order::Off => ("off", false),
        Order::Show => {
            let word = match &args.bucket {
                Some(name) => server.send("GET", &bucket_path(name))?.json::<Bucket>()?.read_only,
                None => {
                    let shown: ShownReadOnly = server.send("GET", "/admin/read-only")?.json()?;
                    if shown.read_only { "on".to_owned() } else { "off".to_owned() }
                }
            };
            output::line(word)?;
            return Ok(ExitCode::SUCCESS);
        }
    };
    match &args.bucket {
        Some(name) if name.is_empty() => return Err(Failure::usage("the bucket has no name")),
        Some(name) => {
            let change = serde_json::json!({ "read_only": word });
            server.send_json("PATCH", &bucket_path(name), &change)?;
        }
        None => {
            let change = serde_json::json!({ "read_only": read_only });
            server.send_json("PUT", "/admin/read-only", &change)?;
        }
    }
    Ok(ExitCode::SUCCESS)
}
