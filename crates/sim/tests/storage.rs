//! The log, the images and the paged store of a replica over simulated files: whatever a crash leaves, nothing that
//! was durable is lost; what is damaged is noticed; a full disk refuses and goes on.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use quorate_pbft::config::Durability;
use quorate_pbft::record::Record;
use quorate_pbft::step::Lsn;
use quorate_process::storage::io::{DiskError, DiskErrorKind, DiskIo as _};
use quorate_process::storage::owner::Owner;
use quorate_process::storage::paged::Paged;
use quorate_process::storage::queue::{LogJob, PageJob, PagesDone, put_record};
use quorate_process::storage::recover::{self, Past, Storage, Writers};
use quorate_process::storage::starts::{LogState, Starts, StartsFile};
use quorate_service::image::CopiedPages;
use quorate_service::kv::{Kv, Operation};
use quorate_service::{Executor, Options};
use quorate_sim::disk::files::{LOG_ENDING, Remains, SimFiles, Space};
use quorate_sim::rng::{Concern, Rng};
use quorate_wire::codec::Writer;
use quorate_wire::digest::Domains;
use quorate_wire::{Batch, ClientId, ClusterId, Digest, ReplicaId, Replies, SeqNum, Timestamp, ViewNum};

const OWNER: Owner = Owner { cluster: ClusterId([7; 32]), replica: ReplicaId(1) };
const SEGMENT_BYTES: usize = 32 << 10;
const KEYS: u64 = 30;
/// The number of batches from one checkpoint to the next.
const INTERVAL: u64 = 4;

/// Seeded bugs are switched on for the whole process, so one test runs at a time.
static ALONE: Mutex<()> = Mutex::new(());

fn alone() -> MutexGuard<'static, ()> {
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

fn domains() -> Domains {
    Domains::new(OWNER.cluster)
}

/// The keys and values of a batch.
fn puts(seed: u64) -> Vec<(u64, u8)> {
    let mut rng = Rng::new(seed, Concern::Workload);
    (0..rng.between(1, 5)).map(|_| (rng.below(KEYS), u8::try_from(rng.below(256)).unwrap())).collect()
}

fn batch(seq: SeqNum, seed: u64) -> Batch {
    batch_of(seq, &puts(seed))
}

fn batch_of(seq: SeqNum, puts: &[(u64, u8)]) -> Batch {
    let mut batch = Batch::default();
    for (at, (key, value)) in (0..).zip(puts) {
        let mut operation = Vec::new();
        Operation::Put { key: &key.to_be_bytes(), value: &[*value; 300] }.encode(&mut operation);
        let (client, timestamp) = (ClientId::new(1, 0), Timestamp(seq.0 << 20 | at));
        batch.push_operation(&domains(), client, timestamp, &operation);
    }
    batch.seal(&domains(), &[0; 8]);
    batch
}

fn put(record: &Record<'_>, records: &mut Vec<u8>) {
    let mut bytes = Vec::new();
    record.encode(&mut Writer::new(&mut bytes));
    put_record(&bytes, records);
}

/// What the tests count, so that they notice when nothing happens.
#[derive(Debug, Default)]
struct Seen {
    cut: u32,
    longer: u32,
    images: u32,
    full: u32,
    faults: u64,
}

/// A replica's state and disk, and what they have to be.
struct Replica {
    files: SimFiles,
    rng: Rng,
    executor: Executor<Kv, Paged<SimFiles>>,
    writers: Option<Writers<SimFiles>>,
    /// The seed of every batch that was executed.
    batches: BTreeMap<u64, u64>,
    roots: BTreeMap<u64, Digest>,
    /// The last batch that is durable.
    durable: u64,
    /// The last view that was recorded, and the last that is durable.
    views: (u64, u64),
    /// The checkpoint of the last durable image.
    imaged: u64,
    starts: u64,
    seen: Seen,
}

impl Replica {
    fn new(seed: u64) -> Self {
        let (files, mut rng) = (SimFiles::default(), Rng::new(seed, Concern::Disk));
        recover::create(&files, OWNER).unwrap();
        let executor = executor(&files, &mut rng);
        let (batches, roots) = (BTreeMap::new(), BTreeMap::new());
        let (durable, views, imaged, starts, nothing) = (0, (0, 0), 0, 0, Seen::default());
        Self {
            files,
            rng,
            executor,
            writers: None,
            batches,
            roots,
            durable,
            views,
            imaged,
            starts,
            seen: nothing,
        }
    }

    /// Starts, up to what the disk has of the log.
    fn open(&mut self) -> Past {
        self.try_open().unwrap()
    }

    fn try_open(&mut self) -> Result<Past, DiskError> {
        self.executor = executor(&self.files, &mut self.rng);
        let (mut storage, past) =
            Storage::open(&self.files, OWNER, Durability::Sync, 1_700_000_000, SEGMENT_BYTES)?;
        let is_lost = matches!(past, Past::Lost(_));
        assert!(storage.starts() > self.starts, "a start that is not counted");
        let (starts, loaded) = (storage.starts(), storage.load(&mut self.executor)?);
        assert!(!is_lost || loaded.is_none());
        if let Some((seq, root)) = loaded {
            assert_eq!(self.roots.get(&seq.0), Some(&root), "the image is of another state");
            assert_eq!(self.executor.recompute(), root);
        }
        self.writers = storage.begin(&self.executor, self.rng.bits())?;
        self.starts = starts;
        Ok(past)
    }

    /// Starts after a crash: all that was durable is there. Returns whether the image is, which may have rotted.
    fn restart(&mut self, may_be_rotten: bool) -> bool {
        let records = match self.open() {
            Past::Nothing => {
                assert_eq!(self.durable, 0, "nothing is left");
                return true;
            }
            Past::Lost(why) => panic!("a crash has made it forget: {why}"),
            Past::Log { records, cut } => {
                self.seen.cut += u32::from(cut);
                records
            }
        };
        let (mut found, mut view) = (BTreeMap::new(), 0);
        for record in &records {
            let record = Record::decode(record).unwrap();
            match record {
                Record::Batch { seq, batch } => {
                    let seed = u64::from_le_bytes(*batch.first_chunk().unwrap());
                    assert_eq!(self.batches.get(&seq.0), Some(&seed), "a batch that was never executed");
                    found.insert(seq.0, seed);
                }
                Record::ViewChange { view: next, .. } => view = next.0.max(view),
                Record::Stable { .. } => {}
                Record::PrePrepared { .. }
                | Record::Prepared { .. }
                | Record::PreparedAgain { .. }
                | Record::NewView { .. }
                | Record::Seen { .. }
                | Record::Committed { .. }
                | Record::Floor { .. } => panic!("a record that was never written: {record:?}"),
            }
        }
        assert!((self.views.1..=self.views.0).contains(&view), "view {view} of {:?}", self.views);
        self.views = (view, view);
        let loaded = self.executor.last_executed().0;
        if may_be_rotten && loaded < self.imaged {
            return false;
        }
        assert!(loaded >= self.imaged, "the image {} is lost", self.imaged);
        self.imaged = loaded;
        let mut reached = loaded;
        while let Some(seed) = found.get(&(reached + 1)) {
            reached += 1;
            assert!(self.execute(reached, *seed) || may_be_rotten);
        }
        assert!(reached >= self.durable, "batch {} was durable, {reached} is the last one", self.durable);
        self.seen.longer += u32::from(reached > self.durable);
        self.durable = reached;
        self.batches.retain(|seq, _| *seq <= reached);
        self.roots.retain(|seq, _| *seq <= reached);
        true
    }

    /// Executes a batch. Returns whether every page that it needs is good.
    fn execute(&mut self, seq: u64, seed: u64) -> bool {
        if self.executor.execute(SeqNum(seq), &batch(SeqNum(seq), seed), false, &mut Replies::new()).is_err()
        {
            return false;
        }
        self.batches.insert(seq, seed);
        if seq.is_multiple_of(INTERVAL) {
            let root = self.executor.checkpoint(SeqNum(seq));
            assert_eq!(*self.roots.entry(seq).or_insert(root), root, "the state at {seq}");
            self.executor.discard(0, SeqNum(seq));
        }
        (0..8).for_each(|_| self.executor.relax());
        true
    }

    /// Runs a job, sometimes on a full disk first: it refuses, and does the same job when there is space.
    fn on_disk<T>(
        &mut self,
        run: impl Fn(&mut Writers<SimFiles>) -> Result<T, DiskError>,
    ) -> Result<T, DiskError> {
        let Some(writers) = &mut self.writers else { panic!("it has begun to write") };
        let spaces = [Space::NoneToGrow, Space::None];
        let space = if self.rng.one_in(6) { self.rng.pick(&spaces).unwrap() } else { Space::Enough };
        self.files.set_space(space);
        let mut done = run(writers);
        self.files.set_space(Space::Enough);
        if done.as_ref().is_err_and(DiskError::is_full) {
            self.seen.full += 1;
            done = run(writers);
        }
        done
    }

    fn log(&mut self, job: &LogJob) -> Result<(), DiskError> {
        self.on_disk(|writers| writers.log.run(job)).map(|_| ())
    }

    fn commit(&mut self, records: Vec<u8>) -> Result<(), DiskError> {
        self.log(&LogJob::Commit { records, last: Some(Lsn(0)) })
    }

    /// Executes some batches and makes them durable. Returns whether every page was good.
    fn batches(&mut self) -> Result<bool, DiskError> {
        let (mut records, mut seq) = (Vec::new(), self.executor.last_executed().0);
        for _ in 0..self.rng.between(1, 3) {
            let seed = self.rng.bits();
            if !self.execute(seq + 1, seed) {
                return Ok(false);
            }
            seq += 1;
            let mut bytes = seed.to_le_bytes().to_vec();
            bytes.resize(8 + self.rng.index(5000), 1);
            put(&Record::Batch { seq: SeqNum(seq), batch: &bytes }, &mut records);
        }
        self.commit(records)?;
        self.durable = seq;
        Ok(true)
    }

    fn view_change(&mut self) -> Result<(), DiskError> {
        let (view, mut records) = (self.views.0 + 1, Vec::new());
        self.views.0 = view;
        put(&Record::ViewChange { view: ViewNum(view), frame: &[9; 200] }, &mut records);
        self.commit(records)?;
        self.views.1 = view;
        Ok(())
    }

    /// Makes an image of the newest checkpoint, and cuts the log behind it.
    fn image(&mut self) -> Result<(), DiskError> {
        match self.seal()? {
            Some(seq) => self.log(&LogJob::Cut(seq)),
            None => Ok(()),
        }
    }

    /// Makes an image of the newest checkpoint, if there is a newer one than the last. Returns the checkpoint.
    fn seal(&mut self) -> Result<Option<SeqNum>, DiskError> {
        let newest = self.executor.checkpoints().last();
        let Some((seq, root)) = newest.filter(|(seq, _)| seq.0 > self.imaged && seq.0 <= self.durable) else {
            return Ok(None);
        };
        let Some(mut saving) = self.executor.begin_save(seq) else { return Ok(None) };
        let mut copied = CopiedPages::default();
        while !saving.is_done() && self.executor.save(&mut saving, 10, &mut copied) {
            let job = PageJob::Write(std::mem::take(&mut copied));
            self.on_disk(|writers| writers.pages.run(&job))?;
        }
        if !saving.is_done() {
            self.executor.abandon_save(saving);
            return Ok(None);
        }
        let sealed = self.on_disk(|writers| writers.pages.run(&PageJob::Seal(seq, root, Vec::new())))?;
        let PagesDone::Sealed(_, stored) = sealed else { panic!("not sealed") };
        self.executor.note_stored(&stored);
        self.imaged = seq.0;
        self.seen.images += 1;
        let mut records = Vec::new();
        put(&Record::Stable { seq, root }, &mut records);
        self.commit(records)?;
        Ok(Some(seq))
    }

    /// Reads keys: each has the value that was put last. A page that is not good is none.
    fn read(&mut self) {
        let all = self.batches.values().flat_map(|seed| puts(*seed));
        let values: BTreeMap<u64, u8> = all.collect();
        for _ in 0..10 {
            let (mut operation, mut expected, mut out) = (Vec::new(), vec![1], Vec::new());
            let key = self.rng.below(KEYS);
            Operation::Get { key: &key.to_be_bytes() }.encode(&mut operation);
            if let Some(value) = values.get(&key) {
                expected = [&[2][..], &[*value; 300]].concat();
            }
            let request = (ClientId::new(1, 0), Timestamp(1), &Digest::ZERO);
            if self.executor.read(request, &operation, &mut out).is_some() {
                assert_eq!(out, expected, "key {key}");
            }
        }
    }

    /// Does something. Returns whether every page that was needed is good.
    fn step(&mut self) -> Result<bool, DiskError> {
        match self.rng.below(12) {
            0..6 => return self.batches(),
            6 => self.view_change()?,
            7 | 8 => self.image()?,
            9 => self.log(&LogJob::NoteEnd)?,
            _ => self.read(),
        }
        Ok(true)
    }

    fn steps(&mut self, low: u64, high: u64) {
        for _ in 0..self.rng.between(low, high) {
            assert!(self.step().unwrap());
        }
    }

    /// Goes on until the power goes, within whatever it does, or until a sync fails.
    fn crash(&mut self) {
        if self.rng.one_in(4) {
            self.files.set_failing(true);
        } else {
            self.files.set_fuse(self.rng.index(12));
        }
        let error = loop {
            if let Err(error) = self.step() {
                break error;
            }
        };
        assert_eq!(error.kind, DiskErrorKind::Failed);
        self.die();
    }

    fn die(&mut self) {
        self.writers = None;
        let remains = match self.rng.below(8) {
            0 | 1 => Remains::Nothing,
            2 => Remains::Behind,
            3 | 4 => return self.files.kill(),
            _ => Remains::Any,
        };
        self.files.crash(&mut self.rng, remains);
    }

    /// Flips a bit of a page on the disk, if there is one.
    fn rot(&mut self) {
        let slots = self.files.written("checkpoint/pages");
        if let Some((name, at, len)) = slots.get(self.rng.index(slots.len())) {
            let bit = self.rng.index(8 * len);
            self.files.spoil(name, |bytes| {
                if let Some(byte) = bytes.get_mut(at + bit / 8) {
                    *byte ^= 1 << (bit % 8);
                }
            });
        }
    }
}

fn executor(files: &SimFiles, rng: &mut Rng) -> Executor<Kv, Paged<SimFiles>> {
    let options = Options { page_bytes: 512, pages_max: 4096, clients_max: 8, ..Options::default() };
    let bytes_max = 512 * rng.pick(&[4, 8, 16, 4096]).unwrap();
    let store = Paged::new(files.clone(), domains(), 512, bytes_max);
    Executor::with_store(Kv, domains(), Options { result_bytes_max: 512, ..options }, store)
}

/// A replica that crashes again and again.
fn crashes(seed: u64) -> Seen {
    let mut replica = Replica::new(seed);
    for _ in 0..6 {
        assert!(replica.restart(false));
        replica.steps(1, 40);
        replica.crash();
    }
    assert!(replica.restart(false));
    replica.read();
    replica.seen
}

/// Pages rot under a running replica.
fn rot(seed: u64) -> Seen {
    let mut replica = Replica::new(seed);
    assert!(replica.restart(false));
    replica.steps(30, 60);
    for _ in 0..20 {
        replica.rot();
        if !replica.step().unwrap() {
            break;
        }
        replica.read();
    }
    replica.seen.faults = replica.files.page_faults();
    replica.die();
    replica.restart(true);
    replica.seen
}

/// A commit of the log that was durable is damaged.
fn damage(seed: u64) {
    let mut replica = Replica::new(seed);
    assert!(replica.restart(false));
    replica.steps(10, 60);
    assert!(replica.batches().unwrap());
    replica.log(&LogJob::NoteEnd).unwrap();
    let commits = replica.files.written(LOG_ENDING);
    replica.die();
    let (name, at, len) = &commits[replica.rng.index(commits.len())];
    let bit = replica.rng.index(8 * 56);
    let is_zeroed = replica.rng.one_in(2);
    replica.files.spoil(name, |bytes| {
        if is_zeroed {
            bytes[*at..at + len].fill(0);
        } else {
            bytes[at + bit / 8] ^= 1 << (bit % 8);
        }
    });
    assert!(matches!(replica.open(), Past::Lost(_)), "{name} at {at}");
    // The log is no memory before the replica has rejoined, and it is one after that.
    replica.die();
    assert!(matches!(replica.open(), Past::Lost(_)));
    replica.log(&LogJob::SetState { state: LogState::Log, starts_min: 0, last: None }).unwrap();
    replica.view_change().unwrap();
    replica.die();
    let Past::Log { records, .. } = replica.open() else { panic!("it has rejoined") };
    assert_eq!(records.len(), 1);
}

/// The power goes within a start, first of a new replica and then of one with a log and an image.
fn cut_starts(seed: u64) {
    let mut replica = Replica::new(seed);
    for round in 0..4 {
        for _ in 0..3 {
            replica.files.set_fuse(replica.rng.index(14));
            if replica.try_open().is_err() {
                replica.die();
            }
            replica.files.end_fuse();
            if replica.writers.is_some() {
                replica.die();
            }
        }
        assert!(replica.restart(false), "round {round}");
        replica.steps(1, 30);
        replica.die();
    }
}

#[test]
fn d2_a_start_that_is_cut_off_loses_nothing() {
    let _alone = alone();
    (0..100).for_each(cut_starts);
}

/// The first image has no pages. The next one has some, but begins no index: its page file is new, too.
#[test]
fn d5_the_page_file_of_an_image_is_there_after_a_crash() {
    let _alone = alone();
    for seed in 0..20 {
        let mut replica = Replica::new(seed);
        assert!(replica.restart(false));
        let root = replica.executor.recompute();
        let empty = PageJob::Seal(SeqNum(0), root, Vec::new());
        replica.on_disk(|writers| writers.pages.run(&empty)).unwrap();
        replica.roots.insert(0, root);
        if replica.rng.one_in(2) {
            replica.die();
            assert!(replica.restart(false));
        }
        while replica.imaged == 0 {
            assert!(replica.step().unwrap());
        }
        replica.writers = None;
        replica.files.crash(&mut replica.rng, Remains::Nothing);
        assert!(replica.restart(false));
    }
}

/// A cut of the log begins a segment, finds no space for its first commit, and is tried again.
#[test]
fn d7_a_segment_whose_first_commit_finds_no_space_is_begun_once() {
    let _alone = alone();
    for seed in 0..20 {
        let mut replica = Replica::new(seed);
        assert!(replica.restart(false));
        let has_spare = |replica: &Replica| {
            let files = replica.files.list("log").unwrap();
            files.iter().any(|file| file.starts_with("spare-"))
        };
        while !has_spare(&replica) {
            assert!(replica.step().unwrap());
        }
        for _ in 0..3 {
            replica.steps(10, 30);
            let Some(seq) = replica.seal().unwrap() else { continue };
            replica.files.set_space(Space::None);
            for _ in 0..3 {
                let Some(writers) = &mut replica.writers else { panic!("it has begun to write") };
                writers.log.run(&LogJob::Cut(seq)).unwrap();
            }
            replica.files.set_space(Space::Enough);
            replica.log(&LogJob::Cut(seq)).unwrap();
        }
        replica.steps(10, 30);
        replica.die();
        assert!(replica.restart(false));
    }
}

/// An image has many new pages: its part of the index is several chunks. The power goes while they are written,
/// and of what was not durable, the last sectors are there and the first ones are not.
#[test]
fn d10_a_crash_while_a_large_image_is_sealed_leaves_the_image_before() {
    let _alone = alone();
    let mut parts = 0;
    for seed in 0..12 {
        let mut replica = Replica::new(seed);
        assert!(replica.restart(false));
        // One chunk of the index has 1021 entries.
        for (seq, keys) in [(1, 0..200), (2, 200..1450 + 50 * seed)] {
            let puts: Vec<(u64, u8)> = keys.map(|key| (key, 7)).collect();
            let batch = batch_of(SeqNum(seq), &puts);
            replica.executor.execute(SeqNum(seq), &batch, false, &mut Replies::new()).unwrap();
            let root = replica.executor.checkpoint(SeqNum(seq));
            replica.roots.insert(seq, root);
            (replica.durable, replica.imaged) = (seq, 0);
            let Some(mut saving) = replica.executor.begin_save(SeqNum(seq)) else { panic!("it has it") };
            let Some(writers) = &mut replica.writers else { panic!("it writes") };
            while !saving.is_done() {
                let mut copied = CopiedPages::default();
                assert!(replica.executor.save(&mut saving, 4096, &mut copied));
                writers.pages.run(&PageJob::Write(copied)).unwrap();
            }
            let seal = PageJob::Seal(SeqNum(seq), root, Vec::new());
            if seq == 1 {
                writers.pages.run(&seal).unwrap();
                replica.executor.discard(0, SeqNum(seq));
                continue;
            }
            // The sync of the pages, and the write to the index.
            replica.files.set_fuse(2);
            assert_eq!(writers.pages.run(&seal).unwrap_err().kind, DiskErrorKind::Failed);
        }
        replica.writers = None;
        replica.files.crash(&mut replica.rng, Remains::Behind);
        replica.open();
        let found = replica.executor.last_executed().0;
        parts += u32::from(found == 1);
        assert!(found >= 1, "seed {seed}: the image is lost");
    }
    assert!(parts > 6, "{parts}");
}

/// A process is killed, or a sync fails. The next one reads what only the memory of the machine has, and relies on it.
/// Then the power goes.
#[test]
fn d11_a_start_relies_on_nothing_that_a_power_failure_takes_away() {
    let _alone = alone();
    for seed in 0..200 {
        let mut replica = Replica::new(seed);
        assert!(replica.restart(false));
        for _ in 0..4 {
            replica.steps(1, 20);
            let fails = replica.rng.one_in(2);
            replica.files.set_failing(fails);
            if !fails {
                replica.files.set_fuse(replica.rng.index(8));
            }
            while replica.step().is_ok() {}
            replica.writers = None;
            replica.files.kill();
            // The power may go within the start.
            if replica.rng.one_in(2) {
                replica.files.set_fuse(replica.rng.index(8));
                if replica.try_open().is_ok() {
                    replica.files.end_fuse();
                }
                replica.writers = None;
                replica.files.crash(&mut replica.rng, Remains::Any);
            }
            assert!(replica.restart(false), "seed {seed}");
            replica.writers = None;
            replica.files.crash(&mut replica.rng, Remains::Nothing);
            assert!(replica.restart(false), "seed {seed}");
        }
    }
}

/// A crash between the two copies of the count of starts, and another one within the next write to them.
#[test]
fn d12_the_newest_copy_of_the_starts_is_not_written_first() {
    let _alone = alone();
    for seed in 0..50 {
        let (files, mut rng) = (SimFiles::default(), Rng::new(seed, Concern::Disk));
        recover::create(&files, OWNER).unwrap();
        let mut newest = Starts { count: 1, life: 5, known: 0, state: LogState::Log };
        StartsFile::new(files.clone(), OWNER).write(newest).unwrap();
        let mut known = vec![newest];
        for count in 2..10 {
            let next = Starts { count, ..newest };
            let mut file = StartsFile::new(files.clone(), OWNER);
            assert!(known.contains(&file.read().unwrap().unwrap()), "seed {seed}");
            // Each copy is written and synced.
            let changes = rng.index(4);
            files.set_fuse(changes);
            assert!(file.write(next).is_err());
            known = if changes < 2 { vec![newest, next] } else { vec![next] };
            files.crash(&mut rng, Remains::Torn);
            newest = StartsFile::new(files.clone(), OWNER).read().unwrap().unwrap();
            assert!(known.contains(&newest), "seed {seed}: {newest:?}, not one of {known:?}");
            known = vec![newest];
        }
    }
}

/// A segment is begun and has no space, and its file can't be removed. That is no full disk, on which the replica
/// would go on with a segment that it does not know of.
#[test]
fn d13_a_segment_that_can_not_be_taken_back_ends_the_process() {
    let _alone = alone();
    let mut replica = Replica::new(1);
    assert!(replica.restart(false));
    while !replica.files.list("log").unwrap().iter().any(|file| file.starts_with("spare-")) {
        assert!(replica.step().unwrap());
    }
    let mut records = Vec::new();
    put(&Record::ViewChange { view: ViewNum(1), frame: &vec![9; SEGMENT_BYTES + 1] }, &mut records);
    let job = LogJob::Commit { records, last: Some(Lsn(0)) };
    replica.files.set_space(Space::NoneToGrow);
    // The spare gets its name, and more space; then its name is taken away.
    replica.files.set_fuse(2);
    let Some(writers) = &mut replica.writers else { panic!("it writes") };
    assert_eq!(writers.log.run(&job).unwrap_err().kind, DiskErrorKind::Failed);
}

#[test]
fn nothing_durable_is_lost_by_crashes() {
    let _alone = alone();
    let mut sum = Seen::default();
    for seed in 0..150 {
        let seen = crashes(seed);
        sum.cut += seen.cut;
        sum.longer += seen.longer;
        sum.images += seen.images;
        sum.full += seen.full;
    }
    assert!(sum.cut > 20 && sum.longer > 20 && sum.images > 500 && sum.full > 100, "{sum:?}");
}

#[test]
fn rotten_pages_are_never_read() {
    let _alone = alone();
    let faults: u64 = (0..100).map(|seed| rot(seed).faults).sum();
    assert!(faults > 20, "{faults}");
}

#[test]
fn damage_to_the_log_is_noticed() {
    let _alone = alone();
    (0..150).for_each(damage);
}

/// Each seeded bug of the storage is found by these runs.
#[cfg(feature = "mutants")]
#[test]
fn seeded_bugs_of_the_storage_are_found() {
    use quorate_pbft::mutants;

    let _alone = alone();
    let mut missed: Vec<&str> = Vec::new();
    for (id, name, _) in mutants::LIST.iter().filter(|(id, ..)| mutants::STORAGE.contains(id)) {
        mutants::activate(Some(*id));
        let found = (0..150).find(|seed| {
            let runs: [&dyn Fn(); 3] = [&|| _ = crashes(*seed), &|| _ = rot(*seed), &|| damage(*seed)];
            runs.iter().any(|run| std::panic::catch_unwind(std::panic::AssertUnwindSafe(run)).is_err())
        });
        mutants::activate(None);
        println!("M{id} {name}: {found:?}");
        missed.extend(found.is_none().then_some(*name));
    }
    assert!(missed.is_empty(), "{missed:?}");
}

/// L95: one place of the disk cannot be read. A start finds the state, or what is left of it, or refuses and has removed
/// nothing: where that is the only chunk of the index.
#[test]
fn l95_a_place_that_cannot_be_read_costs_no_more_than_damage() {
    let _alone = alone();
    let mut counts = [0; 3];
    for seed in 0..80 {
        let mut replica = Replica::new(seed);
        replica.open();
        while replica.imaged == 0 {
            replica.step().unwrap();
        }
        let names = ["log", "checkpoint"].into_iter().flat_map(|dir| {
            replica.files.list(dir).unwrap().into_iter().map(move |file| format!("{dir}/{file}"))
        });
        let names: Vec<String> = names.collect();
        let name = &names[replica.rng.index(names.len())];
        let len = replica.files.read(name).unwrap().len();
        if len == 0 {
            continue;
        }
        let at = replica.rng.index(len);
        let place = format!("{name} at {at} of {len}");
        replica.files.set_unreadable(name, at);
        let opened = Storage::open(&replica.files, OWNER, Durability::Sync, 1, SEGMENT_BYTES);
        let mut loaded = executor(&replica.files, &mut replica.rng);
        let started = opened.and_then(|(mut storage, past)| {
            let seq = storage.load(&mut loaded)?.map(|(seq, _)| seq.0);
            storage.begin(&loaded, 2)?;
            Ok((past, seq))
        });
        counts[match started {
            Ok((Past::Log { .. }, Some(seq))) => {
                assert!(seq <= replica.imaged, "{place}");
                0
            }
            Ok((Past::Log { .. } | Past::Lost(_), None)) => 1,
            Err(error) if name.ends_with("idx") => {
                assert_eq!(error.kind, DiskErrorKind::Unreadable, "{place}");
                assert_eq!(replica.files.list("checkpoint").unwrap().len(), 2, "{place}");
                2
            }
            other => panic!("{place}: {other:?}"),
        }] += 1;
    }
    assert!(counts.iter().all(|count| *count > 3), "{counts:?}");
}
