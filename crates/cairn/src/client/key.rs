//! `cairn key`

use std::path::PathBuf;
use std::process::ExitCode;

use cairn_base::Secret;
use serde::{Deserialize, Serialize};

use super::address::escape;
use crate::connection::{Connection, Server};
use crate::failure::{Failure, Result};
use crate::metadata::MetaArgs;
use crate::offline::{self, key::NewKey};
use crate::output;
use crate::secret_file;

/// Make, list and remove access keys and tokens: root those of all users, and users their own
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn key create alice
  cairn key create --own
  cairn key token alice --expires 30d
  cairn key create root --dir /srv/cairn   (server stopped: when root's keys are lost)")]
pub struct KeyArgs {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    connection: Connection,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Make an access key and print it with its secret, once
    #[command(after_help = "The user is made if there is none of that name.

Examples:
  cairn key create alice --json > alice.json
  cairn key create alice --id AKIAEXAMPLE --secret-file secret.txt   (a key that clients have)")]
    Create {
        /// The user that gets the key
        #[arg(required_unless_present = "own")]
        user: Option<String>,
        /// Make a further access key of the user whose key is used; every user may
        #[arg(long, conflicts_with_all = ["user", "dir"])]
        own: bool,
        /// Write the key into this data directory; no server may be using it
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
        #[command(flatten)]
        meta: MetaArgs,
        #[command(flatten)]
        known: KnownKey,
        /// Print one line of JSON
        #[arg(long)]
        json: bool,
    },
    /// List access keys and tokens, without their secrets
    #[command(after_help = "Example:\n  cairn key ls --json | jq -r .id")]
    Ls {
        /// List those of the user whose key is used; every user may
        #[arg(long)]
        own: bool,
        /// Print one line of JSON for each
        #[arg(long)]
        json: bool,
    },
    /// Remove an access key or a token; it stops working at once
    #[command(after_help = "Example:\n  cairn key rm CK2XHLQ7ZMWPT4RDNB5A")]
    Rm {
        /// The id, as `cairn key ls` shows it
        id: String,
        /// Remove one of the user whose key is used; every user may
        #[arg(long)]
        own: bool,
    },
    /// Make a bearer token for a user and print it, once
    #[command(after_help = "Example:\n  cairn key token alice --expires 12h")]
    Token {
        /// The user that gets the token
        user: String,
        /// Validity of the token: a number with s, m, h or d; without this it never expires
        #[arg(long, value_name = "TIME", value_parser = parse_seconds)]
        expires: Option<u32>,
        /// Print one line of JSON
        #[arg(long)]
        json: bool,
    },
}

/// An access key that is there already, of another store.
#[derive(clap::Args)]
struct KnownKey {
    /// Id of the access key, instead of a new one: 3 to 64 of A-Z a-z 0-9 . _ -
    #[arg(long, value_name = "ID", requires = "secret_file", conflicts_with_all = ["dir", "own"])]
    id: Option<String>,
    /// File with the secret, instead of a new one: 16 to 128 printable ASCII characters; - for
    /// stdin
    #[arg(long, value_name = "FILE", requires = "id")]
    secret_file: Option<PathBuf>,
}

/// Request to make a credential. It has no `Debug`: it holds a secret.
#[derive(Serialize)]
struct KeyRequest<'a> {
    user: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    id: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    secret: Option<&'a str>,
}

fn create(server: &Server, user: &str, known: &KnownKey) -> Result<NewKey> {
    let secret = known.secret_file.as_deref().map(secret_file::read).transpose()?;
    let secret = secret.as_ref().map(|secret| secret.expose().as_str());
    let wanted = KeyRequest { user, id: known.id.as_deref(), secret };
    server.send_json("POST", "/admin/keys", &wanted)?.json()
}

pub fn parse_seconds(text: &str) -> Result<u32, String> {
    let bad = || "use a number of s, m, h or d, such as 30d".to_owned();
    let unit = text.chars().last().ok_or_else(bad)?;
    let seconds = match unit {
        's' => 1,
        'm' => 60,
        'h' => 3600,
        'd' => 86_400,
        _ => return Err(bad()),
    };
    let number = text.strip_suffix(unit).and_then(|number| number.parse::<u32>().ok());
    number.and_then(|number| number.checked_mul(seconds)).filter(|secs| *secs > 0).ok_or_else(bad)
}

/// A new token. It has no `Debug`: it holds a secret.
#[derive(Serialize, Deserialize)]
struct NewToken {
    id: String,
    token: String,
}

#[derive(Serialize, Deserialize)]
struct Key {
    id: String,
    user: String,
    kind: String,
    created: String,
    expires: Option<String>,
}

#[derive(Deserialize)]
struct Keys {
    keys: Vec<Key>,
}

pub fn run(args: &KeyArgs) -> Result<ExitCode> {
    if let Command::Create { user: Some(user), dir: Some(dir), meta, json, .. } = &args.command {
        show_key(&offline::key::create(dir, meta, user)?, *json)?;
        return Ok(ExitCode::SUCCESS);
    }
    let server = args.connection.open()?;
    match &args.command {
        Command::Create { user: Some(user), known, json, .. } => {
            let new = create(&server, user, known)?;
            match (known.secret_file.is_some(), *json) {
                // The secret is there already, and is shown nowhere again.
                (true, false) => output::line(format!("access key  {}", new.id))?,
                (true, true) => output::json(&serde_json::json!({ "id": new.id }))?,
                (false, json) => show_key(&new, json)?,
            }
        }
        Command::Create { user: None, json, .. } => {
            show_key(&server.send_json("POST", "/keys", &serde_json::json!({}))?.json()?, *json)?;
        }
        Command::Ls { own, json } => {
            let Keys { keys } = server.send("GET", place_of(*own))?.json()?;
            if *json { keys.iter().try_for_each(output::json)? } else { show_keys(keys)? }
        }
        Command::Rm { id, own } => {
            if id.is_empty() {
                return Err(Failure::usage("the id is empty: `cairn key ls` lists the keys"));
            }
            server.send("DELETE", &format!("{}/{}", place_of(*own), escape(id)))?;
        }
        Command::Token { user, expires, json } => {
            let mut wanted = serde_json::json!({ "user": user });
            if let Some(secs) = expires {
                wanted["expires_s"] = (*secs).into();
            }
            let new: NewToken = server.send_json("POST", "/admin/tokens", &wanted)?.json()?;
            if *json { output::json(&new)? } else { output::line(&new.token)? }
        }
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the path of the keys of the caller, or of all users.
fn place_of(is_own: bool) -> &'static str {
    if is_own { "/keys" } else { "/admin/keys" }
}

fn show_key(new: &NewKey, json: bool) -> Result<()> {
    if json {
        return output::json(new);
    }
    let text = Secret::new(format!("access key  {}\nsecret key  {}", new.id, new.secret));
    output::line(text.expose())
}

fn show_keys(keys: Vec<Key>) -> Result<()> {
    let row = |key: Key| {
        let expires = key.expires.unwrap_or_else(|| "never".to_owned());
        vec![key.id, key.user, key.kind, key.created, expires]
    };
    let rows = keys.into_iter().map(row).collect();
    output::table(&["ID", "USER", "KIND", "CREATED", "EXPIRES"], rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        assert_eq!(parse_seconds("90s"), Ok(90));
        assert_eq!(parse_seconds("2d"), Ok(172_800));
        for bad in ["", "d", "0s", "1", "-1h", "1w", "99999d", "1é"] {
            assert!(parse_seconds(bad).is_err(), "{bad}");
        }
    }
}
