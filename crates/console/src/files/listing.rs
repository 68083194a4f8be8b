//! Files and folders of a folder: as a page, and as rows for a script.

use std::cmp::Ordering;

use cairn_auth::{Action, Caller, hash_token};
use cairn_base::{Result, rfc3339};
use cairn_fs::Fs;
use cairn_fs::ops::buckets::GetBucket;
use cairn_fs::ops::list_objects::{ListObjects, ListedObject, Page as ListPage};
use cairn_fs::rows::{Bucket, Usage};
use http::StatusCode;
use maud::{Markup, html};
use serde::Serialize;

use super::At;
use super::at::split;
use crate::failure::Failure;
use crate::page::{self, Page};
use crate::reply::{self, Reply};
use crate::sheet::{self, Column, column};
use crate::{limits, live, words};

/// The requested part of a folder.
pub struct FolderQuery {
    /// The folder: empty, or it ends in a slash.
    pub prefix: String,
    /// Start of the names.
    filter: String,
    after: String,
    rows: usize,
}

pub enum ListRow {
    Folder(String),
    File(Box<ListedObject>),
}

impl ListRow {
    pub fn key(&self) -> &str {
        match self {
            ListRow::Folder(prefix) => prefix,
            ListRow::File(listed) => &listed.key,
        }
    }
}

pub struct Rows {
    pub rows: Vec<ListRow>,
    next: Option<String>,
    hidden: u64,
}

impl Rows {
    /// Returns a text for the state of what a page shows. Different states have different texts.
    pub fn version(&self, usage: Option<&Usage>) -> String {
        let mut text = format!("{:?} {} {usage:?}\n", self.next, self.hidden);
        for row in &self.rows {
            text.push_str(row.key());
            if let ListRow::File(listed) = row {
                let ListedObject { ino, inode, .. } = &**listed;
                text.push_str(&format!("\0{ino} {} {}", inode.size, inode.mtime.0));
            }
            text.push('\n');
        }
        version_of(&text)
    }
}

/// Returns a short text for a long one.
pub fn version_of(text: &str) -> String {
    hash_token(text).iter().take(12).map(|byte| format!("{byte:02x}")).collect()
}

impl FolderQuery {
    pub fn of(at: &At<'_>) -> Result<FolderQuery> {
        let query = at.asked.query()?;
        let text = |name| query.get(name).to_owned();
        let rows = query.get("rows").parse().unwrap_or(limits::ROWS);
        let rows = rows.clamp(1, cairn_base::limits::LIST_KEYS);
        Ok(FolderQuery { prefix: text("in"), filter: text("filter"), after: text("after"), rows })
    }

    pub async fn find(&self, fs: &Fs, caller: &Caller, bucket: &str) -> Result<Rows> {
        let verb = ListObjects {
            bucket: bucket.to_owned(),
            prefix: format!("{}{}", self.prefix, self.filter),
            delimiter: "/".to_owned(),
            after: self.after.clone(),
            max_keys: self.rows,
        };
        let found: ListPage = fs.read(caller, verb).await?;
        let ListPage { objects, prefixes, next, hidden } = found;
        // The object that stands for this folder is no file in it.
        let files = objects.into_iter().filter(|listed| listed.key != self.prefix);
        let files = files.map(|listed| ListRow::File(Box::new(listed)));
        let mut rows: Vec<ListRow> =
            prefixes.into_iter().map(ListRow::Folder).chain(files).collect();
        rows.sort_by(|one, other| order(one.key(), other.key()));
        Ok(Rows { rows, next, hidden })
    }

    /// Returns the folder of the files' names: a filter may have slashes.
    pub fn folder(&self) -> String {
        let all = format!("{}{}", self.prefix, self.filter);
        let end = all.rfind('/').map_or(0, |slash| slash + 1);
        all.get(..end).unwrap_or_default().to_owned()
    }

    fn query(&self, after: &str) -> String {
        let [prefix, filter, after] = [&self.prefix, &self.filter, after].map(words::in_query);
        format!("in={prefix}&filter={filter}&after={after}")
    }

    fn place(&self, at: &At<'_>, after: &str) -> String {
        format!("/b/{}?{}", at.bucket, self.query(after))
    }

    /// Returns the address of the events about changes of this listing.
    fn changes(&self, at: &At<'_>) -> String {
        format!("/b/{}/changes?{}", at.bucket, self.query(&self.after))
    }
}

/// Compares keys in the order of the store, in which pages follow each other.
fn order(one: &str, other: &str) -> Ordering {
    one.as_bytes().cmp(other.as_bytes())
}

/// Actions that a page offers to its user.
struct May {
    write: bool,
    remove: bool,
}

impl May {
    fn of(at: &At<'_>, bucket: &Bucket) -> May {
        let may = |action| at.offers(bucket.access(), action);
        May { write: may(Action::PutObject), remove: may(Action::DeleteBucket) }
    }
}

pub async fn page(at: &At<'_>) -> Result<Reply, Failure> {
    let wanted = FolderQuery::of(at)?;
    at.asked.witness.note(|facts| facts.key = Some(wanted.prefix.clone()));
    let found = wanted.find(at.inner.fs(), &at.login.caller, at.bucket).await?;
    let verb = GetBucket { name: at.bucket.to_owned() };
    let (opened, usage) = at.inner.fs().read(&at.login.caller, verb).await?;
    let may = May::of(at, &opened.bucket);
    let (_, name) = split(&wanted.prefix);
    let title = if name.is_empty() { at.bucket } else { name.trim_end_matches('/') };
    let is_plain = wanted.filter.is_empty() && wanted.after.is_empty();
    let version = found.version(wanted.folder().is_empty().then_some(&usage));
    let body = html! {
        div class="title" {
            h1 { (title) }
            @if wanted.prefix.is_empty() { (counters(&usage)) }
            (live::listen(&wanted.changes(at), &version))
        }
        div class="bar" {
            (filter(at, &wanted))
            @if may.write { (tools(at, &wanted)) }
        }
        (of_folder(at, &wanted))
        div data-live="rows" {
            @if found.rows.is_empty() {
                (none(at, &wanted, &may, is_plain))
            } @else {
                (table(at, &wanted, &found, &may))
            }
        }
        @if found.hidden > 0 {
            p class="hint" {
                (words::count(found.hidden)) " names here are not UTF-8 or longer than 1,024 bytes, "
                "so that only a mount shows them."
            }
        }
        @if may.remove && wanted.prefix.is_empty() && is_plain { (remove_form(at)) }
    };
    let crumbs = at.crumbs(&wanted.prefix, false);
    let page = Page { title, login: Some(at.login), crumbs: &crumbs, ..Page::default() };
    Ok(reply::html(StatusCode::OK, page::page(&page, &body)))
}

fn counters(usage: &Usage) -> Markup {
    html! {
        p class="counters" data-live="counters" {
            span { (words::counted(usage.objects, "object")) }
            span {
                (words::size(usage.bytes))
                @if usage.quota_bytes > 0 { " of " (words::size(usage.quota_bytes)) }
            }
            @if usage.uploads > 0 {
                span { (words::counted(u64::from(usage.uploads), "unfinished upload")) }
            }
        }
    }
}

fn filter(at: &At<'_>, wanted: &FolderQuery) -> Markup {
    html! {
        form class="filter" role="search" action=(format!("/b/{}", at.bucket)) {
            input type="hidden" name="in" value=(wanted.prefix);
            label for="filter" class="hidden" { "Names that begin with" }
            input id="filter" type="search" name="filter" value=(wanted.filter) autocomplete="off"
                autocapitalize="none" spellcheck="false" placeholder="Names that begin with…";
            button type="submit" { "Filter" }
        }
    }
}

/// Shows the actions on the folder as a whole.
fn of_folder(at: &At<'_>, wanted: &FolderQuery) -> Markup {
    let place = words::in_query(&wanted.prefix);
    html! {
        div class="line" {
            a class="button" href=(format!("/b/{}/share?key={place}", at.bucket)) { "Share…" }
            form method="post" action=(format!("/b/{}/zip", at.bucket)) {
                input type="hidden" name="in" value=(wanted.prefix);
                button type="submit" { "Download as zip" }
            }
            @if wanted.prefix.is_empty() {
                a class="button" href=(format!("/b/{}/settings", at.bucket)) { "Settings" }
            }
        }
    }
}

fn tools(at: &At<'_>, wanted: &FolderQuery) -> Markup {
    html! {
        div class="tools" {
            cairn-drop data-bucket=(at.bucket) data-prefix=(wanted.prefix) {}
            details class="menu" {
                summary { "New folder" }
                form method="post" action=(format!("/b/{}/folders", at.bucket)) class="card" {
                    input type="hidden" name="in" value=(wanted.prefix);
                    label for="folder" { "Name of the folder" }
                    input id="folder" name="name" required maxlength="255" autocomplete="off";
                    button type="submit" class="primary" { "Make folder" }
                }
            }
        }
    }
}

fn none(at: &At<'_>, wanted: &FolderQuery, may: &May, is_plain: bool) -> Markup {
    html! {
        div class="empty" {
            @if !is_plain {
                h2 { "No name here begins with this text" }
                p { a href=(at.folder(&wanted.prefix)) { "Show all of the folder" } }
            } @else if may.write {
                h2 { "Nothing is here yet" }
                p { "Drop files or folders here, or choose them with the button above." }
            } @else {
                h2 { "Nothing is here yet" }
                p { "You may look into this bucket, but not change it." }
            }
        }
    }
}

const COLUMNS: [Column; 4] = [
    sheet::tools("Selected", "pick"),
    column("Name", ""),
    column("Size", "number"),
    column("Changed (UTC)", "wide"),
];

fn table(at: &At<'_>, wanted: &FolderQuery, found: &Rows, may: &May) -> Markup {
    let rows_at = format!("/b/{}/rows", at.bucket);
    let columns = if may.write { &COLUMNS[..] } else { &COLUMNS[1..] };
    let rows = html! { @for row in &found.rows { (shown(at, wanted, row, may)) } };
    html! {
        form method="post" action=(format!("/b/{}/delete", at.bucket)) class="files" {
            input type="hidden" name="in" value=(wanted.prefix);
            input type="hidden" name="filter" value=(wanted.filter);
            cairn-listing data-rows=(rows_at) data-bucket=(at.bucket) data-prefix=(wanted.prefix)
                data-filter=(wanted.filter) data-next=[found.next.as_deref()]
                data-after=(wanted.after) data-selects[may.write] {
                (sheet::plain(columns, &rows))
            }
            div class="pager" {
                @if may.write { (selected(at, wanted)) }
                @if let Some(next) = &found.next {
                    a class="button" rel="next" href=(wanted.place(at, next)) { "Next page" }
                }
            }
        }
    }
}

/// Shows the actions on the selected entries.
fn selected(at: &At<'_>, wanted: &FolderQuery) -> Markup {
    let all = match (&*wanted.prefix, &*wanted.filter) {
        ("", "") => "Select all of the bucket".to_owned(),
        (_, "") => "Select all of the folder".to_owned(),
        (_, filter) => format!("Select all that begin with {filter:?}"),
    };
    html! {
        div class="line" {
            label class="check" {
                input type="checkbox" name="all" value="yes";
                span { (all) }
            }
            button type="submit" formaction=(format!("/b/{}/transfer", at.bucket))
                data-needs-selection="Copy or move" { "Copy or move selected…" }
            button type="submit" class="danger" data-needs-selection="Delete" {
                "Delete selected…"
            }
        }
    }
}

fn shown(at: &At<'_>, wanted: &FolderQuery, row: &ListRow, may: &May) -> Markup {
    let key = row.key();
    let name = key.strip_prefix(&wanted.prefix).unwrap_or(key);
    let pick = |label: &str| {
        html! {
            @if may.write {
                td class="pick" {
                    input type="checkbox" name="key" value=(key) aria-label=(label);
                }
            }
        }
    };
    let label = format!("Select {name}");
    match row {
        ListRow::Folder(prefix) => html! {
            tr {
                (pick(&label))
                td class="name" { a class="folder" href=(at.folder(prefix)) { (name) } }
                td class="number" {}
                td class="wide" {}
            }
        },
        ListRow::File(listed) => html! {
            tr {
                (pick(&label))
                td class="name" { a class="file" href=(at.of_object("object", key)) { (name) } }
                td class="number" { (words::size(listed.inode.size)) }
                td class="wide" { (words::time(listed.inode.mtime)) }
            }
        },
    }
}

fn remove_form(at: &At<'_>) -> Markup {
    html! {
        form method="post" action=(format!("/b/{}/remove", at.bucket)) class="apart" {
            button type="submit" { "Delete this bucket…" }
        }
    }
}

#[derive(Serialize)]
struct ShownRows<'a> {
    rows: Vec<ShownRow<'a>>,
    /// Start of the next page, to be sent as `after`. Null at the end.
    next: Option<&'a str>,
}

/// A folder has neither size nor time.
#[derive(Serialize)]
struct ShownRow<'a> {
    key: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    size: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    changed: Option<String>,
}

impl<'a> From<&'a ListRow> for ShownRow<'a> {
    fn from(row: &'a ListRow) -> ShownRow<'a> {
        let (key, inode) = match row {
            ListRow::Folder(prefix) => (prefix, None),
            ListRow::File(listed) => (&listed.key, Some(&listed.inode)),
        };
        let size = inode.map(|inode| inode.size);
        ShownRow { key, size, changed: inode.map(|inode| rfc3339(inode.mtime)) }
    }
}

/// Returns the rows of a listing as JSON for a script.
pub async fn rows(at: &At<'_>) -> Result<Reply, Failure> {
    let found = FolderQuery::of(at)?.find(at.inner.fs(), &at.login.caller, at.bucket).await?;
    let rows = found.rows.iter().map(ShownRow::from).collect();
    Ok(reply::json(StatusCode::OK, &ShownRows { rows, next: found.next.as_deref() }))
}
