//! Static files. Their paths contain a hash of all of them, so browsers keep them for good.

use std::io::Write;
use std::sync::LazyLock;

use bytes::Bytes;
use cairn_auth::hash_token;
use flate2::Compression;
use flate2::write::GzEncoder;

const FILES: [(&str, &str, &str); 6] = [
    ("console.css", "text/css; charset=utf-8", include_str!("../assets/console.css")),
    ("console.js", "text/javascript; charset=utf-8", include_str!("../assets/console.js")),
    ("listing.js", "text/javascript; charset=utf-8", include_str!("../assets/listing.js")),
    ("live.js", "text/javascript; charset=utf-8", include_str!("../assets/live.js")),
    ("uploads.js", "text/javascript; charset=utf-8", include_str!("../assets/uploads.js")),
    ("icon.svg", "image/svg+xml", include_str!("../assets/icon.svg")),
];

pub struct Asset {
    name: &'static str,
    pub content_type: &'static str,
    pub plain: &'static str,
    pub gzip: Bytes,
}

struct Assets {
    /// First half of a SHA-256, in hex.
    hash: String,
    all: Vec<Asset>,
}

static ASSETS: LazyLock<Assets> = LazyLock::new(|| {
    let text: Vec<&str> = FILES.iter().flat_map(|(name, _, text)| [*name, *text]).collect();
    let hash = hash_token(&text.join("\0"));
    let hash = hash.iter().take(16).map(|byte| format!("{byte:02x}")).collect();
    let all = FILES.iter().map(|&(name, content_type, plain)| Asset {
        name,
        content_type,
        plain,
        gzip: gzip(plain.as_bytes()),
    });
    Assets { hash, all: all.collect() }
});

/// Length from which on compression is worth the time.
pub const GZIP_FROM: usize = 1024;

pub fn gzip(bytes: &[u8]) -> Bytes {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(6));
    // Written into memory: neither step fails.
    let written = encoder.write_all(bytes).and_then(|()| encoder.finish());
    written.unwrap_or_default().into()
}

/// Returns the path of a file.
pub fn path(name: &str) -> String {
    format!("/assets/{}/{name}", ASSETS.hash)
}

/// Returns the file of a path below `/assets/`.
pub fn find(path: &str) -> Option<&'static Asset> {
    let (hash, name) = path.split_once('/')?;
    let found = ASSETS.all.iter().find(|asset| asset.name == name)?;
    (hash == ASSETS.hash).then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_load_is_small() {
        let bytes: usize = ASSETS.all.iter().map(|asset| asset.gzip.len()).sum();
        assert!(bytes < 100 << 10, "{bytes}");
    }

    /// Assets contain nothing that the policy of pages forbids. Otherwise only a browser would show
    /// it.
    #[test]
    fn scripts_do_nothing_that_the_policy_forbids() {
        for asset in &ASSETS.all {
            for word in ["eval(", "new Function", "innerHTML", "style=", "javascript:"] {
                assert!(!asset.plain.contains(word), "{}: {word}", asset.name);
            }
        }
    }

    #[test]
    fn a_path_names_these_very_files() {
        let known = path("console.js");
        assert!(find(known.strip_prefix("/assets/").unwrap()).is_some());
        for other in ["console.js", "0/console.js", "../console.js", ""] {
            assert!(find(other).is_none(), "{other}");
        }
    }
}
