//! The processes of an experiment: this program, started again for one part of it.
//!
//! A child prints `ready` when it is, then follows the commands on its standard input. It dies with its parent.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

use anyhow::{Context, Result, ensure};
use nix::sched::{CpuSet, sched_setaffinity};
use nix::sys::prctl::set_pdeathsig;
use nix::sys::signal::Signal;
use nix::unistd::Pid;

/// The arguments that run a part of an experiment: see [`child`](crate::child).
pub const CHILD: [&str; 2] = ["bench", "child"];

/// The cores of the replicas, in order.
pub(crate) const REPLICA_CORES: [usize; 4] = [1, 0, 0, 1];

/// The nice level that measured processes ask for.
const NICE: &str = "-15";

/// Returns the nice level of children: [`NICE`] if that is permitted, otherwise the present one.
pub(crate) fn nice_level() -> &'static str {
    let tried = Command::new("nice").args(["-n", NICE, "true"]).output();
    // `nice` continues with a warning if it may not.
    if tried.is_ok_and(|output| output.status.success() && output.stderr.is_empty()) { NICE } else { "0" }
}

/// Returns a core that the machine has.
fn existing(core: usize) -> String {
    let cores = std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get);
    (core % cores).to_string()
}

/// Returns the command for a part of an experiment on one core, at the usual nice level.
pub(crate) fn command(core: usize, arguments: &[String]) -> Result<Command> {
    let mut command = Command::new(std::env::current_exe()?);
    command.args(CHILD).args(arguments).env(CORE, existing(core));
    Ok(command)
}

/// A process of an experiment. It is killed when this is dropped.
#[derive(Debug)]
pub(crate) struct Part {
    name: String,
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Part {
    /// Starts this program for a part of an experiment, on one core, and waits until it is ready.
    pub(crate) fn start(core: usize, arguments: &[String]) -> Result<Self> {
        Self::start_on(&existing(core), arguments)
    }

    /// The same, on any free core.
    pub(crate) fn start_anywhere(arguments: &[String]) -> Result<Self> {
        Self::start_on(ANYWHERE, arguments)
    }

    fn start_on(core: &str, arguments: &[String]) -> Result<Self> {
        let name = arguments.join(" ");
        let mut child = Command::new("nice")
            .args(["-n", nice_level()])
            .arg(std::env::current_exe()?)
            .args(CHILD)
            .args(arguments)
            .env(CORE, core)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .with_context(|| format!("{name} does not start"))?;
        let input = child.stdin.take().context("a pipe was asked for")?;
        let output = BufReader::new(child.stdout.take().context("a pipe was asked for")?);
        let mut part = Self { name, child, input, output };
        let word = part.line()?;
        ensure!(word == READY, "{} said {word:?} instead of {READY:?}", part.name);
        Ok(part)
    }

    /// Sends it a command.
    pub(crate) fn tell(&mut self, line: &str) -> Result<()> {
        writeln!(self.input, "{line}").with_context(|| format!("{} is gone", self.name))?;
        self.input.flush()?;
        Ok(())
    }

    /// Waits for its next line.
    pub(crate) fn line(&mut self) -> Result<String> {
        let mut line = String::new();
        self.output.read_line(&mut line)?;
        ensure!(!line.is_empty(), "{} is gone", self.name);
        Ok(line.trim().to_owned())
    }

    /// Sends it a command and waits for its answer.
    pub(crate) fn answer(&mut self, line: &str) -> Result<String> {
        self.tell(line)?;
        self.line()
    }
}

impl Part {
    /// Returns the processor time that it has used, in nanoseconds.
    pub(crate) fn cpu_ns(&self) -> Result<u64> {
        all_threads_ns(self.child.id())
    }
}

impl Part {
    /// Returns how often it has slept.
    pub(crate) fn sleeps(&self) -> Result<u64> {
        let path = format!("/proc/{}/status", self.child.id());
        let text = std::fs::read_to_string(&path)?;
        let line = text.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        Ok(line.with_context(|| format!("{path} does not say it"))?.trim().parse()?)
    }
}

/// Returns the processor time that all threads of a process have used, in nanoseconds.
pub(crate) fn all_threads_ns(pid: u32) -> Result<u64> {
    let mut all = 0;
    for thread in std::fs::read_dir(format!("/proc/{pid}/task"))? {
        let path = thread?.path().join("schedstat");
        // A thread may have ended since the directory was read. It is no error, and its time is gone with it.
        let Ok(text) = std::fs::read_to_string(&path) else { continue };
        let first: Option<u64> = text.split_whitespace().next().and_then(|word| word.parse().ok());
        all += first.with_context(|| format!("{} says {text:?}", path.display()))?;
    }
    Ok(all)
}

/// Returns a process and all its descendants.
pub(crate) fn children(pid: u32) -> Vec<u32> {
    let text = std::fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let started = text.split_whitespace().filter_map(|word| word.parse().ok());
    std::iter::once(pid).chain(started.flat_map(children)).collect()
}

impl Drop for Part {
    fn drop(&mut self) {
        // It may have gone already, which is as good.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The variable that names a child's core.
const CORE: &str = "QUORATE_BENCH_CORE";
/// The value of that variable for any core.
const ANYWHERE: &str = "any";
/// The line that a child prints when it is ready.
const READY: &str = "ready";

/// Puts this process, a child, on its core, and lets it die with its parent.
pub(crate) fn settle() -> Result<()> {
    set_pdeathsig(Signal::SIGKILL)?;
    let core = std::env::var(CORE).context("only experiments can start this command")?;
    if core != ANYWHERE {
        let mut cores = CpuSet::new();
        cores.set(core.parse()?)?;
        sched_setaffinity(Pid::this(), &cores)?;
    }
    Ok(())
}

/// Reports that this process is ready, and returns the lines of its parent.
pub(crate) fn ready() -> Result<impl Iterator<Item = std::io::Result<String>>> {
    say(READY)?;
    Ok(std::io::stdin().lines())
}

/// Sends a line to the parent.
pub(crate) fn say(line: &str) -> Result<()> {
    let mut output = std::io::stdout().lock();
    writeln!(output, "{line}")?;
    output.flush()?;
    Ok(())
}
