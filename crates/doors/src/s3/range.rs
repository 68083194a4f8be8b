//! The `Range` header.

use std::ops::Range;

/// The part that a `Range` header asks for in an object of some size.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum RequestedRange {
    /// The whole object: there is no such header, or it is not one range of bytes.
    Whole,
    Part(Range<u64>),
    OutOfRange,
}

/// Parses a range according to RFC 9110. S3 does not serve several ranges, so the whole object is
/// sent for them.
pub(super) fn parse(header: &str, size: u64) -> RequestedRange {
    let Some((first, last)) = header.strip_prefix("bytes=").and_then(|text| text.split_once('-'))
    else {
        return RequestedRange::Whole;
    };
    let number = |text: &str| -> Option<u64> {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse().unwrap_or(u64::MAX))
    };
    let range = match (number(first.trim()), number(last.trim())) {
        (None, Some(length)) if first.trim().is_empty() => {
            if length == 0 {
                return RequestedRange::OutOfRange;
            }
            size.saturating_sub(length)..size
        }
        (Some(first), None) if last.trim().is_empty() => first..size,
        (Some(first), Some(last)) if first <= last => first..size.min(last.saturating_add(1)),
        _ => return RequestedRange::Whole,
    };
    if range.start >= size { RequestedRange::OutOfRange } else { RequestedRange::Part(range) }
}

/// Parses the `x-amz-copy-source-range` of a part: first and last byte, both given.
pub(super) fn of_source(header: &str) -> Option<(u64, u64)> {
    let (first, last) = header.strip_prefix("bytes=")?.split_once('-')?;
    let number = |text: &str| {
        let digits = text.bytes().all(|byte| byte.is_ascii_digit());
        text.parse::<u64>().ok().filter(|_| digits)
    };
    let (first, last) = (number(first)?, number(last)?);
    (first <= last).then_some((first, last))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        let table = [
            ("bytes=0-0", RequestedRange::Part(0..1)),
            ("bytes=2-4", RequestedRange::Part(2..5)),
            ("bytes=2-", RequestedRange::Part(2..10)),
            ("bytes=8-99", RequestedRange::Part(8..10)),
            ("bytes=-3", RequestedRange::Part(7..10)),
            ("bytes=-99", RequestedRange::Part(0..10)),
            ("bytes=9-18446744073709551615", RequestedRange::Part(9..10)),
            ("bytes=9-99999999999999999999999", RequestedRange::Part(9..10)),
            ("bytes=10-", RequestedRange::OutOfRange),
            ("bytes=10-12", RequestedRange::OutOfRange),
            ("bytes=-0", RequestedRange::OutOfRange),
            ("bytes=4-2", RequestedRange::Whole),
            ("bytes=0-1,3-4", RequestedRange::Whole),
            ("bytes=", RequestedRange::Whole),
            ("bytes=-", RequestedRange::Whole),
            ("bytes=+1-2", RequestedRange::Whole),
            ("bytes=a-b", RequestedRange::Whole),
            ("items=0-1", RequestedRange::Whole),
        ];
        for (header, asked) in table {
            assert_eq!(parse(header, 10), asked, "{header}");
        }
        assert_eq!(parse("bytes=0-", 0), RequestedRange::OutOfRange);
        assert_eq!(parse("bytes=-1", 0), RequestedRange::OutOfRange);
    }

    #[test]
    fn ranges_of_a_source() {
        assert_eq!(of_source("bytes=0-9"), Some((0, 9)));
        for bad in ["0-9", "bytes=9-0", "bytes=0-", "bytes=-9", "bytes=0-9,10-11", "bytes=+0-9"] {
            assert_eq!(of_source(bad), None, "{bad}");
        }
    }
}
