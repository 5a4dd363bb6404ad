//! The status as JSON: the keys of `quorate status --json`.

use quorate_wire::message::{Statement, TransferStats, WorkerStats};
use serde_json::{Map, Value, json};

use super::model::{Health, Picture};
use crate::run::client::ledger::Item;

/// The version of the keys. It grows when a key changes its meaning or is removed.
///
/// Schema 2 has `crashes_tolerated` and `byzantine_tolerated` for `may_stop` and `may_lie`; it still has the old keys,
/// which schema 3 will drop. The state of a replica that fetches state is `rejoining`; in schema 1 it was `joins`.
pub const SCHEMA: u64 = 2;

/// Returns the verdict on the cluster.
pub fn cluster(picture: &Picture) -> Value {
    json!({
        "verdict": picture.verdict.name().to_lowercase(),
        "crashes_tolerated": picture.may_stop,
        "byzantine_tolerated": picture.may_lie,
        "replicas_needed": picture.needed(),
        "unserved": picture.unserved(),
        "may_stop": picture.may_stop,
        "may_lie": picture.may_lie,
        "asked": picture.replicas.len(),
        "answered": picture.answered(),
        "n": picture.cluster.n(),
        "f": picture.cluster.f(),
        "view": picture.view.map(|view| view.0),
        "primary": picture.primary().map(|primary| primary.0),
        "as_of": picture.now_s,
        "schema": SCHEMA,
    })
}

/// Returns a replica's own statement, and the evidence of others.
pub fn replica(health: &Health, picture: &Picture) -> Value {
    let mut object = json!({
        "replica": health.id.0,
        "reachable": health.says.is_some(),
        "state": health.word.name(),
        "settings_differ": health.differs,
        "agrees": health.agrees.name(),
        "behind_ops": health.behind,
        "evidence": health.evidence.iter().map(item).collect::<Vec<_>>(),
    });
    let (Some(says), Some(object_map)) = (&health.says, object.as_object_mut()) else { return object };
    let newest = says.checkpoints.last().copied().unwrap_or(says.stable);
    let rejected: Map<String, Value> =
        says.rejected.iter().map(|(reason, count)| (reason.clone(), (*count).into())).collect();
    let checkpoints: Vec<Value> =
        says.checkpoints.iter().map(|(seq, digest)| json!([seq.0, hex(&digest.0)])).collect();
    let more = json!({
        "view": says.view.0,
        "primary": picture.cluster.primary(says.view).0,
        "last_executed": says.executed.0,
        "last_committed": says.committed.0,
        "stable_checkpoint": says.stable.0.0,
        "checkpoint_digest": hex(&says.stable.1.0),
        "state_digest": hex(&newest.1.0),
        "state_digest_at": newest.0.0,
        "checkpoints": checkpoints,
        "low_mark": says.low.0,
        "high_mark": says.high.0,
        "in_view_change": says.in_view_change,
        "transferring": says.transferring,
        "rejoining": says.rejoining,
        "transfer": {"done": says.transfer.0, "total": says.transfer.1, "eta_s": eta_s(says)},
        "transferred": says.moved.as_ref().map(|moved| transferred(moved, says.transferring)),
        "workers": says.workers.as_ref().map(workers),
        "view_changes": says.view_changes,
        "requests": says.requests,
        "rejected": rejected,
        "memory_bytes": says.memory_bytes,
        "disk_free": says.disk.0,
        "disk_bytes": says.disk.1,
        "uptime_s": says.uptime_ms / 1000,
        "durability": says.keeps.name(),
        "fsync_p99_us": says.fsync_p99_us,
        "key_age_s": says.key_age_ms / 1000,
        "recovered_age_s": says.recovered_ms / 1000,
        "clock_ms": says.clock_ms,
        "client_lanes": says.lanes.0,
        "client_lanes_max": says.lanes.1,
        "version": says.version,
    });
    if let Value::Object(more) = more {
        object_map.extend(more);
    }
    object
}

/// Returns the figures of the workers.
fn workers(stats: &WorkerStats) -> Value {
    json!({
        "count": stats.workers,
        "runs": stats.starts,
        "at_once_mean": mean(stats.at_once, stats.starts),
        "at_once_peak": stats.most,
        "ran_again": stats.again,
        "again_percent": percent(stats.again, stats.runs),
        "on_pages": stats.on_pages,
        "early_replies": stats.early,
        "parked": stats.parked,
        "wrong_rules": stats.wrong_rules,
    })
}

/// Returns a mean with one digit after the point.
pub(super) fn mean(sum: u64, count: u64) -> f64 {
    let tenths = sum.saturating_mul(10).checked_div(count).unwrap_or(0);
    f64::from(u32::try_from(tenths).unwrap_or(u32::MAX)) / 10.0
}

/// Returns the figures of the last state transfer.
fn transferred(moved: &TransferStats, runs: bool) -> Value {
    let (pages, bytes) = moved.since_start;
    json!({
        "seq": moved.seq.0,
        "over": !runs,
        "pages": moved.pages,
        "bytes": moved.bytes,
        "state_pages": moved.of_pages,
        "state_bytes": moved.of_bytes,
        "percent": percent(moved.bytes, moved.of_bytes),
        "took_s": to_s(moved.took_ms),
        "since_start": {
            "transfers": moved.transfers,
            "pages": pages,
            "bytes": bytes,
            "percent": percent(bytes, moved.of_bytes),
        },
    })
}

/// Estimates the remaining time of a transfer at its present rate, in seconds. None: no transfer runs, or nothing has
/// arrived yet.
pub(super) fn eta_s(says: &Statement) -> Option<u64> {
    let moved = says.moved.as_ref().filter(|_| says.transferring && says.transfer.0 > 0)?;
    let (done, total) = says.transfer;
    let left_ms = u128::from(total.saturating_sub(done)) * u128::from(moved.took_ms) / u128::from(done);
    u64::try_from(left_ms.div_ceil(1000)).ok()
}

/// Returns `bytes` in percent of a state of `of` bytes, with one decimal.
pub(super) fn percent(bytes: u64, of: u64) -> f64 {
    let tenths = u128::from(bytes) * 1000 / u128::from(of.max(1));
    f64::from(u32::try_from(tenths).unwrap_or(u32::MAX)) / 10.0
}

/// Returns seconds with one decimal.
pub(super) fn to_s(ms: u64) -> f64 {
    f64::from(u32::try_from(ms / 100).unwrap_or(u32::MAX)) / 10.0
}

/// Returns one item of evidence.
pub fn item(item: &Item) -> Value {
    json!({
        "class": item.class.name(),
        "replica": item.replica.0,
        "count": item.count,
        "first": item.first,
        "last": item.last,
        "by": item.by,
        "code": item.class.code(),
    })
}

/// Returns the lines of `status --json`: the cluster, then each replica.
pub fn lines(picture: &Picture) -> Vec<Value> {
    let replicas = picture.replicas.iter().map(|health| replica(health, picture));
    std::iter::once(cluster(picture)).chain(replicas).collect()
}

/// Returns bytes in hexadecimal.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write as _;
    bytes.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}
