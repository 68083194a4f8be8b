//! Rules of CORS in the form of S3.

use cairn_fs::rows::CorsRule;
use s3s::S3Result;
use s3s::dto::CORSRule;

use super::error::invalid;

pub(super) fn of_set(rules: Vec<CORSRule>) -> S3Result<Vec<CorsRule>> {
    let max_age = |seconds: i32| {
        u32::try_from(seconds).map_err(|_| invalid("MaxAgeSeconds must not be negative"))
    };
    let rules = rules.into_iter().map(|rule| {
        Ok(CorsRule {
            id: rule.id.unwrap_or_default(),
            origins: rule.allowed_origins,
            methods: rule.allowed_methods,
            headers: rule.allowed_headers.unwrap_or_default(),
            exposed: rule.expose_headers.unwrap_or_default(),
            max_age_s: rule.max_age_seconds.map(max_age).transpose()?,
        })
    });
    rules.collect()
}

pub(super) fn to_set(rules: Vec<CorsRule>) -> Vec<CORSRule> {
    let some = |list: Vec<String>| (!list.is_empty()).then_some(list);
    let rules = rules.into_iter().map(|rule| CORSRule {
        allowed_headers: some(rule.headers),
        allowed_methods: rule.methods,
        allowed_origins: rule.origins,
        expose_headers: some(rule.exposed),
        id: (!rule.id.is_empty()).then_some(rule.id),
        max_age_seconds: rule.max_age_s.map(|seconds| i32::try_from(seconds).unwrap_or(i32::MAX)),
    });
    rules.collect()
}
