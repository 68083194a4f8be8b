//! Pages of other sites: the rules of a bucket as JSON, and preflights.

use cairn_auth::{Action, Caller, Resource, authorize};
use cairn_base::{Error, Result};
use cairn_fs::Fs;
use cairn_fs::ops::buckets::GetBucket;
use cairn_fs::ops::cors::PutCors;
use cairn_fs::rows::CorsRule;
use http::header::{AUTHORIZATION, VARY};
use http::request::Parts;
use http::{Response, StatusCode};
use serde::{Deserialize, Serialize};

use super::error::{self, Failure};
use super::inner::Inner;
use super::target::Target;
use super::{Body, json_of, no_content};
use crate::cors::{self, Cors, Policy, Refusal};

/// Policy without credentials: a browser may know credentials for this door that pages do not, so
/// it is never asked to add them.
pub const POLICY: Policy = Policy {
    credentials: false,
    exposed: "ETag, Accept-Ranges, Content-Range, Content-Length, Content-Encoding, \
              Content-Disposition, Retry-After, X-Cairn-Offset, X-Cairn-Size, X-Request-Id, \
              Location, Tus-Resumable, Upload-Expires, Upload-Length, Upload-Offset",
};

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rules {
    rules: Vec<Rule>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Rule {
    #[serde(default, skip_serializing_if = "String::is_empty")]
    id: String,
    origins: Vec<String>,
    methods: Vec<String>,
    #[serde(default)]
    headers: Vec<String>,
    #[serde(default)]
    exposed_headers: Vec<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_age_s: Option<u32>,
}

impl From<CorsRule> for Rule {
    fn from(rule: CorsRule) -> Rule {
        let CorsRule { id, origins, methods, headers, exposed, max_age_s } = rule;
        Rule { id, origins, methods, headers, exposed_headers: exposed, max_age_s }
    }
}

impl From<Rule> for CorsRule {
    fn from(rule: Rule) -> CorsRule {
        let Rule { id, origins, methods, headers, exposed_headers: exposed, max_age_s } = rule;
        CorsRule { id, origins, methods, headers, exposed, max_age_s }
    }
}

/// Returns the rules of a bucket.
pub async fn show(fs: &Fs, caller: &Caller, bucket: &str) -> Result<Response<Body>> {
    let (opened, _) = fs.read(caller, GetBucket { name: bucket.to_owned() }).await?;
    let context = caller.context(fs.clock().now());
    let resource = Resource::Bucket(opened.bucket.access());
    authorize(caller, Action::GetBucketCors, resource, &context)?;
    let rules = opened.bucket.cors.decode()?.into_iter().map(Rule::from).collect();
    Ok(json_of(StatusCode::OK, &Rules { rules }))
}

/// Replaces the rules of a bucket by those in JSON.
pub async fn put(fs: &Fs, caller: &Caller, bucket: &str, json: &[u8]) -> Result<Response<Body>> {
    let parsed: Rules = serde_json::from_slice(json)
        .map_err(|error| Error::Invalid(format!("JSON of the body: {error}")))?;
    replace(fs, caller, bucket, parsed.rules.into_iter().map(CorsRule::from).collect()).await
}

/// Removes all rules of a bucket.
pub async fn delete(fs: &Fs, caller: &Caller, bucket: &str) -> Result<Response<Body>> {
    replace(fs, caller, bucket, Vec::new()).await
}

async fn replace(
    fs: &Fs,
    caller: &Caller,
    bucket: &str,
    rules: Vec<CorsRule>,
) -> Result<Response<Body>> {
    fs.run(caller, PutCors { bucket: bucket.to_owned(), rules }).await?;
    Ok(no_content())
}

/// Returns whether a rule lets a page of another site change something. Only with a token: a
/// browser adds other credentials by itself, to requests of any page.
pub fn may_change(cors: &Cors, parts: &Parts) -> bool {
    let is_token = parts.headers.get_all(AUTHORIZATION).iter().all(|value| {
        value.as_bytes().get(..7).is_some_and(|scheme| scheme.eq_ignore_ascii_case(b"bearer "))
    });
    is_token && cors.allows(&parts.method, &parts.headers)
}

/// Answers a preflight: for any client, as browsers send it without credentials.
pub async fn preflight(door: &Inner, parts: &Parts, target: &Target<'_>) -> Response<Body> {
    let cors = Cors::of(door.fs(), target.bucket(), POLICY).await;
    let told = cors.map_err(Refusal::from).and_then(|cors| cors.preflight(&parts.headers));
    let mut reply = match told {
        Ok(told) => {
            let mut reply = no_content();
            *reply.headers_mut() = told;
            reply
        }
        // The reply must not ask for credentials: none are missing.
        Err(refusal) => error::reply(refusal.into(), false, &door.ids.next()),
    };
    reply.headers_mut().insert(VARY, cors::VARY_PREFLIGHT);
    reply
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Failure {
        Failure::Store(match refusal {
            Refusal::Malformed(text) => Error::Invalid(text.into()),
            Refusal::NotAllowed => {
                Error::Denied("no rule of CORS of this bucket allows this page to ask so".into())
            }
            Refusal::Failed(error) => error,
        })
    }
}
