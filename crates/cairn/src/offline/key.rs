//! Creation of an access key in a data directory, for times when no user can ask the server for
//! one.

use std::path::Path;
use std::sync::Arc;

use cairn_auth::{Caller, NewCredential};
use cairn_base::clock::RealClock;
use cairn_base::rng::RealRng;
use cairn_fs::ops::credentials::AddAccessKey;
use cairn_meta::Master;
use cairn_meta::engine::postgres;
use serde::{Deserialize, Serialize};

use crate::dir::DataDir;
use crate::failure::{Failure, Result};
use crate::metadata::{MetaArgs, Metadata};

/// A new access key. It has no `Debug`: it holds a secret.
#[derive(Serialize, Deserialize)]
pub struct NewKey {
    pub id: String,
    pub secret: String,
}

pub fn create(directory: &Path, meta: &MetaArgs, user: &str) -> Result<NewKey> {
    let dir = DataDir::open(directory, meta.place())?;
    let begun = || {
        Failure::new(format!("{}: has no store yet: start the server once", directory.display()))
    };
    let metadata = match meta.database() {
        None if !dir.meta().is_dir() => return Err(begun()),
        None => Metadata::in_directory(&dir)?,
        Some(config) => {
            // That a failover may lose one more key is no reason to refuse it.
            let config = postgres::Config { accept_lossy_failover: true, ..config };
            Metadata::in_known_database(&config)?
        }
    };
    if !metadata.has_store(&dir)? {
        return Err(begun());
    }
    let seal = dir.seal_key(&RealRng)?;
    let NewCredential { id, secret } = cairn_auth::generate(&RealRng);
    let sealed = seal.seal(&RealRng, &id, &secret);
    let clock = Arc::new(RealClock::default());
    let master = Master::start(metadata.engine, clock, metadata.config)?;
    let verb = AddAccessKey { id: id.clone(), sealed, user: user.to_owned(), replace: false };
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    let added = runtime.block_on(master.run(&Caller::system(), verb));
    master.stop();
    added?;
    Ok(NewKey { id, secret: secret.expose().clone() })
}
