//! Where the time of a request goes: the `Server-Timing` header (W3C).

use std::time::{Duration, Instant};

use bytes::{BufMut, BytesMut};
use http::HeaderValue;

/// Stages that a request can have.
const STAGES: usize = 4;

/// A stopwatch with named laps.
#[derive(Clone, Copy, Debug)]
pub struct Timing {
    pub started: Instant,
    lap_started: Instant,
    laps: [(&'static str, Duration); STAGES],
    len: usize,
}

impl Timing {
    pub fn start() -> Timing {
        let now = Instant::now();
        let laps = [("", Duration::ZERO); STAGES];
        Timing { started: now, lap_started: now, laps, len: 0 }
    }

    /// Ends the stage `name`. Beyond [`STAGES`] they are part of the total only.
    pub fn lap(&mut self, name: &'static str) {
        let now = Instant::now();
        if let Some(lap) = self.laps.get_mut(self.len) {
            *lap = (name, now - self.lap_started);
            self.len += 1;
        }
        self.lap_started = now;
    }

    /// `open;dur=0.004, total;dur=0.012`, in milliseconds.
    pub fn header(&self, total: Duration) -> HeaderValue {
        let mut text = BytesMut::with_capacity(24 * (self.len + 1));
        for (name, time) in &self.laps[..self.len] {
            put(&mut text, name, *time);
            text.put_slice(b", ");
        }
        put(&mut text, "total", total);
        HeaderValue::from_maybe_shared(text.freeze()).unwrap_or(HeaderValue::from_static("total"))
    }
}

fn put(text: &mut BytesMut, name: &str, time: Duration) {
    let us = time.as_micros() as u64;
    text.put_slice(name.as_bytes());
    text.put_slice(b";dur=");
    text.put_slice(itoa::Buffer::new().format(us / 1000).as_bytes());
    let rest = us % 1000;
    let digit = |value: u64| b'0' + (value % 10) as u8;
    text.put_slice(&[b'.', digit(rest / 100), digit(rest / 10), digit(rest)]);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn laps_and_total() {
        let mut timing = Timing::start();
        timing.lap("open");
        timing.laps[0].1 = Duration::from_micros(1_042);
        let header = timing.header(Duration::from_micros(20_000_007));
        assert_eq!(header, "open;dur=1.042, total;dur=20000.007");
        for _ in 0..9 {
            timing.lap("more");
        }
        assert_eq!(timing.len, STAGES);
    }
}
