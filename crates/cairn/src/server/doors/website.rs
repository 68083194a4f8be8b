//! The door for websites: public buckets by the names of hosts.

use std::net::SocketAddr;

use cairn_doors::http::WebsiteDoor;
use cairn_doors::serve;
use tokio::net::TcpListener;

use super::door::{Behind, Bound, Door, DoorArgs, Served};
use crate::failure::Result;
use crate::inflight::Role;

pub const DOOR: Door = Door { name: "website", bind };

/// Where the door is, and which buckets it serves.
#[derive(clap::Args)]
pub struct WebsiteArgs {
    /// Address of the door for websites, which serves public buckets that are websites. Without
    /// this there is none
    #[arg(long, value_name = "ADDR")]
    website: Option<SocketAddr>,
    /// Domain under which buckets are host names (bucket.DOMAIN) at that door; may be given several
    /// times. Any other host is the name of a bucket, such as www.example.com
    #[arg(long, value_name = "DOMAIN", requires = "website")]
    website_domain: Vec<String>,
}

fn bind(args: &DoorArgs, _: Role) -> Result<Option<Bound>> {
    let Some(address) = args.website.website else { return Ok(None) };
    let domains = args.website.website_domain.clone();
    let serve = |listener, behind: &mut Behind<'_>| Ok(serve(listener, behind, domains));
    args.bind_http("website", address, Box::new(serve)).map(Some)
}

fn serve(listener: TcpListener, behind: &Behind<'_>, domains: Vec<String>) -> Served {
    let (fs, rng) = (behind.fs.clone(), behind.admit.rng());
    let door = WebsiteDoor::new(fs, &**rng, &behind.metrics.door(DOOR.name), domains);
    Box::pin(serve::serve(listener, door, behind.serving(DOOR.name), behind.stopped.clone()))
}
