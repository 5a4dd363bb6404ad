//! Why there is no result.

use quorate_service::people;

#[allow(unused_imports, reason = "for the documentation")]
use super::Caller;
use super::{OPERATION_BYTES_MAX, RequestId};

/// Why there is no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallError {
    /// Nothing was done: the operation is longer than [`OPERATION_BYTES_MAX`].
    TooLong {
        /// Its length, in bytes.
        len: usize,
    },
    /// Nothing was done: too many operations wait, or the deadline has passed while this one did.
    Busy,
    /// Nothing was done: the caller is closed, or its sockets have failed.
    Closed,
    /// Nothing was done: this client may not ask for it, was removed, or is not a client yet (EX-3).
    NotAllowed {
        /// What the replicas said.
        why: people::Answer,
    },
    /// It may have been done, or may be done yet: [`Caller::outcome`] tells later.
    Unknown {
        /// Which operation.
        request: RequestId,
    },
    /// Nothing was done: the table of the clients' last replies has no place for another lane of this client.
    NoLane,
    /// It may have been done: this client's identity was used elsewhere, or before, with later timestamps than this
    /// process knows of. Two processes share a copy of one directory, or it was put back from a copy (RP-5).
    Overtaken {
        /// Which operation.
        request: RequestId,
    },
    /// It was done, once, but its result was too long for replicas to keep, and got lost on its way.
    ResultLost,
    /// [`Caller::outcome`] was asked for an operation that it does not know any more.
    Forgotten,
}

impl CallError {
    /// Says whether it is certain that nothing was done and nothing will be.
    pub fn is_refused(&self) -> bool {
        matches!(
            self,
            Self::TooLong { .. } | Self::Busy | Self::Closed | Self::NotAllowed { .. } | Self::NoLane
        )
    }
}

impl std::fmt::Display for CallError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::TooLong { len } => {
                write!(f, "an operation of {len} bytes is too long, {OPERATION_BYTES_MAX} are possible")
            }
            Self::Busy => f.write_str("the cluster does not keep up: nothing was done"),
            Self::Closed => f.write_str("the client is closed: nothing was done"),
            Self::NotAllowed { why: people::Answer::NoRight } => {
                f.write_str("this client has no right to it: nothing was done")
            }
            Self::NotAllowed { .. } => {
                f.write_str("this is not a client of the cluster, any more or yet: nothing was done")
            }
            Self::Unknown { request } => {
                write!(f, "no answer in time: operation {} may have been done or may be done yet", request.0)
            }
            Self::NoLane => f.write_str(
                "refused, table full: replicas keep no more last replies for this client; nothing was done",
            ),
            Self::Overtaken { request } => write!(
                f,
                "operation {} may or may not have been done: another process uses this client's directory or a copy",
                request.0
            ),
            Self::ResultLost => {
                f.write_str("it was done, but its result was too long to be kept and got lost")
            }
            Self::Forgotten => f.write_str("not known any more"),
        }
    }
}

impl std::error::Error for CallError {}
