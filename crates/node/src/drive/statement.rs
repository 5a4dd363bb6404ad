//! A replica's statements about itself for clients that ask (PROBE, STATEMENT), for users and monitoring. It only
//! reads the core, and no part of the protocol depends on it.

use std::collections::{BTreeMap, VecDeque};

use quorate_pbft::Now;
use quorate_pbft::config::Durability;
use quorate_pbft::step::{Form, Lsn, Recipient};
use quorate_service::Service;
use quorate_wire::codec::Writer;
use quorate_wire::message::{
    Contradiction, Keeps, Probe, REASON_BYTES_MAX, STATED_CHECKPOINTS_MAX, STATED_REASONS_MAX, Statement,
    VERSION_BYTES_MAX,
};
use quorate_wire::{ClientId, Digest, Kind, Principal, ReplicaId, SeqNum};

use super::Drive;
use crate::core::Core;
use crate::journal::Journal;
use crate::meter::Meter;
use crate::surroundings::{Room, Surroundings};

/// The least time between two answers to a client, in nanoseconds.
const ANSWER_NS: u64 = 20_000_000;
/// How often the process measures its memory and disk, in nanoseconds.
const LOOK_NS: u64 = 1_000_000_000;
/// Maximum number of clients whose last question is remembered.
const ASKERS_MAX: usize = 1024;

/// The data that a drive keeps for its statements, in addition to the core's.
#[derive(Debug, Default)]
pub(super) struct Sayings {
    durability: Keeps,
    page_bytes: u64,
    /// The newest checkpoints. At most [`STATED_CHECKPOINTS_MAX`].
    checkpoints: VecDeque<(SeqNum, Digest)>,
    stable: (SeqNum, Digest),
    committed: SeqNum,
    /// Replicas that have equivocated: how often, and when last. At most one entry per replica.
    contradictions: BTreeMap<ReplicaId, (u64, u64)>,
    started_ns: Option<u64>,
    recovered_ns: u64,
    /// The time at the last tick.
    now_ns: u64,
    /// When each client may be answered again. At most [`ASKERS_MAX`].
    askers: BTreeMap<u64, u64>,
    surroundings: Option<Surroundings>,
    room: Room,
    looked_ns: Option<u64>,
}

impl Sayings {
    /// Returns the initial value: the checkpoints of the loaded state.
    pub(super) fn new(
        durability: Durability,
        page_bytes: usize,
        checkpoints: impl Iterator<Item = (SeqNum, Digest)>,
    ) -> Self {
        let durability = match durability {
            Durability::Sync => Keeps::Sync,
            Durability::Async => Keeps::Async,
            Durability::Memory => Keeps::Memory,
        };
        let page_bytes = u64::try_from(page_bytes).unwrap_or(0);
        let mut sayings = Self { durability, page_bytes, ..Self::default() };
        for (seq, digest) in checkpoints {
            sayings.note_checkpoint(seq, digest);
            sayings.stable = (seq, digest);
        }
        sayings
    }

    pub(super) fn note_checkpoint(&mut self, seq: SeqNum, digest: Digest) {
        // After a rollback or a repair the digest differs.
        while self.checkpoints.back().is_some_and(|(last, _)| *last >= seq) {
            self.checkpoints.pop_back();
        }
        if self.checkpoints.len() >= usize::from(STATED_CHECKPOINTS_MAX) {
            self.checkpoints.pop_front();
        }
        self.checkpoints.push_back((seq, digest));
    }

    pub(super) fn note_stable(&mut self, seq: SeqNum, digest: Digest) {
        self.stable = (seq, digest);
    }

    pub(super) fn stable(&self) -> SeqNum {
        self.stable.0
    }

    #[inline]
    pub(super) fn note_committed(&mut self, seq: SeqNum) {
        self.committed = self.committed.max(seq);
    }

    pub(super) fn note_contradiction(&mut self, by: ReplicaId) {
        let (count, last) = self.contradictions.entry(by).or_default();
        (*count, *last) = (count.saturating_add(1), self.now_ns);
    }

    pub(super) fn note_rejoined(&mut self) {
        self.recovered_ns = self.now_ns;
    }

    pub(super) fn note_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        if self.started_ns.is_none() {
            (self.started_ns, self.recovered_ns) = (Some(now_ns), now_ns);
        }
    }

    /// Returns whether a client may be answered now, and remembers that it is.
    fn may_answer(&mut self, client: ClientId, now_ns: u64) -> bool {
        let holder = Principal::Client(client).key_holder();
        if self.askers.get(&holder).is_some_and(|next| now_ns < *next) {
            return false;
        }
        if self.askers.len() >= ASKERS_MAX {
            self.askers.clear();
        }
        self.askers.insert(holder, now_ns.saturating_add(ANSWER_NS));
        true
    }

    /// Measures the process and its disk, from time to time.
    fn look(&mut self, now_ns: u64) -> Room {
        let due = self.looked_ns.is_none_or(|at| now_ns.saturating_sub(at) >= LOOK_NS);
        if let (Some(surroundings), true) = (&self.surroundings, due) {
            (self.room, self.looked_ns) = (surroundings.look(), Some(now_ns));
        }
        self.room
    }
}

impl<S: Service, M: Meter, J: Journal, C: Core> Drive<S, M, J, C> {
    /// Lets statements include the process's memory and disk.
    pub fn set_surroundings(&mut self, surroundings: Surroundings) {
        self.sayings.surroundings = Some(surroundings);
    }

    /// Answers a client's status request. A client that asks too often gets no answer.
    #[cold]
    pub(super) fn on_probe(&mut self, now: Now, client: ClientId, probe: Probe) {
        if !self.sayings.may_answer(client, now.mono_ns) {
            *self.counters.rejected.entry("too-soon").or_default() += 1;
            return;
        }
        let statement = self.statement(now, probe.nonce);
        let mut body = core::mem::take(&mut self.body);
        body.clear();
        statement.encode(&mut Writer::new(&mut body));
        self.send(Recipient::Client(client), Kind::Statement, Form::Body, &body, Lsn(0));
        self.body = body;
    }

    /// Returns this replica's statement.
    pub fn statement(&mut self, now: Now, nonce: u64) -> Statement {
        let state = self.core.replica().state();
        let room = self.sayings.look(now.mono_ns);
        let Sayings { page_bytes, started_ns, recovered_ns, .. } = self.sayings;
        let millis = |since: u64| now.mono_ns.saturating_sub(since) / 1_000_000;
        let transfer = self.executor.progress().map_or((0, 0), |progress| {
            (progress.fetched.saturating_mul(page_bytes), progress.total.saturating_mul(page_bytes))
        });
        let moved = self.transfer_meter.says(now.mono_ns, page_bytes, self.executor.progress());
        let contradictions = self.sayings.contradictions.iter().map(|(by, (count, last))| Contradiction {
            by: *by,
            count: *count,
            age_ms: millis(*last),
        });
        Statement {
            nonce,
            view: state.view,
            executed: state.executed,
            committed: self.sayings.committed.max(state.executed),
            stable: self.sayings.stable,
            low: state.low,
            high: state.high,
            in_view_change: !state.normal,
            transferring: state.transferring,
            rejoining: state.recovering,
            disk_full: self.journal.is_full(),
            checkpoints: self.sayings.checkpoints.iter().copied().collect(),
            transfer,
            moved,
            view_changes: self.counters.view_changes,
            requests: self.counters.requests,
            memory_bytes: room.memory_bytes,
            disk: room.disk,
            uptime_ms: millis(started_ns.unwrap_or(now.mono_ns)),
            keeps: self.sayings.durability,
            fsync_p99_us: self.journal.write_p99_us(),
            key_age_ms: now.wall_ns.saturating_sub(self.door.key_time()) / 1_000_000,
            recovered_ms: millis(recovered_ns),
            rejected: self.reasons(),
            contradictions: contradictions.collect(),
            clock_ms: now.wall_ns / 1_000_000,
            lanes: self.executor.lanes(),
            version: bounded(env!("CARGO_PKG_VERSION"), VERSION_BYTES_MAX),
        }
    }

    /// Returns the counts of rejected messages by reason, in the authenticator and the protocol.
    fn reasons(&self) -> Vec<(String, u64)> {
        let mut sums: BTreeMap<String, u64> = BTreeMap::new();
        for (reason, count) in self.counters.refused.iter().chain(&self.counters.rejected) {
            *sums.entry(bounded(reason, REASON_BYTES_MAX)).or_default() += count;
        }
        sums.into_iter().take(usize::from(STATED_REASONS_MAX)).collect()
    }
}

/// Returns a name, cut to the maximum length.
fn bounded(text: &str, max: u8) -> String {
    text.chars().filter(char::is_ascii_graphic).take(usize::from(max)).collect()
}
