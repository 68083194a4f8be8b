//! The HTTP door, by which mounts connect too.

use std::sync::Arc;

use cairn_doors::http::HttpDoor;
use cairn_doors::serve;
use cairn_logs::LogPaths;
use tokio::net::TcpListener;

use super::door::{Behind, Bound, Door, DoorArgs, DoorTask};
use crate::failure::Result;
use crate::inflight::Role;

pub const DOOR: Door = Door { name: "http", bind };

fn bind(args: &DoorArgs, _: Role) -> Result<Option<Bound>> {
    let paths = args.log_paths()?;
    let serve = move |listener, behind: &mut Behind<'_>| Ok(serve(listener, behind, paths));
    args.bind_http("HTTP", args.http, Box::new(serve)).map(Some)
}

fn serve(listener: TcpListener, behind: &mut Behind<'_>, paths: Arc<LogPaths>) -> DoorTask {
    let (admit, metrics) = (Arc::clone(behind.admit), behind.metrics.door(DOOR.name));
    let mut door = HttpDoor::new(admit, metrics, behind.offers.redirects.take())
        .with_connections(behind.serving.limits.connections)
        .with_log_paths(paths);
    if let Some(mounts) = behind.offers.mounts.take() {
        door = door.with_mounts(mounts);
    }
    Box::pin(serve::serve(listener, door, behind.serving(DOOR.name), behind.stopped.clone()))
}
