//! The type of an object whose sender did not say.

pub const OCTET_STREAM: &str = "application/octet-stream";

/// By the name's extension, else by the first bytes, else bytes.
pub fn guess(key: &str, head: &[u8]) -> String {
    if let Some(by_name) = mime_guess::from_path(last_component(key)).first_raw() {
        return by_name.to_owned();
    }
    infer::get(head).map_or(OCTET_STREAM, |kind| kind.mime_type()).to_owned()
}

/// The last part of a key: the name of a file.
pub fn last_component(key: &str) -> &str {
    key.rsplit('/').find(|part| !part.is_empty()).unwrap_or(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn by_name_then_by_bytes() {
        let png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR";
        assert_eq!(guess("a/b.html", png), "text/html");
        assert_eq!(guess("a.d/b", png), "image/png");
        assert_eq!(guess("b", b""), OCTET_STREAM);
        assert_eq!(guess("..", b"text"), OCTET_STREAM);
    }
}
