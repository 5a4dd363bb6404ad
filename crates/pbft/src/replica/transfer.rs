//! State transfer: when, and to which checkpoint (ST-1, ST-4, ST-5). The walk over the state's tree is
//! the executor's; this file chooses the target and continues from there. [OSDI99 §4.4] on replicas that
//! miss a checkpoint; [OSDI99 §6.3]; spec §9.

use quorate_wire::Digest;
use quorate_wire::id::{ClientId, ReplicaId, SeqNum, Timestamp};
use quorate_wire::life::Lives;

use crate::io::config::{Durability, MS};
use crate::io::record::Record;
use crate::io::step::{Action, Actions, Milestone, Now, Recipient};
use crate::replica::Replica;

/// How long a replica that is behind tries to catch up by batches before it fetches state (CK-5, ST-5).
const PATIENCE_NS: u64 = 200 * MS;

/// The state that is being fetched.
#[derive(Debug, Default)]
pub(crate) struct Transfer {
    target: Option<(SeqNum, Digest)>,
    /// This replica's own state was found wrong (CK-6).
    repairing: bool,
    /// A certified checkpoint above what is executed, and since when it has been known without progress.
    goal: Option<(SeqNum, Digest)>,
    stuck_since: Option<(SeqNum, u64)>,
}

impl Transfer {
    /// Returns whether state is being fetched: nothing is executed during that time (EX-5).
    pub(crate) fn is_active(&self) -> bool {
        self.target.is_some()
    }

    /// Returns whether the state was found wrong and is being repaired.
    pub(crate) fn is_repairing(&self) -> bool {
        self.repairing
    }
}

impl Replica {
    /// Records the highest checkpoint that `f + 1` replicas certify above this replica's state.
    pub(crate) fn note_certified(&mut self, now: Now, out: &mut Actions) {
        let Some(best) = self.checkpoints.certified_above(self.exec.executed) else { return };
        self.set_goal(now, best, out);
    }

    /// Makes a certified checkpoint the goal; the status timer sees whether batches get there.
    pub(crate) fn set_goal(&mut self, now: Now, goal: (SeqNum, Digest), out: &mut Actions) {
        if self.transfer.goal.is_none_or(|(seq, _)| seq < goal.0) {
            self.transfer.goal = Some(goal);
        }
        self.look_after_transfer(now, out);
    }

    /// Fetches state if batches do not bring this replica to the goal (CK-5, ST-5), and moves an old
    /// target along (ST-4).
    pub(crate) fn look_after_transfer(&mut self, now: Now, out: &mut Actions) {
        let executed = self.exec.executed;
        let Some(goal) = self.transfer.goal.filter(|(seq, _)| *seq > executed) else {
            self.transfer.goal = None;
            self.transfer.stuck_since = None;
            return;
        };
        let stuck = match self.transfer.stuck_since {
            Some((at, since)) if at == executed => now.mono_ns.saturating_sub(since),
            Some(_) | None => {
                self.transfer.stuck_since = Some((executed, now.mono_ns));
                0
            }
        };
        let out_of_reach = match self.transfer.target {
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
    pub(crate) fn start_transfer(
        &mut self,
        now: Now,
        seq: SeqNum,
        root: Digest,
        check: bool,
        out: &mut Actions,
    ) {
        // A repair does not turn back either: of two checkpoints that are certified and wrong here the later one is
        // held by others for longer.
        let repairs = !check || self.transfer.repairing;
        if self.transfer.target == Some((seq, root))
            || (self.transfer.target.is_some_and(|(target, _)| target >= seq) && repairs)
        {
            return;
        }
        // ST-8: never back, but to repair; what the executor has been given counts, results back or not.
        if seq <= self.exec.final_to && !check {
            return;
        }
        self.undo_tentative(out);
        let repairing = check || self.transfer.repairing;
        self.transfer.target = Some((seq, root));
        self.transfer.repairing = repairing;
        self.transfer.stuck_since = Some((self.exec.executed, now.mono_ns));
        self.checkpoints.follow(seq, self.log.high());
        out.report(Milestone::TransferStarted { seq });
        out.push(Action::Fetch { seq, root, check: repairing });
    }

    /// This replica's state is wrong: it stops executing and replying, and fetches what differs (CK-6).
    pub(crate) fn start_repair(&mut self, now: Now, seq: SeqNum, root: Digest, out: &mut Actions) {
        self.start_transfer(now, seq, root, true, out);
    }

    /// A checkpoint has become stable above the one to which a wrong state is being repaired: its holders
    /// may have discarded that, and the state must not end below the window. The repair goes to this one.
    pub(crate) fn raise_repair(&mut self, now: Now, seq: SeqNum, root: Digest, out: &mut Actions) {
        if mutant!(M79, self.transfer.repairing, false)
            && self.transfer.target.is_some_and(|(target, _)| target < seq)
        {
            self.start_transfer(now, seq, root, true, out);
        }
    }

    /// The state is now the one after `seq` (ST-6).
    pub(crate) fn finish_transfer(
        &mut self,
        now: Now,
        (seq, root): (SeqNum, Digest),
        clients: &[(ClientId, Timestamp)],
        lives: Option<&[(ReplicaId, Lives)]>,
        out: &mut Actions,
    ) {
        if self.transfer.target != Some((seq, root)) {
            return; // an older target
        }
        out.report(Milestone::TransferFinished { seq });
        let had = self.exec.executed;
        self.transfer.target = None;
        self.transfer.stuck_since = None;
        self.clients.restart_clock(now.mono_ns);
        self.watch.restart_clock(now.mono_ns);
        let repaired = core::mem::take(&mut self.transfer.repairing);
        self.exec.restart_at(seq);
        if mutant!(M35, true, false) {
            self.clients.reload(clients);
        }
        self.recovery.note_transfer(lives.unwrap_or(&[]), seq);
        self.replace_lives(seq, lives);
        // Own checkpoints above are of the wrong state; those below are gone.
        self.checkpoints.own.retain(|n, _| *n < seq);
        // RO-4: what it had shown before a repair; and what it may show from here on, also after a restart.
        let shown = if repaired { seq.max(had) } else { seq };
        self.reads.shown = self.reads.shown.max(shown);
        self.reads.floor = self.reads.floor.max(shown);
        if mutant!(M67, true, false) {
            self.exec.shown = self.persist(Record::Floor { seq: shown }, out);
        }
        if self.config.durability == Durability::Sync {
            self.checkpoints.await_image(seq);
        }
        self.checkpoints.own.insert(seq, root);
        self.checkpoints.note_fetched(seq);
        self.say_checkpoint(seq, root, Recipient::All, out);
        self.judge_checkpoint(now, seq, out);
        self.note_certified(now, out);
        self.try_execute(now, out);
        self.serve_reads(out);
        self.propose(now, out);
        self.watch_requests(now, out);
    }
}
