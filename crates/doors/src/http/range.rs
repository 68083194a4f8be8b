//! The Range header (RFC 9110, section 14).

use std::ops::Range;

use cairn_base::{Error, Result};

use crate::limits;

/// Ranges that are closer than this, bytes, are answered as one: the head of a part is longer.
const GAP_BYTES: u64 = 80;

/// The requested part of an object.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum RangeSelection {
    Whole,
    One(Range<u64>),
    /// Ranges in ascending order, without overlaps.
    Several(Vec<Range<u64>>),
}

/// Returns the part of an object of `size` bytes that a Range header asks for. A header that is
/// malformed, has another unit, or more ranges than [`limits::RANGES`], is ignored: the whole
/// object is sent.
///
/// # Errors
/// `RangeNotSatisfiable` if every range lies outside of the object.
pub fn select(header: &str, size: u64) -> Result<RangeSelection> {
    let Some(specs) = parse(header) else { return Ok(RangeSelection::Whole) };
    let mut ranges: Vec<Range<u64>> =
        specs.into_iter().filter_map(|spec| spec.within(size)).collect();
    if ranges.is_empty() {
        return Err(Error::RangeNotSatisfiable { size });
    }
    ranges.sort_by_key(|range| (range.start, range.end));
    let mut merged: Vec<Range<u64>> = Vec::with_capacity(ranges.len());
    for range in ranges {
        match merged.last_mut() {
            Some(last) if range.start <= last.end.saturating_add(GAP_BYTES) => {
                last.end = last.end.max(range.end);
            }
            _ => merged.push(range),
        }
    }
    Ok(match merged.pop() {
        Some(only) if merged.is_empty() && only.is_empty() => RangeSelection::Whole,
        Some(only) if merged.is_empty() => RangeSelection::One(only),
        Some(last) => {
            merged.push(last);
            RangeSelection::Several(merged)
        }
        None => RangeSelection::Whole,
    })
}

/// One range, as requested.
#[derive(Clone, Copy)]
enum Spec {
    /// First and last byte.
    From(u64, Option<u64>),
    /// This many bytes at the end.
    Suffix(u64),
}

impl Spec {
    /// Returns the part of the range that lies in an object of `size` bytes; `None` if there is
    /// none. The last bytes of an empty object are the empty range.
    fn within(self, size: u64) -> Option<Range<u64>> {
        match self {
            Spec::Suffix(0) => None,
            Spec::Suffix(len) => Some(size.saturating_sub(len)..size),
            Spec::From(first, _) if first >= size => None,
            Spec::From(first, None) => Some(first..size),
            Spec::From(first, Some(last)) => Some(first..last.saturating_add(1).min(size)),
        }
    }
}

fn parse(header: &str) -> Option<Vec<Spec>> {
    let (unit, list) = header.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") {
        return None;
    }
    let mut specs = Vec::new();
    for item in list.split(',').map(|item| item.trim_matches([' ', '\t'])) {
        if item.is_empty() {
            continue;
        }
        if specs.len() == limits::RANGES {
            return None;
        }
        specs.push(spec(item)?);
    }
    (!specs.is_empty()).then_some(specs)
}

fn spec(item: &str) -> Option<Spec> {
    let (first, last) = item.split_once('-')?;
    if first.is_empty() {
        return Some(Spec::Suffix(number(last)?));
    }
    let first = number(first)?;
    if last.is_empty() {
        return Some(Spec::From(first, None));
    }
    let last = number(last)?;
    (first <= last).then_some(Spec::From(first, Some(last)))
}

/// Reads digits only. A number beyond 64 bits counts as the largest one.
fn number(digits: &str) -> Option<u64> {
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    Some(digits.parse().unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn table() {
        let one = |range| Some(RangeSelection::One(range));
        let whole = || Some(RangeSelection::Whole);
        let table = [
            ("bytes=0-0", one(0..1)),
            ("bytes=0-99", one(0..100)),
            ("bytes=0-999", one(0..100)),
            ("bytes=10-", one(10..100)),
            ("bytes=-10", one(90..100)),
            ("bytes=-1000", one(0..100)),
            ("Bytes = 0-1", one(0..2)),
            ("bytes=0-99999999999999999999999", one(0..100)),
            ("bytes=, ,5-6,", one(5..7)),
            ("bytes=0-9,10-19", one(0..20)),
            ("bytes=0-9,200-", one(0..10)),
            ("bytes=100-", None),
            ("bytes=-0", None),
            ("bytes=99999999999999999999999-", None),
            ("bytes=5-4", whole()),
            ("bytes=", whole()),
            ("bytes=a-b", whole()),
            ("bytes=+1-2", whole()),
            ("bytes=1", whole()),
            ("bytes 0-1", whole()),
            ("lines=0-1", whole()),
            ("bytes=0-1;2-3", whole()),
            ("bytes=0-1,x", whole()),
            ("bytes=--1", whole()),
        ];
        for (header, expected) in table {
            assert_eq!(select(header, 100).ok(), expected, "{header}");
        }
        assert_eq!(
            select("bytes=0-1,98-99", 100).unwrap(),
            RangeSelection::One(0..100).several(100)
        );
        assert_eq!(select("bytes=-5", 0).ok(), whole());
        assert_eq!(select("bytes=0-", 0).ok(), None);
        let many = format!("bytes={}", "0-0,".repeat(limits::RANGES + 1));
        assert_eq!(select(&many, 100).ok(), whole());
    }

    impl RangeSelection {
        /// The two ends of an object that are far enough apart.
        fn several(self, size: u64) -> RangeSelection {
            RangeSelection::Several(vec![0..2, size - 2..size])
        }
    }

    /// Which bytes the ranges name, one by one.
    fn model(specs: &[(Option<u64>, Option<u64>)], size: u64) -> Vec<bool> {
        let named = |at: u64| {
            specs.iter().any(|spec| match *spec {
                (Some(first), Some(last)) => (first..=last).contains(&at),
                (Some(first), None) => at >= first,
                (None, Some(len)) => at + len >= size,
                (None, None) => false,
            })
        };
        (0..size).map(named).collect()
    }

    fn one_spec() -> impl Strategy<Value = (Option<u64>, Option<u64>)> {
        prop_oneof![
            (0..600u64, 0..600u64).prop_map(|(a, b)| (Some(a.min(b)), Some(a.max(b)))),
            (0..600u64).prop_map(|first| (Some(first), None)),
            (1..600u64).prop_map(|len| (None, Some(len))),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100_000))]

        #[test]
        fn what_is_sent_has_all_bytes_named(
            specs in prop::collection::vec(one_spec(), 1..6),
            size in 1..500u64,
        ) {
            let text = |number: Option<u64>| number.map(|n| n.to_string()).unwrap_or_default();
            let items: Vec<String> =
                specs.iter().map(|(a, b)| format!("{}-{}", text(*a), text(*b))).collect();
            let named = model(&specs, size);
            let mut ranges = Vec::new();
            match select(&format!("bytes={}", items.join(",")), size) {
                Err(_) => {}
                Ok(RangeSelection::Whole) => ranges.push(0..size),
                Ok(RangeSelection::One(range)) => ranges.push(range),
                Ok(RangeSelection::Several(several)) => ranges = several,
            }
            for (at, named) in named.iter().enumerate() {
                let sent = ranges.iter().filter(|range| range.contains(&(at as u64))).count();
                prop_assert!(sent <= 1 && (sent == 1 || !named), "{} of {:?}", at, ranges);
            }
            // Nothing is sent beyond the object, and no range begins or ends with unnamed bytes.
            for range in &ranges {
                prop_assert!(range.start < range.end && range.end <= size);
                prop_assert!(named[range.start as usize] && named[range.end as usize - 1]);
            }
        }

        #[test]
        fn any_header_is_answered(header in "(bytes=)?[-0-9, =a]{0,40}", size in any::<u64>()) {
            match select(&header, size) {
                Ok(RangeSelection::One(range)) => {
                    prop_assert!(range.start < range.end && range.end <= size);
                }
                Ok(RangeSelection::Several(ranges)) => prop_assert!(ranges.len() > 1),
                Ok(RangeSelection::Whole) | Err(_) => {}
            }
        }
    }
}
