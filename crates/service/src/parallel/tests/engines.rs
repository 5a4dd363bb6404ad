//! Every engine against a plain model of the dependencies, and wrong versions of the parallelizer that must be found.

use alloc::collections::BTreeSet;
use alloc::vec::Vec;
use std::format;
use std::string::String;

use quorate_wire::SeqNum;

use crate::parallel::parallelizer::{BUFFERED_BYTES_MAX, UNSETTLED_MAX, UNSETTLED_MAX_BY_PAIRS};
use crate::parallel::*;
use crate::planted::plant;
use crate::testing::Xorshift;

/// Rules from random matrices. An operation is `function | everything | key, class | key, class | ...`.
#[derive(Clone, Debug)]
struct Random {
    functions: usize,
    ocm: Vec<bool>,
    oacm: Vec<bool>,
}

impl Random {
    fn new(random: &mut Xorshift) -> Self {
        let functions = usize::try_from(1 + random.below(5)).unwrap();
        let mut matrix = |one_in: u64| {
            let mut of = alloc::vec![false; functions * functions];
            for a in 0..functions {
                for b in 0..=a {
                    let depends = random.below(one_in) == 0;
                    (of[a * functions + b], of[b * functions + a]) = (depends, depends);
                }
            }
            of
        };
        Self { functions, ocm: matrix(8), oacm: matrix(2) }
    }

    fn operation(&self, random: &mut Xorshift, keys: u64) -> Vec<u8> {
        let class = |random: &mut Xorshift| u8::try_from(random.below(self.functions as u64)).unwrap();
        let mut operation = alloc::vec![class(random), u8::from(random.below(60) == 0)];
        for _ in 0..random.below(4) {
            operation.push(u8::try_from(random.below(keys)).unwrap());
            operation.push(class(random));
        }
        operation
    }
}

impl Rules for Random {
    fn matrices(&self) -> Result<Matrices, MatrixError> {
        let at = |a: usize, b: usize| a * self.functions + b;
        Matrices::new(self.functions, |a, b| self.ocm[at(a, b)], |a, b| self.oacm[at(a, b)])
    }

    fn parse(&self, operation: &[u8], arguments: &mut Arguments) {
        arguments.begin(usize::from(operation[0]));
        for pair in operation[2..].chunks_exact(2).take(100) {
            arguments.key_as(u64::from(pair[0]), pair[1]);
        }
        if operation[1] == 1 {
            arguments.everything();
        }
    }
}

/// The definition, written out: no shared code with the engines.
fn depends(rules: &Random, a: &Requested, b: &Requested) -> bool {
    let clash = |operation: &[u8]| {
        let mut classes: Vec<(u8, u8)> =
            operation[2..].chunks_exact(2).map(|pair| (pair[0], pair[1])).collect();
        classes.sort_unstable();
        classes.dedup();
        classes.windows(2).any(|two| two[0].0 == two[1].0)
    };
    let everything =
        |request: &Requested| request.barrier || request.operation[1] == 1 || clash(&request.operation);
    if a.lane == b.lane || everything(a) || everything(b) {
        return true;
    }
    let at = |a: u8, b: u8| usize::from(a) * rules.functions + usize::from(b);
    rules.ocm[at(a.operation[0], b.operation[0])]
        || a.operation[2..].chunks_exact(2).any(|left| {
            b.operation[2..]
                .chunks_exact(2)
                .any(|right| left[0] == right[0] && rules.oacm[at(left[1], right[1])])
        })
}

#[derive(Clone, Debug)]
struct Requested {
    position: Position,
    lane: u64,
    operation: Vec<u8>,
    barrier: bool,
    status: Status,
    /// The places of all requests that it depends on, directly or not.
    before: BTreeSet<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Status {
    Waiting,
    Running,
    Removed,
}

macro_rules! check {
    ($holds:expr, $($what:tt)*) => {
        if !$holds {
            return Err(format!($($what)*));
        }
    };
}

/// Runs a random schedule and compares each step with the model.
fn schedule(kind: EngineKind, seed: u64) -> Result<(), String> {
    let mut random = Xorshift::new(seed);
    let rules = Random::new(&mut random);
    let mut parallelizer = Parallelizer::new(kind, rules.clone(), random.next()).unwrap();
    let mut requests: Vec<Requested> = Vec::new();
    let (mut position, mut settled) = (Position { seq: SeqNum(1), index: 0 }, 0);
    let (keys, lanes) = (1 + random.below(12), 1 + random.below(30));
    let mut limit = None;
    for step in 0..400 {
        let is_over = step >= 250;
        match random.below(8) {
            0..=3 if !is_over => {
                let operation = rules.operation(&mut random, keys);
                let (lane, barrier) = (random.below(lanes), random.below(40) == 0);
                let mut new = Requested {
                    position,
                    lane,
                    operation,
                    barrier,
                    status: Status::Waiting,
                    before: BTreeSet::new(),
                };
                for at in (0..requests.len()).rev() {
                    if depends(&rules, &requests[at], &new) && new.before.insert(at) {
                        let above = requests[at].before.clone();
                        new.before.extend(above);
                    }
                }
                check!(
                    parallelizer.insert(position, lane, &new.operation, barrier).is_ok(),
                    "refused at {step}"
                );
                requests.push(new);
                position.index += 1;
                if random.below(4) == 0 {
                    position = Position { seq: position.seq.next(), index: 0 };
                }
            }
            4 if !is_over && random.below(4) == 0 => {
                limit =
                    (random.below(3) > 0).then_some(SeqNum(position.seq.0.saturating_sub(random.below(4))));
                parallelizer.sync(limit);
            }
            4 | 5 => issue(kind, &mut parallelizer, &mut requests, limit)?,
            6 => {
                let running: Vec<usize> =
                    (0..requests.len()).filter(|at| requests[*at].status == Status::Running).collect();
                if !running.is_empty() {
                    let at = running[usize::try_from(random.below(running.len() as u64)).unwrap()];
                    requests[at].status = Status::Removed;
                    parallelizer.remove_request(requests[at].position, 10);
                }
            }
            _ => {
                while parallelizer.oldest().is_some_and(|(_, has_run)| has_run) && random.below(3) > 0 {
                    parallelizer.settled();
                    settled += 1;
                }
            }
        }
    }
    // No deadlock: one worker after another gets through all of them.
    parallelizer.sync(None);
    for request in requests.iter_mut().filter(|request| request.status == Status::Running) {
        request.status = Status::Removed;
        parallelizer.remove_request(request.position, 0);
    }
    while let Some(at) = requests.iter().position(|request| request.status == Status::Waiting) {
        issue(kind, &mut parallelizer, &mut requests, None)?;
        // PX-2: the oldest is the next one, for nobody else is running.
        check!(requests[at].status == Status::Running, "request {at} is the oldest and was not issued");
        requests[at].status = Status::Removed;
        parallelizer.remove_request(requests[at].position, 0);
    }
    while !parallelizer.is_empty() {
        parallelizer.settled();
        settled += 1;
    }
    check!(settled == requests.len(), "{settled} settled of {}", requests.len());
    check!(parallelizer.bytes() == 0, "{} bytes are left", parallelizer.bytes());
    Ok(())
}

fn issue(
    kind: EngineKind,
    parallelizer: &mut Parallelizer<Random>,
    requests: &mut [Requested],
    limit: Option<SeqNum>,
) -> Result<(), String> {
    let may = |at: usize| {
        let request = &requests[at];
        request.status == Status::Waiting
            && limit.is_none_or(|limit| request.position.seq <= limit)
            && match kind {
                EngineKind::Free => true,
                EngineKind::Sequential => requests[..at].iter().all(|other| other.status == Status::Removed),
                EngineKind::Matrix | EngineKind::GroupIndex => {
                    request.before.iter().all(|before| requests[*before].status == Status::Removed)
                }
            }
    };
    let oldest = (0..requests.len()).find(|at| may(*at));
    let issued = parallelizer
        .next_request()
        .map(|position| requests.iter().position(|request| request.position == position).unwrap());
    // PX-1 and PX-2, and no dependency that is not declared.
    check!(issued == oldest, "{issued:?} was issued, {oldest:?} is the oldest that may run");
    if let Some(at) = issued {
        requests[at].status = Status::Running;
    }
    Ok(())
}

const KINDS: [EngineKind; 4] =
    [EngineKind::Sequential, EngineKind::Matrix, EngineKind::GroupIndex, EngineKind::Free];

/// PX-1, PX-2: every engine issues exactly what the model allows, the oldest first, and never stops.
#[test]
fn px1_px2_engines_issue_what_the_definition_allows() {
    for kind in KINDS {
        for seed in 0..200 {
            schedule(kind, seed).unwrap_or_else(|error| panic!("{kind:?} seed {seed}: {error}"));
        }
    }
}

/// X2: thousands of requests that all depend on each other, or on one, pass through in order.
#[test]
fn x2_a_flood_of_dependencies() {
    for kind in [EngineKind::Matrix, EngineKind::GroupIndex] {
        let rules = Random { functions: 1, ocm: [false].into(), oacm: [true].into() };
        let mut parallelizer = Parallelizer::new(kind, rules, 7).unwrap();
        let count = if kind == EngineKind::Matrix { 1000 } else { 60_000 };
        for index in 0..count {
            let position = Position { seq: SeqNum(1), index };
            parallelizer.insert(position, u64::from(index), &[0, 0, 9, 0], false).unwrap();
        }
        for index in 0..count {
            let position = parallelizer.next_request();
            assert_eq!(position, Some(Position { seq: SeqNum(1), index }));
            assert_eq!(parallelizer.next_request(), None);
            parallelizer.remove_request(position.unwrap(), 0);
            parallelizer.settled();
        }
        assert!(parallelizer.is_empty());
    }
}

/// Returns the pairs and groups looked at for each request, with this many pending.
fn cost(kind: EngineKind, pending: u32) -> f64 {
    let rules = Random { functions: 2, ocm: [false; 4].into(), oacm: [false, true, true, true].into() };
    let mut parallelizer = Parallelizer::new(kind, rules, 3).unwrap();
    let mut random = Xorshift::new(1);
    let operation = |random: &mut Xorshift| {
        let key = |random: &mut Xorshift| u8::try_from(random.below(200)).unwrap();
        [u8::from(random.below(2) == 0), 0, key(random), 1, key(random), 0]
    };
    for index in 0..pending {
        let position = Position { seq: SeqNum(1), index };
        parallelizer.insert(position, random.next(), &operation(&mut random), false).unwrap();
    }
    let before = parallelizer.steps();
    for index in 0..1000 {
        let position = Position { seq: SeqNum(2), index };
        parallelizer.insert(position, random.next(), &operation(&mut random), false).unwrap();
        let issued = parallelizer.next_request().unwrap();
        parallelizer.remove_request(issued, 0);
        while parallelizer.oldest().is_some_and(|(_, has_run)| has_run) {
            parallelizer.settled();
        }
    }
    f64::from(u32::try_from(parallelizer.steps() - before).unwrap()) / 1000.0
}

/// The index looks at as many groups for a request with 60,000 pending as with 1,000; the paper's comparison does not.
#[test]
fn tracking_does_not_depend_on_what_is_pending() {
    let (few, many) = (cost(EngineKind::GroupIndex, 1000), cost(EngineKind::GroupIndex, 60_000));
    assert!(many <= few * 1.2, "{few} groups a request, then {many}");
    assert!(cost(EngineKind::GroupIndex, 10) <= many);
    assert!(many < 12.0, "two keys, a lane and all: {many}");
    assert!(
        cost(EngineKind::Matrix, 900) > 20.0 * cost(EngineKind::Matrix, 10),
        "the paper's comparison grows"
    );
}

fn bounded(kind: EngineKind) -> Result<(), String> {
    let rules = Random { functions: 1, ocm: [false].into(), oacm: [true].into() };
    let mut parallelizer = Parallelizer::new(kind, rules, 1).unwrap();
    let max = if kind == EngineKind::Matrix { UNSETTLED_MAX_BY_PAIRS } else { UNSETTLED_MAX };
    let position = |at: usize| Position { seq: SeqNum(1), index: u32::try_from(at).unwrap() };
    for at in 0..max {
        check!(parallelizer.insert(position(at), at as u64, &[0, 0], false).is_ok(), "{at} of {max} refused");
    }
    check!(
        parallelizer.insert(position(max), 0, &[0, 0], false) == Err(Full),
        "more than {max} are admitted"
    );
    let first = parallelizer.next_request().unwrap();
    parallelizer.remove_request(first, BUFFERED_BYTES_MAX);
    check!(parallelizer.insert(position(max), 0, &[0, 0], false) == Err(Full), "it has not settled");
    parallelizer.settled();
    check!(parallelizer.insert(position(max), 0, &[0, 0], false).is_ok(), "there is room again");
    parallelizer.drain();
    check!(parallelizer.is_empty() && parallelizer.bytes() == 0, "a drain leaves nothing");
    // The oldest is always admitted, and bytes count.
    let huge = alloc::vec![0; BUFFERED_BYTES_MAX + 1];
    check!(parallelizer.insert(position(max + 1), 0, &huge, false).is_ok(), "the oldest is always admitted");
    check!(parallelizer.insert(position(max + 2), 0, &[0, 0], false) == Err(Full), "bytes are bounded");
    let first = parallelizer.next_request().unwrap();
    parallelizer.remove_request(first, BUFFERED_BYTES_MAX);
    parallelizer.settled();
    check!(parallelizer.insert(position(max + 2), 0, &huge, false).is_ok(), "the oldest is always admitted");
    Ok(())
}

/// PX-G: the number of unsettled requests and their bytes are bounded, and the oldest is always admitted.
#[test]
fn px_g_what_is_unsettled_is_bounded() {
    for kind in KINDS {
        bounded(kind).unwrap_or_else(|error| panic!("{kind:?}: {error}"));
    }
}

/// Requests with more than 64 keys, and requests of which the service declares nothing, depend on all others.
#[test]
fn too_many_keys_count_as_everything() {
    let mut arguments = Arguments::default();
    arguments.begin(0);
    (0..64).for_each(|key| arguments.key(key));
    assert!(!arguments.is_everything());
    arguments.key(63);
    assert!(!arguments.is_everything(), "the same key again");
    arguments.key(64);
    assert!(arguments.is_everything());
    assert!(arguments.keys().is_empty());
}

/// The matrices are symmetric, or refused at the start with both functions named.
#[test]
fn matrices_are_symmetric() {
    let one_way = |a: usize, b: usize| (a, b) == (3, 1);
    let refused = Matrices::new(5, one_way, |_, _| false);
    assert_eq!(refused, Err(MatrixError::Asymmetric(3, 1)));
    assert_eq!(Matrices::new(5, |_, _| false, one_way), refused);
    assert_eq!(Matrices::new(64, |_, _| false, |_, _| false), Err(MatrixError::TooMany));
    let text = "the rules are not symmetric: function 3 depends on 1, but not 1 on 3";
    assert_eq!(format!("{}", refused.unwrap_err()), text);
}

/// Each of eleven wrong versions of the parallelizer is found by the tests above.
#[test]
fn wrong_versions_are_found() {
    for error in 1..=11 {
        plant(error);
        let found = |kind: EngineKind| {
            let run = std::panic::AssertUnwindSafe(|| {
                bounded(kind).is_err() || (0..100).any(|seed| schedule(kind, seed).is_err())
            });
            std::panic::catch_unwind(run).unwrap_or(true)
        };
        let by: Vec<EngineKind> = KINDS.into_iter().filter(|kind| found(*kind)).collect();
        plant(0);
        let expected: &[EngineKind] = match error {
            1..=3 | 11 => &[EngineKind::Matrix, EngineKind::GroupIndex],
            4..=6 => &[EngineKind::GroupIndex],
            8 => &[EngineKind::Sequential, EngineKind::Matrix, EngineKind::GroupIndex],
            _ => &KINDS,
        };
        assert_eq!(by, expected, "error {error}");
    }
}
