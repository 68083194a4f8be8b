//! Records of the audit: the last records of this process, and those of a day in the audit's
//! bucket.

use cairn_base::Result;
use cairn_fs::ops::credentials::ListUsers;
use cairn_fs::ops::list_objects::ListObjects;
use http::StatusCode;
use maud::{Markup, html};
use serde_json::Value;

use super::stored_lines;
use super::users::PART;
use crate::failure::Failure;
use crate::fields::{self, Text};
use crate::inner::For;
use crate::insight::AuditPlaces;
use crate::page::{self, Page};
use crate::reply::{self, Reply};
use crate::sheet::{self, Column, column};
use crate::{limits, words};

/// Filter of the records.
struct RecordFilter {
    /// Empty for the records of this process, or `SOURCE/DAY` in the bucket.
    from: String,
    /// Name or number of a user.
    user: String,
    /// Part of the name of an operation.
    action: String,
    outcome: String,
    /// Position at which the page goes on: the number of a line, or its offset.
    before: Option<u64>,
}

impl RecordFilter {
    fn of(of: &For<'_>) -> Result<RecordFilter> {
        let query = of.asked.query()?;
        let text = |name| query.get(name).trim().to_owned();
        let before = query.number("before", "before")?;
        let [from, user, action, outcome] = ["from", "user", "action", "outcome"].map(text);
        Ok(RecordFilter { from, user, action: action.to_ascii_lowercase(), outcome, before })
    }

    fn matches(&self, record: &Value) -> bool {
        let text = |name| text_of(record, name);
        let is_user =
            self.user.is_empty() || text("name") == self.user || text("user") == self.user;
        let is_outcome = self.outcome.is_empty() || text("outcome") == self.outcome;
        let operation = text("operation").to_ascii_lowercase();
        is_user && is_outcome && operation.contains(&self.action)
    }

    fn place(&self, before: u64) -> String {
        let all = [&self.from, &self.user, &self.action, &self.outcome];
        let [from, user, action, outcome] = all.map(|text| words::in_query(text));
        format!("/audit?from={from}&user={user}&action={action}&outcome={outcome}&before={before}")
    }
}

/// Records, the newest first, and the position at which to go on.
#[derive(Default)]
struct RecordPage {
    records: Vec<Value>,
    before: Option<u64>,
}

impl RecordPage {
    /// Takes a line if it is a wanted record. Returns false if the page is full.
    fn take(&mut self, wanted: &RecordFilter, line: &[u8]) -> bool {
        if self.records.len() >= limits::RECORDS {
            return false;
        }
        match serde_json::from_slice::<Value>(line) {
            Ok(record) if record.is_object() && wanted.matches(&record) => {
                self.records.push(record);
            }
            _ => {}
        }
        true
    }
}

pub async fn show(of: &For<'_>) -> Result<Reply, Failure> {
    // Users that may see all users may see what they did.
    of.inner.fs().read(&of.login.caller, ListUsers).await?;
    let wanted = RecordFilter::of(of)?;
    let places = &of.inner.insight.audit;
    let days = match &places.bucket {
        Some(bucket) => days(of, bucket).await,
        None => Vec::new(),
    };
    let found = match (&*wanted.from, &places.bucket) {
        ("", _) => recent(places, &wanted),
        (from, Some(bucket)) => stored(of, bucket, from, &wanted).await?,
        (_, None) => RecordPage::default(),
    };
    let body = html! {
        div class="title" { h1 { "Audit" } }
        p class="hint" {
            "Requests that changed something or were refused, the newest first. Times are UTC."
        }
        @if places.recent.is_none() {
            p class="empty" {
                "This server keeps no audit. Start it with " code { "--audit-memory" } ", or with "
                code { "--audit-bucket" } " to keep all records."
            }
        } @else {
            (filters(&wanted, &days))
            @if found.records.is_empty() {
                div class="empty" { h2 { "There is no such record" } }
            } @else {
                (table(&found.records))
            }
            @if let Some(before) = found.before {
                nav class="pager" aria-label="Pages" {
                    a class="button" rel="next" href=(wanted.place(before)) { "Older records" }
                }
            }
        }
    };
    let crumbs = [("People".to_owned(), PART.to_owned())];
    let (login, crumbs) = (Some(of.login), &crumbs[..]);
    let page = Page { title: "Audit", login, crumbs, part: PART };
    Ok(reply::html(StatusCode::OK, page::page(&page, &body)))
}

/// Returns the last records of this process.
fn recent(places: &AuditPlaces, wanted: &RecordFilter) -> RecordPage {
    let mut found = RecordPage::default();
    let Some(recent) = &places.recent else { return found };
    for (number, line) in recent.before(wanted.before.unwrap_or(u64::MAX)) {
        if !found.take(wanted, &line) {
            found.before = Some(number + 1);
            break;
        }
    }
    found
}

/// Returns records of a day. The bucket decides whether its user may read them.
async fn stored(
    of: &For<'_>,
    bucket: &str,
    from: &str,
    wanted: &RecordFilter,
) -> Result<RecordPage> {
    let object = of.inner.fs().open(&of.login.caller, bucket, &format!("{from}.jsonl")).await?;
    let mut found = RecordPage::default();
    let before = wanted.before.unwrap_or(u64::MAX);
    found.before =
        stored_lines::each(&object, before, limits::RECORDS_BYTES, |line| found.take(wanted, line))
            .await?;
    Ok(found)
}

/// Returns the days with records in the bucket, as `SOURCE/DAY`, the newest first; none if they
/// cannot be listed.
async fn days(of: &For<'_>, bucket: &str) -> Vec<String> {
    let list = |prefix: &str| ListObjects {
        bucket: bucket.to_owned(),
        prefix: prefix.to_owned(),
        delimiter: "/".to_owned(),
        after: String::new(),
        max_keys: cairn_base::limits::LIST_KEYS,
    };
    let (fs, caller) = (of.inner.fs(), &of.login.caller);
    let Ok(sources) = fs.read(caller, list("")).await else { return Vec::new() };
    let mut days = Vec::new();
    for source in sources.prefixes.iter().take(limits::AUDIT_SOURCES) {
        let Ok(found) = fs.read(caller, list(source)).await else { continue };
        let names = found.objects.iter().rev().filter_map(|one| one.key.strip_suffix(".jsonl"));
        days.extend(names.take(limits::AUDIT_DAYS).map(str::to_owned));
    }
    days
}

fn filters(wanted: &RecordFilter, days: &[String]) -> Markup {
    let outcomes = [
        ("", "Any outcome"),
        ("done", "Done"),
        ("refused", "Refused"),
        ("failed", "Failed"),
        ("unknown", "Unknown"),
    ];
    let mut places = vec![("", "The last records of this process")];
    places.extend(days.iter().map(|day| (day.as_str(), day.as_str())));
    html! {
        form class="form wide" role="search" action="/audit" {
            div class="line" {
                (fields::text(&Text { id: "user", label: "User", value: &wanted.user, ..Text::default() }))
                (fields::text(&Text {
                    id: "action", label: "Action", value: &wanted.action, ..Text::default()
                }))
                (fields::choice("outcome", "Outcome", &wanted.outcome, &outcomes))
                (fields::choice("from", "Records", &wanted.from, &places))
                button type="submit" { "Show" }
            }
        }
    }
}

const COLUMNS: [Column; 6] = [
    column("Time", "wide"),
    column("User", ""),
    column("Action", ""),
    column("Outcome", ""),
    column("About", "name"),
    column("From", "wide"),
];

fn table(records: &[Value]) -> Markup {
    let rows = html! { @for record in records { (row(record)) } };
    sheet::scrolling("Records of the audit", &COLUMNS, &rows)
}

fn row(record: &Value) -> Markup {
    let text = |name| text_of(record, name);
    let outcome = text("outcome");
    let is_good = outcome == "done";
    html! {
        tr {
            td class="wide" {
                (text("time").get(..19).unwrap_or_default().replace('T', " "))
            }
            td { (who(record)) }
            td { (text("operation")) @if !text("door").is_empty() { span class="of" { " at " (text("door")) } } }
            td {
                @if !outcome.is_empty() {
                    span class={ "tag" @if !is_good { " warn" } } { (outcome) }
                }
                @if !text("reason").is_empty() { span class="of" { " " (text("reason")) } }
            }
            td class="name" { (about(record)) }
            td class="wide" { (text("source")) }
        }
    }
}

fn who(record: &Value) -> String {
    let [name, user, node] = ["name", "user", "node"].map(|name| text_of(record, name));
    match (&*name, &*user, &*node) {
        ("", "", "") => "nobody".to_owned(),
        ("", "", node) => format!("node {node}"),
        ("", user, _) => format!("user {user}"),
        (name, ..) => name.to_owned(),
    }
}

fn about(record: &Value) -> String {
    let text = |name| text_of(record, name);
    if let Some(more) = record.get("more") {
        return format!("{more} further requests without a user");
    }
    if let Some(lost) = record.get("lost") {
        return format!("{lost} records were lost");
    }
    let (bucket, key, resource) = (text("bucket"), text("key"), text("resource"));
    let mut about = match (bucket.is_empty(), key.is_empty()) {
        (true, _) => String::new(),
        (false, true) => bucket,
        (false, false) => format!("{bucket}/{key}"),
    };
    let keys = record.get("keys").and_then(Value::as_array).map_or(0, Vec::len);
    if keys > 0 {
        about.push_str(&format!(" ({})", words::counted(keys as u64, "key")));
    }
    let more = if resource.is_empty() && about.is_empty() { text("path") } else { resource };
    if !more.is_empty() {
        about = [about, more].join(" ").trim().to_owned();
    }
    about
}

/// Returns a member as text; empty if there is none.
fn text_of(record: &Value, name: &str) -> String {
    match record.get(name) {
        Some(Value::String(text)) => text.clone(),
        Some(value @ Value::Number(_)) => value.to_string(),
        _ => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn records_are_shown_in_words() {
        let record = json!({ "user": 7, "bucket": "b", "key": "k", "keys": ["k"], "path": "/b/k" });
        assert_eq!((who(&record), about(&record)), ("user 7".into(), "b/k (1 key)".into()));
        let nobody = json!({ "path": "/x", "source": "10.0.0.7" });
        assert_eq!((who(&nobody), about(&nobody)), ("nobody".into(), "/x".into()));
        assert_eq!(about(&json!({ "more": 5 })), "5 further requests without a user");
        assert_eq!(text_of(&json!({ "a": ["x"] }), "a"), "");
    }

    #[test]
    fn filters_are_about_user_action_and_outcome() {
        let of = |user: &str, action: &str, outcome: &str| RecordFilter {
            from: String::new(),
            user: user.into(),
            action: action.into(),
            outcome: outcome.into(),
            before: None,
        };
        let record =
            json!({ "user": 7, "name": "bob", "operation": "PutObject", "outcome": "refused" });
        for (wanted, is_shown) in [
            (of("", "", ""), true),
            (of("bob", "put", "refused"), true),
            (of("7", "object", ""), true),
            (of("bo", "", ""), false),
            (of("", "get", ""), false),
            (of("", "", "done"), false),
        ] {
            assert_eq!(wanted.matches(&record), is_shown);
        }
    }
}
