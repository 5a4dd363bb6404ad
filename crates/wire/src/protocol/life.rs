//! Lives of replicas (RC-11): messages from before a loss of state must not count as new ones.
//!
//! A replica that has lost its state rejoins with a recovery request. The request opens a new *life*: its timestamp
//! and 64 random bits that cannot be known before it is made. The replicated state keeps the last two lives of each
//! replica, and a VIEW-CHANGE names the life that its sender was in.

use alloc::vec::Vec;

use crate::envelope::codec::{Decoded, Reader, Writer};
use crate::envelope::id::{SeqNum, Timestamp, ViewNum};

/// What the operation of a recovery request begins with.
const MAGIC: [u8; 8] = *b"RECOVERY";

/// One life of a replica: the timestamp of the recovery request that opened it, and that request's random bits.
/// Zeros before the first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Life {
    /// The request's timestamp. A later life has a later one.
    pub timestamp: Timestamp,
    /// Bits that nobody can guess, so that nobody can sign for a life before it has begun.
    pub bits: u64,
}

impl Life {
    /// Appends `t 8 | bits 8`.
    pub fn encode(&self, out: &mut Writer<'_>) {
        out.u64(self.timestamp.0);
        out.u64(self.bits);
    }

    /// Reads a life.
    pub fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        Ok(Self { timestamp: Timestamp(r.u64()?), bits: r.u64()? })
    }
}

/// What the replicated state notes of one replica's lives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lives {
    /// Its life.
    pub life: Life,
    /// The life before it.
    pub before: Life,
    /// `u`: in this life it votes in no view below this one.
    pub floor: ViewNum,
    /// `n_R`: the number of the batch that opened this life. 0: not known.
    pub noted: SeqNum,
}

impl Lives {
    /// Bytes of an entry.
    pub const BYTES: usize = 48;

    /// Returns the entry after a recovery request. None: the request names another life than this one, so it opens none:
    /// it was made before this life began (RC-6, L125).
    #[must_use]
    pub fn after(&self, timestamp: Timestamp, request: &Recovery) -> Option<Self> {
        let life = Life { timestamp, bits: request.bits };
        (request.before == self.life).then(|| self.opened(life, request.floor))
    }

    /// Returns the entry after a recovery request that opened `life`.
    #[must_use]
    pub fn opened(&self, life: Life, floor: ViewNum) -> Self {
        Self { life, before: self.life, floor, noted: SeqNum(0) }
    }

    /// Returns the result of a recovery request after which it is so.
    pub fn recovered(&self) -> Recovered {
        Recovered { seq: self.noted, life: self.life, floor: self.floor }
    }

    /// Appends the life, the life before it, and `u 8 | n_R 8`.
    pub fn encode(&self, out: &mut Writer<'_>) {
        self.life.encode(out);
        self.before.encode(out);
        out.u64(self.floor.0);
        out.u64(self.noted.0);
    }

    /// Reads an entry.
    pub fn decode(r: &mut Reader<'_>) -> Decoded<Self> {
        let (life, before) = (Life::decode(r)?, Life::decode(r)?);
        Ok(Self { life, before, floor: ViewNum(r.u64()?), noted: SeqNum(r.u64()?) })
    }
}

/// The operation of a recovery request: `"RECOVERY" 8 | H_M 8 | bits 8 | u 8 | life before 16` (RC-6).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovery {
    /// `H_M`: nothing that the sender may have said reaches above it.
    pub bound: SeqNum,
    /// The random bits of the life that it opens.
    pub bits: u64,
    /// `u`: the highest view that `f + 1` others have told to be in, or beyond.
    pub floor: ViewNum,
    /// The life before it, as far as the sender knows. Unless it is that, the request opens no life.
    pub before: Life,
}

impl Recovery {
    /// Appends the operation.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = Writer::new(out);
        w.bytes(&MAGIC);
        w.u64(self.bound.0);
        w.u64(self.bits);
        w.u64(self.floor.0);
        self.before.encode(&mut w);
    }

    /// Reads an operation. None: it is no recovery request.
    pub fn decode(operation: &[u8]) -> Option<Self> {
        let mut r = Reader::new(operation.strip_prefix(&MAGIC)?);
        let recovery = Self {
            bound: SeqNum(r.u64().ok()?),
            bits: r.u64().ok()?,
            floor: ViewNum(r.u64().ok()?),
            before: Life::decode(&mut r).ok()?,
        };
        r.is_empty().then_some(recovery)
    }
}

/// The result of a recovery request: its sender's life after it, as `n_R 8 | life 16 | u 8`. All replicas give the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recovered {
    /// `n_R`: the number of the batch that opened the life.
    pub seq: SeqNum,
    /// The life. The request has opened none if this is not the request's.
    pub life: Life,
    /// `u` of that life.
    pub floor: ViewNum,
}

impl Recovered {
    /// Appends the result.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let mut w = Writer::new(out);
        w.u64(self.seq.0);
        self.life.encode(&mut w);
        w.u64(self.floor.0);
    }

    /// Reads a result. None: what was asked for was no recovery.
    pub fn decode(result: &[u8]) -> Option<Self> {
        let mut r = Reader::new(result);
        let (seq, life) = (SeqNum(r.u64().ok()?), Life::decode(&mut r).ok()?);
        let recovered = Self { seq, life, floor: ViewNum(r.u64().ok()?) };
        r.is_empty().then_some(recovered)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RC-6: request and result come back, and nothing shorter or longer is taken for one.
    #[test]
    fn a_recovery_request_and_its_result_come_back() {
        let life = |t, bits| Life { timestamp: Timestamp(t), bits };
        let asked = Recovery { bound: SeqNum(6), bits: 7, floor: ViewNum(8), before: life(4, 5) };
        let done = Recovered { seq: SeqNum(9), life: life(6, 7), floor: ViewNum(8) };
        let (mut operation, mut result) = (Vec::new(), Vec::new());
        asked.encode(&mut operation);
        done.encode(&mut result);
        assert_eq!((Recovery::decode(&operation), Recovered::decode(&result)), (Some(asked), Some(done)));
        for len in 0..operation.len() {
            assert_eq!(Recovery::decode(&operation[..len]), None);
        }
        operation.push(0);
        result.push(0);
        assert_eq!((Recovery::decode(&operation), Recovered::decode(&result)), (None, None));
    }

    /// RC-11: the table keeps the last two lives, and the newer one's floor.
    #[test]
    fn the_table_keeps_the_last_two_lives() {
        let life = |t, bits| Life { timestamp: Timestamp(t), bits };
        let once = Lives::default().opened(life(5, 1), ViewNum(2));
        assert_eq!((once.life, once.before, once.floor), (life(5, 1), Life::default(), ViewNum(2)));
        let twice = once.opened(life(9, 3), ViewNum(1));
        assert_eq!((twice.life, twice.before, twice.floor), (life(9, 3), life(5, 1), ViewNum(1)));
        let twice = Lives { noted: SeqNum(7), ..twice };
        let mut bytes = Vec::new();
        twice.encode(&mut Writer::new(&mut bytes));
        assert_eq!(bytes.len(), Lives::BYTES);
        assert_eq!(Lives::decode(&mut Reader::new(&bytes)), Ok(twice));
    }
}
