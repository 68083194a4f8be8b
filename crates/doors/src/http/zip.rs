//! The records of a zip archive that is written front to back: contents are stored uncompressed,
//! names are UTF-8, sizes and offsets may exceed 32 bits (zip64). Values in, bytes out.
//!
//! ```text
//!   header, contents, descriptor │ header, contents │ … │ directory, end
//! ```
//!
//! The checksum is in the header if it is known before, otherwise in a descriptor after the
//! contents (APPNOTE.TXT 6.3.10 of PKWARE, 4.3).

use cairn_base::{Timestamp, civil};

const HEADER: u32 = 0x0403_4b50;
const DESCRIPTOR: u32 = 0x0807_4b50;
const RECORD: u32 = 0x0201_4b50;
const END: u32 = 0x0605_4b50;
const END_64: u32 = 0x0606_4b50;
const LOCATOR_64: u32 = 0x0706_4b50;

/// Placeholder for values that are in the zip64 field.
const WIDE: u32 = u32::MAX;
const WIDE_COUNT: u16 = u16::MAX;
const UTF_8: u16 = 1 << 11;
const HAS_DESCRIPTOR: u16 = 1 << 3;
/// Versions of the format that readers must support: 4.5 has zip64.
const VERSION: u16 = 20;
const VERSION_64: u16 = 45;
/// Marks attributes as those of Unix.
const MADE_BY: u16 = 3 << 8 | VERSION_64;

/// Offset of the checksum in a record of the directory.
const CRC_AT: usize = 16;

/// A file or directory of an archive.
#[derive(Clone, Debug)]
pub struct Entry<'a> {
    /// Its name; ends in a slash if it is a directory.
    pub name: &'a str,
    /// Size in bytes.
    pub size: u64,
    pub modified: Timestamp,
    /// Permission bits.
    pub mode: u32,
}

/// An archive up to the point that was written.
#[derive(Debug, Default)]
pub struct Archive {
    offset: u64,
    entries: u64,
    directory: Vec<u8>,
    /// Offset in the directory of the last entry's checksum, while that is unknown, and the entry's
    /// size.
    open: Option<(usize, u64)>,
}

impl Archive {
    /// Returns the header of the next entry. Contents of exactly its size must follow. If `crc` is
    /// unknown, [`Archive::end`] must follow them.
    pub fn begin(&mut self, entry: &Entry<'_>, crc: Option<u32>) -> Vec<u8> {
        assert!(self.open.is_none(), "the entry before has an end");
        let is_wide = entry.size >= u64::from(WIDE);
        let flags = if crc.is_none() { UTF_8 | HAS_DESCRIPTOR } else { UTF_8 };
        let known = if crc.is_some() { entry.size } else { 0 };
        let fields = fields(entry, is_wide || self.offset >= u64::from(WIDE), flags, crc);
        let mut header = Vec::with_capacity(64 + entry.name.len());
        put_32(&mut header, HEADER);
        header.extend_from_slice(&fields);
        let size = if is_wide { WIDE } else { known as u32 };
        put_32(&mut header, size);
        put_32(&mut header, size);
        let mut extra = time_field(entry.modified);
        if is_wide {
            wide_field(&mut extra, &[known, known]);
        }
        put_16(&mut header, entry.name.len() as u16);
        put_16(&mut header, extra.len() as u16);
        header.extend_from_slice(entry.name.as_bytes());
        header.extend_from_slice(&extra);
        if crc.is_none() {
            self.open = Some((self.directory.len() + CRC_AT, entry.size));
        }
        self.record(entry, &fields, is_wide);
        self.offset += header.len() as u64 + entry.size;
        header
    }

    /// Returns the descriptor behind the contents of an entry.
    pub fn end(&mut self, crc: u32) -> Vec<u8> {
        let (at, size) = self.open.take().expect("an entry without a checksum");
        self.directory[at..at + 4].copy_from_slice(&crc.to_le_bytes());
        let mut descriptor = Vec::with_capacity(24);
        put_32(&mut descriptor, DESCRIPTOR);
        put_32(&mut descriptor, crc);
        for _ in 0..2 {
            if size >= u64::from(WIDE) {
                put_64(&mut descriptor, size)
            } else {
                put_32(&mut descriptor, size as u32)
            }
        }
        self.offset += descriptor.len() as u64;
        descriptor
    }

    /// Returns the directory, with which the archive ends.
    pub fn finish(self) -> Vec<u8> {
        assert!(self.open.is_none(), "the last entry has an end");
        let (offset, size, entries) = (self.offset, self.directory.len() as u64, self.entries);
        let mut out = self.directory;
        let is_wide = offset >= u64::from(WIDE)
            || size >= u64::from(WIDE)
            || entries >= u64::from(WIDE_COUNT);
        if is_wide {
            put_32(&mut out, END_64);
            put_64(&mut out, 44);
            put_16(&mut out, MADE_BY);
            put_16(&mut out, VERSION_64);
            put_64(&mut out, 0);
            for value in [entries, entries, size, offset] {
                put_64(&mut out, value);
            }
            put_32(&mut out, LOCATOR_64);
            put_32(&mut out, 0);
            put_64(&mut out, offset + size);
            put_32(&mut out, 1);
        }
        put_32(&mut out, END);
        put_32(&mut out, 0);
        let count = if is_wide { WIDE_COUNT } else { entries as u16 };
        put_16(&mut out, count);
        put_16(&mut out, count);
        put_32(&mut out, if is_wide { WIDE } else { size as u32 });
        put_32(&mut out, if is_wide { WIDE } else { offset as u32 });
        put_16(&mut out, 0);
        out
    }

    /// Adds an entry to the directory.
    fn record(&mut self, entry: &Entry<'_>, fields: &[u8], is_wide: bool) {
        let (size, offset) = (entry.size, self.offset);
        let is_far = offset >= u64::from(WIDE);
        let mut extra = time_field(entry.modified);
        let sizes: &[u64] = if is_wide { &[size, size] } else { &[] };
        let offsets: &[u64] = if is_far { &[offset] } else { &[] };
        if is_wide || is_far {
            wide_field(&mut extra, &[sizes, offsets].concat());
        }
        let is_directory = entry.name.ends_with('/');
        let kind = if is_directory { 0o040_000 } else { 0o100_000 };
        let mode = (kind | entry.mode & 0o777) << 16 | if is_directory { 0x10 } else { 0 };
        let out = &mut self.directory;
        put_32(out, RECORD);
        put_16(out, MADE_BY);
        out.extend_from_slice(fields);
        put_32(out, if is_wide { WIDE } else { size as u32 });
        put_32(out, if is_wide { WIDE } else { size as u32 });
        put_16(out, entry.name.len() as u16);
        put_16(out, extra.len() as u16);
        // No comment, first disk, no attributes of DOS.
        out.extend_from_slice(&[0; 6]);
        put_32(out, mode);
        put_32(out, if is_far { WIDE } else { offset as u32 });
        out.extend_from_slice(entry.name.as_bytes());
        out.extend_from_slice(&extra);
        self.entries += 1;
    }
}

/// Returns the fields that header and directory have in common: version, flags, method, time,
/// checksum.
fn fields(entry: &Entry<'_>, is_wide: bool, flags: u16, crc: Option<u32>) -> Vec<u8> {
    let mut fields = Vec::with_capacity(14);
    put_16(&mut fields, if is_wide { VERSION_64 } else { VERSION });
    put_16(&mut fields, flags);
    put_16(&mut fields, 0);
    let (time, date) = dos_time(entry.modified);
    put_16(&mut fields, time);
    put_16(&mut fields, date);
    put_32(&mut fields, crc.unwrap_or(0));
    fields
}

/// Returns the field with the time in seconds since 1970, which readers prefer to the time of DOS.
fn time_field(time: Timestamp) -> Vec<u8> {
    let seconds = time.secs().clamp(i64::from(i32::MIN), i64::from(i32::MAX)) as i32;
    let mut field = Vec::with_capacity(32);
    put_16(&mut field, 0x5455);
    put_16(&mut field, 5);
    field.push(1);
    field.extend_from_slice(&seconds.to_le_bytes());
    field
}

fn wide_field(extra: &mut Vec<u8>, values: &[u64]) {
    put_16(extra, 1);
    put_16(extra, values.len() as u16 * 8);
    values.iter().for_each(|value| put_64(extra, *value));
}

/// Time and date as DOS has them, in UTC, from 1980 to 2107.
fn dos_time(time: Timestamp) -> (u16, u16) {
    const FIRST: i64 = 315_532_800;
    const LAST: i64 = 4_354_819_199;
    let secs = time.secs().clamp(FIRST, LAST);
    let (year, month, day) = civil(secs / 86_400);
    let second = secs % 86_400;
    let time = (second / 3600) << 11 | (second / 60 % 60) << 5 | (second % 60 / 2);
    (time as u16, ((year - 1980) << 9 | month << 5 | day) as u16)
}

fn put_16(out: &mut Vec<u8>, value: u16) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_32(out: &mut Vec<u8>, value: u32) {
    out.extend_from_slice(&value.to_le_bytes());
}

fn put_64(out: &mut Vec<u8>, value: u64) {
    out.extend_from_slice(&value.to_le_bytes());
}

/// Returns the name of an entry for the part of a key after the prefix. It is safe to extract: no
/// component is empty, `.` or `..`, and there is no backslash, control character or drive. Replaced
/// characters are percent-encoded. The name is empty for the directory of the prefix itself.
pub fn entry_name(rest: &str, is_empty: bool) -> String {
    let (path, is_directory) = match rest.strip_suffix('/') {
        Some(path) if is_empty => (path, true),
        _ => (rest, false),
    };
    if rest.is_empty() && is_empty {
        return String::new();
    }
    let has_drive = matches!(path.as_bytes(), [letter, b':', ..] if letter.is_ascii_alphabetic());
    let mut name = String::with_capacity(rest.len() + 8);
    for (at, component) in path.split('/').enumerate() {
        if at > 0 {
            name.push('/');
        }
        match component {
            "" => name.push_str("%2F"),
            "." => name.push_str("%2E"),
            ".." => name.push_str("%2E%2E"),
            _ => {
                for (place, char) in component.char_indices() {
                    let is_drive = has_drive && at == 0 && char == ':';
                    // So that no two keys share a name.
                    let is_escape = char == '%' && begins_with_hex(&component[place + 1..]);
                    if char.is_control() || char == '\\' || is_drive || is_escape {
                        escape(&mut name, char)
                    } else {
                        name.push(char)
                    }
                }
            }
        }
    }
    if is_directory {
        name.push('/');
    }
    name
}

fn begins_with_hex(text: &str) -> bool {
    matches!(text.as_bytes(), [a, b, ..] if a.is_ascii_hexdigit() && b.is_ascii_hexdigit())
}

fn escape(name: &mut String, char: char) {
    use std::fmt::Write;
    for byte in char.encode_utf8(&mut [0; 4]).bytes() {
        let _ = write!(name, "%{byte:02X}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn names_are_safe_to_extract() {
        for (rest, expected) in [
            ("a/b.txt", "a/b.txt"),
            ("größe 1%.txt", "größe 1%.txt"),
            ("/etc/passwd", "%2F/etc/passwd"),
            ("../../x", "%2E%2E/%2E%2E/x"),
            ("a/./b", "a/%2E/b"),
            ("a//b", "a/%2F/b"),
            ("a\\..\\b", "a%5C..%5Cb"),
            ("C:/x:y", "C%3A/x:y"),
            ("c:x", "c%3Ax"),
            ("12:30", "12:30"),
            ("a\n\u{85}b", "a%0A%C2%85b"),
            ("dir/", "dir/%2F"),
            ("", "%2F"),
        ] {
            assert_eq!(entry_name(rest, false), expected, "{rest:?}");
        }
        assert_eq!(entry_name("dir/", true), "dir/");
        assert_eq!(entry_name("a//", true), "a/%2F/");
        assert_eq!(entry_name("/", true), "%2F/");
        assert_eq!(entry_name("", true), "");
        assert_eq!(entry_name("..", true), "%2E%2E");
    }

    #[test]
    fn times_are_those_of_dos() {
        // 2024-02-29 12:34:56
        let secs = 1_709_210_096;
        let expected = (12 << 11 | 34 << 5 | 28, 44 << 9 | 2 << 5 | 29);
        assert_eq!(dos_time(Timestamp::from_secs(secs)), expected);
        assert_eq!(dos_time(Timestamp::from_secs(-1)), (0, 1 << 5 | 1));
        let last = dos_time(Timestamp(i64::MAX));
        assert_eq!(last, (23 << 11 | 59 << 5 | 29, 127 << 9 | 12 << 5 | 31));
    }

    /// An archive beyond 4 GiB, without its contents.
    #[test]
    fn sizes_and_offsets_beyond_32_bits_are_in_fields_of_their_own() {
        let entry = |name, size| Entry { name, size, modified: Timestamp(0), mode: 0o644 };
        let mut archive = Archive::default();
        let first = archive.begin(&entry("large", 5 << 30), None);
        assert_eq!(first[18..26], [0xff; 8]);
        assert_eq!(archive.end(7).len(), 24);
        let second = archive.begin(&entry("small", 3), Some(9));
        assert_eq!(second[18..26], [3, 0, 0, 0, 3, 0, 0, 0]);
        let offset = first.len() as u64 + (5 << 30) + 24;
        let end = offset + second.len() as u64 + 3;
        let directory = archive.finish();
        let find = |value: u64| {
            let bytes = value.to_le_bytes();
            directory.windows(8).filter(|window| *window == bytes).count()
        };
        assert_eq!(find(5 << 30), 2);
        assert_eq!(find(offset), 1);
        assert_eq!(find(end), 1);
        assert_eq!(directory[CRC_AT..CRC_AT + 4], [7, 0, 0, 0]);
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(20_000))]
        #[test]
        fn any_key_is_a_safe_name(rest in "[./\\\\a:\\x00-\\x1f]{0,12}", is_empty: bool) {
            let name = entry_name(&rest, is_empty);
            let path = name.strip_suffix('/').unwrap_or(&name);
            let is_bad = |component: &str| matches!(component, "" | "." | "..");
            prop_assert!(name.is_empty() || !path.split('/').any(is_bad), "{name}");
            prop_assert!(!name.contains('\\') && !name.chars().any(char::is_control));
            let drive = name.as_bytes().get(1) == Some(&b':') && name.starts_with('a');
            prop_assert!(!drive, "{name}");
        }
    }
}
