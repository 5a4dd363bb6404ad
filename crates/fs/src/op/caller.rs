//! The calling user, and its rights.

use alloc::vec::Vec;

use crate::settings::{Export, Squash};
use crate::types::User;
use crate::volume::inode::Inode;

/// The right to read.
pub(crate) const READ: u16 = 4;
/// The right to write.
pub(crate) const WRITE: u16 = 2;
/// The right to execute a file, or to search a directory.
pub(crate) const EXECUTE: u16 = 1;

/// Set user on execution.
pub(crate) const SETUID: u16 = 0o4000;
/// Set group on execution; in a directory, new entries get its group.
pub(crate) const SETGID: u16 = 0o2000;
/// In a directory: only the owner of an entry may remove it.
pub(crate) const STICKY: u16 = 0o1000;

/// A user with groups, after an export's squashing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Caller {
    pub(crate) uid: u32,
    pub(crate) gid: u32,
    /// Further groups, as many as the caller named.
    gids: Vec<u32>,
}

impl Caller {
    /// Returns the user of a caller at an export. Without a claim it is the anonymous user.
    pub(crate) fn new(user: Option<User<'_>>, export: &Export) -> Self {
        let (uid, gid) = (export.anonymous_uid, export.anonymous_gid);
        let anonymous = Self { uid, gid, gids: Vec::new() };
        let Some(user) = user else { return anonymous };
        let squashed = |id: u32, anonymous| if id == 0 { anonymous } else { id };
        match export.squash {
            Squash::Everyone => anonymous,
            Squash::Nobody => Self { uid: user.uid, gid: user.gid, gids: user.gids.to_vec() },
            Squash::Root => Self {
                uid: squashed(user.uid, uid),
                gid: squashed(user.gid, gid),
                gids: user.gids.iter().map(|id| squashed(*id, gid)).collect(),
            },
        }
    }

    pub(crate) fn is_root(&self) -> bool {
        self.uid == 0
    }

    pub(crate) fn is_in(&self, gid: u32) -> bool {
        self.gid == gid || self.gids.contains(&gid)
    }

    /// Returns whether the user owns an inode, or is root, which may do what an owner may.
    pub(crate) fn owns(&self, inode: &Inode) -> bool {
        self.is_root() || self.uid == inode.uid
    }

    /// Returns whether the user has all of these rights to an inode.
    pub(crate) fn may(&self, inode: &Inode, rights: u16) -> bool {
        if self.is_root() {
            // Root may do anything except execute a file that no one may execute.
            return rights & EXECUTE == 0 || inode.is_dir() || inode.mode & 0o111 != 0;
        }
        let granted = if self.uid == inode.uid {
            inode.mode >> 6
        } else if self.is_in(inode.gid) {
            inode.mode >> 3
        } else {
            inode.mode
        };
        granted & rights == rights
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::types::FileKind;

    fn user(uid: u32, gid: u32, gids: &[u32]) -> User<'_> {
        User { uid, gid, gids }
    }

    /// The first class that contains the caller decides, even if another one would give more rights.
    #[test]
    fn the_owner_then_the_group_then_the_others() {
        let inode = Inode { mode: 0o052, uid: 10, gid: 20, ..Inode::empty(FileKind::Reg) };
        let export = Export::of("/");
        let may = |user: User<'_>, rights| Caller::new(Some(user), &export).may(&inode, rights);
        assert!(!may(user(10, 20, &[]), READ));
        assert!(may(user(11, 20, &[]), READ | EXECUTE) && !may(user(11, 20, &[]), WRITE));
        assert!(may(user(11, 1, &[5, 20]), READ));
        assert!(may(user(11, 1, &[]), WRITE) && !may(user(11, 1, &[]), READ));
    }

    #[test]
    fn squashing_takes_numbers_away() {
        let mut export = Export::of("/");
        let root = user(0, 0, &[0, 7]);
        let squashed = Caller::new(Some(root), &export);
        assert_eq!((squashed.uid, squashed.gid), (65_534, 65_534));
        assert!(!squashed.is_in(0) && squashed.is_in(7));
        export.squash = Squash::Nobody;
        assert!(Caller::new(Some(root), &export).is_root());
        assert_eq!(Caller::new(None, &export).uid, 65_534);
        export.squash = Squash::Everyone;
        assert_eq!(Caller::new(Some(user(10, 20, &[])), &export).uid, 65_534);
    }

    #[test]
    fn root_executes_only_what_someone_may() {
        let root = Caller { uid: 0, gid: 0, gids: Vec::new() };
        let mut inode = Inode { mode: 0, uid: 1, ..Inode::empty(FileKind::Reg) };
        assert!(root.may(&inode, READ | WRITE) && !root.may(&inode, EXECUTE));
        inode.mode = 0o010;
        assert!(root.may(&inode, EXECUTE));
    }
}
