//! State that all requests share.

use std::sync::{Arc, Weak};

use cairn_auth::Caller;
use cairn_base::{Result, Secret, Shares, UserId};
use cairn_doors::Witness;
use cairn_doors::admit::Admit;
use cairn_doors::serve::Remote;
use cairn_fs::Fs;
use http::request::Parts;

use crate::attempts::Attempts;
use crate::forms::{Form, FormBounds};
use crate::insight::Insight;
use crate::insight::lookup::Lookup;
use crate::limits;
use crate::listeners::Listeners;
use crate::looks::Looks;
use crate::site::{Host, Site};

pub struct Inner {
    pub admit: Arc<Admit>,
    pub site: Site,
    pub attempts: Attempts,
    pub forms: Arc<Shares>,
    pub listeners: Arc<Listeners>,
    pub insight: Insight,
    pub lookup: Arc<Lookup>,
    pub looks: Looks,
    /// Reference to this state, for replies that outlive their requests.
    pub own: Weak<Inner>,
}

impl Inner {
    pub fn fs(&self) -> &Fs {
        self.admit.fs()
    }
}

/// A request to a host of the console.
pub struct ConsoleRequest {
    pub parts: Parts,
    pub peer: Remote,
    pub host: Host,
    /// The whole body, if it has one.
    pub body: Vec<u8>,
    /// Limits of the body.
    pub bounds: FormBounds,
    pub witness: Witness,
}

impl ConsoleRequest {
    pub fn path(&self) -> &str {
        self.parts.uri.path()
    }

    /// Returns the path with its query, to come back to.
    pub fn place(&self) -> &str {
        self.parts.uri.path_and_query().map_or("/", |place| place.as_str())
    }

    /// Parses the query.
    ///
    /// # Errors
    /// `Invalid` if it is malformed; `TooLarge` if it has too many fields.
    pub fn query(&self) -> Result<Form> {
        let query = self.parts.uri.query().unwrap_or_default();
        Form::parse(query.as_bytes(), limits::FIELDS)
    }

    /// Parses the body as a form.
    ///
    /// # Errors
    /// `Invalid` if it is malformed; `TooLarge` if it has too many fields.
    pub fn form(&self) -> Result<Form> {
        Form::parse(&self.body, self.bounds.fields)
    }
}

/// A browser in which a user has logged in.
pub struct LoggedIn {
    pub user: UserId,
    /// Name of the user.
    pub name: String,
    /// Id of the access key that was shown.
    pub credential: String,
    /// Part of the cookie of which the store has a hash.
    pub secret: Secret<String>,
    pub caller: Caller,
    /// Set if the store takes no changes now: each page says so.
    pub is_read_only: bool,
}

/// A request of a user who has logged in.
#[derive(Clone, Copy)]
pub struct For<'a> {
    pub inner: &'a Inner,
    pub asked: &'a ConsoleRequest,
    pub login: &'a LoggedIn,
}
