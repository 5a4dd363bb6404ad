//! Every key of `node.toml` that has a default, with what it means: read by the parser, and by `init`, which
//! writes an example of each.

use quorate_fs::settings::Atime;
use quorate_pbft::config::{Durability, Replier, RequestAuth};

use super::value::Value;
use super::{ServiceName, Settings, exports};
use crate::idle::Waiting;

/// A key.
#[derive(Debug)]
pub(super) struct Key {
    pub(super) name: &'static str,
    /// Its default, as it would stand in the file.
    pub(super) default: &'static str,
    /// What values it takes: form, unit, bounds.
    pub(super) takes: &'static str,
    /// What it is for.
    pub(super) about: &'static str,
    /// It is meant for replicas alone.
    pub(super) replicas_only: bool,
    /// Takes a value; none if it is not of its form.
    pub(super) set: fn(&mut Settings, Value<'_>) -> Option<()>,
}

/// Declares the keys.
macro_rules! keys {
    ($($who:ident $name:literal = $default:literal, $takes:literal, $about:literal,
       |$settings:ident, $value:ident| $set:expr;)*) => {
        pub(super) const KEYS: &[Key] = &[$(Key {
            name: $name,
            default: $default,
            takes: $takes,
            about: $about,
            replicas_only: replicas_only!($who),
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

keys! {
    node "service" = "\"kv\"", "\"fs\", \"kv\", \"null\" or \"own\"",
        "What is replicated: a file system; a key-value store; nothing at all, for measuring; or the own service\n\
         of the program that runs the node. The same at all nodes.",
        |s, v| s.service = ServiceName::from_name(v.text()?)?;
    replica "durability" = "\"sync\"", "\"sync\", \"async\" or \"memory\"",
        "sync: what is promised is on disk before it is said; survives the loss of power everywhere.\n\
         async: the same is written and nothing waits; a replica that is killed has to rejoin from the others.\n\
         memory: nothing is written; a replica that stops has forgotten everything and has to rejoin, and if\n\
         more than f stop at a time, all is lost.",
        |s, v| s.config.durability = match v.text()? {
            "sync" => Durability::Sync,
            "async" => Durability::Async,
            "memory" => Durability::Memory,
            _ => return None,
        };
    node "checkpoint_interval" = "128", "batches, 1 to window / 2",
        "K: batches between checkpoints. The same at all nodes.",
        |s, v| s.config.checkpoint_interval = v.number()?;
    node "window" = "2048", "batches, a multiple of checkpoint_interval, at most 4096",
        "L: how far agreement may run ahead of the last stable checkpoint, and how long a replica that comes back has\n\
         for its last step to the others. The same at all nodes.",
        |s, v| s.config.window = v.number()?;
    node "pipeline" = "8", "batches, 1 to 64",
        "W: batches that the primary has in progress at a time.",
        |s, v| s.config.pipeline = v.number()?;
    replica "batch_requests_max" = "1024", "requests, 1 to 1024",
        "The most requests in a batch.",
        |s, v| s.config.batch_requests_max = u16::try_from(v.number()?).ok()?;
    replica "batch_bytes_max" = "\"56KiB\"", "a size, 1KiB to 56KiB",
        "The most bytes in a batch; a single larger request goes alone.",
        |s, v| s.config.batch_bytes_max = v.size()?;
    node "separate_above" = "\"255B\"", "a size, below batch_bytes_max",
        "Requests with longer operations travel apart from the ordering messages.",
        |s, v| s.config.separate_above = v.size()?;
    node "small_reply" = "\"64B\"", "a size",
        "Shorter results come from every replica; of longer ones one sends the result, the others a digest.",
        |s, v| s.config.small_reply = v.size()?;
    node "read_only" = "true", "true or false",
        "Serve read-only requests without ordering them. The same at all nodes.",
        |s, v| s.config.read_only = v.switch()?;
    node "digest_replies" = "true", "true or false",
        "Off: every replica sends the whole result.",
        |s, v| s.config.digest_replies = v.switch()?;
    node "replier" = "\"random\"", "\"random\" or \"in-turn\"",
        "Whom a client asks for the whole result.",
        |s, v| s.config.replier = match v.text()? {
            "random" => Replier::Random,
            "in-turn" => Replier::RoundRobin,
            _ => return None,
        };
    replica "tentative" = "true", "true or false",
        "Execute when prepared and answer before committed.",
        |s, v| s.config.tentative = v.switch()?;
    replica "piggyback" = "true", "true or false",
        "Commits ride on the next message.",
        |s, v| s.config.piggyback = v.switch()?;
    node "request_auth" = "\"adaptive\"", "\"adaptive\", \"mac\" or \"sig+mac\"",
        "How requests are authenticated. adaptive: with MACs until a client's fail somewhere, then it has to\n\
         sign as well. The same at all nodes.",
        |s, v| s.config.request_auth = match v.text()? {
            "adaptive" => RequestAuth::Adaptive,
            "mac" => RequestAuth::Mac,
            "sig+mac" => RequestAuth::SigMac,
            _ => return None,
        };
    replica "request_timeout_min" = "\"100ms\"", "a duration, at least 1ms",
        "The shortest time that a request may wait before the primary is suspected; it adapts upwards.",
        |s, v| s.config.request_timeout_min_ns = v.duration_ns()?;
    replica "request_timeout_max" = "\"2s\"", "a duration, at least request_timeout_min",
        "The longest.",
        |s, v| s.config.request_timeout_max_ns = v.duration_ns()?;
    replica "view_timeout_max" = "\"60s\"", "a duration, at least request_timeout_max",
        "The longest wait for a new primary's first message.",
        |s, v| s.config.view_timeout_max_ns = v.duration_ns()?;
    node "client_timeout_min" = "\"5ms\"", "a duration, at least 1ms",
        "The shortest time after which a client sends again.",
        |s, v| s.config.client_timeout_min_ns = v.duration_ns()?;
    node "client_timeout_max" = "\"10s\"", "a duration, at least client_timeout_min",
        "The longest.",
        |s, v| s.config.client_timeout_max_ns = v.duration_ns()?;
    replica "status_interval" = "\"150ms\"", "a duration, 100ms to 1h",
        "How often replicas tell each other what they have and lack.",
        |s, v| s.config.status_ns = v.duration_ns()?;
    replica "clock_skew" = "\"2s\"", "a duration, 1ms to 1h",
        "How far the primary's clock may be from this replica's.",
        |s, v| s.config.clock_skew_ns = v.duration_ns()?;
    replica "clients_max" = "65536", "client lanes, 16 to 65536",
        "Clients that the service remembers. The same at all replicas, from the first start on.",
        |s, v| s.config.clients_max = usize::try_from(v.number()?).ok()?;
    replica "client_lanes_max" = "256", "lanes, 1 to 65536",
        "The most of them that one client has: further ones are refused. The same at all replicas.",
        |s, v| s.config.lanes_max = usize::try_from(v.number()?).ok()?;
    replica "key_interval" = "\"15min\"", "a duration, at least 5s",
        "How long session keys are used (T_k).",
        |s, v| s.key_interval_ns = v.duration_ns()?;
    replica "log_bytes_max" = "\"64MiB\"", "a size, at least 1MiB",
        "How much the log may grow before the state is written out and the log made shorter.",
        |s, v| s.log_bytes_max = v.size()?;
    replica "state_memory_max" = "\"1GiB\"", "a size, at least 1MiB",
        "How much of the state is kept in memory; the rest is read from the disk when it is asked for. With\n\
         durability = \"memory\" all of it is in memory. Besides, count 250 bytes for each 4 KiB of the state, and 128MiB.",
        |s, v| s.state_memory_max = v.size().filter(|size| *size >= 1 << 20)?;
    node "fs_exports" = "\"/(rw,root_squash)\"", "directories with options, as in /etc/exports",
        "What can be mounted of the file system, by whom: `/(rw,no_root_squash) /pub(ro,all_squash,10.0.0.0/8)`.\n\
         Options: rw or ro; root_squash, no_root_squash or all_squash; networks. An export of a subdirectory is no wall:\n\
         who makes calls of his own can name any file of the service with its rights. The same at all nodes.",
        |s, v| s.fs.exports = exports::parse(v.text()?)?;
    node "fs_atime" = "\"relatime\"", "\"relatime\", \"strict\" or \"none\"",
        "When reading a file changes its time of last access: if it is due; each time, so that every read is\n\
         ordered; or never. The same at all nodes.",
        |s, v| s.fs.atime = match v.text()? {
            "relatime" => Atime::Relatime,
            "strict" => Atime::Strict,
            "none" => Atime::None,
            _ => return None,
        };
    node "fs_read_only" = "\"all\"", "\"all\", \"none\", or names of procedures that only read",
        "The NFS procedures that are served without ordering, such as `getattr lookup`. The same at all nodes.",
        |s, v| s.fs.read_only = exports::procedures(v.text()?)?;
    node "fs_inodes_max" = "4294967296", "files, at least 1",
        "How many files, directories and links there may be. The same at all nodes, from the first start on.",
        |s, v| s.fs.inodes_max = v.number()?;
    node "fs_capacity" = "\"64GiB\"", "a size, 1MiB to 64GiB",
        "How much room there is for data and its tables, in whole pages of 4 KiB. The same at all nodes, from the first\n\
         start on.",
        |s, v| s.fs.capacity_bytes = v.size().and_then(|size| u64::try_from(size).ok())
            .filter(|size| (1 << 20..=64 << 30).contains(size))?;
    node "fs_quota_bytes" = "\"none\"", "\"none\", or a size, at least 4KiB",
        "How much data each user but root may own, in whole pages of 4 KiB; files of up to 512 bytes take none. What a user\n\
         has he can write over at the limit. The same at all nodes, from the first start on.",
        |s, v| s.fs.quota.bytes_max = match v.text() {
            Some("none") => u64::MAX,
            _ => u64::try_from(v.size().filter(|size| *size >= 4096)?).ok()?,
        };
    node "fs_quota_inodes" = "\"none\"", "\"none\", or files, at least 1",
        "How many files, directories and links each user but root may own. The same at all nodes, from the first start\n\
         on.",
        |s, v| s.fs.quota.inodes_max = match v.text() {
            Some("none") => u64::MAX,
            _ => v.number().filter(|count| *count >= 1)?,
        };
    node "poll" = "\"1ms\"", "a duration, 0ms to sleep at once",
        "How long to look for the next datagram before sleeping. A sleeping node takes some 20 us more to\n\
         answer; a polling one takes its core.",
        |s, v| s.waiting = match v.duration_ns()? {
            0 => Waiting::Block,
            patience => Waiting::Poll(patience),
        };
    node "core" = "\"any\"", "\"any\", or the number of a core",
        "The core that the node's main thread stays on.",
        |s, v| s.core = if v.text() == Some("any") { None } else { Some(usize::try_from(v.number()?).ok()?) };
    replica "recording" = "\"0B\"", "a size, 0B for none",
        "The flight recorder: inputs since the start, kept in memory up to this size and written to\n\
         `recording` when the replica stops. `quorate sim replay --recording FILE` steps through it.",
        |s, v| s.recording_bytes = v.size()?;
}
