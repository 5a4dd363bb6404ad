//! Clusters on one machine, made by `quorate up`: one process for each node, with its process id in a file.
//!
//! ```text
//! DIR/up.lock            held by `quorate up` while it runs, with its process id
//! DIR/run/lock           held by a command while it starts or stops nodes
//! DIR/run/replica-0.pid  the process that runs replica 0, if one does
//! DIR/run/replica-0.how  the injected fault, if there is one: killed, paused, ...
//! DIR/replica-0/         made by `quorate init`, and replica.log
//! ```
//!
//! A process id is valid only if that process was started with this directory: the system reuses ids.

use std::fs::{self, File, OpenOptions};
use std::io::{ErrorKind, Read as _, Seek as _, SeekFrom, Write as _};
use std::net::{SocketAddr, TcpListener, UdpSocket};
use std::os::unix::fs::MetadataExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use quorate_node::error::NodeErrorKind;
use quorate_node::init::Made;
use quorate_node::members::Members;
use quorate_node::place::lock_file;
use quorate_node::ports::{Port, holder};
use quorate_node::settings::{ServiceName, Settings};
use quorate_pbft::config::Durability;
use quorate_wire::{Principal, ReplicaId};

use crate::code::Code;
use crate::fail::Failure;
use crate::log;

/// How long a process may take to stop cleanly before it is killed.
const STOP: Duration = Duration::from_secs(5);
/// How long another command may start or stop nodes.
const BUSY: Duration = Duration::from_secs(30);
/// How much of the end of a log is read, in bytes.
const LOG_BYTES: u64 = 64 << 10;
/// The least that a starting replica reads of its log and state in a second, on a slow and busy disk.
const READ_BYTES: u64 = 8 << 20;

/// What a replica logs when it has read its state. (The error for a second process also contains "runs".)
const RUNS: &str = ": runs replica=";

/// A cluster on this machine.
#[derive(Debug)]
pub(crate) struct Local {
    dir: PathBuf,
}

impl Local {
    /// The cluster in `dir`, running or not.
    pub(crate) fn at(dir: &Path) -> Self {
        Self { dir: fs::canonicalize(dir).unwrap_or_else(|_| dir.to_path_buf()) }
    }

    /// The cluster in `dir`, if `quorate up` made it.
    pub(crate) fn made(dir: &Path) -> Result<Self, Failure> {
        let local = Self::at(dir);
        if local.dir.join("run").is_dir() {
            return Ok(local);
        }
        Err(Failure::new(Code::Unreadable, "no cluster made by `quorate up`")
            .at(dir.display().to_string())
            .next("quorate up      or name the cluster's directory with --dir"))
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    /// The directory of a node.
    pub(crate) fn node(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }

    /// The replicas' names, in order.
    pub(crate) fn replicas(&self) -> Vec<String> {
        let names = (0..).map(|id: u16| format!("replica-{id}"));
        names.take_while(|name| self.dir.join(name).is_dir()).collect()
    }

    /// Returns the replicated service.
    pub(crate) fn service(&self) -> Result<ServiceName, Failure> {
        Ok(self.settings()?.service)
    }

    /// Returns whether the cluster's state survives when all its replicas stop.
    pub(crate) fn keeps(&self) -> Result<bool, Failure> {
        Ok(self.settings()?.config.durability != Durability::Memory)
    }

    /// The settings of the first replica; `up` gives all replicas the same.
    pub(crate) fn settings(&self) -> Result<Settings, Failure> {
        let (dir, own) = (self.node("replica-0"), Principal::Replica(ReplicaId(0)));
        let members = Members::read(&dir.join("cluster.toml"))?;
        Ok(Settings::read(&dir.join("node.toml"), own, members.cluster, members.cluster_id())?)
    }

    /// Returns whether `quorate up` runs on it.
    pub(crate) fn runs(&self) -> bool {
        let file = OpenOptions::new().read(true).open(self.dir.join("up.lock"));
        file.is_ok_and(|file| Flock::lock(file, FlockArg::LockExclusiveNonblock).is_err())
    }

    /// Returns the process of the `up` that runs on it. The number in the file alone may be that of an `up` that has
    /// ended, and of another process by now: a process that only looks holds the lock, too, for a moment.
    pub(crate) fn up(&self) -> Option<Pid> {
        let path = self.dir.join("up.lock");
        let pid: i32 = fs::read_to_string(&path).ok()?.trim().parse().ok()?;
        let place = |path: &Path| fs::metadata(path).ok().map(|found| (found.dev(), found.ino()));
        let own = place(&path)?;
        let mut open = fs::read_dir(format!("/proc/{pid}/fd")).ok()?.flatten();
        open.any(|file| place(&file.path()) == Some(own)).then(|| Pid::from_raw(pid))
    }

    /// Holds the lock of a running `up`.
    pub(crate) fn hold(&self) -> Result<Flock<File>, Failure> {
        lock_file(&self.dir.join("up.lock")).map_err(|trouble| {
            if trouble.kind != NodeErrorKind::InUse {
                return Failure::from(trouble);
            }
            Failure::new(Code::InUse, "another process runs this")
                .at(self.dir.display().to_string())
                .next("stop it first, or choose another directory with --dir")
        })
    }

    /// Keeps other commands from starting and stopping nodes until this is dropped. Waits for one that does.
    pub(crate) fn alone(&self) -> Result<Flock<File>, Failure> {
        let path = self.dir.join("run").join("lock");
        let file = OpenOptions::new().create(true).truncate(false).write(true).open(&path);
        let mut file = file.map_err(|error| unwritable(&path, &error))?;
        let end = Instant::now() + BUSY;
        loop {
            file = match Flock::lock(file, FlockArg::LockExclusiveNonblock) {
                Ok(held) => return Ok(held),
                Err((file, _)) if Instant::now() < end => file,
                Err(_) => {
                    return Err(Failure::new(Code::InUse, "another command starts or stops replicas")
                        .at(self.dir.display().to_string())
                        .next("wait until that command has ended, and repeat this one"));
                }
            };
            std::thread::sleep(Duration::from_millis(10));
        }
    }

    /// Returns whether a replica runs. Without a running `quorate up`, a killed one left it.
    pub(crate) fn any_replica_runs(&self) -> bool {
        self.replicas().iter().any(|name| self.process(name).is_some())
    }

    /// Returns the highest view that more than f replicas have entered, according to their logs.
    pub(crate) fn view(&self) -> u64 {
        let names = self.replicas();
        let mut views: Vec<u64> = names.iter().map(|name| self.last_view(name)).collect();
        views.sort_unstable();
        // Of n sorted numbers, f + 1 are at least the one at n - f - 1.
        let f = names.len().saturating_sub(1) / 3;
        views.get(names.len().saturating_sub(f + 1)).copied().unwrap_or(0)
    }

    /// Returns whether a replica has lost its state and not rejoined yet, according to its log.
    pub(crate) fn rejoins(&self, name: &str) -> bool {
        let text = self.log(name, "replica.log");
        let last = |what: &str| text.rfind(what);
        last("state is lost").max(last("state lost or untrusted")) > last("has rejoined")
    }

    /// Returns how long a replica may take to read its disk before it runs.
    pub(crate) fn reads_for(&self, name: &str) -> Duration {
        let parts = ["log", "checkpoint"].map(|part| self.node(name).join(part));
        let files = parts.iter().filter_map(|part| fs::read_dir(part).ok()).flatten().flatten();
        let bytes: u64 = files.filter_map(|file| Some(file.metadata().ok()?.len())).sum();
        Duration::from_secs(bytes / READ_BYTES)
    }

    /// Returns whether a replica has started to run since its log had this length.
    pub(crate) fn runs_since(&self, name: &str, bytes: u64) -> bool {
        self.log_since(name, bytes).contains(RUNS)
    }

    /// Returns whether a replica has rejoined since it was started.
    pub(crate) fn is_back(&self, name: &str) -> bool {
        let text = self.log(name, "replica.log");
        text.rfind("has rejoined") > text.rfind(RUNS)
    }

    fn last_view(&self, name: &str) -> u64 {
        let text = self.log(name, "replica.log");
        let line = text.lines().rev().find(|line| line.contains("entered the view"));
        line.and_then(|line| line.split("view=").nth(1)?.trim().parse().ok()).unwrap_or(0)
    }

    /// Starts a node with this subcommand and arguments; its standard error goes to its log file.
    pub(crate) fn start(&self, name: &str, command: &str, arguments: &[String]) -> Result<Child, Failure> {
        self.spawn(name, &mut self.command(name, command, arguments)?)
    }

    /// The same, for a node that runs longer than this command: Ctrl-C in the terminal ends the command only.
    pub(crate) fn start_apart(
        &self,
        name: &str,
        command: &str,
        arguments: &[String],
    ) -> Result<Child, Failure> {
        let mut command = self.command(name, command, arguments)?;
        command.process_group(0);
        self.spawn(name, &mut command)
    }

    fn command(&self, name: &str, command: &str, arguments: &[String]) -> Result<Command, Failure> {
        let program = std::env::current_exe().map_err(|error| {
            Failure::new(Code::Unreadable, format!("this program's own file cannot be found: {error}"))
        })?;
        let path = match command {
            "replica" => self.node(name).join("replica.log"),
            // Of a subcommand of a subcommand the last word.
            _ => self.node(name).join(format!("{}.log", command.rsplit(' ').next().unwrap_or(command))),
        };
        let file = OpenOptions::new().create(true).append(true).open(&path);
        let file = file.map_err(|error| unwritable(&path, &error))?;
        let mut process = Command::new(program);
        log::readable(&mut process)
            .args(command.split(' '))
            .arg("--dir")
            .arg(self.node(name))
            .args(arguments);
        process.stdin(Stdio::null()).stdout(Stdio::null()).stderr(file);
        Ok(process)
    }

    fn spawn(&self, name: &str, command: &mut Command) -> Result<Child, Failure> {
        let mut child = command
            .spawn()
            .map_err(|error| Failure::new(Code::Network, format!("{name} cannot be started: {error}")))?;
        let noted = self.write(name, "pid", &child.id().to_string());
        if noted.is_err() {
            // Without its number nobody finds it later.
            let _ = child.kill();
            let _ = child.wait();
        }
        noted.map(|()| child)
    }

    /// Returns the process that runs a node, if one does.
    pub(crate) fn process(&self, name: &str) -> Option<Pid> {
        self.running(name).map(|(pid, _)| pid)
    }

    /// Returns whether the process that runs a replica is a liar.
    pub(crate) fn lies(&self, name: &str) -> bool {
        self.running(name).is_some_and(|(_, line)| has_word(&line, b"--liar"))
    }

    /// Returns the process that runs a node, and its command line.
    fn running(&self, name: &str) -> Option<(Pid, Vec<u8>)> {
        let pid: i32 = self.read(name, "pid")?.trim().parse().ok()?;
        let line = fs::read(format!("/proc/{pid}/cmdline")).ok()?;
        // A zombie process has no command line.
        let ours = has_word(&line, self.node(name).as_os_str().as_encoded_bytes());
        ours.then(|| (Pid::from_raw(pid), line))
    }

    /// Sends a signal to a node, if it runs.
    pub(crate) fn signal(&self, name: &str, signal: Signal) -> bool {
        self.process(name).is_some_and(|pid| kill(pid, signal).is_ok())
    }

    /// Stops a node: with SIGTERM first, then with SIGKILL.
    pub(crate) fn stop(&self, name: &str) {
        // A paused process would not handle SIGTERM.
        self.signal(name, Signal::SIGCONT);
        self.signal(name, Signal::SIGTERM);
        if !self.wait_until_gone(name, STOP) {
            self.signal(name, Signal::SIGKILL);
            self.wait_until_gone(name, STOP);
        }
        self.forget_process(name);
    }

    /// Removes the file with a node's process id, once the process has ended.
    pub(crate) fn forget_process(&self, name: &str) {
        let _ = fs::remove_file(self.file(name, "pid"));
    }

    /// Waits until a node's process has ended. Returns false if it has not in time.
    pub(crate) fn wait_until_gone(&self, name: &str, within: Duration) -> bool {
        let end = Instant::now() + within;
        while self.process(name).is_some() || self.ends(name) {
            if Instant::now() > end {
                return false;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        true
    }

    /// Returns whether a node's process is still ending: its memory is gone, but not its ports.
    fn ends(&self, name: &str) -> bool {
        let Some(pid) = self.read(name, "pid") else { return false };
        let pid = pid.trim();
        let has_memory = fs::read(format!("/proc/{pid}/cmdline")).is_ok_and(|line| !line.is_empty());
        !has_memory && fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| holds(&stat))
    }

    /// Returns the fault injected into a node.
    pub(crate) fn fault(&self, name: &str) -> Option<String> {
        self.read(name, "how")
    }

    /// Records the fault injected into a node, or that there is none.
    pub(crate) fn set_fault(&self, name: &str, how: Option<&str>) -> Result<(), Failure> {
        if let Some(how) = how {
            return self.write(name, "how", how);
        }
        let _ = fs::remove_file(self.file(name, "how"));
        Ok(())
    }

    /// Returns the last lines of a node's log, which say why it stopped.
    pub(crate) fn last_lines(&self, name: &str, log: &str, count: usize) -> String {
        let text = self.log(name, log);
        let lines: Vec<&str> = text.lines().collect();
        lines[lines.len().saturating_sub(count)..].join("\n")
    }

    /// Returns the length of a replica's log, in bytes.
    pub(crate) fn log_bytes(&self, name: &str) -> u64 {
        fs::metadata(self.node(name).join("replica.log")).map_or(0, |data| data.len())
    }

    /// Returns what was added to a replica's log since it had this length: only the end, if that is long.
    pub(crate) fn log_since(&self, name: &str, bytes: u64) -> String {
        let more = usize::try_from(self.log_bytes(name).saturating_sub(bytes)).unwrap_or(usize::MAX);
        let text = self.log(name, "replica.log").into_bytes();
        String::from_utf8_lossy(&text[text.len().saturating_sub(more)..]).into_owned()
    }

    /// Returns the end of a node's log. It is read once a second, and replicas log only rare events, so the end
    /// reaches far back.
    fn log(&self, name: &str, log: &str) -> String {
        let read = || {
            let mut file = File::open(self.node(name).join(log))?;
            let len = file.metadata()?.len();
            file.seek(SeekFrom::Start(len.saturating_sub(LOG_BYTES)))?;
            let mut bytes = Vec::new();
            file.take(LOG_BYTES).read_to_end(&mut bytes)?;
            std::io::Result::Ok(bytes)
        };
        String::from_utf8_lossy(&read().unwrap_or_default()).into_owned()
    }

    fn file(&self, name: &str, what: &str) -> PathBuf {
        self.dir.join("run").join(format!("{name}.{what}"))
    }

    fn read(&self, name: &str, what: &str) -> Option<String> {
        fs::read_to_string(self.file(name, what)).ok()
    }

    fn write(&self, name: &str, what: &str, text: &str) -> Result<(), Failure> {
        let path = self.file(name, what);
        let write = || File::create(&path)?.write_all(text.as_bytes());
        write().map_err(|error| unwritable(&path, &error))
    }
}

/// Returns whether a command line has this word.
fn has_word(line: &[u8], word: &[u8]) -> bool {
    line.split(|byte| *byte == 0).any(|other| other == word)
}

/// Returns whether a process without memory still holds its ports and locks, from its `/proc` status. It does until
/// all its threads have ended; one may still be in a long read of a large state.
fn holds(stat: &str) -> bool {
    // After the program's name, which may contain anything: the state, and 17 words later the number of threads.
    let mut words = stat.rsplit(')').next().unwrap_or_default().split_whitespace();
    let is_zombie = words.next().is_none_or(|state| matches!(state, "Z" | "X"));
    let threads = words.nth(16).and_then(|word| word.parse().ok()).unwrap_or(0);
    !is_zombie || threads > 1
}

/// Checks that the ports of a new cluster are free, before anything is created. `command` creates it.
pub(crate) fn check_new(new: &Made, command: &str) -> Result<(), Failure> {
    let Some(first) = new.replicas.first() else { return Ok(()) };
    let other = SocketAddr::new(first.ip(), first.port().saturating_add(100));
    let mut all = new.replicas.iter().chain(&new.clients);
    all.try_for_each(|address| {
        let next = format!("{command} --host {other}      or stop the other process");
        check_free(&[Port::Udp, Port::Tcp], *address, "--host", next)
    })
}

/// Checks that ports are free.
pub(crate) fn check_free(
    ports: &[Port],
    address: SocketAddr,
    place: &str,
    next: String,
) -> Result<(), Failure> {
    let bind = |port: &Port| match port {
        Port::Udp => UdpSocket::bind(address).map(drop).map_err(|error| (*port, error)),
        Port::Tcp => TcpListener::bind(address).map(drop).map_err(|error| (*port, error)),
    };
    ports.iter().try_for_each(bind).map_err(|(port, error)| {
        if error.kind() == ErrorKind::AddrNotAvailable {
            return Failure::new(Code::Rule, format!("{} is not an address of this machine", address.ip()))
                .at(format!("{place}, {address}"));
        }
        let (code, what) = if error.kind() == ErrorKind::AddrInUse {
            let who = holder(port, address).map_or(String::new(), |who| format!(" by {who}"));
            (Code::Taken, format!("port {} is taken{who}", address.port()))
        } else {
            (Code::Network, format!("cannot listen: {error}"))
        };
        Failure::new(code, what).at(format!("{place}, {address}")).next(next)
    })
}

/// A file cannot be written.
pub(crate) fn unwritable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new(Code::Unwritable, format!("cannot be written: {error}")).at(path.display().to_string())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_holds_its_ports_until_its_last_thread_has_ended() {
        let stat = |state: &str, threads: u32| {
            format!("71 (a ) b) {state} 1 71 71 0 -1 4228364 9 0 0 0 1 2 0 0 20 0 {threads} 0 5173 0 0")
        };
        assert!(holds(&stat("R", 1)), "still ending");
        assert!(holds(&stat("Z", 2)), "its first thread has ended, another reads");
        assert!(!holds(&stat("Z", 1)), "a zombie");
        assert!(!holds(&stat("X", 0)));
    }

    #[test]
    fn the_kernel_tells_the_number_of_threads_where_it_is_looked_for() -> std::io::Result<()> {
        let (end, ended) = std::sync::mpsc::channel::<()>();
        let other = std::thread::spawn(move || ended.recv());
        let stat = fs::read_to_string("/proc/self/stat")?;
        let (before, after) = stat.rsplit_once(") ").unwrap_or_default();
        assert!(holds(&format!("{before}) Z{}", after.get(1..).unwrap_or_default())), "{stat}");
        drop(end);
        assert!(other.join().is_ok());
        Ok(())
    }

    /// `down` sends no signal to a process that has the number of an `up` that has ended.
    #[test]
    fn the_process_of_up_has_its_lock_open() -> std::io::Result<()> {
        let dir = std::env::temp_dir().join(format!("quorate-test-up-lock-{}", std::process::id()));
        fs::create_dir_all(&dir)?;
        let local = Local::at(&dir);
        let own = i32::try_from(std::process::id()).unwrap_or(0);
        fs::write(dir.join("up.lock"), own.to_string())?;
        assert_eq!(local.up(), None, "another process by now");
        let open = File::open(dir.join("up.lock"))?;
        assert_eq!(local.up(), Some(Pid::from_raw(own)));
        drop(open);
        fs::write(dir.join("up.lock"), "")?;
        assert_eq!(local.up(), None, "it has the lock, and has not written its number yet");
        fs::remove_dir_all(&dir)
    }

    #[test]
    fn the_more_a_replica_has_on_disk_the_longer_it_may_read() -> std::io::Result<()> {
        let dir = std::env::temp_dir().join(format!("quorate-test-reads-for-{}", std::process::id()));
        let local = Local::at(&dir);
        assert_eq!(local.reads_for("replica-0"), Duration::ZERO, "an empty directory");
        for (part, bytes) in [("log", 1 << 30), ("checkpoint", 3 << 30)] {
            fs::create_dir_all(dir.join("replica-0").join(part))?;
            File::create(dir.join("replica-0").join(part).join("0"))?.set_len(bytes)?;
        }
        assert_eq!(local.reads_for("replica-0"), Duration::from_secs(512), "4 GiB");
        fs::remove_dir_all(&dir)
    }
}
