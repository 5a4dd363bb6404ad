//! Machines as network namespaces, and the processes on them.

use std::fs::{self, File};
use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

use crate::root;

/// The address of `here`.
const HERE: &str = "10.0.0.100";
/// How long a process may take to end after Ctrl-C.
const END: Duration = Duration::from_secs(30);

/// The machines that the pages name: `here`, where the reader is, and hosts by their addresses.
pub(crate) struct Machines {
    dir: PathBuf,
    hosts: Vec<Host>,
    /// What runs in the foreground, in the terminals of the reader.
    terminals: Vec<Terminal>,
    path: String,
}

struct Host {
    name: String,
    /// Keeps its namespace.
    holder: Child,
}

struct Terminal {
    host: String,
    command: String,
    child: Child,
}

/// A client that writes all the time.
pub(crate) struct Writer {
    stop: Arc<AtomicBool>,
    thread: JoinHandle<(u64, Duration)>,
}

impl Writer {
    /// Ends it. Returns how many writes it did, and the longest time that one took.
    pub(crate) fn stop(self) -> (u64, Duration) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

impl Terminal {
    fn is(&self, host: &str, word: &str) -> bool {
        self.host == host && self.command.split(' ').any(|other| other == word)
    }
}

impl Machines {
    pub(crate) fn new(name: &str) -> Self {
        let dir = std::env::temp_dir().join(format!("quorate-documents-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&dir);
        let (bin, here) = (dir.join("bin"), dir.join("here"));
        fs::create_dir_all(&bin).unwrap();
        fs::create_dir_all(&here).unwrap();
        symlink("here", dir.join(HERE)).unwrap();
        fs::copy(root().join("README.md"), here.join("README.md")).unwrap();
        symlink(env!("CARGO_BIN_EXE_quorate"), bin.join("quorate")).unwrap();
        symlink(example("bank"), bin.join("bank")).unwrap();
        for (name, script) in [("cargo", CARGO), ("ssh", SSH), ("scp", SCP)] {
            fs::write(bin.join(name), script).unwrap();
            fs::set_permissions(bin.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
        let path = format!("{}:{}", bin.display(), std::env::var("PATH").unwrap());
        let machines = Self { dir, hosts: Vec::new(), terminals: Vec::new(), path };
        let network = format!(
            "ip link set lo up; ip link add br0 type bridge; ip addr add {HERE}/24 dev br0; ip link set br0 up"
        );
        machines.run("here", &network, "the network", false, END);
        machines
    }

    /// Makes a machine with this address, if there is none yet.
    pub(crate) fn reach(&mut self, name: &str) {
        if name == HERE || self.hosts.iter().any(|host| host.name == name) {
            return;
        }
        let holder =
            Command::new("unshare").args(["-n", "sleep", "100000"]).stdin(Stdio::null()).spawn().unwrap();
        let (pid, number) = (holder.id(), self.hosts.len());
        fs::create_dir_all(self.dir.join(name)).unwrap();
        fs::write(self.dir.join(format!("{name}.pid")), pid.to_string()).unwrap();
        self.hosts.push(Host { name: name.to_owned(), holder });
        // It has left this namespace.
        let own = fs::read_link("/proc/self/ns/net").unwrap();
        let begin = Instant::now();
        while fs::read_link(format!("/proc/{pid}/ns/net")).is_ok_and(|its| its == own) {
            assert!(begin.elapsed() < END, "no namespace for {name}");
            std::thread::sleep(Duration::from_millis(5));
        }
        let link = format!(
            "ip link add v{number} type veth peer name eth0 netns {pid}; ip link set v{number} master br0 up; \
             nsenter -t {pid} -n sh -ec 'ip link set lo up; ip addr add {name}/24 dev eth0; ip link set eth0 up'"
        );
        self.run("here", &link, name, false, END);
    }

    /// Returns a command of the shell on a machine.
    fn shell(&self, host: &str, line: &str) -> Command {
        let mut command = Command::new("nsenter");
        if let Some(known) = self.hosts.iter().find(|known| known.name == host) {
            command.args(["-t", &known.holder.id().to_string(), "-n", "sh", "-ec", line]);
        } else {
            command = Command::new("sh");
            command.args(["-ec", line]);
        }
        let home = self.dir.join(host);
        command.env("PATH", &self.path).env("HOME", &home).env("MACHINES", &self.dir).current_dir(home);
        command.stdin(Stdio::null());
        command
    }

    /// Runs a command to its end. `may_fail`: 1 is a status, too.
    pub(crate) fn run(&self, host: &str, line: &str, place: &str, may_fail: bool, patience: Duration) {
        let log = self.dir.join("output");
        let file = File::create(&log).unwrap();
        let mut command = self.shell(host, line);
        let mut child = command.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        let begin = Instant::now();
        let status = loop {
            if let Some(status) = child.try_wait().unwrap() {
                break status.code();
            }
            if begin.elapsed() > patience {
                let _ = child.kill();
                panic!("{place}: does not end: {}", fs::read_to_string(&log).unwrap());
            }
            std::thread::sleep(Duration::from_millis(10));
        };
        let said = fs::read_to_string(&log).unwrap_or_default();
        println!("{place}  ({:.1} s)\n{said}", begin.elapsed().as_secs_f64());
        assert!(status == Some(0) || may_fail && status == Some(1), "{place}: status {status:?}: {said}");
    }

    /// Starts a command in a terminal of its own, and waits until it says that it is ready.
    pub(crate) fn start(&mut self, host: &str, line: &str, ready: &str, place: &str, patience: Duration) {
        let log = self.dir.join(format!("terminal-{}", self.terminals.len()));
        let file = File::create(&log).unwrap();
        let mut command = self.shell(host, &format!("exec {line}"));
        let child = command.stdout(file.try_clone().unwrap()).stderr(file).spawn().unwrap();
        self.terminals.push(Terminal { host: host.to_owned(), command: place.to_owned(), child });
        let (begin, last) = (Instant::now(), self.terminals.len() - 1);
        loop {
            let said = fs::read_to_string(&log).unwrap();
            if said.contains(ready) {
                println!("{place}  (runs after {:.1} s)\n{said}", begin.elapsed().as_secs_f64());
                return;
            }
            let ended = self.terminals[last].child.try_wait().unwrap();
            assert!(ended.is_none(), "{place}: has ended: {said}");
            assert!(begin.elapsed() < patience, "{place}: no {ready:?}: {said}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Starts a client that writes all the time.
    pub(crate) fn writer(&self, host: &str, dir: &str) -> Writer {
        let mut command = self.shell(host, &format!("exec quorate kv --deadline 30s --dir {dir}"));
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (mut input, output) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = std::thread::spawn(move || {
            let (mut answers, mut count, mut gap) = (BufReader::new(output).lines(), 0, Duration::ZERO);
            let mut first = None;
            while !stopped.load(Ordering::Relaxed) {
                let begin = Instant::now();
                writeln!(input, "incr writes 1").unwrap();
                let answer = answers.next().unwrap().unwrap();
                // The first one goes on where an earlier client has ended.
                let number: u64 =
                    answer.strip_prefix("ok ").unwrap_or_else(|| panic!("{answer}")).parse().unwrap();
                let first = *first.get_or_insert(number);
                assert_eq!(number, first + count);
                count += 1;
                gap = gap.max(begin.elapsed());
            }
            drop(input);
            assert!(child.wait().unwrap().success());
            (count, gap)
        });
        Writer { stop, thread }
    }

    /// Presses Ctrl-C in all terminals, or in those of a machine whose commands have a word.
    pub(crate) fn stop(&mut self, which: Option<(&str, &str)>) {
        let (mut stopped, kept) = std::mem::take(&mut self.terminals)
            .into_iter()
            .partition::<Vec<_>, _>(|terminal| which.is_none_or(|(host, word)| terminal.is(host, word)));
        self.terminals = kept;
        // The newest first: a mount before its cluster.
        for terminal in stopped.iter_mut().rev() {
            let _ = kill(Pid::from_raw(i32::try_from(terminal.child.id()).unwrap()), Signal::SIGINT);
            let begin = Instant::now();
            while terminal.child.try_wait().unwrap().is_none() {
                assert!(begin.elapsed() < END, "{}: Ctrl-C does not end it", terminal.command);
                std::thread::sleep(Duration::from_millis(10));
            }
        }
    }

    /// Loses a machine: its processes and its disk.
    pub(crate) fn lose(&mut self, host: &str) {
        for terminal in self.terminals.iter_mut().filter(|terminal| terminal.host == host) {
            let _ = terminal.child.kill();
            let _ = terminal.child.wait();
        }
        self.terminals.retain(|terminal| terminal.host != host);
        fs::remove_dir_all(self.dir.join(host)).unwrap();
        fs::create_dir_all(self.dir.join(host)).unwrap();
    }
}

impl Drop for Machines {
    fn drop(&mut self) {
        let panics = std::thread::panicking();
        for terminal in &mut self.terminals {
            let signal = if panics { Signal::SIGTERM } else { Signal::SIGINT };
            let _ = kill(Pid::from_raw(i32::try_from(terminal.child.id()).unwrap_or(0)), signal);
        }
        for terminal in &mut self.terminals {
            let begin = Instant::now();
            while matches!(terminal.child.try_wait(), Ok(None)) && begin.elapsed() < END {
                std::thread::sleep(Duration::from_millis(10));
            }
            let _ = terminal.child.kill();
            let _ = terminal.child.wait();
        }
        for host in &mut self.hosts {
            let _ = host.holder.kill();
            let _ = host.holder.wait();
        }
        if panics {
            eprintln!("left for you: {}", self.dir.display());
        } else {
            let _ = fs::remove_dir_all(&self.dir);
        }
    }
}

/// Returns an example of the crate `quorate`, which cargo has built with the tests.
fn example(name: &str) -> PathBuf {
    let own = std::env::current_exe().unwrap();
    let built = own.parent().and_then(Path::parent).unwrap().join("examples").join(name);
    assert!(built.exists(), "cargo build -p quorate --features program,sim --example {name}");
    built
}

/// Runs what is built already.
const CARGO: &str = "#!/bin/sh -e
program=quorate
while [ $# -gt 0 ]; do
  case $1 in
    --) shift; break ;;
    --example) program=$2; shift 2 ;;
    run | --release) shift ;;
    *) echo \"a document may not run cargo with $1\" >&2; exit 1 ;;
  esac
done
exec $program \"$@\"
";

/// `ssh HOST COMMAND`.
const SSH: &str = "#!/bin/sh -e
host=$1
shift
cd \"$MACHINES/$host\"
[ -e \"$MACHINES/$host.pid\" ] || exec sh -ec \"$*\"
HOME=$MACHINES/$host exec nsenter -t \"$(cat \"$MACHINES/$host.pid\")\" -n sh -ec \"$*\"
";

/// `scp -pr FROM... HOST:TO`.
const SCP: &str = "#!/bin/sh -e
for last; do :; done
while [ $# -gt 1 ]; do
  case $1 in
    -*) ;;
    *) cp -a \"$1\" \"$MACHINES/${last%%:*}/${last#*:}\" ;;
  esac
  shift
done
";
