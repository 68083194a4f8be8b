//! Uses of a volume.

use tonic::Status;

use crate::proto::VolumeCapability;
use crate::proto::volume_capability::AccessType;
use crate::proto::volume_capability::access_mode::Mode;

/// A use of a volume that was found to be possible.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Use {
    /// Set if the mode of access allows no changes.
    pub is_read_only: bool,
    /// Options of the mount, as the caller gives them.
    pub flags: Vec<String>,
}

impl Use {
    /// Checks the use that a caller wants.
    ///
    /// # Errors
    /// `InvalidArgument`, which names what is not possible.
    pub fn of(capability: Option<&VolumeCapability>) -> Result<Use, Status> {
        let capability = capability.ok_or_else(|| missing("the capability of the volume"))?;
        let mount = match &capability.access_type {
            Some(AccessType::Mount(mount)) => mount,
            Some(AccessType::Block(_)) => {
                let text = "a volume is a file system: use volumeMode Filesystem, not Block";
                return Err(Status::invalid_argument(text));
            }
            None => return Err(missing("the type of access")),
        };
        if !mount.fs_type.is_empty() {
            let text = format!("file system {:?}: leave fsType out", mount.fs_type);
            return Err(Status::invalid_argument(text));
        }
        if !mount.volume_mount_group.is_empty() {
            let text = "a group for the mount: use fsGroup, which kubelet applies";
            return Err(Status::invalid_argument(text));
        }
        let mode = capability.access_mode.as_ref().map(|mode| mode.mode());
        let is_read_only = match mode {
            None | Some(Mode::Unknown) => return Err(missing("the mode of access")),
            Some(Mode::SingleNodeReaderOnly | Mode::MultiNodeReaderOnly) => true,
            Some(
                Mode::SingleNodeWriter | Mode::MultiNodeSingleWriter | Mode::MultiNodeMultiWriter,
            ) => false,
            Some(mode @ (Mode::SingleNodeSingleWriter | Mode::SingleNodeMultiWriter)) => {
                let text = format!("mode of access {}: this driver has none", mode.as_str_name());
                return Err(Status::invalid_argument(text));
            }
        };
        Ok(Use { is_read_only, flags: mount.mount_flags.clone() })
    }

    /// Checks several capabilities, of which there must be at least one.
    pub fn check_all(capabilities: &[VolumeCapability]) -> Result<(), Status> {
        if capabilities.is_empty() {
            return Err(missing("the capabilities of the volume"));
        }
        capabilities.iter().try_for_each(|capability| Use::of(Some(capability)).map(drop))
    }
}

fn missing(what: &str) -> Status {
    Status::invalid_argument(format!("{what} is missing"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::proto::volume_capability::{AccessMode, BlockVolume, MountVolume};

    fn capability(mode: Mode, mount: MountVolume) -> VolumeCapability {
        let access_mode = Some(AccessMode { mode: mode.into() });
        VolumeCapability { access_mode, access_type: Some(AccessType::Mount(mount)) }
    }

    #[test]
    fn only_what_is_there_may_be_wanted() {
        let of = |mode| Use::of(Some(&capability(mode, MountVolume::default())));
        assert!(!of(Mode::MultiNodeMultiWriter).unwrap().is_read_only);
        assert!(of(Mode::MultiNodeReaderOnly).unwrap().is_read_only);
        for mode in [Mode::Unknown, Mode::SingleNodeSingleWriter, Mode::SingleNodeMultiWriter] {
            assert_eq!(of(mode).unwrap_err().code(), tonic::Code::InvalidArgument, "{mode:?}");
        }
        let writer = Mode::SingleNodeWriter;
        let ext4 = MountVolume { fs_type: "ext4".into(), ..MountVolume::default() };
        assert!(Use::of(Some(&capability(writer, ext4))).is_err());
        let group = MountVolume { volume_mount_group: "7".into(), ..MountVolume::default() };
        assert!(Use::of(Some(&capability(writer, group))).is_err());
        let block = VolumeCapability {
            access_type: Some(AccessType::Block(BlockVolume {})),
            ..capability(writer, MountVolume::default())
        };
        assert!(Use::of(Some(&block)).is_err());
        assert!(Use::of(None).is_err() && Use::check_all(&[]).is_err());
    }
}
