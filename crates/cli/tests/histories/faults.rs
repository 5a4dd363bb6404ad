//! Injects faults into a cluster of real processes: up to f replicas killed or paused at a time, most often the primary,
//! and links cut, while the network loses some datagrams all the time.

use std::fmt;
use std::time::{Duration, Instant};

use nix::sys::signal::Signal;
use quorate_sim::rng::{Concern, Rng};

use crate::proxy::{Proxies, Weather};
use crate::support::Cluster;

/// What is always there: a datagram in a hundred is lost, one in a hundred comes twice, one in fifty late.
const DRIZZLE: Weather = Weather { lose: 10_000, double: 10_000, late: 20_000, late_ms: 20 };
const STORM: Weather = Weather { lose: 150_000, double: 50_000, late: 300_000, late_ms: 60 };

#[derive(Clone, Copy, Debug)]
enum Fault {
    /// Killed, and started again after a while.
    Kill,
    /// Killed and started again at once.
    Restart,
    /// Stands still for a while.
    Pause,
    /// A replica is cut off from all others, clients included.
    Isolate,
    /// One direction of some links is cut.
    OneWay,
    /// No half has a quorum.
    Split,
    /// A client and a replica do not hear one another, and the weather is bad.
    Storm,
}

const FAULTS: [Fault; 7] =
    [Fault::Kill, Fault::Pause, Fault::Isolate, Fault::Restart, Fault::OneWay, Fault::Split, Fault::Storm];

/// What has been done to a cluster.
#[derive(Debug, Default)]
pub(crate) struct Done {
    kills: u32,
    of_the_primary: u32,
    pauses: u32,
    partitions: u32,
    storms: u32,
    view: u64,
}

impl fmt::Display for Done {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kills, of_the_primary, pauses, partitions, storms, view } = self;
        write!(f, "{kills} kills and {pauses} pauses, {of_the_primary} of these of the primary; ")?;
        write!(f, "{partitions} partitions, {storms} storms; {view} view changes")
    }
}

/// Injects one fault after another until each kind was used and `enough` returns true; then heals all.
pub(crate) fn inject(cluster: &mut Cluster, proxies: &Proxies, seed: u64, enough: impl Fn() -> bool) -> Done {
    let (mut rng, mut done) = (Rng::new(seed, Concern::Faults), Done::default());
    proxies.set(DRIZZLE);
    let mut round = 0;
    // Each kind comes once soon; after that there is time to work in between.
    let calm_ms = |round: u32| if round == 0 { (100, 400) } else { (300, 2000) };
    while round == 0 || !enough() {
        let mut faults = FAULTS;
        if round > 0 {
            rng.shuffle(&mut faults);
        }
        for fault in faults {
            let (from, to) = calm_ms(round);
            rest(&mut rng, from, to);
            let primary = usize::try_from(view(cluster) % 4).unwrap();
            let victim = if rng.one_in(2) { primary } else { rng.index(4) };
            one(cluster, proxies, &mut rng, (fault, victim), &mut done);
            if matches!(fault, Fault::Kill | Fault::Restart | Fault::Pause) {
                done.of_the_primary += u32::from(victim == primary);
            }
            if round > 0 && enough() {
                break;
            }
        }
        round += 1;
    }
    proxies.cut(|_, _| false);
    done.view = view(cluster);
    done
}

fn one(
    cluster: &mut Cluster,
    proxies: &Proxies,
    rng: &mut Rng,
    (fault, victim): (Fault, usize),
    done: &mut Done,
) {
    let name = format!("r{victim}");
    match fault {
        Fault::Kill | Fault::Restart => {
            done.kills += 1;
            cluster.kill(victim);
            if matches!(fault, Fault::Kill) {
                rest(rng, 200, 1500);
            }
            cluster.run(victim);
        }
        Fault::Pause => {
            done.pauses += 1;
            cluster.signal(victim, Signal::SIGSTOP);
            rest(rng, 200, 1500);
            cluster.signal(victim, Signal::SIGCONT);
        }
        Fault::Isolate => {
            done.partitions += 1;
            proxies.cut(|from, to| from == name || to == name);
            rest(rng, 200, 1500);
        }
        Fault::OneWay => {
            done.partitions += 1;
            let other = format!("r{}", (victim + 1 + rng.index(3)) % 4);
            proxies.cut(|from, to| from == name && to != other);
            rest(rng, 200, 1500);
        }
        Fault::Split => {
            done.partitions += 1;
            // With the one that half of the clients are on the side of.
            let side = [name, format!("r{}", (victim + 1 + rng.index(3)) % 4), "client-0".to_owned()];
            proxies.cut(|from, to| side.iter().any(|one| one == from) != side.iter().any(|one| one == to));
            rest(rng, 300, 2500);
        }
        Fault::Storm => {
            done.storms += 1;
            proxies.set(STORM);
            proxies.cut(|from, to| from == "client-1" && to == name || from == name && to == "client-1");
            rest(rng, 300, 2000);
            proxies.set(DRIZZLE);
        }
    }
    proxies.cut(|_, _| false);
}

/// The highest view that a quorum has entered, as their logs say.
fn view(cluster: &Cluster) -> u64 {
    let entered = |i: usize| {
        let log = cluster.log(i);
        let line = log.lines().rev().find(|line| line.contains("entered the view"))?;
        line.split("view=").nth(1)?.split_whitespace().next()?.parse::<u64>().ok()
    };
    let mut views: Vec<u64> = (0..4).map(|i| entered(i).unwrap_or(0)).collect();
    views.sort_unstable();
    views[1]
}

fn rest(rng: &mut Rng, from_ms: u64, to_ms: u64) {
    let until = Instant::now() + Duration::from_millis(rng.between(from_ms, to_ms));
    std::thread::sleep(until.saturating_duration_since(Instant::now()));
}
