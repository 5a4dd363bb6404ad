//! The view of a replica, whether it takes part in it, and how long it waits for the next one [OSDI99 §4.4, §4.5.2].

use quorate_wire::Cluster;
use quorate_wire::id::{ReplicaId, SeqNum, ViewNum};

use crate::io::config::Config;

/// Whether a replica takes part in its view.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It orders requests in its view.
    Normal,
    /// It waits for the NEW-VIEW of its view.
    ViewChange,
}

/// A view that is left before this number of time-outs has passed was left soon (TM-3).
const LASTING: u64 = 8;

/// How a view ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum End {
    /// Without this replica having taken part in it.
    Failed,
    /// Its primary has handed it over.
    HandedOver,
    /// Others suspect its primary.
    TimedOut,
}

/// The view. It only rises.
#[derive(Debug)]
pub(crate) struct Views {
    cluster: Cluster,
    view: ViewNum,
    /// The primary of that view.
    primary: ReplicaId,
    status: Status,
    /// `max_x`: the last number that the NEW-VIEW of this view fixed.
    last_fixed: SeqNum,
    /// This replica has handed its view over and proposes nothing in it (§14.3).
    handing_off: bool,
    /// `T_VC`: how long to wait for a NEW-VIEW, and for the first progress under it.
    patience_ns: u64,
    patience_max_ns: u64,
    new_view_timer: bool,
    /// The last number that was executed when that timer started or ended.
    executed_then: SeqNum,
    /// Something that no view before had ordered was executed since the last view change began.
    progressed: bool,
    /// When this replica entered its view.
    entered_at: u64,
    /// The views in a row that time-outs ended soon.
    hasty: u32,
}

impl Views {
    /// Returns the view of a replica that has never left one.
    pub(crate) fn new(config: &Config) -> Self {
        Self {
            cluster: config.cluster,
            view: ViewNum(0),
            primary: config.cluster.primary(ViewNum(0)),
            status: Status::Normal,
            last_fixed: SeqNum(0),
            handing_off: false,
            patience_ns: config.request_timeout_min_ns,
            patience_max_ns: config.view_timeout_max_ns,
            new_view_timer: false,
            executed_then: SeqNum(0),
            progressed: true,
            entered_at: 0,
            hasty: 0,
        }
    }

    /// Returns the view.
    #[inline]
    pub(crate) fn view(&self) -> ViewNum {
        self.view
    }

    /// Returns the primary of the view.
    #[inline]
    pub(crate) fn primary(&self) -> ReplicaId {
        self.primary
    }

    /// Returns whether the replica takes part in it.
    #[inline]
    pub(crate) fn is_normal(&self) -> bool {
        self.status == Status::Normal
    }

    /// Returns `max_x`: the last number that the NEW-VIEW of this view fixed.
    #[inline]
    pub(crate) fn last_fixed(&self) -> SeqNum {
        self.last_fixed
    }

    /// Returns whether this replica has handed its view over.
    pub(crate) fn is_handing_off(&self) -> bool {
        self.handing_off
    }

    /// Returns `T_VC`.
    pub(crate) fn patience_ns(&self) -> u64 {
        self.patience_ns
    }

    /// Returns whether the timer for the NEW-VIEW of this view runs.
    pub(crate) fn waits_for_new_view(&self) -> bool {
        !self.is_normal() && self.new_view_timer
    }

    /// Ends normal operation. Says whether the replica was in it.
    pub(crate) fn stop(&mut self) -> bool {
        if self.status == Status::ViewChange {
            return false;
        }
        self.status = Status::ViewChange;
        self.handing_off = false;
        true
    }

    /// Leaves for a later view. Views wait for `base` at least.
    pub(crate) fn leave_for(&mut self, view: ViewNum, now: u64, end: End, base: u64) {
        self.follow(view);
        self.judge_patience(now, end, base);
        self.progressed = false;
    }

    /// Waits for the NEW-VIEW of a later view that the others are in.
    pub(crate) fn follow(&mut self, view: ViewNum) {
        assert!(view > self.view && self.status == Status::ViewChange);
        self.set_view(view);
        self.new_view_timer = mutant!(M173, false, self.new_view_timer);
    }

    /// Enters a view whose NEW-VIEW fixes numbers up to `last`.
    pub(crate) fn enter(&mut self, view: ViewNum, last: SeqNum, now: u64) {
        assert!(view >= self.view && self.status == Status::ViewChange);
        self.set_view(view);
        self.status = Status::Normal;
        self.new_view_timer = mutant!(M173, false, self.new_view_timer);
        self.last_fixed = last;
        self.entered_at = now;
    }

    /// Takes the view at the end of the log of an earlier life.
    pub(crate) fn restore(&mut self, view: ViewNum, status: Status) {
        self.set_view(view);
        self.status = status;
    }

    fn set_view(&mut self, view: ViewNum) {
        self.view = view;
        self.primary = self.cluster.primary(view);
    }

    /// Takes what the NEW-VIEW of that view fixed.
    pub(crate) fn restore_fixed(&mut self, last: SeqNum) {
        self.last_fixed = last;
    }

    /// Hands the view over. Says whether that is new.
    pub(crate) fn hand_off(&mut self) -> bool {
        !core::mem::replace(&mut self.handing_off, true)
    }

    /// The timer for the NEW-VIEW starts. Says whether it did not run.
    pub(crate) fn start_timer(&mut self) -> bool {
        !core::mem::replace(&mut self.new_view_timer, true)
    }

    /// Notes the last number that is executed when the timer for the NEW-VIEW starts or ends. Says whether it has risen
    /// since the last time.
    pub(crate) fn note_waiting(&mut self, executed: SeqNum) -> bool {
        core::mem::replace(&mut self.executed_then, executed) < executed
    }

    /// A view has failed if it is left "before it receives a valid new-view message for v+1 or before it executes a
    /// request in the new view that it had not executed previously" [OSDI99 §4.5.2]; and if time-outs ended it soon, and
    /// the one before: where operations take longer than time-outs, each view executes some and is left (L5).
    fn judge_patience(&mut self, now: u64, end: End, base: u64) {
        let lasted = now.saturating_sub(self.entered_at);
        let soon = lasted < self.patience_ns.max(base).saturating_mul(LASTING);
        let hasty = end == End::TimedOut && soon;
        let again = hasty && self.hasty > 0;
        if hasty {
            self.hasty = self.hasty.saturating_add(1);
        } else if end != End::Failed {
            self.hasty = 0;
        }
        if end == End::Failed || !self.progressed || mutant!(M112, again, false) {
            self.lose_patience(base);
        } else if !soon {
            self.calm_down(base);
        }
    }

    /// A view has failed: "this time it will wait 2T" [OSDI99 §4.5.2]. Bounded, so that it cannot
    /// overflow however often that happens (B29). `base` is what it had at least.
    fn lose_patience(&mut self, base: u64) {
        self.patience_ns = self.patience_ns.max(base).saturating_mul(2).min(self.patience_max_ns);
    }

    /// The view works: halve the wait, at each checkpoint, down to its base (TM-4).
    pub(crate) fn calm_down(&mut self, base: u64) {
        self.patience_ns = (self.patience_ns / 2).max(base);
    }

    /// Records progress: `seq` was executed. What the new view took over does not count: "before it executes a request in
    /// the new view that it had not executed previously" [OSDI99 §4.5.2], and that it needs its primary for.
    pub(crate) fn note_executed(&mut self, seq: SeqNum) {
        self.progressed |= self.is_normal() && seq > self.last_fixed;
    }
}

#[cfg(test)]
mod tests {
    use quorate_wire::{Cluster, ClusterId};

    use super::*;

    /// A replica that has left view 0.
    fn left_for_view_1() -> Views {
        let config = Config::new(Cluster::tolerating(1).unwrap(), ClusterId([0; 32]));
        let mut views = Views::new(&config);
        assert!(views.stop());
        views.leave_for(ViewNum(1), 0, End::TimedOut, 0);
        views
    }

    /// TM-3, A23: what the new view took over is executed without its primary, and is no progress.
    #[test]
    fn only_what_no_view_before_had_ordered_is_progress() {
        let mut views = left_for_view_1();
        views.note_executed(SeqNum(21));
        assert!(!views.progressed, "in no view");
        views.enter(ViewNum(1), SeqNum(20), 0);
        views.note_executed(SeqNum(20));
        assert!(!views.progressed, "taken over");
        views.note_executed(SeqNum(21));
        assert!(views.progressed);
    }

    /// L53, TM-3: the timer for the NEW-VIEW of one view does not run for that of another.
    #[test]
    fn l53_each_new_view_has_a_timer_of_its_own() {
        let mut views = left_for_view_1();
        assert!(views.start_timer() && !views.start_timer() && views.waits_for_new_view());
        // A replica that rejoins follows the others.
        views.follow(ViewNum(2));
        assert!(!views.waits_for_new_view() && views.start_timer());
        views.enter(ViewNum(2), SeqNum(0), 0);
        assert!(views.stop() && !views.waits_for_new_view() && views.start_timer());
    }

    /// I7: a view that has been left is never entered again.
    #[test]
    #[should_panic(expected = "view >= self.view")]
    fn views_only_rise() {
        let config = Config::new(Cluster::tolerating(1).unwrap(), ClusterId([0; 32]));
        let mut views = Views::new(&config);
        views.stop();
        views.leave_for(ViewNum(2), 0, End::TimedOut, 0);
        views.enter(ViewNum(1), SeqNum(0), 0);
    }
}
