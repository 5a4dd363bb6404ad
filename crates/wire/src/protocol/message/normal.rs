//! The three phases of the normal case [OSDI99 §4.2].

use alloc::sync::Arc;

use crate::envelope::codec::{Decoded, Reader, Writer};
use crate::envelope::digest::Digest;
use crate::envelope::frame;
use crate::envelope::id::{SeqNum, ViewNum};
use crate::envelope::parts::{plain_message, whole};
use crate::protocol::batch::{Batch, CHOICE_BYTES_MAX};
use crate::protocol::message::PIGGYBACK_MAX;

/// PRE-PREPARE: `v 8 | n 8 | d 32 | piggyback | counts and choice | payload`.
#[derive(Clone, Debug)]
pub struct PrePrepare<'a> {
    /// The view.
    pub view: ViewNum,
    /// The sequence number.
    pub seq: SeqNum,
    /// The batch; its digest has been computed from its bytes and is the one in the message.
    pub batch: Arc<Batch>,
    /// Commits of the same view that ride along.
    pub piggyback: Piggyback<'a>,
}

/// Returns the bytes of a PRE-PREPARE's fixed part: all up to the piggybacked commits. The digest
/// stands for the rest, which is the list of requests in order and the choice, in whatever form.
pub(super) fn pre_prepare_fixed_len(body: &[u8]) -> usize {
    let commits = body.get(48).map_or(0, |count| usize::from(*count));
    49 + commits * ENTRY_BYTES
}

/// The parts of a PRE-PREPARE, its batch still in wire form.
#[derive(Clone, Copy, Debug)]
pub struct PrePrepareHead<'a> {
    /// The view.
    pub view: ViewNum,
    /// The sequence number.
    pub seq: SeqNum,
    /// The digest that the sender claims for the batch.
    pub digest: Digest,
    /// Commits of the same view that ride along.
    pub piggyback: Piggyback<'a>,
    /// Inlined and separate requests.
    pub counts: (usize, usize),
    /// The primary's choice.
    pub choice: &'a [u8],
    /// Inlined frames and separate digests.
    pub payload: &'a [u8],
}

impl<'a> PrePrepareHead<'a> {
    /// Reads a body up to its payload.
    #[inline]
    pub fn decode(body: &'a [u8]) -> Decoded<Self> {
        let mut r = Reader::new(body);
        let view = ViewNum(r.u64()?);
        let seq = SeqNum(r.u64()?);
        let digest = Digest(*r.chunk()?);
        let piggyback = Piggyback::decode(&mut r)?;
        let (counts, choice) = Batch::decode_counts(&mut r)?;
        let payload = r.bytes(r.len())?;
        Ok(Self { view, seq, digest, piggyback, counts, choice, payload })
    }
}

/// Appends the body of a PRE-PREPARE for `batch`.
pub fn encode_pre_prepare(
    view: ViewNum,
    seq: SeqNum,
    batch: &Batch,
    piggyback: &[(SeqNum, Digest)],
    out: &mut Writer<'_>,
) {
    out.u64(view.0);
    out.u64(seq.0);
    out.digest(&batch.digest());
    Piggyback::encode(piggyback, out);
    batch.encode_counts(out);
    out.bytes(batch.payload());
}

/// Returns the bytes of the frame of a PRE-PREPARE without its payload, with this number of commits on board and
/// a choice of any length, in a cluster of `n`. What a batch may have at most (`BATCH_BYTES`) includes
/// them: a full PRE-PREPARE fits a datagram.
pub fn pre_prepare_bytes_besides(n: usize, commits: usize) -> usize {
    let body = 49 + commits * ENTRY_BYTES + 5 + usize::from(CHOICE_BYTES_MAX);
    let authenticator = 6 + n.saturating_sub(1) * frame::ENTRY_BYTES;
    frame::HEADER_BYTES + body + authenticator
}

/// PREPARE: `v 8 | n 8 | d 32 | piggyback`.
#[derive(Clone, Copy, Debug)]
pub struct Prepare<'a> {
    /// The view.
    pub view: ViewNum,
    /// The sequence number.
    pub seq: SeqNum,
    /// The batch.
    pub digest: Digest,
    /// Commits of the same view that ride along.
    pub piggyback: Piggyback<'a>,
}

impl<'a> Prepare<'a> {
    /// Appends a body.
    pub fn encode(
        view: ViewNum,
        seq: SeqNum,
        digest: &Digest,
        piggyback: &[(SeqNum, Digest)],
        out: &mut Writer<'_>,
    ) {
        out.u64(view.0);
        out.u64(seq.0);
        out.digest(digest);
        Piggyback::encode(piggyback, out);
    }

    /// Reads a whole body.
    #[inline]
    pub fn decode(body: &'a [u8]) -> Decoded<Self> {
        whole(body, |r| {
            Ok(Self {
                view: ViewNum(r.u64()?),
                seq: SeqNum(r.u64()?),
                digest: Digest(*r.chunk()?),
                piggyback: Piggyback::decode(r)?,
            })
        })
    }
}

plain_message! {
    /// COMMIT: `v 8 | n 8 | d 32`. Unlike the original library's, it names the digest (spec §5.1).
    Commit {
        /// The view in which the batch prepared.
        view: ViewNum = |w, v| w.u64(v.0), |r| r.u64().map(ViewNum);
        /// The sequence number.
        seq: SeqNum = |w, v| w.u64(v.0), |r| r.u64().map(SeqNum);
        /// The batch.
        digest: Digest = |w, v| w.digest(&v), |r| r.digest();
    }
}

/// Bytes of a commit that rides on another message.
const ENTRY_BYTES: usize = 40;

/// A list of commits that ride on another message: `count 1 | (n 8 | d 32)*`, of the carrier's view
/// (PB-2). At most [`PIGGYBACK_MAX`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Piggyback<'a> {
    bytes: &'a [u8],
}

impl<'a> Piggyback<'a> {
    #[inline]
    fn decode(r: &mut Reader<'a>) -> Decoded<Self> {
        let count = r.count8(PIGGYBACK_MAX)?;
        Ok(Self { bytes: r.bytes(count * ENTRY_BYTES)? })
    }

    /// Appends a list.
    pub fn encode(commits: &[(SeqNum, Digest)], out: &mut Writer<'_>) {
        out.count8(commits.len());
        for (seq, digest) in commits {
            out.u64(seq.0);
            out.digest(digest);
        }
    }

    /// Returns the number of commits.
    pub fn len(&self) -> usize {
        self.bytes.len() / ENTRY_BYTES
    }

    /// Returns whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Returns the commits.
    pub fn iter(&self) -> impl Iterator<Item = (SeqNum, Digest)> + use<'a> {
        let (entries, _) = self.bytes.as_chunks::<ENTRY_BYTES>();
        entries.iter().filter_map(|entry| {
            let (seq, digest) = entry.split_first_chunk()?;
            Some((SeqNum(u64::from_le_bytes(*seq)), Digest(*digest.first_chunk()?)))
        })
    }
}
