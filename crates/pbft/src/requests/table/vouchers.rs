//! Which requests replicas vouch for (AU-3, TM-2), and which of these are not here and can be had all the same.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use core::iter::successors;

use quorate_wire::id::{ClientId, ReplicaId, Timestamp};
use quorate_wire::{Cluster, Digest};

use crate::io::config::RequestAuth;
use crate::order::votes::{bit, size};

/// The most requests of [`Vouchers::recent`] and of [`Vouchers::earlier`].
const RECENT_MAX: usize = 32 * 1024;

/// For which request of each lane a replica vouches: the last that it named. At most as many lanes for each replica as the
/// request table has: at the bound, another one goes. What one says changes nothing of what the others have said (L10).
#[derive(Debug)]
pub(crate) struct Vouchers {
    own: ReplicaId,
    /// See [`enough`].
    enough: usize,
    by: Vec<BTreeMap<ClientId, (Timestamp, Digest)>>,
    lanes_max: usize,
    /// Requests that enough others vouch for and that are not here. Not more than `lanes_max`.
    wanted: BTreeMap<ClientId, (Timestamp, Digest)>,
    /// Requests that this replica or enough others have vouched for. Their client may make all of them move on to its next
    /// one, and what is proposed by then has to be accepted all the same (AU-6).
    recent: BTreeSet<Digest>,
    earlier: BTreeSet<Digest>,
}

impl Vouchers {
    pub(super) fn new(cluster: Cluster, own: ReplicaId, lanes_max: usize) -> Self {
        Self {
            own,
            enough: enough(cluster),
            by: cluster.replicas().map(|_| BTreeMap::new()).collect(),
            lanes_max,
            wanted: BTreeMap::new(),
            recent: BTreeSet::new(),
            earlier: BTreeSet::new(),
        }
    }

    /// Notes that `replica` vouches for a request of `client`. Returns the set of those who do.
    pub(super) fn note(
        &mut self,
        client: ClientId,
        (timestamp, digest): (Timestamp, Digest),
        replica: ReplicaId,
    ) -> u64 {
        if let Some(lanes) = self.by.get_mut(replica.index()) {
            let dropped = insert(lanes, self.lanes_max, client, (timestamp, digest));
            [Some(client), dropped].into_iter().flatten().for_each(|client| self.want_if_vouched(client));
        }
        if replica == self.own || self.has_enough(client, &digest) {
            self.remember(digest);
        }
        self.of(client, &digest)
    }

    /// Others have moved on: the request of a lane is not wanted any more if too few vouch for it.
    fn want_if_vouched(&mut self, client: ClientId) {
        if let Some((_, digest)) = self.wanted.get(&client)
            && !self.has_enough(client, digest)
        {
            self.wanted.remove(&client);
        }
    }

    /// Notes that a request is authentic, whatever its client sends next.
    pub(super) fn remember(&mut self, digest: Digest) {
        if self.recent.len() >= RECENT_MAX && !self.recent.contains(&digest) {
            self.earlier = core::mem::take(&mut self.recent);
        }
        self.recent.insert(digest);
    }

    /// Returns the set of those who vouch for a request of `client`.
    pub(crate) fn of(&self, client: ClientId, digest: &Digest) -> u64 {
        let same = |lanes: &&BTreeMap<ClientId, (Timestamp, Digest)>| {
            lanes.get(&client).is_some_and(|(_, of)| of == digest)
        };
        let all = (0..).map(ReplicaId).zip(&self.by).filter(|(_, lanes)| same(lanes));
        all.fold(0, |set, (by, _)| set | bit(by))
    }

    /// Says whether at least this number of other replicas vouch for a request of `client`.
    pub(super) fn has(&self, client: ClientId, digest: &Digest, others: usize) -> bool {
        size(self.of(client, digest) & !bit(self.own)) >= others
    }

    /// Says whether enough others vouch for a request of `client` (AU-6).
    pub(crate) fn has_enough(&self, client: ClientId, digest: &Digest) -> bool {
        self.has(client, digest, self.enough)
    }

    /// Says whether this replica or enough others have vouched for a request lately, so that it is authentic.
    pub(crate) fn have_vouched(&self, digest: &Digest) -> bool {
        self.recent.contains(digest) || self.earlier.contains(digest)
    }

    /// Nothing up to this timestamp is vouched for or wanted any more: it is executed.
    #[inline]
    pub(super) fn forget(&mut self, client: ClientId, timestamp: Timestamp) {
        let all = self.by.iter_mut().chain([&mut self.wanted]);
        for lanes in all.filter(|lanes| !lanes.is_empty()) {
            if lanes.get(&client).is_some_and(|(of, _)| *of <= timestamp) {
                lanes.remove(&client);
            }
        }
    }

    /// Wants a request that is not here, if enough others vouch for it. Says whether it does.
    pub(super) fn want(&mut self, client: ClientId, request: (Timestamp, Digest)) -> bool {
        let is_wanted = self.has_enough(client, &request.1);
        if is_wanted {
            insert(&mut self.wanted, self.lanes_max, client, request);
        }
        is_wanted
    }

    /// No request of a lane up to this timestamp is wanted.
    pub(super) fn want_no_more(&mut self, client: ClientId, timestamp: Timestamp) {
        if self.wanted.get(&client).is_some_and(|(of, _)| *of <= timestamp) {
            self.wanted.remove(&client);
        }
    }

    /// Returns requests that are wanted, not more than `max` of each principal: one whose requests nobody holds any more
    /// harms itself alone.
    pub(crate) fn wanted(&self, max: usize) -> impl Iterator<Item = &Digest> {
        let first_from = |from: ClientId| self.wanted.range(from..).next().map(|(lane, _)| lane.principal());
        let principals = successors(first_from(ClientId(0)), move |last| {
            first_from(ClientId::new(last.checked_add(1)?, 0))
        });
        let lanes = |of: u64| ClientId::new(of, 0)..=ClientId::new(of, u16::MAX);
        principals.flat_map(move |of| self.wanted.range(lanes(of)).take(max)).map(|(_, (_, digest))| digest)
    }

    /// Says whether a request is wanted.
    pub(crate) fn wants(&self, client: ClientId, digest: &Digest) -> bool {
        self.wanted.get(&client).is_some_and(|(_, of)| of == digest)
    }
}

/// Sets the request of a lane. At the bound, another lane goes, which is returned.
fn insert(
    lanes: &mut BTreeMap<ClientId, (Timestamp, Digest)>,
    max: usize,
    client: ClientId,
    request: (Timestamp, Digest),
) -> Option<ClientId> {
    let is_full = lanes.len() >= max && !lanes.contains_key(&client);
    let dropped = if is_full { lanes.pop_first() } else { None };
    lanes.insert(client, request);
    dropped.map(|(lane, _)| lane)
}

/// Returns how many replicas other than the primary have to vouch for a request that it cannot check (AU-6). Of `2f`, `f` are
/// correct, and all accept the request when these have sent PREPARE (AU-2). And of `f + 1`, one is correct.
pub(crate) fn enough(cluster: Cluster) -> usize {
    cluster.weak().max(2 * cluster.f())
}

/// Returns how many replicas other than the primary have to vouch for a request before the primary is timed for it (TM-2).
/// `f` of them may have told the primary nothing, and it has to know of [`enough`]. Where clients never sign, no more than
/// there are correct ones beside a faulty primary.
pub(crate) fn enough_to_time(cluster: Cluster, mode: RequestAuth) -> usize {
    let all = enough(cluster) + mutant!(M179, cluster.f(), 0);
    let all = mutant!(M49, all, 1);
    if mode == RequestAuth::Mac { all.min(cluster.n() - cluster.f()) } else { all }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANE: ClientId = ClientId(70_000 << 16);

    fn vouchers() -> Vouchers {
        Vouchers::new(Cluster::tolerating(1).unwrap(), ReplicaId(0), 2)
    }

    /// TM-2, L10: what one replica says of another request does not undo what others have said of this one.
    #[test]
    fn l10_a_wrong_voucher_changes_nothing_of_the_right_ones() {
        let (right, wrong) = (Digest([1; 32]), Digest([2; 32]));
        let mut vouchers = vouchers();
        let mut vouch = |digest, by| vouchers.note(LANE, (Timestamp(1), digest), ReplicaId(by));
        assert_eq!(vouch(right, 1), 0b0010);
        assert_eq!(vouch(wrong, 3), 0b1000);
        assert_eq!(vouch(right, 2), 0b0110);
        // One that changes its mind counts for the last only.
        assert_eq!(vouch(right, 3), 0b1110);
    }

    /// B24: what a liar says takes a bounded part of the memory, and none of that of the others.
    #[test]
    fn a_replica_vouches_for_a_bounded_number_of_lanes() {
        let mut vouchers = vouchers();
        let digest = Digest([1; 32]);
        vouchers.note(LANE, (Timestamp(1), digest), ReplicaId(2));
        for lane in 0..100 {
            vouchers.note(ClientId::new(80_000, lane), (Timestamp(1), digest), ReplicaId(3));
        }
        assert_eq!(vouchers.by.iter().map(BTreeMap::len).collect::<Vec<_>>(), [0, 0, 1, 2]);
        assert_eq!(vouchers.note(LANE, (Timestamp(1), digest), ReplicaId(1)), 0b0110);
        vouchers.forget(LANE, Timestamp(1));
        assert_eq!(vouchers.of(LANE, &digest), 0);
    }

    /// AU-6, L65: nothing is asked for that too few vouch for any more, and a client with many requests is asked for a few.
    #[test]
    fn l65_what_is_asked_for_is_bounded() {
        let mut vouchers = Vouchers::new(Cluster::tolerating(1).unwrap(), ReplicaId(0), 1_000);
        let of = |lane: u16, principal: u64| {
            Digest([u8::try_from(lane).unwrap() + if principal == 80_000 { 100 } else { 0 }; 32])
        };
        for principal in [70_000, 80_000] {
            for lane in 0..100 {
                let (client, request) = (ClientId::new(principal, lane), (Timestamp(1), of(lane, principal)));
                vouchers.note(client, request, ReplicaId(1));
                assert!(!vouchers.want(client, request));
                vouchers.note(client, request, ReplicaId(2));
                assert!(vouchers.want(client, request));
            }
        }
        let some: Vec<Digest> = vouchers.wanted(64).copied().collect();
        let first = |principal| (0..64).map(move |lane| of(lane, principal));
        assert_eq!(some, first(70_000).chain(first(80_000)).collect::<Vec<_>>());
        for lane in 0..100 {
            vouchers.note(ClientId::new(70_000, lane), (Timestamp(2), Digest([255; 32])), ReplicaId(2));
        }
        assert_eq!(vouchers.wanted(64).count(), 64);
        assert!(vouchers.have_vouched(&of(0, 70_000)), "the others have vouched for it all the same");
    }

    /// AU-6: not more requests are wanted than there may be lanes.
    #[test]
    fn what_is_wanted_is_bounded() {
        let mut vouchers = vouchers();
        for lane in 0..100 {
            let (client, request) = (ClientId::new(70_000, lane), (Timestamp(1), Digest([1; 32])));
            for by in [1, 2] {
                vouchers.note(client, request, ReplicaId(by));
            }
            assert!(vouchers.want(client, request));
            assert!(vouchers.wanted.len() <= 2);
        }
    }

    /// AU-6, L65: what this replica has vouched for is authentic, also when its client has moved on. It counts for nothing
    /// among the others.
    #[test]
    fn l65_what_was_vouched_for_is_remembered() {
        let mut vouchers = vouchers();
        let of = |t: u64| (Timestamp(t), Digest(core::array::from_fn(|i| t.to_le_bytes()[i % 8])));
        let recent = u64::try_from(RECENT_MAX).unwrap();
        for t in 0..=recent {
            vouchers.note(LANE, of(t), ReplicaId(0));
        }
        assert!(vouchers.have_vouched(&of(1).1));
        vouchers.note(LANE, of(7), ReplicaId(0));
        vouchers.note(LANE, of(7), ReplicaId(1));
        assert!(!vouchers.has_enough(LANE, &of(7).1), "this one and another");
        vouchers.note(LANE, of(u64::MAX), ReplicaId(1));
        assert!(!vouchers.have_vouched(&of(u64::MAX).1), "a single other one");
        for t in recent..3 * recent {
            vouchers.note(LANE, of(t), ReplicaId(0));
        }
        assert!(!vouchers.have_vouched(&of(1).1), "the oldest are dropped");
        assert!(vouchers.have_vouched(&of(2 * recent).1));
        assert!(vouchers.recent.len() + vouchers.earlier.len() <= 2 * RECENT_MAX);
    }
}
