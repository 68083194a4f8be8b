//! The door for websites: public buckets by the names of hosts.

use cairn_doors::http::WebsiteDoor;
use cairn_doors::serve;
use tokio::net::TcpListener;

use super::door::{Behind, Bound, Door, DoorArgs, DoorTask};
use crate::failure::Result;
use crate::inflight::Role;

pub const DOOR: Door = Door { name: "website", bind };

fn bind(args: &DoorArgs, _: Role) -> Result<Option<Bound>> {
    let Some(address) = args.website.website else { return Ok(None) };
    let domains = args.website.website_domain.clone();
    let serve = |listener, behind: &mut Behind<'_>| Ok(serve(listener, behind, domains));
    args.bind_http("website", address, Box::new(serve)).map(Some)
}

fn serve(listener: TcpListener, behind: &Behind<'_>, domains: Vec<String>) -> DoorTask {
    let (fs, rng) = (behind.fs.clone(), behind.admit.rng());
    let door = WebsiteDoor::new(fs, &**rng, &behind.metrics.door(DOOR.name), domains);
    Box::pin(serve::serve(listener, door, behind.serving(DOOR.name), behind.stopped.clone()))
}
