//! Four replicas in one process, over datagrams in memory: one with a real directory and real threads, three without
//! a disk. The first one never contradicts its earlier votes, and its answers never differ from the others'.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use quorate_pbft::Replica;
use quorate_pbft::config::Config;
use quorate_pbft::step::Lsn;
use quorate_pbft::{Now, Restart, Resume};
use quorate_process::{Directory, DiskEvent, Event, ImagePace, Place, Process, Transport, executor_options};
use quorate_service::Executor;
use quorate_service::kv::{Answer, Kv, Operation};
use quorate_wire::Source;
use quorate_wire::codec::Reader;
use quorate_wire::frame::Frame;
use quorate_wire::message::{Commit, PrePrepareHead, Prepare, Reply};
use quorate_wire::{Cluster, Digest, Kind, Timestamp, ViewNum};

use super::damage::{self, Content};
use super::*;
use crate::home::identity::TestKeys;
use crate::home::members::client_identity;
use crate::run::client::ClientProcess;
use crate::testing::TempDir;

const MS: u64 = 1_000_000;
/// The time of day at the start.
const WALL_NS: u64 = 1_700_000_000_000_000_000;
pub(super) const SEGMENT: usize = 32 << 10;

/// The output of a node in one flush.
#[derive(Default)]
struct Sent(Vec<(usize, Vec<u8>)>);

impl Transport for Sent {
    fn send(&mut self, to: Place, datagram: &[u8]) {
        self.0.push((to.index(), datagram.to_vec()));
    }

    fn send_long(&mut self, to: Place, frame: Vec<u8>) {
        self.0.push((to.index(), frame));
    }
}

/// Every vote of a replica: kind, view and number, and the digest.
pub(super) type Votes = BTreeMap<(u8, ViewNum, SeqNum), Digest>;

pub(super) struct World {
    dir: TempDir,
    config: Config,
    keys: TestKeys,
    directory: Directory,
    pub(super) replicas: Vec<Option<Process<Kv, Paged, Disk>>>,
    durable: Vec<Lsn>,
    client: ClientProcess,
    network: VecDeque<(usize, Vec<u8>)>,
    victim: usize,
    /// Maximum number of the victim's pages in memory.
    pages_max: usize,
    /// Whether the victim gets no pages from the others.
    pub(super) starves: bool,
    /// Maximum number of pages of a state transfer that the victim had on its disk and not in memory.
    pub(super) staged: usize,
    pub(super) votes: Votes,
    /// The digest of the answer to each request, from any replica.
    answers: BTreeMap<Timestamp, Digest>,
    /// The others' state at each stable checkpoint.
    roots: BTreeMap<SeqNum, Digest>,
    now: Now,
}

impl World {
    pub(super) fn new(victim: usize) -> Self {
        Self::with_limit(victim, 1 << 18)
    }

    /// A world in which the victim may have this number of pages in memory.
    pub(super) fn with_limit(victim: usize, pages_max: usize) -> Self {
        let cluster = Cluster::tolerating(1).unwrap();
        let keys = TestKeys::new(3, cluster, 1);
        let mut config = Config::new(cluster, keys.cluster_id());
        (config.checkpoint_interval, config.window, config.pipeline) = (4, 8, 4);
        config.clients_max = 16;
        config.read_only = false;
        let at = |port| SocketAddr::from(([127, 0, 0, 1], port));
        let mut directory = Directory::new(&[at(1), at(2), at(3), at(4)]);
        let client = client_identity(0);
        directory.add_client(client, at(5));
        let lanes =
            ClientProcess::new(&config, keys.door(client, WALL_NS), 1, directory.clone(), Timestamp(1), ());
        let mut world = Self {
            dir: TempDir::new("healing"),
            config,
            keys,
            directory,
            replicas: (0..4).map(|_| None).collect(),
            durable: vec![Lsn(0); 4],
            client: lanes,
            network: VecDeque::new(),
            victim,
            pages_max,
            starves: false,
            staged: 0,
            votes: Votes::new(),
            answers: BTreeMap::new(),
            roots: BTreeMap::new(),
            now: Now { mono_ns: 1, wall_ns: WALL_NS },
        };
        for i in 0..4 {
            create(&world.path(i), world.config.cluster_id, ReplicaId::at(i)).unwrap();
            world.start(i);
        }
        world
    }

    pub(super) fn path(&self, i: usize) -> PathBuf {
        self.dir.path().join(format!("replica-{i}"))
    }

    /// Reads the disk of replica `i`.
    pub(super) fn open(&self, i: usize) -> (Storage, Past) {
        let owner = Owner { cluster: self.config.cluster_id, replica: ReplicaId::at(i) };
        let seconds = self.now.wall_ns / 1_000_000_000;
        Storage::open_with(&self.path(i), owner, self.durability(i), seconds, SEGMENT).unwrap()
    }

    /// The others are healthy and need no disk.
    fn durability(&self, i: usize) -> Durability {
        if i == self.victim { Durability::Sync } else { Durability::Memory }
    }

    /// Returns a new executor for replica `i`.
    pub(super) fn executor(&self, i: usize) -> Executor<Kv, Paged> {
        let (domains, options) = (self.config.domains(), executor_options(&self.config, self.now.wall_ns));
        let store = if i == self.victim {
            let (files, bytes) = (Files::below(&self.path(i)), options.page_bytes);
            Paged::new(files, domains.clone(), bytes, self.pages_max * bytes)
        } else {
            Paged::in_memory(domains.clone(), options.page_bytes)
        };
        let mut executor = Executor::with_store(Kv, domains, options, store);
        if i == self.victim {
            executor.limit_transfer(self.pages_max / 2);
        }
        executor
    }

    /// Returns the reports of the disk of replica `i`, which runs.
    pub(super) fn told(&self, i: usize) -> &DiskReports {
        self.replicas[i].as_ref().unwrap().disk().told()
    }

    /// Returns whether replica `i`, which runs, waits for records to become durable.
    pub(super) fn waits_for_disk(&self, i: usize) -> bool {
        self.replicas[i].as_ref().unwrap().disk().is_syncing(self.told(i).durable())
    }

    /// Starts replica `i` from its directory. Returns whether its log and its state are complete.
    pub(super) fn start(&mut self, i: usize) -> (bool, bool) {
        let id = ReplicaId::at(i);
        let mut config = self.config.clone();
        config.durability = self.durability(i);
        let (mut storage, past) = self.open(i);
        let incarnation = storage.starts() << 20;
        let mut executor = self.executor(i);
        let remembers = !matches!(past, Past::Lost(_));
        let initial = (SeqNum(0), executor.root_at(SeqNum(0)).unwrap());
        let found = storage.load(&mut executor).unwrap();
        let resume = match past {
            Past::Nothing => Resume::Fresh { incarnation },
            Past::Lost(_) => Resume::Amnesia { incarnation },
            Past::Log { records, .. } => {
                let mut clients = Vec::new();
                executor.clients(&mut clients);
                let checkpoint = found.unwrap_or(initial);
                let lives = executor.lives().unwrap();
                let time_ns = executor.time_ns();
                Resume::Restart(Restart { incarnation, records, checkpoint, clients, lives, time_ns })
            }
        };
        let door = self.keys.door(id.into(), self.now.wall_ns);
        let signer = self.keys.signer(id.into());
        let disk = storage.begin(&executor, 12 << 10).unwrap();
        let directory = self.directory.clone();
        let replica = Replica::new(id, config.clone(), signer, resume).unwrap();
        let pace = ImagePace { pages_max: 8, slots_max: 16 };
        let process = Process::new(id, &config, replica, door, directory, executor, disk);
        let mut process = process.with_image_pace(pace);
        process.step(self.now, Event::Start, &mut ());
        self.replicas[i] = Some(process);
        self.durable[i] = Lsn(0);
        (remembers, found.is_some())
    }

    /// Processes everything that is pending, then advances the time by a millisecond.
    pub(super) fn turn(&mut self) {
        loop {
            let mut moved = false;
            for i in 0..4 {
                let Some(drive) = &mut self.replicas[i] else { continue };
                drive.step(self.now, Event::Clock, &mut ());
                let reached = drive.disk().told().durable();
                if reached > self.durable[i] {
                    self.durable[i] = reached;
                    drive.step(self.now, Event::Disk(DiskEvent::Durable(reached)), &mut ());
                    moved = true;
                }
                let mut sent = Sent::default();
                drive.flush(self.now, &mut sent, &mut ());
                // The time stops while the disk is busy.
                let told = drive.disk().told();
                moved |= !drive.disk().is_at_rest() && !told.is_full() && told.failure().is_none();
                assert!(told.failure().is_none() || i == self.victim, "{:?}", told.failure());
                for (_, datagram) in &sent.0 {
                    note_answers(datagram, &mut self.answers);
                    if i == self.victim {
                        note_votes(datagram, &mut self.votes);
                    }
                }
                self.network.extend(sent.0);
            }
            let mut sent = Sent::default();
            self.client.expire(self.now);
            self.client.flush(&mut sent);
            self.network.extend(sent.0);
            while let Some((to, datagram)) = self.network.pop_front() {
                moved = true;
                if self.starves && to == self.victim && has_page(&datagram) {
                    continue;
                }
                match self.replicas.get_mut(to) {
                    Some(Some(drive)) => {
                        let event = Event::Datagram { source: Source::UNKNOWN, bytes: &datagram };
                        drive.step(self.now, event, &mut ());
                    }
                    Some(None) => {}
                    None => self.client.receive(self.now, &datagram),
                }
            }
            self.note_staged();
            if !moved {
                break;
            }
            std::thread::yield_now();
        }
        self.note_roots();
        self.now.mono_ns += MS;
        self.now.wall_ns += MS;
    }

    /// The same, after the thread that writes the victim's pages has finished: the time stops, however slowly the
    /// machine runs that thread.
    fn turn_with_pages(&mut self) {
        if let Some(victim) = &self.replicas[self.victim] {
            victim.disk().wait_for_pages();
        }
        self.turn();
    }

    fn note_staged(&mut self) {
        let Some(drive) = &self.replicas[self.victim] else { return };
        let executor = drive.executor();
        let brought = executor.progress().map_or(0, |progress| usize::try_from(progress.fetched).unwrap());
        self.staged = self.staged.max(brought.saturating_sub(executor.transfer_pages()));
    }

    /// Records the others' state, and checks that it is equal.
    fn note_roots(&mut self) {
        let others = self.replicas.iter().enumerate().filter(|(i, _)| *i != self.victim);
        for drive in others.filter_map(|(_, drive)| drive.as_ref()) {
            let stable = drive.replica().state().stable;
            if let Some(root) = drive.executor().root_at(stable) {
                assert_eq!(*self.roots.entry(stable).or_insert(root), root, "the state at {}", stable.0);
            }
        }
    }

    pub(super) fn put(&mut self, number: u64) {
        self.put_value(number, &format!("key {}", number % 7), &number.to_le_bytes());
    }

    /// Stores a value, as operation `number`.
    pub(super) fn put_value(&mut self, number: u64, key: &str, value: &[u8]) {
        let done = self.invoke(number, &Operation::Put { key: key.as_bytes(), value });
        assert_eq!(Answer::decode(&done), Ok(Answer::Done));
    }

    /// Checks the value of a key, as operation `number`.
    pub(super) fn check_value(&mut self, number: u64, key: &str, value: &[u8]) {
        let found = self.invoke(number, &Operation::Get { key: key.as_bytes() });
        assert_eq!(Answer::decode(&found), Ok(Answer::Value(value)), "{key}");
    }

    fn invoke(&mut self, number: u64, operation: &Operation<'_>) -> Vec<u8> {
        let mut bytes = Vec::new();
        operation.encode(&mut bytes);
        self.client.clear_done();
        self.client.invoke(self.now, 0, &bytes, false);
        for _ in 0..60_000 {
            self.turn();
            if let Some(done) = self.client.done().first() {
                return self.client.result(done).to_vec();
            }
        }
        panic!("operation {number} is not done");
    }

    /// Returns the victim's files, when nothing is being written.
    pub(super) fn files(&self) -> Content {
        let mut all = self.log_files();
        all.extend(damage::content(&self.path(self.victim).join("checkpoint")));
        all
    }

    /// Returns the files of its log.
    pub(super) fn log_files(&self) -> Content {
        if let Some(drive) = &self.replicas[self.victim]
            && drive.disk().told().failure().is_none()
        {
            drive.disk().wait_until_quiet();
        }
        damage::content(&self.path(self.victim).join("log"))
    }

    /// Stops the victim: cleanly, or like a kill, which leaves the log with its end recorded.
    pub(super) fn stop(&mut self, clean: bool) -> Content {
        self.halt(clean);
        self.files()
    }

    /// Stops the victim like a kill, when nothing is being written.
    pub(super) fn stop_as_killed(&mut self) -> Content {
        self.stop(false)
    }

    /// Like [`Self::stop`], without checks.
    pub(super) fn halt(&mut self, clean: bool) {
        let disk = self.replicas[self.victim].take().unwrap().into_disk();
        if clean {
            return disk.stop().unwrap();
        }
        if disk.told().failure().is_none() {
            disk.wait_until_quiet();
        }
        // Nothing of the state is being written, so stopping writes nothing to it.
        let killed = self.log_files();
        let _ = disk.stop();
        damage::put_back(&self.path(self.victim).join("log"), &killed);
    }

    /// Checks that the victim's state has the content of its digests.
    pub(super) fn check_content(&self) {
        let executor = self.replicas[self.victim].as_ref().unwrap().executor();
        let (seq, root) = executor.checkpoints().last().unwrap();
        assert_eq!(executor.recompute(), root, "the state at {} is not what it is said to be", seq.0);
    }

    /// Checks that a start of the stopped victim would find its complete log, and a state that the others had.
    pub(super) fn check_disk(&self) {
        let (mut storage, past) = self.open(self.victim);
        assert!(matches!(past, Past::Log { .. }), "{past:?}");
        let (seq, root) = storage.load(&mut self.executor(self.victim)).unwrap().unwrap();
        assert_eq!(self.roots.get(&seq), Some(&root), "the state at {}", seq.0);
    }

    /// Runs until the victim's disk has its state again.
    pub(super) fn wait_for_image(&mut self, what: &str) {
        for number in 0..200 {
            for _ in 0..100 {
                let disk = self.replicas[self.victim].as_ref().unwrap().disk();
                if disk.has_image() {
                    return;
                }
                self.turn_with_pages();
            }
            self.put(number);
        }
        let state = self.replicas[self.victim].as_ref().unwrap().replica().state();
        let failure = self.told(self.victim).failure();
        panic!("{what}: the state does not come to the disk: {state}, {failure:?}");
    }

    /// Runs until the victim's disk has all of its state except present changes, however slow the writing thread is:
    /// an image begins at a checkpoint, and only when the previous one is written.
    pub(super) fn settle(&mut self) {
        for number in 0..12 {
            self.put(number);
            (0..150).for_each(|_| self.turn_with_pages());
        }
    }

    /// Forgets entries far below the window: a long run must not grow.
    pub(super) fn forget_old(&mut self) {
        let newest = self.votes.keys().map(|(_, _, seq)| seq.0).max().unwrap_or(0);
        self.votes.retain(|(_, _, seq), _| seq.0 + 1000 > newest);
        self.roots.retain(|seq, _| seq.0 + 1000 > newest);
        while self.answers.len() > 1000 {
            self.answers.pop_first();
        }
    }

    /// Runs for a while, and until the victim is healthy.
    pub(super) fn heal(&mut self, what: &str) {
        (34..=60).for_each(|number| self.put(number));
        self.wait_until_well(what);
    }

    /// Runs until the victim has caught up with the others, and has their state.
    pub(super) fn wait_until_well(&mut self, what: &str) {
        let victim = self.victim;
        let is_well = |world: &Self| {
            let state = world.replicas[victim].as_ref().unwrap().replica().state();
            let others = world.replicas.iter().flatten().map(|drive| drive.replica().state().stable);
            !state.recovering && !state.transferring && Some(state.stable) == others.max()
        };
        for number in 61..200 {
            if is_well(self) {
                break;
            }
            self.put(number);
            (0..50).for_each(|_| self.turn_with_pages());
        }
        let state = self.replicas[victim].as_ref().unwrap().replica().state();
        assert!(is_well(self), "{what}: it does not come back: {state}");
        let root = |i: usize| self.replicas[i].as_ref().unwrap().executor().root_at(state.stable);
        let mine = root(victim);
        assert!((0..4).any(|i| i != victim && root(i) == mine && mine.is_some()), "{what}: it differs");
    }
}

/// Returns whether a datagram contains a page of the state.
fn has_page(datagram: &[u8]) -> bool {
    let mut reader = Reader::new(datagram);
    while !reader.is_empty() {
        if Frame::take(&mut reader).unwrap().kind == Kind::Data {
            return true;
        }
    }
    false
}

/// Records the votes in a datagram, and checks each against earlier ones.
fn note_votes(datagram: &[u8], votes: &mut Votes) {
    let mut reader = Reader::new(datagram);
    while !reader.is_empty() {
        let frame = Frame::take(&mut reader).unwrap();
        let body = frame.body;
        let vote = if frame.kind == Kind::PrePrepare {
            PrePrepareHead::decode(body).map(|m| (m.view, m.seq, m.digest))
        } else if frame.kind == Kind::Prepare {
            Prepare::decode(body).map(|m| (m.view, m.seq, m.digest))
        } else if frame.kind == Kind::Commit {
            Commit::decode(body).map(|m| (m.view, m.seq, m.digest))
        } else {
            continue;
        };
        let (view, seq, digest) = vote.unwrap();
        // A primary's pre-prepare is its prepare.
        let kind = if frame.kind == Kind::PrePrepare { Kind::Prepare } else { frame.kind };
        let before = *votes.entry((kind.to_wire(), view, seq)).or_insert(digest);
        assert_eq!(before, digest, "{kind:?} in view {} for {} contradicts an earlier one", view.0, seq.0);
    }
}

/// Records the answers in a datagram, and checks each against earlier ones for the same request.
fn note_answers(datagram: &[u8], answers: &mut BTreeMap<Timestamp, Digest>) {
    let mut reader = Reader::new(datagram);
    while !reader.is_empty() {
        let frame = Frame::take(&mut reader).unwrap();
        if frame.kind == Kind::Reply {
            let reply = Reply::decode(frame.body).unwrap();
            let before = *answers.entry(reply.timestamp).or_insert(reply.digest);
            assert_eq!(before, reply.digest, "the answer to {:?} is another one", reply.timestamp);
        }
    }
}
