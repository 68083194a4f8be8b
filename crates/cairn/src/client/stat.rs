//! `cairn stat`

use std::collections::BTreeMap;
use std::process::ExitCode;
use std::time::UNIX_EPOCH;

use serde::Serialize;

use super::address::Address;
use super::api;
use crate::connection::{Connection, Reply};
use crate::failure::Result;
use crate::output;

/// Show what is known of an object
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn stat photos/2024/cat.jpg
  cairn stat --json photos/2024/cat.jpg | jq -r .etag")]
pub struct StatArgs {
    /// BUCKET/KEY
    object: String,
    /// Print one line of JSON
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    connection: Connection,
}

const HINTS: [&str; 2] = [", or cairn bucket stat", ", or cairn ls"];

#[derive(Serialize)]
struct ShownObject {
    key: String,
    size: u64,
    etag: String,
    modified: String,
    content_type: String,
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    headers: BTreeMap<String, String>,
}

impl ShownObject {
    fn of(address: &Address, reply: &Reply) -> ShownObject {
        const SHOWN: [&str; 5] = [
            "cache-control",
            "content-encoding",
            "content-disposition",
            "content-language",
            "expires",
        ];
        let is_shown = |name: &str| SHOWN.contains(&name) || name.starts_with("x-cairn-meta-");
        let names = reply.headers().keys().map(|name| name.as_str()).filter(|name| is_shown(name));
        let headers = names.map(|name| (name.to_owned(), reply.header(name).to_owned())).collect();
        ShownObject {
            key: address.key.clone(),
            size: reply.header("content-length").parse().unwrap_or(0),
            etag: reply.header("etag").trim_matches('"').to_owned(),
            modified: rfc3339(reply.header("last-modified")),
            content_type: reply.header("content-type").to_owned(),
            headers,
        }
    }
}

/// Returns a time of HTTP in the form of all other times, to the second; other texts stay.
fn rfc3339(text: &str) -> String {
    let Ok(time) = httpdate::parse_http_date(text) else { return text.to_owned() };
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    let time = cairn_base::Timestamp(since.as_nanos() as i64);
    let all = cairn_base::rfc3339(time);
    // HTTP has no fractions.
    all.split_once('.').map_or(all.clone(), |(seconds, _)| format!("{seconds}Z"))
}

pub fn run(args: &StatArgs) -> Result<ExitCode> {
    let address = Address::parse_object(&args.object, HINTS)?;
    let server = args.connection.open()?;
    let remedy = format!("cairn ls {address}/");
    let failed = |failure| api::of_object(&server, &address, failure, &remedy);
    let reply = server.send("HEAD", &address.path()).map_err(failed)?;
    let shown = ShownObject::of(&address, &reply);
    if args.json {
        output::json(&shown)?;
        return Ok(ExitCode::SUCCESS);
    }
    output::line(format!("key           {}", output::name(&shown.key)))?;
    output::line(format!("size          {} ({})", shown.size, output::human_bytes(shown.size)))?;
    output::line(format!("etag          {}", shown.etag))?;
    output::line(format!("modified      {}", shown.modified))?;
    output::line(format!("content type  {}", shown.content_type))?;
    for (name, value) in &shown.headers {
        output::line(format!("{name}: {value}"))?;
    }
    Ok(ExitCode::SUCCESS)
}
