//! The options of the console.

use std::net::SocketAddr;

/// Where the console is, and where browsers find it.
#[derive(clap::Args)]
pub struct ConsoleArgs {
    /// Address of the console, pages for people; `off` for none. The default of a server is
    /// 127.0.0.1:9001 if that is free; a gateway has none. Beyond this machine it needs TLS
    #[arg(long, value_name = "ADDR|off", value_parser = place)]
    pub(super) console: Option<ConsolePlace>,
    /// Origin by which browsers reach the console, such as https://console.example.org; may be
    /// given several times. Required if --console is all addresses of this machine
    #[arg(long, value_name = "URL")]
    pub(super) console_url: Vec<String>,
    /// Origin by which browsers reach the S3 door, if that is not the host of the console with the
    /// port of --s3. Required if --console-url is https:// and --tls-cert is not given
    #[arg(long, value_name = "URL")]
    pub(super) console_s3_url: Option<String>,
    /// Origin by which others reach the HTTP door, for share links that the console makes, if that
    /// is not the host of the console with the port of --http
    #[arg(long, value_name = "URL")]
    pub(super) console_http_url: Option<String>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum ConsolePlace {
    Off,
    At(SocketAddr),
}

fn place(text: &str) -> Result<ConsolePlace, String> {
    match text {
        "off" => Ok(ConsolePlace::Off),
        text => {
            let wrong = |why| format!("{why}; or off for no console");
            crate::listen_address::parse(text).map(ConsolePlace::At).map_err(wrong)
        }
    }
}
