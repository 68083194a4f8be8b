//! Frames on their way out: small frames one after another in one buffer, long payloads uncopied.

use std::collections::VecDeque;
use std::io::IoSlice;

use bytes::Bytes;
use cairn_base::trace::{TRACE_BYTES, Trace};

use super::frame::{HEADER_BYTES, Kind, header, traced};
use crate::limits::COPY_BYTES;

/// Slices in one write, at most.
pub const SLICES: usize = 16;
/// Size above which a buffer is not used again, bytes.
const SPARE_BYTES: usize = 256 << 10;

#[derive(Debug, Default)]
pub struct Outbox {
    parts: VecDeque<Part>,
    /// Written bytes of the first part.
    written: usize,
    bytes: usize,
    /// An empty buffer, to be used again.
    spare: Vec<u8>,
}

/// Payload of a frame: `head` and `rest` behind it, which need not be copied together.
#[derive(Clone, Debug, Default)]
pub struct Payload {
    pub head: Bytes,
    pub rest: Bytes,
}

impl Payload {
    pub(super) fn len(&self) -> usize {
        self.head.len() + self.rest.len()
    }
}

impl From<Bytes> for Payload {
    fn from(head: Bytes) -> Payload {
        Payload { head, rest: Bytes::new() }
    }
}

fn length(payload: &Payload) -> u32 {
    u32::try_from(payload.len()).expect("a payload within the limit of frames")
}

#[derive(Debug)]
enum Part {
    Own(Vec<u8>),
    Given(Bytes),
}

impl Part {
    fn bytes(&self) -> &[u8] {
        match self {
            Part::Own(bytes) => bytes,
            Part::Given(bytes) => bytes,
        }
    }
}

impl Outbox {
    /// Returns the number of bytes to be written.
    pub fn len(&self) -> usize {
        self.bytes
    }

    pub fn is_empty(&self) -> bool {
        self.bytes == 0
    }

    /// Adds a frame.
    ///
    /// # Panics
    /// If the payload is longer than a frame allows: its caller has checked that.
    pub fn push(&mut self, kind: Kind, method: u16, id: u64, payload: impl Into<Payload>) {
        let payload = payload.into();
        self.bytes += HEADER_BYTES;
        let head = header(kind, method, id, length(&payload));
        self.own().extend_from_slice(&head);
        self.push_payload(payload);
    }

    /// Adds a request, with the trace that it belongs to if the peer reads traces.
    ///
    /// # Panics
    /// Like [`Outbox::push`].
    pub fn push_request(&mut self, method: u16, id: u64, trace: Option<&Trace>, payload: Payload) {
        let Some(trace) = trace else { return self.push(Kind::Request, method, id, payload) };
        self.bytes += HEADER_BYTES + TRACE_BYTES;
        let (head, trace) = traced(method, id, length(&payload), trace);
        let own = self.own();
        own.extend_from_slice(&head);
        own.extend_from_slice(&trace);
        self.push_payload(payload);
    }

    fn push_payload(&mut self, payload: Payload) {
        self.bytes += payload.len();
        for bytes in [payload.head, payload.rest] {
            if bytes.is_empty() {
                continue;
            }
            if bytes.len() <= COPY_BYTES {
                self.own().extend_from_slice(&bytes);
            } else {
                self.parts.push_back(Part::Given(bytes));
            }
        }
    }

    /// Returns the buffer at the end.
    fn own(&mut self) -> &mut Vec<u8> {
        if !matches!(self.parts.back(), Some(Part::Own(_))) {
            self.parts.push_back(Part::Own(std::mem::take(&mut self.spare)));
        }
        match self.parts.back_mut() {
            Some(Part::Own(own)) => own,
            _ => unreachable!("pushed above"),
        }
    }

    /// Moves all that is in `other` behind what is here.
    pub fn take(&mut self, other: &mut Outbox) {
        if self.is_empty() {
            std::mem::swap(self, other);
        } else {
            debug_assert_eq!(other.written, 0);
            self.bytes += std::mem::take(&mut other.bytes);
            self.parts.append(&mut other.parts);
        }
    }

    /// Returns the bytes to write next.
    pub fn slices(&self) -> ([IoSlice<'_>; SLICES], usize) {
        let mut slices = [IoSlice::new(&[]); SLICES];
        let mut skip = self.written;
        let count = self.parts.len().min(SLICES);
        for (slice, part) in slices.iter_mut().zip(&self.parts) {
            *slice = IoSlice::new(part.bytes().get(skip..).unwrap_or_default());
            skip = 0;
        }
        (slices, count)
    }

    /// Removes `count` bytes, which have been written.
    pub fn advance(&mut self, count: usize) {
        self.bytes -= count;
        self.written += count;
        while let Some(first) = self.parts.front()
            && self.written >= first.bytes().len()
        {
            self.written -= first.bytes().len();
            if let Some(Part::Own(mut own)) = self.parts.pop_front()
                && own.capacity() <= SPARE_BYTES
            {
                own.clear();
                self.spare = own;
            }
        }
    }

    pub fn clear(&mut self) {
        *self = Outbox::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::frame::Parser;

    const TRACE: Trace = Trace { id: 7 << 99, span: 5, parent: 0, sampled: true };

    /// Writes `step` bytes at a time and parses what was written.
    fn check(lengths: &[usize], step: usize) {
        let mut first = Outbox::default();
        let mut second = Outbox::default();
        for (at, length) in lengths.iter().enumerate() {
            let outbox = if at % 2 == 0 { &mut first } else { &mut second };
            let mut rest = Bytes::from(vec![at as u8; *length]);
            let head = rest.split_to(if at % 3 == 0 { 0 } else { length / 2 });
            match at % 2 {
                0 => outbox.push(Kind::Reply, 0, at as u64, Payload { head, rest }),
                _ => outbox.push_request(0, at as u64, Some(&TRACE), Payload { head, rest }),
            }
        }
        let odd = lengths.len() / 2;
        first.take(&mut second);
        assert!(second.is_empty());
        let mut parser = Parser::new(1 << 20);
        let mut found = Vec::new();
        while !first.is_empty() {
            let (slices, count) = first.slices();
            let all: Vec<u8> = slices[..count].iter().flat_map(|s| s.iter().copied()).collect();
            assert!(!all.is_empty() && all.len() <= first.len());
            let now = &all[..all.len().min(step)];
            parser.room().extend_from_slice(now);
            first.advance(now.len());
            while let Some(frame) = parser.next_frame().unwrap() {
                assert_eq!(frame.trace, (frame.id % 2 == 1).then_some(TRACE));
                found.push((frame.id as usize, frame.payload.len()));
            }
        }
        assert!(!parser.is_within_frame());
        let of = |parity: usize| {
            let all = lengths.iter().copied().enumerate();
            all.filter(move |(at, _)| at % 2 == parity)
        };
        let expect: Vec<_> = of(0).chain(of(1)).collect();
        assert_eq!(found, expect, "{odd} frames were moved behind the others");
    }

    #[test]
    fn frames_come_out_in_order_however_they_are_written() {
        let long = COPY_BYTES + 1;
        for step in [1000, 70_000, usize::MAX] {
            check(&[0, 1, 64], step);
            check(&[long, long, 3 * long, long], step);
            check(&[5, long, 6, 7, COPY_BYTES, long, 0, 0], step);
            check(&vec![long; 50], step);
        }
        check(&[0, 64, 7, COPY_BYTES], 1);
    }
}
