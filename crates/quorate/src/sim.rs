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

use std::collections::BTreeMap;
use std::fmt;
use std::marker::PhantomData;

use quorate_service::Context;
use quorate_sim::app::{App, Ask, Double, History};
use quorate_sim::checker::linearizable::{self, Model};
use quorate_sim::command::BATCHES;
use quorate_sim::describe::Words;
use quorate_sim::rng::Rng;
use quorate_sim::{report, swarm};
use quorate_wire::{ClientId, Cluster, SeqNum, Timestamp};

use crate::service::{Answer, Call, Family, Operation as _, Service as _, Typed, perform};
use crate::state::{InMemory, Pages, State as _};
use crate::value::{self, Dice, Value};

/// The search for a linearization gives up after this number of steps, without a result.
const TRIES_MAX: u64 = 20_000;

/// The totals of runs without a failure.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Number of runs.
    pub seeds: u64,
    /// Number of operations that took effect.
    pub commands: u64,
    /// Number of view changes.
    pub view_changes: u64,
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

/// Runs a cluster of four replicas of the service for each seed.
///
/// # Errors
///
/// The first run that failed.
pub fn check<F: Family>(seeds: impl IntoIterator<Item = u64>) -> Result<Report, Failure> {
    let mut report = Report::default();
    for seed in seeds {
        let Ok(cluster) = Cluster::tolerating(1) else { unreachable!("four replicas are a cluster") };
        let ask = swarm::Ask { cluster, config: None, batches: BATCHES, steps: 0, lines: 0, plain: false };
        let run = swarm::run_service(TypedApp::<F>(PhantomData), seed, &ask);
        if let Some(failure) = run.failure {
            return Err(Failure(Box::new(failure)));
        }
        report.seeds += 1;
        report.commands += run.counters.commands;
        report.view_changes += run.counters.view_changes;
    }
    Ok(report)
}

/// The service, as an application of the simulator.
struct TypedApp<F>(PhantomData<fn() -> F>);

impl<F> Clone for TypedApp<F> {
    fn clone(&self) -> Self {
        Self(PhantomData)
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
        Box::new(TypedDouble::<F> { state: BTreeMap::new(), service: PhantomData })
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
    let (answer, undone) = perform::<F>(Pages::new(&memory), operation, &call);
    let mut result = Vec::new();
    answer.encode(&mut result);
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
    service: PhantomData<fn() -> F>,
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
