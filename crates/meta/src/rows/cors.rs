//! The CORS rules of a bucket: which pages of other sites may use it.

use bytes::Bytes;
use cairn_base::Result;
use cairn_base::codec::{Fields, Writer};
use serde::{Deserialize, Serialize};

use super::{FORMAT, narrow};

/// A rule, as in S3. `*` stands for any characters, in an origin and in the name of a header that a
/// request may have.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CorsRule {
    /// Id of the rule; empty for none.
    pub id: String,
    pub origins: Vec<String>,
    pub methods: Vec<String>,
    /// Headers that a request may have.
    pub headers: Vec<String>,
    /// Headers of replies that pages may read.
    pub exposed: Vec<String>,
    /// Seconds for which a browser may remember the answer to a preflight.
    pub max_age_s: Option<u32>,
}

/// The rules of a bucket in their order, as they are stored. They are decoded only for requests of
/// pages.
#[derive(Clone, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub struct CorsRules(Bytes);

impl CorsRules {
    pub fn new(rules: &[CorsRule]) -> CorsRules {
        let mut writer = Writer::new(FORMAT);
        for rule in rules {
            writer.bytes(1, &rule.encode());
        }
        if rules.is_empty() { CorsRules::default() } else { CorsRules(writer.finish()) }
    }

    /// Wraps rules in their stored form.
    pub(super) fn stored(bytes: Bytes) -> CorsRules {
        CorsRules(bytes)
    }

    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Decodes the rules.
    ///
    /// # Errors
    /// `Corrupt` for bytes that are no rules.
    pub fn decode(&self) -> Result<Vec<CorsRule>> {
        let mut rules = Vec::new();
        if self.is_empty() {
            return Ok(rules);
        }
        let mut fields = Fields::open(&self.0, FORMAT)?;
        while let Some(field) = fields.next_field()? {
            if field.tag == 1 {
                rules.push(CorsRule::decode(&field.value)?);
            }
        }
        Ok(rules)
    }
}

impl CorsRule {
    fn encode(&self) -> Bytes {
        let mut writer = Writer::new(FORMAT);
        writer.text(1, &self.id);
        let lists =
            [(2, &self.origins), (3, &self.methods), (4, &self.headers), (5, &self.exposed)];
        for (tag, list) in lists {
            for text in list {
                writer.bytes(tag, text.as_bytes());
            }
        }
        writer.number(6, self.max_age_s.map_or(0, |seconds| u64::from(seconds) + 1));
        writer.finish()
    }

    fn decode(rule: &Bytes) -> Result<CorsRule> {
        let mut decoded = CorsRule::default();
        let mut fields = Fields::open(rule, FORMAT)?;
        while let Some(field) = fields.next_field()? {
            match field.tag {
                1 => decoded.id = field.text()?,
                2 => decoded.origins.push(field.text()?),
                3 => decoded.methods.push(field.text()?),
                4 => decoded.headers.push(field.text()?),
                5 => decoded.exposed.push(field.text()?),
                6 => {
                    let seconds = field.number()?.checked_sub(1);
                    decoded.max_age_s = seconds.map(|s| narrow("CORS rule", s)).transpose()?;
                }
                _ => {}
            }
        }
        Ok(decoded)
    }
}
