//! Sending: bodies become sealed frames.

use alloc::vec::Vec;

use super::{Authenticator, Protocol};
use crate::envelope::codec::Writer;
use crate::envelope::digest::Digest;
use crate::envelope::frame::{self, Auth, ENTRY_BYTES, Frame, HEADER_BYTES, SIGNATURE_BYTES};
use crate::envelope::id::Principal;
use crate::envelope::keys::{Covered, signature_hash};
use crate::envelope::seal::{Kinds, NEW_KEY, Seal};

impl<P: Protocol> Authenticator<P> {
    /// Appends a whole frame: `body` of this kind from this node, sealed as [`Kinds::seal`] says.
    ///
    /// Kinds with one MAC need `to`; an authenticator has an entry for every other replica, for any
    /// receiver. REQUESTs go through `seal_request`.
    ///
    /// # Panics
    ///
    /// If a kind with one MAC is sealed without a receiver: a bug in the caller.
    #[inline]
    pub fn seal(&mut self, kind: P::Kind, to: Option<Principal>, body: &[u8], out: &mut Vec<u8>) {
        self.seal_from(kind, self.own, to, body, out);
    }

    /// The same from `from`, a lane of this node.
    ///
    /// # Panics
    ///
    /// As [`Self::seal`], and if `from` is not of this node.
    pub fn seal_from(
        &mut self,
        kind: P::Kind,
        from: Principal,
        to: Option<Principal>,
        body: &[u8],
        out: &mut Vec<u8>,
    ) {
        assert!(from.key_holder() == self.own.key_holder(), "a node sends its own messages only");
        let epoch = self.epoch;
        if kind.seal() == Seal::Signature {
            return self.signer.seal(&self.domains, kind, epoch, from, body, out);
        }
        let covered = P::covered(&self.domains, &mut self.last_hash, kind, epoch, from, body);
        out.reserve(HEADER_BYTES + body.len() + 6 + self.cluster.n() * ENTRY_BYTES);
        frame::begin(kind, epoch, from, body, out);
        if kind.seal() == Seal::Authenticator {
            out.push(frame::AUTHENTICATOR);
            return self.put_authenticator(&covered, out);
        }
        let Some(to) = to else { unreachable!("{} has one MAC, for one receiver", kind.name()) };
        let key_id = self.exchange.sending_to(to);
        out.push(frame::MAC);
        out.extend_from_slice(&key_id.to_le_bytes());
        self.put_entry(to, key_id, &covered, out);
    }

    /// Signs a digest as this node.
    pub(crate) fn sign(&self, digest: &Digest) -> [u8; SIGNATURE_BYTES] {
        self.signer.sign(digest)
    }

    /// Appends a frame that this node has signed, with MACs beside the signature: for `to` alone, or for all
    /// other replicas. They prove nothing to a third party, and no receiver needs them. A receiver that finds its own
    /// right knows before it looks at the signature that the frame is this node's, so that frames
    /// in its name that are not cannot use up what may be spent on it (A5). Anything else is appended as it is.
    pub fn escort(&mut self, to: Option<Principal>, frame: &[u8], out: &mut Vec<u8>) {
        let Ok(Frame { kind, epoch, sender, body, auth: Auth::Signature(signature), .. }) =
            Frame::<P::Kind>::decode(frame)
        else {
            return out.extend_from_slice(frame);
        };
        let may = kind.seal() == Seal::Signature && (kind.number() == NEW_KEY) == to.is_some();
        if sender != self.own || !may {
            return out.extend_from_slice(frame);
        }
        let digest = signature_hash(&self.domains, kind.number(), epoch, sender, body);
        let covered = Covered::signed(kind.number(), epoch, sender, &digest, signature);
        frame::begin(kind, epoch, sender, body, out);
        out.push(frame::BOTH);
        out.extend_from_slice(signature);
        let Some(to) = to else { return self.put_authenticator(&covered, out) };
        let key_id = self.exchange.sending_to(to);
        out.extend_from_slice(&key_id.to_le_bytes());
        Writer::new(out).count8(1);
        self.put_entry(to, key_id, &covered, out);
    }

    /// Appends the key generation, the count and an entry for every other replica, in order.
    pub(crate) fn put_authenticator(&mut self, covered: &Covered, out: &mut Vec<u8>) {
        let key_id = self.exchange.sending();
        out.extend_from_slice(&key_id.to_le_bytes());
        let receivers = self.cluster.n() - usize::from(matches!(self.own, Principal::Replica(_)));
        Writer::new(out).count8(receivers);
        for replica in self.cluster.replicas().map(Principal::Replica) {
            if replica != self.own {
                self.put_entry(replica, key_id, covered, out);
            }
        }
    }

    #[inline]
    fn put_entry(&mut self, to: Principal, key_id: u32, covered: &Covered, out: &mut Vec<u8>) {
        let (theirs, tag) = self.exchange.entry(to, key_id, covered);
        // One after the other: put together first, they would be slow to load again.
        out.extend_from_slice(&theirs.to_le_bytes());
        out.extend_from_slice(&tag);
    }
}
