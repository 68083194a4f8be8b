//! URLs that carry a signature: the holder of such a URL may send one request at this door, for a
//! while.

use cairn_auth::SecretKey;
use cairn_base::{Error, Result, Timestamp};
use http::header::{HeaderName, HeaderValue};
use http::{HeaderMap, Method};

use super::query::Query;
use super::sigv4::{ALGORITHM, Request, SignedAt, SigningKey, canonical, encode_into, hex_sha256};
use super::store::DEFAULT_REGION;

/// A request that another client is to send.
pub struct PresignedRequest<'a> {
    pub method: Method,
    /// URL of the door, as the sender reaches it: `https://s3.example.org`.
    pub origin: &'a str,
    pub bucket: &'a str,
    /// Key of the object; empty for the bucket.
    pub key: &'a str,
    pub query: &'a [(&'a str, &'a str)],
    /// Headers that must be sent with exactly these values.
    pub headers: &'a [(&'a str, &'a str)],
    /// Seconds for which it may be sent.
    pub secs: u32,
}

impl PresignedRequest<'_> {
    /// Returns the URL, signed with an access key and its secret. `region` is that of the door;
    /// empty if it has none.
    ///
    /// # Errors
    /// `Invalid` if the request cannot be sent in this way.
    pub fn url(
        &self,
        id: &str,
        secret: &SecretKey,
        now: Timestamp,
        region: &str,
    ) -> Result<String> {
        let region = if region.is_empty() { DEFAULT_REGION } else { region };
        let host = self.origin.split_once("://").map_or(self.origin, |(_, host)| host);
        let at = SignedAt::new(now);
        let headers = self.headers()?;
        let mut names: Vec<&str> = headers.keys().map(HeaderName::as_str).collect();
        names.push("host");
        names.sort_unstable();
        let signed = names.join(";");
        let decoded_path = match self.key {
            "" => format!("/{}", self.bucket),
            key => format!("/{}/{key}", self.bucket),
        };
        let mut path = String::with_capacity(decoded_path.len());
        encode_into(&mut path, decoded_path.as_bytes(), false);
        let query = self.query_of(id, &at, region, &signed);
        let parsed = Query::parse(Some(&query));
        let parsed = parsed.map_err(|_| Error::Invalid("a URL with such a query".into()))?;
        let request = Request {
            method: &self.method,
            path: &path,
            decoded_path: &decoded_path,
            query: &parsed,
            headers: &headers,
            host: host.as_bytes(),
        };
        let canonical = canonical(&request, &signed);
        let key = SigningKey::derive(secret, at.day(), region);
        let signature = key.sign(ALGORITHM, &at, &[&hex_sha256(&canonical)]);
        Ok(format!("{}{path}?{query}&X-Amz-Signature={signature}", self.origin))
    }

    fn headers(&self) -> Result<HeaderMap> {
        let mut headers = HeaderMap::new();
        for (name, value) in self.headers {
            let name = HeaderName::from_bytes(name.as_bytes());
            let name = name.map_err(|error| Error::Invalid(error.to_string()))?;
            let value = HeaderValue::from_str(value);
            headers.insert(name, value.map_err(|error| Error::Invalid(error.to_string()))?);
        }
        Ok(headers)
    }

    fn query_of(&self, id: &str, at: &SignedAt, region: &str, signed: &str) -> String {
        let scope = format!("{id}/{}/{region}/s3/aws4_request", at.day());
        let secs = self.secs.to_string();
        let own = [
            ("X-Amz-Algorithm", ALGORITHM),
            ("X-Amz-Credential", &scope),
            ("X-Amz-Date", &at.text),
            ("X-Amz-Expires", &secs),
            ("X-Amz-SignedHeaders", signed),
        ];
        let mut query = String::new();
        for (name, value) in self.query.iter().chain(&own) {
            if !query.is_empty() {
                query.push('&');
            }
            encode_into(&mut query, name.as_bytes(), true);
            query.push('=');
            encode_into(&mut query, value.as_bytes(), true);
        }
        query
    }
}
