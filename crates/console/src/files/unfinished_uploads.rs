//! Multipart uploads that have begun and not ended: an upload whose page was closed stays, with its
//! bytes, until it is continued or ended.

use std::collections::HashMap;
use std::collections::hash_map::Entry;

use cairn_auth::Caller;
use cairn_base::{Error, Result, UploadId, UserId};
use cairn_fs::ops::credentials::UserName;
use cairn_fs::ops::list_uploads::ListUploads;
use cairn_fs::ops::multipart::{AbortUpload, UploadName};
use http::StatusCode;
use maud::{Markup, html};

use super::At;
use crate::failure::Failure;
use crate::fields::{self, Confirm};
use crate::limits;
use crate::page::{self, Page};
use crate::reply::{self, Reply};
use crate::sheet::{self, Column, column};
use crate::words;

const COLUMNS: [Column; 4] = [
    column("Key", "name"),
    column("Begun by", ""),
    column("Begun (UTC)", "wide"),
    sheet::tools("End", "number"),
];

/// Shows the list among the settings of a bucket.
pub async fn section(at: &At<'_>) -> Result<Markup> {
    let fs = at.inner.fs();
    let bucket = at.bucket.to_owned();
    let verb = ListUploads { bucket, limit: limits::SHOWN, ..ListUploads::default() };
    let found = fs.read(&at.login.caller, verb).await?;
    let mut names: HashMap<UserId, String> = HashMap::new();
    for (.., upload) in &found.uploads {
        let user = upload.initiator;
        if let Entry::Vacant(unknown) = names.entry(user) {
            let name = fs.read(&Caller::system(), UserName { user }).await?;
            unknown.insert(name.unwrap_or_default());
        }
    }
    let rows = html! {
        @for (key, id, upload) in &found.uploads {
            tr {
                td class="name" { (key) }
                td { (names.get(&upload.initiator).map_or("", String::as_str)) }
                td class="wide" { (words::time(upload.initiated)) }
                td class="number" {
                    form method="post" action=(action(at)) {
                        (fields::hidden(&[("key", key), ("upload", &in_form(*id))]))
                        button type="submit" class="danger"
                            aria-label=(format!("End the upload of {key}")) { "End…" }
                    }
                }
            }
        }
    };
    Ok(html! {
        section class="group" aria-labelledby="unfinished" {
            h2 id="unfinished" { "Unfinished uploads" }
            @if found.uploads.is_empty() { p class="hint" { "There are none." } }
            @else { (sheet::plain(&COLUMNS, &rows)) }
            @if found.next.is_some() {
                p class="hint" { "There are more than the first " (limits::SHOWN) "." }
            }
        }
    })
}

fn action(at: &At<'_>) -> String {
    format!("/b/{}/end-upload", at.bucket)
}

fn in_form(upload: UploadId) -> String {
    format!("{:x}", upload.0)
}

/// Answers `POST /b/BUCKET/end-upload`, after a confirmation.
pub async fn end(at: &At<'_>) -> Result<Reply, Failure> {
    let form = at.asked.form()?;
    let (key, upload) = (form.get("key"), form.get("upload"));
    at.asked.witness.note(|facts| {
        facts.key = Some(key.to_owned());
        facts.resource = Some(format!("upload {upload}"));
    });
    let settings = format!("/b/{}/settings", at.bucket);
    if form.is_confirmed() {
        let number = u64::from_str_radix(upload, 16);
        let number = number.map_err(|_| Error::Invalid(format!("upload {upload:?}")))?;
        let (bucket, key) = (at.bucket.to_owned(), key.to_owned());
        let name = UploadName { bucket, key, upload: UploadId(number) };
        at.inner.fs().run(&at.login.caller, AbortUpload { name }).await?;
        return Ok(reply::see_other(&settings));
    }
    let body = html! {
        h1 { "End the upload of " (key) "?" }
        p {
            "What has arrived of it is deleted, and it cannot be continued. An object of that name "
            "stays."
        }
        (fields::confirm(&Confirm {
            action: &action(at),
            fields: &[("key", key), ("upload", upload)],
            text: "End it",
            class: "danger",
            back: &settings,
        }))
    };
    let page = Page { title: "End upload", login: Some(at.login), ..Page::default() };
    Ok(reply::html(StatusCode::OK, page::page(&page, &body)))
}
