//! What a server keeps of an object on its disk (§2.5, `docs/storage-format-registers.md`).
//!
//! PHALANX and MINIMAL: a byte 0, then `version, value, proof` as in the messages. BFT-BC: a byte 1, then
//! `value, pcert, wsig?, wcert?, lists`.

use alloc::vec::Vec;

use quorate_wire::codec::{DecodeError, Decoded, Reader, Writer};

use crate::message::Proof;
use crate::message::encoding::{proof, put_stored, value};
use crate::version::{Value, Version};

/// What has become of a server's disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Past {
    /// It has everything that this server promised, or this server never promised anything.
    Whole,
    /// It was lost in this epoch, and the server has been repaired since.
    Repaired,
    /// It was lost, and the server has not been repaired.
    Lost,
}

/// The form of PHALANX and MINIMAL.
const STORED: u8 = 0;
/// The form of BFT-BC.
pub(crate) const CERTIFIED: u8 = 1;

/// Appends a stored version.
pub(crate) fn put(version: Version, value: &Value, proof: &Proof, out: &mut Vec<u8>) {
    let mut w = Writer::new(out);
    w.u8(STORED);
    put_stored(&mut w, version, value, proof);
}

/// Reads a stored version.
pub(crate) fn take(saved: &[u8]) -> Decoded<(Version, Value, Proof)> {
    let mut r = Reader::new(saved);
    if r.u8()? != STORED {
        return Err(DecodeError::NotCanonical);
    }
    let stored = (Version::decode(&mut r)?, value(&mut r)?, proof(&mut r)?);
    r.end()?;
    Ok(stored)
}
