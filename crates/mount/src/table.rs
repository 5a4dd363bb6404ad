//! The inodes that the kernel knows, and the files that it has open.
//!
//! A file's number is its inode number, which is never reused. The root of the mount has number 1, whatever its number in
//! the file system. The table is as long as the kernel's own: an inode that the kernel forgets is removed.

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use fuser::Errno;
use quorate_node::files::{Handle, User};

/// The number of the root.
pub(crate) const ROOT: u64 = 1;

/// The hidden name of a file that was removed while it was open.
#[derive(Clone, Debug)]
pub(crate) struct Hidden {
    pub(crate) dir: Handle,
    pub(crate) name: Vec<u8>,
    /// The user who removed it.
    pub(crate) user: User,
}

#[derive(Debug)]
struct Node {
    handle: Handle,
    /// The kernel's lookup count.
    lookups: u64,
    /// The number of times that it is open.
    opens: u64,
    hidden: Option<Hidden>,
}

/// The table.
#[derive(Debug)]
pub(crate) struct Table {
    /// The inode of the root.
    root: u64,
    nodes: Mutex<Nodes>,
}

#[derive(Debug)]
struct Nodes {
    nodes: BTreeMap<u64, Node>,
    /// The open files.
    open: usize,
}

impl Table {
    /// Returns a table with the root only.
    pub(crate) fn new(root: Handle, inode: u64) -> Self {
        let node = Node { handle: root, lookups: 1, opens: 0, hidden: None };
        let nodes = Nodes { nodes: BTreeMap::from([(ROOT, node)]), open: 0 };
        Self { root: inode, nodes: Mutex::new(nodes) }
    }

    /// Returns the number of an inode.
    pub(crate) fn number(&self, inode: u64) -> u64 {
        match inode {
            inode if inode == self.root => ROOT,
            ROOT => self.root,
            inode => inode,
        }
    }

    /// Returns the handle of a number.
    pub(crate) fn handle(&self, number: u64) -> Result<Handle, Errno> {
        self.nodes().nodes.get(&number).map(|node| node.handle.clone()).ok_or(Errno::ESTALE)
    }

    /// Counts a lookup of an inode by the kernel, and returns its number.
    pub(crate) fn note(&self, inode: u64, handle: &[u8]) -> u64 {
        let number = self.number(inode);
        let mut nodes = self.nodes();
        let node = nodes.nodes.entry(number).or_insert_with(|| Node {
            handle: Vec::new(),
            lookups: 0,
            opens: 0,
            hidden: None,
        });
        node.handle = handle.to_vec();
        node.lookups = node.lookups.saturating_add(1);
        number
    }

    /// Subtracts lookups that the kernel forgets.
    pub(crate) fn forget(&self, number: u64, lookups: u64) {
        let mut nodes = self.nodes();
        if let Some(node) = nodes.nodes.get_mut(&number).filter(|_| number != ROOT) {
            node.lookups = node.lookups.saturating_sub(lookups);
            if node.lookups == 0 && node.opens == 0 {
                nodes.nodes.remove(&number);
            }
        }
    }

    pub(crate) fn opened(&self, number: u64) {
        let mut nodes = self.nodes();
        if let Some(node) = nodes.nodes.get_mut(&number) {
            node.opens += 1;
            nodes.open += usize::from(node_is_new(node));
        }
    }

    /// Records that a file was closed. Returns its hidden name to remove if it is no longer open.
    pub(crate) fn closed(&self, number: u64) -> Option<Hidden> {
        let mut nodes = self.nodes();
        let node = nodes.nodes.get_mut(&number)?;
        node.opens = node.opens.saturating_sub(1);
        if node.opens > 0 {
            return None;
        }
        let hidden = node.hidden.take();
        let is_forgotten = node.lookups == 0;
        nodes.open = nodes.open.saturating_sub(1);
        if is_forgotten {
            nodes.nodes.remove(&number);
        }
        hidden
    }

    /// Returns whether any file is open.
    pub(crate) fn has_open(&self) -> bool {
        self.nodes().open > 0
    }

    /// Counts an inode as open once more if it is open and has no hidden name yet. Returns whether it did.
    pub(crate) fn hold(&self, inode: u64) -> bool {
        let number = self.number(inode);
        let mut nodes = self.nodes();
        let node = nodes.nodes.get_mut(&number).filter(|node| node.opens > 0 && node.hidden.is_none());
        node.map(|node| node.opens += 1).is_some()
    }

    /// Records the hidden name of an inode that is held, until it is closed.
    pub(crate) fn hide(&self, inode: u64, hidden: Hidden) {
        let number = self.number(inode);
        if let Some(node) = self.nodes().nodes.get_mut(&number) {
            node.hidden = Some(hidden);
        }
    }

    /// Forgets the hidden name: the file keeps it when it is closed, or does not have it any more.
    pub(crate) fn unhide(&self, inode: u64) {
        let number = self.number(inode);
        if let Some(node) = self.nodes().nodes.get_mut(&number) {
            node.hidden = None;
        }
    }

    fn nodes(&self) -> MutexGuard<'_, Nodes> {
        self.nodes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn node_is_new(node: &Node) -> bool {
    node.opens == 1
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn the_root_is_number_one_whatever_its_inode_is() {
        let table = Table::new(b"root".to_vec(), 9);
        assert_eq!((table.number(9), table.number(1), table.number(5)), (1, 9, 5));
        assert_eq!(table.handle(1).unwrap(), b"root");
        table.forget(1, 99);
        assert_eq!(table.handle(1).unwrap(), b"root");
    }

    #[test]
    fn what_the_kernel_forgets_goes_unless_it_is_open() {
        let table = Table::new(b"root".to_vec(), 1);
        assert_eq!((table.note(7, b"a"), table.note(7, b"a")), (7, 7));
        table.opened(7);
        table.forget(7, 1);
        table.forget(7, 1);
        assert_eq!(table.handle(7).unwrap(), b"a");
        assert!(table.closed(7).is_none() && !table.has_open());
        assert_eq!(table.handle(7).unwrap_err().code(), Errno::ESTALE.code());
    }

    #[test]
    fn a_hidden_name_goes_with_the_last_that_has_the_file_open() {
        let table = Table::new(b"root".to_vec(), 1);
        table.note(7, b"a");
        let hidden = Hidden { dir: b"root".to_vec(), name: b"h".to_vec(), user: User::default() };
        assert!(!table.hold(7), "nobody has it open");
        table.opened(7);
        assert!(table.hold(7));
        table.hide(7, hidden);
        assert!(!table.hold(7), "it has a hidden name");
        assert!(table.closed(7).is_none());
        assert_eq!(table.closed(7).unwrap().name, b"h");
        assert!(!table.has_open());
    }
}
