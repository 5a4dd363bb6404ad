//! The program around a service: what [`main!`](crate::main) generates.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command as Process, ExitCode, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{Args, CommandFactory, FromArgMatches, Parser, Subcommand};
use quorate_node::caller::CallerOptions;
use quorate_node::init::{Host, NewCluster};
use quorate_node::observe::{Observer, Verdict, json, text};
use quorate_node::place::lock_file;
use quorate_node::settings::ServiceName;
use quorate_node::{Caller, NodeError, ReplicaNode, signals};
use tracing_subscriber::filter::LevelFilter;

use crate::client::{Client, Error};
use crate::panics;
use crate::service::{Family, Typed};
#[cfg(feature = "sim")]
use crate::sim;
use crate::value::{Dice, Value};

/// Run a replicated service
///
/// Exit status: 0 success, 1 an operation was refused or a check failed, 2 wrong usage or settings,
/// 3 cluster unreachable.
#[derive(Parser, Debug)]
#[command(version, verbatim_doc_comment, disable_help_subcommand = true)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand, Debug)]
enum Command {
    Up(Up),
    Init(Init),
    Replica(Replica),
    Call(Call),
    Status(Status),
    #[cfg(feature = "sim")]
    Sim(Sim),
}

/// Start a cluster on this machine, until Ctrl-C
///
/// Creates the data directory if needed. Started again in the same directory, it continues with all data.
///
///   up --dir data
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
struct Up {
    /// Data directory; created if needed
    #[arg(long, default_value = "quorate-data")]
    dir: PathBuf,
    /// Faulty replicas to tolerate, of 3f + 1 (default 1). Only for a new cluster
    #[arg(long)]
    f: Option<u16>,
}

/// Create a new cluster: one directory for each node
///
/// Copy each directory to its machine, and start `replica` there.
///
///   init --dir cluster --f 1
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
struct Init {
    /// Directory to create the nodes in; must be empty or not exist
    #[arg(long)]
    dir: PathBuf,
    /// Faulty replicas to tolerate, of 3f + 1
    #[arg(long, default_value_t = 1)]
    f: u16,
    /// Addresses of the replicas, IP or IP:PORT: one for all, or one each (default: this machine)
    #[arg(long, value_name = "ADDR", num_args = 1..)]
    host: Vec<Host>,
    /// Number of clients to create keys for
    #[arg(long, default_value_t = 2)]
    clients: u16,
}

/// Run one replica in the foreground
///
///   replica --dir cluster/replica-0
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
struct Replica {
    /// The replica's directory, made by `init`
    #[arg(long)]
    dir: PathBuf,
}

/// Run an operation, and print the reply
///
/// Operations and replies are JSON: a variant with its fields, such as {"Open":{"name":"ann","amount":5}}.
///
///   call '{"Balance":{"name":"ann"}}'
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
struct Call {
    /// The client's directory, made by `init` or `up`
    #[arg(long, default_value = "quorate-data/client-0")]
    dir: PathBuf,
    /// The operation, as JSON
    operation: String,
}

/// Show the status of a cluster
///
/// Asks every replica about itself, runs two small operations, and reads the evidence against replicas that the clients
/// have stored in their directories. The status follows from all three. Exit status: 0 HEALTHY; 1 DEGRADED, HALTED or
/// UNSAFE; 2 the command was refused; 3 no replica answers.
///
///   status --dir cluster
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
struct Status {
    /// Directory that holds the nodes of the cluster
    #[arg(long, default_value = "quorate-data")]
    dir: PathBuf,
    /// Print JSON: one object for the cluster, then one for each replica
    #[arg(long)]
    json: bool,
}

/// Test the service in simulated clusters with injected faults, one for each seed
///
///   sim --seeds 100
#[cfg(feature = "sim")]
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
struct Sim {
    /// Run the seeds 1 to N
    #[arg(long, default_value_t = 100, value_name = "N", conflicts_with = "seed")]
    seeds: u64,
    /// Run one seed, decimal or hexadecimal
    #[arg(long, value_name = "S", value_parser = seed)]
    seed: Option<u64>,
}

#[cfg(feature = "sim")]
fn seed(text: &str) -> Result<u64, String> {
    let number = match text.strip_prefix("0x") {
        Some(digits) => u64::from_str_radix(digits, 16),
        None => text.parse(),
    };
    number.map_err(|_| "expected a whole number, such as 7 or 0x2f81".to_owned())
}

/// An error's exit status and text.
type ProgramResult = Result<(), (u8, String)>;

/// Runs the program of the service `F`, whose name is `name`.
pub fn run<F: Family>(name: &'static str) -> ExitCode {
    let command = Cli::command().name(name).bin_name(name);
    let parsed = command.try_get_matches().and_then(|matches| Cli::from_arg_matches(&matches));
    let command = match parsed {
        Ok(cli) => cli.command,
        Err(error) => error.exit(),
    };
    let outcome = match command {
        Command::Up(up) => up.run::<F>(name),
        Command::Init(init) => init.run(name),
        Command::Replica(replica) => replica.run::<F>(),
        Command::Call(call) => call.run::<F>(),
        Command::Status(status) => status.run(name),
        #[cfg(feature = "sim")]
        Command::Sim(sim) => sim.run::<F>(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err((status, text)) => {
            if !text.is_empty() {
                eprintln!("error: {text}");
            }
            ExitCode::from(status)
        }
    }
}

fn wrong(trouble: &NodeError) -> (u8, String) {
    (2, trouble.to_string())
}

fn own(f: u16) -> NewCluster {
    NewCluster { service: ServiceName::OWN, ..NewCluster::local(f) }
}

impl Init {
    fn run(&self, name: &str) -> ProgramResult {
        let cluster = NewCluster { hosts: self.host.clone(), clients: self.clients, ..own(self.f) };
        let made = cluster.make(&self.dir).map_err(|trouble| wrong(&trouble))?;
        let (dir, n) = (self.dir.display(), made.replicas.len());
        println!("created {dir}: {n} replicas, f = {}, {} clients", self.f, made.clients.len());
        println!(
            "next:  {name} replica --dir {dir}/replica-0      and the other replicas, each on its machine"
        );
        Ok(())
    }
}

impl Replica {
    fn run<F: Family>(&self) -> ProgramResult {
        // Before any thread starts: threads inherit the signal mask.
        let stop = signals::stop_flag().map_err(|trouble| wrong(&trouble))?;
        let level = std::env::var("QUORATE_LOG").ok().and_then(|level| level.parse().ok());
        tracing_subscriber::fmt()
            .with_max_level(level.unwrap_or(LevelFilter::INFO))
            .with_writer(std::io::stderr)
            .with_ansi(false)
            // A line that cannot be written is left out: the message about that would panic (L161).
            .log_internal_errors(false)
            .init();
        panics::print_few(std::io::stderr);
        let node = ReplicaNode::open(&self.dir).map_err(|trouble| wrong(&trouble))?;
        if node.settings().service != ServiceName::OWN {
            let name = node.settings().service.name();
            return Err((2, format!("the cluster of {} runs the service {name}", self.dir.display())));
        }
        node.run_service(Typed::<F>::new(), &stop).map_err(|trouble| wrong(&trouble))
    }
}

impl Call {
    fn run<F: Family>(&self) -> ProgramResult {
        let json =
            serde_json::from_str(&self.operation).map_err(|error| (2, format!("not JSON: {error}")))?;
        let operation = F::Operation::from_json(&json).map_err(|error| (2, error))?;
        let client = Client::<F>::open(&self.dir).map_err(|trouble| wrong(&trouble))?;
        match client.call(&operation) {
            Ok(reply) => {
                println!("{}", reply.to_json());
                // The reply contains the reason.
                if reply.is_refusal() { Err((1, String::new())) } else { Ok(()) }
            }
            Err(error @ Error::Unknown { .. }) => Err((3, error.to_string())),
            Err(error) => Err((1, error.to_string())),
        }
    }
}

impl Status {
    fn run(&self, name: &str) -> ProgramResult {
        let observer = Observer::open(&self.dir).map_err(|trouble| wrong(&trouble))?;
        let (picture, latency) = observer.look_well();
        if self.json {
            for line in json::lines(&picture) {
                println!("{line}");
            }
        } else {
            println!("{}", text::page(name, &picture, latency, &observer.addresses()));
        }
        match picture.verdict {
            _ if picture.answered() == 0 => Err((3, String::new())),
            Verdict::Healthy => Ok(()),
            Verdict::Degraded | Verdict::Halted | Verdict::Unsafe => Err((1, String::new())),
        }
    }
}

#[cfg(feature = "sim")]
impl Sim {
    fn run<F: Family>(&self) -> ProgramResult {
        let (first, count) = self.seed.map_or((1, self.seeds), |seed| (seed, 1));
        let began = Instant::now();
        let seeds = first..first.saturating_add(count);
        let report = sim::check::<F>(seeds).map_err(|failure| (1, failure.to_string()))?;
        println!(
            "{} seeds, 0 violations, 0 stuck: {} commands, {} view changes, {} s",
            report.seeds,
            report.commands,
            report.view_changes,
            began.elapsed().as_secs()
        );
        // The first line is above, with the time.
        println!("{}", report.to_string().split_once('\n').map_or("", |(_, table)| table));
        Ok(())
    }
}

/// Replicas that stop with this program.
struct Children(Vec<Child>);

impl Drop for Children {
    fn drop(&mut self) {
        for child in &mut self.0 {
            let _ = signals::ask_to_stop(child.id());
        }
        for child in &mut self.0 {
            let _ = child.wait();
        }
    }
}

impl Up {
    fn run<F: Family>(&self, name: &str) -> ProgramResult {
        let stop = signals::stop_flag().map_err(|trouble| wrong(&trouble))?;
        let is_new = fs::read_dir(&self.dir).map_or(true, |mut entries| entries.next().is_none());
        if is_new {
            own(self.f.unwrap_or(1)).make(&self.dir).map_err(|trouble| wrong(&trouble))?;
        }
        // Replicas that another `up` runs would answer, while those started here end.
        let _lock = lock_file(&self.dir.join("up.lock")).map_err(|trouble| wrong(&trouble))?;
        let replicas = replicas(&self.dir);
        let (n, f) = (replicas.len(), self.tolerates(replicas.len())?);
        if is_new {
            println!("created {}: {n} replicas, f = {f}", self.dir.display());
        }
        let program = std::env::current_exe().map_err(|error| (2, error.to_string()))?;
        let mut children = Children(Vec::new());
        for dir in replicas {
            children.0.push(start(&program, &dir).map_err(|error| (2, error.to_string()))?);
        }
        answers(&self.dir.join("client-1"), &mut children, &stop)?;
        let example = F::Operation::draw(&mut Dice::new(1)).to_json();
        println!("HEALTHY  {n} replicas, tolerates f = {f} Byzantine");
        println!("try: {name} call --dir {}/client-0 '{example}'      stop: Ctrl-C", self.dir.display());
        while !stop.load(Ordering::Relaxed) {
            std::thread::sleep(Duration::from_millis(50));
        }
        Ok(())
    }
}

impl Up {
    /// Returns how many faulty replicas of `n` the cluster tolerates, if this is what was asked for.
    fn tolerates(&self, n: usize) -> Result<usize, (u8, String)> {
        let f = n.saturating_sub(1) / 3;
        if self.f.is_none_or(|asked| usize::from(asked) == f) {
            return Ok(f);
        }
        let dir = self.dir.display();
        Err((2, format!("--f: the cluster in {dir} tolerates f = {f}, and this cannot be changed")))
    }
}

/// Returns the directories of the replicas in a cluster's directory.
fn replicas(dir: &Path) -> Vec<PathBuf> {
    let dirs = (0..).map(|id: u16| dir.join(format!("replica-{id}")));
    dirs.take_while(|dir| dir.is_dir()).collect()
}

fn start(program: &Path, dir: &Path) -> std::io::Result<Child> {
    let log = fs::File::options().create(true).append(true).open(dir.join("replica.log"))?;
    Process::new(program)
        .args(["replica", "--dir"])
        .arg(dir)
        .stdin(Stdio::null())
        .stdout(log.try_clone()?)
        .stderr(log)
        .spawn()
}

/// Waits until enough replicas agree on an answer, including an error.
fn answers(client: &Path, children: &mut Children, stop: &AtomicBool) -> ProgramResult {
    let options = CallerOptions { lanes: 1, deadline: Duration::from_millis(500) };
    let caller = Caller::open(client, options).map_err(|trouble| wrong(&trouble))?;
    let began = Instant::now();
    while !stop.load(Ordering::Relaxed) {
        for child in &mut children.0 {
            if let Ok(Some(status)) = child.try_wait() {
                return Err((2, format!("a replica did not start ({status}): read its replica.log")));
            }
        }
        // An empty operation: every service refuses it.
        if caller.call(&[], false).is_ok() {
            return Ok(());
        }
        if began.elapsed() > Duration::from_secs(30) {
            return Err((3, "the replicas do not agree on an answer: read their replica.log".to_owned()));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Map, Service};

    /// All replicas of a cluster are started, whatever `--f` says, and nothing is said about it that is not so.
    #[test]
    fn up_knows_the_size_of_a_cluster_from_its_directory() {
        let dir = std::env::temp_dir().join(format!("quorate-test-program-{}", std::process::id()));
        for name in
            ["replica-0", "replica-1", "replica-2", "replica-3", "replica-4", "replica-5", "replica-6"]
        {
            fs::create_dir_all(dir.join(name)).unwrap();
        }
        let n = replicas(&dir).len();
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(n, 7);
        let up = |f| Up { dir: dir.clone(), f };
        assert_eq!((up(None).tolerates(n), up(Some(2)).tolerates(n)), (Ok(2), Ok(2)));
        assert!(up(Some(1)).tolerates(n).is_err() && up(Some(2)).tolerates(4).is_err());
    }

    #[derive(crate::State)]
    struct Nothing<'a> {
        none: Map<'a, String, u64>,
    }

    #[derive(Debug, crate::Operation)]
    enum Ask {
        Size,
    }

    impl Service for Nothing<'_> {
        type Operation = Ask;
        type Reply = bool;

        fn execute(&mut self, _op: &Ask, _call: &crate::Call) -> bool {
            self.none.is_empty()
        }
    }

    /// A second `up` of a directory does not take the replicas of the first one for its own.
    #[test]
    fn a_second_up_of_a_directory_is_refused() {
        let dir = std::env::temp_dir().join(format!("quorate-test-second-up-{}", std::process::id()));
        fs::create_dir_all(dir.join("replica-0")).unwrap();
        let first = lock_file(&dir.join("up.lock")).unwrap();
        let (status, said) = Up { dir: dir.clone(), f: None }.run::<Nothing<'static>>("nothing").unwrap_err();
        assert!(status == 2 && said.contains("another process uses this directory"), "{said}");
        drop(first);
        fs::remove_dir_all(&dir).unwrap();
    }
}
