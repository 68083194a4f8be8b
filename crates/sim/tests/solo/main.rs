#![allow(clippy::disallowed_methods, dead_code)]
#![allow(clippy::unwrap_used)]
mod cluster {
    #[path = "../../it/cluster/digest.rs"]
    pub mod digest;
    #[path = "../../it/cluster/host.rs"]
    pub mod host;
    use std::sync::atomic::{AtomicU64, Ordering};
    use std::thread;
    pub fn trace() {
        let quiet = tracing_subscriber::filter::LevelFilter::OFF.into();
        let filter = tracing_subscriber::EnvFilter::builder().with_default_directive(quiet);
        let filter = filter.from_env_lossy();
        let _ = tracing_subscriber::fmt().with_env_filter(filter).without_time().try_init();
    }
    pub fn number(name: &str, otherwise: u64) -> u64 {
        std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(otherwise)
    }
    pub fn each<T: Copy + Send + Sync>(all: &[T], work: impl Fn(T) + Sync) {
        let next = AtomicU64::new(0);
        let cores = thread::available_parallelism().map_or(1, usize::from);
        thread::scope(|scope| {
            for _ in 0..cores {
                scope.spawn(|| {
                    while let Some(one) = all.get(next.fetch_add(1, Ordering::Relaxed) as usize) {
                        work(*one);
                    }
                });
            }
        });
    }
}
#[path = "../it/masters/mod.rs"]
mod masters;
