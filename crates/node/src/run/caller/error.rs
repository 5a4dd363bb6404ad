//! The errors of a call.

use quorate_service::registry;
use quorate_wire::message::OPERATION_BYTES_MAX;

/// Identifies an operation with an unknown outcome, as long as the caller exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RequestId(pub u64);

/// Why a call has no result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum CallError {
    /// Nothing was changed: the operation is longer than [`OPERATION_BYTES_MAX`].
    TooLong {
        /// Its length, in bytes.
        len: usize,
    },
    /// Nothing was changed: too many operations wait, or the deadline passed while this one waited.
    Busy,
    /// Nothing was changed: the caller is closed, or its sockets have failed.
    Closed,
    /// Nothing was changed: this client lacks the right, was removed, or is not added yet (EX-3).
    NotAllowed {
        /// The replicas' answer.
        why: registry::RegistryResult,
    },
    /// It timed out and may or may not take effect: [`outcome`](super::Caller::outcome) tells later.
    Unknown {
        /// The operation.
        request: RequestId,
    },
    /// Nothing was done: the client table has no place for another lane of this client.
    NoLane,
    /// It may have been done: this client's identity was used elsewhere, or before, with later timestamps than this
    /// process knows of. Two processes share a copy of one directory, or it was put back from a copy (RP-5).
    Overtaken {
        /// Which operation.
        request: RequestId,
    },
    /// It was done, once, but its result was too long for replicas to keep, and got lost on its way.
    ResultLost,
    /// [`outcome`](super::Caller::outcome) was called for an operation that is no longer known.
    Forgotten,
}

impl CallError {
    /// Returns whether it is certain that the operation did not and will not take effect.
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
                write!(f, "the operation has {len} bytes; at most {OPERATION_BYTES_MAX} are allowed")
            }
            Self::Busy => f.write_str("the cluster is overloaded; nothing was changed"),
            Self::Closed => f.write_str("the client is closed; nothing was changed"),
            Self::NotAllowed { why: registry::RegistryResult::NoRight } => {
                f.write_str("permission denied: this client lacks the right; nothing was changed")
            }
            Self::NotAllowed { .. } => f.write_str(
                "this client is not a member of the cluster (removed, or not added yet); nothing was changed",
            ),
            Self::Unknown { request } => {
                write!(f, "timed out: operation {} may or may not take effect", request.0)
            }
            Self::NoLane => f.write_str(
                "refused, table full: the replicas keep no further last reply for this client; nothing was changed",
            ),
            Self::Overtaken { request } => write!(
                f,
                "operation {} may or may not have taken effect: another process uses this client's directory or a copy",
                request.0
            ),
            Self::ResultLost => f.write_str(
                "the operation took effect once, but its result was too long to be stored and was lost",
            ),
            Self::Forgotten => f.write_str("the outcome of this operation is no longer known"),
        }
    }
}

impl std::error::Error for CallError {}
