//! Bytes as text.

use std::fmt::Write as _;

pub fn hex(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(2 * bytes.len());
    for byte in bytes {
        let _ = write!(text, "{byte:02x}");
    }
    text
}

/// Decodes the output of [`hex`].
///
/// # Panics
/// If it is anything else.
pub fn unhex(text: &str) -> Vec<u8> {
    let (digits, []) = text.as_bytes().as_chunks::<2>() else {
        panic!("an odd number of digits: {text}");
    };
    let byte = |pair: &[u8; 2]| {
        let pair =
            std::str::from_utf8(pair).ok().and_then(|text| u8::from_str_radix(text, 16).ok());
        pair.unwrap_or_else(|| panic!("no hexadecimal digits: {text}"))
    };
    digits.iter().map(byte).collect()
}
