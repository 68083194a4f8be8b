//! The events of a page, to one browser.

use futures_util::stream;

use super::admit;
use super::screen::Screen;
use crate::events;
use crate::failure::Failure;
use crate::inner::For;
use crate::reply::Reply;

/// `GET /store/live?screen=...`
pub async fn follow(of: &For<'_>) -> Result<Reply, Failure> {
    admit(of.login)?;
    let query = of.asked.query()?;
    let screen = Screen::of(query.get("screen")).ok_or(Failure::NoPage)?;
    let latest = of.inner.store.feeds.follow(&of.inner.own, screen);
    let parts = stream::unfold(latest, |mut latest| async {
        // Where its task failed, the browser comes again.
        latest.changed().await.ok()?;
        let event = latest.borrow_and_update().clone();
        Some((event, latest))
    });
    events::reply(of.inner, of.login, parts)
}
