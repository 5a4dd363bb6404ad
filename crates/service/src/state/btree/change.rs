//! Changing a tree: inserting with splits, removing with merges.

use crate::state::btree::node::{
    self, Cell, HEAD_BYTES, INNER_CELL_BYTES, LARGE, Node, NodeKind, SLOT_BYTES,
};
use crate::state::btree::{
    DESCRIPTION_BYTES_MAX, HEIGHT_MAX, KEY_BYTES_MAX, Large, Path, RUN_BYTES, RUNS_MAX, Tree, Value,
    cell_bytes_max,
};
use crate::state::space::{PageRun, StoreError, pair_bytes};
use crate::state::view::View;
use crate::stop::Stop;

/// A key that has to outlive the page it came from.
struct Separator {
    bytes: [u8; KEY_BYTES_MAX],
    len: usize,
}

/// The cells of a node with one more among them.
struct Cells<'a> {
    node: Node<'a>,
    at: usize,
    new: Cell<'a>,
}

impl Tree {
    /// Sets the value of `key`. Returns whether the key was there before.
    ///
    /// # Errors
    ///
    /// There is no room, or the key is too long: nothing has changed. Or the execution has to stop.
    pub fn insert(&self, view: &mut View<'_>, key: &[u8], value: &[u8]) -> Result<bool, StoreError> {
        if key.len() > Self::key_bytes_max(view.page_bytes()) {
            return Err(StoreError::KeyTooLong);
        }
        if view.is_on_cells() {
            return Ok(self.log_insert(view, key, value)?);
        }
        let was_inside = view.enter_tree();
        let done = self.insert_into_pages(view, key, value);
        view.leave_tree(was_inside, Some((self.header, key)));
        done
    }

    #[inline]
    fn insert_into_pages(&self, view: &mut View<'_>, key: &[u8], value: &[u8]) -> Result<bool, StoreError> {
        let mut description = [0; DESCRIPTION_BYTES_MAX];
        let fits = node::LEAF_CELL_BYTES + key.len() + value.len() <= cell_bytes_max(view.page_bytes());
        let (payload, tag) = if fits {
            (value, 0)
        } else {
            let len = self.store(view, value, &mut description)?;
            (&description[..len], LARGE)
        };
        let (key_len, payload_len) = (len16(key.len()), len16(payload.len()) | tag);
        let [[a, b], [c, d]] = [key_len.to_le_bytes(), payload_len.to_le_bytes()];
        let placed = self.place(view, key, Cell([&[a, b, c, d], key, payload]));
        if matches!(placed, Err(StoreError::Full)) && !fits {
            self.give_up(view, &description)?;
        }
        placed
    }

    /// Removes `key`. Returns whether it was there.
    ///
    /// # Errors
    ///
    /// The execution has to stop.
    pub fn remove(&self, view: &mut View<'_>, key: &[u8]) -> Result<bool, Stop> {
        if view.is_on_cells() {
            return self.log_remove(view, key);
        }
        let was_inside = view.enter_tree();
        let done = self.remove_from_pages(view, key);
        view.leave_tree(was_inside, Some((self.header, key)));
        done
    }

    #[inline]
    fn remove_from_pages(&self, view: &mut View<'_>, key: &[u8]) -> Result<bool, Stop> {
        if self.is_empty(view)? {
            return Ok(false);
        }
        let (path, leaf) = self.way_to(view, key)?;
        let Ok(at) = Node::of_kind(view.page(leaf)?, NodeKind::Leaf)?.search(key)? else { return Ok(false) };
        self.free_value(view, leaf, at)?;
        node::remove(view.page_mut(leaf)?, at)?;
        self.shrink(view, path, leaf)?;
        Ok(true)
    }

    /// Puts a leaf's cell in its place, instead of one with the same key if there is one.
    fn place(&self, view: &mut View<'_>, key: &[u8], cell: Cell<'_>) -> Result<bool, StoreError> {
        let (_, height) = self.root(view)?;
        if height == 0 {
            let page = self.space.allocate(view)?;
            node::init(view.page_mut(page)?, NodeKind::Leaf, 0);
            node::insert(view.page_mut(page)?, 0, cell)?;
            self.set_root(view, page, 1)?;
            return Ok(false);
        }
        let (path, leaf) = self.way_to(view, key)?;
        let found = Node::of_kind(view.page(leaf)?, NodeKind::Leaf)?.search(key)?;
        let (Ok(at) | Err(at)) = found;
        if found.is_ok() {
            if overwrite(view, leaf, at, cell)? {
                return Ok(true);
            }
            self.check_room(view, leaf, Some(at), cell, height)?;
            self.free_value(view, leaf, at)?;
            node::remove(view.page_mut(leaf)?, at)?;
        } else {
            self.check_room(view, leaf, None, cell, height)?;
        }
        self.insert_cell(view, path, leaf, at, cell)?;
        Ok(found.is_ok())
    }

    /// Checks before anything is changed that a split all the way up will find its pages, and a level for a new root.
    fn check_room(
        &self,
        view: &View<'_>,
        leaf: u32,
        instead_of: Option<usize>,
        cell: Cell<'_>,
        height: usize,
    ) -> Result<(), StoreError> {
        let node = Node::of_kind(view.page(leaf)?, NodeKind::Leaf)?;
        let freed = match instead_of {
            Some(at) => node.cell(at)?.len() + SLOT_BYTES,
            None => 0,
        };
        let fits = node.used()? + cell.len() + SLOT_BYTES <= view.page_bytes() - HEAD_BYTES + freed;
        let needed = u32::try_from(height + 1).unwrap_or(u32::MAX);
        let may_split = height < HEIGHT_MAX && self.space.free_pages(view)? >= needed;
        if fits || may_split { Ok(()) } else { Err(StoreError::Full) }
    }

    /// Inserts a cell into a node, splitting it and those above it as needed.
    fn insert_cell(
        &self,
        view: &mut View<'_>,
        mut path: Path,
        mut page: u32,
        mut at: usize,
        cell: Cell<'_>,
    ) -> Result<(), StoreError> {
        let mut carried: Option<(Separator, [u8; INNER_CELL_BYTES])> = None;
        loop {
            let cell = match &carried {
                None => cell,
                Some((separator, head)) => Cell([head, separator.key(), &[]]),
            };
            if node::insert(view.page_mut(page)?, at, cell)? {
                return Ok(());
            }
            let is_last = path.steps().iter().all(|&(page, at)| is_rightmost(view, page, at));
            let Some((right, separator)) = self.split(view, page, at, cell, is_last)? else {
                return Ok(());
            };
            let head = separator.head(page);
            let Some((parent, index)) = path.pop() else {
                let (_, height) = self.root(view)?;
                let root = self.space.allocate(view)?;
                let content = view.page_mut(root)?;
                node::init(content, NodeKind::Inner, right);
                node::insert(content, 0, Cell([&head, separator.key(), &[]]))?;
                self.set_root(view, root, height + 1)?;
                return Ok(());
            };
            node::set_child(view.page_mut(parent)?, index, right)?;
            (page, at) = (parent, index);
            carried = Some((separator, head));
        }
    }

    /// Distributes the cells of a full node and one more over it and a new one to its right. Returns that
    /// and what separates the two; none if all fits into the node once its garbage is gone.
    fn split(
        &self,
        view: &mut View<'_>,
        page: u32,
        at: usize,
        cell: Cell<'_>,
        is_last: bool,
    ) -> Result<Option<(u32, Separator)>, StoreError> {
        let copy = view.copy(page)?;
        let node = Node::new(&copy)?;
        let cells = Cells { node, at, new: cell };
        let capacity = view.page_bytes() - HEAD_BYTES;
        let done = if node.used()? + cell.len() + SLOT_BYTES <= capacity {
            cells.write(view, page, 0..cells.count(), node.child(node.count())?)?;
            None
        } else {
            let right = self.space.allocate(view)?;
            let middle = cells.middle(is_last)?;
            let separator = match node.kind() {
                NodeKind::Leaf => {
                    cells.write(view, page, 0..middle, 0)?;
                    cells.write(view, right, middle..cells.count(), 0)?;
                    Separator::between(cells.key(middle - 1)?, cells.key(middle)?)?
                }
                NodeKind::Inner => {
                    // The middle cell goes up: its child becomes the rightmost of the left node.
                    cells.write(view, page, 0..middle, cells.child(middle)?)?;
                    cells.write(view, right, middle + 1..cells.count(), node.child(node.count())?)?;
                    Separator::new(cells.key(middle)?)?
                }
            };
            Some((right, separator))
        };
        view.release(copy);
        Ok(done)
    }

    /// Makes the tree smaller after `page` has lost a cell, as far up as that reaches.
    fn shrink(&self, view: &mut View<'_>, mut path: Path, mut page: u32) -> Result<(), Stop> {
        while let Some((parent, index)) = path.pop() {
            let node = Node::new(view.page(page)?)?;
            let is_gone = node.kind() == NodeKind::Leaf && node.count() == 0;
            if is_gone {
                if !drop_child(view, parent, index)? {
                    // It was the only child: the parent is gone as well, and is its own parent's child.
                    self.space.free(view, PageRun { first: page, count: 1 })?;
                    page = parent;
                    node::init(view.page_mut(page)?, NodeKind::Leaf, 0);
                    continue;
                }
                self.space.free(view, PageRun { first: page, count: 1 })?;
            } else if !self.merge(view, page, parent, index)? {
                break;
            }
            page = parent;
        }
        self.lower(view)
    }

    /// Merges a node with a neighbour if little is left in both. Returns whether it did.
    fn merge(&self, view: &mut View<'_>, page: u32, parent: u32, index: usize) -> Result<bool, Stop> {
        let capacity = view.page_bytes() - HEAD_BYTES;
        if Node::new(view.page(page)?)?.used()? > capacity / 4 {
            return Ok(false);
        }
        let count = Node::of_kind(view.page(parent)?, NodeKind::Inner)?.count();
        for left in [Some(index).filter(|index| *index < count), index.checked_sub(1)].into_iter().flatten() {
            let above = Node::of_kind(view.page(parent)?, NodeKind::Inner)?;
            let (a, b) = (above.child(left)?, above.child(left + 1)?);
            let (a_node, b_node) = (Node::new(view.page(a)?)?, Node::new(view.page(b)?)?);
            let between = match a_node.kind() {
                NodeKind::Leaf => 0,
                NodeKind::Inner => INNER_CELL_BYTES + above.key(left)?.len() + SLOT_BYTES,
            };
            // Some room stays, so that the next insertion does not split it again.
            if a_node.used()? + b_node.used()? + between <= capacity / 4 * 3 {
                self.join(view, parent, left, (a, b))?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Moves the cells of `b` behind those of `a`, its left neighbour under the separator `left`.
    fn join(&self, view: &mut View<'_>, parent: u32, left: usize, (a, b): (u32, u32)) -> Result<(), Stop> {
        let (a_copy, b_copy) = (view.copy(a)?, view.copy(b)?);
        let separator = Separator::new(Node::of_kind(view.page(parent)?, NodeKind::Inner)?.key(left)?)?;
        let (a_node, b_node) = (Node::new(&a_copy)?, Node::of_kind(&b_copy, Node::new(&a_copy)?.kind())?);
        let content = view.page_mut(a)?;
        content.fill(0);
        node::init(content, a_node.kind(), b_node.child(b_node.count())?);
        for at in 0..a_node.count() {
            push(content, a_node.cell(at)?)?;
        }
        if a_node.kind() == NodeKind::Inner {
            let middle = a_node.child(a_node.count())?;
            push(content, Cell([&separator.head(middle), separator.key(), &[]]))?;
        }
        for at in 0..b_node.count() {
            push(content, b_node.cell(at)?)?;
        }
        node::set_child(view.page_mut(parent)?, left + 1, a)?;
        node::remove(view.page_mut(parent)?, left)?;
        self.space.free(view, PageRun { first: b, count: 1 })?;
        view.release(a_copy);
        view.release(b_copy);
        Ok(())
    }

    /// Takes away roots with a single child, and a leaf that is the root and empty.
    fn lower(&self, view: &mut View<'_>) -> Result<(), Stop> {
        loop {
            let (root, height) = self.root(view)?;
            let Some(below) = height.checked_sub(1) else { return Ok(()) };
            let node = Node::new(view.page(root)?)?;
            if node.count() > 0 {
                return Ok(());
            }
            let (page, height) = match node.kind() {
                NodeKind::Leaf => (0, 0),
                NodeKind::Inner => (node.child(0)?, below),
            };
            self.set_root(view, page, height)?;
            self.space.free(view, PageRun { first: root, count: 1 })?;
        }
    }

    /// Writes a large value to its own pages and describes it. Returns the description's length.
    fn store(
        &self,
        view: &mut View<'_>,
        value: &[u8],
        description: &mut [u8; DESCRIPTION_BYTES_MAX],
    ) -> Result<usize, StoreError> {
        let page_bytes = view.page_bytes();
        let len = u32::try_from(value.len()).map_err(|_| StoreError::Full)?;
        let mut want = u32::try_from(value.len().div_ceil(page_bytes)).map_err(|_| StoreError::Full)?;
        if self.space.free_pages(view)? < want {
            return Err(StoreError::Full);
        }
        description[..4].copy_from_slice(&len.to_le_bytes());
        let (mut at, mut parts) = (4, value.chunks(page_bytes));
        while want > 0 {
            let runs_left = u32::try_from((DESCRIPTION_BYTES_MAX - at) / RUN_BYTES).unwrap_or(0);
            if runs_left == 0 {
                self.give_up(view, description)?;
                return Err(StoreError::Full);
            }
            let run = self.space.allocate_run(view, want, want.div_ceil(runs_left))?;
            description[at..at + RUN_BYTES].copy_from_slice(&pair_bytes(run.first, run.count));
            at += RUN_BYTES;
            for (page, part) in (run.first..run.first + run.count).zip(&mut parts) {
                view.put(page, part)?;
            }
            want -= run.count;
        }
        Ok(at)
    }

    /// Gives back the pages of a value that has no place in the tree.
    fn give_up(&self, view: &mut View<'_>, description: &[u8; DESCRIPTION_BYTES_MAX]) -> Result<(), Stop> {
        let large = Large { len: 0, runs: &description[4..] };
        for run in large.runs().filter(|run| run.count > 0) {
            self.space.free(view, run)?;
        }
        Ok(())
    }

    /// Gives back the pages of the value of a cell, if it has any.
    fn free_value(&self, view: &mut View<'_>, leaf: u32, at: usize) -> Result<(), Stop> {
        let node = Node::of_kind(view.page(leaf)?, NodeKind::Leaf)?;
        let Value::Large(large) = Value::of(&node, at)? else { return Ok(()) };
        let mut runs = [None; RUNS_MAX];
        for (place, run) in runs.iter_mut().zip(large.runs()) {
            *place = Some(run);
        }
        for run in runs.into_iter().flatten() {
            self.space.free(view, run)?;
        }
        Ok(())
    }
}

impl Separator {
    fn new(key: &[u8]) -> Result<Self, Stop> {
        let mut bytes = [0; KEY_BYTES_MAX];
        bytes.get_mut(..key.len()).ok_or(Stop::Corrupt)?.copy_from_slice(key);
        Ok(Self { bytes, len: key.len() })
    }

    /// Returns the shortest key that is greater than `left` and not greater than `right`.
    fn between(left: &[u8], right: &[u8]) -> Result<Self, Stop> {
        let same = left.iter().zip(right).take_while(|(a, b)| a == b).count();
        Self::new(right.get(..=same).ok_or(Stop::Corrupt)?)
    }

    fn key(&self) -> &[u8] {
        &self.bytes[..self.len]
    }

    /// Returns the beginning of the inner cell with this key and this child.
    fn head(&self, child: u32) -> [u8; INNER_CELL_BYTES] {
        let mut head = [0; INNER_CELL_BYTES];
        head[..4].copy_from_slice(&child.to_le_bytes());
        head[4..].copy_from_slice(&len16(self.len).to_le_bytes());
        head
    }
}

impl<'a> Cells<'a> {
    fn count(&self) -> usize {
        self.node.count() + 1
    }

    fn get(&self, index: usize) -> Result<Cell<'a>, Stop> {
        match index.cmp(&self.at) {
            core::cmp::Ordering::Less => self.node.cell(index),
            core::cmp::Ordering::Equal => Ok(self.new),
            core::cmp::Ordering::Greater => self.node.cell(index - 1),
        }
    }

    fn key(&self, index: usize) -> Result<&'a [u8], Stop> {
        match index.cmp(&self.at) {
            core::cmp::Ordering::Less => self.node.key(index),
            core::cmp::Ordering::Equal => Ok(self.new.0[1]),
            core::cmp::Ordering::Greater => self.node.key(index - 1),
        }
    }

    /// Returns the child of an inner cell.
    fn child(&self, index: usize) -> Result<u32, Stop> {
        let [first, ..] = self.get(index)?.0;
        first.first_chunk().map(|bytes| u32::from_le_bytes(*bytes)).ok_or(Stop::Corrupt)
    }

    /// Returns where to split: half of the bytes on either side; but at the very end of a tree the new
    /// cell goes alone, so that keys that come in order leave full pages behind.
    fn middle(&self, is_last: bool) -> Result<usize, Stop> {
        if is_last && self.at == self.node.count() && self.node.kind() == NodeKind::Leaf {
            return Ok(self.at);
        }
        if self.count() < 4 {
            return Err(Stop::Corrupt);
        }
        let half = (self.node.used()? + self.new.len() + SLOT_BYTES) / 2;
        let mut bytes = 0;
        for index in 0..self.count() {
            bytes += self.get(index)?.len() + SLOT_BYTES;
            if bytes >= half {
                // Neither side may be empty, and of an inner node the middle cell is on neither.
                return Ok(index.clamp(1, self.count() - 2));
            }
        }
        Err(Stop::Corrupt)
    }

    /// Makes `page` a node of some of the cells.
    fn write(
        &self,
        view: &mut View<'_>,
        page: u32,
        range: core::ops::Range<usize>,
        right: u32,
    ) -> Result<(), Stop> {
        let content = view.page_mut(page)?;
        content.fill(0);
        node::init(content, self.node.kind(), right);
        range.into_iter().try_for_each(|index| push(content, self.get(index)?))
    }
}

/// Writes a small value over one of the same length. Returns whether that was possible.
fn overwrite(view: &mut View<'_>, leaf: u32, at: usize, cell: Cell<'_>) -> Result<bool, Stop> {
    let (old, offset, is_large) = Node::of_kind(view.page(leaf)?, NodeKind::Leaf)?.payload(at)?;
    let [head, _, payload] = cell.0;
    let is_new_large = head.get(3).is_some_and(|high| high & 0x80 != 0);
    if is_large || is_new_large || old.len() != payload.len() {
        return Ok(false);
    }
    view.write(leaf, offset, payload)?;
    Ok(true)
}

/// Takes a child out of an inner node; its keys are its neighbour's now. Returns whether there was one.
fn drop_child(view: &mut View<'_>, parent: u32, index: usize) -> Result<bool, Stop> {
    let node = Node::of_kind(view.page(parent)?, NodeKind::Inner)?;
    let Some(last) = node.count().checked_sub(1) else { return Ok(false) };
    if index > last {
        let child = node.child(last)?;
        node::set_child(view.page_mut(parent)?, index, child)?;
    }
    node::remove(view.page_mut(parent)?, index.min(last))?;
    Ok(true)
}

fn push(page: &mut [u8], cell: Cell<'_>) -> Result<(), Stop> {
    let count = Node::new(page)?.count();
    if node::insert(page, count, cell)? { Ok(()) } else { Err(Stop::Corrupt) }
}

/// Returns whether a path takes the rightmost child of a node.
fn is_rightmost(view: &View<'_>, page: u32, at: usize) -> bool {
    view.page(page).and_then(Node::new).is_ok_and(|node| at == node.count())
}

fn len16(len: usize) -> u16 {
    u16::try_from(len).unwrap_or(u16::MAX)
}
