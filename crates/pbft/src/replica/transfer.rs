//! State transfer: when, and to which checkpoint (ST-1, ST-4, ST-5). The walk over the state's tree is
//! the executor's; this file chooses the target and continues from there. [OSDI99 §4.4] on replicas that
//! miss a checkpoint; [OSDI99 §6.3]; spec §9.

use quorate_wire::Digest;
use quorate_wire::id::{ClientId, ReplicaId, SeqNum, Timestamp};
use quorate_wire::life::Lives;

use crate::io::config::MS;
use crate::io::record::Record;
use crate::io::step::{Action, Actions, Milestone, Now, Recipient};
use crate::replica::Replica;

/// How long a replica that is behind tries to catch up by batches before it fetches state (CK-5, ST-5).
const PATIENCE_NS: u64 = 200 * MS;

impl Replica {
    /// Records the highest checkpoint that `f + 1` replicas certify above this replica's state.
    pub(super) fn note_certified(&mut self, now: Now, out: &mut Actions) {
        let Some(best) = self.checkpoints.certified_above(self.exec.executed()) else { return };
        self.set_goal(now, best, out);
    }

    /// Makes a certified checkpoint the goal; the status timer sees whether batches get there.
    pub(super) fn set_goal(&mut self, now: Now, goal: (SeqNum, Digest), out: &mut Actions) {
        self.target.raise_goal(goal);
        self.look_after_transfer(now, out);
    }

    /// Fetches state if batches do not bring this replica to the goal (CK-5, ST-5), and moves an old
    /// target along (ST-4).
    pub(super) fn look_after_transfer(&mut self, now: Now, out: &mut Actions) {
        let executed = self.exec.executed();
        let Some(goal) = self.target.goal_above(executed).filter(|goal| !self.target.has_stalled(*goal))
        else {
            return;
        };
        let stuck = self.target.stuck_ns(executed, now.mono_ns);
        let out_of_reach = match self.target.get() {
            // Above the window there is nothing to execute one's way with.
            None => goal.0 > self.log.high(),
            // A replica that has executed so far beyond the target has discarded it (I6). So no replica may hold it
            // any more, and under load the window moves on in less time than it takes to detect that none responds
            // (ST-4, B19).
            Some((target, _)) => goal.0 > target.plus(self.config.window),
        };
        if out_of_reach || stuck >= PATIENCE_NS {
            self.start_transfer(now, goal.0, goal.1, false, out);
        }
    }

    /// Starts fetching the checkpoint `(seq, root)`, which a weak certificate vouches for.
    pub(super) fn start_transfer(
        &mut self,
        now: Now,
        seq: SeqNum,
        root: Digest,
        check: bool,
        out: &mut Actions,
    ) {
        // A repair does not turn back either: of two checkpoints that are certified and wrong here the later one is
        // held by others for longer.
        let repairs = !check || self.target.is_repairing();
        if self.target.get() == Some((seq, root))
            || (self.target.get().is_some_and(|(target, _)| target >= seq) && repairs)
        {
            return;
        }
        // ST-8: never back, but to repair; what the executor has been given counts, results back or not. A target that is
        // within that already replaces a state with a page that nobody has, and nobody may have it any more (D9).
        let replaces = self.target.is_active() && !self.target.is_repairing();
        if seq <= self.exec.final_to() && !check && !replaces {
            return;
        }
        self.fetch(now, (seq, root), check, out);
    }

    /// A page of the state cannot be read, and the others no longer hold a checkpoint that has it. What the executor
    /// was given waits for that page, so a checkpoint within it is above the state (ST-8). Or nobody gives a part of the
    /// target: then another certified checkpoint is, if there is one (ST-4).
    #[cold]
    pub(super) fn on_unreadable(&mut self, now: Now, executed: SeqNum, out: &mut Actions) {
        let executed = self.exec.executed().max(executed);
        if let Some(target) = self.target.get()
            && mutant!(M177, !self.target.is_repairing(), false)
        {
            if let Some(other) = self.checkpoints.certified_but(executed, Some(target)) {
                self.target.stall();
                self.fetch(now, other, false, out);
            }
            return;
        }
        let certified = self.checkpoints.certified_above(executed);
        let goal = certified.max(self.target.goal_above(executed));
        if let Some(goal) = goal.filter(|_| mutant!(M155, !self.target.is_active(), false)) {
            self.fetch(now, goal, false, out);
        }
    }

    fn fetch(&mut self, now: Now, (seq, root): (SeqNum, Digest), check: bool, out: &mut Actions) {
        self.undo_tentative(out);
        let repairing = check || self.target.is_repairing();
        self.target.aim((seq, root), repairing, self.exec.executed(), now.mono_ns);
        self.checkpoints.follow(seq, self.log.high());
        out.report(Milestone::TransferStarted { seq });
        out.push(Action::Fetch { seq, root, check: repairing });
    }

    /// The state is now the one after `seq` (ST-6).
    #[cold]
    pub(super) fn finish_transfer(
        &mut self,
        now: Now,
        (seq, root): (SeqNum, Digest),
        clients: &[(ClientId, Timestamp)],
        lives: Option<&[(ReplicaId, Lives)]>,
        out: &mut Actions,
    ) {
        if !self.target.reach((seq, root)) {
            return; // an older target
        }
        out.report(Milestone::TransferFinished { seq });
        let (had, executed) = (self.exec.replied_to(), self.exec.executed());
        self.clients.restart_clock(now.mono_ns);
        self.watch.restart_clock(now.mono_ns);
        self.exec.restart_at(seq);
        if mutant!(M35, true, false) {
            self.clients.reload(clients);
        }
        self.recovery.note_lives(lives.unwrap_or(&[]), seq);
        self.lives.renew(seq, lives, executed);
        self.judge_view();
        // RO-4: what it had shown before; and what it may show from here on, also after a restart.
        let shown = seq.max(had);
        self.reads.raise_floor(shown);
        if mutant!(M67, true, false) {
            let lsn = self.promises.persist(Record::Floor { seq: shown }, out);
            self.exec.show_after(lsn);
        }
        if self.config.durability.waits_for_disk() {
            self.checkpoints.await_image(seq);
        }
        // Own checkpoints above are of the wrong state; those below are gone.
        self.checkpoints.adopt(seq, root, self.promises.last());
        self.say_checkpoint(seq, root, Recipient::All, out);
        self.judge_checkpoints(now, out);
        self.note_certified(now, out);
        self.try_execute(now, out);
        self.serve_reads(out);
        self.propose();
        self.watch_requests(now, out);
    }
}
