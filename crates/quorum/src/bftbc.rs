//! BFT-BC [ICDCS06, on the protocol]: a register for Byzantine clients, with certificates (§6).
//!
//! A client may propose only the direct successor of an approved version, only one value for each
//! prepare, and only after proving that its previous write completed.
//!
//! | Part | Module |
//! |---|---|
//! | a server: READ, WRITE, COMPLETE, repair | `server` |
//! | signatures that come after the acknowledgement (§6.4) | `late` |
//! | the lists and rules a to e of PREPARE, H2 | `lists` |
//! | a client's side of an object | `client` |
//! | its reads (§6.2) and phase 1 of the strong variant (§6.7) | `reading` |
//! | its writes (§6.1, §6.4) | `writing` |

pub(crate) mod client;
pub(crate) mod late;
pub(crate) mod lists;
pub(crate) mod reading;
pub(crate) mod server;
pub(crate) mod writing;

use alloc::vec::Vec;

use quorate_wire::Digest;
use quorate_wire::codec::Writer;

use crate::message::{Op, OptimisticRequest, PrepareRequest};

/// Returns what a client's signature of PREPARE covers: every field, certificates included (§6.5).
pub fn prepare_digest(op: Op, request: &PrepareRequest) -> Digest {
    digest_of(op, |writer| request.encode(writer))
}

/// Returns what a client's signature of READ-TS-PREP covers.
pub fn optimistic_digest(op: Op, request: &OptimisticRequest) -> Digest {
    digest_of(op, |writer| request.encode(writer))
}

fn digest_of(op: Op, encode: impl FnOnce(&mut Writer<'_>)) -> Digest {
    let mut bytes = Vec::with_capacity(256);
    let mut writer = Writer::new(&mut bytes);
    writer.u32(op.incarnation);
    writer.u64(op.number);
    writer.u8(op.phase);
    encode(&mut writer);
    Digest(blake3::derive_key("quorate/1/quorum/request", &bytes))
}
