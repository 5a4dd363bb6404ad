//! Every key of `node.toml` that has a default, with its description. The parser reads them, and `init` writes an
//! example of each.

use quorate_fs::settings::Atime;
use quorate_pbft::config::{Durability, Replier, RequestAuth, WORKERS_MAX};

use quorate_service::parallel::EngineKind;

use super::exports;
use super::fields::Settings;
use super::value::Value;
use crate::net::idle::Waiting;
use crate::services::ServiceName;

/// A key.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) name: &'static str,
    /// Its default, as in the file.
    pub(super) default: &'static str,
    /// The values that it accepts: format, unit, bounds.
    pub(super) takes: &'static str,
    /// Its description.
    pub(super) about: &'static str,
    /// Whether only replicas have it.
    pub(super) replicas_only: bool,
    /// Whether all nodes that have it must have the same value.
    pub(super) shared: bool,
    /// Sets a value. None: the value is invalid.
    pub(super) set: fn(&mut Settings, Value<'_>) -> Option<()>,
}

impl Key {
    /// Returns its description as lines of comments.
    pub(super) fn comment(&self) -> String {
        format!("# {} ({})\n", self.about.replace('\n', "\n# "), self.takes)
    }
}

/// Declares the keys.
macro_rules! keys {
    ($($who:ident $($shared:ident)? $name:literal = $default:literal, $takes:literal, $about:literal,
       |$settings:ident, $value:ident| $set:expr;)*) => {
        pub(super) const KEYS: &[Key] = &[$(Key {
            name: $name,
            default: $default,
            takes: $takes,
            about: $about,
            replicas_only: replicas_only!($who),
            shared: shared!($($shared)?),
            set: |$settings, $value| { $set; Some(()) },
        },)*];
    };
}

macro_rules! replicas_only {
    (replica) => {
        true
    };
    (node) => {
        false
    };
}

macro_rules! shared {
    (shared) => {
        true
    };
    () => {
        false
    };
}

keys! {
    node shared "service" = "\"kv\"", "\"fs\", \"kv\", \"null\" or \"own\"",
        "The replicated service: a file system, a key-value store, a service without state for measurements, or the\n\
         service of the program that runs the node. Same on all nodes.",
        |s, v| s.service = ServiceName::from_name(v.text()?)?;
    replica "durability" = "\"sync\"", "\"sync\", \"async\" or \"memory\"",
        "What a replica writes to disk before it acknowledges.\n\
         sync: everything; no data is lost even if all machines lose power.\n\
         async: the same is written, without waiting; a killed replica has to rejoin.\n\
         memory: nothing is written; a replica that stops has to rejoin, and if more than f stop at the same time,\n\
         all data is lost.",
        |s, v| s.config.durability = match v.text()? {
            "sync" => Durability::Sync,
            "async" => Durability::Async,
            "memory" => Durability::Memory,
            _ => return None,
        };
    node shared "checkpoint_interval" = "128", "batches, 1 to window / 2",
        "K: batches between checkpoints. Same on all nodes.",
        |s, v| s.config.checkpoint_interval = v.number()?;
    node shared "window" = "2048", "batches, a multiple of checkpoint_interval, at most 4096",
        "L: how far agreement may run ahead of the last stable checkpoint. A rejoining replica has to catch up within\n\
         this window. Same on all nodes.",
        |s, v| s.config.window = v.number()?;
    node "pipeline" = "8", "batches, 1 to 64",
        "W: maximum number of batches that the primary has in progress.",
        |s, v| s.config.pipeline = v.number()?;
    replica "batch_requests_max" = "1024", "requests, 1 to 1024",
        "Maximum number of requests in a batch.",
        |s, v| s.config.batch_requests_max = u16::try_from(v.number()?).ok()?;
    replica "batch_bytes_max" = "\"56KiB\"", "a size, 1KiB to 56KiB",
        "Maximum size of a batch. A larger request gets a batch of its own.",
        |s, v| s.config.batch_bytes_max = v.size()?;
    node "separate_above" = "\"4KiB\"", "a size, below batch_bytes_max",
        "Requests with longer operations are sent separately from the ordering messages.",
        |s, v| s.config.separate_above = v.size()?;
    node "small_reply" = "\"64B\"", "a size",
        "A result below this size is sent by every replica. A longer result is sent by one replica, and the others\n\
         send its digest.",
        |s, v| s.config.small_reply = v.size()?;
    node shared "read_only" = "true", "true or false",
        "Serve read-only requests without ordering them. Same on all nodes.",
        |s, v| s.config.read_only = v.switch()?;
    node "digest_replies" = "true", "true or false",
        "If false, every replica sends the whole result, however long.",
        |s, v| s.config.digest_replies = v.switch()?;
    node "collect_replies_from" = "4", "a number of clients, at most 16",
        "If a batch has requests of at least this many clients, and few of each, each request has one replica that\n\
         sends the replies of a quorum in one datagram. 0: each replica sends its own.",
        |s, v| s.config.collect_from = u16::try_from(v.number()?).ok()?;
    node "replier" = "\"random\"", "\"random\" or \"in-turn\"",
        "How a client chooses the replica that sends the whole result.",
        |s, v| s.config.replier = match v.text()? {
            "random" => Replier::Random,
            "in-turn" => Replier::RoundRobin,
            _ => return None,
        };
    replica "tentative" = "true", "true or false",
        "Execute batches when they have prepared, and answer before they have committed.",
        |s, v| s.config.tentative = v.switch()?;
    replica "piggyback" = "true", "true or false",
        "Send commits as part of the next ordering message.",
        |s, v| s.config.piggyback = v.switch()?;
    node shared "request_auth" = "\"adaptive\"", "\"adaptive\", \"mac\" or \"sig+mac\"",
        "How requests are authenticated: with MACs (mac), or with signatures too (sig+mac). adaptive: with MACs, but a\n\
         client whose MACs fail at some replica has to sign too. Same on all nodes.",
        |s, v| s.config.request_auth = match v.text()? {
            "adaptive" => RequestAuth::Adaptive,
            "mac" => RequestAuth::Mac,
            "sig+mac" => RequestAuth::SigMac,
            _ => return None,
        };
    replica "request_timeout_min" = "\"100ms\"", "a duration, at least 1ms",
        "Minimum time that a request may wait before the primary is suspected. The actual time adapts to the load.",
        |s, v| s.config.request_timeout_min_ns = v.duration_ns()?;
    replica "request_timeout_max" = "\"2s\"", "a duration, at least request_timeout_min",
        "Maximum of that time.",
        |s, v| s.config.request_timeout_max_ns = v.duration_ns()?;
    replica "view_timeout_max" = "\"60s\"", "a duration, at least request_timeout_max",
        "Maximum time to wait for a new primary's first message.",
        |s, v| s.config.view_timeout_max_ns = v.duration_ns()?;
    node "client_timeout_min" = "\"5ms\"", "a duration, at least 1ms",
        "Minimum time after which a client resends a request. The actual time adapts to the load.",
        |s, v| s.config.client_timeout_min_ns = v.duration_ns()?;
    node "client_timeout_max" = "\"10s\"", "a duration, at least client_timeout_min",
        "Maximum of that time.",
        |s, v| s.config.client_timeout_max_ns = v.duration_ns()?;
    replica "status_interval" = "\"150ms\"", "a duration, 100ms to 1h",
        "How often replicas tell each other which messages they have and lack.",
        |s, v| s.config.status_ns = v.duration_ns()?;
    replica "clock_skew" = "\"2s\"", "a duration, 1ms to 1h",
        "Maximum difference between the primary's clock and this replica's.",
        |s, v| s.config.clock_skew_ns = v.duration_ns()?;
    replica shared "clients_max" = "65536", "lanes of all clients together, 16 to 65536",
        "Maximum number of client lanes that the service remembers. Same on all replicas, fixed at the first start.",
        |s, v| s.config.clients_max = usize::try_from(v.number()?).ok()?;
    replica shared "client_lanes_max" = "256", "lanes of one client, 1 to 65536",
        "Maximum number of client lanes of one client. Further lanes are refused. Same on all replicas, fixed at the\n\
         first start: `quorate set` changes it while the cluster runs.",
        |s, v| s.config.lanes_max = usize::try_from(v.number()?).ok()?;
    replica "key_interval" = "\"15min\"", "a duration, at least 5s",
        "How long session keys are used (T_k).",
        |s, v| s.key_interval_ns = v.duration_ns()?;
    replica "log_bytes_max" = "\"64MiB\"", "a size, at least 1MiB",
        "Maximum size of the log before the state is written to disk and the log truncated.",
        |s, v| s.log_bytes_max = v.size()?;
    replica "state_memory_max" = "\"1GiB\"", "a size, at least 1MiB",
        "How much of the state is kept in memory. The rest is read from disk when needed. With durability = \"memory\"\n\
         all of it is in memory. A replica needs another 250 bytes for each 4 KiB of the state, and 128MiB.",
        |s, v| s.state_memory_max = v.size().filter(|size| *size >= 1 << 20)?;
    node shared "fs_exports" = "\"/(rw,root_squash)\"", "directories with options, as in /etc/exports",
        "The directories that can be mounted, such as `/(rw,no_root_squash) /pub(ro,all_squash,10.0.0.0/8)`. Options:\n\
         rw or ro; root_squash, no_root_squash or all_squash; networks that may mount. An export of a subdirectory\n\
         does not isolate it: a program that builds its own NFS calls can reach files outside the subdirectory, with\n\
         the options of any export that admits its address. Same on all nodes.",
        |s, v| s.fs.exports = exports::parse(v.text()?)?;
    node shared "fs_atime" = "\"relatime\"", "\"relatime\", \"strict\" or \"none\"",
        "When reading a file updates its access time. relatime: only if the access time is old. strict: always, so every\n\
         read is ordered. none: never. Same on all nodes.",
        |s, v| s.fs.atime = match v.text()? {
            "relatime" => Atime::Relatime,
            "strict" => Atime::Strict,
            "none" => Atime::None,
            _ => return None,
        };
    node shared "fs_read_only" = "\"all\"", "\"all\", \"none\", or names of procedures that only read",
        "The NFS procedures that are served without ordering, such as `getattr lookup`. Same on all nodes.",
        |s, v| s.fs.read_only = exports::procedures(v.text()?)?;
    node shared "fs_inodes_max" = "4294967296", "files, at least 1",
        "Maximum number of files, directories and links. Same on all nodes, fixed at the first start.",
        |s, v| s.fs.inodes_max = v.number()?;
    node shared "fs_capacity" = "\"64GiB\"", "a size, 1MiB to 64GiB",
        "Space for data and its tables, in whole pages of 4 KiB. Same on all nodes, fixed at the first start.",
        |s, v| s.fs.capacity_bytes = v.size().and_then(|size| u64::try_from(size).ok())
            .filter(|size| (1 << 20..=64 << 30).contains(size))?;
    node shared "fs_quota_bytes" = "\"none\"", "\"none\", or a size, at least 4KiB",
        "Maximum size of the data that each user except root may own, in whole pages of 4 KiB. Files of up to 512 bytes\n\
         take none. At the limit, users can still overwrite their data. Same on all nodes, fixed at the first start.",
        |s, v| s.fs.quota.bytes_max = match v.text() {
            Some("none") => u64::MAX,
            _ => u64::try_from(v.size().filter(|size| *size >= 4096)?).ok()?,
        };
    node shared "fs_quota_inodes" = "\"none\"", "\"none\", or files, at least 1",
        "Maximum number of files, directories and links that each user except root may own. Same on all nodes, fixed at\n\
         the first start.",
        |s, v| s.fs.quota.inodes_max = match v.text() {
            Some("none") => u64::MAX,
            _ => v.number().filter(|count| *count >= 1)?,
        };
    node "poll" = "\"1ms\"", "a duration, 0ms to sleep immediately",
        "How long to poll for the next datagram before sleeping. A sleeping node answers about 20 us later; a polling\n\
         node keeps a core busy. While other programs need all cores, it sleeps immediately.",
        |s, v| s.waiting = match v.duration_ns()? {
            0 => Waiting::Block,
            patience => Waiting::Poll(patience),
        };
    node "core" = "\"any\"", "\"any\", or the number of a core",
        "The core that the node's main thread is pinned to.",
        |s, v| s.core = if v.text() == Some("any") { None } else { Some(usize::try_from(v.number()?).ok()?) };
    replica "workers" = "1", "1 to 128",
        "Threads that run long operations, several at a time. More than 1 needs tentative = false. 1: requests are executed\n\
         one after the other, long ones on a thread if tentative = false. Replicas may differ.",
        |s, v| s.config.workers = v.number().filter(|count| (1..=WORKERS_MAX).contains(count))?;
    replica "parallel" = "\"keys\"", "\"keys\", \"matrix\", \"sequential\" or \"free\"",
        "With workers: how the replica finds out which requests wait for others. keys: by the keys that the service\n\
         declares. matrix: the same, compared with every pending request. sequential: each waits for the one before.\n\
         free: none waits, and those that should have are executed again. Replicas may differ.",
        |s, v| s.parallel = match v.text()? {
            "keys" => EngineKind::GroupIndex,
            "matrix" => EngineKind::Matrix,
            "sequential" => EngineKind::Sequential,
            "free" => EngineKind::Free,
            _ => return None,
        };
    replica "recording" = "\"0B\"", "a size, 0B for none",
        "Size of the flight recorder, which keeps the replica's inputs since its start in memory. They are written to\n\
         the file `recording` when the replica stops. `quorate sim replay --recording FILE` replays them.",
        |s, v| s.recording_bytes = v.size()?;
}

/// Returns the most similar key, if one is similar.
pub(super) fn nearest(typed: &str) -> Option<&'static Key> {
    let distance = |name: &str| {
        let common = |a: &str, b: &str| a.bytes().zip(b.bytes()).take_while(|(x, y)| x == y).count();
        let (a, b): (String, String) = (typed.chars().rev().collect(), name.chars().rev().collect());
        let shared = common(typed, name) + common(&a, &b);
        typed.len().max(name.len()).saturating_sub(shared)
    };
    let best = KEYS.iter().min_by_key(|key| distance(key.name))?;
    (distance(best.name) <= typed.len() / 3).then_some(best)
}
