//! Every message: its fields, and the byte layout of its body on the wire (`docs/wire-format.md`).
//!
//! A body is a fixed part, which authentication covers, and for some kinds a payload after it, which is covered by a
//! digest in the fixed part (CR-3). [`fixed_len`] returns where the payload starts.
//!
//! | Section | Module |
//! |---|---|
//! | REQUEST, REPLY, COLLECT, REQ-ACK, REQ-REJECT | `client` |
//! | PRE-PREPARE, PREPARE, COMMIT | `normal` |
//! | CHECKPOINT, QUERY-STABLE, REPLY-STABLE | `checkpoint` |
//! | SUSPECT, VIEW-CHANGE, NEW-VIEW, VC-FETCH, PROOF | `view_change` |
//! | STATUS, COMMITTED | `status` |
//! | BODY-FETCH, BODY | `body` |
//! | FETCH, META-DATA, DATA | `transfer` |
//! | PROBE, STATEMENT | `statement` |
//! | any body, without its frame | `any` |

mod any;
mod body;
mod checkpoint;
mod client;
mod normal;
mod statement;
mod status;
mod transfer;
mod view_change;

use alloc::boxed::Box;
use alloc::sync::Arc;

pub use self::any::*;
pub use self::body::*;
pub use self::checkpoint::*;
pub use self::client::*;
pub use self::normal::*;
pub use self::statement::*;
pub use self::status::*;
pub use self::transfer::*;
pub use self::view_change::*;
pub use crate::envelope::new_key::NewKey;
pub use crate::envelope::seal::Seal;
use crate::envelope::sign::Signed;
pub use crate::protocol::bounds::{
    CHECKPOINTS_MAX, CHILDREN_MAX, CLAIMS_MAX, FETCH_DIGESTS_MAX, OPERATION_BYTES_MAX, PAGE_BYTES_MAX,
    PIGGYBACK_MAX, RESULT_BYTES_MAX, WANTS_MAX, WINDOW_MAX,
};
use crate::protocol::kinds::kinds;
pub use crate::protocol::kinds::{Kind, RequestFlags};
use crate::protocol::message;

/// The type of a message in memory, by the way its body is read.
macro_rules! in_memory {
    (@ $way:ident) => { _ };
    (boxed $body:ty) => { Box<$body> };
    (signed $body:ty) => { Arc<Signed<$body>> };
    ($way:ident $body:ty) => { $body };
}

macro_rules! message {
    ($($(#[$doc:meta])* $kind:ident = $number:literal, $name:literal, $seal:ident, $route:ident
        $(=> $way:ident $body:ty)?;)*) => {
        /// A decoded message. Borrows from the datagram.
        #[derive(Clone, Debug)]
        #[allow(missing_docs, reason = "each variant is its struct")]
        pub enum Message<'a> { $($($kind(in_memory!($way $body)),)?)* }

        impl Message<'_> {
            /// Returns the kind.
            pub fn kind(&self) -> Kind {
                match self { $($(Self::$kind(in_memory!(@ $way)) => Kind::$kind,)?)* }
            }
        }
    };
}

kinds!(message);

/// Returns how many bytes of a body its authenticator covers; a digest among them stands for the
/// rest (CR-3). REQUEST is not here: what covers it is computed (its digest, replier and flags).
///
/// BODY, META-DATA and DATA are covered as a whole, although digests will prove their content: who
/// sent what is wrong is then known, and a network that corrupts it cannot make a correct replica
/// look faulty (N4).
#[allow(clippy::wildcard_enum_match_arm, reason = "a new kind is covered as a whole")]
pub fn fixed_len(kind: Kind, body: &[u8]) -> usize {
    let fixed = match kind {
        Kind::Reply => client::REPLY_FIXED_BYTES,
        Kind::PrePrepare => normal::pre_prepare_fixed_len(body),
        _ => body.len(),
    };
    fixed.min(body.len())
}
