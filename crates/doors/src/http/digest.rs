//! Digests that are sent with an upload: Content-MD5 (RFC 1864), Content-Digest and Repr-Digest
//! (RFC 9530), Digest (RFC 3230).

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;
use cairn_base::{Error, Result};
use cairn_fs::rows::Algorithm;
use cairn_fs::{Digester, Digests};
use http::HeaderMap;

/// The digests that the bytes of an upload must have.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ExpectedDigests {
    md5: Option<Vec<u8>>,
    sha256: Option<Vec<u8>>,
}

impl ExpectedDigests {
    /// Reads the digests from the headers.
    ///
    /// # Errors
    /// `Invalid` for a digest that is malformed, contradicts another, or is of an unknown kind: a
    /// client that sends a digest wants it checked.
    pub fn parse(headers: &HeaderMap) -> Result<ExpectedDigests> {
        let mut expected = ExpectedDigests::default();
        for value in headers.get_all("content-md5") {
            let text = value.to_str().unwrap_or_default();
            expected.set("md5", text.trim())?;
        }
        for name in ["content-digest", "repr-digest", "digest"] {
            for value in headers.get_all(name) {
                expected.add_list(name, value.to_str().unwrap_or_default())?;
            }
        }
        Ok(expected)
    }

    /// Reads `sha-256=<base64>, md5=<base64>`, each value in colons if the header is a structured
    /// field.
    fn add_list(&mut self, header: &str, list: &str) -> Result<()> {
        let mut known = 0;
        for item in list.split(',').map(str::trim).filter(|item| !item.is_empty()) {
            let (name, value) = item.split_once('=').ok_or_else(|| malformed(header))?;
            let value = match header {
                "digest" => Some(value),
                _ => value.strip_prefix(':').and_then(|value| value.strip_suffix(':')),
            };
            known += usize::from(self.set(name, value.ok_or_else(|| malformed(header))?)?);
        }
        if known == 0 {
            let what = format!("header {header}: use sha-256 or md5");
            return Err(Error::Invalid(what));
        }
        Ok(())
    }

    /// Sets the digest of an algorithm. Returns whether the algorithm is known.
    fn set(&mut self, algorithm: &str, value: &str) -> Result<bool> {
        let (slot, length) = match algorithm.to_ascii_lowercase().as_str() {
            "md5" => (&mut self.md5, 16),
            "sha-256" => (&mut self.sha256, 32),
            _ => return Ok(false),
        };
        let decoded = BASE64.decode(value).ok().filter(|bytes| bytes.len() == length);
        let decoded = decoded.ok_or_else(|| malformed(algorithm))?;
        match slot {
            Some(other) if *other != decoded => Err(malformed(algorithm)),
            _ => {
                *slot = Some(decoded);
                Ok(true)
            }
        }
    }

    /// Returns the digester for the bytes as they pass; `None` if none is needed.
    pub fn digester(&self) -> Option<Digester> {
        let sha256: &[Algorithm] = if self.sha256.is_some() { &[Algorithm::Sha256] } else { &[] };
        let wanted = self.md5.is_some() || self.sha256.is_some();
        wanted.then(|| Digester::new(self.md5.is_some(), sha256))
    }

    /// Compares the digests of the bytes with the expected ones.
    ///
    /// # Errors
    /// `BadDigest` if they differ.
    pub fn check(&self, found: &Digests) -> Result<()> {
        if let Some(md5) = &self.md5
            && found.md5.as_ref().map(|found| &found[..]) != Some(&md5[..])
        {
            return Err(Error::BadDigest("MD5 of the body".into()));
        }
        if let Some(sha256) = &self.sha256
            && !found.checksums.iter().any(|sum| sum.value == sha256[..])
        {
            return Err(Error::BadDigest("SHA-256 of the body".into()));
        }
        Ok(())
    }
}

fn malformed(what: &str) -> Error {
    Error::Invalid(format!("malformed digest: {what}"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use http::{HeaderName, HeaderValue};
    use proptest::prelude::*;

    const MD5: &str = "XUFAKrxLKna5cZ2REBfFkg=="; // of "hello"
    const SHA: &str = "LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ="; // of "hello"

    fn parse(pairs: &[(&str, &str)]) -> Result<ExpectedDigests> {
        let mut headers = HeaderMap::new();
        for (name, value) in pairs {
            let name = HeaderName::from_bytes(name.as_bytes()).unwrap();
            headers.append(name, HeaderValue::from_str(value).unwrap());
        }
        ExpectedDigests::parse(&headers)
    }

    #[test]
    fn good_and_bad() {
        let sha = format!("sha-256=:{SHA}:");
        let both = format!("SHA-256={SHA}, md5={MD5}, unixsum=1");
        for good in [("content-md5", MD5), ("content-digest", &sha), ("digest", &both)] {
            let expected = parse(&[good]).unwrap();
            let mut digester = expected.digester().unwrap();
            digester.update(b"hello");
            expected.check(&digester.finish()).unwrap();
            let mut digester = expected.digester().unwrap();
            digester.update(b"hello!");
            assert!(matches!(expected.check(&digester.finish()), Err(Error::BadDigest(_))));
        }
        for (name, value) in [
            ("content-md5", ""),
            ("content-md5", "AAAA"),
            ("content-md5", "not base64"),
            ("content-digest", "sha-256=AAAA"),
            ("content-digest", "sha-512=:AAAA:"),
            ("content-digest", "sha-256"),
            ("repr-digest", ""),
        ] {
            assert!(parse(&[(name, value)]).is_err(), "{name}: {value}");
        }
        let other = "1B2M2Y8AsgTpgAmY7PhCfg==";
        assert!(parse(&[("content-md5", MD5), ("content-md5", other)]).is_err());
        assert!(parse(&[]).unwrap().digester().is_none());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(100_000))]
        #[test]
        fn any_header_is_parsed_or_refused(value in "((sha-256|md5)=:?)?[A-Za-z0-9=:, ]{0,60}") {
            let _ = parse(&[("content-digest", &value)]);
            let _ = parse(&[("digest", &value)]);
        }
    }
}
