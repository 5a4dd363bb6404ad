//! A disk that fails under a running replica: everything that it has sent is on the disk (H5).

use std::time::Instant;

use quorate_pbft::record::Record;
use quorate_wire::Kind;

use super::files::fault::{Fault, set};
use super::world::{SEGMENT, World};
use super::*;
use quorate_pbft::step::Lsn;
use quorate_process::storage::queue::{LogJob, put_record};

const VICTIM: usize = 1;

/// Checks that every vote of the victim is in its log, or below its state.
fn check_votes(world: &mut World) {
    world.stop_as_killed();
    let (mut storage, past) = world.open(VICTIM);
    let Past::Log { records, .. } = past else { panic!("{past:?}") };
    let mut executor = world.executor(VICTIM);
    let state = storage.load(&mut executor).unwrap().map_or(SeqNum(0), |(seq, _)| seq);
    let (mut prepares, mut commits) = (Vec::new(), Vec::new());
    for record in &records {
        match Record::decode(record).unwrap() {
            Record::PrePrepared { view, seq, .. } => prepares.push((view, seq)),
            Record::Prepared { view, seq, .. } | Record::PreparedAgain { view, seq, .. } => {
                commits.push((view, seq));
            }
            Record::ViewChange { .. }
            | Record::NewView { .. }
            | Record::Batch { .. }
            | Record::Floor { .. }
            | Record::Stable { .. }
            | Record::Seen { .. }
            | Record::Committed { .. } => {}
        }
    }
    assert!(!prepares.is_empty() && !commits.is_empty());
    for (kind, view, seq) in world.votes.keys().filter(|(_, _, seq)| *seq > state) {
        let log = if *kind == Kind::Commit.to_wire() { &commits } else { &prepares };
        assert!(log.contains(&(*view, *seq)), "a vote of kind {kind} for {} is not on the disk", seq.0);
    }
}

fn votes(world: &World) -> usize {
    world.votes.len()
}

/// GC-4: while the disk is full nothing is acknowledged; then it continues.
#[test]
fn a_full_disk_silences_a_replica_until_there_is_room() {
    let mut world = World::new(VICTIM);
    (1..=10).for_each(|number| world.put(number));
    set(&world.path(VICTIM), Some(Fault::Full));
    // Records that were passed before may still be written.
    (11..=12).for_each(|number| world.put(number));
    assert!(world.told(VICTIM).is_full());
    let before = votes(&world);
    (13..=20).for_each(|number| world.put(number));
    assert_eq!(votes(&world), before, "it votes without a record");
    assert_eq!(world.told(VICTIM).failure(), None);
    assert!(world.waits_for_disk(VICTIM));
    set(&world.path(VICTIM), None);
    let until = Instant::now() + std::time::Duration::from_secs(60);
    while world.told(VICTIM).is_full() {
        assert!(Instant::now() < until, "it does not notice that there is room");
        std::thread::yield_now();
    }
    world.heal("a full disk");
    let until = Instant::now() + std::time::Duration::from_secs(60);
    while world.waits_for_disk(VICTIM) {
        assert!(Instant::now() < until, "it waits for its disk without end");
        std::thread::yield_now();
    }
    assert!(votes(&world) > before, "it does not vote again");
    check_votes(&mut world);
}

/// N3: a log that has filled the disk is cut although there is no space for another segment, and goes on in one that it
/// has cut off.
#[test]
fn n3_a_log_that_has_filled_the_disk_is_cut() {
    let dir = crate::testing::TempDir::new("full-log");
    let owner = Owner { cluster: ClusterId([1; 32]), replica: ReplicaId(0) };
    create(dir.path(), owner.cluster, owner.replica).unwrap();
    let (storage, _) = Storage::open_with(dir.path(), owner, Durability::Sync, 1, SEGMENT).unwrap();
    let executor = World::new(VICTIM).executor(VICTIM);
    let mut log = storage.opened.begin(&executor, 7).unwrap().unwrap().log;
    let mut records = Vec::new();
    put_record(&[1; 3000], &mut records);
    let job = LogJob::Commit { records, last: Some(Lsn(1)) };
    while log.bytes() < 3 * SEGMENT {
        log.run(&job).unwrap();
    }
    set(dir.path(), Some(Fault::Little(SEGMENT as u64)));
    while log.run(&job).is_ok() {}
    assert!(log.run(&job).unwrap_err().is_full());
    log.run(&LogJob::Cut(SeqNum(1))).unwrap();
    log.run(&job).unwrap();
    set(dir.path(), None);
}

/// L96: the others order much more than may wait for a full disk. The replica falls behind, and does not end.
#[test]
fn l96_records_do_not_pile_up_before_a_full_disk() {
    let mut world = World::new(VICTIM);
    (1..=10).for_each(|number| world.put(number));
    set(&world.path(VICTIM), Some(Fault::Full));
    for number in 11..1000 {
        world.put_value(number, &format!("key {}", number % 7), &[7; 4000]);
        assert_eq!(world.told(VICTIM).failure(), None, "after {number}");
    }
    let executed = |world: &World, i: usize| world.replicas[i].as_ref().unwrap().executor().last_executed().0;
    assert!(executed(&world, 0) > executed(&world, VICTIM) + 500, "{}", executed(&world, VICTIM));
    let before = votes(&world);
    set(&world.path(VICTIM), None);
    world.heal("much for a full disk");
    for number in 1000..1200 {
        if votes(&world) > before {
            break;
        }
        world.put(number);
    }
    assert!(votes(&world) > before, "it does not vote again");
    world.check_content();
}

/// L124: batches that the others tell the replica of, and that it does not execute, do not pile up either.
#[test]
fn l124_batches_to_catch_up_with_do_not_pile_up_before_a_full_disk() {
    let mut world = World::new(VICTIM);
    (1..=10).for_each(|number| world.put(number));
    set(&world.path(VICTIM), Some(Fault::Full));
    let long = vec![7; 200_000];
    for number in 11..60 {
        world.put_value(number, &format!("key {}", number % 7), &long);
        // Answers to its STATUS come.
        (0..100).for_each(|_| world.turn());
        assert_eq!(world.told(VICTIM).failure(), None, "after {number}");
    }
    set(&world.path(VICTIM), None);
    world.heal("long batches for a full disk");
    world.check_content();
}

/// GC-4: a sync that fails is the end: what the disk holds is not known, and nothing more is promised.
#[test]
fn a_failed_sync_or_write_ends_a_replica() {
    for fault in [Fault::Sync, Fault::Write] {
        let mut world = World::new(VICTIM);
        (1..=10).for_each(|number| world.put(number));
        set(&world.path(VICTIM), Some(fault));
        world.put(11);
        let trouble = world.told(VICTIM).failure().unwrap();
        assert_eq!(trouble.kind, crate::error::NodeErrorKind::Disk, "{trouble}");
        let before = votes(&world);
        (12..=20).for_each(|number| world.put(number));
        assert_eq!(votes(&world), before, "{fault:?}: it votes without a record");
        set(&world.path(VICTIM), None);
        check_votes(&mut world);
        // A new disk, or the old one after it is healed.
        world.start(VICTIM);
        world.heal("a failed sync");
    }
}
