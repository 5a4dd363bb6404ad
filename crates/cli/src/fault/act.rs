//! Injects a fault into a replica, and reports what follows.

use std::fs::{self, File};
use std::io::{self, IsTerminal as _};
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use nix::fcntl::Flock;
use nix::sys::signal::Signal;
use quorate_node::observe::{Cell, Health, Observer, Picture, text};
use quorate_node::storage::commits;
use quorate_wire::SeqNum;
use quorate_wire::message::TransferStats;

use super::probe::Probe;
use crate::code::Code;
use crate::fail::{CommandResult, Failure};
use crate::liar::Way;
use crate::local::{Local, unwritable};
use crate::out;

/// How long a killed process may take to end, and a new one to run after it has read its state.
const GONE: Duration = Duration::from_secs(10);
/// How long to wait for comparable digests: without load there may be none for long.
const COMPARED: Duration = Duration::from_secs(1);
/// How long the others may take to order operations again, and a replica to make progress.
const PATIENCE: Duration = Duration::from_secs(60);
/// How often a rejoining replica is asked for its progress.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// How long a cluster with more than f faults is observed to order nothing.
const HALTED: Duration = Duration::from_secs(5);

/// The replica that gets a fault.
#[derive(Debug)]
pub(super) struct Break<'a> {
    local: &'a Local,
    name: &'a str,
    id: String,
}

impl<'a> Break<'a> {
    pub(super) fn of(local: &'a Local, name: &'a str) -> Self {
        Self { local, name, id: name.replace("replica-", "") }
    }

    /// Kills it, and reports when the others order operations again. `halts`: they will not. Here and below, `held`
    /// keeps other commands away, until the process of the replica is the one that it is to be.
    pub(super) fn kill(&self, halts: bool, held: Flock<File>) -> Result<(), Failure> {
        let (local, id) = (self.local, &self.id);
        let probe = Probe::open(local);
        let pid = local.process(self.name).map_or(String::new(), |pid| format!(" (pid {pid})"));
        self.kill_now()?;
        local.set_fault(self.name, Some("killed"))?;
        drop(held);
        let next = probe.map(|probe| probe.next(if halts { HALTED } else { PATIENCE }));
        let seen = match next {
            None => "not measured: no free client key".to_owned(),
            Some(Some(took)) => {
                let (view, n) = (local.view(), u64::try_from(local.replicas().len()).unwrap_or(1));
                format!("next commit after {} ms in view {view}, primary r{}", took.as_millis(), view % n)
            }
            Some(None) if halts => format!("no commit for {} s: the service has halted", HALTED.as_secs()),
            Some(None) => {
                return Err(Failure::new(
                    Code::Unreachable,
                    format!("r{id} killed, and no commit for {} s", PATIENCE.as_secs()),
                )
                .at(format!("{}/replica-*/replica.log", local.dir().display()))
                .next("read the replicas' logs there"));
            }
        };
        out::line(format!("r{id} killed{pid}.  {seen}"));
        out::line(format!("undo: quorate fault heal {id}"));
        Ok(())
    }

    pub(super) fn pause(&self) -> Result<(), Failure> {
        if !self.local.signal(self.name, Signal::SIGSTOP) {
            return Err(Failure::new(Code::Rule, format!("r{} does not run", self.id))
                .at("REPLICA")
                .next(format!("quorate fault heal {}", self.id)));
        }
        self.local.set_fault(self.name, Some("paused"))?;
        out::line(format!("r{0} paused. undo: quorate fault heal {0}", self.id));
        Ok(())
    }

    /// Empties its disk, starts it, and waits until it has rejoined. `halts`: it cannot rejoin.
    pub(super) fn wipe(&self, halts: bool, held: Flock<File>) -> Result<(), Failure> {
        let (local, id) = (self.local, &self.id);
        self.kill_now()?;
        for part in ["log", "checkpoint"] {
            let path = local.node(self.name).join(part);
            if path.exists() {
                fs::remove_dir_all(&path).map_err(|error| unwritable(&path, &error))?;
            }
        }
        let begin = Instant::now();
        self.start(&[], None, held)?;
        out::line(format!("r{id} stopped, its log and state emptied, restarted: rejoining"));
        if halts {
            out::line("  it cannot rejoin before the others order operations again");
            return Ok(());
        }
        self.wait_until_back(begin)?;
        let took = begin.elapsed().as_secs_f64();
        out::line(format!("r{id} rejoined after {took:.1} s{}", self.fetched().unwrap_or_default()));
        Ok(())
    }

    /// Waits until it has rejoined, as long as it comes further or the others do, and shows on a terminal how far it
    /// is. What it fetches is a checkpoint, and it takes part again above what it may have promised before, a window
    /// further on: both come the sooner the more is ordered, so something is.
    fn wait_until_back(&self, begin: Instant) -> Result<(), Failure> {
        let (terminal, probe) = (std::io::stdout().is_terminal(), Probe::open(self.local));
        let observer = Observer::open(self.local.dir()).ok();
        let (mut fetched, mut looked) = (None, Instant::now());
        let mut progress = Progress::new(Instant::now());
        while !self.local.is_back(self.name) {
            if begin.elapsed() > GONE && self.local.process(self.name).is_none() {
                return Err(Failure::new(Code::Network, format!("r{} did not start", self.id))
                    .at(self.local.node(self.name).join("replica.log").display().to_string())
                    .next(self.local.last_lines(self.name, "replica.log", 4)));
            }
            if looked.elapsed() > LOOK_EVERY {
                let picture = observer.as_ref().map(Observer::look);
                let own = picture.as_ref().and_then(|picture| self.health_in(picture)?.says.as_ref());
                if let Some(moved) = own.and_then(|says| says.moved) {
                    fetched = Some(moved);
                }
                looked = Instant::now();
                progress.note(
                    looked,
                    Far {
                        fetched: fetched.map(|moved: TransferStats| moved.since_start),
                        executed: own.map(|says| says.executed),
                        others: picture.map(|picture| picture.executed),
                    },
                );
            }
            if progress.last.elapsed() > PATIENCE {
                let (took, patience) = (begin.elapsed().as_secs(), PATIENCE.as_secs());
                return Err(Failure::new(
                    Code::Unreachable,
                    format!(
                        "r{} is not back after {took} s; for {patience} s it has fetched and executed nothing, nor have the others",
                        self.id
                    ),
                )
                .at(self.local.node(self.name).join("replica.log").display().to_string())
                .next("read its log there"));
            }
            if terminal {
                let so_far = fetched.map_or_else(String::new, |moved| format!(", {}", said(&moved)));
                let seconds = begin.elapsed().as_secs_f64();
                out::part(format_args!("\r\x1b[K  rejoining, {seconds:.1} s{so_far}"));
            }
            match &probe {
                Some(probe) => drop((0..16).map_while(|_| probe.next(GONE)).last()),
                None => std::thread::sleep(Duration::from_millis(50)),
            }
        }
        if terminal {
            out::part("\r\x1b[K");
        }
        Ok(())
    }

    /// Describes how much it has fetched, how far it has executed, and whether its digest agrees with the others'.
    /// None: no client key is free, or it does not answer.
    fn fetched(&self) -> Option<String> {
        let observer = Observer::open(self.local.dir()).ok()?;
        let begin = Instant::now();
        loop {
            let picture = observer.look();
            let health = self.health_in(&picture)?;
            let digest = match health.agrees {
                Cell::Agrees => "agrees",
                Cell::Differs => "DIFFERS",
                Cell::Absent | Cell::Open if begin.elapsed() < COMPARED => {
                    std::thread::sleep(Duration::from_millis(100));
                    continue;
                }
                Cell::Absent | Cell::Open => "not compared yet",
            };
            let says = health.says.as_ref()?;
            // A state that the others' logs hold is executed again instead.
            let fetched = says.moved.as_ref().map_or_else(|| "nothing fetched".to_owned(), said);
            return Some(format!(": {fetched}, {} executed, digest {digest}", says.executed.0));
        }
    }

    /// Returns how it is.
    fn health_in<'p>(&self, picture: &'p Picture) -> Option<&'p Health> {
        let id = self.id.parse::<u16>().ok()?;
        picture.replicas.iter().find(|health| health.id.0 == id)
    }

    pub(super) fn corrupt(&self, held: Flock<File>) -> Result<(), Failure> {
        self.kill_now()?;
        let damaged = damage(&self.local.node(self.name))?;
        self.start(&[], None, held)?;
        let what = match &damaged[..] {
            [] => {
                "nothing to damage: its log has no two commits in one segment, and it has no state".to_owned()
            }
            damaged => format!("one sector damaged in {}", damaged.join(" and in ")),
        };
        out::line(format!("r{} killed, {what}, restarted", self.id));
        out::line(format!("  its log: {}", self.local.node(self.name).join("replica.log").display()));
        Ok(())
    }

    /// Restarts it as a liar in the same directory. Its state on disk stays correct.
    pub(super) fn lie(&self, way: &Way, held: Flock<File>) -> Result<(), Failure> {
        self.local.stop(self.name);
        let how = way.typed();
        let fault = if way.by.is_some() {
            format!("is {}", how.replace(':', " by "))
        } else {
            format!("lies ({how})")
        };
        self.start(&["--liar".to_owned(), how], Some(&fault), held)?;
        out::line(format!("r{0} now {1}. undo: quorate fault heal {0}", self.id, way.says()));
        Ok(())
    }

    pub(super) fn heal(&self, held: Flock<File>) -> CommandResult {
        let (local, id) = (self.local, &self.id);
        // The note of a later fault may have replaced that of the lie.
        if local.lies(self.name) {
            local.stop(self.name);
        }
        if local.process(self.name).is_none() {
            self.start(&[], None, held)?;
        } else {
            local.signal(self.name, Signal::SIGCONT);
            local.set_fault(self.name, None)?;
        }
        out::line(format!("r{id} healed: it runs normally and catches up"));
        Ok(ExitCode::SUCCESS)
    }

    fn kill_now(&self) -> Result<(), Failure> {
        self.local.signal(self.name, Signal::SIGKILL);
        if self.local.wait_until_gone(self.name, GONE) {
            self.local.forget_process(self.name);
            return Ok(());
        }
        Err(Failure::new(Code::InUse, "the process does not end").at(self.name))
    }

    /// Starts it with this fault, and waits until it has read its state and runs. It keeps running after this command
    /// ends; `quorate up` finds it by its process id.
    fn start(&self, arguments: &[String], fault: Option<&str>, held: Flock<File>) -> Result<(), Failure> {
        let (local, name) = (self.local, self.name);
        let before = local.log_bytes(name);
        let mut child = local.start_apart(name, "replica", arguments)?;
        local.set_fault(name, fault)?;
        drop(held);
        let (begin, patience) = (Instant::now(), GONE + local.reads_for(name));
        while !local.runs_since(name, before) {
            let ended = matches!(child.try_wait(), Ok(Some(_)));
            let log = local.node(name).join("replica.log").display().to_string();
            if ended {
                return Err(Failure::new(Code::Network, format!("r{} did not start", self.id))
                    .at(log)
                    .next(local.last_lines(name, "replica.log", 4)));
            }
            if begin.elapsed() > patience {
                let took = begin.elapsed().as_secs();
                let what =
                    format!("r{} was restarted, and is still reading its state after {took} s", self.id);
                return Err(Failure::new(Code::Unreachable, what).at(log).next(format!(
                    "wait until its log says that it runs, or: quorate fault wipe {}",
                    self.id
                )));
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        Ok(())
    }
}

/// How far a replica that rejoins has come, and those that it follows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Far {
    /// Pages and bytes that it has fetched.
    fetched: Option<(u64, u64)>,
    executed: Option<SeqNum>,
    others: Option<SeqNum>,
}

/// When it last came further.
#[derive(Debug)]
struct Progress {
    far: Option<Far>,
    last: Instant,
}

impl Progress {
    fn new(now: Instant) -> Self {
        Self { far: None, last: now }
    }

    fn note(&mut self, now: Instant, far: Far) {
        if self.far.replace(far) != Some(far) {
            self.last = now;
        }
    }
}

/// Tells what a replica has fetched since it started.
fn said(moved: &TransferStats) -> String {
    format!("{} fetched of {}", text::size(moved.since_start.1), text::size(moved.of_bytes))
}

/// Damages a sector of a commit in the newest segment of the log, and one in the middle of the pages. Returns the
/// names of the damaged files, and where.
fn damage(dir: &Path) -> Result<Vec<String>, Failure> {
    let files = fs::read_dir(dir.join("log")).into_iter().flatten().flatten();
    let names = files.filter_map(|file| file.file_name().into_string().ok());
    let segments = names.filter(|name| name.strip_suffix(".seg").is_some());
    let newest = segments.max().map(|name| format!("log/{name}"));
    let mut damaged = Vec::new();
    for name in newest.into_iter().chain(["checkpoint/pages".to_owned()]) {
        let path = dir.join(&name);
        if path.exists() {
            let place = spoil(&path).map_err(|error| unwritable(&path, &error))?;
            damaged.extend(place.map(|at| format!("{name} at byte {at}")));
        }
    }
    Ok(damaged)
}

/// Overwrites a sector of a segment of the log, or of the pages, and returns its place.
fn spoil(path: &Path) -> io::Result<Option<u64>> {
    const SECTOR: usize = 512;
    let file = fs::File::options().read(true).write(true).open(path)?;
    let at = if path.extension().is_some() {
        // Not the last commit: unless another one follows, it may have been promised to nobody, and is cut off.
        let commits = commits(&fs::read(path)?);
        let followed = commits.split_last().and_then(|(_, before)| before.get(before.len() / 2));
        let Some(at) = followed else { return Ok(None) };
        *at as u64
    } else {
        file.metadata()?.len() / 2 / SECTOR as u64 * SECTOR as u64
    };
    let mut sector = [0; SECTOR];
    let len = file.read_at(&mut sector, at)?;
    for byte in &mut sector {
        *byte ^= 0x5a;
    }
    file.write_all_at(&sector[..len], at)?;
    Ok(Some(at).filter(|_| len > 0))
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    /// The count of starts is in the same directory, and its name comes behind those of the segments.
    #[test]
    fn what_is_damaged_of_a_log_is_a_commit_of_its_newest_segment() {
        let dir = std::env::temp_dir().join(format!("quorate-test-damage-{}", std::process::id()));
        fs::create_dir_all(dir.join("log")).unwrap();
        let segment = |numbers: std::ops::Range<u64>| {
            let mut bytes = Vec::new();
            for number in numbers {
                bytes.extend([&b"QRL1\0\0\0\0"[..], &number.to_le_bytes(), &[7; 4080]].concat());
            }
            bytes.resize(1 << 20, 0);
            bytes
        };
        let files = [
            ("00000000000000000001.seg", segment(1..9)),
            ("00000000000000000009.seg", segment(9..14)),
            ("spare-0", segment(1..9)),
            ("starts", vec![3; 8192]),
        ];
        for (name, bytes) in &files {
            fs::write(dir.join("log").join(name), bytes).unwrap();
        }
        assert_eq!(damage(&dir).unwrap(), ["log/00000000000000000009.seg at byte 8192"]);
        for (name, before) in &files {
            let after = fs::read(dir.join("log").join(name)).unwrap();
            let changed: Vec<usize> = (0..before.len()).filter(|at| before[*at] != after[*at]).collect();
            let expected = if name.contains('9') { (8192..8192 + 512).collect() } else { Vec::new() };
            assert_eq!(changed, expected, "{name}");
        }
        fs::remove_dir_all(&dir).unwrap();
    }

    /// N7: a replica that rejoins waits for the others to order a window of batches, which it need not fetch.
    #[test]
    fn n7_a_replica_that_waits_for_others_to_go_on_comes_further() {
        let begin = Instant::now();
        let at = |s| begin + Duration::from_secs(s);
        let far = |fetched, executed, others| Far {
            fetched: Some((fetched, fetched)),
            executed: Some(SeqNum(executed)),
            others: Some(SeqNum(others)),
        };
        let mut progress = Progress::new(begin);
        progress.note(at(1), far(7, 100, 100));
        for (s, now) in [(2, far(8, 100, 100)), (3, far(8, 100, 101)), (4, far(8, 101, 101))] {
            progress.note(at(s), now);
            assert_eq!(progress.last, at(s));
        }
        progress.note(at(5), far(8, 101, 101));
        assert_eq!(progress.last, at(4), "nobody has come further");
    }
}
