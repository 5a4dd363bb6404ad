//! REQUESTs as they are sealed: what covers one is its digest, replier and flags.

use alloc::vec::Vec;

use crate::envelope::auth::Authenticator;
use crate::envelope::codec::Writer;
use crate::envelope::digest::Digest;
use crate::envelope::frame::{self, ENTRY_BYTES, HEADER_BYTES, SIGNATURE_BYTES};
use crate::envelope::id::{ClientId, Principal};
use crate::envelope::keys::Covered;
use crate::protocol::admit::Pbft;
use crate::protocol::kinds::{Kind, RequestFlags};
use crate::protocol::message::{REQUEST_HEAD_BYTES, RequestBody};
use crate::protocol::sign::request_digest;

impl Covered {
    /// Returns what the entries of a REQUEST cover: its digest stands for client, timestamp and
    /// operation; replier and flags are also covered (CR-3), and the signature if there is one: a right
    /// MAC with a wrong signature must prove that the client is faulty, not that a bit has flipped on the
    /// way or at the node that forwarded it (AU-1).
    #[inline]
    pub fn request(
        epoch: u32,
        sender: Principal,
        request: &Digest,
        replier: Option<u16>,
        flags: RequestFlags,
        signature: Option<&[u8; SIGNATURE_BYTES]>,
    ) -> Self {
        let number = Kind::Request.to_wire();
        let mut fixed = [0; 35];
        fixed[..32].copy_from_slice(&request.0);
        fixed[32..34].copy_from_slice(&replier.unwrap_or(u16::MAX).to_le_bytes());
        fixed[34] = flags.to_wire();
        let Some(signature) = signature else { return Self::block(number, epoch, sender, &fixed) };
        let mut signed = [0; 51];
        signed[..35].copy_from_slice(&fixed);
        signed[35..].copy_from_slice(&blake3::hash(signature).as_bytes()[..16]);
        Self::block(number, epoch, sender, &signed)
    }
}

impl Authenticator<Pbft> {
    /// Appends a whole REQUEST of `client`, a lane of this client or this replica itself, with an
    /// authenticator and, if `sign`, with a signature in front of it.
    ///
    /// A replica's own requests are always signed (AU-1). The signed flag is set as `sign` says.
    pub fn seal_request(&mut self, body: &RequestBody<'_>, client: ClientId, sign: bool, out: &mut Vec<u8>) {
        let request = self.domains().request(client.0, body.timestamp.0, body.operation);
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
            .then(|| self.sign(&request_digest(self.domains(), self.epoch(), sender, request)));
        put_request(self, body, client, request, signature.as_ref(), out);
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
        let request = self.domains().request(client.0, body.timestamp.0, body.operation);
        put_request(self, body, client, &request, signature, out);
    }
}

fn put_request(
    auth: &mut Authenticator<Pbft>,
    body: &RequestBody<'_>,
    client: ClientId,
    request: &Digest,
    signature: Option<&[u8; SIGNATURE_BYTES]>,
    out: &mut Vec<u8>,
) {
    let sender = Principal::from_wire(client.0);
    assert!(sender.key_holder() == auth.own().key_holder(), "a node sends its own requests only");
    let flags = RequestFlags { read_only: body.flags.read_only, signed: signature.is_some() };
    let body = RequestBody { flags, ..*body };
    let covered = Covered::request(auth.epoch(), sender, request, body.replier, flags, signature);
    let len = REQUEST_HEAD_BYTES + body.operation.len();
    out.reserve(HEADER_BYTES + len + 70 + auth.cluster().n() * ENTRY_BYTES);
    frame::begin_header(Kind::Request, auth.epoch(), sender, len, out);
    body.encode(&mut Writer::new(out));
    match signature {
        Some(signature) => {
            out.push(frame::BOTH);
            out.extend_from_slice(signature);
        }
        None => out.push(frame::AUTHENTICATOR),
    }
    auth.put_authenticator(&covered, out);
}
