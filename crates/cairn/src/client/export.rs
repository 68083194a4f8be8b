//! `cairn export`

use std::process::{Command as Program, ExitCode};

use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::address::escape;
use crate::connection::{Connection, Server};
use crate::failure::{Failure, Result};
use crate::output;

/// Export buckets to clients of NFS; only root may
///
/// A client of NFS has no credentials: its address decides whether it gets in, and it acts as the
/// user that the export names, whose rights in the bucket decide. Nothing is exported by default.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn export add photos --client 10.0.0.0/8 --as alice --owner 1000:1000
  cairn export set photos --owner 1000:1000
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
  cairn export add photos --client 10.0.0.0/8 --as alice --owner 1000:1000
  cairn export add photos/2026 --client 10.0.0.0/8 --as alice --owner 1000:1000
  cairn export add public --client 0.0.0.0/0 --any-client --as guest --read-only --squash all"
    )]
    Add(Add),
    /// Give the exported directory to another owner
    #[command(after_help = "Example:\n  cairn export set photos --owner 1000:1000")]
    Set {
        /// The bucket, without a path
        bucket: String,
        /// The uid and gid of clients to whom the directory belongs from now on
        #[arg(long, value_name = "UID:GID", value_parser = parse_ids)]
        owner: Ids,
    },
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
    squash_to: Ids,
    /// The uid and gid of clients to whom the directory is given, if it still belongs to root, as a
    /// new bucket does [default: with --squash all those of --squash-to; otherwise those of USER,
    /// if this machine has a user of that name]
    #[arg(long, value_name = "UID:GID", value_parser = parse_ids)]
    owner: Option<Ids>,
}

/// A user and a group.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Ids {
    uid: u32,
    gid: u32,
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

fn parse_ids(text: &str) -> Result<Ids, String> {
    let ids = text.split_once(':').and_then(|(uid, gid)| uid.parse().ok().zip(gid.parse().ok()));
    let ids = ids.map(|(uid, gid)| Ids { uid, gid });
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
    /// Servers of earlier versions omit these.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner_uid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    owner_gid: Option<u32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    mode: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    user_may_write: Option<bool>,
}

#[derive(Deserialize)]
struct Exports {
    exports: Vec<Export>,
}

pub fn run(args: &ExportArgs) -> Result<ExitCode> {
    match &args.command {
        Command::Add(add) => add.run(&args.connection.open()?)?,
        Command::Set { bucket, owner: Ids { uid, gid } } => {
            let (bucket, path) = place_of(bucket)?;
            if path.is_some() {
                return Err(has_one(bucket));
            }
            let owner = serde_json::json!({ "owner": { "uid": uid, "gid": gid } });
            let path = format!("/admin/exports/{}", escape(bucket));
            args.connection.open()?.send_json("PATCH", &path, &owner)?;
        }
        Command::List { json } => {
            let exports = exports(&args.connection.open()?)?;
            if *json { exports.iter().try_for_each(output::json)? } else { show(exports)? }
        }
        Command::Remove { bucket } => {
            let (bucket, path) = place_of(bucket)?;
            if path.is_some() {
                return Err(has_one(bucket));
            }
            let bucket = escape(bucket);
            args.connection.open()?.send("DELETE", &format!("/admin/exports/{bucket}"))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn has_one(bucket: &str) -> Failure {
    Failure::usage(format!("a bucket has one export: name the bucket alone, {bucket}"))
}

fn exports(server: &Server) -> Result<Vec<Export>> {
    let Exports { exports } = server.send("GET", "/admin/exports")?.json()?;
    Ok(exports)
}

impl Add {
    fn run(&self, server: &Server) -> Result<()> {
        let (bucket, path) = place_of(&self.bucket)?;
        let squash = self.squash.to_possible_value();
        let Ids { uid, gid } = self.squash_to;
        let mut new = serde_json::json!({
            "bucket": bucket,
            "user": self.user,
            "clients": self.client,
            "any_client": self.any_client,
            "read_only": self.read_only,
            "squash": squash.as_ref().map(|value| value.get_name()),
            "uid": uid,
            "gid": gid,
        });
        if let Some(path) = path {
            new["path"] = path.into();
        }
        if let Some(Ids { uid, gid }) = self.owner() {
            new["owner"] = serde_json::json!({ "uid": uid, "gid": gid });
        }
        server.send_json("POST", "/admin/exports", &new)?;
        let of_bucket = |export: &&Export| export.bucket.split('/').next() == Some(bucket);
        if let Some(export) = exports(server)?.iter().find(of_bucket) {
            if let (None, Some(Ids { uid, gid })) = (self.owner, self.owner())
                && (export.owner_uid, export.owner_gid) == (Some(uid), Some(gid))
            {
                output::line(format!("{} belongs to {uid}:{gid}", export.bucket))?;
            }
            export.warnings(self.owner).iter().for_each(|text| output::complain(text));
        }
        Ok(())
    }

    /// Returns the owner to whom the directory is to be given.
    fn owner(&self) -> Option<Ids> {
        let default = match self.squash {
            _ if self.read_only => None,
            Squash::All => Some(self.squash_to),
            Squash::Root | Squash::None => local_ids(&self.user),
        };
        self.owner.or(default)
    }
}

/// Returns the ids of a user of this machine; nothing for root, who owns new directories already.
fn local_ids(user: &str) -> Option<Ids> {
    let id = |which: &str| {
        let asked = Program::new("id").args([which, "--", user]).output().ok()?;
        let text = String::from_utf8(asked.stdout).ok()?;
        text.trim().parse().ok().filter(|_| asked.status.success())
    };
    Some(Ids { uid: id("-u")?, gid: id("-g")? }).filter(|ids| ids.uid != 0)
}

impl Export {
    /// Says why clients cannot write at the top of a new export, and what to do. `wanted` is the
    /// owner that was asked for.
    fn warnings(&self, wanted: Option<Ids>) -> Vec<String> {
        let Export { bucket, user, .. } = self;
        let name = bucket.split('/').next().unwrap_or_default();
        let (Some(uid), Some(gid), Some(mode)) = (self.owner_uid, self.owner_gid, &self.mode)
        else {
            return Vec::new();
        };
        let mut said = Vec::new();
        if let Some(Ids { uid: to, gid: group }) = wanted.filter(|ids| *ids != Ids { uid, gid }) {
            said.push(format!(
                "{bucket} belonged to {uid}:{gid} before and still does: to change that, cairn \
                 export set {name} --owner {to}:{group}"
            ));
        }
        if self.read_only {
            return said;
        }
        if self.user_may_write == Some(false) {
            said.push(format!(
                "no client can write in {bucket}, since {user} may not: cairn bucket set {name} \
                 --grant {user}:read,write"
            ));
        }
        // Root of clients is squashed by default.
        let others = u32::from_str_radix(mode, 8).unwrap_or(0) & 0o022 != 0;
        let arrives = match self.squash.as_str() {
            "none" => true,
            "all" => self.uid == uid,
            _ => uid != 0 || self.uid == 0,
        };
        if !others && !arrives {
            said.push(format!(
                "no client can write at the top of {bucket}, which belongs to {uid}:{gid} with \
                 mode {mode}: cairn export set {name} --owner UID:GID, the ids of its users"
            ));
        }
        said
    }
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
        let owner = export.owner_uid.zip(export.owner_gid);
        let owner = owner.map_or("-".to_owned(), |(uid, gid)| format!("{uid}:{gid}"));
        let Export { bucket, user, disabled, clients, read_only, squash, uid, gid, .. } = export;
        let user = if disabled { format!("{user} (disabled)") } else { user };
        let access = if read_only { "read" } else { "read, write" };
        let squash = format!("{squash} to {uid}:{gid}");
        vec![bucket, clients.join(" "), user, access.to_owned(), squash, owner]
    };
    let rows = exports.into_iter().map(row).collect();
    output::table(&["BUCKET", "CLIENTS", "USER", "ACCESS", "SQUASH", "OWNER"], rows)
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
        assert_eq!(parse_ids("1000:100"), Ok(Ids { uid: 1000, gid: 100 }));
        for bad in ["", "1000", ":", "a:b", "1000:-1", "1:2:3", "4294967296:0"] {
            assert!(parse_ids(bad).is_err(), "{bad}");
        }
    }
}
