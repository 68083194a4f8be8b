//! Buckets that are websites: their documents and redirects.

use bytes::Bytes;
use cairn_base::Result;
use cairn_base::codec::{Fields, Writer};
use serde::{Deserialize, Serialize};

use super::{FORMAT, narrow};

/// The target of a redirect. Empty parts are taken from the request.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct WebRedirect {
    pub protocol: String,
    pub host: String,
    /// Replacement of the whole key.
    pub key: Option<String>,
    /// Replacement of the prefix that the rule names.
    pub prefix: Option<String>,
    /// 301 to 308.
    pub status: u16,
}

/// A redirect, and the requests that it applies to.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct WebRule {
    /// Prefix of the keys; empty for all.
    pub prefix: String,
    /// Status that the requests would be answered with; 0 for all.
    pub status: u16,
    pub to: WebRedirect,
}

/// A website, as S3 has it.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct Website {
    /// The name of the document of a directory; empty if all requests are redirected.
    pub index: String,
    /// The key of the document that is sent with errors; empty for none.
    pub error: String,
    /// Target of all requests, if all are redirected.
    pub redirect_all: Option<WebRedirect>,
    pub rules: Vec<WebRule>,
}

/// The website of a bucket as it is stored; it is decoded only at the door for websites.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct StoredWebsite(Bytes);

impl StoredWebsite {
    pub fn new(website: &Website) -> StoredWebsite {
        let mut writer = Writer::new(FORMAT);
        writer.text(1, &website.index).text(2, &website.error);
        if let Some(to) = &website.redirect_all {
            writer.bytes(3, &to.encode());
        }
        for rule in &website.rules {
            let mut encoded = Writer::new(FORMAT);
            encoded.text(1, &rule.prefix).number(2, rule.status.into()).bytes(3, &rule.to.encode());
            writer.bytes(4, &encoded.finish());
        }
        StoredWebsite(writer.finish())
    }

    /// Wraps a website in its stored form.
    pub(super) fn stored(bytes: Bytes) -> StoredWebsite {
        StoredWebsite(bytes)
    }

    /// Returns whether the bucket is no website.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Decodes the website; `None` if the bucket is none.
    ///
    /// # Errors
    /// `Corrupt` for bytes that are no website.
    pub fn decode(&self) -> Result<Option<Website>> {
        if self.is_empty() {
            return Ok(None);
        }
        let mut website = Website::default();
        let mut fields = Fields::open(&self.0, FORMAT)?;
        while let Some(field) = fields.next_field()? {
            match field.tag {
                1 => website.index = field.text()?,
                2 => website.error = field.text()?,
                3 => website.redirect_all = Some(WebRedirect::decode(&field.value)?),
                4 => website.rules.push(WebRule::decode(&field.value)?),
                _ => {}
            }
        }
        Ok(Some(website))
    }
}

impl WebRule {
    fn decode(rule: &Bytes) -> Result<WebRule> {
        let mut decoded = WebRule::default();
        let mut fields = Fields::open(rule, FORMAT)?;
        while let Some(field) = fields.next_field()? {
            match field.tag {
                1 => decoded.prefix = field.text()?,
                2 => decoded.status = narrow("status", field.number()?)?,
                3 => decoded.to = WebRedirect::decode(&field.value)?,
                _ => {}
            }
        }
        Ok(decoded)
    }
}

impl WebRedirect {
    fn encode(&self) -> Bytes {
        let mut writer = Writer::new(FORMAT);
        writer.text(1, &self.protocol).text(2, &self.host);
        // An empty text is a value, too.
        for (tag, text) in [(3, &self.key), (4, &self.prefix)] {
            if let Some(text) = text {
                writer.bytes(tag, text.as_bytes());
            }
        }
        writer.number(5, self.status.into());
        writer.finish()
    }

    fn decode(redirect: &Bytes) -> Result<WebRedirect> {
        let mut decoded = WebRedirect::default();
        let mut fields = Fields::open(redirect, FORMAT)?;
        while let Some(field) = fields.next_field()? {
            match field.tag {
                1 => decoded.protocol = field.text()?,
                2 => decoded.host = field.text()?,
                3 => decoded.key = Some(field.text()?),
                4 => decoded.prefix = Some(field.text()?),
                5 => decoded.status = narrow("status", field.number()?)?,
                _ => {}
            }
        }
        Ok(decoded)
    }
}
