//! Changes of a tree in a run on cells: logged by the run, applied to the pages when the request settles.

use crate::state::btree::Tree;
use crate::state::cell::{Change, TreePlace};
use crate::state::space::{Space, StoreError};
use crate::state::view::View;
use crate::stop::Stop;

impl Tree {
    /// Logs that a key is set. Returns whether it was there before.
    #[cold]
    pub(super) fn log_insert(&self, view: &mut View<'_>, key: &[u8], value: &[u8]) -> Result<bool, Stop> {
        let existed = self.get(view, key)?.is_some();
        let cell = view.entry(self.header, key)?;
        let (key, value) = (key.to_vec(), value.to_vec());
        view.log(cell, Change::Insert { tree: self.where_it_is(), key, value, existed });
        Ok(existed)
    }

    /// Logs that a key is removed. Returns whether it was there.
    #[cold]
    pub(super) fn log_remove(&self, view: &mut View<'_>, key: &[u8]) -> Result<bool, Stop> {
        let existed = self.get(view, key)?.is_some();
        let cell = view.entry(self.header, key)?;
        view.log(cell, Change::Remove { tree: self.where_it_is(), key: key.to_vec(), existed });
        Ok(existed)
    }

    fn where_it_is(&self) -> TreePlace {
        TreePlace { header: self.header, space: self.space.where_it_is() }
    }

    fn at(view: &View<'_>, place: TreePlace) -> Self {
        Self::new(place.header, Space::new(view, place.space.0, place.space.1))
    }
}

/// Applies a change that a run on cells has logged. Returns whether its outcome is the same.
pub(crate) fn apply(view: &mut View<'_>, change: &Change) -> Result<bool, Stop> {
    match change {
        Change::Insert { tree, key, value, existed } => {
            match Tree::at(view, *tree).insert(view, key, value) {
                Ok(is_there) => Ok(is_there == *existed),
                Err(StoreError::Full | StoreError::KeyTooLong) => Ok(false),
                Err(StoreError::Stop(stop)) => Err(stop),
            }
        }
        Change::Remove { tree, key, existed } => Ok(Tree::at(view, *tree).remove(view, key)? == *existed),
        Change::Add { page, at, delta, max, fits } => Ok(view.add(*page, *at, *delta, *max)? == *fits),
        Change::Step(_) => Ok(false),
    }
}
