//! A replica from its directory: opened, run, stopped.
//!
//! Opening reads and checks everything, and takes the ports, before anything is written. Writing begins in
//! [`ReplicaNode::run`]. So a configuration error is reported without damage.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use nix::fcntl::Flock;
use nix::sched::{CpuSet, sched_setaffinity};
use nix::unistd::Pid;
use quorate_pbft::config::Durability;
use quorate_pbft::recording::Recorder;
use quorate_pbft::step::Lsn;
use quorate_pbft::{Config, Now, Replica, Resume};
use quorate_process::{Core, Directory, DiskEvent, Event, Parallel, Process, Store as _};
use quorate_process::{INCARNATION_RANDOM_BITS, executor_options};
use quorate_service::{Executor, Service};
use quorate_wire::sign::Signer;
use quorate_wire::{Door, Principal, ReplicaId};
use tracing::{info, warn};

use crate::error::{NodeError, NodeErrorKind};
use crate::home::members::{Members, client_identity};
use crate::home::place::{lock, replica_of};
use crate::home::secret;
use crate::home::settings::Settings;
use crate::net::idle::Idle;
use crate::net::open::open_socket;
use crate::net::socket::Socket;
use crate::run::clock::Clock;
use crate::run::key_times::KeyTimes;
use crate::run::surroundings::Surroundings;
use crate::run::watch::Watch;
use crate::run::workers::Workers;
use crate::services::{self, Taker};
use crate::storage::{Disk, Paged, Past, Storage};

/// Maximum number of datagrams taken between two flushes.
const BURST_MAX: usize = 64;
/// How long a stopping primary waits for the others to take over, in nanoseconds.
const HAND_OVER_NS: u64 = 150_000_000;

/// A replica that is ready to run.
#[derive(Debug)]
pub struct ReplicaNode {
    dir: PathBuf,
    id: ReplicaId,
    members: Members,
    settings: Settings,
    signer: Signer,
    socket: Socket,
    directory: Directory,
    /// The lock that keeps other processes from this directory.
    _lock: Flock<File>,
}

impl ReplicaNode {
    /// Opens the replica in `dir`.
    ///
    /// # Errors
    ///
    /// A file is missing, invalid, or accessible to other users; a port is taken; another process uses the directory.
    /// Nothing has changed then.
    pub fn open(dir: &Path) -> Result<Self, NodeError> {
        let id = replica_of(dir)?;
        let members = Members::read(&dir.join("cluster.toml"))?;
        let own = Principal::Replica(id);
        let Some(public) = members.key_of(own) else {
            let what = format!("{id} is not a member: the cluster has {} replicas", members.cluster.n());
            return Err(NodeError::new(NodeErrorKind::Rule, what).in_file(&dir.join("cluster.toml")));
        };
        let settings = Settings::read(&dir.join("node.toml"), own, members.cluster, members.cluster_id())?;
        let signer = secret::read(&dir.join("keys/replica.key"), public)?;
        let lock = lock(dir)?;
        let mut directory = Directory::new(&settings.replicas);
        for (number, address) in &settings.clients {
            directory.add_client(client_identity(*number), *address);
        }
        let socket = open_socket(settings.listen, &directory, &dir.join("node.toml"))?;
        Ok(Self { dir: dir.to_path_buf(), id, members, settings, signer, socket, directory, _lock: lock })
    }

    /// Returns its id.
    pub fn id(&self) -> ReplicaId {
        self.id
    }

    /// Returns its settings.
    pub fn settings(&self) -> &Settings {
        &self.settings
    }

    /// Runs the replica with the service that its settings name, until `stop`.
    ///
    /// # Errors
    ///
    /// Its files are of another version, the disk fails, or the sockets fail.
    pub fn run(self, stop: &AtomicBool) -> Result<(), NodeError> {
        self.run_as(|replica, _, _| replica, stop)
    }

    /// Runs the core that `put` returns for the replica, its key and its settings, with the service that its settings
    /// name, until `stop`.
    ///
    /// # Errors
    ///
    /// As [`Self::run`].
    pub fn run_as<C: Core>(
        self,
        put: impl FnOnce(Replica, Signer, &Config) -> C,
        stop: &AtomicBool,
    ) -> Result<(), NodeError> {
        let (service, settings) = (self.settings.service, self.settings.fs.clone());
        let file = self.dir.join("node.toml");
        match services::make(service, &settings, Put { node: self, core: put, stop }) {
            Some(Ok(ended)) => ended,
            Some(Err(what)) => Err(NodeError::new(NodeErrorKind::Rule, what).in_file(&file)),
            None => {
                let what = "service = \"own\": this cluster runs the service of another program";
                Err(NodeError::new(NodeErrorKind::Rule, what)
                    .in_file(&file)
                    .next("run that program's own `replica` command"))
            }
        }
    }

    /// Runs the replica with the caller's service, until `stop`.
    ///
    /// # Errors
    ///
    /// As [`Self::run`].
    pub fn run_service<S: Service + Send + 'static>(
        self,
        service: S,
        stop: &AtomicBool,
    ) -> Result<(), NodeError> {
        self.run_both(service, |replica, _, _| replica, stop)
    }

    fn run_both<S: Service + Send + 'static, C: Core>(
        self,
        service: S,
        put: impl FnOnce(Replica, Signer, &Config) -> C,
        stop: &AtomicBool,
    ) -> Result<(), NodeError> {
        let clock = Clock::new();
        let now = clock.now();
        let mut config = self.settings.config.clone();
        // The bits of a life must be new at each start (RC-11).
        config.seed = secret::number()?;
        config.service_settings = self.settings.service_digest();
        let config = config;
        let (mut storage, past) = Storage::open(
            &self.dir,
            self.members.cluster_id(),
            self.id,
            config.durability,
            now.wall_ns / 1_000_000_000,
        )?;
        let wall_ns = secret::reserve_time(&self.dir, now.wall_ns)?;
        let chance = secret::number()? >> (64 - INCARNATION_RANDOM_BITS);
        let incarnation = (storage.starts() << INCARNATION_RANDOM_BITS) | chance;
        let (domains, options) = (config.domains(), executor_options(&config, wall_ns));
        let store = match config.durability {
            Durability::Memory => Paged::in_memory(domains.clone(), options.page_bytes),
            Durability::Sync | Durability::Async => {
                storage.store(domains.clone(), options.page_bytes, self.settings.state_memory_max)
            }
        };
        let service = Arc::new(service);
        let executor = Executor::with_store(Arc::clone(&service), domains, options, store);
        let mut executor = executor.governed(self.members.founders(), self.members.cluster.n());
        if config.durability != Durability::Memory {
            executor.limit_transfer(executor.store().pages_max() / 2);
        }
        let resume = resume(past, incarnation, &mut storage, &mut executor)?;
        let mut door = Door::new(
            self.id.into(),
            self.members.cluster,
            self.members.cluster_id(),
            0,
            self.signer.clone(),
            self.members.verifier(),
            secret::entropy()?,
            wall_ns,
        );
        door.state_settings(config.shared_settings());
        let recorder = (self.settings.recording_bytes > 0)
            .then(|| Recorder::new(self.id, &config, &resume, self.settings.recording_bytes));
        if let Some(core) = self.settings.core {
            pin(core)?;
        }
        let is_fresh = matches!(resume, Resume::Fresh { .. });
        let disk = storage.begin(&executor, self.settings.log_bytes_max)?;
        let replica = Replica::new(self.id, config.clone(), self.signer.clone(), resume)
            .map_err(|error| NodeError::new(NodeErrorKind::Rule, error.to_string()))?;
        let core = put(replica, self.signer.clone(), &self.settings.config);
        let mut process = Process::new(self.id, &config, core, door, self.directory.clone(), executor, disk);
        let count = worker_threads(&config);
        let workers = if count > 0 {
            let Settings { parallel: engine, service: name, .. } = self.settings;
            let parallel = Parallel {
                workers: count,
                engine,
                rules: services::rules(name, &self.settings.fs, &service),
                replies_early: name.row().is_some(),
                short_on_pages: true,
                secret: secret::number()?,
            };
            process = process
                .with_workers(parallel)
                .map_err(|error| NodeError::new(NodeErrorKind::Rule, error.to_string()))?;
            let pages = process.executor().service_part();
            Some(Workers::start(count, &service, pages, process.disk().waker())?)
        } else {
            None
        };
        process.set_settings(self.settings.shared_digests());
        process.set_surroundings(Box::new(Surroundings::new(&self.dir)));
        info!(
            replica = %self.id, address = %self.settings.listen, starts = incarnation >> INCARNATION_RANDOM_BITS,
            durability = ?self.settings.config.durability, fresh = is_fresh, "runs"
        );
        let watch = Watch::new(recorder);
        let keys = KeyTimes::new(&self.dir, self.settings.key_interval_ns, clock.mono_ns());
        Running { node: self, process, workers, watch, clock, durable: Lsn(0), keys }.run(stop)
    }
}

/// A node, how its core is made and when to stop, before its service is known.
struct Put<'a, P> {
    node: ReplicaNode,
    core: P,
    stop: &'a AtomicBool,
}

impl<C: Core, P: FnOnce(Replica, Signer, &Config) -> C> Taker for Put<'_, P> {
    type Output = Result<(), NodeError>;

    fn take<S: Service + Send + 'static>(self, service: S) -> Self::Output {
        self.node.run_both(service, self.core, self.stop)
    }
}

/// A running replica.
struct Running<S: Service, C: Core> {
    node: ReplicaNode,
    process: Process<S, Paged, Disk, C>,
    /// None: requests are executed one after the other.
    workers: Option<Workers>,
    watch: Watch,
    clock: Clock,
    /// The last record that the replica was told is durable.
    durable: Lsn,
    keys: KeyTimes,
}

impl<S: Service, C: Core> Running<S, C> {
    /// Runs until `stop`, then hands the view over and writes what is left. The recording is written even if the
    /// replica panics.
    fn run(mut self, stop: &AtomicBool) -> Result<(), NodeError> {
        let ended = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
            self.serve(stop).and_then(|()| self.hand_over())
        }));
        if let Some(recording) = self.watch.recording() {
            let path = self.node.dir.join("recording");
            if let Err(error) = fs::write(&path, recording) {
                warn!(%error, "cannot write the recording");
            }
        }
        let ended = match ended {
            Ok(ended) => ended,
            Err(panic) => std::panic::resume_unwind(panic),
        };
        let stopped = self.process.into_disk().stop();
        ended.and(stopped)?;
        info!(replica = %self.node.id, "stopped");
        Ok(())
    }

    fn serve(&mut self, stop: &AtomicBool) -> Result<(), NodeError> {
        self.process.step(self.clock.now(), Event::Start, &mut self.watch);
        let mut idle = Idle::new(self.node.settings.waiting);
        while !stop.load(Ordering::Relaxed) {
            self.turn(&mut idle)?;
        }
        Ok(())
    }

    /// Lets the others take over before this primary stops.
    fn hand_over(&mut self) -> Result<(), NodeError> {
        let until = self.clock.mono_ns().saturating_add(HAND_OVER_NS);
        let view = self.process.replica().view();
        let was_primary = self.process.replica().is_primary();
        self.process.step(self.clock.now(), Event::Shutdown, &mut self.watch);
        self.process.flush(self.clock.now(), &mut self.node.socket, &mut self.watch);
        if !was_primary {
            return Ok(());
        }
        let mut idle = Idle::new(self.node.settings.waiting);
        while self.clock.mono_ns() < until && self.process.replica().view() == view {
            self.turn(&mut idle)?;
        }
        Ok(())
    }

    /// Handles input, runs timers, sends output, and waits if there was nothing to do.
    #[inline]
    fn turn(&mut self, idle: &mut Idle) -> Result<(), NodeError> {
        let Self { node, process, workers, watch, clock, durable, keys } = self;
        let unusable =
            |error| NodeError::new(NodeErrorKind::Network, format!("cannot use the socket: {error}"));
        // TM-7: input that came while this process was away is handled first, and its timers have hardly run.
        let mono_ns = clock.look(|at| idle.looks(at));
        let (mut burst, mut now) = (0, None::<Now>);
        node.socket.look_again(mono_ns, |client| process.replica().has_enough_of(client));
        while burst < BURST_MAX
            && let Some((source, datagram)) = node.socket.receive().map_err(unusable)?
        {
            burst += 1;
            let event = Event::Datagram { source, bytes: datagram };
            let by = process.step(*now.get_or_insert_with(|| clock.looked()), event, watch);
            node.socket.judge_at(mono_ns, by, |client| process.replica().has_enough_of(client));
        }
        let told = process.disk().told();
        let reached = told.durable();
        if reached > *durable {
            *durable = reached;
            burst += 1;
            let event = Event::Disk(DiskEvent::Durable(reached));
            process.step(*now.get_or_insert_with(|| clock.looked()), event, watch);
        } else if let Some(trouble) = told.failure() {
            return Err(trouble);
        } else if process.has_lost_a_page() {
            let what = "a page of the state cannot be read, and there is no other replica to fetch it from";
            let next = "repair the disk, or restore the state from a backup";
            return Err(NodeError::new(NodeErrorKind::Disk, what).next(next));
        }
        if process.due() <= mono_ns {
            // Not the time after a long execution: what came in that time has not been looked at.
            process.step(*now.get_or_insert_with(|| clock.looked()), Event::Clock, watch);
        }
        if let Some(workers) = workers {
            let served = workers.serve(process, clock, watch);
            if served > 0 {
                now.get_or_insert_with(|| clock.looked());
            }
            burst += served;
        }
        let newest = process.endpoint().door().key_time();
        if let Some(wall_ns) = keys.next(mono_ns, || clock.now().wall_ns, newest) {
            process.renew_keys(Now { wall_ns, ..clock.now() }, secret::entropy()?, watch);
        }
        match now {
            Some(now) => process.flush(now, &mut node.socket, watch),
            // Nothing has happened: there is no burst to end, and no clock to read for it.
            None => process.send_out(&mut node.socket),
        }
        if burst > 0 {
            idle.reset();
            return Ok(());
        }
        if now.is_some() {
            idle.worked();
        }
        let (disk, last) = (process.disk(), *durable);
        // A sync takes longer than a wake-up.
        if disk.is_syncing(last) {
            idle.stop_polling();
        }
        let news = || disk.told().durable() > last || workers.as_ref().is_some_and(Workers::has_news);
        idle.rest(mono_ns, process.due(), &node.socket, Some(disk.waker()), news).map_err(unusable)
    }
}

/// Builds the replica's initial state from the disk, and loads the service's state.
fn resume<S: Service>(
    past: Past,
    incarnation: u64,
    storage: &mut Storage,
    executor: &mut Executor<S, Paged>,
) -> Result<Resume, NodeError> {
    let has_log = matches!(past, Past::Log { .. });
    match &past {
        Past::Nothing | Past::Log { cut: false, .. } => {}
        Past::Lost(why) => warn!(why, "this replica's state is lost: rejoining from the other replicas"),
        Past::Log { cut: true, .. } => {
            info!("removed an incomplete record at the end of the log; it was not acknowledged to anyone");
        }
    }
    let resume = storage.resume(past, incarnation, executor)?;
    if has_log && matches!(resume, Resume::Amnesia { .. }) {
        warn!("the page with the lives of the replicas is damaged: this replica rejoins from the others");
    }
    Ok(resume)
}

/// Returns the number of threads that run long operations. One worker has a thread, too, unless batches are executed
/// before they have committed: those cannot wait for a thread (PX-7).
fn worker_threads(config: &Config) -> usize {
    if config.workers == 1 && config.tentative { 0 } else { usize::try_from(config.workers).unwrap_or(1) }
}

/// Pins this thread to a core.
pub(crate) fn pin(core: usize) -> Result<(), NodeError> {
    let mut cores = CpuSet::new();
    let pinned = cores.set(core).and_then(|()| sched_setaffinity(Pid::from_raw(0), &cores));
    pinned.map_err(|error| {
        NodeError::new(NodeErrorKind::Rule, format!("core = {core}: not available to this process: {error}"))
    })
}

/// Describes what a setting of durability can lose.
pub fn in_words(durability: Durability) -> &'static str {
    match durability {
        Durability::Sync => "everything is on disk before it is acknowledged",
        Durability::Async => "written without waiting: a killed replica has to rejoin",
        Durability::Memory => "nothing is written: if more than f replicas stop, all data is lost",
    }
}

#[cfg(test)]
mod tests {
    use quorate_wire::{Cluster, ClusterId};

    use super::*;

    /// PX-7: by default no thread is started.
    #[test]
    fn one_worker_has_a_thread_where_only_committed_batches_are_executed() {
        let default = Config::new(Cluster::tolerating(1).unwrap(), ClusterId([1; 32]));
        let of = |workers, tentative| worker_threads(&Config { workers, tentative, ..default.clone() });
        assert_eq!((worker_threads(&default), of(1, false), of(8, false)), (0, 1, 8));
    }
}
