//! Websites of buckets in the form of S3.

use cairn_fs::rows::{WebRedirect, WebRule, Website};
use s3s::dto::{
    Condition, ErrorDocument, GetBucketWebsiteOutput, IndexDocument, Protocol, Redirect,
    RedirectAllRequestsTo, RoutingRule, WebsiteConfiguration,
};
use s3s::{S3Error, S3ErrorCode, S3Result};

use super::error::{invalid, refuse};

/// Default status of a redirect in S3.
const MOVED: u16 = 301;

pub(super) fn of_configuration(configuration: WebsiteConfiguration) -> S3Result<Website> {
    check(&configuration)?;
    let rules = configuration.routing_rules.unwrap_or_default().into_iter().map(of_rule);
    Ok(Website {
        index: configuration.index_document.map(|index| index.suffix).unwrap_or_default(),
        error: configuration.error_document.map(|error| error.key).unwrap_or_default(),
        redirect_all: configuration.redirect_all_requests_to.map(|to| WebRedirect {
            protocol: to.protocol.map(text_of).unwrap_or_default(),
            host: to.host_name,
            status: MOVED,
            ..WebRedirect::default()
        }),
        rules: rules.collect::<S3Result<_>>()?,
    })
}

/// Refuses what S3 refuses with codes of its own, before the store looks at the rest.
fn check(configuration: &WebsiteConfiguration) -> S3Result<()> {
    let WebsiteConfiguration { error_document, index_document, .. } = configuration;
    match (&configuration.redirect_all_requests_to, index_document) {
        (Some(_), _) if has_more(configuration) => {
            return Err(malformed("RedirectAllRequestsTo stands alone"));
        }
        (None, None) => return Err(invalid("a website has an IndexDocument with a Suffix")),
        (_, Some(index)) if index.suffix.is_empty() || index.suffix.contains('/') => {
            return Err(invalid("the Suffix of the IndexDocument is the name of a file"));
        }
        _ => {}
    }
    if error_document.as_ref().is_some_and(|error| error.key.is_empty()) {
        return Err(invalid("the Key of the ErrorDocument is empty"));
    }
    for rule in configuration.routing_rules.iter().flatten() {
        if rule.condition == Some(Condition::default()) {
            return Err(malformed("a Condition is empty: leave it out for all requests"));
        }
        if rule.redirect == Redirect::default() {
            return Err(malformed("a Redirect is empty"));
        }
    }
    Ok(())
}

/// Returns whether there is more than a redirect of all requests.
fn has_more(configuration: &WebsiteConfiguration) -> bool {
    configuration.index_document.is_some()
        || configuration.error_document.is_some()
        || configuration.routing_rules.is_some()
}

fn malformed(what: &'static str) -> S3Error {
    refuse(S3ErrorCode::MalformedXML, what)
}

fn text_of(protocol: Protocol) -> String {
    protocol.as_str().to_owned()
}

fn of_rule(rule: RoutingRule) -> S3Result<WebRule> {
    let status = |text: Option<String>, otherwise: u16| match text {
        None => Ok(otherwise),
        Some(text) => text.parse().map_err(|_| malformed("a status of a website is no number")),
    };
    let condition = rule.condition.unwrap_or_default();
    let to = rule.redirect;
    Ok(WebRule {
        prefix: condition.key_prefix_equals.unwrap_or_default(),
        status: status(condition.http_error_code_returned_equals, 0)?,
        to: WebRedirect {
            protocol: to.protocol.map(text_of).unwrap_or_default(),
            host: to.host_name.unwrap_or_default(),
            key: to.replace_key_with,
            prefix: to.replace_key_prefix_with,
            status: status(to.http_redirect_code, MOVED)?,
        },
    })
}

pub(super) fn to_output(website: Website) -> GetBucketWebsiteOutput {
    let some = |text: String| (!text.is_empty()).then_some(text);
    let rules: Vec<RoutingRule> = website.rules.into_iter().map(to_rule).collect();
    GetBucketWebsiteOutput {
        error_document: some(website.error).map(|key| ErrorDocument { key }),
        index_document: some(website.index).map(|suffix| IndexDocument { suffix }),
        redirect_all_requests_to: website.redirect_all.map(|to| RedirectAllRequestsTo {
            host_name: to.host,
            protocol: some(to.protocol).map(Protocol::from),
        }),
        routing_rules: (!rules.is_empty()).then_some(rules),
    }
}

fn to_rule(rule: WebRule) -> RoutingRule {
    let some = |text: String| (!text.is_empty()).then_some(text);
    let status = (rule.status != 0).then(|| rule.status.to_string());
    let condition =
        Condition { http_error_code_returned_equals: status, key_prefix_equals: some(rule.prefix) };
    let is_for_all = condition.http_error_code_returned_equals.is_none()
        && condition.key_prefix_equals.is_none();
    RoutingRule {
        condition: (!is_for_all).then_some(condition),
        redirect: Redirect {
            host_name: some(rule.to.host),
            http_redirect_code: Some(rule.to.status.to_string()),
            protocol: some(rule.to.protocol).map(Protocol::from),
            replace_key_prefix_with: rule.to.prefix,
            replace_key_with: rule.to.key,
        },
    }
}
