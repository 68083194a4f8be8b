//! Doors of a server or gateway: sockets, TLS, and what answers on them.

mod console_args;
mod nfs_args;
mod redirect_args;
mod syslog_args;
mod website_args;

mod door;

pub mod console;
pub mod health;
pub mod http;
pub mod nfs;
pub mod redirect;
pub mod s3;
pub mod syslog;
pub mod website;

pub use door::{Door, DoorArgs, Offers};

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use cairn_base::rng::RealRng;
use cairn_doors::Places;
use cairn_doors::admit::Admit;
use cairn_doors::limits::Limits;
use cairn_doors::metrics::{Connections, Metrics};
use cairn_doors::observe::Observer;
use cairn_doors::proxies::Proxies;
use cairn_doors::serve::{self, Serving};
use cairn_doors::tls::Tls;
use cairn_fs::Fs;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::task::JoinSet;

use crate::failure::{Failure, Result};
use crate::inflight::Role;
use crate::memory::ProcessMemory;
use crate::output;
use crate::server::acme::Acme;
use crate::server::{otlp, process};
use door::{Behind, Bound, say_taken};

/// All doors, in the order in which they are bound, opened and announced. A further door is an
/// entry here, and a file beside this one; its options are in [`DoorArgs`].
pub const DOORS: [Door; 8] = [
    s3::DOOR,
    http::DOOR,
    health::DOOR,
    nfs::DOOR,
    syslog::DOOR,
    website::DOOR,
    redirect::DOOR,
    console::DOOR,
];

/// Sockets of a server, bound before anything else is done.
pub struct Sockets {
    /// Names of doors, and their addresses.
    shown: Vec<(&'static str, String)>,
    /// A door that did not open, because another process began to listen at its address first.
    lost: OnceLock<&'static str>,
    observer: Mutex<Option<Observer>>,
    /// Bound doors, until the doors open.
    bound: Mutex<Option<Vec<Bound>>>,
    /// Names of buckets that only root may give.
    reserved: Vec<String>,
    proxies: Proxies,
}

/// Doors that are open.
pub struct Open(JoinSet<()>);

impl Open {
    /// Waits until all connections have ended, or were given up.
    pub async fn join(mut self) {
        while self.0.join_next().await.is_some() {}
    }
}

impl DoorArgs {
    /// Loads the certificate of the doors, and what renews it if an authority signs it by ACME.
    pub fn load_tls(&self) -> Result<(Option<Arc<Tls>>, Option<Acme>)> {
        let acme = self.acme.open()?;
        let Some((certificate, key)) = self.certificate() else { return Ok((None, acme)) };
        let authorities = self.syslog.syslog_client_ca.as_ref();
        for file in [&certificate, &key].into_iter().chain(authorities) {
            File::open(file).map_err(|error| Failure::file(file, &error))?;
        }
        let what = format!("TLS with {} and {}", certificate.display(), key.display());
        let loaded = Tls::load_private(&certificate, &key, authorities.map(PathBuf::as_path));
        let loaded = loaded.map_err(|error| Failure::from(error).of(what))?;
        Ok((Some(loaded), acme))
    }

    fn observer(&self) -> Result<Observer> {
        let slow = Duration::from_millis(self.slow_ms);
        match &self.otlp {
            None => Ok(Observer::new(&RealRng, slow)),
            Some(url) => {
                let export = otlp::export(url)?;
                Ok(Observer::exporting(&RealRng, slow, self.otlp_ratio, export))
            }
        }
    }

    /// Binds all addresses, for a process of this role. Must be called within a runtime.
    pub fn listen(&self, role: Role) -> Result<Sockets> {
        let (mut shown, mut all) = (Vec::new(), Vec::new());
        for door in DOORS {
            if let Some(bound) = (door.bind)(self, role)? {
                shown.push((door.name, bound.shown.clone()));
                all.push(bound);
            }
        }
        let observer = Mutex::new(Some(self.observer()?));
        let lost = OnceLock::new();
        let (bound, reserved) = (Mutex::new(Some(all)), self.reserved_names());
        let proxies = Proxies::new(self.trusted_proxy.clone());
        Ok(Sockets { shown, lost, observer, bound, reserved, proxies })
    }
}

impl Sockets {
    /// Returns the address of a door in the form for clients; empty if there is no such door.
    pub fn shown(&self, door: &Door) -> &str {
        let found = self.open().find(|(name, _)| *name == door.name);
        found.map_or("", |(_, shown)| shown)
    }

    /// Prints on stdout where the doors are: from here on they answer.
    pub fn announce(&self) -> Result<()> {
        self.open().try_for_each(|(name, shown)| output::line(format!("{name} {shown}")))
    }

    fn open(&self) -> impl Iterator<Item = &(&'static str, String)> {
        self.shown.iter().filter(|(name, _)| self.lost.get() != Some(name))
    }
}

/// Opens the doors.
pub fn start(
    fs: &Fs,
    admit: &Arc<Admit>,
    offers: Offers,
    sockets: &Sockets,
    tls: Option<Arc<Tls>>,
    acme: Option<Acme>,
    stopped: &watch::Receiver<bool>,
) -> Result<Open> {
    let taken = sockets.bound.lock().take().zip(sockets.observer.lock().take());
    let (bound, observer) = taken.ok_or_else(|| Failure::new("the doors are open already"))?;
    let connections = Arc::new(Connections::default());
    let metrics = Metrics::new(fs.clone(), Arc::clone(&connections), observer);
    // The doors share the number of files that may be open.
    let most = process::connections_of(bound.len() as u64);
    let limits = Limits { connections: most, ..Limits::default() };
    fs.reserve_names(sockets.reserved.clone());
    metrics.count_lines(&offers.lines);
    offers.numbers.iter().for_each(|numbers| metrics.count_more(Arc::clone(numbers)));
    let records = offers.records.clone().counting(metrics.traffic());
    let offers = Offers { records, ..offers };
    let memory = ProcessMemory::now().bytes;
    let places = Arc::new(Places::within(memory.unwrap_or(u64::MAX)));
    metrics.count_places(&places);
    let (tls_of, proxies) = (tls.clone(), sockets.proxies.clone());
    let serving =
        Serving { tls: tls_of, limits, connections, places, proxies, ..Serving::default() };
    let pages = bound.iter().flat_map(|bound| bound.pages.clone()).collect();
    let shown = &sockets.shown;
    let mut behind = Behind { fs, admit, offers, metrics, serving, stopped, pages, shown };
    let mut open = JoinSet::new();
    for (bound, (name, _)) in bound.into_iter().zip(&sockets.shown) {
        let Bound { socket, serve, is_optional, shown, .. } = bound;
        match serve::begin(socket) {
            Ok(listener) => drop(open.spawn(serve(listener, &mut behind)?)),
            Err(error) if is_optional && error.kind() == io::ErrorKind::AddrInUse => {
                say_taken(name, &shown);
                let _ = sockets.lost.set(name);
            }
            Err(error) => return Err(error.into()),
        }
    }
    if let Some(tls) = tls {
        // These never end on their own.
        if let Some(acme) = acme {
            tokio::spawn(acme.run(Arc::clone(&tls)));
        }
        tokio::spawn(tls.watch());
    }
    Ok(Open(open))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Command {
        #[command(flatten)]
        doors: DoorArgs,
    }

    #[test]
    fn hosts_of_the_store_and_buckets_of_records_are_reserved() {
        let args = Command::parse_from([
            "cairn",
            "--console-url=https://Console.example.org:9001/",
            "--domain=s3.example.org",
            "--audit-bucket=audit",
        ]);
        let mut names = args.doors.reserved_names();
        names.sort_unstable();
        assert_eq!(names, ["audit", "console.example.org", "localhost", "s3.example.org"]);
    }

    #[tokio::test]
    async fn doors_that_are_asked_for_are_bound_in_their_order() {
        let s3_and_http = ["cairn", "--s3=127.0.0.1:0", "--http=127.0.0.1:0"];
        for (more, names) in [
            (&[][..], &["s3", "http"][..]),
            (&["--nfs=127.0.0.1:0"], &["s3", "http", "nfs"]),
            (&["--health=127.0.0.1:0"], &["s3", "http", "health"]),
            (&["--console=127.0.0.1:0"], &["s3", "http", "console"]),
        ] {
            let args = Command::parse_from([&s3_and_http[..], more].concat()).doors;
            let sockets = args.listen(Role::Gateway).unwrap();
            let shown: Vec<&str> = sockets.shown.iter().map(|(name, _)| *name).collect();
            assert_eq!(shown, names);
            assert!(sockets.shown(&s3::DOOR).starts_with("http://127.0.0.1:"));
            assert_eq!(sockets.shown(&nfs::DOOR).is_empty(), !names.contains(&"nfs"));
        }
    }
}
