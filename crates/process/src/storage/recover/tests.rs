//! Starts on a disk in memory.

use quorate_pbft::step::Lsn;
use quorate_service::Options;
use quorate_service::image::CopiedPages;
use quorate_service::kv::{Kv, Operation};
use quorate_wire::{Batch, ClientId, ClusterId, ReplicaId, Replies, Timestamp};

use super::*;
use crate::storage::commit;
use crate::storage::io::DiskErrorKind;
use crate::storage::queue::{LogJob, put_record};
use crate::storage::testing::TestDisk;

const OWNER: Owner = Owner { cluster: ClusterId([7; 32]), replica: ReplicaId(1) };

/// Returns the executor of a replica whose clients have at most `lanes_max` lanes.
fn executor(disk: &TestDisk, lanes_max: u32) -> Executor<Kv, Paged<TestDisk>> {
    let options = Options { pages_max: 1 << 16, clients_max: 8, lanes_max, ..Options::default() };
    let options = Options { page_bytes: 512, result_bytes_max: 512, ..options };
    let domains = Domains::new(OWNER.cluster);
    let store = Paged::new(disk.clone(), domains.clone(), 512, 60 * 512);
    Executor::with_store(Kv, domains, options, store)
}

/// Stores a value under each of `keys` keys, in one batch.
fn store(executor: &mut Executor<Kv, Paged<TestDisk>>, keys: u64) {
    let (seq, domains) = (executor.last_executed().next(), Domains::new(OWNER.cluster));
    let mut batch = Batch::default();
    for key in 0..keys {
        let mut operation = Vec::new();
        Operation::Put { key: &key.to_be_bytes(), value: &[1; 300] }.encode(&mut operation);
        batch.push_operation(&domains, ClientId::new(1, 0), Timestamp(seq.0 << 20 | key), &operation);
    }
    batch.seal(&domains, &[0; 8]);
    executor.execute(seq, &batch, false, &mut Replies::new()).unwrap();
}

fn open(disk: &TestDisk, durability: Durability) -> (Storage<TestDisk>, Past) {
    Storage::open(disk, OWNER, durability, 1, 64 << 10).unwrap()
}

/// Writes the state of an executor as an image, and returns its checkpoint.
fn save(executor: &mut Executor<Kv, Paged<TestDisk>>, pages: &mut PageWriter<TestDisk>) -> (SeqNum, Digest) {
    let seq = executor.last_executed();
    let root = executor.checkpoint(seq);
    let (mut saving, mut copied) = (executor.begin_save(seq).unwrap(), CopiedPages::default());
    assert!(executor.save(&mut saving, usize::MAX, &mut copied));
    pages.write(&copied).unwrap();
    executor.note_stored(&pages.seal(seq, root, &[]).unwrap());
    (seq, root)
}

/// Returns a disk with a state of 200 values.
fn filled() -> (TestDisk, (SeqNum, Digest)) {
    let disk = TestDisk::default();
    create(&disk, OWNER).unwrap();
    let mut executor = executor(&disk, 256);
    let mut writers = open(&disk, Durability::Sync).0.begin(&executor, 1).unwrap().unwrap();
    store(&mut executor, 200);
    let found = save(&mut executor, &mut writers.pages);
    (disk, found)
}

/// L90: the state of other options is neither used nor removed: the replica does not start.
#[test]
fn l90_a_changed_option_leaves_the_state_alone() {
    let (disk, found) = filled();
    let before = disk.content();
    let (mut storage, past) = open(&disk, Durability::Sync);
    let resumed = storage.resume(past, 1, &mut executor(&disk, 512));
    let error = resumed.map(|_| storage.begin(&executor(&disk, 512), 2).map(|_| ())).unwrap_err();
    assert_eq!(error.kind, DiskErrorKind::OtherOptions);
    assert!(error.cause.contains("client_lanes_max = 256") && error.cause.contains("512"), "{}", error.cause);
    assert_eq!(disk.content(), before);
    assert_eq!(open(&disk, Durability::Sync).0.load(&mut executor(&disk, 256)), Ok(Some(found)));
}

/// L91: of a log that nobody waited for, the end may be missing, also if the next start waits for its log.
#[test]
fn l91_a_log_that_nobody_waited_for_is_not_taken_for_complete() {
    for stops in [false, true] {
        let (disk, _) = filled();
        let (storage, _) = open(&disk, Durability::Sync);
        let mut log = storage.begin(&executor(&disk, 256), 2).unwrap().unwrap().log;
        log.run(&LogJob::Stop).unwrap();
        let (storage, past) = open(&disk, Durability::Async);
        assert!(matches!(past, Past::Log { .. }), "{past:?}");
        let mut log = storage.begin(&executor(&disk, 256), 3).unwrap().unwrap().log;
        let before = disk.content();
        let mut records = Vec::new();
        put_record(b"a vote", &mut records);
        log.run(&LogJob::Commit { records, last: Some(Lsn(1)) }).unwrap();
        if stops {
            log.run(&LogJob::Stop).unwrap();
        } else {
            for (name, bytes) in before {
                disk.put(&name, bytes);
            }
        }
        let past = open(&disk, Durability::Sync).1;
        assert_eq!(matches!(past, Past::Log { .. }), stops, "{past:?}");
        assert_eq!(matches!(past, Past::Lost(_)), !stops, "{past:?}");
    }
}

/// L91: nor is it after a rejoin.
#[test]
fn l91_a_rejoin_makes_no_log_complete_that_nobody_waits_for() {
    let (disk, _) = filled();
    let (storage, past) = open(&disk, Durability::Async);
    assert!(matches!(past, Past::Lost(_)), "it was killed");
    let mut log = storage.begin(&executor(&disk, 256), 2).unwrap().unwrap().log;
    log.run(&LogJob::SetState { state: LogState::Log, starts_min: 0, last: None }).unwrap();
    assert!(matches!(open(&disk, Durability::Sync).1, Past::Lost(_)));
    log.run(&LogJob::Stop).unwrap();
    assert!(matches!(open(&disk, Durability::Sync).1, Past::Log { .. }));
}

/// D14: a replica has lost its log, or its state is damaged, and it is killed before a transfer is complete. Its good pages
/// are there at the next start, too.
#[test]
fn d14_good_pages_outlive_a_start_that_is_cut_off() {
    for durability in [Durability::Async, Durability::Sync] {
        let (disk, _) = filled();
        disk.spoil("checkpoint/pages", 512 * 9 + 3);
        let kept = [2, 3, 4].map(|life| {
            let (mut storage, past) = open(&disk, durability);
            let mut state = executor(&disk, 256);
            let resumed = storage.resume(past, 1, &mut state).unwrap();
            assert_eq!(matches!(resumed, Resume::Amnesia { .. }), durability == Durability::Async);
            storage.begin(&state, life).unwrap();
            state.pages_kept()
        });
        assert!(kept[0] > 100 && kept == [kept[0]; 3], "{kept:?}");
    }
}

/// D15: what is found before a start is what the start would find.
#[test]
fn d15_the_log_of_a_replica_that_was_killed_with_async_is_not_complete() {
    for stops in [false, true] {
        let (disk, _) = filled();
        let (storage, _) = open(&disk, Durability::Sync);
        storage.begin(&executor(&disk, 256), 2).unwrap().unwrap().log.run(&LogJob::Stop).unwrap();
        let (storage, _) = open(&disk, Durability::Async);
        let mut log = storage.begin(&executor(&disk, 256), 3).unwrap().unwrap().log;
        if stops {
            log.run(&LogJob::Stop).unwrap();
        }
        for durability in [Durability::Sync, Durability::Async] {
            let looked = look(&disk, OWNER, durability).unwrap();
            let found = read(&disk, OWNER, durability, &mut executor(&disk, 256)).unwrap();
            let starts = matches!(open(&disk, durability).1, Past::Log { .. });
            assert_eq!([looked.is_ok(), found.is_ok(), starts], [stops; 3], "{durability:?}");
        }
    }
}

/// L93: what a crash has left in the index is gone before anything is written beside it.
#[test]
fn l93_what_a_crash_left_in_the_index_is_cut_off() {
    let (disk, found) = filled();
    let index = "checkpoint/00000000000000000001.idx";
    let end = disk.read(index).unwrap().len();
    let mut state = executor(&disk, 256);
    let mut pages = PageWriter::new(disk.clone(), OWNER, &state);
    assert_eq!(pages.load(&mut state, true), Ok(Some(found)));
    store(&mut state, 3000);
    save(&mut state, &mut pages);
    let mut torn = disk.read(index).unwrap();
    assert!(torn.len() > end + 2 * 12 * commit::BLOCK, "several chunks");
    torn[end..end + commit::BLOCK].fill(0);
    disk.put(index, torn);
    let mut state = executor(&disk, 256);
    let mut pages = PageWriter::new(disk.clone(), OWNER, &state);
    assert_eq!(pages.load(&mut state, true), Ok(Some(found)));
    store(&mut state, 1);
    save(&mut state, &mut pages);
    assert_eq!(disk.read(index).unwrap().len(), end + commit::BLOCK);
}

/// L95: a sector that cannot be read is damage, and costs no more than damage does.
#[test]
fn l95_a_sector_that_cannot_be_read_is_damage() {
    let index = "checkpoint/00000000000000000001.idx";
    // Either copy of the count of starts.
    for at in [9, 4096 + 9] {
        let (disk, found) = filled();
        disk.spoil("log/starts", at);
        let (mut storage, past) = open(&disk, Durability::Sync);
        assert!(matches!(past, Past::Log { .. }), "{past:?}");
        assert_eq!(storage.load(&mut executor(&disk, 256)), Ok(Some(found)));
    }
    // The log.
    let (disk, _) = filled();
    disk.spoil("log/00000000000000000001.seg", 70);
    assert!(matches!(open(&disk, Durability::Sync).1, Past::Lost(_)));
    // A chunk of the index, and a page.
    let (disk, _) = filled();
    let mut state = executor(&disk, 256);
    let mut pages = PageWriter::new(disk.clone(), OWNER, &state);
    pages.load(&mut state, true).unwrap();
    store(&mut state, 3000);
    let found = save(&mut state, &mut pages);
    disk.spoil("checkpoint/pages", 512 * 40 + 3);
    disk.spoil(index, 3);
    let before = disk.content()["checkpoint/pages"].clone();
    let (mut storage, past) = open(&disk, Durability::Sync);
    let mut state = executor(&disk, 256);
    storage.resume(past, 1, &mut state).unwrap();
    assert!(state.pages_kept() > 1000, "{} kept of {found:?}", state.pages_kept());
    storage.begin(&state, 2).unwrap();
    assert_eq!(disk.content()["checkpoint/pages"], before);
}

/// L95: a disk that cannot be read at all may be back at the next start. Nothing is removed.
#[test]
fn l95_nothing_is_removed_that_cannot_be_read() {
    for (name, step) in
        [("log/starts", 4096), ("checkpoint/00000000000000000001.idx", 4096), ("checkpoint/pages", 512)]
    {
        let (disk, _) = filled();
        let before = disk.content();
        (0..before[name].len()).step_by(step).for_each(|at| disk.spoil(name, at));
        let opened = Storage::open(&disk, OWNER, Durability::Sync, 1, 64 << 10);
        let loaded = opened.and_then(|(mut storage, past)| {
            let mut state = executor(&disk, 256);
            storage.resume(past, 1, &mut state)?;
            storage.begin(&state, 2).map(|_| ())
        });
        assert_eq!(loaded.unwrap_err().kind, DiskErrorKind::Unreadable, "{name}");
        assert_eq!(disk.content(), before, "{name}");
    }
}
