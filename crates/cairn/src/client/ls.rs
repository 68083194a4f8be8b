//! `cairn ls`

use std::io::IsTerminal;
use std::process::ExitCode;

use super::address::Address;
use super::api::{self, Bucket, ListingLine};
use super::bucket;
use crate::connection::Connection;
use crate::failure::{Failure, Result};
use crate::output;

/// List buckets, or what is below a prefix
#[derive(clap::Args)]
#[command(disable_help_flag = true)]
#[command(
    after_help = "On a terminal there is a header, and elsewhere none. Sizes are bytes, and \
times are UTC. That holds for the list of buckets, too.

Examples:
  cairn ls
  cairn ls -h photos/2024/
  cairn ls -r --json photos | jq .size"
)]
pub struct LsArgs {
    /// BUCKET or BUCKET/PREFIX; without it, all buckets
    prefix: Option<String>,
    /// List all objects below the prefix, not only the next level
    #[arg(short, long)]
    recursive: bool,
    /// Print one line of JSON for each
    #[arg(long)]
    json: bool,
    /// Print sizes for people, such as 1.5 MiB
    #[arg(short = 'h', long)]
    human_readable: bool,
    /// Print help
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
    #[command(flatten)]
    connection: Connection,
}

impl LsArgs {
    fn size(&self, bytes: u64) -> String {
        if self.human_readable { output::human_bytes(bytes) } else { bytes.to_string() }
    }

    fn line(&self, size: &str, modified: &str, key: &str) -> Result<()> {
        output::line(format!("{size:>14}  {modified:<24}  {key}"))
    }
}

pub fn run(args: &LsArgs) -> Result<ExitCode> {
    let server = args.connection.open()?;
    let Some(prefix) = &args.prefix else {
        list_buckets(args, api::buckets(&server)?)?;
        return Ok(ExitCode::SUCCESS);
    };
    let under = Address::parse(prefix)?;
    let mut found = false;
    let has_header = !args.json && std::io::stdout().is_terminal();
    let show = |listed| match listed {
        ListingLine::Object(object) if args.json => output::json(&object),
        ListingLine::Prefix(prefix) if args.json => {
            output::json(&serde_json::json!({ "prefix": prefix }))
        }
        ListingLine::Object(object) => {
            args.line(&args.size(object.size), &object.modified, &output::name(&object.key))
        }
        ListingLine::Prefix(prefix) => args.line("-", "", &output::name(&prefix)),
    };
    api::each_listed(&server, &under, args.recursive, &mut |listed| {
        if has_header && !found {
            args.line("SIZE", "MODIFIED", "KEY")?;
        }
        found = true;
        show(listed)
    })?;
    // A bucket may be empty; a prefix that nothing has is a wrong name.
    if !found && !under.key.is_empty() {
        return Err(Failure::not_found(format!("{prefix}: there is no such object or prefix")));
    }
    Ok(ExitCode::SUCCESS)
}

fn list_buckets(args: &LsArgs, buckets: Vec<Bucket>) -> Result<()> {
    if args.json {
        return buckets.iter().try_for_each(output::json);
    }
    let rows = bucket::rows(&buckets, |bytes| args.size(bytes));
    if std::io::stdout().is_terminal() {
        output::table(&bucket::HEADER, rows)
    } else {
        output::columns(rows)
    }
}
