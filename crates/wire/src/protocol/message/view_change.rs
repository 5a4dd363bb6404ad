//! View changes [OSDI99 §4.4] in mode `Hybrid` (spec §11).

use alloc::vec::Vec;

use crate::envelope::cluster::{Cluster, REPLICAS_MAX};
use crate::envelope::codec::{DecodeError, Decoded, Writer};
use crate::envelope::digest::{Digest, Domains};
use crate::envelope::id::{ReplicaId, SeqNum, ViewNum};
use crate::envelope::parts::{increasing, plain_message, take_list, whole};
use crate::protocol::life::Life;
use crate::protocol::message::{CHECKPOINTS_MAX, CLAIMS_MAX, Kind, WINDOW_MAX};

/// Why a replica wishes to leave a view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SuspectReason {
    /// A request was not executed in time.
    Timeout,
    /// The NEW-VIEW breaks a rule.
    BadNewView,
    /// A PRE-PREPARE breaks a rule that its author vouched for.
    BadPrePrepare,
    /// The primary itself hands over.
    SelfHandoff,
}

impl SuspectReason {
    fn to_wire(self) -> u8 {
        match self {
            Self::Timeout => 0,
            Self::BadNewView => 1,
            Self::BadPrePrepare => 2,
            Self::SelfHandoff => 5,
        }
    }

    fn from_wire(byte: u8) -> Decoded<Self> {
        match byte {
            0 => Ok(Self::Timeout),
            1 => Ok(Self::BadNewView),
            2 => Ok(Self::BadPrePrepare),
            5 => Ok(Self::SelfHandoff),
            _ => Err(DecodeError::NotCanonical),
        }
    }
}

/// SUSPECT: `v 8 | reason 1`, signed (spec §11.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Suspect {
    /// The view to leave.
    pub view: ViewNum,
    /// Why.
    pub reason: SuspectReason,
    /// The signature over the frame's covered bytes, kept for a [`LeaveCert`].
    pub signature: [u8; 64],
}

impl Suspect {
    /// Appends the body, which is everything but the signature.
    pub fn encode(&self, out: &mut Writer<'_>) {
        out.u64(self.view.0);
        out.u8(self.reason.to_wire());
    }

    /// Returns what `replica`'s signature covers.
    pub fn signed_digest(&self, domains: &Domains, epoch: u32, replica: ReplicaId) -> Digest {
        let mut body = [0; 9];
        body[..8].copy_from_slice(&self.view.0.to_le_bytes());
        body[8] = self.reason.to_wire();
        crate::envelope::sign::signed_digest(domains, Kind::Suspect, epoch, replica.into(), &body)
    }

    /// Reads a whole body; the signature comes from the frame.
    pub fn decode(body: &[u8], signature: [u8; 64]) -> Decoded<Self> {
        whole(body, |r| {
            Ok(Self { view: ViewNum(r.u64()?), reason: SuspectReason::from_wire(r.u8()?)?, signature })
        })
    }
}

/// A proof that leaving a view is right: `f + 1` SUSPECTs for it from distinct replicas, or one of
/// its primary's (LV-2). `count 1 | (i 2 | reason 1 | sig 64)*`, by increasing `i`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LeaveCert {
    /// The SUSPECTs, all for the view before the VIEW-CHANGE's. At most one from each replica.
    pub suspects: Vec<(ReplicaId, Suspect)>,
}

/// One entry of P: the batch prepared at `seq` in `view`, the newest such view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Prepared {
    /// The sequence number.
    pub seq: SeqNum,
    /// The batch.
    pub digest: Digest,
    /// The view.
    pub view: ViewNum,
}

/// One entry of Q: what was pre-prepared at `seq`, with the newest view of each digest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PrePrepared {
    /// The sequence number.
    pub seq: SeqNum,
    /// At most `f + 2` distinct digests, highest views first (VC-4).
    pub claims: Vec<(Digest, ViewNum)>,
}

/// VIEW-CHANGE: `v 8 | h 8 | life 16 | C | P | Q | leave`, signed [OSDI99 §4.4], spec §11.4.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ViewChange {
    /// The view to enter.
    pub view: ViewNum,
    /// The sender's stable checkpoint.
    pub stable: SeqNum,
    /// The life that the sender is in (RC-11).
    pub life: Life,
    /// C: the sender's checkpoints from `stable` on, by increasing number.
    pub checkpoints: Vec<(SeqNum, Digest)>,
    /// P, by increasing number.
    pub prepared: Vec<Prepared>,
    /// Q, by increasing number.
    pub pre_prepared: Vec<PrePrepared>,
    /// Why the view before may be left.
    pub leave: LeaveCert,
}

impl ViewChange {
    /// Returns the length of the longest body that a correct replica of `cluster` sends, if its log window has `window`
    /// batches (VC-3, VC-4).
    pub fn body_bytes_max(cluster: Cluster, window: u64) -> u64 {
        const SEQ_DIGEST_VIEW: u64 = 8 + 32 + 8;
        let claims = cluster.f() as u64 + 2;
        let batch = SEQ_DIGEST_VIEW + 8 + 1 + claims * (32 + 8);
        let checkpoints = u64::from(CHECKPOINTS_MAX) * (8 + 32);
        let leave = cluster.weak() as u64 * (2 + 1 + 64);
        8 + 8 + 16 + 1 + checkpoints + 2 + 2 + window * batch + 1 + leave
    }

    /// Appends the body.
    pub fn encode(&self, out: &mut Writer<'_>) {
        out.u64(self.view.0);
        out.u64(self.stable.0);
        self.life.encode(out);
        out.count8(self.checkpoints.len());
        for (seq, digest) in &self.checkpoints {
            out.u64(seq.0);
            out.digest(digest);
        }
        out.count16(self.prepared.len());
        for p in &self.prepared {
            out.u64(p.seq.0);
            out.digest(&p.digest);
            out.u64(p.view.0);
        }
        out.count16(self.pre_prepared.len());
        for q in &self.pre_prepared {
            out.u64(q.seq.0);
            out.count8(q.claims.len());
            for (digest, view) in &q.claims {
                out.digest(digest);
                out.u64(view.0);
            }
        }
        out.count8(self.leave.suspects.len());
        for (replica, suspect) in &self.leave.suspects {
            out.u16(replica.0);
            out.u8(suspect.reason.to_wire());
            out.bytes(&suspect.signature);
        }
    }

    /// Reads a whole body and refuses sets that are not in increasing order, which is how an entry
    /// would be counted twice (VC-5). What the entries mean is checked by the protocol.
    pub fn decode(body: &[u8]) -> Decoded<Self> {
        whole(body, |r| {
            let view = ViewNum(r.u64()?);
            let stable = SeqNum(r.u64()?);
            let life = Life::decode(r)?;
            let checkpoints = take_list(r.count8(CHECKPOINTS_MAX)?, || Ok((SeqNum(r.u64()?), r.digest()?)))?;
            increasing(checkpoints.iter().map(|(seq, _)| *seq))?;
            let prepared = take_list(r.count16(WINDOW_MAX)?, || {
                Ok(Prepared { seq: SeqNum(r.u64()?), digest: r.digest()?, view: ViewNum(r.u64()?) })
            })?;
            increasing(prepared.iter().map(|p| p.seq))?;
            let pre_prepared = take_list(r.count16(WINDOW_MAX)?, || {
                let seq = SeqNum(r.u64()?);
                let claims = take_list(r.count8(CLAIMS_MAX)?, || Ok((r.digest()?, ViewNum(r.u64()?))))?;
                Ok(PrePrepared { seq, claims })
            })?;
            increasing(pre_prepared.iter().map(|q| q.seq))?;
            for q in &pre_prepared {
                let highest_first = q.claims.is_sorted_by(|a, b| a.1 >= b.1);
                let distinct =
                    q.claims.iter().enumerate().all(|(i, a)| q.claims[..i].iter().all(|b| a.0 != b.0));
                if q.claims.is_empty() || !highest_first || !distinct {
                    return Err(DecodeError::NotCanonical);
                }
            }
            let left = ViewNum(view.0.checked_sub(1).ok_or(DecodeError::NotCanonical)?);
            let suspects = take_list(r.count8(u8::try_from(REPLICAS_MAX).unwrap_or(u8::MAX))?, || {
                let replica = ReplicaId(r.u16()?);
                let reason = SuspectReason::from_wire(r.u8()?)?;
                Ok((replica, Suspect { view: left, reason, signature: r.array()? }))
            })?;
            increasing(suspects.iter().map(|(replica, _)| *replica))?;
            Ok(Self {
                view,
                stable,
                life,
                checkpoints,
                prepared,
                pre_prepared,
                leave: LeaveCert { suspects },
            })
        })
    }
}

/// NEW-VIEW: `v 8 | life 16 | V | n* 8 | d* 32 | X`, signed [OSDI99 §4.4], spec §11.6.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewView {
    /// The view that begins.
    pub view: ViewNum,
    /// The life that the sender is in (RC-11).
    pub life: Life,
    /// V: the VIEW-CHANGEs it rests on, by increasing replica.
    pub view_changes: Vec<(ReplicaId, Digest)>,
    /// The checkpoint it starts from.
    pub checkpoint: (SeqNum, Digest),
    /// X: the batch for each number from `checkpoint + 1` on; the null batch where nothing can have
    /// committed.
    pub chosen: Vec<Digest>,
}

impl NewView {
    /// Appends the body.
    pub fn encode(&self, out: &mut Writer<'_>) {
        out.u64(self.view.0);
        self.life.encode(out);
        out.count8(self.view_changes.len());
        for (replica, digest) in &self.view_changes {
            out.u16(replica.0);
            out.digest(digest);
        }
        out.u64(self.checkpoint.0.0);
        out.digest(&self.checkpoint.1);
        out.count16(self.chosen.len());
        for digest in &self.chosen {
            out.digest(digest);
        }
    }

    /// Reads a whole body.
    pub fn decode(body: &[u8]) -> Decoded<Self> {
        whole(body, |r| {
            let view = ViewNum(r.u64()?);
            let life = Life::decode(r)?;
            let replicas_max = u8::try_from(REPLICAS_MAX).unwrap_or(u8::MAX);
            let view_changes = take_list(r.count8(replicas_max)?, || Ok((ReplicaId(r.u16()?), r.digest()?)))?;
            increasing(view_changes.iter().map(|(replica, _)| *replica))?;
            let checkpoint = (SeqNum(r.u64()?), r.digest()?);
            let chosen = take_list(r.count16(WINDOW_MAX)?, || r.digest())?;
            Ok(Self { view, life, view_changes, checkpoint, chosen })
        })
    }

    /// Returns the last number that the new view decides: `max_x`.
    pub fn last(&self) -> SeqNum {
        self.checkpoint.0.plus(u64::try_from(self.chosen.len()).unwrap_or(0))
    }
}

plain_message! {
    /// VC-FETCH: `v 8 | set 8`: asks for the VIEW-CHANGEs for `v` of the replicas in `set` (VV-2).
    VcFetch {
        /// The view that they are for.
        view: ViewNum = |w, v| w.u64(v.0), |r| r.u64().map(ViewNum);
        /// Bit `i` asks for replica `i`'s.
        set: u64 = |w, v| w.u64(v), |r| r.u64();
    }
}

plain_message! {
    /// PROOF: `n 8 | d 32 | u 8`, signed: the sender pre-prepared the batch at `n` in view `u` (DP-4). Signed, so
    /// that a new primary can show others what it has counted.
    ProofMessage {
        /// The sequence number.
        seq: SeqNum = |w, v| w.u64(v.0), |r| r.u64().map(SeqNum);
        /// The batch.
        digest: Digest = |w, v| w.digest(&v), |r| r.digest();
        /// The newest view in which the sender pre-prepared it.
        view: ViewNum = |w, v| w.u64(v.0), |r| r.u64().map(ViewNum);
    }
}
