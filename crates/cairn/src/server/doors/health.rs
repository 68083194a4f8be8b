//! Door for health checks alone: it answers whatever clients do at the other doors. It has a
//! separate thread, since the others may be busy.

use std::io;

use cairn_doors::Upload;
use cairn_doors::http::probe;
use cairn_doors::limits::Limits;
use cairn_doors::serve::{self, Remote, Serving};
use cairn_fs::Fs;
use hyper::Request;
use tokio::net::TcpListener;
use tokio::runtime;
use tokio::sync::oneshot;

use super::door::{Behind, Bound, Door, DoorArgs, DoorTask};
use crate::failure::{Failure, Result};
use crate::inflight::Role;

pub const DOOR: Door = Door { name: "health", bind };

/// Connections at the same time, at most: some load balancers, and a kubelet.
const CONNECTIONS: usize = 256;

fn bind(args: &DoorArgs, _: Role) -> Result<Option<Bound>> {
    let Some(address) = args.health else { return Ok(None) };
    let socket = serve::bind(address)
        .map_err(|error| Failure::address("health door", "--health", address, &error))?;
    let shown = format!("http://{}", socket.local_addr()?);
    let serve = Box::new(|listener, behind: &mut Behind<'_>| Ok(serve(listener, behind)?));
    Ok(Some(Bound { socket, shown, pages: Vec::new(), is_optional: false, serve }))
}

fn serve(listener: TcpListener, behind: &Behind<'_>) -> io::Result<DoorTask> {
    let fs: Fs = behind.fs.clone();
    let door = move |_: Remote, request: Request<Upload>| {
        let fs = fs.clone();
        Box::pin(async move { probe(&fs, request.method(), request.uri().path()).await })
    };
    let limits = Limits { connections: CONNECTIONS, ..behind.serving.limits.clone() };
    // It has separate places too.
    let serving = Serving { limits, ..Serving::default() };
    let (listener, stopped) = (listener.into_std()?, behind.stopped.clone());
    let (serving_on, ended) = oneshot::channel::<()>();
    let work = async move {
        match TcpListener::from_std(listener) {
            Ok(listener) => serve::serve(listener, door, serving, stopped).await,
            Err(error) => tracing::error!(%error, "the health door cannot be served"),
        }
    };
    let runtime = runtime::Builder::new_current_thread().enable_all().build()?;
    std::thread::Builder::new().name(DOOR.name.into()).spawn(move || {
        let _until_then = serving_on;
        runtime.block_on(work);
    })?;
    Ok(Box::pin(async move {
        // This ends when the sender is dropped.
        let _ = ended.await;
    }))
}
