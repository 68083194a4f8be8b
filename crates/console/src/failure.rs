//! Replies to requests that fail, as people read them.

use cairn_base::Error;
use cairn_doors::UploadError;
use http::StatusCode;
use maud::html;

use crate::inner::LoggedIn;
use crate::page::{self, Page};
use crate::reply::{self, Reply};

/// Reason why a request fails.
#[derive(Debug)]
pub enum Failure {
    Store(Error),
    /// No user has logged in, or the login is over.
    LoggedOut,
    /// The path does not take this method, or there is no such page.
    NoPage,
    /// The body came too slowly, or not to its end.
    Body(UploadError),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Failure {
        Failure::Store(error)
    }
}

impl From<UploadError> for Failure {
    fn from(error: UploadError) -> Failure {
        Failure::Body(error)
    }
}

/// Status, heading, and what to do.
struct FailureText {
    status: StatusCode,
    heading: &'static str,
    text: String,
}

impl Failure {
    /// Returns the reason for records: the words of a refusal, and the kind of another failure.
    pub fn reason(&self) -> String {
        match self {
            Failure::Store(error @ (Error::Denied(_) | Error::ReadOnly(_))) => error.to_string(),
            Failure::Store(error) => error.kind().to_owned(),
            Failure::LoggedOut => "logged_out".to_owned(),
            Failure::NoPage => "not_found".to_owned(),
            Failure::Body(_) => "too_slow".to_owned(),
        }
    }

    fn told(&self) -> FailureText {
        let (status, heading, text) = match self {
            Failure::Store(error) => return of_store(error),
            Failure::LoggedOut => {
                let text = "The login has ended. Log in again.".to_owned();
                (StatusCode::UNAUTHORIZED, "Logged out", text)
            }
            Failure::NoPage => {
                let text = "There is no such page.".to_owned();
                (StatusCode::NOT_FOUND, "Not found", text)
            }
            Failure::Body(error) => {
                (StatusCode::REQUEST_TIMEOUT, "The request did not arrive", sentence(error))
            }
        };
        FailureText { status, heading, text }
    }

    pub fn page(&self, login: Option<&LoggedIn>) -> Reply {
        let FailureText { status, heading, text } = self.told();
        let body = html! {
            div class="empty" role="alert" {
                h1 { (heading) }
                p { (text) }
                p { a href="/" class="button" { "Go to all buckets" } }
            }
        };
        reply::html(status, page::page(&Page { title: heading, login, ..Page::default() }, &body))
    }

    pub fn json(&self) -> Reply {
        let FailureText { status, text, .. } = self.told();
        let kind = match self {
            Failure::Store(error) => error.kind(),
            Failure::LoggedOut => "logged_out",
            Failure::NoPage => "not_found",
            Failure::Body(_) => "too_slow",
        };
        reply::json(status, &serde_json::json!({ "error": kind, "message": text }))
    }
}

fn of_store(error: &Error) -> FailureText {
    let (status, heading) = match error {
        Error::NotFound(_) => (StatusCode::NOT_FOUND, "Not found"),
        Error::Denied(_) => (StatusCode::FORBIDDEN, "Not allowed"),
        Error::ReadOnly(_) => (StatusCode::FORBIDDEN, "Read-only"),
        Error::Exists(_) | Error::Conflict(_) | Error::NotEmpty(_) | Error::IsDirectory(_) => {
            (StatusCode::CONFLICT, "Not done")
        }
        Error::Unavailable(_) => (StatusCode::SERVICE_UNAVAILABLE, "Not now"),
        Error::Full(_) => (StatusCode::INSUFFICIENT_STORAGE, "Full"),
        Error::TooLarge(_) => (StatusCode::PAYLOAD_TOO_LARGE, "Too large"),
        Error::NotImplemented(_) => (StatusCode::NOT_IMPLEMENTED, "Not supported"),
        Error::Invalid(_) | Error::NotDirectory(_) | Error::BadDigest(_) => {
            (StatusCode::BAD_REQUEST, "Not possible")
        }
        _ => (StatusCode::INTERNAL_SERVER_ERROR, "The store failed"),
    };
    let text = match error {
        Error::Corrupt { .. } => {
            "Stored bytes fail their checksum. The server's log has more.".to_owned()
        }
        Error::Io(_) => {
            "An input/output error of the server. The server's log has more.".to_owned()
        }
        Error::NotFound(what) => format!("There is no {what}."),
        Error::Exists(what) => format!("There is already: {what}."),
        Error::Denied(what) => format!("You may not do this: {what}."),
        Error::Invalid(what) | Error::Conflict(what) => sentence(what),
        other => sentence(other),
    };
    FailureText { status, heading, text }
}

/// Returns the text of an error as a sentence.
fn sentence(error: &impl std::fmt::Display) -> String {
    let text = error.to_string();
    let mut letters = text.chars();
    let first = letters.next().map(|first| first.to_uppercase().to_string());
    format!("{}{}.", first.unwrap_or_default(), letters.as_str().trim_end_matches('.'))
}
