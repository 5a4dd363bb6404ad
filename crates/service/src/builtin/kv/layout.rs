//! Where the store's trees are in page 0.

use super::further::DATABASES;
use crate::state::btree::Tree;
use crate::state::space::Space;

/// Bytes of the trees of a database in page 0.
pub(super) const TREES_BYTES: usize = 3 * Tree::HEADER_BYTES;
/// Where the tree of the elements is in page 0.
pub(super) const ELEMENTS_AT: usize = count_at(DATABASES as usize - 1) + 4;
/// The shortest page has room for all databases.
const _: () = assert!(ELEMENTS_AT + Tree::HEADER_BYTES <= 512);

/// Returns where a database is in page 0.
pub(super) const fn at(database: usize) -> usize {
    match database.checked_sub(1) {
        None => Space::HEADER_BYTES,
        Some(before) => Space::HEADER_BYTES + TREES_BYTES + 8 + before * (TREES_BYTES + 4),
    }
}

/// Returns where the number of keys of a database is in page 0.
pub(super) const fn count_at(database: usize) -> usize {
    at(database) + TREES_BYTES
}

pub(super) fn trees(space: Space, database: usize) -> [Tree; 3] {
    [0, 1, 2].map(|tree| Tree::new((0, at(database) + tree * Tree::HEADER_BYTES), space))
}
