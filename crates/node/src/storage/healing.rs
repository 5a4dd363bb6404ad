//! A replica whose directory was damaged, among three that are well: it never contradicts a vote that it
//! gave before, and it comes back (H3 to H5).
//!
//! A sample of sectors here; `QUORATE_SECTORS=1` tries each in every way, `QUORATE_SECTORS=10` every tenth.

use std::time::Instant;

use super::damage::{FAULTS, SECTOR, damaged};
use super::world::World;
use super::*;

/// How the victim starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Found {
    /// With its memory and its state.
    All,
    /// With its memory; the state comes from the others, at least in part.
    Votes,
    /// Without its memory.
    Nothing,
}

/// One run: while the victim is down a sector of its files is damaged, the `choose`n one of those that hold
/// anything. Says what the victim had left, and how many sectors there were. None: that damage changes
/// nothing.
fn run(victim: usize, choose: impl Fn(usize) -> usize, fault: usize, clean: bool) -> (Option<Found>, usize) {
    let mut world = World::new(victim);
    (1..=24).for_each(|number| world.put(number));
    let early = world.files();
    (25..=30).for_each(|number| world.put(number));
    let files = world.stop(clean);
    let sectors: Vec<(&PathBuf, usize)> = files
        .iter()
        .flat_map(|(path, bytes)| (0..bytes.len()).step_by(SECTOR).map(move |at| (path, at)))
        .filter(|(path, at)| files[*path][*at..].iter().take(SECTOR).any(|byte| *byte != 0))
        .collect();
    let Some((path, at)) = sectors.get(choose(sectors.len())) else { return (None, sectors.len()) };
    let Some(bad) = damaged(&files[*path], early.get(*path), *at, fault) else {
        return (None, sectors.len());
    };
    fs::write(path, bad).unwrap();
    // The others go on meanwhile.
    (31..=33).for_each(|number| world.put(number));
    let (remembers, has_state) = world.start(victim);
    world.heal(&format!("{path:?} at {at}, fault {fault}"));
    let found = match (remembers, has_state) {
        (true, true) => Found::All,
        (true, false) => Found::Votes,
        (false, _) => Found::Nothing,
    };
    (Some(found), sectors.len())
}

#[test]
fn a_damaged_replica_contradicts_nobody_and_is_healed() {
    let step: Option<usize> = std::env::var("QUORATE_SECTORS").ok().and_then(|step| step.parse().ok());
    for (victim, clean) in [(0, false), (1, true)] {
        let (start, mut counts) = (Instant::now(), std::collections::BTreeMap::new());
        let mut note = |found: Option<Found>| *counts.entry(found).or_insert(0_u32) += 1;
        if let Some(step) = step {
            let (mut at, mut count) = (0, 1);
            while at < count {
                for fault in 0..FAULTS {
                    let (found, of) = run(victim, |_| at, fault, clean);
                    note(found);
                    count = of;
                }
                at += step.max(1);
            }
        } else {
            (0..48).for_each(|part| note(run(victim, |count| part * count / 48, part % FAULTS, clean).0));
        }
        println!("victim r{victim}: {counts:?} in {:.1} s", start.elapsed().as_secs_f64());
        let [all, votes, nothing] = [Found::All, Found::Votes, Found::Nothing]
            .map(|found| counts.get(&Some(found)).copied().unwrap_or(0));
        assert!(all > 0 && votes > 0 && nothing > 0, "{counts:?}");
    }
}

/// A replica that was away while 1 % of its pages changed builds on what its disk has: less than 3 % of the
/// state is brought (H1). One that has lost its log, but not its state, the same.
#[test]
fn what_the_disk_has_is_not_fetched() {
    for lost in [false, true] {
        let mut world = World::new(2);
        (0..800).for_each(|number| world.put_value(number, &format!("{number:05}"), &[7; 4000]));
        world.stop(true);
        if lost {
            fs::remove_file(world.path(2).join("log/starts")).unwrap();
        }
        // More than the window: batches alone do not bring it back.
        (0..40).for_each(|number| world.put_value(number, &format!("{:05}", number % 8 * 100), &[8; 4000]));
        assert_eq!(world.start(2), (!lost, !lost));
        world.heal("away for a while");
        let fetched = world.replicas[2].as_ref().unwrap().executor().fetched();
        println!("{fetched} of more than 800 pages brought");
        assert!(fetched > 0 && fetched < 24, "{fetched} pages brought");
    }
}
