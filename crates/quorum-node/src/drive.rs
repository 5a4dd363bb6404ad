//! A process of a register with its timers and its cryptography: the one `match` over `Action` outside of the simulator.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use quorate_quorum::accusation::{Accusation, Collector, Witness};
use quorate_quorum::step::{Failure, Outcome, Reject};
use quorate_quorum::{Action, Input, Message, ObjectId, Out, Process, Settings, Timer};
use quorate_wire::Principal;

use crate::crypto::Secrets;

/// Nanoseconds in a microsecond, in which the core counts.
const US: u64 = 1000;

/// What performs the actions of a step, in order.
pub(crate) trait Sink {
    /// Sends a message, once what was persisted before it is durable.
    fn send(&mut self, to: Principal, message: Message);
    /// Makes an object durable.
    fn persist(&mut self, process: &dyn Process, object: ObjectId);
    /// An operation has ended.
    fn done(&mut self, object: ObjectId, result: Result<Outcome, Failure>);
    /// A message was dropped.
    fn rejected(&mut self, from: Principal, reason: Reject);
}

/// A process that is driven.
pub(crate) struct Drive {
    process: Box<dyn Process + Send>,
    crypto: Secrets,
    timers: Timers,
    out: Out,
    /// What it finds in what it verifies (§15).
    collector: Option<(Collector, Arc<Settings>)>,
}

impl core::fmt::Debug for Drive {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Drive").field("crypto", &self.crypto).finish_non_exhaustive()
    }
}

impl Drive {
    pub(crate) fn new(process: Box<dyn Process + Send>, crypto: Secrets) -> Self {
        Self { process, crypto, timers: Timers::default(), out: Out::default(), collector: None }
    }

    /// The same, with a look at what it verifies.
    pub(crate) fn collecting(self, settings: Arc<Settings>) -> Self {
        Self { collector: Some((Collector::default(), settings)), ..self }
    }

    /// Returns what was found since the last call.
    #[inline]
    pub(crate) fn take_accusations(&mut self) -> Vec<Accusation> {
        let Some((collector, _)) = &mut self.collector else { return Vec::new() };
        if collector.has_found() { collector.take() } else { Vec::new() }
    }

    pub(crate) fn process(&self) -> &dyn Process {
        &*self.process
    }

    pub(crate) fn crypto(&self) -> &Secrets {
        &self.crypto
    }

    pub(crate) fn crypto_mut(&mut self) -> &mut Secrets {
        &mut self.crypto
    }

    /// Returns when the next timer runs out.
    #[inline]
    pub(crate) fn due(&self) -> u64 {
        self.timers.due()
    }

    /// Takes an input, and performs what follows.
    #[inline]
    pub(crate) fn step(&mut self, now_ns: u64, input: Input<'_>, sink: &mut impl Sink) {
        let Self { process, crypto, timers, out, collector } = self;
        if let Some((collector, settings)) = collector {
            let message = if let Input::Message { message, .. } = &input { Some(*message) } else { None };
            process.step(now_ns / US, input, &mut Witness::new(crypto, collector), out);
            if let Some(message) = message {
                collector.stepped(message, was_refused(out), settings, crypto);
            }
        } else {
            process.step(now_ns / US, input, crypto, out);
        }
        for action in out.actions.drain(..) {
            match action {
                Action::Send { to, message } => sink.send(to, message),
                Action::Persist(object) => sink.persist(&**process, object),
                Action::SetTimer { timer, after } => {
                    timers.set(timer, now_ns.saturating_add(after.saturating_mul(US)));
                }
                Action::Done { object, result } => sink.done(object, result),
                Action::Reject { from, reason } => sink.rejected(from, reason),
            }
        }
    }

    /// Runs the timers that are due.
    pub(crate) fn expire(&mut self, now_ns: u64, sink: &mut impl Sink) {
        // Those that are set in this time come in the next turn.
        for timer in self.timers.take_due(now_ns) {
            self.step(now_ns, Input::Timer(timer), sink);
        }
    }
}

/// Says whether a certificate was invalid, or a version does not follow.
fn was_refused(out: &Out) -> bool {
    let refused = |action: &Action| {
        matches!(action, Action::Reject { reason: Reject::BadProof | Reject::NotSuccessor, .. })
    };
    out.actions.iter().any(refused)
}

/// When each timer runs out. A client has one or two for each object that it uses, a server three.
#[derive(Debug, Default)]
struct Timers {
    at: BTreeMap<Timer, u64>,
    order: BTreeSet<(u64, Timer)>,
}

impl Timers {
    fn set(&mut self, timer: Timer, at: u64) {
        if let Some(before) = self.at.insert(timer, at) {
            self.order.remove(&(before, timer));
        }
        self.order.insert((at, timer));
    }

    fn due(&self) -> u64 {
        self.order.first().map_or(u64::MAX, |(at, _)| *at)
    }

    fn take_due(&mut self, now: u64) -> Vec<Timer> {
        let mut due = Vec::new();
        while let Some((at, timer)) = self.order.first().copied()
            && at <= now
        {
            self.order.pop_first();
            self.at.remove(&timer);
            due.push(timer);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_timer_that_is_set_again_runs_out_once() {
        let mut timers = Timers::default();
        assert_eq!((timers.due(), timers.take_due(u64::MAX).len()), (u64::MAX, 0));
        timers.set(Timer::Repair, 20);
        timers.set(Timer::Leases, 15);
        timers.set(Timer::Repair, 10);
        assert_eq!(timers.due(), 10);
        assert_eq!(timers.take_due(9), []);
        assert_eq!(timers.take_due(20), [Timer::Repair, Timer::Leases]);
        assert_eq!(timers.due(), u64::MAX);
        assert!(timers.at.is_empty());
    }
}
