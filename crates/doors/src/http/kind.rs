//! The kind of a request.

use http::request::Parts;

use super::parameters::{FOLLOW, MOVE_TO};
use super::target::Target;

/// The kind of a request in the metrics.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    Get,
    Follow,
    Head,
    Put,
    Append,
    Move,
    Delete,
    List,
    Bucket,
    Admin,
    Logs,
    Share,
    Shared,
    Tus,
    Other,
}

impl Kind {
    pub const NAMES: [&str; 15] = [
        "get", "follow", "head", "put", "append", "move", "delete", "list", "bucket", "admin",
        "logs", "share", "shared", "tus", "other",
    ];

    pub fn of(parts: &Parts, target: &Target<'_>) -> Kind {
        let moves = parts.uri.query().is_some_and(|query| query.contains(MOVE_TO));
        let follows = parts.uri.query().is_some_and(|query| query.contains(FOLLOW));
        match (target, parts.method.as_str()) {
            (Target::Object { .. } | Target::Prefix { .. }, "GET") if follows => Kind::Follow,
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
            (Target::ShareLinks | Target::ShareLink(_), _) => Kind::Share,
            (Target::OwnKeys | Target::OwnKey(_), _) => Kind::Admin,
            (Target::Shared { .. }, _) => Kind::Shared,
            (Target::Tus { .. }, _) => Kind::Tus,
            _ => Kind::Other,
        }
    }
}
