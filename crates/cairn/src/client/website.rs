//! `cairn bucket website`

use std::path::PathBuf;

use super::address::bucket_path;
use super::cors::read;
use crate::connection::Server;
use crate::failure::{Failure, Result};
use crate::output;

#[derive(clap::Args)]
#[command(after_help = "A public bucket that is a website is served by the door of --website.

Examples:
  cairn bucket website www.example.com
  cairn bucket website www.example.com --index index.html --error 404.html
  cairn bucket website www.example.com --set website.json
  cairn bucket website www.example.com --delete

A file:
  {\"index\": \"index.html\", \"error\": \"404.html\",
   \"rules\": [{\"prefix\": \"old/\", \"to\": {\"prefix\": \"new/\", \"status\": 301}}]}")]
pub struct WebsiteArgs {
    /// The bucket
    name: String,
    /// Name of the document that is shown for a directory
    #[arg(long, value_name = "NAME", conflicts_with = "set")]
    index: Option<String>,
    /// Key of the document that is shown for an error
    #[arg(long, value_name = "KEY", requires = "index")]
    error: Option<String>,
    /// Take documents and redirects from a file of JSON; - for standard input
    #[arg(long, value_name = "FILE")]
    set: Option<PathBuf>,
    /// End the website; the objects stay
    #[arg(long, conflicts_with_all = ["set", "index"])]
    delete: bool,
}

pub fn run(server: &Server, args: &WebsiteArgs) -> Result<()> {
    let path = format!("{}?website", bucket_path(&args.name));
    if args.delete {
        server.send("DELETE", &path)?;
    } else if let Some(file) = &args.set {
        server.send_json("PUT", &path, &read(file)?)?;
    } else if let Some(index) = &args.index {
        let mut website = serde_json::json!({ "index": index });
        if let Some(error) = &args.error {
            website["error"] = error.as_str().into();
        }
        server.send_json("PUT", &path, &website)?;
    } else {
        let website: serde_json::Value = server.send("GET", &path)?.json()?;
        let text = serde_json::to_string_pretty(&website);
        output::line(text.map_err(|error| Failure::new(error.to_string()))?)?;
    }
    Ok(())
}
