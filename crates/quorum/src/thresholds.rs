//! Quorum sizes of the registers (§1), computed in one place from the cluster's own arithmetic.
//!
//! | name | is | n = 3f + 1 |
//! |---|---|---|
//! | `q` | write quorum and decision threshold: ceil((n + f + 1) / 2) | 2f + 1 |
//! | `r` | servers a read is sent to: ceil((n + 3f + 1) / 2) | n |
//! | `live` | answers that a client may wait for: n - f | 2f + 1 |
//! | `weak` | f + 1: one of them is correct | f + 1 |

use quorate_wire::cluster::ClusterError;
use quorate_wire::{Cluster, ReplicaId};

/// A server of a register: the same numbering as the replicas of a cluster.
pub type ServerId = ReplicaId;

/// The thresholds of one cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Thresholds {
    cluster: Cluster,
}

impl Thresholds {
    /// Checks n >= 3f + 1, q <= n - f and 2q - n >= f + 1 (§1).
    pub fn new(n: u16, f: u16) -> Result<Self, ClusterError> {
        let thresholds = Self { cluster: Cluster::new(n, f)? };
        assert!(thresholds.q() <= thresholds.live());
        assert!(2 * thresholds.q() > thresholds.n() + thresholds.f());
        Ok(thresholds)
    }

    /// The smallest cluster that tolerates `f` faulty servers.
    pub fn tolerating(f: u16) -> Result<Self, ClusterError> {
        Self::new(f.saturating_mul(3).saturating_add(1), f)
    }

    /// Returns the number of servers.
    pub fn n(self) -> usize {
        self.cluster.n()
    }

    /// Returns how many servers may be faulty.
    pub fn f(self) -> usize {
        self.cluster.f()
    }

    /// Returns the write quorum and decision threshold: two of them share f + 1 servers.
    pub fn q(self) -> usize {
        self.cluster.quorum()
    }

    /// Returns how many servers a read of MINIMAL is sent to. A read never waits for that many.
    pub fn r(self) -> usize {
        (self.n() + 3 * self.f() + 1).div_ceil(2)
    }

    /// Returns how many answers a client may wait for without blocking.
    pub fn live(self) -> usize {
        self.n() - self.f()
    }

    /// Returns the number of servers of which one is correct: f + 1.
    pub fn weak(self) -> usize {
        self.cluster.weak()
    }

    /// Returns how many servers have to refuse a request so that no quorum of others is left. One of them is correct.
    pub fn refusals(self) -> usize {
        self.n() - self.q() + 1
    }

    /// Says whether `server` belongs to the cluster.
    pub fn contains(self, server: ServerId) -> bool {
        self.cluster.contains(server)
    }

    /// Returns all servers.
    pub fn servers(self) -> impl Iterator<Item = ServerId> + use<> {
        self.cluster.replicas()
    }
}

/// A set of servers: one bit each, since a cluster has at most 64.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ServerSet(u64);

impl ServerSet {
    /// Adds a server and says whether it was not in the set.
    pub fn insert(&mut self, server: ServerId) -> bool {
        let bit = 1_u64.checked_shl(u32::from(server.0)).unwrap_or(0);
        let new = self.0 & bit == 0;
        self.0 |= bit;
        new && bit != 0
    }

    /// Says whether `server` is in the set.
    pub fn contains(self, server: ServerId) -> bool {
        1_u64.checked_shl(u32::from(server.0)).is_some_and(|bit| self.0 & bit != 0)
    }

    /// Returns the number of servers in the set.
    pub fn len(self) -> usize {
        usize::try_from(self.0.count_ones()).unwrap_or(0)
    }

    /// Says whether the set is empty.
    pub fn is_empty(self) -> bool {
        self.0 == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The quorum table for n = 4..20 (§17), with the largest f for each n.
    #[test]
    fn the_quorum_table() {
        let table = [
            (4, 1, 3, 4, 3),
            (5, 1, 4, 5, 4),
            (6, 1, 4, 5, 5),
            (7, 2, 5, 7, 5),
            (8, 2, 6, 8, 6),
            (9, 2, 6, 8, 7),
            (10, 3, 7, 10, 7),
            (11, 3, 8, 11, 8),
            (12, 3, 8, 11, 9),
            (13, 4, 9, 13, 9),
            (14, 4, 10, 14, 10),
            (15, 4, 10, 14, 11),
            (16, 5, 11, 16, 11),
            (17, 5, 12, 17, 12),
            (18, 5, 12, 17, 13),
            (19, 6, 13, 19, 13),
            (20, 6, 14, 20, 14),
        ];
        for (n, f, q, r, live) in table {
            let t = Thresholds::new(n, f).unwrap();
            assert_eq!((t.q(), t.r(), t.live(), t.weak()), (q, r, live, usize::from(f) + 1), "n = {n}");
            assert!(2 * t.q() - t.n() > t.f(), "two quorums share a correct server");
            assert!(t.q() + t.r() - t.n() > 2 * t.f(), "a read meets 2f + 1 servers of each write");
            assert!(
                (t.weak()..=t.live()).contains(&t.refusals()),
                "liars alone refuse nothing, correct servers can"
            );
        }
        assert!(Thresholds::new(3, 1).is_err());
    }

    #[test]
    fn a_set_counts_each_server_once() {
        let mut set = ServerSet::default();
        assert!(set.is_empty() && set.insert(ReplicaId(63)) && !set.insert(ReplicaId(63)));
        assert!(!set.insert(ReplicaId(64)), "no such server");
        assert_eq!(set.len(), 1);
        assert!(set.contains(ReplicaId(63)) && !set.contains(ReplicaId(0)));
    }
}
