//! Making an access key in a data directory, for when nobody can ask the server to.

use std::path::Path;
use std::sync::Arc;

use cairn_auth::{Caller, NewCredential};
use cairn_base::RealDisk;
use cairn_base::clock::RealClock;
use cairn_base::rng::RealRng;
use cairn_fs::ops::credentials::AddAccessKey;
use cairn_meta::Master;
use cairn_meta::engine::Engine;
use cairn_meta::engine::embedded::Embedded;
use cairn_meta::master;

use crate::client::key::NewKey;
use crate::dir::DataDir;
use crate::failure::{Failure, Result};

pub fn create(directory: &Path, user: &str) -> Result<NewKey> {
    let dir = DataDir::open(directory)?;
    if !dir.meta().is_dir() {
        let text = format!("{}: has no store yet: start the server once", dir.meta().display());
        return Err(Failure::new(text));
    }
    let seal = dir.seal_key(&RealRng)?;
    let NewCredential { id, secret } = cairn_auth::generate(&RealRng);
    let sealed = seal.seal(&RealRng, &id, &secret);
    let disk = Arc::new(RealDisk::open(&dir.meta())?);
    let engine: Arc<dyn Engine> = Arc::new(Embedded::open(disk, dir.sizes.of_meta())?);
    let master = Master::start(engine, Arc::new(RealClock::default()), master::Config::default())?;
    let verb = AddAccessKey { id: id.clone(), sealed, user: user.to_owned(), replace: false };
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let added = runtime.block_on(master.run(&Caller::system(), verb));
    master.stop();
    added?;
    Ok(NewKey { id, secret: secret.expose().clone() })
}
