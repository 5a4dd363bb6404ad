//! Breadth first over all states, each once.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::hash::{BuildHasherDefault, DefaultHasher, Hash, Hasher};
use std::time::Instant;

use crate::case::{Case, Set};
use crate::decisions::Decisions;
use crate::state::State;
use crate::steps::{Step, successors};

/// How a search ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Every state was seen, and none is bad.
    Holds,
    /// Two batches committed at one number, after this number of steps.
    Broken { steps: usize },
    /// After this number of steps the live correct replicas could not decide.
    Blocked { steps: usize },
    /// There are more states than the search looks at.
    CutOff,
}

/// A search that has ended.
pub(crate) struct SearchResult {
    pub(crate) verdict: Verdict,
    pub(crate) trace: Vec<String>,
}

#[derive(Default)]
struct Identity(u64);

impl Hasher for Identity {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, _: &[u8]) {
        unreachable!("only fingerprints are keys");
    }

    fn write_u64(&mut self, value: u64) {
        self.0 = value;
    }
}

/// A 64-bit fingerprint stands for a state: two of 10^8 states share one with probability 3e-4.
fn fingerprint(state: &State) -> u64 {
    let mut hasher = DefaultHasher::new();
    state.hash(&mut hasher);
    hasher.finish()
}

/// The parent of each state that was seen, by fingerprint.
type Seen = HashMap<u64, u64, BuildHasherDefault<Identity>>;

pub(crate) fn search(case: &Case, start: &[Step]) -> SearchResult {
    let begin = Instant::now();
    let mut decisions = Decisions::default();
    let first = started(case, &mut decisions, start);
    let mut seen = Seen::default();
    seen.insert(fingerprint(&first), 0);
    let mut level = vec![first.clone()];
    let (mut depth, mut blocked) = (0, 0);
    let found = |verdict, at: Option<u64>, seen: &Seen, blocked: usize, decisions: &mut Decisions| {
        let trace = at.map_or_else(Vec::new, |at| retrace(case, decisions, &first, seen, at));
        println!(
            "{:<62} {:>11} states {:>9} blocked {:>7} questions {:>6.1} s  {verdict:?}",
            case.name,
            seen.len(),
            blocked,
            decisions.len(),
            begin.elapsed().as_secs_f64()
        );
        SearchResult { verdict, trace }
    };
    let mut first_blocked = None;
    while !level.is_empty() {
        depth += 1;
        let mut next = Vec::new();
        for state in &level {
            let parent = fingerprint(state);
            for (_, child) in successors(case, &mut decisions, state) {
                let print = fingerprint(&child);
                let Entry::Vacant(place) = seen.entry(print) else { continue };
                place.insert(parent);
                if child.decided.count_ones() > 1 {
                    return found(
                        Verdict::Broken { steps: depth },
                        Some(print),
                        &seen,
                        blocked,
                        &mut decisions,
                    );
                }
                if case.liveness && decisions.is_blocked(case, &child) {
                    blocked += 1;
                    first_blocked = first_blocked.or(Some((print, depth)));
                }
                next.push(child);
            }
        }
        if seen.len() > case.states_max {
            return found(Verdict::CutOff, None, &seen, blocked, &mut decisions);
        }
        level = next;
    }
    match first_blocked {
        Some((print, steps)) => {
            found(Verdict::Blocked { steps }, Some(print), &seen, blocked, &mut decisions)
        }
        None => found(Verdict::Holds, None, &seen, blocked, &mut decisions),
    }
}

/// The state after the given steps, each of which has to be possible.
fn started(case: &Case, decisions: &mut Decisions, steps: &[Step]) -> State {
    let mut state = State::start(case);
    let case = &Case { movers: Set::MAX, ..case.clone() };
    for step in steps {
        let possible = successors(case, decisions, &state);
        let Some((_, next)) = possible.iter().find(|(found, _)| found == step) else {
            let possible: Vec<_> = possible.iter().map(|(step, _)| step).collect();
            panic!("{step:?} cannot happen; these can: {possible:?}")
        };
        state = next.clone();
    }
    state
}

/// The steps that lead to the state with this fingerprint.
fn retrace(case: &Case, decisions: &mut Decisions, first: &State, seen: &Seen, last: u64) -> Vec<String> {
    let mut prints = vec![last];
    while prints.last() != Some(&fingerprint(first)) {
        prints.push(seen[&prints[prints.len() - 1]]);
    }
    let mut state = first.clone();
    let mut lines = Vec::new();
    for print in prints.iter().rev().skip(1) {
        let children = successors(case, decisions, &state);
        let (step, child) = children.into_iter().find(|(_, child)| fingerprint(child) == *print).unwrap();
        lines.push(if let Step::Make(_, _, o) | Step::Enter(_, _, o) = step {
            format!("{step:?}: {:?}", decisions.outcome(o))
        } else {
            format!("{step:?}")
        });
        state = child;
    }
    lines
}
