//! A process of clients: it runs the loads that the experiment requests, and answers with the results.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};
use quorate_node::services::timed;
use quorate_node::{ClientProcess, Clock, Idle, Waiting};
use quorate_service::null;
use serde::{Deserialize, Serialize};

use crate::figures::{percentile, ratio};
use crate::link::Link;
use crate::processes;

/// Operations still in progress after this time are abandoned.
const GIVE_UP: Duration = Duration::from_secs(5);
/// Maximum number of datagrams taken between two flushes.
const BURST_MAX: usize = 64;
/// Maximum number of samples kept of a load.
const SAMPLES_MAX: usize = 1 << 21;

/// Arguments and results of an operation, in bytes, and whether it is read-only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Op {
    pub(crate) argument: usize,
    pub(crate) result: u32,
    pub(crate) read_only: bool,
    /// How long the service waits before it replies, in microseconds.
    pub(crate) wait_us: u32,
}

impl Op {
    pub(crate) const fn rw(argument: usize, result: u32) -> Self {
        Self { argument, result, read_only: false, wait_us: 0 }
    }

    pub(crate) const fn ro(argument: usize, result: u32) -> Self {
        Self { argument, result, read_only: true, wait_us: 0 }
    }

    /// Returns an ordered 0/0 for which the service waits.
    pub(crate) const fn waiting(wait_us: u32) -> Self {
        Self { wait_us, ..Self::rw(0, 0) }
    }

    /// Returns its name: argument and result in KB.
    pub(crate) fn name(self) -> String {
        let kb = |bytes: usize| match (bytes, bytes % 1024) {
            (0..=8, _) => "0".to_owned(),
            (_, 0) => (bytes / 1024).to_string(),
            _ => format!("{:.2}", f64::from(u32::try_from(bytes).unwrap_or(u32::MAX)) / 1024.0),
        };
        format!("{}/{}", kb(self.argument), kb(usize::try_from(self.result).unwrap_or(usize::MAX)))
    }

    pub(crate) fn mode(self) -> &'static str {
        if self.read_only { "ro" } else { "rw" }
    }
}

/// When a load ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Until {
    /// Each lane has finished this number of operations.
    Ops(usize),
    /// This number of milliseconds has passed.
    Ms(u64),
}

/// A load that the experiment requests.
#[derive(Clone, Debug)]
pub(crate) struct Load {
    pub(crate) lanes: u16,
    pub(crate) until: Until,
    pub(crate) op: Op,
}

impl Load {
    /// Returns the line that requests it.
    pub(crate) fn line(&self) -> String {
        let until = match self.until {
            Until::Ops(count) => format!("ops {count}"),
            Until::Ms(ms) => format!("ms {ms}"),
        };
        let Op { argument, result, read_only, wait_us } = self.op;
        format!("load {} {until} {argument} {result} {read_only} {wait_us}", self.lanes)
    }

    fn parse(line: &str) -> Result<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let ["load", lanes, unit, amount, argument, result, read_only, wait_us] = *words.as_slice() else {
            bail!("no command {line:?}")
        };
        let until = match unit {
            "ops" => Until::Ops(amount.parse()?),
            _ => Until::Ms(amount.parse()?),
        };
        let op = Op {
            argument: argument.parse()?,
            result: result.parse()?,
            read_only: read_only.parse()?,
            wait_us: wait_us.parse()?,
        };
        Ok(Self { lanes: lanes.parse()?, until, op })
    }

    /// Returns the operation.
    pub(crate) fn operation(&self) -> Vec<u8> {
        let mut operation = Vec::new();
        let Op { argument, result, read_only, wait_us } = self.op;
        match wait_us {
            0 => null::operation(argument, result, read_only, &mut operation),
            // Each depends on no other, unless the replicas say so.
            wait_us => timed::operation(argument, result, wait_us, 0, &mut operation),
        }
        operation
    }

    /// Returns the length of its result.
    pub(crate) fn result_len(&self) -> usize {
        usize::try_from(self.op.result).unwrap_or(usize::MAX)
    }
}

/// The results of a load.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct Sample {
    pub(crate) done: u64,
    pub(crate) ops_per_s: f64,
    pub(crate) p25_us: f64,
    pub(crate) p50_us: f64,
    pub(crate) p75_us: f64,
    pub(crate) p99_us: f64,
    /// Number of retransmitted requests; or of lost ones, where nothing is retransmitted.
    pub(crate) resent: u64,
    /// Operations per second of processor time of all servers together.
    #[serde(default)]
    pub(crate) ops_per_core: f64,
    /// Processor time of the client processes, in microseconds an operation, and how often one of them slept.
    #[serde(default)]
    pub(crate) client_us: f64,
    #[serde(default)]
    pub(crate) client_sleeps: f64,
}

impl Sample {
    /// Returns its results with those of another process in the same run; of latencies it keeps the larger.
    pub(crate) fn with(self, other: &Self) -> Self {
        Self {
            done: self.done + other.done,
            ops_per_s: self.ops_per_s + other.ops_per_s,
            p25_us: self.p25_us.max(other.p25_us),
            p50_us: self.p50_us.max(other.p50_us),
            p75_us: self.p75_us.max(other.p75_us),
            p99_us: self.p99_us.max(other.p99_us),
            resent: self.resent + other.resent,
            ..self
        }
    }
}

/// When each lane began its operation, and the latencies of finished operations.
#[derive(Debug)]
pub(crate) struct Progress {
    start: Instant,
    until: Until,
    since: Vec<Instant>,
    left: Vec<usize>,
    took_ns: Vec<u64>,
}

impl Progress {
    /// All lanes begin.
    pub(crate) fn start(load: &Load) -> Self {
        let (start, lanes) = (Instant::now(), usize::from(load.lanes));
        let left = if let Until::Ops(count) = load.until { count } else { usize::MAX };
        let took_ns = Vec::with_capacity(1 << 16);
        Self { start, until: load.until, since: vec![start; lanes], left: vec![left; lanes], took_ns }
    }

    /// A lane's operation is finished. Returns whether it begins another one.
    pub(crate) fn next(&mut self, lane: usize) -> Result<bool> {
        let now = Instant::now();
        let since = self.since.get_mut(lane).context("no such lane")?;
        let took = now.duration_since(std::mem::replace(since, now));
        let in_time = !self.is_over_at(now);
        if in_time && self.took_ns.len() < SAMPLES_MAX {
            self.took_ns.push(u64::try_from(took.as_nanos())?);
        }
        let left = self.left.get_mut(lane).context("no such lane")?;
        *left = left.saturating_sub(1);
        Ok(in_time && *left > 0)
    }

    /// Returns whether the time of the load is over.
    pub(crate) fn is_over(&self) -> bool {
        self.is_over_at(Instant::now())
    }

    fn is_over_at(&self, now: Instant) -> bool {
        matches!(self.until, Until::Ms(ms) if now.duration_since(self.start) >= Duration::from_millis(ms))
    }

    /// Returns whether to abandon the operations in progress.
    pub(crate) fn is_hopeless(&self) -> bool {
        let time = if let Until::Ms(ms) = self.until { Duration::from_millis(ms) } else { 24 * GIVE_UP };
        self.start.elapsed() > time + GIVE_UP
    }

    /// Returns the results.
    pub(crate) fn sample(&self, resent: u64) -> Sample {
        let mut samples: Vec<f64> = self.took_ns.iter().map(|ns| ratio(*ns, 1000)).collect();
        samples.sort_by(f64::total_cmp); // once, and not for each percentile
        let seconds = match self.until {
            Until::Ms(ms) => ratio(ms, 1000),
            Until::Ops(_) => self.start.elapsed().as_secs_f64(),
        };
        let done = u64::try_from(samples.len()).unwrap_or(u64::MAX);
        Sample {
            done,
            ops_per_s: ratio(done, 1) / seconds,
            p25_us: percentile(&samples, 25),
            p50_us: percentile(&samples, 50),
            p75_us: percentile(&samples, 75),
            p99_us: percentile(&samples, 99),
            resent,
            ..Sample::default()
        }
    }
}

/// Runs the loads that the experiment requests, and answers each, until there are no more requests.
pub(crate) fn obey(mut work: impl FnMut(&Load) -> Result<Sample>) -> Result<()> {
    obey_with(|load| processes::say(&serde_json::to_string(&work(load)?)?))
}

/// The same, for work that answers itself.
pub(crate) fn obey_with(mut work: impl FnMut(&Load) -> Result<()>) -> Result<()> {
    for line in processes::ready()? {
        work(&Load::parse(&line?)?)?;
    }
    Ok(())
}

/// A process of clients of a cluster.
pub(crate) struct Clients {
    drive: ClientProcess,
    link: Link,
    clock: Clock,
    waiting: Waiting,
}

impl Clients {
    pub(crate) fn new(drive: ClientProcess, link: Link, waiting: Waiting) -> Self {
        Self { drive, link, clock: Clock::new(), waiting }
    }

    /// Keeps the lanes busy until the load ends, then waits for the operations in progress. Calls `done` for every
    /// finished operation.
    pub(crate) fn work(&mut self, load: &Load, mut done: impl FnMut()) -> Result<Sample> {
        let resent = self.drive.counters().retransmitted;
        let (operation, result) = (load.operation(), load.result_len());
        let mut progress = Progress::start(load);
        // The time before the load is not its own. After the requests it would look as if they had waited for so long.
        self.clock.look_at(Instant::now(), u64::MAX);
        for lane in 0..load.lanes {
            self.drive.invoke(self.clock.now(), lane, &operation, load.op.read_only);
        }
        let (mut under_way, mut lanes) = (load.lanes, Vec::new());
        // It waits as the clients of the product do: until a datagram arrives, or something is due.
        let mut idle = Idle::new(self.waiting);
        while under_way > 0 {
            self.drive.flush(&mut self.link);
            let looked = self.clock.look(|at| idle.looks(at));
            let (mut burst, mut now) = (0, None);
            while burst < BURST_MAX
                && let Some((source, datagram)) = self.link.receive()?
            {
                burst += 1;
                let by = self.drive.receive_from(
                    *now.get_or_insert_with(|| self.clock.looked()),
                    source,
                    datagram,
                );
                self.link.judge(by);
                if load.lanes == 1 && !self.drive.done().is_empty() {
                    break; // what else has come is not needed for this one
                }
            }
            if self.drive.due() <= looked {
                self.drive.expire(self.clock.now());
                idle.worked();
            }
            lanes.extend(self.drive.done().iter().map(|done| (done.lane, self.drive.result(done).len())));
            self.drive.clear_done();
            for (lane, len) in lanes.drain(..) {
                ensure!(len == result, "a result of {len} bytes");
                done();
                if progress.next(usize::from(lane))? {
                    self.drive.invoke(self.clock.now(), lane, &operation, load.op.read_only);
                } else {
                    under_way -= 1;
                }
            }
            if burst > 0 {
                idle.reset();
            } else {
                self.drive.set_crowded(idle.is_crowded(looked));
                self.drive.flush(&mut self.link); // retransmissions, and what was begun above
                self.link.rest(&mut idle, looked, self.drive.due())?;
                ensure!(!progress.is_hopeless(), "{under_way} operations never end");
            }
        }
        Ok(progress.sample(self.drive.counters().retransmitted - resent))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_load_is_told_as_it_is_meant() {
        for until in [Until::Ops(7), Until::Ms(300)] {
            for op in [Op::ro(4096, 1024), Op::waiting(20_000)] {
                let load = Load { lanes: 3, until, op };
                let told = Load::parse(&load.line()).unwrap_or_else(|error| unreachable!("{error}"));
                assert_eq!((told.lanes, told.until, told.op), (load.lanes, load.until, load.op));
            }
        }
        assert!(Load::parse("load 3 ops x 0 0 true").is_err());
        assert_eq!(Op::rw(4096, 8).name(), "4/0");
        assert_eq!(Op::ro(8, 256).name(), "0/0.25");
    }
}
