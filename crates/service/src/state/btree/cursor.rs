//! Walking a tree in the order of its keys, both ways.

use crate::state::btree::node::{Node, NodeKind};
use crate::state::btree::{Path, Tree, Value};
use crate::state::view::View;
use crate::stop::Stop;

/// A place between two keys of a tree. Any change of the tree makes it useless.
#[derive(Clone, Copy, Debug)]
pub struct Cursor {
    /// From the root to a leaf; the step in the leaf is the next cell. Empty in an empty tree.
    path: Path,
}

/// A key and its value.
pub type TreeEntry<'v> = (&'v [u8], Value<'v>);

impl Tree {
    /// Returns a cursor before the first key that is not less than `key`.
    ///
    /// # Errors
    ///
    /// A page is not here, or is not what it should be.
    pub fn seek(&self, view: &View<'_>, key: &[u8]) -> Result<Cursor, Stop> {
        // Ranges of keys are not cells.
        view.needs_pages()?;
        if self.is_empty(view)? {
            return Ok(Cursor { path: Path::new() });
        }
        let (mut path, leaf) = self.way_to(view, key)?;
        let at = match Node::of_kind(view.page(leaf)?, NodeKind::Leaf)?.search(key)? {
            Ok(at) | Err(at) => at,
        };
        path.push(leaf, at)?;
        Ok(Cursor { path })
    }

    /// Returns a cursor before the first key.
    ///
    /// # Errors
    ///
    /// As [`Self::seek`].
    pub fn first(&self, view: &View<'_>) -> Result<Cursor, Stop> {
        self.seek(view, &[])
    }

    /// Returns a cursor behind the last key.
    ///
    /// # Errors
    ///
    /// As [`Self::seek`].
    pub fn last(&self, view: &View<'_>) -> Result<Cursor, Stop> {
        view.needs_pages()?;
        let (root, height) = self.root(view)?;
        let mut cursor = Cursor { path: Path::new() };
        if height > 0 {
            cursor.descend(view, root, height, false)?;
        }
        Ok(cursor)
    }
}

impl Cursor {
    /// Steps over the next key and returns it with its value; none at the end.
    ///
    /// # Errors
    ///
    /// As [`Tree::seek`].
    pub fn next<'v>(&mut self, view: &'v View<'_>) -> Result<Option<TreeEntry<'v>>, Stop> {
        loop {
            let Some(&(page, at)) = self.path.steps().last() else { return Ok(None) };
            let leaf = Node::of_kind(view.page(page)?, NodeKind::Leaf)?;
            if at < leaf.count() {
                self.path.set_last(at + 1);
                return Ok(Some((leaf.key(at)?, Value::of(&leaf, at)?)));
            }
            if !self.turn(view, true)? {
                return Ok(None);
            }
        }
    }

    /// Steps over this many keys, a leaf at a time; over fewer at the end.
    ///
    /// # Errors
    ///
    /// As [`Tree::seek`].
    pub fn skip(&mut self, view: &View<'_>, mut count: u32) -> Result<(), Stop> {
        while let Some(&(page, at)) = self.path.steps().last() {
            let leaf = Node::of_kind(view.page(page)?, NodeKind::Leaf)?;
            let left = u32::try_from(leaf.count().saturating_sub(at)).unwrap_or(u32::MAX);
            if count <= left {
                self.path.set_last(at + usize::try_from(count).unwrap_or(usize::MAX));
                return Ok(());
            }
            count -= left;
            self.path.set_last(leaf.count());
            if !self.turn(view, true)? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Steps back over the key before and returns it with its value; none at the beginning.
    ///
    /// # Errors
    ///
    /// As [`Tree::seek`].
    pub fn prev<'v>(&mut self, view: &'v View<'_>) -> Result<Option<TreeEntry<'v>>, Stop> {
        loop {
            let Some(&(page, at)) = self.path.steps().last() else { return Ok(None) };
            let leaf = Node::of_kind(view.page(page)?, NodeKind::Leaf)?;
            if let Some(before) = at.checked_sub(1) {
                self.path.set_last(before);
                return Ok(Some((leaf.key(before)?, Value::of(&leaf, before)?)));
            }
            if !self.turn(view, false)? {
                return Ok(None);
            }
        }
    }

    /// Goes from the end of a leaf to the beginning of the next, or from its beginning to the end of the
    /// one before. Returns whether there is one; if not, the cursor stays.
    fn turn(&mut self, view: &View<'_>, forward: bool) -> Result<bool, Stop> {
        let mut path = self.path;
        let mut levels = 0;
        path.pop();
        while let Some((page, at)) = path.pop() {
            levels += 1;
            let node = Node::of_kind(view.page(page)?, NodeKind::Inner)?;
            let next =
                if forward { Some(at + 1).filter(|at| *at <= node.count()) } else { at.checked_sub(1) };
            if let Some(next) = next {
                path.push(page, next)?;
                self.path = path;
                self.descend(view, node.child(next)?, levels, forward)?;
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Descends `levels` nodes from `page`, always to the beginning or always to the end.
    fn descend(&mut self, view: &View<'_>, page: u32, levels: usize, at_beginning: bool) -> Result<(), Stop> {
        let mut page = page;
        for level in (1..=levels).rev() {
            let kind = if level == 1 { NodeKind::Leaf } else { NodeKind::Inner };
            let node = Node::of_kind(view.page(page)?, kind)?;
            let at = if at_beginning { 0 } else { node.count() };
            self.path.push(page, at)?;
            if level > 1 {
                page = node.child(at)?;
            }
        }
        Ok(())
    }
}
