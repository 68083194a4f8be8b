//! Place of a store's metadata: its directory, or a PostgreSQL database.

use std::convert::Infallible;
use std::sync::Arc;

use cairn_base::{RealDisk, Secret};
use cairn_meta::dump::{self, Contents};
use cairn_meta::engine::raft::RaftEngine;
use cairn_meta::engine::{EmbeddedEngine, Engine, Postgres, embedded, postgres};
use cairn_meta::master;

use crate::dir::{DataDir, MetaPlace};
use crate::failure::{Failure, Result};
use crate::memory::ProcessSizes;

#[derive(clap::Args)]
pub struct MetaArgs {
    /// Keep the metadata in this PostgreSQL database instead of DIR:
    /// postgres://user:password@host/database?sslmode=verify-full&sslrootcert=ca.pem
    #[arg(long, value_name = "URL", env = "CAIRN_META", hide_env_values = true)]
    #[arg(value_parser = secret)]
    meta: Option<Secret<String>>,
    /// Schema of the metadata in that database
    #[arg(long, value_name = "NAME", default_value = "cairn")]
    meta_schema: String,
}

/// Parses a value of a command line that must not be shown.
pub fn secret(text: &str) -> Result<Secret<String>, Infallible> {
    Ok(Secret::new(text.to_owned()))
}

const OCCUPIED: &str = "holds the metadata of a store already";

/// Refuses to load into a directory that has metadata.
pub fn occupied_directory(shown: &str) -> Failure {
    Failure::new(format!("{shown}: {OCCUPIED}: move that directory away and load again"))
}

impl MetaArgs {
    pub fn place(&self) -> MetaPlace {
        if self.meta.is_some() { MetaPlace::Postgres } else { MetaPlace::Directory }
    }

    /// Returns the database, if the metadata are in one.
    pub fn database(&self) -> Option<postgres::Config> {
        let url = self.meta.clone()?;
        let schema = self.meta_schema.clone();
        Some(postgres::Config { schema, ..postgres::Config::new(url) })
    }
}

/// The metadata of a store, opened.
pub struct Metadata {
    pub engine: Arc<dyn Engine>,
    /// The engine as an embedded engine, if it is in the directory.
    pub embedded: Option<Arc<EmbeddedEngine>>,
    /// Options of the master that suit the engine.
    pub config: master::Config,
    /// Text that names the place in messages.
    pub shown: String,
    place: MetaPlace,
}

impl Metadata {
    /// Opens the metadata in a directory, for a command. Refuses the directory of one of several
    /// masters. Blocks.
    pub fn in_directory(dir: &DataDir) -> Result<Metadata> {
        Metadata::with_config(dir, dir.sizes.of_meta())
    }

    /// Opens the metadata in a directory for a process that serves. Refuses the directory of one of
    /// several masters. Blocks.
    pub fn to_serve(dir: &DataDir, sizes: &ProcessSizes) -> Result<Metadata> {
        Metadata::with_config(dir, sizes.engine(dir.sizes.of_meta()))
    }

    fn with_config(dir: &DataDir, config: embedded::Config) -> Result<Metadata> {
        let path = dir.meta();
        if let Some(failure) = dir.overwritten() {
            return Err(failure);
        }
        if dir.format.meta == MetaPlace::Members {
            return Err(Failure::new(format!(
                "{}: several masters keep these metadata together: only `cairn master` changes \
                 them; ask a gateway",
                path.display()
            )));
        }
        let disk = RealDisk::open(&path).map_err(|error| Failure::file(&path, &error))?;
        let opened = EmbeddedEngine::open(Arc::new(disk), config);
        let engine = opened.map_err(|error| Failure::of_metadata(error, &path))?;
        let engine = Arc::new(engine);
        Ok(Metadata {
            engine: engine.clone(),
            embedded: Some(engine),
            config: master::Config::default(),
            shown: path.display().to_string(),
            place: MetaPlace::Directory,
        })
    }

    /// Opens the metadata in a database; makes the tables if there are none. Blocks.
    pub fn in_database(config: &postgres::Config) -> Result<Metadata> {
        Ok(Metadata::of_database(config, Postgres::open(config)?))
    }

    /// Opens the metadata in a database that must have the tables. Blocks.
    pub fn in_known_database(config: &postgres::Config) -> Result<Metadata> {
        Ok(Metadata::of_database(config, Postgres::attach(config)?))
    }

    /// Returns the metadata of a member. Blocks while no majority answers.
    pub fn of_member(dir: &DataDir, engine: Arc<RaftEngine>) -> Metadata {
        Metadata {
            engine,
            embedded: None,
            config: master::Config::far(),
            shown: dir.meta().display().to_string(),
            place: MetaPlace::Members,
        }
    }

    fn of_database(config: &postgres::Config, engine: Postgres) -> Metadata {
        Metadata {
            engine: Arc::new(engine),
            embedded: None,
            config: master::Config::far(),
            shown: format!("the database of --meta, schema {}", config.schema),
            place: MetaPlace::Postgres,
        }
    }

    /// Returns true if there are metadata of this store; refuses those of another store than
    /// `dir`'s. Blocks.
    pub fn has_store(&self, dir: &DataDir) -> Result<bool> {
        match dump::contents(&*self.engine)? {
            Contents::Nothing => Ok(false),
            Contents::Store(cluster) if cluster == dir.format.cluster_number() => Ok(true),
            Contents::Store(_) => Err(self.foreign("holds the metadata of another store")),
            Contents::Part => Err(self.unfinished()),
        }
    }

    /// Says that an earlier load into it did not end.
    pub fn unfinished(&self) -> Failure {
        let remedy = match self.place {
            MetaPlace::Directory | MetaPlace::Members => "remove that directory",
            MetaPlace::Postgres => "drop that schema",
        };
        let shown = &self.shown;
        let text = "holds a part of a dump: a load was interrupted";
        Failure::new(format!("{shown}: {text}: {remedy} and load it again (cairn meta load)"))
    }

    /// Says that nothing can be loaded into it.
    pub fn occupied(&self) -> Failure {
        match self.place {
            MetaPlace::Directory | MetaPlace::Members => occupied_directory(&self.shown),
            MetaPlace::Postgres => Failure::new(format!(
                "{}: {OCCUPIED}: name another schema (--meta-schema) and load again",
                self.shown
            )),
        }
    }

    /// Says that it does not belong to the directory.
    pub fn foreign(&self, what: &str) -> Failure {
        let shown = &self.shown;
        let remedy = match self.place {
            MetaPlace::Directory | MetaPlace::Members => {
                "put back the one that was here, or load a dump (cairn meta load)"
            }
            MetaPlace::Postgres => {
                "name the database and the schema that this directory was begun with"
            }
        };
        Failure::new(format!("{shown}: {what}: {remedy}"))
    }
}
