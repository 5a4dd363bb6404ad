//! `quorate up` and `quorate down`: a complete cluster on this machine.

use std::fs;
use std::io::{IsTerminal as _, Write as _};
use std::net::{SocketAddr, TcpListener};
use std::path::{Path, PathBuf};
use std::process::{Child, ExitCode};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use clap::Args;
use nix::fcntl::Flock;
use nix::sys::signal::{Signal, kill};
use quorate_gateways::{GATEWAYS, GatewayRow, page};
use quorate_node::error::NodeErrorKind;
use quorate_node::init::{Host, NewCluster};
use quorate_node::observe::{Observer, Watch, text};
use quorate_node::place::lock_file;
use quorate_node::ports::Port;
use quorate_node::services::ServiceName;
use quorate_node::{ClientNode, descriptors, signals};

use crate::code::Code;
use crate::demo::{self, Counts, Demo};
use crate::fail::{CommandResult, Failure};
use crate::gateway::Addresses;
use crate::local::{Local, check_free, check_new, unwritable};
use crate::node::{Durability, tolerates};
use crate::{mount, out, values};

/// The service of a new cluster.
const USUAL: ServiceName = ServiceName::FS;
/// Number of clients: the gateway, `up`, the probe of `fault`, `status`, and the mount.
const CLIENTS: usize = 5;
/// The client that `up` probes the cluster with.
const WATCH: &str = "client-1";
/// The client that mounts: the default of `quorate mount`.
const MOUNT: &str = "client-4";
/// A client for commands that the user types.
const OTHER: &str = "client-3";
/// How long a cluster may take until it responds.
const PATIENCE: Duration = Duration::from_secs(60);
/// What `up` and `down` print about a cluster without durable state.
const FORGOTTEN: &str = "its data is gone: durability is memory";
/// The flag with the address of the status page.
const STATUS_FLAG: &str = "quorate up --status";

/// Start a cluster and a gateway on this machine
///
/// Starts replicas and a gateway, each as a process, and shows the status of the cluster. Ctrl-C stops all processes.
/// So does closing the terminal, unless `up` runs under `nohup`. The next `quorate up` continues with the same data,
/// unless the durability is "memory".
///
/// There are 3f + 1 replicas, of which up to f may be Byzantine: four replicas for f = 1.
///
/// The replicas run a file system, which the gateway serves to NFS clients. With --service kv, they run a key-value
/// store, which the gateway serves to Redis clients.
///
/// One machine with all replicas is good for trials only. For several machines, use `quorate init`.
///
/// Example:
///
///   quorate up
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Up {
    /// Data directory, created if needed (default quorate-data; with --demo a temporary directory)
    #[arg(long)]
    dir: Option<PathBuf>,
    /// Number of Byzantine replicas to tolerate, 1 to 4 (default 1). Only for a new cluster
    #[arg(long, value_parser = values::within::<u16, 1, 4>)]
    f: Option<u16>,
    /// Address of replica 0, IP or IP:PORT (default 127.0.0.1:7000). The other replicas use the same IP and the next
    /// ports. Only for a new cluster
    #[arg(long, value_name = "ADDR")]
    host: Option<Host>,
    /// Service to replicate (default fs). Only for a new cluster or a demo
    #[arg(long, value_parser = values::service(), value_name = "SERVICE")]
    service: Option<ServiceName>,
    #[command(flatten)]
    gateways: Addresses,
    /// Also mount the file system on this existing directory, through FUSE
    #[arg(long, value_name = "DIR")]
    mount: Option<PathBuf>,
    /// Address of the status page and /metrics, IP:PORT
    #[arg(long, value_parser = values::address, value_name = "ADDR", default_value = "127.0.0.1:9640")]
    status: SocketAddr,
    /// What replicas write to disk. sync (default): everything, before they answer. async: everything, but they do not
    /// wait for the disk. memory: nothing. async and memory are for measurements. Only for a new cluster
    #[arg(long, value_enum)]
    durability: Option<Durability>,
    /// Run a demo: write data, kill the primary, let a replica lie, wipe a disk, and compare the data. Exit status 1 if
    /// data was lost
    #[arg(long, conflicts_with_all = ["f", "host", "durability", "mount"])]
    demo: bool,
    #[command(flatten)]
    counts: Counts,
}

/// Stop a cluster that `quorate up` runs
///
/// Example:
///
///   quorate down
#[derive(Args, Debug)]
#[command(verbatim_doc_comment)]
pub(crate) struct Down {
    /// Data directory of the cluster
    #[arg(long, default_value = "quorate-data")]
    dir: PathBuf,
}

/// A gateway that `up` starts, as this client.
#[derive(Clone, Debug)]
struct Started {
    row: &'static GatewayRow,
    address: SocketAddr,
    client: String,
}

impl Started {
    /// Checks that the gateway's port is free.
    fn check(&self) -> Result<(), Failure> {
        let (name, address) = (self.row.name, self.address);
        let other = SocketAddr::new(address.ip(), address.port().saturating_add(1));
        let next = format!("quorate up --{name} {other}      or stop the other process");
        check_free(&[Port::Tcp], address, &format!("{} gateway", self.row.protocol), next)
    }
}

/// Returns the client that the gateway with this index runs as: those between are for other uses.
fn gateway_client(index: usize) -> String {
    format!("client-{}", if index == 0 { 0 } else { CLIENTS + index - 1 })
}

impl Up {
    /// Returns the gateways of a service.
    fn gateways_of(&self, service: ServiceName) -> Vec<Started> {
        let rows = self.gateways.of(service).into_iter().enumerate();
        rows.map(|(index, (row, address))| Started { row, address, client: gateway_client(index) }).collect()
    }

    fn dir(&self) -> &Path {
        self.dir.as_deref().unwrap_or(Path::new("quorate-data"))
    }

    pub(crate) fn run(&self) -> CommandResult {
        if self.demo {
            let service = self.service.unwrap_or(USUAL);
            let Some(plot) = self.counts.plot(service) else {
                let what = format!("--demo needs a service with state: use --service {}", demo::services());
                return Err(Failure::new(Code::Rule, what).next("quorate up --demo --service fs"));
            };
            let chosen = self.gateways.of(service).into_iter().find(|(row, at)| *at != row.address());
            return Demo { dir: self.dir.clone(), door: chosen.map(|(_, at)| at), plot }.run();
        }
        let stop = signals::stop_flag()?;
        out::stop_without_reader(&stop);
        descriptors::raise();
        let begin = Instant::now();
        let mut page = None;
        let is_new = !self.dir().join("replica-0").is_dir();
        if is_new {
            let service = self.service.unwrap_or(USUAL);
            self.check_mount(service)?;
            self.gateways_of(service).iter().try_for_each(Started::check)?;
            page = Some(page::listen(self.status, STATUS_FLAG)?);
            self.make()?;
        }
        let local = Local::at(self.dir());
        if !is_new {
            self.check_settings(&local)?;
            self.check_kept(&local)?;
        }
        let run = local.dir().join("run");
        fs::create_dir_all(&run).map_err(|error| unwritable(&run, &error))?;
        let lock = lock(local.dir())?;
        if !is_new {
            // Processes that a killed `up` left running, including its gateway.
            stop_all(&local);
            self.check_mount(local.service()?)?;
            self.gateways_of(local.service()?).iter().try_for_each(Started::check)?;
        }
        // A killed `up` leaves no status page. The lock reports a running `up` before this can fail.
        let page = page.map_or_else(|| page::listen(self.status, STATUS_FLAG), Ok)?;
        let mut nodes = Vec::new();
        let ended = self.serve(&local, page, (is_new, begin), &stop, &mut nodes);
        // A fault that is injected or healed now would leave a process behind.
        let alone = local.alone();
        for (name, _) in nodes.iter().rev() {
            local.stop(name);
        }
        // Replicas that `quorate fault` restarted are not our children.
        local.replicas().iter().for_each(|name| local.stop(name));
        for (_, child) in &mut nodes {
            let _ = child.wait();
        }
        drop((lock, alone));
        ended?;
        out::line(if local.keeps()? {
            format!("stopped. all data is in {}; `quorate up` continues with it", self.dir().display())
        } else {
            format!("stopped. {FORGOTTEN}")
        });
        Ok(ExitCode::SUCCESS)
    }

    /// Checks that the file system can be mounted where --mount says.
    fn check_mount(&self, service: ServiceName) -> Result<(), Failure> {
        let Some(dir) = &self.mount else { return Ok(()) };
        if service != ServiceName::FS {
            let what = format!("the service {} is not a file system", service.name());
            return Err(Failure::new(Code::Rule, what).at(format!("--mount {}", dir.display())));
        }
        quorate_mount::check(dir).map_err(|error| mount::failed(&error, dir, "--mount"))
    }

    fn make(&self) -> Result<(), Failure> {
        let mut cluster = NewCluster::local(self.f.unwrap_or(1));
        cluster.hosts = self.host.into_iter().collect();
        cluster.service = self.service.unwrap_or(USUAL);
        let more = self.gateways_of(cluster.service).len().saturating_sub(1);
        cluster.clients = u16::try_from(CLIENTS + more).unwrap_or(u16::MAX);
        cluster.chosen = self.durability.and_then(Durability::chosen).into_iter().collect();
        let is_local = |(_, address): &(_, SocketAddr)| address.ip().is_loopback();
        let local = cluster.service.row().filter(|_| self.gateways.of(cluster.service).iter().all(is_local));
        let local = local.map_or(&[][..], |row| row.local);
        cluster.chosen.extend(local.iter().map(|(key, value)| (*key, (*value).to_owned())));
        check_new(&cluster.addresses()?, "quorate up")?;
        cluster.make(self.dir())?;
        Ok(())
    }

    /// Refuses flags that would change the settings of an existing cluster. Flags that repeat its settings are fine.
    fn check_settings(&self, local: &Local) -> Result<(), Failure> {
        let settings = local.settings()?;
        let f = settings.replicas.len().saturating_sub(1) / 3;
        let first = settings.replicas.first();
        let is_first = |host: Host| first.is_some_and(|first| host.address() == *first);
        let durability = self.durability.map(Durability::config);
        let flags = [
            ("--f", self.f.is_some_and(|asked| usize::from(asked) != f)),
            ("--host", self.host.is_some_and(|host| !is_first(host))),
            ("--service", self.service.is_some_and(|service| service != settings.service)),
            ("--durability", durability.is_some_and(|durability| durability != settings.config.durability)),
        ];
        match flags.iter().find(|(_, differs)| *differs) {
            None => Ok(()),
            Some((flag, _)) => Err(Failure::new(
                Code::Rule,
                "the cluster already exists with another value, and this setting cannot be changed",
            )
            .at(format!("{flag}, {}", self.dir().display()))
            .next(format!("omit {flag}, or choose another directory with --dir"))),
        }
    }

    /// Refuses to start replicas that all lost their state: they would wait for each other forever.
    fn check_kept(&self, local: &Local) -> Result<(), Failure> {
        if local.keeps()? || local.runs() {
            return Ok(());
        }
        let dir = self.dir().display();
        let (what, next) = if local.any_replica_runs() {
            // A killed `up` left them running; they have their state until they stop.
            (
                "the replicas of an `up` that was killed still run, and lose their state when they stop",
                format!("quorate down --dir {dir}"),
            )
        } else {
            ("the cluster kept nothing when it stopped: durability is memory", format!("rm -r {dir}"))
        };
        Err(Failure::new(Code::Rule, what)
            .at(local.node("replica-0").join("node.toml").display().to_string())
            .next(format!("{next}      or choose another directory with --dir")))
    }

    /// Runs everything until `stop`. `nodes` holds every process started so far.
    fn serve(
        &self,
        local: &Local,
        page: TcpListener,
        (is_new, begin): (bool, Instant),
        stop: &AtomicBool,
        nodes: &mut Vec<(String, Child)>,
    ) -> Result<(), Failure> {
        let (mut patience, mut logged) = (PATIENCE, Vec::new());
        // To `quorate fault`, a replica that has not been started yet looks like one that has ended.
        let alone = local.alone()?;
        for name in local.replicas() {
            local.set_fault(&name, None)?;
            patience = patience.max(PATIENCE + local.reads_for(&name));
            logged.push((name.clone(), local.log_bytes(&name)));
            let child = local.start(&name, "replica", &[])?;
            nodes.push((name, child));
        }
        drop(alone);
        let node = ClientNode::open(&local.node(WATCH))?;
        // An older cluster may lack the client of a gateway that is new.
        let mut gateways = self.gateways_of(node.settings().service);
        gateways.retain(|gateway| local.node(&gateway.client).is_dir());
        let observer = Observer::start(node, local.dir())?;
        // Replicas that another program runs on these directories may answer, while those started here end.
        let all_run = || logged.iter().all(|(name, before)| local.runs_since(name, *before));
        while !observer.orders() || !all_run() {
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
                return Err(Failure::new(Code::Unreachable, "the service does not respond")
                    .at(format!("{}/replica-*/replica.log", self.dir().display()))
                    .next("read the replicas' logs there"));
            }
            // An answer that comes at once, from others or as a refusal, is no reason to ask without a pause.
            std::thread::sleep(Duration::from_millis(20));
        }
        for gateway in &gateways {
            let arguments = ["--listen".to_owned(), gateway.address.to_string()];
            let child = local.start(&gateway.client, gateway.row.name, &arguments)?;
            nodes.push((gateway.client.clone(), child));
        }
        if let Some(on) = &self.mount {
            let on = fs::canonicalize(on).unwrap_or_else(|_| on.clone());
            let before = mount::device(&on);
            nodes.push((MOUNT.to_owned(), local.start(MOUNT, "mount", &[on.display().to_string()])?));
            let Some((_, child)) = nodes.last_mut() else { unreachable!("it was just added") };
            if !mount::wait(&on, before, child, stop, PATIENCE) {
                return Err(Failure::new(Code::NoFuse, "the file system cannot be mounted")
                    .at(local.node(MOUNT).join("mount.log").display().to_string())
                    .next(local.last_lines(MOUNT, "mount.log", 4)));
            }
        }
        self.introduce(local, is_new, begin, &gateways);
        let watch = Watch::new(observer);
        let name =
            local.dir().file_name().map_or_else(String::new, |name| name.to_string_lossy().into_owned());
        page::serve(page, watch.board(), name)?;
        look_after(&watch, stop);
        Ok(())
    }

    /// Prints the endpoints and the next commands to try.
    fn introduce(&self, local: &Local, is_new: bool, begin: Instant, gateways: &[Started]) {
        let (dir, n) = (self.dir().display(), local.replicas().len());
        let f = (n - 1) / 3;
        let made = if is_new { "created" } else { "opened" };
        out::line(format!("{made} {dir}: {n} replicas, {}", tolerates(f)));
        out::line(format!(
            "  replicas  started in {:.1} s; the service responds",
            begin.elapsed().as_secs_f64()
        ));
        for (index, Started { row, address, .. }) in gateways.iter().enumerate() {
            if let Some(warning) = row.warning(*address) {
                let _ = writeln!(std::io::stderr(), "{warning}");
            }
            let usage = (row.usage)(*address);
            out::line(format!("  gateway   {}  {address}     {}", row.protocol, usage.command));
            let as_client =
                |name, text: &str| text.replace("CLIENT", &self.dir().join(name).to_string_lossy());
            for note in row.notes {
                out::line(format!("            {}", as_client(MOUNT, note)));
            }
            if index + 1 < gateways.len() {
                continue;
            }
            if let Some(on) = &self.mount {
                out::line(format!("  mounted   {}", on.display()));
            }
            out::line(format!("  status    page  {}     http://{}", self.status, self.status));
            out::line(
                "  trust     its users trust the gateway: run one on each machine that uses the cluster",
            );
            out::line("");
            let first = as_client(OTHER, &usage.first);
            out::line(format!("next:  {first}        inject a fault:  quorate fault kill primary"));
        }
    }
}

/// Reports the cluster's status until `stop`. On a terminal one line is rewritten every second; otherwise a line is
/// printed when the verdict, the view or a replica's state has changed.
fn look_after(watch: &Watch, stop: &AtomicBool) {
    let (terminal, mut last) = (std::io::stdout().is_terminal(), String::new());
    crate::status::follow(watch, stop, |seen| {
        let line = text::line(&seen.picture, seen.rate);
        if terminal {
            out::part(format_args!("\r\x1b[K{line}"));
            return;
        }
        let picture = &seen.picture;
        let state = format!("{:?} {:?} {:?}", picture.verdict, picture.view, picture.troubles());
        if state != last {
            out::line(line);
            last = state;
        }
    });
    if terminal {
        out::line("");
    }
}

/// Stops every process of the cluster.
fn stop_all(local: &Local) {
    let mut names = local.replicas();
    names.push(MOUNT.to_owned());
    names.extend((0..GATEWAYS.len()).map(gateway_client));
    let _alone = local.alone();
    for name in names {
        local.stop(&name);
    }
}

/// Checks that no other `quorate up` uses the directory, and writes this one's process id there.
fn lock(dir: &Path) -> Result<Flock<fs::File>, Failure> {
    let path = dir.join("up.lock");
    let mut lock = lock_file(&path).map_err(|trouble| {
        if trouble.kind != NodeErrorKind::InUse {
            return Failure::from(trouble);
        }
        Failure::new(Code::InUse, "another `quorate up` runs in this directory")
            .at(dir.display().to_string())
            .next(format!("quorate down --dir {}", dir.display()))
    })?;
    let write = lock.set_len(0).and_then(|()| write!(lock, "{}", std::process::id()));
    write.map_err(|error| unwritable(&path, &error))?;
    Ok(lock)
}

impl Down {
    pub(crate) fn run(&self) -> CommandResult {
        let local = Local::made(&self.dir)?;
        if local.replicas().is_empty() {
            return Err(Failure::new(
                Code::Rule,
                "there are no replicas: this is not a cluster of `quorate up`",
            )
            .at(self.dir.display().to_string())
            .next("Ctrl-C stops `quorate quorum up`"));
        }
        let after = if local.keeps()? { "`quorate up` continues with its data" } else { FORGOTTEN };
        let lock = local.dir().join("up.lock");
        let (mut asked, end) = (None, Instant::now() + PATIENCE);
        while local.runs() {
            // An `up` that has just started has not written its number yet.
            if let Some(pid) = local.up().filter(|_| asked.is_none()) {
                kill(pid, Signal::SIGTERM).map_err(|error| {
                    Failure::new(Code::InUse, format!("process {pid} cannot be stopped: {error}"))
                        .at(lock.display().to_string())
                })?;
                asked = Some(pid);
            }
            if Instant::now() > end {
                let what = asked.map_or_else(
                    || "a process that this user cannot see holds the lock of `quorate up`".to_owned(),
                    |pid| format!("process {pid} does not stop"),
                );
                return Err(Failure::new(Code::InUse, what)
                    .at(lock.display().to_string())
                    .next("stop the process that has this file open"));
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let dir = self.dir.display();
        if asked.is_some() {
            out::line(format!("stopped {dir}; {after}"));
            return Ok(ExitCode::SUCCESS);
        }
        let is_left = local.any_replica_runs();
        stop_all(&local);
        out::line(if is_left {
            format!("stopped what a killed `up` had left in {dir}; {after}")
        } else {
            format!("{dir} is not running")
        });
        Ok(ExitCode::SUCCESS)
    }
}
