//! Checks that a single machine could have given the history that the clients saw (I14).
//!
//! The search of Wing and Gong with Lowe's memory of visited states: take an operation that no other one precedes,
//! check whether the model gives the result that its client saw, and continue; when stuck, take the last one back.
//! Two paths to the same set of operations and the same state count as one. Histories are checked key by key, which
//! is sound because no operation touches two keys.
//!
//! An operation without an answer may be taken at any time after it was requested, or never. It is tried when no
//! answered one fits: most of them never happen, and taking them first would try all their subsets at every step.

use std::collections::BTreeSet;
use std::fmt::Debug;

/// A sequential machine for one key.
pub trait Model {
    /// Its state; the first one is the default.
    type State: Clone + Default + Ord;
    /// The operations.
    type Operation: Debug;
    /// The results.
    type Outcome: Debug;

    /// Returns the state after `operation`, or nothing if the machine would not have answered
    /// `outcome`. No outcome: no client saw the answer.
    fn apply(
        state: &Self::State,
        operation: &Self::Operation,
        outcome: Option<&Self::Outcome>,
    ) -> Option<Self::State>;
}

/// An operation as its client saw it. Times are places in the order of all invocations and returns.
#[derive(Clone, Debug)]
pub struct Call<O, R> {
    /// When it was asked.
    pub invoked: u64,
    /// When it was answered and what, if it was.
    pub returned: Option<(u64, R)>,
    /// The operation.
    pub operation: O,
}

/// Returns whether the calls, all on one key, have an order that the model and real time allow. If not,
/// returns the time of the return at which no order was left.
pub fn check<M: Model>(calls: &[Call<M::Operation, M::Outcome>]) -> Result<(), u64> {
    check_within::<M>(calls, u64::MAX).map(|_| ())
}

/// Like [`check`], but gives up after this many steps of the search: then it returns false, and nothing is shown.
pub fn check_within<M: Model>(calls: &[Call<M::Operation, M::Outcome>], steps_max: u64) -> Result<bool, u64> {
    let mut list = List::new(calls);
    let mut state = M::State::default();
    let mut taken = Taken::new(calls.len());
    let mut tried: BTreeSet<(Taken, M::State)> = BTreeSet::new();
    let mut way: Vec<(usize, M::State)> = Vec::new();
    let mut furthest = 0;
    let mut at = list.first();
    let mut steps = 0;
    // How many calls with an answer are left, and whether those without one are tried.
    let mut answered = calls.iter().filter(|call| call.returned.is_some()).count();
    let mut late = false;
    loop {
        if answered == 0 {
            return Ok(true); // what nobody saw need not have happened
        }
        let Some(event) = at else { unreachable!("what was answered has a return ahead") };
        steps += 1;
        if steps > steps_max {
            return Ok(false);
        }
        let call = &calls[event.call];
        if event.is_return {
            // Nothing that was answered fits before this return. Then perhaps something that was not.
            if !late {
                (at, late) = (list.first(), true);
                continue;
            }
            // Nothing is left: take the last choice back.
            furthest = furthest.max(event.time);
            let Some((newest, before)) = way.pop() else { return Err(furthest) };
            state = before;
            taken.remove(newest);
            list.restore(newest);
            late = calls[newest].returned.is_none();
            answered += usize::from(!late);
            at = list.after_invocation(newest);
            continue;
        }
        if late != call.returned.is_none() {
            at = list.after_invocation(event.call);
            continue;
        }
        let outcome = call.returned.as_ref().map(|(_, outcome)| outcome);
        let next = M::apply(&state, &call.operation, outcome).filter(|next| {
            taken.insert(event.call);
            tried.insert((taken.clone(), next.clone()))
        });
        if let Some(next) = next {
            way.push((event.call, core::mem::replace(&mut state, next)));
            list.remove(event.call);
            answered -= usize::from(!late);
            (at, late) = (list.first(), false);
        } else {
            taken.remove(event.call);
            at = list.after_invocation(event.call);
        }
    }
}

/// A set of calls.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Taken(Vec<u64>);

impl Taken {
    fn new(len: usize) -> Self {
        Self(vec![0; len.div_ceil(64)])
    }

    fn insert(&mut self, i: usize) {
        self.0[i / 64] |= 1 << (i % 64);
    }

    fn remove(&mut self, i: usize) {
        self.0[i / 64] &= !(1 << (i % 64));
    }
}

#[derive(Clone, Copy, Debug)]
struct Event {
    call: usize,
    is_return: bool,
    time: u64,
}

/// The events of the calls that are left, in the order of time: a doubly linked list from which a call
/// can be taken and to which it can be given back in constant time. Calls never answered return last.
#[derive(Debug)]
struct List {
    events: Vec<Event>,
    /// The positions of each call's invocation and return.
    places: Vec<(usize, usize)>,
    /// Before and after each event; the entry behind the last event is the list's head.
    prev: Vec<usize>,
    next: Vec<usize>,
}

impl List {
    fn new<O, R>(calls: &[Call<O, R>]) -> Self {
        let mut events: Vec<Event> = Vec::with_capacity(2 * calls.len());
        for (call, c) in calls.iter().enumerate() {
            events.push(Event { call, is_return: false, time: c.invoked });
            let time = c.returned.as_ref().map_or(u64::MAX, |(time, _)| *time);
            events.push(Event { call, is_return: true, time });
        }
        events.sort_by_key(|event| (event.time, event.is_return, event.call));
        let mut places = vec![(0, 0); calls.len()];
        for (i, event) in events.iter().enumerate() {
            if event.is_return {
                places[event.call].1 = i;
            } else {
                places[event.call].0 = i;
            }
        }
        let len = events.len() + 1;
        let prev = (0..len).map(|i| (i + len - 1) % len).collect();
        let next = (0..len).map(|i| (i + 1) % len).collect();
        Self { events, places, prev, next }
    }

    fn head(&self) -> usize {
        self.events.len()
    }

    fn first(&self) -> Option<Event> {
        self.events.get(self.next[self.head()]).copied()
    }

    fn after_invocation(&self, call: usize) -> Option<Event> {
        self.events.get(self.next[self.places[call].0]).copied()
    }

    fn remove(&mut self, call: usize) {
        let (invocation, answer) = self.places[call];
        for i in [invocation, answer] {
            let (prev, next) = (self.prev[i], self.next[i]);
            self.next[prev] = next;
            self.prev[next] = prev;
        }
    }

    fn restore(&mut self, call: usize) {
        let (invocation, answer) = self.places[call];
        for i in [answer, invocation] {
            let (prev, next) = (self.prev[i], self.next[i]);
            self.next[prev] = i;
            self.prev[next] = i;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rng::{Concern, Rng};

    /// A register: `Some` writes, `None` reads.
    struct Register;

    impl Model for Register {
        type State = u8;
        type Operation = Option<u8>;
        type Outcome = u8;

        fn apply(state: &u8, operation: &Option<u8>, outcome: Option<&u8>) -> Option<u8> {
            match operation {
                Some(value) => Some(*value),
                None => outcome.is_none_or(|seen| seen == state).then_some(*state),
            }
        }
    }

    type Seen = Call<Option<u8>, u8>;

    fn write(invoked: u64, returned: u64, value: u8) -> Seen {
        Call { invoked, returned: Some((returned, 0)), operation: Some(value) }
    }

    fn read(invoked: u64, returned: u64, value: u8) -> Seen {
        Call { invoked, returned: Some((returned, value)), operation: None }
    }

    #[test]
    fn reads_may_see_either_side_of_a_concurrent_write() {
        for seen in [0, 7] {
            assert_eq!(check::<Register>(&[write(1, 4, 7), read(2, 3, seen)]), Ok(()));
        }
        assert_eq!(check::<Register>(&[write(1, 4, 7), read(2, 3, 9)]), Err(3));
    }

    #[test]
    fn a_stale_read_after_the_write_returned_is_found() {
        assert_eq!(check::<Register>(&[write(1, 2, 7), read(3, 4, 0)]), Err(4));
    }

    /// Two reads may not see a concurrent write and then not see it.
    #[test]
    fn a_write_does_not_come_and_go() {
        let calls = [write(1, 10, 7), read(2, 3, 7), read(4, 5, 0)];
        assert_eq!(check::<Register>(&calls), Err(5));
    }

    /// An operation whose client never heard of it may have happened at any later time, or not at all.
    #[test]
    fn an_unanswered_write_may_take_effect_late_or_never() {
        let lost = Call { invoked: 1, returned: None, operation: Some(7) };
        for seen in [0, 7] {
            assert_eq!(check::<Register>(&[lost.clone(), read(8, 9, 0), read(10, 11, seen)]), Ok(()));
        }
        assert_eq!(check::<Register>(&[lost, read(8, 9, 7), read(10, 11, 0)]), Err(11));
    }

    /// All orders that real time allows, one after the other.
    fn by_hand(calls: &[Seen], left: &mut Vec<usize>, state: u8) -> bool {
        let soonest =
            left.iter().filter_map(|&i| calls[i].returned.map(|(t, _)| t)).min().unwrap_or(u64::MAX);
        if left.iter().all(|&i| calls[i].returned.is_none()) {
            return true;
        }
        (0..left.len()).any(|k| {
            let call = &calls[left[k]];
            let seen = call.returned.as_ref().map(|(_, r)| r);
            let Some(next) = Register::apply(&state, &call.operation, seen) else { return false };
            if call.invoked > soonest {
                return false;
            }
            let i = left.remove(k);
            let ok = by_hand(calls, left, next);
            left.insert(k, i);
            ok
        })
    }

    /// The search agrees with trying everything, on small random histories of both kinds.
    #[test]
    fn it_agrees_with_the_plainest_search() {
        let mut rng = Rng::new(9, Concern::Workload);
        let (mut yes, mut no) = (0, 0);
        for _ in 0..4000 {
            let calls: Vec<Seen> = (0..rng.between(2, 6))
                .map(|_| {
                    let invoked = rng.between(1, 20);
                    let value = u8::try_from(rng.below(3)).unwrap();
                    let operation = rng.one_in(2).then_some(value);
                    let returned = (!rng.one_in(5)).then(|| (invoked + rng.between(1, 10), value));
                    Call { invoked, returned, operation }
                })
                .collect();
            let expected = by_hand(&calls, &mut (0..calls.len()).collect(), 0);
            assert_eq!(check::<Register>(&calls).is_ok(), expected, "{calls:?}");
            yes += u32::from(expected);
            no += u32::from(!expected);
        }
        assert!(yes > 500 && no > 500, "{yes} yes, {no} no");
    }
}
