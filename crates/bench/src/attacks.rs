//! `attacks`: what an attacker on the same machine leaves of a cluster's throughput, at half of the peak load.
//!
//! The attacker is a process of ours, with no key or with the key of one client. Each attacked run is
//! compared with a run beside a loop that takes as much processor time as the attacker did: what is missing beyond that
//! is the attack's.

use std::collections::VecDeque;
use std::future::Future as _;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::pin::Pin;
use std::process::{Child, Command, Stdio};
use std::task::{Context as TaskContext, Poll, Waker};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};
use quorate_node::caller::{CallerOptions, Heard, Pending};
use quorate_node::settings::ServiceName;
use quorate_node::{Caller, ClientNode};
use quorate_service::kv::Operation;
use quorate_wire::message::Statement;

use crate::figure::Figure;
use crate::figures::median;
use crate::machine::Machine;
use crate::nodes::Nodes;
use crate::processes::all_threads_ns;
use crate::report::{Report, Row, Shape};
use crate::{Experiment, Settings};

pub(crate) mod attacker;

use attacker::{Attack, LOOP, Sign};

/// See the module.
pub const EXPERIMENT: Experiment = Experiment {
    name: "attacks",
    source: "ours",
    about: "throughput under attack at half of the peak load, beside a loop that takes the attacker's processor time",
    run,
    figures,
};

/// The part of the experiment that attacks.
pub(crate) const PART: &str = "attacker";
/// The least share of the control run's throughput that is kept, and the most memory that an attack may cost.
const SHARE_MIN: f64 = 0.95;
const MEMORY_MIB_MAX: f64 = 32.0;
/// Operations in progress, at most.
const LANES: u16 = 128;
/// Bytes of a value of the small and of the large operation. The large one goes through the side channel.
const SMALL: usize = 8;
const LARGE: usize = 200_000;

/// The one who measures.
struct Load {
    caller: Caller,
    value: usize,
}

impl Load {
    fn open(dir: &Path) -> Result<Caller> {
        let node = ClientNode::open(dir).map_err(|trouble| anyhow!("{trouble}"))?;
        let options = CallerOptions { lanes: LANES, deadline: Duration::from_secs(30) };
        Caller::start(node.with_lanes(LANES), options).map_err(|trouble| anyhow!("{trouble}"))
    }

    fn submit(&self, number: u64) -> Pending {
        let mut operation = Vec::new();
        let value = vec![7; self.value];
        Operation::Put { key: &(number % 64).to_be_bytes(), value: &value }.encode(&mut operation);
        self.caller.submit(operation, false)
    }

    /// Offers `rate` operations a second for `span`; none: as many as are taken. Returns how many were done a second.
    fn run(&self, rate: Option<f64>, span: Duration) -> Result<f64> {
        let most = if self.value == LARGE { 8 } else { usize::from(LANES) };
        let (start, mut offered, mut done) = (Instant::now(), 0_u32, 0_u32);
        let mut open: VecDeque<Pending> = VecDeque::new();
        let mut nobody = TaskContext::from_waker(Waker::noop());
        while start.elapsed() < span {
            let due = rate.map(|rate| to_count(rate * start.elapsed().as_secs_f64()));
            while due.is_none_or(|due| offered < due) && open.len() < most {
                open.push_back(self.submit(u64::from(offered)));
                offered += 1;
            }
            // What could not be offered is not made up for later.
            offered = offered.max(due.unwrap_or(0));
            let before = open.len();
            let mut failed = None;
            open.retain_mut(|pending| match Pin::new(pending).poll(&mut nobody) {
                Poll::Pending => true,
                Poll::Ready(result) => {
                    failed = failed.take().or(result.err());
                    false
                }
            });
            ensure!(failed.is_none(), "an operation fails: {failed:?}");
            done += u32::try_from(before - open.len())?;
            std::thread::sleep(Duration::from_micros(200));
        }
        let took = start.elapsed().as_secs_f64();
        for pending in open {
            pending.wait().map_err(|error| anyhow!("an operation fails: {error:?}"))?;
        }
        Ok(f64::from(done) / took)
    }
}

#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a count of operations")]
fn to_count(number: f64) -> u32 {
    number as u32
}

/// A process that attacks, or takes processor time. It ends when this is dropped.
struct Running {
    child: Child,
    since: (Instant, u64),
}

impl Running {
    /// Starts it, and waits until it is ready.
    fn start(arguments: &[String]) -> Result<Self> {
        let mut child = Command::new(std::env::current_exe()?)
            .args(crate::CHILD)
            .arg(PART)
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .spawn()?;
        let mut line = String::new();
        let stdout = child.stdout.take().context("it has no output")?;
        BufReader::new(stdout).read_line(&mut line)?;
        let running = Self { since: (Instant::now(), all_threads_ns(child.id())?), child };
        ensure!(line.trim() == "ready", "{arguments:?} is not ready");
        Ok(running)
    }

    /// Returns which part of a core it has taken.
    fn share_of_a_core(&self) -> Result<f64> {
        let (start, before) = self.since;
        let used = all_threads_ns(self.child.id())?.saturating_sub(before);
        Ok(Duration::from_nanos(used).as_secs_f64() / start.elapsed().as_secs_f64())
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the most memory of a replica, in MiB.
fn memory_mib(nodes: &Nodes) -> f64 {
    let resident = |pid: u32| -> Option<f64> {
        let text = std::fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
        Some(line.split_whitespace().next()?.parse::<f64>().ok()? / 1024.0)
    };
    nodes.pids().into_iter().filter_map(resident).fold(0.0, f64::max)
}

/// How long the replicas have to show that an attack reaches them.
const SIGN_WAIT: Duration = Duration::from_secs(30);
/// How often to ask them: they answer no client more often.
const STATE_EVERY: Duration = Duration::from_millis(20);

/// Returns how much of a sign each replica shows.
fn shown(sign: Sign, nodes: &Nodes, load: &Load) -> Result<Vec<u64>> {
    if let Sign::Descriptors = sign {
        let count = |pid| Ok(u64::try_from(std::fs::read_dir(format!("/proc/{pid}/fd"))?.count())?);
        return nodes.pids().into_iter().map(count).collect();
    }
    Ok(statements(load)?.iter().map(|heard| stated(sign, &heard.statement)).collect())
}

/// Returns what each replica states.
fn statements(load: &Load) -> Result<Vec<Heard>> {
    let start = Instant::now();
    loop {
        let heard: Option<Vec<_>> = load.caller.statements(Duration::from_secs(1)).into_iter().collect();
        if let Some(heard) = heard {
            return Ok(heard);
        }
        ensure!(start.elapsed() < SIGN_WAIT, "a replica does not state its counters");
    }
}

/// Returns how much of a sign a replica states.
fn stated(sign: Sign, statement: &Statement) -> u64 {
    match sign {
        Sign::TurnedAway(reasons) => {
            let counted = statement.rejected.iter().filter(|(reason, _)| reasons.contains(&reason.as_str()));
            counted.map(|(_, count)| count).sum()
        }
        Sign::Lanes => statement.lanes.0.into(),
        Sign::Descriptors => 0,
    }
}

/// Waits until each target shows that an attack reaches it. Without that its figures would say nothing. Returns by how
/// much the sign has risen.
fn confirm(attack: Attack, before: &[u64], nodes: &Nodes, load: &Load) -> Result<Vec<u64>> {
    let ((sign, least), start) = (attack.sign(), Instant::now());
    loop {
        let now = shown(sign, nodes, load)?;
        let rise = now.iter().zip(before).map(|(now, before)| now.saturating_sub(*before));
        let rise: Vec<u64> = rise.take(attack.targets()).collect();
        if rise.iter().all(|rise| *rise >= least) {
            return Ok(rise);
        }
        let name = attack.name();
        ensure!(
            start.elapsed() < SIGN_WAIT,
            "{name} is no attack: at a replica, {sign:?} has to rise by {least}, and rose by {rise:?}"
        );
        std::thread::sleep(STATE_EVERY);
    }
}

/// What was measured of an attack.
#[derive(Default)]
struct Measured {
    attacked: Vec<f64>,
    control: Vec<f64>,
    cores: Vec<f64>,
    memory_mib: f64,
}

fn run(settings: Settings) -> Result<Report> {
    let (repeats, ms) = settings.effort.of((5, 1_500), (3, 1_000), (1, 50));
    let span = Duration::from_millis(ms);
    let mut report = Report::new(EXPERIMENT.name, EXPERIMENT.source, Machine::look("none, nice 0"));
    for attack in Attack::ALL {
        // A cluster of its own for each: what one has left behind is not the next one's.
        let mut nodes = Nodes::usual("attack", ServiceName::KV, "memory")?;
        nodes.start_replicas()?;
        let value = if attack.is_on_large() { LARGE } else { SMALL };
        let load = Load { caller: Load::open(&nodes.node("client-0"))?, value };
        load.run(None, span / 2)?;
        let peak = load.run(None, span)?;
        let rate = peak / 2.0;
        // The state and its checkpoints are as large as they get.
        load.run(Some(rate), 2 * span)?;
        let calm_mib = memory_mib(&nodes);
        let (mut measured, mut rise) = (Measured::default(), Vec::new());
        let before = shown(attack.sign().0, &nodes, &load)?;
        for _ in 0..repeats {
            let dir = nodes.node("client-1").display().to_string();
            let attacker = Running::start(&[attack.name().to_owned(), dir])?;
            measured.attacked.push(load.run(Some(rate), span)?);
            let cores = attacker.share_of_a_core()?;
            measured.cores.push(cores);
            measured.memory_mib = measured.memory_mib.max(memory_mib(&nodes) - calm_mib);
            rise = confirm(attack, &before, &nodes, &load)?;
            drop(attacker);
            let beside = Running::start(&[LOOP.to_owned(), format!("{cores:.3}")])?;
            measured.control.push(load.run(Some(rate), span)?);
            drop(beside);
        }
        let name = attack.name();
        let row = |variant: &str, samples: &[f64]| Row {
            system: "quorate".to_owned(),
            variant: format!("{name}, {variant}"),
            op: format!("put {value}"),
            mode: "rw".to_owned(),
            clients: u32::from(LANES),
            repeats: samples.len(),
            ops_per_s: Some(median(samples)),
            unit: "op/s".to_owned(),
            samples: samples.to_vec(),
            ..Row::default()
        };
        report.rows.extend([row("attacked", &measured.attacked), row("control", &measured.control)]);
        let pairs = measured.attacked.iter().zip(&measured.control);
        let shares: Vec<f64> = pairs.map(|(attacked, control)| attacked / control.max(1.0)).collect();
        let (share, cores) = (median(&shares), median(&measured.cores));
        let view = statements(&load)?.iter().map(|heard| heard.statement.view.0).max().unwrap_or(0);
        report.notes.push(format!("{name}: {:?} rose by {rise:?}; view {view} at the end", attack.sign().0));
        report.shapes.push(Shape::new(
            format!("{name}: keeps {:.0} % of the control run", 100.0 * SHARE_MIN),
            share >= SHARE_MIN,
            format!("{:.1} % of {:.0} op/s; the attacker took {cores:.2} cores", 100.0 * share, rate),
        ));
        report.shapes.push(Shape::at_most(
            format!("{name}: memory of a replica beyond the calm run"),
            measured.memory_mib,
            MEMORY_MIB_MAX,
            "MiB",
        ));
    }
    report
        .notes
        .push(format!("{ms} ms per run; durability memory; the load is half of what was done at most"));
    Ok(report)
}

fn figures(_rows: &[Row]) -> Vec<Figure> {
    Vec::new()
}
