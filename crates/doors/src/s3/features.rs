//! Features of S3 that do not exist here, by the names that requests have for them.

use s3s::S3Error;

use super::error::not_implemented;

/// Place in the documents that says which features are off.
const DOCS: &str =
    concat!(env!("CARGO_PKG_REPOSITORY"), "/blob/main/docs/s3.md#features-that-are-off");
const LOCKS: &str = "Object Lock";
const ENCRYPTION: &str = "server-side encryption by a request";
const VERSIONS: &str = "versions of objects";

/// Features, by the sub-resource that sets or asks for them.
const SUB_RESOURCES: &[(&str, &str)] = &[
    ("accelerate", "transfer acceleration"),
    ("analytics", "analytics of storage classes"),
    ("encryption", ENCRYPTION),
    ("intelligent-tiering", "storage classes that change by themselves"),
    ("inventory", "inventories"),
    ("legal-hold", LOCKS),
    ("lifecycle", "lifecycle rules"),
    ("logging", "access logs in buckets"),
    ("metrics", "request metrics of single buckets (its own are at /metrics of the HTTP door)"),
    ("notification", "notifications of events"),
    ("object-lock", LOCKS),
    ("ownershipControls", "an ownership of objects other than BucketOwnerEnforced"),
    ("policy", "bucket policies (rights are granted as docs/rights.md describes)"),
    ("replication", "replication rules"),
    ("requestPayment", "requesters who pay"),
    ("restore", "archives to restore objects from"),
    ("retention", LOCKS),
    ("select", "queries in objects"),
    ("torrent", "torrents"),
    ("versioning", VERSIONS),
];

/// Features, by the beginnings of headers that ask for them.
const HEADERS: &[(&str, &str)] = &[
    ("x-amz-bucket-object-lock-", LOCKS),
    ("x-amz-bypass-governance-", LOCKS),
    ("x-amz-copy-source-server-side-", ENCRYPTION),
    ("x-amz-grant-", "ACLs with grants (rights are granted as docs/rights.md describes)"),
    ("x-amz-mfa", VERSIONS),
    ("x-amz-object-lock-", LOCKS),
    ("x-amz-server-side-", ENCRYPTION),
    ("x-amz-website-redirect-", "redirects of single objects (a website may have rules)"),
];

/// Returns the refusal of a feature that is off: of its sub-resource.
pub(super) fn is_off(sub_resource: &str) -> S3Error {
    let known = SUB_RESOURCES.iter().find(|(name, _)| *name == sub_resource);
    not_implemented(refusal(known.map_or(sub_resource, |(_, feature)| *feature)))
}

/// Returns the refusal of a form, with which a browser would upload an object.
pub(super) fn form_uploads() -> S3Error {
    not_implemented(refusal("uploads by forms (POST)"))
}

/// Returns the refusal of a query parameter that the operation does not know.
pub(super) fn unknown_parameter(method: &http::Method, name: &str) -> S3Error {
    match SUB_RESOURCES.iter().find(|(known, _)| *known == name) {
        Some((_, feature)) => not_implemented(refusal(feature)),
        None => not_implemented(format!("{method} with the query parameter {name}: see {DOCS}")),
    }
}

/// Returns the refusal of a header that the operation does not honour.
pub(super) fn unknown_header(name: &str, operation: &str) -> S3Error {
    let text = format!(
        "A header you provided implies functionality that is not implemented: {name} with \
         {operation}"
    );
    match HEADERS.iter().find(|(start, _)| name.starts_with(start)) {
        Some((_, feature)) => not_implemented(format!("{text}. {}", refusal(feature))),
        None => not_implemented(format!("{text}: see {DOCS}")),
    }
}

fn refusal(feature: &str) -> String {
    format!("Cairn does not have {feature}: see {DOCS}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_refusal_names_the_feature_and_the_place_in_the_documents() {
        let text = |error: S3Error| error.message().unwrap().to_owned();
        for error in [is_off("policy"), unknown_parameter(&http::Method::PUT, "policy")] {
            let text = text(error);
            assert!(text.contains("bucket policies") && text.contains(DOCS), "{text}");
        }
        let header = text(unknown_header("x-amz-server-side-encryption", "PutObject"));
        assert!(header.contains("PutObject. Cairn does not have server-side"), "{header}");
        let place = include_str!("../../../../docs/s3.md").contains("\n## Features that are off\n");
        assert!(place, "docs/s3.md has the place that refusals name");
    }
}
