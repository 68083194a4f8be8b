//! Door at which a master or chunkserver reports its state.

use std::net::SocketAddr;
use std::sync::Arc;

use cairn_base::rng::RealRng;
use cairn_doors::http::{Readiness, StatusDoor};
use cairn_doors::limits::Limits;
use cairn_doors::metrics::{Connections, Metrics, MoreNumbers};
use cairn_doors::observe::{Observer, SLOW};
use cairn_doors::serve::{self, Serving};
use tokio::net::TcpListener;
use tokio::sync::watch;

use crate::failure::{Failure, Result};
use crate::output;

/// Name of this door on stdout, in metrics and in the log of slow requests.
const NAME: &str = "status";
/// Connections at the same time, at most: Prometheus, a probe and some operators.
const CONNECTIONS: usize = 64;

#[derive(clap::Args)]
pub struct StatusArgs {
    /// Address of a door with /healthz, /readyz and /metrics, without TLS, open to all that reach
    /// it, such as 127.0.0.1:7401. Without this there is none
    #[arg(long, value_name = "ADDR")]
    #[arg(value_parser = crate::listen_address::parse)]
    status: Option<SocketAddr>,
}

impl StatusArgs {
    /// Moves the port by `further` from the given one.
    pub fn shift(&mut self, further: u16) -> Result<()> {
        self.status.as_mut().map_or(Ok(()), |address| shifted("--status", address, further))
    }
}

/// Adds `further` to the port of an address; port 0, which takes a free port, stays.
pub fn shifted(option: &str, address: &mut SocketAddr, further: u16) -> Result<()> {
    if address.port() != 0 {
        let port = address.port().checked_add(further);
        let none = || Failure::usage(format!("{option} {address}: no port is left for a disk"));
        address.set_port(port.ok_or_else(none)?);
    }
    Ok(())
}

/// Facts that a process reports about itself.
#[derive(Clone)]
pub struct ProcessFacts {
    pub role: &'static str,
    pub readiness: Readiness,
    pub numbers: Vec<MoreNumbers>,
}

impl ProcessFacts {
    /// Adds numbers.
    pub fn and(mut self, numbers: MoreNumbers) -> ProcessFacts {
        self.numbers.push(numbers);
        self
    }
}

/// The door, if there is to be one. It is bound and not yet open.
pub struct Status(Option<TcpListener>);

impl StatusArgs {
    /// Binds the door. Must be called within a runtime.
    pub fn bind(&self) -> Result<Status> {
        let Some(address) = self.status else { return Ok(Status(None)) };
        let listener = serve::listen(address)
            .map_err(|error| Failure::address("status door", "--status", address, &error))?;
        Ok(Status(Some(listener)))
    }
}

impl Status {
    /// Answers from now on, until `stopped`. Prints on stdout where the door is.
    pub fn open(self, told: ProcessFacts, stopped: &watch::Receiver<bool>) -> Result<()> {
        let Some(listener) = self.0 else { return Ok(()) };
        let shown = format!("{NAME} http://{}", listener.local_addr()?);
        let connections = Arc::new(Connections::default());
        let metrics = Metrics::of_links(Arc::clone(&connections), Observer::new(&RealRng, SLOW));
        told.numbers.into_iter().for_each(|numbers| metrics.count_more(numbers));
        let door = StatusDoor::new(told.role, told.readiness, &RealRng, metrics.door(NAME));
        let limits = Limits { connections: CONNECTIONS, ..Limits::default() };
        let serving = Serving { limits, connections, ..Serving::default() };
        tokio::spawn(serve::serve(listener, door, serving, stopped.clone()));
        output::line(shown)
    }
}
