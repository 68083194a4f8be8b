//! Addresses on which doors listen, as options have them.

use std::net::SocketAddr;

/// Reads an address of this machine with a port.
///
/// # Errors
/// A text, followed by an example close to the address that was given.
pub fn parse(text: &str) -> Result<SocketAddr, String> {
    if let Ok(address) = text.parse() {
        return Ok(address);
    }
    let port = text.rsplit(':').next().and_then(|port| port.parse::<u16>().ok());
    let port = port.unwrap_or(9000);
    Err(format!(
        "use an address of this machine, no name, and a port: 127.0.0.1:{port} for this machine \
         alone, 0.0.0.0:{port} for all"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_example_is_near_to_what_was_given() {
        assert!(parse("127.0.0.1:9000").is_ok() && parse("[::1]:0").is_ok());
        for (text, port) in [("35001", "35001"), (":8081", "8081"), ("localhost:80", "80")] {
            let said = parse(text).unwrap_err();
            assert!(said.contains(&format!("127.0.0.1:{port} for")), "{said}");
        }
        assert!(parse("here").unwrap_err().contains("127.0.0.1:9000"));
    }
}
