//! `quorate sim run`.

use std::io::{IsTerminal as _, Write as _};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use clap::Args;
use quorate_sim::command::{self, ReplayOptions, RunOptions, Seeds, Summary};
use quorate_sim::expected;
use quorate_sim::lanes::Diagram;
use quorate_sim::report::Failure as Report;

use super::asked::{Runs, configured, flags, refused, settings_help, size, with_settings};
use super::text;
use crate::code::Code;
use crate::fail::{CommandResult, Failure};
use crate::{out, values};

/// The default number of seeds of the swarm. For a scenario it is one.
const SEEDS: u64 = 100;
/// How many failures are printed in full.
const TOLD_MAX: usize = 5;

/// Run simulated clusters, one for each seed
///
/// A run fails if a checker finds that a rule was broken, or if the cluster makes no progress. The output then has the
/// command that repeats the run, and the exit status is 1. The same seed, options and code always give the same run.
///
/// Examples:
///
///   quorate sim run --seeds 100
///   quorate sim run --from 5000 --seeds 100
///   quorate sim run --scenario all
///   quorate sim run --seed 0x2f81 --steps 5000 --lanes
///   quorate sim run --seeds 20 --set tentative=false --set pipeline=1
///   quorate sim run --service fs --minutes 10
///   quorate sim run --seeds 100 --workers
#[derive(Args, Debug)]
#[command(verbatim_doc_comment, after_long_help = settings_help())]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag of its own")]
pub(crate) struct RunSim {
    /// A scenario of `quorate sim list`, or `all` (default: no scenario; load and faults are drawn from the seed)
    #[arg(long, value_name = "NAME")]
    scenario: Option<String>,
    /// Service of the replicas
    #[arg(long, value_name = "SERVICE", value_enum, default_value_t, conflicts_with = "scenario")]
    service: Runs,
    /// Run one seed, decimal or hexadecimal
    #[arg(long, value_name = "S", value_parser = values::seed, conflicts_with_all = ["seeds", "minutes"])]
    seed: Option<u64>,
    /// The number of seeds (default 100, or 1 with --scenario)
    #[arg(long, value_name = "N", value_parser = values::count, conflicts_with = "minutes")]
    seeds: Option<u64>,
    /// The first seed, decimal or hexadecimal (default 1)
    #[arg(long, value_name = "S", value_parser = values::seed, conflicts_with_all = ["seed", "minutes"])]
    from: Option<u64>,
    /// Run seeds for M minutes, from a random first seed
    #[arg(long, value_name = "M", value_parser = values::count)]
    minutes: Option<u64>,
    /// Number of replicas: 4 for f = 1, 7 for f = 2 (default 4; with --scenario, all sizes of the scenario)
    #[arg(long, value_name = "N")]
    n: Option<u16>,
    /// Number of Byzantine replicas to tolerate (default: as many as N replicas can)
    #[arg(long, value_name = "F", conflicts_with = "scenario")]
    f: Option<u16>,
    /// Change a setting of the replicas. --set can be repeated. Without --set, all settings are drawn from the seed
    #[arg(long, value_name = "KEY=VALUE", conflicts_with = "scenario")]
    set: Vec<String>,
    /// Stop each run after N steps. Requests that are then unanswered are not a failure
    #[arg(long, value_name = "N", value_parser = values::count, conflicts_with = "scenario")]
    steps: Option<u64>,
    /// Number of runs in parallel (default: one per core)
    #[arg(long, value_name = "N", value_parser = values::count)]
    jobs: Option<u64>,
    /// Draw the run as a diagram, with a column for each replica and one for all clients. Needs --seed
    #[arg(long, requires = "seed", conflicts_with = "json")]
    lanes: bool,
    /// Execute requests in parallel. The number of workers and the engine differ from replica to replica. An engine
    /// decides when a request may run
    #[arg(long, conflicts_with = "scenario")]
    workers: bool,
    /// Use only the oldest kinds of faults. So a seed that failed with the first version of the simulator gives the
    /// same faults again
    #[arg(long, conflicts_with = "scenario")]
    plain: bool,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

impl RunSim {
    pub(super) fn run(&self) -> CommandResult {
        let options = self.options()?;
        if let (true, Some(seed)) = (self.lanes, self.seed) {
            let RunOptions { scenario, swarm, n, f, config, steps: at, workers, plain, .. } = options.clone();
            let shown = ReplayOptions {
                seed,
                scenario,
                swarm,
                n,
                f,
                config,
                at,
                workers,
                plain,
                ..ReplayOptions::default()
            };
            let replay = command::replay(&shown).map_err(|error| refused(&error))?;
            out::line(Diagram::new(&replay.names, &replay.lines).draw());
        }
        let mut progress = Progress::new(options.seeds);
        let summary =
            command::run(&options, |so_far, _| progress.tell(so_far)).map_err(|error| refused(&error))?;
        progress.clear();
        for failure in summary.failures.iter().take(TOLD_MAX) {
            let report = with_settings(&failure.to_string(), self.service, &self.set, &self.flags());
            if self.json {
                eprintln!("{report}\n");
            } else {
                out::line(format!("{report}\n"));
            }
        }
        if self.json {
            let mut object = summary.to_json();
            // Each with the command that runs it again, settings and service included.
            object["failures"] = summary
                .failures
                .iter()
                .map(|failure| with_settings(&failure.to_string(), self.service, &self.set, &self.flags()))
                .collect();
            out::line(object);
        } else {
            out::line(text::summary(&summary));
        }
        let runs = summary.runs;
        // Faults that are on record: their test demands that they still fail.
        let is_known = |failure: &&Report| {
            let n = failure.cluster.n();
            failure.scenario.is_some_and(|name| expected::is_open(name, n))
        };
        let known = u64::try_from(summary.failures.iter().filter(is_known).count()).unwrap_or(u64::MAX);
        if known > 0 && known == summary.violations + summary.stuck {
            eprintln!(
                "{known} of {runs} runs failed as expected: their faults are on record, and not mended yet"
            );
            return Ok(ExitCode::SUCCESS);
        }
        match (summary.violations, summary.stuck) {
            (0, 0) => Ok(ExitCode::SUCCESS),
            (0, stuck) => Err(Failure::new(Code::Stuck, format!("{stuck} of {runs} runs did not finish"))),
            (broken, _) => {
                Err(Failure::new(Code::Violation, format!("{broken} of {runs} runs broke a rule")))
            }
        }
    }

    /// The flags that a command which repeats this run needs.
    fn flags(&self) -> String {
        flags(self.plain, self.workers)
    }

    fn options(&self) -> Result<RunOptions, Failure> {
        size(self.n, self.f)?;
        let seeds = match (self.seed, self.seeds, self.minutes) {
            (Some(seed), _, _) => Seeds::One(seed),
            (None, Some(seeds), _) => Seeds::Range(self.from.unwrap_or(1), seeds),
            (None, None, Some(minutes)) => Seeds::For(fresh(), Duration::from_secs(60 * minutes)),
            (None, None, None) => {
                let seeds = if self.scenario.is_some() { 1 } else { SEEDS };
                Seeds::Range(self.from.unwrap_or(1), seeds)
            }
        };
        Ok(RunOptions {
            scenario: self.scenario.clone(),
            swarm: self.service.swarm(),
            seeds,
            n: self.n,
            f: self.f,
            config: configured(&self.set, self.n, self.f)?,
            jobs: self.jobs.and_then(|jobs| usize::try_from(jobs).ok()).unwrap_or(0),
            steps: self.steps.unwrap_or(0),
            lines: 0,
            workers: self.workers,
            plain: self.plain,
        })
    }
}

/// A new seed, from the time of day.
fn fresh() -> u64 {
    let nanos = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_nanos());
    u64::try_from(nanos & u128::from(u32::MAX)).unwrap_or(0) << 16
}

/// A progress line on standard error, if that is a terminal.
struct Progress {
    of: Option<u64>,
    began: Instant,
    shown: Option<Instant>,
    visible: bool,
}

impl Progress {
    fn new(seeds: Seeds) -> Self {
        let of = match seeds {
            Seeds::One(_) => Some(1),
            Seeds::Range(_, count) => Some(count),
            Seeds::For(..) => None,
        };
        Self {
            of,
            began: Instant::now(),
            shown: None,
            visible: std::io::stderr().is_terminal() && of != Some(1),
        }
    }

    fn tell(&mut self, so_far: &Summary) {
        if !self.visible || self.shown.is_some_and(|shown| shown.elapsed() < Duration::from_millis(500)) {
            return;
        }
        self.shown = Some(Instant::now());
        let done = so_far.runs;
        // A scenario has several runs for each seed: then the total is unknown.
        let ahead = match self.of.and_then(|of| of.checked_sub(done)) {
            Some(left) if so_far.scenarios.is_empty() => {
                let seconds =
                    u128::from(left) * self.began.elapsed().as_millis() / u128::from(done.max(1)) / 1000;
                format!("{done} of {} runs, eta {seconds} s", done + left)
            }
            _ => format!("{done} runs"),
        };
        eprint!("\r{ahead}, {} violations, {} stuck   ", so_far.violations, so_far.stuck);
        _ = std::io::stderr().flush();
    }

    fn clear(&mut self) {
        if self.shown.take().is_some() {
            eprint!("\r{:70}\r", "");
        }
    }
}
