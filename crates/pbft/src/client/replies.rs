//! Reply certificates: when a client may accept a result (spec §4.4).
//!
//! "The client waits for f+1 replies with valid signatures from different replicas, and with the same
//! t and r before accepting the result r. This ensures that the result is valid, since at most f
//! That holds for final replies. A tentative one may be rolled back, and a read that was not ordered has to meet the
//! last write in a correct replica: both need a quorum [OSDI99 §5.1].

use alloc::boxed::Box;
use alloc::vec;
use alloc::vec::Vec;

use quorate_wire::message::Reply;
use quorate_wire::{Cluster, Digest, ReplicaId, ViewNum};

use super::step::{ClientReject, Members, Path};
use crate::io::config::ReadRule;
use crate::order::votes::{Votes, bit};

/// A result buffer larger than this is given back after use, in bytes.
const RESULT_BYTES_KEPT: usize = 64 << 10;

/// The reply of one replica.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct ReplyVote {
    view: ViewNum,
    tentative: bool,
    digest: Digest,
}

/// The replies to the outstanding request: of each replica the newest, and at most one full result.
#[derive(Debug)]
pub(super) struct Replies {
    cluster: Cluster,
    /// Read-only requests are on in this cluster (CL-8).
    reads_unordered: bool,
    /// A read with this many replies and no certificate is given up.
    given_up_at: usize,
    /// How many equal replies to a read are a certificate.
    reads_need: usize,
    votes: Votes<ReplyVote>,
    /// Bit `i`: the full result of replica `i` is here. The authenticator has compared it with the digest of its vote. It
    /// is no part of the vote: one replica sends the full result, and votes that are equal are cheaper to count.
    full: u64,
    results: Box<[Vec<u8>]>,
    certified: Option<Digest>,
    /// Bit `i`: replica `i` has been found to contradict the others in this request.
    contradicted: u64,
}

impl Replies {
    pub(super) fn new(cluster: Cluster, reads_unordered: bool) -> Self {
        let results = vec![Vec::new(); cluster.n()].into_boxed_slice();
        Self {
            cluster,
            reads_unordered,
            given_up_at: usize::MAX,
            reads_need: cluster.quorum(),
            votes: Votes::new(cluster.n()),
            full: 0,
            results,
            certified: None,
            contradicted: 0,
        }
    }

    /// Accepts reads and gives them up by this rule.
    pub(super) fn by(self, rule: ReadRule) -> Self {
        match rule {
            ReadRule::FirstQuorum => self,
            ReadRule::FirstReplies => Self { given_up_at: self.cluster.n() - self.cluster.f(), ..self },
            ReadRule::AnyCorrect => Self { reads_need: self.cluster.weak(), ..self },
        }
    }

    /// Forgets all replies and keeps the room, as far as it is small.
    pub(super) fn clear(&mut self) {
        self.votes.clear();
        self.full = 0;
        self.certified = None;
        self.contradicted = 0;
        for result in self.results.iter_mut().filter(|result| result.capacity() > RESULT_BYTES_KEPT) {
            *result = Vec::new();
        }
    }

    /// Takes the reply of a member to the outstanding request, in the place of its earlier one.
    ///
    /// The newest counts and not the first: a correct replica's reply changes when a tentative one
    /// commits, or is undone by a view change and executed again.
    pub(super) fn insert(
        &mut self,
        from: ReplicaId,
        path: Path,
        reply: &Reply<'_>,
    ) -> Result<(), ClientReject> {
        if path == Path::ReadOnly && reply.tentative {
            return Err(ClientReject::TentativeRead);
        }
        let Reply { view, tentative, digest, result, .. } = *reply;
        let mut keeps = false;
        if let Some(earlier) = self.votes.get(from) {
            // Packets overtake each other: a committed reply is not taken back by a tentative one, nor
            // one of a later view by one of an earlier.
            if (tentative && !earlier.tentative) || view < earlier.view {
                return Err(ClientReject::Superseded);
            }
            keeps = earlier.digest == digest;
        }
        self.votes.replace(from, ReplyVote { view, tentative, digest });
        if result.is_some() {
            self.full |= bit(from);
        } else if !keeps {
            self.full &= !bit(from);
        }
        if let (Some(result), Some(room)) = (result, self.results.get_mut(from.index())) {
            room.clear();
            room.extend_from_slice(result);
        }
        // "A complete certificate without a full result: [...] do not restart counting" (CL-6).
        if self.certified.is_none() && mutant!(M13, self.certifies(&digest, path), true) {
            self.certified = Some(digest);
        }
        Ok(())
    }

    /// Returns a replica whose reply f + 1 others contradict that agree, if there is one that has not been
    /// returned for this request. One of the f + 1 is correct, and no two correct replicas contradict each
    /// other; so the one that is returned is faulty, as long as no more than f are.
    ///
    /// That holds for replies that cannot differ between correct replicas only:
    ///
    /// - Never for a read that was not ordered: a correct replica that is behind answers with an older value.
    /// - Two final replies are of the one place that the request has in the order, whatever their views.
    /// - A tentative reply may be undone in a later view. With another reply of the same view it agrees: what
    ///   prepared in a view has one order there, and what had committed before stands in that order.
    ///
    /// A digest stands for its result, so a reply without the result counts like one with it.
    pub(super) fn take_contradicted(&mut self, path: Path) -> Option<ReplicaId> {
        if path == Path::ReadOnly || self.votes.agree() {
            return None; // nearly always
        }
        let is_new = |from: ReplicaId| self.contradicted >> from.index() & 1 == 0;
        let found = self.votes.iter().find(|(from, vote)| is_new(*from) && self.is_contradicted(vote));
        let (from, _) = found?;
        self.contradicted |= 1 << from.index();
        Some(from)
    }

    fn is_contradicted(&self, vote: &ReplyVote) -> bool {
        let comparable = |other: &ReplyVote| other.view == vote.view || (!other.tentative && !vote.tentative);
        let against = |other: &ReplyVote| other.digest != vote.digest && comparable(other);
        // That a read was refused is no result to compare: the same request may have been ordered after that.
        let refused = |vote: &ReplyVote| vote.digest == Digest::ZERO;
        !refused(vote)
            && self.votes.iter().any(|(_, one)| {
                against(one)
                    && !refused(one)
                    && self.votes.count_where(|other| other.digest == one.digest && comparable(other))
                        >= self.cluster.weak()
            })
    }

    /// Returns the digest of the result, once there is a certificate for it.
    pub(super) fn certified(&self) -> Option<Digest> {
        self.certified
    }

    /// Returns who has replied with the certified result.
    pub(super) fn agreed(&self) -> Members {
        let mut agreed = Members::default();
        let same = self.votes.iter().filter(|(_, vote)| Some(vote.digest) == self.certified);
        same.for_each(|(from, _)| agreed.insert(from));
        agreed
    }

    /// Returns whether all these have replied.
    pub(super) fn are_from(&self, members: Members) -> bool {
        let from = self.votes.iter().filter(|(from, _)| members.contains(*from));
        from.count() == members.count()
    }

    /// Returns the result, once there are a certificate and a full result that matches it (CL-6).
    pub(super) fn result(&self) -> Option<&[u8]> {
        let certified = self.certified?;
        let matches = |vote: &ReplyVote| mutant!(M14, vote.digest == certified, true);
        let (from, _) = self.votes.iter().find(|(from, vote)| self.is_full(*from) && matches(vote))?;
        self.results.get(from.index()).map(Vec::as_slice)
    }

    /// Returns whether a quorum has committed the certified result and none of it sends it in full: asked for
    /// it, they have shown that they keep its digest only.
    pub(super) fn result_is_gone(&self) -> bool {
        let Some(digest) = self.certified else { return false };
        let bare = |(from, vote): &(ReplicaId, &ReplyVote)| {
            vote.digest == digest && !vote.tentative && !self.is_full(*from)
        };
        self.result().is_none() && self.votes.iter().filter(bare).count() >= self.cluster.quorum()
    }

    /// Returns whether the full result of a replica is here.
    fn is_full(&self, from: ReplicaId) -> bool {
        self.full & bit(from) != 0
    }

    /// Returns whether the replies with `digest` are a certificate: the table of spec §4.4, row by row.
    fn certifies(&self, digest: &Digest, path: Path) -> bool {
        if *digest == Digest::ZERO {
            return false; // no result: the service wants the read ordered
        }
        let (weak, quorum) = (self.cluster.weak(), self.cluster.quorum());
        let committed = self.votes.count_where(|vote| vote.digest == *digest && !vote.tentative);
        // "The client waits for 2f+1 replies from different replicas with the same result" [OSDI99 §5.1].
        if path == Path::ReadOnly {
            return committed >= mutant!(M12, self.reads_need, weak);
        }
        // "f+1 replies [...] from different replicas, and with the same t and r" [OSDI99 §4.1]; not where
        // reads bypass the order, because f liars and q - f replicas that are behind could make a read
        // return the old value after that (CL-8, A12).
        if !mutant!(M11, self.reads_unordered, false) && committed >= weak {
            return true;
        }
        // "The client waits for 2f+1 matching tentative replies" [OSDI99 §5.1]. Committed replies may be
        // among them.
        let tentative = self.tentative_of_one_view(digest);
        let enough = mutant!(M9, quorum, if tentative > 0 { weak } else { quorum });
        committed + tentative >= enough
    }

    /// Returns how many tentative replies with `digest` there are, of the view that has most of them:
    /// those of different views may come from different numbers, and prove no quorum (CL-7, A13).
    fn tentative_of_one_view(&self, digest: &Digest) -> usize {
        let tentative = |vote: &&ReplyVote| vote.tentative && vote.digest == *digest;
        let views = self.votes.iter().map(|(_, vote)| vote).filter(tentative).map(|vote| vote.view);
        let of =
            |view| self.votes.count_where(|vote| tentative(&vote) && mutant!(M10, vote.view == view, true));
        views.map(of).max().unwrap_or(0)
    }

    /// Returns the (f + 1)-th largest view that is reported, if it is later than `known`: some correct replica is in it
    /// or in a later one, whatever f liars say (CL-5).
    pub(super) fn view_after(&self, known: ViewNum) -> Option<ViewNum> {
        let at_least = |view| self.votes.count_where(|vote| vote.view >= view);
        let views = self.votes.iter().map(|(_, vote)| vote.view).filter(|view| *view > known);
        views.filter(|view| at_least(*view) >= self.cluster.weak()).max()
    }

    /// Returns whether no digest can reach a quorum any more, even with every replica that has not
    /// replied: "concurrent writes to data that affect the result" [OSDI99 §5.1], or replicas whose service
    /// wants the read ordered. Liars alone cannot bring that about, as the correct replicas are a quorum.
    pub(super) fn cannot_agree(&self) -> bool {
        let silent =
            if self.votes.len() < self.given_up_at { self.cluster.n() - self.votes.len() } else { 0 };
        if silent >= self.reads_need {
            return false; // whatever is here
        }
        let results = self.votes.iter().filter(|(_, vote)| vote.digest != Digest::ZERO);
        let most = results.map(|(_, a)| self.votes.count_where(|b| a.digest == b.digest)).max();
        most.unwrap_or(0) + silent < self.reads_need
    }
}

#[cfg(test)]
mod tests;
