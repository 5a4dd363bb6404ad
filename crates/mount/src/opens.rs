//! The open files, with the users who opened them: see `through`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fuser::{Errno, FileHandle};
use quorate_node::files::User;

/// Maximum number of open files and directories.
const OPENS_MAX: usize = 1 << 18;
/// Maximum number of those of one user.
const USER_OPENS_MAX: usize = OPENS_MAX / 2;

/// The open files and directories, by the kernel's number.
#[derive(Debug, Default)]
pub(crate) struct Opens(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    users: BTreeMap<u64, Arc<User>>,
    /// How many each user has, by user ID.
    counts: BTreeMap<u32, usize>,
}

impl Opens {
    /// Records that a user has opened a file.
    pub(crate) fn open(&self, user: User) -> Result<FileHandle, Errno> {
        let mut table = self.table();
        let count = table.counts.get(&user.uid).copied().unwrap_or(0);
        if table.users.len() >= OPENS_MAX || count >= USER_OPENS_MAX {
            return Err(Errno::ENFILE);
        }
        table.counts.insert(user.uid, count + 1);
        table.next += 1;
        let number = table.next;
        table.users.insert(number, Arc::new(user));
        Ok(FileHandle(number))
    }

    /// Returns the user who opened it.
    pub(crate) fn user(&self, open: FileHandle) -> Result<Arc<User>, Errno> {
        self.table().users.get(&open.0).cloned().ok_or(Errno::EBADF)
    }

    pub(crate) fn close(&self, open: FileHandle) {
        let mut table = self.table();
        let Some(user) = table.users.remove(&open.0) else { return };
        let Some(count) = table.counts.get_mut(&user.uid) else { return };
        *count -= 1;
        if *count == 0 {
            table.counts.remove(&user.uid);
        }
    }

    fn table(&self) -> MutexGuard<'_, Table> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn each_opening_has_its_user_until_it_is_closed() {
        let opens = Opens::default();
        let (a, b) = (User { uid: 7, ..User::default() }, User { uid: 8, ..User::default() });
        let (first, second) = (opens.open(a).unwrap(), opens.open(b).unwrap());
        assert_eq!((opens.user(first).unwrap().uid, opens.user(second).unwrap().uid), (7, 8));
        opens.close(first);
        assert_eq!(opens.user(first).unwrap_err().code(), Errno::EBADF.code());
        assert_ne!(opens.open(User::default()).unwrap(), first);
        assert_eq!(opens.user(second).unwrap().uid, 8);
    }

    #[test]
    fn too_many_are_refused_and_there_is_room_again() {
        let opens = Opens::default();
        let open = |uid| opens.open(User { uid, ..User::default() });
        let first = open(7).unwrap();
        assert!((1..USER_OPENS_MAX).all(|_| open(7).is_ok()));
        assert_eq!(open(7).unwrap_err().code(), Errno::ENFILE.code(), "one user has no more");
        assert!((0..USER_OPENS_MAX).all(|_| open(8).is_ok()), "another one has as many");
        assert_eq!(open(9).unwrap_err().code(), Errno::ENFILE.code());
        opens.close(first);
        opens.close(first);
        open(7).unwrap();
        assert!(open(7).is_err());
    }
}
