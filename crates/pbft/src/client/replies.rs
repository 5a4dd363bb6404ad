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
mod tests {
    use quorate_wire::{ClientId, Timestamp};

    use super::*;

    const A: Digest = Digest([0xa; 32]);
    const B: Digest = Digest([0xb; 32]);

    /// A reply: from whom, in which view, with which digest.
    type Said = (u16, u64, Digest, bool);

    fn committed(from: u16, digest: Digest) -> Said {
        (from, 0, digest, false)
    }

    fn tentative(from: u16, view: u64, digest: Digest) -> Said {
        (from, view, digest, true)
    }

    fn insert(
        replies: &mut Replies,
        path: Path,
        said: Said,
        result: Option<&[u8]>,
    ) -> Result<(), ClientReject> {
        let (from, view, digest, tentative) = said;
        let (timestamp, client) = (Timestamp(1), ClientId::new(1, 0));
        let reply = Reply { view: ViewNum(view), timestamp, client, tentative, digest, result };
        replies.insert(ReplicaId(from), path, &reply)
    }

    /// The digest that these replies certify, in a cluster of four.
    fn certified(reads_unordered: bool, path: Path, said: &[Said]) -> Option<Digest> {
        let mut replies = Replies::new(Cluster::tolerating(1).unwrap(), reads_unordered);
        for said in said {
            let _ = insert(&mut replies, path, *said, None);
        }
        replies.certified()
    }

    /// [OSDI99 §4.1] "f+1 replies [...] from different replicas, and with the same t and r".
    #[test]
    fn f_plus_one_committed_replies_are_enough_without_unordered_reads() {
        let said = [committed(0, A), committed(2, A)];
        assert_eq!(certified(false, Path::Ordered, &said), Some(A));
        assert_eq!(certified(false, Path::Ordered, &said[..1]), None);
        assert_eq!(certified(false, Path::Ordered, &[committed(0, A), committed(2, B)]), None);
        assert_eq!(certified(false, Path::Ordered, &[committed(0, A), committed(0, A)]), None);
    }

    /// CL-8, A12: with reads that bypass the order a write takes a quorum, also one that fell back.
    #[test]
    fn a_write_takes_a_quorum_while_reads_are_unordered() {
        for path in [Path::Ordered, Path::FellBack] {
            let said = [committed(0, A), committed(2, A), committed(3, A)];
            assert_eq!(certified(true, path, &said[..2]), None);
            assert_eq!(certified(true, path, &said), Some(A));
        }
    }

    /// [OSDI99 §5.1] "The client waits for 2f+1 matching tentative replies".
    #[test]
    fn tentative_replies_take_a_quorum() {
        let said = [tentative(0, 3, A), tentative(1, 3, A), tentative(2, 3, A)];
        for reads_unordered in [false, true] {
            assert_eq!(certified(reads_unordered, Path::Ordered, &said[..2]), None);
            assert_eq!(certified(reads_unordered, Path::Ordered, &said), Some(A));
        }
    }

    /// CL-7, A13: all tentative ones of the same view. Committed ones may be of any.
    #[test]
    fn tentative_replies_of_different_views_do_not_add_up() {
        let mixed = [tentative(0, 3, A), tentative(1, 3, A), tentative(2, 4, A)];
        assert_eq!(certified(true, Path::Ordered, &mixed), None);
        let mixed = [tentative(0, 3, A), tentative(1, 3, A), committed(2, A)];
        assert_eq!(certified(true, Path::Ordered, &mixed), Some(A));
        let mixed = [tentative(0, 3, A), tentative(1, 4, A), committed(2, A)];
        assert_eq!(certified(true, Path::Ordered, &mixed), None);
        let again = [tentative(0, 3, A), tentative(1, 4, A), tentative(2, 4, A), tentative(0, 4, A)];
        assert_eq!(certified(true, Path::Ordered, &again), Some(A));
    }

    /// [OSDI99 §5.1] a read that was not ordered takes "2f+1 replies from different replicas with the
    /// same result", none of them tentative (RO-2).
    #[test]
    fn an_unordered_read_takes_a_quorum() {
        let said = [committed(0, A), committed(2, A), committed(3, A)];
        assert_eq!(certified(true, Path::ReadOnly, &said[..2]), None);
        assert_eq!(certified(true, Path::ReadOnly, &said), Some(A));
        let said = [committed(0, A), committed(2, A), tentative(3, 0, A)];
        assert_eq!(certified(true, Path::ReadOnly, &said), None);
    }

    /// One replica has one voice, and its newest word counts.
    #[test]
    fn a_replica_may_change_its_reply() {
        let said = [tentative(0, 3, A), tentative(1, 4, B), tentative(2, 4, B), tentative(0, 4, B)];
        assert_eq!(certified(true, Path::Ordered, &said), Some(B));
        let said = [committed(0, A), committed(0, A), committed(0, A), committed(1, A)];
        assert_eq!(certified(true, Path::Ordered, &said), None);
    }

    /// A late reply does not replace a firmer or newer one.
    #[test]
    fn an_older_reply_does_not_replace_a_newer_one() {
        let mut replies = Replies::new(Cluster::tolerating(1).unwrap(), true);
        let mut say = |said| insert(&mut replies, Path::Ordered, said, None);
        assert_eq!(say((0, 3, A, false)), Ok(()));
        assert_eq!(say((0, 3, A, true)), Err(ClientReject::Superseded));
        assert_eq!(say((1, 3, A, true)), Ok(()));
        assert_eq!(say((1, 2, B, true)), Err(ClientReject::Superseded));
        assert_eq!(say((1, 3, A, false)), Ok(()));
    }

    /// CL-6, K12: the result has to be the certified one; a late one completes the certificate, and
    /// counting does not start again.
    #[test]
    fn a_full_result_must_match_the_certificate() {
        let mut replies = Replies::new(Cluster::tolerating(1).unwrap(), true);
        let mut say = |said, result| {
            let _ = insert(&mut replies, Path::Ordered, said, result);
            (replies.certified(), replies.result().map(<[u8]>::to_vec))
        };
        assert_eq!(say(committed(0, B), Some(b"a liar's")), (None, None));
        assert_eq!(say(committed(1, A), None), (None, None));
        assert_eq!(say(committed(2, A), None), (None, None));
        assert_eq!(say(committed(3, A), None), (Some(A), None));
        assert_eq!(say(committed(3, B), None), (Some(A), None));
        assert_eq!(say(committed(2, B), None), (Some(A), None));
        assert_eq!(say(committed(1, A), Some(b"right")), (Some(A), Some(b"right".to_vec())));
        assert_eq!(say(committed(1, A), None), (Some(A), Some(b"right".to_vec())));
    }

    /// A replica that changes its reply has not sent the result of the new one yet.
    #[test]
    fn a_result_goes_with_its_digest() {
        let mut replies = Replies::new(Cluster::tolerating(1).unwrap(), true);
        insert(&mut replies, Path::Ordered, tentative(0, 1, A), Some(b"undone")).unwrap();
        for from in 0..3 {
            insert(&mut replies, Path::Ordered, tentative(from, 2, B), None).unwrap();
        }
        assert_eq!((replies.certified(), replies.result()), (Some(B), None));
    }

    /// CL-5: "the (f+1)-th largest view reported, not the last message's".
    #[test]
    fn a_liar_cannot_name_the_view() {
        let view = |views: [u64; 3]| {
            let mut replies = Replies::new(Cluster::tolerating(1).unwrap(), true);
            for (from, view) in (0..).zip(views) {
                insert(&mut replies, Path::Ordered, (from, view, A, false), None).unwrap();
            }
            replies.view_after(ViewNum(0)).map_or(0, |view| view.0)
        };
        assert_eq!(view([5, 5, 5]), 5);
        assert_eq!(view([5, 900, 5]), 5);
        assert_eq!(view([5, 0, 5]), 5);
        assert_eq!(view([6, 5, 7]), 6);
    }

    #[test]
    fn replies_that_cannot_agree_are_seen() {
        let cannot = |said: &[Said]| {
            let mut replies = Replies::new(Cluster::tolerating(1).unwrap(), true);
            for said in said {
                insert(&mut replies, Path::ReadOnly, *said, None).unwrap();
            }
            replies.cannot_agree()
        };
        assert!(!cannot(&[]));
        assert!(!cannot(&[committed(0, A), committed(1, B), committed(2, A)]));
        assert!(cannot(&[committed(0, A), committed(1, B), committed(2, A), committed(3, B)]));
    }

    /// The replicas that these replies prove to be wrong, in a cluster of four.
    fn contradicted(path: Path, said: &[Said]) -> Vec<u16> {
        let mut replies = Replies::new(Cluster::tolerating(1).unwrap(), true);
        let mut found = Vec::new();
        for said in said {
            let _ = insert(&mut replies, path, *said, None);
            found.extend(std::iter::from_fn(|| replies.take_contradicted(path)).map(|id| id.0));
        }
        found
    }

    #[test]
    fn a_reply_that_f_plus_one_others_contradict_is_found_once() {
        let said = [committed(2, B), committed(0, A), committed(3, A), committed(1, A)];
        for path in [Path::Ordered, Path::FellBack] {
            assert_eq!(contradicted(path, &said), [2]);
        }
        // Whichever way round they come; also without a result.
        let said = [committed(0, A), committed(1, A), committed(3, A), committed(2, B)];
        assert_eq!(contradicted(Path::Ordered, &said), [2]);
        // Again and again: still one request.
        let said = [committed(2, B), committed(0, A), committed(3, A), committed(2, B)];
        assert_eq!(contradicted(Path::Ordered, &said), [2]);
        let said = [tentative(2, 3, B), tentative(0, 3, A), tentative(3, 3, A)];
        assert_eq!(contradicted(Path::Ordered, &said), [2]);
        let said = [tentative(2, 3, B), (0, 3, A, false), tentative(3, 3, A)];
        assert_eq!(contradicted(Path::Ordered, &said), [2], "what had committed stands in the view's order");
    }

    /// Never accuse a correct replica.
    #[test]
    fn what_correct_replicas_may_say_is_no_contradiction() {
        let cases: &[(Path, &[Said])] = &[
            // A read is answered by each from its own state, and some are behind.
            (Path::ReadOnly, &[committed(2, B), committed(0, A), committed(1, A), committed(3, A)]),
            // f others may be the liars.
            (Path::Ordered, &[committed(2, B), committed(0, A)]),
            (Path::Ordered, &[committed(2, B), committed(0, A), committed(1, Digest([0xc; 32]))]),
            // Undone in a later view, and executed again in another order.
            (Path::Ordered, &[tentative(2, 3, B), tentative(0, 4, A), tentative(3, 4, A)]),
            (Path::Ordered, &[tentative(2, 3, B), (0, 4, A, false), (1, 5, A, false), (3, 4, A, false)]),
            (Path::Ordered, &[committed(2, B), tentative(0, 4, A), tentative(3, 4, A)]),
            // It has said so itself since.
            (
                Path::Ordered,
                &[tentative(2, 3, B), tentative(2, 4, A), tentative(0, 4, A), tentative(3, 4, A)],
            ),
        ];
        for (path, said) in cases {
            assert_eq!(contradicted(*path, said), [], "{said:?}");
        }
    }

    /// A replica that has refused a read, and one that lies in the same way, are not told apart: that is no result.
    #[test]
    fn l21_a_refused_read_is_no_contradiction() {
        for path in [Path::Ordered, Path::FellBack] {
            let said = [committed(2, Digest::ZERO), committed(0, A), committed(1, A), committed(3, A)];
            assert_eq!(contradicted(path, &said), []);
            let said = [committed(0, Digest::ZERO), committed(1, Digest::ZERO), committed(2, A)];
            assert_eq!(contradicted(path, &said), [], "nor does it contradict");
            let said = [committed(0, Digest::ZERO), committed(2, B), committed(1, A), committed(3, A)];
            assert_eq!(contradicted(path, &said), [2], "the others are compared");
        }
    }

    /// Results do not pile up: what was large is given back.
    #[test]
    fn a_large_result_does_not_stay() {
        let mut replies = Replies::new(Cluster::tolerating(1).unwrap(), true);
        insert(&mut replies, Path::Ordered, committed(1, A), Some(&vec![0; 70_000])).unwrap();
        insert(&mut replies, Path::Ordered, committed(2, A), Some(&[0; 4096])).unwrap();
        replies.clear();
        assert_eq!(replies.results[1].capacity(), 0);
        assert!(replies.results[2].capacity() >= 4096);
    }
}
