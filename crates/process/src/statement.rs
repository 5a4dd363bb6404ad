//! What a process keeps for its statements, in addition to the state of its core.

use alloc::boxed::Box;
use alloc::collections::{BTreeMap, VecDeque};
use alloc::string::String;
use alloc::vec::Vec;

use quorate_pbft::Now;
use quorate_pbft::config::Durability;
use quorate_wire::message::{Contradiction, Keeps, STATED_CHECKPOINTS_MAX, Statement, VERSION_BYTES_MAX};
use quorate_wire::{ClientId, Digest, Principal, ReplicaId, SeqNum};

/// The least time between two answers to a client, in nanoseconds.
const ANSWER_NS: u64 = 20_000_000;
/// How often the process measures its memory and disk, in nanoseconds.
const LOOK_NS: u64 = 1_000_000_000;
/// Maximum number of clients whose last question is remembered.
const ASKERS_MAX: usize = 1024;

/// Measurements of a process and its machine. Unknown values are 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Room {
    /// Resident memory of the process, in bytes.
    pub memory_bytes: u64,
    /// Free space on the disk, and its size, in bytes.
    pub disk: (u64, u64),
}

/// Measures a process and its machine.
pub trait Surroundings: core::fmt::Debug + Send {
    /// Measures.
    fn look(&self) -> Room;
}

/// The data that a process keeps for its statements, in addition to the core's.
#[derive(Debug, Default)]
pub(crate) struct StatementSource {
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
    surroundings: Option<Box<dyn Surroundings>>,
    /// The front of a digest of each setting that all replicas must have alike.
    settings: Vec<u16>,
    room: Room,
    looked_ns: Option<u64>,
}

impl StatementSource {
    /// Returns the initial value: the checkpoints of the loaded state.
    pub(crate) fn new(
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
        let mut source = Self { durability, page_bytes, ..Self::default() };
        for (seq, digest) in checkpoints {
            source.note_checkpoint(seq, digest);
            source.stable = (seq, digest);
        }
        source
    }

    pub(crate) fn note_checkpoint(&mut self, seq: SeqNum, digest: Digest) {
        // After a rollback or a repair the digest differs.
        while self.checkpoints.back().is_some_and(|(last, _)| *last >= seq) {
            self.checkpoints.pop_back();
        }
        if self.checkpoints.len() >= usize::from(STATED_CHECKPOINTS_MAX) {
            self.checkpoints.pop_front();
        }
        self.checkpoints.push_back((seq, digest));
    }

    pub(crate) fn note_stable(&mut self, seq: SeqNum, digest: Digest) {
        self.stable = (seq, digest);
    }

    pub(crate) fn stable(&self) -> SeqNum {
        self.stable.0
    }

    #[inline]
    pub(crate) fn note_committed(&mut self, seq: SeqNum) {
        self.committed = self.committed.max(seq);
    }

    pub(crate) fn note_contradiction(&mut self, by: ReplicaId) {
        let (count, last) = self.contradictions.entry(by).or_default();
        (*count, *last) = (count.saturating_add(1), self.now_ns);
    }

    pub(crate) fn note_rejoined(&mut self) {
        self.recovered_ns = self.now_ns;
    }

    pub(crate) fn note_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
        if self.started_ns.is_none() {
            (self.started_ns, self.recovered_ns) = (Some(now_ns), now_ns);
        }
    }

    /// Returns whether a client may be answered now, and remembers that it is.
    pub(crate) fn may_answer(&mut self, client: ClientId, now_ns: u64) -> bool {
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
    fn measure(&mut self, now_ns: u64) -> Room {
        let due = self.looked_ns.is_none_or(|at| now_ns.saturating_sub(at) >= LOOK_NS);
        if let (Some(surroundings), true) = (&self.surroundings, due) {
            (self.room, self.looked_ns) = (surroundings.look(), Some(now_ns));
        }
        self.room
    }

    /// Lets statements include the process's memory and disk.
    pub(crate) fn set_surroundings(&mut self, surroundings: Box<dyn Surroundings>) {
        self.surroundings = Some(surroundings);
    }

    /// Lets statements include the digests of the settings that all replicas must have alike.
    pub(crate) fn set_settings(&mut self, settings: Vec<u16>) {
        self.settings = settings;
    }

    /// Returns the size of a page, in bytes.
    pub(crate) fn page_bytes(&self) -> u64 {
        self.page_bytes
    }

    /// Returns the last batch that has committed, as far as milestones say.
    pub(crate) fn committed(&self) -> SeqNum {
        self.committed
    }

    /// Returns a statement with what is known here.
    pub(crate) fn statement(&mut self, now: Now, nonce: u64) -> Statement {
        let room = self.measure(now.mono_ns);
        let millis = |since: u64| now.mono_ns.saturating_sub(since) / 1_000_000;
        let contradictions = self.contradictions.iter().map(|(by, (count, last))| Contradiction {
            by: *by,
            count: *count,
            age_ms: millis(*last),
        });
        Statement {
            nonce,
            stable: self.stable,
            checkpoints: self.checkpoints.iter().copied().collect(),
            memory_bytes: room.memory_bytes,
            disk: room.disk,
            uptime_ms: millis(self.started_ns.unwrap_or(now.mono_ns)),
            keeps: self.durability,
            recovered_ms: millis(self.recovered_ns),
            contradictions: contradictions.collect(),
            clock_ms: now.wall_ns / 1_000_000,
            version: bounded(env!("CARGO_PKG_VERSION"), VERSION_BYTES_MAX),
            settings: self.settings.clone(),
            ..Statement::default()
        }
    }
}

/// Returns a name, cut to the maximum length.
pub(crate) fn bounded(text: &str, max: u8) -> String {
    text.chars().filter(char::is_ascii_graphic).take(usize::from(max)).collect()
}
