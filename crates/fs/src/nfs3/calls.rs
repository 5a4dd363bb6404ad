//! The client side: encodes calls, and decodes their replies.

use alloc::vec::Vec;

use crate::nfs3::mount3::{self, MountReply, MountStat};
use crate::nfs3::{self, Call, Procedure, Reply};
use crate::rpc::xdr::{self, Opaque, Reader, Xdr, XdrError};
use crate::rpc::{AuthSys, CallHead, OpaqueAuth, ReplyHead, Status};

/// The caller, and the numbers of its calls.
#[derive(Clone, Debug)]
pub struct Calls {
    xid: u32,
    credential: Vec<u8>,
}

/// Why a call has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unanswered {
    /// The service does not accept the call.
    Refused(Status),
    /// The bytes are not a reply to this call.
    Malformed(XdrError),
}

impl core::fmt::Display for Unanswered {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Refused(status) => write!(f, "the call was refused: {status:?}"),
            Self::Malformed(error) => write!(f, "the reply is malformed: {error:?}"),
        }
    }
}

impl core::error::Error for Unanswered {}

impl Calls {
    /// Returns the calls of a user on a machine. `first` is the number of the first one; two processes with the same
    /// first number would be mistaken for each other.
    pub fn new(machine: &str, uid: u32, gid: u32, gids: &[u32], first: u32) -> Self {
        let machine = machine.as_bytes();
        let machine = Opaque(machine.get(..machine.len().min(255)).unwrap_or_default());
        let gids = gids.iter().copied().take(crate::rpc::GROUPS_MAX).collect();
        let credential = xdr::encode(&AuthSys { stamp: 0, machine, uid, gid, gids });
        Self { xid: first.wrapping_sub(1), credential }
    }

    /// Returns the next call of the file system.
    pub fn nfs(&mut self, call: &Call<'_>) -> Vec<u8> {
        let mut bytes = self.head(nfs3::PROGRAM, call.procedure() as u32);
        call.encode(&mut bytes);
        bytes
    }

    /// Returns the call that requests the handle of a directory.
    pub fn mount(&mut self, path: &str) -> Vec<u8> {
        let mut bytes = self.head(mount3::PROGRAM, mount3::Procedure::Mnt as u32);
        Opaque::<{ mount3::PATH_BYTES_MAX }>(path.as_bytes()).encode(&mut bytes);
        bytes
    }

    /// Returns the number of the last call.
    pub fn xid(&self) -> u32 {
        self.xid
    }

    fn head(&mut self, program: u32, procedure: u32) -> Vec<u8> {
        self.xid = self.xid.wrapping_add(1);
        let head = CallHead {
            credential: OpaqueAuth::sys(&self.credential),
            ..CallHead::new(self.xid, program, 3, procedure)
        };
        xdr::encode(&head)
    }
}

/// Decodes the reply to a call of the file system.
///
/// # Errors
///
/// It contains no result.
pub fn nfs_reply(procedure: Procedure, reply: &[u8]) -> Result<Reply<'_>, Unanswered> {
    Reply::decode(procedure, body(reply)?).map_err(Unanswered::Malformed)
}

/// Decodes the reply to [`Calls::mount`]: the handle of the directory.
///
/// # Errors
///
/// It contains no result.
pub fn mount_reply(reply: &[u8]) -> Result<Result<&[u8], MountStat>, Unanswered> {
    match xdr::decode(body(reply)?).map_err(Unanswered::Malformed)? {
        MountReply::Done { handle, .. } => Ok(Ok(handle.0)),
        MountReply::Failed(stat) => Ok(Err(stat)),
    }
}

fn body(reply: &[u8]) -> Result<&[u8], Unanswered> {
    let mut r = Reader::new(reply);
    let status = ReplyHead::decode(&mut r).map_err(Unanswered::Malformed)?.status;
    if status == Status::Success { Ok(r.rest()) } else { Err(Unanswered::Refused(status)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::nfs3::Stat;
    use crate::nfs3::service::Fs;

    #[test]
    fn calls_are_numbered_and_say_who_calls() {
        let mut calls = Calls::new("host", 7, 8, &[9], 5);
        let bytes = calls.nfs(&Call::GetAttr(Opaque(b"handle")));
        let head = CallHead::decode(&mut Reader::new(&bytes)).unwrap();
        assert_eq!((head.xid, head.procedure), (5, Procedure::GetAttr as u32));
        assert!(matches!(head.credential.credential(), crate::rpc::Credential::Sys(sys) if sys.uid == 7));
        let fs = Fs::new(crate::Settings::default()).unwrap();
        assert_eq!(fs.immediate(&bytes), None);
        assert_eq!(fs.immediate(&calls.mount("/")), None);
        assert_eq!(calls.xid(), 6);
    }

    #[test]
    fn replies_say_what_came_of_it() {
        let mut reply = xdr::encode(&ReplyHead { xid: 5, status: Status::Success });
        Reply::GetAttr(Err((Stat::Stale, ()))).encode(&mut reply);
        let said = nfs_reply(Procedure::GetAttr, &reply);
        assert_eq!(said, Ok(Reply::GetAttr(Err((Stat::Stale, ())))));
        assert!(matches!(nfs_reply(Procedure::GetAttr, &reply[..20]), Err(Unanswered::Malformed(_))));
        let refused = xdr::encode(&ReplyHead { xid: 5, status: Status::ProgUnavail });
        assert_eq!(mount_reply(&refused), Err(Unanswered::Refused(Status::ProgUnavail)));
    }
}
