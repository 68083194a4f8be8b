//! The website of a bucket, as JSON.

use cairn_auth::{Action, Caller, Resource, authorize};
use cairn_base::{Error, Result};
use cairn_fs::Fs;
use cairn_fs::ops::buckets::GetBucket;
use cairn_fs::ops::website::PutWebsite;
use cairn_fs::rows::{WebRedirect, WebRule, Website};
use http::{Response, StatusCode};
use serde::{Deserialize, Serialize};

use super::{Body, json_of, no_content};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ShownWebsite {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    index: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    error: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    redirect_all: Option<To>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    rules: Vec<Rule>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    prefix: String,
    /// Status to which the rule applies; 0 for all requests.
    #[serde(default)]
    status: u16,
    to: To,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct To {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    protocol: String,
    #[serde(default, skip_serializing_if = "String::is_empty")]
    host: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    prefix: Option<String>,
    #[serde(default = "moved_permanently")]
    status: u16,
}

fn moved_permanently() -> u16 {
    301
}

impl From<To> for WebRedirect {
    fn from(to: To) -> WebRedirect {
        let To { protocol, host, key, prefix, status } = to;
        WebRedirect { protocol, host, key, prefix, status }
    }
}

impl From<WebRedirect> for To {
    fn from(to: WebRedirect) -> To {
        let WebRedirect { protocol, host, key, prefix, status } = to;
        To { protocol, host, key, prefix, status }
    }
}

/// Returns the website of a bucket.
pub async fn show(fs: &Fs, caller: &Caller, bucket: &str) -> Result<Response<Body>> {
    let (opened, _) = fs.read(caller, GetBucket { name: bucket.to_owned() }).await?;
    let context = caller.context(fs.clock().now());
    let resource = Resource::Bucket(opened.bucket.access());
    authorize(caller, Action::GetBucketWebsite, resource, &context)?;
    let Some(website) = opened.bucket.website.decode()? else {
        return Err(Error::NotFound(format!("website of bucket {bucket}")));
    };
    let rule =
        |rule: WebRule| Rule { prefix: rule.prefix, status: rule.status, to: To::from(rule.to) };
    let shown = ShownWebsite {
        index: website.index,
        error: website.error,
        redirect_all: website.redirect_all.map(To::from),
        rules: website.rules.into_iter().map(rule).collect(),
    };
    Ok(json_of(StatusCode::OK, &shown))
}

/// Makes a bucket a website as JSON says.
pub async fn put(fs: &Fs, caller: &Caller, bucket: &str, json: &[u8]) -> Result<Response<Body>> {
    let ShownWebsite { index, error, redirect_all, rules } = serde_json::from_slice(json)
        .map_err(|error| Error::Invalid(format!("JSON of the body: {error}")))?;
    let rule = |rule: Rule| WebRule {
        prefix: rule.prefix,
        status: rule.status,
        to: WebRedirect::from(rule.to),
    };
    let redirect_all = redirect_all.map(WebRedirect::from);
    let rules = rules.into_iter().map(rule).collect();
    replace(fs, caller, bucket, Some(Website { index, error, redirect_all, rules })).await
}

/// Ends the website of a bucket.
pub async fn delete(fs: &Fs, caller: &Caller, bucket: &str) -> Result<Response<Body>> {
    replace(fs, caller, bucket, None).await
}

async fn replace(
    fs: &Fs,
    caller: &Caller,
    bucket: &str,
    website: Option<Website>,
) -> Result<Response<Body>> {
    fs.run(caller, PutWebsite { bucket: bucket.to_owned(), website }).await?;
    Ok(no_content())
}
