//! `quorate bench`: what the papers reported, measured again.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use quorate_bench::{EXPERIMENTS, Experiment, Report, Settings, plot};
use serde_json::json;

use crate::explain::Code;
use crate::fail::{Failure, Outcome, nearest};
use crate::out;

/// Measure what the papers measured
///
/// An experiment prints a table with its conditions and says which statements of the paper hold. It runs
/// its baselines and variants in the same run, on real processes where the network counts.
///
///   quorate bench run micro-latency --quick
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Bench {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    List(List),
    Run(Run),
    #[command(hide = true)]
    Child(Child),
}

/// List every experiment with the table or figure that it repeats
///
/// With --json: one object.
///
///   quorate bench list
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
struct List {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Run one experiment
///
/// Ends with status 1 if a statement does not hold. Figures of a busy machine mean little: the load is
/// printed with them.
///
///   quorate bench run core-step --quick
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
struct Run {
    /// An experiment of `quorate bench list`
    name: String,
    /// End within a minute: fewer repeats
    #[arg(long)]
    quick: bool,
    /// Write every sample to this file, as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the curves into NAME.svg in this directory
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
}

/// Be one process of an experiment
///
/// Experiments start this themselves.
///
///   quorate bench child micro-latency
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
struct Child {
    /// The experiment and what it tells its part
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

impl Bench {
    pub(crate) fn run(&self) -> Outcome {
        match &self.command {
            Command::List(list) => Ok(list.run()),
            Command::Run(run) => run.run(),
            Command::Child(child) => match quorate_bench::child(&child.arguments) {
                Ok(()) => Ok(ExitCode::SUCCESS),
                Err(error) => Err(Failure::new(Code::Experiment, format!("{error:#}"))),
            },
        }
    }
}

impl List {
    fn run(&self) -> ExitCode {
        if self.json {
            let all =
                EXPERIMENTS.iter().map(|e| json!({ "name": e.name, "source": e.source, "about": e.about }));
            out::line(json!({ "experiments": all.collect::<Vec<_>>() }));
        } else {
            let width = EXPERIMENTS.iter().map(|e| e.name.len()).max().unwrap_or(0);
            for Experiment { name, source, about, .. } in EXPERIMENTS {
                out::line(format!("{name:<width$}  {about} ({source})"));
            }
        }
        ExitCode::SUCCESS
    }
}

impl Run {
    fn run(&self) -> Outcome {
        let Some(experiment) = EXPERIMENTS.iter().find(|experiment| experiment.name == self.name) else {
            let near = nearest(&self.name, EXPERIMENTS.iter().map(|experiment| experiment.name));
            let says = near.map_or(String::new(), |near| format!(". Nearest: {near}"));
            let says = format!("no experiment `{}`{says}", self.name);
            return Err(Failure::new(Code::NoExperiment, says).next("quorate bench list"));
        };
        let report = (experiment.run)(Settings { quick: self.quick })
            .map_err(|error| Failure::new(Code::Experiment, format!("{}: {error:#}", self.name)))?;
        out::line(report.to_string().trim_end());
        if let Some(path) = &self.json {
            write(path, &report)?;
        }
        if let Some(directory) = &self.plot {
            draw(directory, &report)?;
        }
        let broken = report.shapes.iter().filter(|shape| !shape.held).count();
        if report.holds() {
            return Ok(ExitCode::SUCCESS);
        }
        Err(Failure::new(Code::Bound, format!("{broken} of {} statements do not hold", report.shapes.len())))
    }
}

fn write(path: &Path, report: &Report) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(report).map_err(|error| unwritten(path, &error))?;
    fs::write(path, text + "\n").map_err(|error| unwritten(path, &error))
}

fn draw(directory: &Path, report: &Report) -> Result<(), Failure> {
    let path = directory.join(format!("{}.svg", report.experiment));
    let Some(drawing) = plot::svg(report.experiment, &report.rows) else {
        out::line(format!("{} has no curves to draw", report.experiment));
        return Ok(());
    };
    fs::create_dir_all(directory).map_err(|error| unwritten(directory, &error))?;
    fs::write(&path, drawing).map_err(|error| unwritten(&path, &error))
}

fn unwritten(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(Code::Output, format!("cannot write the results: {error}")).at(path.display().to_string())
}
