//! Runs on another thread than the one with the state: each cell that such a run reads is asked for.
//!
//! A question is answered at one moment, so the content of a key is never put together from two states. The moments of
//! two questions may differ, as those of two reads always may: each notes the version that it saw.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::cell::OnceCell;

use crate::state::cell::{Cell, Seen};
use crate::stop::Stop;

/// What a run asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Asked {
    /// The value of a key.
    Key {
        /// Page and offset of the tree's header, as the view numbers pages.
        tree: (u32, usize),
        key: Vec<u8>,
    },
    /// A page, as the view numbers it.
    Page(u32),
    /// The number at a place of a page: a sum.
    Sum(u32, usize),
}

/// The answer.
#[derive(Debug)]
pub(crate) struct Answered {
    /// What was read for it, with the versions.
    notes: Vec<(Cell, Seen)>,
    /// This has no meaning on cells.
    has_failed: bool,
    found: Result<CellContent, Stop>,
}

/// What was found.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum CellContent {
    Absent,
    /// The value of a key, or a page.
    Bytes(Vec<u8>),
    /// The description of a value in pages of its own, and its length.
    Large(Vec<u8>, usize),
    /// A sum, unless it is out of bounds.
    Sum(Option<u64>),
}

/// The way to the thread with the state.
pub(crate) trait CellLink: core::fmt::Debug {
    /// Asks for a cell, and waits. None: the run has become meaningless.
    fn ask(&self, asked: Asked) -> Option<Answered>;
}

impl Answered {
    pub(crate) fn new(found: Result<CellContent, Stop>, notes: Vec<(Cell, Seen)>, has_failed: bool) -> Self {
        Self { notes, has_failed, found }
    }

    pub(super) fn notes(&self) -> &[(Cell, Seen)] {
        &self.notes
    }

    pub(super) fn has_failed(&self) -> bool {
        self.has_failed
    }

    pub(super) fn into_found(self) -> Result<CellContent, Stop> {
        self.found
    }
}

/// What a run has been told, for as long as it runs. Nothing moves, so that it can be borrowed.
#[derive(Debug, Default)]
pub(super) struct Told {
    first: OnceCell<Box<Kept>>,
}

#[derive(Debug)]
struct Kept {
    asked: Asked,
    found: CellContent,
    next: OnceCell<Box<Kept>>,
}

impl Told {
    /// Returns what was found, if this was asked before: a run sees one version of a cell.
    pub(super) fn get(&self, asked: &Asked) -> Option<&CellContent> {
        let mut next = self.first.get();
        while let Some(node) = next {
            if node.asked == *asked {
                return Some(&node.found);
            }
            next = node.next.get();
        }
        None
    }

    pub(super) fn keep(&self, asked: Asked, found: CellContent) -> &CellContent {
        let mut end = &self.first;
        while let Some(node) = end.get() {
            end = &node.next;
        }
        &end.get_or_init(|| Box::new(Kept { asked, found, next: OnceCell::new() })).found
    }
}

impl Drop for Told {
    /// One after the other: a long list would need a deep stack.
    fn drop(&mut self) {
        let mut next = self.first.take();
        while let Some(mut node) = next {
            next = node.next.take();
        }
    }
}
