//! The reply cache: the replies to calls that change something, as a part of the state.
//!
//! A client without a reply sends its call again, over the same connection or another, to the same gateway or
//! another. The call must not be executed twice (a second REMOVE would return NOENT, or remove what has been created
//! since). So each of these replies is stored, under the client's address, the call's number and procedure, and a
//! digest of its credential and arguments. A call that is found is answered and not executed. Because this is part of
//! the state, all replicas decide it in the same order, under any crashes.
//!
//! ```text
//! slot (512):  length 4, 0: empty | procedure 4 | stamp 8 | address 16 | xid 4 | digest 16 | reply
//! ```
//!
//! The numbers of a client's calls are consecutive. Some clients count in the byte order of the wire; Linux counts in
//! that of its processor, so that the first byte on the wire changes fastest. Neighbouring numbers of either kind
//! have the same four pages, chosen by a hash, and a reply replaces the oldest one there. So few pages change, and
//! all of them fill evenly.
//!
//! A client that has lost its gateway repeats its calls seconds later, and other clients have made thousands of calls by
//! then. So if every reply there is recent, not the oldest one goes, but:
//!
//! - the reply to a call that failed, if there is one. If there is none, a failure is not stored. A call that failed has
//!   changed nothing, so it does less harm than any other when it is executed again. And a user can make any number of
//!   calls that fail.
//! - else the oldest reply of the client with the most replies there. So a client loses a recent reply to the calls of
//!   others only if it has more than its share.

use alloc::vec::Vec;
use core::cmp::Reverse;

use quorate_service::Stop;

use crate::volume::Volume;
use crate::volume::bytes::{le32, le64};
use crate::volume::later::LaterKind;

const SLOT_BYTES: usize = 512;
const REPLY_AT: usize = 52;
/// How many pages may have the reply to a call.
const CHOICES: usize = 4;
/// Maximum length of a stored reply, in bytes; those of the procedures that change something are shorter.
const REPLY_BYTES_MAX: usize = SLOT_BYTES - REPLY_AT;

/// A reply that is older can be replaced by any other, in nanoseconds. A Linux client repeats a call after 60 s.
const RECENT_NS: u64 = 120_000_000_000;
/// Where the status is in a reply, behind its head.
const STATUS_AT: usize = 24;

/// A slot, and what decides whether its reply is replaced.
#[derive(Clone, Copy, Debug)]
struct Slot {
    page: u32,
    at: usize,
    /// 0: it is empty.
    stamp: u64,
    address: [u8; 16],
    fails: bool,
}

impl Slot {
    fn decode(page: u32, at: usize, bytes: &[u8]) -> Result<Self, Stop> {
        let address = bytes.get(16..).and_then(<[u8]>::first_chunk).ok_or(Stop::Corrupt)?;
        let fails = fails(&bytes[REPLY_AT..]);
        Ok(Self { page, at, stamp: le64(bytes, 8)?, address: *address, fails })
    }
}

/// Returns whether a reply says that the call has failed.
fn fails(reply: &[u8]) -> bool {
    reply.get(STATUS_AT..STATUS_AT + 4).is_some_and(|status| status != [0; 4])
}

/// Returns the slot for a reply to a client; none if the reply is not worth one.
fn choose(slots: &[Slot], now: u64, address: [u8; 16], fails: bool) -> Option<Slot> {
    let oldest = slots.iter().min_by_key(|slot| slot.stamp)?;
    if oldest.stamp == 0 || now.saturating_sub(oldest.stamp) > RECENT_NS {
        return Some(*oldest);
    }
    let failures = slots.iter().any(|slot| slot.fails);
    if fails && !failures {
        return None;
    }
    let among = || slots.iter().filter(|slot| slot.fails || !failures);
    let share = |of: [u8; 16]| among().filter(|slot| slot.address == of).count() + usize::from(of == address);
    among().max_by_key(|slot| (share(slot.address), Reverse(slot.stamp))).copied()
}

/// The identity of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct CallId {
    address: [u8; 16],
    xid: u32,
    procedure: u32,
    /// The digest of the call's bytes after its number.
    digest: [u8; 16],
}

impl CallId {
    /// Returns the identity of a call. `body` is the part after its number.
    pub(super) fn new(address: [u8; 16], xid: u32, procedure: u32, body: &[u8]) -> Self {
        let hash = blake3::hash(body);
        let digest = hash.as_bytes().first_chunk().copied().unwrap_or_default();
        Self { address, xid, procedure, digest }
    }

    /// Returns the identity in `bytes`, and the rest of them.
    pub(super) fn decode(bytes: &[u8]) -> Result<(Self, &[u8]), Stop> {
        let (address, rest) = bytes.split_first_chunk().ok_or(Stop::Corrupt)?;
        let (xid, procedure) = (le32(rest, 0)?, le32(rest, 4)?);
        let (digest, rest) = rest.get(8..).and_then(<[u8]>::split_first_chunk).ok_or(Stop::Corrupt)?;
        Ok((Self { address: *address, xid, procedure, digest: *digest }, rest))
    }

    pub(super) fn encode(&self) -> Vec<u8> {
        let Self { address, xid, procedure, digest } = self;
        [&address[..], &xid.to_le_bytes(), &procedure.to_le_bytes(), digest].concat()
    }

    /// Returns the bytes of a slot after the address.
    fn bytes(&self) -> [u8; 36] {
        let mut bytes = [0; 36];
        bytes[..16].copy_from_slice(&self.address);
        bytes[16..20].copy_from_slice(&self.xid.to_le_bytes());
        bytes[20..].copy_from_slice(&self.digest);
        bytes
    }

    /// Returns the pages, of `pages`, that may have its slot.
    fn pages(&self, pages: u32) -> [u32; CHOICES] {
        // Without the three bits that change fastest in the byte order of the wire, and in the reverse order.
        let group = self.xid & !0x0700_0007;
        // FNV-1a, and the last steps of MurmurHash3: each bit of the number must affect each bit of the choice.
        let bytes = self.address.iter().copied().chain(group.to_le_bytes());
        let hash = bytes.fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        });
        let hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        let hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        let hash = hash ^ (hash >> 33);
        [0, 32, 16, 48].map(|bits| {
            let choice = (hash.rotate_right(bits) & 0xffff_ffff) % u64::from(pages.max(1));
            1 + u32::try_from(choice).unwrap_or(0)
        })
    }
}

impl CallId {
    /// Appends the reply to the call, if it is stored. Returns whether it is.
    pub(super) fn repeat(&self, volume: &Volume<'_, '_>, out: &mut Vec<u8>) -> Result<bool, Stop> {
        let wanted = self.bytes();
        for page in self.pages(volume.settings().reply_pages) {
            for slot in volume.reply_page(page)?.chunks_exact(SLOT_BYTES) {
                let len = usize::try_from(le32(slot, 0)?).unwrap_or(usize::MAX);
                if len > 0 && le32(slot, 4)? == self.procedure && slot[16..REPLY_AT] == wanted {
                    let reply = slot.get(REPLY_AT..REPLY_AT.saturating_add(len)).ok_or(Stop::Corrupt)?;
                    out.extend_from_slice(reply);
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Stores the reply to the call in its pages.
    pub(super) fn keep(&self, volume: &mut Volume<'_, '_>, reply: &[u8]) -> Result<(), Stop> {
        if reply.is_empty() || reply.len() > REPLY_BYTES_MAX {
            return Err(Stop::Corrupt);
        }
        if volume.is_on_cells() {
            volume.postpone(LaterKind::Keep, &[&self.encode(), reply]);
            return Ok(());
        }
        let mut slots: Vec<Slot> = Vec::with_capacity(32);
        for page in self.pages(volume.settings().reply_pages) {
            // A hash can choose a page twice.
            if slots.iter().any(|slot| slot.page == page) {
                continue;
            }
            for (index, bytes) in volume.reply_page(page)?.chunks_exact(SLOT_BYTES).enumerate() {
                slots.push(Slot::decode(page, index * SLOT_BYTES, bytes)?);
            }
        }
        let Some(Slot { page, at, .. }) = choose(&slots, volume.now(), self.address, fails(reply)) else {
            return Ok(());
        };
        let mut slot = [0; SLOT_BYTES];
        let len = u32::try_from(reply.len()).unwrap_or(0);
        slot[..4].copy_from_slice(&len.to_le_bytes());
        slot[4..8].copy_from_slice(&self.procedure.to_le_bytes());
        // The time of a call is later than that of all earlier ones.
        slot[8..16].copy_from_slice(&volume.tick()?.to_le_bytes());
        slot[16..REPLY_AT].copy_from_slice(&self.bytes());
        slot[REPLY_AT..REPLY_AT + reply.len()].copy_from_slice(reply);
        volume.write_reply_page(page, at, &slot)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pages(xid: u32) -> [u32; CHOICES] {
        CallId::new([7; 16], xid, 12, b"body").pages(1024)
    }

    /// A client counts in the byte order of the wire, or in that of its processor.
    fn counts() -> [fn(u32) -> u32; 2] {
        [|count| count, u32::swap_bytes]
    }

    #[test]
    fn neighbouring_calls_share_their_pages() {
        for count in counts() {
            assert!((80..88).all(|n| pages(count(n)) == pages(count(80))));
            assert!(pages(count(80)).iter().all(|page| (1..=1024).contains(page)));
        }
    }

    /// A Linux client repeats its call after 60 s. By then it has made thousands of others, and their replies must
    /// not all be in a few pages.
    #[test]
    fn a_reply_is_kept_until_a_thousand_others_have_come() {
        for count in counts() {
            let mut slots = alloc::vec![[0_u32; 8]; 1025];
            let mut lives = Vec::new();
            for n in 1..40_000 {
                let all = pages(count(0x5445_45b4 + n));
                let places = all
                    .into_iter()
                    .flat_map(|page| (0..8).map(move |at| (usize::try_from(page).unwrap_or(0), at)));
                let Some((page, at)) = places.min_by_key(|(page, at)| slots[*page][*at]) else { continue };
                if slots[page][at] > 0 {
                    lives.push(n - slots[page][at]);
                }
                slots[page][at] = n;
            }
            lives.sort_unstable();
            assert!(
                lives[lives.len() / 1000] > 1000,
                "one of a thousand lives {}",
                lives[lives.len() / 1000]
            );
            assert!(lives[lives.len() / 2] > 6000, "half of them live {}", lives[lives.len() / 2]);
        }
    }
}
