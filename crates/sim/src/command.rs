//! Implements `quorate sim`: runs seeds or scenarios, lists scenarios, replays a run.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::time::{Duration, Instant};

pub use quorate_pbft::Config;
use quorate_wire::{ClientId, Cluster, Timestamp};
use serde_json::{Value, json};

use crate::pool;
use crate::report::Failure;
use crate::scenario::{self, Scenario};
use crate::summary::Counters;
use crate::swarm;
use crate::trace::Line;
use crate::work::Workers;

/// Batches that each seed of the swarm makes final, at least.
pub const BATCHES: u64 = 200;
/// How many failures a summary keeps. The others are counted.
const FAILURES_MAX: usize = 16;

/// Runs a seed of the swarm: [`swarm::run`], or [`swarm::run_service`] with another service.
#[derive(Clone, Copy)]
pub struct Swarm(pub fn(u64, &swarm::Ask<'_>) -> swarm::Run);

impl Default for Swarm {
    fn default() -> Self {
        Self(swarm::run)
    }
}

impl std::fmt::Debug for Swarm {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Swarm")
    }
}

/// Which seeds are run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Seeds {
    /// One.
    One(u64),
    /// This number of them, from a first one on.
    Range(u64, u64),
    /// From a first one on, for so long.
    For(u64, Duration),
}

/// The options of `run`.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// A scenario by name, or `all` of them; none: the swarm.
    pub scenario: Option<String>,
    /// The swarm.
    pub swarm: Swarm,
    /// Which seeds.
    pub seeds: Seeds,
    /// Replicas; none: 4, and for scenarios every size that they name.
    pub n: Option<u16>,
    /// Faulty replicas that the swarm's cluster tolerates; none: as many as it can.
    pub f: Option<u16>,
    /// The swarm's settings, if they are not to follow from the seed. They obey the rules of `Config`.
    pub config: Option<Config>,
    /// How many runs at a time; 0: one for each core. The result does not depend on it.
    pub jobs: usize,
    /// Ends each run after this many steps of the world; 0: when it is over.
    pub steps: u64,
    /// How many last lines of each failed run's trace are kept; 0: none.
    pub lines: usize,
    /// The swarm's replicas have workers, each another number of them and another engine.
    pub workers: bool,
    /// The swarm draws only what it drew at first.
    pub plain: bool,
}

impl Default for RunOptions {
    fn default() -> Self {
        Self {
            scenario: None,
            swarm: Swarm::default(),
            seeds: Seeds::Range(1, 1),
            n: None,
            f: None,
            config: None,
            jobs: 1,
            steps: 0,
            lines: 0,
            workers: false,
            plain: false,
        }
    }
}

/// Why nothing was run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Refused {
    /// No scenario has this name.
    NoScenario(String),
    /// No cluster has this size.
    NoCluster(u16),
    /// The scenario does not run at this size.
    NotAtSize {
        /// The scenario.
        name: &'static str,
        /// The size asked for.
        n: u16,
        /// The sizes that it has.
        sizes: &'static [usize],
    },
}

impl std::fmt::Display for Refused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::NoScenario(name) => {
                write!(f, "no scenario is called {name}; `quorate sim list` names them")
            }
            Self::NoCluster(n) => write!(f, "n = {n}: a simulated cluster has from 1 to 64 replicas"),
            Self::NotAtSize { name, n, sizes } => {
                write!(f, "{name} does not run at n = {n}, but at {sizes:?}")
            }
        }
    }
}

impl std::error::Error for Refused {}

/// The results of all runs together.
#[derive(Clone, Debug, Default)]
pub struct Summary {
    /// Runs.
    pub runs: u64,
    /// Runs in which a rule was broken, a correct replica panicked, or a scenario's fault did not happen.
    pub violations: u64,
    /// Runs in which not everything finished.
    pub stuck: u64,
    /// The sum of all counters.
    pub counters: Counters,
    /// Simulated time, in nanoseconds.
    pub simulated_ns: u128,
    /// Time on a processor, in nanoseconds.
    pub cpu_ns: u128,
    /// Over every input and action of correct replicas, of all runs in their order.
    pub hash: [u8; 32],
    /// The first failures. At most 16.
    pub failures: Vec<Failure>,
    /// The last lines of the first failed run, if they were asked for.
    pub lines: Vec<Line>,
    /// The results of each scenario's runs, by its name and the size of the cluster.
    pub scenarios: BTreeMap<(&'static str, usize), Shown>,
}

/// The results of one scenario's runs at one size.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Shown {
    /// Runs.
    pub runs: u64,
    /// Those that failed.
    pub failed: u64,
    /// How often what it expects has happened.
    pub provoked: BTreeMap<&'static str, u64>,
}

impl Summary {
    /// Returns whether every run went as it must.
    pub fn is_good(&self) -> bool {
        self.violations == 0 && self.stuck == 0
    }

    /// Returns the summary as one JSON object.
    pub fn to_json(&self) -> Value {
        let seconds = |ns: u128| u64::try_from(ns / 1_000_000).unwrap_or(u64::MAX);
        let mut object = json!({
            "seeds": self.runs,
            "violations": self.violations,
            "stuck": self.stuck,
            "simulated_s": seconds(self.simulated_ns) / 1000,
            "cpu_s": millis(seconds(self.cpu_ns)),
            "trace_hash": hex(&self.hash),
            "missing_messages": self.counters.missing_kinds(),
            "missing_rejects": self.counters.missing_rejects(),
            "failures": self.failures.iter().map(ToString::to_string).collect::<Vec<_>>(),
        });
        if let (Value::Object(object), Value::Object(counts)) = (&mut object, self.counters.to_json()) {
            object.extend(counts);
            let shown = |((name, n), shown): (&(&'static str, usize), &Shown)| {
                let Shown { runs, failed, provoked } = shown;
                json!({ "scenario": name, "n": n, "runs": runs, "failed": failed, "provoked": provoked })
            };
            if !self.scenarios.is_empty() {
                object.insert("scenarios".to_owned(), self.scenarios.iter().map(shown).collect());
            }
        }
        object
    }

    fn note_failure(&mut self, failure: Failure, lines: Vec<Line>) {
        if failure.is_stuck() {
            self.stuck += 1;
        } else {
            self.violations += 1;
        }
        if self.failures.is_empty() {
            self.lines = lines;
        }
        if self.failures.len() < FAILURES_MAX {
            self.failures.push(failure);
        }
    }
}

/// Thousandths as a number with a fraction.
fn millis(count: u64) -> Value {
    let text = format!("{}.{:03}", count / 1000, count % 1000);
    serde_json::from_str(&text).unwrap_or(Value::Null)
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        _ = write!(text, "{byte:02x}");
        text
    })
}

/// Runs what is asked for, several at a time. `told` gets what has come of it so far after each run, in
/// the order of the seeds, and the failure if it has failed.
pub fn run(
    options: &RunOptions,
    mut told: impl FnMut(&Summary, Option<&Failure>),
) -> Result<Summary, Refused> {
    let plays = plays(options)?;
    let started = Instant::now();
    let mut summary = Summary::default();
    let mut hasher = blake3::Hasher::new();
    let (first, seeds, until) = match options.seeds {
        Seeds::One(seed) => (seed, 1, None),
        Seeds::Range(first, count) => (first, count, None),
        Seeds::For(first, time) => (first, u64::MAX, Some(time)),
    };
    let each_seed = u64::try_from(plays.len()).unwrap_or(1);
    let one = |index: u64| {
        let late = until.is_some_and(|time| started.elapsed() >= time);
        let place = usize::try_from(index % each_seed).unwrap_or(0);
        let over = late || index / each_seed >= seeds;
        (!over).then(|| plays[place].run(first.wrapping_add(index / each_seed), options))
    };
    let jobs = if options.jobs == 0 { pool::cores() } else { options.jobs };
    pool::each(jobs, one, |done| {
        hasher.update(&done.hash);
        summary.runs += 1;
        summary.counters.add(&done.counters);
        summary.simulated_ns += u128::from(done.simulated_ns);
        summary.cpu_ns += u128::from(done.cpu_ns);
        if let Some((name, n, provoked)) = done.scenario {
            let shown = summary.scenarios.entry((name, n)).or_default();
            shown.runs += 1;
            shown.failed += u64::from(done.failure.is_some());
            for (what, count) in provoked {
                *shown.provoked.entry(what).or_default() += count;
            }
        }
        match done.failure {
            Some(failure) => {
                summary.note_failure(failure.clone(), done.lines);
                told(&summary, Some(&failure));
            }
            None => told(&summary, None),
        }
    });
    summary.hash = *hasher.finalize().as_bytes();
    Ok(summary)
}

/// One kind of run.
#[derive(Clone, Copy)]
pub(crate) enum Play {
    Swarm(Cluster),
    Scenario(&'static Scenario, usize),
}

/// The result of any kind of run.
pub(crate) struct Done {
    counters: Counters,
    simulated_ns: u64,
    pub(crate) cpu_ns: u64,
    hash: [u8; 32],
    pub(crate) failure: Option<Failure>,
    lines: Vec<Line>,
    scenario: Option<(&'static str, usize, BTreeMap<&'static str, u64>)>,
}

impl Play {
    /// Runs it, and notes the processor time that this took: the world's alone, not that of others.
    pub(crate) fn run(&self, seed: u64, options: &RunOptions) -> Done {
        let (started, cpu) = (Instant::now(), cpu_ns());
        let mut done = self.play(seed, options);
        done.cpu_ns = match (cpu, cpu_ns()) {
            (Some(before), Some(after)) => after.saturating_sub(before),
            _ => u64::try_from(started.elapsed().as_nanos()).unwrap_or(u64::MAX),
        };
        done
    }

    fn play(&self, seed: u64, options: &RunOptions) -> Done {
        match self {
            Self::Swarm(cluster) => {
                let (steps, lines) = (options.steps, options.lines);
                let ask = swarm::Ask {
                    cluster: *cluster,
                    config: options.config.as_ref(),
                    batches: BATCHES,
                    steps,
                    lines,
                    workers: options.workers.then_some(Workers::mixed),
                    plain: options.plain,
                };
                let swarm::Run { counters, simulated_ns, hash, failure, lines, .. } =
                    (options.swarm.0)(seed, &ask);
                Done { counters, simulated_ns, cpu_ns: 0, hash, failure, lines, scenario: None }
            }
            Self::Scenario(scenario, n) => {
                let lines = (options.lines > 0).then_some(options.lines);
                let outcome = scenario::run_watched(scenario, *n, seed, lines, None);
                let scenario::ScenarioOutcome {
                    counters, simulated_ns, hash, failure, lines, provoked, ..
                } = outcome;
                let scenario = Some((scenario.name, *n, provoked));
                Done { counters, simulated_ns, cpu_ns: 0, hash, failure, lines, scenario }
            }
        }
    }
}

/// Returns the settings that given ones are added to: those that scenarios start from, with small logs and
/// short waits, so that everything is frequent.
pub fn settings(cluster: Cluster) -> Config {
    scenario::stage::setup(0, cluster).config
}

/// Returns the cluster of `n` replicas that tolerates `f` faulty ones, or as many as it can.
pub fn cluster(n: u16, f: Option<u16>) -> Result<Cluster, Refused> {
    let f = f.unwrap_or(n.saturating_sub(1) / 3);
    Cluster::new(n, f).ok().filter(|_| n > 0).ok_or(Refused::NoCluster(n))
}

fn plays(options: &RunOptions) -> Result<Vec<Play>, Refused> {
    let Some(name) = &options.scenario else {
        return Ok(vec![Play::Swarm(cluster(options.n.unwrap_or(4), options.f)?)]);
    };
    let chosen: Vec<&'static Scenario> = match name.as_str() {
        "all" => scenario::all().collect(),
        name => vec![scenario::find(name).ok_or_else(|| Refused::NoScenario(name.to_owned()))?],
    };
    let mut plays = Vec::new();
    for scenario in &chosen {
        let sizes = scenario.sizes.iter().copied();
        let before = plays.len();
        let fits = |n: &usize| options.n.is_none_or(|wanted| usize::from(wanted) == *n);
        plays.extend(sizes.filter(fits).map(|n| Play::Scenario(scenario, n)));
        if let (Some(n), 1, true) = (options.n, chosen.len(), plays.len() == before) {
            return Err(Refused::NotAtSize { name: scenario.name, n, sizes: scenario.sizes });
        }
    }
    Ok(plays)
}

/// Returns every scenario with its keys, sizes and what it must provoke, as JSON.
pub fn list() -> Vec<Value> {
    let one = |scenario: &Scenario| {
        json!({
            "name": scenario.name,
            "keys": scenario.keys,
            "title": scenario.title,
            "n": scenario.sizes,
            "expects": scenario.expects.iter().map(scenario::Expect::name).collect::<Vec<_>>(),
        })
    };
    scenario::all().map(one).collect()
}

/// Returns the time that this thread has spent on a processor, where the system tells.
fn cpu_ns() -> Option<u64> {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").ok()?;
    text.split_whitespace().next()?.parse().ok()
}

/// The options of `replay`.
#[derive(Clone, Debug, Default)]
pub struct ReplayOptions {
    /// The seed.
    pub seed: u64,
    /// The scenario; none: the swarm.
    pub scenario: Option<String>,
    /// The swarm.
    pub swarm: Swarm,
    /// Replicas; none: 4.
    pub n: Option<u16>,
    /// Faulty replicas that the swarm's cluster tolerates; none: as many as it can.
    pub f: Option<u16>,
    /// The swarm's settings, if they do not follow from the seed.
    pub config: Option<Config>,
    /// The first step that is shown.
    pub from: u64,
    /// The last step that is shown, and at which the hosts are; 0: the end.
    pub at: u64,
    /// The hosts whose state is shown, such as `r1`; `all` for every one.
    pub show: Vec<String>,
    /// The swarm's replicas have workers, each another number of them and another engine.
    pub workers: bool,
    /// The swarm draws only what it drew at first.
    pub plain: bool,
    /// A request: only what concerns it is shown.
    pub request: Option<(ClientId, Timestamp)>,
}

/// A run shown again.
#[derive(Clone, Debug)]
pub struct Replay {
    /// The lines asked for.
    pub lines: Vec<Line>,
    /// The names of all nodes, for lanes.
    pub names: Vec<String>,
    /// The states asked for.
    pub states: Vec<String>,
    /// The failure, if there was one.
    pub failure: Option<Failure>,
}

/// Runs a seed again and returns what was asked for.
pub fn replay(options: &ReplayOptions) -> Result<Replay, Refused> {
    let replay = match &options.scenario {
        None => {
            let cluster = cluster(options.n.unwrap_or(4), options.f)?;
            let ask = swarm::Ask {
                cluster,
                config: options.config.as_ref(),
                batches: BATCHES,
                steps: options.at,
                lines: usize::MAX,
                workers: options.workers.then_some(Workers::mixed),
                plain: options.plain,
            };
            let run = (options.swarm.0)(options.seed, &ask);
            Replay { lines: run.lines, names: run.names, states: run.states, failure: run.failure }
        }
        Some(name) => {
            let scenario = scenario::find(name).ok_or_else(|| Refused::NoScenario(name.clone()))?;
            let n = options.n.map_or(scenario.sizes[0], usize::from);
            if !scenario.sizes.contains(&n) {
                let n = u16::try_from(n).unwrap_or(u16::MAX);
                return Err(Refused::NotAtSize { name: scenario.name, n, sizes: scenario.sizes });
            }
            let halt = (options.at > 0).then_some(options.at);
            let outcome = scenario::run_watched(scenario, n, options.seed, Some(0), halt);
            // A world that was frozen on purpose has not failed.
            let failure = outcome.failure.filter(|failure| halt.is_none_or(|halt| failure.step < halt));
            let names = names(&outcome.lines);
            Replay { lines: outcome.lines, names, states: outcome.states, failure }
        }
    };
    let Replay { mut lines, names, mut states, failure } = replay;
    let last = if options.at == 0 { u64::MAX } else { options.at };
    if let Some((client, timestamp)) = options.request {
        lines = crate::follow::request(lines, client, timestamp);
    }
    lines.retain(|line| (options.from..=last).contains(&line.step));
    let all = options.show.iter().any(|name| name == "all");
    let shown = |state: &String| {
        let name = state.split_whitespace().next().unwrap_or("");
        all || options.show.iter().any(|wanted| wanted == name)
    };
    states.retain(shown);
    Ok(Replay { lines, names, states, failure })
}

/// Returns who speaks in a trace, replicas first.
fn names(lines: &[Line]) -> Vec<String> {
    let mut names: Vec<String> = Vec::new();
    for line in lines {
        if !names.contains(&line.who) {
            names.push(line.who.clone());
        }
    }
    names.sort_by_key(|name| (name.starts_with('r'), name.len(), name.clone()));
    names
}
