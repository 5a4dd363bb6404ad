//! One B+tree over pages: ordered keys of bytes, values of bytes [OSDI99 §6.3: the state is pages].
//!
//! Small values are stored in the leaf next to their key; larger ones in pages of their own, which the leaf
//! describes. Inner nodes hold the shortest keys that separate their children. The same operations in the same order
//! give the same pages, so a tree may be part of a replicated state.
//!
//! Full nodes are split, and two neighbours with few entries are merged; an empty node is removed immediately. A page
//! with invalid content gives [`Stop::Corrupt`], never a panic or an endless loop, so that a replica keeps running
//! and can be repaired (B21).

use alloc::vec::Vec;

use crate::state::cells::Asking;
use crate::state::elsewhere::CellContent;
use crate::state::space::{PageRun, Space, pair, pair_bytes};
use crate::state::view::View;
use crate::stop::Stop;

mod change;
mod cursor;
pub(crate) mod log;
mod node;
#[cfg(test)]
mod tests;
mod visit;

pub use cursor::{Cursor, TreeEntry};
use node::{HEAD_BYTES, INNER_CELL_BYTES, LARGE, LEAF_CELL_BYTES, Node, NodeKind, SLOT_BYTES};

/// The longest key, in bytes, whatever the size of a page.
pub const KEY_BYTES_MAX: usize = 1024;
/// Maximum number of runs of pages for one value. A free space in more pieces than that counts as full.
const RUNS_MAX: usize = 4;
/// Maximum number of levels: more than any state has, and a bound for a state that is damaged.
const HEIGHT_MAX: usize = 16;
/// Bytes of the description of a large value: its length, then its runs.
const DESCRIPTION_BYTES_MAX: usize = 4 + RUNS_MAX * RUN_BYTES;
const RUN_BYTES: usize = 8;

/// A tree: where its header is, and where its pages come from. All zeros is an empty tree.
///
/// The header, anywhere in a page of the owner's: `root 4 | height 4`. A height of 1 is a single leaf.
#[derive(Clone, Copy, Debug)]
pub struct Tree {
    header: (u32, usize),
    space: Space,
}

/// A value as it is found.
#[derive(Clone, Copy, Debug)]
pub enum Value<'v> {
    /// It stands in the leaf.
    Inline(&'v [u8]),
    /// It is stored in its own pages.
    Large(Large<'v>),
}

/// A value in its own pages.
#[derive(Clone, Copy, Debug)]
pub struct Large<'v> {
    len: usize,
    runs: &'v [u8],
}

/// The way from the root to a leaf: each node's page and the index of the child or cell taken.
#[derive(Clone, Copy, Debug)]
struct Path {
    steps: [(u32, usize); HEIGHT_MAX],
    len: usize,
}

impl Tree {
    /// Bytes of the header.
    pub const HEADER_BYTES: usize = 8;

    /// Returns the tree whose header is at `header` (page and offset) and whose pages come from `space`.
    pub fn new(header: (u32, usize), space: Space) -> Self {
        Self { header, space }
    }

    /// Returns the longest key for pages of this size, in bytes.
    pub const fn key_bytes_max(page_bytes: usize) -> usize {
        let room = cell_bytes_max(page_bytes) - LEAF_CELL_BYTES - DESCRIPTION_BYTES_MAX;
        if room < KEY_BYTES_MAX { room } else { KEY_BYTES_MAX }
    }

    /// The most pages that a key with a value in the leaf takes.
    #[expect(clippy::cast_possible_truncation, reason = "a small constant")]
    pub const SPLIT_PAGES_MAX: u32 = HEIGHT_MAX as u32 + 1;

    /// Returns whether a value of this length is stored in the leaf.
    pub fn is_inline(page_bytes: usize, key: &[u8], value: &[u8]) -> bool {
        LEAF_CELL_BYTES + key.len() + value.len() <= cell_bytes_max(page_bytes)
    }

    /// Returns the value of `key`.
    ///
    /// # Errors
    ///
    /// A page is not here, or is not what it should be.
    #[inline]
    pub fn get<'v>(&self, view: &'v View<'_>, key: &[u8]) -> Result<Option<Value<'v>>, Stop> {
        if view.is_on_cells() {
            return self.cell(view, key);
        }
        self.find(key, |page| view.page(page))
    }

    /// Returns the value of `key` to a run on cells.
    #[cold]
    fn cell<'v>(&self, view: &'v View<'_>, key: &[u8]) -> Result<Option<Value<'v>>, Stop> {
        let cell = view.entry(self.header, key)?;
        if let Some(cells) = view.cells()
            && cells.is_elsewhere()
        {
            return Ok(match cells.ask_for_key(&cell, self.header, key)? {
                Asking::Own(content) => content.map(Value::Inline),
                Asking::Found(CellContent::Bytes(bytes)) => Some(Value::Inline(bytes)),
                Asking::Found(CellContent::Large(runs, len)) => Some(Value::Large(Large { len: *len, runs })),
                Asking::Found(CellContent::Absent | CellContent::Sum(_)) => None,
            });
        }
        let written = view.cells().map_or(Ok(None), |cells| cells.entry(&cell))?;
        match written {
            Some(content) => Ok(content.map(Value::Inline)),
            None => self.find(key, |page| view.settled(page)),
        }
    }

    #[inline]
    fn find<'v>(
        &self,
        key: &[u8],
        read: impl Fn(u32) -> Result<&'v [u8], Stop>,
    ) -> Result<Option<Value<'v>>, Stop> {
        let (mut page, height) = self.root_in(read(self.header.0)?)?;
        for _ in 1..height {
            let node = Node::of_kind(read(page)?, NodeKind::Inner)?;
            page = node.child(node.descend(key)?)?;
        }
        if height == 0 {
            return Ok(None);
        }
        let leaf = Node::of_kind(read(page)?, NodeKind::Leaf)?;
        match leaf.search(key)? {
            Ok(at) => Value::of(&leaf, at).map(Some),
            Err(_) => Ok(None),
        }
    }

    /// Returns whether there is no key.
    ///
    /// # Errors
    ///
    /// As [`Self::get`].
    pub fn is_empty(&self, view: &View<'_>) -> Result<bool, Stop> {
        view.needs_pages()?;
        Ok(self.root(view)?.1 == 0)
    }

    /// Returns the root's page and the height.
    #[inline]
    fn root(&self, view: &View<'_>) -> Result<(u32, usize), Stop> {
        self.root_in(view.page(self.header.0)?)
    }

    #[inline]
    fn root_in(&self, header: &[u8]) -> Result<(u32, usize), Stop> {
        let (root, height) = pair(header, self.header.1)?;
        let height = usize::try_from(height).unwrap_or(usize::MAX);
        if height > HEIGHT_MAX {
            return Err(Stop::Corrupt);
        }
        Ok((root, height))
    }

    fn set_root(&self, view: &mut View<'_>, page: u32, height: usize) -> Result<(), Stop> {
        let height = u32::try_from(height).unwrap_or(u32::MAX);
        view.write(self.header.0, self.header.1, &pair_bytes(page, height))
    }

    /// Returns the way to the leaf under which `key` belongs, without a step in the leaf itself; then the
    /// leaf's page. The tree is not empty.
    fn way_to(&self, view: &View<'_>, key: &[u8]) -> Result<(Path, u32), Stop> {
        let (mut page, height) = self.root(view)?;
        let mut path = Path::new();
        for _ in 1..height {
            let node = Node::of_kind(view.page(page)?, NodeKind::Inner)?;
            let at = node.descend(key)?;
            path.push(page, at)?;
            page = node.child(at)?;
        }
        Ok((path, page))
    }
}

impl<'v> Value<'v> {
    #[inline]
    fn of(leaf: &Node<'v>, index: usize) -> Result<Self, Stop> {
        let (payload, _, is_large) = leaf.payload(index)?;
        if !is_large {
            return Ok(Self::Inline(payload));
        }
        let (len, runs) = payload.split_first_chunk().ok_or(Stop::Corrupt)?;
        let len = usize::try_from(u32::from_le_bytes(*len)).unwrap_or(usize::MAX);
        if runs.len() % RUN_BYTES != 0 || runs.len() > RUNS_MAX * RUN_BYTES {
            return Err(Stop::Corrupt);
        }
        Ok(Self::Large(Large { len, runs }))
    }

    /// Returns the length, in bytes.
    pub fn len(&self) -> usize {
        match self {
            Self::Inline(bytes) => bytes.len(),
            Self::Large(large) => large.len,
        }
    }

    /// Returns whether it has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Appends the value to `out`.
    ///
    /// # Errors
    ///
    /// A page is not here, or the value reaches beyond its pages.
    pub fn copy_to(&self, view: &View<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        match self {
            Self::Inline(bytes) => {
                out.extend_from_slice(bytes);
                Ok(())
            }
            Self::Large(large) => large.copy_to(view, out),
        }
    }
}

impl Large<'_> {
    /// Returns the runs of pages, in order.
    pub fn runs(&self) -> impl Iterator<Item = PageRun> + '_ {
        self.runs.chunks_exact(RUN_BYTES).filter_map(|run| {
            let (first, count) = pair(run, 0).ok()?;
            Some(PageRun { first, count })
        })
    }

    /// Returns the description of the runs, and the length of the value.
    pub(crate) fn parts(&self) -> (&[u8], usize) {
        (self.runs, self.len)
    }

    fn copy_to(&self, view: &View<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
        let mut rest = self.len;
        for run in self.runs() {
            for at in 0..run.count {
                if rest == 0 {
                    break;
                }
                let page = view.page(run.first.checked_add(at).ok_or(Stop::Corrupt)?)?;
                let part = rest.min(page.len());
                out.extend_from_slice(&page[..part]);
                rest -= part;
            }
        }
        if rest == 0 { Ok(()) } else { Err(Stop::Corrupt) }
    }
}

impl Path {
    fn new() -> Self {
        Self { steps: [(0, 0); HEIGHT_MAX], len: 0 }
    }

    fn push(&mut self, page: u32, index: usize) -> Result<(), Stop> {
        let step = self.steps.get_mut(self.len).ok_or(Stop::Corrupt)?;
        *step = (page, index);
        self.len += 1;
        Ok(())
    }

    fn pop(&mut self) -> Option<(u32, usize)> {
        self.len = self.len.checked_sub(1)?;
        self.steps.get(self.len).copied()
    }

    fn set_last(&mut self, index: usize) {
        if let Some((_, at)) = self.len.checked_sub(1).and_then(|last| self.steps.get_mut(last)) {
            *at = index;
        }
    }

    fn steps(&self) -> &[(u32, usize)] {
        &self.steps[..self.len]
    }
}

/// Returns the longest cell, in bytes. Four of them fit in a node, so that a split always helps.
const fn cell_bytes_max(page_bytes: usize) -> usize {
    (page_bytes - HEAD_BYTES) / 4 - SLOT_BYTES
}

const _: () = assert!(INNER_CELL_BYTES + Tree::key_bytes_max(512) <= cell_bytes_max(512));
const _: () = assert!(cell_bytes_max(65_536) < LARGE as usize);
