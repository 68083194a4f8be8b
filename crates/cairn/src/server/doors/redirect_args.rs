//! The options of the door that leads to the doors with TLS.

use std::net::SocketAddr;

use hyper::Uri;

/// Where the door is, and where it leads.
#[derive(clap::Args)]
pub struct RedirectArgs {
    /// Address of a door without TLS that sends every request to the HTTP door, by https://, and
    /// answers to the authority of --acme; usually 0.0.0.0:80. Without this there is none
    #[arg(long, value_name = "ADDR", requires = "certificate")]
    #[arg(value_parser = crate::listen_address::parse)]
    pub(super) redirect: Option<SocketAddr>,
    /// Origin that --redirect leads to, if that is not the name in the request with the port of
    /// the HTTP door
    #[arg(long, value_name = "URL", requires = "redirect", value_parser = origin)]
    pub(super) redirect_to: Option<String>,
}

fn origin(text: &str) -> Result<String, &'static str> {
    let wrong = "use an origin such as https://files.example.org";
    let uri: Uri = text.parse().map_err(|_| wrong)?;
    match (
        uri.scheme_str(),
        uri.authority(),
        uri.path_and_query().map_or("/", |path| path.as_str()),
    ) {
        (Some("https"), Some(authority), "/") => Ok(format!("https://{authority}")),
        _ => Err(wrong),
    }
}
