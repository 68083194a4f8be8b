//! Steps from a request to a reply.

use std::sync::{Arc, Weak};

use cairn_base::inflight::{About, Request as InFlight};
use cairn_base::{Error, Party, Scope, Share, Shares, stage};
use cairn_doors::admit::Admit;
use cairn_doors::metrics::{DoorMetrics, VerbStats};
use cairn_doors::observe::Observer;
use cairn_doors::serve::{Door, Remote};
use cairn_doors::{NoPlace, Upload, Witness};
use http::header::{CONNECTION, CONTENT_LENGTH};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode, Version};
use http_body_util::BodyExt;

use crate::attempts::Attempts;
use crate::body::Body;
use crate::failure::Failure;
use crate::forms::FormBounds;
use crate::inner::{ConsoleRequest, Inner, LoggedIn};
use crate::insight::Insight;
use crate::limits;
use crate::listeners::Listeners;
use crate::looks::Looks;
use crate::reply::{self, Reply};
use crate::route::{self, Kind};
use crate::site::Site;

/// The console. Cheap to clone.
#[derive(Clone)]
pub struct ConsoleDoor {
    inner: Arc<Inner>,
    observer: Arc<Observer>,
    stats: Arc<[Arc<VerbStats>]>,
}

impl ConsoleDoor {
    /// Makes the console; `insight` is what the process knows beyond the operations of the store.
    pub fn new(
        admit: Arc<Admit>,
        metrics: &DoorMetrics,
        site: Site,
        insight: Insight,
    ) -> ConsoleDoor {
        let observer = Arc::clone(metrics.all().observer());
        let stats = Kind::NAMES.map(|name| metrics.verb(name)).into();
        let attempts = Attempts::new(Arc::clone(admit.fs().clock()));
        let forms = Shares::new(limits::FORMS_BYTES);
        let looks = Looks::new(admit.fs(), Arc::clone(metrics.all()));
        let listeners = Arc::<Listeners>::default();
        let counted = Arc::clone(&listeners);
        metrics.all().count_more(Arc::new(move || counted.numbers()));
        let inner = Arc::new_cyclic(|own| Inner {
            admit,
            site,
            attempts,
            forms,
            listeners,
            insight,
            lookup: Arc::default(),
            looks,
            own: Weak::clone(own),
        });
        ConsoleDoor { inner, observer, stats }
    }
}

impl Door for ConsoleDoor {
    type Body = Body;
    type Reply = Scope<dyn Future<Output = Reply> + Send>;

    fn call(&self, peer: Remote, request: Request<Upload>) -> Self::Reply {
        let stages = self.observer.begin(request.headers(), peer.address.ip());
        let (method, path) = (request.method().clone(), request.uri().path().to_owned());
        let about = move || About {
            door: "console",
            operation: method.to_string().into(),
            object: path.clone(),
            client: peer.address.to_string(),
            ..About::default()
        };
        let in_flight = InFlight::new(Some(stages.trace), about);
        let (inner, stats) = (Arc::clone(&self.inner), Arc::clone(&self.stats));
        let answer = Box::pin(async move {
            let kind = Kind::of(request.method(), request.uri().path());
            let reply = inner.answer(peer, request, kind).await;
            let stages = stage::snapshot().expect("the reply is a scope");
            let length = http_body::Body::size_hint(reply.body()).lower();
            if let Some(stats) = stats.get(kind as usize) {
                stats.record(reply.status().as_u16(), &stages, length);
            }
            reply
        });
        Scope::of(stages, in_flight, answer)
    }
}

/// A request, as far as it has arrived.
struct ReceivedRequest {
    login: Option<LoggedIn>,
    body: Vec<u8>,
    /// Room that the body occupies.
    _share: Option<Share>,
}

impl Inner {
    async fn answer(&self, peer: Remote, request: Request<Upload>, kind: Kind) -> Reply {
        let host = self.site.host(&request);
        let (parts, mut upload) = request.into_parts();
        let witness = Witness::of(&parts.extensions);
        witness.note(|facts| facts.operation = Some(kind.name()));
        let (asked_headers, method) = (parts.headers.clone(), parts.method.clone());
        let version = parts.version;
        let mut data = String::new();
        let mut reply = match host {
            Err(error) => {
                witness.note(|facts| facts.is_refused = true);
                let mut reply = Failure::from(error).page(None);
                *reply.status_mut() = StatusCode::MISDIRECTED_REQUEST;
                reply
            }
            Ok(host) => {
                data = self.site.data(&host);
                let checked = match method {
                    Method::GET | Method::HEAD => {
                        Site::check_reader(&host, &parts.headers, kind.is_of_script())
                    }
                    _ => Site::check_page(&host, &parts.headers),
                };
                let came = match checked {
                    Ok(()) => self.receive(peer, &parts, &mut upload, kind).await,
                    Err(error) => Err(error.into()),
                };
                match came {
                    Ok(ReceivedRequest { login, body, _share }) => {
                        let (witness, bounds) = (witness.clone(), kind.bounds());
                        let asked = ConsoleRequest { parts, peer, host, body, bounds, witness };
                        Box::pin(route::route(self, &asked, kind, login)).await
                    }
                    Err(failure) => route::failed(&witness, kind, None, &failure),
                }
            }
        };
        if !upload.linger() && version < Version::HTTP_2 {
            reply.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
        reply::protect(reply.headers_mut(), &data);
        finish(&asked_headers, &method, reply)
    }

    /// Finds the user of a request, and then reads the body. It is read only for a user who has
    /// logged in, or is about to, and only where something may be changed.
    async fn receive(
        &self,
        peer: Remote,
        parts: &Parts,
        upload: &mut Upload,
        kind: Kind,
    ) -> Result<ReceivedRequest, Failure> {
        let login = match kind {
            Kind::Asset | Kind::LogIn => None,
            _ => self.login(&parts.headers, peer).await?,
        };
        let party = match &login {
            Some(login) => {
                let crowded = |NoPlace| {
                    Error::Unavailable("too many requests of this user: try again".into())
                };
                upload.admit(&login.caller).map_err(crowded)?;
                Party::User(login.user)
            }
            None => Party::at(peer.address.ip()),
        };
        let is_read = matches!(parts.method, Method::GET | Method::HEAD);
        if is_read || login.is_none() && kind != Kind::LogIn {
            return Ok(ReceivedRequest { login, body: Vec::new(), _share: None });
        }
        let (body, _share) = self.body(party, upload, kind.bounds()).await?;
        Ok(ReceivedRequest { login, body, _share })
    }

    /// Reads the whole body, with room for it and for the form that is made of it.
    async fn body(
        &self,
        party: Party,
        upload: &mut Upload,
        bounds: FormBounds,
    ) -> Result<(Vec<u8>, Option<Share>), Failure> {
        let most = bounds.bytes;
        let too_large = || Error::TooLarge(format!("a form of more than {most} bytes"));
        match upload.announced() {
            Some(0) => return Ok((Vec::new(), None)),
            Some(length) if length > most as u64 => return Err(too_large().into()),
            _ => {}
        }
        upload.shares(&self.forms, party);
        let room = bounds.memory(upload.announced().unwrap_or(most as u64));
        let share = self.forms.take(party, room).await;
        let mut body = Vec::new();
        while let Some(frame) = upload.frame().await {
            let Ok(bytes) = frame?.into_data() else { continue };
            if body.len() + bytes.len() > most {
                return Err(too_large().into());
            }
            body.extend_from_slice(&bytes);
        }
        Ok((body, Some(share)))
    }
}

/// Compresses the body, and takes it off a reply to HEAD.
fn finish(asked: &HeaderMap, method: &Method, mut reply: Reply) -> Reply {
    reply::compress(asked, &mut reply);
    if *method == Method::HEAD {
        if let Some(length) = http_body::Body::size_hint(reply.body()).exact() {
            reply.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(length));
        }
        *reply.body_mut() = Body::default();
    }
    reply
}
