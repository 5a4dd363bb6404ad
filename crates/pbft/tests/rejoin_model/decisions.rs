//! What a NEW-VIEW can say, by the real conditions, whichever replica makes it.

use std::collections::HashMap;
use std::rc::Rc;

use quorate_pbft::decision::{Decision, Verdict, ViewChangeOf, check, decide};
use quorate_wire::life::Life;
use quorate_wire::message::NewView;
use quorate_wire::{Digest, SeqNum, ViewNum};

use crate::case::{Case, Set};
use crate::messages::{Messages, Said, digest, root};
use crate::state::{DIGESTS, NULL, Phase, REPLICAS, State, has};

/// What matters of a NEW-VIEW.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct DecisionOutcome {
    /// n*
    pub(crate) start: u8,
    /// X at the target; none if X ends below it.
    pub(crate) chosen: Option<u8>,
    /// The lives of V's members, of those who may have more than one.
    pub(crate) lives: Vec<(u8, u8)>,
}

/// For each replica and batch, one more than the newest view in which the replica pre-prepared it.
type Proofs = [[u8; DIGESTS]; REPLICAS];

/// What the outcomes for a view depend on.
#[derive(Clone, PartialEq, Eq, Hash)]
struct Key {
    view: u8,
    sent: Vec<u16>,
    lies: [u8; REPLICAS],
    liars: Set,
    proofs: Proofs,
}

#[derive(Default)]
pub(crate) struct Decisions {
    pub(crate) messages: Messages,
    numbers: HashMap<DecisionOutcome, u16>,
    outcomes: Vec<DecisionOutcome>,
    known: HashMap<Key, Rc<Vec<u16>>>,
    blocked: HashMap<(Vec<u16>, Proofs), bool>,
}

impl Decisions {
    pub(crate) fn outcome(&self, number: u16) -> &DecisionOutcome {
        &self.outcomes[usize::from(number)]
    }

    /// How many different questions were asked of the decision code.
    pub(crate) fn len(&self) -> usize {
        self.known.len()
    }

    /// Returns what a NEW-VIEW for `view` can say, over all V of what was ever signed for it.
    pub(crate) fn of(&mut self, case: &Case, state: &State, view: u8) -> Rc<Vec<u16>> {
        let sent = state.sent.iter().copied().filter(|m| self.messages.said(*m).view == view).collect();
        let key = Key { view, sent, lies: state.lies, liars: state.liars, proofs: proofs(case, state) };
        if let Some(known) = self.known.get(&key) {
            return known.clone();
        }
        let mut found = Vec::new();
        for start in 0..=case.last.max(case.target) {
            self.from(case, &key, start, &mut found);
        }
        found.sort();
        found.dedup();
        let found = Rc::new(found.into_iter().map(|outcome| self.number(outcome)).collect::<Vec<_>>());
        self.known.insert(key, found.clone());
        found
    }

    fn number(&mut self, outcome: DecisionOutcome) -> u16 {
        if let Some(number) = self.numbers.get(&outcome) {
            return *number;
        }
        let number = u16::try_from(self.outcomes.len()).unwrap();
        self.numbers.insert(outcome.clone(), number);
        self.outcomes.push(outcome);
        number
    }

    /// Adds what starts from the checkpoint `start`.
    fn from(&mut self, case: &Case, key: &Key, start: u8, found: &mut Vec<DecisionOutcome>) {
        // Of each replica: nothing, or any one of its messages.
        let mut versions: Vec<Vec<Option<u16>>> = vec![vec![None]; case.n()];
        for m in &key.sent {
            versions[usize::from(self.messages.said(*m).sender)].push(Some(*m));
        }
        for (liar, of) in versions.iter_mut().enumerate() {
            for life in (0..8).filter(|life| key.lies[liar] >> life & 1 != 0) {
                let lies = self.messages.lies(case, liar, life, key.view, start);
                of.extend(lies.into_iter().map(Some));
            }
        }
        let mut v = Vec::new();
        self.choose(case, key, start, &versions, &mut v, found);
    }

    fn choose(
        &mut self,
        case: &Case,
        key: &Key,
        start: u8,
        versions: &[Vec<Option<u16>>],
        v: &mut Vec<u16>,
        found: &mut Vec<DecisionOutcome>,
    ) {
        let Some((first, rest)) = versions.split_first() else {
            return self.judge(case, key, start, v, found);
        };
        // Too few are left for a quorum.
        if v.len() + versions.len() < case.quorum() {
            return;
        }
        for version in first {
            v.extend(*version);
            self.choose(case, key, start, rest, v, found);
            if version.is_some() {
                v.pop();
            }
        }
    }

    fn judge(&self, case: &Case, key: &Key, start: u8, v: &[u16], found: &mut Vec<DecisionOutcome>) {
        if v.len() < case.quorum() {
            return;
        }
        let messages: Vec<ViewChangeOf<'_>> = v.iter().map(|m| self.messages.real(*m)).collect();
        let may_change = |sender: u8| has(case.wiped, usize::from(sender));
        let lives: Vec<(u8, u8)> = v
            .iter()
            .map(|m| self.messages.said(*m))
            .filter(|said| may_change(said.sender))
            .map(|said| (said.sender, said.life))
            .collect();
        let mut choices = vec![None];
        if start < case.target {
            choices.extend((0..=key.view).map(Some)); // the null batch, and those of the views before
        }
        for chosen in choices {
            let outcome = DecisionOutcome { start, chosen, lives: lives.clone() };
            if !found.contains(&outcome) && is_valid(case, key, &messages, &outcome) {
                found.push(outcome);
            }
        }
    }

    /// Says whether the live correct replicas, all of whose messages arrive, could not decide: faults have stopped, the
    /// liars are silent (DP-5).
    pub(crate) fn is_blocked(&mut self, case: &Case, state: &State) -> bool {
        let view = case.views + 1;
        let mut settled = state.clone();
        let live: Vec<usize> = (0..case.n()).filter(|i| state.is_member(*i)).collect();
        for i in live.iter().copied() {
            settled.replicas[i].exec = settled.committed;
        }
        for i in live.iter().copied() {
            settled.learn_stable(case, i);
        }
        let mut fresh = Vec::new();
        for i in live {
            let said = Said::of(i, settled.life(i), view, &settled.replicas[i]);
            fresh.push(self.messages.number(case, said));
        }
        let proofs = proofs(case, &settled);
        let key = (fresh, proofs);
        if let Some(known) = self.blocked.get(&key) {
            return *known;
        }
        let messages: Vec<ViewChangeOf<'_>> = key.0.iter().map(|m| self.messages.real(*m)).collect();
        let silent =
            |seq: SeqNum, digest: &Digest, view: ViewNum| proven(case, 0, &proofs, seq, digest, view);
        let decision =
            decide(case.cluster, u64::from(case.window), digest(NULL), &messages, silent, |_| true);
        let blocked = !matches!(decision, Decision::Complete { .. });
        self.blocked.insert(key, blocked);
        blocked
    }
}

/// Says whether a backup would accept it.
fn is_valid(case: &Case, key: &Key, v: &[ViewChangeOf<'_>], outcome: &DecisionOutcome) -> bool {
    let mut chosen = Vec::new();
    if let Some(batch) = outcome.chosen {
        chosen = vec![digest(NULL); usize::from(case.target - outcome.start - 1)];
        chosen.push(digest(batch));
    }
    let new_view = NewView {
        view: ViewNum(u64::from(key.view)),
        view_changes: v.iter().map(|m| (m.replica(), Digest::ZERO)).collect(),
        life: Life::default(),
        checkpoint: (SeqNum(u64::from(outcome.start)), root(outcome.start)),
        chosen,
    };
    let proofs =
        |seq: SeqNum, digest: &Digest, view: ViewNum| proven(case, key.liars, &key.proofs, seq, digest, view);
    let verdict = check(case.cluster, 1, u64::from(case.window), digest(NULL), v, proofs, &new_view);
    verdict == Verdict::Valid
}

/// What each correct replica has pre-prepared at the target and still knows.
fn proofs(case: &Case, state: &State) -> Proofs {
    let mut proofs = [[0; DIGESTS]; REPLICAS];
    for (i, of) in proofs.iter_mut().enumerate().take(case.n()) {
        if state.is_correct(i) && state.replicas[i].phase != Phase::Lost {
            *of = state.replicas[i].q;
        }
    }
    proofs
}

/// Who says that it pre-prepared `digest` in `view` or later (DP-4).
fn proven(case: &Case, liars: Set, proofs: &Proofs, seq: SeqNum, of: &Digest, view: ViewNum) -> u64 {
    if seq.0 != u64::from(case.target) {
        return u64::from(liars);
    }
    let batch = (0..DIGESTS as u8).find(|batch| digest(*batch) == *of);
    let claims = |i: &usize| batch.is_some_and(|batch| u64::from(proofs[*i][usize::from(batch)]) > view.0);
    (0..case.n()).filter(claims).fold(u64::from(liars), |set, i| set | 1 << i)
}
