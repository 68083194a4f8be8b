//! Responses of HTTP/1.1, as the clients of bench/ read them.

use std::io::Read;
use std::net::TcpStream;

/// Reads one response; anything but success ends the program.
pub fn receive(stream: &mut TcpStream, answer: &mut Vec<u8>, bodiless: bool) {
    answer.clear();
    let mut chunk = [0_u8; 16_384];
    loop {
        let read = stream.read(&mut chunk).expect("receive");
        assert!(read > 0, "closed after {:?}", String::from_utf8_lossy(answer));
        answer.extend_from_slice(&chunk[..read]);
        let Some(end) = answer.windows(4).position(|window| window == b"\r\n\r\n") else { continue };
        if answer.get(9) != Some(&b'2') {
            eprintln!("{}", String::from_utf8_lossy(answer));
            std::process::exit(1);
        }
        if bodiless || answer.len() >= end + 4 + length(&answer[..end]) {
            return;
        }
    }
}

fn length(head: &[u8]) -> usize {
    let head = String::from_utf8_lossy(head).to_ascii_lowercase();
    let value = head.split("\r\ncontent-length:").nth(1).and_then(|rest| rest.split("\r\n").next());
    value.map_or(0, |text| text.trim().parse().expect("a length"))
}
