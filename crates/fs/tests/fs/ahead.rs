//! What a run of the file system sees of calls that have not settled, one situation after the other (ADR 20).
#![allow(clippy::unwrap_used, clippy::panic, clippy::wildcard_imports, reason = "a test may panic")]

use crate::support::*;
use quorate_fs::nfs3::rules::FsRules;
use quorate_fs::nfs3::*;
use quorate_fs::rpc::xdr::{self, Opaque};
use quorate_fs::{Fs, Settings};
use quorate_service::Executor;
use quorate_service::options::Options;
use quorate_service::parallel::{Counters, EngineKind, Runs};
use quorate_wire::digest::Domains;
use quorate_wire::{Batch, ClientId, ClusterId, Replies, SeqNum, Timestamp};

/// The same calls, executed one after the other and on cells.
struct Stage {
    sequential: Executor<Fs, Store>,
    ahead: Executor<Fs, Store>,
    runs: Runs<FsRules>,
    calls: Bench,
    domains: Domains,
    seq: SeqNum,
    /// The results of the batches that were inserted.
    expected: Vec<Vec<u8>>,
}

impl Stage {
    /// Returns a file system in which clients 1 to 4 have a lane.
    fn new() -> Self {
        let domains = Domains::new(ClusterId([7; 32]));
        let fs = Fs::new(Settings { reply_pages: 4, ..open_settings() }).unwrap();
        let options = || Options { pages_max: 1 << 10, clients_max: 32, lanes_max: 32, ..Options::default() };
        let executor = || Executor::with_store(fs.clone(), domains.clone(), options(), Store::default());
        let (sequential, ahead) = (executor(), executor());
        let runs = Runs::new(EngineKind::GroupIndex, FsRules::new(fs.clone()), 1, true).unwrap();
        let calls = Bench::with(open_settings(), 1 << 10);
        let mut stage =
            Self { sequential, ahead, runs, calls, domains, seq: SeqNum(0), expected: Vec::new() };
        let root = stage.calls.root.clone();
        let first = stage.calls.nfs_operation(&Call::GetAttr(fh(&root)));
        stage.order(&[&first, &first, &first, &first]);
        stage
    }

    /// Makes a batch, with a request of each client.
    fn batch(&mut self, operations: &[&[u8]]) -> Batch {
        self.seq = self.seq.next();
        let mut batch = Batch::default();
        for (client, operation) in (1..).zip(operations) {
            let client = ClientId::new(client, 0);
            batch.push_operation(&self.domains, client, Timestamp(self.seq.0), operation);
        }
        batch.seal(&self.domains, &(1_000_000 * self.seq.0).to_le_bytes());
        let mut replies = Replies::new();
        self.sequential.execute(self.seq, &batch, false, &mut replies).unwrap();
        self.expected.extend(results(&replies));
        batch
    }

    /// Executes calls on pages. Returns the bodies of the results.
    fn order(&mut self, operations: &[&[u8]]) -> Vec<Vec<u8>> {
        let batch = self.batch(operations);
        self.ahead.execute(self.seq, &batch, false, &mut Replies::new()).unwrap();
        self.expected.drain(..).map(|reply| split(&reply).1.to_vec()).collect()
    }

    /// Makes a file with this data. Returns its handle.
    fn file(&mut self, name: &str, data: &[u8]) -> H {
        let root = self.calls.root.clone();
        let how = CreateHow::Guarded(mode(0o644));
        let create = self.calls.nfs_operation(&Call::Create(CreateArgs { place: place(&root, name), how }));
        let made = self.order(&[&create]).remove(0);
        let made: NfsResult<CreateOk<'_>, Wcc> = xdr::decode(&made).unwrap();
        let file = made.unwrap().object.unwrap().0.to_vec();
        let write = self.write(&file, 0, data);
        self.order(&[&write]);
        file
    }

    fn write(&mut self, file: &[u8], offset: u64, data: &[u8]) -> Vec<u8> {
        let count = u32::try_from(data.len()).unwrap();
        let stable = StableHow::FileSync;
        self.calls.nfs_operation(&Call::Write(WriteArgs {
            file: fh(file),
            offset,
            count,
            stable,
            data: Opaque(data),
        }))
    }

    fn read(&mut self, file: &[u8]) -> Vec<u8> {
        self.calls.nfs_operation(&Call::Read(ReadArgs { file: fh(file), offset: 0, count: 20_000 }))
    }

    fn insert(&mut self, operations: &[&[u8]]) {
        let batch = self.batch(operations);
        self.runs.insert(&mut self.ahead, self.seq, &batch).unwrap();
    }

    /// Runs the next call on cells.
    fn run(&mut self) {
        let job = self.runs.start(&mut self.ahead).unwrap();
        let done = self.runs.run(&self.ahead, &job);
        assert_eq!(self.runs.finish(done), None);
    }

    /// Settles everything, and compares results and roots.
    fn settle(&mut self) -> Counters {
        let mut replies = Replies::new();
        while self.runs.settle(&mut self.ahead, &mut replies).unwrap().is_some() {}
        assert_eq!(results(&replies), self.expected);
        assert_eq!(self.ahead.checkpoint(self.seq), self.sequential.checkpoint(self.seq));
        self.runs.counters()
    }
}

fn results(replies: &Replies) -> Vec<Vec<u8>> {
    replies.iter().map(|reply| reply.result.unwrap_or_default().to_vec()).collect()
}

/// PX-A: a run sees the data of an unsettled write, whose pages are not chosen yet, and of the one before.
#[test]
fn a_read_sees_writes_that_have_not_settled() {
    let mut stage = Stage::new();
    let file = stage.file("a", &[b'x'; 5000]);
    let (one, two) = (stage.write(&file, 100, &[b'y'; 9000]), stage.write(&file, 8000, &[b'z'; 100]));
    let read = stage.read(&file);
    stage.insert(&[&one, &two]);
    stage.insert(&[&read]);
    (0..3).for_each(|_| stage.run());
    let found = stage.settle();
    assert_eq!((found.runs, found.again, found.on_pages), (3, 0, 0));
}

/// PX-B: a client that gets no reply sends its call again through another gateway. If the first one has not settled, the
/// second one runs, too, but the state and both results are those of one execution.
#[test]
fn a_call_that_comes_again_before_it_settles_is_executed_once() {
    let mut stage = Stage::new();
    let root = stage.calls.root.clone();
    stage.file("a", b"x");
    let remove = stage.calls.nfs_operation(&Call::Remove(place(&root, "a")));
    stage.insert(&[&remove, &remove]);
    (0..2).for_each(|_| stage.run());
    assert_eq!(stage.expected[0], stage.expected[1]);
    assert_eq!(stage.settle().again, 1);
}

/// PX-D: writes to different files run at the same time, and each takes the lowest free pages when it settles, whichever
/// ended first.
#[test]
fn px_d_pages_are_taken_in_the_agreed_order() {
    let mut stage = Stage::new();
    let (a, b) = (stage.file("a", b"x"), stage.file("b", b"x"));
    let (one, two) = (stage.write(&a, 0, &[b'y'; 9000]), stage.write(&b, 0, &[b'z'; 9000]));
    stage.insert(&[&one, &two]);
    let jobs = [(); 2].map(|()| stage.runs.start(&mut stage.ahead).unwrap());
    for job in jobs.iter().rev() {
        let done = stage.runs.run(&stage.ahead, job);
        stage.runs.finish(done);
    }
    let found = stage.settle();
    assert_eq!((found.most, found.again, found.on_pages), (2, 0, 0));
}

/// PX-F: a call whose page is away waits, and does not hold up the others.
#[test]
fn px_f_a_call_whose_page_is_away_holds_up_no_other() {
    let mut stage = Stage::new();
    let (a, b) = (stage.file("a", &[b'x'; 5000]), stage.file("b", &[b'x'; 5000]));
    let (one, two) = (stage.read(&a), stage.write(&b, 0, &[b'z'; 9000]));
    stage.insert(&[&one, &two]);
    stage.ahead.store().touched.away_in.set(3);
    stage.run();
    stage.ahead.store().touched.away_in.set(0);
    stage.run();
    let found = stage.runs.counters();
    assert_eq!(found.runs, 1, "the write has run");
    assert_eq!(stage.settle().on_pages, 1);
}

/// PX-A: what an unsettled call has freed of a file is not seen again when the file grows.
#[test]
fn a_read_after_an_unsettled_truncation_waits() {
    let mut stage = Stage::new();
    let file = stage.file("a", &[b'x'; 9000]);
    let mut resize = |bytes| {
        let attributes = size(bytes);
        stage.calls.nfs_operation(&Call::SetAttr(SetAttrArgs { object: fh(&file), attributes, guard: None }))
    };
    let (smaller, larger) = (resize(5000), resize(9000));
    let read = stage.read(&file);
    stage.insert(&[&smaller, &larger, &read]);
    (0..3).for_each(|_| stage.run());
    let found = stage.settle();
    assert_eq!((found.runs, found.again, found.on_pages), (2, 0, 1));
}

/// PX-A: a list has the names that unsettled calls add.
#[test]
fn a_list_after_an_unsettled_creation_waits() {
    let mut stage = Stage::new();
    let root = stage.calls.root.clone();
    let make = Call::MkDir(MkDirArgs { place: place(&root, "d"), attributes: mode(0o755) });
    let list = Call::ReadDir(ReadDirArgs { dir: fh(&root), cookie: 0, verf: [0; 8], count: 4096 });
    let (make, list) = (stage.calls.nfs_operation(&make), stage.calls.nfs_operation(&list));
    stage.insert(&[&make, &list]);
    (0..2).for_each(|_| stage.run());
    let found = stage.settle();
    assert_eq!((found.runs, found.again, found.on_pages), (1, 0, 1));
}
