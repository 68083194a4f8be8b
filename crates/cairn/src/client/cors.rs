//! `cairn bucket cors`

use std::io::Read;
use std::path::{Path, PathBuf};

use super::address::bucket_path;
use crate::connection::Server;
use crate::failure::{Failure, Result};
use crate::output;

#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn bucket cors www
  cairn bucket cors www --set rules.json
  cairn bucket cors www --delete

A file of rules:
  {\"rules\": [{\"origins\": [\"https://*.example.com\"], \"methods\": [\"GET\", \"PUT\"],
              \"headers\": [\"authorization\"], \"max_age_s\": 600}]}")]
pub struct CorsArgs {
    /// The bucket
    name: String,
    /// Replace all rules by those in a JSON file, or - for standard input
    #[arg(long, value_name = "FILE")]
    set: Option<PathBuf>,
    /// Remove all rules
    #[arg(long, conflicts_with = "set")]
    delete: bool,
}

pub fn run(server: &Server, args: &CorsArgs) -> Result<()> {
    let path = format!("{}?cors", bucket_path(&args.name));
    if args.delete {
        server.send("DELETE", &path)?;
    } else if let Some(file) = &args.set {
        server.send_json("PUT", &path, &read(file)?)?;
    } else {
        let rules: serde_json::Value = server.send("GET", &path)?.json()?;
        let text = serde_json::to_string_pretty(&rules);
        output::line(text.map_err(|error| Failure::new(error.to_string()))?)?;
    }
    Ok(())
}

/// Reads the JSON of a file.
pub fn read(file: &Path) -> Result<serde_json::Value> {
    let failed = |error: std::io::Error| Failure::new(format!("{}: {error}", file.display()));
    let text = if file.as_os_str() == "-" {
        let mut text = String::new();
        std::io::stdin().read_to_string(&mut text).map_err(failed)?;
        text
    } else {
        std::fs::read_to_string(file).map_err(failed)?
    };
    serde_json::from_str(&text)
        .map_err(|error| Failure::new(format!("{}: not JSON: {error}", file.display())))
}
