//! Guesses the type of an object whose sender stated none.

pub const OCTET_STREAM: &str = "application/octet-stream";

/// Returns the type by the extension of the name, otherwise by the first bytes, otherwise that of
/// plain bytes.
pub fn guess(key: &str, head: &[u8]) -> String {
    if let Some(by_name) = mime_guess::from_path(last_component(key)).first_raw() {
        return by_name.to_owned();
    }
    infer::get(head).map_or(OCTET_STREAM, |kind| kind.mime_type()).to_owned()
}

/// Returns whether a browser that shows content of this type looks for scripts or parts in it.
/// Types whose names only look alike count, too: browsers do not show these.
pub fn is_active(content_type: &[u8]) -> bool {
    const ACTIVE: [&[u8]; 5] = [b"html", b"xml", b"svg", b"xsl", b"multipart"];
    if content_type == OCTET_STREAM.as_bytes() {
        return false;
    }
    ACTIVE.iter().any(|word| {
        content_type.windows(word.len()).any(|window| window.eq_ignore_ascii_case(word))
    })
}

/// Returns the last component of a key: the name of a file.
pub fn last_component(key: &str) -> &str {
    key.rsplit('/').find(|part| !part.is_empty()).unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_with_scripts_are_active() {
        for kind in [
            "text/html",
            "Text/HTML; charset=utf-8",
            "text/plain, text/html",
            "image/svg+xml",
            "application/xhtml+xml",
            "text/xml",
            "text/xsl",
            "multipart/x-mixed-replace; boundary=x",
        ] {
            assert!(is_active(kind.as_bytes()), "{kind}");
        }
        for kind in ["", OCTET_STREAM, "image/png", "text/plain", "video/mp4", "application/pdf"] {
            assert!(!is_active(kind.as_bytes()), "{kind}");
        }
    }

    #[test]
    fn by_name_then_by_bytes() {
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
        assert_eq!(guess("a/b.html", png), "text/html");
        assert_eq!(guess("a.d/b", png), "image/png");
        assert_eq!(guess("b", b""), OCTET_STREAM);
        assert_eq!(guess("..", b"text"), OCTET_STREAM);
    }
}
