//! What a replica said in an earlier life, as its log has it (spec §14.3).

use alloc::collections::BTreeMap;
use alloc::sync::Arc;
use alloc::vec::Vec;

use quorate_wire::digest::Domains;
use quorate_wire::frame::Frame;
use quorate_wire::id::{SeqNum, ViewNum};
use quorate_wire::message::{NewView, ProofMessage, ViewChange};
use quorate_wire::{Batch, Digest, Signed};

use crate::io::record::{self, Record};
use crate::view::candidate::Candidate;

/// The committed batches in a log after an image, for examining a stopped replica.
#[derive(Clone, Debug)]
pub struct Committed {
    /// The batches, from the one behind the image on, without a gap.
    pub batches: Vec<(SeqNum, Arc<Batch>)>,
    /// The newest stable checkpoint, and its root.
    pub stable: Option<(SeqNum, Digest)>,
}

impl Committed {
    /// Reads the records, oldest first. `image` is the last batch that the image reflects.
    pub fn read(records: &[Vec<u8>], domains: &Domains, image: SeqNum) -> Self {
        let history = History::read(records, domains);
        let mut batches = Vec::new();
        let mut seq = SeqNum(image.0 + 1);
        while let Some(digest) = history.committed.get(&seq)
            // Null batches are all one: the same digest can stand at several numbers.
            && let Some(batch) = history.batches.get(digest).filter(|batch| batch.is_complete())
        {
            batches.push((seq, batch.clone()));
            seq = SeqNum(seq.0 + 1);
        }
        Self { batches, stable: history.stable }
    }
}

/// The content of the log, sorted.
#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) stable: Option<(SeqNum, Digest)>,
    pub(crate) pre_prepared: Vec<(ViewNum, SeqNum, Digest)>,
    pub(crate) prepared: Vec<(ViewNum, SeqNum, Digest)>,
    pub(crate) last_prepared: SeqNum,
    /// The last number that committed here, or whose state was fetched.
    pub(crate) shown: SeqNum,
    pub(crate) committed: BTreeMap<SeqNum, Digest>,
    pub(crate) batches: BTreeMap<Digest, Arc<Batch>>,
    pub(crate) view: ViewNum,
    pub(crate) view_change: Option<Vec<u8>>,
    pub(crate) new_view: Option<Vec<u8>>,
    pub(crate) seen: Vec<u8>,
}

impl History {
    /// Reads the records, oldest first.
    pub(crate) fn read(records: &[Vec<u8>], domains: &Domains) -> Self {
        let mut history = Self::default();
        for record in records.iter().filter_map(|bytes| Record::decode(bytes).ok()) {
            add(&mut history, &record, domains);
        }
        history
    }
}

/// Enters one record.
fn add(history: &mut History, record: &Record<'_>, domains: &Domains) {
    match record {
        Record::PrePrepared { view, seq, digest } => history.pre_prepared.push((*view, *seq, *digest)),
        Record::Prepared { view, seq, batch } => {
            if let Some(digest) = add_batch(history, batch, domains) {
                history.prepared.push((*view, *seq, digest));
                history.last_prepared = history.last_prepared.max(*seq);
            }
        }
        Record::PreparedAgain { view, seq, digest } => {
            history.prepared.push((*view, *seq, *digest));
            history.last_prepared = history.last_prepared.max(*seq);
        }
        Record::Batch { seq, batch } => {
            add_batch(history, batch, domains);
            history.shown = history.shown.max(*seq);
        }
        Record::Floor { seq } => history.shown = history.shown.max(*seq),
        Record::ViewChange { view, frame } => {
            // Of two for the same view the later one is of a newer life, or follows a rejoin (RC-11c).
            if *view > history.view || *view == history.view && history.view_change.is_some() {
                (history.view, history.view_change, history.new_view) = (*view, Some(frame.to_vec()), None);
            }
        }
        Record::NewView { view, frames } => {
            if *view >= history.view {
                (history.view, history.view_change, history.new_view) = (*view, None, Some(frames.to_vec()));
            }
        }
        Record::Committed { seq, digest } => {
            history.committed.insert(*seq, *digest);
            history.shown = history.shown.max(*seq);
        }
        Record::Seen { starts, .. } => history.seen = starts.to_vec(),
        Record::Stable { seq, root } => {
            if history.stable.is_none_or(|(newest, _)| newest <= *seq) {
                history.stable = Some((*seq, *root));
            }
        }
    }
}

fn add_batch(history: &mut History, bytes: &[u8], domains: &Domains) -> Option<Digest> {
    let batch = record::decode_batch(bytes, domains).ok()?;
    let digest = batch.digest();
    history.batches.insert(digest, Arc::new(batch));
    Some(digest)
}

/// Reads a VIEW-CHANGE that this replica wrote to its own log.
pub(crate) fn read_view_change(bytes: &[u8], domains: &Domains) -> Option<Signed<ViewChange>> {
    let frame = Frame::decode(bytes).ok()?;
    let body = ViewChange::decode(frame.body).ok()?;
    Signed::reread(domains, &frame, body)
}

/// Reads a NEW-VIEW and what it rests on.
pub(crate) fn read_new_view(frames: &[&[u8]], domains: &Domains) -> Option<Candidate> {
    let (first, rest) = frames.split_first()?;
    let frame = Frame::decode(first).ok()?;
    let body = NewView::decode(frame.body).ok()?;
    let message = Arc::new(Signed::reread(domains, &frame, body)?);
    let (changes, told) = rest.split_at_checked(message.body().view_changes.len())?;
    let mut named = Vec::new();
    for bytes in changes {
        named.push(Arc::new(read_view_change(bytes, domains)?));
    }
    let mut proofs = Vec::new();
    for bytes in told {
        let frame = Frame::decode(bytes).ok()?;
        let body = ProofMessage::decode(frame.body).ok()?;
        proofs.push(Arc::new(Signed::reread(domains, &frame, body)?));
    }
    Some(Candidate::whole(message, named, proofs))
}

#[cfg(test)]
mod tests {
    use quorate_wire::codec::Writer;
    use quorate_wire::digest::ClusterId;

    use super::*;

    /// [OSDI99 §4.4] A new view fills its gaps with null batches, which are all one; after a fail-over there are often several
    /// in a row. A reader of the log must not take the second one for its end.
    #[test]
    fn the_same_null_batch_is_read_at_several_numbers() {
        let domains = Domains::new(ClusterId([7; 32]));
        let mut null = Batch::default();
        null.seal(&domains, &[]);
        let (bytes, digest) = (record::encoded(&null), null.digest());
        let mut records = Vec::new();
        for seq in [1, 2, 3].map(SeqNum) {
            for record in
                [Record::Prepared { view: ViewNum(1), seq, batch: &bytes }, Record::Committed { seq, digest }]
            {
                let mut out = Vec::new();
                record.encode(&mut Writer::new(&mut out));
                records.push(out);
            }
        }
        let read = Committed::read(&records, &domains, SeqNum(0));
        let numbers: Vec<u64> = read.batches.iter().map(|(seq, _)| seq.0).collect();
        assert_eq!(numbers, [1, 2, 3]);
    }
}
