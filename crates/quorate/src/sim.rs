//! Simulated clusters with injected faults for your own service, in `cargo test` or from its program.
//!
//! Each seed is a simulated cluster with real replicas and clients that send operations drawn from their type.
//! Faults: replicas that lie, crash, lose their state or run twice; a network that loses, duplicates and reorders
//! messages; disks that lose what they acknowledged.
//!
//! Checkers run after every step. All correct replicas execute the same operations in the same order, each once. Every
//! reply equals that of the service on plain maps in memory, without pages, undo or repetition; this detects services
//! that are not deterministic. [`Service::check`](crate::Service::check) holds after each call. The clients' history is
//! linearizable. After the faults end, every call finishes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;
use std::rc::Rc;

use quorate_service::Context;
use quorate_sim::app::{App, Ask, Double, History};
use quorate_sim::checker::linearizable::{self, Model};
use quorate_sim::command::BATCHES;
use quorate_sim::describe::Words;
use quorate_sim::rng::Rng;
use quorate_sim::{report, swarm};
use quorate_wire::{ClientId, Cluster, SeqNum, Timestamp};

use crate::service::{Answer, Call, Family, Operation as _, PANICKED, Service as _, Typed, perform};
use crate::state::{InMemory, Pages, State as _};
use crate::value::{self, Dice, Value};

/// The search for a linearization gives up after this number of steps, without a result.
const TRIES_MAX: u64 = 20_000;

/// The totals of runs without a failure. `{}` prints a table of the operations.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of runs.
    pub seeds: u64,
    /// Number of operations that took effect.
    pub commands: u64,
    /// Number of view changes.
    pub view_changes: u64,
    /// The answers to ordered operations, by the name of the operation.
    pub operations: BTreeMap<String, Answers>,
}

/// How often an operation was answered, and with what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Answers {
    /// Replies that are no `Err`.
    pub replies: u64,
    /// Replies that are an `Err`, which undid the call.
    pub errors: u64,
    /// Calls that were refused: the service panicked, the state was full, or a key was too long.
    pub refusals: u64,
}

impl Report {
    /// Returns how often an operation had a reply that was no `Err`.
    pub fn replied(&self, operation: &str) -> u64 {
        self.operations.get(operation).map_or(0, |answers| answers.replies)
    }

    /// Returns how often an operation was undone: by an `Err` or by a refusal.
    pub fn refused(&self, operation: &str) -> u64 {
        self.operations.get(operation).map_or(0, |answers| answers.errors + answers.refusals)
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { seeds, commands, view_changes, operations } = self;
        writeln!(f, "{seeds} seeds, {commands} commands, {view_changes} view changes")?;
        let width = operations.keys().map(String::len).max().unwrap_or(0).max("operation".len());
        write!(f, "  {:<width$} {:>10} {:>10} {:>10}", "operation", "replies", "errors", "refusals")?;
        for (name, Answers { replies, errors, refusals }) in operations {
            write!(f, "\n  {name:<width$} {replies:>10} {errors:>10} {refusals:>10}")?;
        }
        Ok(())
    }
}

/// A run that failed. `{:?}` prints the same as `{}`, so that a test can return it.
#[derive(Clone)]
pub struct Failure(Box<report::Failure>);

impl Failure {
    /// Returns the seed. The same seed and code repeat the failure.
    pub fn seed(&self) -> u64 {
        self.0.seed
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.0.to_string();
        let own: Vec<&str> = shown.lines().filter(|line| !line.contains(": quorate sim")).collect();
        // The commands of `quorate sim` do not know this service.
        let own: Vec<&str> = own.into_iter().filter(|line| !line.contains("   quorate sim replay")).collect();
        write!(f, "{}\n  again:   sim --seed {:#x}", own.join("\n"), self.0.seed)
    }
}

impl fmt::Debug for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl std::error::Error for Failure {}

/// Runs a cluster of four replicas of the service for each seed. A service that panics fails.
///
/// # Errors
///
/// The first run that failed.
pub fn check<F: Family>(seeds: impl IntoIterator<Item = u64>) -> Result<Report, Failure> {
    run::<F>(seeds, false)
}

/// Like [`check`], for a service that is meant to panic: a panic is undone, and answered by all replicas alike.
///
/// # Errors
///
/// The first run that failed.
pub fn check_with_panics<F: Family>(seeds: impl IntoIterator<Item = u64>) -> Result<Report, Failure> {
    run::<F>(seeds, true)
}

fn run<F: Family>(seeds: impl IntoIterator<Item = u64>, may_panic: bool) -> Result<Report, Failure> {
    let mut report = Report::default();
    for seed in seeds {
        let Ok(cluster) = Cluster::tolerating(1) else { unreachable!("four replicas are a cluster") };
        let ask = swarm::Ask {
            cluster,
            config: None,
            batches: BATCHES,
            steps: 0,
            lines: 0,
            workers: None,
            plain: false,
        };
        let app = TypedApp::<F> { tally: Tally::default(), may_panic, service: PhantomData };
        let tally = Rc::clone(&app.tally);
        let run = swarm::run_service(app, seed, &ask);
        if let Some(failure) = run.failure {
            return Err(Failure(Box::new(failure)));
        }
        report.seeds += 1;
        report.commands += run.counters.commands;
        report.view_changes += run.counters.view_changes;
        for (name, answers) in tally.borrow().iter() {
            let sum = report.operations.entry(name.clone()).or_default();
            sum.replies += answers.replies;
            sum.errors += answers.errors;
            sum.refusals += answers.refusals;
        }
    }
    Ok(report)
}

/// The answers of one run.
type Tally = Rc<RefCell<BTreeMap<String, Answers>>>;

/// The service, as an application of the simulator.
struct TypedApp<F> {
    tally: Tally,
    may_panic: bool,
    service: PhantomData<fn() -> F>,
}

impl<F> Clone for TypedApp<F> {
    fn clone(&self) -> Self {
        Self { tally: Rc::clone(&self.tally), may_panic: self.may_panic, service: PhantomData }
    }
}

impl<F: Family> Words for TypedApp<F> {
    fn operation(&self, operation: &[u8]) -> String {
        let operation = value::decode_all::<F::Operation>(operation);
        operation.map_or_else(|| "(malformed)".to_owned(), |operation| operation.to_json().to_string())
    }

    fn result(&self, result: &[u8]) -> String {
        match Answer::<F::Reply>::decode(result) {
            Some(Answer::Reply(reply)) => reply.to_json().to_string(),
            Some(Answer::Refused(why)) => format!("refused: {why}"),
            None => "(malformed)".to_owned(),
        }
    }
}

impl<F: Family> App for TypedApp<F> {
    type Service = Typed<F>;

    fn service(&self) -> Typed<F> {
        Typed::new()
    }

    fn double(&self) -> Box<dyn Double> {
        Box::new(TypedDouble { state: BTreeMap::new(), app: self.clone() })
    }

    fn draw(&self, rng: &mut Rng, _tag: u64) -> Ask {
        let operation = F::Operation::draw(&mut Dice::new(rng.below(u64::MAX)));
        let read_only = operation.is_read_only() && !rng.one_in(8);
        Ask { operation: value::encode(&operation), read_only }
    }

    /// An empty operation, which is refused.
    fn draw_apart(&self, _rng: &mut Rng, _tag: u64) -> Vec<u8> {
        Vec::new()
    }

    fn parse(&self, text: &str) -> Option<Ask> {
        let operation = F::Operation::from_json(&serde_json::from_str(text).ok()?).ok()?;
        Some(Ask { read_only: operation.is_read_only(), operation: value::encode(&operation) })
    }

    /// Histories with replies that depend on the time are not checked: clients do not know that time.
    fn check(&self, history: &History) -> Result<(), (u64, String)> {
        let mut state = BTreeMap::new();
        for call in history {
            let done = step::<F>(state, nobody(), &call.operation);
            if done.asked_time {
                return Ok(());
            }
            state = done.state;
        }
        match linearizable::check_within::<Whole<F>>(history, TRIES_MAX) {
            Ok(_) => Ok(()),
            Err(time) => Err((time, "the clients' history is not linearizable".to_owned())),
        }
    }
}

type Entries = BTreeMap<Vec<u8>, Vec<u8>>;

struct Done {
    state: Entries,
    result: Vec<u8>,
    asked_time: bool,
}

/// Executes an operation on plain maps. A refused operation leaves the state unchanged.
fn step<F: Family>(state: Entries, cx: Context, operation: &[u8]) -> Done {
    let (memory, call) = (InMemory::new(state.clone()), Call::new(cx));
    let mut result = Vec::new();
    let undone = perform::<F>(Pages::new(&memory), operation, &call, &mut result);
    let state = if undone { state } else { memory.into_entries() };
    Done { state, result, asked_time: call.asked_time() }
}

/// A placeholder for an unknown context.
fn nobody() -> Context {
    Context {
        client: ClientId::new(1, 0),
        timestamp: Timestamp(0),
        seq: SeqNum(0),
        index: 0,
        time_ns: 0,
        read_only: false,
    }
}

struct TypedDouble<F> {
    state: Entries,
    app: TypedApp<F>,
}

impl<F: Family> TypedDouble<F> {
    /// Counts an answer. A panic of the service ends the run, unless it is expected.
    #[allow(clippy::panic, reason = "the run ends here, with the reason")]
    fn count(&self, operation: &[u8], result: &[u8]) {
        // Only a faulty client sends an operation that the service does not have.
        let Some(operation) = value::decode_all::<F::Operation>(operation) else { return };
        let json = operation.to_json();
        let name = json.as_str().or_else(|| json.as_object()?.keys().next().map(String::as_str));
        let mut tally = self.app.tally.borrow_mut();
        let answers = tally.entry(name.unwrap_or("operation").to_owned()).or_default();
        match Answer::<F::Reply>::decode(result) {
            Some(Answer::Reply(reply)) if reply.is_refusal() => answers.errors += 1,
            Some(Answer::Reply(_)) => answers.replies += 1,
            Some(Answer::Refused(why)) => {
                answers.refusals += 1;
                if let Some(text) = why.strip_prefix(PANICKED).filter(|_| !self.app.may_panic) {
                    panic!(
                        "the service panicked in {json}: {text} (every replica undoes the call and refuses it; if this \
                         is meant, use sim::check_with_panics)"
                    );
                }
            }
            None => {}
        }
    }
}

impl<F: Family> Double for TypedDouble<F> {
    #[allow(clippy::panic, reason = "the run ends here, with the reason")]
    fn execute(&mut self, cx: &Context, operation: &[u8]) -> Vec<u8> {
        let done = step::<F>(std::mem::take(&mut self.state), *cx, operation);
        let memory = InMemory::new(done.state);
        if let Err(text) = F::At::<'_>::open(Pages::new(&memory)).check() {
            panic!("the service's own check: {text}");
        }
        self.state = memory.into_entries();
        self.count(operation, &done.result);
        done.result
    }
}

/// The entire state as one state machine, for the search.
struct Whole<F>(PhantomData<fn() -> F>);

impl<F: Family> Model for Whole<F> {
    type State = Entries;
    type Operation = Vec<u8>;
    type Outcome = Vec<u8>;

    fn apply(state: &Entries, operation: &Vec<u8>, outcome: Option<&Vec<u8>>) -> Option<Entries> {
        let done = step::<F>(state.clone(), nobody(), operation);
        outcome.is_none_or(|outcome| *outcome == done.result).then_some(done.state)
    }
}
