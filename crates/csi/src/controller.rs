//! Creation, listing, enlargement and deletion of volumes.

use std::collections::HashMap;
use std::sync::Arc;

use tonic::{Request, Response, Status, async_trait};

use crate::answer::{Answer, Busy, on_a_thread};
use crate::capability::Use;
use crate::proto::controller_service_capability::{self as capability, Rpc, rpc};
use crate::proto::list_volumes_response::Entry;
use crate::proto::validate_volume_capabilities_response::Confirmed;
use crate::proto::{self, CapacityRange, ControllerServiceCapability, controller_server};
use crate::store::{Store, StoreError, StoredVolume};
use crate::volume::{PREFIX, VolumeId};

/// Parameter of volumes: what happens to the content of a deleted volume.
const ON_DELETE: &str = "onDelete";
/// Parameters that sidecars of Kubernetes add.
const OF_SIDECARS: &str = "csi.storage.k8s.io/";
/// Longest name of a volume, bytes.
const NAME_BYTES: usize = 128;
/// Volumes of a page by default.
const PAGE: usize = 1000;

/// The service `Controller`.
#[derive(Clone)]
pub struct Controller {
    store: Arc<dyn Store>,
    busy: Busy,
}

/// Requested size of a volume, bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Capacity {
    required: u64,
    /// Upper limit; 0 for none.
    limit: u64,
}

impl Capacity {
    fn of(range: Option<CapacityRange>) -> Result<Capacity, Status> {
        let Some(CapacityRange { required_bytes, limit_bytes }) = range else {
            return Ok(Capacity::default());
        };
        let bad = |_| Status::invalid_argument("a capacity is negative");
        let required = u64::try_from(required_bytes).map_err(bad)?;
        let limit = u64::try_from(limit_bytes).map_err(bad)?;
        if limit > 0 && required > limit {
            let text = format!("a capacity of {required} bytes, and at most {limit}");
            return Err(Status::out_of_range(text));
        }
        Ok(Capacity { required, limit })
    }

    /// Returns the quota of a new volume; 0 for none.
    fn quota(self) -> u64 {
        if self.required > 0 { self.required } else { self.limit }
    }

    fn allows(self, quota: u64) -> bool {
        quota >= self.required && (self.limit == 0 || quota <= self.limit)
    }
}

/// Converts a quota to the numbers of the interface.
fn bytes(quota: u64) -> i64 {
    i64::try_from(quota).unwrap_or(i64::MAX)
}

fn volume_of(id: &VolumeId, quota: u64) -> proto::Volume {
    let volume_id = id.to_string();
    proto::Volume { capacity_bytes: bytes(quota), volume_id, ..proto::Volume::default() }
}

/// Returns true if the bucket stays when the volume is deleted.
fn is_kept(parameters: &HashMap<String, String>) -> Result<bool, Status> {
    let mut is_kept = false;
    for (name, value) in parameters {
        match (name.as_str(), value.as_str()) {
            (ON_DELETE, "delete") => is_kept = false,
            (ON_DELETE, "retain") => is_kept = true,
            (ON_DELETE, _) => {
                let text = format!("parameter {ON_DELETE} {value:?}: use delete or retain");
                return Err(Status::invalid_argument(text));
            }
            (name, _) if name.starts_with(OF_SIDECARS) => {}
            (name, _) => {
                let text = format!("parameter {name:?}: this driver has {ON_DELETE} only");
                return Err(Status::invalid_argument(text));
            }
        }
    }
    Ok(is_kept)
}

impl Controller {
    pub fn new(store: Arc<dyn Store>) -> Controller {
        Controller { store, busy: Busy::default() }
    }
}

/// Makes a volume, or finds it. A volume that was begun and not finished is finished.
fn create(
    store: &dyn Store,
    name: &str,
    is_kept: bool,
    capacity: Capacity,
) -> Result<proto::Volume, Status> {
    let id = VolumeId::of_name(name, is_kept);
    let other = VolumeId::of_name(name, !is_kept);
    if store.find(other.as_str())?.is_some() {
        let text = format!("volume {name:?} is there with another {ON_DELETE}");
        return Err(Status::already_exists(text));
    }
    let found = store.find(id.as_str())?;
    if found.as_ref().is_some_and(|found| !found.is_own) {
        return Err(Status::already_exists(format!(
            "bucket {id} belongs to another user, who could read what is in it: remove it, or use \
             another name"
        )));
    }
    if found.is_none() {
        store.make(id.as_str())?;
    }
    let quota = match found {
        Some(StoredVolume { quota, .. }) if quota > 0 => {
            if !capacity.allows(quota) {
                let text = format!("volume {name:?} is there with a capacity of {quota} bytes");
                return Err(Status::already_exists(text));
            }
            quota
        }
        _ => {
            let quota = capacity.quota();
            if quota > 0 {
                store.set_quota(id.as_str(), quota)?;
            }
            quota
        }
    };
    store.export(id.as_str())?;
    Ok(volume_of(&id, quota))
}

/// Deletes a volume. A volume that is not there counts as deleted.
fn delete(store: &dyn Store, id: &VolumeId) -> Result<(), Status> {
    if !id.is_of_driver() {
        tracing::warn!(volume = %id, "not deleted: its bucket was not made by a driver");
        return Ok(());
    }
    match store.find(id.as_str())? {
        None => return Ok(()),
        Some(found) if !found.is_own => {
            tracing::warn!(volume = %id, "not deleted: its bucket belongs to another user");
            return Ok(());
        }
        Some(_) => {}
    }
    let gone = |done: Result<(), StoreError>| match done {
        Err(StoreError::NotFound(_)) => Ok(()),
        done => done,
    };
    gone(store.end_export(id.as_str()))?;
    if !id.is_kept() {
        gone(store.clear(id.as_str()))?;
        gone(store.remove(id.as_str()))?;
    }
    Ok(())
}

/// Enlarges a volume. A volume never becomes smaller.
fn expand(store: &dyn Store, id: &VolumeId, capacity: Capacity) -> Result<u64, Status> {
    let missing = || Status::not_found(format!("volume {id}"));
    let StoredVolume { quota, .. } = store.find(id.as_str())?.ok_or_else(missing)?;
    let smaller = || {
        let text = format!("volume {id} is larger, and a volume becomes no smaller");
        Status::out_of_range(text)
    };
    // A bucket without a quota has room for anything.
    if quota == 0 {
        return if capacity.limit == 0 { Ok(capacity.required) } else { Err(smaller()) };
    }
    if quota >= capacity.quota() {
        return if capacity.allows(quota) { Ok(quota) } else { Err(smaller()) };
    }
    if !id.is_of_driver() {
        let text = format!("volume {id}: its bucket was not made by a driver: set its quota");
        return Err(Status::failed_precondition(text));
    }
    store.set_quota(id.as_str(), capacity.quota())?;
    Ok(capacity.quota())
}

fn list(
    store: &dyn Store,
    wanted: usize,
    token: &str,
) -> Result<proto::ListVolumesResponse, Status> {
    let is_token = VolumeId::parse(token).is_some_and(|id| id.is_of_driver());
    if !token.is_empty() && !is_token {
        let text = format!("token {token:?}: no listing gave it: list from the start");
        return Err(Status::aborted(text));
    }
    let page = store.list(PREFIX, token, wanted).map_err(|error| match error {
        // The bucket at which a listing stopped was deleted.
        StoreError::Refused(text) if !token.is_empty() => Status::aborted(text),
        error => error.into(),
    })?;
    let entry = |volume: StoredVolume| {
        let id = VolumeId::parse(&volume.bucket)?;
        Some(Entry { volume: Some(volume_of(&id, volume.quota)), status: None })
    };
    let entries = page.volumes.into_iter().filter_map(entry).collect();
    Ok(proto::ListVolumesResponse { entries, next_token: page.next.unwrap_or_default() })
}

#[async_trait]
impl controller_server::Controller for Controller {
    async fn create_volume(
        &self,
        request: Request<proto::CreateVolumeRequest>,
    ) -> Answer<proto::CreateVolumeResponse> {
        let asked = request.into_inner();
        if asked.name.is_empty() || asked.name.len() > NAME_BYTES {
            let text = format!("the name of a volume has 1 to {NAME_BYTES} bytes");
            return Err(Status::invalid_argument(text));
        }
        Use::check_all(&asked.volume_capabilities)?;
        if asked.volume_content_source.is_some() {
            let text = "a source: this driver has no snapshots and no clones";
            return Err(Status::invalid_argument(text));
        }
        if !asked.mutable_parameters.is_empty() {
            return Err(Status::invalid_argument("mutable parameters: this driver has none"));
        }
        let (capacity, is_kept) =
            (Capacity::of(asked.capacity_range)?, is_kept(&asked.parameters)?);
        let turn = self.busy.turn(VolumeId::of_name(&asked.name, false).as_str())?;
        let store = Arc::clone(&self.store);
        on_a_thread(move || {
            let _turn = turn;
            let volume = Some(create(&*store, &asked.name, is_kept, capacity)?);
            Ok(proto::CreateVolumeResponse { volume })
        })
        .await
    }

    async fn delete_volume(
        &self,
        request: Request<proto::DeleteVolumeRequest>,
    ) -> Answer<proto::DeleteVolumeResponse> {
        let asked = request.into_inner();
        if asked.volume_id.is_empty() {
            return Err(Status::invalid_argument("the id of the volume is missing"));
        }
        // An id that no volume can have belongs to a volume that is not there.
        let Some(id) = VolumeId::parse(&asked.volume_id) else {
            return Ok(Response::new(proto::DeleteVolumeResponse {}));
        };
        let turn = self.busy.turn(id.as_str())?;
        let store = Arc::clone(&self.store);
        on_a_thread(move || {
            let _turn = turn;
            delete(&*store, &id).map(|()| proto::DeleteVolumeResponse {})
        })
        .await
    }

    async fn validate_volume_capabilities(
        &self,
        request: Request<proto::ValidateVolumeCapabilitiesRequest>,
    ) -> Answer<proto::ValidateVolumeCapabilitiesResponse> {
        let asked = request.into_inner();
        let store = Arc::clone(&self.store);
        if asked.volume_id.is_empty() || asked.volume_capabilities.is_empty() {
            let text = "the id or the capabilities of the volume are missing";
            return Err(Status::invalid_argument(text));
        }
        let id = VolumeId::wanted(&asked.volume_id)?;
        on_a_thread(move || {
            if store.find(id.as_str())?.is_none() {
                return Err(Status::not_found(format!("volume {id}")));
            }
            let checked = Use::check_all(&asked.volume_capabilities);
            let checked = checked.and_then(|()| is_kept(&asked.parameters));
            Ok(match checked {
                Err(status) => proto::ValidateVolumeCapabilitiesResponse {
                    confirmed: None,
                    message: status.message().to_owned(),
                },
                Ok(_) => proto::ValidateVolumeCapabilitiesResponse {
                    confirmed: Some(Confirmed {
                        volume_context: asked.volume_context,
                        volume_capabilities: asked.volume_capabilities,
                        parameters: asked.parameters,
                        mutable_parameters: HashMap::new(),
                    }),
                    message: String::new(),
                },
            })
        })
        .await
    }

    async fn list_volumes(
        &self,
        request: Request<proto::ListVolumesRequest>,
    ) -> Answer<proto::ListVolumesResponse> {
        let asked = request.into_inner();
        let wanted = match usize::try_from(asked.max_entries) {
            Err(_) => return Err(Status::invalid_argument("max_entries is negative")),
            Ok(0) => PAGE,
            Ok(wanted) => wanted.min(PAGE),
        };
        let store = Arc::clone(&self.store);
        on_a_thread(move || list(&*store, wanted, &asked.starting_token)).await
    }

    async fn controller_expand_volume(
        &self,
        request: Request<proto::ControllerExpandVolumeRequest>,
    ) -> Answer<proto::ControllerExpandVolumeResponse> {
        let asked = request.into_inner();
        let id = VolumeId::wanted(&asked.volume_id)?;
        if asked.capacity_range.is_none() {
            return Err(Status::invalid_argument("the capacity is missing"));
        }
        if asked.volume_capability.is_some() {
            Use::of(asked.volume_capability.as_ref())?;
        }
        let capacity = Capacity::of(asked.capacity_range)?;
        let turn = self.busy.turn(id.as_str())?;
        let store = Arc::clone(&self.store);
        on_a_thread(move || {
            let _turn = turn;
            let capacity_bytes = bytes(expand(&*store, &id, capacity)?);
            let node_expansion_required = false;
            Ok(proto::ControllerExpandVolumeResponse { capacity_bytes, node_expansion_required })
        })
        .await
    }

    async fn controller_get_capabilities(
        &self,
        _: Request<proto::ControllerGetCapabilitiesRequest>,
    ) -> Answer<proto::ControllerGetCapabilitiesResponse> {
        let all = [rpc::Type::CreateDeleteVolume, rpc::Type::ListVolumes, rpc::Type::ExpandVolume];
        let capability = |kind: rpc::Type| ControllerServiceCapability {
            r#type: Some(capability::Type::Rpc(Rpc { r#type: kind.into() })),
        };
        let capabilities = all.map(capability).into();
        Ok(Response::new(proto::ControllerGetCapabilitiesResponse { capabilities }))
    }
}

#[cfg(test)]
mod tests;
