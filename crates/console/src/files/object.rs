//! An object: its metadata, a preview, and the ways to its bytes.

use cairn_auth::Action;
use cairn_base::Error;
use cairn_fs::Object;
use cairn_fs::ops::tags::GetTags;
use http::{Method, StatusCode};
use maud::{Markup, html};

use super::At;
use super::at::split;
use super::links::Link;
use super::{metadata, tags};
use crate::failure::Failure;
use crate::fields;
use crate::page::{self, Page};
use crate::reply::{self, Reply};
use crate::{limits, words};

/// Sort of an object, by which a browser shows it, with which type. Whatever type was stored,
/// nothing that has scripts is shown.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Sort {
    Image,
    Audio,
    Video,
    Text,
    Pdf,
}

/// Longest text that is shown, bytes.
const TEXT_BYTES: u64 = 1 << 20;

fn sort_of(content_type: &str) -> Option<(Sort, &'static str)> {
    const SHOWN: [(&str, Sort); 17] = [
        ("image/png", Sort::Image),
        ("image/jpeg", Sort::Image),
        ("image/gif", Sort::Image),
        ("image/webp", Sort::Image),
        ("image/avif", Sort::Image),
        ("audio/mpeg", Sort::Audio),
        ("audio/ogg", Sort::Audio),
        ("audio/wav", Sort::Audio),
        ("audio/flac", Sort::Audio),
        ("audio/mp4", Sort::Audio),
        ("video/mp4", Sort::Video),
        ("video/webm", Sort::Video),
        ("video/ogg", Sort::Video),
        ("application/pdf", Sort::Pdf),
        ("application/json", Sort::Text),
        ("application/xml", Sort::Text),
        ("application/toml", Sort::Text),
    ];
    let essence = content_type.split(';').next().unwrap_or_default().trim();
    let known = SHOWN.iter().find(|(known, _)| known.eq_ignore_ascii_case(essence));
    match known {
        Some((_, Sort::Text)) => Some((Sort::Text, "text/plain; charset=utf-8")),
        Some((known, sort)) => Some((*sort, known)),
        None if essence.to_ascii_lowercase().starts_with("text/") => {
            Some((Sort::Text, "text/plain; charset=utf-8"))
        }
        None => None,
    }
}

impl At<'_> {
    async fn object(&self) -> Result<(String, Object), Failure> {
        let key = self.asked.query()?.get("key").to_owned();
        self.asked.witness.note(|facts| facts.key = Some(key.clone()));
        let object = self.inner.fs().open(&self.login.caller, self.bucket, &key).await?;
        Ok((key, object))
    }
}

fn type_of(object: &Object) -> &str {
    object.attributes().map_or("", |attributes| attributes.content_type.as_str())
}

pub async fn show(at: &At<'_>) -> Result<Reply, Failure> {
    let (key, object) = at.object().await?;
    let verb = GetTags { bucket: at.bucket.to_owned(), key: key.clone() };
    // Rights to tags differ from those to bytes.
    let tags = at.inner.fs().read(&at.login.caller, verb).await.ok();
    let shown_tags = tags.as_deref().unwrap_or_default();
    let (prefix, name) = split(&key);
    let title = if name.is_empty() { "(an empty name)" } else { name };
    let sort = sort_of(type_of(&object));
    let offers = |action| at.offers(object.bucket().access(), action);
    let body = html! {
        div class="title" {
            h1 { (title) }
            p class="counters" {
                span { (words::size(object.size())) }
                @if !type_of(&object).is_empty() { span { (type_of(&object)) } }
            }
        }
        div class="bar" {
            a class="button primary" href=(at.of_object("download", &key)) data-plain { "Download" }
            @if matches!(sort, Some((Sort::Pdf, _))) {
                a class="button" href=(at.of_object("preview", &key)) target="_blank"
                    rel="noopener" data-plain { "Open in a new tab" }
            }
            a class="button" href=(at.of_object("share", &key)) { "Share…" }
            @for (what, class, text) in [
                ("transfer", "", "Copy, move or rename…"), ("delete", "danger", "Delete…"),
            ] {
                form method="post" action=(format!("/b/{}/{what}", at.bucket)) {
                    (fields::hidden(&[("in", prefix), ("key", &key)]))
                    button type="submit" class=(class) { (text) }
                }
            }
        }
        (preview_of(at, &key, &object, sort))
        (facts(at, &key, &object, shown_tags))
        @if tags.is_some() && offers(Action::PutObjectTagging) {
            (tags::form(at, &key, shown_tags))
        }
        @if !object.inode().is_directory() && offers(Action::PutObject) {
            (metadata::form(at, &key, &object))
        }
    };
    let crumbs = at.crumbs(prefix, true);
    let page = Page { title, login: Some(at.login), crumbs: &crumbs, ..Page::default() };
    Ok(reply::html(StatusCode::OK, page::page(&page, &body)))
}

fn preview_of(
    at: &At<'_>,
    key: &str,
    object: &Object,
    sort: Option<(Sort, &'static str)>,
) -> Markup {
    let place = at.of_object("preview", key);
    html! {
        @match sort.map(|(sort, _)| sort) {
            Some(Sort::Image) => figure class="preview" { img src=(place) alt=(key) loading="lazy"; },
            Some(Sort::Audio) => figure class="preview" {
                audio controls preload="metadata" src=(place) {}
            },
            Some(Sort::Video) => figure class="preview" {
                video controls preload="metadata" src=(place) {}
            },
            Some(Sort::Text) if object.size() <= TEXT_BYTES && object.size() > 0 => {
                figure class="preview" { iframe sandbox class=[(object.size() > 400).then_some("long")]
                        title=(format!("Text of {key}")) src=(place) {} }
            },
            _ => {},
        }
    }
}

fn facts(at: &At<'_>, key: &str, object: &Object, tags: &[(String, String)]) -> Markup {
    let exact = format!("{} bytes", words::count(object.size()));
    let (changed, made) = (words::time(object.inode().mtime), words::time(object.inode().btime));
    let mut rows = vec![
        ("Bucket", at.bucket.to_owned()),
        ("Key", key.to_owned()),
        ("Size", exact),
        ("Changed (UTC)", changed),
        ("Made (UTC)", made),
        ("ETag", object.etag()),
    ];
    let mut more: Vec<(String, &str)> = Vec::new();
    if let Some(attributes) = object.attributes() {
        for (name, value) in [
            ("Content-Type", &attributes.content_type),
            ("Content-Encoding", &attributes.content_encoding),
            ("Content-Disposition", &attributes.content_disposition),
            ("Content-Language", &attributes.content_language),
            ("Cache-Control", &attributes.cache_control),
            ("Expires", &attributes.expires),
        ] {
            if !value.is_empty() {
                rows.push((name, value.clone()));
            }
        }
        let own = attributes.user_metadata.iter();
        more.extend(own.map(|(name, value)| (format!("x-amz-meta-{name}"), value.as_str())));
    }
    more.extend(tags.iter().map(|(name, value)| (format!("Tag {name}"), value.as_str())));
    html! {
        section aria-labelledby="facts" {
            h2 id="facts" { "About it" }
            dl class="facts" {
                @for (name, value) in &rows { div { dt { (name) } dd { (value) } } }
                @for (name, value) in &more { div { dt { (name) } dd { (value) } } }
            }
        }
    }
}

/// Redirects to the bytes, to be kept as a file.
pub async fn download(at: &At<'_>) -> Result<Reply, Failure> {
    let (key, _) = at.object().await?;
    let (_, name) = split(&key);
    let name = name.trim_end_matches('/');
    let disposition = match name {
        "" => "attachment".to_owned(),
        name => format!("attachment; filename*=UTF-8''{}", words::in_header(name)),
    };
    to_bytes(at, &key, &[("response-content-disposition", &disposition)]).await
}

/// Redirects to the bytes, to be shown.
pub async fn preview(at: &At<'_>) -> Result<Reply, Failure> {
    let (key, object) = at.object().await?;
    let Some((_, content_type)) = sort_of(type_of(&object)) else {
        let text = format!("a preview of {:?}: download it", type_of(&object));
        return Err(Error::NotImplemented(text).into());
    };
    let query =
        [("response-content-disposition", "inline"), ("response-content-type", content_type)];
    to_bytes(at, &key, &query).await
}

async fn to_bytes(at: &At<'_>, key: &str, query: &[(&str, &str)]) -> Result<Reply, Failure> {
    let (method, secs) = (Method::GET, limits::DOWNLOAD_SECS);
    let url = at.link(&Link { method, key, query, headers: &[], secs }).await?;
    Ok(reply::see_other(&url))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_with_scripts_is_shown_as_itself() {
        for active in ["image/svg+xml", "application/xhtml+xml", "application/javascript", ""] {
            assert_eq!(sort_of(active), None, "{active}");
        }
        for text in ["text/html", "TEXT/HTML; charset=x", "text/javascript", "application/xml"] {
            assert_eq!(sort_of(text), Some((Sort::Text, "text/plain; charset=utf-8")), "{text}");
        }
        assert_eq!(sort_of("image/PNG"), Some((Sort::Image, "image/png")));
    }
}
