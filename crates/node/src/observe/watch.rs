//! Repeated observation: changes since the last look, the throughput of the cluster, the lag of each replica. All
//! histories are bounded.

use std::collections::{BTreeMap, VecDeque};
use std::net::SocketAddr;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use quorate_wire::{ReplicaId, ViewNum};

use super::advice::{Advice, advice};
use super::look::{Observer, now_s};
use super::model::{FRESH_S, Picture, Verdict, Word};
use super::probe::{Latency, Tried};
use super::{Class, json};

/// Number of looks kept: five minutes at one per second.
const KEPT: usize = 300;
/// Number of events kept.
const EVENTS_MAX: usize = 100;
/// Number of views whose start is kept.
const VIEWS_MAX: usize = 60;
/// The upper bounds of the latency histogram, in microseconds.
pub const BOUNDS_US: [u64; 12] =
    [50, 100, 200, 500, 1000, 2000, 5000, 10_000, 50_000, 200_000, 1_000_000, 5_000_000];

/// An observed change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The number of the event, rising.
    pub number: u64,
    /// When, in seconds since 1970 by the observer's clock.
    pub at_s: u64,
    /// What happened.
    pub text: String,
}

/// The latencies of the observer's own operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Histogram {
    /// Counts by bound of [`BOUNDS_US`], not cumulative. Latencies above all bounds are in none.
    pub counts: [u64; BOUNDS_US.len()],
    /// Number of operations.
    pub count: u64,
    /// Sum of their latencies, in microseconds.
    pub sum_us: u64,
}

impl Histogram {
    /// Returns it with one operation more, if there was one.
    fn with(mut self, took: Option<Duration>) -> Self {
        let Some(took) = took else { return self };
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        if let Some(place) = BOUNDS_US.iter().position(|bound| us <= *bound) {
            self.counts[place] += 1;
        }
        self.count += 1;
        self.sum_us = self.sum_us.saturating_add(us);
        self
    }
}

/// The state of the observation after a look.
#[derive(Clone, Debug)]
pub struct Snapshot {
    /// The cluster.
    pub picture: Picture,
    /// When it was observed.
    pub at: Instant,
    /// The latency of the observer's own operations.
    pub latency: Latency,
    /// Requests executed per second, after the second look.
    pub rate: Option<f64>,
    /// The last looks, oldest first: requests per second; microseconds of an ordered and of a read-only operation.
    pub rates: VecDeque<(f64, Option<u64>, Option<u64>)>,
    /// When each of the last views was first seen, in seconds since 1970.
    pub views: VecDeque<(u64, ViewNum)>,
    /// The last events, oldest first.
    pub events: VecDeque<Event>,
    /// How long each replica is behind f + 1 others, in seconds.
    pub lag_s: Vec<f64>,
    /// Latencies of ordered operations.
    pub ordered: Histogram,
    /// Latencies of read-only operations.
    pub read_only: Histogram,
    /// Number of view changes observed.
    pub view_changes: u64,
}

/// The last observation of a cluster, for other threads. They read it, and never reach the cluster.
#[derive(Debug)]
pub struct Board {
    /// The addresses of the replicas, in the order of their ids.
    addresses: Mutex<Vec<SocketAddr>>,
    last: Mutex<Option<Arc<Snapshot>>>,
}

impl Board {
    /// Makes one without an observation, for a cluster with these addresses of replicas, in the order of their ids.
    pub fn new(addresses: Vec<SocketAddr>) -> Self {
        Self { addresses: Mutex::new(addresses), last: Mutex::default() }
    }

    /// Returns the last observation.
    pub fn last(&self) -> Option<Arc<Snapshot>> {
        self.last.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the last observation.
    pub fn show(&self, snapshot: Arc<Snapshot>) {
        *self.last.lock().unwrap_or_else(PoisonError::into_inner) = Some(snapshot);
    }

    /// Returns the addresses of the replicas, in the order of their ids.
    pub fn addresses(&self) -> Vec<SocketAddr> {
        self.addresses.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces the addresses.
    fn find(&self, addresses: Vec<SocketAddr>) {
        *self.addresses.lock().unwrap_or_else(PoisonError::into_inner) = addresses;
    }
}

/// Observes a cluster on demand, and shows the results on a board.
#[derive(Debug)]
pub struct Watch {
    observer: Observer,
    board: Arc<Board>,
    /// When f + 1 replicas had executed each number: at most [`KEPT`] entries.
    executed: Mutex<VecDeque<(Instant, u64)>>,
}

impl Watch {
    /// Starts to watch through this observer.
    pub fn new(observer: Observer) -> Self {
        let board = Arc::new(Board::new(observer.addresses()));
        Self { observer, board, executed: Mutex::default() }
    }

    /// Returns the board.
    pub fn board(&self) -> Arc<Board> {
        Arc::clone(&self.board)
    }

    /// Observes the cluster once. Call it from one thread.
    pub fn turn(&self) -> Arc<Snapshot> {
        let (picture, tried) = self.observer.look_and_try(false);
        let before = self.board.last();
        let lag_s = self.lags(&picture);
        let next = Arc::new(after(before.as_deref(), picture, &tried, lag_s));
        self.board.find(self.observer.addresses());
        self.board.show(Arc::clone(&next));
        next
    }

    /// Returns for each replica how long ago the others passed the batch that it has executed.
    fn lags(&self, picture: &Picture) -> Vec<f64> {
        let mut executed = self.executed.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        executed.push_back((now, picture.executed.0));
        if executed.len() > KEPT {
            executed.pop_front();
        }
        let lag = |own: u64| {
            let passed = executed.iter().find(|(_, agreed)| *agreed > own);
            passed.map_or(0.0, |(at, _)| now.duration_since(*at).as_secs_f64())
        };
        picture
            .replicas
            .iter()
            .map(|health| health.says.as_ref().map_or(0.0, |says| lag(says.executed.0)))
            .collect()
    }
}

/// Combines the last snapshot with the new observation.
fn after(before: Option<&Snapshot>, picture: Picture, tried: &Tried, lag_s: Vec<f64>) -> Snapshot {
    let at = Instant::now();
    let rate = before.and_then(|before| rate(before, &picture, at));
    let us = |took: Option<Duration>| took.map(|took| u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    let mut next = Snapshot {
        at,
        latency: tried.latency,
        rate,
        lag_s,
        rates: before.map_or_else(VecDeque::new, |before| before.rates.clone()),
        views: before.map_or_else(VecDeque::new, |before| before.views.clone()),
        events: before.map_or_else(VecDeque::new, |before| before.events.clone()),
        ordered: before.map_or_else(Histogram::default, |before| before.ordered),
        read_only: before.map_or_else(Histogram::default, |before| before.read_only),
        view_changes: before.map_or(0, |before| before.view_changes),
        picture,
    };
    let latency = tried.latency;
    // An operation that was not run again is not counted again.
    next.ordered = next.ordered.with(latency.ordered.filter(|_| tried.is_new.0));
    next.read_only = next.read_only.with(latency.read_only.filter(|_| tried.is_new.1));
    next.rates.push_back((rate.unwrap_or(0.0), us(latency.ordered), us(latency.read_only)));
    if next.rates.len() > KEPT {
        next.rates.pop_front();
    }
    // Compared with the last view that was known: in between, too few replicas may have answered.
    let known = next.views.back().map(|(_, view)| *view);
    let mut moved = None;
    if let Some(view) = next.picture.view.filter(|view| known.is_none_or(|known| known < *view)) {
        next.view_changes += known.map_or(0, |known| view.0 - known.0);
        moved = known.map(|known| {
            format!("view {} -> {}, primary {}", known.0, view.0, next.picture.cluster.primary(view))
        });
        next.views.push_back((next.picture.now_s, view));
        if next.views.len() > VIEWS_MAX {
            next.views.pop_front();
        }
    }
    if let Some(before) = before {
        for text in moved.into_iter().chain(news(&before.picture, &next.picture)) {
            let number = next.events.back().map_or(1, |last| last.number + 1);
            next.events.push_back(Event { number, at_s: now_s(), text });
        }
        while next.events.len() > EVENTS_MAX {
            next.events.pop_front();
        }
    }
    next
}

/// Returns how many requests per second f + 1 replicas executed between two looks.
fn rate(before: &Snapshot, now: &Picture, at: Instant) -> Option<f64> {
    let pairs = before.picture.replicas.iter().zip(&now.replicas);
    let mut counts: Vec<u64> = pairs
        .filter_map(|(old, new)| new.says.as_ref()?.requests.checked_sub(old.says.as_ref()?.requests))
        .collect();
    counts.sort_unstable_by(|a, b| b.cmp(a));
    let count = u32::try_from(*counts.get(now.cluster.weak() - 1)?).unwrap_or(u32::MAX);
    Some(f64::from(count) / at.duration_since(before.at).as_secs_f64().max(1e-3))
}

/// Returns the changes between two looks.
fn news(before: &Picture, now: &Picture) -> Vec<String> {
    let mut news = Vec::new();
    if before.verdict != now.verdict {
        news.push(format!("{}, was {}", now.verdict.name(), before.verdict.name()));
    }
    for (old, new) in before.replicas.iter().zip(&now.replicas) {
        match (old.word, new.word) {
            (old, new) if old == new => {}
            (_, Word::Ok) => news.push(format!("{} is ok again", new.id)),
            (_, word) => news.push(format!("{} {}", new.id, word.name())),
        }
    }
    news
}

impl Snapshot {
    /// Returns the snapshot after a first look, which ran no operations.
    pub fn first(picture: Picture) -> Self {
        let lag_s = vec![0.0; picture.replicas.len()];
        after(None, picture, &Tried::default(), lag_s)
    }

    /// Returns whether a quorum has answered recently.
    pub fn is_ready(&self) -> bool {
        let fresh = self.at.elapsed() < Duration::from_secs(5);
        let quorum = self.picture.answered() >= self.picture.cluster.quorum();
        fresh && quorum && matches!(self.picture.verdict, Verdict::Healthy | Verdict::Degraded)
    }

    /// Returns the count of each class of evidence against each replica.
    pub fn evidence_counts(&self) -> BTreeMap<(Class, ReplicaId), u64> {
        let mut counts = BTreeMap::new();
        for id in self.picture.cluster.replicas() {
            counts.extend(Class::ALL.iter().map(|class| ((*class, id), 0)));
        }
        for item in &self.picture.evidence {
            *counts.entry((item.class, item.replica)).or_default() += item.count;
        }
        counts
    }

    /// Returns everything, for the status page and other programs. `addresses` are those of the replicas.
    pub fn to_json(&self, name: &str, addresses: &[SocketAddr]) -> serde_json::Value {
        let picture = &self.picture;
        let agreement = &picture.agreement;
        let rows: Vec<Vec<&str>> =
            agreement.rows.iter().map(|row| row.iter().map(|cell| cell.name()).collect()).collect();
        let events: Vec<_> = self.events.iter().map(event).collect();
        serde_json::json!({
            "name": name,
            "version": env!("CARGO_PKG_VERSION"),
            "age_ms": u64::try_from(self.at.elapsed().as_millis()).unwrap_or(u64::MAX),
            "cluster": json::cluster(picture),
            "troubles": picture.troubles(),
            "advice": advice(picture, addresses).iter().map(Advice::to_json).collect::<Vec<_>>(),
            "addresses": addresses.iter().map(SocketAddr::to_string).collect::<Vec<_>>(),
            "replicas": picture.replicas.iter().map(|health| json::replica(health, picture)).collect::<Vec<_>>(),
            "lag_s": self.lag_s,
            "fresh_s": FRESH_S,
            "agreement": {
                "checkpoints": agreement.checkpoints.iter().map(|seq| seq.0).collect::<Vec<_>>(),
                "rows": rows,
            },
            "evidence": picture.evidence.iter().map(json::item).collect::<Vec<_>>(),
            "views": self.views.iter().map(|(at, view)| serde_json::json!([at, view.0])).collect::<Vec<_>>(),
            "events": events,
            "rate": self.rate,
            "rates": self.rates.iter().map(|(rate, _, _)| rate).collect::<Vec<_>>(),
            "ordered_us": self.rates.iter().map(|(_, ordered, _)| ordered).collect::<Vec<_>>(),
            "read_only_us": self.rates.iter().map(|(_, _, read)| read).collect::<Vec<_>>(),
        })
    }
}

/// Returns an event as JSON.
pub fn event(event: &Event) -> serde_json::Value {
    serde_json::json!({"number": event.number, "at": event.at_s, "text": event.text})
}
