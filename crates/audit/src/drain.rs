//! Writes the lines of a queue to a sink.

use std::collections::HashMap;
use std::io;
use std::time::Duration;

use cairn_base::{Clock, Party, rfc3339};

use crate::queue::{LineBatch, LineQueue, RESERVED_BYTES, count};

/// Pause after the first failure of a sink, and the longest pause.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(15));

/// Destination of lines.
pub trait LineSink: Send {
    /// Takes whole lines. Lines that it failed to take may be offered again.
    ///
    /// # Errors
    /// The reason why it takes none now.
    fn write(&mut self, lines: &[u8]) -> io::Result<()>;

    /// Makes sure that the sink has room for `bytes` bytes of further lines, if it can know.
    ///
    /// # Errors
    /// There is no room.
    fn reserve(&mut self, bytes: u64) -> io::Result<()>;
}

/// Interval between two attempts to make room in a sink that has none.
const LOOK: Duration = Duration::from_millis(500);

/// Makes a sink reserve room for the lines to come, if records are required. Tries until the sink
/// has room, lines arrive, or the queue is closed.
fn reserve(queue: &LineQueue, sink: &mut dyn LineSink) {
    let mut is_told = false;
    while queue.is_required() {
        let reserved = sink.reserve(RESERVED_BYTES);
        queue.set_stuck(reserved.is_err());
        match reserved {
            Ok(()) => return,
            Err(_) if is_told => {}
            Err(error) => {
                is_told = true;
                tracing::warn!(log = queue.log, sink = queue.sink, %error,
                    "the sink has no room: changes are refused");
            }
        }
        if queue.wait(LOOK) {
            return;
        }
    }
}

/// Gives lines to a sink until the queue is closed and empty. While the sink fails, the same lines
/// are offered again. Lines that were lost meanwhile are replaced by lines with their number.
pub fn drain(queue: &LineQueue, clock: &dyn Clock, pace: Duration, sink: &mut dyn LineSink) {
    reserve(queue, sink);
    while let Some(LineBatch { mut bytes, lost }) = queue.take(pace) {
        let lines = count(&bytes);
        for line in told(lost, &rfc3339(clock.now())) {
            bytes.extend_from_slice(line.as_bytes());
        }
        if offer(queue, sink, &bytes) {
            queue.wrote(lines)
        } else {
            tracing::error!(log = queue.log, sink = queue.sink, lines, "lines lost at the end");
            queue.lose(lines);
        }
        reserve(queue, sink);
    }
}

/// Returns lines with the number of lost lines, by party.
fn told(lost: HashMap<Party, u64>, time: &str) -> Vec<String> {
    let mut lines: Vec<String> = lost
        .into_iter()
        .map(|(party, lost)| {
            let whose = match party {
                Party::User(user) => format!(",\"user\":{}", user.0),
                Party::Network(address) => format!(",\"source\":\"{address}\""),
                Party::ShareLink(_) | Party::Other => String::new(),
            };
            format!("{{\"time\":\"{time}\",\"lost\":{lost}{whose}}}\n")
        })
        .collect();
    lines.sort_unstable();
    lines
}

/// Offers lines until they are taken. Returns false if the queue was closed before.
fn offer(queue: &LineQueue, sink: &mut dyn LineSink, bytes: &[u8]) -> bool {
    let (log, name) = (queue.log, queue.sink);
    let (mut pause, longest) = PAUSES;
    let mut has_failed = false;
    loop {
        match sink.write(bytes) {
            Ok(()) => {
                queue.set_stuck(false);
                if has_failed {
                    tracing::info!(log, sink = name, "the sink takes lines again");
                }
                return true;
            }
            Err(error) if !has_failed => {
                tracing::warn!(log, sink = name, %error, "the sink takes no lines; they wait");
                has_failed = true;
            }
            Err(error) => tracing::debug!(log, sink = name, %error, "the sink takes no lines"),
        }
        queue.set_stuck(true);
        if queue.pause(pause) {
            return sink.write(bytes).is_ok();
        }
        pause = (pause * 2).min(longest);
    }
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests run on this machine")]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};

    use cairn_base::clock::RealClock;
    use parking_lot::Mutex;

    use super::*;

    struct Shy {
        refuses: Arc<AtomicBool>,
        text: Arc<Mutex<String>>,
    }

    impl LineSink for Shy {
        fn write(&mut self, lines: &[u8]) -> io::Result<()> {
            if self.refuses.load(Ordering::SeqCst) {
                return Err(io::Error::other("not now"));
            }
            self.text.lock().push_str(std::str::from_utf8(lines).unwrap());
            Ok(())
        }

        fn reserve(&mut self, _: u64) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_sink_that_takes_nothing_stops_nobody_and_hears_of_the_loss() {
        let queue = Arc::new(LineQueue::new("audit", "bucket"));
        let (refuses, text) = (Arc::new(AtomicBool::new(true)), Arc::default());
        let mut sink = Shy { refuses: Arc::clone(&refuses), text: Arc::clone(&text) };
        let line = [&[b'x'; (1 << 20) - 1][..], b"\n"].concat();
        queue.add(Party::Other, &line);
        let worker = Arc::clone(&queue);
        let thread = std::thread::spawn(move || {
            drain(&worker, &RealClock::default(), Duration::ZERO, &mut sink);
        });
        // Some of these are taken off the queue, and wait with the sink.
        (0..20).for_each(|_| queue.add(Party::Other, &line));
        let lost = queue.counts().lost;
        assert!((10..=15).contains(&lost), "{lost}");
        refuses.store(false, Ordering::SeqCst);
        queue.close();
        thread.join().unwrap();
        assert_eq!(queue.counts().written, 21 - lost);
        let text = text.lock();
        let told = text.lines().filter(|line| line.starts_with('{'));
        let told: Vec<serde_json::Value> =
            told.map(|line| serde_json::from_str(line).unwrap()).collect();
        let sum: u64 = told.iter().map(|line| line["lost"].as_u64().unwrap()).sum();
        assert_eq!(sum, lost);
    }
}
