//! What replies to other requests of the same lane tell: the timestamp was used before (RP-5).
//!
//! A lane's timestamps rise, and what was used is kept (CL-10). If that is lost all the same, as with a directory
//! that was put back from a copy while the clock is wrong too, or if two processes use one identity, replicas
//! answer with the reply that they hold for the lane: to another operation under the same timestamp, or to one under
//! a later timestamp. None of that is a reply to what was asked.
//!
//! Nor is a refusal: the lane has no entry any more, and another lane of the client may have its place (EX-2). It says up
//! to which timestamp entries were lost, which may be that of the outstanding request itself (L42).

use quorate_wire::message::Reply;
use quorate_wire::{Cluster, Digest, ReplicaId, Timestamp};

use super::step::{ClientAction, ClientActions, ClientMilestone, Path};
use super::{Client, Outstanding};
use crate::io::step::Now;
use crate::order::votes::Votes;

/// What f + 1 replicas agree on, so that it is true of a correct one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Used {
    /// The lane has used this timestamp, or a later one.
    pub(super) newest: Timestamp,
    /// Another operation was executed under the timestamp of the outstanding one.
    pub(super) for_another: bool,
}

/// The latest timestamp that each replica has named for this lane, at or above the outstanding one, and whether what it
/// was used for is lost.
#[derive(Debug)]
pub(super) struct Others {
    weak: usize,
    votes: Votes<(Timestamp, bool)>,
    is_empty: bool,
}

impl Others {
    pub(super) fn new(cluster: Cluster) -> Self {
        Self { weak: cluster.weak(), votes: Votes::new(cluster.n()), is_empty: true }
    }

    /// Forgets all, which nearly always is nothing.
    #[inline]
    pub(super) fn clear(&mut self) {
        if !self.is_empty {
            self.votes.clear();
            self.is_empty = true;
        }
    }

    /// Notes what a member says, and returns what is known by now. `own` is the outstanding timestamp.
    #[cold]
    pub(super) fn note(&mut self, from: ReplicaId, named: (Timestamp, bool), own: Timestamp) -> Option<Used> {
        self.is_empty = false;
        let latest = self.votes.get(from).map_or(named, |earlier| named.max(*earlier));
        self.votes.replace(from, latest);
        let another = (own, false);
        let for_another = self.votes.count_where(|named| *named == another) >= self.weak;
        let unknown = self.votes.count_where(|named| *named > another) >= self.weak;
        // Of what f + 1 have reached, some correct one has.
        let reached = |least: Timestamp| self.votes.count_where(|named| named.0 >= least) >= self.weak;
        let newest = self.votes.iter().map(|(_, named)| named.0).filter(|named| reached(*named)).max()?;
        (for_another || unknown).then_some(Used { newest, for_another: for_another && !unknown })
    }
}

impl Client {
    /// A replica says that this lane has used the timestamp of the outstanding request, or a later one, for something
    /// else. In this run it has not: an earlier one has, and its record of that is lost, or this identity is used
    /// twice. Or it says that it knows no more what has become of the request. Once f + 1 agree it is so (RP-5).
    pub(super) fn on_other(
        &mut self,
        now: Now,
        from: ReplicaId,
        request: Outstanding,
        reply: &Reply<'_>,
        out: &mut ClientActions,
    ) {
        let is_lost = reply.digest == Digest::ZERO;
        // What is tentative may be undone, and the timestamp be free: then it is not given up. A refusal is never repeated
        // as a final one, because no entry has it.
        if reply.tentative && !is_lost && reply.timestamp <= request.timestamp {
            return;
        }
        let named = (reply.timestamp, is_lost);
        let Some(used) = self.others.note(from, named, request.timestamp) else { return };
        self.next = used.newest.0.checked_add(1).and_then(|above| Some(self.next?.max(Timestamp(above))));
        // A read leaves no trace, and what another operation has the place of can never be executed. What fell back may be a
        // write that its caller took for a read.
        if request.path == Path::ReadOnly || used.for_another {
            let Some(to) = self.take_timestamp() else { return };
            out.report(ClientMilestone::TimestampTaken { from: request.timestamp, to });
            return self.send_as(now, request, to, out);
        }
        // Whether it was executed before the later one was, nobody can say any more.
        out.push(ClientAction::StopTimer);
        out.push(ClientAction::Overtaken { timestamp: request.timestamp, by: used.newest });
        self.request = None;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn noted(said: &[(u16, u64)]) -> Option<(u64, bool)> {
        let mut others = Others::new(Cluster::tolerating(1).unwrap());
        let note =
            |&(from, t): &(u16, u64)| others.note(ReplicaId(from), (Timestamp(t), false), Timestamp(7));
        said.iter().filter_map(note).last().map(|used| (used.newest.0, used.for_another))
    }

    /// One liar says what it likes.
    #[test]
    fn it_takes_f_plus_one() {
        assert_eq!(noted(&[(0, 9)]), None);
        assert_eq!(noted(&[(0, 9), (0, 9), (0, 12)]), None);
        assert_eq!(noted(&[(0, 7), (1, 9)]), None, "neither is sure");
        assert_eq!(noted(&[(0, 7), (1, 7)]), Some((7, true)));
        assert_eq!(noted(&[(0, 9), (1, u64::MAX)]), Some((9, false)));
        assert_eq!(noted(&[(0, 7), (1, 9), (2, 7)]), Some((7, true)));
        assert_eq!(noted(&[(0, 7), (1, 9), (2, 11)]), Some((9, false)));
        assert_eq!(noted(&[(0, 9), (0, 7), (1, 8)]), Some((8, false)), "its latest counts");
    }
}
