//! Preflights: unsigned requests with which a browser asks whether a page may send a request.

use cairn_fs::Fs;
use cairn_fs::rows::CorsRule;
use http::header::{ORIGIN, VARY};
use http::{Method, Response, StatusCode};
use s3s::{Body, S3Error, S3Result};

use super::error::{Codes, refuse_with, translate};
use super::parts::Parts;
use super::reply;
use crate::cors::{self, Cors, Policy, Refusal};

/// Policy of S3. A browser never adds signatures.
pub(super) const POLICY: Policy = Policy { credentials: true, exposed: "" };

/// Message in the words of S3.
const NOT_ALLOWED: &str = "CORSResponse: This CORS request is not allowed. This is usually \
    because the evalution of Origin, request method / Access-Control-Request-Method or \
    Access-Control-Request-Headers are not whitelisted by the resource's CORS spec.";

/// Pages of the server itself, which use presigned URLs: browsers add no credentials.
pub(super) struct Pages(Option<CorsRule>);

impl Pages {
    const POLICY: Policy = Policy { credentials: false, exposed: "" };

    pub(super) fn new(origins: Vec<String>) -> Pages {
        let owned = |names: &[&str]| names.iter().map(|name| (*name).to_owned()).collect();
        Pages((!origins.is_empty()).then(|| CorsRule {
            origins,
            methods: owned(&["GET", "HEAD", "PUT", "POST", "DELETE"]),
            headers: owned(&["cache-control", "content-type", "if-none-match", "range"]),
            exposed: owned(&["ETag", "x-amz-request-id"]),
            max_age_s: Some(600),
            ..CorsRule::default()
        }))
    }

    /// Returns the rule for a page, if it is one of these.
    fn cors(&self, parts: &Parts) -> Option<Cors> {
        let rule = self.0.as_ref()?;
        let origin = parts.headers.get(ORIGIN)?.to_str().ok()?;
        let is_own = rule.origins.iter().any(|own| own == origin);
        is_own.then(|| Cors::by(rule.clone(), Pages::POLICY))
    }
}

/// Answers a preflight. Every OPTIONS is taken for one: what a preflight needs may be missing.
pub(super) async fn answer(fs: &Fs, pages: &Pages, parts: &Parts) -> S3Result<Response<Body>> {
    let cors = match pages.cors(parts) {
        Some(cors) => Ok(cors),
        None => Cors::of(fs, parts.address.bucket(), POLICY).await,
    };
    let told = cors.map_err(Refusal::from).and_then(|cors| cors.preflight(&parts.headers));
    let mut response = reply::empty(StatusCode::OK);
    *response.headers_mut() = told.map_err(refused)?;
    Ok(response)
}

fn refused(refusal: Refusal) -> S3Error {
    match refusal {
        Refusal::Malformed(text) => refuse_with("BadRequest", StatusCode::BAD_REQUEST, text),
        Refusal::NotAllowed => refuse_with("AccessForbidden", StatusCode::FORBIDDEN, NOT_ALLOWED),
        Refusal::Failed(error) => translate(error, Codes::bucket()),
    }
}

/// Sets the headers of the reply to a preflight, or to a page's request, that say which pages may
/// read it.
pub(super) async fn say(fs: &Fs, pages: &Pages, parts: &Parts, response: &mut Response<Body>) {
    let headers = response.headers_mut();
    if parts.method == Method::OPTIONS {
        headers.insert(VARY, cors::VARY_PREFLIGHT);
    } else if let Some(cors) = pages.cors(parts) {
        cors.say(&parts.method, &parts.headers, headers);
    } else if let Some(cors) =
        Cors::of_page(fs, &parts.headers, parts.address.bucket(), POLICY).await
    {
        cors.say(&parts.method, &parts.headers, headers);
    }
}
