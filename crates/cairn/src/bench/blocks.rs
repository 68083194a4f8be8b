//! `cairn bench blocks`: a store of blocks on a disk, without metadata, doors or a network.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use cairn_base::limits::BLOCK_BYTES;
use cairn_base::rng::SeededRng;
use cairn_base::{BlockId, GroupId, Owner, RealDisk, Rng, SessionId};
use cairn_bench::load::{Repeat, Sample};
use cairn_bench::report::{Axis, Key, NamedTarget};
use cairn_bench::session::{Case, Output, Session};
use cairn_bench::{Error, Result, Scratch, stop, values};
use cairn_blocks::{Blocks, Config, Store};
use tokio::runtime::Runtime;

use super::layer_error::failed;

/// Most that is written in order to be read: bytes and blocks.
const READ_BYTES: u64 = 64 << 20;
const READ_BLOCKS: u64 = 10_000;

/// Cairn's blocks alone, beside files
///
/// *put* writes blocks, each durable when it is answered. The measure beside it is as many threads
/// that each append as much to a file of their own and sync it each time. *get* reads what was just
/// written, most likely from the memory of the kernel, and verifies its checksums; its measure is a
/// pread. Works in a directory of its own below DIR, which it removes.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn bench blocks /var/tmp
  cairn bench blocks /srv/disk2 --loads put --sizes 64k,4m --in-flight 1,4,16 --html disk2.html")]
pub struct BlocksBenchArgs {
    /// A directory on the disk to measure; the files made in it are removed in the end
    dir: PathBuf,
    /// Loads to measure
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_enum)]
    #[arg(default_value = "put,get")]
    loads: Vec<Load>,
    /// Bytes of a block, at most 4m; each size is a load
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "16k,155k,1m")]
    #[arg(value_parser = values::size)]
    sizes: Vec<u64>,
    /// Numbers of blocks at the same time
    #[arg(long, value_name = "LIST", value_delimiter = ',', default_value = "1,16")]
    #[arg(value_parser = values::count)]
    in_flight: Vec<usize>,
    /// Most bytes that a load writes in each round
    #[arg(long, value_name = "SIZE", default_value = "1g", value_parser = values::size)]
    most: u64,
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
    Put,
    Get,
}

/// The system under load.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Target {
    Files,
    Blocks,
}

pub fn run(args: &BlocksBenchArgs) -> Result<()> {
    stop::listen();
    if args.sizes.iter().any(|size| !(1..=BLOCK_BYTES as u64).contains(size)) {
        return Err(Error::usage("--sizes: a block has 1 byte to 4m"));
    }
    let shown = args.dir.display().to_string();
    let targets = ["files", "blocks"];
    let named = targets.map(|name| NamedTarget { name: name.to_owned(), target: shown.clone() });
    let mut session = Session::begin("blocks", named.into(), &args.output)?;
    // A store makes its segments whole.
    let needed = args.most + READ_BYTES + (1 << 30);
    let remedy = "free some, or give a smaller --most";
    let scratch = Scratch::with_remedy(&args.dir, needed, remedy)?;
    let runtime = Runtime::new().map_err(failed)?;
    let mut cases = Vec::new();
    for &load in &args.loads {
        for &size in &args.sizes {
            for &hands in &args.in_flight {
                for (name, target) in targets.iter().zip([Target::Files, Target::Blocks]) {
                    let (act, most) = match load {
                        Load::Put => ("put, synced", (args.most / size).max(1)),
                        Load::Get => ("get", u64::MAX),
                    };
                    let key = Key {
                        target: (*name).to_owned(),
                        what: format!("{act}, {}", values::human_size(size)),
                        axis: Axis { name: "in flight".to_owned(), value: hands as f64 },
                    };
                    let repeat = Repeat { hands, duration: args.duration, most };
                    let place = scratch.path().join("now");
                    let runtime = &runtime;
                    let run =
                        Box::new(move || run_one(load, target, size, repeat, &place, runtime));
                    cases.push(Case { key, run });
                }
            }
        }
    }
    session.run(cases, args.rounds);
    let removed = scratch.remove();
    session.end()?;
    removed
}

/// Runs one load in a directory of its own. Blocks.
fn run_one(
    load: Load,
    target: Target,
    size: u64,
    repeat: Repeat,
    place: &Path,
    runtime: &Runtime,
) -> Result<Sample> {
    let data = noise(size);
    fs::create_dir(place).map_err(failed)?;
    let sample = match target {
        Target::Files => on_files(load, place, &data, repeat),
        Target::Blocks => runtime.block_on(on_blocks(load, place, data, repeat)),
    };
    fs::remove_dir_all(place).map_err(failed)?;
    sample
}

fn noise(size: u64) -> Bytes {
    let mut data = vec![0; size as usize];
    SeededRng::new(size).fill(&mut data);
    data.into()
}

/// Returns the number of blocks, or of parts of a file, that can be read.
fn readable(data: &[u8]) -> u64 {
    (READ_BYTES / data.len() as u64).clamp(1, READ_BLOCKS)
}

/// Blocks.
fn on_files(load: Load, place: &Path, data: &[u8], repeat: Repeat) -> Result<Sample> {
    let bytes = data.len() as u64;
    let open = |name: String| File::create_new(place.join(name)).map_err(failed);
    match load {
        Load::Put => {
            let files = (0..repeat.hands).map(|hand| open(hand.to_string()));
            let files = files.collect::<Result<Vec<File>>>()?;
            repeat.threads(|hand, _| {
                let mut file = &files[hand];
                file.write_all(data).and_then(|()| file.sync_data()).map_err(failed)?;
                Ok(bytes)
            })
        }
        Load::Get => {
            let count = readable(data);
            let mut file = open("read".to_owned())?;
            (0..count).try_for_each(|_| file.write_all(data)).map_err(failed)?;
            let file = File::open(place.join("read")).map_err(failed)?;
            repeat.threads(|_, number| {
                let mut body = vec![0; data.len()];
                file.read_exact_at(&mut body, number % count * bytes).map_err(failed)?;
                Ok(std::hint::black_box(body).len() as u64)
            })
        }
    }
}

async fn on_blocks(load: Load, place: &Path, data: Bytes, repeat: Repeat) -> Result<Sample> {
    let disk = Arc::new(RealDisk::open(place).map_err(failed)?);
    let store = Store::open(disk, Config::new([1; 16], [2; 16])).map_err(failed)?;
    let bytes = data.len() as u32;
    let id = |counter| BlockId { session: SessionId(1), counter };
    let put = {
        let store = store.clone();
        let data = data.clone();
        move |number| {
            let (store, data) = (store.clone(), data.clone());
            async move {
                let put = store.put(GroupId::LOCAL, id(number), Owner::default(), data);
                put.await.map(|()| u64::from(bytes)).map_err(failed)
            }
        }
    };
    let sample = match load {
        Load::Put => repeat.tasks(put).await,
        Load::Get => {
            let most = readable(&data);
            Repeat { hands: 16, duration: Duration::MAX, most }.tasks(put).await?;
            let store = store.clone();
            let get = move |number| {
                let store = store.clone();
                async move {
                    let (group, block) = (GroupId::LOCAL, id(number % most));
                    let got = match store.get_now(group, block, 0..bytes).map_err(failed)? {
                        Some(got) => got,
                        None => store.get(group, block, 0..bytes).await.map_err(failed)?,
                    };
                    Ok(got.len() as u64)
                }
            };
            repeat.tasks(get).await
        }
    };
    store.close().map_err(failed)?;
    sample
}
