//! A replica's report about itself to a client that asks, for operators and monitoring.
//!
//! These two kinds belong to the node, not to the protocol: no correctness property depends on them. A statement is
//! authentic, but only the claim of its sender; a reader compares those of all replicas.

use alloc::string::String;
use alloc::vec::Vec;

use crate::envelope::cluster::REPLICAS_MAX;
use crate::envelope::codec::{DecodeError, Decoded, Reader, Writer};
use crate::envelope::digest::Digest;
use crate::envelope::id::{ReplicaId, SeqNum, ViewNum};
use crate::envelope::parts::{increasing, plain_message, take_list, whole};

/// Maximum number of checkpoints in a statement: the newest ones.
pub const STATED_CHECKPOINTS_MAX: u8 = 16;
/// Maximum number of reasons for turning something away in a statement.
pub const STATED_REASONS_MAX: u8 = 64;
/// The longest name of a reason, in bytes.
pub const REASON_BYTES_MAX: u8 = 24;
/// Maximum number of settings in a statement.
pub const STATED_SETTINGS_MAX: u8 = 64;
/// The longest name of a version, in bytes.
pub const VERSION_BYTES_MAX: u8 = 32;

plain_message! {
    /// PROBE: `nonce 8`: a client asks what the receiver has to say of itself.
    Probe {
        /// Ties the answers to this question.
        nonce: u64 = |w, v| w.u64(v), |r| r.u64();
    }
}

/// What a replica writes to disk before it acknowledges, by its own statement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Keeps {
    /// Every promise is on disk before it is made.
    #[default]
    Sync,
    /// It is written without waiting.
    Async,
    /// Nothing is written.
    Memory,
}

impl Keeps {
    /// Returns the name as in `node.toml`.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sync => "sync",
            Self::Async => "async",
            Self::Memory => "memory",
        }
    }

    fn to_wire(self) -> u8 {
        match self {
            Self::Sync => 0,
            Self::Async => 1,
            Self::Memory => 2,
        }
    }

    fn from_wire(byte: u8) -> Decoded<Self> {
        match byte {
            0 => Ok(Self::Sync),
            1 => Ok(Self::Async),
            2 => Ok(Self::Memory),
            _ => Err(DecodeError::NotCanonical),
        }
    }
}

/// A replica's observation of another one that has equivocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Contradiction {
    /// The replica that equivocated.
    pub by: ReplicaId,
    /// How often.
    pub count: u64,
    /// How long ago the last time was, in milliseconds.
    pub age_ms: u64,
}

/// What a replica's last state transfer has moved, or moves: what came over the network, of use or not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TransferStats {
    /// The checkpoint that it reached; while it runs, the one that it is to reach.
    pub seq: SeqNum,
    /// Pages that came: one that came twice, for another target, counts twice.
    pub pages: u64,
    /// Bytes of the messages that brought them, and of those with the digests that told which.
    pub bytes: u64,
    /// Pages of the whole state; while it runs, as far as is known.
    pub of_pages: u64,
    /// Their bytes.
    pub of_bytes: u64,
    /// How long it took, or has taken so far, in milliseconds.
    pub took_ms: u64,
    /// Transfers since the replica started, this one with them.
    pub transfers: u64,
    /// Pages and bytes that all these have transferred.
    pub since_start: (u64, u64),
}

/// What a replica's workers have done since it started (PX-A).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WorkerStats {
    /// The number of workers.
    pub workers: u64,
    /// Runs on cells that were started.
    pub starts: u64,
    /// The runs that were under way when one was started, itself included: the sum of all starts.
    pub at_once: u64,
    /// The most runs that were under way at once.
    pub most: u64,
    /// Runs on cells that were finished.
    pub runs: u64,
    /// Requests that ran again when they settled.
    pub again: u64,
    /// Requests that ran on pages only.
    pub on_pages: u64,
    /// Replies that left before their requests settled.
    pub early: u64,
    /// Times that settling waited for a page that could not be read.
    pub parked: u64,
    /// Requests whose result shows that the service's declarations are wrong.
    pub wrong_rules: u64,
}

/// STATEMENT: a replica's answer to PROBE. At most 5 KiB.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
#[allow(clippy::struct_excessive_bools, reason = "each is a flag on the wire")]
pub struct Statement {
    /// The question's.
    pub nonce: u64,
    /// Its view.
    pub view: ViewNum,
    /// The last batch that it has executed and that has committed.
    pub executed: SeqNum,
    /// The highest number that it has seen commit.
    pub committed: SeqNum,
    /// Its stable checkpoint.
    pub stable: (SeqNum, Digest),
    /// Its water marks.
    pub low: SeqNum,
    /// See `low`.
    pub high: SeqNum,
    /// It has left a view and not entered the next.
    pub in_view_change: bool,
    /// It fetches state from the others.
    pub transferring: bool,
    /// It has lost its memory, and does not vote until it has rejoined.
    pub rejoining: bool,
    /// Its disk has no room: it promises nothing until there is some.
    pub disk_full: bool,
    /// Its newest checkpoints with the digests of its state, by increasing number. At most
    /// [`STATED_CHECKPOINTS_MAX`].
    pub checkpoints: Vec<(SeqNum, Digest)>,
    /// Bytes of the state that a transfer has brought, and that it has to bring as far as is known.
    pub transfer: (u64, u64),
    /// What its last transfer has moved, or moves. None: it has fetched no state since it started.
    pub moved: Option<TransferStats>,
    /// What its workers have done. None: it executes one request after the other.
    pub workers: Option<WorkerStats>,
    /// Views that it has left since it started.
    pub view_changes: u64,
    /// Requests that it has executed since it started.
    pub requests: u64,
    /// Memory that its process holds, in bytes.
    pub memory_bytes: u64,
    /// Room that is left on its disk, and the size of the disk, in bytes. 0 of 0: not known.
    pub disk: (u64, u64),
    /// How long it has run, in milliseconds.
    pub uptime_ms: u64,
    /// The durability.
    pub keeps: Keeps,
    /// Of the last writes to its log, one in a hundred took longer than this, in microseconds.
    pub fsync_p99_us: u32,
    /// The age of its session keys, in milliseconds.
    pub key_age_ms: u64,
    /// How long ago it has started or, if that is later, rejoined, in milliseconds.
    pub recovered_ms: u64,
    /// Why and how often it has turned something away, by increasing name. At most
    /// [`STATED_REASONS_MAX`].
    pub rejected: Vec<(String, u64)>,
    /// Who has contradicted itself, by increasing number.
    pub contradictions: Vec<Contradiction>,
    /// Its time of day, in milliseconds since 1970.
    pub clock_ms: u64,
    /// Client lanes that have an entry in the client table, and how many can have one.
    pub lanes: (u32, u32),
    /// The version of its program.
    pub version: String,
    /// The front of a digest of each setting that all replicas must have alike, in the order that the version has. At
    /// most [`STATED_SETTINGS_MAX`].
    pub settings: Vec<u16>,
}

impl Statement {
    /// Appends the body.
    pub fn encode(&self, out: &mut Writer<'_>) {
        for number in [self.nonce, self.view.0, self.executed.0, self.committed.0] {
            out.u64(number);
        }
        put_checkpoint(&self.stable, out);
        out.u64(self.low.0);
        out.u64(self.high.0);
        let (left, fetches, rejoins) = (self.in_view_change, self.transferring, self.rejoining);
        let has_moved = self.moved.is_some();
        let (has_workers, has_settings) = (self.workers.is_some(), !self.settings.is_empty());
        let flags = [left, fetches, rejoins, has_moved, self.disk_full, has_workers, has_settings];
        out.u8(flags.iter().rev().fold(0, |byte, flag| byte << 1 | u8::from(*flag)));
        out.count8(self.checkpoints.len());
        self.checkpoints.iter().for_each(|checkpoint| put_checkpoint(checkpoint, out));
        let ((done, total), (free, size)) = (self.transfer, self.disk);
        let more = [done, total, self.view_changes, self.requests, self.memory_bytes, free, size];
        for number in more {
            out.u64(number);
        }
        if let Some(moved) = &self.moved {
            put_moved(moved, out);
        }
        if let Some(workers) = &self.workers {
            put_workers(workers, out);
        }
        out.u64(self.uptime_ms);
        out.u8(self.keeps.to_wire());
        out.u32(self.fsync_p99_us);
        out.u64(self.key_age_ms);
        out.u64(self.recovered_ms);
        out.count8(self.rejected.len());
        for (reason, count) in &self.rejected {
            put_text(reason, out);
            out.u64(*count);
        }
        out.count8(self.contradictions.len());
        for Contradiction { by, count, age_ms } in &self.contradictions {
            out.u16(by.0);
            out.u64(*count);
            out.u64(*age_ms);
        }
        out.u64(self.clock_ms);
        out.u32(self.lanes.0);
        out.u32(self.lanes.1);
        put_text(&self.version, out);
        if !self.settings.is_empty() {
            out.count8(self.settings.len());
            self.settings.iter().for_each(|digest| out.u16(*digest));
        }
    }

    /// Reads a whole body.
    pub fn decode(body: &[u8]) -> Decoded<Self> {
        whole(body, |r| {
            let (nonce, view, executed) = (r.u64()?, ViewNum(r.u64()?), SeqNum(r.u64()?));
            let (committed, stable) = (SeqNum(r.u64()?), take_checkpoint(r)?);
            let (low, high, flags) = (SeqNum(r.u64()?), SeqNum(r.u64()?), r.u8()?);
            if flags > 127 {
                return Err(DecodeError::NotCanonical);
            }
            let checkpoints = take_list(r.count8(STATED_CHECKPOINTS_MAX)?, || take_checkpoint(r))?;
            increasing(checkpoints.iter().map(|(seq, _)| seq))?;
            let (transfer, view_changes, requests) = ((r.u64()?, r.u64()?), r.u64()?, r.u64()?);
            let (memory_bytes, disk) = (r.u64()?, (r.u64()?, r.u64()?));
            let moved = (flags & 8 != 0).then(|| take_moved(r)).transpose()?;
            let workers = (flags & 32 != 0).then(|| take_workers(r)).transpose()?;
            let uptime_ms = r.u64()?;
            let (keeps, fsync_p99_us) = (Keeps::from_wire(r.u8()?)?, r.u32()?);
            let (key_age_ms, recovered_ms) = (r.u64()?, r.u64()?);
            let reason = |r: &mut Reader<'_>| Ok((take_text(r, REASON_BYTES_MAX)?, r.u64()?));
            let rejected = take_list(r.count8(STATED_REASONS_MAX)?, || reason(r))?;
            increasing(rejected.iter().map(|(reason, _)| reason))?;
            let replicas_max = u8::try_from(REPLICAS_MAX).unwrap_or(u8::MAX);
            let contradictions = take_list(r.count8(replicas_max)?, || {
                Ok(Contradiction { by: ReplicaId(r.u16()?), count: r.u64()?, age_ms: r.u64()? })
            })?;
            increasing(contradictions.iter().map(|contradiction| contradiction.by))?;
            let (clock_ms, lanes) = (r.u64()?, (r.u32()?, r.u32()?));
            let version = take_text(r, VERSION_BYTES_MAX)?;
            let count = if flags & 64 != 0 { r.count8(STATED_SETTINGS_MAX)? } else { 0 };
            let settings = take_list(count, || r.u16())?;
            // Without any, the flag is not set: a statement has one form.
            if settings.is_empty() != (flags & 64 == 0) {
                return Err(DecodeError::NotCanonical);
            }
            let (in_view_change, transferring, rejoining) = (flags & 1 != 0, flags & 2 != 0, flags & 4 != 0);
            Ok(Self {
                nonce,
                view,
                executed,
                committed,
                stable,
                low,
                high,
                in_view_change,
                transferring,
                rejoining,
                disk_full: flags & 16 != 0,
                checkpoints,
                transfer,
                moved,
                workers,
                view_changes,
                requests,
                memory_bytes,
                disk,
                uptime_ms,
                keeps,
                fsync_p99_us,
                key_age_ms,
                recovered_ms,
                rejected,
                contradictions,
                clock_ms,
                lanes,
                version,
                settings,
            })
        })
    }
}

fn put_checkpoint((seq, digest): &(SeqNum, Digest), out: &mut Writer<'_>) {
    out.u64(seq.0);
    out.digest(digest);
}

fn take_checkpoint(r: &mut Reader<'_>) -> Decoded<(SeqNum, Digest)> {
    Ok((SeqNum(r.u64()?), r.digest()?))
}

fn put_moved(moved: &TransferStats, out: &mut Writer<'_>) {
    let TransferStats { seq, pages, bytes, of_pages, of_bytes, took_ms, transfers, since_start } = *moved;
    let (all_pages, all_bytes) = since_start;
    for number in [seq.0, pages, bytes, of_pages, of_bytes, took_ms, transfers, all_pages, all_bytes] {
        out.u64(number);
    }
}

fn take_moved(r: &mut Reader<'_>) -> Decoded<TransferStats> {
    Ok(TransferStats {
        seq: SeqNum(r.u64()?),
        pages: r.u64()?,
        bytes: r.u64()?,
        of_pages: r.u64()?,
        of_bytes: r.u64()?,
        took_ms: r.u64()?,
        transfers: r.u64()?,
        since_start: (r.u64()?, r.u64()?),
    })
}

fn put_workers(stats: &WorkerStats, out: &mut Writer<'_>) {
    let WorkerStats { workers, starts, at_once, most, runs, again, on_pages, early, parked, wrong_rules } =
        *stats;
    for number in [workers, starts, at_once, most, runs, again, on_pages, early, parked, wrong_rules] {
        out.u64(number);
    }
}

fn take_workers(r: &mut Reader<'_>) -> Decoded<WorkerStats> {
    Ok(WorkerStats {
        workers: r.u64()?,
        starts: r.u64()?,
        at_once: r.u64()?,
        most: r.u64()?,
        runs: r.u64()?,
        again: r.u64()?,
        on_pages: r.u64()?,
        early: r.u64()?,
        parked: r.u64()?,
        wrong_rules: r.u64()?,
    })
}

fn put_text(text: &str, out: &mut Writer<'_>) {
    out.count8(text.len());
    out.bytes(text.as_bytes());
}

/// Reads a name: letters, digits and signs of ASCII without spaces, so that it can be shown as it is in a
/// terminal.
fn take_text(r: &mut Reader<'_>, max: u8) -> Decoded<String> {
    let len = r.count8(max)?;
    let bytes = r.bytes(len)?;
    if !bytes.iter().all(u8::is_ascii_graphic) {
        return Err(DecodeError::NotCanonical);
    }
    Ok(bytes.iter().map(|byte| char::from(*byte)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A statement has the figures of workers if there are any.
    #[test]
    fn a_statement_may_tell_of_workers() {
        let stats = WorkerStats {
            workers: 8,
            starts: 70,
            at_once: 200,
            most: 7,
            runs: 69,
            again: 3,
            on_pages: 2,
            early: 60,
            parked: 1,
            wrong_rules: 4,
        };
        let len = |workers| {
            let (statement, mut body) = (Statement { workers, ..Statement::default() }, Vec::new());
            statement.encode(&mut Writer::new(&mut body));
            assert_eq!(Statement::decode(&body).unwrap(), statement);
            body.len()
        };
        assert_eq!(len(Some(stats)), len(None) + 80);
    }
}
