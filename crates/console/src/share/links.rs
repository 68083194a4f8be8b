//! Share links of a user, or of all users for root; and ending a link.

use cairn_auth::{Action, ShareLinkId};
use cairn_base::Error;
use cairn_fs::ops::share_links::{ListShareLinks, ListedShareLink, RemoveShareLink};
use http::StatusCode;
use maud::{Markup, html};

use crate::failure::Failure;
use crate::fields::{self, Confirm};
use crate::inner::For;
use crate::page::{self, Page};
use crate::reply::{self, Reply};
use crate::sheet::{self, Column, column};
use crate::{limits, nav, words};

const PART: &str = "/shares";

const COLUMNS: [Column; 6] = [
    column("What", "name"),
    column("For", ""),
    column("Used", "number"),
    column("Expires (UTC)", "wide"),
    column("User", "wide"),
    sheet::tools("End", "number"),
];

pub async fn list(of: &For<'_>) -> Result<Reply, Failure> {
    let query = of.asked.query()?;
    let all = query.get("all") == "yes";
    let after = match query.get("after") {
        "" => None,
        text => {
            let wrong = || Error::Invalid("after: use the link to the next page".into());
            let id = ShareLinkId::parse(text).ok_or_else(wrong)?;
            Some((id.user, id.id))
        }
    };
    let verb = ListShareLinks { all, after, limit: limits::ROWS };
    let (links, is_more) = of.inner.fs().read(&of.login.caller, verb).await?;
    let next = links.last().filter(|_| is_more).map(id_of);
    let body = html! {
        div class="title" { h1 { "Links" } }
        p class="hint" {
            "By a share link, anybody reads an object or a folder, or adds files to one. Links are made "
            "on the pages of objects and folders. Their addresses are shown once."
        }
        @if nav::may(of.login, Action::Administer) {
            nav class="line" aria-label="Whose links" {
                @if all { a href="/shares" { "Show only yours" } }
                @else { a href="/shares?all=yes" { "Show those of all users" } }
            }
        }
        @if links.is_empty() {
            div class="empty" { h2 { "There are no links" } }
        } @else {
            (sheet::scrolling("Links", &COLUMNS, &html! { @for link in &links { (row(link)) } }))
        }
        @if let Some(next) = next {
            @let all = if all { "yes" } else { "" };
            nav class="pager" aria-label="Pages" {
                a class="button" rel="next" href=(format!("/shares?all={all}&after={next}")) {
                    "Next page"
                }
            }
        }
    };
    let page = Page { title: "Links", login: Some(of.login), part: PART, ..Page::default() };
    Ok(reply::html(StatusCode::OK, page::page(&page, &body)))
}

fn id_of(listed: &ListedShareLink) -> String {
    ShareLinkId { user: listed.user, id: listed.id.clone() }.to_string()
}

fn row(listed: &ListedShareLink) -> Markup {
    let ListedShareLink { link, bucket, has_password, is_live, .. } = listed;
    let id = id_of(listed);
    let purpose = match (link.uploads, link.is_of_prefix()) {
        (Some(_), _) => "adding files",
        (None, true) => "a folder",
        (None, false) => "one object",
    };
    let used = match link.uploads {
        Some(most) => format!(
            "{} of {} files, {} of {}",
            words::count(link.uploaded.files),
            words::count(most.files),
            words::size(link.uploaded.bytes),
            words::size(most.bytes)
        ),
        None if link.downloads > 0 => {
            format!("{} of {}", words::count(link.downloaded), words::count(link.downloads))
        }
        None => words::count(link.downloaded),
    };
    html! {
        tr {
            td class="name" {
                code { (bucket) "/" (link.key) }
                @if !is_live { " " span class="tag" { "ended" } }
                @if *has_password { " " span class="tag" { "password" } }
            }
            td { (purpose) }
            td class="number" { (used) }
            td class="wide" { (words::time(link.expires)) }
            td class="wide" { (listed.user_name) }
            td class="number" {
                form method="post" action="/end-share" {
                    (fields::hidden(&[("id", &id)]))
                    button type="submit" class="danger"
                        aria-label=(format!("End the link to {bucket}/{}", link.key)) { "End…" }
                }
            }
        }
    }
}

/// Ends a link after a confirmation.
pub async fn end(of: &For<'_>) -> Result<Reply, Failure> {
    let form = of.asked.form()?;
    let text = form.get("id");
    let unknown = || Error::NotFound(format!("share link {text}"));
    let ShareLinkId { user, id } = ShareLinkId::parse(text).ok_or_else(unknown)?;
    of.asked.witness.note(|facts| facts.resource = Some(format!("share link {text}")));
    if form.is_confirmed() {
        of.inner.fs().run(&of.login.caller, RemoveShareLink { user, id }).await?;
        return Ok(reply::see_other(PART));
    }
    let body = html! {
        h1 { "End this link?" }
        p { "Whoever has its address can no longer use it, from now on. This cannot be undone." }
        (fields::confirm(&Confirm {
            action: "/end-share", fields: &[("id", text)], text: "End link", class: "danger",
            back: PART,
        }))
    };
    let page = Page { title: "End link", login: Some(of.login), part: PART, ..Page::default() };
    Ok(reply::html(StatusCode::OK, page::page(&page, &body)))
}
