//! Names of log sources. They come from clients, and each becomes one component of a path.

use std::fmt::Write as _;

use cairn_base::{Error, Result};

use crate::limits::SOURCE_BYTES;

/// Encodes a name as the component of a path: letters, digits, `_`, `-` and dots stay, except a dot
/// at the beginning; each other byte becomes `%` and two digits. So two names never share a
/// component.
///
/// # Errors
/// `Invalid` for a name that is empty or too long.
pub fn encode(name: &str) -> Result<String> {
    let mut out = String::with_capacity(name.len().min(SOURCE_BYTES));
    for (at, byte) in name.bytes().enumerate() {
        let stays =
            byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-') || (byte == b'.' && at > 0);
        if stays {
            out.push(byte.into())
        } else {
            // Writing to a `String` cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
        if out.len() > SOURCE_BYTES {
            let what = format!("the name of the source: at most {SOURCE_BYTES} bytes, encoded");
            return Err(Error::Invalid(what));
        }
    }
    if out.is_empty() {
        Err(Error::Invalid("the name of the source is empty".into()))
    } else {
        Ok(out)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn decode(text: &str) -> String {
        let mut bytes = Vec::new();
        let mut rest = text.bytes();
        while let Some(byte) = rest.next() {
            bytes.push(match byte {
                b'%' => {
                    let digits = [rest.next().unwrap(), rest.next().unwrap()];
                    u8::from_str_radix(std::str::from_utf8(&digits).unwrap(), 16).unwrap()
                }
                byte => byte,
            });
        }
        String::from_utf8(bytes).unwrap()
    }

    #[test]
    fn names_that_mean_something_in_paths_mean_nothing() {
        for (name, component) in [
            ("nginx", "nginx"),
            ("my-app_2.log", "my-app_2.log"),
            ("../../etc", "%2E.%2F..%2Fetc"),
            (".", "%2E"),
            ("a/b", "a%2Fb"),
            ("50%", "50%25"),
            ("é\0", "%C3%A9%00"),
        ] {
            assert_eq!(encode(name).unwrap(), component);
        }
        assert!(encode("").is_err());
        assert!(encode(&"x".repeat(SOURCE_BYTES)).is_ok());
        assert!(encode(&"x".repeat(SOURCE_BYTES + 1)).is_err());
        assert!(encode(&"/".repeat(SOURCE_BYTES / 3 + 1)).is_err());
    }

    proptest! {
        #[test]
        fn names_can_be_decoded(name in ".{1,40}") {
            let encoded = encode(&name).unwrap_or_default();
            prop_assert!(!encoded.contains('/') && !encoded.starts_with('.'));
            prop_assert!(encoded.is_empty() || decode(&encoded) == name);
        }
    }
}
