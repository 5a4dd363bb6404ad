//! What a service may and may not do, and that it is noticed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use std::sync::atomic::{AtomicU64, Ordering};

use quorate::service::{Answer, Family, Typed};
use quorate::{Access, Call, Cell, Map, Operation, Service, State, value};
use quorate_service::{Alone, Executor, Options, Service as _};
use quorate_wire::digest::Domains;
use quorate_wire::{ClientId, ClusterId, Digest, Timestamp};

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

/// A service whose code relies on what it has written.
#[derive(State)]
struct Trusting<'a> {
    count: Cell<'a, u64>,
}

#[derive(Debug, Operation)]
enum Trust {
    /// Counts up to a number. Says that it only reads.
    #[read_only]
    CountTo { most: u8 },
}

thread_local! {
    /// How often a service has counted.
    static COUNTED: std::cell::Cell<u64> = const { std::cell::Cell::new(0) };
}

fn count_to(count: &mut Cell<'_, u64>, most: u64) {
    COUNTED.set(0);
    while count.get() < most {
        COUNTED.set(COUNTED.get() + 1);
        assert!(COUNTED.get() < 100_000, "endless");
        count.set(&(count.get() + 1));
    }
}

impl Service for Trusting<'_> {
    type Operation = Trust;
    type Reply = u64;

    fn execute(&mut self, op: &Trust, _call: &Call) -> u64 {
        let Trust::CountTo { most } = op;
        count_to(&mut self.count, u64::from(*most));
        self.count.get()
    }
}

/// A service with keys that are too long.
#[derive(State)]
struct Naming<'a> {
    count: Cell<'a, u64>,
    names: Map<'a, String, u64>,
}

#[derive(Debug, Operation)]
enum Name {
    /// Counts to the number of names, at least 1.
    Long { bytes: u32 },
    /// Has a guard that writes when it is dropped.
    Guarded { bytes: u32 },
}

/// Counts when it is dropped.
struct Guard<'s, 'a>(&'s mut Cell<'a, u64>);

impl Drop for Guard<'_, '_> {
    fn drop(&mut self) {
        self.0.set(&(self.0.get() + 1));
    }
}

impl Service for Naming<'_> {
    type Operation = Name;
    type Reply = u64;

    fn execute(&mut self, op: &Name, _call: &Call) -> u64 {
        let name = |bytes: &u32| "n".repeat(usize::try_from(*bytes).unwrap());
        match op {
            Name::Long { bytes } => {
                self.names.insert(&name(bytes), &1);
                count_to(&mut self.count, self.names.len().max(1));
            }
            Name::Guarded { bytes } => {
                let _guard = Guard(&mut self.count);
                self.names.insert(&name(bytes), &1);
            }
        }
        self.count.get()
    }
}

fn ask<F: Family>(alone: &mut Alone<Typed<F>>, op: &F::Operation) -> Answer<F::Reply> {
    let mut out = Vec::new();
    alone.execute(1, &value::encode(op), &mut out);
    Answer::decode(&out).unwrap()
}

/// L84: where the state cannot be read or written, the service's code does not go on: it might never end.
#[test]
fn l84_a_call_ends_where_the_state_fails() {
    let mut naming = Alone::new(Typed::<Naming>::new(), &Options::default()).unwrap();
    assert_eq!(ask(&mut naming, &Name::Long { bytes: 100 }), Answer::Reply(1));
    let too_long = || Answer::Refused("a key is too long".to_owned());
    COUNTED.set(0);
    assert_eq!(ask(&mut naming, &Name::Long { bytes: 9_900 }), too_long());
    assert_eq!(COUNTED.get(), 0);
    // What runs on the way out is undone, too.
    assert_eq!(ask(&mut naming, &Name::Guarded { bytes: 9_900 }), too_long());
    assert_eq!(ask(&mut naming, &Name::Guarded { bytes: 100 }), Answer::Reply(2));
    assert_eq!(ask(&mut naming, &Name::Long { bytes: 100 }), Answer::Reply(2));
}

/// L84: a read that writes after all ends at its first write, and is ordered.
#[test]
fn l84_a_read_ends_where_it_writes() {
    let mut out = Vec::new();
    let most = value::encode(&Trust::CountTo { most: 9 });
    let mut trusting = Alone::new(Typed::<Trusting>::new(), &Options::default()).unwrap();
    assert!(trusting.execute(1, &most, &mut out), "it is ordered");
    assert_eq!(COUNTED.get(), 9);
    let domains = Domains::new(ClusterId([3; 32]));
    let executor = Executor::new(Typed::<Trusting>::new(), domains, Options::default());
    let read = executor.read((ClientId::new(1, 0), Timestamp(1), &Digest::ZERO), &most, &mut out);
    assert_eq!(read, None, "it needs to be ordered");
    assert_eq!(COUNTED.get(), 1);
}

/// L84: all replicas end such a call in the same place.
#[test]
fn l84_replicas_agree_where_a_call_ends() {
    let report = quorate::sim::check::<Trusting>(1..=4).unwrap();
    assert!(report.replied("CountTo") > 0, "{report}");
}
