//! From a queue to a sink.

use std::io;
use std::time::Duration;

use cairn_base::{Clock, rfc3339};

use crate::queue::{LineBatch, LineQueue, count};

/// The pause after a first failure of a sink, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(15));

/// Where lines go.
pub trait LineSink: Send {
    /// Takes whole lines. It may be offered again the lines that it failed to take.
    ///
    /// # Errors
    /// Why it takes none now.
    fn write(&mut self, lines: &[u8]) -> io::Result<()>;
}

/// Gives lines to a sink until the queue is closed and empty. As long as the sink takes none, the
/// same lines are offered again. When it takes some, it is told how many were lost.
pub fn drain(queue: &LineQueue, clock: &dyn Clock, pace: Duration, sink: &mut dyn LineSink) {
    while let Some(LineBatch { mut bytes, lost }) = queue.take(pace) {
        let lines = count(&bytes);
        if lost > 0 {
            let time = rfc3339(clock.now());
            bytes
                .extend_from_slice(format!("{{\"time\":\"{time}\",\"lost\":{lost}}}\n").as_bytes());
        }
        match offer(queue, sink, &bytes) {
            true => queue.wrote(lines),
            false => {
                tracing::error!(log = queue.log, sink = queue.sink, lines, "lines lost at the end");
                queue.lose(lines);
            }
        }
    }
}

/// Offers lines until they are taken. False: the queue is closed, and they are not taken.
fn offer(queue: &LineQueue, sink: &mut dyn LineSink, bytes: &[u8]) -> bool {
    let (log, name) = (queue.log, queue.sink);
    let (mut pause, longest) = PAUSES;
    let mut has_failed = false;
    loop {
        match sink.write(bytes) {
            Ok(()) => {
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
    }

    #[test]
    fn a_sink_that_takes_nothing_stops_nobody_and_hears_of_the_loss() {
        let queue = Arc::new(LineQueue::new("audit", "bucket"));
        let (refuses, text) = (Arc::new(AtomicBool::new(true)), Arc::default());
        let mut sink = Shy { refuses: Arc::clone(&refuses), text: Arc::clone(&text) };
        let line = [&[b'x'; (1 << 20) - 1][..], b"\n"].concat();
        queue.add(&line);
        let worker = Arc::clone(&queue);
        let thread = std::thread::spawn(move || {
            drain(&worker, &RealClock::default(), Duration::ZERO, &mut sink);
        });
        // Of these some are taken off the queue, and wait with the sink.
        (0..20).for_each(|_| queue.add(&line));
        let lost = queue.counts().lost;
        assert!((10..=13).contains(&lost), "{lost}");
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
