//! `cairn cluster join`: makes this machine's directory a node.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use cairn_base::clock::RealClock;
use cairn_base::{Clock, NodeId, Secret};
use cairn_cluster::identity::{Directory, JoinToken};
use cairn_cluster::wire::join;

use crate::dir::{DirectoryKind, DirectoryUse};
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
    if args.if_new && is_node(&args.dir)? {
        return Ok(ExitCode::SUCCESS);
    }
    DirectoryUse::Join.require(&args.dir)?;
    let (token, dir) = (token(args)?, &args.dir);
    let node = join_as(dir, &token)?;
    let (shown, roles) = (dir.display(), token.roles);
    let role = roles.iter().next().map_or("", cairn_base::Role::word);
    output::line(format!("joined as node {node} ({roles}); start it: cairn {role} {shown}"))?;
    Ok(ExitCode::SUCCESS)
}

/// Returns true if the directory belongs to a node of a cluster whose identity can be used.
fn is_node(dir: &Path) -> Result<bool> {
    let kinds = DirectoryKind::of(dir)?;
    if !kinds.iter().any(|kind| matches!(kind, DirectoryKind::Node(_))) {
        return Ok(false);
    }
    Ok(Directory::open(dir)?.load(RealClock::default().now())?.is_some())
}

/// Makes `dir` a node of the token's cluster.
pub fn join_as(dir: &Path, token: &JoinToken) -> Result<NodeId> {
    DirectoryUse::Join.require(dir)?;
    let shown = dir.display().to_string();
    let directory = Directory::open(dir).map_err(|error| Failure::from(error).of(&shown))?;
    let key = directory.key()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let joined = runtime.block_on(join(token, &key, Arc::new(RealClock::default())))?;
    directory.save(&joined, &token.addresses)?;
    Ok(joined.node)
}

fn token(args: &JoinArgs) -> Result<JoinToken> {
    let text = match (args.token.as_deref(), &args.token_file) {
        (_, Some(path)) => secret_file::read(path)?,
        (Some("-") | None, _) => Secret::new(std::io::read_to_string(std::io::stdin())?),
        (Some(text), _) => Secret::new(text.to_owned()),
    };
    Ok(JoinToken::from_text(text.expose().trim())?)
}
