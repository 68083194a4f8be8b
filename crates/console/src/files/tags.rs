//! The tags of an object, and a form that replaces them.

use cairn_base::limits::OBJECT_TAGS;
use cairn_base::{Error, Result};
use cairn_fs::ops::tags::PutTags;
use maud::{Markup, html};

use super::At;
use crate::failure::Failure;
use crate::fields;
use crate::forms::Form;
use crate::reply::{self, Reply};

/// Empty lines for further tags.
const FREE: usize = 2;

pub async fn put(at: &At<'_>) -> Result<Reply, Failure> {
    let form = at.asked.form()?;
    let key = form.get("key").to_owned();
    at.asked.witness.note(|facts| facts.key = Some(key.clone()));
    let place = at.of_object("object", &key);
    let verb = PutTags { bucket: at.bucket.to_owned(), key, tags: tags_of(&form)? };
    at.inner.fs().run(&at.login.caller, verb).await?;
    Ok(reply::see_other(&place))
}

/// Reads the tags of a form, in which names and values alternate. Lines without both are ignored.
fn tags_of(form: &Form) -> Result<Vec<(String, String)>> {
    let (names, values) = (form.all("tag"), form.all("value"));
    let mut tags = Vec::new();
    for (name, value) in names.zip(values) {
        match (name, value) {
            ("", "") => {}
            ("", value) => {
                return Err(Error::Invalid(format!(
                    "the tag with the value {value:?} has no name"
                )));
            }
            (name, value) => tags.push((name.to_owned(), value.to_owned())),
        }
    }
    Ok(tags)
}

pub fn form(at: &At<'_>, key: &str, tags: &[(String, String)]) -> Markup {
    let lines = (tags.len() + FREE).min(OBJECT_TAGS).max(tags.len());
    let line = |number: usize| tags.get(number).map_or(("", ""), |(name, value)| (name, value));
    html! {
        section class="group" aria-labelledby="tags" {
            h2 id="tags" { "Tags" }
            form method="post" action=(format!("/b/{}/tags", at.bucket)) class="form" {
                (fields::hidden(&[("key", key)]))
                @for number in 0..lines {
                    @let (name, value) = line(number);
                    div class="pair" {
                        input name="tag" value=(name) maxlength="128" autocomplete="off"
                            aria-label=(format!("Name of tag {}", number + 1)) placeholder="Name";
                        input name="value" value=(value) maxlength="256" autocomplete="off"
                            aria-label=(format!("Value of tag {}", number + 1)) placeholder="Value";
                    }
                }
                button type="submit" { "Save tags" }
            }
            p class="hint" { "An object has up to 10 tags. A line without a name and a value removes its tag." }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tags_are_pairs_of_fields() {
        let of = |form: &str| tags_of(&Form::parse(form.as_bytes(), 99).unwrap());
        let tags = of("tag=a%3Db&value=1&tag=&value=&tag=c&value=").unwrap();
        assert_eq!(tags, [("a=b".into(), "1".into()), ("c".into(), String::new())]);
        assert!(of("tag=&value=1").is_err());
    }
}
