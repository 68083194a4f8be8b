//! `cairn cluster join`: makes this machine's directory a node.

use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Arc;

use cairn_base::clock::RealClock;
use cairn_base::{Clock, Secret};
use cairn_cluster::identity::{Directory, JoinToken};
use cairn_cluster::wire::join;

use crate::failure::{Failure, Result};
use crate::output;
use crate::secret_file;

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
    #[arg(required_unless_present = "token_file")]
    token: Option<String>,
    /// Read the token from this file
    #[arg(long, value_name = "FILE", conflicts_with = "token")]
    token_file: Option<PathBuf>,
    /// Do nothing if DIR is a node of a cluster already, for starts of containers
    #[arg(long)]
    if_new: bool,
}

pub fn run(args: &JoinArgs) -> Result<ExitCode> {
    let shown = args.dir.display().to_string();
    let clock = Arc::new(RealClock::default());
    let directory = Directory::open(&args.dir).map_err(|error| Failure::from(error).of(&shown))?;
    if directory.load(clock.now())?.is_some() {
        if args.if_new {
            return Ok(ExitCode::SUCCESS);
        }
        return Err(Failure::new(format!(
            "{shown}: is a node of a cluster already: choose another directory"
        )));
    }
    let token = token(args)?;
    let key = directory.key()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let joined = runtime.block_on(join(&token, &key, clock))?;
    directory.save(&joined, &token.addresses)?;
    let (node, roles) = (joined.node, joined.roles);
    let role = roles.iter().next().map_or("", cairn_base::Role::word);
    output::line(format!("joined as node {node} ({roles}); start it: cairn {role} {shown}"))?;
    Ok(ExitCode::SUCCESS)
}

fn token(args: &JoinArgs) -> Result<JoinToken> {
    let text = match (args.token.as_deref(), &args.token_file) {
        (_, Some(path)) => secret_file::read(path)?,
        (Some("-") | None, _) => Secret::new(std::io::read_to_string(std::io::stdin())?),
        (Some(text), _) => Secret::new(text.to_owned()),
    };
    Ok(JoinToken::from_text(text.expose().trim())?)
}
