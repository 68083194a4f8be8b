//! Error documents in the form of S3: code, message and fields, from one table.

use http::header::{CONTENT_TYPE, HeaderValue};
use http::{Response, StatusCode};
use s3s::{Body, S3Error};

use super::error::{REQUEST_TIME, SERVER_TIME, SIZE};
use super::sigv4::SKEW_SECS;
use super::xml::{DECLARATION, escape};

/// The fields of a document in addition to code and message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Field {
    Key,
    BucketName,
    UploadId,
    Condition,
    RangeRequested,
    ActualObjectSize,
    RequestTime,
    ServerTime,
    MaxAllowedSkew,
}

/// Codes with a fixed document in S3: code, message and fields. Clients look at all of them.
const DOCUMENTS: &[(&str, &str, &[Field])] = &[
    ("NoSuchKey", "The specified key does not exist.", &[Field::Key]),
    ("NoSuchBucket", "The specified bucket does not exist", &[Field::BucketName]),
    (
        "NoSuchUpload",
        "The specified upload does not exist. The upload ID may be invalid, or the upload may \
         have been aborted or completed.",
        &[Field::UploadId],
    ),
    (
        "PreconditionFailed",
        "At least one of the pre-conditions you specified did not hold",
        &[Field::Condition],
    ),
    (
        "InvalidRange",
        "The requested range is not satisfiable",
        &[Field::RangeRequested, Field::ActualObjectSize],
    ),
    (
        "RequestTimeTooSkewed",
        "The difference between the request time and the current time is too large.",
        &[Field::RequestTime, Field::ServerTime, Field::MaxAllowedSkew],
    ),
    ("BucketNotEmpty", "The bucket you tried to delete is not empty", &[Field::BucketName]),
    (
        "BucketAlreadyExists",
        "The requested bucket name is not available. The bucket namespace is shared by all users \
         of the system. Please select a different name and try again.",
        &[Field::BucketName],
    ),
    (
        "BucketAlreadyOwnedByYou",
        "Your previous request to create the named bucket succeeded and you already own it.",
        &[Field::BucketName],
    ),
    ("NoSuchTagSet", "The TagSet does not exist", &[Field::BucketName]),
    (
        "InvalidPart",
        "One or more of the specified parts could not be found. The part may not have been \
         uploaded, or the specified entity tag may not match the part's entity tag.",
        &[Field::UploadId],
    ),
    (
        "InvalidPartOrder",
        "The list of parts was not in ascending order. Parts must be ordered by part number.",
        &[Field::UploadId],
    ),
    ("EntityTooSmall", "Your proposed upload is smaller than the minimum allowed size", &[]),
];

/// The parts of a request that its error document shows.
#[derive(Clone, Debug, Default)]
pub(super) struct ErrorContext {
    pub(super) resource: String,
    pub(super) request_id: String,
    pub(super) host_id: String,
    pub(super) bucket: Option<String>,
    pub(super) key: Option<String>,
    pub(super) upload: Option<String>,
    pub(super) range: Option<String>,
    /// True if there are conditions on the source of a copy.
    pub(super) of_source: bool,
}

impl ErrorContext {
    fn field(&self, field: Field, detail: &str) -> Option<(&'static str, String)> {
        let (name, value) = match field {
            Field::Key => ("Key", self.key.clone()),
            Field::BucketName => ("BucketName", self.bucket.clone()),
            Field::UploadId => ("UploadId", self.upload.clone()),
            Field::RangeRequested => ("RangeRequested", self.range.clone()),
            Field::ActualObjectSize => {
                let size = detail.split_once(SIZE).map(|(_, size)| size.to_owned());
                ("ActualObjectSize", size)
            }
            Field::RequestTime => ("RequestTime", after(detail, REQUEST_TIME)),
            Field::ServerTime => ("ServerTime", after(detail, SERVER_TIME)),
            Field::MaxAllowedSkew => {
                ("MaxAllowedSkewMilliseconds", Some((SKEW_SECS * 1000).to_string()))
            }
            Field::Condition => ("Condition", self.condition(detail)),
        };
        value.map(|value| (name, value))
    }

    /// Returns the name of the condition that failed, which the store names.
    fn condition(&self, detail: &str) -> Option<String> {
        let all = ["If-None-Match", "If-Match", "If-Unmodified-Since", "If-Modified-Since"];
        let name = all.into_iter().find(|name| detail.contains(name))?;
        Some(if self.of_source { format!("x-amz-copy-source-{name}") } else { name.to_owned() })
    }
}

/// Returns the word after a text in the detail of an error.
fn after(detail: &str, text: &str) -> Option<String> {
    let (_, rest) = detail.split_once(text)?;
    rest.split([',', ' ']).next().map(str::to_owned)
}

/// Returns the response for an error.
pub(super) fn response(error: &S3Error, told: &ErrorContext) -> Response<Body> {
    let status = error.status_code().unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = Response::new(Body::empty());
    *response.status_mut() = status;
    if let Some(headers) = error.headers() {
        response.headers_mut().extend(headers.clone());
    }
    if status != StatusCode::NOT_MODIFIED {
        *response.body_mut() = Body::from(format!("{DECLARATION}\n{}", text(error, told)));
        let kind = HeaderValue::from_static("application/xml");
        response.headers_mut().insert(CONTENT_TYPE, kind);
    }
    response
}

/// Returns the document alone.
pub(super) fn text(error: &S3Error, told: &ErrorContext) -> String {
    document(error.code().as_str(), &escape(error.message().unwrap_or_default()), told)
}

/// Returns the document. `detail` is this server's own text, as it is in XML.
fn document(code: &str, detail: &str, told: &ErrorContext) -> String {
    let known = DOCUMENTS.iter().find(|(known, _, _)| *known == code);
    let mut out = format!("<Error><Code>{}</Code>", escape(code));
    let mut add = |name: &str, value: &str| out.push_str(&format!("<{name}>{value}</{name}>"));
    match known {
        None => add("Message", detail),
        Some((_, message, fields)) => {
            add("Message", &escape(message));
            for (name, value) in fields.iter().filter_map(|field| told.field(*field, detail)) {
                add(name, &escape(&value));
            }
            if !detail.is_empty() {
                add("Detail", detail);
            }
        }
    }
    add("Resource", &escape(&told.resource));
    add("RequestId", &told.request_id);
    add("HostId", &told.host_id);
    out.push_str("</Error>");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told() -> ErrorContext {
        ErrorContext {
            resource: "/b/k".into(),
            bucket: Some("b".into()),
            key: Some("k<".into()),
            upload: Some("u1".into()),
            range: Some("bytes=5-".into()),
            ..ErrorContext::default()
        }
    }

    #[test]
    fn every_code_has_its_fields() {
        for (code, message, fields) in DOCUMENTS {
            let detail = format!("If-Match {REQUEST_TIME}1, {SERVER_TIME}2, {SIZE}7");
            let text = document(code, &detail, &told());
            assert!(text.contains(&format!("<Message>{}</Message>", escape(message))), "{text}");
            for field in *fields {
                let (name, value) = told().field(*field, &detail).unwrap();
                let field = format!("<{name}>{}</{name}>", escape(&value));
                assert!(text.contains(&field), "{code}: {text}");
            }
        }
    }

    #[test]
    fn conditions_of_the_source_are_told_apart() {
        let text = document("PreconditionFailed", "If-None-Match", &told());
        assert!(text.contains("<Condition>If-None-Match</Condition>"), "{text}");
        let told = ErrorContext { of_source: true, ..told() };
        let text = document("PreconditionFailed", "If-Match", &told);
        assert!(text.contains("<Condition>x-amz-copy-source-If-Match</Condition>"), "{text}");
    }
}
