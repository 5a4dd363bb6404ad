//! Inodes in the state, by their numbers.

use alloc::vec::Vec;

use quorate_service::Stop;

use crate::error::Done;
use crate::volume::Volume;
use crate::volume::bytes::inline;
use crate::volume::inode::{HEAD_BYTES, INLINE_BYTES_MAX, Inode};

impl Volume<'_, '_> {
    /// Returns an inode, if there is one of this number.
    pub(crate) fn inode(&self, number: u64) -> Result<Option<Inode>, Stop> {
        match self.inodes.get(self.view, &number.to_be_bytes())? {
            Some(value) => Inode::decode(inline(&value)?).map(Some),
            None => Ok(None),
        }
    }

    /// Returns an inode that must exist, because the state refers to it.
    pub(crate) fn known_inode(&self, number: u64) -> Result<Inode, Stop> {
        self.inode(number)?.ok_or(Stop::Corrupt)
    }

    /// Returns the inline data of an inode.
    pub(crate) fn inline_data(&self, number: u64) -> Result<&[u8], Stop> {
        let value = self.inodes.get(self.view, &number.to_be_bytes())?.ok_or(Stop::Corrupt)?;
        inline(&value)?.get(HEAD_BYTES..).ok_or(Stop::Corrupt)
    }

    /// Sets an inode's attributes, and keeps its inline data.
    pub(crate) fn put_inode(&mut self, number: u64, inode: &Inode) -> Done<()> {
        let mut data = [0; INLINE_BYTES_MAX];
        let kept = self.inline_data(number)?;
        let len = kept.len();
        data.get_mut(..len).ok_or(Stop::Corrupt)?.copy_from_slice(kept);
        self.put_inode_with(number, inode, data.get(..len).unwrap_or_default())
    }

    /// Sets an inode's attributes and inline data.
    pub(crate) fn put_inode_with(&mut self, number: u64, inode: &Inode, data: &[u8]) -> Done<()> {
        let mut value = Vec::with_capacity(HEAD_BYTES + data.len());
        value.extend_from_slice(&inode.encode());
        value.extend_from_slice(data);
        self.inodes.insert(self.view, &number.to_be_bytes(), &value)?;
        Ok(())
    }
}
