//! `quorate up` and `quorate down`: a whole cluster on this machine.

use std::fs::{self, OpenOptions};
use std::io::{IsTerminal as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use nix::fcntl::{Flock, FlockArg};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use quorate_node::init::{Host, NewCluster};
use quorate_node::observe::{Observer, Watch};
use quorate_node::ports::{Port, holder};
use quorate_node::settings::ServiceName;
use quorate_node::{ClientNode, signals};

use crate::demo::{Demo, Plot};
use crate::explain::Code;
use crate::fail::{Failure, Outcome};
use crate::local::{Local, unwritable};
use crate::nfs::mount_command;
use crate::node::{Durability, Service};
use crate::{out, page};

/// The client whose identity the front door has, and the one that looks after the service.
const DOOR: &str = "client-0";
const WATCH: &str = "client-1";
/// The one that mounts: the default of `quorate mount`.
const MOUNT: &str = "client-4";
/// How long a cluster may take until it answers.
const PATIENCE: Duration = Duration::from_secs(60);
/// What is left of a cluster that kept everything in memory.
const FORGOTTEN: &str = "nothing is kept: durability is memory";
/// The flag that chooses where the page is.
const STATUS_FLAG: &str = "quorate up --status";

/// Start a cluster on this machine, and its front door
///
/// Makes the directory with keys and settings if there is none, starts 3f + 1 replicas as processes and the
/// front door for NFS clients, or with --service kv for Redis clients, waits until the service answers, and
/// then says once a second how it is. Ctrl-C stops everything in order. Run again it comes back with all data. All
/// replicas are on one machine here, so this is for trying things; `quorate init` makes a cluster for several.
///
///   quorate up
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Up {
    /// Where it lives (default quorate-data; with --demo a new directory that goes afterwards)
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Faulty replicas to tolerate, when it is made: 1 to 4
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=4))]
    f: Option<u16>,
    /// Where the replicas listen, IP or IP:PORT of the first, when it is made (default 127.0.0.1:7000)
    #[arg(long, value_name = "ADDR")]
    host: Option<Host>,
    /// What is replicated, when it is made, or in the story (default fs)
    #[arg(long, value_enum)]
    service: Option<Service>,
    /// Where Redis clients connect, IP:PORT
    #[arg(long, value_name = "ADDR", default_value = RESP)]
    resp: SocketAddr,
    /// Where NFS clients connect, IP:PORT
    #[arg(long, value_name = "ADDR", default_value = NFS)]
    nfs: SocketAddr,
    /// Mount the file system on this directory as well, through FUSE; it has to exist
    #[arg(long, value_name = "DIR")]
    mount: Option<PathBuf>,
    /// Where a page and /metrics say how it is, IP:PORT
    #[arg(long, value_name = "ADDR", default_value = "127.0.0.1:9640")]
    status: SocketAddr,
    /// What is on disk before it is promised, when it is made (default sync)
    #[arg(long, value_enum)]
    durability: Option<Durability>,
    /// Tell a story instead: writes, through FUSE if it can; a killed primary, a liar, a wiped disk; 1 if anything is lost
    #[arg(long, conflicts_with_all = ["f", "host", "durability", "mount"])]
    demo: bool,
    /// How many files the story writes: 1 to 100000
    #[arg(long, requires = "demo", default_value_t = 300, value_parser = clap::value_parser!(u32).range(1..=100_000))]
    demo_files: u32,
    /// How many keys the story writes with --service kv: 1 to 1000000
    #[arg(long, requires = "demo", default_value_t = 20_000, value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    demo_keys: u32,
}

/// The front doors' addresses, if none was given.
const RESP: &str = "127.0.0.1:6380";
const NFS: &str = "127.0.0.1:20490";

/// Stop a cluster that `quorate up` runs
///
///   quorate down
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Down {
    /// Where it lives
    #[arg(long, default_value = "quorate-data")]
    dir: PathBuf,
}

/// The front door of a service.
#[derive(Clone, Copy, Debug)]
struct FrontDoor {
    protocol: &'static str,
    /// The subcommand that opens it, and the flag for its address.
    command: &'static str,
    address: SocketAddr,
}

impl FrontDoor {
    /// Sees to it that its port is free.
    fn check(&self) -> Result<(), Failure> {
        let Self { protocol, command, address } = *self;
        TcpListener::bind(address).map(drop).map_err(|error| {
            let other = SocketAddr::new(address.ip(), address.port().saturating_add(1));
            let (code, what) = if error.kind() == std::io::ErrorKind::AddrInUse {
                let who = holder(Port::Tcp, address).map_or(String::new(), |who| format!(" by {who}"));
                (Code::Taken, format!("port {} is taken{who}", address.port()))
            } else {
                (Code::Network, format!("cannot listen: {error}"))
            };
            Failure::new(code, what)
                .at(format!("door {protocol}, {address}"))
                .next(format!("quorate up --{command} {other}      or stop the other process"))
        })
    }

    /// Returns how it is used, and what to try first.
    fn usage(&self) -> (String, String) {
        let port = self.address.port();
        if self.command == "resp" {
            (format!("redis-cli -p {port}"), format!("redis-cli -p {port} set hello world"))
        } else {
            (mount_command(self.address), "quorate fs --help".to_owned())
        }
    }
}

impl Up {
    /// Returns the front door of a service, if it has one.
    fn door(&self, service: ServiceName) -> Option<FrontDoor> {
        match service {
            ServiceName::Fs => Some(FrontDoor { protocol: "NFS", command: "nfs", address: self.nfs }),
            ServiceName::Kv => Some(FrontDoor { protocol: "RESP", command: "resp", address: self.resp }),
            ServiceName::Null | ServiceName::Own => None,
        }
    }

    fn dir(&self) -> &Path {
        self.dir.as_deref().unwrap_or(Path::new("quorate-data"))
    }

    pub(crate) fn run(&self) -> Outcome {
        if self.demo {
            let (plot, door, default) = match self.service {
                None | Some(Service::Fs) => (Plot::Files(self.demo_files), self.nfs, NFS),
                Some(Service::Kv) => (Plot::Keys(self.demo_keys), self.resp, RESP),
                Some(Service::Null) => {
                    let what = "there is no story of a service that does nothing";
                    return Err(Failure::new(Code::Rule, what).next("quorate up --demo --service fs"));
                }
            };
            let door = Some(door).filter(|door| door.to_string() != default);
            return Demo { dir: self.dir.clone(), door, plot }.run();
        }
        let stop = signals::stop_flag()?;
        let begin = Instant::now();
        let mut page = None;
        let is_new = !self.dir().join("replica-0").is_dir();
        if is_new {
            let service = self.service.unwrap_or(Service::Fs).name();
            self.check_mount(service)?;
            self.door(service).map_or(Ok(()), |door| door.check())?;
            page = Some(page::listen(self.status, STATUS_FLAG)?);
            self.make()?;
        } else {
            self.check_settings()?;
        }
        let local = Local::at(self.dir());
        if !is_new {
            self.check_kept(&local)?;
        }
        let run = local.dir().join("run");
        fs::create_dir_all(&run).map_err(|error| unwritable(&run, &error))?;
        let lock = lock(local.dir())?;
        if !is_new {
            // What an `up` that was killed has left running, its door among it.
            stop_all(&local);
            self.check_mount(local.service()?)?;
            self.door(local.service()?).map_or(Ok(()), |door| door.check())?;
        }
        // An `up` that was killed has left no page, but one that runs is told of by the lock first.
        let page = page.map_or_else(|| page::listen(self.status, STATUS_FLAG), Ok)?;
        let mut nodes = Vec::new();
        let ended = self.serve(&local, page, (is_new, begin), &stop, &mut nodes);
        for (name, _) in nodes.iter().rev() {
            local.stop(name);
        }
        // Replicas that were started again meanwhile are not our children.
        local.replicas().iter().for_each(|name| local.stop(name));
        for (_, child) in &mut nodes {
            let _ = child.wait();
        }
        drop(lock);
        ended?;
        out::line(if local.keeps()? {
            format!("stopped. all data is in {}; quorate up brings it back", self.dir().display())
        } else {
            format!("stopped. {FORGOTTEN}")
        });
        Ok(ExitCode::SUCCESS)
    }

    /// Sees to it that what is asked for can be mounted.
    fn check_mount(&self, service: ServiceName) -> Result<(), Failure> {
        let Some(dir) = &self.mount else { return Ok(()) };
        if service != ServiceName::Fs {
            let what = format!("the service {} is no file system", service.name());
            return Err(Failure::new(Code::Rule, what).at(format!("--mount {}", dir.display())));
        }
        quorate_mount::check(dir).map_err(|error| crate::mount::failed(&error, dir, "--mount"))
    }

    fn make(&self) -> Result<(), Failure> {
        let mut cluster = NewCluster::local(self.f.unwrap_or(1));
        cluster.hosts = self.host.into_iter().collect();
        // One for the door, one for `up`, one for whoever breaks something and wants to see what comes of it, one for
        // whoever asks how it is, one to mount with.
        cluster.clients = 5;
        cluster.service = self.service.unwrap_or(Service::Fs).name();
        cluster.chosen = self.durability.and_then(Durability::chosen).into_iter().collect();
        if cluster.service == ServiceName::Fs {
            // Nobody but the users of this machine reaches it: its root is root.
            cluster.chosen.push(("fs_exports", "\"/(rw,no_root_squash)\"".to_owned()));
        }
        cluster.make(self.dir())?;
        Ok(())
    }

    /// A cluster that exists keeps its settings: flags that would change them are refused.
    fn check_settings(&self) -> Result<(), Failure> {
        let flags = [
            ("--f", self.f.is_some()),
            ("--host", self.host.is_some()),
            ("--service", self.service.is_some()),
            ("--durability", self.durability.is_some()),
        ];
        match flags.iter().find(|(_, given)| *given) {
            None => Ok(()),
            Some((flag, _)) => {
                Err(Failure::new(Code::Rule, "the cluster exists, and keeps what it was made with")
                    .at(format!("{flag}, {}", self.dir().display()))
                    .next(format!("leave {flag} away, or choose another directory with --dir")))
            }
        }
    }

    /// Replicas that all have forgotten everything would wait for each other for ever.
    fn check_kept(&self, local: &Local) -> Result<(), Failure> {
        if local.keeps()? || local.runs() {
            return Ok(());
        }
        let dir = self.dir().display();
        let (what, next) = if local.any_replica_runs() {
            // An `up` that was killed has left them: as long as they run they have everything.
            (
                "the replicas of an `up` that was killed run, and keep nothing when they stop",
                format!("quorate down --dir {dir}"),
            )
        } else {
            ("the cluster kept nothing when it stopped: its durability is memory", format!("rm -r {dir}"))
        };
        Err(Failure::new(Code::Rule, what)
            .at(local.node("replica-0").join("node.toml").display().to_string())
            .next(format!("{next}      or choose another directory with --dir")))
    }

    /// Runs everything until `stop`. Whatever was started is in `nodes`.
    fn serve(
        &self,
        local: &Local,
        page: TcpListener,
        (is_new, begin): (bool, Instant),
        stop: &AtomicBool,
        nodes: &mut Vec<(String, Child)>,
    ) -> Result<(), Failure> {
        let mut patience = PATIENCE;
        for name in local.replicas() {
            local.set_fault(&name, None)?;
            patience = patience.max(PATIENCE + local.reads_for(&name));
            let child = local.start(&name, "replica", &[])?;
            nodes.push((name, child));
        }
        let node = ClientNode::open(&local.node(WATCH))?;
        let door = self.door(node.settings().service);
        let observer = Observer::start(node, local.dir())?;
        while observer.try_out().ordered.is_none() {
            let gone = nodes
                .iter_mut()
                .find_map(|(name, child)| matches!(child.try_wait(), Ok(Some(_))).then_some(name));
            if let Some(name) = gone {
                return Err(Failure::new(Code::Network, format!("{name} did not start"))
                    .at(local.node(name).join("replica.log").display().to_string())
                    .next(local.last_lines(name, "replica.log", 4)));
            }
            if stop.load(Ordering::Relaxed) {
                return Ok(());
            }
            if begin.elapsed() > patience {
                return Err(Failure::new(Code::Unreachable, "the service does not answer")
                    .at(format!("{}/replica-*/replica.log", self.dir().display()))
                    .next("look at what the replicas say there"));
            }
        }
        if let Some(door) = door {
            let arguments = ["--listen".to_owned(), door.address.to_string()];
            nodes.push((DOOR.to_owned(), local.start(DOOR, door.command, &arguments)?));
        }
        if let Some(on) = &self.mount {
            let on = fs::canonicalize(on).unwrap_or_else(|_| on.clone());
            nodes.push((MOUNT.to_owned(), local.start(MOUNT, "mount", &[on.display().to_string()])?));
        }
        self.introduce(local, is_new, begin, door);
        let watch = Arc::new(Watch::new(observer));
        let name =
            local.dir().file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        page::serve(page, Arc::clone(&watch), name)?;
        look_after(&watch, stop);
        Ok(())
    }

    /// Says what there is now and how to use it.
    fn introduce(&self, local: &Local, is_new: bool, begin: Instant, door: Option<FrontDoor>) {
        let (dir, n) = (self.dir().display(), local.replicas().len());
        let f = (n - 1) / 3;
        let made = if is_new { "made" } else { "opened" };
        out::line(format!(
            "{made} {dir}: {n} replicas, f = {f} ({f} of them may crash, lie or be taken over)"
        ));
        out::line(format!(
            "  replicas  started in {:.1} s, and the service answers",
            begin.elapsed().as_secs_f64()
        ));
        if let Some(door) = door {
            let (usage, first) = door.usage();
            out::line(format!("  door      {}  {}     {usage}", door.protocol, door.address));
            if door.command == "nfs" {
                let dir = self.dir().join(MOUNT);
                out::line(format!("            no root?     quorate mount --dir {} DIR", dir.display()));
                out::line("            locks stay on this machine (nolock)");
            }
            if let Some(on) = &self.mount {
                out::line(format!("  mounted   {}", on.display()));
            }
            out::line(format!("  status    page  {}     http://{}", self.status, self.status));
            out::line(
                "  trust     the door is a client of the cluster: run one on each machine that uses it",
            );
            out::line("");
            out::line(format!("next:  {first}        break it:  quorate fault kill primary"));
        }
    }
}

/// Says once a second how the cluster is, until `stop`: on one line, where there is a terminal, else whenever
/// the verdict, the margins or a replica's state have changed.
fn look_after(watch: &Watch, stop: &AtomicBool) {
    let (terminal, mut last) = (std::io::stdout().is_terminal(), String::new());
    crate::status::follow(watch, stop, |line| {
        if terminal {
            print!("\r\x1b[K{line}");
            let _ = std::io::stdout().flush();
            return;
        }
        let Some(seen) = watch.last() else { return };
        let picture = &seen.picture;
        let state = format!("{:?} {} {:?}", picture.verdict, picture.view.0, picture.troubles());
        if state != last {
            out::line(line);
            last = state;
        }
    });
    if terminal {
        out::line("");
    }
}

/// Stops everything that runs there.
fn stop_all(local: &Local) {
    let mut names = local.replicas();
    names.extend([DOOR, MOUNT].map(str::to_owned));
    for name in names {
        local.stop(&name);
    }
}

/// Makes sure that no other `quorate up` runs on the directory, and leaves this one's process id there.
fn lock(dir: &Path) -> Result<Flock<fs::File>, Failure> {
    let path = dir.join("up.lock");
    let file = OpenOptions::new().create(true).truncate(false).read(true).write(true).open(&path);
    let file = file.map_err(|error| unwritable(&path, &error))?;
    let mut lock = Flock::lock(file, FlockArg::LockExclusiveNonblock).map_err(|_| {
        Failure::new(Code::InUse, "another `quorate up` runs on this directory")
            .at(dir.display().to_string())
            .next(format!("quorate down --dir {}", dir.display()))
    })?;
    let write = lock.set_len(0).and_then(|()| write!(lock, "{}", std::process::id()));
    write.map_err(|error| unwritable(&path, &error))?;
    Ok(lock)
}

impl Down {
    pub(crate) fn run(&self) -> Outcome {
        let local = Local::made(&self.dir)?;
        let after = if local.keeps()? { "quorate up brings it back" } else { FORGOTTEN };
        let path = local.dir().join("up.lock");
        let pid = fs::read_to_string(&path).ok().and_then(|text| text.trim().parse().ok());
        let Some(pid) = pid.filter(|_| local.runs()) else {
            let is_left = local.any_replica_runs();
            stop_all(&local);
            out::line(if is_left {
                format!("stopped what a killed `up` had left of {}; {after}", self.dir.display())
            } else {
                format!("{} does not run", self.dir.display())
            });
            return Ok(ExitCode::SUCCESS);
        };
        let asked = kill(Pid::from_raw(pid), Signal::SIGTERM);
        asked.map_err(|error| {
            Failure::new(Code::InUse, format!("process {pid} cannot be stopped: {error}"))
                .at(path.display().to_string())
        })?;
        let end = Instant::now() + PATIENCE;
        while local.runs() {
            if Instant::now() > end {
                return Err(Failure::new(Code::InUse, format!("process {pid} does not stop"))
                    .at(path.display().to_string()));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        out::line(format!("stopped {}; {after}", self.dir.display()));
        Ok(ExitCode::SUCCESS)
    }
}
