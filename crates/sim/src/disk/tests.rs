//! What a disk keeps, and what it does not.

use quorate_service::Options;
use quorate_service::kv::Kv;
use quorate_wire::{ClusterId, ReplicaId};

use super::*;

const OWNER: Owner = Owner { cluster: ClusterId([7; 32]), replica: ReplicaId(1) };

fn disk(seed: u64) -> Disk {
    let mut disk = Disk::new(seed, 0, Pace::FAST, OWNER);
    assert!(matches!(start(&mut disk), Past::Nothing));
    disk
}

/// Starts a replica without state, and returns what its disk had.
fn start(disk: &mut Disk) -> Past {
    let options = Options { page_bytes: 512, pages_max: 4096, clients_max: 8, ..Options::default() };
    let options = Options { result_bytes_max: 512, ..options };
    let (domains, store) = (Domains::new(OWNER.cluster), Paged::in_memory(Domains::new(OWNER.cluster), 512));
    let mut executor = Executor::with_store(Kv, domains, options, store);
    let (storage, past) = disk.open(Durability::Sync, 1_700_000_000);
    disk.begin(storage, &mut executor);
    past
}

fn write(disk: &mut Disk, range: core::ops::Range<u8>) {
    for i in range {
        disk.append(Lsn(u64::from(i)), &[i; 24]);
    }
}

fn sync(disk: &mut Disk) -> Option<Lsn> {
    disk.begin_sync()?;
    disk.end_sync()
}

/// H3: whatever a crash leaves of the tail, the promised records are there and it is no amnesia.
#[test]
fn a_torn_tail_is_cut_and_nothing_promised_is_lost() {
    let (mut cuts, mut all) = (0, 0);
    for seed in 0..400 {
        let mut disk = disk(seed);
        write(&mut disk, 1..6);
        assert_eq!(sync(&mut disk), Some(Lsn(5)));
        disk.append(Lsn(6), &[6; 9000]);
        disk.begin_sync();
        disk.crash();
        let Past::Log { records, cut } = start(&mut disk) else { panic!("seed {seed}: amnesia") };
        assert!((5..=6).contains(&records.len()), "seed {seed}: {} records", records.len());
        assert!(records.iter().zip(1..).all(|(r, i)| r.iter().all(|byte| *byte == i)));
        cuts += u32::from(cut);
        all += u32::from(records.len() == 6);
        // It goes on where it was cut.
        assert_eq!(disk.starts(), 2);
        write(&mut disk, 7..9);
        assert_eq!(sync(&mut disk), Some(Lsn(8)));
        disk.crash();
        let Past::Log { records: more, cut: false } = start(&mut disk) else { panic!("seed {seed}") };
        assert_eq!(more.len(), records.len() + 2);
    }
    assert!(cuts > 5 && all > 20, "{cuts} of 400 crashes left a torn tail, {all} all of it");
}

/// H4, H5: damage to something that later commits knew to be durable is never taken for a torn tail.
#[test]
fn damage_of_what_was_promised_is_noticed() {
    for how in [Damage::BitRot, Damage::Zeroed, Damage::Misdirected, Damage::Lost] {
        for seed in 0..100 {
            let mut disk = disk(seed);
            for i in 1..60 {
                disk.append(Lsn(i), &[9; 3000]);
                sync(&mut disk);
            }
            disk.crash();
            assert!(disk.damage(how));
            assert!(matches!(start(&mut disk), Past::Lost(_)), "{how:?}, seed {seed}");
            // It is no memory before the replica has rejoined, and it is one after that.
            disk.crash();
            assert!(matches!(start(&mut disk), Past::Lost(_)));
            disk.rejoined();
            write(&mut disk, 1..3);
            sync(&mut disk);
            disk.crash();
            let Past::Log { records, .. } = start(&mut disk) else { panic!("{how:?}, seed {seed}") };
            assert_eq!(records.len(), 2);
        }
    }
}

/// H5, GC-4: a full disk acknowledges nothing. H6, H7: a new disk and an old one are no memory.
#[test]
fn a_full_a_new_and_an_old_disk() {
    let mut disk = disk(1);
    write(&mut disk, 1..3);
    disk.set_full(true);
    assert_eq!(disk.begin_sync(), None);
    disk.set_full(false);
    assert_eq!(sync(&mut disk), Some(Lsn(2)));
    let mut old = disk.snapshot();
    write(&mut disk, 3..5);
    sync(&mut disk);
    disk.crash();
    assert!(matches!(start(&mut disk), Past::Log { .. }));
    // One of the same life is told by nothing on it: the count of starts gives it away to the others.
    assert!(matches!(start(&mut old), Past::Log { .. }));
    assert_eq!((disk.starts(), old.starts()), (2, 2));
    disk.wipe();
    assert!(matches!(start(&mut disk), Past::Lost(_)));
    assert_eq!(disk.starts(), 1_700_000_000, "the time of day stands in for a lost count");
}
