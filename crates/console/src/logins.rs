//! Logging in and out. A login is a random secret in a cookie; the store keeps its hash.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64URL;
use cairn_auth::{Caller, CredentialId, Origin, hash_token};
use cairn_base::{Result, Secret, Timestamp, UserId};
use cairn_doors::serve::Remote;
use cairn_fs::ops::logins::{AddLogin, EndLogins, FindLogin, FoundLogin, TouchLogin};
use cairn_fs::ops::read_only::IsReadOnly;
use http::header::COOKIE;
use http::{HeaderMap, StatusCode};
use maud::html;

use crate::failure::Failure;
use crate::inner::{ConsoleRequest, Inner, LoggedIn};
use crate::page::{self, Page};
use crate::reply::{self, Reply};
use crate::{assets, limits};

/// Length of the secret of a login, bytes.
const SECRET_BYTES: usize = 32;

/// Makes the caller of a request whose access key was verified when its user logged in.
fn caller(user: UserId, credential: &str, peer: Remote) -> Caller {
    Caller::verified(user).with_origin(Origin {
        source: Some(peer.address.ip().to_canonical()),
        tls: peer.tls,
        credential: CredentialId::new(credential),
    })
}

/// Reads the user and the secret from the cookie of that name. Two such cookies count as none: a
/// neighbouring origin that can set a cookie cannot choose which one counts.
fn parse(headers: &HeaderMap, name: &str) -> Option<(UserId, Secret<String>)> {
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut values = cookies.flat_map(|value| value.split(';')).filter_map(|pair| {
        let (known, value) = pair.trim().split_once('=')?;
        (known == name).then_some(value)
    });
    let (value, None) = (values.next()?, values.next()) else { return None };
    let (user, secret) = value.split_once('.')?;
    let is_secret = BASE64URL.decode(secret).is_ok_and(|bytes| bytes.len() == SECRET_BYTES);
    let user = u64::from_str_radix(user, 16).ok().filter(|_| is_secret)?;
    Some((UserId(user), Secret::new(secret.to_owned())))
}

fn ago(now: Timestamp, time: std::time::Duration) -> Timestamp {
    Timestamp(now.0.saturating_sub(time.as_nanos() as i64))
}

impl Inner {
    /// Returns the login that the cookie of a request names, if it is not over.
    pub async fn login(&self, headers: &HeaderMap, peer: Remote) -> Result<Option<LoggedIn>> {
        let (name, _) = self.site.cookie();
        let Some((user, secret)) = parse(headers, &name) else { return Ok(None) };
        let hash = hash_token(secret.expose());
        let system = Caller::system();
        let found: Option<FoundLogin> = self.fs().read(&system, FindLogin { user, hash }).await?;
        let Some(found) = found else { return Ok(None) };
        let now = self.fs().clock().now();
        if now >= found.expires || found.seen < ago(now, limits::IDLE) {
            return Ok(None);
        }
        // A page that refreshes itself says so: that is no use of the login.
        let is_used = !headers.contains_key("x-cairn-refresh");
        if is_used && found.seen < ago(now, limits::TOUCH) {
            // A login is not over because the store takes no changes now.
            if let Err(error) = self.fs().run(&system, TouchLogin { user, hash }).await {
                tracing::debug!(%error, "the use of a login is not noted");
            }
        }
        let FoundLogin { name, credential, .. } = found;
        let caller = caller(user, &credential, peer);
        let is_read_only = self.fs().read(&system, IsReadOnly).await?;
        Ok(Some(LoggedIn { user, name, credential, secret, caller, is_read_only }))
    }

    /// Logs in with an access key and its secret. Replies to wrong ones are delayed; right ones
    /// never wait for others.
    pub async fn log_in(&self, asked: &ConsoleRequest) -> Result<Reply, Failure> {
        let form = asked.form()?;
        let (id, secret) = (form.get("key").trim(), Secret::new(form.get("secret").to_owned()));
        let address = asked.peer.address.ip();
        let Some(user) = self.admit.user_of(id, &secret).await? else {
            asked.witness.note(|facts| {
                facts.is_refused = true;
                facts.reason = Some("bad_credentials".to_owned());
            });
            self.attempts.refuse(address, id).await;
            return Ok(refused(id, place_of(form.get("to"))));
        };
        asked.witness.by(&caller(user, id, asked.peer));
        self.attempts.succeeded(address);
        let mut bytes = [0; SECRET_BYTES];
        self.admit.rng().fill(&mut bytes);
        let secret = Secret::new(BASE64URL.encode(bytes));
        let now = self.fs().clock().now();
        let lifetime = limits::LIFETIME.as_nanos() as i64;
        let verb = AddLogin {
            user,
            hash: hash_token(secret.expose()),
            credential: id.to_owned(),
            expires: Timestamp(now.0.saturating_add(lifetime)),
            unused_since: ago(now, limits::IDLE),
        };
        // An earlier login of the browser ends.
        self.end(&asked.parts.headers).await?;
        self.fs().run(&Caller::system(), verb).await?;
        let mut reply = reply::see_other(place_of(form.get("to")));
        let (name, is_secure) = self.site.cookie();
        let value = Secret::new(format!("{:x}.{}", user.0, secret.expose()));
        let secs = limits::LIFETIME.as_secs();
        reply::set_cookie(&mut reply, &name, is_secure, value.expose(), secs);
        Ok(reply)
    }

    /// Ends the login of this browser.
    async fn end(&self, headers: &HeaderMap) -> Result<()> {
        let (name, _) = self.site.cookie();
        let Some((user, secret)) = parse(headers, &name) else { return Ok(()) };
        let hash = Some(hash_token(secret.expose()));
        self.fs().run(&Caller::system(), EndLogins { user, hash }).await
    }

    /// Ends the login of this browser, or all logins of its user.
    pub async fn log_out(&self, login: &LoggedIn, everywhere: bool) -> Result<Reply, Failure> {
        let hash = (!everywhere).then(|| hash_token(login.secret.expose()));
        let verb = EndLogins { user: login.user, hash };
        self.fs().run(&Caller::system(), verb).await?;
        let mut reply = reply::see_other("/login");
        let (name, is_secure) = self.site.cookie();
        reply::set_cookie(&mut reply, &name, is_secure, "", 0);
        Ok(reply)
    }
}

/// Returns a place within the console to go to: never another site.
fn place_of(text: &str) -> &str {
    let is_own = text.starts_with('/')
        && !text.starts_with("//")
        && text.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\');
    if is_own { text } else { "/" }
}

/// Makes the page that logs a user in and then leads to a place.
pub fn page(to: &str) -> Reply {
    reply::html(StatusCode::OK, form("", place_of(to), false))
}

fn refused(id: &str, to: &str) -> Reply {
    reply::html(StatusCode::UNAUTHORIZED, form(id, to, true))
}

/// Loads the same place again. A browser that comes from another site sends no cookie, but it does
/// when it comes from this page.
pub fn again(place: &str) -> Reply {
    let body = html! {
        (maud::DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta http-equiv="refresh" content=(format!("0;url={}", place_of(place)));
                title { "Cairn" }
            }
            body { a href=(place_of(place)) { "Go on" } }
        }
    };
    reply::html(StatusCode::OK, body)
}

fn form(id: &str, to: &str, is_refused: bool) -> maud::Markup {
    let error = is_refused.then_some("error");
    let body = html! {
        div class="login" {
            img class="mark" src=(assets::path("icon.svg")) alt="" width="48" height="48";
            h1 { "Log in to Cairn" }
            form method="post" action="/login" class="card" data-plain {
                @if is_refused {
                    p id="error" class="error" role="alert" {
                        "This access key and secret do not belong together, or are not known."
                    }
                }
                input type="hidden" name="to" value=(to);
                label for="key" { "Access key" }
                input id="key" name="key" value=(id) autocomplete="username" autocapitalize="none"
                    spellcheck="false" required autofocus[!is_refused] aria-describedby=[error];
                label for="secret" { "Secret key" }
                input id="secret" name="secret" type="password" autocomplete="current-password"
                    required autofocus[is_refused] aria-describedby=[error];
                button type="submit" class="primary" { "Log in" }
            }
            p class="hint" {
                "Access keys are made by " code { "cairn key create" } ". The first one was printed "
                "when the store was made."
            }
        }
    };
    page::page(&Page { title: "Log in", ..Page::default() }, &body)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_within_the_console() {
        for place in ["/", "/b/photos?in=a%2F", "/login"] {
            assert_eq!(place_of(place), place);
        }
        for place in ["", "//evil", "https://evil", "/\\evil", "evil", "/a b", "/\r\nx", "/\u{e9}"]
        {
            assert_eq!(place_of(place), "/", "{place:?}");
        }
    }

    #[test]
    fn a_cookie_is_whole_and_alone() {
        let secret = BASE64URL.encode([7; SECRET_BYTES]);
        let of = |cookies: &[String]| {
            let mut headers = HeaderMap::new();
            for cookie in cookies {
                headers.append(COOKIE, cookie.parse().unwrap());
            }
            parse(&headers, "c").map(|(user, _)| user.0)
        };
        let good = format!("c=1f.{secret}");
        assert_eq!(of(std::slice::from_ref(&good)), Some(31));
        assert_eq!(of(&[format!("other=1; {good}; x")]), Some(31));
        assert_eq!(of(&[good.clone(), good.clone()]), None);
        for bad in ["c=", "c=1f", "c=1f.", "c=.x", "c=1f.AAAA", "c=-1.x", "d=1.2"] {
            assert_eq!(of(&[bad.to_owned()]), None, "{bad}");
        }
    }
}
