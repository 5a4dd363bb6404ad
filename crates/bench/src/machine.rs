//! The machine on which an experiment ran.

use std::fmt;
use std::fs;
use std::time::Instant;

use serde::{Deserialize, Serialize};

/// A machine and its load.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub struct Machine {
    /// The number of usable processors.
    pub cores: usize,
    /// Their model.
    pub cpu: String,
    /// The kernel.
    pub kernel: String,
    /// The load average over the last minute, at the start.
    pub load: f64,
    /// Which process was pinned to which core.
    pub pinning: String,
    /// The links between hosts.
    pub links: String,
    /// The version of quorate.
    pub version: String,
    /// The command.
    pub command: String,
    /// The date and time of the start: seconds since 1970.
    pub at: u64,
    /// How long it took.
    pub seconds: f64,
    /// The share of all processors that other programs used during the run.
    pub others_percent: f64,
    #[serde(skip)]
    busy: Option<(Instant, f64, f64)>,
}

impl Machine {
    /// Describes this machine.
    pub fn look(pinning: impl Into<String>) -> Self {
        let cpu = read("/proc/cpuinfo");
        let name = cpu.lines().find_map(|line| line.strip_prefix("model name")?.split_once(':'));
        let load = read("/proc/loadavg");
        let words: Vec<String> = std::env::args().skip(1).collect();
        let since_1970 = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        Self {
            cores: std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get),
            cpu: name.map_or_else(|| "unknown".to_owned(), |(_, name)| name.trim().to_owned()),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
            load: load.split(' ').next().and_then(|word| word.parse().ok()).unwrap_or(0.0),
            pinning: pinning.into(),
            links: "none: loopback".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            command: format!("quorate {}", words.join(" ")),
            at: since_1970.map_or(0, |time| time.as_secs()),
            seconds: 0.0,
            others_percent: 0.0,
            busy: Some((Instant::now(), all_ticks(), own_ticks())),
        }
    }

    /// Returns it with the duration, and how much of the machine other programs used, after the experiment's processes have
    /// ended.
    #[must_use]
    pub fn finished(mut self) -> Self {
        let Some((start, all, own)) = self.busy.take() else { return self };
        self.seconds = start.elapsed().as_secs_f64();
        let cores = u32::try_from(self.cores).map_or(1.0, f64::from);
        let others = (all_ticks() - all) - (own_ticks() - own);
        self.others_percent = (others / (self.seconds * TICKS_PER_S * cores) * 100.0).clamp(0.0, 100.0);
        self
    }
}

/// The kernel's unit of processor time: the same on every Linux.
const TICKS_PER_S: f64 = 100.0;

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

/// Returns the number of ticks in which processors were not idle.
fn all_ticks() -> f64 {
    let text = read("/proc/stat");
    let line = text.lines().next().unwrap_or_default();
    let ticks: Vec<f64> = line.split_whitespace().skip(1).filter_map(|word| word.parse().ok()).collect();
    // user, nice, system, idle, iowait, irq, softirq
    [0, 1, 2, 5, 6].iter().filter_map(|index| ticks.get(*index)).sum()
}

/// Returns the ticks of this process and of its children that have ended.
fn own_ticks() -> f64 {
    let text = read("/proc/self/stat");
    let behind_the_name = text.rsplit_once(')').map_or("", |(_, rest)| rest);
    let words = behind_the_name.split_whitespace().skip(11).take(4);
    words.filter_map(|word| word.parse::<f64>().ok()).sum()
}

impl fmt::Display for Machine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cores, cpu, kernel, load, pinning, links, others_percent, .. } = self;
        write!(
            f,
            "{cores} cores, {cpu}, kernel {kernel}, load {load}, others used {others_percent:.0} % of the machine\n\
             links: {links}; pinning: {pinning}"
        )
    }
}
