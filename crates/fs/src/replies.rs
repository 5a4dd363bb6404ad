//! The reply cache: what was answered to calls that change something, inside the state.
//!
//! A client that got no answer sends its call again, over the same connection or another, to the same
//! relay or another. The call must not be done twice (a second REMOVE would say NOENT, or remove what
//! has been created since). So each of these replies is kept, under the client's address, the call's
//! number and procedure, and a digest of its credential and arguments; a call that is found is answered
//! and not executed. As this is part of the state, it is decided in order, equally everywhere, whoever
//! crashes.
//!
//! ```text
//! slot (512):  length 4, 0: empty | procedure 4 | stamp 8 | address 16 | xid 4 | digest 16 | reply
//! ```
//!
//! The numbers of a client's calls follow each other, so a page has the replies of calls with
//! neighbouring numbers: it is chosen by address and number / 8. A page that is full gives up its oldest
//! reply. So there are never more than 8 replies in each of the pages.

use alloc::vec::Vec;

use quorate_service::Stop;

use crate::volume::{Volume, le32, le64};

const SLOT_BYTES: usize = 512;
const REPLY_AT: usize = 52;
/// The longest reply that is kept, in bytes; those of the procedures that change something are shorter.
const REPLY_BYTES_MAX: usize = SLOT_BYTES - REPLY_AT;

/// What makes a call the same as another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CallId {
    pub(crate) address: [u8; 16],
    pub(crate) xid: u32,
    pub(crate) procedure: u32,
    /// Of the call's bytes behind its number.
    digest: [u8; 16],
}

impl CallId {
    /// Returns the identity of a call. `body` is what follows its number.
    pub(crate) fn new(address: [u8; 16], xid: u32, procedure: u32, body: &[u8]) -> Self {
        let hash = blake3::hash(body);
        let digest = hash.as_bytes().first_chunk().copied().unwrap_or_default();
        Self { address, xid, procedure, digest }
    }

    /// Returns the bytes of a slot from the address on.
    fn bytes(&self) -> [u8; 36] {
        let mut bytes = [0; 36];
        bytes[..16].copy_from_slice(&self.address);
        bytes[16..20].copy_from_slice(&self.xid.to_le_bytes());
        bytes[20..].copy_from_slice(&self.digest);
        bytes
    }

    /// Returns the page of its slot, of `pages`. Numbers from 8n to 8n + 7 share one.
    fn page(&self, pages: u32) -> u32 {
        let group = self.address.iter().copied().chain((self.xid / 8).to_le_bytes());
        // FNV-1a.
        let hash = group.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        1 + u32::try_from((hash >> 16) % u64::from(pages.max(1))).unwrap_or(0)
    }
}

impl Volume<'_, '_> {
    /// Appends the reply that was given to a call, if it is known. Says whether it is.
    pub(crate) fn repeat(&self, call: &CallId, out: &mut Vec<u8>) -> Result<bool, Stop> {
        let page = self.view.page(call.page(self.settings.reply_pages))?;
        for slot in page.chunks_exact(SLOT_BYTES) {
            let len = usize::try_from(le32(slot, 0)?).unwrap_or(usize::MAX);
            if len > 0 && le32(slot, 4)? == call.procedure && slot[16..REPLY_AT] == call.bytes() {
                let reply = slot.get(REPLY_AT..REPLY_AT.saturating_add(len)).ok_or(Stop::Corrupt)?;
                out.extend_from_slice(reply);
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// Keeps the reply to a call, in the place of the oldest of its page.
    pub(crate) fn keep(&mut self, call: &CallId, reply: &[u8]) -> Result<(), Stop> {
        if reply.is_empty() || reply.len() > REPLY_BYTES_MAX {
            return Err(Stop::Corrupt);
        }
        let page_number = call.page(self.settings.reply_pages);
        let page = self.view.page(page_number)?;
        let (mut oldest, mut at) = (u64::MAX, 0);
        for (index, slot) in page.chunks_exact(SLOT_BYTES).enumerate() {
            // An empty slot has stamp 0.
            let stamp = le64(slot, 8)?;
            if stamp < oldest {
                (oldest, at) = (stamp, index * SLOT_BYTES);
            }
        }
        let mut slot = [0; SLOT_BYTES];
        let len = u32::try_from(reply.len()).unwrap_or(0);
        slot[..4].copy_from_slice(&len.to_le_bytes());
        slot[4..8].copy_from_slice(&call.procedure.to_le_bytes());
        // The time of a call is later than that of any before.
        slot[8..16].copy_from_slice(&self.tick()?.to_le_bytes());
        slot[16..REPLY_AT].copy_from_slice(&call.bytes());
        slot[REPLY_AT..REPLY_AT + reply.len()].copy_from_slice(reply);
        self.view.write(page_number, at, &slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbouring_calls_share_a_page() {
        let page = |xid| CallId::new([7; 16], xid, 12, b"body").page(1024);
        assert!((80..88).all(|xid| page(xid) == page(80)));
        let pages: alloc::collections::BTreeSet<u32> = (0..8000).map(page).collect();
        assert!(pages.len() > 500 && pages.iter().all(|page| (1..=1024).contains(page)));
    }
}
