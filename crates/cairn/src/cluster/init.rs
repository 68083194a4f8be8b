//! `cairn cluster init`: a new cluster, with this node as its first master.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use cairn_auth::{Caller, NewCredential};
use cairn_base::clock::RealClock;
use cairn_base::map::Node;
use cairn_base::rng::RealRng;
use cairn_base::{Clock, ClusterId, ClusterMap, NodeId, Pin, Rng, Role, Roles, Secret};
use cairn_cluster::identity::{Ca, Directory, JoinResult, KnownNode};
use cairn_meta::Master;
use cairn_meta::ops::cluster::{GetMap, PutMap};
use cairn_meta::ops::credentials::AddAccessKey;
use cairn_meta::ops::sessions::Format;

use crate::dir::{CLUSTER_FILE, DataDir, DirectoryUse, MetaPlace};
use crate::failure::{Failure, Result};
use crate::members::{self, Alone};
use crate::metadata::{MetaArgs, Metadata};
use crate::node::host_and_port;
use crate::output;
use crate::server::welcome;

/// Make a new cluster, with a first master in DIR
///
/// Makes the authority that vouches for nodes, the metadata, and the first credentials of users,
/// which are printed, once. Nothing runs yet: start `cairn master DIR` next.
#[derive(clap::Args)]
#[command(after_help = "Environment:
  CAIRN_ROOT_KEY, CAIRN_ROOT_SECRET  an access key of root to use instead of a generated one

Examples:
  cairn cluster init /srv/cairn-master --address 10.0.0.1:7400
  cairn cluster init /srv/cairn-master --address 10.0.0.1:7400 --engine embedded
  cairn cluster init /srv/cairn-master --address 10.0.0.1:7400 \\
      --meta postgres://cairn:password@db/cairn --replicas 3 --minimum 2")]
pub struct InitArgs {
    /// The directory of the first master: missing or empty
    dir: PathBuf,
    /// HOST:PORT at which other nodes will reach this master
    #[arg(long, value_name = "HOST:PORT", value_parser = host_and_port)]
    address: String,
    #[command(flatten)]
    meta: MetaArgs,
    /// How masters keep the metadata where they are not in a database: `raft` on the disks of one,
    /// three or five masters, `embedded` on the disk of one that stays alone
    #[arg(
        long,
        value_name = "ENGINE",
        value_enum,
        default_value = "raft",
        conflicts_with = "meta"
    )]
    engine: EngineName,
    /// Number of replicas of each block, 1 to 5
    #[arg(long, value_name = "N", default_value_t = 3)]
    #[arg(value_parser = clap::value_parser!(u8).range(1..=5))]
    replicas: u8,
    /// Least number of replicas of an acknowledged write while nodes are away [default: 2, or 1
    /// with one replica]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(1..=5))]
    minimum: Option<u8>,
    /// Do nothing if DIR is a node of a cluster already, for starts of containers
    #[arg(long)]
    if_new: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, clap::ValueEnum)]
enum EngineName {
    Raft,
    Embedded,
}

impl InitArgs {
    fn place(&self) -> MetaPlace {
        match (self.meta.place(), self.engine) {
            (MetaPlace::Directory, EngineName::Raft) => MetaPlace::Members,
            (place, _) => place,
        }
    }
}

/// Commands that come next, to be shown.
pub enum Next<'a> {
    Roles,
    /// For the cluster of the machine with this directory.
    Machine(&'a Path),
}

pub fn run(args: &InitArgs) -> Result<ExitCode> {
    make(args, Next::Roles)?;
    Ok(ExitCode::SUCCESS)
}

/// Makes the cluster, and shows its first credentials.
pub fn make(args: &InitArgs, next: Next<'_>) -> Result<()> {
    let preset = welcome::preset()?;
    let minimum = args.minimum.unwrap_or(args.replicas.min(2));
    if minimum > args.replicas {
        return Err(Failure::usage(format!(
            "--minimum {minimum} is more than --replicas {}: use at most that",
            args.replicas
        )));
    }
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let rng: Arc<dyn Rng> = Arc::new(RealRng);
    let clock: Arc<dyn Clock> = Arc::new(RealClock::default());
    if args.if_new && args.dir.join(CLUSTER_FILE).exists() {
        return Ok(());
    }
    let purpose = DirectoryUse::FirstMaster(args.place());
    let dir = DataDir::open_or_create(&args.dir, purpose, args.place(), &*rng)?;
    let seal = dir.seal_key(&*rng)?;
    let cluster = ClusterId(u128::from_be_bytes(dir.format.cluster));
    let directory = Directory::open(&args.dir)?;
    let ca = Ca::init(cluster, clock.now(), &*rng)?;
    let key = directory.key()?;
    let (node, roles) = (NodeId(1), Roles::from(Role::Master));
    let certificate = ca.issue(node, roles, &key.public(), clock.now(), &*rng)?;
    let pin = Pin { key: key.public().hash(), roles };

    let is_preset = preset.is_some();
    let credential = match preset {
        Some((id, secret)) => NewCredential { id, secret },
        None => cairn_auth::generate(&*rng),
    };
    let sealed = seal.seal(&*rng, &credential.id, &credential.secret);
    let first = ClusterMap {
        epoch: 1,
        replicas: args.replicas,
        minimum,
        nodes: [(node, Node { address: args.address.clone(), ..Node::new(pin) })].into(),
        next_node: 2,
        next_group: 1,
        ..ClusterMap::default()
    };
    runtime.block_on(write(args, &dir, &clock, node, first, &credential.id, sealed))?;
    directory.save_ca(&ca)?;
    let masters = vec![KnownNode { node, pin }];
    let authority = ca.authority().clone();
    let joined = JoinResult { node, roles, certificate, authority, masters };
    directory.save(&joined, std::slice::from_ref(&args.address))?;
    show(&credential, is_preset, args, next)
}

/// Writes the first rows to the place in which this cluster keeps its metadata.
async fn write(
    args: &InitArgs,
    dir: &DataDir,
    clock: &Arc<dyn Clock>,
    node: NodeId,
    first: ClusterMap,
    id: &str,
    sealed: Vec<u8>,
) -> Result<()> {
    match (args.meta.database(), args.place()) {
        (Some(config), _) => {
            let metadata = tokio::task::block_in_place(|| Metadata::in_database(&config))?;
            fill(&metadata, dir, clock, first, id, sealed).await
        }
        (None, MetaPlace::Members) => {
            // Remains of an interrupted run were never used: `cluster.toml` comes last.
            let alone = Alone::found(dir, node, members::FIRST_GENERATION).await?;
            fill(&alone.metadata, dir, clock, first, id, sealed).await?;
            alone.close().await;
            Ok(())
        }
        (None, _) => fill(&Metadata::in_directory(dir)?, dir, clock, first, id, sealed).await,
    }
}

/// Writes the first rows.
async fn fill(
    metadata: &Metadata,
    dir: &DataDir,
    clock: &Arc<dyn Clock>,
    map: ClusterMap,
    id: &str,
    sealed: Vec<u8>,
) -> Result<()> {
    let system = Caller::system();
    let (engine, clock) = (Arc::clone(&metadata.engine), Arc::clone(clock));
    let config = metadata.config.clone();
    let master = tokio::task::block_in_place(|| Master::start(engine, clock, config))?;
    let (_, is_new) = master.run(&system, Format { cluster: dir.format.cluster_number() }).await?;
    if !is_new || master.read(&system, GetMap).await?.is_some() {
        return Err(metadata.foreign("holds metadata already"));
    }
    let (id, user) = (id.to_owned(), "root".to_owned());
    master.run(&system, AddAccessKey { id, sealed, user, replace: false }).await?;
    master.run(&system, PutMap { map: map.encode() }).await?;
    tokio::task::block_in_place(|| master.stop());
    Ok(())
}

/// Shows the first credentials. Credentials that were given are not shown: the output may be kept.
fn show(
    credential: &NewCredential,
    is_preset: bool,
    args: &InitArgs,
    next: Next<'_>,
) -> Result<()> {
    let (id, secret, dir) = (&credential.id, credential.secret.expose(), args.dir.display());
    let address = &args.address;
    let shown = if is_preset {
        format!("A new cluster. The access key of root is {id}.")
    } else {
        format!(
            "A new cluster. Its first credentials, shown only this once:\n\n  \
             access key  {id}\n  secret key  {secret}"
        )
    };
    let shown = Secret::new(shown);
    if let Next::Machine(dir) = next {
        let text = Secret::new(format!(
            "{}

For each further machine, while this one runs:

  cairn cluster token {} --machine
",
            shown.expose(),
            dir.display()
        ));
        return output::line(text.expose());
    }
    let more = match args.place() {
        MetaPlace::Directory => String::new(),
        _ => format!(
            "  cairn cluster token {dir} --role master          one for each further master\n"
        ),
    };
    let text = Secret::new(format!(
        "{}

Next:

  cairn master {dir} --listen {address}
{more}  cairn cluster token {dir} --role chunkserver     one for each disk
  cairn cluster token {dir} --role gateway         one for each gateway
",
        shown.expose()
    ));
    output::line(text.expose())
}
