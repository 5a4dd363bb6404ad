//! A replica with a damaged directory, among three healthy ones: it never contradicts its earlier votes, and it
//! recovers (H3 to H5).
//!
//! By default only a sample of sectors is tested. `QUORATE_SECTORS=1` tries each one in every way,
//! `QUORATE_SECTORS=10` every tenth, also in the tests with a directory of 4 MiB, which print their progress.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::FileExt;
use std::time::Instant;

use super::damage::{Content, FAULTS, SECTOR, damaged, files};
use super::world::World;
use super::*;

/// How the victim starts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum StartedWith {
    /// With its log and its state.
    All,
    /// With its log; the state comes from the others, at least in part.
    Votes,
    /// Without its log.
    Nothing,
}

/// Returns the sectors that are not empty, each with its file.
fn sectors(files: &Content) -> Vec<(&PathBuf, usize)> {
    let all =
        files.iter().flat_map(|(path, bytes)| (0..bytes.len()).step_by(SECTOR).map(move |at| (path, at)));
    all.filter(|(path, at)| files[*path][*at..].iter().take(SECTOR).any(|byte| *byte != 0)).collect()
}

/// One run: while the victim is down, the `choose`n non-empty sector of its files is damaged. Returns what the victim
/// had left, and the number of sectors. None: that damage changes nothing.
fn run(
    victim: usize,
    choose: impl Fn(usize) -> usize,
    fault: usize,
    clean: bool,
) -> (Option<StartedWith>, usize) {
    let mut world = World::new(victim);
    (1..=24).for_each(|number| world.put(number));
    let early = world.files();
    (25..=30).for_each(|number| world.put(number));
    let files = world.stop(clean);
    let sectors = sectors(&files);
    let Some((path, at)) = sectors.get(choose(sectors.len())) else { return (None, sectors.len()) };
    let Some(bad) = damaged(&files[*path], early.get(*path), *at, fault) else {
        return (None, sectors.len());
    };
    fs::write(path, bad).unwrap();
    // The others continue in the meantime.
    (31..=33).for_each(|number| world.put(number));
    let (remembers, has_state) = world.start(victim);
    world.heal(&format!("{path:?} at {at}, fault {fault}"));
    let found = match (remembers, has_state) {
        (true, true) => StartedWith::All,
        (true, false) => StartedWith::Votes,
        (false, _) => StartedWith::Nothing,
    };
    (Some(found), sectors.len())
}

#[test]
fn a_damaged_replica_contradicts_nobody_and_is_healed() {
    let step = number("QUORATE_SECTORS");
    for (victim, clean) in [(0, false), (1, true)] {
        let (start, mut counts) = (Instant::now(), BTreeMap::new());
        let mut note = |found: Option<StartedWith>| *counts.entry(found).or_insert(0_u32) += 1;
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
        let [all, votes, nothing] = [StartedWith::All, StartedWith::Votes, StartedWith::Nothing]
            .map(|found| counts.get(&Some(found)).copied().unwrap_or(0));
        assert!(all > 0 && votes > 0 && nothing > 0, "{counts:?}");
    }
}

/// The number in a variable of the environment.
fn number(name: &str) -> Option<usize> {
    std::env::var(name).ok().and_then(|number| number.parse().ok())
}

/// The kinds of files in a replica's directory, in the order in which their sectors are tried.
const PARTS: [&str; 4] = ["starts", "log", "index", "pages"];
const BLOCK: usize = 4096;
/// More pages than exist.
const ALL: usize = 1 << 18;

/// Returns the files of one kind with their lengths.
fn files_of(part: &str, dir: &Path) -> Vec<(PathBuf, usize)> {
    let sub = if matches!(part, "starts" | "log") { "log" } else { "checkpoint" };
    let is_of = |path: &Path| match path.file_name().and_then(|name| name.to_str()) {
        Some("pages") => part == "pages",
        Some("starts") => part == "starts",
        _ => part == "index" || part == "log",
    };
    let of_it = files(&dir.join(sub)).into_iter().filter(|path| is_of(path));
    let len = |path: &Path| usize::try_from(fs::metadata(path).unwrap().len()).unwrap();
    let mut all: Vec<_> = of_it.map(|path| (len(&path), path)).map(|(len, path)| (path, len)).collect();
    all.sort();
    all
}

/// Returns the range of the blocks around a sector, which a fault needs.
fn around(at: usize, len: usize) -> (usize, usize) {
    let from = (at / BLOCK * BLOCK).min(len.saturating_sub(3 * BLOCK).next_multiple_of(BLOCK));
    (from, (from + 3 * BLOCK).min(len))
}

/// Value `number` of a version of the state, different from all others.
fn value(number: u64, version: u64) -> Vec<u8> {
    let seed = (number << 8 | version).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (0..500).flat_map(|at: u64| (seed ^ at).wrapping_mul(0xd6e8_feb8_6659_fd93).to_le_bytes()).collect()
}

/// One cluster, and a replica `victim` of it that has a directory.
struct Patient {
    world: World,
    victim: usize,
    /// Its values.
    values: u64,
    version: u64,
    clean: bool,
    /// The content of its disk with another version of the state: every page in the same slot, with other content.
    old_state: Content,
    /// While it is stopped: its log some moments earlier.
    stopped: Option<Content>,
    runs: usize,
}

/// The outcome of a damage.
enum FaultOutcome {
    /// There is no such sector.
    NoSector,
    /// The content is unchanged.
    Same,
    Healed(StartedWith),
}

impl Patient {
    fn new(victim: usize, values: u64, clean: bool, pages_max: usize) -> Self {
        let world = World::with_limit(victim, pages_max);
        let (version, old_state, stopped, runs) = (1, Content::new(), None, 0);
        let mut patient = Self { world, victim, values, version, clean, old_state, stopped, runs };
        patient.fill();
        patient.old_state = patient.world.files();
        patient.version = 2;
        patient.fill();
        patient
    }

    /// Writes all values, and has them written to the disk page by page.
    fn fill(&mut self) {
        for number in 0..self.values {
            self.world.put_value(number, &format!("{number:05}"), &value(number, self.version));
        }
        self.world.stop(true);
        fs::remove_file(self.world.path(self.victim).join("checkpoint/pages")).unwrap();
        self.world.start(self.victim);
        self.world.wait_until_well("without pages");
        self.world.wait_for_image("without pages");
    }

    /// Stops it without damage.
    fn stop(&mut self) -> Content {
        let before = self.world.log_files();
        (25..=28).for_each(|number| self.world.put(number));
        self.world.halt(self.clean);
        before
    }

    /// Stops it, damages the `at`th sector of a part of its directory, starts it among the others, and waits until it
    /// is healed.
    fn survives(&mut self, part: &str, at: usize, fault: usize) -> FaultOutcome {
        let before = self.stopped.take().unwrap_or_else(|| self.stop());
        let files = files_of(part, &self.world.path(self.victim));
        let mut sectors = files
            .iter()
            .flat_map(|(path, len)| (0..*len).step_by(SECTOR).map(move |place| (path, *len, place)));
        let Some((path, len, place)) = sectors.nth(at) else {
            self.stopped = Some(before);
            return FaultOutcome::NoSector;
        };
        let (from, to) = around(place, len);
        let early = if matches!(part, "index" | "pages") { &self.old_state } else { &before };
        let early = early.get(path).and_then(|early| early.get(from..to)).map(<[u8]>::to_vec);
        let mut good = vec![0; to - from];
        let file = fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
        file.read_exact_at(&mut good, u64::try_from(from).unwrap()).unwrap();
        let Some(bad) = damaged(&good, early.as_ref(), place - from, fault) else {
            self.stopped = Some(before);
            return FaultOutcome::Same;
        };
        let is_looked_at = self.runs.is_multiple_of(16);
        if is_looked_at {
            self.world.check_disk();
        }
        file.write_all_at(&bad, u64::try_from(from).unwrap()).unwrap();
        let (what, world) = (format!("{path:?} at {place}, fault {fault}"), &mut self.world);
        // The others continue in the meantime.
        (31..=32).for_each(|number| world.put(number));
        let (remembers, has_state) = world.start(self.victim);
        let found = match (remembers, has_state) {
            (true, true) => StartedWith::All,
            (true, false) => StartedWith::Votes,
            (false, _) => StartedWith::Nothing,
        };
        if found == StartedWith::All {
            world.check_content();
        }
        (34..=37).for_each(|number| world.put(number));
        world.wait_until_well(&what);
        // Only damaged pages and those that have changed since are fetched.
        let brought = world.replicas[self.victim].as_ref().unwrap().executor().fetched();
        assert!(part != "pages" || brought < 40, "{what}: {brought} pages brought");
        world.wait_for_image(&what);
        if is_looked_at {
            world.check_content();
        }
        let number = u64::try_from(at).unwrap() % self.values;
        world.check_value(number, &format!("{number:05}"), &value(number, self.version));
        world.forget_old();
        self.runs += 1;
        FaultOutcome::Healed(found)
    }
}

/// The outcomes of the damages to one part: the number of each; the number of damages without a change; and the
/// number of sectors.
#[derive(Default)]
struct Count {
    found: BTreeMap<StartedWith, u32>,
    same: u32,
    sectors: usize,
}

/// Tries every `step`th sector of each part, from `from` on, with this number of faults.
fn heal_all(mut patient: Patient, from: usize, step: usize, ways: usize) -> [Count; 4] {
    let mut tried = 0;
    PARTS.map(|part| {
        // Of the pages every other sector.
        let twice = if part == "pages" { 2 } else { 1 };
        let (mut count, mut at) =
            (Count::default(), twice * from + usize::from(part == "pages" && patient.clean));
        loop {
            for _ in 0..ways {
                tried += 1;
                match patient.survives(part, at, tried % FAULTS) {
                    FaultOutcome::NoSector => return Count { sectors: at, ..count },
                    FaultOutcome::Same => count.same += 1,
                    FaultOutcome::Healed(found) => *count.found.entry(found).or_insert(0) += 1,
                }
                if patient.runs % 1000 == 999 {
                    println!("r{}, from {from}: {part}, sector {at}: {:?}", patient.victim, count.found);
                }
            }
            at += twice * step;
        }
    })
}

/// A directory of about 4 MiB, and every sector of it in every way: `QUORATE_SECTORS=1`; every tenth: 10. Otherwise a
/// smaller one, and one fault for each of a few sectors. Of the pages every other sector: the killed replica has the
/// even ones, the stopped one the odd ones.
fn heal_one_after_the_other(victim: usize, clean: bool, pages_max: usize) {
    let start = Instant::now();
    let wanted = number("QUORATE_SECTORS").map(|step| step.max(1));
    // They wait for their disks most of the time.
    let (side_by_side, values, ways) = if wanted.is_some() { (4, 780, FAULTS) } else { (1, 40, 1) };
    let step = wanted.unwrap_or(5);
    let heal = |from: usize| {
        let patient = Patient::new(victim, values, clean, pages_max);
        let bytes: usize = patient.world.files().values().map(Vec::len).sum();
        println!("victim r{victim}: a directory of {} KiB", bytes >> 10);
        heal_all(patient, from * step, side_by_side * step, ways)
    };
    let counts: Vec<_> = std::thread::scope(|scope| {
        let all: Vec<_> = (0..side_by_side).map(|from| scope.spawn(move || heal(from))).collect();
        all.into_iter().map(|one| one.join().unwrap()).collect()
    });
    let mut all = BTreeMap::new();
    for (i, part) in PARTS.iter().enumerate() {
        let mut sum = BTreeMap::new();
        for (found, count) in counts.iter().flat_map(|of| &of[i].found) {
            *sum.entry(*found).or_insert(0) += count;
            *all.entry(*found).or_insert(0) += count;
        }
        let same: u32 = counts.iter().map(|of| of[i].same).sum();
        let sectors = counts.iter().map(|of| of[i].sectors).max().unwrap_or(0);
        println!("victim r{victim}: {part}, {sectors} sectors: {sum:?}; the same as before: {same}");
    }
    println!("victim r{victim}: healed each time: {all:?}, in {:.0} s", start.elapsed().as_secs_f64());
    assert_eq!(all.len(), 3, "{all:?}");
}

#[test]
fn a_killed_replica_is_healed_of_every_fifth_sector() {
    heal_one_after_the_other(1, false, ALL);
}

#[test]
fn a_stopped_replica_is_healed_of_every_fifth_sector() {
    heal_one_after_the_other(0, true, ALL);
}

/// The same with a state larger than memory: its good pages are found on the disk when needed.
#[test]
fn a_replica_with_little_memory_is_healed_of_every_fifth_sector() {
    heal_one_after_the_other(2, false, 12);
}

/// A replica that was away while 1 % of its pages changed uses the pages on its disk: less than 3 % of the state is
/// fetched (H1). The same for one that has lost its log but not its state.
#[test]
fn what_the_disk_has_is_not_fetched() {
    for lost in [false, true] {
        let mut world = World::new(2);
        (0..800).for_each(|number| world.put_value(number, &format!("{number:05}"), &[7; 4000]));
        world.settle();
        world.stop(true);
        if lost {
            fs::remove_file(world.path(2).join("log/starts")).unwrap();
        }
        // More than the window: batches alone do not let it catch up.
        (0..40).for_each(|number| world.put_value(number, &format!("{:05}", number % 8 * 100), &[8; 4000]));
        assert_eq!(world.start(2), (!lost, !lost));
        world.heal("away for a while");
        let fetched = world.replicas[2].as_ref().unwrap().executor().fetched();
        println!("{fetched} of more than 800 pages brought");
        assert!(fetched > 0 && fetched < 24, "{fetched} pages brought");
    }
}
