//! A node of the B+tree in its page.
//!
//! ```text
//! 0      1   2       4          6         8       12
//! | kind | - | count | heap len | garbage | right | slot* ->     free     <- cell* |
//!
//! leaf cell    key len 2 | value 2 | key | payload    value: the payload's length, or 8000h more if
//!                                                     the payload says where a large value stands
//! inner cell   child 4 | key len 2 | key              all keys below `child` are less than `key`
//! ```
//!
//! Slots are offsets of cells, in the order of the keys. The keys below the child `right` are not less
//! than the last key. Whatever a page holds, reading it ends in a value or in [`Stop::Corrupt`].

use crate::stop::Stop;

/// Bytes before the slots.
pub(super) const HEAD_BYTES: usize = 12;
/// Bytes of a slot.
pub(super) const SLOT_BYTES: usize = 2;
/// Bytes of a leaf's cell before its key.
pub(super) const LEAF_CELL_BYTES: usize = 4;
/// Bytes of an inner node's cell before its key.
pub(super) const INNER_CELL_BYTES: usize = 6;
/// The tag of a payload that describes a large value.
pub(super) const LARGE: u16 = 0x8000;

/// The type of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeKind {
    Leaf,
    Inner,
}

/// The bytes of a cell, in parts so that none has to be put together before it is in its place.
#[derive(Clone, Copy, Debug)]
pub(super) struct Cell<'a>(pub(super) [&'a [u8]; 3]);

impl Cell<'_> {
    pub(super) fn len(&self) -> usize {
        self.0.iter().map(|part| part.len()).sum()
    }
}

/// A node to be read.
#[derive(Clone, Copy, Debug)]
pub(super) struct Node<'a> {
    page: &'a [u8],
    kind: NodeKind,
    count: usize,
}

impl<'a> Node<'a> {
    /// Returns the node in `page`.
    #[inline]
    pub(super) fn new(page: &'a [u8]) -> Result<Self, Stop> {
        let kind = match page.first() {
            Some(1) => NodeKind::Leaf,
            Some(2) => NodeKind::Inner,
            _ => return Err(Stop::Corrupt),
        };
        let count = usize::from(u16_at(page, 2)?);
        if HEAD_BYTES + count * SLOT_BYTES > page.len() {
            return Err(Stop::Corrupt);
        }
        Ok(Self { page, kind, count })
    }

    /// Returns the node in `page`, which must be of this kind.
    #[inline]
    pub(super) fn of_kind(page: &'a [u8], kind: NodeKind) -> Result<Self, Stop> {
        Self::new(page).and_then(|node| if node.kind == kind { Ok(node) } else { Err(Stop::Corrupt) })
    }

    pub(super) fn kind(&self) -> NodeKind {
        self.kind
    }

    /// Returns the number of cells.
    #[inline]
    pub(super) fn count(&self) -> usize {
        self.count
    }

    /// Returns the bytes in use without the head.
    pub(super) fn used(&self) -> Result<usize, Stop> {
        let (heap, garbage) = (usize::from(u16_at(self.page, 4)?), usize::from(u16_at(self.page, 6)?));
        Ok(self.count * SLOT_BYTES + heap.checked_sub(garbage).ok_or(Stop::Corrupt)?)
    }

    /// Returns the bytes between the slots and the cells.
    pub(super) fn free(&self) -> Result<usize, Stop> {
        let taken = HEAD_BYTES + self.count * SLOT_BYTES + usize::from(u16_at(self.page, 4)?);
        self.page.len().checked_sub(taken).ok_or(Stop::Corrupt)
    }

    /// Returns where a cell starts.
    #[inline]
    fn cell_at(&self, index: usize) -> Result<usize, Stop> {
        Ok(usize::from(u16_at(self.page, HEAD_BYTES + index * SLOT_BYTES)?))
    }

    /// Returns a key.
    #[inline]
    pub(super) fn key(&self, index: usize) -> Result<&'a [u8], Stop> {
        let at = self.cell_at(index)?;
        let (len_at, key_at) = match self.kind {
            NodeKind::Leaf => (at, at + LEAF_CELL_BYTES),
            NodeKind::Inner => (at + 4, at + INNER_CELL_BYTES),
        };
        let len = usize::from(u16_at(self.page, len_at)?);
        self.page.get(key_at..key_at + len).ok_or(Stop::Corrupt)
    }

    /// Returns a leaf's payload, where it is in the page, and whether it describes a large value.
    #[inline]
    pub(super) fn payload(&self, index: usize) -> Result<(&'a [u8], usize, bool), Stop> {
        let cell = self.cell_at(index)?;
        let (key_len, value) = (usize::from(u16_at(self.page, cell)?), u16_at(self.page, cell + 2)?);
        let at = cell + LEAF_CELL_BYTES + key_len;
        let payload = self.page.get(at..at + usize::from(value & !LARGE)).ok_or(Stop::Corrupt)?;
        Ok((payload, at, value & LARGE != 0))
    }

    /// Returns a child of an inner node. That of index `count` is the rightmost.
    #[inline]
    pub(super) fn child(&self, index: usize) -> Result<u32, Stop> {
        let at = if index == self.count { 8 } else { self.cell_at(index)? };
        self.page.get(at..).and_then(<[u8]>::first_chunk).map(|b| u32::from_le_bytes(*b)).ok_or(Stop::Corrupt)
    }

    /// Returns all bytes of a cell.
    pub(super) fn cell(&self, index: usize) -> Result<Cell<'a>, Stop> {
        let at = self.cell_at(index)?;
        let len = match self.kind {
            NodeKind::Leaf => {
                let value = u16_at(self.page, at + 2)? & !LARGE;
                LEAF_CELL_BYTES + usize::from(u16_at(self.page, at)?) + usize::from(value)
            }
            NodeKind::Inner => INNER_CELL_BYTES + usize::from(u16_at(self.page, at + 4)?),
        };
        Ok(Cell([self.page.get(at..at + len).ok_or(Stop::Corrupt)?, &[], &[]]))
    }

    /// Returns the place of `key` in a leaf: where it is, or where it would go.
    #[inline]
    pub(super) fn search(&self, key: &[u8]) -> Result<Result<usize, usize>, Stop> {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = usize::midpoint(low, high);
            match self.key(middle)?.cmp(key) {
                core::cmp::Ordering::Less => low = middle + 1,
                core::cmp::Ordering::Greater => high = middle,
                core::cmp::Ordering::Equal => return Ok(Ok(middle)),
            }
        }
        Ok(Err(low))
    }

    /// Returns the child of an inner node under which `key` belongs.
    #[inline]
    pub(super) fn descend(&self, key: &[u8]) -> Result<usize, Stop> {
        Ok(match self.search(key)? {
            Ok(at) => at + 1,
            Err(at) => at,
        })
    }
}

/// Makes `page` an empty node.
pub(super) fn init(page: &mut [u8], kind: NodeKind, right: u32) {
    page[..HEAD_BYTES].fill(0);
    page[0] = match kind {
        NodeKind::Leaf => 1,
        NodeKind::Inner => 2,
    };
    page[8..12].copy_from_slice(&right.to_le_bytes());
}

/// Puts a cell at `index`. Returns whether there was room between slots and cells.
pub(super) fn insert(page: &mut [u8], index: usize, cell: Cell<'_>) -> Result<bool, Stop> {
    let node = Node::new(page)?;
    let (count, heap) = (node.count, usize::from(u16_at(page, 4)?));
    if index > count {
        return Err(Stop::Corrupt);
    }
    if node.free()? < cell.len() + SLOT_BYTES {
        return Ok(false);
    }
    let start = page.len() - heap - cell.len();
    let mut at = start;
    for part in cell.0 {
        page[at..at + part.len()].copy_from_slice(part);
        at += part.len();
    }
    let slot = HEAD_BYTES + index * SLOT_BYTES;
    page.copy_within(slot..HEAD_BYTES + count * SLOT_BYTES, slot + SLOT_BYTES);
    put_u16(page, slot, start);
    put_u16(page, 2, count + 1);
    put_u16(page, 4, heap + cell.len());
    Ok(true)
}

/// Takes the cell at `index` out.
pub(super) fn remove(page: &mut [u8], index: usize) -> Result<(), Stop> {
    let node = Node::new(page)?;
    if index >= node.count {
        return Err(Stop::Corrupt);
    }
    let (count, len) = (node.count, node.cell(index)?.len());
    let (heap, garbage) = (usize::from(u16_at(page, 4)?), usize::from(u16_at(page, 6)?));
    let start = node.cell_at(index)?;
    let slot = HEAD_BYTES + index * SLOT_BYTES;
    page.copy_within(slot + SLOT_BYTES..HEAD_BYTES + count * SLOT_BYTES, slot);
    // What is not used is zero, so that pages with the same cells in the same places are equal.
    page[HEAD_BYTES + (count - 1) * SLOT_BYTES..HEAD_BYTES + count * SLOT_BYTES].fill(0);
    page[start..start + len].fill(0);
    put_u16(page, 2, count - 1);
    if start + heap == page.len() {
        put_u16(page, 4, heap - len.min(heap));
    } else {
        put_u16(page, 6, garbage + len);
    }
    Ok(())
}

/// Changes a child of an inner node.
pub(super) fn set_child(page: &mut [u8], index: usize, child: u32) -> Result<(), Stop> {
    let node = Node::of_kind(page, NodeKind::Inner)?;
    let at = if index == node.count { 8 } else { node.cell_at(index)? };
    page.get_mut(at..at + 4).ok_or(Stop::Corrupt)?.copy_from_slice(&child.to_le_bytes());
    Ok(())
}

#[inline]
fn u16_at(page: &[u8], at: usize) -> Result<u16, Stop> {
    page.get(at..).and_then(<[u8]>::first_chunk).map(|bytes| u16::from_le_bytes(*bytes)).ok_or(Stop::Corrupt)
}

fn put_u16(page: &mut [u8], at: usize, value: usize) {
    // A page has at most 64 KiB, of which the head takes some.
    let value = u16::try_from(value).unwrap_or(u16::MAX);
    page[at..at + 2].copy_from_slice(&value.to_le_bytes());
}
