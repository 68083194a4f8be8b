//! Making a share link.

use std::time::Duration;

use cairn_base::{Error, Result, Secret};
use cairn_doors::http::{MadeShareLink, NewShareLink, make_share_link};
use http::StatusCode;
use maud::{Markup, html};

use crate::failure::Failure;
use crate::fields::{self, Text};
use crate::files::At;
use crate::forms::Form;
use crate::page::{self, Page};
use crate::reply::{self, Reply};
use crate::words;

const DAY: u64 = 24 * 3600;
/// Offered lifetimes of a link, seconds.
const LIFETIMES: [(u64, &str); 6] = [
    (3600, "1 hour"),
    (DAY, "1 day"),
    (7 * DAY, "7 days"),
    (30 * DAY, "30 days"),
    (90 * DAY, "90 days"),
    (365 * DAY, "1 year"),
];

fn is_prefix(key: &str) -> bool {
    key.is_empty() || key.ends_with('/')
}

fn shown(at: &At<'_>, key: &str, body: &Markup) -> Reply {
    let crumbs = at.crumbs(at.folder_of(key), true);
    let page = Page { title: "Share", login: Some(at.login), crumbs: &crumbs, ..Page::default() };
    reply::html(StatusCode::OK, page::page(&page, body))
}

/// Describes the shared object or folder.
fn thing(at: &At<'_>, key: &str) -> String {
    match key {
        "" => format!("the bucket {}", at.bucket),
        key if key.ends_with('/') => format!("the folder {key}"),
        key => key.to_owned(),
    }
}

pub async fn show(at: &At<'_>) -> Result<Reply, Failure> {
    let query = at.asked.query()?;
    let key = query.get("key");
    at.asked.witness.note(|facts| facts.key = Some(key.to_owned()));
    let seconds = LIFETIMES.map(|(secs, _)| secs.to_string());
    let options: Vec<(&str, &str)> =
        seconds.iter().zip(LIFETIMES).map(|(secs, (_, text))| (secs.as_str(), text)).collect();
    let week = (7 * DAY).to_string();
    let body = html! {
        h1 { "Share " (thing(at, key)) }
        p class="hint" {
            "Anybody with the address can use it, without an account, until it expires or is ended. It "
            "works with your rights, and ends with the access key that you logged in with."
        }
        form method="post" action=(format!("/b/{}/share", at.bucket)) class="form" {
            (fields::hidden(&[("key", key)]))
            @if is_prefix(key) { (purpose()) }
            (fields::choice("expires", "Valid for", &week, &options))
            (fields::text(&Text {
                id: "password", label: "Password", kind: "password",
                hint: "Empty for none. Give it to others in another way than the address.",
                ..Text::default()
            }))
            (fields::text(&Text {
                id: "downloads", label: "Downloads, at most", kind: "number",
                hint: "Empty for any number. Not for a link that takes files.", ..Text::default()
            }))
            @if is_prefix(key) { (limits()) }
            div class="line" {
                button type="submit" class="primary" { "Make link" }
                a class="button" href=(at.folder(at.folder_of(key))) { "Cancel" }
            }
        }
    };
    Ok(shown(at, key, &body))
}

fn purpose() -> Markup {
    html! {
        fieldset {
            legend { "Others may" }
            label class="check" {
                input type="radio" name="purpose" value="show" checked;
                span { "look at it and download" }
            }
            label class="check" {
                input type="radio" name="purpose" value="take";
                span { "only add files to it: they can neither list, read nor replace anything" }
            }
        }
    }
}

fn limits() -> Markup {
    html! {
        div class="pair" {
            (fields::text(&Text {
                id: "files", label: "Files, at most", kind: "number",
                hint: "Of a link that takes files: 100 if empty.", ..Text::default()
            }))
            (fields::text(&Text {
                id: "bytes", label: "Size in all", hint: "Such as 500 MiB; 10 GiB if empty.",
                ..Text::default()
            }))
        }
    }
}

pub async fn make(at: &At<'_>) -> Result<Reply, Failure> {
    let form = at.asked.form()?;
    let new = wanted(at, &form)?;
    let (key, takes) = (new.key.clone(), new.uploads.is_some());
    at.asked.witness.note(|facts| facts.key = Some(key.clone()));
    let made = make_share_link(&at.inner.admit, &at.login.caller, new).await?;
    at.asked.witness.note(|facts| facts.resource = Some(format!("share link {}", made.id)));
    Ok(shown(at, &key, &told(at, &key, takes, &made)))
}

fn wanted(at: &At<'_>, form: &Form) -> Result<NewShareLink> {
    let key = form.get("key").to_owned();
    let lifetime = form.number("expires", "Valid for")?.map(Duration::from_secs);
    let password = Some(form.get("password")).filter(|text| !text.is_empty());
    let downloads = form.number("downloads", "Downloads")?;
    let (files, bytes) = (form.number("files", "Files")?, words::parse_size(form.get("bytes"))?);
    let uploads = match form.get("purpose") {
        "take" if is_prefix(&key) => Some((files, bytes)),
        "show" | "" if files.or(bytes).is_some() => {
            let text = "a number of files and a size are for links that only take files";
            return Err(Error::Invalid(text.into()));
        }
        "show" | "" => None,
        other => return Err(Error::Invalid(format!("purpose {other:?} of a share link"))),
    };
    if downloads == Some(0) {
        return Err(Error::Invalid("Downloads: use 1 or more, or leave it empty".into()));
    }
    Ok(NewShareLink {
        bucket: at.bucket.to_owned(),
        key,
        lifetime,
        password: password.map(|text| Secret::new(text.to_owned())),
        downloads,
        uploads,
    })
}

fn told(at: &At<'_>, key: &str, takes: bool, made: &MadeShareLink) -> Markup {
    let address =
        Secret::new(format!("{}{}", at.inner.site.links(&at.asked.host), made.path.expose()));
    let what = if takes { "adds files to" } else { "opens" };
    html! {
        h1 { "The link is made" }
        div class="said" {
            p { "Anybody with this address " (what) " " (thing(at, key)) ". It is shown only now." }
            (fields::once("address", "Address", address.expose()))
            p class="hint" { "It expires " (words::time(made.expires)) " (UTC)." }
        }
        div class="line" {
            a class="button" href=(at.folder(at.folder_of(key))) { "Back to the folder" }
            a class="button" href="/shares" { "All your links" }
        }
    }
}
