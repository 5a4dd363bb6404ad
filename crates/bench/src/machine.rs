//! Where an experiment ran.

use std::fmt;
use std::fs;

use serde::Serialize;

/// A machine and what it was doing.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Processors that may be used.
    pub cores: usize,
    /// What they are.
    pub cpu: String,
    /// The kernel.
    pub kernel: String,
    /// The load average over the last minute, at the start.
    pub load: f64,
    /// Which process was held on which core.
    pub pinning: String,
}

impl Machine {
    /// Looks at this machine.
    pub fn look(pinning: impl Into<String>) -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let cpu = read("/proc/cpuinfo");
        let name = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        let load = read("/proc/loadavg");
        Self {
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get),
            cpu: name.map_or_else(|| "unknown".to_owned(), |(_, name)| name.trim().to_owned()),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load: load.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0.0),
            pinning: pinning.into(),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cores, cpu, kernel, load, pinning } = self;
        write!(f, "{cores} cores, {cpu}, kernel {kernel}, load {load}, pinning: {pinning}")
    }
}
