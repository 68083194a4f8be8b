//! `cairn bench meta`: a master and its engine, without doors, sessions or a network.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use cairn_auth::{Caller, Visibility};
use cairn_base::clock::RealClock;
use cairn_base::rng::RealRng;
use cairn_base::{Disk, DiskFile, Ino, RealDisk, Rng, Secret, UserId};
use cairn_bench::load::{Repeat, Sample};
use cairn_bench::report::{Axis, Key, NamedTarget};
use cairn_bench::session::{Case, Output, Session};
use cairn_bench::{Error, Result, Scratch, stop, values};
use cairn_meta::Master;
use cairn_meta::engine::{EmbeddedEngine, Engine, Postgres, embedded, postgres};
use cairn_meta::master::Config;
use cairn_meta::ops::{buckets::CreateBucket, create::Create, lookup::Lookup, mkdir::Mkdir};
use cairn_meta::rows::BucketKind;
use tokio::runtime::Runtime;

use super::layer_error::failed;
use crate::metadata;

/// Size of the writes to the disk that are measured in turns with the engine.
const PROBE_BYTES: u64 = 64 << 20;
const PROBE_BLOCK: usize = 4096;
const NEEDED_BYTES: u64 = 1 << 30;
const DIRECTORIES: u64 = 1000;
/// Number of files that are looked up.
const FILES: u64 = 10_000;

/// Cairn's metadata alone: creates and lookups of a master in this process
///
/// Each in flight is a task that asks again when it is answered. A create is durable when it is
/// answered; creates are compared with the disk that DIR is on: one 4 KiB block written in place
/// and synced after another. Works in a directory of its own below DIR, or in a schema of its own,
/// which it removes.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn bench meta /var/tmp
  cairn bench meta /var/tmp --loads create --in-flight 1,64,1024 --json creates.json
  CAIRN_META=postgres://cairn@db/cairn cairn bench meta /var/tmp")]
pub struct MetaBenchArgs {
    /// A directory on the disk to measure; the files made in it are removed in the end
    dir: PathBuf,
    /// Keep the metadata in this PostgreSQL database instead of DIR
    #[arg(long, value_name = "URL", env = "CAIRN_META", hide_env_values = true)]
    #[arg(value_parser = metadata::secret)]
    meta: Option<Secret<String>>,
    /// Loads to measure: lookups of names that are in memory, lookups of names that do not exist,
    /// creates in one directory, creates in a thousand
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum)]
    #[arg(default_value = "lookup,miss,create,create-spread")]
    loads: Vec<Load>,
    /// Numbers of operations at the same time
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,64,1024")]
    #[arg(value_parser = values::count)]
    in_flight: Vec<usize>,
    /// Duration of each load in each round, such as 2s
    #[arg(short, long, value_name = "TIME", default_value = "2s")]
    #[arg(value_parser = values::some_duration)]
    duration: Duration,
    /// Number of rounds; results are medians over rounds
    #[arg(short, long, value_name = "N", default_value = "3", value_parser = values::count)]
    rounds: usize,
    #[command(flatten)]
    output: Output,
}

#[derive(Clone, Copy, PartialEq, Debug, clap::ValueEnum)]
enum Load {
    Lookup,
    Miss,
    Create,
    CreateSpread,
}

impl Load {
    fn name(self) -> String {
        match self {
            Load::Lookup => "lookup, in memory".to_owned(),
            Load::Miss => "lookup of what is not there".to_owned(),
            Load::Create => "create, in one directory".to_owned(),
            Load::CreateSpread => format!("create, in {DIRECTORIES} directories"),
        }
    }

    fn writes(self) -> bool {
        matches!(self, Load::Create | Load::CreateSpread)
    }
}

pub fn run(args: &MetaBenchArgs) -> Result<()> {
    stop::listen();
    let (disk, master) = ("disk", "master");
    let named = |name: &str, target: String| NamedTarget { name: name.to_owned(), target };
    let probe = format!("{}, 4 KiB written in place and synced", args.dir.display());
    let place = match &args.meta {
        Some(_) => "in PostgreSQL".to_owned(),
        None => format!("in {}", args.dir.display()),
    };
    let targets = vec![named(disk, probe), named(master, place)];
    let mut session = Session::begin("meta", targets, &args.output)?;
    let scratch = Scratch::new(&args.dir, NEEDED_BYTES)?;
    let runtime = Runtime::new().map_err(failed)?;
    session.say("making files to look up");
    let store = Store::new(scratch.path(), args.meta.as_ref(), &runtime)?;
    let mut cases = Vec::new();
    for &load in &args.loads {
        for &hands in &args.in_flight {
            let key = |target: &str| Key {
                target: target.to_owned(),
                what: load.name(),
                axis: Axis { name: "in flight".to_owned(), value: hands as f64 },
            };
            let repeat = Repeat { hands, duration: args.duration, most: u64::MAX };
            let (store, runtime) = (&store, &runtime);
            if load.writes() {
                let run = Box::new(move || store.sync_disk(repeat));
                cases.push(Case { key: key(disk), run });
            }
            let run = Box::new(move || runtime.block_on(store.ask(load, repeat)));
            cases.push(Case { key: key(master), run });
        }
    }
    session.run(cases, args.rounds);
    let removed = store.remove().and_then(|()| scratch.remove());
    session.end()?;
    removed
}

/// A bucket with files in its top directory, and directories.
struct Store {
    master: Master,
    schema: Option<Schema>,
    caller: Caller,
    top: Ino,
    directories: Arc<[Ino]>,
    probe: Arc<dyn DiskFile>,
    /// Number of runs: names are those of one run.
    runs: AtomicU64,
}

fn name(run: u64, number: u64) -> Vec<u8> {
    format!("file-{run:04}-{number:012}").into_bytes()
}

fn create(parent: Ino, run: u64, number: u64) -> Create {
    Create { parent, name: name(run, number), mode: 0o644, umask: 0, exclusive: true }
}

impl Store {
    /// Blocks.
    fn new(dir: &Path, database: Option<&Secret<String>>, runtime: &Runtime) -> Result<Store> {
        let disk = RealDisk::open(dir).map_err(failed)?;
        let schema = database.map(Schema::new);
        let (engine, config): (Arc<dyn Engine>, _) = match &schema {
            Some(schema) => (Arc::new(Postgres::open(&schema.0).map_err(failed)?), Config::far()),
            None => {
                let disk = disk.sub("meta").map_err(failed)?;
                let engine =
                    EmbeddedEngine::open(disk, embedded::Config::default()).map_err(failed)?;
                (Arc::new(engine), Config::default())
            }
        };
        let master = Master::start(engine, Arc::new(RealClock::default()), config);
        let master = master.map_err(failed)?;
        let caller = Caller::verified(UserId(1));
        let filled = runtime.block_on(fill(&master, &caller));
        let (top, directories) = filled.map_err(failed)?;
        let probe = probe(&disk).map_err(failed)?;
        let runs = AtomicU64::new(1);
        Ok(Store { master, schema, caller, top, directories, probe, runs })
    }

    fn sync_disk(&self, repeat: Repeat) -> Result<Sample> {
        Repeat { hands: 1, ..repeat }.threads(|_, number| {
            let offset = number * PROBE_BLOCK as u64 % PROBE_BYTES;
            self.probe.write_at(&[&[7; PROBE_BLOCK]], offset).map_err(failed)?;
            self.probe.sync_data().map_err(failed)?;
            Ok(0)
        })
    }

    async fn ask(&self, load: Load, repeat: Repeat) -> Result<Sample> {
        let run = self.runs.fetch_add(1, Ordering::Relaxed);
        let (master, caller, top) = (self.master.clone(), self.caller.clone(), self.top);
        let directories = match load {
            Load::CreateSpread => Arc::clone(&self.directories),
            _ => Arc::from([top]),
        };
        let sample = repeat.tasks(move |number| {
            let (master, caller) = (master.clone(), caller.clone());
            let parent = directories[number as usize % directories.len()];
            async move {
                match load {
                    Load::Lookup => {
                        let lookup = Lookup { parent, name: name(0, number % FILES) };
                        let found = match master.read_now(&caller, &lookup) {
                            Some(found) => found,
                            None => master.read(&caller, lookup).await,
                        };
                        found.map(drop).map_err(failed)?;
                    }
                    Load::Miss => {
                        let found =
                            master.read(&caller, Lookup { parent, name: name(run, number) });
                        match found.await {
                            Err(cairn_base::Error::NotFound(_)) => {}
                            Err(error) => return Err(failed(error)),
                            Ok(_) => {
                                return Err(Error::failed(
                                    "a lookup found an object that was never made",
                                ));
                            }
                        }
                    }
                    Load::Create | Load::CreateSpread => {
                        let created = master.run(&caller, create(parent, run, number));
                        created.await.map(drop).map_err(failed)?;
                    }
                }
                Ok(0)
            }
        });
        sample.await
    }

    /// Removes what is not in a directory. Blocks.
    fn remove(self) -> Result<()> {
        self.master.stop();
        drop(self.master);
        self.schema.as_ref().map_or(Ok(()), Schema::remove)
    }
}

/// A separate schema in a database, removed when this is dropped.
struct Schema(postgres::Config);

impl Schema {
    fn new(url: &Secret<String>) -> Schema {
        Schema(postgres::Config {
            schema: format!("cairn_bench_{:016x}", RealRng.next_u64()),
            ..postgres::Config::new(url.clone())
        })
    }

    /// Removes the schema, if there is one. Blocks.
    fn remove(&self) -> Result<()> {
        Postgres::remove(&self.0).map_err(failed)
    }
}

impl Drop for Schema {
    fn drop(&mut self) {
        // A caller that wants the error has called `remove`.
        let _ = self.remove();
    }
}

fn probe(disk: &RealDisk) -> cairn_base::Result<Arc<dyn DiskFile>> {
    let file = disk.create("probe")?;
    for offset in (0..PROBE_BYTES).step_by(1 << 20) {
        file.write_at(&[&[0; 1 << 20]], offset)?;
    }
    file.sync_data()?;
    Ok(file)
}

/// Returns the top directory and the directories in it.
async fn fill(master: &Master, caller: &Caller) -> cairn_base::Result<(Ino, Arc<[Ino]>)> {
    let kind = BucketKind::Posix;
    let bucket = CreateBucket { name: "bench".into(), kind, visibility: Visibility::Private };
    let top = master.run(caller, bucket).await?.ino();
    let files = (0..FILES).map(|number| {
        let (master, caller) = (master.clone(), caller.clone());
        tokio::spawn(async move { master.run(&caller, create(top, 0, number)).await })
    });
    for made in files.collect::<Vec<_>>() {
        made.await.map_err(|error| cairn_base::Error::Unavailable(error.to_string()))??;
    }
    let mut directories = Vec::new();
    for number in 0..DIRECTORIES {
        let name = format!("directory-{number}").into_bytes();
        let made = master.run(caller, Mkdir { parent: top, name, mode: 0o755, umask: 0 });
        directories.push(made.await?.0);
    }
    Ok((top, directories.into()))
}
