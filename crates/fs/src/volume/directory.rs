//! Directories: entries by name, for lookups, and by cookie, for listings.
//!
//! A cookie is a number that is used once in a directory's life. A listing is in the order of cookies, and continues
//! after one even if its entry was removed. So an entry that exists during the whole listing is listed once, whatever
//! is created and removed in the meantime. Cookies never become invalid, and the cookie verifier is always zero.

use alloc::vec::Vec;

use quorate_service::Stop;

use crate::error::Done;
use crate::volume::Volume;
use crate::volume::bytes::{be64, inline, le64, next_of, pair_key};
use crate::volume::inode::Inode;

/// Maximum length of a name, in bytes.
pub(crate) const NAME_BYTES_MAX: usize = 255;

/// An entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct DirEntry {
    pub(crate) inode: u64,
    pub(crate) cookie: u64,
}

fn name_key(dir: u64, name: &[u8]) -> Vec<u8> {
    let mut key = Vec::with_capacity(8 + name.len());
    key.extend_from_slice(&dir.to_be_bytes());
    key.extend_from_slice(name);
    key
}

impl DirEntry {
    /// Returns the entry in the value of a name.
    pub(crate) fn decode(value: &[u8]) -> Result<Self, Stop> {
        Ok(Self { inode: le64(value, 0)?, cookie: le64(value, 8)? })
    }
}

impl Volume<'_, '_> {
    /// Returns the entry of a name.
    pub(crate) fn find(&self, dir: u64, name: &[u8]) -> Result<Option<DirEntry>, Stop> {
        match self.names.get(self.view, &name_key(dir, name))? {
            Some(value) => DirEntry::decode(inline(&value)?).map(Some),
            None => Ok(None),
        }
    }

    /// Adds an entry with a new name. Changes `inode`, the directory's, which the caller must store.
    pub(crate) fn add_entry(&mut self, dir: u64, inode: &mut Inode, name: &[u8], target: u64) -> Done<()> {
        let cookie = inode.next_cookie;
        inode.next_cookie = cookie.checked_add(1).ok_or(Stop::Corrupt)?;
        inode.entries = inode.entries.checked_add(1).ok_or(Stop::Corrupt)?;
        self.set_entry(dir, name, DirEntry { inode: target, cookie })
    }

    /// Sets the inode of a name. Its cookie stays, so that a listing contains the name once.
    pub(crate) fn set_entry(&mut self, dir: u64, name: &[u8], entry: DirEntry) -> Done<()> {
        let [mut by_name, mut by_cookie] = [Vec::with_capacity(16), Vec::with_capacity(8 + name.len())];
        by_name.extend_from_slice(&entry.inode.to_le_bytes());
        by_name.extend_from_slice(&entry.cookie.to_le_bytes());
        self.names.insert(self.view, &name_key(dir, name), &by_name)?;
        by_cookie.extend_from_slice(&entry.inode.to_le_bytes());
        by_cookie.extend_from_slice(name);
        self.cookies.insert(self.view, &pair_key(dir, entry.cookie), &by_cookie)?;
        Ok(())
    }

    /// Removes an entry. Changes `inode`, the directory's, which the caller must store.
    pub(crate) fn remove_entry(&mut self, dir: u64, inode: &mut Inode, name: &[u8], cookie: u64) -> Done<()> {
        let by_name = self.names.remove(self.view, &name_key(dir, name))?;
        let by_cookie = self.cookies.remove(self.view, &pair_key(dir, cookie))?;
        inode.entries = inode.entries.checked_sub(1).ok_or(Stop::Corrupt)?;
        if by_name && by_cookie { Ok(()) } else { Err(Stop::Corrupt.into()) }
    }

    /// Passes the entries after `cookie` to `take`, in the order of their cookies, until it returns that it did not
    /// take an entry. Returns whether all were taken.
    pub(crate) fn list(
        &self,
        dir: u64,
        cookie: u64,
        take: impl FnMut(u64, u64, &[u8]) -> Result<bool, Stop>,
    ) -> Result<bool, Stop> {
        if self.cookies.has_drafts(self.view, &dir.to_be_bytes())? {
            self.view.needs_pages()?;
        }
        self.settled(|volume| volume.walk_entries(dir, cookie, take))
    }

    fn walk_entries(
        &self,
        dir: u64,
        cookie: u64,
        mut take: impl FnMut(u64, u64, &[u8]) -> Result<bool, Stop>,
    ) -> Result<bool, Stop> {
        let Some(from) = cookie.checked_add(1) else { return Ok(true) };
        let mut cursor = self.cookies.seek(self.view, &pair_key(dir, from))?;
        while let Some((key, value)) = next_of(&mut cursor, self.view, &dir.to_be_bytes())? {
            let name = value.get(8..).ok_or(Stop::Corrupt)?;
            if !take(be64(key)?, le64(value, 0)?, name)? {
                return Ok(false);
            }
        }
        Ok(true)
    }
}
