//! What a drive makes of milestones: counts, lines of the log, and what they mean for the disk.

use quorate_pbft::step::Milestone;
use quorate_service::Service;
use tracing::{info, warn};

use super::Drive;
use crate::core::Core;
use crate::journal::{INCARNATION_RANDOM_BITS, Journal};
use crate::meter::Meter;

impl<S: Service, M: Meter, J: Journal, C: Core> Drive<S, M, J, C> {
    /// Takes note of something that has happened in the replica.
    #[inline]
    #[allow(clippy::wildcard_enum_match_arm, reason = "these are frequent, all others are not")]
    pub(super) fn note(&mut self, milestone: &Milestone) {
        match milestone {
            Milestone::Rejected(reason) => *self.counters.rejected.entry(reason.name()).or_default() += 1,
            Milestone::Committed { seq, .. } => self.sayings.note_committed(*seq),
            Milestone::CheckpointTaken { seq, root } => self.sayings.note_checkpoint(*seq, *root),
            Milestone::Stable { seq, root } => self.sayings.note_stable(*seq, *root),
            Milestone::PrePrepared { .. }
            | Milestone::Prepared { .. }
            | Milestone::Executed { .. }
            | Milestone::ReadServed { .. }
            | Milestone::ReadQueued { .. } => {}
            _ => self.note_rare(milestone),
        }
    }

    #[cold]
    #[allow(clippy::wildcard_enum_match_arm, reason = "what is not worth a line of the log")]
    fn note_rare(&mut self, milestone: &Milestone) {
        match milestone {
            Milestone::Suspected { view, reason } => info!(view = view.0, ?reason, "suspects the primary"),
            Milestone::ViewChangeStarted { view } => {
                self.counters.view_changes += 1;
                info!(view = view.0, "leaves for another view");
            }
            Milestone::ViewEntered { view, .. } => info!(view = view.0, "entered the view"),
            Milestone::RejoinStarted { incarnation } => {
                warn!("has lost its memory, or must not trust it: rejoins, and does not vote meanwhile");
                self.journal.distrust(incarnation >> INCARNATION_RANDOM_BITS);
            }
            Milestone::Rejoined { .. } => {
                info!("has rejoined");
                self.journal.rejoined();
                self.sayings.note_rejoined();
            }
            Milestone::Equivocation { by } => {
                tracing::debug!(replica = %by, "contradicts itself");
                self.sayings.note_contradiction(*by);
            }
            Milestone::SettingsDiffer { of } => {
                warn!(replica = %of, "has other settings than this replica: compare their node.toml files");
            }
            Milestone::Restarted { .. } => info!("started again from its own log"),
            _ => tracing::debug!(?milestone),
        }
    }
}
