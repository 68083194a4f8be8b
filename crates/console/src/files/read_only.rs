//! Read-only mode of a bucket.

use cairn_fs::ops::read_only::SetReadOnly;
use http::StatusCode;
use maud::Markup;

use super::At;
use crate::failure::Failure;
use crate::page::{self, Page};
use crate::read_only::{ask, section};
use crate::reply::{self, Reply};

/// Makes the form among the settings of a bucket.
pub fn of_bucket(bucket: &str, is_read_only: bool) -> Markup {
    section(&format!("/b/{bucket}/read-only"), is_read_only, "this bucket")
}

/// Answers `POST /b/BUCKET/read-only`.
pub async fn set(at: &At<'_>) -> Result<Reply, Failure> {
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
