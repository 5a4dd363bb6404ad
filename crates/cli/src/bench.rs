//! `quorate bench`: repeats the papers' experiments.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use clap::{Args, Subcommand, ValueEnum};
use quorate_bench::{
    Cable, EXPERIMENTS, Effort, Experiment, Report, Settings, Signatures, Verdict, draw, page,
};
use serde_json::json;

use crate::code::Code;
use crate::fail::{CommandResult, Failure, nearest};
use crate::out;

/// Repeat the experiments of the papers
///
/// An experiment prints a table and the conditions of the run, and says which statements of its paper hold. Each run
/// measures all variants of the experiment, for example quorate with and without an optimisation. It also measures what
/// quorate is compared with: the same service without replication, and Redis or NFS-Ganesha if they are installed.
///
/// Experiments on registers (bqs-*) run in simulation. For most of them, the command then repeats the experiment on
/// sockets: the clients and servers are threads that exchange messages over TCP. All other experiments that send
/// messages use real processes.
///
/// docs/benchmarks.md describes the experiments, and docs/papers.md lists the papers.
///
/// Example:
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
    Run(RunBench),
    Report(Page),
    #[command(hide = true)]
    Child(Child),
}

/// List all experiments, with the table or figure that each repeats
///
/// Example:
///
///   quorate bench list
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
struct List {
    /// Print one JSON object
    #[arg(long)]
    json: bool,
}

/// Run an experiment, or all of them
///
/// Exit status 1 if a statement of the paper does not hold or cannot be judged. Results are valid only on an idle
/// machine. Therefore the output says how much of the machine other programs used.
///
/// `all` writes the result of each experiment to NAME.json. If you stop it, run it again to continue: it skips the
/// experiments that have a result. If an earlier result was measured with --quick, `all` without --quick measures it
/// again.
///
/// Example:
///
///   quorate bench run micro-latency --quick --plot plots
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
struct RunBench {
    /// An experiment of `quorate bench list`, or `all`
    name: String,
    /// Finish within a minute on an idle machine, with fewer repetitions and measuring points
    #[arg(long)]
    quick: bool,
    /// Run only to produce output of the right shape: the figures mean nothing
    #[arg(long, hide = true, conflicts_with = "quick")]
    tiny: bool,
    /// Write the result, with all samples, to this file as JSON
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// Draw the results as diagrams in this directory: NAME-FIGURE.svg, and .png in builds with the feature png
    #[arg(long, value_name = "DIR")]
    plot: Option<PathBuf>,
    /// Add the results of another run to the diagrams, as dashed lines. FILE was written with --json or --out
    #[arg(long, value_name = "FILE", requires = "plot")]
    against: Option<PathBuf>,
    /// Only for experiments on registers (bqs-*) that run on sockets: emulate several machines. The threads of each
    /// machine are in a network namespace of their own, with a link of this speed. Needs root, `ip` and `tc`. With
    /// `none`, messages use loopback
    #[arg(long, value_enum, default_value = "none")]
    links: Links,
    /// With --links: the delay of each message between two emulated machines. Needs netem in the kernel
    #[arg(long, value_name = "MICROSECONDS", default_value_t = 0)]
    delay: u32,
    /// Only for experiments on registers (bqs-*) that run on sockets: make signatures of this kind. Without this
    /// option, bqs-x1 makes signatures of all three kinds, and the other experiments make none. Instead of making or
    /// checking a signature, a client or server of these experiments waits for as long as a machine of 2006 needed
    #[arg(long, value_enum)]
    crypto: Option<Crypto>,
    /// Write the same JSON as --json to NAME.json in this directory [default for `all`: bench-results]
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Links {
    None,
    #[value(name = "100mbit")]
    Fast,
    #[value(name = "1gbit")]
    Gigabit,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Crypto {
    Ed25519,
    Rsa1024,
    Rsa2048,
}

impl From<Crypto> for Signatures {
    fn from(name: Crypto) -> Self {
        match name {
            Crypto::Ed25519 => Self::Ed25519,
            Crypto::Rsa1024 => Self::Rsa(1024),
            Crypto::Rsa2048 => Self::Rsa(2048),
        }
    }
}

/// Combine all results into one report
///
/// Reads the NAME.json files of a directory, and writes report.html, report.md and report.csv there. report.html
/// is self-contained. The report names the experiments without results.
///
/// Example:
///
///   quorate bench report bench-results
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
struct Page {
    /// Directory with the results of `quorate bench run all`
    directory: PathBuf,
}

/// Run one process of an experiment
///
/// Experiments start this command themselves.
///
/// Example:
///
///   quorate bench child core-step
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
struct Child {
    /// The experiment, and the arguments for this process
    #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
    arguments: Vec<String>,
}

impl Bench {
    pub(crate) fn run(&self) -> CommandResult {
        match &self.command {
            Command::List(list) => Ok(list.run()),
            Command::Run(run) => run.run(),
            Command::Report(page) => page.run(),
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
            let width =
                |of: fn(&Experiment) -> &str| EXPERIMENTS.iter().map(|e| of(e).len()).max().unwrap_or(0);
            let (names, sources) = (width(|e| e.name), width(|e| e.source));
            for Experiment { name, source, about, .. } in EXPERIMENTS {
                out::line(format!("{name:<names$}  {source:<sources$}  {about}"));
            }
        }
        ExitCode::SUCCESS
    }
}

impl RunBench {
    fn run(&self) -> CommandResult {
        if self.links != Links::None && !self.name.starts_with("bqs-") {
            let what = "only experiments on registers have links to choose from";
            return Err(Failure::new(Code::Rule, what).at("--links").next("omit --links"));
        }
        if self.links == Links::None && self.delay > 0 {
            let what = "loopback has no delay";
            return Err(Failure::new(Code::Rule, what).at("--delay").next("add --links 1gbit"));
        }
        if self.crypto.is_some() && !self.name.starts_with("bqs-") {
            let what = "only experiments on registers have signatures to choose from";
            return Err(Failure::new(Code::Rule, what).at("--crypto").next("omit --crypto"));
        }
        if self.name == "all" {
            if self.json.is_some() {
                let what = "`all` writes a file for each experiment";
                return Err(Failure::new(Code::Rule, what).at("--json").next("use --out DIR"));
            }
            return self.run_all();
        }
        let Some(experiment) = quorate_bench::find(&self.name) else {
            let names = EXPERIMENTS.iter().map(|experiment| experiment.name).chain(["all"]);
            let near = nearest(&self.name, names);
            let says = near.map_or(String::new(), |near| format!(". Nearest: {near}"));
            let says = format!("no experiment `{}`{says}", self.name);
            return Err(Failure::new(Code::NoExperiment, says).next("quorate bench list"));
        };
        let report = self.measure(experiment)?;
        out::line(report.to_string().trim_end());
        if let Some(path) = &self.json {
            write_json(path, &report)?;
        }
        if let Some(out) = &self.out {
            fs::create_dir_all(out).map_err(|error| unwritten(out, &error))?;
            write_json(&out.join(format!("{}.json", experiment.name)), &report)?;
        }
        self.draw(experiment, &report)?;
        verdict(&[report])
    }

    fn cable(&self) -> Option<Cable> {
        let mbit = match self.links {
            Links::None => return None,
            Links::Fast => 100,
            Links::Gigabit => 1000,
        };
        Some(Cable { mbit, delay_us: self.delay })
    }

    fn effort(&self) -> Effort {
        match (self.quick, self.tiny) {
            (true, _) => Effort::Quick,
            (_, true) => Effort::Tiny,
            _ => Effort::Full,
        }
    }

    fn measure(&self, experiment: &Experiment) -> Result<Report, Failure> {
        let effort = self.effort();
        let cable = self.cable();
        let signatures = self.crypto.map(Into::into);
        let report = (experiment.run)(Settings { effort, signatures, cable });
        let mut report = report
            .map_err(|error| Failure::new(Code::Experiment, format!("{}: {error:#}", experiment.name)))?;
        report.effort = effort;
        report.machine = report.machine.finished();
        report = report.judged();
        if let Some(cable) = cable {
            let on_sockets = |row: &quorate_bench::Row| {
                row.cell.as_ref().is_some_and(|cell| cell.model.starts_with("sockets"))
            };
            if !report.rows.iter().any(on_sockets) {
                let what = format!("{} is simulated: it has no links", experiment.name);
                return Err(Failure::new(Code::Rule, what).at("--links").next("omit --links"));
            }
            report.machine.links = cable.name();
        }
        Ok(report)
    }

    /// Runs the experiments without a result, and estimates the remaining time.
    fn run_all(&self) -> CommandResult {
        let out = self.out.as_deref().unwrap_or(Path::new("bench-results"));
        fs::create_dir_all(out).map_err(|error| unwritten(out, &error))?;
        let (begin, mut seconds) = (Instant::now(), 0.0);
        let (mut reports, mut failed) = (Vec::new(), Vec::new());
        let count = EXPERIMENTS.len();
        for (index, experiment) in EXPERIMENTS.iter().enumerate() {
            let path = out.join(format!("{}.json", experiment.name));
            // A result that was measured with less effort does not count.
            let there: Option<Report> = read_json(&path);
            let report = if let Some(report) = there.filter(|report| report.effort >= self.effort()) {
                eprintln!("experiment {} of {count}: {} has a result already", index + 1, experiment.name);
                report
            } else {
                let ran = u32::try_from(index).map_or(1.0, f64::from);
                let left = u32::try_from(count - index).map_or(1.0, f64::from);
                let eta = if seconds > 0.0 {
                    format!(", about {:.0} min left", (seconds / ran * left / 60.0).ceil())
                } else {
                    String::new()
                };
                eprintln!("experiment {} of {count}: {}{eta}", index + 1, experiment.name);
                // After a failure, the other experiments still run.
                let report = match self.measure(experiment) {
                    Ok(report) => report,
                    Err(failure) => {
                        eprintln!("{failure}");
                        failed.push(experiment.name);
                        continue;
                    }
                };
                write_json(&path, &report)?;
                report
            };
            seconds = begin.elapsed().as_secs_f64();
            self.draw(experiment, &report)?;
            out::line(page::summary(&report));
            for shape in report.shapes.iter().filter(|shape| shape.verdict() == Verdict::NotHeld) {
                out::line(format!("  not held: {} ({})", shape.name, shape.evidence));
            }
            reports.push(report);
        }
        write_page(out)?;
        if !failed.is_empty() {
            let what = format!("{} did not finish", failed.join(", "));
            return Err(Failure::new(Code::Experiment, what)
                .next("run the command again: the other results are kept"));
        }
        verdict(&reports)
    }

    fn draw(&self, experiment: &Experiment, report: &Report) -> Result<(), Failure> {
        let Some(directory) = &self.plot else { return Ok(()) };
        let mut figures = (experiment.figures)(&report.rows);
        if let Some(path) = &self.against {
            let Some(other) = read_json(path) else {
                return Err(Failure::new(Code::Value, "not the output of `quorate bench run --json`")
                    .at(path.display().to_string()));
            };
            let whose = path.file_stem().map_or_else(String::new, |stem| stem.to_string_lossy().into_owned());
            let mut theirs = (experiment.figures)(&other.rows).into_iter();
            figures = figures
                .into_iter()
                .map(|figure| match theirs.next() {
                    Some(theirs) => figure.against(&theirs, &whose),
                    None => figure,
                })
                .collect();
        }
        figures.retain(|figure| !figure.is_empty());
        if figures.is_empty() {
            out::line(format!("{} has no figures", experiment.name));
        }
        fs::create_dir_all(directory).map_err(|error| unwritten(directory, &error))?;
        for figure in &figures {
            let path = |end| directory.join(format!("{}-{}.{end}", experiment.name, figure.name));
            if let Some(text) = draw::svg(figure, draw::Theme::White) {
                fs::write(path("svg"), text).map_err(|error| unwritten(&path("svg"), &error))?;
            }
            #[cfg(feature = "png")]
            if let Some(bytes) = draw::png::encode(figure).map_err(|error| unwritten(&path("png"), &error))? {
                fs::write(path("png"), bytes).map_err(|error| unwritten(&path("png"), &error))?;
            }
        }
        Ok(())
    }
}

impl Page {
    fn run(&self) -> CommandResult {
        let count = write_page(&self.directory)?;
        out::line(format!(
            "{count} of {} experiments: {}",
            EXPERIMENTS.len(),
            self.directory.join("report.html").display()
        ));
        Ok(ExitCode::SUCCESS)
    }
}

/// Writes the report of a directory, and returns the number of experiments with results.
fn write_page(directory: &Path) -> Result<usize, Failure> {
    if !directory.is_dir() {
        return Err(Failure::new(Code::Value, "no such directory")
            .at(directory.display().to_string())
            .next(format!("quorate bench run all --quick --out {}", directory.display())));
    }
    let read = |e: &Experiment| read_json(&directory.join(format!("{}.json", e.name)));
    let reports: Vec<Report> = EXPERIMENTS.iter().filter_map(read).collect();
    for (name, text) in [
        ("report.html", page::html(&reports)),
        ("report.md", page::markdown(&reports)),
        ("report.csv", page::csv(&reports)),
    ] {
        let path = directory.join(name);
        fs::write(&path, text).map_err(|error| unwritten(&path, &error))?;
    }
    Ok(reports.len())
}

/// Success only if every statement that can be compared was judged and holds.
fn verdict(reports: &[Report]) -> CommandResult {
    let count = |verdict| -> usize { reports.iter().map(|report| report.count(verdict)).sum() };
    let all: usize = reports.iter().map(|report| report.shapes.len()).sum();
    let (broken, unjudged) = (count(Verdict::NotHeld), count(Verdict::NotJudged));
    let busy = "other programs used more than a fifth of the machine: stop them, and run it again";
    match (broken, unjudged) {
        (0, 0) => Ok(ExitCode::SUCCESS),
        (0, _) => {
            Err(Failure::new(Code::Bound, format!("{unjudged} of {all} statements cannot be judged"))
                .next(busy))
        }
        (_, 0) => Err(Failure::new(Code::Bound, format!("{broken} of {all} statements do not hold"))),
        _ => {
            let what = format!("{broken} of {all} statements do not hold, {unjudged} cannot be judged");
            Err(Failure::new(Code::Bound, what).next(busy))
        }
    }
}

fn read_json(path: &Path) -> Option<Report> {
    serde_json::from_str(&fs::read_to_string(path).ok()?).ok()
}

/// Writes a temporary file and renames it, so that the result is always complete.
fn write_json(path: &Path, report: &Report) -> Result<(), Failure> {
    let text = serde_json::to_string_pretty(report).map_err(|error| unwritten(path, &error))?;
    let draft = path.with_extension("json.draft");
    fs::write(&draft, text + "\n").map_err(|error| unwritten(&draft, &error))?;
    fs::rename(&draft, path).map_err(|error| unwritten(path, &error))
}

fn unwritten(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(Code::Output, format!("cannot write the results: {error}")).at(path.display().to_string())
}
