//! Requests for blocks, byte by byte.

use cairn_base::checksum::crc32c;
use cairn_cluster::wire::tls::TlsDialer;
use cairn_cluster::wire::{Dial, Link};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

use super::Node;
use super::data::{World, block, data};

pub struct Open(Link);

pub async fn connect(node: &Node, address: &str) -> Open {
    let dialer = TlsDialer::for_blocks(node.trust.clone()).unwrap();
    Open(dialer.dial(address).await.unwrap())
}

impl Open {
    pub async fn send(&mut self, bytes: &[u8]) {
        let _ = self.0.stream.write_all(bytes).await;
        let _ = self.0.stream.flush().await;
    }

    /// The head of an answer, and what has come of its body; nothing if there is none.
    pub async fn answer(&mut self) -> String {
        let mut bytes = Vec::new();
        let mut piece = [0; 4096];
        loop {
            match self.0.stream.read(&mut piece).await {
                Ok(count) if count > 0 => bytes.extend_from_slice(&piece[..count]),
                _ => break,
            }
            if bytes.windows(4).any(|window| window == b"\r\n\r\n") {
                break;
            }
        }
        String::from_utf8_lossy(&bytes).into_owned()
    }
}

/// The head of a PUT of `data(counter, length)`, with all that it must have.
pub fn put_head(world: &World, group: u32, counter: u64, length: usize, chain: &[u64]) -> String {
    use cairn_cluster::data::MapSource;
    let crc32c = crc32c(&data(counter, length));
    let chain: Vec<String> = chain.iter().map(|id| format!("{id:x}")).collect();
    let (id, epoch, chain) = (block(counter), world.map.current().epoch, chain.join(","));
    format!(
        "PUT /blocks/{group:x}/{id} HTTP/1.1\r\nhost: cairn\r\ncontent-length: {length}\r\n\
         cairn-epoch: {epoch}\r\ncairn-owner: 5e-{counter:x}.1\r\ncairn-crc32c: {crc32c:08x}\r\n\
         cairn-chain: {chain}\r\ncairn-timeout-ms: 9000\r\n\r\n"
    )
}
