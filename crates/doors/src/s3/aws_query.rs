//! Calls of IAM and STS. Their clients are sometimes pointed at this door, and understand errors in
//! the form of their own APIs only.

use http::header::{AUTHORIZATION, CONTENT_TYPE, HeaderValue};
use http::{Method, Response, StatusCode};
use s3s::Body;

use super::address::Address;
use super::parts::Parts;
use super::xml::{DECLARATION, escape};

/// An API of AWS whose calls are forms.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct QueryApi {
    name: &'static str,
    /// Name in the scope of a credential.
    service: &'static str,
    version: &'static str,
    refusal: &'static str,
}

const IAM: QueryApi = QueryApi {
    name: "IAM",
    service: "iam",
    version: "2010-05-08",
    refusal: concat!(
        "this is an S3 door, and Cairn does not have the IAM API: users, keys and rights are ",
        "managed by cairn user, cairn key and cairn bucket set --grant, or in the console. See ",
        env!("CARGO_PKG_REPOSITORY"),
        "/blob/main/docs/s3.md#iam-and-sts"
    ),
};
const STS: QueryApi = QueryApi {
    name: "STS",
    service: "sts",
    version: "2011-06-15",
    refusal: concat!(
        "this is an S3 door, and Cairn does not have the STS API: it gives no temporary ",
        "credentials. Use an access key of a user. See ",
        env!("CARGO_PKG_REPOSITORY"),
        "/blob/main/docs/s3.md#iam-and-sts"
    ),
};

/// Returns the API that a request is meant for, if it is not S3.
pub(super) fn api_of(parts: &Parts) -> Option<QueryApi> {
    if parts.address != Address::Root || !matches!(parts.method, Method::GET | Method::POST) {
        return None;
    }
    let header = parts.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let header = header.and_then(|text| text.split_once("Credential=")).map(|(_, rest)| rest);
    let scope = header.or(parts.query.get("X-Amz-Credential"));
    if let Some(scope) = scope {
        // <access key id>/<day>/<region>/<service>/aws4_request
        let service = scope.split([',', ' ']).next()?.rsplit('/').nth(1)?;
        return [IAM, STS].into_iter().find(|api| api.service == service);
    }
    let version = parts.query.get("Action").and(parts.query.get("Version"));
    if let Some(version) = version {
        return [IAM, STS].into_iter().find(|api| api.version == version);
    }
    // Only STS has calls without a signature.
    let form = parts.headers.get(CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let is_form =
        form.is_some_and(|kind| kind.trim().starts_with("application/x-www-form-urlencoded"));
    (is_form && parts.method == Method::POST && parts.query.is_empty() && header.is_none())
        .then_some(STS)
}

/// Returns the refusal of a call.
pub(super) fn refused(api: QueryApi, request_id: &str) -> Response<Body> {
    let QueryApi { name, service, version, refusal } = api;
    let text = format!(
        "{DECLARATION}\n<ErrorResponse xmlns=\"https://{service}.amazonaws.com/doc/{version}/\">\
         <Error><Type>Sender</Type><Code>NotImplemented</Code><Message>{name}: {}</Message></Error>\
         <RequestId>{}</RequestId></ErrorResponse>",
        escape(refusal),
        escape(request_id),
    );
    let mut response = Response::new(Body::from(text));
    *response.status_mut() = StatusCode::NOT_IMPLEMENTED;
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("text/xml"));
    response
}
