//! Identifies a request across processes, by the identifiers of W3C Trace Context.

use std::cell::Cell;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// A request, as one process sees it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Trace {
    /// Id of the trace, the same in every process that works on the request. Never 0.
    pub id: u128,
    /// Id of this process's part of the request. Never 0.
    pub span: u64,
    /// Span that caused this one; 0 if it is unknown.
    pub parent: u64,
    /// Set if the trace is to be exported.
    pub sampled: bool,
}

/// Bytes of a `traceparent`.
pub const TRACEPARENT_BYTES: usize = 55;
/// Bytes of a trace in a frame between nodes.
pub const TRACE_BYTES: usize = 25;

impl Trace {
    /// `00-<trace>-<span>-<flags>`, for others that work on the same request.
    pub fn traceparent(&self) -> [u8; TRACEPARENT_BYTES] {
        let mut text = *b"00-00000000000000000000000000000000-0000000000000000-00";
        hex(&mut text[3..35], &self.id.to_be_bytes());
        hex(&mut text[36..52], &self.span.to_be_bytes());
        text[54] = b'0' + u8::from(self.sampled);
        text
    }

    /// Trace, span and whether it is sampled, as a `traceparent` of any version says; `None` if it
    /// is none.
    pub fn parse(text: &[u8]) -> Option<(u128, u64, bool)> {
        let (version, rest) = (text.get(..2)?, text.get(TRACEPARENT_BYTES..)?);
        let has_known_length = rest.is_empty() || (version != b"00" && rest.first() == Some(&b'-'));
        let dashes = [2, 35, 52].iter().all(|at| text.get(*at) == Some(&b'-'));
        if !has_known_length || !dashes || version == b"ff" {
            return None;
        }
        number(version)?;
        let (id, span) = (number(text.get(3..35)?)?, number(text.get(36..52)?)? as u64);
        let flags = number(text.get(53..55)?)?;
        (id != 0 && span != 0).then_some((id, span, flags & 1 == 1))
    }
}

impl Trace {
    /// For a frame to a node that works on the same request: trace and span, little-endian, and
    /// whether it is sampled.
    pub fn to_bytes(&self) -> [u8; TRACE_BYTES] {
        let mut bytes = [0; TRACE_BYTES];
        bytes[..16].copy_from_slice(&self.id.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.span.to_le_bytes());
        bytes[24] = self.sampled.into();
        bytes
    }

    /// Decodes what [`Trace::to_bytes`] made. The parent stays 0 and the span is that of the asking
    /// node; returns `None` for the bytes of no trace.
    pub fn from_bytes(bytes: &[u8; TRACE_BYTES]) -> Option<Trace> {
        let (id, rest) = bytes.split_first_chunk::<16>()?;
        let (span, flags) = rest.split_first_chunk::<8>()?;
        let (id, span) = (u128::from_le_bytes(*id), u64::from_le_bytes(*span));
        let sampled = flags.first().is_some_and(|flags| flags & 1 == 1);
        (id != 0 && span != 0).then_some(Trace { id, span, parent: 0, sampled })
    }
}

impl fmt::Display for Trace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.id)
    }
}

/// Numbers that a thread takes at once, so that threads do not wait for each other.
const NUMBERS: u64 = 1 << 20;
/// Numbers that no thread has taken.
static FREE: AtomicU64 = AtomicU64::new(0);

thread_local! {
    /// Next number of this thread; at a multiple of [`NUMBERS`] it has none left.
    static NEXT: Cell<u64> = const { Cell::new(0) };
}

/// Returns a number that was not returned before in this process.
fn number_once() -> u64 {
    let mut number = NEXT.get();
    if number.is_multiple_of(NUMBERS) {
        number = FREE.fetch_add(NUMBERS, Relaxed) + 1;
    }
    NEXT.set(number + 1);
    number
}

/// Generates identifiers, which differ after every start.
#[derive(Debug)]
pub struct Traces {
    start: [u64; 2],
    /// Number of sampled traces in `1 << 32`.
    sampled: u64,
}

impl Traces {
    /// Creates a generator. `start` is random. `ratio` is the share of traces that begin here and
    /// are sampled.
    pub fn new(start: [u64; 2], ratio: f64) -> Traces {
        let sampled = (ratio.clamp(0.0, 1.0) * (1u64 << 32) as f64) as u64;
        Traces { start, sampled }
    }

    /// Begins another part of the same request, caused by `trace`.
    pub fn below(&self, trace: &Trace) -> Trace {
        Trace { span: self.next(None).span, parent: trace.span, ..*trace }
    }

    /// Continues the trace of a `traceparent`, or begins a new one.
    pub fn next(&self, parent: Option<&[u8]>) -> Trace {
        let count = number_once().wrapping_mul(0x9E37_79B9_7F4A_7C15);
        let low = mix(self.start[0].wrapping_add(count));
        let span = low | 1;
        if let Some((id, parent, sampled)) = parent.and_then(Trace::parse) {
            return Trace { id, span, parent, sampled };
        }
        let id = u128::from(self.start[1]) << 64 | u128::from(low.max(1));
        Trace { id, span, parent: 0, sampled: (low >> 32) < self.sampled }
    }
}

/// The last step of splitmix64: a bijection that leaves no pattern.
fn mix(seed: u64) -> u64 {
    let seed = (seed ^ seed >> 30).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let seed = (seed ^ seed >> 27).wrapping_mul(0x94D0_49BB_1331_11EB);
    seed ^ seed >> 31
}

fn hex(into: &mut [u8], bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for (digits, byte) in into.chunks_exact_mut(2).zip(bytes) {
        digits[0] = DIGITS[usize::from(byte >> 4)];
        digits[1] = DIGITS[usize::from(byte & 15)];
    }
}

/// Parses a number; lower case only, as the standard requires.
fn number(digits: &[u8]) -> Option<u128> {
    digits.iter().try_fold(0, |number: u128, digit| {
        let value = match digit {
            b'0'..=b'9' => digit - b'0',
            b'a'..=b'f' => digit - b'a' + 10,
            _ => return None,
        };
        Some(number << 4 | u128::from(value))
    })
}

#[cfg(test)]
#[allow(clippy::disallowed_methods, reason = "tests run on this machine")]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const GOOD: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_trace_goes_on_under_its_id() {
        let traces = Traces::new([1, 2], 0.0);
        let trace = traces.next(Some(GOOD.as_bytes()));
        assert_eq!(trace.to_string(), "4bf92f3577b34da6a3ce929d0e0e4736");
        assert_eq!((trace.parent, trace.sampled), (0x00f0_67aa_0ba9_02b7, true));
        let told = trace.traceparent();
        assert_eq!(Trace::parse(&told), Some((trace.id, trace.span, true)));
        assert_ne!(trace.span, trace.parent);
        let below = traces.below(&trace);
        assert_eq!((below.id, below.parent, below.sampled), (trace.id, trace.span, true));
        assert_ne!(below.span, trace.span);
    }

    #[test]
    fn a_trace_in_a_frame_is_that_of_the_node_that_asks() {
        for sampled in [false, true] {
            let trace = Trace { id: u128::MAX - 5, span: 7 << 40, parent: 3, sampled };
            let told = Trace { parent: 0, ..trace };
            assert_eq!(Trace::from_bytes(&trace.to_bytes()), Some(told));
        }
        let mut bytes = [0; TRACE_BYTES];
        bytes[0] = 1;
        assert_eq!(Trace::from_bytes(&bytes), None, "it has no span");
    }

    #[test]
    fn what_is_no_traceparent_begins_a_trace() {
        let longer = format!("{GOOD}-more");
        for bad in [
            "",
            "x",
            &GOOD[..54],
            &longer,
            &GOOD.replace("00-4", "ff-4"),
            &GOOD.to_uppercase(),
            "00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
        ] {
            assert_eq!(Trace::parse(bad.as_bytes()), None, "{bad}");
        }
        assert!(Trace::parse(longer.replace("00-4", "01-4").as_bytes()).is_some());
        let traces = Traces::new([1, 2], 0.0);
        let (first, second) = (traces.next(Some(b"bad")), traces.next(None));
        assert!(first.id != 0 && first.id != second.id && first.parent == 0 && !first.sampled);
    }

    #[test]
    fn so_many_are_sampled_as_was_asked_for() {
        let sampled = |ratio| {
            let traces = Traces::new([7, 9], ratio);
            (0..10_000).filter(|_| traces.next(None).sampled).count()
        };
        assert_eq!((sampled(0.0), sampled(1.0)), (0, 10_000));
        assert!((800..1200).contains(&sampled(0.1)), "{}", sampled(0.1));
    }

    #[test]
    fn threads_share_no_number() {
        let take = || (0..1000).map(|_| number_once()).collect::<Vec<u64>>();
        let threads: Vec<_> = (0..4).map(|_| std::thread::spawn(take)).collect();
        let taken = threads.into_iter().flat_map(|thread| thread.join().unwrap());
        let mut all: Vec<u64> = taken.chain(take()).collect();
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 5000);
    }

    proptest! {
        #[test]
        fn any_bytes_are_parsed_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..70)) {
            let _ = Trace::parse(&bytes);
        }
    }
}
