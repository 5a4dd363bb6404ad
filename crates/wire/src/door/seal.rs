//! Sending: bodies become sealed frames.

use alloc::vec::Vec;

use super::Door;
use crate::codec::Writer;
use crate::digest::Digest;
use crate::frame::{self, Auth, ENTRY_BYTES, Frame, HEADER_BYTES, SIGNATURE_BYTES};
use crate::id::{ClientId, Principal};
use crate::keys::Covered;
use crate::message::{Kind, REQUEST_HEAD_BYTES, RequestBody, RequestFlags, Seal, fixed_len};
use crate::sign::{request_digest, signed_digest};

impl Door {
    /// Appends a whole frame: `body` of this kind from this node, sealed as [`Kind::seal`] says.
    ///
    /// Kinds with one MAC need `to`; an authenticator has an entry for every other replica, for any
    /// receiver. REQUESTs go through [`Self::seal_request`].
    ///
    /// # Panics
    ///
    /// If a kind with one MAC is sealed without a receiver, or `kind` is REQUEST: a bug in the caller.
    pub fn seal(&mut self, kind: Kind, to: Option<Principal>, body: &[u8], out: &mut Vec<u8>) {
        assert!(kind != Kind::Request, "seal_request seals REQUESTs");
        let (epoch, own) = (self.epoch, self.own);
        if kind.seal() == Seal::Signature {
            return self.signer.seal(&self.domains, kind, epoch, own, body, out);
        }
        let fixed = body.get(..fixed_len(kind, body)).unwrap_or(body);
        let covered = Covered::message(&self.domains, &mut self.last_hash, kind, epoch, own, fixed);
        out.reserve(HEADER_BYTES + body.len() + 6 + self.cluster.n() * ENTRY_BYTES);
        frame::begin(kind, epoch, own, body, out);
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

    /// Appends a whole REQUEST of `client`, a lane of this client or this replica itself, with an
    /// authenticator and, if `sign`, with a signature in front of it.
    ///
    /// A replica's own requests are always signed (AU-1). The signed flag is set as `sign` says.
    pub fn seal_request(&mut self, body: &RequestBody<'_>, client: ClientId, sign: bool, out: &mut Vec<u8>) {
        let request = self.domains.request(client.0, body.timestamp.0, body.operation);
        self.seal_digested(body, client, &request, sign, out);
    }

    /// As [`Self::seal_request`], for a request whose digest is known.
    pub fn seal_digested(
        &mut self,
        body: &RequestBody<'_>,
        client: ClientId,
        request: &Digest,
        sign: bool,
        out: &mut Vec<u8>,
    ) {
        let sender = Principal::from_wire(client.0);
        let signature = (sign || client.replica().is_some())
            .then(|| self.signer.sign(&request_digest(&self.domains, self.epoch, sender, request)));
        self.put_request(body, client, request, signature.as_ref(), out);
    }

    /// Appends a whole REQUEST with a signature that was made elsewhere, or without one. Whether it is
    /// right is the caller's business: a faulty client's need not be.
    pub fn seal_request_with(
        &mut self,
        body: &RequestBody<'_>,
        client: ClientId,
        signature: Option<&[u8; SIGNATURE_BYTES]>,
        out: &mut Vec<u8>,
    ) {
        let request = self.domains.request(client.0, body.timestamp.0, body.operation);
        self.put_request(body, client, &request, signature, out);
    }

    fn put_request(
        &mut self,
        body: &RequestBody<'_>,
        client: ClientId,
        request: &Digest,
        signature: Option<&[u8; SIGNATURE_BYTES]>,
        out: &mut Vec<u8>,
    ) {
        let sender = Principal::from_wire(client.0);
        assert!(sender.key_holder() == self.own.key_holder(), "a node sends its own requests only");
        let flags = RequestFlags { read_only: body.flags.read_only, signed: signature.is_some() };
        let body = RequestBody { flags, ..*body };
        let covered = Covered::request(self.epoch, sender, request, body.replier, flags, signature);
        let len = REQUEST_HEAD_BYTES + body.operation.len();
        out.reserve(HEADER_BYTES + len + 70 + self.cluster.n() * ENTRY_BYTES);
        frame::begin_header(Kind::Request, self.epoch, sender, len, out);
        body.encode(&mut Writer::new(out));
        match signature {
            Some(signature) => {
                out.push(frame::BOTH);
                out.extend_from_slice(signature);
            }
            None => out.push(frame::AUTHENTICATOR),
        }
        self.put_authenticator(&covered, out);
    }

    /// Appends a frame that this node has signed, with MACs beside the signature: for `to` alone, or for all
    /// other replicas. They prove nothing to a third party, and no receiver needs them. A receiver that finds its own
    /// right knows before it looks at the signature that the frame is this node's, so that frames
    /// in its name that are not cannot use up what may be spent on it (A5). Anything else is appended as it is.
    pub fn escort(&mut self, to: Option<Principal>, frame: &[u8], out: &mut Vec<u8>) {
        let Ok(Frame { kind, epoch, sender, body, auth: Auth::Signature(signature), .. }) =
            Frame::decode(frame)
        else {
            return out.extend_from_slice(frame);
        };
        let may = kind.seal() == Seal::Signature && (kind == Kind::NewKey) == to.is_some();
        if sender != self.own || !may {
            return out.extend_from_slice(frame);
        }
        let digest = signed_digest(&self.domains, kind, epoch, sender, body);
        let covered = Covered::signed(kind, epoch, sender, &digest, signature);
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
    fn put_authenticator(&mut self, covered: &Covered, out: &mut Vec<u8>) {
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
    pub(super) fn put_entry(&mut self, to: Principal, key_id: u32, covered: &Covered, out: &mut Vec<u8>) {
        let (theirs, tag) = self.exchange.entry(to, key_id, covered);
        let mut entry = [0; ENTRY_BYTES];
        entry[..4].copy_from_slice(&theirs.to_le_bytes());
        entry[4..].copy_from_slice(&tag);
        out.extend_from_slice(&entry);
    }
}
