//! Faults that are injected into the cluster while a suite runs.

use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Result, bail};

use super::host::Host;

/// The five liars with which a suite must pass, one at a time: wrong results, two proposals for one number, wrong
/// digests and checkpoints, MACs that only some can check, silence.
const LIARS: &[&str] = &["wrong-reply", "equivocate", "wrong-digest", "partial", "mute"];
/// From one kill to the next, and from a kill to the replica's next start.
const EVERY: Duration = Duration::from_secs(5);
const DEAD: Duration = Duration::from_secs(1);
const LOOK: Duration = Duration::from_millis(50);

/// The injected fault.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Disturbance {
    /// Nothing.
    Calm,
    /// The replica that is the first primary lies, in the way of this name.
    Liar(String),
    /// The primary is killed every five seconds, and restarted.
    Kills,
}

impl Disturbance {
    /// Reads `calm`, `lie:NAME` or `kills`; `liars` are five, `all` are calm, those and kills.
    pub(crate) fn read(text: &str) -> Result<Vec<Self>> {
        let liars = || LIARS.iter().map(|name| Self::Liar((*name).to_owned()));
        Ok(match text.split_once(':') {
            Some(("lie", name)) => vec![Self::Liar(name.to_owned())],
            _ => match text {
                "calm" => vec![Self::Calm],
                "kills" => vec![Self::Kills],
                "liars" => liars().collect(),
                "all" => [Self::Calm].into_iter().chain(liars()).chain([Self::Kills]).collect(),
                _ => bail!("`{text}`: calm, kills, lie:NAME, liars or all was expected"),
            },
        })
    }

    /// Returns the durability that a cluster needs: a killed replica must restart with its promises.
    pub(crate) fn durability(&self) -> &'static str {
        match self {
            Self::Calm | Self::Liar(_) => "memory",
            Self::Kills => "sync",
        }
    }

    /// Injects the faults that begin before the suite.
    fn begin(&self, host: &Host) -> Result<()> {
        if let Self::Liar(name) = self {
            host.quorate("fault", &["lie", "0", "--how", name])?;
        }
        Ok(())
    }

    /// Runs something under this fault; returns its result, and how many replicas were killed during the run.
    pub(crate) fn while_running<T>(&self, host: &Host, run: impl FnOnce() -> Result<T>) -> Result<(T, u32)> {
        self.begin(host)?;
        let stop = AtomicBool::new(false);
        let (ran, kills) = std::thread::scope(|scope| {
            let troubled = scope.spawn(|| self.go_on(host, &stop));
            let ran = run();
            stop.store(true, Ordering::Relaxed);
            (ran, troubled.join())
        });
        let Ok(kills) = kills else { bail!("the thread that injects faults has panicked") };
        Ok((ran?, kills?))
    }

    /// Injects the fault until `stop`, and returns how many replicas were killed.
    fn go_on(&self, host: &Host, stop: &AtomicBool) -> Result<u32> {
        let mut kills = 0;
        let stops = |after: Duration| {
            let begin = Instant::now();
            while begin.elapsed() < after && !stop.load(Ordering::Relaxed) {
                std::thread::sleep(LOOK);
            }
            stop.load(Ordering::Relaxed)
        };
        if *self != Self::Kills {
            return Ok(kills);
        }
        while !stops(EVERY) {
            // It is refused while the last one is not back yet: then the next time.
            let Ok(said) = host.quorate("fault", &["kill", "primary"]) else { continue };
            kills += 1;
            let id = said.trim_start_matches('r').split(' ').next().unwrap_or_default().to_owned();
            stops(DEAD);
            host.quorate("fault", &["heal", &id])?;
        }
        Ok(kills)
    }
}

impl fmt::Display for Disturbance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Calm => f.write_str("calm"),
            Self::Liar(name) => write!(f, "lie:{name}"),
            Self::Kills => f.write_str("kills"),
        }
    }
}
