//! `cairn cluster join`: makes this machine's directory a node.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use cairn_base::Clock;
use cairn_base::clock::RealClock;
use cairn_cluster::identity::{Directory, JoinToken};
use cairn_cluster::wire::join;

use crate::failure::{Failure, Result};
use crate::output;

/// Join a cluster with a token of `cairn cluster token`
///
/// Makes a key in DIR that never leaves it. If the command is interrupted, run it again.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn cluster join /srv/cairn-disk cairn-join-1....
  cairn cluster join /srv/cairn-disk - < token.txt")]
pub struct JoinArgs {
    /// The directory of the new node
    dir: PathBuf,
    /// The token, or - to read it from stdin, where other users of this machine do not see it
    token: String,
}

pub fn run(args: &JoinArgs) -> Result<ExitCode> {
    let text = match args.token.as_str() {
        "-" => std::io::read_to_string(std::io::stdin())?,
        text => text.to_owned(),
    };
    let token = JoinToken::from_text(text.trim())?;
    let shown = args.dir.display().to_string();
    let clock = Arc::new(RealClock::default());
    let directory = Directory::open(&args.dir).map_err(|error| Failure::from(error).of(&shown))?;
    if directory.load(clock.now())?.is_some() {
        return Err(Failure::new(format!(
            "{shown}: is a node of a cluster already: choose another directory"
        )));
    }
    let key = directory.key()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let joined = runtime.block_on(join(&token, &key, clock))?;
    directory.save(&joined, &token.addresses)?;
    let (node, roles) = (joined.node, joined.roles);
    let role = roles.iter().next().map_or("", cairn_base::Role::word);
    output::line(format!("joined as node {node} ({roles}); start it: cairn {role} {shown}"))?;
    Ok(ExitCode::SUCCESS)
}
