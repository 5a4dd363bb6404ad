//! The open files, with the users who opened them: see `through`.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use fuser::{Errno, FileHandle};
use quorate_node::files::User;

/// Maximum number of open files and directories.
const OPENS_MAX: usize = 1 << 18;

/// The open files and directories, by the kernel's number.
#[derive(Debug, Default)]
pub(crate) struct Opens(Mutex<Table>);

#[derive(Debug, Default)]
struct Table {
    next: u64,
    users: BTreeMap<u64, Arc<User>>,
}

impl Opens {
    /// Records that a user has opened a file.
    pub(crate) fn open(&self, user: User) -> Result<FileHandle, Errno> {
        let mut table = self.table();
        if table.users.len() >= OPENS_MAX {
            return Err(Errno::ENFILE);
        }
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
        self.table().users.remove(&open.0);
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
        let first = opens.open(User::default()).unwrap();
        assert!((1..OPENS_MAX).all(|_| opens.open(User::default()).is_ok()));
        assert_eq!(opens.open(User::default()).unwrap_err().code(), Errno::ENFILE.code());
        opens.close(first);
        opens.open(User::default()).unwrap();
    }
}
