//! `cairn meta`: copies metadata to a file, and back, and turns capabilities of a store on.

mod enable;

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufReader, BufWriter, Read, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use cairn_base::clock::RealClock;
use cairn_base::{Clock, ClusterMap, NodeId};
use cairn_cluster::identity::Directory;
use cairn_meta::dump::{self, Contents, Summary};
use cairn_meta::engine::{Engine, postgres};
use cairn_meta::keys;
use clap::Subcommand;

use crate::cluster::anew::{Beginning, KEEP_OFF};
use crate::cluster::edit::node;
use crate::connection::Connection;
use crate::dir::{DataDir, DirectoryUse, MetaPlace};
use crate::failure::{Failure, Result};
use crate::members::Alone;
use crate::metadata::{MetaArgs, Metadata};
use crate::offline::store;
use crate::output;
use enable::EnableArgs;

/// Bytes written or read at a time.
const BUFFER: usize = 256 << 10;

/// Copy the metadata of a store to a file, load them into an empty one, turn capabilities on
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn meta dump /backup/metadata.dump
  cairn meta load /backup/metadata.dump /srv/cairn
  cairn meta enable /srv/cairn")]
pub struct MetaCommandArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Dump(DumpArgs),
    Load(LoadArgs),
    Enable(EnableArgs),
}

/// Write one consistent state of all metadata to a file
///
/// Of a running server, asked through its HTTP door as root, unless DIR or a database is named.
/// Blocks are not part of it. A copy of the metadata fits the blocks as they were at that moment or
/// later, as long as nothing was collected since. So back up the data directory after it.
#[derive(clap::Args)]
#[command(allow_missing_positional = true)]
#[command(after_help = "Examples:
  cairn meta dump /backup/metadata.dump
  cairn meta dump --server https://store.example:8080 - | zstd > metadata.dump.zst
  cairn meta dump /srv/cairn /backup/metadata.dump           # no server uses it
  CAIRN_META=postgres://... cairn meta dump metadata.dump    # servers may run")]
struct DumpArgs {
    /// Data directory of a store; no server may be using it
    dir: Option<PathBuf>,
    /// File to write the dump to; - for stdout
    file: PathBuf,
    #[command(flatten)]
    meta: MetaArgs,
    #[command(flatten)]
    connection: Connection,
}

/// Load a dump into a store without metadata
///
/// DIR is the data directory whose metadata are lost: move what is left of DIR/meta away first.
/// Without it the dump goes into the database of --meta, into a schema without rows. The dump is
/// read twice: once to see that it is whole, before anything is changed.
///
/// The metadata of a cluster begin anew with the master of DIR. It refuses while any other master
/// answers, and gives all others up.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn meta load /backup/metadata.dump /srv/cairn
  cairn meta load /backup/metadata.dump /srv/cairn-master --give-up 2,3
  CAIRN_META=postgres://... cairn meta load /backup/metadata.dump")]
struct LoadArgs {
    /// File to read the dump from
    file: PathBuf,
    /// Data directory that the metadata belong to
    dir: Option<PathBuf>,
    /// The other masters of the cluster, all of them: they must never serve again
    #[arg(long, value_name = "NODES", value_delimiter = ',', value_parser = node)]
    give_up: Vec<NodeId>,
    #[command(flatten)]
    meta: MetaArgs,
}

pub fn run(args: &MetaCommandArgs) -> Result<ExitCode> {
    match &args.command {
        Command::Dump(args) => dump(args)?,
        Command::Load(args) => load(args)?,
        Command::Enable(args) => enable::run(args)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Source of a dump.
enum Source<'a> {
    Engine {
        engine: Arc<dyn Engine>,
        /// Locks the directory against other users meanwhile.
        _dir: Option<DataDir>,
    },
    Server(&'a Connection),
}

impl Source<'_> {
    fn find(args: &DumpArgs) -> Result<Source<'_>> {
        match (&args.dir, args.meta.database()) {
            (Some(_), Some(_)) => Err(one_of_two()),
            (Some(dir), None) => {
                let dir = DataDir::open(dir, MetaPlace::Directory)?;
                let engine = store::frozen_engine(&dir)?;
                Ok(Source::Engine { engine, _dir: Some(dir) })
            }
            (None, Some(config)) => {
                // Nothing is written, so nothing can be lost.
                let config = postgres::Config { accept_lossy_failover: true, ..config };
                let engine = Metadata::in_known_database(&config)?.engine;
                Ok(Source::Engine { engine, _dir: None })
            }
            (None, None) => Ok(Source::Server(&args.connection)),
        }
    }

    fn write(&self, out: &mut dyn Write) -> Result<Summary> {
        match self {
            Source::Engine { engine, .. } => of_engine(&**engine, out),
            Source::Server(connection) => of_server(connection, out),
        }
    }
}

fn dump(args: &DumpArgs) -> Result<()> {
    let source = Source::find(args)?;
    let summary = if args.file.as_os_str() == "-" {
        source.write(&mut io::stdout().lock())?
    } else {
        to_file(&args.file, &source)?
    };
    show("dumped", &summary);
    Ok(())
}

fn one_of_two() -> Failure {
    Failure::usage("name DIR or a database (--meta or CAIRN_META), not both")
}

fn show(done: &str, summary: &Summary) {
    let Summary { cluster, batch, rows, bytes } = summary;
    let bytes = output::human_bytes(*bytes);
    output::complain(&format!("{done}: {rows} rows, {bytes}, store {cluster:016x} at {batch}"));
}

fn of_engine(engine: &dyn Engine, out: &mut dyn Write) -> Result<Summary> {
    let bar = output::count_bar(0, "metadata rows");
    let snapshot = engine.snapshot()?;
    let summary = dump::write(&*snapshot, out, &mut |rows| bar.set_position(rows))?;
    bar.finish_and_clear();
    Ok(summary)
}

fn of_server(connection: &Connection, out: &mut dyn Write) -> Result<Summary> {
    let reply = connection.open()?.send("GET", "/admin/meta/dump")?;
    let (_, mut input) = reply.into_reader();
    let bar = output::count_bar(0, "metadata rows");
    // The dump itself says whether all of it arrived.
    let mut tee = Tee { input: &mut input, out };
    let summary = dump::verify(&mut tee, &mut |rows| bar.set_position(rows))?;
    out.flush()?;
    bar.finish_and_clear();
    Ok(summary)
}

/// A reader that also writes what it reads.
struct Tee<'a> {
    input: &'a mut dyn Read,
    out: &'a mut dyn Write,
}

impl Read for Tee<'_> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let read = self.input.read(bytes)?;
        self.out.write_all(&bytes[..read])?;
        Ok(read)
    }
}

/// Writes a dump to a file, which appears when all of it is durable. No other user may read it.
fn to_file(path: &Path, source: &Source<'_>) -> Result<Summary> {
    let fail = |error: io::Error| Failure::file(path, &error);
    let Some(name) = path.file_name().filter(|_| !path.is_dir()) else {
        return Err(Failure::usage(format!("{}: not a file's name", path.display())));
    };
    let part = path.with_file_name(format!(".{}.cairn-part", name.to_string_lossy()));
    let mut options = OpenOptions::new();
    let file = options.write(true).create(true).truncate(true).mode(0o600).open(&part);
    let file = file.map_err(|error| Failure::file(&part, &error))?;
    let mut out = BufWriter::with_capacity(BUFFER, &file);
    let written = source.write(&mut out).and_then(|summary| {
        out.flush().and_then(|()| file.sync_all()).map_err(fail)?;
        fs::rename(&part, path).map_err(fail)?;
        let parent = path.parent().filter(|parent| !parent.as_os_str().is_empty());
        File::open(parent.unwrap_or(Path::new(".")))
            .and_then(|dir| dir.sync_all())
            .map_err(fail)?;
        Ok(summary)
    });
    if written.is_err() {
        // The file may be gone, and there is an earlier failure to report.
        let _ = fs::remove_file(&part);
    }
    written
}

fn load(args: &LoadArgs) -> Result<()> {
    let of_file = |failure: Failure| failure.of(args.file.display());
    if let Some(path) = &args.dir {
        DirectoryUse::Load.require(path)?;
    }
    let (summary, map) = check(&args.file).map_err(of_file)?;
    let now = RealClock::default().now();
    match (&args.dir, args.meta.database()) {
        (Some(_), Some(_)) | (None, None) => Err(one_of_two()),
        (None, Some(config)) => {
            let anew = |map: &ClusterMap| map.anew(None, map.next_generation(0, now));
            load_into(args, &Metadata::in_database(&config)?, &anew)
        }
        (Some(path), None) => {
            if DataDir::look(path, MetaPlace::Directory)?.format.cluster_number() != summary.cluster
            {
                let text = "the metadata of another store than this directory's: load its own";
                return Err(of_file(Failure::new(text)));
            }
            store::require_no_metadata(path, None)?;
            let dir = DataDir::open(path, MetaPlace::Directory)?;
            let beginning = map.as_ref().map(|map| begin(args, path, map)).transpose()?;
            let map = map.unwrap_or_default();
            let generation = map.next_generation(0, now);
            let anew = |map: &ClusterMap| match &beginning {
                Some(beginning) => beginning.map(map, generation),
                None => Ok(map.clone()),
            };
            match dir.format.meta {
                MetaPlace::Members => load_member(args, path, &dir, generation, &anew),
                _ => load_into(args, &Metadata::in_directory(&dir)?, &anew),
            }
        }
    }
}

/// Checks that a dump is complete; also returns the cluster map in it.
fn check(path: &Path) -> Result<(Summary, Option<ClusterMap>)> {
    let (mut map, mut count) = (None, 0);
    let summary = read(path, "checking rows", &mut |input, progress| {
        dump::each(input, &mut |key, row| {
            count += 1;
            progress(count);
            if *key == *keys::map() {
                map = Some(ClusterMap::decode(&row)?);
            }
            Ok(())
        })
    })?;
    Ok((summary, map))
}

/// Checks that no other master of the cluster with this map answers, and that the command line
/// gives all of them up.
fn begin(args: &LoadArgs, path: &Path, map: &ClusterMap) -> Result<Beginning> {
    let beginning = Beginning::of(path, map)?;
    beginning.check_nobody_answers()?;
    beginning.check_not_denied()?;
    beginning.check_named(&args.give_up, "--give-up")?;
    if !args.give_up.is_empty() {
        output::complain(KEEP_OFF);
    }
    Ok(beginning)
}

/// Loads into a new log, whose only member is this master.
fn load_member(
    args: &LoadArgs,
    path: &Path,
    dir: &DataDir,
    generation: u64,
    anew: &Anew<'_>,
) -> Result<()> {
    let clock = RealClock::default();
    let node = Directory::open(path)?.load(clock.now())?.ok_or_else(|| {
        Failure::new(format!("{}: is not the directory of a master", path.display()))
    })?;
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build()?;
    let alone = runtime.block_on(Alone::found(dir, node.identity.node(), generation))?;
    let loaded = load_into(args, &alone.metadata, anew);
    runtime.block_on(alone.close());
    loaded
}

/// Makes the map with which metadata begin.
type Anew<'a> = dyn Fn(&ClusterMap) -> cairn_base::Result<ClusterMap> + 'a;

fn load_into(args: &LoadArgs, metadata: &Metadata, anew: &Anew<'_>) -> Result<()> {
    match dump::contents(&*metadata.engine)? {
        Contents::Nothing => {}
        Contents::Store(_) => return Err(metadata.occupied()),
        Contents::Part => return Err(metadata.unfinished()),
    }
    let loaded = read(&args.file, "loading rows", &mut |input, progress| {
        dump::load(&*metadata.engine, input, anew, progress)
    });
    let of_file = |failure: Failure| failure.of(args.file.display());
    let loaded = loaded.map_err(|failure| match dump::contents(&*metadata.engine) {
        Ok(Contents::Part) => of_file(failure.of(metadata.unfinished())),
        _ => of_file(failure),
    })?;
    if let Some(embedded) = &metadata.embedded {
        embedded.checkpoint()?;
    }
    show("loaded", &loaded);
    Ok(())
}

/// A function that reads a dump, and reports the number of rows read to its second argument.
type Reading<'a> =
    dyn FnMut(&mut dyn Read, &mut dyn FnMut(u64)) -> cairn_base::Result<Summary> + 'a;

fn read(path: &Path, what: &str, reading: &mut Reading<'_>) -> Result<Summary> {
    let file = File::open(path)?;
    let bar = output::count_bar(0, what);
    let mut input = BufReader::with_capacity(BUFFER, file);
    let summary = reading(&mut input, &mut |rows| bar.set_position(rows))?;
    bar.finish_and_clear();
    Ok(summary)
}
