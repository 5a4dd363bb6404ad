//! The state against whole copies.

use super::*;
use crate::page::Memory;
use crate::testing::{Xorshift, domains};
use alloc::collections::BTreeMap;

const BYTES: usize = 16;
const PAGES_MAX: u32 = 1000;
type Model = BTreeMap<u32, [u8; BYTES]>;

struct Pair {
    state: State<Memory>,
    model: Model,
    copies: BTreeMap<SeqNum, (Model, Digest)>,
}

impl Pair {
    fn new() -> Self {
        let tree = Tree::new(domains(), PAGES_MAX);
        let state = State::new(Memory::new(), tree, Pool::new(BYTES, 64), 4);
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

    fn cut(&mut self, seq: SeqNum) {
        let root = self.state.cut(seq);
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
        for (&seq, (model, root)) in &self.copies {
            assert_eq!(self.state.root_at(seq), Some(*root));
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
