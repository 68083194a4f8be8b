//! The S3 door.

use std::sync::Arc;

use cairn_doors::s3::{self, S3Config};
use cairn_doors::serve;
use tokio::net::TcpListener;

use super::door::{Behind, Bound, Door, DoorArgs, DoorTask};
use crate::failure::Result;
use crate::inflight::Role;

pub const DOOR: Door = Door { name: "s3", bind };

fn bind(args: &DoorArgs, _: Role) -> Result<Option<Bound>> {
    let config = S3Config {
        domains: args.domain.clone(),
        classes: args.s3_storage_classes,
        public_acl: args.s3_public_acl,
        ..S3Config::default()
    };
    let serve = move |listener, behind: &mut Behind<'_>| Ok(serve(listener, behind, config));
    args.bind_http("S3", args.s3, Box::new(serve)).map(Some)
}

fn serve(listener: TcpListener, behind: &Behind<'_>, config: S3Config) -> DoorTask {
    let config = S3Config { pages: behind.pages.clone(), ..config };
    let (fs, admit) = (behind.fs.clone(), Arc::clone(behind.admit));
    let door = s3::service(fs, admit, &behind.metrics.door(DOOR.name), config);
    Box::pin(serve::serve(listener, door, behind.serving(DOOR.name), behind.stopped.clone()))
}
