//! The options of the door for websites.

use std::net::SocketAddr;

/// Where the door is, and which buckets it serves.
#[derive(clap::Args)]
pub struct WebsiteArgs {
    /// Address of the door for websites, which serves public buckets that are websites. Without
    /// this there is none
    #[arg(long, value_name = "ADDR")]
    #[arg(value_parser = crate::listen_address::parse)]
    pub(super) website: Option<SocketAddr>,
    /// Domain under which buckets are host names (bucket.DOMAIN) at that door; may be given several
    /// times. Any other host is the name of a bucket, such as www.example.com
    #[arg(long, value_name = "DOMAIN", requires = "website")]
    pub(super) website_domain: Vec<String>,
}
