//! What a disk keeps, and what it does not.

use super::*;

fn disk(seed: u64) -> Disk<()> {
    let mut disk = Disk::new(seed, 0, Pace::FAST);
    assert!(matches!(disk.read(), Found::Empty));
    assert_eq!(disk.start(0), 1);
    disk
}

fn write(disk: &mut Disk<()>, range: core::ops::Range<u8>) {
    for i in range {
        disk.append(Lsn(u64::from(i)), &[i; 24]);
    }
}

fn sync(disk: &mut Disk<()>) -> Option<Lsn> {
    disk.begin_sync()?;
    disk.end_sync()
}

/// H3: whatever a crash leaves of the tail, the promised records are there and it is no amnesia.
#[test]
fn a_torn_tail_is_cut_and_nothing_promised_is_lost() {
    let mut cuts = 0;
    for seed in 0..200 {
        let mut disk = disk(seed);
        write(&mut disk, 1..6);
        assert_eq!(sync(&mut disk), Some(Lsn(5)));
        write(&mut disk, 6..11);
        disk.begin_sync();
        disk.crash();
        let Found::Log { records, cut } = disk.read() else { panic!("seed {seed}: amnesia") };
        assert!((5..=10).contains(&records.len()), "seed {seed}: {} records", records.len());
        assert!(records.iter().zip(1..).all(|(r, i)| *r == [i; 24]));
        cuts += u32::from(cut);
        // It goes on where it was cut.
        assert_eq!(disk.start(0), 2);
        write(&mut disk, 1..3);
        assert_eq!(sync(&mut disk), Some(Lsn(2)));
        disk.crash();
        let Found::Log { records: more, cut: false } = disk.read() else { panic!("seed {seed}") };
        assert_eq!(more.len(), records.len() + 2);
    }
    assert!(cuts > 20, "{cuts} of 200 crashes left a torn tail");
}

/// H4, H5: damage to something that later records knew to be durable is never taken for a torn tail.
#[test]
fn damage_of_what_was_promised_is_noticed() {
    for how in Damage::ALL {
        for seed in 0..100 {
            let mut disk = disk(seed);
            write(&mut disk, 1..6);
            sync(&mut disk);
            disk.keep_image(SeqNum(4), Digest::ZERO, ());
            if seed % 2 == 0 {
                disk.trim(|record| record[0] == 2 || record[0] == 5);
            }
            write(&mut disk, 6..9);
            assert!(disk.damage(how));
            disk.crash();
            assert!(matches!(disk.read(), Found::Damaged), "{how:?} seed {seed}");
        }
    }
}

/// GC-1, GC-2: a sync covers what was there when it began, and a full disk finishes none.
#[test]
fn a_sync_covers_what_was_written_before_it() {
    let mut disk = disk(1);
    write(&mut disk, 1..3);
    assert!(disk.begin_sync().is_some());
    write(&mut disk, 3..4);
    assert!(disk.begin_sync().is_none(), "one sync at a time");
    assert_eq!(disk.end_sync(), Some(Lsn(2)));
    disk.set_full(true);
    assert!(disk.begin_sync().is_none());
    disk.set_full(false);
    assert_eq!(sync(&mut disk), Some(Lsn(3)));
    assert!(disk.begin_sync().is_none(), "nothing is left to sync");
}

#[test]
fn trimming_keeps_what_is_not_durable_yet() {
    let mut disk = disk(1);
    write(&mut disk, 1..4);
    sync(&mut disk);
    write(&mut disk, 4..5);
    disk.trim(|_| true);
    sync(&mut disk);
    let Found::Log { records, .. } = disk.read() else { panic!() };
    assert_eq!(records, [[4; 24]]);
}

/// A replica that crashes before it has rejoined has not got its memory back.
#[test]
fn what_is_written_while_rejoining_is_no_memory() {
    let mut disk = disk(1);
    write(&mut disk, 1..4);
    sync(&mut disk);
    disk.forget();
    write(&mut disk, 4..6);
    sync(&mut disk);
    assert!(matches!(disk.read(), Found::Damaged));
    disk.rejoined();
    let Found::Log { records, .. } = disk.read() else { panic!() };
    assert_eq!(records, [[4; 24], [5; 24]]);
}

/// H7: the disk as it was is a disk like any other, but its count of starts is too low.
#[test]
fn an_old_disk_put_back_starts_with_an_old_incarnation() {
    let mut disk = disk(1);
    let old = disk.clone();
    assert_eq!(disk.start(0), 2);
    let mut disk = old;
    assert_eq!(disk.start(0), 2);
}
