//! The kind of a request.

use http::request::Parts;

use super::parameters::MOVE_TO;
use super::target::Target;

/// The kind of a request in the metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Get,
    Head,
    Put,
    Append,
    Move,
    Delete,
    List,
    Bucket,
    Admin,
    Logs,
    Other,
}

impl Kind {
    pub const NAMES: [&str; 11] = [
        "get", "head", "put", "append", "move", "delete", "list", "bucket", "admin", "logs",
        "other",
    ];

    pub fn of(parts: &Parts, target: &Target<'_>) -> Kind {
        let moves = parts.uri.query().is_some_and(|query| query.contains(MOVE_TO));
        match (target, parts.method.as_str()) {
            (Target::Object { .. }, "GET") => Kind::Get,
            (Target::Object { .. }, "HEAD") => Kind::Head,
            (Target::Object { .. }, "PUT") => Kind::Put,
            (Target::Object { .. }, "POST") if moves => Kind::Move,
            (Target::Object { .. }, "POST") => Kind::Append,
            (Target::Object { .. }, "DELETE") => Kind::Delete,
            (Target::Prefix { .. }, "GET" | "HEAD") => Kind::List,
            (Target::Prefix { .. } | Target::Bucket(_) | Target::Buckets, _) => Kind::Bucket,
            (Target::Admin(_), _) => Kind::Admin,
            (Target::Logs(_), _) => Kind::Logs,
            _ => Kind::Other,
        }
    }
}
