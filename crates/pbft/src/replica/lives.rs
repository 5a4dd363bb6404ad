//! What a replica does about lives that have ended (RC-11 to RC-11c): see [`crate::recovery::lives`].

use alloc::sync::Arc;

use quorate_wire::Signed;
use quorate_wire::id::{ReplicaId, SeqNum};
use quorate_wire::life::Life;
use quorate_wire::message::{SuspectReason, ViewChange};

use crate::io::step::{Actions, Now};
use crate::recovery::lives::{Counts, all_count, counts};
use crate::replica::Replica;

impl Replica {
    /// Returns the life that this replica is in, as the state that it has executed knows it. One that rejoins says
    /// nothing that names a life before its own recovery request is part of that state.
    pub(super) fn own_life(&self) -> Life {
        self.lives.newest().of(self.id).life
    }

    /// RC-11b: says whether a VIEW-CHANGE counts by the newest executed table.
    pub(super) fn counts_now(&self, from: ReplicaId, m: &ViewChange) -> Counts {
        mutant!(M17, counts(m.life, m.view, &self.lives.newest().of(from)), Counts::Yes)
    }

    /// RC-11a: says whether the view that this replica is in rests on a VIEW-CHANGE that does not count by the table
    /// as of its stable checkpoint, or that table is not known yet. Then it must not vote.
    pub(super) fn view_is_void(&self) -> bool {
        let Some(entered) = self.evidence.entered_in(self.views.view()) else {
            return false;
        };
        self.may_vote_after(entered.members()) != Counts::Yes
    }

    /// RC-11a, the one place where it is decided: says whether this replica may vote in a view that rests on these
    /// VIEW-CHANGEs, by the table as of its stable checkpoint. [`Counts::NotYet`] also while that table is not known:
    /// after a restart, until it has executed so far again.
    pub(super) fn may_vote_after<'a>(
        &self,
        members: impl Iterator<Item = (ReplicaId, &'a ViewChange)>,
    ) -> Counts {
        let stable = self.log.stable();
        let table = self.lives.at(stable).filter(|_| self.exec.executed() >= stable);
        let counts = table.map_or(Counts::NotYet, |table| all_count(members, table));
        mutant!(M16, counts, Counts::Yes)
    }

    /// Says whether this replica must not vote about `seq` in its view.
    pub(super) fn forbids_vote(&self, seq: SeqNum) -> bool {
        self.lives.is_void() || self.recovery.forbids(seq)
    }

    /// Looks again whether this replica may vote in its view. To be called whenever the view, the stable checkpoint, or
    /// what is known of lives changes. Says whether it may now and might not before.
    pub(super) fn judge_view(&mut self) -> bool {
        let void = self.view_is_void();
        self.lives.set_void(void)
    }

    /// A replica has begun a new life, or the stable checkpoint has moved: statements of lives that have ended are
    /// forgotten, and a view that rests on one is left, without accusing anybody (RC-11a, RC-11b).
    #[cold]
    pub(super) fn look_at_lives(&mut self, now: Now, out: &mut Actions) {
        let newest = self.lives.newest();
        let ended = |m: &Arc<Signed<ViewChange>>| {
            counts(m.body().life, m.body().view, &newest.of(m.sender())) == Counts::NoMore
        };
        self.evidence.forget(ended);
        if !self.is_normal() {
            return self.on_view_changes_grown(now, out);
        }
        let entered = self.evidence.entered_in(self.views.view());
        if entered.is_some_and(|c| self.may_vote_after(c.members()) == Counts::NoMore) {
            self.suspect(now, SuspectReason::Timeout, out);
        }
        self.examine_new_views(now, out);
    }
}
