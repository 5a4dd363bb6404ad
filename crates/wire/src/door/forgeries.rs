//! What signatures may cost that turn out to be wrong (A5): a check takes 30 us, and anyone can send bytes.
//!
//! Wrong ones are counted by the replica in whose name they come, and those of all clients together, since there may
//! be many. Beyond the bound nothing in that name is looked at until the interval ends: what a correct replica has
//! signed is sent again with every status, and some of it comes through. So a flood delays what it imitates, and
//! takes no more than a few per cent of a core.

use alloc::vec::Vec;

use crate::cluster::Cluster;
use crate::id::Principal;

/// How long wrong signatures are counted, in nanoseconds.
const INTERVAL_NS: u64 = 10_000_000;
/// The most wrong ones in one name in that time: 3 % of a core.
const WRONG_MAX: u32 = 10;

/// Wrong signatures in this interval. One count for each replica, and one for all clients.
#[derive(Debug)]
pub(super) struct Forgeries {
    began_ns: u64,
    wrong: Vec<u32>,
}

impl Forgeries {
    pub(super) fn new(cluster: Cluster) -> Self {
        Self { began_ns: 0, wrong: alloc::vec![0; cluster.n() + 1] }
    }

    /// Says whether a signature in the name of `sender` may be looked at.
    pub(super) fn may_check(&mut self, sender: Principal, now_ns: u64) -> bool {
        if now_ns >= self.began_ns.saturating_add(INTERVAL_NS) {
            self.began_ns = now_ns;
            self.wrong.fill(0);
        }
        self.count(sender).is_some_and(|wrong| *wrong < WRONG_MAX)
    }

    /// Notes that one was wrong.
    pub(super) fn note(&mut self, sender: Principal) {
        if let Some(wrong) = self.count(sender) {
            *wrong = wrong.saturating_add(1);
        }
    }

    fn count(&mut self, sender: Principal) -> Option<&mut u32> {
        let clients = self.wrong.len().saturating_sub(1);
        let index = match sender {
            Principal::Replica(id) => id.index().min(clients),
            Principal::Client(_) => clients,
        };
        self.wrong.get_mut(index)
    }
}
