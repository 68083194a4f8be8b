//! Mounting volumes on one machine: once for all pods that use a volume there (staged), and for
//! each of them (published).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use rustix::fs::statvfs;
use rustix::mount::{MountFlags, UnmountFlags, unmount};
use tonic::{Code, Request, Response, Status, async_trait};

use crate::answer::{Answer, Busy, on_a_thread};
use crate::capability::Use;
use crate::fuse::Fuse;
use crate::mounts;
use crate::nfs::{self, Nfs};
use crate::paths::checked;
use crate::proto::node_service_capability::{self as capability, Rpc, rpc};
use crate::proto::volume_usage::Unit;
use crate::proto::{self, NodeServiceCapability, VolumeUsage, node_server};
use crate::volume::VolumeId;

/// Way by which this machine reaches volumes.
#[derive(Clone, Debug)]
pub enum Access {
    Nfs(Nfs),
    Mount(Fuse),
}

/// The service `Node`.
#[derive(Clone)]
pub struct Node {
    id: String,
    access: Arc<Access>,
    busy: Busy,
    /// Volumes that are being examined, each at a path. If a server is away, the kernel waits, and
    /// at most one call for each of them waits with it.
    looks: Busy,
}

impl Access {
    /// Mounts a volume at its staging path. It may be mounted there already.
    fn stage(&self, volume: &VolumeId, at: &Path, wanted: &Use) -> Result<(), Status> {
        let is_nfs = matches!(self, Access::Nfs(_));
        let (mut flags, options) = nfs::part(&wanted.flags, is_nfs)?;
        if wanted.is_read_only {
            flags |= MountFlags::RDONLY;
        }
        if let Some(mount) = mounts::of_volume(at, volume)? {
            match mounts::is_dead(at) {
                true => self.drop_dead(volume, at)?,
                false if mount.is_read_only != flags.contains(MountFlags::RDONLY) => {
                    let text =
                        format!("volume {volume} is staged there with another mode of access");
                    return Err(Status::already_exists(text));
                }
                false => return Ok(()),
            }
        }
        if !at.is_dir() {
            let text = format!("{}: there is no such directory", at.display());
            return Err(Status::invalid_argument(text));
        }
        match self {
            Access::Nfs(nfs) => nfs.mount(volume, at, flags, &options),
            Access::Mount(fuse) => fuse.mount(volume, at, flags),
        }
    }

    /// Unmounts a mount whose process has died, so that the place can be mounted on again.
    fn drop_dead(&self, volume: &VolumeId, at: &Path) -> Result<(), Status> {
        tracing::warn!(%volume, at = %at.display(), "a mount has died, and is taken away");
        let gone = unmount(at, UnmountFlags::NOFOLLOW | UnmountFlags::DETACH);
        gone.map_err(|error| mounts::failed(at, "umount", &error.into()))
    }

    fn unstage(&self, volume: &VolumeId, at: Option<&Path>) -> Result<(), Status> {
        if let Some(at) = at {
            mounts::take_away(at, volume)?;
        }
        match self {
            Access::Nfs(_) => Ok(()),
            Access::Mount(fuse) => fuse.end(volume),
        }
    }

    /// Shows a staged volume to a pod.
    fn publish(
        &self,
        volume: &VolumeId,
        staged: &Path,
        target: &Path,
        wanted: &Use,
        is_read_only: bool,
    ) -> Result<(), Status> {
        let not_staged = || Status::failed_precondition(format!("volume {volume} is not staged"));
        let stage = mounts::of_volume(staged, volume)?.ok_or_else(not_staged)?;
        let is_nfs = matches!(self, Access::Nfs(_));
        let (mut flags, _) = nfs::part(&wanted.flags, is_nfs)?;
        if is_read_only || wanted.is_read_only || stage.is_read_only {
            flags |= MountFlags::RDONLY;
        }
        if mounts::is_dead(staged) {
            // Pods that use it already have to be restarted; the next one need not fail.
            self.stage(volume, staged, wanted)?;
        }
        if let Some(mount) = mounts::of_volume(target, volume)? {
            match mounts::is_dead(target) {
                true => self.drop_dead(volume, target)?,
                false if mount.is_read_only != flags.contains(MountFlags::RDONLY) => {
                    let text = format!("volume {volume} is published there with another mode");
                    return Err(Status::already_exists(text));
                }
                false => return Ok(()),
            }
        }
        let is_made = mounts::make_directory(target)?;
        mounts::bind(staged, target, flags).inspect_err(|_| {
            if is_made {
                let _ = mounts::remove_directory(target);
            }
        })
    }
}

/// Returns the usage of a mounted volume: bytes and files.
fn usage(volume: &VolumeId, at: &Path) -> Result<Vec<VolumeUsage>, Status> {
    if mounts::of_volume(at, volume)?.is_none() {
        let text = format!("volume {volume} is not mounted on {}", at.display());
        return Err(Status::not_found(text));
    }
    let found = statvfs(at).map_err(|error| mounts::failed(at, "statfs", &error.into()))?;
    let counted = |unit: Unit, total: u64, free: u64, available: u64, of: u64| {
        let number = |n: u64| i64::try_from(n.saturating_mul(of)).unwrap_or(i64::MAX);
        let used = number(total.saturating_sub(free));
        VolumeUsage { available: number(available), total: number(total), used, unit: unit.into() }
    };
    let bytes = counted(Unit::Bytes, found.f_blocks, found.f_bfree, found.f_bavail, found.f_frsize);
    let files = counted(Unit::Inodes, found.f_files, found.f_ffree, found.f_favail, 1);
    Ok(vec![bytes, files])
}

impl Node {
    /// Makes the service.
    ///
    /// # Errors
    /// In words: the interface does not allow the id, or the directory of mounts cannot be made.
    pub fn new(id: String, access: Access) -> Result<Node, String> {
        if id.is_empty() || id.len() > 256 {
            return Err(format!("node id {id:?}: use 1 to 256 bytes"));
        }
        if let Access::Mount(fuse) = &access {
            fuse.prepare()?;
        }
        Ok(Node { id, access: Arc::new(access), busy: Busy::default(), looks: Busy::default() })
    }

    /// Does something with a volume on a thread, while no other call does.
    async fn change<T: Send + 'static>(
        &self,
        volume: VolumeId,
        work: impl FnOnce(&Access, &VolumeId) -> Result<(), Status> + Send + 'static,
        answer: T,
    ) -> Answer<T> {
        let turn = self.busy.turn(volume.as_str())?;
        let access = Arc::clone(&self.access);
        on_a_thread(move || {
            let _turn = turn;
            work(&access, &volume).map(|()| answer)
        })
        .await
    }
}

/// Returns the volume of a call that names a path too. The path itself is examined on a thread,
/// because the kernel may wait there for a server.
fn volume_at(id: &str, path: &str, what: &str) -> Result<VolumeId, Status> {
    if path.is_empty() {
        return Err(Status::invalid_argument(format!("{what} is missing")));
    }
    VolumeId::wanted(id)
}

/// Returns a path from which something is to be unmounted; none if nothing can be there.
fn gone(path: &str, what: &str) -> Result<Option<PathBuf>, Status> {
    match checked(path, what) {
        Err(status) if status.code() == Code::NotFound => Ok(None),
        found => Ok(Some(found?)),
    }
}

#[async_trait]
impl node_server::Node for Node {
    async fn node_stage_volume(
        &self,
        request: Request<proto::NodeStageVolumeRequest>,
    ) -> Answer<proto::NodeStageVolumeResponse> {
        let asked = request.into_inner();
        let wanted = Use::of(asked.volume_capability.as_ref())?;
        let path = asked.staging_target_path;
        let volume = volume_at(&asked.volume_id, &path, "staging path")?;
        let stage = move |access: &Access, volume: &VolumeId| {
            access.stage(volume, &checked(&path, "staging path")?, &wanted)
        };
        self.change(volume, stage, proto::NodeStageVolumeResponse {}).await
    }

    async fn node_unstage_volume(
        &self,
        request: Request<proto::NodeUnstageVolumeRequest>,
    ) -> Answer<proto::NodeUnstageVolumeResponse> {
        let asked = request.into_inner();
        let path = asked.staging_target_path;
        let volume = volume_at(&asked.volume_id, &path, "staging path")?;
        let unstage = move |access: &Access, volume: &VolumeId| {
            access.unstage(volume, gone(&path, "staging path")?.as_deref())
        };
        self.change(volume, unstage, proto::NodeUnstageVolumeResponse {}).await
    }

    async fn node_publish_volume(
        &self,
        request: Request<proto::NodePublishVolumeRequest>,
    ) -> Answer<proto::NodePublishVolumeResponse> {
        let asked = request.into_inner();
        let wanted = Use::of(asked.volume_capability.as_ref())?;
        let (target, staged) = (asked.target_path, asked.staging_target_path);
        volume_at(&asked.volume_id, &target, "target path")?;
        let volume = volume_at(&asked.volume_id, &staged, "staging path")?;
        let is_read_only = asked.readonly;
        let publish = move |access: &Access, volume: &VolumeId| {
            let target = checked(&target, "target path")?;
            let staged = checked(&staged, "staging path")?;
            access.publish(volume, &staged, &target, &wanted, is_read_only)
        };
        self.change(volume, publish, proto::NodePublishVolumeResponse {}).await
    }

    async fn node_unpublish_volume(
        &self,
        request: Request<proto::NodeUnpublishVolumeRequest>,
    ) -> Answer<proto::NodeUnpublishVolumeResponse> {
        let asked = request.into_inner();
        let answer = proto::NodeUnpublishVolumeResponse {};
        let path = asked.target_path;
        let volume = volume_at(&asked.volume_id, &path, "target path")?;
        let unpublish = move |_: &Access, volume: &VolumeId| {
            let Some(target) = gone(&path, "target path")? else { return Ok(()) };
            mounts::take_away(&target, volume)?;
            mounts::remove_directory(&target)
        };
        self.change(volume, unpublish, answer).await
    }

    async fn node_get_volume_stats(
        &self,
        request: Request<proto::NodeGetVolumeStatsRequest>,
    ) -> Answer<proto::NodeGetVolumeStatsResponse> {
        let asked = request.into_inner();
        if asked.volume_id.is_empty() || asked.volume_path.is_empty() {
            return Err(Status::invalid_argument("the id or the path of the volume is missing"));
        }
        let volume = VolumeId::wanted(&asked.volume_id)?;
        let path = asked.volume_path;
        // Two pods of a machine may use one volume.
        let turn = self.looks.turn(&format!("{volume} at {path}"))?;
        on_a_thread(move || {
            let _turn = turn;
            // Nothing is mounted at a malformed path.
            let at = checked(&path, "volume path");
            let at = at.map_err(|why| Status::not_found(why.message()))?;
            let usage = usage(&volume, &at)?;
            Ok(proto::NodeGetVolumeStatsResponse { usage })
        })
        .await
    }

    async fn node_get_capabilities(
        &self,
        _: Request<proto::NodeGetCapabilitiesRequest>,
    ) -> Answer<proto::NodeGetCapabilitiesResponse> {
        let all = [rpc::Type::StageUnstageVolume, rpc::Type::GetVolumeStats];
        let capability = |kind: rpc::Type| NodeServiceCapability {
            r#type: Some(capability::Type::Rpc(Rpc { r#type: kind.into() })),
        };
        let capabilities = all.map(capability).into();
        Ok(Response::new(proto::NodeGetCapabilitiesResponse { capabilities }))
    }

    async fn node_get_info(
        &self,
        _: Request<proto::NodeGetInfoRequest>,
    ) -> Answer<proto::NodeGetInfoResponse> {
        let node_id = self.id.clone();
        Ok(Response::new(proto::NodeGetInfoResponse { node_id, ..Default::default() }))
    }
}
