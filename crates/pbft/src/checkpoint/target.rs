//! The checkpoint that is fetched, and the one that batches should reach (ST-1, ST-4, ST-5).

use quorate_wire::Digest;
use quorate_wire::id::SeqNum;

/// The state that is being fetched.
#[derive(Debug, Default)]
pub(crate) struct Target {
    fetching: Option<(SeqNum, Digest)>,
    /// This replica's own state was found wrong (CK-6).
    repairing: bool,
    /// A certified checkpoint above what is executed, and since when it has been known without progress.
    goal: Option<(SeqNum, Digest)>,
    stuck_since: Option<(SeqNum, u64)>,
    /// The target before this one, a part of which nobody gave.
    stalled: Option<(SeqNum, Digest)>,
}

impl Target {
    /// Returns whether state is being fetched: nothing is executed during that time (EX-5).
    pub(crate) fn is_active(&self) -> bool {
        self.fetching.is_some()
    }

    /// Returns whether the state was found wrong and is being repaired.
    pub(crate) fn is_repairing(&self) -> bool {
        self.repairing
    }

    /// Returns the checkpoint that is fetched.
    pub(crate) fn get(&self) -> Option<(SeqNum, Digest)> {
        self.fetching
    }

    /// Notes that nobody gives a part of the target: it comes back only when the next one stalls, too (ST-4).
    pub(crate) fn stall(&mut self) {
        self.stalled = self.fetching;
    }

    /// Returns whether this checkpoint was the target before this one, and stalled.
    pub(crate) fn has_stalled(&self, checkpoint: (SeqNum, Digest)) -> bool {
        self.stalled == Some(checkpoint)
    }

    /// Makes a certified checkpoint the goal, unless a later one is.
    pub(crate) fn raise_goal(&mut self, goal: (SeqNum, Digest)) {
        if self.goal.is_none_or(|(seq, _)| seq < goal.0) {
            self.goal = Some(goal);
        }
    }

    /// Returns the goal, unless what is executed has reached it: then it is one no more.
    pub(crate) fn goal_above(&mut self, executed: SeqNum) -> Option<(SeqNum, Digest)> {
        self.goal = self.goal.filter(|(seq, _)| *seq > executed);
        if self.goal.is_none() {
            self.stuck_since = None;
        }
        self.goal
    }

    /// Returns for how long there has been a goal and no progress in executing.
    pub(crate) fn stuck_ns(&mut self, executed: SeqNum, now: u64) -> u64 {
        match self.stuck_since {
            Some((at, since)) if at == executed => now.saturating_sub(since),
            Some(_) | None => {
                self.stuck_since = Some((executed, now));
                0
            }
        }
    }

    /// Fetches another checkpoint from now on.
    pub(crate) fn aim(&mut self, target: (SeqNum, Digest), repairing: bool, executed: SeqNum, now: u64) {
        self.fetching = Some(target);
        self.repairing = repairing;
        self.stuck_since = Some((executed, now));
    }

    /// The state is now the one of this checkpoint. Says whether this is the target.
    pub(crate) fn reach(&mut self, target: (SeqNum, Digest)) -> bool {
        let is_reached = self.fetching == Some(target);
        if is_reached {
            (self.fetching, self.stuck_since, self.stalled, self.repairing) = (None, None, None, false);
        }
        is_reached
    }
}
