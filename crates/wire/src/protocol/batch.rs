//! A batch of requests, stored in its wire format.
//!
//! The primary appends requests as received, and a backup copies the bytes once; nothing is encoded again. Small
//! requests are part of the batch ("inlined"), large ones are named by digest and sent separately ("separate"),
//! inlined ones first in execution order (spec §5.1).

use alloc::sync::Arc;
use alloc::vec::Vec;
use core::ops::Deref;

use crate::envelope::codec::{DecodeError, Decoded, Reader, Writer};
use crate::envelope::digest::{Digest, Domains};
use crate::envelope::id::{ClientId, Timestamp};
use crate::protocol::message::{Proof, Request, RequestFlags};

/// Maximum number of requests in one batch, inlined and separate together.
pub const BATCH_REQUESTS_MAX: u16 = 1024;
/// The longest choice of the primary, in bytes (`MAX_ND`).
pub const CHOICE_BYTES_MAX: u8 = 16;

/// A request kept after its datagram is gone, with its frame as received.
///
/// What is known of it can be read like its own fields; it is written with the frame alone.
#[derive(Clone, Debug)]
pub struct StoredRequest {
    known: Known,
    frame: Vec<u8>,
    operation: (usize, usize),
}

/// What is known of a request that is kept.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    /// The requesting client.
    pub client: ClientId,
    /// The client's number for it.
    pub timestamp: Timestamp,
    /// Digest of client, timestamp and operation.
    pub digest: Digest,
    /// Read-only, signed.
    pub flags: RequestFlags,
    /// The replica that is to return the full result; none: all of them.
    pub replier: Option<u16>,
    /// How it was authenticated here.
    pub proof: Proof,
}

impl Known {
    #[inline]
    fn of(request: &Request<'_>) -> Self {
        let Request { client, timestamp, digest, flags, replier, proof, .. } = *request;
        Self { client, timestamp, digest, flags, replier, proof }
    }
}

impl Deref for StoredRequest {
    type Target = Known;

    #[inline]
    fn deref(&self) -> &Known {
        &self.known
    }
}

/// A request that is shared between the body table, batches and the executor.
pub type Body = Arc<StoredRequest>;

impl StoredRequest {
    /// Returns a copy of `request`.
    pub fn new(request: &Request<'_>) -> Self {
        let mut stored = Self { known: Known::of(request), frame: Vec::new(), operation: (0, 0) };
        stored.replace(request);
        stored
    }

    /// Makes this a copy of `request`, using the memory it has.
    pub fn replace(&mut self, request: &Request<'_>) {
        self.known = Known::of(request);
        self.frame.clear();
        self.frame.extend_from_slice(request.frame);
        self.operation = (request.operation_at, request.operation.len());
    }

    /// Notes that the client's signature was seen to be right.
    pub fn prove_signed(&mut self) {
        self.known.proof = Proof::Signed;
    }

    /// Returns the frame as received, authentication included.
    pub fn frame(&self) -> &[u8] {
        &self.frame
    }

    /// Returns the operation.
    pub fn operation(&self) -> &[u8] {
        let (start, len) = self.operation;
        self.frame.get(start..start + len).unwrap_or(&[])
    }

    /// Returns the client's signature, if the frame carries one.
    pub fn signature(&self) -> Option<[u8; 64]> {
        crate::protocol::frame::signature_of(&self.frame)
    }
}

/// One request of a batch as the executor sees it.
#[derive(Clone, Copy, Debug)]
pub struct Ordered<'a> {
    /// The requesting client.
    pub client: ClientId,
    /// The client's number for it.
    pub timestamp: Timestamp,
    /// Digest of client, timestamp and operation.
    pub digest: Digest,
    /// The replica that is to return the full result; none: all of them.
    pub replier: Option<u16>,
    /// The operation.
    pub operation: &'a [u8],
}

/// A request inside a batch: where it is, and what is known of it.
#[derive(Clone, Debug)]
pub struct Inlined {
    /// The requesting client.
    pub client: ClientId,
    /// The client's number for it.
    pub timestamp: Timestamp,
    /// Digest of client, timestamp and operation.
    pub digest: Digest,
    /// The replica that is to return the full result; none: all of them.
    pub replier: Option<u16>,
    /// Read-only, signed.
    pub flags: RequestFlags,
    /// How it was authenticated here.
    pub proof: Proof,
    frame: (u32, u32),
    operation: (u32, u32),
}

/// A batch: at most [`BATCH_REQUESTS_MAX`] requests and the primary's choice.
#[derive(Clone, Debug, Default)]
pub struct Batch {
    digest: Digest,
    /// Frames of the inlined requests, each behind its length; then the separate ones' digests.
    bytes: Vec<u8>,
    inlined: Vec<Inlined>,
    separate: Vec<Digest>,
    /// The bodies of the separate requests that are here, in their order.
    bodies: Vec<Option<Body>>,
    /// The number of those that are not here.
    lacking: usize,
    choice: ([u8; 16], u8),
}

impl Batch {
    /// Returns the digest.
    pub fn digest(&self) -> Digest {
        self.digest
    }

    /// Returns the primary's choice (spec §7), opaque here.
    pub fn choice(&self) -> &[u8] {
        let (bytes, len) = &self.choice;
        bytes.get(..usize::from(*len)).unwrap_or(&[])
    }

    /// Returns the inlined requests, in execution order.
    pub fn inlined(&self) -> &[Inlined] {
        &self.inlined
    }

    /// Returns the digests of the separate requests, in execution order after the inlined ones.
    pub fn separate(&self) -> &[Digest] {
        &self.separate
    }

    /// Returns the digests of all requests, in execution order.
    pub fn digests(&self) -> impl Iterator<Item = &Digest> {
        self.inlined.iter().map(|r| &r.digest).chain(&self.separate)
    }

    /// Returns the digest and the frame of request `index` in execution order, if that is here.
    pub fn request_at(&self, index: usize) -> Option<(&Digest, &[u8])> {
        if let Some(request) = self.inlined.get(index) {
            return Some((&request.digest, self.frame(request)));
        }
        let body = self.bodies.get(index.checked_sub(self.inlined.len())?)?.as_ref()?;
        Some((&body.digest, body.frame()))
    }

    /// Returns the number of requests.
    pub fn len(&self) -> usize {
        self.inlined.len() + self.separate.len()
    }

    /// Returns whether this is a null batch: no request and no choice (spec PR-6).
    pub fn is_null(&self) -> bool {
        self.is_empty() && self.choice.1 == 0
    }

    /// Returns whether there is no request.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the frame of an inlined request, as the client sent it.
    pub fn frame(&self, inlined: &Inlined) -> &[u8] {
        slice(&self.bytes, inlined.frame)
    }

    /// Returns the signature of an inlined request, if its frame carries one.
    pub fn signature(&self, inlined: &Inlined) -> Option<[u8; 64]> {
        crate::protocol::frame::signature_of(self.frame(inlined))
    }

    /// Returns the digests of separate requests whose bodies are missing.
    pub fn missing(&self) -> impl Iterator<Item = &Digest> {
        let all = self.separate.iter().zip(&self.bodies);
        all.filter(|(_, body)| body.is_none()).map(|(digest, _)| digest).take(self.lacking)
    }

    /// Returns whether every separate request's body is here.
    pub fn is_complete(&self) -> bool {
        self.lacking == 0
    }

    /// Returns the bodies of the separate requests that are here.
    pub fn bodies(&self) -> impl Iterator<Item = &Body> {
        self.bodies.iter().flatten()
    }

    /// Returns the digest of each separate request, with its body if that is here.
    pub fn separate_bodies(&self) -> impl Iterator<Item = (&Digest, Option<&Body>)> {
        self.separate.iter().zip(self.bodies.iter().map(Option::as_ref))
    }

    /// Keeps the bodies of missing separate requests that `held` returns.
    pub fn complete(&mut self, held: impl Fn(&Digest) -> Option<Body>) {
        for (digest, place) in self.separate.iter().zip(&mut self.bodies).filter(|(_, place)| place.is_none())
        {
            *place = held(digest);
            self.lacking -= usize::from(place.is_some());
        }
    }

    /// Keeps `body` where a separate request with its digest is missing. Returns whether one was.
    pub fn supply(&mut self, body: &Body) -> bool {
        let mut used = false;
        for (digest, place) in self.separate.iter().zip(&mut self.bodies) {
            if *digest == body.digest && place.is_none() {
                *place = Some(body.clone());
                self.lacking -= 1;
                used = true;
            }
        }
        used
    }

    /// Returns the requests in execution order. The caller has seen that the batch is complete:
    /// a separate request whose body is missing would be left out.
    pub fn requests(&self) -> impl Iterator<Item = Ordered<'_>> {
        let inlined = self.inlined.iter().map(|r| Ordered {
            client: r.client,
            timestamp: r.timestamp,
            digest: r.digest,
            replier: r.replier,
            operation: slice(&self.bytes, r.operation),
        });
        let separate = self.bodies.iter().flatten().map(|r| Ordered {
            client: r.client,
            timestamp: r.timestamp,
            digest: r.digest,
            replier: r.replier,
            operation: r.operation(),
        });
        inlined.chain(separate)
    }

    /// Returns the payload bytes as they stand in a PRE-PREPARE behind the counts: inlined frames,
    /// then separate digests.
    pub fn payload(&self) -> &[u8] {
        &self.bytes
    }

    /// Sets how the inlined requests were proven, for a batch from a recording. Returns whether there are
    /// as many.
    pub(crate) fn set_proofs(&mut self, proofs: &[Proof]) -> bool {
        for (request, proof) in self.inlined.iter_mut().zip(proofs) {
            request.proof = *proof;
        }
        self.inlined.len() == proofs.len()
    }

    /// Returns whether it may wait to be used again: its buffers are not large, and it keeps no request that came apart from it.
    pub(crate) fn may_wait(&self) -> bool {
        self.bytes.capacity() <= crate::envelope::frame::PACKED_BYTES_MAX && self.bodies().next().is_none()
    }

    /// Empties the batch and keeps its memory.
    pub fn clear(&mut self) {
        self.digest = Digest::ZERO;
        self.bytes.clear();
        self.inlined.clear();
        self.separate.clear();
        self.bodies.clear();
        self.lacking = 0;
        self.choice = ([0; 16], 0);
    }

    /// Appends a request with its frame. All inlined ones come before the first separate one.
    pub fn push_inlined(&mut self, request: &Request<'_>) {
        debug_assert!(self.separate.is_empty());
        let frame_at = self.bytes.len() + 4;
        Writer::new(&mut self.bytes).blob(request.frame);
        self.inlined.push(Inlined {
            client: request.client,
            timestamp: request.timestamp,
            digest: request.digest,
            replier: request.replier,
            flags: request.flags,
            proof: request.proof,
            frame: span(frame_at, request.frame.len()),
            operation: span(frame_at + request.operation_at, request.operation.len()),
        });
    }

    /// Appends a request of which only the operation is known, as if it had come with a MAC: for programs that execute
    /// without agreement, such as measurements and tests.
    pub fn push_operation(
        &mut self,
        domains: &Domains,
        client: ClientId,
        timestamp: Timestamp,
        operation: &[u8],
    ) {
        self.push_inlined(&Request {
            client,
            timestamp,
            digest: domains.request(client.0, timestamp.0, operation),
            flags: RequestFlags::default(),
            replier: None,
            operation,
            operation_at: 0,
            frame: operation,
            proof: Proof::Mac,
        });
    }

    /// Appends a stored request with its frame, as [`Self::push_inlined`] does.
    pub fn push_stored(&mut self, request: &StoredRequest) {
        debug_assert!(self.separate.is_empty());
        let frame_at = self.bytes.len() + 4;
        Writer::new(&mut self.bytes).blob(&request.frame);
        self.inlined.push(Inlined {
            client: request.client,
            timestamp: request.timestamp,
            digest: request.digest,
            replier: request.replier,
            flags: request.flags,
            proof: request.proof,
            frame: span(frame_at, request.frame.len()),
            operation: span(frame_at + request.operation.0, request.operation.1),
        });
    }

    /// Appends a separate request, with its body if that is here.
    pub fn push_separate(&mut self, digest: Digest, body: Option<Body>) {
        self.bytes.extend_from_slice(&digest.0);
        self.separate.push(digest);
        self.lacking += usize::from(body.is_none());
        self.bodies.push(body);
    }

    /// Sets the choice and computes the digest. The caller keeps `choice` within [`CHOICE_BYTES_MAX`].
    pub fn seal(&mut self, domains: &Domains, choice: &[u8]) {
        let Some(room) = self.choice.0.get_mut(..choice.len()) else {
            unreachable!("a choice has at most 16 bytes")
        };
        room.copy_from_slice(choice);
        self.choice.1 = u8::try_from(choice.len()).unwrap_or(0);
        self.digest = domains
            .batch(BatchDigests { inlined: self.inlined.iter(), separate: self.separate.iter() }, choice);
    }

    /// Appends the batch on its own: counts, choice, payload. Used in BODY and in durable records.
    pub fn encode(&self, out: &mut Writer<'_>) {
        self.encode_counts(out);
        out.bytes(&self.bytes);
    }

    /// Appends the counts and the choice, which stand before the payload.
    pub fn encode_counts(&self, out: &mut Writer<'_>) {
        out.count16(self.inlined.len());
        out.count16(self.separate.len());
        out.count8(self.choice().len());
        out.bytes(self.choice());
    }

    /// Makes this the batch encoded by [`Self::encode`] in the rest of `reader`.
    ///
    /// `request` decodes and digests one frame; the authenticator also checks its authenticator.
    pub fn decode<'a>(
        &mut self,
        reader: &mut Reader<'a>,
        domains: &Domains,
        request: impl FnMut(&'a [u8]) -> Decoded<Request<'a>>,
    ) -> Decoded<()> {
        let (counts, choice) = Self::decode_counts(reader)?;
        self.decode_payload(reader, counts, choice, domains, request)
    }

    /// Takes the counts of inlined and separate requests, and the choice.
    pub fn decode_counts<'a>(reader: &mut Reader<'a>) -> Decoded<((usize, usize), &'a [u8])> {
        let inlined = reader.count16(BATCH_REQUESTS_MAX)?;
        let separate = reader.count16(BATCH_REQUESTS_MAX)?;
        let total = u64::try_from(inlined + separate).unwrap_or(u64::MAX);
        if total > u64::from(BATCH_REQUESTS_MAX) {
            return Err(DecodeError::TooMany { count: total, max: u64::from(BATCH_REQUESTS_MAX) });
        }
        let choice_len = reader.count8(CHOICE_BYTES_MAX)?;
        Ok(((inlined, separate), reader.bytes(choice_len)?))
    }

    /// Makes this the batch with these counts and choice, whose payload is the rest of `reader`.
    pub fn decode_payload<'a>(
        &mut self,
        reader: &mut Reader<'a>,
        (inlined, separate): (usize, usize),
        choice: &[u8],
        domains: &Domains,
        mut request: impl FnMut(&'a [u8]) -> Decoded<Request<'a>>,
    ) -> Decoded<()> {
        self.clear();
        for _ in 0..inlined {
            let frame = reader.blob(crate::envelope::frame::FRAME_BYTES_MAX)?;
            let request = request(frame)?;
            self.push_inlined(&request);
        }
        for _ in 0..separate {
            let digest = reader.digest()?;
            self.push_separate(digest, None);
        }
        reader.end()?;
        self.seal(domains, choice);
        Ok(())
    }
}

/// The digests of a batch's requests in execution order.
struct BatchDigests<'a> {
    inlined: core::slice::Iter<'a, Inlined>,
    separate: core::slice::Iter<'a, Digest>,
}

impl<'a> Iterator for BatchDigests<'a> {
    type Item = &'a Digest;

    fn next(&mut self) -> Option<&'a Digest> {
        self.inlined.next().map(|r| &r.digest).or_else(|| self.separate.next())
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        let len = self.inlined.len() + self.separate.len();
        (len, Some(len))
    }
}

impl ExactSizeIterator for BatchDigests<'_> {}

fn span(start: usize, len: usize) -> (u32, u32) {
    let (Ok(start), Ok(len)) = (u32::try_from(start), u32::try_from(len)) else {
        unreachable!("a batch is bounded by the frame")
    };
    (start, len)
}

fn slice(bytes: &[u8], (start, len): (u32, u32)) -> &[u8] {
    let (Ok(start), Ok(len)) = (usize::try_from(start), usize::try_from(len)) else { return &[] };
    bytes.get(start..start + len).unwrap_or(&[])
}
