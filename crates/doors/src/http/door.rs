//! The way of a request to its reply.

use std::sync::Arc;
use std::time::Duration;

use cairn_auth::Caller;
use cairn_base::inflight::{self, About, Request as InFlight};
use cairn_base::{Result, Scope, Shares, Stage, Stages, stage};
use cairn_fs::Account;
use cairn_logs::follow::Tails;
use cairn_logs::{Intake, LogPaths};
use http::header::ORIGIN;
use http::request::Parts;
use http::{Method, Request, Response};

use super::body::Body;
use super::cors;
use super::error::{self, Failure, RequestIds};
use super::followers::Followers;
use super::get::{self, ReadRequest};
use super::inner::Inner;
use super::kind::Kind;
use super::log_path;
use super::log_replies;
use super::mount::{self, Mounts};
use super::passwords::Passwords;
use super::redirect::Redirects;
use super::reply::Reply;
use super::route;
use super::served_request::ServedRequest;
use super::share_target;
use super::target::Target;
use super::traffic;
use super::tus;
use crate::admit::{Admit, AdmitError, anonymous};
use crate::cors::{Cors, is_preflight};
use crate::host;
use crate::limits::{self, Limits};
use crate::metrics::DoorMetrics;
use crate::pacing::{self, PacingAccount};
use crate::places::NoPlace;
use crate::records::without_token;
use crate::serve::{Door, Remote};
use crate::upload::Upload;
use crate::witness::{Facts, Witness};

/// The door for the HTTP storage API.
#[derive(Clone)]
pub struct HttpDoor {
    inner: Arc<Inner>,
}

impl HttpDoor {
    /// Returns a door. `redirects` is set if blocks are on other servers that clients can reach.
    pub fn new(admit: Arc<Admit>, metrics: DoorMetrics, redirects: Option<Redirects>) -> HttpDoor {
        let stats = Kind::NAMES.map(|verb| metrics.verb(verb));
        let ids = RequestIds::new(admit.rng().next_u64());
        let append_memory = Shares::new(limits::APPEND_BYTES);
        let log_memory = Shares::new(limits::LOGS_BYTES);
        let zip_memory = Shares::new(limits::ZIPS_BYTES);
        let intake = Intake::new(admit.fs().clone());
        let (metrics, mounts) = (Arc::clone(metrics.all()), None);
        metrics.count_logs(Arc::clone(intake.counts()));
        let tails = Tails::new(admit.fs().clone());
        metrics.count_followers(Arc::clone(tails.counts()));
        let inner = Inner {
            admit,
            metrics,
            stats,
            ids,
            append_memory,
            intake,
            log_memory,
            zip_memory,
            tails,
            followers: Followers::new(Limits::default().connections),
            redirects,
            mounts,
            passwords: Passwords::default(),
            share_rooms: Arc::default(),
        };
        HttpDoor { inner: Arc::new(inner) }
    }

    /// Sets the number of connections of the door.
    ///
    /// # Panics
    /// If it is a clone, or was cloned.
    pub fn with_connections(mut self, connections: usize) -> HttpDoor {
        let inner = Arc::get_mut(&mut self.inner).expect("a door that nobody uses yet");
        inner.followers = Followers::new(connections);
        self
    }

    /// Sets the templates for the paths of log records.
    ///
    /// # Panics
    /// If it is a clone, or was cloned.
    pub fn with_log_paths(mut self, paths: Arc<LogPaths>) -> HttpDoor {
        let inner = Arc::get_mut(&mut self.inner).expect("a door that nobody uses yet");
        inner.intake.set_paths(paths);
        self
    }

    /// Makes the door take mounts.
    ///
    /// # Panics
    /// If it is a clone, or was cloned.
    pub fn with_mounts(mut self, mounts: Mounts) -> HttpDoor {
        Arc::get_mut(&mut self.inner).expect("a door that nobody uses yet").mounts = Some(mounts);
        self
    }
}

impl Door for HttpDoor {
    type Body = Body;
    type Reply = Reply;

    fn call(&self, peer: Remote, request: Request<Upload>) -> Reply {
        let mut stages = self.inner.metrics.observer().begin(request.headers(), peer.address.ip());
        if let Some(response) = self.inner.answer_now(peer, &request, &mut stages) {
            return Reply::Now(Some(response));
        }
        let (inner, method) = (Arc::clone(&self.inner), request.method().clone());
        let uri = request.uri().clone();
        let about = move || About {
            door: "http",
            operation: method.to_string().into(),
            object: without_token(uri.path()).into_owned(),
            client: peer.address.to_string(),
            ..About::default()
        };
        let in_flight = InFlight::new(Some(stages.trace), about);
        let answer = Box::pin(async move { inner.answer(peer, request).await });
        Reply::Later(Scope::of(stages, in_flight, answer))
    }
}

/// Notes the subject of a request, for its record.
fn tell(facts: &mut Facts, kind: Kind, target: Option<&Target<'_>>) {
    facts.operation = Some(Kind::NAMES[kind as usize]);
    let named = |text: &str| Some(text.to_owned());
    match target {
        Some(Target::Bucket(bucket)) => facts.bucket = named(bucket),
        Some(
            Target::Object { bucket, key }
            | Target::Prefix { bucket, prefix: key }
            | Target::Tus { bucket, key },
        ) => {
            (facts.bucket, facts.key) = (named(bucket), named(key));
        }
        Some(Target::Admin(path)) => {
            facts.resource = named(path);
            facts.is_of_traffic = path == traffic::PATH;
        }
        Some(Target::ShareLink(id)) => facts.resource = Some(format!("share link {id}")),
        Some(Target::OwnKeys) => facts.resource = Some("own keys".to_owned()),
        Some(Target::OwnKey(id)) => facts.resource = Some(format!("own key {id}")),
        Some(Target::Mount) => facts.operation = Some("mount"),
        _ => {}
    }
}

/// Notes the caller of the request in flight.
fn known(caller: &Caller) {
    if !caller.is_anonymous() {
        inflight::by(caller.user());
    }
}

impl Inner {
    /// Returns the reply to a GET or HEAD of an object if that needs only memory.
    fn answer_now(
        &self,
        peer: Remote,
        request: &Request<Upload>,
        stages: &mut Stages,
    ) -> Option<Response<Body>> {
        let (method, uri, headers) = (request.method(), request.uri(), request.headers());
        let is_plain = uri.query().is_none() && !headers.contains_key(ORIGIN);
        if !matches!(*method, Method::GET | Method::HEAD) || !is_plain {
            return None;
        }
        host::check(request).ok()?;
        let caller = self.admit.caller_now(headers, peer)?;
        let Ok(Target::Object { bucket, key }) = Target::parse(uri.path()) else { return None };
        let opened = self.fs().open_now(&caller, &bucket, &key)?;
        if self.redirects.is_some() && opened.as_ref().is_ok_and(|object| object.bucket().redirect)
        {
            return None;
        }
        let read = ReadRequest { method, headers, query: None, key: &key, is_website: false };
        if let Ok(object) = &opened
            && !object.is_open_for(&(0..object.size()))
            && get::sent(&read, object).is_some_and(|range| !object.is_open_for(&range))
        {
            return None;
        }
        stages.lap(Stage::Meta);
        let reply = opened.and_then(|object| get::reply(&read, &object, || self.ids.next()));
        let is_anonymous = caller.is_anonymous();
        let kind = if *method == Method::HEAD { Kind::Head } else { Kind::Get };
        let reply = reply.unwrap_or_else(|error| {
            let failure = Failure::from(error);
            Witness::of(request.extensions()).note(|facts| {
                facts.operation = Some(Kind::NAMES[kind as usize]);
                (facts.bucket, facts.key) = (Some(bucket.to_string()), Some(key.to_string()));
                facts.reason = Some(failure.reason());
            });
            error::reply(failure, is_anonymous, &self.ids.next())
        });
        stages.lap(Stage::Cache);
        let (path, stages) = (uri.path(), *stages);
        let seen = ServedRequest { peer, method, path, is_anonymous, stages };
        Some(seen.finish(reply, &self.stats[kind as usize]))
    }

    async fn admit(&self, peer: Remote, parts: &Parts) -> Result<Caller, AdmitError> {
        let admitting = Box::pin(self.admit.caller(&parts.headers, peer));
        stage::time(Stage::Admit, admitting).await
    }

    /// Returns the account of a caller with limits.
    ///
    /// # Errors
    /// The time until the caller may send a request again.
    async fn account(
        &self,
        caller: &Caller,
        upload: &Upload,
    ) -> Result<Option<Arc<Account>>, Duration> {
        match upload.admit(caller) {
            Ok(()) => Box::pin(pacing::account_of(self.fs(), caller)).await,
            Err(NoPlace) => Err(Duration::from_secs(limits::NO_PLACE_SECS)),
        }
    }

    async fn answer(&self, peer: Remote, mut request: Request<Upload>) -> Response<Body> {
        let (named, upgrade) = (host::check(&request), mount::wanted(&mut request));
        let (parts, mut upload) = request.into_parts();
        let witness = Witness::of(&parts.extensions);
        let parsed = Target::parse(parts.uri.path());
        let kind = parsed.as_ref().map_or(Kind::Other, |target| Kind::of(&parts, target));
        let stats = &self.stats[kind as usize];
        witness.note(|facts| tell(facts, kind, parsed.as_ref().ok()));
        // Assumed until the caller is known, so that a refusal shows no times.
        let mut is_anonymous = true;
        let target = named.and(parsed);
        if let Ok(target) = &target
            && is_preflight(&parts.method, &parts.headers)
        {
            witness.note(|facts| facts.is_preflight = true);
            let reply = Box::pin(cors::preflight(self, &parts, target)).await;
            return seen(peer, &parts, is_anonymous).finish(reply, stats);
        }
        let (is_tus, is_shared) = special(&target);
        let bucket = target.as_ref().ok().and_then(Target::bucket);
        let page = Box::pin(Cors::of_page(self.fs(), &parts.headers, bucket, cors::POLICY)).await;
        let admitted = if is_shared {
            // The credentials of such a request are the password of the share link.
            Ok(anonymous(peer))
        } else {
            self.admit(peer, &parts).await
        };
        let mut account = None;
        let outcome = match admitted {
            Err(refused) => Err(Failure::from(refused)),
            Ok(caller) => {
                is_anonymous = caller.is_anonymous();
                known(&caller);
                witness.by(&caller);
                let limited = self.account(&caller, &upload).await;
                match (target, limited.map(|found| account = found)) {
                    (Err(error), _) => Err(error.into()),
                    (_, Err(wait)) => Err(Failure::Limited(wait)),
                    (Ok(Target::Mount), _) if upgrade.is_some() => {
                        let (mounts, headers) = (self.mounts.as_ref(), &parts.headers);
                        mount::take(&self.admit, mounts, peer, headers, &caller, upgrade)
                            .map_err(Failure::from)
                    }
                    (Ok(target), _) => {
                        if let Some(account) = &account {
                            upload.counts_for(Arc::clone(account));
                        }
                        let by_rule = page.as_ref().is_some_and(|p| cors::may_change(p, &parts));
                        let request =
                            route::Request { peer, parts: &parts, caller: &caller, stats, by_rule };
                        Box::pin(route::route(self, &request, target, &mut upload)).await
                    }
                }
            }
        };
        let mut reply = outcome.unwrap_or_else(|failure| {
            witness.note(|facts| {
                facts.reason.get_or_insert_with(|| failure.reason());
            });
            error::failed(failure, &parts, upload, is_anonymous && !is_shared, &self.ids)
        });
        if let Some(account) = account {
            reply.extensions_mut().insert(PacingAccount::new(account));
        }
        say_special(is_tus, is_shared, &parts, &mut reply);
        if let Some(page) = page {
            page.say(&parts.method, &parts.headers, reply.headers_mut());
        }
        seen(peer, &parts, is_anonymous).finish(reply, stats)
    }
}

/// Adds the headers for replies of tus and of share links, and gives errors the form that their
/// clients read.
fn say_special(is_tus: bool, is_shared: bool, parts: &Parts, reply: &mut Response<Body>) {
    if is_tus {
        tus::say_version(reply.headers_mut());
    }
    if is_shared {
        share_target::show_error(&parts.headers, reply);
    }
    if parts.uri.path() == log_path::OTLP {
        log_replies::show_otlp_error(&parts.headers, reply);
    }
}

/// Returns whether a target is a resumable upload, and whether it is a share link, for which no
/// reply asks for credentials of users.
fn special(target: &Result<Target<'_>>) -> (bool, bool) {
    match target {
        Ok(Target::Tus { .. }) => (true, false),
        Ok(Target::Shared { .. }) => (false, true),
        _ => (false, false),
    }
}

fn seen<'a>(peer: Remote, parts: &'a Parts, is_anonymous: bool) -> ServedRequest<'a> {
    let stages = stage::snapshot().expect("the reply is a scope");
    ServedRequest { peer, method: &parts.method, path: parts.uri.path(), is_anonymous, stages }
}
