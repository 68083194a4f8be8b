//! `cairn share`

use std::io::Read;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use cairn_base::Secret;
use cairn_bench::values::size;
use serde::{Deserialize, Serialize};

use super::address::{Address, escape};
use super::api;
use super::key::parse_seconds;
use crate::connection::{Connection, Server};
use crate::failure::{Failure, Result};
use crate::output;

/// Make, list and end share links: addresses by which anybody reads a part of a bucket
///
/// A share link acts as the user that made it: it ends when that user may no longer read, is
/// disabled, or loses the key or token that made the link.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn share add photos/cat.jpg
  cairn share add photos/2026/ --expires 30d --downloads 10
  cairn share add photos/cat.jpg --password-file password.txt
  cairn share add inbox/bob/ --upload --max-files 20 --max-bytes 1g
  cairn share ls
  cairn share rm 2-ABCDEFGHIJKL")]
pub struct ShareArgs {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    connection: Connection,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Make a share link of an object, or of all below a prefix, and print its address, once
    #[command(after_help = "Example:\n  cairn share add photos/2026/ --expires 12h")]
    Add {
        /// An object; or a prefix, which ends in /
        #[arg(value_name = "BUCKET/KEY")]
        address: String,
        /// Validity of the link: a number with s, m, h or d
        #[arg(long, value_name = "TIME", default_value = "7d", value_parser = parse_seconds)]
        expires: u32,
        /// Require the password in the first line of this file; - for standard input
        #[arg(long, value_name = "FILE")]
        password_file: Option<PathBuf>,
        /// Allow this many downloads; without this any number
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
        downloads: Option<u64>,
        /// Let others add files below the prefix, and show them nothing
        #[arg(long, conflicts_with = "downloads")]
        upload: bool,
        /// Largest number of files that others may add
        #[arg(long, value_name = "N", requires = "upload")]
        max_files: Option<u64>,
        /// Largest number of bytes that others may add, such as 5g
        #[arg(long, value_name = "SIZE", requires = "upload", value_parser = size)]
        max_bytes: Option<u64>,
        /// Print one line of JSON
        #[arg(long)]
        json: bool,
    },
    /// List your share links, without their addresses
    #[command(after_help = "Example:\n  cairn share ls --json | jq -r .id")]
    Ls {
        /// List the links of all users; only root may
        #[arg(long)]
        all: bool,
        /// Print one line of JSON for each
        #[arg(long)]
        json: bool,
    },
    /// End a share link, at once
    #[command(after_help = "Example:\n  cairn share rm 2-ABCDEFGHIJKL")]
    Rm {
        /// The id, as `cairn share ls` shows it
        id: String,
    },
}

/// A new share link. It has no `Debug`: its path holds a secret.
#[derive(Serialize, Deserialize)]
struct CreatedShareLink {
    id: String,
    path: String,
    expires: String,
    #[serde(default)]
    url: String,
}

#[derive(Serialize, Deserialize)]
struct ShareLink {
    id: String,
    user: String,
    bucket: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prefix: Option<String>,
    created: String,
    expires: String,
    password: bool,
    downloads: u64,
    downloaded: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uploads: Option<serde_json::Value>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    uploaded: Option<serde_json::Value>,
    live: bool,
}

#[derive(Deserialize)]
struct Page {
    shares: Vec<ShareLink>,
    next: Option<String>,
}

pub fn run(args: &ShareArgs) -> Result<ExitCode> {
    let server = args.connection.open()?;
    match &args.command {
        Command::Add {
            address,
            expires,
            password_file,
            downloads,
            upload,
            max_files,
            max_bytes,
            json,
        } => {
            let address = Address::parse(address)?;
            let shared = address.clone();
            let is_prefix = address.key.is_empty() || address.key.ends_with('/');
            let mut new = serde_json::json!({ "bucket": address.bucket, "expires_s": expires });
            new[if is_prefix { "prefix" } else { "key" }] = address.key.into();
            if let Some(downloads) = downloads {
                new["downloads"] = (*downloads).into();
            }
            if *upload {
                new["uploads"] = serde_json::json!({});
            }
            for (name, most) in [("files", max_files), ("bytes", max_bytes)] {
                if let Some(most) = most {
                    new["uploads"][name] = (*most).into();
                }
            }
            if let Some(file) = password_file {
                new["password"] = password(file)?.expose().as_str().into();
            }
            let failed = |failure| {
                let folder = format!("a link of all below it is that of {shared}/");
                api::of_object(&server, &shared, failure, &folder)
            };
            let sent = server.send_json("POST", "/shares", &new).map_err(failed)?;
            let mut made: CreatedShareLink = sent.json()?;
            made.url = format!("{}{}", args.connection.known()?.base, made.path);
            if *json {
                output::json(&made)?
            } else {
                output::line(&made.url)?;
                output::note(&format!("the link ends at {}", made.expires));
            }
        }
        Command::Ls { all, json } => list(&server, *all, *json)?,
        Command::Rm { id } => {
            if id.is_empty() {
                return Err(Failure::usage("the id is empty: `cairn share ls` lists the links"));
            }
            server.send("DELETE", &format!("/shares/{}", escape(id)))?;
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Reads the first line of a file.
fn password(file: &Path) -> Result<Secret<String>> {
    let failed = |error: std::io::Error| Failure::new(format!("{}: {error}", file.display()));
    let mut text = String::new();
    if file.as_os_str() == "-" {
        std::io::stdin().read_to_string(&mut text).map_err(failed)?;
    } else {
        text = std::fs::read_to_string(file).map_err(failed)?;
    }
    let text = Secret::new(text);
    let line = text.expose().lines().next().unwrap_or_default();
    if line.is_empty() {
        Err(Failure::new(format!("{}: its first line is empty", file.display())))
    } else {
        Ok(Secret::new(line.to_owned()))
    }
}

fn list(server: &Server, all: bool, json: bool) -> Result<()> {
    let all = if all { "&all" } else { "" };
    let (mut rows, mut after) = (Vec::new(), String::new());
    loop {
        let path = format!("/shares?after={}{all}", escape(&after));
        let Page { shares, next } = server.send("GET", &path)?.json()?;
        if json {
            shares.iter().try_for_each(output::json)?;
        } else {
            rows.extend(shares.into_iter().map(row));
        }
        match next {
            Some(next) => after = next,
            None if json => return Ok(()),
            None => break,
        }
    }
    output::table(&["ID", "USER", "OF", "EXPIRES", "DOWNLOADS", "STATE"], rows)
}

fn row(link: ShareLink) -> Vec<String> {
    let of = format!("{}/{}", link.bucket, link.key.or(link.prefix).unwrap_or_default());
    let downloads = match link.downloads {
        0 => String::new(),
        most => format!("{} of {most}", link.downloaded),
    };
    let state = match (link.live, link.password) {
        (false, _) => "ended",
        (true, _) if link.uploads.is_some() => "takes files",
        (true, true) => "password",
        (true, false) => "open",
    };
    vec![link.id, link.user, of, link.expires, downloads, state.to_owned()]
}
