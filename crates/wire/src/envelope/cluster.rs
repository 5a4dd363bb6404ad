//! The arithmetic of the group: how many replicas are a quorum. It is written once; everywhere else the code calls
//! [`Cluster::quorum`].

use crate::envelope::id::{ReplicaId, ViewNum};

/// Maximum number of replicas a cluster may have. Sets of replicas are bitmaps of 64 bits.
pub const REPLICAS_MAX: u16 = 64;

/// A cluster of `n` replicas of which `f` may be faulty, `n >= 3f + 1` (spec §1.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cluster {
    n: u16,
    f: u16,
}

/// Why a cluster cannot have the size asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClusterError {
    /// Fewer than `3f + 1` replicas cannot tolerate `f` faulty ones [OSDI99 §3].
    TooFew {
        /// Replicas asked for.
        n: u16,
        /// Faulty replicas to tolerate.
        f: u16,
    },
    /// More than [`REPLICAS_MAX`] replicas.
    TooMany {
        /// Replicas asked for.
        n: u16,
    },
}

impl core::fmt::Display for ClusterError {
    fn fmt(&self, out: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::TooFew { n, f } => {
                write!(
                    out,
                    "n = {n} replicas cannot tolerate f = {f} faulty ones: n >= 3f + 1 = {}",
                    3 * u32::from(*f) + 1
                )
            }
            Self::TooMany { n } => write!(out, "n = {n} replicas: at most {REPLICAS_MAX}"),
        }
    }
}

impl core::error::Error for ClusterError {}

impl Cluster {
    /// Returns a cluster of `n` replicas that tolerates `f` faulty ones.
    pub fn new(n: u16, f: u16) -> Result<Self, ClusterError> {
        if n > REPLICAS_MAX {
            return Err(ClusterError::TooMany { n });
        }
        if u32::from(n) < 3 * u32::from(f) + 1 {
            return Err(ClusterError::TooFew { n, f });
        }
        let cluster = Self { n, f };
        // Spec §1.2, asserted at start-up: liveness, intersection in a correct replica, and a weak
        // quorum of correct replicas inside every quorum.
        assert!(cluster.n() - cluster.f() >= cluster.quorum());
        assert!(2 * cluster.quorum() > cluster.n() + cluster.f());
        assert!(cluster.quorum() - cluster.f() > cluster.f());
        Ok(cluster)
    }

    /// Returns the smallest cluster that tolerates `f` faulty replicas: `3f + 1` [OSDI99 §4].
    pub fn tolerating(f: u16) -> Result<Self, ClusterError> {
        Self::new(f.saturating_mul(3).saturating_add(1), f)
    }

    /// Returns the number of replicas.
    pub fn n(self) -> usize {
        usize::from(self.n)
    }

    /// Returns the number of replicas that may be faulty.
    pub fn f(self) -> usize {
        usize::from(self.f)
    }

    /// Returns the replicas in a quorum: any two quorums share a correct replica. `2f + 1` when `n = 3f + 1`.
    pub fn quorum(self) -> usize {
        (self.n() + self.f() + 1).div_ceil(2)
    }

    /// Returns the replicas of which at least one is correct: `f + 1`.
    pub fn weak(self) -> usize {
        self.f() + 1
    }

    /// Returns the prepares of distinct backups that, with the primary's pre-prepare, make a quorum:
    /// `2f` when `n = 3f + 1` [OSDI99 §4.2].
    pub fn prepares(self) -> usize {
        self.quorum() - 1
    }

    /// Returns the primary of `view`: `v mod n` [OSDI99 §4].
    pub fn primary(self, view: ViewNum) -> ReplicaId {
        let index = view.0 % u64::from(self.n);
        ReplicaId(u16::try_from(index).unwrap_or(0))
    }

    /// Returns whether `id` is a member.
    pub fn contains(self, id: ReplicaId) -> bool {
        id.0 < self.n
    }

    /// Returns all replicas in order.
    pub fn replicas(self) -> impl Iterator<Item = ReplicaId> + use<> {
        (0..self.n).map(ReplicaId)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Spec §1.2: two quorums meet in a correct replica, and a quorum can always be heard from.
    #[test]
    fn quorums_intersect_in_a_correct_replica() {
        for f in 0..=21 {
            for n in 3 * f + 1..=REPLICAS_MAX {
                let c = Cluster::new(n, f).unwrap();
                assert!(2 * c.quorum() > c.n() + c.f());
                assert!(c.quorum() + c.f() <= c.n());
            }
        }
        assert_eq!(Cluster::new(5, 1).unwrap().quorum(), 4);
    }

    #[test]
    fn too_small_a_cluster_is_refused_with_the_rule() {
        assert_eq!(Cluster::new(3, 1), Err(ClusterError::TooFew { n: 3, f: 1 }));
        assert_eq!(Cluster::new(65, 1), Err(ClusterError::TooMany { n: 65 }));
    }
}
