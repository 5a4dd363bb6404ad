//! What a node observes of its process: the recording, and the log of the program.

use std::time::Instant;

use quorate_pbft::recording::Recorder;
use quorate_pbft::step::{Input, Milestone, Now};
use quorate_process::Observer;
use quorate_service::page::PageStore;
use quorate_service::parallel::WrongRule;
use quorate_service::{Executor, Service};
use quorate_wire::{Digest, SeqNum};
use tracing::{debug, error, info, warn};

use crate::storage::Paged;

/// Measures executions (PR-7), and observes nothing else.
#[derive(Debug)]
pub(crate) struct Stopwatch(Instant);

impl Stopwatch {
    /// Starts it.
    pub(crate) fn start() -> Self {
        Self(Instant::now())
    }

    #[inline]
    fn ns(&self) -> u64 {
        u64::try_from(self.0.elapsed().as_nanos()).unwrap_or(u64::MAX)
    }
}

impl<S: Service, P: PageStore> Observer<S, P> for Stopwatch {
    #[inline]
    fn clock_ns(&mut self) -> u64 {
        self.ns()
    }
}

/// The observer of a replica's process.
#[derive(Debug)]
pub(crate) struct Watch {
    recorder: Option<Recorder>,
    stopwatch: Stopwatch,
}

impl Watch {
    /// Returns an observer that records every input, if there is a recorder.
    pub(crate) fn new(recorder: Option<Recorder>) -> Self {
        Self { recorder, stopwatch: Stopwatch::start() }
    }

    /// Returns the recording so far.
    pub(crate) fn recording(&self) -> Option<&[u8]> {
        self.recorder.as_ref().map(Recorder::bytes)
    }
}

impl<S: Service> Observer<S, Paged> for Watch {
    #[inline]
    fn clock_ns(&mut self) -> u64 {
        self.stopwatch.ns()
    }

    #[inline]
    fn input(&mut self, now: Now, input: &Input<'_>, frame: &[u8]) {
        if let Some(recorder) = &mut self.recorder {
            recorder.note(now, input, frame);
        }
    }

    #[inline]
    #[allow(clippy::wildcard_enum_match_arm, reason = "these are frequent, all others are not")]
    fn milestone(&mut self, milestone: &Milestone) {
        match milestone {
            Milestone::Rejected(_)
            | Milestone::Committed { .. }
            | Milestone::CheckpointTaken { .. }
            | Milestone::Stable { .. }
            | Milestone::PrePrepared { .. }
            | Milestone::Prepared { .. }
            | Milestone::Executed { .. }
            | Milestone::ReadServed { .. }
            | Milestone::ReadQueued { .. } => {}
            _ => log_rare(milestone),
        }
    }

    fn wrong_rule(&mut self, wrong: &WrongRule) {
        let WrongRule { request, other, cell, has_replied } = wrong;
        error!(
            %request, %other, %cell, has_replied,
            "the service declares these two requests independent, but the first read what the second wrote: correct its \
             declaration of keys. Until it restarts, this replica executes one request after the other"
        );
    }

    fn restored(&mut self, page: u32) {
        info!(page, "repaired a page from another replica");
    }

    fn installed(&mut self, seq: SeqNum, _root: Digest, executor: &Executor<S, Paged>) {
        let pages = executor.fetched();
        info!(seq = seq.0, pages, "has fetched the state; pages fetched since the start");
    }
}

#[cold]
#[allow(clippy::wildcard_enum_match_arm, reason = "other milestones are logged at debug level only")]
fn log_rare(milestone: &Milestone) {
    match milestone {
        Milestone::Suspected { view, reason } => info!(view = view.0, ?reason, "suspects the primary"),
        Milestone::ViewChangeStarted { view } => info!(view = view.0, "started a view change"),
        Milestone::ViewEntered { view, .. } => info!(view = view.0, "entered the view"),
        Milestone::RejoinStarted { .. } => warn!("state lost or untrusted: rejoining, not voting"),
        Milestone::Rejoined { .. } => info!("has rejoined"),
        Milestone::Equivocation { by } => debug!(replica = %by, "equivocates"),
        Milestone::SettingsDiffer { of } => {
            warn!(replica = %of, "settings differ from this replica's: compare [settings] in the files cluster.toml");
        }
        Milestone::Restarted { .. } => info!("restarted from its own log"),
        _ => debug!(?milestone),
    }
}
