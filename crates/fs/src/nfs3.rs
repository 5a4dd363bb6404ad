//! NFS version 3 as a face of the operations [RFC 1813]: calls become operations, and what they return becomes results.
//!
//! Names are those of the RFC without their numbers and prefixes; the RFC describes the fields.
//!
//! | Part | Module |
//! |---|---|
//! | the table of the procedures | `procedures` |
//! | their arguments and results, and how they are answered | `attributes`, `create`, `data`, `list`, `names`, `statistics` |
//! | values that several of them share | `types`, `convert` |
//! | the program MOUNT | [`mount3`] |
//! | the operation of the service: a call, and the address of its client | [`operation`] |
//! | the service: a call in, a reply out | [`service`] |
//! | replies to calls that may be repeated | `reply_cache` |
//! | a gateway's side of a connection, without sockets | [`relay`] |
//! | as whom its calls are executed | [`acts_as`] |
//! | the client side: encoding calls | [`calls`] |

use quorate_service::Stop;

use crate::error::{Done, OpError};
use crate::op::Op;

pub mod acts_as;
mod attributes;
pub mod calls;
mod convert;
mod create;
mod data;
mod list;
pub mod mount3;
mod names;
pub mod operation;
mod procedures;
pub mod relay;
mod reply_cache;
pub mod rules;
pub mod service;
mod statistics;
mod types;

pub use attributes::*;
pub use create::*;
pub use data::*;
pub use list::*;
pub use names::*;
pub use procedures::*;
pub use statistics::*;
pub use types::*;

/// A call that is being answered. Attributes before and after come from the same step as the change.
struct Face<'r, 's, 'v> {
    op: Op<'r, 's, 'v>,
}

impl Face<'_, '_, '_> {
    /// Returns the present attributes of a handle; none if it is stale.
    fn post(&self, fh: &Fh<'_>) -> Result<Option<Attr>, Stop> {
        Ok(self.op.current(fh.0)?.as_ref().map(Attr::from))
    }

    /// Returns the attributes of a handle before a change.
    fn before(&self, fh: &Fh<'_>) -> Result<Option<WccAttr>, Stop> {
        Ok(self.op.current(fh.0)?.as_ref().map(WccAttr::from))
    }

    /// Returns the attributes of a handle before and after a change.
    fn wcc(&self, fh: &Fh<'_>, before: Option<WccAttr>) -> Result<Wcc, Stop> {
        Ok(Wcc { before, after: self.post(fh)? })
    }
}

/// Makes the result of a procedure from that of an operation; `failed` returns what the result has if it failed.
fn settle<T, F>(done: Done<T>, failed: impl FnOnce() -> Result<F, Stop>) -> Result<NfsResult<T, F>, Stop> {
    match done {
        Ok(done) => Ok(Ok(done)),
        Err(OpError::Refused(why)) => Ok(Err((why.into(), failed()?))),
        Err(OpError::Stop(stop)) => Err(stop),
    }
}
