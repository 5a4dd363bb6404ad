//! A replica whose state is larger than its memory limit, among three that keep everything: its answers equal theirs
//! under all faults.

use std::fs;
use std::os::unix::fs::FileExt;

use quorate_process::{Pages, Store as _};

use super::world::World;
use super::*;

const VICTIM: usize = 1;
/// Maximum number of the victim's pages in memory.
const LIMIT: usize = 24;
/// Additional pages beyond one and a half times that: those written between two stable checkpoints.
const SLACK: usize = 120;
/// More pages than a transfer brings before the disk has taken any.
const KEYS: u64 = 500;

fn key(number: u64) -> String {
    format!("{:05}", number % KEYS)
}

fn value(number: u64) -> Vec<u8> {
    vec![u8::try_from(number % 251).unwrap(); 4000]
}

/// Stores values number `numbers`, each of about a page.
fn fill(world: &mut World, numbers: std::ops::Range<u64>) {
    for number in numbers {
        world.put_value(number, &key(number), &value(number));
        check_memory(world);
    }
}

/// Returns a world in which most of the victim's state is only on disk.
fn filled() -> World {
    let mut world = World::with_limit(VICTIM, LIMIT);
    fill(&mut world, 0..KEYS);
    settle(&mut world);
    world
}

fn pages(world: &World) -> Pages {
    world.replicas[VICTIM].as_ref().unwrap().executor().store().pages()
}

fn check_memory(world: &World) {
    let executor = world.replicas[VICTIM].as_ref().unwrap().executor();
    let (pages, others) = (executor.store().pages(), executor.pages_of_checkpoints());
    let most = LIMIT + LIMIT / 2 + SLACK;
    assert!(pages.in_memory + others <= most, "{pages:?} and {others} of checkpoints");
}

/// Runs until most of the state is only on disk.
fn settle(world: &mut World) {
    world.wait_until_well("settling");
    for number in 0..400 {
        let Pages { in_memory, dirty, .. } = pages(world);
        if in_memory <= LIMIT && dirty <= LIMIT / 2 {
            return;
        }
        world.put(number);
        std::thread::yield_now();
    }
    panic!("it does not come to rest: {:?}", pages(world));
}

/// Flips a byte of each page on the disk, or restores it.
fn flip(world: &World) {
    let path = world.path(VICTIM).join("checkpoint/pages");
    let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
    for at in (77..file.metadata().unwrap().len()).step_by(4096) {
        let mut byte = [0];
        file.read_exact_at(&mut byte, at).unwrap();
        file.write_all_at(&[byte[0] ^ 4], at).unwrap();
    }
}

/// It fills, changes, is killed, is stopped, loses its disk: memory never exceeds the limit, and its state always
/// equals the others'.
#[test]
fn a_state_larger_than_memory_is_the_state() {
    let mut world = filled();
    let before = pages(&world);
    assert!(before.on_disk > 100, "{before:?}");
    fill(&mut world, KEYS..KEYS + 60);
    (0..KEYS)
        .step_by(7)
        .for_each(|n| world.check_value(n, &key(n), &value(if n < 60 { n + KEYS } else { n })));
    let after = pages(&world);
    assert!(after.reads > before.reads + 20 && after.faults == 0, "{before:?}, {after:?}");
    world.wait_until_well("filled");
    world.check_content();
    for clean in [false, true] {
        world.stop(clean);
        (0..20).for_each(|number| world.put(number));
        assert_eq!(world.start(VICTIM), (true, true));
        check_memory(&world);
        fill(&mut world, 2 * KEYS..2 * KEYS + 30);
        world.wait_until_well("started");
        world.check_content();
    }
    world.stop(false);
    for sub in ["log", "checkpoint"] {
        fs::remove_dir_all(world.path(VICTIM).join(sub)).unwrap();
        fs::create_dir(world.path(VICTIM).join(sub)).unwrap();
    }
    assert_eq!(world.start(VICTIM), (false, false));
    world.heal("without a disk");
    assert!(world.staged > 30, "of what came the disk took {} pages", world.staged);
    settle(&mut world);
    world.check_content();
    assert!(pages(&world).on_disk > 100, "{:?}", pages(&world));
    fill(&mut world, 3 * KEYS..4 * KEYS);
    settle(&mut world);
    world.check_content();
    world.stop(true);
    world.check_disk();
}

/// Every page on its disk is damaged while it runs: the pages that are needed are fetched from the others one by one,
/// and no answer is wrong.
#[test]
fn pages_that_are_damaged_under_a_replica_come_from_the_others() {
    let mut world = filled();
    flip(&world);
    (0..KEYS).step_by(3).for_each(|n| world.check_value(n, &key(n), &value(n)));
    world.wait_until_well("damaged");
    let drive = world.replicas[VICTIM].as_ref().unwrap();
    let (pages, brought) = (pages(&world), drive.executor().fetched());
    assert!(pages.faults > 30 && brought > 30, "{pages:?}, {brought} brought");
    assert!(drive.counters().rejected["page-unreadable"] > 30);
    // Fetched pages are written again, to other slots, and can be read there. A put does not read the value that it replaces
    // (L85), so a checkpoint from before the last key is replaced still has damaged pages. The last puts bring a later one.
    fill(&mut world, KEYS..2 * KEYS + 8);
    settle(&mut world);
    world.check_content();
    world.stop(false);
    // Except a page or two that were in memory all the time and not missed: a start finds them.
    let mut loaded = world.executor(VICTIM);
    if world.open(VICTIM).0.load(&mut loaded).unwrap().is_none() {
        assert!(loaded.pages_kept() > usize::try_from(KEYS).unwrap(), "{} kept", loaded.pages_kept());
    }
    assert!(world.start(VICTIM).0, "it has its log");
    world.heal("damaged and started");
    world.wait_for_image("damaged and started");
    settle(&mut world);
    world.check_content();
    world.stop(true);
    world.check_disk();
}

/// L92: pages of a fetched state are damaged on the disk before they are part of an image. Each is fetched again, and
/// the image is whole.
#[test]
fn l92_an_image_lacks_no_page_that_could_not_be_read() {
    let mut world = filled();
    world.stop(false);
    for sub in ["log", "checkpoint"] {
        fs::remove_dir_all(world.path(VICTIM).join(sub)).unwrap();
        fs::create_dir(world.path(VICTIM).join(sub)).unwrap();
    }
    assert_eq!(world.start(VICTIM), (false, false));
    let mut number = 0;
    let is_installed = |world: &World| {
        let drive = world.replicas[VICTIM].as_ref().unwrap();
        drive.executor().last_executed() > SeqNum(0) && !drive.executor().is_fetching()
    };
    while !is_installed(&world) {
        number += 1;
        assert!(number < 20_000, "no state comes");
        world.turn();
    }
    assert!(world.staged > 30 && !world.replicas[VICTIM].as_ref().unwrap().disk().has_image());
    let path = world.path(VICTIM).join("checkpoint/pages");
    let good = fs::read(&path).unwrap();
    flip(&world);
    let bad = fs::read(&path).unwrap();
    world.heal("damaged before the image");
    world.wait_for_image("damaged before the image");
    assert!(pages(&world).faults > 5, "{:?}", pages(&world));
    // What had been copied before is sealed as it was.
    world.stop(false);
    let mut now = fs::read(&path).unwrap();
    for ((now, bad), good) in now.chunks_mut(4096).zip(bad.chunks(4096)).zip(good.chunks(4096)) {
        if now == bad {
            now.copy_from_slice(good);
        }
    }
    fs::write(&path, now).unwrap();
    world.check_disk();
    assert_eq!(world.start(VICTIM), (true, true));
    world.check_content();
}

/// Its pages are damaged, and the others have advanced and hold none of its checkpoints: the missing pages are part of the state
/// that it fetches.
#[test]
fn a_page_that_nobody_has_any_more_comes_with_the_state() {
    let mut world = filled();
    flip(&world);
    world.starves = true;
    let stuck_at = world.replicas[VICTIM].as_ref().unwrap().executor().last_executed();
    for number in 0..40 {
        world.put_value(number, &key(number * 4), &value(number * 4));
    }
    let executor = world.replicas[VICTIM].as_ref().unwrap().executor();
    assert!(executor.last_executed().0 < stuck_at.0 + 40 && pages(&world).faults > 0);
    world.starves = false;
    world.wait_until_well("starved");
    flip(&world);
    fill(&mut world, 0..KEYS);
    world.wait_until_well("starved");
    world.check_content();
}

/// A disk that cannot be read for a while only costs time.
#[test]
fn a_disk_that_cannot_be_read_is_no_state_that_is_lost() {
    let mut world = filled();
    files::fault::set(&world.path(VICTIM), Some(files::fault::Fault::Read));
    (0..KEYS).step_by(5).for_each(|n| world.check_value(n, &key(n), &value(n)));
    assert!(pages(&world).faults > 10, "{:?}", pages(&world));
    files::fault::set(&world.path(VICTIM), None);
    world.wait_until_well("not readable");
    world.check_content();
}

/// Written pages must stay in memory while the disk is full: the replica waits, the others continue, and it catches
/// up when there is space.
#[test]
fn a_disk_without_room_for_the_state_makes_a_replica_wait() {
    let mut world = filled();
    let checkpoint = world.path(VICTIM).join("checkpoint");
    files::fault::set(&checkpoint, Some(files::fault::Fault::Full));
    let executed = |world: &World, i: usize| world.replicas[i].as_ref().unwrap().executor().last_executed();
    let (mut most, mut behind) = (0, 0);
    for number in KEYS..2 * KEYS {
        world.put_value(number, &key(number), &value(number));
        most = most.max(pages(&world).in_memory);
        behind = behind.max(executed(&world, 0).0 - executed(&world, VICTIM).0);
    }
    assert!(most <= LIMIT + LIMIT / 2 + SLACK && behind > KEYS / 2, "{most} in memory, {behind} behind");
    files::fault::set(&checkpoint, None);
    world.replicas[VICTIM].as_ref().unwrap().disk().wait_until_quiet();
    world.heal("no room for the state");
    world.wait_for_image("no room for the state");
    settle(&mut world);
    world.check_content();
    world.stop(true);
    world.check_disk();
}
