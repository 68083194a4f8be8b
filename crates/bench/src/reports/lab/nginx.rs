//! nginx and lighttpd as peers.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;

use rustix::process::Signal;

use super::ports::free_address;
use super::process::Process;
use super::site::Lab;
use super::system::{certify, installed, is_listening, write};
use crate::client::Target;
use crate::error::{Error, Result};

/// nginx at its best for static files, with a redirect at `/redirect`.
pub struct Nginx {
    pub process: Process,
    pub plain: Target,
    pub tls: Target,
    root: PathBuf,
}

const NGINX: &str = "daemon off;
@USER@
worker_processes @WORKERS@;
pid @WORK@/pid;
error_log @WORK@/error.log error;
events { worker_connections 1024; }
http {
    access_log off;
    sendfile on;
    tcp_nopush on;
    tcp_nodelay on;
    open_file_cache max=10000 inactive=1h;
    open_file_cache_valid 1h;
    keepalive_requests 1000000000;
    keepalive_timeout 1h;
    default_type application/octet-stream;
    client_body_temp_path @WORK@/body;
    proxy_temp_path @WORK@/proxy;
    fastcgi_temp_path @WORK@/fastcgi;
    uwsgi_temp_path @WORK@/uwsgi;
    scgi_temp_path @WORK@/scgi;
    ssl_certificate @WORK@/cert.pem;
    ssl_certificate_key @WORK@/key.pem;
    ssl_protocols TLSv1.2 TLSv1.3;
    server {
        listen @PLAIN@ backlog=1024;
        listen @TLS@ ssl backlog=1024;
        root @WORK@/root;
        location /live/ { open_file_cache off; }
        location = /redirect { return 302 http://127.0.0.1/elsewhere; }
    }
}
";

impl Nginx {
    /// Starts nginx with this number of worker processes; `auto` is one for each core.
    pub fn start(lab: &Lab, workers: &str) -> Result<Nginx> {
        let program = installed("nginx", "nginx-light")?;
        let work = lab.directory("nginx")?;
        let root = work.join("root");
        fs::create_dir(&root).map_err(|error| Error::file(&root, error))?;
        certify(&work)?;
        let (plain, tls) = (free_address()?, free_address()?);
        // Otherwise its workers could not read a directory of root.
        let user = if rustix::process::geteuid().is_root() { "user root root;" } else { "" };
        let text = NGINX.replace("@WORK@", &work.display().to_string()).replace("@USER@", user);
        let text = text.replace("@WORKERS@", workers);
        let conf = work.join("nginx.conf");
        write(&conf, text.replace("@PLAIN@", &plain).replace("@TLS@", &tls))?;
        let mut command = Command::new(program);
        command.arg("-p").arg(&work).arg("-c").arg(&conf);
        let mut process = Process::start(lab, "nginx", Signal::TERM, command)?;
        process.wait(|_| Ok(is_listening(&plain).then_some(())))?;
        let plain = Target::parse(&format!("http://{plain}/"))?;
        let tls = Target::parse(&format!("https://{tls}/"))?;
        Ok(Nginx { process, plain, tls, root })
    }

    /// Serves a directory at `/live/NAME/`, from which each file is opened for each request.
    pub fn serve(&self, name: &str, directory: &Path) -> Result<()> {
        let live = self.root.join("live");
        fs::create_dir_all(&live).map_err(|error| Error::file(&live, error))?;
        let link = live.join(name);
        symlink(directory, &link).map_err(|error| Error::file(&link, error))
    }

    /// Serves a file at `/NAME`.
    pub fn put(&self, name: &str, body: &[u8]) -> Result<()> {
        let path = self.root.join(name);
        if let Some(parent) = path.parent() {
            fs::create_dir_all(parent).map_err(|error| Error::file(parent, error))?;
        }
        write(&path, body)
    }
}

/// lighttpd with a redirect at `/redirect`: one process, which is its default.
pub struct Lighttpd {
    pub process: Process,
    pub plain: Target,
}

impl Lighttpd {
    pub fn start(lab: &Lab) -> Result<Lighttpd> {
        let program = installed("lighttpd", "lighttpd")?;
        let work = lab.directory("lighttpd")?;
        let address = free_address()?;
        let port = address.rsplit(':').next().unwrap_or_default();
        let conf = work.join("lighttpd.conf");
        let root = work.display();
        let text = format!(
            "server.modules = (\"mod_redirect\")\nserver.document-root = \"{root}\"\n\
             server.bind = \"127.0.0.1\"\nserver.port = {port}\n\
             server.errorlog = \"{root}/error.log\"\n\
             server.max-keep-alive-requests = 60000\n\
             url.redirect = (\"^/redirect\" => \"http://127.0.0.1/elsewhere\")\n\
             url.redirect-code = 302\n"
        );
        write(&conf, text)?;
        let mut process = Lighttpd::run(lab, &program, &conf)?;
        process.wait(|_| Ok(is_listening(&address).then_some(())))?;
        Ok(Lighttpd { process, plain: Target::parse(&format!("http://{address}/"))? })
    }

    fn run(lab: &Lab, program: &Path, conf: &Path) -> Result<Process> {
        let mut command = Command::new(program);
        command.arg("-D").arg("-f").arg(conf);
        Process::start(lab, "lighttpd", Signal::TERM, command)
    }
}
