//! The socket of a driver, and its services there.

use std::fs;
use std::io;
use std::os::unix::fs::{FileTypeExt, PermissionsExt};
use std::os::unix::net::UnixStream as Probe;
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use http::{Request, Response};
use hyper::body::Incoming;
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::timeout;
use tonic::Status;
use tonic::body::Body;
use tonic::codegen::Service;

use crate::controller::Controller;
use crate::identity::Identity;
use crate::node::Node;
use crate::proto::controller_server::{self, ControllerServer};
use crate::proto::identity_server::{self, IdentityServer};
use crate::proto::node_server::{self, NodeServer};

/// Time for calls in progress once the driver gets the signal to end.
const DRAIN: Duration = Duration::from_secs(20);
/// Pause after a connection could not be accepted.
const PAUSE: Duration = Duration::from_millis(100);
/// Calls of one connection at the same time, at most.
const CALLS: u32 = 64;
/// Longest headers of a call, bytes.
const HEADER_BYTES: u32 = 16 << 10;

/// Services of a driver. Calls of other services are answered as unimplemented.
#[derive(Clone)]
pub struct Driver {
    pub identity: Identity,
    pub controller: Option<Controller>,
    pub node: Option<Node>,
}

impl Driver {
    async fn call(self: Arc<Driver>, request: Request<Incoming>) -> Response<Body> {
        let service = request.uri().path().split('/').nth(1).unwrap_or_default().to_owned();
        let answered = match (service.as_str(), &self.controller, &self.node) {
            (identity_server::SERVICE_NAME, ..) => {
                IdentityServer::new(self.identity.clone()).call(request).await
            }
            (controller_server::SERVICE_NAME, Some(controller), _) => {
                ControllerServer::new(controller.clone()).call(request).await
            }
            (node_server::SERVICE_NAME, _, Some(node)) => {
                NodeServer::new(node.clone()).call(request).await
            }
            _ => {
                let text = format!("service {service:?}: this driver does not have it");
                Ok(Status::unimplemented(text).into_http())
            }
        };
        answered.unwrap_or_else(|never| match never {})
    }
}

/// A Unix socket that only this user can reach. It is removed when this is dropped.
pub struct Socket {
    listener: UnixListener,
    path: PathBuf,
}

impl Socket {
    /// Replaces a socket that a process has left behind.
    ///
    /// # Errors
    /// Another process serves there, or something else has the name.
    pub fn bind(path: &Path) -> io::Result<Socket> {
        if let Ok(found) = fs::symlink_metadata(path) {
            if !found.file_type().is_socket() {
                let text = "there is something else than a socket";
                return Err(io::Error::new(io::ErrorKind::AlreadyExists, text));
            }
            if Probe::connect(path).is_ok() {
                let text = "another process serves there";
                return Err(io::Error::new(io::ErrorKind::AddrInUse, text));
            }
            fs::remove_file(path)?;
        }
        let socket = Socket { listener: UnixListener::bind(path)?, path: path.to_owned() };
        fs::set_permissions(path, fs::Permissions::from_mode(0o600))?;
        Ok(socket)
    }
}

impl Drop for Socket {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.path);
    }
}

/// Serves at a socket until `stop`.
pub async fn serve(driver: Driver, socket: Socket, stop: impl Future<Output = ()>) {
    let driver = Arc::new(driver);
    let mut connections = JoinSet::new();
    let ending = watch::Sender::new(false);
    tokio::pin!(stop);
    loop {
        tokio::select! {
            () = &mut stop => break,
            taken = socket.listener.accept() => match taken {
                Ok((stream, _)) => {
                    let ends = ending.subscribe();
                    connections.spawn(converse(Arc::clone(&driver), stream, ends));
                }
                Err(error) => {
                    tracing::warn!(%error, "a connection was not taken");
                    tokio::time::sleep(PAUSE).await;
                }
            },
            Some(_) = connections.join_next() => {}
        }
    }
    drop(socket);
    ending.send_replace(true);
    let answered = async { while connections.join_next().await.is_some() {} };
    if timeout(DRAIN, answered).await.is_err() {
        tracing::warn!("calls are unanswered at the end: they will be made again");
    }
}

async fn converse(driver: Arc<Driver>, stream: UnixStream, mut ends: watch::Receiver<bool>) {
    let service = service_fn(move |request| {
        let driver = Arc::clone(&driver);
        async move { Ok::<_, std::convert::Infallible>(driver.call(request).await) }
    });
    let mut connection = pin!(
        http2::Builder::new(TokioExecutor::new())
            .max_concurrent_streams(CALLS)
            .max_header_list_size(HEADER_BYTES)
            .serve_connection(TokioIo::new(stream), service)
    );
    let ended = async move { drop(ends.wait_for(|ends| *ends).await) };
    let served = tokio::select! {
        served = &mut connection => served,
        () = ended => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = served {
        tracing::debug!(%error, "a connection ended");
    }
}
