//! Calls of the cluster and their answers, each on behalf of the requesting user.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use fuser::Errno;
use quorate_fs::nfs3::calls::{Calls, Unanswered, mount_reply, nfs_reply};
use quorate_fs::nfs3::{Attr, Call, Procedure, Reply, Stat};
use quorate_fs::rpc::xdr::Opaque;
use quorate_fs::rpc::{GROUPS_MAX, Status};
use quorate_node::Caller;
use quorate_node::caller::Pending;
use quorate_node::files::{FilesError, Handle, Machine, User};

use crate::words;

/// How long to wait after JUKEBOX, and how often to retry.
const PAUSE: Duration = Duration::from_millis(100);
const PAUSES_MAX: u32 = 100;

/// The cluster as a file server.
#[derive(Debug)]
pub(crate) struct Server {
    caller: Caller,
    machine: Machine,
    next: AtomicU32,
}

impl Server {
    /// Returns the server that a caller reaches. `first` is the number of the first call.
    pub(crate) fn new(caller: Caller, machine: Machine, first: u32) -> Self {
        Self { caller, machine, next: AtomicU32::new(first) }
    }

    /// Returns the directory `export` and its attributes.
    pub(crate) fn root(&self, user: &User, export: &str) -> Result<(Handle, Attr), FilesError> {
        let call = self.calls(user).mount(export);
        let reply = self.caller.call(&self.machine.operation(&call), false)?;
        let root = mount_reply(&reply)?.map_err(FilesError::Mount)?.to_vec();
        let call = self.calls(user).nfs(&Call::GetAttr(Opaque(&root)));
        let reply = self.caller.call(&self.machine.operation(&call), true)?;
        let Reply::GetAttr(said) = nfs_reply(Procedure::GetAttr, &reply)? else {
            return Err(FilesError::Nfs(Stat::ServerFault));
        };
        said.map(|attributes| (root, attributes)).map_err(|(stat, ())| FilesError::Nfs(stat))
    }

    /// Makes a call and waits for its answer. `take` extracts the result; it returns none for an answer to another
    /// procedure.
    pub(crate) fn ask<T>(
        &self,
        user: &User,
        call: &Call<'_>,
        take: impl Fn(Reply<'_>) -> Option<Result<T, Stat>>,
    ) -> Result<T, Errno> {
        self.finish(self.begin(user, call), user, call, take)
    }

    /// Starts a call. Many can be in progress.
    pub(crate) fn begin(&self, user: &User, call: &Call<'_>) -> Pending {
        let read_only = call.procedure().kind().reads();
        self.caller.submit_known(self.machine.operation(&self.calls(user).nfs(call)), read_only)
    }

    /// Waits for the answer to a call, and repeats the call while the answer is JUKEBOX.
    pub(crate) fn finish<T>(
        &self,
        first: Pending,
        user: &User,
        call: &Call<'_>,
        take: impl Fn(Reply<'_>) -> Option<Result<T, Stat>>,
    ) -> Result<T, Errno> {
        let (mut pending, mut pauses) = (first, 0);
        loop {
            let bytes = pending.wait().map_err(|error| words::of_call(&error))?;
            let reply = match nfs_reply(call.procedure(), &bytes) {
                Ok(reply) => reply,
                Err(Unanswered::Refused(Status::AuthError(_))) => return Err(Errno::EACCES),
                Err(_) => return Err(Errno::EIO),
            };
            match take(reply) {
                Some(Ok(done)) => return Ok(done),
                Some(Err(Stat::Jukebox)) if pauses < PAUSES_MAX => {
                    pauses += 1;
                    std::thread::sleep(PAUSE);
                    pending = self.begin(user, call);
                }
                Some(Err(stat)) => return Err(words::of_stat(stat)),
                None => return Err(Errno::EIO),
            }
        }
    }

    /// Returns the builder of the next call, with a new call number.
    fn calls(&self, user: &User) -> Calls {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.machine.calls(user, number)
    }
}

/// Returns the user of a process: the kernel passes its user and group, and `/proc` has the further groups. Root needs
/// none.
pub(crate) fn user(uid: u32, gid: u32, process: u32) -> User {
    if uid == 0 {
        return User { uid, gid, gids: Vec::new() };
    }
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).unwrap_or_default();
    let groups = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    let gids = groups.split_whitespace().filter_map(|group| group.parse().ok()).take(GROUPS_MAX).collect();
    User { uid, gid, gids }
}
