//! Read-only mode, of the store and of a bucket.

use cairn_fs::ops::read_only::SetReadOnly;
use http::StatusCode;
use maud::{Markup, html};

use super::screen::PART;
use crate::failure::Failure;
use crate::fields::{self, Confirm};
use crate::files::At;
use crate::inner::For;
use crate::page::{self, Page};
use crate::reply::{self, Reply};

/// The form on the page of the store.
pub fn of_store(is_read_only: bool) -> Markup {
    section("/store/read-only", is_read_only, "the store")
}

/// The form among the settings of a bucket.
pub fn of_bucket(bucket: &str, is_read_only: bool) -> Markup {
    section(&format!("/b/{bucket}/read-only"), is_read_only, "this bucket")
}

fn section(action: &str, is_read_only: bool, what: &str) -> Markup {
    html! {
        section class="group" aria-labelledby="read-only" {
            h2 id="read-only" { "Read-only mode" }
            p class="hint" {
                @if is_read_only {
                    "Changes of what is in " (what) " are refused at every door and mount. Reads go on."
                } @else {
                    "What is in " (what) " can be changed. In read-only mode every door and mount "
                    "refuses that in words, and reads go on."
                }
            }
            form method="post" action=(action) {
                (fields::hidden(&[("read_only", if is_read_only { "no" } else { "yes" })]))
                @if is_read_only {
                    button type="submit" class="primary" { "Take changes again" }
                } @else {
                    button type="submit" { "Make read-only…" }
                }
            }
        }
    }
}

/// What is shown before something becomes read-only.
fn ask(what: &str, action: &str, back: &str) -> Markup {
    html! {
        h1 { "Make " (what) " read-only?" }
        p {
            "Uploads, deletions and all other changes of what is in it are refused from then on, by "
            "mounts too. Settings, users and keys can still be changed, and this can be undone here."
        }
        (fields::confirm(&Confirm {
            action, fields: &[("read_only", "yes")], text: "Make read-only", class: "danger", back,
        }))
    }
}

/// `POST /store/read-only`
pub async fn set_store(of: &For<'_>) -> Result<Reply, Failure> {
    super::admit(of.login)?;
    let form = of.asked.form()?;
    let read_only = form.get("read_only") == "yes";
    let what = if read_only { "read-only" } else { "takes changes" };
    of.asked.witness.note(|facts| facts.resource = Some(format!("the store {what}")));
    if read_only && !form.is_confirmed() {
        let body = ask("the store", "/store/read-only", PART);
        let page =
            Page { title: "Read-only mode", login: Some(of.login), part: PART, ..Page::default() };
        return Ok(reply::html(StatusCode::OK, page::page(&page, &body)));
    }
    of.inner.fs().run(&of.login.caller, SetReadOnly { bucket: None, read_only }).await?;
    Ok(reply::see_other(PART))
}

/// `POST /b/BUCKET/read-only`
pub async fn set_bucket(at: &At<'_>) -> Result<Reply, Failure> {
    let form = at.asked.form()?;
    let read_only = form.get("read_only") == "yes";
    let what = if read_only { "read-only" } else { "takes changes" };
    at.asked.witness.note(|facts| facts.resource = Some(what.to_owned()));
    let settings = format!("/b/{}/settings", at.bucket);
    if read_only && !form.is_confirmed() {
        let action = format!("/b/{}/read-only", at.bucket);
        let body = ask(at.bucket, &action, &settings);
        let page = Page { title: "Read-only mode", login: Some(at.login), ..Page::default() };
        return Ok(reply::html(StatusCode::OK, page::page(&page, &body)));
    }
    let verb = SetReadOnly { bucket: Some(at.bucket.to_owned()), read_only };
    at.inner.fs().run(&at.login.caller, verb).await?;
    Ok(reply::see_other(&settings))
}
