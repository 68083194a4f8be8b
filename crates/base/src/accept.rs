//! A loop that accepts connections goes on after every error.

use std::io::{self, ErrorKind};
use std::time::Duration;

use crate::waits;

/// How long to pause after a connection could not be taken. Not at all where that one is to blame:
/// it ended before. What else fails is likely to fail again at once: there are no descriptors left,
/// and others must end first.
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
