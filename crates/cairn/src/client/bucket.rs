//! `cairn bucket`

use std::process::ExitCode;

use cairn_bench::values::size;
use serde::Serialize;

use super::address::bucket_path;
use super::api::{self, Bucket};
use super::cors::{self, CorsArgs};
use super::website::{self, WebsiteArgs};
use crate::connection::{Connection, Server};
use crate::failure::{Failure, Result};
use crate::output;

/// Make, list, change and delete buckets
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn bucket create photos
  cairn bucket create www --visibility public
  cairn bucket create terraform --kind objects
  cairn bucket set photos --grant alice:read,write
  cairn bucket set photos --quota 500g
  cairn bucket ls --json")]
pub struct BucketArgs {
    #[command(subcommand)]
    command: Command,
    #[command(flatten)]
    connection: Connection,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Make a bucket
    #[command(after_help = "Examples:
  cairn bucket create www --visibility public
  cairn bucket create terraform --kind objects")]
    Create {
        /// 3 to 63 of a-z 0-9 . -, as S3 allows
        name: String,
        /// private, or public: anybody may read and list the bucket
        #[arg(long, default_value = "private")]
        visibility: String,
        /// files: keys are names of files, for mounts, NFS and people. objects: every key of S3,
        /// for programs of S3. It never changes [default: files]
        #[arg(long, value_name = "files|objects", hide_possible_values = true)]
        #[arg(value_parser = ["files", "objects", "posix", "s3"])]
        kind: Option<String>,
    },
    /// List the buckets you may look into
    #[command(after_help = "Example:\n  cairn bucket ls --json | jq .bytes")]
    Ls {
        /// Print one line of JSON for each
        #[arg(long)]
        json: bool,
    },
    /// Change settings of a bucket
    #[command(after_help = "Example:\n  cairn bucket set www --cache-control 'max-age=60'")]
    Set {
        /// The bucket
        name: String,
        /// private, or public: anybody may read and list the bucket
        #[arg(long)]
        visibility: Option<String>,
        /// Cache-Control of objects that have none of their own; empty for none
        #[arg(long, value_name = "VALUE")]
        cache_control: Option<String>,
        /// Set the rights of a user: read, write, admin, all or none, several with commas
        #[arg(long, value_name = "USER:RIGHTS")]
        grant: Option<String>,
        /// In a cluster: number of replicas of new data, 1 to 5; 0 for the cluster's default
        #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(0..=5))]
        replicas: Option<u8>,
        /// In a cluster: on to redirect downloads over HTTP to chunkservers, or off
        #[arg(long, value_name = "on|off", value_parser = ["on", "off"])]
        redirect: Option<String>,
        /// on to show listings as pages to browsers, or off
        #[arg(long, value_name = "on|off", value_parser = ["on", "off"])]
        html_listing: Option<String>,
        /// Most bytes in the bucket, such as 500g; 0 for no quota. Only root may set it
        #[arg(long, value_name = "SIZE", value_parser = size)]
        quota: Option<u64>,
        /// Most files or objects in the bucket; 0 for no quota. Only root may set it
        #[arg(long, value_name = "N")]
        quota_files: Option<u64>,
    },
    /// Show or change the rules for pages of other sites (CORS)
    Cors(CorsArgs),
    /// Show or change the website of a bucket
    Website(WebsiteArgs),
    /// Delete an empty bucket
    #[command(after_help = "Example:\n  cairn rm -r old/ && cairn bucket rm old")]
    Rm {
        /// The bucket
        name: String,
    },
    /// Show settings and usage of a bucket
    #[command(after_help = "Example:\n  cairn bucket stat photos")]
    Stat {
        /// The bucket
        name: String,
        /// Print one line of JSON
        #[arg(long)]
        json: bool,
    },
}

#[derive(Serialize)]
struct Change<'a> {
    #[serde(skip_serializing_if = "Option::is_none")]
    visibility: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    cache_control: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    grant: Option<Grant<'a>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replicas: Option<u8>,
    #[serde(skip_serializing_if = "Option::is_none")]
    redirect: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    html_listing: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    quota_objects: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    quota_bytes: Option<u64>,
}

impl Change<'_> {
    fn is_empty(&self) -> bool {
        serde_json::to_value(self).is_ok_and(|value| value == serde_json::json!({}))
    }
}

#[derive(Serialize)]
struct Grant<'a> {
    user: &'a str,
    rights: &'a str,
}

pub fn run(args: &BucketArgs) -> Result<ExitCode> {
    let server = args.connection.open()?;
    match &args.command {
        Command::Create { name, visibility, kind } => {
            let visibility = super::address::escape(visibility);
            let mut path = format!("{}?visibility={visibility}", bucket_path(name));
            // Servers of earlier versions know no kind.
            if let Some(kind) = kind {
                path += &format!("&kind={kind}");
            }
            server.send("PUT", &path)?;
        }
        Command::Ls { json } => list(&server, *json)?,
        Command::Set {
            name,
            visibility,
            cache_control,
            grant,
            replicas,
            redirect,
            html_listing,
            quota,
            quota_files,
        } => {
            let grant = grant.as_deref().map(parse_grant).transpose()?;
            let change = Change {
                visibility: visibility.as_deref(),
                cache_control: cache_control.as_deref(),
                grant,
                replicas: *replicas,
                redirect: redirect.as_deref(),
                html_listing: html_listing.as_deref(),
                quota_objects: *quota_files,
                quota_bytes: *quota,
            };
            if change.is_empty() {
                let text = "nothing to set: name an option, see cairn bucket set --help";
                return Err(Failure::usage(text));
            }
            server.send_json("PATCH", &bucket_path(name), &change)?;
        }
        Command::Cors(args) => cors::run(&server, args)?,
        Command::Website(args) => website::run(&server, args)?,
        Command::Rm { name } => {
            server.send("DELETE", &bucket_path(name))?;
        }
        Command::Stat { name, json } => {
            let bucket: Bucket = server.send("GET", &bucket_path(name))?.json()?;
            if *json { output::json(&bucket)? } else { show(&bucket)? }
        }
    }
    Ok(ExitCode::SUCCESS)
}

fn parse_grant(text: &str) -> Result<Grant<'_>> {
    match text.split_once(':') {
        Some((user, rights)) => Ok(Grant { user, rights }),
        None => Err(Failure::usage(format!("--grant {text}: use USER:RIGHTS"))),
    }
}

/// Header of the list of buckets.
pub const HEADER: [&str; 6] = ["BUCKET", "VISIBILITY", "OWNER", "FILES", "SIZE", "KIND"];

fn list(server: &Server, json: bool) -> Result<()> {
    let buckets = api::buckets(server)?;
    if json {
        return buckets.iter().try_for_each(output::json);
    }
    output::table(&HEADER, rows(&buckets, output::human_bytes))
}

/// Returns the rows of the list of buckets. `size` shows a number of bytes.
pub fn rows(buckets: &[Bucket], size: impl Fn(u64) -> String) -> Vec<Vec<String>> {
    let row = |bucket: &Bucket| {
        vec![
            bucket.name.clone(),
            bucket.visibility.clone(),
            bucket.owner.clone(),
            bucket.objects.to_string(),
            size(bucket.bytes),
            kind_word(&bucket.kind).to_owned(),
        ]
    };
    buckets.iter().map(row).collect()
}

/// Returns the word for the kind of a bucket; servers of earlier versions send others.
fn kind_word(kind: &str) -> &str {
    match kind {
        "posix" => "files",
        "s3" => "objects",
        other => other,
    }
}

fn show(bucket: &Bucket) -> Result<()> {
    let size = output::human_bytes(bucket.bytes);
    let quota = |quota: u64, shown: String| if quota == 0 { "none".to_owned() } else { shown };
    let quota_files = quota(bucket.quota_objects, bucket.quota_objects.to_string());
    let quota_size = quota(bucket.quota_bytes, output::human_bytes(bucket.quota_bytes));
    output::line(format!("bucket         {}", bucket.name))?;
    output::line(format!("kind           {}", kind_word(&bucket.kind)))?;
    output::line(format!("owner          {}", bucket.owner))?;
    output::line(format!("visibility     {}", bucket.visibility))?;
    if let Some(flags) = &bucket.public_access_block {
        let then = if bucket.public_behind_block { " (public when the block ends)" } else { "" };
        output::line(format!("public block   {}{then}", flags.join(", ")))?;
    }
    output::line(format!("cache control  {}", bucket.cache_control))?;
    output::line(format!("redirect       {}", bucket.redirect))?;
    output::line(format!("html listing   {}", bucket.html_listing))?;
    output::line(format!("read-only      {}", bucket.read_only))?;
    for grant in bucket.grants.iter().flatten() {
        output::line(format!("grant          {}:{}", grant.user, grant.rights))?;
    }
    output::line(format!("created        {}", bucket.created))?;
    output::line(format!("files          {}", bucket.objects))?;
    output::line(format!("size           {} ({size})", bucket.bytes))?;
    output::line(format!("uploads        {}", bucket.uploads))?;
    output::line(format!("quota          {quota_size}"))?;
    output::line(format!("quota of files {quota_files}"))
}
