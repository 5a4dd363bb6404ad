//! MACs of received frames: this node's entry.

use super::DoorError;
use crate::codec::Decoded;
use crate::digest::Domains;
use crate::exchange::Exchange;
use crate::frame::{Auth, Entries, Frame};
use crate::id::Principal;
use crate::keys::Covered;
use crate::memo::Memo;
use crate::message::{Kind, Proof, Request, fixed_len};

/// What it takes to check a MAC: a part of the authenticator, so that a batch can be filled at the same time.
pub(super) struct Macs<'d> {
    pub(super) exchange: &'d mut Exchange,
    pub(super) domains: &'d Domains,
    pub(super) last_hash: &'d mut Memo,
    pub(super) own: Principal,
    pub(super) n: usize,
    pub(super) epoch: u32,
}

impl Macs<'_> {
    /// Checks a frame other than a REQUEST.
    #[inline]
    pub(super) fn check(&mut self, frame: &Frame<'_>) -> Result<(), DoorError> {
        let fixed = frame.body.get(..fixed_len(frame.kind, frame.body)).unwrap_or(frame.body);
        let covered =
            Covered::message(self.domains, self.last_hash, frame.kind, frame.epoch, frame.sender, fixed);
        self.check_entry(frame, &covered)
    }

    /// Checks a REQUEST.
    pub(super) fn check_request(
        &mut self,
        frame: &Frame<'_>,
        request: &Request<'_>,
    ) -> Result<(), DoorError> {
        let Request { digest, replier, flags, .. } = request;
        let signature = frame.auth.signature();
        let covered = Covered::request(frame.epoch, frame.sender, digest, *replier, *flags, signature);
        self.check_entry(frame, &covered)
    }

    /// Reads a REQUEST inside another frame. It counts as proven if this replica's entry is right;
    /// otherwise the core decides what else may vouch for it (AU-2, SR-4).
    pub(super) fn inner_request<'a>(&mut self, bytes: &'a [u8]) -> Decoded<Request<'a>> {
        let frame = Frame::decode(bytes)?;
        let mut request = Request::decode(&frame, self.domains)?;
        let client = matches!(frame.sender, Principal::Client(_)); // replicas sign theirs (AU-1)
        if client && frame.epoch == self.epoch && self.check_request(&frame, &request).is_ok() {
            request.proof = Proof::Mac;
        }
        Ok(request)
    }

    /// Says whether this node's entry beside a signature is right.
    pub(super) fn proves(&mut self, frame: &Frame<'_>, covered: &Covered) -> bool {
        self.own_entry(frame)
            .is_some_and(|(key_id, entry)| self.exchange.proves(frame.sender, key_id, entry, covered))
    }

    #[inline]
    fn check_entry(&mut self, frame: &Frame<'_>, covered: &Covered) -> Result<(), DoorError> {
        let (key_id, entry) = self.own_entry(frame).ok_or(DoorError::WrongSeal(frame.kind))?;
        self.exchange
            .check(frame.sender, key_id, entry, covered)
            .map_err(|mismatch| DoorError::of(mismatch, frame.sender))
    }

    /// Returns the sender's generation of keys and this node's entry, if there are as many entries as
    /// there are receivers.
    #[inline]
    fn own_entry(&self, frame: &Frame<'_>) -> Option<(u32, (u32, crate::keys::Tag))> {
        let (key_id, entries): (u32, Entries<'_>) = frame.auth.entries()?;
        let (count, index) = match (frame.auth, self.own, frame.sender) {
            (Auth::Mac { .. }, _, _) => (1, 0),
            (Auth::Both { .. }, _, _) if frame.kind == Kind::NewKey => (1, 0),
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
