//! `cairn cert`: your own certificate authority, and certificates that it signs.

mod files;
mod sign;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use crate::failure::{Failure, Result};
use crate::output;
use files::Pair;
use sign::{Ca, Purpose};

/// Make an authority and certificates for TLS
///
/// All files are in one directory. Keys can be read by their owner only, certificates by everybody.
/// Keep ca.key where nobody else gets it: a server needs its own certificate and key only, and
/// clients need ca.pem.
#[derive(clap::Args)]
#[command(after_help = "Examples:
  cairn cert ca ./tls
  cairn cert server ./tls cairn.example.org 10.0.0.1
  cairn server /srv/cairn --tls-cert tls/server.pem --tls-key tls/server.key
  cairn ls --server https://cairn.example.org:8080 --ca tls/ca.pem")]
pub struct CertArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(clap::Subcommand)]
enum Command {
    /// Make an authority: DIR/ca.pem for all who trust it, DIR/ca.key to sign with
    #[command(after_help = "Example:\n  cairn cert ca ./tls --name 'Example storage'")]
    Ca {
        /// Directory of the authority
        dir: PathBuf,
        /// Name of the authority, as browsers show it
        #[arg(long, value_name = "NAME", default_value = "Cairn authority")]
        name: String,
        /// Days until it expires
        #[arg(long, value_name = "DAYS", default_value_t = 3650)]
        #[arg(value_parser = clap::value_parser!(u32).range(1..=36_500))]
        days: u32,
    },
    /// Make a certificate for a server and sign it with DIR/ca.key
    #[command(after_help = "Names are host names (*.example.org too) and addresses, as clients
write them in the URL.

Examples:
  cairn cert server ./tls cairn.example.org 10.0.0.1
  cairn cert server ./tls cairn.example.org --replace     # before it expires")]
    Server(LeafArgs),
    /// Make a certificate for a client and sign it with DIR/ca.key
    #[command(after_help = "For doors that ask clients for one, such as syslog.

Example:\n  cairn cert client ./tls web1.example.org")]
    Client(LeafArgs),
}

#[derive(clap::Args)]
struct LeafArgs {
    /// Directory with the authority
    dir: PathBuf,
    /// Host names and addresses
    #[arg(required = true, value_name = "NAME")]
    names: Vec<String>,
    /// Days until it expires; it never outlives its authority
    #[arg(long, value_name = "DAYS", default_value_t = 397)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=3650))]
    days: u32,
    /// Name of the files, without .pem and .key [default: server, or client]
    #[arg(long, value_name = "NAME")]
    file: Option<String>,
    /// Replace files that are there
    #[arg(long)]
    replace: bool,
}

/// Advice about an authority that exists.
const KEPT: &str = "with another authority, no certificate that this one has signed is trusted any \
    more. Use it (cairn cert server DIR NAME), or make the other one in another directory";

pub fn run(args: &CertArgs) -> Result<ExitCode> {
    match &args.command {
        Command::Ca { dir, name, days } => {
            let pair = Pair::named(dir, "ca");
            files::make_directory(dir)?;
            pair.write(&sign::authority(name, *days)?, false, KEPT)?;
            show(&pair)?;
        }
        Command::Server(args) => leaf(args, Purpose::Server)?,
        Command::Client(args) => leaf(args, Purpose::Client)?,
    }
    Ok(ExitCode::SUCCESS)
}

fn leaf(args: &LeafArgs, purpose: Purpose) -> Result<()> {
    let name = args.file.as_deref().unwrap_or(purpose.word());
    if name == "ca" || Path::new(name).file_name().is_none_or(|file| file != name) {
        return Err(Failure::usage(format!("--file {name:?}: use a file's name, other than ca")));
    }
    let authority = Pair::named(&args.dir, "ca");
    let ca = Ca::load(&authority.read()?)
        .map_err(|failure| failure.of(authority.certificate.display()))?;
    let (made, days) = ca.issue(&args.names, purpose, args.days)?;
    let pair = Pair::named(&args.dir, name);
    pair.write(&made, args.replace, "say --replace, or name others by --file")?;
    if days < args.days {
        output::complain(&format!("valid for {days} days only: its authority expires then"));
    }
    show(&pair)
}

fn show(pair: &Pair) -> Result<()> {
    output::line(pair.certificate.display().to_string())?;
    output::line(pair.key.display().to_string())
}
