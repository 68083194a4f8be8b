//! `cairn csi`: volumes of Kubernetes.

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use cairn_csi::{
    Access, Controller, DRIVER_NAME, Driver, Fuse, Identity, Nfs, Node, Page, Socket, Store,
    StoreError, StoredVolume, serve,
};
use clap::ValueEnum;

use crate::client::address::{bucket_path, escape};
use crate::client::api::{self, Bucket};
use crate::connection::{Connection, Server};
use crate::failure::{Failure, Result};
use crate::output;
use crate::server::{log, process, signals::Signals};

/// Make and mount volumes for Kubernetes, as a driver of the Container Storage Interface
///
/// A volume is a bucket with a quota. Its name begins with `csi-`; the driver deletes no other
/// buckets. Nodes reach volumes by NFS of the kernel (--with nfs), for which they need no
/// credentials, or by a process of `cairn mount` for each volume (--with mount).
///
/// The part `controller` makes and deletes volumes, and acts as root of the store. The part `node`
/// mounts them, and is root of its machine. With mounts, the part `node` acts as a user of its own,
/// to whom the part `controller` grants each new volume (--mount-user). docs/kubernetes.md says how
/// both are installed.
#[derive(clap::Args)]
#[command(after_help = "Environment:
  CAIRN_KEY, CAIRN_SECRET, CAIRN_TOKEN   as for other commands: root of the store for the part
                                         controller, a user who may mount for --with mount

Examples:
  cairn csi --endpoint unix:///csi/csi.sock --part controller --server http://cairn:8080 \\
      --nfs-client 192.168.10.0/24
  cairn csi --endpoint unix:///csi/csi.sock --part node --node-id $HOSTNAME --nfs cairn:2049
  cairn csi --endpoint unix:///csi/csi.sock --part node --node-id $HOSTNAME --with mount \\
      --server http://cairn:8080 --mounts /var/lib/kubelet/plugins/csi.cairn.store/mounts")]
pub struct CsiArgs {
    /// Where to serve: a Unix socket
    #[arg(long, value_name = "unix://PATH", value_parser = socket)]
    endpoint: PathBuf,
    /// Which services to have
    #[arg(long, value_enum, default_value_t = Part::All)]
    part: Part,
    /// The name of this machine in the cluster, for the part node
    #[arg(long, value_name = "NAME")]
    node_id: Option<String>,
    /// How nodes reach volumes
    #[arg(long, value_enum, default_value_t = With::Nfs)]
    with: With,
    /// The NFS door of the server, as nodes reach it; port 2049 if none is named
    #[arg(long, value_name = "HOST[:PORT]", value_parser = Nfs::parse)]
    nfs: Option<Nfs>,
    /// A network of nodes, such as 192.168.10.0/24, to which volumes are exported; may be given
    /// several times. Each client with such an address may read and change all volumes
    #[arg(long, value_name = "NETWORK")]
    nfs_client: Vec<String>,
    /// Allow a network of all addresses
    #[arg(long, requires = "nfs_client")]
    nfs_any_client: bool,
    /// The users of nodes whose uid and gid become those of nobody. With root, kubelet cannot apply
    /// fsGroup
    #[arg(long, value_enum, default_value_t = Squash::None)]
    nfs_squash: Squash,
    /// The user of the part node, who may read and write in new volumes, for the part controller
    /// --with mount. Without it only root may use them
    #[arg(long, value_name = "NAME")]
    mount_user: Option<String>,
    /// Where the part node mounts before it shows a volume to others, with --with mount
    #[arg(long, value_name = "DIR", default_value = "/var/lib/cairn/csi-mounts")]
    mounts: PathBuf,
    /// The name of the driver in the cluster
    #[arg(long, value_name = "NAME", default_value = DRIVER_NAME, value_parser = driver_name)]
    driver_name: String,
    #[command(flatten)]
    connection: Connection,
    #[command(flatten)]
    log: log::LogArgs,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Part {
    /// Both
    All,
    /// Making and deleting volumes: once in a cluster
    Controller,
    /// Mounting volumes: on each machine
    Node,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum With {
    /// By NFS of the kernel
    Nfs,
    /// By a process of `cairn mount` for each volume, which ends with the driver's container
    Mount,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Squash {
    /// Nobody
    None,
    /// Root, and its group
    Root,
    /// Everybody
    All,
}

fn socket(text: &str) -> Result<PathBuf, String> {
    let path = text.strip_prefix("unix://").or_else(|| text.strip_prefix("unix:"));
    match path.map(Path::new) {
        Some(path) if path.is_absolute() => Ok(path.to_owned()),
        _ => Err("use unix:// and an absolute path, such as unix:///csi/csi.sock".to_owned()),
    }
}

/// Checks the name of a driver: the interface wants it to be like a host name.
fn driver_name(text: &str) -> Result<String, String> {
    let is_plain = |c: char| c.is_ascii_alphanumeric();
    let is_good = (1..=63).contains(&text.len())
        && text.chars().all(|c| is_plain(c) || matches!(c, '-' | '.'))
        && text.starts_with(is_plain)
        && text.ends_with(is_plain);
    is_good.then(|| text.to_owned()).ok_or_else(|| {
        "use 1 to 63 letters, digits, hyphens and dots, with a letter or digit at both ends".into()
    })
}

pub fn run(args: &CsiArgs) -> Result<ExitCode> {
    let is_controller = args.part != Part::Node;
    let store = if is_controller { Some(Arc::new(AtServer::open(args)?)) } else { None };
    let node = match args.part {
        Part::Controller => None,
        Part::All | Part::Node => Some(node(args)?),
    };
    let controller = store.clone().map(|store| Controller::new(store));
    let version = env!("CARGO_PKG_VERSION").to_owned();
    let identity = Identity { name: args.driver_name.clone(), version, is_controller };
    let driver = Driver { identity, controller, node };
    let ended = process::run(&args.log, run_driver(args, driver));
    // The client must not be dropped on a thread of the runtime that has ended.
    drop(store);
    ended
}

async fn run_driver(args: &CsiArgs, driver: Driver) -> Result<ExitCode> {
    let mut signals = Signals::new()?;
    let socket = Socket::bind(&args.endpoint);
    let socket = socket.map_err(|error| Failure::file(&args.endpoint, &error))?;
    output::line(format!("{} at {}", args.driver_name, args.endpoint.display()))?;
    serve(driver, socket, signals.stop(None)).await;
    Ok(ExitCode::SUCCESS)
}

fn node(args: &CsiArgs) -> Result<Node> {
    let Some(id) = args.node_id.clone() else {
        return Err(Failure::usage("--node-id is missing: name this machine as its cluster does"));
    };
    if !rustix::process::geteuid().is_root() {
        return Err(Failure::new("only root mounts volumes: run as root, or --part controller"));
    }
    let access = match (args.with, &args.nfs) {
        (With::Nfs, Some(nfs)) => Access::Nfs(nfs.clone()),
        (With::Nfs, None) => {
            return Err(Failure::usage("--nfs is missing: name the NFS door of the server"));
        }
        (With::Mount, Some(_)) => {
            return Err(Failure::usage("--nfs and --with mount exclude each other"));
        }
        (With::Mount, None) => {
            let mut command: Vec<OsString> = vec![env::current_exe()?.into(), "mount".into()];
            command.push("--foreground".into());
            command.extend(args.connection.arguments());
            Access::Mount(Fuse { command, places: args.mounts.clone() })
        }
    };
    Node::new(id, access).map_err(Failure::new)
}

/// Volumes on a server, reached through its HTTP door.
struct AtServer {
    server: Server,
    reach: Reach,
}

/// Name of the user as whom drivers make volumes.
const ROOT: &str = "root";

fn volume(found: Bucket) -> StoredVolume {
    let is_own = found.owner == ROOT;
    StoredVolume { bucket: found.name, quota: found.quota_bytes, is_own }
}

/// Users of volumes.
enum Reach {
    Exports(Exports),
    /// The user that volumes are for, in addition to root, if there is one.
    User(Option<String>),
}

/// Clients to which volumes are exported.
struct Exports {
    clients: Vec<String>,
    is_any_client: bool,
    squash: Squash,
}

impl AtServer {
    fn open(args: &CsiArgs) -> Result<AtServer> {
        let clients = args.nfs_client.clone();
        if args.with == With::Nfs && args.mount_user.is_some() {
            return Err(Failure::usage("--mount-user and --with nfs exclude each other"));
        }
        let reach = match (args.with, clients.is_empty()) {
            (With::Nfs, true) => {
                let text = "--nfs-client is missing: name the networks of the nodes";
                return Err(Failure::usage(text));
            }
            (With::Mount, false) => {
                let text = "--nfs-client and --with mount exclude each other";
                return Err(Failure::usage(text));
            }
            (With::Mount, true) => Reach::User(args.mount_user.clone()),
            (With::Nfs, false) => {
                let (is_any_client, squash) = (args.nfs_any_client, args.nfs_squash);
                Reach::Exports(Exports { clients, is_any_client, squash })
            }
        };
        Ok(AtServer { server: args.connection.open()?, reach })
    }

    fn bucket(&self, name: &str) -> Result<Option<Bucket>> {
        match self.server.send("GET", &bucket_path(name)) {
            Ok(reply) => Ok(Some(reply.json()?)),
            Err(failure) if failure.is_not_found() => Ok(None),
            Err(failure) => Err(failure),
        }
    }

    fn is_exported(&self, bucket: &str) -> Result<bool> {
        let listed: serde_json::Value = self.server.send("GET", "/admin/exports")?.json()?;
        let mut exports = listed["exports"].as_array().into_iter().flatten();
        Ok(exports.any(|export| export["bucket"] == bucket))
    }

    fn add_export(&self, exports: &Exports, bucket: &str) -> Result<()> {
        let Some(found) = self.bucket(bucket)? else {
            return Err(Failure::not_found(format!("bucket {bucket}")));
        };
        let squash = exports.squash.to_possible_value();
        let new = serde_json::json!({
            "bucket": bucket,
            "user": found.owner,
            "clients": exports.clients,
            "any_client": exports.is_any_client,
            "squash": squash.as_ref().map(|value| value.get_name()),
        });
        match self.server.send_json("POST", "/admin/exports", &new) {
            // The export may exist already.
            Err(failure) if failure.is_refused() && self.is_exported(bucket)? => Ok(()),
            sent => sent.map(drop),
        }
    }

    /// Gives a user rights in a bucket, in place of any earlier rights.
    fn grant(&self, bucket: &str, user: &str, rights: &str) -> Result<()> {
        let change = serde_json::json!({ "grant": { "user": user, "rights": rights } });
        self.server.send_json("PATCH", &bucket_path(bucket), &change).map(drop)
    }

    fn delete_content(&self, bucket: &str) -> Result<()> {
        #[derive(serde::Deserialize)]
        struct ClearReply {
            more: bool,
        }
        let path = format!("{}?content", bucket_path(bucket));
        while self.server.send("DELETE", &path)?.json::<ClearReply>()?.more {}
        Ok(())
    }
}

fn why(failure: Failure) -> StoreError {
    let text = failure.to_string();
    match () {
        () if failure.is_not_found() => StoreError::NotFound(text),
        () if failure.is_full() => StoreError::Full(text),
        () if failure.is_passing() => StoreError::Unavailable(text),
        () if failure.is_refused() => StoreError::Refused(text),
        () => StoreError::Other(text),
    }
}

impl Store for AtServer {
    fn find(&self, bucket: &str) -> Result<Option<StoredVolume>, StoreError> {
        let found = self.bucket(bucket).map_err(why)?;
        Ok(found.map(volume))
    }

    fn make(&self, bucket: &str) -> Result<(), StoreError> {
        match self.server.send("PUT", &bucket_path(bucket)) {
            Err(failure) if failure.is_refused() && self.find(bucket)?.is_some() => Ok(()),
            sent => sent.map(drop).map_err(why),
        }
    }

    fn set_quota(&self, bucket: &str, bytes: u64) -> Result<(), StoreError> {
        let change = serde_json::json!({ "quota_bytes": bytes });
        self.server.send_json("PATCH", &bucket_path(bucket), &change).map(drop).map_err(why)
    }

    fn export(&self, bucket: &str) -> Result<(), StoreError> {
        match &self.reach {
            Reach::Exports(exports) => self.add_export(exports, bucket).map_err(why),
            Reach::User(Some(user)) => self.grant(bucket, user, "read,write").map_err(why),
            Reach::User(None) => Ok(()),
        }
    }

    fn end_export(&self, bucket: &str) -> Result<(), StoreError> {
        let sent = match &self.reach {
            Reach::Exports(_) => {
                let path = format!("/admin/exports/{}", escape(bucket));
                self.server.send("DELETE", &path).map(drop)
            }
            Reach::User(Some(user)) => self.grant(bucket, user, "none"),
            Reach::User(None) => Ok(()),
        };
        match sent {
            Err(failure) if failure.is_not_found() => Ok(()),
            sent => sent.map_err(why),
        }
    }

    fn list(&self, prefix: &str, after: &str, limit: usize) -> Result<Page, StoreError> {
        let (buckets, next) = api::bucket_page(&self.server, prefix, after, limit).map_err(why)?;
        Ok(Page { volumes: buckets.into_iter().map(volume).collect(), next })
    }

    fn clear(&self, bucket: &str) -> Result<(), StoreError> {
        self.delete_content(bucket).map_err(why)
    }

    fn remove(&self, bucket: &str) -> Result<(), StoreError> {
        self.server.send("DELETE", &bucket_path(bucket)).map(drop).map_err(why)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_endpoint_is_a_socket_at_an_absolute_path() {
        assert_eq!(socket("unix:///csi/csi.sock").unwrap(), Path::new("/csi/csi.sock"));
        assert_eq!(socket("unix:/csi/csi.sock").unwrap(), Path::new("/csi/csi.sock"));
        for bad in ["", "unix://", "unix://csi.sock", "/csi/csi.sock", "tcp://127.0.0.1:1"] {
            assert!(socket(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_name_of_a_driver_is_like_a_host_name() {
        assert!(driver_name(DRIVER_NAME).is_ok());
        for bad in ["", "-a", "a.", "a b", "a/b", &"a".repeat(64)] {
            assert!(driver_name(bad).is_err(), "{bad}");
        }
    }
}
