//! `cargo xtask kernel`: the file system through the NFS client of a real Linux kernel.
//!
//! ```text
//! suite --> Linux in user mode, its NFS client --tap0--> quorate nfs --> 4 replicas
//! \_______ guest ______________________/  \_______ a network namespace of the host ___/
//! ```
//!
//! The kernel is Debian's package `user-mode-linux`: it runs as a process, needs no virtualization and nothing of
//! the host's kernel but a tap device. The guest's root is the host's, read-only, so that it has all programs that
//! the host has. The newest package runs with its own C library, in a jail; nothing is installed.

mod compare;
mod directory;
mod disturbance;
mod figures;
mod fsx;
mod host;
mod integrity;
mod machine;
mod pjdfstest;
mod suites;

use std::ops::RangeInclusive;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};

use self::disturbance::Disturbance;
use self::host::Host;
use self::machine::Machine;
use xtask::{cargo, root, run};

/// Everyday operations on files: the default suite.
const BASIC: &str = include_str!("../guest/basic.sh");

const USAGE: &str = "kernel [basic|pjdfstest|fsx] [--runs N|A-B] [--while calm|kills|lie:NAME|liars|all], or \
                     kernel integrity [--runs N|A-B] [--seconds N], or kernel directory [--files N], with [--program FILE] [--dir DIR]; \
                     kernel postmark --help, kernel andrew --help";
/// The default number of runs of the suite `integrity`, and the seconds of each.
const RUNS: u64 = 24;
const SECONDS: u64 = 60;

/// A suite, run in the directory that the guest has mounted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Suite {
    Basic,
    Pjdfstest,
    Fsx,
    Directory,
    Integrity,
}

impl Suite {
    fn read(name: &str) -> Option<Self> {
        [Self::Basic, Self::Pjdfstest, Self::Fsx, Self::Directory, Self::Integrity]
            .into_iter()
            .find(|suite| suite.name() == name)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Basic => "basic",
            Self::Pjdfstest => "pjdfstest",
            Self::Fsx => "fsx",
            Self::Directory => "directory",
            Self::Integrity => "integrity",
        }
    }

    fn script(self, cache: &Path, (seeds, files): (&RangeInclusive<u64>, u64)) -> Result<String> {
        match self {
            Self::Basic => Ok(format!("SOURCE='{}'\n{BASIC}", root().join("crates/fs").display())),
            Self::Pjdfstest => pjdfstest::script(cache),
            Self::Fsx => fsx::script(cache, seeds),
            Self::Directory => directory::script(files),
            Self::Integrity => bail!("it has runs of its own"),
        }
    }

    /// Says how it went, and whether that is as good as it can be.
    fn judge(self, lines: &[String], seeds: &RangeInclusive<u64>) -> (String, bool) {
        match self {
            Self::Basic => {
                let count = |begin: &str| lines.iter().filter(|line| line.starts_with(begin)).count();
                let (good, bad) = (count("ok "), count("FAILED "));
                (format!("{good} ok, {bad} failed"), good > 0 && bad == 0)
            }
            Self::Pjdfstest => pjdfstest::judge(lines),
            Self::Fsx => fsx::judge(lines, seeds),
            Self::Directory => directory::judge(lines),
            Self::Integrity => (String::new(), false),
        }
    }
}

/// What was asked for.
#[derive(Debug)]
struct Order {
    suite: Suite,
    troubles: Vec<Disturbance>,
    /// The `quorate` that is run; none is built then.
    program: Option<PathBuf>,
    /// The directory of the clusters during the run.
    dir: Option<PathBuf>,
    /// The seeds, if not as many as the suite has, and how long each is run.
    runs: Option<RangeInclusive<u64>>,
    seconds: u64,
    /// The files of the large directory.
    files: u64,
}

impl Order {
    fn read(args: &[String]) -> Result<Self> {
        let mut order = Self {
            suite: Suite::Basic,
            troubles: vec![Disturbance::Calm],
            program: None,
            dir: None,
            runs: None,
            seconds: SECONDS,
            files: directory::FILES,
        };
        let mut args = args.iter();
        while let Some(arg) = args.next() {
            let mut value = || args.next().with_context(|| format!("{arg} needs a value: {USAGE}"));
            match arg.as_str() {
                "--while" => order.troubles = Disturbance::read(value()?)?,
                "--dir" => order.dir = Some(std::path::absolute(value()?)?),
                "--runs" => order.runs = Some(runs(value()?)?),
                "--files" => order.files = value()?.parse()?,
                "--seconds" => order.seconds = value()?.parse()?,
                "--program" => {
                    let file = value()?;
                    order.program = Some(std::fs::canonicalize(file).with_context(|| file.clone())?);
                }
                name => {
                    order.suite =
                        Suite::read(name).with_context(|| format!("`{name}` is unknown: {USAGE}"))?;
                }
            }
        }
        Ok(order)
    }
}

/// Reads `24`, all up to that one, or `13-24`.
fn runs(text: &str) -> Result<RangeInclusive<u64>> {
    let (first, last) = text.split_once('-').unwrap_or(("1", text));
    Ok(first.parse()?..=last.parse()?)
}

/// Returns where things are kept, the guest's kernel, and the `quorate` that is run, which is built if none is named.
fn ready(program: Option<&Path>) -> Result<(PathBuf, Machine, PathBuf)> {
    ready_with("release", program)
}

/// The same for measurements: with the fastest program.
fn ready_to_measure(program: Option<&Path>) -> Result<(PathBuf, Machine, PathBuf)> {
    ready_with("dist", program)
}

fn ready_with(profile: &str, program: Option<&Path>) -> Result<(PathBuf, Machine, PathBuf)> {
    if !cfg!(all(target_os = "linux", target_arch = "x86_64")) {
        bail!("the guest is for Linux on x86-64");
    }
    let cache = root().join("target/kernel");
    std::fs::create_dir_all(&cache).with_context(|| format!("{}", cache.display()))?;
    let machine = Machine::get(&cache)?;
    let program = if let Some(program) = program {
        program.to_path_buf()
    } else {
        run(&mut cargo(&["build", "--profile", profile, "--locked", "-p", "quorate-cli"]))?;
        root().join("target").join(profile).join("quorate")
    };
    Ok((cache, machine, program))
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match kernel(&args) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("kernel: {error:#}");
            ExitCode::FAILURE
        }
    }
}

/// Runs a suite against a new cluster, once with each fault.
fn kernel(args: &[String]) -> Result<()> {
    if let [name, rest @ ..] = args
        && name == "guest"
    {
        return integrity::guest(rest);
    }
    if compare::run(args, ready_to_measure)? {
        return Ok(());
    }
    let order = Order::read(args)?;
    let (cache, machine, program) = ready(order.program.as_deref())?;
    let dir = order.dir.unwrap_or_else(|| cache.join("run"));
    if order.suite == Suite::Integrity {
        let runs = order.runs.unwrap_or(1..=RUNS);
        return integrity::runs(&machine, &program, &cache, &dir, (runs, order.seconds));
    }
    let seeds = order.runs.unwrap_or(fsx::SEEDS);
    let script = order.suite.script(&cache, (&seeds, order.files))?;
    let mut said = Vec::new();
    let mut bad = 0;
    for trouble in &order.troubles {
        let name = format!("{}-{}", order.suite.name(), trouble.to_string().replace(':', "-"));
        let begin = Instant::now();
        let one = run_one(&machine, &program, &script, &dir.join(&name), trouble);
        let (mut says, good) = match one {
            Ok((lines, kills)) => {
                let (says, good) = order.suite.judge(&lines, &seeds);
                let kills_are_due = *trouble == Disturbance::Kills && begin.elapsed().as_secs() > 60;
                let ended = lines.iter().any(|line| line.starts_with("guest: status "));
                let says = if kills > 0 { format!("{kills} kills, {says}") } else { says };
                (says, good && ended && (kills > 0 || !kills_are_due))
            }
            Err(error) => (format!("{error:#}"), false),
        };
        says = format!("{} while {trouble}: {says}; {} s", order.suite.name(), begin.elapsed().as_secs());
        if !good {
            bad += 1;
            says.push_str("\n  DID NOT PASS; what was said is in ");
            says.push_str(&dir.join(&name).display().to_string());
        }
        println!("kernel: {says}");
        said.push(says);
    }
    if said.len() > 1 {
        println!("kernel, all together:\n{}", said.join("\n"));
    }
    if bad > 0 {
        bail!("{bad} of {} runs did not pass", said.len());
    }
    Ok(())
}

/// Runs a script once, in `dir`; returns its output, and how many replicas were killed during the run.
fn run_one(
    machine: &Machine,
    program: &Path,
    script: &str,
    dir: &Path,
    trouble: &Disturbance,
) -> Result<(Vec<String>, u32)> {
    let host = Host::start(dir, program, trouble.durability())?;
    let (lines, kills) = trouble.while_running(&host, || {
        machine.boot(&host, dir, script)?.listen(|line| {
            println!("{line}");
            Ok(())
        })
    })?;
    std::fs::write(dir.join("said.txt"), lines.join("\n"))?;
    Ok((lines, kills))
}
