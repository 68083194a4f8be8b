//! `cairn ls`

use std::process::ExitCode;

use super::address::Address;
use super::api::{self, ListingLine};
use crate::connection::Connection;
use crate::failure::{Failure, Result};
use crate::output;

/// List buckets, or what is below a prefix
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn ls
  cairn ls photos/2024/
  cairn ls -r --json photos | jq .size")]
pub struct LsArgs {
    /// BUCKET or BUCKET/PREFIX; without it, all buckets
    prefix: Option<String>,
    /// List all objects below the prefix, not only the next level
    #[arg(short, long)]
    recursive: bool,
    /// Print one line of JSON for each
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: Connection,
}

pub fn run(args: &LsArgs) -> Result<ExitCode> {
    let server = args.connection.open()?;
    let Some(prefix) = &args.prefix else {
        super::bucket::list(&server, args.json)?;
        return Ok(ExitCode::SUCCESS);
    };
    let under = Address::parse(prefix)?;
    let mut found = false;
    let show = |listed| match listed {
        ListingLine::Object(object) if args.json => output::json(&object),
        ListingLine::Prefix(prefix) if args.json => {
            output::json(&serde_json::json!({ "prefix": prefix }))
        }
        ListingLine::Object(object) => {
            let (size, modified) = (object.size, &object.modified);
            output::line(format!("{size:>14}  {modified:<24}  {}", output::name(&object.key)))
        }
        ListingLine::Prefix(prefix) => {
            output::line(format!("{:>14}  {:<24}  {}", "-", "", output::name(&prefix)))
        }
    };
    api::each_listed(&server, &under, args.recursive, &mut |listed| {
        found = true;
        show(listed)
    })?;
    // A bucket may be empty; a prefix that nothing has is a wrong name.
    if !found && !under.key.is_empty() {
        return Err(Failure::not_found(format!("{prefix}: there is no such object or prefix")));
    }
    Ok(ExitCode::SUCCESS)
}
