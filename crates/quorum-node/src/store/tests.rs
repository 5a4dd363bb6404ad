use super::*;

use std::sync::atomic::{AtomicU64, Ordering};

use quorate_wire::{ClusterId, ReplicaId};

struct TempDir(PathBuf);

impl TempDir {
    fn new(name: &str) -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let shared = Path::new("/dev/shm");
        let parent = if shared.is_dir() { shared.to_path_buf() } else { std::env::temp_dir() };
        let path = parent.join(format!("quorate-store-{name}-{}-{number}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }
}

impl Drop for TempDir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

const OWNER: Owner = Owner { cluster: ClusterId([5; 32]), epoch: 1, id: ReplicaId(2) };

type Held = BTreeMap<ObjectId, Vec<u8>>;

fn object(number: u8) -> ObjectId {
    ObjectId([number; 32])
}

fn open(dir: &TempDir, durability: Durability) -> (Opened, Held) {
    let mut opened = Store::open(&dir.0, OWNER, durability, 4096).unwrap();
    let held = std::mem::take(&mut opened.objects);
    opened.store.begin(|object, out| out.extend_from_slice(&held[object])).unwrap();
    (opened, held)
}

fn put(store: &mut Store, held: &mut Held, number: u8, saved: &[u8]) {
    held.insert(object(number), saved.to_vec());
    store.put(object(number));
    store.commit(|object, out| out.extend_from_slice(&held[object])).unwrap();
}

/// What was committed is there after a restart at any moment; the last of each object counts.
#[test]
fn what_was_committed_is_there() {
    let dir = TempDir::new("committed");
    create(&dir.0, OWNER).unwrap();
    let mut held = Held::new();
    for round in 0..20_u8 {
        let (opened, read) = open(&dir, Durability::Sync);
        assert_eq!((opened.past, opened.why), (Past::Whole, None), "round {round}");
        assert_eq!(read, held, "round {round}");
        let mut store = opened.store;
        assert_eq!(store.live_bytes(), held.values().map(Vec::len).sum::<usize>());
        put(&mut store, &mut held, round % 7, &vec![round; usize::from(round) * 3]);
        put(&mut store, &mut held, 9, &[round]);
    }
}

/// A log that grows is written again, with the same content, and stays short.
#[test]
fn a_long_log_is_written_anew() {
    let dir = TempDir::new("long");
    create(&dir.0, OWNER).unwrap();
    let (opened, mut held) = open(&dir, Durability::Sync);
    let (mut store, mut renewed) = (opened.store, 0);
    for round in 0..200_u8 {
        put(&mut store, &mut held, round % 3, &[round; 100]);
        if store.is_long() {
            store.renew(|object, out| out.extend_from_slice(&held[object])).unwrap();
            renewed += 1;
        }
        assert!(store.log_bytes() < 5000, "{}", store.log_bytes());
    }
    assert!(renewed > 3, "{renewed}");
    let logs = fs::read_dir(dir.0.join("state")).unwrap().flatten();
    assert_eq!(logs.filter(|file| file.file_name().to_string_lossy().starts_with("log.")).count(), 1);
    drop(store);
    assert_eq!(open(&dir, Durability::Sync).1, held);
}

/// A loss of power cuts the last batch at any byte, or leaves zeros: what was durable before is there, and the
/// disk is whole.
#[test]
fn a_batch_that_was_cut_off_was_promised_to_nobody() {
    let dir = TempDir::new("cut");
    create(&dir.0, OWNER).unwrap();
    let (opened, mut held) = open(&dir, Durability::Sync);
    let mut store = opened.store;
    put(&mut store, &mut held, 1, b"first");
    let before = store.log_bytes();
    store.put(object(2));
    store.commit(|_, out| out.extend_from_slice(b"second")).unwrap();
    drop(store);
    let path = dir.0.join("state/log.1");
    let whole = fs::read(&path).unwrap();
    let before = usize::try_from(before).unwrap();
    for len in before..whole.len() {
        for zeros in [0, 1, 5000] {
            let cut = [&whole[..len], &vec![0; zeros][..]].concat();
            if zeros == 1 && len + 1 == whole.len() && whole[len] == 0 {
                continue; // it is whole
            }
            fs::write(&path, &cut).unwrap();
            let mut read = Held::new();
            let found = log::read(&path, OWNER, 1, &mut read).unwrap();
            // Bytes of the batch with zeros behind its end are no cut: a file does not grow like that.
            if let Read::Whole(log) = found {
                assert_eq!((read, log.bytes()), (held.clone(), before as u64), "{len} and {zeros}");
            } else {
                assert!(zeros == 5000 && len >= before + 8, "{len} and {zeros}: {found:?}");
            }
        }
    }
}

/// Damage in front of durable batches is never taken for the end: the server has lost its disk.
#[test]
fn damage_is_a_loss() {
    let dir = TempDir::new("damage");
    create(&dir.0, OWNER).unwrap();
    let (opened, mut held) = open(&dir, Durability::Sync);
    let mut store = opened.store;
    for number in 0..4 {
        put(&mut store, &mut held, number, b"something");
    }
    let last = store.log_bytes() - (8 + 32 + 4 + 9 + 16);
    drop(store);
    let path = dir.0.join("state/log.1");
    let good = fs::read(&path).unwrap();
    for at in 0..usize::try_from(last).unwrap() {
        let mut bad = good.clone();
        bad[at] ^= 0x10;
        fs::write(&path, &bad).unwrap();
        let mut read = Held::new();
        let found = log::read(&path, OWNER, 1, &mut read).unwrap();
        assert!(matches!(found, Read::Damaged(_)), "byte {at}");
    }
    let mut bad = good.clone();
    bad[100] ^= 1;
    fs::write(&path, &bad).unwrap();
    let (opened, read) = open(&dir, Durability::Sync);
    assert_eq!((opened.past, opened.why, read), (Past::Lost, Some("its log is damaged"), Held::new()));
}

/// A disk that is gone, is another server's or of another epoch, or whose log is gone, is lost: until the server is
/// repaired, after any number of starts.
#[test]
fn a_disk_that_is_gone_is_lost_until_it_is_repaired() {
    let dir = TempDir::new("gone");
    create(&dir.0, OWNER).unwrap();
    let past = |owner| Store::open(&dir.0, owner, Durability::Sync, 4096).unwrap().past;
    assert_eq!(past(OWNER), Past::Whole);
    assert_eq!(past(Owner { epoch: 2, ..OWNER }), Past::Lost);
    assert_eq!(past(Owner { id: ReplicaId(1), ..OWNER }), Past::Lost);
    assert_eq!(past(Owner { cluster: ClusterId([6; 32]), ..OWNER }), Past::Lost);
    fs::remove_dir_all(dir.0.join("state")).unwrap();
    for _ in 0..3 {
        let (opened, read) = open(&dir, Durability::Sync);
        assert_eq!((opened.past, read.len()), (Past::Lost, 0));
    }
    let (mut opened, mut held) = open(&dir, Durability::Sync);
    put(&mut opened.store, &mut held, 1, b"pulled");
    drop(opened);
    let (mut opened, read) = open(&dir, Durability::Sync);
    assert_eq!((opened.past, &read), (Past::Lost, &held), "what was pulled is kept");
    opened.store.note_repaired().unwrap();
    drop(opened);
    let (opened, read) = open(&dir, Durability::Sync);
    assert_eq!((opened.past, &read), (Past::Repaired, &held), "and never whole again in this epoch");
    drop(opened);
    fs::remove_file(dir.0.join("state/log.1"))
        .or_else(|_| fs::remove_file(dir.0.join("state/log.2")))
        .unwrap();
    assert_eq!(open(&dir, Durability::Sync).0.past, Past::Lost);
}

/// Without waiting for the disk, a server that was killed has lost it, and one that was stopped in order has not.
#[test]
fn who_does_not_wait_for_the_disk_loses_it_when_killed() {
    let dir = TempDir::new("async");
    create(&dir.0, OWNER).unwrap();
    let (mut opened, mut held) = open(&dir, Durability::Async);
    put(&mut opened.store, &mut held, 1, b"x");
    opened.store.close().unwrap();
    let (opened, read) = open(&dir, Durability::Async);
    assert_eq!((opened.past, read), (Past::Whole, held));
    drop(opened); // killed
    assert_eq!(open(&dir, Durability::Async).0.past, Past::Lost);

    let dir = TempDir::new("memory");
    create(&dir.0, OWNER).unwrap();
    let (mut opened, mut held) = open(&dir, Durability::Memory);
    put(&mut opened.store, &mut held, 1, b"x");
    assert_eq!(opened.store.live_bytes(), 1);
    opened.store.close().unwrap();
    let (opened, read) = open(&dir, Durability::Memory);
    assert_eq!((opened.past, read.len()), (Past::Lost, 0));
}

/// Q7: changes of many objects are written before they take much memory, in batches that are each made durable.
#[test]
fn q7_many_changes_are_written_in_parts() {
    const LONG: usize = 1 << 20;
    let dir = TempDir::new("parts");
    create(&dir.0, OWNER).unwrap();
    let (opened, _) = open(&dir, Durability::Sync);
    let mut store = opened.store;
    let saved = |object: &ObjectId, out: &mut Vec<u8>| out.resize(out.len() + LONG, object.0[0]);
    let mut number = 0;
    while !store.has_much() {
        store.put(object(number));
        store.note_value(object(number), LONG);
        number += 1;
    }
    assert!((2..10).contains(&number), "{number} objects wait");
    store.commit(saved).unwrap();
    assert_eq!(store.live_bytes(), usize::from(number) << 20);
    // Each has its long value now, and changes again.
    (0..number).for_each(|number| store.put(object(number)));
    assert!(store.has_much());
    store.commit(saved).unwrap();
    assert!(store.batch.capacity() < 16 << 20);
    drop(store);
    let read = Store::open(&dir.0, OWNER, Durability::Sync, 4096).unwrap();
    assert_eq!((read.past, read.objects.len()), (Past::Whole, usize::from(number)));
}
