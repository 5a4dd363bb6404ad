//! The store against a map, with a page file that is written as an image would.

use alloc::collections::{BTreeMap, BTreeSet};

use quorate_wire::ClusterId;

use super::*;
use crate::storage::testing::{TestDisk, TestFile};

const BYTES: usize = 64;
const PAGES: u64 = 400;
const LIMIT: usize = 24;

/// A small generator of numbers that look random. Marsaglia's xorshift, 64 bits.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 16) % bound
    }

    fn page(&mut self) -> u32 {
        u32::try_from(self.below(PAGES)).unwrap()
    }
}

/// A store, what should be in it, and the disk.
struct Pair {
    disk: TestDisk,
    file: TestFile,
    store: Paged<TestDisk>,
    model: BTreeMap<u32, Vec<u8>>,
    /// What is in which slot, of the last image.
    slots: BTreeMap<u32, (PageLabel, u32)>,
    /// Pages that were replaced since they got their slot.
    dirty: BTreeSet<u32>,
    next_slot: u32,
    seq: u64,
}

fn domains() -> Domains {
    Domains::new(ClusterId([3; 32]))
}

fn store(disk: &TestDisk) -> Paged<TestDisk> {
    Paged::new(disk.clone(), domains(), BYTES, LIMIT * BYTES)
}

impl Pair {
    fn new() -> Self {
        let disk = TestDisk::default();
        let file = disk.open(super::PAGES).unwrap();
        let store = store(&disk);
        let (model, slots, dirty) = (BTreeMap::new(), BTreeMap::new(), BTreeSet::new());
        Self { disk, file, store, model, slots, dirty, next_slot: 0, seq: 1 }
    }

    fn replace(&mut self, page: u32, content: Option<Vec<u8>>) {
        let slot = self.store.away(page).map(|(_, home)| home.slot);
        let was = self.store.replace(page, content.clone().map(Vec::into_boxed_slice));
        let expected = self.model.get(&page).map(|was| was.clone().into_boxed_slice());
        assert_eq!(was, slot.map_or(Ok(expected.clone()), Err));
        // It is there until something else is.
        if let Some((label, slot)) = self.slots.get(&page).filter(|_| slot.is_some()) {
            assert_eq!(self.store.look_at(label, *slot, &mut Vec::new()), expected.as_deref());
            self.damage(*slot);
            assert_eq!(self.store.look_at(label, *slot, &mut Vec::new()), None);
            self.damage(*slot);
        }
        self.dirty.insert(page);
        match content {
            Some(content) => self.model.insert(page, content),
            None => self.model.remove(&page),
        };
    }

    /// Writes what has changed to slots that nothing is in; then, as `between` says, more changes; then tells.
    fn image(&mut self, between: impl FnOnce(&mut Self)) {
        self.seq += 1;
        let mut told = Vec::new();
        for page in core::mem::take(&mut self.dirty) {
            self.slots.remove(&page);
            let Some(content) = self.model.get(&page) else { continue };
            let covered = [&u64::from(page).to_le_bytes()[..], &self.seq.to_le_bytes(), content].concat();
            let label = PageLabel { page, modified: SeqNum(self.seq), digest: domains().leaf(&covered) };
            self.file.write_at(content, u64::from(self.next_slot) * 64).unwrap();
            told.push((label, self.next_slot));
            self.next_slot += 1;
        }
        between(self);
        for (label, slot) in told {
            if !self.dirty.contains(&label.page) {
                self.slots.insert(label.page, (label, slot));
                self.store.stored(&label, slot);
            }
        }
    }

    /// Flips a byte of a page's slot.
    fn damage(&self, slot: u32) {
        let mut byte = [0];
        self.file.read_at(&mut byte, u64::from(slot) * 64 + 9).unwrap();
        self.file.write_at(&[byte[0] ^ 1], u64::from(slot) * 64 + 9).unwrap();
    }

    fn check(&self, page: u32, keep: bool) {
        let mut buffer = Vec::new();
        let found = if keep { self.store.get(page) } else { self.store.look(page, &mut buffer) };
        assert_eq!(found, Ok(self.model.get(&page).map(|content| &content[..])), "page {page}");
    }

    fn check_all(&mut self) {
        let mut from = 0;
        for page in self.model.keys() {
            assert_eq!(self.store.next(from), Some(*page));
            from = page + 1;
        }
        assert_eq!(self.store.next(from), None);
        let before = self.store.pages();
        (0..u32::try_from(PAGES).unwrap()).for_each(|page| self.check(page, false));
        let Pages { in_memory, dirty, on_disk, .. } = self.store.pages();
        assert_eq!((in_memory, dirty, on_disk), (before.in_memory, before.dirty, before.on_disk));
        let there = self.dirty.iter().filter(|page| self.model.contains_key(page)).count();
        assert_eq!((dirty, in_memory + on_disk), (there, self.model.len()));
        let groups = || self.store.groups.iter().flatten();
        let here =
            groups().flat_map(|group| &group.content).filter(|content| content.get().is_some()).count();
        assert_eq!(here, in_memory);
    }
}

#[test]
fn it_holds_what_a_map_holds_in_less_memory() {
    let (mut reads, mut faults) = (0, 0);
    for seed in 1..40 {
        let (mut random, mut pair) = (Random(seed), Pair::new());
        for step in 0..1500_u32 {
            match random.below(20) {
                0..6 => {
                    let content = vec![u8::try_from(random.below(255)).unwrap() + 1; BYTES];
                    let page = random.page();
                    pair.replace(page, Some(content));
                }
                6 => {
                    let page = random.page();
                    pair.replace(page, None);
                }
                7..13 => pair.check(random.page(), true),
                13..15 => pair.check(random.page(), false),
                15 if step % 8 == 0 => {
                    let page = random.page();
                    pair.image(|pair| pair.replace(page, Some(vec![7; BYTES])));
                }
                16 => {
                    (0..20).for_each(|_| pair.store.relax(&|_| false));
                    let Pages { in_memory, dirty, .. } = pair.store.pages();
                    assert!(in_memory <= LIMIT.max(dirty), "{in_memory} in memory, {dirty} of them dirty");
                }
                17 => {
                    // What is in memory needs no disk; what is not shows that it is another page.
                    let page = random.page();
                    let Some((_, slot)) = pair.slots.get(&page) else { continue };
                    let is_away = pair.store.away(page).is_some();
                    pair.damage(*slot);
                    if is_away {
                        assert_eq!(pair.store.get(page), Err(PageFault { page }));
                        assert_eq!(pair.store.look(page, &mut Vec::new()), Err(PageFault { page }));
                    } else {
                        pair.check(page, true);
                    }
                    pair.damage(*slot);
                    pair.check(page, true);
                }
                18 if step % 16 == 0 => {
                    // As after a start: what the last image has.
                    pair.image(|_| {});
                    let Pages { reads: r, faults: f, .. } = pair.store.pages();
                    (reads, faults) = (reads + r, faults + f);
                    pair.store = store(&pair.disk);
                    for (label, slot) in pair.slots.values() {
                        pair.store.stored(label, *slot);
                    }
                }
                _ => pair.check_all(),
            }
        }
        let Pages { reads: r, faults: f, .. } = pair.store.pages();
        (reads, faults) = (reads + r, faults + f);
    }
    assert!(reads > 10_000 && faults > 100, "{reads} reads, {faults} faults");
}

/// A slot that holds another page, an older version, or nothing, is noticed like one that is damaged.
#[test]
fn a_slot_with_another_page_is_none() {
    let mut pair = Pair::new();
    pair.replace(1, Some(vec![1; BYTES]));
    pair.image(|_| {});
    let (old, old_slot) = pair.slots[&1];
    pair.replace(1, Some(vec![2; BYTES]));
    pair.image(|_| {});
    let (new, new_slot) = pair.slots[&1];
    for (label, slot, is_good) in [
        (new, new_slot, true),
        (old, old_slot, true),
        (new, old_slot, false),
        (old, new_slot, false),
        (PageLabel { page: 2, ..new }, new_slot, false),
        (PageLabel { modified: SeqNum(9), ..new }, new_slot, false),
        (new, 4000, false),
    ] {
        let mut store = store(&pair.disk);
        store.stored(&label, slot);
        assert_eq!(store.next(0), Some(label.page));
        assert_eq!(store.get(label.page).is_ok(), is_good, "{label:?} in slot {slot}");
        assert_eq!(store.get(label.page).is_ok(), is_good, "asked again");
        assert_eq!(store.pages().faults, if is_good { 0 } else { 2 });
    }
}

/// What is asked for again and again stays, while everything else is looked at once.
#[test]
fn a_walk_over_everything_leaves_what_is_used() {
    let mut pair = Pair::new();
    for page in 0..400 {
        pair.replace(page, Some(vec![5; BYTES]));
    }
    pair.image(|_| {});
    (0..50).for_each(|_| pair.store.relax(&|_| false));
    let before = |pair: &Pair| pair.store.pages().reads;
    let mut hot_reads = 0;
    for page in 10..400 {
        pair.check(page, true);
        let reads = before(&pair);
        (0..4).for_each(|hot| pair.check(hot, true));
        (0..4).for_each(|hot| pair.check(hot, true));
        hot_reads += before(&pair) - reads;
        pair.store.relax(&|_| false);
    }
    assert!(hot_reads <= 8, "{hot_reads} reads of four pages that are used all the time");
}
