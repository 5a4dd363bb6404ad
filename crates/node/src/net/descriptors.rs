//! How many files and sockets this process may have open.

use std::io;

use nix::errno::Errno;
use nix::sys::resource::{Resource, getrlimit, setrlimit};

/// Raises the limit of this process as far as it may, for a process whose users bring connections. Shells allow 1,024,
/// for the sake of programs that cannot count further.
pub fn raise() {
    if let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE)
        && soft < hard
    {
        // If it may not, the limit stays: `most` says which.
        let _ = setrlimit(Resource::RLIMIT_NOFILE, hard, hard);
    }
}

/// Returns how many descriptors this process may have.
pub fn most() -> usize {
    let soft = getrlimit(Resource::RLIMIT_NOFILE).map_or(0, |(soft, _)| soft);
    usize::try_from(soft).unwrap_or(usize::MAX)
}

/// Returns whether an error says that this process, or the machine, has no descriptor left. The same can succeed later.
pub(crate) fn are_gone(error: &io::Error) -> bool {
    let code = error.raw_os_error().map(Errno::from_raw);
    matches!(code, Some(Errno::EMFILE | Errno::ENFILE))
}
