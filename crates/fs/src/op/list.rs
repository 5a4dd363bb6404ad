//! The entries of a directory.

use quorate_service::Stop;

use super::{Made, Op};
use crate::error::{Done, Why};
use crate::op::caller::READ;

/// An entry of a directory.
pub(crate) struct Listed<'e> {
    /// Where a list continues behind it.
    pub(crate) cookie: u64,
    pub(crate) number: u64,
    pub(crate) name: &'e [u8],
    about: &'e dyn Fn() -> Result<Made, Stop>,
}

impl Listed<'_> {
    /// Returns the entry's handle and attributes.
    pub(crate) fn about(&self) -> Result<Made, Stop> {
        (self.about)()
    }
}

impl Op<'_, '_, '_> {
    /// Hands the entries behind `cookie` to `take`, until it takes no more; `is_known`: the caller's cookies are from
    /// here. Returns whether the directory ends.
    pub(crate) fn list(
        &mut self,
        dir: &[u8],
        cookie: u64,
        is_known: bool,
        take: &mut dyn FnMut(&Listed<'_>) -> Result<bool, Stop>,
    ) -> Done<bool> {
        let dir = self.node(dir)?;
        dir.check_dir()?;
        dir.check(READ)?;
        if !is_known {
            return Err(Why::BadCookie.into());
        }
        self.accessed(&dir)?;
        let mut take = |cookie, number, name: &[u8]| {
            let about = || {
                let inode = self.volume.known_inode(number)?;
                Ok((self.handle(&dir, number, &inode), self.attributes(number, &inode)))
            };
            take(&Listed { cookie, number, name, about: &about })
        };
        if cookie < 1 && !take(1, dir.number, b".")? {
            return Ok(false);
        }
        if cookie < 2 {
            let parent = self.parent(&dir)?;
            if !take(2, parent, b"..")? {
                return Ok(false);
            }
        }
        Ok(self.volume.list(dir.number, cookie.max(2), take)?)
    }
}
