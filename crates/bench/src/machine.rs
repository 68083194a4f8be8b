//! The machine on which a run ran.

use std::fs;
use std::thread;

use serde::{Deserialize, Serialize};

#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Machine {
    pub cpu: String,
    pub cores: usize,
    pub memory_bytes: u64,
    pub kernel: String,
}

impl Machine {
    pub fn this() -> Machine {
        let field = |path: &str, name: &str| {
            let text = fs::read_to_string(path).unwrap_or_default();
            let line = text.lines().find(|line| line.starts_with(name));
            let value = line.and_then(|line| line.split_once(':'));
            value.map(|(_, value)| value.trim().to_owned()).unwrap_or_default()
        };
        let memory = field("/proc/meminfo", "MemTotal");
        let kib = memory.trim_end_matches(" kB").parse::<u64>().unwrap_or(0);
        let uname = rustix::system::uname();
        Machine {
            cpu: field("/proc/cpuinfo", "model name"),
            cores: cores(),
            memory_bytes: kib * 1024,
            kernel: uname.release().to_string_lossy().into_owned(),
        }
    }
}

pub fn cores() -> usize {
    thread::available_parallelism().map_or(1, usize::from)
}
