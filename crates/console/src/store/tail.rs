//! A live tail of the day files of a log source, or of any object that grows.

use std::sync::Arc;

use bytes::Bytes;
use cairn_auth::Caller;
use cairn_base::Result;
use cairn_fs::ops::list_objects::ListObjects;
use cairn_logs::follow::{
    Checker, Feed, FeedEvent, FollowCounts, FollowRequest, From, Position, Sse, last_lines,
};
use cairn_logs::limits::FOLLOW_EVENTS_BYTES;
use futures_util::{StreamExt, stream};
use http::StatusCode;
use maud::{Markup, html};
use tokio::time::{Interval, MissedTickBehavior, interval};

use super::admit;
use super::screen::{self, PART, Screen};
use crate::events;
use crate::failure::Failure;
use crate::fields::{self, Text};
use crate::inner::For;
use crate::page::{self, Page};
use crate::reply::{self, Reply};
use crate::{limits, words};

/// Target of a tail: a bucket, and a source with a slash behind it, or the key of an object.
struct Place {
    bucket: String,
    key: String,
}

impl Place {
    fn of(of: &For<'_>) -> Result<Place> {
        let query = of.asked.query()?;
        let text = |name| query.get(name).trim().to_owned();
        Ok(Place { bucket: text("bucket"), key: text("key") })
    }

    fn query(&self) -> String {
        let Place { bucket, key } = self;
        format!("bucket={}&key={}", words::in_query(bucket), words::in_query(key))
    }
}

/// Answers `GET /store/logs`.
pub async fn show(of: &For<'_>) -> Result<Reply, Failure> {
    admit(of.login)?;
    let place = Place::of(of)?;
    let shown = match (place.bucket.is_empty(), place.key.is_empty()) {
        (true, _) => html! {},
        (false, true) => sources(of, &place.bucket).await?,
        (false, false) => lines(of, &place).await?,
    };
    let body = html! {
        div class="title" { h1 { "Logs" } }
        (screen::tabs(Screen::Logs))
        (form(&place))
        (shown)
    };
    let crumbs = [("Store".to_owned(), PART.to_owned())];
    let page = Page { title: "Logs", login: Some(of.login), crumbs: &crumbs, part: PART };
    Ok(reply::html(StatusCode::OK, page::page(&page, &body)))
}

fn form(place: &Place) -> Markup {
    html! {
        form method="get" action=(Screen::Logs.place()) class="form" {
            div class="pair" {
                (fields::text(&Text {
                    id: "bucket", label: "Bucket", value: &place.bucket, is_required: true,
                    hint: "Records of logs are in buckets such as logs-root.", ..Text::default()
                }))
                (fields::text(&Text {
                    id: "key", label: "Source or object", value: &place.key,
                    hint: "A source ends in a slash: nginx/. Empty for a list.", ..Text::default()
                }))
            }
            button type="submit" class="primary" { "Show" }
        }
        p class="hint" {
            "The log of a server is kept in a bucket by " code { "--log-bucket" } " ("
            (page::document("audit.md")) "), and those of programs come by shippers ("
            (page::document("logs.md")) ")."
        }
    }
}

/// Shows the sources of a bucket, to choose one.
async fn sources(of: &For<'_>, bucket: &str) -> Result<Markup> {
    let verb = ListObjects {
        bucket: bucket.to_owned(),
        prefix: String::new(),
        delimiter: "/".to_owned(),
        after: String::new(),
        max_keys: limits::SHOWN,
    };
    let found = of.inner.fs().read(&of.login.caller, verb).await?;
    let place = |key: &str| {
        let place = Place { bucket: bucket.to_owned(), key: key.to_owned() };
        format!("{}?{}", Screen::Logs.place(), place.query())
    };
    Ok(html! {
        section class="group" aria-labelledby="sources" {
            h2 id="sources" { "Sources in " (bucket) }
            @if found.prefixes.is_empty() { p class="hint" { "There are none." } }
            ul class="names" {
                @for prefix in &found.prefixes { li { a href=(place(prefix)) { (prefix) } } }
            }
            @if found.next.is_some() { p class="hint" { "There are more: write the name above." } }
        }
    })
}

/// Shows the last lines; a script continues them.
async fn lines(of: &For<'_>, place: &Place) -> Result<Markup> {
    let caller = &of.login.caller;
    let (fs, count) = (of.inner.fs(), limits::TAIL_LINES);
    let (mut bytes, _) = last_lines(fs, caller, &place.bucket, &place.key, count).await?;
    let mut text = Vec::new();
    while let Some(more) = bytes.next().await {
        text.extend_from_slice(&more?);
        // Of long lines only the last part is shown.
        if text.len() > 2 * limits::TAIL_BYTES {
            text.drain(..text.len() - limits::TAIL_BYTES);
        }
    }
    text.drain(..text.len().saturating_sub(limits::TAIL_BYTES));
    let text = String::from_utf8_lossy(&text);
    Ok(html! {
        cairn-tail data-events=(format!("/store/tail?{}", place.query())) data-lines=(limits::TAIL_KEPT) {
            p class="hint live-state" {
                span data-live-state { "These are the last lines, of when the page was loaded." }
                button type="button" data-live-pause hidden { "Pause" }
            }
            pre class="log" role="log" aria-live="off" aria-label="Lines of the log" tabindex="0" { (text) }
        }
    })
}

/// Answers `GET /store/tail`: events, one for each line, as the HTTP door sends them.
pub async fn follow(of: &For<'_>) -> Result<Reply, Failure> {
    admit(of.login)?;
    let place = Place::of(of)?;
    let seen = of.asked.parts.headers.get("last-event-id");
    let seen = seen.and_then(|seen| seen.to_str().ok()).and_then(Position::parse);
    let from = seen.map_or(From::Lines(limits::TAIL_LINES), From::At);
    let caller: &Caller = &of.login.caller;
    let tails = &of.inner.looks.tails;
    let wanted = FollowRequest { caller, bucket: &place.bucket, key: &place.key, from };
    let feed = Feed::new(tails, wanted).await?;
    let mut checks = interval(limits::TAIL_CHECK);
    checks.set_missed_tick_behavior(MissedTickBehavior::Delay);
    let tailing = Tailing {
        checker: feed.checker(),
        feed,
        events: Sse::default(),
        checks,
        _counted: FollowerCount::new(tails.counts()),
    };
    let lines = stream::unfold(Some(tailing), |tailing| async { tailing?.step().await });
    events::reply(of.inner, of.login, lines)
}

/// Counts as a follower until it is dropped.
struct FollowerCount(Arc<FollowCounts>);

impl FollowerCount {
    fn new(counts: &Arc<FollowCounts>) -> FollowerCount {
        counts.come();
        FollowerCount(Arc::clone(counts))
    }
}

impl Drop for FollowerCount {
    fn drop(&mut self) {
        self.0.go();
    }
}

struct Tailing {
    checker: Checker,
    feed: Feed,
    events: Sse,
    checks: Interval,
    _counted: FollowerCount,
}

impl Tailing {
    /// Returns the next bytes, and the state afterwards; no state after the last bytes.
    async fn step(mut self) -> Option<(Bytes, Option<Tailing>)> {
        loop {
            match self.next().await {
                Ok(FeedEvent::End(why)) => return Some((Sse::end(why).into(), None)),
                Err(error) => {
                    tracing::debug!(%error, "a tail in the console ended");
                    return Some((Sse::end(error.kind()).into(), None));
                }
                Ok(event) => {
                    let bytes = self.shown(event);
                    if !bytes.is_empty() {
                        return Some((bytes.into(), Some(self)));
                    }
                }
            }
        }
    }

    /// Waits for the next event, which is the end if the user may no longer read the log.
    async fn next(&mut self) -> Result<FeedEvent> {
        let Tailing { checker, feed, checks, .. } = self;
        let mut next = Box::pin(feed.next(FOLLOW_EVENTS_BYTES));
        loop {
            tokio::select! {
                biased;
                _ = checks.tick() => {
                    if let Ok(Some(why)) = checker.check().await {
                        return Ok(FeedEvent::End(why));
                    }
                }
                event = &mut next => return event,
            }
        }
    }

    fn shown(&mut self, event: FeedEvent) -> Vec<u8> {
        match event {
            FeedEvent::Opened { day, at } => self.events.opened(day, at),
            FeedEvent::Bytes { day, bytes } => self.events.bytes(day, &bytes),
            FeedEvent::Closed { day } => {
                self.events.closed(day);
                Vec::new()
            }
            FeedEvent::End(_) => Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_written_into_addresses() {
        let place = Place { bucket: "logs-root".to_owned(), key: "a b&c/".to_owned() };
        assert_eq!(place.query(), "bucket=logs-root&key=a%20b%26c/");
    }
}
