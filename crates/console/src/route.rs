//! Routing: the page or change that a request asks for.

use cairn_doors::Witness;
use http::Method;

use crate::failure::Failure;
use crate::forms::FormBounds;
use crate::inner::{ConsoleRequest, For, Inner, LoggedIn};
use crate::reply::{self, Reply};
use crate::{assets, files, limits, logins, people, share, store, words};

macro_rules! kinds {
    ($($kind:ident)*) => {
        /// A sort of request, as it is named in metrics and in the audit.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum Kind { $($kind),* }

        impl Kind {
            const COUNT: usize = [$(Kind::$kind),*].len();
            pub const NAMES: [&str; Kind::COUNT] = [$(stringify!($kind)),*];
        }
    };
}

kinds! {
    Asset LogInPage LogIn LogOut LogOutEverywhere
    ListBuckets MakeBucket DeleteBucket FollowBuckets FollowFiles
    ListFiles ListRows ShowObject Download Preview MakeFolder DeleteFiles PresignUpload
    TransferFiles TagObject ChangeMetadata ArchiveFolder ShowBucketSettings ChangeBucketSettings
    GrantRights EndUpload
    ListShareLinks ShowShareForm MakeShareLink EndShareLink
    ListOwnKeys MakeOwnKey EndOwnKey
    ListPeople ShowPerson ShowAudit MakeKey EndKey DisablePerson GrantPerson
    LimitPerson
    ShowStore ShowRequests ShowMounts ShowCluster ShowScrub ShowDoctor ShowLogs FollowStore
    FollowLog MakeStoreReadOnly MakeBucketReadOnly OrderScrub DrainNode RemoveNode
    Other
}

impl Kind {
    pub fn name(self) -> &'static str {
        Kind::NAMES.get(self as usize).copied().unwrap_or_default()
    }

    pub fn of(method: &Method, path: &str) -> Kind {
        let (first, rest) = split(path);
        let asked = Shape {
            is_read: matches!(*method, Method::GET | Method::HEAD),
            is_post: *method == Method::POST,
            first,
            name: rest.trim_start_matches('/'),
            second: split(rest).1.trim_start_matches('/'),
        };
        let groups = [of_login, of_files, of_settings, of_links, of_people, of_store];
        groups.iter().find_map(|group| group(&asked)).unwrap_or(Kind::Other)
    }

    /// Returns true if the answer is a link, which works for anybody.
    fn leads_to_bytes(self) -> bool {
        matches!(self, Kind::Download | Kind::Preview)
    }

    /// Returns the limits of the body.
    pub fn bounds(self) -> FormBounds {
        let (bytes, fields) = match self {
            Kind::LogIn => (limits::SHORT_FORM_BYTES, limits::LOGIN_FIELDS),
            Kind::PresignUpload => (limits::SHORT_FORM_BYTES, 0),
            _ => (limits::FORM_BYTES, limits::FIELDS),
        };
        FormBounds { bytes, fields }
    }

    /// Returns true if a script sends such requests.
    pub fn is_of_script(self) -> bool {
        matches!(
            self,
            Kind::ListRows
                | Kind::PresignUpload
                | Kind::FollowFiles
                | Kind::FollowBuckets
                | Kind::FollowStore
                | Kind::FollowLog
        )
    }
}

/// Parts of a request that determine its kind: the first name of its path, and all behind the
/// second name.
struct Shape<'a> {
    is_read: bool,
    is_post: bool,
    first: &'a str,
    /// Everything behind the first name.
    name: &'a str,
    second: &'a str,
}

fn of_login(asked: &Shape<'_>) -> Option<Kind> {
    let &Shape { is_read, is_post, first, second, .. } = asked;
    Some(match (first, second) {
        ("assets", _) if is_read => Kind::Asset,
        ("login", "") if is_read => Kind::LogInPage,
        ("login", "") if is_post => Kind::LogIn,
        ("logout", "") if is_post => Kind::LogOut,
        ("logout-everywhere", "") if is_post => Kind::LogOutEverywhere,
        _ => return None,
    })
}

fn of_files(asked: &Shape<'_>) -> Option<Kind> {
    let &Shape { is_read, is_post, first, second, .. } = asked;
    Some(match (first, second) {
        ("", "") if is_read => Kind::ListBuckets,
        ("changes", "") if is_read => Kind::FollowBuckets,
        ("buckets", "") if is_post => Kind::MakeBucket,
        ("b", "") if is_read => Kind::ListFiles,
        ("b", "changes") if is_read => Kind::FollowFiles,
        ("b", "rows") if is_read => Kind::ListRows,
        ("b", "object") if is_read => Kind::ShowObject,
        ("b", "download") if is_read => Kind::Download,
        ("b", "preview") if is_read => Kind::Preview,
        ("b", "folders") if is_post => Kind::MakeFolder,
        ("b", "delete") if is_post => Kind::DeleteFiles,
        ("b", "remove") if is_post => Kind::DeleteBucket,
        ("b", "uploads") if is_post => Kind::PresignUpload,
        ("b", "transfer") if is_post => Kind::TransferFiles,
        ("b", "tags") if is_post => Kind::TagObject,
        ("b", "metadata") if is_post => Kind::ChangeMetadata,
        ("b", "zip") if is_post => Kind::ArchiveFolder,
        _ => return None,
    })
}

fn of_settings(asked: &Shape<'_>) -> Option<Kind> {
    let &Shape { is_read, is_post, first, second, .. } = asked;
    Some(match (first, second) {
        ("b", "settings") if is_read => Kind::ShowBucketSettings,
        ("b", "settings") if is_post => Kind::ChangeBucketSettings,
        ("b", "rights") if is_post => Kind::GrantRights,
        ("b", "read-only") if is_post => Kind::MakeBucketReadOnly,
        ("b", "end-upload") if is_post => Kind::EndUpload,
        _ => return None,
    })
}

fn of_links(asked: &Shape<'_>) -> Option<Kind> {
    let &Shape { is_read, is_post, first, second, .. } = asked;
    Some(match (first, second) {
        ("shares", "") if is_read => Kind::ListShareLinks,
        ("end-share", "") if is_post => Kind::EndShareLink,
        ("b", "share") if is_read => Kind::ShowShareForm,
        ("b", "share") if is_post => Kind::MakeShareLink,
        _ => return None,
    })
}

fn of_people(asked: &Shape<'_>) -> Option<Kind> {
    let &Shape { is_read, is_post, first, second, .. } = asked;
    Some(match (first, second) {
        ("keys", "") if is_read => Kind::ListOwnKeys,
        ("keys", "") if is_post => Kind::MakeOwnKey,
        ("end-own-key", "") if is_post => Kind::EndOwnKey,
        ("people", "") if is_read => Kind::ListPeople,
        ("people", "") if is_post => Kind::MakeKey,
        ("person", "") if is_read => Kind::ShowPerson,
        ("audit", "") if is_read => Kind::ShowAudit,
        ("end-key", "") if is_post => Kind::EndKey,
        ("disable", "") if is_post => Kind::DisablePerson,
        ("grant", "") if is_post => Kind::GrantPerson,
        ("limits", "") if is_post => Kind::LimitPerson,
        _ => return None,
    })
}

fn of_store(asked: &Shape<'_>) -> Option<Kind> {
    let &Shape { is_read, is_post, first, name, .. } = asked;
    Some(match (first, name) {
        ("store", "") if is_read => Kind::ShowStore,
        ("store", "requests") if is_read => Kind::ShowRequests,
        ("store", "mounts") if is_read => Kind::ShowMounts,
        ("store", "cluster") if is_read => Kind::ShowCluster,
        ("store", "scrub") if is_read => Kind::ShowScrub,
        ("store", "scrub") if is_post => Kind::OrderScrub,
        ("store", "doctor") if is_read => Kind::ShowDoctor,
        ("store", "logs") if is_read => Kind::ShowLogs,
        ("store", "tail") if is_read => Kind::FollowLog,
        ("store", "drain") if is_post => Kind::DrainNode,
        ("store", "remove") if is_post => Kind::RemoveNode,
        ("store", "live") if is_read => Kind::FollowStore,
        ("store", "read-only") if is_post => Kind::MakeStoreReadOnly,
        _ => return None,
    })
}

/// Splits a path into its first name and the rest from its slash on.
fn split(path: &str) -> (&str, &str) {
    let path = path.strip_prefix('/').unwrap_or(path);
    path.split_at(path.find('/').unwrap_or(path.len()))
}

/// Returns the bucket in a path `/b/BUCKET/...`.
fn bucket_of(path: &str) -> &str {
    split(split(path).1).0
}

pub async fn route(
    inner: &Inner,
    asked: &ConsoleRequest,
    kind: Kind,
    login: Option<LoggedIn>,
) -> Reply {
    if let Some(login) = &login {
        asked.witness.by(&login.caller);
    }
    if login.is_some() && kind.leads_to_bytes() && is_from_elsewhere(asked) {
        // Otherwise a page at the origin of the S3 door could put the object into a frame, and read
        // it there.
        return logins::again(asked.place());
    }
    let answered = match (kind, &login) {
        (Kind::Asset, _) => asset(asked.path()),
        (Kind::LogInPage, _) => Ok(logins::page(&query_to(asked))),
        (Kind::LogIn, _) => Box::pin(inner.log_in(asked)).await,
        (_, Some(login)) => Box::pin(for_user(inner, asked, kind, login)).await,
        (_, None) => Err(Failure::LoggedOut),
    };
    match answered {
        Err(Failure::LoggedOut) if !kind.is_of_script() => logged_out(asked),
        Err(failure) => failed(&asked.witness, kind, login.as_ref(), &failure),
        Ok(reply) => reply,
    }
}

/// Returns the file of a path, for everybody.
fn asset(path: &str) -> Result<Reply, Failure> {
    let file = path.strip_prefix("/assets/").and_then(assets::find).ok_or(Failure::NoPage)?;
    Ok(reply::asset(file))
}

fn query_to(asked: &ConsoleRequest) -> String {
    let query = asked.query().unwrap_or_default();
    query.get("to").to_owned()
}

/// Returns true if a page of another origin leads here.
fn is_from_elsewhere(asked: &ConsoleRequest) -> bool {
    let site = asked.parts.headers.get("sec-fetch-site").map(|site| site.as_bytes());
    matches!(site, Some(b"cross-site" | b"same-site"))
}

/// Asks a person to log in, and then leads to the page.
fn logged_out(asked: &ConsoleRequest) -> Reply {
    let is_read = matches!(asked.parts.method, Method::GET | Method::HEAD);
    if is_read && is_from_elsewhere(asked) {
        return logins::again(asked.place());
    }
    let to = if is_read { asked.place() } else { "/" };
    reply::see_other(&format!("/login?to={}", words::in_query(to)))
}

pub fn failed(witness: &Witness, kind: Kind, login: Option<&LoggedIn>, failure: &Failure) -> Reply {
    witness.note(|facts| facts.reason = Some(failure.reason()));
    if kind.is_of_script() { failure.json() } else { failure.page(login) }
}

async fn for_user(
    inner: &Inner,
    asked: &ConsoleRequest,
    kind: Kind,
    login: &LoggedIn,
) -> Result<Reply, Failure> {
    let of = For { inner, asked, login };
    match kind {
        Kind::LogOut => inner.log_out(login, false).await,
        Kind::LogOutEverywhere => inner.log_out(login, true).await,
        Kind::ListBuckets => files::buckets::list(inner, asked, login).await,
        Kind::MakeBucket => files::buckets::make(inner, asked, login).await,
        Kind::FollowBuckets => files::changes::of_buckets(&of).await,
        Kind::ListShareLinks => share::links::list(&of).await,
        Kind::EndShareLink => share::links::end(&of).await,
        Kind::ListOwnKeys => people::own::list(&of).await,
        Kind::MakeOwnKey => people::own::make(&of).await,
        Kind::EndOwnKey => people::own::end(&of).await,
        Kind::ListPeople => people::users::list(&of).await,
        Kind::ShowPerson => people::user::show(&of).await,
        Kind::ShowAudit => people::audit::show(&of).await,
        Kind::MakeKey => people::user::make_key(&of).await,
        Kind::EndKey => people::user::end_key(&of).await,
        Kind::DisablePerson => people::user::disable(&of).await,
        Kind::GrantPerson => people::user::grant(&of).await,
        Kind::LimitPerson => people::user::limit(&of).await,
        _ => about_store(of, kind).await,
    }
}

async fn about_store(of: For<'_>, kind: Kind) -> Result<Reply, Failure> {
    match kind {
        Kind::ShowStore => store::overview::show(&of).await,
        Kind::ShowRequests => store::requests::show(&of).await,
        Kind::ShowMounts => store::mounts::show(&of).await,
        Kind::ShowCluster => store::cluster::show(&of).await,
        Kind::ShowScrub => store::scrub::show(&of).await,
        Kind::ShowDoctor => store::doctor::show(&of).await,
        Kind::ShowLogs => store::tail::show(&of).await,
        Kind::FollowStore => store::follow::follow(&of).await,
        Kind::FollowLog => store::tail::follow(&of).await,
        Kind::MakeStoreReadOnly => store::read_only::set(&of).await,
        Kind::OrderScrub => store::scrub::order(&of).await,
        Kind::DrainNode => store::node_changes::drain(&of).await,
        Kind::RemoveNode => store::node_changes::remove(&of).await,
        _ => in_bucket(of, kind).await,
    }
}

async fn in_bucket(For { inner, asked, login }: For<'_>, kind: Kind) -> Result<Reply, Failure> {
    let bucket = bucket_of(asked.path());
    asked.witness.note(|facts| facts.bucket = Some(bucket.to_owned()));
    let at = files::At { inner, asked, login, bucket };
    match kind {
        Kind::ListFiles => files::listing::page(&at).await,
        Kind::ListRows => files::listing::rows(&at).await,
        Kind::FollowFiles => files::changes::of_folder(&at).await,
        Kind::ShowObject => files::object::show(&at).await,
        Kind::Download => files::object::download(&at).await,
        Kind::Preview => files::object::preview(&at).await,
        Kind::MakeFolder => files::folders::make(&at).await,
        Kind::DeleteFiles => files::delete::delete(&at).await,
        Kind::DeleteBucket => files::buckets::remove(&at).await,
        Kind::PresignUpload => files::uploads::presign(&at).await,
        Kind::TransferFiles => files::transfer::transfer(&at).await,
        Kind::TagObject => files::tags::put(&at).await,
        Kind::ChangeMetadata => files::metadata::put(&at).await,
        Kind::ArchiveFolder => share::archive::make(&at).await,
        Kind::ShowBucketSettings => files::settings::show(&at).await,
        Kind::ChangeBucketSettings => files::settings::change(&at).await,
        Kind::GrantRights => files::rights::grant(&at).await,
        Kind::MakeBucketReadOnly => files::read_only::set(&at).await,
        Kind::EndUpload => files::unfinished_uploads::end(&at).await,
        Kind::ShowShareForm => share::form::show(&at).await,
        Kind::MakeShareLink => share::form::make(&at).await,
        _ => Err(Failure::NoPage),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_of_one_kind() {
        for (method, path, kind) in [
            (Method::GET, "/", Kind::ListBuckets),
            (Method::GET, "/b/photos", Kind::ListFiles),
            (Method::GET, "/b/photos/object", Kind::ShowObject),
            (Method::POST, "/b/photos/delete", Kind::DeleteFiles),
            (Method::GET, "/b/photos/delete", Kind::Other),
            (Method::GET, "/logout", Kind::Other),
            (Method::DELETE, "/b/photos", Kind::Other),
            (Method::GET, "/assets/x/y", Kind::Asset),
            (Method::GET, "/nothing", Kind::Other),
            (Method::GET, "/b/photos/settings", Kind::ShowBucketSettings),
            (Method::POST, "/b/photos/settings", Kind::ChangeBucketSettings),
            (Method::GET, "/b/photos/share", Kind::ShowShareForm),
            (Method::GET, "/end-share", Kind::Other),
            (Method::POST, "/keys", Kind::MakeOwnKey),
            (Method::GET, "/people", Kind::ListPeople),
            (Method::GET, "/grant", Kind::Other),
            (Method::GET, "/changes", Kind::FollowBuckets),
            (Method::GET, "/b/photos/changes", Kind::FollowFiles),
            (Method::GET, "/store", Kind::ShowStore),
            (Method::GET, "/store/requests", Kind::ShowRequests),
            (Method::GET, "/store/requests/x", Kind::Other),
            (Method::GET, "/store/read-only", Kind::Other),
            (Method::POST, "/store/remove", Kind::RemoveNode),
            (Method::GET, "/store/remove", Kind::Other),
            (Method::POST, "/b/photos/read-only", Kind::MakeBucketReadOnly),
        ] {
            assert_eq!(Kind::of(&method, path), kind, "{method} {path}");
        }
        assert_eq!(bucket_of("/b/photos/object"), "photos");
        assert_eq!(bucket_of("/b/photos"), "photos");
    }
}
