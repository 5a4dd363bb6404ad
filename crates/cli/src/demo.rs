//! `quorate up --demo`: a cluster gets every kind of fault that f = 1 allows, one after the other, while clients use
//! it. The demo runs the commands that a user would, and compares every value with what was written.

mod files;
mod keys;
mod load;
mod place;
mod redis;
mod source;
mod usage;

use std::fs::{self, File};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::{Arg, ArgMatches, Args, Command, FromArgMatches, value_parser};
use quorate_gateways::{GATEWAYS, GatewayRow};
use quorate_node::observe::{Cell, Observer};
use quorate_node::services::ServiceName;
use quorate_node::signals;

use self::files::Tree;
use self::keys::Keys;
use self::load::Load;
use self::usage::{PATIENCE, Usage, grouped, quorate, terminate};
use crate::code::Code;
use crate::fail::{CommandResult, Failure};
use crate::local::{Local, unwritable};
use crate::out;

/// A directory with this file was made by a demo, which may recreate it.
const MARK: &str = "made-by-quorate-up-demo";
/// The client that the demo uses.
const CLIENT: &str = "client-4";
/// Operations of the load to wait for before and after each fault.
const LOAD: u64 = 100;
/// The result of a step: what was seen, or what is wrong.
type Step = Result<String, String>;

/// The demo of a service. A service with a demo has a file with the workload, and a row here.
struct DemoRow {
    service: ServiceName,
    /// What the demo writes, and how many: the flag is `--demo-WHAT`.
    what: &'static str,
    usual: u32,
    most: u32,
    /// Opens the workload: with the directory of a client, a directory for files, the gateway, and how many.
    open: OpenUsage,
    /// Checks the state of a replica that has stopped: what is well, or what is wrong.
    check: Option<CheckState>,
}

type OpenUsage = fn(&Path, &Path, SocketAddr, u32) -> Result<Box<dyn Usage>, String>;
type CheckState = fn(&Path) -> Result<String, String>;

const DEMOS: &[DemoRow] = &[
    DemoRow {
        service: ServiceName::FS,
        what: "files",
        usual: 300,
        most: 100_000,
        open: |client, beside, _, count| Ok(Box::new(Tree::open(client, beside, count)?)),
        check: Some(files::check),
    },
    DemoRow {
        service: ServiceName::KV,
        what: "keys",
        usual: 20_000,
        most: 1_000_000,
        open: |_, _, gateway, count| Ok(Box::new(Keys::open(gateway, count)?)),
        check: None,
    },
];

/// The service of the demo, and the amount of data.
#[derive(Clone, Copy)]
pub(crate) struct DemoPlan {
    row: &'static DemoRow,
    count: u32,
}

impl std::fmt::Debug for DemoPlan {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.count, self.row.what)
    }
}

/// Returns the names of the services that have a demo.
pub(crate) fn services() -> String {
    DEMOS.iter().map(|row| row.service.name()).collect::<Vec<_>>().join(" or ")
}

/// How much each demo writes.
#[derive(Debug)]
pub(crate) struct Counts(Vec<u32>);

impl Counts {
    /// Returns the demo of a service, if it has one.
    pub(crate) fn plot(&self, service: ServiceName) -> Option<DemoPlan> {
        let mut rows = DEMOS.iter().zip(&self.0);
        rows.find(|(row, _)| row.service == service).map(|(row, count)| DemoPlan { row, count: *count })
    }
}

impl DemoRow {
    fn flag(&self) -> String {
        format!("demo-{}", self.what)
    }
}

impl FromArgMatches for Counts {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let count = |row: &DemoRow| matches.get_one::<u32>(&row.flag()).copied().unwrap_or(row.usual);
        Ok(Self(DEMOS.iter().map(count).collect()))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl Args for Counts {
    fn augment_args(command: Command) -> Command {
        DEMOS.iter().fold(command, |command, row| {
            let (what, most, service) = (row.what, row.most, row.service.name());
            command.arg(
                Arg::new(row.flag())
                    .long(row.flag())
                    .value_name("N")
                    .requires("demo")
                    .default_value(row.usual.to_string())
                    .value_parser(value_parser!(u32).range(1..=i64::from(most)))
                    .help(format!(
                        "Number of {what} that the demo writes with --service {service}, 1 to {most}"
                    )),
            )
        })
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// A demo.
#[derive(Debug)]
pub(crate) struct Demo {
    /// The directory, if it was given; otherwise a temporary one, removed after success.
    pub(crate) dir: Option<PathBuf>,
    /// The gateway's address, if it was given.
    pub(crate) door: Option<SocketAddr>,
    pub(crate) plot: DemoPlan,
}

impl Demo {
    pub(crate) fn run(&self) -> CommandResult {
        let stop = signals::stop_flag()?;
        out::stop_without_reader(&stop);
        let [_, b, c, d] = std::process::id().to_be_bytes();
        // A loopback address that other programs are unlikely to use.
        let own = IpAddr::V4(Ipv4Addr::new(127, 64 | (b & 63), c, d.clamp(1, 254)));
        let service = self.plot.row.service;
        let Some(row) = GATEWAYS.iter().find(|row| row.service == service) else {
            return Err(Failure::new(Code::Rule, format!("no gateway for the service {}", service.name())));
        };
        let gateway = self.door.unwrap_or(SocketAddr::new(own, row.port));
        let dir = self.prepare()?;
        let data = dir.join("cluster");
        let begin = Instant::now();
        let mut up = start(&dir, &data, row, gateway, own)?;
        let told = wait_for(&mut up, self.plot, gateway, &dir, &stop).and_then(|mut usage| {
            out::line(format!("4 replicas, f = 1, gateway {gateway}, in {}", dir.display()));
            let story = Story { local: Local::made(&data)?, stop: &stop };
            Ok(story.tell(&mut *usage))
        });
        stop_all(&mut up, &data);
        if stop.load(Ordering::Relaxed) {
            self.clean(&dir);
            out::line("stopped before the end");
            return Ok(ExitCode::FAILURE);
        }
        let mut wrong = told?;
        if let Some(each) = self.plot.row.check.filter(|_| wrong.is_none()) {
            wrong = check(&data, each);
        }
        if let Some(wrong) = wrong {
            return Err(Failure::new(Code::Demo, wrong)
                .at(dir.display().to_string())
                .next("the directory is kept: read the log of each replica, replica.log"));
        }
        out::line(format!("nothing was lost.   {:.1} s", begin.elapsed().as_secs_f64()));
        self.clean(&dir);
        Ok(ExitCode::SUCCESS)
    }

    /// Removes the directory, if it is a temporary one.
    fn clean(&self, dir: &Path) {
        if self.dir.is_none() {
            let _ = fs::remove_dir_all(dir);
        }
    }

    /// Creates the directory, or empties the one of an earlier demo.
    fn prepare(&self) -> Result<PathBuf, Failure> {
        let name = || std::env::temp_dir().join(format!("quorate-demo-{}", std::process::id()));
        let dir = self.dir.clone().unwrap_or_else(name);
        let full = fs::read_dir(&dir).is_ok_and(|mut entries| entries.next().is_some());
        if full && !dir.join(MARK).exists() {
            return Err(Failure::new(Code::Occupied, "directory is not empty, and was not made by a demo")
                .at(dir.display().to_string())
                .next("choose another directory, or omit --dir"));
        }
        if full && Local::at(&dir.join("cluster")).runs() {
            return Err(Failure::new(Code::InUse, "another demo runs in this directory")
                .at(dir.display().to_string())
                .next("wait until it has finished, or omit --dir"));
        }
        let make = || {
            if full {
                fs::remove_dir_all(&dir)?;
            }
            fs::create_dir_all(&dir)?;
            File::create(dir.join(MARK)).map(drop)
        };
        make().map_err(|error| unwritable(&dir, &error))?;
        Ok(fs::canonicalize(&dir).unwrap_or(dir))
    }
}

fn start(
    dir: &Path,
    data: &Path,
    gateway: &GatewayRow,
    door: SocketAddr,
    own: IpAddr,
) -> Result<Child, Failure> {
    let path = dir.join("up.txt");
    let log = File::create(&path).and_then(|log| Ok((log.try_clone()?, log)));
    let (log, errors) = log.map_err(|error| unwritable(&path, &error))?;
    let mut command = quorate()?;
    let page = std::net::SocketAddr::new(own, 9640);
    let (service, flag) = (gateway.service.name(), format!("--{}", gateway.name));
    command.args(["up", "--service", service, "--host", &own.to_string(), &flag, &door.to_string()]);
    command.args(["--status", &page.to_string(), "--dir"]).arg(data);
    let child = command.stdout(log).stderr(errors).spawn();
    child.map_err(|error| Failure::new(Code::Network, format!("`quorate up` cannot be started: {error}")))
}

/// Waits until the cluster is usable, and returns the workload.
fn wait_for(
    up: &mut Child,
    plot: DemoPlan,
    door: SocketAddr,
    dir: &Path,
    stop: &AtomicBool,
) -> Result<Box<dyn Usage>, Failure> {
    let (path, begin) = (dir.join("up.txt"), Instant::now());
    let client = dir.join("cluster").join(CLIENT);
    loop {
        let ended = matches!(up.try_wait(), Ok(Some(_)));
        let said = fs::read_to_string(&path).unwrap_or_default();
        if ended || begin.elapsed() > PATIENCE || stop.load(Ordering::Relaxed) {
            return Err(Failure::new(Code::Unreachable, "the cluster did not start")
                .at(path.display().to_string())
                .next(said.trim_end()));
        }
        // `up` prints this line after the first response of the service.
        if said.contains("next:")
            && let Ok(usage) = (plot.row.open)(&client, dir, door, plot.count)
        {
            return Ok(usage);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Checks the states of all replicas, which have stopped, and returns the first finding.
fn check(data: &Path, each: CheckState) -> Option<String> {
    let (begin, replicas) = (Instant::now(), Local::at(data).replicas());
    let mut well = String::new();
    for name in &replicas {
        match each(&data.join(name)) {
            Ok(says) => well = says,
            Err(wrong) => return Some(format!("step 6: {name}: {wrong}")),
        }
    }
    let (n, seconds) = (replicas.len(), begin.elapsed().as_secs_f64());
    let what = "stopped all replicas, checked their states";
    out::line(format!("  6 {what:<48} ok     {seconds:>5.1} s  {n} of {n} clean, {well}"));
    None
}

/// Stops everything in order, and kills what takes too long.
fn stop_all(up: &mut Child, data: &Path) {
    terminate(up, || {
        let local = Local::at(data);
        local.replicas().iter().map(String::as_str).chain(["client-0"]).for_each(|name| local.stop(name));
    });
}

/// The steps of the demo.
struct Story<'a> {
    local: Local,
    stop: &'a AtomicBool,
}

impl Story<'_> {
    /// Runs all steps, and returns the first failure.
    fn tell(&self, usage: &mut dyn Usage) -> Option<String> {
        let mut wrong = None;
        let mut tell = |number: u8, what: &str, step: &mut dyn FnMut() -> Step| {
            if wrong.is_some() || self.stop.load(Ordering::Relaxed) {
                return;
            }
            let begin = Instant::now();
            let seen = step();
            if self.stop.load(Ordering::Relaxed) {
                // It may have failed because of that.
                return;
            }
            let (verdict, seen) = match &seen {
                Ok(seen) => ("ok    ", seen),
                Err(why) => ("FAILED", why),
            };
            out::line(format!(
                "  {number} {what:<48} {verdict} {:>5.1} s  {seen}",
                begin.elapsed().as_secs_f64()
            ));
            if verdict == "FAILED" {
                wrong = Some(format!("step {number}: {seen}"));
            }
        };
        let mut load = None;
        let running = |load: &Option<Load>, step: &mut dyn FnMut(&Load) -> Step| match load {
            Some(load) => step(load),
            None => Err("no load is running".to_owned()),
        };
        tell(1, &usage.writes(), &mut || {
            usage.write()?;
            load = Some(usage.load()?);
            Ok(String::new())
        });
        tell(2, "killed the primary under load", &mut || running(&load, &mut |load| self.kill(load)));
        tell(3, "replica 2 lied to clients and replicas", &mut || {
            running(&load, &mut |load| self.lie(load, usage))
        });
        tell(4, "wiped replica 3", &mut || running(&load, &mut |load| self.wipe(load)));
        tell(5, "read everything back, compared digests", &mut || self.read_back(load.take(), usage));
        match load.map(Load::stop) {
            Some(Err(error)) => wrong.map(|wrong| format!("{wrong}: {error}")),
            _ => wrong,
        }
    }

    fn kill(&self, load: &Load) -> Step {
        self.count(load)?;
        let before = self.local.view();
        load.take_gap();
        self.fault(&["kill", "primary"])?;
        self.count(load)?;
        let gap = load.take_gap();
        let killed = self.local.replicas().into_iter().find(|name| self.local.fault(name).is_some());
        let killed = killed.ok_or("no replica was killed")?;
        let view = self.local.view();
        self.fault(&["heal", killed.trim_start_matches("replica-")])?;
        self.count(load)?;
        Ok(format!("no commit for {} ms, view {before} -> {view}", gap.as_millis()))
    }

    fn lie(&self, load: &Load, usage: &mut dyn Usage) -> Step {
        let mut told = Vec::new();
        for how in ["wrong-reply", "wrong-digest"] {
            self.fault(&["lie", "2", "--how", how])?;
            self.count(load)?;
            usage.read(usage.sample())?;
            let before = self.local.log_bytes("replica-2");
            self.fault(&["heal", "2"])?;
            let said = self.local.log_since("replica-2", before);
            let line = said.lines().find(|line| line.contains("lies no more")).unwrap_or("");
            let number = line.split("told=").nth(1).and_then(|text| text.trim().parse::<u32>().ok());
            told.push(number.filter(|told| *told > 0).ok_or(format!("`{how}` has told no lie"))?);
        }
        self.count(load)?;
        let [replies, votes] = [0, 1].map(|i| grouped(told.get(i).copied().unwrap_or(0)));
        Ok(format!("{replies} wrong replies, {votes} wrong votes outvoted, 0 seen by the client"))
    }

    fn wipe(&self, load: &Load) -> Step {
        let said = self.fault(&["wipe", "3"])?;
        self.count(load)?;
        let back = said.lines().find_map(|line| line.strip_prefix("r3 rejoined ")).unwrap_or("");
        Ok(format!("rejoined {back}"))
    }

    fn read_back(&self, load: Option<Load>, usage: &mut dyn Usage) -> Step {
        let load = load.ok_or("the load has ended")?;
        // The load brings new checkpoints to compare.
        let at = self.compare_digests()?;
        let account = load.stop().map_err(|error| error.to_string())?;
        usage.read(u32::MAX)?;
        let seen = usage.account(account)?;
        Ok(format!("{seen}, all digests agree at {at}"))
    }

    /// Asks every replica for its state digests until all agree at one checkpoint, and returns its number. A digest
    /// that differs is a failure: waiting would not help.
    fn compare_digests(&self) -> Result<u64, String> {
        let observer = Observer::open(self.local.dir()).map_err(|trouble| trouble.what)?;
        let begin = Instant::now();
        loop {
            let agreement = observer.look().agreement;
            let all =
                |index: usize, cell: Cell| agreement.rows.iter().all(|row| row.get(index) == Some(&cell));
            for (index, seq) in agreement.checkpoints.iter().enumerate().rev() {
                if let Some(id) = agreement.rows.iter().position(|row| row.get(index) == Some(&Cell::Differs))
                {
                    return Err(format!("the state of r{id} at {} differs from the others", seq.0));
                }
                if all(index, Cell::Agrees) {
                    return Ok(seq.0);
                }
            }
            if begin.elapsed() > PATIENCE || self.stop.load(Ordering::Relaxed) {
                return Err("no checkpoint for which all replicas report a digest".to_owned());
            }
            std::thread::sleep(Duration::from_millis(100));
        }
    }

    /// Waits until the load has made progress.
    fn count(&self, load: &Load) -> Result<(), String> {
        let got_on = load.wait(LOAD, PATIENCE, self.stop);
        if got_on { Ok(()) } else { Err("the load makes no progress".to_owned()) }
    }

    /// Runs `quorate fault`.
    fn fault(&self, arguments: &[&str]) -> Result<String, String> {
        let mut command = quorate().map_err(|failure| failure.to_string())?;
        let ended = command.arg("fault").args(arguments).arg("--dir").arg(self.local.dir()).output();
        let ended = ended.map_err(|error| error.to_string())?;
        if ended.status.success() {
            return Ok(String::from_utf8_lossy(&ended.stdout).into_owned());
        }
        let said = String::from_utf8_lossy(&ended.stderr).trim_end().replace('\n', " ");
        Err(format!("quorate fault {}: {said}", arguments.join(" ")))
    }
}
