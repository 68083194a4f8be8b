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
pub struct Args {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    connection: Connection,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Export a bucket; clients mount /BUCKET, or any directory in it
    #[command(
        after_help = "Clients say themselves which uid and gid they act as: --squash says whom \
                            of them is not believed.

Examples:
  cairn export add photos --client 10.0.0.0/8 --as alice
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
    Remove { bucket: String },
}

#[derive(clap::Args)]
struct Add {
    bucket: String,
    /// A network that clients may be in, such as 10.0.0.0/8, or an address; several are fine
    #[arg(long, value_name = "NETWORK", required = true)]
    client: Vec<String>,
    /// Mean it where a network is that of all addresses
    #[arg(long)]
    any_client: bool,
    /// As whom the store knows the clients
    #[arg(long = "as", value_name = "USER")]
    user: String,
    /// Let clients change nothing
    #[arg(long)]
    read_only: bool,
    /// Whose uid and gid become those of --squash-to
    #[arg(long, value_enum, default_value_t = Squash::Root)]
    squash: Squash,
    /// Whom squashed clients are taken for
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

pub fn run(args: &Args) -> Result<ExitCode> {
    match &args.command {
        Command::Add(add) => {
            let bucket = bucket_of(&add.bucket)?;
            let squash = add.squash.to_possible_value();
            let (uid, gid) = add.squash_to;
            let new = serde_json::json!({
                "bucket": bucket,
                "user": add.user,
                "clients": add.client,
                "any_client": add.any_client,
                "read_only": add.read_only,
                "squash": squash.as_ref().map(|value| value.get_name()),
                "uid": uid,
                "gid": gid,
            });
            args.connection.open()?.send_json("POST", "/admin/exports", &new)?;
        }
        Command::List { json } => {
            let server = args.connection.open()?;
            let Exports { exports } = server.send("GET", "/admin/exports")?.json()?;
            if *json { exports.iter().try_for_each(output::json)? } else { show(exports)? }
        }
        Command::Remove { bucket } => {
            let bucket = escape(bucket_of(bucket)?);
            args.connection.open()?.send("DELETE", &format!("/admin/exports/{bucket}"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn bucket_of(text: &str) -> Result<&str> {
    let bucket = text.strip_suffix('/').unwrap_or(text);
    if bucket.is_empty() {
        return Err(Failure::usage("an empty name: see cairn bucket ls"));
    }
    match bucket.contains('/') {
        true => Err(Failure::usage(format!(
            "{text}: whole buckets are exported, no directories in them; clients may mount one"
        ))),
        false => Ok(bucket),
    }
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
    fn whole_buckets_are_exported() {
        assert_eq!(bucket_of("photos").unwrap(), "photos");
        assert_eq!(bucket_of("photos/").unwrap(), "photos");
        for bad in ["", "/", "photos/2025", "photos//", "/photos"] {
            assert!(bucket_of(bad).is_err(), "{bad}");
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
