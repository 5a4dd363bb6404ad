//! The last batches below the stable checkpoint. Others discard what is below theirs at once; one that lags by a few
//! checkpoints would otherwise have to fetch state for what it could execute (ST-5).

use alloc::collections::{BTreeMap, VecDeque};
use alloc::sync::Arc;

use quorate_wire::Digest;
use quorate_wire::batch::{Batch, Body};
use quorate_wire::id::SeqNum;

/// The most bytes of batches that are kept.
const ARCHIVE_BYTES_MAX: usize = 16 << 20;
/// How many checkpoints they reach back. All of them, and those of the window, have to be fewer than the pool of batches
/// holds: otherwise none comes back to it, and each new batch is allocated.
const CHECKPOINTS: u64 = 4;

/// Committed batches, lowest number first. At most those of [`CHECKPOINTS`], and at most [`ARCHIVE_BYTES_MAX`] bytes.
#[derive(Debug)]
pub(crate) struct Archive {
    batches: VecDeque<(SeqNum, Arc<Batch>)>,
    bytes: usize,
    count_max: usize,
    /// Where batches and separate requests stand, made when somebody asks: nothing is paid before.
    by_digest: Option<BTreeMap<Digest, SeqNum>>,
}

impl Archive {
    /// Returns an empty archive, with this number of batches between two checkpoints.
    pub(crate) fn new(checkpoint_interval: u64) -> Self {
        let count_max =
            usize::try_from(CHECKPOINTS.saturating_mul(checkpoint_interval)).unwrap_or(usize::MAX);
        Self { batches: VecDeque::new(), bytes: 0, count_max, by_digest: None }
    }

    /// Keeps a batch whose number leaves the window; the oldest make room.
    pub(crate) fn keep(&mut self, seq: SeqNum, batch: Arc<Batch>) {
        if self.batches.back().is_some_and(|(last, _)| *last >= seq) {
            return;
        }
        self.bytes += size(&batch);
        self.batches.push_back((seq, batch));
        self.by_digest = None;
        while self.batches.len() > self.count_max || self.bytes > ARCHIVE_BYTES_MAX {
            let Some((_, oldest)) = self.batches.pop_front() else { return };
            self.bytes = self.bytes.saturating_sub(size(&oldest));
        }
    }

    /// Returns the digest of what committed at `seq`.
    pub(crate) fn digest_at(&self, seq: SeqNum) -> Option<Digest> {
        self.at(seq).map(|batch| batch.digest())
    }

    /// Returns the batch with this digest, and its number.
    pub(crate) fn batch(&mut self, digest: &Digest) -> Option<(SeqNum, Arc<Batch>)> {
        let seq = *self.index().get(digest)?;
        self.at(seq).filter(|batch| batch.digest() == *digest).map(|batch| (seq, batch.clone()))
    }

    /// Returns the request with this digest, of those that travel apart from their batch.
    pub(crate) fn body(&mut self, digest: &Digest) -> Option<Body> {
        let seq = *self.index().get(digest)?;
        self.at(seq)?.bodies().find(|body| body.digest == *digest).cloned()
    }

    fn at(&self, seq: SeqNum) -> Option<&Arc<Batch>> {
        let at = self.batches.binary_search_by_key(&seq, |(seq, _)| *seq).ok()?;
        self.batches.get(at).map(|(_, batch)| batch)
    }

    fn index(&mut self) -> &BTreeMap<Digest, SeqNum> {
        let batches = &self.batches;
        self.by_digest.get_or_insert_with(|| {
            let of = |(seq, batch): &(SeqNum, Arc<Batch>)| {
                let seq = *seq;
                let digests: alloc::vec::Vec<_> =
                    batch.separate().iter().copied().chain([batch.digest()]).collect();
                digests.into_iter().map(move |digest| (digest, seq))
            };
            batches.iter().flat_map(of).collect()
        })
    }
}

fn size(batch: &Batch) -> usize {
    let bodies: usize = batch.bodies().map(|body| body.frame().len()).sum();
    batch.payload().len() + bodies
}

#[cfg(test)]
mod tests {
    use quorate_wire::digest::{ClusterId, Domains};

    use super::*;

    fn batch(choice: u64) -> Arc<Batch> {
        let mut batch = Batch::default();
        batch.seal(&Domains::new(ClusterId([7; 32])), &choice.to_le_bytes());
        Arc::new(batch)
    }

    /// It holds what it is meant to and no more, whatever comes, and finds what it holds.
    #[test]
    fn an_archive_keeps_a_few_checkpoints() {
        let mut archive = Archive::new(2);
        for seq in 1..=100 {
            archive.keep(SeqNum(seq), batch(seq));
        }
        archive.keep(SeqNum(3), batch(3));
        assert_eq!(archive.batches.len(), 8);
        assert_eq!(archive.digest_at(SeqNum(92)), None);
        assert_eq!(archive.digest_at(SeqNum(93)), Some(batch(93).digest()));
        assert!(archive.batch(&batch(100).digest()).is_some());
        assert!(archive.batch(&batch(92).digest()).is_none());
        archive.keep(SeqNum(101), batch(101));
        assert!(archive.batch(&batch(101).digest()).is_some(), "the index is made again");
    }
}
