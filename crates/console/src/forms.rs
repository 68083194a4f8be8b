//! Forms and queries.

use std::borrow::Cow;

use cairn_base::{Error, Result};

/// Names and values, in order. A name may come several times.
#[derive(Debug, Default)]
pub struct Form(Vec<(String, String)>);

impl Form {
    pub fn parse(bytes: &[u8]) -> Result<Form> {
        let pairs = form_urlencoded::parse(bytes);
        let owned =
            |(name, value): (Cow<'_, str>, Cow<'_, str>)| (name.into_owned(), value.into_owned());
        let pairs: Vec<_> = pairs.map(owned).collect();
        match pairs.iter().any(|(_, value)| value.contains('\0')) {
            true => Err(Error::Invalid("a NUL byte in a form".into())),
            false => Ok(Form(pairs)),
        }
    }

    /// The first value of a name; empty if there is none.
    pub fn get(&self, name: &str) -> &str {
        let found = self.0.iter().find(|(known, _)| known == name);
        found.map_or("", |(_, value)| value.as_str())
    }

    pub fn all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a str> {
        self.0.iter().filter(move |(known, _)| known == name).map(|(_, value)| value.as_str())
    }

    /// A number; none if the field is empty or not there.
    ///
    /// # Errors
    /// `Invalid` if it is none, in the words of the form.
    pub fn number(&self, name: &str, label: &str) -> Result<Option<u64>> {
        match self.get(name).trim() {
            "" => Ok(None),
            text => {
                let bad = |_| Error::Invalid(format!("{label}: {text:?} is not a whole number"));
                text.parse().map(Some).map_err(bad)
            }
        }
    }

    pub fn is_confirmed(&self) -> bool {
        self.get("confirm") == "yes"
    }
}
