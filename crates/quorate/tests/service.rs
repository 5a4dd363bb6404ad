//! What a service may and may not do, and that it is noticed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use std::sync::atomic::{AtomicU64, Ordering};

use quorate::service::Typed;
use quorate::{Access, Call, Cell, Map, Operation, Service, State, value};
use quorate_service::Service as _;

/// A counter that knows several ways to go wrong.
#[derive(State)]
struct Odd<'a> {
    sum: Cell<'a, u64>,
    seen: Map<'a, u64, String>,
}

#[derive(Debug, Operation)]
enum Op {
    Add {
        by: u8,
    },
    /// Writes and then panics, for some numbers.
    Stumble {
        by: u8,
    },
    /// Says that it only reads, and writes.
    #[read_only]
    Sneak {
        note: String,
    },
    #[read_only]
    Sum,
    Time,
}

impl Service for Odd<'_> {
    type Operation = Op;
    type Reply = u64;

    fn execute(&mut self, op: &Op, call: &Call) -> u64 {
        match op {
            Op::Add { by } => self.sum.set(&(self.sum.get() + u64::from(*by))),
            Op::Stumble { by } => {
                self.sum.set(&(self.sum.get() + 1));
                assert!(*by % 2 == 0, "an odd number");
            }
            Op::Sneak { note } => {
                self.seen.insert(&self.seen.len(), note);
            }
            Op::Sum => {}
            Op::Time => return call.time_ns(),
        }
        self.sum.get() + self.seen.len()
    }

    fn access(operation: &Op, keys: &mut Access) {
        let Op::Stumble { by } = operation else { return keys.everything() };
        keys.write(u64::from(*by));
        assert!(*by % 2 == 0, "an odd number");
    }

    fn check(&self) -> Result<(), String> {
        let seen = u64::try_from(self.seen.iter().count()).unwrap_or(0);
        if seen == self.seen.len() { Ok(()) } else { Err("a map that cannot count".to_owned()) }
    }
}

/// A panic is undone and answered alike by all; what writes is ordered; the time is the agreed one.
#[test]
fn a_service_may_stumble() {
    let report = quorate::sim::check_with_panics::<Odd>(1..=8).unwrap();
    assert!(report.commands > 500, "{report:?}");
    let stumble = report.operations["Stumble"];
    assert!(stumble.replies > 0 && stumble.refusals > 0 && stumble.errors == 0, "{report}");
    assert!(report.to_string().contains("Stumble"), "{report}");
}

/// A panic is a bug of the service, unless the test says that it is meant.
#[test]
fn a_service_that_panics_is_told_so() {
    let failure = quorate::sim::check::<Odd>(1..=8).unwrap_err().to_string();
    assert!(failure.contains("the service panicked in {\"Stumble\""), "{failure}");
    assert!(failure.contains("an odd number") && failure.contains("check_with_panics"), "{failure}");
}

static CALLS: AtomicU64 = AtomicU64::new(0);

/// A service that answers from the memory of its process.
#[derive(State)]
struct Forgetful<'a> {
    _sum: Cell<'a, u64>,
}

#[derive(Debug, Operation)]
enum Ask {
    Next,
}

impl Service for Forgetful<'_> {
    type Operation = Ask;
    type Reply = u64;

    fn execute(&mut self, _op: &Ask, _call: &Call) -> u64 {
        CALLS.fetch_add(1, Ordering::Relaxed)
    }
}

#[test]
fn a_service_that_is_not_deterministic_is_found_out() {
    let failure = quorate::sim::check::<Forgetful>(1..=3).unwrap_err();
    assert!(failure.to_string().contains("FAILED"), "{failure}");
    assert!(failure.to_string().contains("again:   sim --seed 0x"), "{failure}");
}

/// An invariant of the service's own.
#[derive(State)]
struct Broken<'a> {
    count: Cell<'a, u64>,
}

impl Service for Broken<'_> {
    type Operation = Ask;
    type Reply = u64;

    fn execute(&mut self, _op: &Ask, _call: &Call) -> u64 {
        self.count.set(&(self.count.get() + 1));
        self.count.get()
    }

    fn check(&self) -> Result<(), String> {
        if self.count.get() < 50 { Ok(()) } else { Err("fifty are too many".to_owned()) }
    }
}

#[test]
fn a_broken_invariant_is_told() {
    let failure = quorate::sim::check::<Broken>([1]).unwrap_err();
    assert!(failure.to_string().contains("fifty are too many"), "{failure}");
}

/// PX-1: any client can send the operation, so a panic in the declaration must not stop a replica.
#[test]
fn a_declaration_that_panics_declares_everything() {
    let keys_of = |operation: &[u8]| {
        let mut keys = Access::new();
        Typed::<Odd<'_>>::new().access(operation, &mut keys);
        keys.keys().map(<[_]>::len)
    };
    assert_eq!(keys_of(&value::encode(&Op::Stumble { by: 2 })), Some(1));
    assert_eq!(keys_of(&value::encode(&Op::Stumble { by: 1 })), None);
    assert_eq!(keys_of(b"no operation"), None);
}
