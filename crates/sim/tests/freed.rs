//! What is freed at once is not read, and takes little memory, however large it is.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use quorate_fs::nfs3::operation::{Operation as Called, mapped};
use quorate_fs::nfs3::{
    Call, CreateArgs, CreateHow, CreateOk, DirOp, NfsResult, PROGRAM, SetAttr, SetAttrArgs,
};
use quorate_fs::nfs3::{StableHow, Wcc, WriteArgs, mount3};
use quorate_fs::rpc::xdr::{self, Opaque, Reader, Xdr as _};
use quorate_fs::rpc::{AuthSys, CallHead, OpaqueAuth, ReplyHead};
use quorate_fs::settings::{Export, Squash};
use quorate_fs::{Fs, Settings};
use quorate_pbft::config::Durability;
use quorate_process::Store as _;
use quorate_process::storage::owner::Owner;
use quorate_process::storage::paged::Paged;
use quorate_process::storage::queue::{PageJob, PagesDone};
use quorate_process::storage::recover::{self, Storage, Writers};
use quorate_service::image::CopiedPages;
use quorate_service::kv::{Command, Kv, Operation};
use quorate_service::page::PageStore as _;
use quorate_service::{Executor, Options, Service, Step, Steps};
use quorate_sim::disk::files::SimFiles;
use quorate_wire::digest::Domains;
use quorate_wire::message::Fetch;
use quorate_wire::{Batch, ClientId, ClusterId, Digest, ReplicaId, Replies, SeqNum, Timestamp};

const OWNER: Owner = Owner { cluster: ClusterId([7; 32]), replica: ReplicaId(1) };
/// What a replica may have of its state in memory.
const MEMORY: usize = 1 << 20;
/// How much is written and then freed.
const BYTES: usize = 256 << 20;
const MIB: usize = 1 << 20;
/// The number of batches from one checkpoint to the next.
const INTERVAL: u64 = 4;

fn options() -> Options {
    Options { pages_max: 1 << 18, clients_max: 8, result_bytes_max: 4096, ..Options::default() }
}

/// A replica with a state that is larger than its memory.
struct Replica<S: Service> {
    executor: Executor<S, Paged<SimFiles>>,
    writers: Writers<SimFiles>,
    /// The most pages that were in memory after a batch.
    most: usize,
    sent: u64,
}

impl<S: Service> Replica<S> {
    fn new(service: S) -> Self {
        let files = SimFiles::default();
        recover::create(&files, OWNER).unwrap();
        let domains = Domains::new(OWNER.cluster);
        let options = options();
        let store = Paged::new(files.clone(), domains.clone(), options.page_bytes, MEMORY);
        let executor = Executor::with_store(service, domains, options, store);
        let (storage, _) = Storage::open(&files, OWNER, Durability::Sync, 1_700_000_000, 32 << 10).unwrap();
        let writers = storage.begin(&executor, 1).unwrap().unwrap();
        Self { executor, writers, most: 0, sent: 0 }
    }

    /// Executes operations as one batch. Returns the last result.
    fn order(&mut self, operations: &[Vec<u8>]) -> Vec<u8> {
        let (domains, mut batch, mut replies) =
            (Domains::new(OWNER.cluster), Batch::default(), Replies::new());
        for operation in operations {
            self.sent += 1;
            batch.push_operation(&domains, ClientId::new(1, 0), Timestamp(self.sent), operation);
        }
        batch.seal(&domains, &(1_700_000_000_000_000_000 + self.sent).to_le_bytes());
        let seq = self.executor.last_executed().next();
        self.executor.execute(seq, &batch, false, &mut replies).unwrap();
        self.note();
        if seq.0.is_multiple_of(INTERVAL) {
            let root = self.executor.checkpoint(seq);
            // The others have not all reached the newest checkpoint.
            let stable = SeqNum(seq.0 - INTERVAL);
            self.executor.discard(0, stable);
            self.save(stable);
            assert!(seq.0 > 8 || root == self.executor.recompute());
        }
        self.relax();
        replies.iter().last().and_then(|reply| reply.result).unwrap_or_default().to_vec()
    }

    /// Makes an image of a checkpoint.
    fn save(&mut self, stable: SeqNum) {
        let mut saving = self.executor.begin_save(stable).unwrap();
        let mut copied = CopiedPages::default();
        while !saving.is_done() {
            assert!(self.executor.save(&mut saving, 256, &mut copied));
            self.writers.pages.run(&PageJob::Write(std::mem::take(&mut copied))).unwrap();
        }
        let kept = self.executor.places_before(saving.seq());
        let seal = PageJob::Seal(saving.seq(), saving.root(), kept);
        let PagesDone::Sealed(_, stored) = self.writers.pages.run(&seal).unwrap() else {
            panic!("not sealed")
        };
        self.executor.note_stored(&stored);
    }

    /// Returns the size of the page file, in slots.
    fn slots(&self) -> u32 {
        self.writers.pages.slots().map(|(_, slot)| slot + 1).max().unwrap_or(0)
    }

    fn relax(&mut self) {
        (0..40).for_each(|_| self.executor.relax());
    }

    fn note(&mut self) {
        let here = self.executor.store().pages().in_memory + self.executor.pages_of_checkpoints();
        self.most = self.most.max(here);
    }

    /// Frees what was written. It is not read, and not in memory until no checkpoint needs it any more.
    fn free(&mut self, operations: &[Vec<u8>]) {
        let before = self.executor.store().pages();
        assert!(before.on_disk > BYTES / 4096 - 4096, "{before:?}");
        self.most = 0;
        let old = self.executor.checkpoints().last().unwrap();
        self.order(operations);
        let reads = self.executor.store().pages().reads - before.reads;
        println!("{reads} pages read, {} in memory", self.most);
        assert!(
            reads < 1024 && self.most < 4 * MEMORY / 4096 + 4096,
            "{reads} pages read, {} in memory",
            self.most
        );
        self.check(old, BYTES - 8 * MIB);
    }

    /// A checkpoint is there, to its last page.
    fn check(&self, old: (SeqNum, Digest), bytes: usize) {
        let mut image = Vec::new();
        assert!(self.executor.image(old.0, &mut image) && image.len() > bytes);
        let mut other = Executor::new(Kv, Domains::new(OWNER.cluster), options());
        assert_eq!(other.restore(&image), Ok(old));
    }

    /// Executes batches until no checkpoint has what was freed. The images that are written in that time do not read it either.
    fn settle(&mut self, operation: &mut dyn FnMut() -> Vec<u8>) {
        let before = self.executor.store().pages();
        for _ in 0..4 * INTERVAL {
            let operations = [operation()];
            self.order(&operations);
        }
        let after = self.executor.store().pages();
        assert!(after.on_disk < 4096 && after.faults == 0, "{after:?}");
        assert!(after.reads - before.reads < 1024, "{} pages read", after.reads - before.reads);
        let newest = self.executor.checkpoints().last().unwrap();
        assert_eq!(newest.1, self.executor.recompute());
    }
}

fn put(key: u32, value: &[u8]) -> Vec<u8> {
    let mut operation = Vec::new();
    Operation::Put { key: &key.to_be_bytes(), value }.encode(&mut operation);
    operation
}

/// Returns a key-value store with this number of values of 1 MiB.
fn filled(values: usize) -> Replica<Kv> {
    let mut replica = Replica::new(Kv);
    for key in 0..u32::try_from(values).unwrap() {
        let value = vec![u8::try_from(key % 251).unwrap() + 1; MIB];
        replica.order(&[put(key, &value)]);
    }
    replica
}

/// Another replica fetches a checkpoint whose pages are freed. Then two images are written, and the second one would
/// take the slots: the checkpoint is there to its last page, and then the slots are used again.
#[test]
fn l85_a_checkpoint_that_is_fetched_keeps_its_slots() {
    let values = 24;
    let mut replica = filled(values);
    (0..INTERVAL).for_each(|_| drop(replica.order(&[put(100, b"1")])));
    let old = replica.executor.checkpoints().last().unwrap();
    let page = replica.executor.store().next(0).unwrap();
    let question = Fetch { rid: 1, level: 0, index: u64::from(page), checkpoint: old.0 };
    let mut steps = Steps::new();
    replica.executor.on_fetch(0, ReplicaId(2), &question, &mut steps);
    assert!(matches!(steps.list(), [Step::Answer { .. }]));
    let mut clear = Vec::new();
    Command::Clear.encode(&mut clear);
    replica.order(&[clear]);
    for key in 0..3 * INTERVAL - 1 {
        replica.order(&[put(u32::try_from(key).unwrap(), &vec![200; MIB])]);
    }
    assert_eq!(replica.executor.checkpoints().next(), Some(old));
    replica.check(old, values * MIB);
    let most = replica.slots();
    for key in 0..8 * INTERVAL {
        replica.order(&[put(u32::try_from(key % 16).unwrap(), &vec![201; MIB])]);
    }
    assert!(replica.slots() <= most, "{} slots after {most}", replica.slots());
}

#[test]
fn l85_many_long_values_are_removed_unread() {
    let mut replica = filled(BYTES / MIB);
    let removals = (0..u32::try_from(BYTES / MIB).unwrap()).map(|key| {
        let mut operation = Vec::new();
        Operation::Del { key: &key.to_be_bytes() }.encode(&mut operation);
        operation
    });
    replica.free(&removals.collect::<Vec<_>>());
    replica.settle(&mut || put(1, b"1"));
}

#[test]
fn l85_a_store_is_emptied_unread() {
    let mut replica = filled(BYTES / MIB);
    let mut clear = Vec::new();
    Command::Clear.encode(&mut clear);
    replica.free(&[clear]);
    replica.settle(&mut || put(1, b"1"));
}

/// A client of the file system.
#[derive(Default)]
struct Caller {
    xid: u32,
    root: Vec<u8>,
}

impl Caller {
    fn operation(&mut self, program: u32, procedure: u32, args: &[u8]) -> Vec<u8> {
        self.xid += 1;
        let auth = AuthSys { stamp: 0, machine: Opaque(b"test"), uid: 0, gid: 0, gids: Vec::new() };
        let body = xdr::encode(&auth);
        let head =
            CallHead { credential: OpaqueAuth::sys(&body), ..CallHead::new(self.xid, program, 3, procedure) };
        let mut call = xdr::encode(&head);
        call.extend_from_slice(args);
        let mut bytes = Vec::new();
        Called { address: mapped([10, 0, 0, 1]), call: &call }.encode(&mut bytes);
        bytes
    }

    fn call(&mut self, call: &Call<'_>) -> Vec<u8> {
        let mut args = Vec::new();
        call.encode(&mut args);
        self.operation(PROGRAM, call.procedure() as u32, &args)
    }

    fn create(&mut self, replica: &mut Replica<Fs>) -> Vec<u8> {
        let root = self.root.clone();
        let place = DirOp { dir: Opaque(&root), name: Opaque(b"file") };
        let how = CreateHow::Unchecked(SetAttr::default());
        let reply = replica.order(&[self.call(&Call::Create(CreateArgs { place, how }))]);
        let done: NfsResult<CreateOk<'_>, Wcc> = xdr::decode(body(&reply)).unwrap();
        done.unwrap().object.unwrap().0.to_vec()
    }
}

/// Returns the body of a reply.
fn body(reply: &[u8]) -> &[u8] {
    let mut reader = Reader::new(reply);
    ReplyHead::decode(&mut reader).unwrap();
    reader.rest()
}

/// Returns a file system with a file of 256 MiB, its client, and the file.
fn with_a_file() -> (Replica<Fs>, Caller, Vec<u8>) {
    let export = Export { squash: Squash::Nobody, ..Export::of("/") };
    let settings = Settings { exports: vec![export], reply_pages: 16, ..Settings::default() };
    let (mut replica, mut caller) = (Replica::new(Fs::new(settings).unwrap()), Caller::default());
    let path = xdr::encode(&Opaque::<1024>(b"/"));
    let reply = replica.order(&[caller.operation(mount3::PROGRAM, mount3::Procedure::Mnt as u32, &path)]);
    let mount3::MountReply::Done { handle, .. } = xdr::decode(body(&reply)).unwrap() else {
        panic!("not mounted")
    };
    caller.root = handle.0.to_vec();
    let file = caller.create(&mut replica);
    for at in 0..BYTES / MIB {
        let data = vec![u8::try_from(at % 251).unwrap() + 1; MIB];
        let (offset, count) = (u64::try_from(at * MIB).unwrap(), u32::try_from(MIB).unwrap());
        let args = WriteArgs {
            file: Opaque(&file),
            offset,
            count,
            stable: StableHow::Unstable,
            data: Opaque(&data),
        };
        replica.order(&[caller.call(&Call::Write(args))]);
    }
    (replica, caller, file)
}

fn truncation(caller: &mut Caller, file: &[u8], size: u64) -> Vec<u8> {
    let attributes = SetAttr { size: Some(size), ..SetAttr::default() };
    caller.call(&Call::SetAttr(SetAttrArgs { object: Opaque(file), attributes, guard: None }))
}

#[test]
fn l85_a_large_file_is_removed_unread() {
    let (mut replica, mut caller, _) = with_a_file();
    let root = caller.root.clone();
    let place = DirOp { dir: Opaque(&root), name: Opaque(b"file") };
    let removal = caller.call(&Call::Remove(place));
    replica.free(&[removal]);
    let file = caller.create(&mut replica);
    replica.settle(&mut || truncation(&mut caller, &file, 1));
}

#[test]
fn l85_a_large_file_is_truncated_unread() {
    let (mut replica, mut caller, file) = with_a_file();
    let removal = truncation(&mut caller, &file, 5);
    replica.free(&[removal]);
    replica.settle(&mut || truncation(&mut caller, &file, 1));
}
