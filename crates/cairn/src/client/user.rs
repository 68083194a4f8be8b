//! `cairn user`

use std::process::ExitCode;

use cairn_bench::values::size;
use serde::{Deserialize, Serialize};
use serde_json::json;

use super::address::escape;
use crate::connection::Connection;
use crate::failure::{Failure, Result};
use crate::output;

/// List, disable, enable and limit users, and set their quotas; only root may
///
/// A user is made by `cairn key create NAME`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn user ls
  cairn user disable alice
  cairn user enable alice
  cairn user limit alice --requests 100 --bandwidth 10m
  cairn user set alice --quota 500g --buckets 20")]
pub struct UserArgs {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    connection: Connection,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Say how a user is made
    #[command(hide = true, alias = "add", after_help = "Example:\n  cairn key create alice")]
    Create {
        /// The user
        name: Option<String>,
    },
    /// List users, with how many access keys and tokens each has
    #[command(after_help = "Example:\n  cairn user ls --json | jq -r 'select(.disabled).name'")]
    Ls {
        /// Print one line of JSON for each
        #[arg(long)]
        json: bool,
    },
    /// Refuse all access keys and tokens of a user at every door; mounts of that user end
    #[command(after_help = "Keys, buckets and rights stay: cairn user enable gives all of it back.

Example:
  cairn user disable alice")]
    Disable {
        /// The user
        name: String,
    },
    /// Take the access keys and tokens of a user again
    #[command(after_help = "Example:\n  cairn user enable alice")]
    Enable {
        /// The user
        name: String,
    },
    /// Limit requests and bytes of a user, a second
    #[command(
        after_help = "Each server and gateway counts on its own: with three gateways the user may \
have three times as much. Beyond the limit of requests, S3 answers SlowDown and HTTP answers 429, \
both with Retry-After. Bodies of requests and of replies go at the rate of --bandwidth. Calls of \
NFS wait. Mounts are not limited.

Examples:
  cairn user limit alice --requests 100 --bandwidth 10m
  cairn user limit alice --requests 0 --bandwidth 0"
    )]
    Limit {
        /// The user
        name: String,
        /// Requests a second, of which a second's worth may come at once; 0 for no limit
        #[arg(long, value_name = "N")]
        requests: Option<u64>,
        /// Bytes a second, in and out together, such as 10m; at least 64k; 0 for no limit
        #[arg(long, value_name = "SIZE", value_parser = size)]
        bandwidth: Option<u64>,
    },
    /// Set how much a user may have, over all its buckets
    #[command(
        after_help = "What the user has stays, even if it is more. Parts of unfinished uploads \
count for --quota. 0 takes a setting back: then there is no quota of bytes and objects, and there \
may be 1,000 buckets and 10,000 unfinished uploads. Root has no quotas.

Examples:
  cairn user set alice --quota 500g --objects 1000000
  cairn user set build --buckets 5000
  cairn user set alice --quota 0"
    )]
    Set {
        /// The user
        name: String,
        /// Bytes in all buckets of the user together, such as 500g
        #[arg(long, value_name = "SIZE", value_parser = size)]
        quota: Option<u64>,
        /// Objects in all buckets of the user together
        #[arg(long, value_name = "N")]
        objects: Option<u64>,
        /// Buckets of the user
        #[arg(long, value_name = "N")]
        buckets: Option<u64>,
        /// Unfinished uploads that the user began
        #[arg(long, value_name = "N")]
        uploads: Option<u64>,
    },
}

#[derive(Serialize, Deserialize)]
struct User {
    name: String,
    created: String,
    disabled: bool,
    access_keys: u64,
    tokens: u64,
    /// Servers of earlier versions omit the limits.
    #[serde(default)]
    requests_per_second: u64,
    #[serde(default)]
    bytes_per_second: u64,
    #[serde(flatten)]
    usage: Usage,
}

/// Quotas and usage of a user. All are 0 if a server of an earlier version sends none.
#[derive(Serialize, Deserialize, Default)]
#[serde(default)]
struct Usage {
    quota_bytes: u64,
    quota_objects: u64,
    quota_buckets: u64,
    quota_uploads: u64,
    buckets: u64,
    objects: u64,
    bytes: u64,
    uploads: u64,
    upload_bytes: u64,
}

#[derive(Deserialize)]
struct Users {
    users: Vec<User>,
}

pub fn run(args: &UserArgs) -> Result<ExitCode> {
    let server = args.connection.open()?;
    let (name, change) = match &args.command {
        Command::Create { name } => {
            let name = name.as_deref().unwrap_or("NAME");
            let text = format!("a user is made with its first access key: cairn key create {name}");
            return Err(Failure::usage(text));
        }
        Command::Ls { json } => {
            let Users { users } = server.send("GET", "/admin/users")?.json()?;
            if *json {
                users.iter().try_for_each(output::json)?
            } else {
                show(users)?
            }
            return Ok(ExitCode::SUCCESS);
        }
        Command::Disable { name } => (name, json!({ "disabled": true })),
        Command::Enable { name } => (name, json!({ "disabled": false })),
        Command::Limit { name, requests: None, bandwidth: None } => {
            let text = format!("no limit of {name}: say --requests or --bandwidth");
            return Err(Failure::usage(text));
        }
        Command::Limit { name, requests, bandwidth } => {
            let mut change = serde_json::Map::new();
            for (limit, value) in
                [("requests_per_second", requests), ("bytes_per_second", bandwidth)]
            {
                change.extend(value.map(|value| (limit.to_owned(), value.into())));
            }
            (name, change.into())
        }
        Command::Set { name, quota, objects, buckets, uploads } => {
            let quotas = [
                ("quota_bytes", quota),
                ("quota_objects", objects),
                ("quota_buckets", buckets),
                ("quota_uploads", uploads),
            ];
            let set = quotas.into_iter().filter_map(|(quota, value)| {
                value.map(|value| (quota.to_owned(), serde_json::Value::from(value)))
            });
            let change: serde_json::Map<_, _> = set.collect();
            if change.is_empty() {
                let text =
                    format!("no quota of {name}: say --quota, --objects, --buckets or --uploads");
                return Err(Failure::usage(text));
            }
            (name, change.into())
        }
    };
    if name.is_empty() {
        return Err(Failure::usage("the name is empty: `cairn user ls` lists the users"));
    }
    server.send_json("PATCH", &format!("/admin/users/{}", escape(name)), &change)?;
    Ok(ExitCode::SUCCESS)
}

fn show(users: Vec<User>) -> Result<()> {
    let row = |user: User| {
        let state = if user.disabled { "disabled" } else { "enabled" };
        let (keys, tokens) = (user.access_keys.to_string(), user.tokens.to_string());
        let (limits, used) = (limits(&user), used(&user.usage));
        vec![user.name, state.to_owned(), keys, tokens, limits, used, user.created]
    };
    let rows = users.into_iter().map(row).collect();
    output::table(&["USER", "STATE", "KEYS", "TOKENS", "LIMITS", "USED", "CREATED"], rows)
}

/// Shows the bytes that count for the quota, and the quota.
fn used(usage: &Usage) -> String {
    let used = output::human_bytes(usage.bytes.saturating_add(usage.upload_bytes));
    match usage.quota_bytes {
        0 => used,
        quota => format!("{used} of {}", output::human_bytes(quota)),
    }
}

fn limits(user: &User) -> String {
    let requests = match user.requests_per_second {
        0 => None,
        requests => Some(format!("{requests}/s")),
    };
    let bytes = match user.bytes_per_second {
        0 => None,
        bytes => Some(format!("{}/s", output::human_bytes(bytes))),
    };
    let both: Vec<String> = [requests, bytes].into_iter().flatten().collect();
    if both.is_empty() { "-".to_owned() } else { both.join(" ") }
}
