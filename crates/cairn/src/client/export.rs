//! `cairn export`

use std::process::ExitCode;

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::address::escape;
use crate::connection::Connection;
use crate::failure::{Failure, Result};
use crate::output;

/// Export buckets to clients of NFS; only root may
///
/// A client of NFS has no credentials: its address decides whether it gets in, and it acts as the
/// user that the export names, whose rights in the bucket decide. Nothing is exported by default.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn export add photos --client 10.0.0.0/8 --as alice
  cairn export add music --client 192.168.7.4 --client fd00::/8 --as alice --read-only
  cairn export list
  cairn export remove photos")]
pub struct ExportArgs {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    connection: Connection,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Export a bucket, or a directory in it; clients mount that, or any directory in it
    #[command(
        after_help = "Clients name the uid and gid of each request. --squash replaces those of \
                      root, or of all.

Examples:
  cairn export add photos --client 10.0.0.0/8 --as alice
  cairn export add photos/2026 --client 10.0.0.0/8 --as alice
  cairn export add public --client 0.0.0.0/0 --any-client --as guest --read-only --squash all"
    )]
    Add(Add),
    /// List exports
    #[command(alias = "ls", after_help = "Example:\n  cairn export list --json | jq -r .bucket")]
    List {
        /// Print one line of JSON for each
        #[arg(long)]
        json: bool,
    },
    /// End the export of a bucket, at once and for all who have mounted it
    #[command(alias = "rm", after_help = "Example:\n  cairn export remove photos")]
    Remove {
        /// The bucket, without a path
        bucket: String,
    },
}

#[derive(clap::Args)]
struct Add {
    /// The directory that clients mount as /BUCKET[/PATH]; they reach nothing beyond
    #[arg(value_name = "BUCKET[/PATH]")]
    bucket: String,
    /// A network of clients, such as 10.0.0.0/8, or an address; may be given several times
    #[arg(long, value_name = "NETWORK", required = true)]
    client: Vec<String>,
    /// Allow a network of all addresses
    #[arg(long)]
    any_client: bool,
    /// The user of the store as which clients act
    #[arg(long = "as", value_name = "USER")]
    user: String,
    /// Refuse all changes by clients
    #[arg(long)]
    read_only: bool,
    /// The users whose uid and gid become those of --squash-to
    #[arg(long, value_enum, default_value_t = Squash::Root)]
    squash: Squash,
    /// The uid and gid of squashed clients
    #[arg(long, value_name = "UID:GID", default_value = "65534:65534", value_parser = parse_ids)]
    squash_to: (u32, u32),
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Squash {
    /// Root, and its group
    Root,
    /// Everybody
    All,
    /// Nobody
    None,
}

fn parse_ids(text: &str) -> Result<(u32, u32), String> {
    let ids = text.split_once(':').and_then(|(uid, gid)| uid.parse().ok().zip(gid.parse().ok()));
    ids.ok_or_else(|| "use two numbers, such as 1000:1000".to_owned())
}

#[derive(Serialize, Deserialize)]
struct Export {
    bucket: String,
    user: String,
    disabled: bool,
    clients: Vec<String>,
    read_only: bool,
    squash: String,
    uid: u32,
    gid: u32,
    created: String,
}

#[derive(Deserialize)]
struct Exports {
    exports: Vec<Export>,
}

pub fn run(args: &ExportArgs) -> Result<ExitCode> {
    match &args.command {
        Command::Add(add) => {
            let (bucket, path) = place_of(&add.bucket)?;
            let squash = add.squash.to_possible_value();
            let (uid, gid) = add.squash_to;
            let mut new = serde_json::json!({
                "bucket": bucket,
                "user": add.user,
                "clients": add.client,
                "any_client": add.any_client,
                "read_only": add.read_only,
                "squash": squash.as_ref().map(|value| value.get_name()),
                "uid": uid,
                "gid": gid,
            });
            if let Some(path) = path {
                new["path"] = path.into();
            }
            args.connection.open()?.send_json("POST", "/admin/exports", &new)?;
        }
        Command::List { json } => {
            let server = args.connection.open()?;
            let Exports { exports } = server.send("GET", "/admin/exports")?.json()?;
            if *json { exports.iter().try_for_each(output::json)? } else { show(exports)? }
        }
        Command::Remove { bucket } => {
            let (bucket, path) = place_of(bucket)?;
            if path.is_some() {
                return Err(Failure::usage(format!(
                    "a bucket has one export: name the bucket alone, {bucket}"
                )));
            }
            let bucket = escape(bucket);
            args.connection.open()?.send("DELETE", &format!("/admin/exports/{bucket}"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Splits a bucket from a directory in it.
fn place_of(text: &str) -> Result<(&str, Option<&str>)> {
    let place = text.strip_suffix('/').unwrap_or(text);
    let (bucket, path) = match place.split_once('/') {
        Some((bucket, path)) => (bucket, Some(path)),
        None => (place, None),
    };
    let is_name = |name: &str| !matches!(name, "" | "." | "..");
    if !is_name(bucket) || !path.is_none_or(|path| path.split('/').all(is_name)) {
        return Err(Failure::usage(format!("{text:?}: use BUCKET or BUCKET/PATH")));
    }
    Ok((bucket, path))
}

fn show(exports: Vec<Export>) -> Result<()> {
    let row = |export: Export| {
        let Export { bucket, user, disabled, clients, read_only, squash, uid, gid, .. } = export;
        let user = if disabled { format!("{user} (disabled)") } else { user };
        let access = if read_only { "read" } else { "read, write" };
        let squash = format!("{squash} to {uid}:{gid}");
        vec![bucket, clients.join(" "), user, access.to_owned(), squash]
    };
    let rows = exports.into_iter().map(row).collect();
    output::table(&["BUCKET", "CLIENTS", "USER", "ACCESS", "SQUASH"], rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buckets_and_directories_in_them_are_exported() {
        assert_eq!(place_of("photos").unwrap(), ("photos", None));
        assert_eq!(place_of("photos/").unwrap(), ("photos", None));
        assert_eq!(place_of("photos/2025/a").unwrap(), ("photos", Some("2025/a")));
        for bad in ["", "/", "photos//", "/photos", "photos/../a", "photos/./a", "..", "a//b"] {
            assert!(place_of(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn ids_are_two_numbers() {
        assert_eq!(parse_ids("1000:100"), Ok((1000, 100)));
        for bad in ["", "1000", ":", "a:b", "1000:-1", "1:2:3", "4294967296:0"] {
            assert!(parse_ids(bad).is_err(), "{bad}");
        }
    }
}
