//! A replica whose directory was damaged, among three that are well: it never contradicts a vote that it
//! gave before, and it comes back (H3 to H5). In process, over datagrams in memory, with a real directory.
//!
//! A sample of sectors here; `QUORATE_SECTORS=1` tries each in every way.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;

use quorate_pbft::config::Config;
use quorate_pbft::step::Lsn;
use quorate_pbft::{Now, Restart, Resume};
use quorate_service::Executor;
use quorate_service::kv::{Kv, Operation};
use quorate_wire::codec::Reader;
use quorate_wire::frame::Frame;
use quorate_wire::message::{Commit, PrePrepareHead, Prepare};
use quorate_wire::{Cluster, Digest, Kind, Timestamp, ViewNum};

use super::*;
use crate::client::ClientDrive;
use crate::directory::{Directory, Place};
use crate::drive::{self, Drive};
use crate::identity::TestKeys;
use crate::members::client_identity;
use crate::outbox::Transport;
use crate::testing::TempDir;

const MS: u64 = 1_000_000;
const SEGMENT: usize = 32 << 10;

/// What a node gives away in one flush.
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

/// Every vote that a replica has given: kind, view and number, and for what.
type Votes = BTreeMap<(u8, ViewNum, SeqNum), Digest>;

struct World {
    dir: TempDir,
    config: Config,
    keys: TestKeys,
    directory: Directory,
    replicas: Vec<Option<Drive<Kv, (), Disk>>>,
    durable: Vec<Lsn>,
    client: ClientDrive,
    network: VecDeque<(usize, Vec<u8>)>,
    victim: usize,
    votes: Votes,
    now: Now,
}

impl World {
    fn new(victim: usize) -> Self {
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
        let lanes = ClientDrive::new(&config, keys.door(client, 1), 1, directory.clone(), Timestamp(1), ());
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
            votes: Votes::new(),
            now: Now { mono_ns: 1, wall_ns: 1_700_000_000_000_000_000 },
        };
        for i in 0..4 {
            create(&world.path(i), world.config.cluster_id, ReplicaId::at(i)).unwrap();
            world.start(i);
        }
        world
    }

    fn path(&self, i: usize) -> PathBuf {
        self.dir.path().join(format!("replica-{i}"))
    }

    /// Starts replica `i` from its directory. Says whether it has its memory.
    fn start(&mut self, i: usize) -> bool {
        let id = ReplicaId::at(i);
        let mut config = self.config.clone();
        // The others are well and need no disk.
        config.durability = if i == self.victim { Durability::Sync } else { Durability::Memory };
        let owner = Owner { cluster: config.cluster_id, replica: id };
        let seconds = self.now.wall_ns / 1_000_000_000;
        let (storage, past) =
            Storage::open_with(&self.path(i), owner, config.durability, seconds, SEGMENT).unwrap();
        let incarnation = storage.starts() << 20;
        let mut executor = Executor::new(Kv, config.domains(), drive::options(&config, self.now.wall_ns));
        let mut remembers = true;
        let resume = match past {
            Past::Nothing => Resume::Fresh { incarnation },
            Past::Lost(_) => {
                remembers = false;
                Resume::Amnesia { incarnation }
            }
            Past::Log { records, images, .. } => {
                let initial = (SeqNum(0), executor.root_at(SeqNum(0)).unwrap());
                let mut found = images.iter().map(|(_, path)| executor.restore(&fs::read(path).unwrap()));
                let checkpoint = found.find_map(Result::ok).unwrap_or(initial);
                let mut clients = Vec::new();
                executor.clients(&mut clients);
                Resume::Restart(Restart { incarnation, records, checkpoint, clients })
            }
        };
        let door = self.keys.door(id.into(), self.now.wall_ns);
        let signer = self.keys.signer(id.into());
        let disk = storage.begin(12 << 10).unwrap();
        let directory = self.directory.clone();
        let mut drive =
            Drive::resume(id, config, signer, door, directory, executor, resume, (), disk).unwrap();
        drive.start(self.now);
        self.replicas[i] = Some(drive);
        self.durable[i] = Lsn(0);
        remembers
    }

    /// Lets everything happen that happens now, and then lets a millisecond go by.
    fn turn(&mut self) {
        loop {
            let mut moved = false;
            for i in 0..4 {
                let Some(drive) = &mut self.replicas[i] else { continue };
                drive.expire(self.now);
                let reached = drive.journal().told().durable();
                if reached > self.durable[i] {
                    self.durable[i] = reached;
                    drive.durable(self.now, reached);
                    moved = true;
                }
                let mut sent = Sent::default();
                drive.flush(&mut sent);
                // Time does not go by while the disk is busy.
                moved |= !drive.journal().is_at_rest();
                assert_eq!(drive.journal().told().failure(), None);
                if i == self.victim {
                    sent.0.iter().for_each(|(_, datagram)| note_votes(datagram, &mut self.votes));
                }
                self.network.extend(sent.0);
            }
            let mut sent = Sent::default();
            self.client.expire(self.now);
            self.client.flush(&mut sent);
            self.network.extend(sent.0);
            while let Some((to, datagram)) = self.network.pop_front() {
                moved = true;
                match self.replicas.get_mut(to) {
                    Some(Some(drive)) => drive.receive(self.now, &datagram),
                    Some(None) => {}
                    None => self.client.receive(self.now, &datagram),
                }
            }
            if !moved {
                break;
            }
            std::thread::yield_now();
        }
        self.now.mono_ns += MS;
        self.now.wall_ns += MS;
    }

    fn put(&mut self, number: u64) {
        let (key, mut bytes) = (format!("key {}", number % 7), Vec::new());
        Operation::Put { key: key.as_bytes(), value: &number.to_le_bytes() }.encode(&mut bytes);
        self.client.clear_done();
        self.client.invoke(self.now, 0, &bytes, false);
        for _ in 0..60_000 {
            self.turn();
            if !self.client.done().is_empty() {
                return;
            }
        }
        panic!("operation {number} is not done");
    }

    /// Stops the victim: in order, or as a kill does, which leaves the log with its end noted.
    fn stop(&mut self, clean: bool) -> BTreeMap<PathBuf, Vec<u8>> {
        let disk = self.replicas[self.victim].take().unwrap().into_journal();
        let dir = self.path(self.victim);
        let content = || {
            let files = ["log", "checkpoint"].iter().flat_map(|sub| log::files(&dir.join(sub)).unwrap());
            files.map(|path| (path.clone(), fs::read(path).unwrap())).collect::<BTreeMap<_, _>>()
        };
        if clean {
            disk.stop().unwrap();
            return content();
        }
        disk.wait_until_quiet();
        let killed = content();
        disk.stop().unwrap();
        for path in content().keys().filter(|path| !killed.contains_key(*path)) {
            fs::remove_file(path).unwrap();
        }
        for (path, bytes) in &killed {
            fs::write(path, bytes).unwrap();
        }
        killed
    }
}

/// Takes note of the votes in a datagram; each agrees with what was said before.
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

/// One run: a sector of the victim's files is damaged while it is down, the `part`-th of a thousand of those
/// that hold anything. Says whether the victim still had its memory.
fn damaged(victim: usize, part: usize, fault: usize, clean: bool) -> bool {
    const SECTOR: usize = 512;
    let mut world = World::new(victim);
    (1..=30).for_each(|number| world.put(number));
    let files = world.stop(clean);
    let sectors: Vec<(&PathBuf, usize)> = files
        .iter()
        .flat_map(|(path, bytes)| (0..bytes.len()).step_by(SECTOR).map(move |at| (path, at)))
        .filter(|(path, at)| files[*path][*at..].iter().take(SECTOR).any(|byte| *byte != 0))
        .collect();
    let (path, at) = sectors[part * sectors.len() / 1000];
    let mut bytes = files[path].clone();
    let end = (at + SECTOR).min(bytes.len());
    match fault {
        0 => bytes[at + part * 7 % (end - at)] ^= 0x40,
        1 => bytes[at..end].fill(0),
        2 => bytes[at + 40.min(end - at)..end].fill(0),
        _ => {
            let other = (at + 4096) % (bytes.len() - (end - at)).max(1);
            bytes.copy_within(other..other + (end - at), at);
        }
    }
    fs::write(path, bytes).unwrap();
    // The others go on meanwhile.
    (31..=33).for_each(|number| world.put(number));
    let remembers = world.start(victim);
    (34..=60).for_each(|number| world.put(number));
    let is_well = |world: &World| {
        let state = world.replicas[victim].as_ref().unwrap().replica().state();
        let others = world.replicas.iter().flatten().map(|drive| drive.replica().state().stable);
        !state.recovering && !state.transferring && Some(state.stable) == others.max()
    };
    for number in 61..200 {
        if is_well(&world) {
            break;
        }
        world.put(number);
        (0..50).for_each(|_| world.turn());
    }
    assert!(is_well(&world), "{path:?} at {at}, fault {fault}: it does not come back: {}", {
        world.replicas[victim].as_ref().unwrap().replica().state()
    });
    let root = |i: usize, seq| world.replicas[i].as_ref().unwrap().executor().root_at(seq);
    let stable = world.replicas[victim].as_ref().unwrap().replica().state().stable;
    let mine = root(victim, stable);
    assert!((0..4).any(|i| i != victim && root(i, stable) == mine && mine.is_some()), "it differs");
    remembers
}

#[test]
fn a_damaged_replica_contradicts_nobody_and_is_healed() {
    let asked = std::env::var("QUORATE_SECTORS").ok().and_then(|step| step.parse().ok());
    let every = asked.is_some();
    for (victim, clean) in [(0, false), (1, true)] {
        let (mut lost, mut runs) = (0, 0);
        for part in (0..1000).step_by(asked.unwrap_or(31)) {
            for fault in (0..4).filter(|fault| every || part % 4 == *fault) {
                let remembers = damaged(victim, part, fault, clean);
                (lost, runs) = (lost + u32::from(!remembers), runs + 1);
            }
        }
        println!("victim r{victim}: {runs} runs, memory lost in {lost}");
        assert!(runs > 8 && lost > 0 && lost < runs, "{lost} of {runs}");
    }
}
