//! Tests of the state on disk: only changes are written, its size is bounded, and damage to any sector never gives
//! another state (H4, H5).

use std::collections::BTreeSet;
use std::fs;

use quorate_pbft::step::Lsn;
use quorate_service::Options;
use quorate_service::image::CopiedPages;
use quorate_service::kv::{Kv, Operation};
use quorate_service::page::PageLabel;
use quorate_wire::digest::Domains;
use quorate_wire::{Batch, ClientId, Replies, Timestamp};

use super::damage::{Content, FAULTS, SECTOR, content, damaged, put_back};
use super::*;
use crate::testing::TempDir;
use quorate_process::storage::pages::PageWriter;
use quorate_process::{DiskQueue as _, Store as _};

const OWNER: Owner = Owner { cluster: ClusterId([7; 32]), replica: ReplicaId(1) };

/// Returns an executor whose state is kept in a directory, with at most `pages_max` pages in memory.
fn executor(dir: &Path, pages_max: usize) -> Executor<Kv, Paged> {
    let options = Options { page_bytes: 512, pages_max: 1 << 16, clients_max: 8, ..Options::default() };
    let domains = Domains::new(OWNER.cluster);
    let store = Paged::new(Files::below(dir), domains.clone(), 512, pages_max * 512);
    Executor::with_store(Kv, domains, Options { result_bytes_max: 512, ..options }, store)
}

/// A replica's state and disk.
struct Replica {
    dir: TempDir,
    executor: Executor<Kv, Paged>,
    pages_max: usize,
    disk: Option<Disk>,
}

impl Replica {
    fn new(name: &str, pages_max: usize) -> Self {
        let dir = TempDir::new(name);
        create(dir.path(), OWNER.cluster, OWNER.replica).unwrap();
        let executor = executor(dir.path(), pages_max);
        let disk = open(dir.path()).begin(&executor, 1).unwrap();
        Self { dir, executor, pages_max, disk: Some(disk) }
    }

    /// Stores a value under each of these keys, in one batch.
    fn store(&mut self, keys: impl Iterator<Item = u64>, value: u8) {
        self.execute(keys, value, false);
    }

    /// The same. A tentative batch stays open.
    fn execute(&mut self, keys: impl Iterator<Item = u64>, value: u8, tentative: bool) {
        let (seq, domains) = (self.executor.last_executed().next(), Domains::new(OWNER.cluster));
        let mut batch = Batch::default();
        for key in keys {
            let mut operation = Vec::new();
            Operation::Put { key: &key.to_be_bytes(), value: &[value; 300] }.encode(&mut operation);
            let (client, timestamp) = (ClientId::new(1, 0), Timestamp(seq.0 << 20 | key));
            batch.push_operation(&domains, client, timestamp, &operation);
        }
        batch.seal(&domains, &[0; 8]);
        self.executor.execute(seq, &batch, tentative, &mut Replies::new()).unwrap();
    }

    /// Takes a checkpoint and makes it durable. Returns the pages that were copied for it, and its digest.
    fn save(&mut self) -> (usize, (SeqNum, Digest)) {
        let seq = self.executor.last_executed();
        let root = self.executor.checkpoint(seq);
        let disk = self.disk.as_mut().unwrap();
        let (mut saving, mut copied, mut pages) =
            (self.executor.begin_save(seq).unwrap(), CopiedPages::default(), 0);
        while !saving.is_done() {
            while !disk.has_room() {
                std::thread::yield_now();
            }
            assert!(self.executor.save(&mut saving, 100, &mut copied));
            pages += copied.labels().len();
            disk.pages(std::mem::take(&mut copied));
        }
        disk.image(seq, root, Vec::new());
        disk.append(Lsn(seq.0), b"");
        disk.flush();
        disk.wait_until_quiet();
        assert_eq!(disk.told().failure(), None);
        self.executor.note_stored(&disk.take_stored());
        self.relax();
        (pages, (seq, root))
    }

    /// Lets the state drop pages from memory.
    fn relax(&mut self) {
        for _ in 0..100 {
            self.executor.relax();
        }
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("checkpoint")
    }

    /// Returns the size of the state on disk, in bytes.
    fn bytes(&self) -> usize {
        content(&self.path()).values().map(Vec::len).sum()
    }
}

fn open(dir: &Path) -> Storage {
    Storage::open_with(dir, OWNER, Durability::Sync, 1, 64 << 10).unwrap().0
}

fn load(dir: &Path) -> (Executor<Kv, Paged>, Option<(SeqNum, Digest)>) {
    let mut executor = executor(dir, 60);
    let found = open(dir).load(&mut executor).unwrap();
    (executor, found)
}

/// Takes a checkpoint and copies it, and returns its digest.
fn copy(replica: &mut Replica) -> (CopiedPages, SeqNum, Digest) {
    let seq = replica.executor.last_executed();
    let root = replica.executor.checkpoint(seq);
    let mut copied = CopiedPages::default();
    let mut saving = replica.executor.begin_save(seq).unwrap();
    assert!(replica.executor.save(&mut saving, usize::MAX, &mut copied));
    (copied, seq, root)
}

/// Only changes are written, independently of the size of the state, and the space of replaced pages is reused. This
/// continues after each start.
#[test]
fn only_what_has_changed_is_written_and_room_is_bounded() {
    let mut replica = Replica::new("pages", 100);
    replica.store(0..3000, 1);
    let (whole, _) = replica.save();
    assert!(whole > 2000, "{whole} pages");
    for round in 0..30_u8 {
        replica.store((0..20).map(|key| key + u64::from(round)), round);
        let (few, found) = replica.save();
        assert!(few < 60, "{few} of {whole} pages copied");
        assert!(replica.bytes() < 2 * whole * 512 + (2 << 20), "{} bytes", replica.bytes());
        if round % 10 == 9 {
            replica.disk.take().unwrap().stop().unwrap();
            let mut storage = open(replica.dir.path());
            replica.executor = executor(replica.dir.path(), replica.pages_max);
            assert_eq!(storage.load(&mut replica.executor).unwrap(), Some(found));
            assert_eq!(replica.executor.recompute(), found.1);
            replica.disk = Some(storage.begin(&replica.executor, 1).unwrap());
        }
    }
    // Everything changes repeatedly: there are at most two versions of each page.
    for round in 0..6 {
        replica.store(0..3000, 100 + round);
        replica.save();
        assert!(replica.bytes() < 2 * whole * 512 + (2 << 20), "{} bytes", replica.bytes());
    }
}

/// A page that is written while the previous checkpoint is being stored stays in memory: the disk has another
/// version.
#[test]
fn what_has_changed_since_it_was_copied_is_not_what_the_disk_has() {
    let mut replica = Replica::new("changed", 4);
    let mut twin = Replica::new("changed-twin", 1 << 20);
    for value in 1..4 {
        for replica in [&mut replica, &mut twin] {
            replica.store(0..60, value);
        }
        twin.executor.checkpoint(twin.executor.last_executed());
        let (copied, seq, root) = copy(&mut replica);
        let disk = replica.disk.as_mut().unwrap();
        disk.pages(copied);
        disk.image(seq, root, Vec::new());
        disk.wait_until_quiet();
        let stored = disk.take_stored();
        for replica in [&mut replica, &mut twin] {
            replica.store(0..30, value + 100);
        }
        replica.executor.note_stored(&stored);
        replica.relax();
        let newest = |replica: &mut Replica| replica.executor.checkpoint(replica.executor.last_executed());
        assert_eq!(newest(&mut replica), newest(&mut twin), "round {value}");
    }
    assert!(replica.executor.store().pages().on_disk > 20, "{:?}", replica.executor.store().pages());
}

/// L105: a batch stays open while one of its requests runs long. Reads beside it bring pages, and others make room for them; what
/// the batch has written can still be merged.
#[test]
fn l105_reads_beside_an_open_batch_leave_memory_bounded() {
    let mut replica = Replica::new("open-batch", 40);
    replica.store(0..1000, 1);
    replica.save();
    replica.execute((0..1000).step_by(100), 2, true);
    let seq = replica.executor.tentative().unwrap();
    for key in 0..1000_u64 {
        let mut operation = Vec::new();
        Operation::Get { key: &key.to_be_bytes() }.encode(&mut operation);
        let whose = (ClientId::new(2, 0), Timestamp(key), &Digest::ZERO);
        assert!(replica.executor.read_at(1, whose, &operation, &mut Vec::new()).is_some());
        replica.executor.relax();
    }
    let pages = replica.executor.store().pages();
    assert!(pages.in_memory < 100 && pages.reads > 500, "{pages:?}");
    replica.executor.merge(seq);
    let root = replica.executor.checkpoint(seq);
    assert_eq!(replica.executor.recompute(), root);
}

/// A kill between two seals leaves the previous one, whatever was written since.
#[test]
fn what_was_not_sealed_does_not_count() {
    let mut replica = Replica::new("unsealed", 100);
    replica.store(0..200, 1);
    let (_, found) = replica.save();
    replica.store(0..200, 2);
    let seq = replica.executor.last_executed();
    replica.executor.checkpoint(seq);
    let mut saving = replica.executor.begin_save(seq).unwrap();
    let mut copied = CopiedPages::default();
    assert!(replica.executor.save(&mut saving, usize::MAX, &mut copied));
    let disk = replica.disk.as_mut().unwrap();
    disk.pages(copied);
    disk.wait_until_quiet();
    let (executor, loaded) = load(replica.dir.path());
    assert_eq!((loaded, executor.recompute()), (Some(found), found.1));
}

/// Every sector of the page file and its index is damaged in every way, one at a time. The state is the written one,
/// an earlier one, or known to be damaged; then all but a few pages are kept.
#[test]
fn no_damage_to_one_sector_of_the_state_goes_unnoticed() {
    let mut replica = Replica::new("sectors", 40);
    replica.store(0..250, 1);
    let (_, early) = replica.save();
    let before = content(&replica.path());
    replica.store(100..140, 2);
    let (_, late) = replica.save();
    replica.disk.take().unwrap().stop().unwrap();
    let good = content(&replica.path());
    assert_eq!(load(replica.dir.path()).1, Some(late));
    let mut counts = [0_usize; 4];
    for (path, bytes) in &good {
        for at in (0..bytes.len()).step_by(SECTOR) {
            for fault in 0..FAULTS {
                let Some(bad) = damaged(bytes, before.get(path), at, fault) else { continue };
                put_back(&replica.path(), &good);
                fs::write(path, bad).unwrap();
                let (executor, found) = load(replica.dir.path());
                if let Some((_, root)) = found {
                    assert_eq!(executor.recompute(), root, "{path:?} at {at}, fault {fault}");
                }
                counts[match found {
                    Some(found) if found == late => 0,
                    Some(found) if found == early => 1,
                    Some(found) => panic!("{path:?} at {at}, fault {fault}: {found:?}"),
                    None if executor.pages_kept() > 200 => 2,
                    None => 3,
                }] += 1;
            }
        }
    }
    let [harmless, earlier, damaged, lost] = counts;
    println!(
        "state: harmless {harmless}, an earlier one {earlier}, pages damaged {damaged}, all lost {lost}"
    );
    assert!(damaged > 1000 && lost < damaged / 5 && harmless > 10, "{counts:?}");
}

/// Pages of a transfer get slots before they are part of a state: the image uses them and does not write them again.
/// The slots of pages that the state does not include in the end are freed.
#[test]
fn what_was_put_aside_is_not_written_again() {
    let mut replica = Replica::new("staged", 1 << 20);
    replica.disk.take().unwrap().stop().unwrap();
    replica.store(0..300, 1);
    let dir = TempDir::new("staged-pages");
    fs::create_dir(dir.path().join("checkpoint")).unwrap();
    let mut file = PageWriter::new(Files::below(dir.path()), OWNER, &replica.executor);
    let (early, ..) = copy(&mut replica);
    let staged = file.stage(&early).unwrap();
    assert_eq!(staged.len(), early.labels().len());
    let written = file.unsynced();
    replica.store(0..20, 2);
    let (late, seq, root) = copy(&mut replica);
    file.write(&early).unwrap();
    assert_eq!(file.unsynced(), written, "it is there");
    file.write(&late).unwrap();
    assert_eq!(file.unsynced(), written + late.content().len());
    let stored = file.seal(seq, root, &[]).unwrap();
    let kept = |(label, slot): &&(PageLabel, u32)| stored.contains(&(*label, *slot));
    let is_late = |label: &&PageLabel| late.labels().iter().any(|late| late.page == label.page);
    let replaced = early.labels().iter().filter(is_late).count();
    assert_eq!(staged.iter().filter(kept).count(), early.labels().len() - replaced);
    let bytes = fs::metadata(dir.path().join("checkpoint/pages")).unwrap().len();
    // Again pages that no image includes in the end: the next seal frees their space.
    replica.store(1000..1300, 3);
    let (other, ..) = copy(&mut replica);
    file.stage(&other).unwrap();
    file.write(&late).unwrap();
    file.seal(seq.next(), root, &[]).unwrap();
    assert_eq!(fs::metadata(dir.path().join("checkpoint/pages")).unwrap().len(), bytes);
    let mut loaded = executor(replica.dir.path(), 10);
    assert_eq!(file_again(dir.path(), &loaded).load(&mut loaded, true).unwrap(), Some((seq.next(), root)));
}

/// The pages that a transfer has made part of the state stay in place while the next one stages pages, until the
/// next seal.
#[test]
fn what_has_landed_is_not_written_over_by_the_next_transfer() {
    let mut replica = Replica::new("adopted", 1 << 20);
    replica.store(0..300, 1);
    let dir = TempDir::new("adopted-pages");
    fs::create_dir(dir.path().join("checkpoint")).unwrap();
    let mut file = PageWriter::new(Files::below(dir.path()), OWNER, &replica.executor);
    let (early, ..) = copy(&mut replica);
    let adopted = file.stage(&early).unwrap();
    file.adopt();
    replica.store(0..20, 2);
    let (late, seq, root) = copy(&mut replica);
    let mut slots: BTreeSet<u32> = adopted.iter().map(|(_, slot)| *slot).collect();
    // The second time other slots are used; those of the first time are free then, and are reused the third time.
    let again = [(); 3].map(|()| file.stage(&late).unwrap());
    assert!(again.iter().flatten().all(|(_, slot)| !slots.contains(slot)), "written over");
    slots.extend(again.iter().flatten().map(|(_, slot)| *slot));
    assert_eq!(slots.len(), adopted.len() + 2 * late.labels().len());
    file.adopt();
    file.write(&early).unwrap();
    file.write(&late).unwrap();
    file.seal(seq, root, &[]).unwrap();
    let mut loaded = executor(replica.dir.path(), 10);
    assert_eq!(file_again(dir.path(), &loaded).load(&mut loaded, true).unwrap(), Some((seq, root)));
}

fn file_again(dir: &Path, executor: &Executor<Kv, Paged>) -> PageWriter<Files> {
    PageWriter::new(Files::below(dir), OWNER, executor)
}

/// Missing files, or files of another replica, are not a state.
#[test]
fn lost_and_foreign_files_are_no_state() {
    let mut replica = Replica::new("gone", 1 << 20);
    replica.store(0..100, 1);
    replica.save();
    replica.disk.take().unwrap().stop().unwrap();
    let good: Content = content(&replica.path());
    assert_eq!(good.len(), 2);
    for path in good.keys() {
        put_back(&replica.path(), &good);
        fs::remove_file(path).unwrap();
        assert_eq!(load(replica.dir.path()).1, None, "{path:?} gone");
    }
    put_back(&replica.path(), &good);
    let mut executor = executor(replica.dir.path(), replica.pages_max);
    let other = Owner { replica: ReplicaId(2), ..OWNER };
    let mut pages = PageWriter::new(Files::below(replica.dir.path()), other, &executor);
    assert_eq!(pages.load(&mut executor, true).unwrap(), None);
}
