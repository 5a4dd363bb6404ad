//! `quorate sim replay`.

use std::fs;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use quorate_sim::app::KvApp;
use quorate_sim::command::{self, ReplayOptions};
use quorate_sim::lanes::Diagram;
use quorate_sim::recording;
use quorate_sim::trace::Line;
use quorate_wire::ReplicaId;

use super::asked::{Runs, configured, flags, refused, size, with_settings};
use super::page;
use crate::code::Code;
use crate::fail::{CommandResult, Failure};
use crate::local::unwritable;
use crate::out;
use crate::values::{self, RequestName};

/// Replay a run step by step
///
/// Prints one line for each event: the step, the time in microseconds, and the event. Each event has a mark:
///
///   ->   a message
///   .    a milestone
///   !    an execution
///   #    a fault
///
/// --recording replays inputs that replicas have recorded. Each input is then a step. A replica records its inputs if
/// the setting `recording` in its node.toml is not 0B. It writes them to the file `recording` when it stops.
///
/// Examples:
///
///   quorate sim replay --seed 0x2f81 --lanes --from 4090
///   quorate sim replay --seed 0x2f81 --lanes --html run.html
///   quorate sim replay --seed 0x2f81 --at 4112 --show r1,r2
///   quorate sim replay --seed 7 --request c0:1
///   quorate sim replay --recording r1.rec --from 100
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Replay {
    /// Seed of the run
    #[arg(long, value_name = "S", value_parser = values::seed, required_unless_present = "recording")]
    seed: Option<u64>,
    /// Files with recorded inputs, one for each replica. They are merged by time
    #[arg(long, value_name = "FILE", num_args = 1.., conflicts_with_all = ["seed", "scenario", "n", "f", "request"])]
    recording: Vec<PathBuf>,
    /// A scenario of `quorate sim list` (default: no scenario; load and faults are drawn from the seed)
    #[arg(long, value_name = "NAME")]
    scenario: Option<String>,
    /// Service of the replicas
    #[arg(long, value_name = "SERVICE", value_enum, default_value_t, conflicts_with_all = ["scenario", "recording"])]
    service: Runs,
    /// Number of replicas (default 4; with --scenario, the first size that `sim list` prints for the scenario)
    #[arg(long, value_name = "N")]
    n: Option<u16>,
    /// Number of Byzantine replicas to tolerate (default: as many as N replicas can)
    #[arg(long, value_name = "F", conflicts_with = "scenario")]
    f: Option<u16>,
    /// Change a setting of the replicas, as in `sim run`. --set can be repeated
    #[arg(long, value_name = "KEY=VALUE", conflicts_with_all = ["scenario", "recording"])]
    set: Vec<String>,
    /// Omit events before this step
    #[arg(long, value_name = "STEP", value_parser = values::count)]
    from: Option<u64>,
    /// Stop after this step, and show the state of the replicas that --show names
    #[arg(long, value_name = "STEP", value_parser = values::count, requires = "show")]
    at: Option<u64>,
    /// With --at: the replicas whose state is shown, separated by commas, or `all`
    #[arg(long, value_name = "R,R", value_parser = show, value_delimiter = ',', requires = "at")]
    show: Vec<Show>,
    /// Show only events of this request, such as c0:1 (request 1 of client 0)
    #[arg(long, value_name = "C:T", value_parser = values::request)]
    request: Option<RequestName>,
    /// Draw the run as a diagram, with a column for each replica and one for all clients
    #[arg(long)]
    lanes: bool,
    /// Write the diagram to this file, as a page of HTML
    #[arg(long, value_name = "FILE", requires = "lanes")]
    html: Option<PathBuf>,
    /// Execute requests in parallel, as in `sim run`
    #[arg(long, conflicts_with_all = ["scenario", "recording"])]
    workers: bool,
    /// Use only the oldest kinds of faults. So a seed that failed with the first version of the simulator gives the
    /// same faults again
    #[arg(long, conflicts_with = "scenario")]
    plain: bool,
}

/// The replicas whose state is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Show {
    All,
    One(ReplicaId),
}

impl std::fmt::Display for Show {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::All => f.write_str("all"),
            Self::One(id) => id.fmt(f),
        }
    }
}

fn show(text: &str) -> Result<Show, String> {
    if text == "all" { Ok(Show::All) } else { values::replica(text).map(Show::One) }
}

impl Replay {
    pub(super) fn run(&self) -> CommandResult {
        self.check()?;
        if !self.recording.is_empty() {
            return self.recordings();
        }
        let options = ReplayOptions {
            seed: self.seed.unwrap_or(0),
            scenario: self.scenario.clone(),
            swarm: self.service.swarm(),
            n: self.n,
            f: self.f,
            config: configured(&self.set, self.n, self.f)?,
            from: self.from.unwrap_or(0),
            at: self.at.unwrap_or(0),
            workers: self.workers,
            plain: self.plain,
            show: self.show.iter().map(ToString::to_string).collect(),
            request: self.request.map(|RequestName { client, timestamp }| (client, timestamp)),
        };
        let replay = command::replay(&options).map_err(|error| refused(&error))?;
        if replay.lines.is_empty() && self.show.is_empty() {
            return Err(self.nothing());
        }
        let only_states =
            !self.show.is_empty() && self.from.is_none() && self.request.is_none() && !self.lanes;
        if !only_states {
            self.print(&replay.lines, &replay.names)?;
        }
        for state in &replay.states {
            out::line(state);
        }
        match replay.failure {
            None => Ok(ExitCode::SUCCESS),
            Some(failure) => {
                let code = if failure.is_stuck() { Code::Stuck } else { Code::Violation };
                out::line(format!(
                    "\n{}",
                    with_settings(
                        &failure.to_string(),
                        self.service,
                        &self.set,
                        &flags(self.plain, self.workers)
                    )
                ));
                Err(Failure::new(code, "the run failed"))
            }
        }
    }

    /// Shows recordings, each from its replica's start.
    fn recordings(&self) -> CommandResult {
        let (mut lines, mut states) = (Vec::new(), Vec::new());
        for path in &self.recording {
            let place = path.display().to_string();
            let broken = |why: String| Failure::new(Code::Recording, why).at(place.clone());
            let bytes = fs::read(path).map_err(|error| broken(format!("cannot read the file: {error}")))?;
            let shown = recording::show(&bytes, &KvApp::default(), self.at.unwrap_or(0))
                .map_err(|error| broken(format!("not a recording that this version can replay: {error}")))?;
            let name = shown.lines.first().map_or(place, |line| line.who.clone());
            if self.show.iter().any(|show| *show == Show::All || show.to_string() == name) {
                states.push(format!("{name} {}", shown.state));
            }
            lines.extend(shown.lines);
        }
        lines.retain(|line| self.from.is_none_or(|from| line.step >= from));
        lines.sort_by_key(|line| line.at); // stable: keeps the order within a replica
        let mut names: Vec<String> = lines.iter().map(|line| line.who.clone()).collect();
        names.sort();
        names.dedup();
        if self.show.is_empty() || self.from.is_some() || self.lanes {
            self.print(&lines, &names)?;
        }
        for state in states {
            out::line(state);
        }
        Ok(ExitCode::SUCCESS)
    }

    /// Checks the flags against each other, before anything runs.
    fn check(&self) -> Result<(), Failure> {
        let cluster = size(self.n, self.f)?;
        for show in &self.show {
            if let (Show::One(id), Some(cluster)) = (show, cluster)
                && !cluster.contains(*id)
            {
                let says = format!("{id} is not one of the {} replicas", cluster.n());
                return Err(Failure::new(Code::Absent, says).at("--show"));
            }
        }
        match (self.from, self.at) {
            (Some(from), Some(at)) if from > at => {
                let says = format!("from = {from}: the run stops before that, at {at}");
                Err(Failure::new(Code::Rule, says).at("--from"))
            }
            _ => Ok(()),
        }
    }

    /// Explains why there is nothing to show.
    fn nothing(&self) -> Failure {
        match (self.request, self.from) {
            (Some(RequestName { client, timestamp }), _) => {
                let says = format!("{client} made no request {} in this run", timestamp.0);
                Failure::new(Code::Absent, says).at("--request")
            }
            (None, Some(from)) => {
                Failure::new(Code::Absent, format!("the run has no events from step {from} on")).at("--from")
            }
            (None, None) => Failure::new(Code::Absent, "the run has no events"),
        }
    }

    fn print(&self, lines: &[Line], names: &[String]) -> Result<(), Failure> {
        if !self.lanes {
            for line in lines {
                out::line(format!("{:>7} {:>10}  {line}", line.step, line.at / 1000));
            }
            return Ok(());
        }
        let diagram = Diagram::new(names, lines);
        let Some(path) = &self.html else {
            out::line(diagram.draw().trim_end());
            return Ok(());
        };
        let title = self.seed.map_or_else(|| "recording".to_owned(), |seed| format!("seed {seed}"));
        fs::write(path, page::html(&title, &diagram)).map_err(|error| unwritable(path, &error))?;
        out::line(format!("{}: {} events", path.display(), diagram.rows().len()));
        Ok(())
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn what_is_not_a_recording_is_refused_with_its_name() {
        let path = std::env::temp_dir().join(format!("quorate-replay-{}", std::process::id()));
        fs::write(&path, b"no recording").unwrap();
        let replay = Replay {
            service: Runs::Kv,
            seed: None,
            recording: vec![path.clone()],
            scenario: None,
            n: None,
            f: None,
            set: Vec::new(),
            from: None,
            at: None,
            show: Vec::new(),
            request: None,
            lanes: false,
            html: None,
            workers: false,
            plain: false,
        };
        let says = replay.run().unwrap_err().to_string();
        assert!(
            says.starts_with("error Q006: not a recording") && says.contains("quorate-replay-"),
            "{says}"
        );
        fs::remove_file(&path).unwrap();
        let says = replay.run().unwrap_err().to_string();
        assert!(says.starts_with("error Q006: cannot read the file"), "{says}");
    }
}
