//! Serves an empty store through the S3 door, to measure the door: metadata in memory, blocks
//! in a directory.
//!
//! `serve_s3 ADDRESS DIRECTORY`: prints the credentials of root.

use std::path::Path;
use std::sync::Arc;

use cairn_auth::SealKey;
use cairn_base::rng::RealRng;
use cairn_base::{Clock, RealDisk, Secret, clock::RealClock};
use cairn_blocks::Store;
use cairn_doors::admit::{Admit, ensure_root};
use cairn_doors::metrics::Metrics;
use cairn_doors::observe::{Observer, SLOW};
use cairn_doors::s3::{S3Config, service};
use cairn_doors::serve::{Serving, listen, serve};
use cairn_fs::Fs;
use cairn_meta::Master;
use cairn_meta::engine::Memory;
use tokio::sync::watch;

#[tokio::main]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let (Some(address), Some(directory)) = (arguments.next(), arguments.next()) else {
        return Err("use: serve_s3 ADDRESS DIRECTORY".into());
    };
    let clock: Arc<dyn Clock> = Arc::new(RealClock::default());
    let master = Master::start(Arc::new(Memory::new()), clock.clone(), Default::default())?;
    let disk = Arc::new(RealDisk::open(Path::new(&directory))?);
    let blocks = Arc::new(Store::open(disk, cairn_blocks::Config::new([1; 16], [2; 16]))?);
    let rng = Arc::new(RealRng);
    let fs = Fs::start(master, blocks, clock, &*rng, Default::default()).await?;
    let admit = Arc::new(Admit::new(fs, SealKey::new(&Secret::new([9; 32])), rng));
    if let Some(root) = ensure_root(&admit, None).await? {
        println!("{}:{}", root.id, root.secret.expose());
    }
    let serving = Serving::default();
    let (_stop, stopped) = watch::channel(false);
    let observer = Observer::new(&**admit.rng(), SLOW);
    let connections = Arc::clone(&serving.connections);
    let metrics = Metrics::new(admit.fs().clone(), connections, observer);
    let door = service(admit.fs().clone(), admit, &metrics, S3Config::default());
    serve(listen(address.parse()?)?, door, serving, stopped).await;
    Ok(())
}
