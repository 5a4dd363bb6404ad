//! The effects of milestones on a process: counters, statements, and records for the disk.

use quorate_pbft::step::Milestone;
use quorate_service::Service;

use super::Process;
use crate::core::Core;
use crate::storage::queue::{DiskQueue, INCARNATION_RANDOM_BITS};
use crate::storage::store::Store;

impl<S: Service, P: Store, D: DiskQueue, C: Core> Process<S, P, D, C> {
    /// Records an event in the replica. The most frequent ones have no effect here.
    #[inline]
    pub(super) fn note(&mut self, milestone: &Milestone) {
        if !matches!(
            milestone,
            Milestone::PrePrepared { .. }
                | Milestone::Prepared { .. }
                | Milestone::Executed { .. }
                | Milestone::ReadServed { .. }
                | Milestone::ReadQueued { .. }
        ) {
            self.count(milestone);
        }
    }

    #[allow(clippy::wildcard_enum_match_arm, reason = "these are frequent, all others are not")]
    fn count(&mut self, milestone: &Milestone) {
        match milestone {
            Milestone::Rejected(reason) => *self.counters.rejected.entry(reason.name()).or_default() += 1,
            Milestone::Committed { seq, .. } => self.statements.note_committed(*seq),
            Milestone::CheckpointTaken { seq, root } => self.statements.note_checkpoint(*seq, *root),
            Milestone::Stable { seq, root } => self.statements.note_stable(*seq, *root),
            _ => self.note_rare(milestone),
        }
    }

    #[cold]
    #[allow(clippy::wildcard_enum_match_arm, reason = "other milestones have no effect here")]
    fn note_rare(&mut self, milestone: &Milestone) {
        match milestone {
            Milestone::ViewChangeStarted { .. } => self.counters.view_changes += 1,
            Milestone::RejoinStarted { incarnation } => {
                self.disk.distrust(incarnation >> INCARNATION_RANDOM_BITS);
                // Among what waits for the disk are votes, and from now on none may leave (RC-5).
                mutant!(M121, self.endpoint.drop_held(), ());
            }
            Milestone::Rejoined { .. } => {
                self.disk.rejoined();
                self.statements.note_rejoined();
            }
            Milestone::Equivocation { by } => self.statements.note_contradiction(*by),
            _ => {}
        }
    }
}
