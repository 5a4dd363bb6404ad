//! Checkpoints [OSDI99 §4.3] and the queries of a recovering replica about them (spec §13).

use crate::envelope::digest::Digest;
use crate::envelope::id::{SeqNum, ViewNum};
use crate::envelope::parts::plain_message;

plain_message! {
    /// CHECKPOINT: `n 8 | d 32 | stable 1` [OSDI99 §4.3].
    Checkpoint {
        /// The sequence number of the last batch that the state reflects.
        seq: SeqNum = |w, v| w.u64(v.0), |r| r.u64().map(SeqNum);
        /// The digest of the state.
        digest: Digest = |w, v| w.digest(&v), |r| r.digest();
        /// The sender holds a proof that this checkpoint is stable.
        stable: bool = |w, v| w.u8(u8::from(v)), |r| r.bool();
    }
}

plain_message! {
    /// QUERY-STABLE: `nonce 8` (RC-4).
    QueryStable {
        /// Ties the answers to this question.
        nonce: u64 = |w, v| w.u64(v), |r| r.u64();
    }
}

plain_message! {
    /// REPLY-STABLE: `nonce 8 | c 8 | p 8 | v 8` (RC-4, RC-11).
    ReplyStable {
        /// The question's nonce.
        nonce: u64 = |w, v| w.u64(v), |r| r.u64();
        /// The sender's last checkpoint.
        checkpoint: SeqNum = |w, v| w.u64(v.0), |r| r.u64().map(SeqNum);
        /// The highest number that it ever prepared.
        prepared: SeqNum = |w, v| w.u64(v.0), |r| r.u64().map(SeqNum);
        /// The sender's view.
        view: ViewNum = |w, v| w.u64(v.0), |r| r.u64().map(ViewNum);
    }
}
