//! Changes of a tree in a run on cells: logged by the run, applied to the pages when the request settles.

use alloc::vec::Vec;

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

    /// In a run on cells, notes the value that a key will have when the run has settled, or that it will not be there. The
    /// change itself is one of the service's own ([`View::postpone`]).
    ///
    /// # Errors
    ///
    /// The tree is not one of this view.
    pub fn draft(&self, view: &mut View<'_>, key: &[u8], value: Option<Vec<u8>>) -> Result<(), Stop> {
        let cell = view.entry(self.header, key)?;
        view.draft(cell, value);
        Ok(())
    }

    /// Returns what this run, or an unsettled request that it sees, has noted of a key with [`Self::draft`]. Nothing
    /// of this is noted as read: the service has read a cell that changes with it.
    ///
    /// # Errors
    ///
    /// The state is at another thread.
    pub fn drafted<'v>(&self, view: &'v View<'_>, key: &[u8]) -> Result<Option<Option<&'v [u8]>>, Stop> {
        let Some(cells) = view.cells() else { return Ok(None) };
        cells.drafted(&view.entry(self.header, key)?)
    }

    /// Returns whether this run, or an unsettled request that it sees, has written a key that begins with `prefix`. If
    /// not, the settled state has all of these keys.
    ///
    /// # Errors
    ///
    /// The state is at another thread.
    pub fn has_drafts(&self, view: &View<'_>, prefix: &[u8]) -> Result<bool, Stop> {
        let Some(cells) = view.cells() else { return Ok(false) };
        cells.has_drafts(&view.entry(self.header, prefix)?)
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
        Change::Number { page, at, value } => view.set_number(*page, *at, *value).map(|()| true),
        Change::Own(_) | Change::Step(_) => Ok(false),
    }
}
