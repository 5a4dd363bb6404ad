//! State transfer: nodes and pages of the state (spec §9).

use crate::envelope::codec::{Decoded, Reader, Writer};
use crate::envelope::digest::Digest;
use crate::envelope::id::SeqNum;
use crate::envelope::parts::{check_len, plain_message};
use crate::protocol::message::{CHILDREN_MAX, PAGE_BYTES_MAX};

plain_message! {
    /// FETCH: `rid 8 | level 1 | index 8 | c 8`: asks for a partition of the state as of checkpoint `c` (ST-2).
    Fetch {
        /// New for each attempt; answers carry it.
        rid: u64 = |w, v| w.u64(v), |r| r.u64();
        /// 0 asks for a page, 1 and above for the children of a node of that level.
        level: u8 = |w, v| w.u8(v), |r| r.u8();
        /// The partition's place in its level.
        index: u64 = |w, v| w.u64(v), |r| r.u64();
        /// The checkpoint.
        checkpoint: SeqNum = |w, v| w.u64(v.0), |r| r.u64().map(SeqNum);
    }
}

/// META-DATA: `rid 8 | level 1 | index 8 | c 8 | lm 8 | count 1 | (lm 8 | d 32)*`: the children of a
/// node, in order (ST-2). Checked by recomputing the node's digest.
#[derive(Clone, Copy, Debug)]
pub struct MetaData<'a> {
    /// The question's.
    pub rid: u64,
    /// The node's level.
    pub level: u8,
    /// The node's place in its level.
    pub index: u64,
    /// The checkpoint.
    pub checkpoint: SeqNum,
    /// The last checkpoint that modified the node.
    pub modified: SeqNum,
    children: &'a [u8],
}

impl<'a> MetaData<'a> {
    /// Bytes of one child.
    const CHILD_BYTES: usize = 40;

    /// Appends a body with `children`, of which there are at most [`CHILDREN_MAX`].
    pub fn encode(
        question: &Fetch,
        modified: SeqNum,
        children: impl ExactSizeIterator<Item = (SeqNum, Digest)>,
        out: &mut Writer<'_>,
    ) {
        out.u64(question.rid);
        out.u8(question.level);
        out.u64(question.index);
        out.u64(question.checkpoint.0);
        out.u64(modified.0);
        out.count8(children.len());
        for (modified, digest) in children {
            out.u64(modified.0);
            out.digest(&digest);
        }
    }

    /// Reads a whole body.
    pub fn decode(body: &'a [u8]) -> Decoded<Self> {
        let mut r = Reader::new(body);
        let (rid, level, index) = (r.u64()?, r.u8()?, r.u64()?);
        let (checkpoint, modified) = (SeqNum(r.u64()?), SeqNum(r.u64()?));
        let count = r.count8(CHILDREN_MAX)?;
        let children = r.bytes(count * Self::CHILD_BYTES)?;
        r.end()?;
        Ok(Self { rid, level, index, checkpoint, modified, children })
    }

    /// Returns the children: the last checkpoint that modified each, and its digest.
    pub fn children(&self) -> impl Iterator<Item = (SeqNum, Digest)> + use<'a> {
        self.children.chunks_exact(Self::CHILD_BYTES).map_while(|child| {
            let mut r = Reader::new(child);
            Some((SeqNum(r.u64().ok()?), r.digest().ok()?))
        })
    }
}

/// DATA: `rid 8 | index 8 | lm 8 | page`: a page of the state (ST-2). Checked by digest.
#[derive(Clone, Copy, Debug)]
pub struct Data<'a> {
    /// The question's.
    pub rid: u64,
    /// The page's number.
    pub index: u64,
    /// The last checkpoint that modified it.
    pub modified: SeqNum,
    /// The page. Empty for one that has never been written.
    pub page: &'a [u8],
}

impl<'a> Data<'a> {
    /// Appends the body.
    pub fn encode(&self, out: &mut Writer<'_>) {
        out.u64(self.rid);
        out.u64(self.index);
        out.u64(self.modified.0);
        out.bytes(self.page);
    }

    /// Reads a whole body.
    pub fn decode(body: &'a [u8]) -> Decoded<Self> {
        let mut r = Reader::new(body);
        let (rid, index, modified) = (r.u64()?, r.u64()?, SeqNum(r.u64()?));
        check_len(r.len(), PAGE_BYTES_MAX)?;
        let page = r.bytes(r.len())?;
        Ok(Self { rid, index, modified, page })
    }
}
