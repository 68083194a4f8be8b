//! Keeps a loop that accepts connections going after every error.

use std::io::{self, ErrorKind};
use std::time::Duration;

use crate::waits;

/// Returns how long to pause after a failed `accept`, or `None` if only the incoming connection
/// failed: it ended before it was accepted. Any other error is likely to repeat at once: the
/// process has no descriptors left until other connections end.
pub fn pause_after(error: &io::Error) -> Option<Duration> {
    use ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    match error.kind() {
        ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted => None,
        _ => Some(waits::ACCEPT_RETRY),
    }
}

#[cfg(test)]
mod tests {
    use rustix::io::Errno;

    use super::*;

    #[test]
    fn it_is_paused_for_what_lasts() {
        let pause = |errno: Errno| pause_after(&errno.into()).is_some();
        let lasting = [Errno::MFILE, Errno::NFILE, Errno::NOMEM, Errno::NOBUFS, Errno::INVAL];
        assert!(lasting.into_iter().all(pause));
        assert!(![Errno::CONNABORTED, Errno::CONNRESET, Errno::INTR].into_iter().any(pause));
    }
}
