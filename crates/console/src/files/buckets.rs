//! The list of buckets; making and deleting buckets.

use cairn_auth::{Action, Visibility};
use cairn_fs::ops::buckets::{CreateBucket, ListBuckets};
use cairn_fs::ops::list_objects::ListObjects;
use cairn_fs::ops::namespace::BucketEntry;
use cairn_fs::rows::{BucketKind, Usage};
use http::StatusCode;
use maud::{Markup, html};

use super::At;
use super::listing::version_of;
use crate::failure::Failure;
use crate::fields::{self, Confirm};
use crate::inner::{ConsoleRequest, Inner, LoggedIn};
use crate::nav;
use crate::page::{self, Page};
use crate::reply::{self, Reply};
use crate::sheet::{self, Column, column};
use crate::{limits, live, words};

pub async fn list(
    inner: &Inner,
    asked: &ConsoleRequest,
    login: &LoggedIn,
) -> Result<Reply, Failure> {
    let query = asked.query()?;
    let (prefix, after) = (query.get("filter").to_owned(), query.get("after").to_owned());
    let verb = ListBuckets { prefix: prefix.clone(), after: after.clone(), limit: limits::ROWS };
    let (found, next) = inner.fs().read(&login.caller, verb).await?;
    let is_first = prefix.is_empty() && after.is_empty();
    let sees_all = nav::may(login, Action::Administer);
    let [of_filter, of_after] = [&prefix, &after].map(|text| words::in_query(text));
    let changes = format!("/changes?filter={of_filter}&after={of_after}");
    let body = html! {
        div class="title" {
            h1 { "Buckets" }
            (live::listen(&changes, &version(&found, next.as_deref())))
        }
        @if !(is_first && found.is_empty()) { (filter(&prefix)) }
        div data-live="rows" {
            @if found.is_empty() { (none(is_first, sees_all)) } @else { (table(&found)) }
        }
        @if let Some(next) = next {
            nav class="pager" aria-label="Pages" {
                a class="button" rel="next" href=(format!("/?filter={}&after={}",
                    words::in_query(&prefix), words::in_query(&next))) { "Next page" }
            }
        }
        (make_form())
    };
    let page = Page { title: "Buckets", login: Some(login), ..Page::default() };
    Ok(reply::html(StatusCode::OK, page::page(&page, &body)))
}

/// Returns a text for the state of what the page shows. Different states have different texts.
pub fn version(found: &[(BucketEntry, Usage)], next: Option<&str>) -> String {
    let mut text = format!("{next:?}\n");
    for (opened, usage) in found {
        let (bucket, access) = (&opened.bucket, opened.bucket.visibility);
        text.push_str(&format!("{} {} {access:?} {usage:?}\n", opened.id, bucket.name));
    }
    version_of(&text)
}

fn filter(prefix: &str) -> Markup {
    html! {
        form class="filter" role="search" action="/" {
            label for="filter" class="hidden" { "Names that begin with" }
            input id="filter" type="search" name="filter" value=(prefix) autocomplete="off"
                spellcheck="false" placeholder="Names that begin with…";
            button type="submit" { "Filter" }
        }
    }
}

fn none(is_first: bool, sees_all: bool) -> Markup {
    html! {
        div class="empty" {
            @if is_first && !sees_all {
                h2 { "You see no buckets yet" }
                p { "A bucket holds files and folders. Make one below, or ask for rights on somebody's." }
            } @else if is_first {
                h2 { "There are no buckets yet" }
                p { "A bucket holds files and folders. Make the first one below." }
            } @else {
                h2 { "No bucket's name begins with this text" }
                p { a href="/" { "Show all buckets" } }
            }
        }
    }
}

const COLUMNS: [Column; 5] = [
    column("Name", ""),
    column("Objects", "number"),
    column("Size", "number"),
    column("Access", "wide"),
    column("Made (UTC)", "wide"),
];

fn table(found: &[(BucketEntry, Usage)]) -> Markup {
    let rows = html! {
        @for (opened, usage) in found {
            tr {
                td class="name" {
                    a class="bucket" href=(format!("/b/{}", opened.bucket.name)) {
                        (opened.bucket.name)
                    }
                }
                td class="number" { (words::count(usage.objects)) }
                td class="number" { (size_of(usage)) }
                td class="wide" { (access(opened.bucket.visibility)) }
                td class="wide" { (words::time(opened.bucket.created)) }
            }
        }
    };
    sheet::plain(&COLUMNS, &rows)
}

fn size_of(usage: &Usage) -> Markup {
    html! {
        (words::size(usage.bytes))
        @if usage.quota_bytes > 0 {
            span class="of" { " of " (words::size(usage.quota_bytes)) }
        }
    }
}

fn access(visibility: Visibility) -> Markup {
    match visibility {
        Visibility::Public => html! { span class="tag warn" { "public" } },
        Visibility::Private => html! { span class="tag" { "private" } },
    }
}

fn make_form() -> Markup {
    html! {
        section class="make" aria-labelledby="make" {
            h2 id="make" { "Make a bucket" }
            form method="post" action="/buckets" class="line" {
                label for="name" class="hidden" { "Name" }
                input id="name" name="name" required minlength="3" maxlength="63"
                    pattern="[a-z0-9][a-z0-9.\\-]*[a-z0-9]" autocomplete="off" autocapitalize="none"
                    spellcheck="false" placeholder="Name" aria-describedby="rule";
                label for="kind" class="hidden" { "Kind" }
                select id="kind" name="kind" aria-describedby="kinds" {
                    option value="files" selected { "files" }
                    option value="objects" { "objects (S3)" }
                }
                button type="submit" class="primary" { "Make bucket" }
            }
            p class="hint" id="rule" {
                "3 to 63 letters a-z, digits, dots and hyphens; a letter or digit first and last."
            }
            p class="hint" id="kinds" {
                "files: for people, mounts and NFS; keys are names of files. objects: for programs \
                 of S3 that make keys of any form. The kind never changes."
            }
        }
    }
}

pub async fn make(
    inner: &Inner,
    asked: &ConsoleRequest,
    login: &LoggedIn,
) -> Result<Reply, Failure> {
    let form = asked.form()?;
    let name = form.get("name").trim().to_owned();
    asked.witness.note(|facts| facts.bucket = Some(name.clone()));
    let visibility = Visibility::Private;
    let kind = match form.get("kind") {
        "" => BucketKind::Posix,
        word => BucketKind::parse(word)?,
    };
    inner.fs().check_new_bucket(&login.caller, &name)?;
    inner.fs().run(&login.caller, CreateBucket { name: name.clone(), kind, visibility }).await?;
    // A name that was accepted needs no encoding in a path.
    Ok(reply::see_other(&format!("/b/{name}")))
}

/// Deletes an empty bucket after a confirmation.
pub async fn remove(at: &At<'_>) -> Result<Reply, Failure> {
    let (fs, login) = (at.inner.fs(), at.login);
    if at.asked.form()?.is_confirmed() {
        fs.delete_bucket(&login.caller, at.bucket).await?;
        return Ok(reply::see_other("/"));
    }
    let verb = ListObjects { bucket: at.bucket.to_owned(), max_keys: 1, ..ListObjects::default() };
    let found = fs.read(&login.caller, verb).await?;
    let is_empty = found.objects.is_empty() && found.prefixes.is_empty() && found.next.is_none();
    let body = html! {
        h1 { "Delete the bucket " (at.bucket) "?" }
        @if !is_empty {
            p { "It is not empty. Delete its files and folders first." }
            p { a class="button" href=(at.folder("")) { "Back to the bucket" } }
        } @else {
            p { "It is empty. Its settings are deleted with it." }
            (fields::confirm(&Confirm {
                action: &format!("/b/{}/remove", at.bucket),
                fields: &[],
                text: "Delete bucket",
                class: "danger",
                back: &at.folder(""),
            }))
        }
    };
    let crumbs = at.crumbs("", true);
    let page =
        Page { title: "Delete bucket", login: Some(login), crumbs: &crumbs, ..Page::default() };
    Ok(reply::html(StatusCode::OK, page::page(&page, &body)))
}
