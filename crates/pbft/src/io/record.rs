//! Durable state of a replica: the records of the write-ahead log (spec §14.1).
//!
//! | # | Record | Durable before |
//! |---|---|---|
//! | D1 | [`Record::PrePrepared`] | the PRE-PREPARE or PREPARE leaves |
//! | D2 | [`Record::Prepared`], with the batch and its bodies; [`Record::PreparedAgain`], if the log has them | the COMMIT, or a tentative reply, leaves |
//! | D3 | [`Record::ViewChange`] | the VIEW-CHANGE leaves |
//! | D4 | [`Record::NewView`] | the NEW-VIEW, or a PREPARE for what it chose, leaves |
//! | D5 | [`Record::Batch`], for what did not prepare here | the CHECKPOINT over it leaves |
//! | D6 | [`Record::Stable`] | anything at or below it is deleted |
//! | D8 | [`Record::Seen`] | nothing: it notices old disks |
//! | D7 | [`Record::Committed`] | a reply that reflects the batch, unless P has its number (RO-4) |
//! | RO-4 | [`Record::Floor`] | a reply that reflects the state that was fetched |
//!
//! The images of checkpoints (D5) and this replica's own incarnation (D8) are the driver's; the counter of
//! STATUS comes from the clock.

use alloc::vec::Vec;

use quorate_wire::batch::{Batch, StoredRequest};
use quorate_wire::codec::{DecodeError, Decoded, Reader, Writer};
use quorate_wire::digest::Domains;
use quorate_wire::frame::{FRAME_BYTES_MAX, Frame, HEADER_BYTES};
use quorate_wire::id::{SeqNum, ViewNum};
use quorate_wire::message::{Proof, REQUEST_HEAD_BYTES, Request, RequestBody};
use quorate_wire::{Digest, Kind};

/// One record. Borrows from the log.
#[derive(Clone, Copy, Debug)]
pub enum Record<'a> {
    /// D1, an entry of Q: this replica sent PRE-PREPARE or PREPARE for it.
    PrePrepared {
        /// The view.
        view: ViewNum,
        /// The number.
        seq: SeqNum,
        /// The batch.
        digest: Digest,
    },
    /// D2, an entry of P with what is needed to propose and execute it again.
    Prepared {
        /// The view.
        view: ViewNum,
        /// The number.
        seq: SeqNum,
        /// The batch, as `decode_batch` reads it.
        batch: &'a [u8],
    },
    /// D3: left for a view; the VIEW-CHANGE's frame.
    ViewChange {
        /// The view to enter.
        view: ViewNum,
        /// The frame. Empty: the replica came to this view by a rejoin, and has sent none (RC-11c).
        frame: &'a [u8],
    },
    /// D4: entered a view; the NEW-VIEW's frame and those of its VIEW-CHANGEs.
    NewView {
        /// The view.
        view: ViewNum,
        /// The frames, as `frames` reads them.
        frames: &'a [u8],
    },
    /// A batch that was executed without having prepared here, so that the log alone can execute it again
    /// from the last image on (D5).
    Batch {
        /// The number.
        seq: SeqNum,
        /// The batch, as `decode_batch` reads it.
        batch: &'a [u8],
    },
    /// D6: a stable checkpoint.
    Stable {
        /// The number.
        seq: SeqNum,
        /// The root.
        root: Digest,
    },
    /// D8: the latest starts that have been seen of all replicas, so that an old disk of one of them is
    /// noticed also by those that have started again themselves (§14.3).
    Seen {
        /// The stable checkpoint at the time: one is written behind every [`Record::Stable`].
        seq: SeqNum,
        /// One [`quorate_wire::message::Start`] a replica, in order.
        starts: &'a [u8],
    },
    /// D7: a batch committed.
    Committed {
        /// The number.
        seq: SeqNum,
        /// The batch.
        digest: Digest,
    },
    /// RO-4: the state after this number was fetched, and may have been shown.
    Floor {
        /// The number.
        seq: SeqNum,
    },
    /// D2, an entry of P whose batch an earlier record of the same number holds.
    PreparedAgain {
        /// The view.
        view: ViewNum,
        /// The number.
        seq: SeqNum,
        /// The batch.
        digest: Digest,
    },
}

impl Record<'_> {
    /// Appends the record: `kind 1 | fields`.
    pub fn encode(&self, out: &mut Writer<'_>) {
        match self {
            Self::PrePrepared { view, seq, digest } => {
                out.u8(1);
                out.u64(view.0);
                out.u64(seq.0);
                out.digest(digest);
            }
            Self::Prepared { view, seq, batch } => {
                out.u8(2);
                out.u64(view.0);
                out.u64(seq.0);
                out.bytes(batch);
            }
            Self::ViewChange { view, frame } => {
                out.u8(3);
                out.u64(view.0);
                out.bytes(frame);
            }
            Self::NewView { view, frames } => {
                out.u8(4);
                out.u64(view.0);
                out.bytes(frames);
            }
            Self::Stable { seq, root } => {
                out.u8(5);
                out.u64(seq.0);
                out.digest(root);
            }
            Self::Committed { seq, digest } => {
                out.u8(6);
                out.u64(seq.0);
                out.digest(digest);
            }
            Self::Batch { seq, batch } => {
                out.u8(7);
                out.u64(seq.0);
                out.bytes(batch);
            }
            Self::Seen { seq, starts } => {
                out.u8(8);
                out.u64(seq.0);
                out.bytes(starts);
            }
            Self::Floor { seq } => {
                out.u8(9);
                out.u64(seq.0);
            }
            Self::PreparedAgain { view, seq, digest } => {
                out.u8(10);
                out.u64(view.0);
                out.u64(seq.0);
                out.digest(digest);
            }
        }
    }
}

impl<'a> Record<'a> {
    /// Reads a whole record.
    pub fn decode(bytes: &'a [u8]) -> Decoded<Self> {
        let mut r = Reader::new(bytes);
        let record = match r.u8()? {
            1 => Self::PrePrepared { view: ViewNum(r.u64()?), seq: SeqNum(r.u64()?), digest: r.digest()? },
            2 => Self::Prepared { view: ViewNum(r.u64()?), seq: SeqNum(r.u64()?), batch: r.bytes(r.len())? },
            3 => Self::ViewChange { view: ViewNum(r.u64()?), frame: r.bytes(r.len())? },
            4 => Self::NewView { view: ViewNum(r.u64()?), frames: r.bytes(r.len())? },
            5 => Self::Stable { seq: SeqNum(r.u64()?), root: r.digest()? },
            6 => Self::Committed { seq: SeqNum(r.u64()?), digest: r.digest()? },
            7 => Self::Batch { seq: SeqNum(r.u64()?), batch: r.bytes(r.len())? },
            8 => Self::Seen { seq: SeqNum(r.u64()?), starts: r.bytes(r.len())? },
            9 => Self::Floor { seq: SeqNum(r.u64()?) },
            10 => Self::PreparedAgain { view: ViewNum(r.u64()?), seq: SeqNum(r.u64()?), digest: r.digest()? },
            _ => return Err(DecodeError::NotCanonical),
        };
        r.end()?;
        Ok(record)
    }
}

/// How long a driver keeps a record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Keep {
    /// Until a checkpoint of this number or a later one is stable, and its image and the record about it are on the disk.
    /// An image alone is not enough: what was said of numbers above the stable checkpoint binds the replica, whatever
    /// state it has fetched.
    UntilStable(SeqNum),
    /// Until there is one about this view or a later one.
    NewestView(ViewNum),
    /// Until there is one about this checkpoint or a later one.
    NewestStable(SeqNum),
    /// Until there is another one of its kind.
    NewestSeen,
}

/// Returns how long a driver keeps a record. None: the bytes are no record.
pub fn keep(record: &[u8]) -> Option<Keep> {
    Some(match Record::decode(record).ok()? {
        Record::PrePrepared { seq, .. }
        | Record::Prepared { seq, .. }
        | Record::PreparedAgain { seq, .. }
        | Record::Batch { seq, .. }
        | Record::Floor { seq }
        | Record::Committed { seq, .. } => Keep::UntilStable(seq),
        Record::Stable { seq, .. } => Keep::NewestStable(seq),
        Record::Seen { .. } => Keep::NewestSeen,
        Record::ViewChange { view, .. } | Record::NewView { view, .. } => Keep::NewestView(view),
    })
}

/// Returns the number of a record that says that a checkpoint is stable.
pub fn stable_of(record: &[u8]) -> Option<SeqNum> {
    match Record::decode(record) {
        Ok(Record::Stable { seq, .. }) => Some(seq),
        Ok(_) | Err(_) => None,
    }
}

/// Returns a batch with the bodies of its separate requests, as bytes.
pub(crate) fn encoded(batch: &Batch) -> Vec<u8> {
    let (mut own, mut bytes) = (Vec::new(), Vec::new());
    batch.encode(&mut Writer::new(&mut own));
    let mut out = Writer::new(&mut bytes);
    out.blob(&own);
    for body in batch.bodies() {
        out.blob(body.frame());
    }
    bytes
}

/// Reads what [`encoded`] wrote, digests and all.
pub(crate) fn decode_batch(bytes: &[u8], domains: &Domains) -> Decoded<Batch> {
    let mut r = Reader::new(bytes);
    let own = r.blob(FRAME_BYTES_MAX)?;
    let mut batch = Batch::default();
    batch.decode(&mut Reader::new(own), domains, |frame| decode_request(frame, domains))?;
    while !r.is_empty() {
        let request = decode_request(r.blob(FRAME_BYTES_MAX)?, domains)?;
        batch.supply(&StoredRequest::new(&request).into());
    }
    Ok(batch)
}

/// Reads a request's frame and digests its operation. It was authenticated before it was written.
fn decode_request<'a>(frame: &'a [u8], domains: &Domains) -> Decoded<Request<'a>> {
    let decoded = Frame::decode(frame)?;
    if decoded.kind != Kind::Request {
        return Err(DecodeError::NotCanonical);
    }
    let body = RequestBody::decode(decoded.body)?;
    let client = decoded.sender.as_client();
    Ok(Request {
        client,
        timestamp: body.timestamp,
        digest: domains.request(client.0, body.timestamp.0, body.operation),
        flags: body.flags,
        replier: body.replier,
        operation: body.operation,
        operation_at: HEADER_BYTES + REQUEST_HEAD_BYTES,
        frame,
        proof: Proof::Unproven,
    })
}

/// Returns the frames of a [`Record::NewView`].
pub(crate) fn frames(bytes: &[u8]) -> Decoded<Vec<&[u8]>> {
    let mut r = Reader::new(bytes);
    let mut frames = Vec::new();
    while !r.is_empty() {
        frames.push(r.blob(FRAME_BYTES_MAX)?);
    }
    Ok(frames)
}

/// Returns the requests of a batch with proof, each on its own.
pub(crate) fn requests_of(batch: &Batch, domains: &Domains) -> Vec<StoredRequest> {
    let inlined = batch.inlined().iter().filter(|r| r.proof != Proof::Unproven).filter_map(|r| {
        let mut request = decode_request(batch.frame(r), domains).ok()?;
        request.proof = r.proof;
        Some(StoredRequest::new(&request))
    });
    let separate = batch.bodies().filter(|body| body.proof != Proof::Unproven).map(|body| (**body).clone());
    inlined.chain(separate).collect()
}
