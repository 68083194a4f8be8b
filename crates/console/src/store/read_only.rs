//! Read-only mode of the store.

use cairn_fs::ops::read_only::SetReadOnly;
use http::StatusCode;
use maud::Markup;

use super::screen::PART;
use crate::failure::Failure;
use crate::inner::For;
use crate::page::{self, Page};
use crate::read_only::{ask, section};
use crate::reply::{self, Reply};

/// Makes the form on the page of the store.
pub fn of_store(is_read_only: bool) -> Markup {
    section("/store/read-only", is_read_only, "the store")
}

/// Answers `POST /store/read-only`.
pub async fn set(of: &For<'_>) -> Result<Reply, Failure> {
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
