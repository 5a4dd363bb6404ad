//! A cluster of real processes on loopback, and a client that counts.

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant, SystemTime};

use nix::sys::signal::{self, Signal};
use nix::unistd::Pid;
use quorate_node::{ClientNode, Clock, OpenClient};
use quorate_service::kv::{Answer, Operation};

/// What a healthy cluster answers within on a busy machine.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the command.
pub(crate) fn quorate(arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_quorate")).args(arguments).stdin(Stdio::null()).output().unwrap()
}

/// Everything under a directory, with its modes.
pub(crate) fn content(dir: &Path) -> BTreeMap<PathBuf, (u32, Vec<u8>)> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(content(&path));
        } else if !path.ends_with("lock") {
            let mode = fs::metadata(&path).unwrap().permissions().mode();
            found.insert(path.clone(), (mode, fs::read(&path).unwrap()));
        }
    }
    found
}

/// A process that ends with the test.
pub(crate) struct Ended(pub(crate) Child);

impl Drop for Ended {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Returns an address of loopback that no other test of this machine uses at the time.
pub(crate) fn own_address() -> IpAddr {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let [.., high, low] = std::process::id().to_be_bytes();
    let number = u8::try_from(NEXT.fetch_add(1, Ordering::Relaxed)).unwrap();
    IpAddr::V4(Ipv4Addr::new(127, number, high, low.clamp(1, 254)))
}

/// A directory that goes when the test has passed; if not, it stays to be looked at.
#[derive(Debug)]
pub(crate) struct Dir(PathBuf);

impl Dir {
    pub(crate) fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("quorate-test-{name}-{}", std::process::id()));
        let _ = fs::remove_dir_all(&path);
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    pub(crate) fn path(&self) -> &Path {
        &self.0
    }

    pub(crate) fn join(&self, name: &str) -> String {
        self.0.join(name).display().to_string()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("left for you: {}", self.0.display());
        } else {
            let _ = fs::remove_dir_all(&self.0);
        }
    }
}

/// Replicas as processes.
#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) dir: Dir,
    replicas: Vec<Option<Child>>,
}

impl Cluster {
    /// Makes a cluster with these settings, a line each, and starts its replicas.
    pub(crate) fn start(name: &str, flags: &[&str], lines: &str) -> Self {
        let mut cluster = Self::make(name, flags, lines);
        (0..4).for_each(|i| cluster.run(i));
        cluster
    }

    /// As [`Self::start`], but starts none of them yet.
    pub(crate) fn make(name: &str, flags: &[&str], lines: &str) -> Self {
        Self::make_at(&own_address().to_string(), name, flags, lines)
    }

    /// The same, on this address.
    pub(crate) fn make_at(host: &str, name: &str, flags: &[&str], lines: &str) -> Self {
        let dir = Dir::new(name);
        let root = dir.join("c");
        let settings: Vec<String> = lines.lines().map(|line| line.replace('"', "")).collect();
        let set = settings.iter().filter(|line| !line.is_empty()).flat_map(|line| ["--set", line]);
        let set: Vec<&str> = set.collect();
        let made = quorate(&[&["init", "--dir", &root, "--host", host], flags, &set].concat());
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
        Self { dir, replicas: (0..4).map(|_| None).collect() }
    }

    pub(crate) fn replica_dir(&self, i: usize) -> PathBuf {
        self.dir.path().join("c").join(format!("replica-{i}"))
    }

    /// Starts replica `i`.
    pub(crate) fn run(&mut self, i: usize) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_quorate"));
        command.args(["replica", "--dir"]).arg(self.replica_dir(i));
        self.run_as(i, command);
    }

    /// The same, with this command.
    pub(crate) fn run_as(&mut self, i: usize, mut command: Command) {
        assert!(self.replicas[i].is_none(), "replica {i} runs");
        let log =
            File::options().create(true).append(true).open(self.dir.path().join(format!("{i}.log"))).unwrap();
        let child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(log).spawn();
        self.replicas[i] = Some(child.unwrap());
    }

    /// Kills replica `i` with SIGKILL.
    pub(crate) fn kill(&mut self, i: usize) {
        let mut child = self.replicas[i].take().unwrap();
        child.kill().unwrap();
        child.wait().unwrap();
    }

    /// Stops replica `i` with SIGTERM and returns how it ended.
    pub(crate) fn stop(&mut self, i: usize) -> std::process::ExitStatus {
        self.signal(i, Signal::SIGTERM);
        self.replicas[i].take().unwrap().wait().unwrap()
    }

    /// Returns the text log of replica `i`.
    pub(crate) fn log(&self, i: usize) -> String {
        fs::read_to_string(self.dir.path().join(format!("{i}.log"))).unwrap_or_default()
    }

    /// Waits until the log of replica `i` has a line with these words.
    pub(crate) fn wait_for(&self, i: usize, words: &str) {
        self.wait_long_for(i, words, PATIENCE);
    }

    /// Waits for words in the log of replica `i`, behind its first `from` bytes.
    pub(crate) fn wait_from(&self, i: usize, from: usize, words: &str) {
        let until = Instant::now() + PATIENCE;
        while !self.log(i)[from..].contains(words) {
            assert!(Instant::now() < until, "replica {i} does not say {words:?}:\n{}", self.log(i));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits for words in the log of replica `i`, so long at the most.
    pub(crate) fn wait_long_for(&self, i: usize, words: &str, patience: Duration) {
        let until = Instant::now() + patience;
        while !self.log(i).contains(words) {
            assert!(Instant::now() < until, "replica {i} does not say {words:?}:\n{}", self.log(i));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Waits until replica `i`, which has just been started, runs or has ended, and says which. Its log had
    /// `from` bytes before.
    pub(crate) fn runs_or_ends(&mut self, i: usize, from: usize) -> bool {
        let until = Instant::now() + PATIENCE;
        loop {
            if self.log(i)[from..].contains(" runs ") {
                return true;
            }
            if self.replicas[i].as_mut().unwrap().try_wait().unwrap().is_some() {
                return false;
            }
            assert!(Instant::now() < until, "replica {i} neither runs nor ends:\n{}", self.log(i));
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Takes note that replica `i` has ended by itself.
    pub(crate) fn forget(&mut self, i: usize) {
        self.replicas[i] = None;
    }

    /// Sends replica `i`, which runs, a signal.
    pub(crate) fn signal(&self, i: usize, signal: Signal) {
        let pid = self.replicas[i].as_ref().unwrap().id();
        signal::kill(Pid::from_raw(i32::try_from(pid).unwrap()), signal).unwrap();
    }

    /// Returns the pids of the replicas that run.
    pub(crate) fn pids(&self) -> Vec<u32> {
        self.replicas.iter().flatten().map(Child::id).collect()
    }

    /// Opens client `number`.
    pub(crate) fn client(&self, number: u64, lanes: u16) -> OpenClient {
        let dir = self.dir.path().join("c").join(format!("client-{number}"));
        ClientNode::open(&dir).unwrap().with_lanes(lanes)
    }
}

impl Drop for Cluster {
    fn drop(&mut self) {
        for mut child in self.replicas.iter_mut().filter_map(Option::take) {
            let _ = child.kill();
            let _ = child.wait();
        }
        if std::thread::panicking() {
            for i in 0..self.replicas.len() {
                eprintln!("--- replica {i}\n{}", self.log(i));
            }
        }
    }
}

/// Does one operation and returns its answer's bytes.
pub(crate) fn invoke(client: &mut OpenClient, clock: &Clock, operation: &Operation<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    operation.encode(&mut bytes);
    client.drive.clear_done();
    client.drive.invoke(clock.now(), 0, &bytes, matches!(operation, Operation::Get { .. }));
    let until = Instant::now() + PATIENCE;
    loop {
        turn(client, clock);
        if let Some(done) = client.drive.done().first() {
            return client.drive.result(done).to_vec();
        }
        assert!(Instant::now() < until, "no answer: {:?}", client.drive.counters());
    }
}

pub(crate) fn turn(client: &mut OpenClient, clock: &Clock) {
    let OpenClient { drive, socket, .. } = client;
    drive.flush(socket);
    socket.wait(1, None).unwrap();
    while let Some((source, datagram)) = socket.receive().unwrap() {
        let by = drive.receive_from(clock.now(), source, datagram);
        socket.judge(by);
    }
    if drive.due() <= clock.mono_ns() {
        drive.expire(clock.now());
    }
    drive.flush(socket);
}

/// What a load has come to.
#[derive(Clone, Debug)]
pub(crate) struct Tally {
    /// Acknowledged increments, by lane.
    pub(crate) acknowledged: Vec<u64>,
    /// The times of [`GAP_MIN`] or more without an acknowledgement, in their order.
    pub(crate) gaps: Vec<Gap>,
}

/// Shorter times are what operations take.
const GAP_MIN: Duration = Duration::from_millis(10);

/// A time in which nothing was acknowledged.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Gap {
    pub(crate) from: SystemTime,
    pub(crate) to: SystemTime,
    /// When a request was first sent again in it.
    pub(crate) asked_again: Option<SystemTime>,
}

impl Gap {
    pub(crate) fn length(&self) -> Duration {
        self.to.duration_since(self.from).unwrap_or_default()
    }
}

/// Increments counters, one for each lane, as fast as it can, and checks every answer: the counter is the
/// number of increments that this lane has made. So nothing was lost, and nothing was done twice.
#[derive(Debug)]
pub(crate) struct Load {
    stop: Arc<AtomicBool>,
    done: Arc<AtomicU64>,
    thread: JoinHandle<(Tally, OpenClient)>,
}

impl Load {
    pub(crate) fn start(client: OpenClient, acknowledged: Vec<u64>) -> Self {
        let (stop, done) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicU64::new(0)));
        let (stopped, counted) = (Arc::clone(&stop), Arc::clone(&done));
        let thread = std::thread::spawn(move || run(client, acknowledged, &stopped, &counted));
        Self { stop, done, thread }
    }

    /// Returns how many increments were acknowledged so far.
    pub(crate) fn done(&self) -> u64 {
        self.done.load(Ordering::Relaxed)
    }

    /// Waits for `more` more.
    pub(crate) fn wait(&self, more: u64) {
        let (target, until) = (self.done() + more, Instant::now() + PATIENCE);
        while self.done() < target {
            assert!(Instant::now() < until, "stuck after {} increments", self.done());
            assert!(!self.thread.is_finished(), "the load has ended");
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    /// Ends it, all lanes answered.
    pub(crate) fn stop(self) -> (Tally, OpenClient) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().unwrap()
    }
}

fn run(
    mut client: OpenClient,
    mut acknowledged: Vec<u64>,
    stop: &AtomicBool,
    done: &AtomicU64,
) -> (Tally, OpenClient) {
    let clock = Clock::new();
    let lanes = u16::try_from(acknowledged.len()).unwrap();
    let invoke = |client: &mut OpenClient, lane: u16| {
        let (key, mut bytes) = (format!("lane-{lane}"), Vec::new());
        Operation::Incr { key: key.as_bytes(), by: 1 }.encode(&mut bytes);
        client.drive.invoke(clock.now(), lane, &bytes, false);
    };
    client.drive.clear_done();
    (0..lanes).for_each(|lane| invoke(&mut client, lane));
    let (mut outstanding, mut last, mut gaps) = (lanes, Instant::now(), Vec::new());
    let (mut from, mut asked_again, mut resent) =
        (SystemTime::now(), None, client.drive.counters().retransmitted);
    while outstanding > 0 {
        turn(&mut client, &clock);
        assert!(last.elapsed() < PATIENCE, "stuck: {:?}", client.drive.counters());
        let retransmitted = client.drive.counters().retransmitted;
        if retransmitted > resent {
            asked_again.get_or_insert_with(SystemTime::now);
            resent = retransmitted;
        }
        let answers: Vec<(u16, Vec<u8>)> =
            client.drive.done().iter().map(|done| (done.lane, client.drive.result(done).to_vec())).collect();
        client.drive.clear_done();
        for (lane, answer) in answers {
            let to = SystemTime::now();
            if last.elapsed() >= GAP_MIN {
                gaps.push(Gap { from, to, asked_again });
            }
            (last, from, asked_again) = (Instant::now(), to, None);
            let count = &mut acknowledged[usize::from(lane)];
            *count += 1;
            let expected = count.to_string();
            assert_eq!(Answer::decode(&answer), Ok(Answer::Value(expected.as_bytes())), "lane {lane}");
            done.fetch_add(1, Ordering::Relaxed);
            if stop.load(Ordering::Relaxed) {
                outstanding -= 1;
            } else {
                invoke(&mut client, lane);
            }
        }
    }
    (Tally { acknowledged, gaps }, client)
}
