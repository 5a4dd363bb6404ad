//! Damages every sector of a replica's log and starts in every way, one at a time (H3, H4, H5): all acknowledged
//! records are there, or the replica detects that it has lost its state.

use std::fs;
use std::path::Path;

use quorate_pbft::record::Record;
use quorate_pbft::step::Lsn;
use quorate_process::storage::queue::{LogJob, put_record};
use quorate_service::Options;
use quorate_service::kv::Kv;
use quorate_wire::codec::Writer;
use quorate_wire::digest::Domains;
use quorate_wire::{Digest, ViewNum};

use super::damage::{self, Content, FAULTS, SECTOR, damaged};
use super::*;
use crate::testing::TempDir;
use quorate_process::DiskQueue;

const OWNER: Owner = Owner { cluster: ClusterId([7; 32]), replica: ReplicaId(1) };

fn open(dir: &Path) -> (Storage, Past) {
    open_as(dir, Durability::Sync)
}

fn open_as(dir: &Path, durability: Durability) -> (Storage, Past) {
    Storage::open_with(dir, OWNER, durability, 1_700_000_000, 64 << 10).unwrap()
}

/// Begins to write, for a replica without service state.
fn begin(storage: Storage) -> Disk {
    storage.begin(&executor(), 1 << 20).unwrap()
}

fn executor() -> Executor<Kv, Paged> {
    let options = Options { page_bytes: 512, pages_max: 4096, clients_max: 8, ..Options::default() };
    let options = Options { result_bytes_max: 512, ..options };
    let domains = Domains::new(OWNER.cluster);
    let store = Paged::in_memory(domains.clone(), options.page_bytes);
    Executor::with_store(Kv, domains, options, store)
}

fn new_dir(name: &str) -> TempDir {
    let dir = TempDir::new(name);
    create(dir.path(), OWNER.cluster, OWNER.replica).unwrap();
    dir
}

fn encoded(record: &Record<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    record.encode(&mut Writer::new(&mut bytes));
    bytes
}

/// The `i`-th record of a life.
fn record(i: u64) -> Vec<u8> {
    let batch = vec![u8::try_from(i % 251).unwrap(); 300];
    encoded(&match i % 3 {
        0 => Record::PrePrepared { view: ViewNum(0), seq: SeqNum(i), digest: Digest([9; 32]) },
        1 => Record::Prepared { view: ViewNum(0), seq: SeqNum(i), batch: &batch },
        _ => Record::Committed { seq: SeqNum(i), digest: Digest([8; 32]) },
    })
}

/// Writes records one commit each, and waits until they are durable.
fn write(disk: &mut Disk, numbers: std::ops::Range<u64>) {
    for i in numbers {
        disk.append(Lsn(i), &record(i));
        disk.flush();
        while disk.told().durable() < Lsn(i) {
            assert_eq!(disk.told().failure(), None);
            std::thread::yield_now();
        }
    }
}

fn records(past: Past) -> Option<Vec<Vec<u8>>> {
    match past {
        Past::Log { records, .. } => Some(records),
        Past::Nothing => panic!("a replica that has started is taken for a new one"),
        Past::Lost(_) => None,
    }
}

/// The content of a replica's log, file by file.
fn content(dir: &Path) -> Content {
    damage::content(&dir.join("log"))
}

fn put_back(dir: &Path, good: &Content) {
    damage::put_back(&dir.join("log"), good);
}

#[test]
fn what_was_promised_is_there_after_any_end() {
    let dir = new_dir("life");
    let (storage, past) = open(dir.path());
    assert!(matches!(past, Past::Nothing));
    assert_eq!(storage.starts(), 1);
    let mut disk = begin(storage);
    write(&mut disk, 1..40);
    // Like after a kill, without a clean end.
    let killed = content(dir.path());
    disk.stop().unwrap();
    for start in [killed, content(dir.path())] {
        put_back(dir.path(), &start);
        let (storage, past) = open(dir.path());
        assert_eq!(storage.starts(), 2);
        let mut expected: Vec<_> = (1..40).map(record).collect();
        assert_eq!(records(past).unwrap(), expected);
        let mut disk = begin(storage);
        write(&mut disk, 40..200);
        disk.stop().unwrap();
        expected.extend((40..200).map(record));
        let (storage, past) = open(dir.path());
        assert_eq!((storage.starts(), records(past).unwrap()), (3, expected));
    }
}

/// An image makes earlier segments unnecessary; records that outlive images are copied.
#[test]
fn an_image_makes_the_log_shorter_and_nothing_is_forgotten() {
    let dir = new_dir("trim");
    let mut disk = begin(open(dir.path()).0);
    let seen = |seq, of: u64| encoded(&Record::Seen { seq: SeqNum(seq), starts: &of.to_le_bytes() });
    let stable = |seq| encoded(&Record::Stable { seq: SeqNum(seq), root: Digest([3; 32]) });
    let view = encoded(&Record::ViewChange { view: ViewNum(4), frame: b"a frame" });
    for bytes in [&stable(0), &seen(0, 1), &view, &stable(90), &seen(90, 2)] {
        disk.append(Lsn(1), bytes);
    }
    write(&mut disk, 1..100);
    disk.image(SeqNum(90), executor().root_at(SeqNum(0)).unwrap(), Vec::new());
    disk.stop().unwrap();
    let (mut storage, past) = open(dir.path());
    let Past::Log { records, cut: false } = past else { panic!("{past:?}") };
    assert_eq!(storage.load(&mut executor()).unwrap().map(|(seq, _)| seq), Some(SeqNum(90)));
    for i in 91..100 {
        assert!(records.contains(&record(i)), "{i}");
    }
    assert!(!records.contains(&record(1)), "the log has not become shorter");
    let last = |kind: u8| records.iter().rfind(|record| record[0] == kind).unwrap().clone();
    assert_eq!((last(3), last(5), last(8)), (view, stable(90), seen(90, 2)));
    drop(storage);
}

/// One sector, one fault: the acknowledged records are there, or known to be lost; and the count of starts keeps
/// rising.
#[test]
fn no_damage_to_one_sector_goes_unnoticed() {
    let dir = new_dir("sectors");
    let mut disk = begin(open(dir.path()).0);
    write(&mut disk, 1..12);
    let early = content(dir.path());
    write(&mut disk, 12..30);
    disk.stop().unwrap();
    let good = content(dir.path());
    let expected: Vec<_> = (1..30).map(record).collect();
    let (mut lost, mut harmless) = (0, 0);
    for (path, bytes) in &good {
        for at in (0..bytes.len()).step_by(SECTOR) {
            for fault in 0..FAULTS {
                let Some(bad) = damaged(bytes, early.get(path), at, fault) else { continue };
                put_back(dir.path(), &good);
                fs::write(path, &bad).unwrap();
                let (storage, past) = open(dir.path());
                assert!(storage.starts() >= 2, "{path:?} at {at}, fault {fault}");
                match records(past) {
                    None => lost += 1,
                    Some(found) => {
                        assert_eq!(found, expected, "{path:?} at {at}, fault {fault}");
                        harmless += 1;
                    }
                }
            }
        }
    }
    println!("log: harmless {harmless}, memory lost {lost}");
    assert!(lost > 100, "{lost} lost, {harmless} harmless");
    assert!(harmless > 10, "{lost} lost, {harmless} harmless");
}

/// A missing file, or an older version of it, is detected. After a loss the replica starts from nothing.
#[test]
fn lost_and_old_files_are_noticed() {
    let dir = new_dir("files");
    let mut disk = begin(open(dir.path()).0);
    write(&mut disk, 1..20);
    disk.stop().unwrap();
    let old = content(dir.path());
    let mut disk = begin(open(dir.path()).0);
    write(&mut disk, 20..60);
    disk.stop().unwrap();
    let good = content(dir.path());
    assert!(good.len() > old.len(), "several segments");
    for path in good.keys() {
        put_back(dir.path(), &good);
        fs::remove_file(path).unwrap();
        assert!(records(open(dir.path()).1).is_none(), "{path:?} gone");
        let Some(before) = old.get(path).filter(|before| *before != &good[path]) else { continue };
        put_back(dir.path(), &good);
        fs::write(path, before).unwrap();
        assert!(records(open(dir.path()).1).is_none(), "{path:?} is old");
    }
    let (storage, _) = open(dir.path());
    assert!(storage.starts() > 1_600_000_000, "the time of day stands in for a lost count");
    let mut disk = begin(storage);
    disk.distrust(1 << 40);
    disk.stop().unwrap();
    let (storage, past) = open(dir.path());
    assert!(records(past).is_none(), "it has not rejoined");
    assert!(storage.starts() > 1 << 40, "it does not fall behind what the others know");
    drop(storage);
    let mut disk = begin(open(dir.path()).0);
    write(&mut disk, 1..3);
    disk.rejoined();
    disk.stop().unwrap();
    assert_eq!(records(open(dir.path()).1).unwrap().len(), 2);
}

/// Records that were never synced may be missing, torn or incomplete: that is no loss of state.
#[test]
fn a_torn_tail_is_cut() {
    let dir = new_dir("torn");
    let mut disk = begin(open(dir.path()).0);
    write(&mut disk, 1..4);
    disk.stop().unwrap();
    let mut log = open(dir.path()).0.opened.begin(&executor(), 1).unwrap().unwrap().log;
    let durable = content(dir.path());
    // One more commit, whose end is not recorded.
    let mut records_of_it = Vec::new();
    let big = encoded(&Record::Batch { seq: SeqNum(10), batch: &vec![5; 20_000] });
    put_record(&big, &mut records_of_it);
    log.run(&LogJob::Commit { records: records_of_it, last: Some(Lsn(9)) }).unwrap();
    let written = content(dir.path());
    assert_eq!(written.len(), durable.len(), "it fits the segment");
    let expected: Vec<_> = (1..4).map(record).collect();
    let (path, bytes) = written.iter().find(|(path, bytes)| durable[*path] != **bytes).unwrap();
    let changed: Vec<usize> = (0..bytes.len())
        .step_by(SECTOR)
        .filter(|at| bytes[*at..at + SECTOR] != durable[path][*at..at + SECTOR])
        .collect();
    assert!(changed.len() > 30);
    for missing in &changed[..changed.len() - 1] {
        put_back(dir.path(), &durable);
        let mut torn = bytes.clone();
        torn[*missing..missing + SECTOR].fill(0);
        fs::write(path, torn).unwrap();
        assert_eq!(records(open(dir.path()).1).as_ref(), Some(&expected), "without sector {missing}");
    }
}

/// The effect of each setting of durability on its own files (spec §14.2).
#[test]
fn only_what_was_waited_for_is_trusted_after_a_kill() {
    for (durability, after_kill, after_stop) in
        [(Durability::Sync, true, true), (Durability::Async, false, true), (Durability::Memory, false, false)]
    {
        let dir = new_dir("modes");
        let mut disk = begin(open_as(dir.path(), durability).0);
        disk.append(Lsn(1), &record(1));
        disk.flush();
        while durability != Durability::Memory && disk.told().durable() < Lsn(1) {
            std::thread::yield_now();
        }
        let killed = content(dir.path());
        disk.stop().unwrap();
        let stopped = content(dir.path());
        for (files, trusted) in [(killed, after_kill), (stopped, after_stop)] {
            put_back(dir.path(), &files);
            assert_eq!(records(open_as(dir.path(), durability).1).is_some(), trusted, "{durability:?}");
        }
        // And a log that was written with another setting is not taken for one that was waited for.
        if durability == Durability::Memory {
            assert!(records(open_as(dir.path(), Durability::Sync).1).is_none());
        }
    }
}

/// Another replica's disk is not taken for this one's.
#[test]
fn a_foreign_disk_is_no_memory() {
    let dir = new_dir("foreign");
    let mut disk = begin(open(dir.path()).0);
    write(&mut disk, 1..5);
    disk.stop().unwrap();
    let other = Owner { replica: ReplicaId(2), ..OWNER };
    let (_, past) = Storage::open_with(dir.path(), other, Durability::Sync, 1, 64 << 10).unwrap();
    assert!(matches!(past, Past::Lost(_)));
}
