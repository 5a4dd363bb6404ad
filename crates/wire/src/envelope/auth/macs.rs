//! MACs of received frames: this node's entry.

use super::error::AuthError;
use crate::envelope::digest::Domains;
use crate::envelope::exchange::Exchange;
use crate::envelope::frame::{Auth, Entries, Frame};
use crate::envelope::id::Principal;
use crate::envelope::keys::{Covered, Tag};
use crate::envelope::memo::Memo;
use crate::envelope::seal::{Kinds, NEW_KEY};

/// What it takes to check a MAC: a part of the authenticator, so that a protocol can use its own part at the same time.
pub struct Macs<'d> {
    exchange: &'d mut Exchange,
    domains: &'d Domains,
    last_hash: &'d mut Memo,
    own: Principal,
    n: usize,
    epoch: u32,
}

impl core::fmt::Debug for Macs<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Macs").field("own", &self.own).finish_non_exhaustive()
    }
}

impl<'d> Macs<'d> {
    pub(super) fn new(
        exchange: &'d mut Exchange,
        domains: &'d Domains,
        last_hash: &'d mut Memo,
        (own, n, epoch): (Principal, usize, u32),
    ) -> Self {
        Self { exchange, domains, last_hash, own, n, epoch }
    }

    /// Returns the domains of this cluster's digests.
    pub fn domains(&self) -> &'d Domains {
        self.domains
    }

    /// Returns the configuration's epoch.
    pub fn epoch(&self) -> u32 {
        self.epoch
    }

    /// Returns what a message's entries cover, as its protocol says.
    #[inline]
    pub(crate) fn cover(&mut self, by: impl FnOnce(&Domains, &mut Memo) -> Covered) -> Covered {
        by(self.domains, self.last_hash)
    }

    /// Says whether this node's entry beside a signature is right.
    pub(super) fn proves<K: Kinds>(
        &mut self,
        frame: &Frame<'_, K>,
        covered: impl FnOnce() -> Covered,
    ) -> bool {
        self.own_entry(frame)
            .is_some_and(|(key_id, entry)| self.exchange.proves(frame.sender, key_id, entry, &covered()))
    }

    /// Checks this node's entry of a frame.
    ///
    /// # Errors
    ///
    /// There is none, or it is not the sender's.
    #[inline]
    pub fn check_entry<K: Kinds>(
        &mut self,
        frame: &Frame<'_, K>,
        covered: &Covered,
    ) -> Result<(), AuthError> {
        let (key_id, entry) = self.own_entry(frame).ok_or_else(|| AuthError::WrongSeal(frame.kind.name()))?;
        self.exchange
            .check(frame.sender, key_id, entry, covered)
            .map_err(|mismatch| AuthError::of(mismatch, frame.sender))
    }

    /// Returns the sender's generation of keys and this node's entry, if there are as many entries as
    /// there are receivers.
    #[inline]
    fn own_entry<'a, K: Kinds>(&self, frame: &Frame<'a, K>) -> Option<(u32, (u32, &'a Tag))> {
        let (key_id, entries): (u32, Entries<'a>) = frame.auth.entries()?;
        let (count, index) = match (frame.auth, self.own, frame.sender) {
            (Auth::Mac { .. }, _, _) => (1, 0),
            (Auth::Both { .. }, _, _) if frame.kind.number() == NEW_KEY => (1, 0),
            (_, Principal::Replica(own), Principal::Client(_)) => (self.n, own.index()),
            (_, Principal::Replica(own), Principal::Replica(sender)) => {
                (self.n - 1, own.index() - usize::from(own > sender)) // the sender has none
            }
            (_, Principal::Client(_), _) => return None,
        };
        if entries.len() != count {
            return None;
        }
        Some((key_id, entries.get(index)?))
    }
}
