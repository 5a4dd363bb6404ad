//! The digest tree over the pages (spec §8.3), whose root identifies a checkpoint.
//!
//! Every node has up to 64 children; the leaves are the pages. The shape is fixed by the largest number of pages.
//! Empty parts take no memory: an empty page, and a node over empty pages only, has the digest zero. All others have
//! a real digest,
//!
//! ```text
//! leaf  D("leaf", index 8 | lm 8 | page)
//! node  D("node", level 1 | index 8 | lm 8 | digests of the children up to the last that is not empty)
//! ```
//!
//! where `lm` is the last checkpoint that modified the page, and for a node the largest of its children's. So the
//! tree is a function of the pages and their `lm` only, independent of the order of changes. Digests of children are
//! concatenated, not summed (TR-3, K9).

use alloc::boxed::Box;
use alloc::vec::Vec;

use quorate_wire::digest::Domains;
use quorate_wire::{Digest, SeqNum};

use crate::page::PageLabel;

/// Children of a node: `B` of the spec. A META-DATA has room for as many.
pub(crate) const BRANCHING: u32 = 64;

/// The record of a page or of a node in the tree.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Label {
    /// The last checkpoint that modified it.
    pub(crate) modified: SeqNum,
    /// Its digest; zero if it is empty.
    pub(crate) digest: Digest,
}

impl Label {
    /// The record of an empty page.
    pub(crate) const EMPTY: Self = Self { modified: SeqNum(0), digest: Digest::ZERO };

    /// Returns it with the page that it is the record of.
    pub(crate) fn of_page(&self, page: u32) -> PageLabel {
        PageLabel { page, modified: self.modified, digest: self.digest }
    }

    /// Returns whether it represents no page.
    pub(crate) fn is_empty(&self) -> bool {
        self.digest == Digest::ZERO
    }
}

/// A label that a cut has replaced: the node's level and index, and what it was.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Replaced {
    pub(crate) level: u8,
    pub(crate) index: u32,
    pub(crate) label: Label,
}

/// The children of one node.
type Group = [Label; BRANCHING as usize];

/// The tree as of the last cut. Holds at most one label for each page, and one sixty-third more.
#[derive(Clone, Debug)]
pub(crate) struct Tree {
    hasher: NodeHasher,
    /// `levels[l][i]` are the children, on level `l`, of the node `(l + 1, i)`.
    levels: Vec<Vec<Option<Box<Group>>>>,
    root: Label,
    /// Nodes to digest again, while that is in progress.
    touched: Vec<u32>,
}

impl Tree {
    /// Returns the tree of an empty state of at most `pages_max` pages.
    pub(crate) fn new(domains: Domains, pages_max: u32) -> Self {
        let mut levels = Vec::new();
        let mut width = 1_u64;
        while width < u64::from(pages_max) || levels.is_empty() {
            width *= u64::from(BRANCHING);
            levels.push(Vec::new());
        }
        let mut tree =
            Self { hasher: NodeHasher::new(domains), levels, root: Label::EMPTY, touched: Vec::new() };
        tree.clear();
        tree
    }

    /// Returns the tree of an empty state of as many pages.
    pub(crate) fn to_empty(&self) -> Self {
        let levels = self.levels.iter().map(|_| Vec::new()).collect();
        let hasher = self.hasher.clone();
        let mut tree = Self { hasher, levels, root: Label::EMPTY, touched: Vec::new() };
        tree.clear();
        tree
    }

    /// Makes it the tree of an empty state.
    pub(crate) fn clear(&mut self) {
        self.levels.iter_mut().for_each(Vec::clear);
        self.root = self.node(self.height(), 0);
    }

    /// Returns the level of the root. Pages have level 0.
    pub(crate) fn height(&self) -> u8 {
        u8::try_from(self.levels.len()).unwrap_or(u8::MAX)
    }

    /// Returns the root's digest, which is never zero.
    pub(crate) fn root(&self) -> Digest {
        self.root.digest
    }

    /// Returns what the tree says of a page (level 0) or node.
    pub(crate) fn label(&self, level: u8, index: u32) -> Label {
        if level == self.height() {
            return if index == 0 { self.root } else { Label::EMPTY };
        }
        let (group, at) = split(index);
        self.group(level, group).map_or(Label::EMPTY, |labels| labels[at])
    }

    /// Sets a label and nothing else: the nodes above it are the caller's to see to.
    pub(crate) fn set_label(&mut self, level: u8, index: u32, label: Label) {
        if level == self.height() {
            self.root = label;
            return;
        }
        let (group, at) = split(index);
        let Some(groups) = self.levels.get_mut(usize::from(level)) else { return };
        if group >= groups.len() {
            if label.is_empty() {
                return;
            }
            groups.resize_with(group + 1, || None);
        }
        let labels = groups[group].get_or_insert_with(|| Box::new([Label::EMPTY; BRANCHING as usize]));
        labels[at] = label;
    }

    /// Returns the label of a page with this content.
    pub(crate) fn leaf(&mut self, page: u32, modified: SeqNum, content: Option<&[u8]>) -> Label {
        self.hasher.leaf(page, modified, content)
    }

    /// Takes over the pages modified since the last cut, in increasing order, and digests them and what
    /// is above them again (TR-1). Each label replaced goes to `replaced`, by level and then by index.
    pub(crate) fn cut<'a>(
        &mut self,
        seq: SeqNum,
        dirty: impl Iterator<Item = (u32, Option<&'a [u8]>)>,
        mut replaced: impl FnMut(Replaced),
    ) {
        self.touched.clear();
        for (page, content) in dirty {
            let label = self.hasher.leaf(page, seq, content);
            replaced(Replaced { level: 0, index: page, label: self.label(0, page) });
            self.set_label(0, page, label);
            self.touch(page / BRANCHING);
        }
        self.rehash(replaced);
    }

    /// Sets the labels of pages, in increasing order, and digests what is above them again.
    pub(crate) fn set_leaves(&mut self, leaves: impl Iterator<Item = (u32, Label)>) {
        self.touched.clear();
        for (page, label) in leaves {
            self.set_label(0, page, label);
            self.touch(page / BRANCHING);
        }
        self.rehash(|_| {});
    }

    /// Returns whether a node with these children has the digest `digest`.
    pub(crate) fn proves(
        &mut self,
        (level, index): (u8, u32),
        digest: Digest,
        modified: SeqNum,
        children: impl Iterator<Item = Digest>,
    ) -> bool {
        self.hasher.node(level, index, modified, children) == digest
    }

    /// Digests the touched nodes of level 1 and everything above them.
    fn rehash(&mut self, mut replaced: impl FnMut(Replaced)) {
        for level in 1..=self.height() {
            let mut nodes = core::mem::take(&mut self.touched);
            let mut kept = 0;
            for at in 0..nodes.len() {
                let index = nodes[at];
                let label = self.node(level, index);
                replaced(Replaced { level, index, label: self.label(level, index) });
                self.set_label(level, index, label);
                // The parents of this level's nodes take the places already read.
                let parent = index / BRANCHING;
                if kept == 0 || nodes[kept - 1] != parent {
                    nodes[kept] = parent;
                    kept += 1;
                }
            }
            nodes.truncate(kept);
            self.touched = nodes;
        }
        self.touched.clear();
    }

    fn touch(&mut self, node: u32) {
        if self.touched.last() != Some(&node) {
            self.touched.push(node);
        }
    }

    /// Digests a node from its children.
    fn node(&mut self, level: u8, index: u32) -> Label {
        let (group, is_root) = (to_usize(index), level == self.height());
        let labels = self.levels.get(usize::from(level) - 1).and_then(|groups| groups.get(group)?.as_deref());
        let labels = labels.map_or(&[][..], |labels| &labels[..]);
        let used = labels.iter().rposition(|label| !label.is_empty()).map_or(0, |last| last + 1);
        if used == 0 && !is_root {
            return Label::EMPTY;
        }
        let modified = labels.iter().map(|label| label.modified).max().unwrap_or_default();
        let digest =
            self.hasher.node(level, index, modified, labels[..used].iter().map(|label| label.digest));
        Label { modified, digest }
    }

    fn group(&self, level: u8, group: usize) -> Option<&Group> {
        self.levels.get(usize::from(level))?.get(group)?.as_deref()
    }
}

/// Lays out the digest's input in its own memory.
#[derive(Clone, Debug)]
struct NodeHasher {
    domains: Domains,
    covered: Vec<u8>,
}

impl NodeHasher {
    fn new(domains: Domains) -> Self {
        Self { domains, covered: Vec::new() }
    }

    fn leaf(&mut self, page: u32, modified: SeqNum, content: Option<&[u8]>) -> Label {
        let Some(content) = content else { return Label::EMPTY };
        self.covered.clear();
        self.covered.extend_from_slice(&u64::from(page).to_le_bytes());
        self.covered.extend_from_slice(&modified.0.to_le_bytes());
        self.covered.extend_from_slice(content);
        Label { modified, digest: self.domains.leaf(&self.covered) }
    }

    fn node(
        &mut self,
        level: u8,
        index: u32,
        modified: SeqNum,
        children: impl Iterator<Item = Digest>,
    ) -> Digest {
        self.covered.clear();
        self.covered.push(level);
        self.covered.extend_from_slice(&u64::from(index).to_le_bytes());
        self.covered.extend_from_slice(&modified.0.to_le_bytes());
        for digest in children {
            self.covered.extend_from_slice(&digest.0);
        }
        self.domains.node(&self.covered)
    }
}

fn split(index: u32) -> (usize, usize) {
    (to_usize(index / BRANCHING), to_usize(index % BRANCHING))
}

fn to_usize(index: u32) -> usize {
    let Ok(index) = usize::try_from(index) else { unreachable!("an address has 32 bits or more") };
    index
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Xorshift, domains};
    use alloc::collections::BTreeMap;

    const PAGES_MAX: u32 = 64 * 64 * 3;

    /// The definition, as plain as can be.
    fn naive_root(pages: &BTreeMap<u32, (SeqNum, [u8; 4])>) -> Digest {
        let domains = domains();
        let mut labels: BTreeMap<u32, (SeqNum, Digest)> = BTreeMap::new();
        for (&page, (modified, content)) in pages {
            let covered = [&u64::from(page).to_le_bytes()[..], &modified.0.to_le_bytes(), content].concat();
            labels.insert(page, (*modified, domains.leaf(&covered)));
        }
        for level in 1..=3_u8 {
            let mut parents: BTreeMap<u32, Vec<(u32, SeqNum, Digest)>> = BTreeMap::new();
            for (index, (modified, digest)) in labels {
                parents.entry(index / 64).or_default().push((index % 64, modified, digest));
            }
            if level == 3 {
                parents.entry(0).or_default();
            }
            labels = BTreeMap::new();
            for (index, children) in parents {
                let modified = children.iter().map(|child| child.1).max().unwrap_or_default();
                let mut covered = alloc::vec![level];
                covered.extend_from_slice(&u64::from(index).to_le_bytes());
                covered.extend_from_slice(&modified.0.to_le_bytes());
                for at in 0..children.last().map_or(0, |child| child.0 + 1) {
                    let child = children.iter().find(|child| child.0 == at);
                    covered.extend_from_slice(&child.map_or(Digest::ZERO, |child| child.2).0);
                }
                labels.insert(index, (modified, domains.node(&covered)));
            }
        }
        labels[&0].1
    }

    /// TR-1, I17: what is kept up to date from cut to cut is what a computation from nothing gives.
    #[test]
    fn the_incremental_root_is_the_root() {
        for seed in 1..20 {
            let mut random = Xorshift::new(seed);
            let mut tree = Tree::new(domains(), PAGES_MAX);
            let mut pages = BTreeMap::new();
            assert_eq!(tree.root(), naive_root(&pages));
            for seq in 1..12_u64 {
                let mut dirty = BTreeMap::new();
                for _ in 0..random.below(30) {
                    let page = u32::try_from(random.below(400) * random.below(30)).unwrap();
                    let content = (random.below(3) > 0).then(|| [u8::try_from(random.below(9)).unwrap(); 4]);
                    dirty.insert(page, content);
                }
                let mut order = Vec::new();
                tree.cut(
                    SeqNum(seq * 10),
                    dirty.iter().map(|(&page, content)| (page, content.as_ref().map(|content| &content[..]))),
                    |replaced| order.push((replaced.level, replaced.index)),
                );
                assert!(order.is_sorted_by(|a, b| a < b), "each label once, by level and index");
                for (page, content) in dirty {
                    match content {
                        Some(content) => pages.insert(page, (SeqNum(seq * 10), content)),
                        None => pages.remove(&page),
                    };
                }
                assert_eq!(tree.root(), naive_root(&pages), "seed {seed} seq {seq}");
            }
        }
    }

    /// TR-3: a page cannot pass for another, nor for itself at another time, nor a node for a page.
    #[test]
    fn place_and_time_are_part_of_a_digest() {
        let mut tree = Tree::new(domains(), PAGES_MAX);
        let content = Some(&[1_u8; 4][..]);
        let label = tree.leaf(5, SeqNum(10), content);
        assert_ne!(label.digest, tree.leaf(6, SeqNum(10), content).digest);
        assert_ne!(label.digest, tree.leaf(5, SeqNum(20), content).digest);
        tree.set_leaves([(5, label)].into_iter());
        let node = tree.label(1, 0);
        let children = || [Digest::ZERO; 5].into_iter().chain([label.digest]);
        assert!(tree.proves((1, 0), node.digest, SeqNum(10), children()));
        assert!(!tree.proves((1, 1), node.digest, SeqNum(10), children()));
        assert!(!tree.proves((2, 0), node.digest, SeqNum(10), children()));
        assert!(!tree.proves((1, 0), node.digest, SeqNum(11), children()));
    }
}
