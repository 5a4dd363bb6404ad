//! What a crash leaves of files and names.
#![allow(clippy::unwrap_used, reason = "a test may panic")]

use quorate_process::storage::io::{DiskErrorKind, DiskFile as _, DiskIo as _};
use quorate_sim::disk::files::{Remains, SECTOR, SimFile, SimFiles, Space};
use quorate_sim::rng::{Concern, Rng};

const LEN: usize = 4 * SECTOR;

fn file(files: &SimFiles) -> SimFile {
    let file = files.open("log/a").unwrap();
    file.write_at(&[1; LEN], 0).unwrap();
    file.sync().unwrap();
    files.sync_dir("log").unwrap();
    file
}

#[test]
fn what_was_synced_is_there_after_a_crash() {
    for seed in 0..50 {
        let (files, mut rng) = (SimFiles::default(), Rng::new(seed, Concern::Disk));
        file(&files);
        files.crash(&mut rng, if seed % 2 == 0 { Remains::Nothing } else { Remains::Any });
        assert_eq!(files.read("log/a").unwrap(), [1; LEN]);
    }
}

#[test]
fn of_what_was_not_synced_a_crash_leaves_some_sectors() {
    let (mut none, mut all, mut some, mut torn, mut reordered) = (0, 0, 0, 0, 0);
    for seed in 0..400 {
        let (files, mut rng) = (SimFiles::default(), Rng::new(seed, Concern::Disk));
        file(&files).write_at(&[2; LEN], 0).unwrap();
        files.crash(&mut rng, Remains::Any);
        let bytes = files.read("log/a").unwrap();
        let new: Vec<usize> =
            bytes.chunks(SECTOR).map(|s| s.iter().map(|b| usize::from(*b == 2)).sum()).collect();
        none += u32::from(new.iter().all(|n| *n == 0));
        all += u32::from(new.iter().all(|n| *n == SECTOR));
        some += u32::from(new.contains(&0) && new.contains(&SECTOR));
        torn += u32::from(new.contains(&(SECTOR / 2)));
        reordered += u32::from(new.windows(2).any(|pair| pair[0] < pair[1]));
        assert!(new.iter().all(|n| [0, SECTOR / 2, SECTOR].contains(n)), "{new:?}");
        assert!(new.iter().filter(|n| **n == SECTOR / 2).count() <= 1, "{new:?}");
    }
    assert!([none, all, some, torn, reordered].iter().all(|count| *count > 10));
}

/// The first sectors of a torn write are new, then half of one is, and the rest is as it was.
#[test]
fn a_torn_write_ends_within_a_sector() {
    let mut lengths = [0; 4];
    for seed in 0..100 {
        let (files, mut rng) = (SimFiles::default(), Rng::new(seed, Concern::Disk));
        file(&files).write_at(&[2; LEN], 0).unwrap();
        files.crash(&mut rng, Remains::Torn);
        let bytes = files.read("log/a").unwrap();
        let len = bytes.iter().take_while(|byte| **byte == 2).count();
        assert!(bytes[len..].iter().all(|byte| *byte == 1));
        assert_eq!(len % SECTOR, SECTOR / 2);
        lengths[len / SECTOR] += 1;
    }
    assert!(lengths.iter().all(|count| *count > 10), "{lengths:?}");
}

/// After a failed sync nobody knows what is durable, and the next one does not say that all is well.
#[test]
fn a_failed_sync_makes_nothing_durable() {
    let (files, mut rng) = (SimFiles::default(), Rng::new(1, Concern::Disk));
    let file = file(&files);
    file.write_at(&[2; LEN], 0).unwrap();
    files.set_failing(true);
    assert_eq!(file.sync().unwrap_err().kind, DiskErrorKind::Failed);
    files.crash(&mut rng, Remains::Nothing);
    assert_eq!(files.read("log/a").unwrap(), [1; LEN]);
}

#[test]
fn a_crash_that_loses_all_leaves_what_was_durable() {
    let (files, mut rng) = (SimFiles::default(), Rng::new(1, Concern::Disk));
    let file = file(&files);
    file.write_at(&[2; 2 * LEN], 0).unwrap();
    files.open("log/b").unwrap();
    files.rename("log/a", "log/c").unwrap();
    files.crash(&mut rng, Remains::Nothing);
    assert_eq!(files.list("log").unwrap(), ["a"]);
    assert_eq!(files.read("log/a").unwrap(), [1; LEN]);
}

#[test]
fn changes_of_names_survive_in_their_order() {
    let mut counts = [0; 3];
    for seed in 0..200 {
        let (files, mut rng) = (SimFiles::default(), Rng::new(seed, Concern::Disk));
        file(&files);
        files.open("log/b").unwrap();
        files.remove("log/a").unwrap();
        files.crash(&mut rng, Remains::Any);
        let names = files.list("log").unwrap();
        let at = [&["a"][..], &["a", "b"], &["b"]].iter().position(|possible| names == *possible);
        counts[at.unwrap()] += 1;
    }
    assert!(counts.iter().all(|count| *count > 20), "{counts:?}");
    // A sync of a directory does not sync another one.
    let (files, mut rng) = (SimFiles::default(), Rng::new(1, Concern::Disk));
    files.open("log/a").unwrap();
    files.open("checkpoint/pages").unwrap();
    files.sync_dir("checkpoint").unwrap();
    files.crash(&mut rng, Remains::Nothing);
    assert!(!files.exists("log/a") && files.exists("checkpoint/pages"));
}

#[test]
fn a_full_disk_refuses_growth_only_and_a_fuse_everything() {
    let files = SimFiles::default();
    let file = file(&files);
    files.set_space(Space::NoneToGrow);
    assert!(file.write_at(&[2; 10], LEN as u64).unwrap_err().is_full());
    assert!(file.allocate(2 * LEN as u64).unwrap_err().is_full());
    assert!(files.open("log/b").unwrap_err().is_full());
    file.write_at(&[2; 10], 0).unwrap();
    files.set_space(Space::None);
    assert!(file.write_at(&[2; 10], 0).unwrap_err().is_full());
    files.set_space(Space::Enough);
    file.write_at(&[2; 10], LEN as u64).unwrap();
    files.set_fuse(1);
    file.sync().unwrap();
    assert_eq!(file.sync().unwrap_err().kind, DiskErrorKind::Failed);
    assert_eq!(files.remove("log/a").unwrap_err().kind, DiskErrorKind::Failed);
    files.crash(&mut Rng::new(1, Concern::Disk), Remains::Nothing);
    assert_eq!(files.read("log/a").unwrap().len(), LEN + 10, "it was synced before the power went");
}

#[test]
fn a_copy_is_another_disk_and_damage_is_where_something_was_written() {
    let files = SimFiles::default();
    let file = file(&files);
    let copy = files.copy();
    file.write_at(&[3; 8], 512).unwrap();
    assert_eq!(copy.read("log/a").unwrap(), [1; LEN]);
    assert_eq!(files.written("a"), [("log/a".to_owned(), 0, LEN)], "the last write is left out");
    files.spoil("log/a", |bytes| bytes[0] = 9);
    assert_eq!(files.read("log/a").unwrap()[0], 9);
    files.wipe();
    assert!(files.list("log").unwrap().is_empty());
}
