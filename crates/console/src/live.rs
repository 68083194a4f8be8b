//! Pages that show the changes of other users while they are open: the parts of a page that change
//! have `data-live`, and a script requests the page again after an event.

use std::time::Duration;

use cairn_base::{Error, Result};
use futures_util::{Stream, stream};
use maud::{Markup, html};
use tokio::time::{Instant, sleep, sleep_until};

use crate::events::Event;
use crate::inner::ConsoleRequest;

/// Least time between two events about one page: changes come in bursts.
const PAUSE: Duration = Duration::from_secs(1);
/// Time to wait for the rest of a burst after the first change.
const GATHER: Duration = Duration::from_millis(50);
/// Interval of looks at rows about which this process gets no recalls, because its master leases it
/// no rows now.
pub const DEAF: Duration = Duration::from_secs(5);
/// Pause after a look that failed.
const RETRY: Duration = Duration::from_secs(5);

/// Returns the element that makes a page listen: the address of its events, and the state that it
/// shows.
pub fn listen(place: &str, version: &str) -> Markup {
    html! { cairn-changes data-events=(place) data-seen=(version) {} }
}

/// Returns the state that a listening page has seen: as the browser says if it reconnects,
/// otherwise as the page says.
pub fn seen(asked: &ConsoleRequest) -> String {
    let again = asked.parts.headers.get("last-event-id");
    let again = again.and_then(|seen| seen.to_str().ok()).filter(|seen| !seen.is_empty());
    match again {
        Some(seen) => seen.to_owned(),
        None => asked.query().unwrap_or_default().get("seen").to_owned(),
    }
}

/// Contents of a page while it is open.
pub trait Sight: Send + 'static {
    /// Returns the current state. From then on the sight notices changes of it.
    fn look(&mut self) -> impl Future<Output = Result<String>> + Send;

    /// Returns when the state may differ from that of the last look.
    fn changed(&mut self) -> impl Future<Output = ()> + Send;
}

/// Sends an event for each state of a sight that differs from what the page has seen. `shown` is
/// the state of the last look.
pub fn tell(
    sight: impl Sight,
    shown: String,
    seen: String,
) -> impl Stream<Item = Event> + Send + 'static {
    let telling = Telling { sight, shown: Some(shown), seen, told: None };
    stream::unfold(Some(telling), |telling| async {
        let mut telling = telling?;
        match telling.next().await {
            Ok(()) => Some((changed(telling.seen.clone()), Some(telling))),
            // The page requests itself again, and shows why there is nothing to see.
            Err(error) => {
                tracing::debug!(%error, "a page is told of no more changes");
                Some((changed("gone".to_owned()), None))
            }
        }
    })
}

fn changed(version: String) -> Event {
    Event { name: "changed", id: version, data: String::new() }
}

struct Telling<S> {
    sight: S,
    /// State that was looked at and is not compared yet.
    shown: Option<String>,
    seen: String,
    told: Option<Instant>,
}

impl<S: Sight> Telling<S> {
    /// Waits for another state.
    ///
    /// # Errors
    /// There is no more to see.
    async fn next(&mut self) -> Result<()> {
        loop {
            let shown = match self.shown.take() {
                Some(shown) => shown,
                None => {
                    // Changes since the last look are noticed now.
                    self.sight.changed().await;
                    sleep(GATHER).await;
                    if let Some(told) = self.told {
                        sleep_until(told + PAUSE).await;
                    }
                    self.look().await?
                }
            };
            if shown != self.seen {
                self.seen = shown;
                self.told = Some(Instant::now());
                return Ok(());
            }
        }
    }

    /// Returns the state, once it can be looked at.
    async fn look(&mut self) -> Result<String> {
        loop {
            match self.sight.look().await {
                Ok(shown) => return Ok(shown),
                Err(error @ (Error::NotFound(_) | Error::Denied(_) | Error::NotImplemented(_))) => {
                    return Err(error);
                }
                Err(error) => {
                    tracing::debug!(%error, "what a page shows could not be looked at");
                    sleep(RETRY).await;
                }
            }
        }
    }
}
