//! Headers and user metadata of an object, and a form that changes them. As at the S3 door, a
//! change is a copy of the object onto itself: no byte moves.

use cairn_base::{Error, Result, limits};
use cairn_doors::limits::USER_METADATA;
use cairn_fs::Object;
use cairn_fs::ops::conditions::{Conditions, EtagMatch};
use cairn_fs::ops::copy_object::CopyObject;
use cairn_fs::rows::ObjectAttributes;
use http::{HeaderName, HeaderValue};
use maud::{Markup, html};

use super::At;
use crate::failure::Failure;
use crate::fields::{self, Text};
use crate::forms::Form;
use crate::reply::{self, Reply};

/// Empty lines for further metadata.
const FREE: usize = 2;

/// The headers of a form: the name of the field and of the header.
const HEADERS: [(&str, &str); 5] = [
    ("content-type", "Content-Type"),
    ("content-encoding", "Content-Encoding"),
    ("content-disposition", "Content-Disposition"),
    ("content-language", "Content-Language"),
    ("cache-control", "Cache-Control"),
];

pub async fn put(at: &At<'_>) -> Result<Reply, Failure> {
    let form = at.asked.form()?;
    let key = form.get("key").to_owned();
    at.asked.witness.note(|facts| facts.key = Some(key.clone()));
    if key.ends_with('/') {
        return Err(Error::Invalid("a folder has no metadata to change".into()).into());
    }
    let (fs, caller) = (at.inner.fs(), &at.login.caller);
    let object = fs.open(caller, at.bucket, &key).await?;
    let known = object.attributes().cloned().unwrap_or_default();
    let changed = wanted(&form, known)?;
    // The change applies to the object that was shown.
    let shown = EtagMatch::OneOf(vec![form.get("etag").to_owned()]);
    let verb = CopyObject {
        source_bucket: at.bucket.to_owned(),
        source_key: key.clone(),
        source_conditions: Conditions { if_match: Some(shown), ..Conditions::default() },
        bucket: at.bucket.to_owned(),
        key: key.clone(),
        conditions: Conditions::default(),
        object: Some(changed),
        tags: None,
    };
    fs.copy_as_is(caller, verb).await.map_err(|error| match error {
        Error::PreconditionFailed(_) => {
            let text = "the object has changed since this form was made: load its page again";
            Error::Conflict(text.into())
        }
        other => other,
    })?;
    Ok(reply::see_other(&at.of_object("object", &key)))
}

/// Returns the attributes with the values of a form.
fn wanted(form: &Form, known: ObjectAttributes) -> Result<ObjectAttributes> {
    let [content_type, content_encoding, content_disposition, content_language, cache_control] =
        HEADERS.map(|(field, header)| header_value(header, form.get(field)));
    Ok(ObjectAttributes {
        content_type: content_type?,
        content_encoding: content_encoding?,
        content_disposition: content_disposition?,
        content_language: content_language?,
        cache_control: cache_control?,
        user_metadata: user_metadata(form)?,
        ..known
    })
}

/// Checks that a value can be sent as a header.
fn header_value(name: &str, text: &str) -> Result<String> {
    let text = text.trim();
    if text.len() > limits::HEADER_VALUE_BYTES {
        let most = limits::HEADER_VALUE_BYTES;
        return Err(Error::TooLarge(format!("{name}: at most {most} bytes")));
    }
    if HeaderValue::from_str(text).is_ok() && !text.chars().any(char::is_control) {
        Ok(text.to_owned())
    } else {
        Err(Error::Invalid(format!("{name}: no control characters are allowed")))
    }
}

/// Reads the user metadata of a form, in which names and values alternate. Lines without both are
/// ignored.
fn user_metadata(form: &Form) -> Result<Vec<(String, String)>> {
    let mut metadata: Vec<(String, String)> = Vec::new();
    for (name, value) in form.all("meta").zip(form.all("meta-value")) {
        let name = name.trim().to_ascii_lowercase();
        let name = name.strip_prefix("x-amz-meta-").unwrap_or(&name);
        if name.is_empty() && value.trim().is_empty() {
            continue;
        }
        if HeaderName::from_bytes(name.as_bytes()).is_err() {
            let what = "use letters, digits and hyphens for a name of metadata";
            return Err(Error::Invalid(format!("{name:?}: {what}")));
        }
        if metadata.iter().any(|(other, _)| other == name) {
            return Err(Error::Invalid(format!("the metadata {name} is given twice")));
        }
        metadata.push((name.to_owned(), header_value(name, value)?));
    }
    let bytes: usize = metadata.iter().map(|(name, value)| name.len() + value.len()).sum();
    if metadata.len() > USER_METADATA || bytes > limits::USER_METADATA_BYTES {
        let most = limits::USER_METADATA_BYTES;
        let what = format!("metadata: at most {USER_METADATA} names and {most} bytes in all");
        return Err(Error::TooLarge(what));
    }
    Ok(metadata)
}

pub fn form(at: &At<'_>, key: &str, object: &Object) -> Markup {
    let none = ObjectAttributes::default();
    let known = object.attributes().unwrap_or(&none);
    let values = [
        &known.content_type,
        &known.content_encoding,
        &known.content_disposition,
        &known.content_language,
        &known.cache_control,
    ];
    let own = &known.user_metadata;
    let line = |number: usize| own.get(number).map_or(("", ""), |(name, value)| (name, value));
    html! {
        section class="group" aria-labelledby="metadata" {
            h2 id="metadata" { "Metadata" }
            details {
                summary { "Change metadata" }
                form method="post" action=(format!("/b/{}/metadata", at.bucket)) class="form" {
                    (fields::hidden(&[("key", key), ("etag", &object.etag())]))
                    @for ((id, label), value) in HEADERS.iter().zip(values) {
                        (fields::text(&Text { id, label, value, ..Text::default() }))
                    }
                    @for number in 0..own.len() + FREE {
                        @let (name, value) = line(number);
                        div class="pair" {
                            input name="meta" value=(name) autocomplete="off"
                                aria-label=(format!("Name of metadata {}", number + 1))
                                placeholder="Name";
                            input name="meta-value" value=(value) autocomplete="off"
                                aria-label=(format!("Value of metadata {}", number + 1))
                                placeholder="Value";
                        }
                    }
                    button type="submit" { "Save metadata" }
                }
                p class="hint" {
                    "A name is sent by the S3 door as x-amz-meta-NAME. A line without a name and a value "
                    "removes its metadata. The time of the last change becomes now."
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(form: &str) -> Result<ObjectAttributes> {
        let known = ObjectAttributes { expires: "never".into(), ..ObjectAttributes::default() };
        wanted(&Form::parse(form.as_bytes(), 99).unwrap(), known)
    }

    #[test]
    fn what_a_form_has_is_changed_and_the_rest_stays() {
        let changed =
            of("content-type=text/css&cache-control=&meta=X-Amz-Meta-Color&meta-value=red\
            &meta=&meta-value=&meta=size&meta-value=%C3%BC")
            .unwrap();
        assert_eq!((&*changed.content_type, &*changed.expires), ("text/css", "never"));
        let metadata = [("color".to_owned(), "red".to_owned()), ("size".into(), "ü".into())];
        assert_eq!(changed.user_metadata, metadata);
    }

    #[test]
    fn what_cannot_be_a_header_is_refused() {
        for bad in [
            "content-type=a%0Ab",
            "meta=a%20b&meta-value=1",
            "meta=&meta-value=1",
            "meta=a&meta-value=1&meta=A&meta-value=2",
            "meta=a&meta-value=y%0D%0Ax",
        ] {
            assert!(of(bad).is_err(), "{bad}");
        }
        assert!(of(&format!("cache-control={}", "x".repeat(64 << 10))).is_err());
        assert!(
            of(&format!("meta=a&meta-value={}", "x".repeat(limits::USER_METADATA_BYTES))).is_err()
        );
    }
}
