//! The settings of a replica, with the rules they obey (spec §1.3).

use alloc::string::{String, ToString};

use quorate_wire::digest::{ClusterId, Domains};
use quorate_wire::frame::FRAME_BYTES_MAX;
use quorate_wire::message::ViewChange;
use quorate_wire::{Cluster, ReplicaId, SeqNum, message};

/// Nanoseconds in a millisecond.
pub const MS: u64 = 1_000_000;
/// The largest [`Config::collect_from`].
pub const COLLECT_FROM_MAX: usize = 16;
/// Maximum number of workers.
pub const WORKERS_MAX: u64 = 128;
/// The longest time-out, in nanoseconds: far below what overflows when it is doubled a few times (B29).
pub const HOUR_NS: u64 = 3_600_000 * MS;

/// How a replica keeps what it has promised (spec §14).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Durability {
    /// Nothing on disk: a replica that restarts has forgotten and must rejoin. The papers' model.
    Memory,
    /// Records are written, nothing waits for them: a restart may miss the last moments and rejoins.
    Async,
    /// Every promise is on disk before it leaves.
    Sync,
}

impl Durability {
    /// Says whether a replica writes what it promises to a log.
    pub fn writes_log(self) -> bool {
        self != Self::Memory
    }

    /// Says whether a promise waits until its record is on disk.
    pub fn waits_for_disk(self) -> bool {
        self == Self::Sync
    }
}

/// How clients' requests are authenticated (spec §4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestAuth {
    /// MACs alone, as in the papers. One client can stop the system (B31); for measuring.
    Mac,
    /// MACs for clients in good standing, signatures for the others.
    Adaptive,
    /// A MAC and a signature on every request.
    SigMac,
}

/// Which replica returns the full result (RP-1). The client names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replier {
    /// A random one for each request.
    Random,
    /// Each in turn.
    RoundRobin,
    /// Always the same.
    Fixed(u16),
}

/// Whom a read that is not ordered is sent to at first (RO-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reads {
    /// A quorum, and the others only if it is needed (DV-43).
    Quorum,
    /// All replicas, as in the papers.
    All,
}

/// When a read that is not ordered is accepted, and when it is given up and ordered (CL-2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReadRule {
    /// When no quorum can agree any more, whatever those say who have not answered. One liar costs a message.
    FirstQuorum,
    /// When the first `n - f` answers do not agree, as in BQS08. One liar among them costs an ordered read.
    FirstReplies,
    /// As the first, but `f + 1` that agree are enough: one of them is correct, so the answer was right once, and may be
    /// an old one. For a client that only wants to know where the replicas are (ADR 23).
    AnyCorrect,
}

/// The settings of a replica. Every optimisation of the papers is a switch.
#[derive(Clone, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "every optimisation is a switch")]
pub struct Config {
    /// `n` and `f`.
    pub cluster: Cluster,
    /// Names the cluster; part of every digest and MAC.
    pub cluster_id: ClusterId,
    /// `K`: batches between checkpoints.
    pub checkpoint_interval: u64,
    /// `L`: width of the window between the water marks, in batches.
    pub window: u64,
    /// `W`: protocol instances that the primary runs in parallel.
    pub pipeline: u64,
    /// Maximum number of requests in a batch.
    pub batch_requests_max: u16,
    /// Maximum number of bytes of a batch; a single larger request goes alone.
    pub batch_bytes_max: usize,
    /// Off: one request a batch.
    pub batching: bool,
    /// Requests with longer operations travel apart from the PRE-PREPARE, in bytes (`SRT`).
    pub separate_above: usize,
    /// Off: every request travels inside the PRE-PREPARE.
    pub separate: bool,
    /// Results shorter than this are sent in full by every replica, in bytes (`SMALL_REPLY`).
    pub small_reply: usize,
    /// Off: every replica sends the full result.
    pub digest_replies: bool,
    /// If a batch has requests of at least this many clients, and few of each, the replica that sends the full result
    /// sends the replies of all (RP-6). 0: never.
    pub collect_from: u16,
    /// How a client chooses the replica that sends the full result.
    pub replier: Replier,
    /// Execute when prepared, reply before committed.
    pub tentative: bool,
    /// Requests that may be executed at a time. More than one: batches in progress are those that have not committed
    /// (PR-2).
    pub workers: u64,
    /// Serve read-only requests without ordering them. Also decides the certificate of writes (CL-8).
    pub read_only: bool,
    /// Whom a client asks for a read.
    pub reads: Reads,
    /// When it gives up what it has asked for.
    pub read_rule: ReadRule,
    /// Commits ride on the next message.
    pub piggyback: bool,
    /// How long a commit waits for a carrier, in nanoseconds.
    pub piggyback_ns: u64,
    /// How requests are authenticated.
    pub request_auth: RequestAuth,
    /// What is written to disk.
    pub durability: Durability,
    /// `T_MIN`: the shortest request time-out, in nanoseconds.
    pub request_timeout_min_ns: u64,
    /// The longest request time-out, in nanoseconds.
    pub request_timeout_max_ns: u64,
    /// The longest wait for a NEW-VIEW, in nanoseconds.
    pub view_timeout_max_ns: u64,
    /// The shortest time after which a client sends again (`T_CLIENT`), in nanoseconds.
    pub client_timeout_min_ns: u64,
    /// The longest, in nanoseconds.
    pub client_timeout_max_ns: u64,
    /// `T_STATUS`, in nanoseconds.
    pub status_ns: u64,
    /// The shortest time between two statuses, and between two answers to one peer, in nanoseconds.
    pub status_min_ns: u64,
    /// Bytes sent again for one status (`RETX_BYTES`).
    pub retransmit_bytes: usize,
    /// How long to wait for a body or batch before asking the next replica, in nanoseconds.
    pub fetch_retry_ns: u64,
    /// Null batches of a recovery are this far apart at least, in nanoseconds (`T_NULL`). Only one who
    /// rejoins needs them, and it waits for a whole window of them: the pace decides how long.
    pub null_batch_ns: u64,
    /// How far the primary's clock may be from ours, in nanoseconds (`ND_SKEW`).
    pub clock_skew_ns: u64,
    /// The most client lanes with an entry (`MAX_CLIENTS`).
    pub clients_max: usize,
    /// The front of a digest of the service's settings that all replicas must have alike.
    pub service_settings: u64,
    /// The most lanes of one client among them.
    pub lanes_max: usize,
    /// Seeds the replica's own random choices: whom to ask.
    pub seed: u64,
}

/// A setting that breaks a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// The key.
    pub key: &'static str,
    /// The value it has.
    pub value: String,
    /// The rule it breaks.
    pub rule: &'static str,
}

impl core::fmt::Display for ConfigError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        write!(f, "{} = {}: {}", self.key, self.value, self.rule)
    }
}

impl core::error::Error for ConfigError {}

/// Returns the largest window, a multiple of `k`, with which every VIEW-CHANGE fits a frame, however often
/// Byzantine primaries propose other batches at the same numbers.
fn window_max(cluster: Cluster, k: u64) -> u64 {
    // What surrounds the body in the longest of these frames is shorter than 2 KiB.
    let room = (FRAME_BYTES_MAX - (2 << 10)) as u64;
    let fits = |window: &u64| ViewChange::body_bytes_max(cluster, *window) <= room;
    let max = u64::from(message::WINDOW_MAX);
    (1..=max / k).rev().map(|checkpoints| checkpoints * k).find(fits).unwrap_or(k)
}

impl Config {
    /// Returns the defaults for `cluster` (spec §1.3).
    pub fn new(cluster: Cluster, cluster_id: ClusterId) -> Self {
        Self {
            cluster,
            cluster_id,
            checkpoint_interval: 128,
            window: window_max(cluster, 128).min(2048),
            pipeline: 8,
            batch_requests_max: 1024,
            batch_bytes_max: 56 << 10,
            batching: true,
            separate_above: 4096,
            separate: true,
            small_reply: 64,
            digest_replies: true,
            collect_from: 4,
            replier: Replier::Random,
            tentative: true,
            workers: 1,
            read_only: true,
            reads: Reads::Quorum,
            read_rule: ReadRule::FirstQuorum,
            piggyback: true,
            piggyback_ns: 2 * MS,
            request_auth: RequestAuth::Adaptive,
            durability: Durability::Sync,
            request_timeout_min_ns: 100 * MS,
            request_timeout_max_ns: 2_000 * MS,
            view_timeout_max_ns: 60_000 * MS,
            client_timeout_min_ns: 5 * MS,
            client_timeout_max_ns: 10_000 * MS,
            status_ns: 150 * MS,
            status_min_ns: 100 * MS,
            retransmit_bytes: 64 << 10,
            fetch_retry_ns: 20 * MS,
            null_batch_ns: MS,
            clock_skew_ns: 2_000 * MS,
            clients_max: 65_536,
            service_settings: 0,
            lanes_max: 256,
            seed: 0,
        }
    }

    /// Checks every rule. The first broken one is returned with its key and value.
    #[allow(clippy::too_many_lines, reason = "one rule after the other")]
    pub fn check(&self) -> Result<(), ConfigError> {
        let rule = |holds: bool, key: &'static str, value: String, rule: &'static str| {
            if holds { Ok(()) } else { Err(ConfigError { key, value, rule }) }
        };
        let k = self.checkpoint_interval;
        let window = self.window;
        rule(k >= 1, "checkpoint_interval", k.to_string(), "at least 1 batch")?;
        rule(window >= 2 * k, "window", window.to_string(), "at least twice checkpoint_interval")?;
        rule(window.is_multiple_of(k), "window", window.to_string(), "a multiple of checkpoint_interval")?;
        rule(
            window <= u64::from(message::WINDOW_MAX),
            "window",
            window.to_string(),
            "at most 4096, for which messages have room",
        )?;
        rule(
            window <= window_max(self.cluster, 1),
            "window",
            window.to_string(),
            "too large for this number of replicas: a VIEW-CHANGE could outgrow a frame",
        )?;
        rule(
            window / k < u64::from(message::CHECKPOINTS_MAX),
            "checkpoint_interval",
            k.to_string(),
            "at least window / 63, so that a VIEW-CHANGE has room for the checkpoints",
        )?;
        rule(
            (1..=k).contains(&self.pipeline),
            "pipeline",
            self.pipeline.to_string(),
            "from 1 to checkpoint_interval",
        )?;
        rule(
            self.pipeline <= u64::from(message::PIGGYBACK_MAX),
            "pipeline",
            self.pipeline.to_string(),
            "at most 64, for which messages have room",
        )?;
        rule(
            (1..=WORKERS_MAX).contains(&self.workers),
            "workers",
            self.workers.to_string(),
            "from 1 to 128",
        )?;
        rule(
            self.workers == 1 || !self.tentative,
            "workers",
            self.workers.to_string(),
            "tentative must be false, because workers execute committed batches only (PX-7)",
        )?;
        rule(
            (1..=1024).contains(&self.batch_requests_max),
            "batch_requests_max",
            self.batch_requests_max.to_string(),
            "from 1 to 1024 requests",
        )?;
        rule(
            (1 << 10..=56 << 10).contains(&self.batch_bytes_max),
            "batch_bytes_max",
            self.batch_bytes_max.to_string(),
            "from 1 KiB to 56 KiB, which fits a datagram",
        )?;
        rule(
            usize::from(self.collect_from) <= COLLECT_FROM_MAX,
            "collect_replies_from",
            self.collect_from.to_string(),
            "at most 16 clients",
        )?;
        rule(
            self.separate_above < self.batch_bytes_max,
            "separate_above",
            self.separate_above.to_string(),
            "below batch_bytes_max",
        )?;
        rule(
            self.request_timeout_min_ns >= MS,
            "request_timeout_min_ns",
            self.request_timeout_min_ns.to_string(),
            "at least 1 ms",
        )?;
        rule(
            self.request_timeout_max_ns >= self.request_timeout_min_ns,
            "request_timeout_max_ns",
            self.request_timeout_max_ns.to_string(),
            "at least request_timeout_min_ns",
        )?;
        rule(
            self.view_timeout_max_ns >= self.request_timeout_max_ns,
            "view_timeout_max_ns",
            self.view_timeout_max_ns.to_string(),
            "at least request_timeout_max_ns",
        )?;
        rule(
            self.view_timeout_max_ns <= HOUR_NS,
            "view_timeout_max_ns",
            self.view_timeout_max_ns.to_string(),
            "at most an hour",
        )?;
        rule(
            self.client_timeout_min_ns >= MS,
            "client_timeout_min_ns",
            self.client_timeout_min_ns.to_string(),
            "at least 1 ms",
        )?;
        rule(
            self.client_timeout_max_ns >= self.client_timeout_min_ns,
            "client_timeout_max_ns",
            self.client_timeout_max_ns.to_string(),
            "at least client_timeout_min_ns",
        )?;
        rule(
            self.client_timeout_max_ns <= HOUR_NS,
            "client_timeout_max_ns",
            self.client_timeout_max_ns.to_string(),
            "at most an hour",
        )?;
        if let Replier::Fixed(replica) = self.replier {
            rule(
                self.cluster.contains(ReplicaId(replica)),
                "replier",
                replica.to_string(),
                "a replica of the cluster",
            )?;
        }
        rule(
            (self.status_min_ns..=HOUR_NS).contains(&self.status_ns),
            "status_ns",
            self.status_ns.to_string(),
            "from status_min_ns to an hour",
        )?;
        rule(self.status_min_ns >= MS, "status_min_ns", self.status_min_ns.to_string(), "at least 1 ms")?;
        rule(
            (MS..=self.request_timeout_max_ns).contains(&self.fetch_retry_ns),
            "fetch_retry_ns",
            self.fetch_retry_ns.to_string(),
            "from 1 ms to request_timeout_max_ns, after which the primary is blamed for what is missing",
        )?;
        rule(
            (MS..=self.request_timeout_max_ns).contains(&self.null_batch_ns),
            "null_batch_ns",
            self.null_batch_ns.to_string(),
            "from 1 ms to request_timeout_max_ns",
        )?;
        rule(
            (MS..=HOUR_NS).contains(&self.clock_skew_ns),
            "clock_skew_ns",
            self.clock_skew_ns.to_string(),
            "from 1 ms to an hour",
        )?;
        rule(
            self.piggyback_ns <= self.request_timeout_min_ns / 20,
            "piggyback_ns",
            self.piggyback_ns.to_string(),
            "at most request_timeout_min_ns / 20 (PB-1)",
        )?;
        rule(
            (16..=65_536).contains(&self.clients_max),
            "clients_max",
            self.clients_max.to_string(),
            "from 16 to 65536 client lanes",
        )?;
        rule(
            (1..=65_536).contains(&self.lanes_max),
            "lanes_max",
            self.lanes_max.to_string(),
            "from 1 to 65536 lanes of one client",
        )
    }

    /// Returns the front of the digest of the settings that all replicas must have alike: those that decide which
    /// messages are well-formed, which certificates count, and what the state is. Never 0.
    pub fn shared_settings(&self) -> u64 {
        let numbers = [
            self.checkpoint_interval,
            self.window,
            u64::from(self.read_only),
            u64::try_from(self.clients_max).unwrap_or(u64::MAX),
            self.service_settings,
        ];
        let mut covered = [0; 40];
        for (room, number) in covered.chunks_exact_mut(8).zip(numbers) {
            room.copy_from_slice(&number.to_le_bytes());
        }
        let digest = self.domains().message(&covered);
        digest.0.first_chunk().map_or(1, |front| u64::from_le_bytes(*front)).max(1)
    }

    /// Returns the digest domains of the cluster.
    pub fn domains(&self) -> Domains {
        Domains::new(self.cluster_id)
    }

    /// Returns whether `seq` is a checkpoint's number.
    pub fn is_checkpoint(&self, seq: SeqNum) -> bool {
        seq.0.is_multiple_of(self.checkpoint_interval)
    }

    /// Returns the first checkpoint at or after `seq`.
    pub fn checkpoint_from(&self, seq: SeqNum) -> SeqNum {
        SeqNum(seq.0.div_ceil(self.checkpoint_interval).saturating_mul(self.checkpoint_interval))
    }
}
