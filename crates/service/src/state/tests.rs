//! The state against whole copies.

use super::*;
use crate::image::{CopiedPages, ImageCopy};
use crate::page::{Memory, OldPage, PageFault};
use crate::testing::{Xorshift, domains};
use alloc::collections::BTreeMap;

const BYTES: usize = 16;
const PAGES_MAX: u32 = 1000;
type Model = BTreeMap<u32, [u8; BYTES]>;

/// Pages of which some are in slots alone. A page in a slot stays there until its test is over.
#[derive(Debug, Default)]
struct Spilled {
    here: Memory,
    away: BTreeMap<u32, u32>,
    slots: Vec<(PageLabel, Vec<u8>)>,
    /// A slot that cannot be read.
    broken: Option<u32>,
}

impl Spilled {
    fn slot(&self, place: u32) -> &(PageLabel, Vec<u8>) {
        &self.slots[usize::try_from(place).unwrap()]
    }
}

impl PageStore for Spilled {
    fn get(&self, page: u32) -> Result<Option<&[u8]>, PageFault> {
        let Some(place) = self.away.get(&page) else { return self.here.get(page) };
        if self.broken == Some(*place) { Err(PageFault { page }) } else { Ok(Some(&self.slot(*place).1)) }
    }

    fn replace(&mut self, page: u32, content: Option<Page>) -> OldPage {
        let was = self.here.replace(page, content);
        self.away.remove(&page).map_or(was, Err)
    }

    fn look_at<'a>(&'a self, label: &PageLabel, place: u32, _: &'a mut Vec<u8>) -> Option<&'a [u8]> {
        let (found, content) = self.slot(place);
        (found == label && self.broken != Some(place)).then_some(content)
    }

    fn next(&self, from: u32) -> Option<u32> {
        let away = self.away.range(from..).next().map(|(page, _)| *page);
        self.here.next(from).into_iter().chain(away).min()
    }

    fn stored(&mut self, label: &PageLabel, place: u32) {
        assert_eq!(self.slot(place).0, *label);
        self.here.replace(label.page, None).unwrap();
        self.away.insert(label.page, place);
    }
}

struct Pair {
    state: State<Spilled>,
    model: Model,
    copies: BTreeMap<SeqNum, (Model, Digest)>,
}

impl Pair {
    fn new() -> Self {
        let tree = Tree::new(domains(), PAGES_MAX);
        let state = State::new(Spilled::default(), tree, Pool::new(BYTES, 64), 4);
        let copies = [(SeqNum(0), (Model::new(), state.root_at(SeqNum(0)).unwrap()))].into();
        Self { state, model: Model::new(), copies }
    }

    /// Executes a batch that writes and clears pages at random, and merges it or not.
    fn batch(&mut self, random: &mut Xorshift) {
        let before = self.model.clone();
        self.state.begin();
        for _ in 0..random.below(5) {
            let page = u32::try_from(random.below(40) * random.below(25)).unwrap();
            let content = [u8::try_from(random.below(250)).unwrap() + 1; BYTES];
            if random.below(4) == 0 {
                self.state.view((0, PAGES_MAX)).clear(page).unwrap();
                self.model.remove(&page);
            } else {
                self.state.view((0, PAGES_MAX)).put(page, &content).unwrap();
                self.model.insert(page, content);
            }
        }
        if random.below(4) == 0 {
            self.state.drop_batch();
            self.model = before;
        } else {
            self.state.merge();
        }
    }

    /// Cuts a checkpoint, and stores some of its pages.
    fn cut(&mut self, seq: SeqNum) {
        let root = self.state.cut(seq);
        for (page, content) in self.model.iter().filter(|(page, _)| **page % 3 > 0) {
            let label = self.state.tree.label(0, *page).of_page(*page);
            let place = u32::try_from(self.state.store.slots.len()).unwrap();
            self.state.store.slots.push((label, content.to_vec()));
            self.state.note_stored(&label, place);
        }
        assert_eq!(root, self.state.recompute(domains(), PAGES_MAX), "I17 at {seq:?}");
        self.copies.insert(seq, (self.model.clone(), root));
        let held: Vec<_> = self.state.checkpoints().map(|(seq, _)| seq).collect();
        self.copies.retain(|seq, _| held.contains(seq));
        assert_eq!(self.copies.len(), held.len());
    }

    fn check(&self) {
        for page in 0..PAGES_MAX {
            let model = self.model.get(&page).map(|content| &content[..]);
            assert_eq!(self.state.store().get(page), Ok(model));
        }
        let old = self.state.records.iter().flat_map(|record| record.pages().map(|page| record.page(page)));
        let here = old.filter(|old| matches!(old, Some(Ok(Some(_))))).count();
        assert_eq!(self.state.pages_of_checkpoints(), here);
        for (&seq, (model, root)) in &self.copies {
            assert_eq!(self.state.root_at(seq), Some(*root));
            assert_eq!(self.state.pages_at(seq), model.keys().copied().collect::<Vec<_>>());
            for page in 0..PAGES_MAX {
                let model = model.get(&page).map(|content| &content[..]);
                assert_eq!(self.state.page_at(seq, page, &mut Vec::new()), model, "page {page} at {seq:?}");
            }
        }
    }
}

/// TR-2 against whole copies: overlays merged or dropped, checkpoints cut, forgotten and read.
#[test]
fn checkpoints_stay_as_they_were_cut() {
    for seed in 1..25 {
        let mut random = Xorshift::new(seed);
        let mut pair = Pair::new();
        for seq in 1..60 {
            pair.batch(&mut random);
            if random.below(4) == 0 {
                pair.cut(SeqNum(seq));
            }
            if random.below(12) == 0 {
                let below = SeqNum(random.below(seq + 1));
                pair.state.discard(below);
                let newest = pair.state.newest();
                pair.copies.retain(|&seq, _| seq >= below || seq == newest);
            }
            if seq % 9 == 0 {
                pair.check();
            }
        }
    }
}

/// ST-8: going back to a checkpoint held gives its pages and its labels.
#[test]
fn reverting_gives_the_checkpoint_back() {
    for seed in 1..40 {
        let mut random = Xorshift::new(seed);
        let mut pair = Pair::new();
        for seq in 1..12 {
            pair.batch(&mut random);
            if seq % 3 == 0 {
                pair.cut(SeqNum(seq));
            }
        }
        let held: Vec<_> = pair.copies.keys().copied().collect();
        let base = held[usize::try_from(random.below(4)).unwrap() % held.len()];
        let (model, root) = pair.copies[&base].clone();
        assert_eq!(pair.state.install(base, base, false, Vec::new()), root);
        assert_eq!(pair.state.recompute(domains(), PAGES_MAX), root, "seed {seed}");
        pair.model = model.clone();
        pair.copies = [(base, (model, root))].into();
        pair.check();
        pair.batch(&mut random);
        pair.cut(SeqNum(100));
        pair.check();
    }
}

/// Returns a state whose page 7 is in a slot since checkpoint 1, with its label and its place.
fn with_a_slot() -> (Pair, Label, u32) {
    let mut pair = Pair::new();
    pair.state.begin();
    pair.state.view((0, PAGES_MAX)).put(7, &[5; BYTES]).unwrap();
    pair.model.insert(7, [5; BYTES]);
    pair.state.merge();
    pair.cut(SeqNum(1));
    let (label, place) = (pair.state.label_at(SeqNum(1), 0, 7), pair.state.store.away[&7]);
    (pair, label, place)
}

fn free(pair: &mut Pair) {
    pair.state.begin();
    pair.state.view((0, PAGES_MAX)).clear(7).unwrap();
    pair.state.merge();
    pair.model.remove(&7);
}

/// L85: a page that cannot be read is freed unread. The checkpoints before that lack it, and the ones after do not.
#[test]
fn l85_a_page_that_is_freed_is_missing_before_that_only() {
    for cuts in [false, true] {
        let (mut pair, label, place) = with_a_slot();
        pair.state.store.broken = Some(place);
        assert_eq!(pair.state.note_unreadable(7), label);
        free(&mut pair);
        if cuts {
            pair.cut(SeqNum(2));
            assert!(!pair.state.lacks_unsaved(SeqNum(2)), "it is empty there");
        }
        assert!(pair.state.lacks_unsaved(SeqNum(1)));
        assert_eq!(pair.state.unsaved_unreadable(), Some(7));
        pair.state.repair(7, label, &[5; BYTES]);
        assert_eq!((pair.state.unsaved_unreadable(), pair.state.pages_of_checkpoints()), (None, 1));
        pair.check();
    }
}

/// L85: a page is damaged, and freed before anybody reads it. The checkpoint before that is not what it is said to be, and
/// the next one is.
#[test]
fn l85_a_damaged_page_that_nobody_reads_is_gone_with_the_next_checkpoint() {
    let (mut pair, _, place) = with_a_slot();
    let root = pair.state.root_at(SeqNum(1)).unwrap();
    pair.state.store.broken = Some(place);
    free(&mut pair);
    assert_ne!(pair.state.recompute(domains(), PAGES_MAX), root);
    // This compares the state with the root of the new checkpoint.
    pair.cut(SeqNum(2));
}

/// L85: an image of a checkpoint from before a page was freed names the slot of that page, and does not read it. As long
/// as the checkpoint is held, the slot is not free.
#[test]
fn l85_an_image_does_not_read_what_was_freed() {
    let (mut pair, label, place) = with_a_slot();
    free(&mut pair);
    pair.cut(SeqNum(2));
    // Nobody notices.
    pair.state.store.broken = Some(place);
    let mut copied = CopiedPages::default();
    let mut saving = ImageCopy::begin(&mut pair.state, SeqNum(1)).unwrap();
    assert!(saving.copy(&mut pair.state, 9, &mut copied) && saving.is_done());
    assert_eq!((copied.labels(), copied.in_place()), (&[][..], &[(label.of_page(7), place)][..]));
    assert_eq!(pair.state.places_before(SeqNum(2)), [place]);
    pair.state.discard(SeqNum(2));
    assert!(pair.state.places_before(SeqNum(3)).is_empty());
}
