//! Where backups are: a directory, an HTTP door of a Cairn, or a bucket of S3.
//!
//! Names of objects are made here and have letters, digits, `-` and `/` only.

mod again;
mod directory;
mod http;
mod objects;
mod s3;
mod sign;

pub use again::Again;
pub use objects::Target;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use again::Persistent;
use clap::Args;

use crate::connection::Server;
use crate::failure::{Failure, Result};

/// Where a backup is.
#[derive(Args)]
pub struct TargetArgs {
    /// Where the backup is: a directory, http(s)://HOST:PORT/storage/BUCKET/PREFIX of a Cairn, or
    /// s3://BUCKET/PREFIX
    target: String,
    /// URL of the S3 service [default: https://s3.REGION.amazonaws.com]. Keys are in the
    /// environment: AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY, AWS_SESSION_TOKEN
    #[arg(long, value_name = "URL", env = "AWS_ENDPOINT_URL_S3")]
    s3_endpoint: Option<String>,
    /// Region of the S3 service
    #[arg(long, value_name = "NAME", env = "AWS_REGION", default_value = "us-east-1")]
    s3_region: String,
    /// Trust only the certificate authorities in this PEM file, at the target
    #[arg(long, value_name = "FILE")]
    target_ca: Option<PathBuf>,
    /// Profile of ~/.config/cairn/config.toml for an HTTP target. Its key and secret, or token, are
    /// sent there; the environment has them too, as CAIRN_TARGET_TOKEN, or CAIRN_TARGET_KEY and
    /// CAIRN_TARGET_SECRET
    #[arg(long, value_name = "NAME")]
    target_profile: Option<String>,
}

impl TargetArgs {
    pub fn shown(&self) -> &str {
        &self.target
    }

    /// The directory, if it is one of this machine.
    pub fn directory(&self) -> Option<&Path> {
        let is_directory = !self.target.contains("://") && !self.target.is_empty();
        is_directory.then(|| self.target.as_ref())
    }

    pub fn open(&self) -> Result<Arc<dyn Target>> {
        let target = self.target.trim_end_matches('/');
        if let Some(place) = target.strip_prefix("s3://") {
            let endpoint = self.s3_endpoint.clone();
            let default = || format!("https://s3.{}.amazonaws.com", self.s3_region);
            let endpoint = endpoint.unwrap_or_else(default);
            let ca = self.target_ca.as_deref();
            return Ok(persistent(s3::S3::open(&endpoint, &self.s3_region, place, ca)?));
        }
        if target.starts_with("http://") || target.starts_with("https://") {
            let at = target.find("/storage/").ok_or_else(|| {
                Failure::usage(format!("{target}: name a bucket: .../storage/BUCKET/PREFIX"))
            })?;
            let (base, path) = target.split_at(at);
            let profile = self.target_profile.as_deref();
            let ca = self.target_ca.clone();
            let server = Server::second(base, ca, profile, "CAIRN_TARGET")?;
            return Ok(persistent(http::Http::open(server, path)?));
        }
        if target.contains("://") {
            let text = format!("{target}: use a directory, http://, https:// or s3://");
            return Err(Failure::usage(text));
        }
        if target.is_empty() && self.target.is_empty() {
            Err(Failure::usage("the target is empty"))
        } else {
            Ok(persistent(directory::Directory::open(self.target.as_ref())))
        }
    }
}

fn persistent(target: impl Target + 'static) -> Arc<dyn Target> {
    Arc::new(Persistent { target, again: Again::default() })
}

/// For tests.
#[cfg(test)]
pub fn in_directory(path: &Path) -> Result<Arc<dyn Target>> {
    Ok(persistent(directory::Directory::open(path)))
}
