//! Clients that write down what they asked for and what they were told.
//!
//! Few keys are fought over at a time, and new ones every few hundred operations: so there is contention, and
//! still no key's history is so long that looking for its order takes forever.

use std::fmt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use quorate_node::Caller;
use quorate_node::caller::CallerOptions;
use quorate_service::kv::{Answer, Failure, Operation};
use quorate_sim::app::History;
use quorate_sim::checker::linearizable::Call;
use quorate_sim::rng::{Concern, Rng};

use crate::support::PATIENCE;

/// Operations in progress of each client.
const LANES: u16 = 16;
/// After this an outcome is unknown: short enough that faults bring it about.
const DEADLINE: Duration = Duration::from_millis(1500);
/// Operations that share their keys.
const EPOCH: u64 = 1024;
/// How many keys these have, and how many counters.
const KEYS: u64 = 12;
const COUNTERS: u64 = 4;
/// Operations of a client until it is closed, with what is in progress, and opened again.
const LIFE: u64 = 4000;

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    /// The order of all invocations and returns.
    time: AtomicU64,
    /// Operations so far, refused ones included: what the keys are taken from.
    tags: AtomicU64,
    answered: AtomicU64,
    unknown: AtomicU64,
    refused: AtomicU64,
    lives: AtomicU64,
    history: Mutex<History>,
}

/// What has come of the operations.
#[derive(Debug)]
pub(crate) struct Tally {
    answered: u64,
    unknown: u64,
    refused: u64,
    lives: u64,
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} answered, {} unknown, ", self.answered, self.unknown)?;
        write!(f, "{} more refused; clients opened {} times", self.refused, self.lives)
    }
}

/// The clients of a cluster.
pub(crate) struct People {
    shared: Arc<Shared>,
    clients: Vec<JoinHandle<()>>,
    dir: PathBuf,
}

impl People {
    /// Lets clients 0 to `count` work on the cluster in `dir`.
    pub(crate) fn start(dir: PathBuf, count: u16, seed: u64) -> Self {
        let shared = Arc::new(Shared::default());
        let client = |number: u16| {
            let (shared, dir) = (Arc::clone(&shared), dir.join(format!("client-{number}")));
            std::thread::spawn(move || {
                while !shared.stop.load(Ordering::Relaxed) {
                    live(&dir, &shared, seed + u64::from(number) * 1000);
                }
            })
        };
        let clients = (0..count).map(client).collect();
        Self { shared, clients, dir }
    }

    pub(crate) fn answered(&self) -> u64 {
        assert!(!self.clients.iter().any(JoinHandle::is_finished), "a client has given up");
        self.shared.answered.load(Ordering::Relaxed)
    }

    /// Ends the work, reads every key of the last epochs once more, and returns what was seen.
    pub(crate) fn stop(self) -> (History, Tally) {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.clients.into_iter().for_each(|client| client.join().unwrap());
        let (shared, caller) = (&self.shared, open(&self.dir.join("client-0"), PATIENCE));
        let last = shared.tags.load(Ordering::Relaxed) / EPOCH;
        for epoch in last.saturating_sub(20)..=last {
            let keys = (0..KEYS).map(|i| format!("k{epoch}-{i}"));
            for key in keys.chain((0..COUNTERS).map(|i| format!("n{epoch}-{i}"))) {
                let told = call(shared, &caller, &Operation::Get { key: key.as_bytes() }, false);
                assert!(told.is_some(), "{key} cannot be read in the end");
            }
        }
        let count = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        let tally = Tally {
            answered: count(&shared.answered),
            unknown: count(&shared.unknown),
            refused: count(&shared.refused),
            lives: count(&shared.lives),
        };
        (std::mem::take(&mut *shared.history.lock().unwrap()), tally)
    }
}

fn open(dir: &Path, deadline: Duration) -> Caller {
    let until = Instant::now() + PATIENCE;
    loop {
        // Its last life's port is free a moment after its end.
        match Caller::open(dir, CallerOptions { lanes: LANES, deadline }) {
            Ok(caller) => return caller,
            Err(trouble) => assert!(Instant::now() < until, "{trouble:?}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// One life of a client: as many threads as it has lanes.
fn live(dir: &Path, shared: &Shared, seed: u64) {
    let life = shared.lives.fetch_add(1, Ordering::Relaxed);
    let (caller, left) = (open(dir, DEADLINE), AtomicU64::new(LIFE));
    std::thread::scope(|scope| {
        for lane in 0..LANES {
            let (caller, left) = (&caller, &left);
            let mut rng = Rng::nth(seed + life * 100, Concern::Workload, usize::from(lane));
            scope.spawn(move || {
                let mut last = (String::new(), Vec::new());
                while !shared.stop.load(Ordering::Relaxed)
                    && left
                        .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
                        .is_ok()
                {
                    work(shared, caller, &mut rng, &mut last);
                }
            });
        }
    });
}

/// Draws an operation and has it done. `seen` is a key with the value that it had last, to the knowledge of this
/// thread: what a conditional write expects.
fn work(shared: &Shared, caller: &Caller, rng: &mut Rng, seen: &mut (String, Vec<u8>)) {
    let tag = shared.tags.fetch_add(1, Ordering::Relaxed);
    let epoch = tag / EPOCH;
    let mut key = format!("k{epoch}-{}", rng.below(KEYS));
    let mut value = format!("v{tag}").into_bytes();
    if rng.one_in(100) {
        // Beyond what goes in one datagram with others, and what goes along with its number.
        value.resize(1 << rng.between(8, 15), b'.');
    }
    let mut drawn = rng.below(100);
    if rng.one_in(60) {
        // A value that grows beyond any datagram.
        key = format!("k{epoch}-long");
        value.resize(30_000, b'.');
        drawn = if rng.one_in(2) { 45 } else { 60 + rng.below(2) * 30 };
    } else if (70..85).contains(&drawn) || (85..100).contains(&drawn) && rng.one_in(4) {
        key = format!("n{epoch}-{}", rng.below(COUNTERS));
    }
    let operation = match drawn {
        0..30 => Operation::Put { key: key.as_bytes(), value: &value },
        30..45 => {
            let expected = (seen.0 == key).then_some(seen.1.as_slice());
            Operation::Cas { key: key.as_bytes(), expected, value: &value }
        }
        45..55 => Operation::Append { key: key.as_bytes(), suffix: &value },
        55..60 => Operation::Del { key: key.as_bytes() },
        70..85 => Operation::Incr { key: key.as_bytes(), by: i64::try_from(rng.between(1, 3)).unwrap() },
        // Above as a read that need not be ordered, below in order.
        _ => Operation::Get { key: key.as_bytes() },
    };
    let told = call(shared, caller, &operation, drawn >= 85);
    let value = match (&operation, told.as_deref().map(Answer::decode)) {
        (Operation::Get { .. }, Some(Ok(Answer::Value(value)))) => value.to_vec(),
        (Operation::Put { value, .. } | Operation::Cas { value, .. }, Some(Ok(Answer::Done))) => {
            value.to_vec()
        }
        _ => return,
    };
    *seen = (key, value);
}

/// Has an operation done and writes down how it went. Returns the answer, if there was one.
fn call(shared: &Shared, caller: &Caller, operation: &Operation<'_>, read_only: bool) -> Option<Vec<u8>> {
    let mut bytes = Vec::new();
    operation.encode(&mut bytes);
    // Times are four apart, so that something can be put between them.
    let time = || 4 * shared.time.fetch_add(1, Ordering::SeqCst);
    let invoked = time();
    let mut told = caller.call(&bytes, read_only);
    if read_only && told.as_deref().map(Answer::decode) == Ok(Ok(Answer::Failed(Failure::NeedsOrder))) {
        told = caller.call(&bytes, false);
    }
    let returned = match &told {
        Ok(result) => {
            shared.answered.fetch_add(1, Ordering::Relaxed);
            Some((time(), result.clone()))
        }
        Err(error) if error.is_refused() => {
            shared.refused.fetch_add(1, Ordering::Relaxed);
            return None; // certain not to have happened
        }
        Err(_) => {
            shared.unknown.fetch_add(1, Ordering::Relaxed);
            None
        }
    };
    shared.history.lock().unwrap().push(Call { invoked, returned, operation: bytes });
    told.ok()
}

/// Returns the history with one more read, and its key: of a value that was seen before another one was written
/// in its place, after that write was acknowledged. No value is written twice.
pub(crate) fn spoilt(history: &History) -> Option<(History, String)> {
    for read in history {
        let (Ok(Operation::Get { key }), Some((seen_at, seen))) =
            (Operation::decode(&read.operation), &read.returned)
        else {
            continue;
        };
        if key.starts_with(b"n") || !matches!(Answer::decode(seen), Ok(Answer::Value(_))) {
            continue;
        }
        let overwritten = history.iter().find_map(|write| match Operation::decode(&write.operation) {
            Ok(Operation::Put { key: other, .. }) if other == key && write.invoked > *seen_at => {
                write.returned.as_ref().map(|(time, _)| *time)
            }
            _ => None,
        });
        if let Some(time) = overwritten {
            let mut spoilt = history.clone();
            spoilt.push(Call {
                invoked: time + 1,
                returned: Some((time + 2, seen.clone())),
                operation: read.operation.clone(),
            });
            return Some((spoilt, String::from_utf8_lossy(key).into_owned()));
        }
    }
    None
}
