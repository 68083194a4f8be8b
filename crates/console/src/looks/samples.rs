//! Looks at this process and this machine, for what slows the store.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use cairn_base::{Error, Result};
use cairn_doctor::collect::Kernel;
use cairn_doctor::{Node, Sample};
use cairn_doors::metrics::Metrics;
use parking_lot::Mutex;
use tokio::task::spawn_blocking;
use tokio::time::Instant;

/// Time for which a look is reused.
const FRESH: Duration = Duration::from_secs(8);
/// Distance of the looks that are kept, and the age at which they are forgotten.
const APART: Duration = Duration::from_secs(60);
const OLDEST: Duration = Duration::from_secs(300);
/// The name of this process where the findings name servers.
const HERE: &str = "this server";

/// Looks of the last minutes, the oldest first.
pub struct Samples {
    began: Instant,
    looks: Mutex<VecDeque<Arc<Sample>>>,
}

impl Default for Samples {
    fn default() -> Samples {
        Samples { began: Instant::now(), looks: Mutex::default() }
    }
}

impl Samples {
    /// Returns two looks: the oldest of the last minutes, and a current one.
    ///
    /// # Errors
    /// `Unavailable` if this machine cannot be looked at.
    pub async fn pair(&self, metrics: &Metrics) -> Result<(Arc<Sample>, Arc<Sample>)> {
        let now = self.began.elapsed();
        let is_fresh = |look: &Arc<Sample>| now.saturating_sub(look.at) < FRESH;
        if !self.looks.lock().back().is_some_and(is_fresh) {
            let sample = Arc::new(take(metrics, self.began).await?);
            keep(&mut self.looks.lock(), sample);
        }
        let looks = self.looks.lock();
        let ends = looks.front().zip(looks.back());
        let (first, last) = ends.ok_or_else(|| Error::Unavailable("no look was taken".into()))?;
        Ok((Arc::clone(first), Arc::clone(last)))
    }
}

#[expect(clippy::disallowed_methods, reason = "this looks at the machine, and blocks")]
async fn take(metrics: &Metrics, began: Instant) -> Result<Sample> {
    let text = metrics.text(false).await;
    let looked = spawn_blocking(move || {
        let kernel = Kernel::with_own();
        let metrics = Ok(cairn_doctor::Metrics::parse(&text));
        Sample {
            at: began.elapsed(),
            nodes: vec![Node { url: HERE.to_owned(), metrics, clock_ahead: None }],
            processes: kernel.processes(),
            host: kernel.host(),
            cluster: None,
        }
    });
    looked.await.map_err(|error| Error::Unavailable(format!("looking at this machine: {error}")))
}

/// Keeps few looks: they are large.
fn keep(looks: &mut VecDeque<Arc<Sample>>, sample: Arc<Sample>) {
    let age = |look: &Arc<Sample>| sample.at.saturating_sub(look.at);
    // The last look is kept for good only if it is far enough from the one before.
    if let [.., before, last] = looks.make_contiguous()
        && last.at.saturating_sub(before.at) < APART
    {
        looks.pop_back();
    }
    while looks.front().is_some_and(|first| age(first) > OLDEST) {
        looks.pop_front();
    }
    looks.push_back(sample);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn few_looks_are_kept_of_the_last_minutes() {
        let mut looks = VecDeque::new();
        for at in (0..=900).step_by(10) {
            let at = Duration::from_secs(at);
            keep(&mut looks, Arc::new(Sample { at, ..Sample::default() }));
            assert!(looks.len() <= 7, "{}", looks.len());
        }
        let (first, last) = (looks.front().unwrap().at, looks.back().unwrap().at);
        assert_eq!(last, Duration::from_secs(900));
        assert!(last - first >= Duration::from_secs(240) && last - first <= OLDEST);
    }
}
