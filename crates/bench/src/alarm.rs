//! Waiting until an instant, exactly: tokio's timers have a granularity of 1 ms.

use std::io;
use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use rustix::time::{
    Itimerspec, TimerfdClockId, TimerfdFlags, TimerfdTimerFlags, Timespec, timerfd_create,
    timerfd_settime,
};
use tokio::io::unix::AsyncFd;

/// A timer of the kernel, for one task.
pub struct Alarm {
    timer: AsyncFd<OwnedFd>,
}

impl Alarm {
    /// Makes a timer. Needs a runtime of tokio.
    #[expect(unsafe_code, reason = "tokio cannot see who owns the timer")]
    pub fn new() -> io::Result<Alarm> {
        let flags = TimerfdFlags::NONBLOCK | TimerfdFlags::CLOEXEC;
        let timer = timerfd_create(TimerfdClockId::Monotonic, flags)?;
        // SAFETY: the timer is owned by what registers it, which is neither replaced nor closed
        // while it is registered.
        Ok(Alarm { timer: unsafe { AsyncFd::register(timer)? } })
    }

    /// Waits until `instant`; returns at once if that is over.
    pub async fn wait_until(&mut self, instant: Instant) -> io::Result<()> {
        let left = instant.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Ok(());
        }
        let zero = Timespec { tv_sec: 0, tv_nsec: 0 };
        let time = Itimerspec { it_interval: zero, it_value: timespec(left) };
        timerfd_settime(self.timer.get_ref(), TimerfdTimerFlags::empty(), &time)?;
        loop {
            let mut ready = self.timer.readable().await?;
            let mut expired = [0_u8; 8];
            match rustix::io::read(self.timer.get_ref(), &mut expired) {
                Ok(_) => return Ok(()),
                Err(rustix::io::Errno::AGAIN) => ready.clear_ready(),
                Err(error) => return Err(error.into()),
            }
        }
    }
}

fn timespec(time: Duration) -> Timespec {
    Timespec {
        tv_sec: i64::try_from(time.as_secs()).unwrap_or(i64::MAX),
        tv_nsec: time.subsec_nanos().into(),
    }
}
