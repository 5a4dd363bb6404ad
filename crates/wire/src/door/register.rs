//! Messages of the registers: one MAC for one receiver, under the same session keys as agreement's (ADR 14).
//!
//! Their meaning is their own crate's. Who may send what to whom follows from who knows whom: a server knows all
//! servers and its clients, a client knows the servers alone.

use alloc::vec::Vec;

use super::{Door, DoorError};
use crate::frame::{self, COUNTER_BYTES, ENTRY_BYTES, HEADER_BYTES, REGISTERS_FROM, RegisterFrame};
use crate::id::Principal;
use crate::keys::Covered;

impl Door {
    /// Appends a whole frame of the registers from `from`, a lane of this node, to `to`. `body` begins with the counter.
    ///
    /// # Panics
    ///
    /// If `from` is another node's lane, the kind is agreement's, or there is no counter: a bug in the caller.
    pub fn seal_register(
        &mut self,
        kind: u8,
        (from, to): (Principal, Principal),
        body: &[u8],
        out: &mut Vec<u8>,
    ) {
        assert!(from.key_holder() == self.own.key_holder(), "a node sends its own messages only");
        assert!(kind >= REGISTERS_FROM && body.len() >= COUNTER_BYTES);
        let head = (kind, self.epoch, from);
        let covered = Covered::register(&self.domains, &mut self.last_hash, head, body);
        out.reserve(HEADER_BYTES + body.len() + 5 + ENTRY_BYTES);
        frame::put_header(kind, self.epoch, from, body.len(), out);
        out.extend_from_slice(body);
        let key_id = self.exchange.sending_to(to);
        out.push(frame::MAC);
        out.extend_from_slice(&key_id.to_le_bytes());
        self.put_entry(to, key_id, &covered, out);
    }

    /// Checks a frame of the registers: it is of this epoch, and its MAC is its sender's. Whether its counter was seen
    /// before is the caller's to check.
    ///
    /// # Errors
    ///
    /// The frame is not what its sender made. Nothing of it counts.
    pub fn admit_register(&mut self, mono_ns: u64, frame: &RegisterFrame<'_>) -> Result<(), DoorError> {
        self.exchange.observe(mono_ns);
        let sender = frame.sender;
        if frame.epoch != self.epoch {
            return Err(DoorError::WrongEpoch { epoch: frame.epoch, own: self.epoch });
        }
        if sender.key_holder() == self.own.key_holder() {
            return Err(DoorError::OwnIdentity);
        }
        if !self.exchange.knows(sender) {
            return Err(DoorError::UnknownSender(sender));
        }
        let head = (frame.kind, frame.epoch, sender);
        let covered = Covered::register(&self.domains, &mut self.last_hash, head, frame.body);
        self.exchange
            .check(sender, frame.key_id, frame.entry, &covered)
            .map_err(|mismatch| DoorError::of(mismatch, sender))
    }
}
