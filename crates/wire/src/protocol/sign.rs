//! What the signatures of this protocol cover.

pub use crate::envelope::sign::*;

use crate::envelope::digest::{Digest, Domains};
use crate::envelope::id::Principal;
use crate::protocol::kinds::Kind;

/// Returns what a client's signature of a request covers: its digest, which covers client,
/// timestamp and operation, so that a retransmission keeps the signature (spec §4.1).
pub fn request_digest(domains: &Domains, epoch: u32, sender: Principal, request: &Digest) -> Digest {
    signed_digest(domains, Kind::Request, epoch, sender, &request.0)
}
