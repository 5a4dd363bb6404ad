//! The pages that a tree uses, for checks that no page is lost or used twice.

use alloc::vec::Vec;

use crate::state::btree::node::{Node, NodeKind};
use crate::state::btree::{Tree, Value};
use crate::state::space::PageRun;
use crate::state::view::View;
use crate::stop::Stop;

impl Tree {
    /// Hands out the pages of the tree: each node, and the runs of large values. `visit` says whether to
    /// look below a node: in a damaged tree a page may turn up again and again.
    ///
    /// # Errors
    ///
    /// A page is not here, or is not what it should be.
    pub fn for_each_run(&self, view: &View<'_>, mut visit: impl FnMut(PageRun) -> bool) -> Result<(), Stop> {
        view.needs_pages()?;
        let (root, height) = self.root(view)?;
        let mut below: Vec<(u32, usize)> = Vec::new();
        if height > 0 {
            below.push((root, height));
        }
        while let Some((page, height)) = below.pop() {
            if !visit(PageRun { first: page, count: 1 }) {
                continue;
            }
            if height > 1 {
                let node = Node::of_kind(view.page(page)?, NodeKind::Inner)?;
                for at in 0..=node.count() {
                    below.push((node.child(at)?, height - 1));
                }
            } else {
                let leaf = Node::of_kind(view.page(page)?, NodeKind::Leaf)?;
                for at in 0..leaf.count() {
                    if let Value::Large(large) = Value::of(&leaf, at)? {
                        large.runs().for_each(|run| {
                            visit(run);
                        });
                    }
                }
            }
        }
        Ok(())
    }
}
