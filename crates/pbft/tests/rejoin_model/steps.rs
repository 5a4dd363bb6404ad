//! What can happen next: one step of a correct replica, or a fault.

use quorate_pbft::lives::{self, Counts};
use quorate_wire::ViewNum;
use quorate_wire::life::Lives;

use crate::case::{Case, Set};
use crate::decisions::Decisions;
use crate::messages::{Said, life};
use crate::state::{DIGESTS, Made, NULL, Phase, Recovery, Rep, State, has, own_batch};

/// A step, as it is printed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// The next number commits; with it, perhaps, a RECOVERY of a replica with a floor.
    Commit { seq: u8, recovery: Option<(usize, u8)> },
    /// The replica loses its disk. If it lied, it lies no more.
    Wipe(usize),
    /// The last rejoin is over, and these replicas turn Byzantine.
    TurnLiars(Set),
    /// It leaves for a view and sends its VIEW-CHANGE.
    Leave(usize, u8),
    /// Having rejoined in a view that it had not entered, it sends a VIEW-CHANGE for it.
    Send(usize, u8),
    /// As primary it makes a NEW-VIEW and enters.
    Make(usize, u8, u16),
    /// It enters a view by a NEW-VIEW.
    Enter(usize, u8, u16),
    /// It votes for what its NEW-VIEW chose, which was above its window before.
    Adopt(usize),
    /// As primary it proposes at the target.
    Propose(usize),
    /// It accepts a proposal.
    PrePrepare(usize, u8),
    /// A batch prepares at it.
    Prepare(usize),
    /// A replica that lags executes one more batch.
    Execute(usize),
    /// A replica that is late learns that its newest checkpoint is stable.
    Learn(usize),
    /// A replica that lags restarts from its stable checkpoint, or one that has rejoined from its disk.
    Restart(usize),
}

/// Everything that can happen in `state`, and what comes of it.
pub(crate) fn successors(case: &Case, decisions: &mut Decisions, state: &State) -> Vec<(Step, State)> {
    let mut next = Next { case, decisions, state, found: Vec::new() };
    next.commit();
    for i in 0..case.n() {
        next.faults(i);
        if !state.is_correct(i) || state.replicas[i].phase == Phase::Lost {
            continue;
        }
        next.late(i);
        next.votes(i);
        if has(case.movers, i) {
            next.views(i);
        }
    }
    next.found
}

struct Next<'a> {
    case: &'a Case,
    decisions: &'a mut Decisions,
    state: &'a State,
    found: Vec<(Step, State)>,
}

impl Next<'_> {
    fn push(&mut self, step: Step, change: impl FnOnce(&mut State)) {
        let mut state = self.state.clone();
        change(&mut state);
        state.settle(self.case);
        // Once the last rejoin is over, some of those that may turn liars, at once: a liar can act correctly until it lies.
        let rejoining =
            |s: &State| (0..self.case.n()).any(|i| s.is_correct(i) && s.replicas[i].phase != Phase::Member);
        if state.later > 0 && state.wipes == 0 && rejoining(self.state) && !rejoining(&state) {
            for set in 1..=Set::MAX {
                let may = set & !(self.case.later_liars & !state.liars) == 0;
                if !may || set.count_ones() != u32::from(state.later) {
                    continue;
                }
                let mut turned = state.clone();
                turned.later = 0;
                for i in (0..self.case.n()).filter(|i| has(set, *i)) {
                    turned.turn_liar(self.case, i);
                }
                turned.settle(self.case);
                self.found.push((Step::TurnLiars(set), turned));
            }
        }
        self.found.push((step, state));
    }

    /// The next number commits if a quorum of one view may vote for it.
    fn commit(&mut self) {
        let (case, state) = (self.case, self.state);
        let seq = state.committed + 1;
        if seq > case.last || (seq == case.target && state.decided == 0) {
            return;
        }
        let may = seq == case.target || (0..=case.views).any(|view| self.can_commit(seq, view));
        if !may {
            return;
        }
        self.push(Step::Commit { seq, recovery: None }, |s| s.committed = seq);
        for i in (0..case.n()).filter(|_| seq != case.target) {
            if state.is_correct(i) && state.replicas[i].phase == Phase::Lost {
                for floor in self.floors(i) {
                    self.push(Step::Commit { seq, recovery: Some((i, floor)) }, |s| {
                        s.recover(case, seq, i, floor);
                    });
                }
            }
            // Of a healed liar: in none of its lives but the first has it lied yet. Before its own RECOVERY the old one does
            // name the newest life.
            let signed = case.signed_recovery && state.is_correct(i) && state.lies[i] == 1;
            if signed && (state.life(i) == 0 || !case.rules.names_newest) {
                self.push(Step::Commit { seq, recovery: Some((i, 0)) }, |s| {
                    s.committed = seq;
                    s.recoveries.push(Recovery { seq, replica: i as u8, floor: 0 });
                    s.lies[i] |= 1 << s.life(i);
                });
            }
        }
    }

    fn can_commit(&self, seq: u8, view: u8) -> bool {
        let (case, state) = (self.case, self.state);
        let voters = (0..case.n()).filter(|i| state.replicas[*i].view == view && self.may_vote(*i, seq));
        let voters = voters.fold(state.liars, |set: Set, i| set | 1 << i);
        let primary = case.primary(view);
        let led = !state.is_correct(primary) || (has(voters, primary) && self.may_lead(primary, view));
        led && voters.count_ones() as usize >= case.quorum()
    }

    /// Every floor that replica `i` may learn: the (f + 1)-th largest view of q replies, any of which can be late or a
    /// lie (RC-7).
    fn floors(&self, i: usize) -> Vec<u8> {
        let (case, state) = (self.case, self.state);
        let mut views: Vec<u8> = (0..case.n())
            .filter(|j| *j != i && state.is_member(*j))
            .map(|j| state.replicas[j].view)
            .collect();
        views.sort_unstable_by(|a, b| b.cmp(a));
        let liars = (0..case.n()).filter(|j| *j != i && !state.is_correct(*j)).count();
        let unheard = (views.len() + liars).saturating_sub(case.quorum());
        let f = case.cluster.f();
        let mut floors: Vec<u8> =
            (f.saturating_sub(liars)..=f + unheard).filter_map(|at| views.get(at).copied()).collect();
        floors.dedup();
        floors
    }

    fn faults(&mut self, i: usize) {
        let (case, state) = (self.case, self.state);
        let f = case.cluster.f();
        let heals = !state.is_correct(i);
        let room = state.faulty(case) + usize::from(state.is_member(i)) <= f;
        if state.wipes > 0 && has(case.wiped, i) && room && (heals || state.is_member(i)) {
            self.push(Step::Wipe(i), |s| {
                s.wipes -= 1;
                s.liars &= !(1 << i);
                s.replicas[i] = Rep { phase: Phase::Lost, ..Rep::default() };
            });
        }
    }

    fn late(&mut self, i: usize) {
        let (case, state) = (self.case, self.state);
        let rep = state.replicas[i];
        if has(case.lag, i) && rep.phase == Phase::Member {
            if rep.exec < state.committed {
                self.push(Step::Execute(i), |s| s.replicas[i].exec += 1);
            }
            if case.restarts && rep.exec > rep.stable {
                self.push(Step::Restart(i), |s| s.replicas[i].exec = rep.stable);
            }
        }
        if has(case.rejoined_restarts, i) && rep.phase == Phase::Member && rep.learned.is_some() {
            let recorded = case.rules.records_view || rep.normal || self.has_sent(i);
            self.push(Step::Restart(i), |s| {
                let rep = &mut s.replicas[i];
                // RC-11c: it leads no view up to that of its log.
                rep.learned = recorded.then_some(rep.view);
                if !recorded {
                    (rep.view, rep.normal, rep.entered) = (0, true, None);
                }
            });
        }
        if has(case.late, i) && state.newest_stable(case, i) > rep.stable {
            self.push(Step::Learn(i), |s| s.learn_stable(case, i));
        }
    }

    fn views(&mut self, i: usize) {
        let (case, state) = (self.case, self.state);
        let rep = state.replicas[i];
        let member = rep.phase == Phase::Member;
        if member && rep.view < case.views {
            let view = rep.view + 1;
            let said = Said::of(i, state.life(i), view, &rep);
            let number = self.decisions.messages.number(case, said);
            self.push(Step::Leave(i, view), |s| {
                (s.replicas[i].view, s.replicas[i].normal) = (view, false);
                s.send(number);
            });
        }
        if member && !rep.normal && !self.has_sent(i) {
            let number = self.decisions.messages.number(case, Said::of(i, state.life(i), rep.view, &rep));
            self.push(Step::Send(i, rep.view), |s| s.send(number));
        }
        for view in rep.view.max(1)..=case.views {
            if view == rep.view && rep.normal {
                continue;
            }
            let primary = case.primary(view);
            if primary == i {
                self.make(i, view);
                continue;
            }
            let mut offers: Vec<u16> =
                state.made.iter().filter(|m| m.view == view).map(|m| m.outcome).collect();
            if state.lies[primary] != 0 {
                offers.extend(self.decisions.of(case, state, view).iter());
            }
            offers.sort_unstable();
            offers.dedup();
            for outcome in offers {
                if self.counts(outcome, view, rep.exec, case.rules.receipt) {
                    self.push(Step::Enter(i, view, outcome), |s| s.enter(i, view, outcome));
                    self.vote_for_chosen(i);
                }
            }
        }
    }

    /// After entering: it votes for what the NEW-VIEW chose, if it may.
    fn vote_for_chosen(&mut self, i: usize) {
        let Some((_, state)) = self.found.last() else { return };
        if let Some(batch) = adoptable(self.case, self.decisions, state, i)
            && let Some((_, state)) = self.found.last_mut()
        {
            state.pre_prepare(i, batch);
        }
    }

    fn has_sent(&self, i: usize) -> bool {
        let (life, view) = (self.state.life(i), self.state.replicas[i].view);
        self.state
            .sent
            .iter()
            .map(|m| self.decisions.messages.said(*m))
            .any(|said| usize::from(said.sender) == i && said.life == life && said.view == view)
    }

    /// The primary of a view that it has left for: one NEW-VIEW in each life.
    fn make(&mut self, i: usize, view: u8) {
        let (case, state) = (self.case, self.state);
        let rep = state.replicas[i];
        let life = state.life(i);
        let made = state.made.iter().any(|m| m.view == view && m.life == life);
        if view != rep.view || rep.normal || made || !self.may_lead(i, view) || !self.has_sent(i) {
            return;
        }
        for outcome in self.decisions.of(case, state, view).iter().copied() {
            let of = self.decisions.outcome(outcome);
            let (chosen, low) = (of.chosen, rep.stable.max(of.start));
            let above = chosen.is_some() && low < case.target;
            let in_window = case.target <= rep.stable + case.window;
            let can_vote = in_window && self.counts(outcome, view, rep.stable, case.rules.vote);
            if !self.counts(outcome, view, rep.exec, case.rules.receipt)
                || (case.rules.can_vote_for_all && above && !can_vote)
            {
                continue;
            }
            self.push(Step::Make(i, view, outcome), |s| {
                s.made.push(Made { view, life, outcome });
                s.enter(i, view, outcome);
                // Its NEW-VIEW is its vote for all of X, in the eyes of the others.
                if let Some(batch) = chosen {
                    s.prepares[usize::from(view)][usize::from(batch)] |= 1 << i;
                }
            });
            self.vote_for_chosen(i);
        }
    }

    fn votes(&mut self, i: usize) {
        let (case, state) = (self.case, self.state);
        let rep = state.replicas[i];
        if !rep.normal || rep.phase != Phase::Member {
            return;
        }
        if let Some(batch) = adoptable(case, self.decisions, state, i) {
            self.push(Step::Adopt(i), |s| s.pre_prepare(i, batch));
        }
        if !self.may_vote(i, case.target) {
            return;
        }
        let view = usize::from(rep.view);
        if let Some(batch) = rep.voted() {
            let votes = state.prepares[view][usize::from(batch)] | state.liars;
            let led = has(votes, case.primary(rep.view));
            if led && votes.count_ones() as usize >= case.quorum() && rep.p != Some((batch, rep.view)) {
                self.push(Step::Prepare(i), |s| {
                    s.replicas[i].p = Some((batch, rep.view));
                    s.commits[view][usize::from(batch)] |= 1 << i;
                });
            }
            return;
        }
        // A fresh proposal, above what the NEW-VIEW fixed.
        let fixed = rep.entered.map(|number| self.decisions.outcome(number));
        if fixed.is_some_and(|o| o.chosen.is_some() || o.start >= case.target) {
            return;
        }
        let primary = case.primary(rep.view);
        if primary == i {
            if self.may_lead(i, rep.view) {
                self.push(Step::Propose(i), |s| s.pre_prepare(i, own_batch(rep.view)));
            }
            return;
        }
        for batch in NULL + 1..DIGESTS as u8 {
            let proposed = has(state.prepares[view][usize::from(batch)], primary);
            let invented = !state.is_correct(primary) && batch <= own_batch(rep.view);
            if proposed || invented {
                self.push(Step::PrePrepare(i, batch), |s| s.pre_prepare(i, batch));
            }
        }
    }

    fn may_vote(&self, i: usize, seq: u8) -> bool {
        may_vote(self.case, self.decisions, self.state, i, seq)
    }

    /// RC-11c, DV-37.
    fn may_lead(&self, i: usize, view: u8) -> bool {
        let rep = &self.state.replicas[i];
        rep.phase == Phase::Member
            && (!self.case.rules.no_leading || rep.learned.is_none_or(|learned| view > learned))
    }

    fn counts(&self, outcome: u16, view: u8, seq: u8, clause: bool) -> bool {
        !clause || counts(self.case, self.decisions, self.state, outcome, view, seq)
    }
}

/// Says whether every VIEW-CHANGE in V counts by the table of lives after `seq`, by the real rule (RC-11).
fn counts(case: &Case, decisions: &Decisions, state: &State, outcome: u16, view: u8, seq: u8) -> bool {
    !case.rules.lives
        || decisions.outcome(outcome).lives.iter().all(|(sender, number)| {
            let (newest, floor) = state.life_at(usize::from(*sender), seq);
            let before = newest.saturating_sub(1);
            let floor = if case.rules.below_floor { floor } else { 0 };
            let floor = ViewNum(u64::from(floor));
            let lives = Lives { life: life(newest), before: life(before), floor, ..Lives::default() };
            lives::counts(life(*number), ViewNum(u64::from(view)), &lives) == Counts::Yes
        })
}

fn may_vote(case: &Case, decisions: &Decisions, state: &State, i: usize, seq: u8) -> bool {
    let rep = &state.replicas[i];
    state.is_correct(i)
        && rep.phase == Phase::Member
        && rep.normal
        && rep.stable < seq
        && seq <= rep.stable + case.window
        && seq > rep.silent_to
        && (!case.rules.floor || rep.learned.is_none_or(|learned| rep.view >= learned))
        && rep.entered.is_none_or(|outcome| {
            !case.rules.vote || counts(case, decisions, state, outcome, rep.view, rep.stable)
        })
}

/// Returns what the NEW-VIEW of its view chose at the target, if `i` has not voted for it and may.
fn adoptable(case: &Case, decisions: &Decisions, state: &State, i: usize) -> Option<u8> {
    let rep = &state.replicas[i];
    let outcome = decisions.outcome(rep.entered?);
    let batch = outcome.chosen.filter(|_| outcome.start < case.target)?;
    (rep.voted().is_none() && may_vote(case, decisions, state, i, case.target)).then_some(batch)
}

impl State {
    fn send(&mut self, number: u16) {
        if let Err(at) = self.sent.binary_search(&number) {
            self.sent.insert(at, number);
        }
    }

    fn enter(&mut self, i: usize, view: u8, outcome: u16) {
        let rep = &mut self.replicas[i];
        (rep.view, rep.normal, rep.entered) = (view, true, Some(outcome));
    }

    fn pre_prepare(&mut self, i: usize, batch: u8) {
        let view = self.replicas[i].view;
        self.replicas[i].q[usize::from(batch)] = view + 1;
        self.prepares[usize::from(view)][usize::from(batch)] |= 1 << i;
    }

    /// RC-6, RC-7: the RECOVERY of `i` is executed at `seq`.
    fn recover(&mut self, case: &Case, seq: u8, i: usize, floor: u8) {
        self.committed = seq;
        self.recoveries.push(Recovery { seq, replica: i as u8, floor });
        let until = seq + case.window;
        self.replicas[i] = Rep {
            phase: Phase::Catching(until),
            silent_to: until,
            view: floor,
            normal: floor == 0,
            learned: Some(floor),
            ..Rep::default()
        };
    }
}
