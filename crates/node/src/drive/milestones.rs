//! The effects of milestones on a drive: counters, log lines, and records for the disk.

use quorate_pbft::step::Milestone;
use quorate_service::Service;
use tracing::{info, warn};

use super::Drive;
use crate::core::Core;
use crate::journal::{INCARNATION_RANDOM_BITS, Journal};
use crate::meter::Meter;

impl<S: Service, M: Meter, J: Journal, C: Core> Drive<S, M, J, C> {
    /// Records an event in the replica.
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
    #[allow(clippy::wildcard_enum_match_arm, reason = "other milestones are logged at debug level only")]
    fn note_rare(&mut self, milestone: &Milestone) {
        match milestone {
            Milestone::Suspected { view, reason } => info!(view = view.0, ?reason, "suspects the primary"),
            Milestone::ViewChangeStarted { view } => {
                self.counters.view_changes += 1;
                info!(view = view.0, "started a view change");
            }
            Milestone::ViewEntered { view, .. } => info!(view = view.0, "entered the view"),
            Milestone::RejoinStarted { incarnation } => {
                warn!("state lost or untrusted: rejoining, not voting");
                self.journal.distrust(incarnation >> INCARNATION_RANDOM_BITS);
            }
            Milestone::Rejoined { .. } => {
                info!("has rejoined");
                self.journal.rejoined();
                self.sayings.note_rejoined();
            }
            Milestone::Equivocation { by } => {
                tracing::debug!(replica = %by, "equivocates");
                self.sayings.note_contradiction(*by);
            }
            Milestone::SettingsDiffer { of } => {
                warn!(replica = %of, "settings differ from this replica's: compare the node.toml files");
            }
            Milestone::Restarted { .. } => info!("restarted from its own log"),
            _ => tracing::debug!(?milestone),
        }
    }
}
