//! Which page or change a request asks for.

use http::Method;

use crate::failure::Failure;
use crate::inner::{Asked, Inner, LoggedIn};
use crate::reply::{self, Reply};
use crate::{assets, files, logins, words};

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
    ListBuckets MakeBucket DeleteBucket
    ListFiles ListRows ShowObject Download Preview MakeFolder DeleteFiles PresignUpload
    Other
}

impl Kind {
    pub fn name(self) -> &'static str {
        Kind::NAMES.get(self as usize).copied().unwrap_or_default()
    }

    pub fn of(method: &Method, path: &str) -> Kind {
        let is_read = matches!(*method, Method::GET | Method::HEAD);
        let is_post = *method == Method::POST;
        let (first, rest) = split(path);
        let second = split(rest).1.trim_start_matches('/');
        match (first, second) {
            ("assets", _) if is_read => Kind::Asset,
            ("login", "") if is_read => Kind::LogInPage,
            ("login", "") if is_post => Kind::LogIn,
            ("logout", "") if is_post => Kind::LogOut,
            ("logout-everywhere", "") if is_post => Kind::LogOutEverywhere,
            ("", "") if is_read => Kind::ListBuckets,
            ("buckets", "") if is_post => Kind::MakeBucket,
            ("b", "") if is_read => Kind::ListFiles,
            ("b", "rows") if is_read => Kind::ListRows,
            ("b", "object") if is_read => Kind::ShowObject,
            ("b", "download") if is_read => Kind::Download,
            ("b", "preview") if is_read => Kind::Preview,
            ("b", "folders") if is_post => Kind::MakeFolder,
            ("b", "delete") if is_post => Kind::DeleteFiles,
            ("b", "remove") if is_post => Kind::DeleteBucket,
            ("b", "uploads") if is_post => Kind::PresignUpload,
            _ => Kind::Other,
        }
    }

    /// Whether the answer is a link, which works for anybody.
    fn leads_to_bytes(self) -> bool {
        matches!(self, Kind::Download | Kind::Preview)
    }

    /// Whether it is a script that asks.
    fn is_of_script(self) -> bool {
        matches!(self, Kind::ListRows | Kind::PresignUpload)
    }
}

/// The first name of a path, and the rest from its slash on.
fn split(path: &str) -> (&str, &str) {
    let path = path.strip_prefix('/').unwrap_or(path);
    path.split_at(path.find('/').unwrap_or(path.len()))
}

/// The bucket in a path `/b/BUCKET/...`.
fn bucket_of(path: &str) -> &str {
    split(split(path).1).0
}

pub async fn route(inner: &Inner, asked: &Asked, kind: Kind) -> Reply {
    let login = match kind {
        Kind::Asset | Kind::LogIn => Ok(None),
        _ => inner.login(&asked.parts.headers, asked.peer).await,
    };
    let login = match login {
        Ok(login) => login,
        Err(error) => return failed(asked, kind, None, &error.into()),
    };
    if let Some(login) = &login {
        asked.witness.by(&login.caller);
    }
    if login.is_some() && kind.leads_to_bytes() && is_from_elsewhere(asked) {
        // A page at the origin of the S3 door could put the object into a frame, and read it there.
        return logins::again(asked.place());
    }
    let answered = match (kind, &login) {
        (Kind::Asset, _) => asset(asked.path()),
        (Kind::LogInPage, _) => Ok(logins::page(&query_to(asked))),
        (Kind::LogIn, _) => inner.log_in(asked).await,
        (_, Some(login)) => for_user(inner, asked, kind, login).await,
        (_, None) => Err(Failure::LoggedOut),
    };
    match answered {
        Err(Failure::LoggedOut) if !kind.is_of_script() => logged_out(asked),
        Err(failure) => failed(asked, kind, login.as_ref(), &failure),
        Ok(reply) => reply,
    }
}

/// The file of a path, for everybody.
fn asset(path: &str) -> Result<Reply, Failure> {
    let file = path.strip_prefix("/assets/").and_then(assets::find).ok_or(Failure::NoPage)?;
    Ok(reply::asset(file))
}

fn query_to(asked: &Asked) -> String {
    let query = asked.parts.uri.query().unwrap_or_default();
    let form = crate::forms::Form::parse(query.as_bytes()).unwrap_or_default();
    form.get("to").to_owned()
}

/// Whether a page of another origin leads here.
fn is_from_elsewhere(asked: &Asked) -> bool {
    let site = asked.parts.headers.get("sec-fetch-site").map(|site| site.as_bytes());
    matches!(site, Some(b"cross-site" | b"same-site"))
}

/// Asks a person to log in, and then to go on.
fn logged_out(asked: &Asked) -> Reply {
    let is_read = matches!(asked.parts.method, Method::GET | Method::HEAD);
    if is_read && is_from_elsewhere(asked) {
        return logins::again(asked.place());
    }
    let to = if is_read { asked.place() } else { "/" };
    reply::see_other(&format!("/login?to={}", words::in_query(to)))
}

fn failed(asked: &Asked, kind: Kind, login: Option<&LoggedIn>, failure: &Failure) -> Reply {
    asked.witness.note(|facts| facts.reason = Some(failure.reason()));
    match kind.is_of_script() {
        true => failure.json(),
        false => failure.page(login),
    }
}

async fn for_user(
    inner: &Inner,
    asked: &Asked,
    kind: Kind,
    login: &LoggedIn,
) -> Result<Reply, Failure> {
    match kind {
        Kind::LogOut => return inner.log_out(login, false).await,
        Kind::LogOutEverywhere => return inner.log_out(login, true).await,
        Kind::ListBuckets => return files::buckets::list(inner, asked, login).await,
        Kind::MakeBucket => return files::buckets::make(inner, asked, login).await,
        _ => {}
    }
    let bucket = bucket_of(asked.path());
    asked.witness.note(|facts| facts.bucket = Some(bucket.to_owned()));
    let at = files::At { inner, asked, login, bucket };
    match kind {
        Kind::ListFiles => files::listing::page(&at).await,
        Kind::ListRows => files::listing::rows(&at).await,
        Kind::ShowObject => files::object::show(&at).await,
        Kind::Download => files::object::download(&at).await,
        Kind::Preview => files::object::preview(&at).await,
        Kind::MakeFolder => files::folders::make(&at).await,
        Kind::DeleteFiles => files::delete::delete(&at).await,
        Kind::DeleteBucket => files::buckets::remove(&at).await,
        Kind::PresignUpload => files::uploads::presign(&at).await,
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
        ] {
            assert_eq!(Kind::of(&method, path), kind, "{method} {path}");
        }
        assert_eq!(bucket_of("/b/photos/object"), "photos");
        assert_eq!(bucket_of("/b/photos"), "photos");
    }
}
