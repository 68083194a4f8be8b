//! `cairn user`

use std::process::ExitCode;

use serde::{Deserialize, Serialize};

use super::address::escape;
use crate::connection::Connection;
use crate::failure::{Failure, Result};
use crate::output;

/// List, disable and enable users; only root may
///
/// A user is made by `cairn key create NAME`.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn user ls
  cairn user disable alice
  cairn user enable alice")]
pub struct UserArgs {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    connection: Connection,
}

#[derive(clap::Subcommand)]
enum Command {
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
    Disable { name: String },
    /// Take the access keys and tokens of a user again
    #[command(after_help = "Example:\n  cairn user enable alice")]
    Enable { name: String },
}

#[derive(Serialize, Deserialize)]
struct User {
    name: String,
    created: String,
    disabled: bool,
    access_keys: u64,
    tokens: u64,
}

#[derive(Deserialize)]
struct Users {
    users: Vec<User>,
}

pub fn run(args: &UserArgs) -> Result<ExitCode> {
    let server = args.connection.open()?;
    let (name, disabled) = match &args.command {
        Command::Ls { json } => {
            let Users { users } = server.send("GET", "/admin/users")?.json()?;
            match json {
                true => users.iter().try_for_each(output::json)?,
                false => show(users)?,
            }
            return Ok(ExitCode::SUCCESS);
        }
        Command::Disable { name } => (name, true),
        Command::Enable { name } => (name, false),
    };
    if name.is_empty() {
        return Err(Failure::usage("the name is empty: `cairn user ls` lists the users"));
    }
    let change = serde_json::json!({ "disabled": disabled });
    server.send_json("PATCH", &format!("/admin/users/{}", escape(name)), &change)?;
    Ok(ExitCode::SUCCESS)
}

fn show(users: Vec<User>) -> Result<()> {
    let row = |user: User| {
        let state = if user.disabled { "disabled" } else { "enabled" };
        let (keys, tokens) = (user.access_keys.to_string(), user.tokens.to_string());
        vec![user.name, state.to_owned(), keys, tokens, user.created]
    };
    let rows = users.into_iter().map(row).collect();
    output::table(&["USER", "STATE", "KEYS", "TOKENS", "CREATED"], rows)
}
