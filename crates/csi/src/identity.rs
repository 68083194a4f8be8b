//! The name of the driver, and its services.

use tonic::{Request, Response, async_trait};

use crate::answer::Answer;
use crate::proto::plugin_capability::{self, Service, VolumeExpansion, service, volume_expansion};
use crate::proto::{self, PluginCapability, identity_server};

/// The service `Identity`.
#[derive(Clone)]
pub struct Identity {
    pub name: String,
    pub version: String,
    /// Set if this process has the service `Controller`.
    pub is_controller: bool,
}

#[async_trait]
impl identity_server::Identity for Identity {
    async fn get_plugin_info(
        &self,
        _: Request<proto::GetPluginInfoRequest>,
    ) -> Answer<proto::GetPluginInfoResponse> {
        Ok(Response::new(proto::GetPluginInfoResponse {
            name: self.name.clone(),
            vendor_version: self.version.clone(),
            manifest: Default::default(),
        }))
    }

    async fn get_plugin_capabilities(
        &self,
        _: Request<proto::GetPluginCapabilitiesRequest>,
    ) -> Answer<proto::GetPluginCapabilitiesResponse> {
        let controller = Service { r#type: service::Type::ControllerService.into() };
        let online = VolumeExpansion { r#type: volume_expansion::Type::Online.into() };
        let all = [
            plugin_capability::Type::Service(controller),
            plugin_capability::Type::VolumeExpansion(online),
        ];
        let capability = |kind| PluginCapability { r#type: Some(kind) };
        let capabilities = if self.is_controller { all.map(capability).into() } else { Vec::new() };
        Ok(Response::new(proto::GetPluginCapabilitiesResponse { capabilities }))
    }

    /// Asks no server: a driver that is restarted because a server is away would lose its mounts.
    async fn probe(&self, _: Request<proto::ProbeRequest>) -> Answer<proto::ProbeResponse> {
        Ok(Response::new(proto::ProbeResponse { ready: Some(true) }))
    }
}
