//! The initial state of a recorded replica: its settings, and what it read from its disk.

use alloc::vec::Vec;

use quorate_wire::Cluster;
use quorate_wire::cluster::REPLICAS_MAX;
use quorate_wire::codec::{DecodeError, Decoded, Reader, Writer};
use quorate_wire::digest::ClusterId;
use quorate_wire::frame::FRAME_BYTES_MAX;
use quorate_wire::id::{ClientId, ReplicaId, SeqNum, Timestamp};
use quorate_wire::life::Lives;

use crate::io::config::{Config, Durability, Replier, RequestAuth};
use crate::io::resume::{Restart, Resume};

/// Maximum number of records or clients that a start can have.
const COUNT_MAX: u32 = 1 << 24;
/// The longest record: the frames of a NEW-VIEW and its VIEW-CHANGEs.
const RECORD_BYTES_MAX: usize = 64 * FRAME_BYTES_MAX;

fn put_size(size: usize, w: &mut Writer<'_>) {
    w.u64(u64::try_from(size).unwrap_or(u64::MAX));
}

fn size(r: &mut Reader<'_>) -> Decoded<usize> {
    usize::try_from(r.u64()?).map_err(|_| DecodeError::NotCanonical)
}

fn small(size: usize) -> u16 {
    u16::try_from(size).unwrap_or(u16::MAX)
}

/// Appends settings. Names every field, so that a new one cannot be forgotten.
pub(super) fn encode_config(config: &Config, w: &mut Writer<'_>) {
    let Config {
        cluster,
        cluster_id,
        checkpoint_interval,
        window,
        pipeline,
        batch_requests_max,
        batch_bytes_max,
        batching,
        separate_above,
        separate,
        small_reply,
        digest_replies,
        collect_from,
        replier,
        tentative,
        workers,
        read_only,
        // A client's, and the start is a replica's.
        reads: _,
        read_rule: _,
        piggyback,
        piggyback_ns,
        request_auth,
        durability,
        request_timeout_min_ns,
        request_timeout_max_ns,
        view_timeout_max_ns,
        client_timeout_min_ns,
        client_timeout_max_ns,
        status_ns,
        status_min_ns,
        retransmit_bytes,
        fetch_retry_ns,
        null_batch_ns,
        clock_skew_ns,
        clients_max,
        service_settings,
        lanes_max,
        seed,
    } = config;
    w.u16(small(cluster.n()));
    w.u16(small(cluster.f()));
    w.bytes(&cluster_id.0);
    let numbers = [
        checkpoint_interval,
        window,
        pipeline,
        piggyback_ns,
        request_timeout_min_ns,
        request_timeout_max_ns,
        view_timeout_max_ns,
        client_timeout_min_ns,
        client_timeout_max_ns,
        status_ns,
        status_min_ns,
        fetch_retry_ns,
        null_batch_ns,
        clock_skew_ns,
        service_settings,
        seed,
        workers,
    ];
    for number in numbers {
        w.u64(*number);
    }
    let sizes = [batch_bytes_max, separate_above, small_reply, retransmit_bytes, clients_max, lanes_max];
    for size in sizes {
        put_size(*size, w);
    }
    w.u16(*batch_requests_max);
    w.u16(*collect_from);
    let switches = [batching, separate, digest_replies, tentative, read_only, piggyback];
    for switch in switches {
        w.u8(u8::from(*switch));
    }
    let (kind, fixed) = match replier {
        Replier::Random => (0, 0),
        Replier::RoundRobin => (1, 0),
        Replier::Fixed(replica) => (2, *replica),
    };
    w.u8(kind);
    w.u16(fixed);
    w.u8(match request_auth {
        RequestAuth::Mac => 0,
        RequestAuth::Adaptive => 1,
        RequestAuth::SigMac => 2,
    });
    w.u8(match durability {
        Durability::Memory => 0,
        Durability::Async => 1,
        Durability::Sync => 2,
    });
}

pub(super) fn decode_config(r: &mut Reader<'_>) -> Decoded<Config> {
    let cluster = Cluster::new(r.u16()?, r.u16()?).map_err(|_| DecodeError::NotCanonical)?;
    let config = Config::new(cluster, ClusterId(r.array()?));
    // In the order in which they were written: struct fields are evaluated as they stand here.
    let config = Config {
        checkpoint_interval: r.u64()?,
        window: r.u64()?,
        pipeline: r.u64()?,
        piggyback_ns: r.u64()?,
        request_timeout_min_ns: r.u64()?,
        request_timeout_max_ns: r.u64()?,
        view_timeout_max_ns: r.u64()?,
        client_timeout_min_ns: r.u64()?,
        client_timeout_max_ns: r.u64()?,
        status_ns: r.u64()?,
        status_min_ns: r.u64()?,
        fetch_retry_ns: r.u64()?,
        null_batch_ns: r.u64()?,
        clock_skew_ns: r.u64()?,
        service_settings: r.u64()?,
        seed: r.u64()?,
        workers: r.u64()?,
        batch_bytes_max: size(r)?,
        separate_above: size(r)?,
        small_reply: size(r)?,
        retransmit_bytes: size(r)?,
        clients_max: size(r)?,
        lanes_max: size(r)?,
        batch_requests_max: r.u16()?,
        collect_from: r.u16()?,
        batching: r.bool()?,
        separate: r.bool()?,
        digest_replies: r.bool()?,
        tentative: r.bool()?,
        read_only: r.bool()?,
        piggyback: r.bool()?,
        ..config
    };
    let replier = match (r.u8()?, r.u16()?) {
        (0, 0) => Replier::Random,
        (1, 0) => Replier::RoundRobin,
        (2, replica) => Replier::Fixed(replica),
        _ => return Err(DecodeError::NotCanonical),
    };
    let request_auth = match r.u8()? {
        0 => RequestAuth::Mac,
        1 => RequestAuth::Adaptive,
        2 => RequestAuth::SigMac,
        _ => return Err(DecodeError::NotCanonical),
    };
    let durability = match r.u8()? {
        0 => Durability::Memory,
        1 => Durability::Async,
        2 => Durability::Sync,
        _ => return Err(DecodeError::NotCanonical),
    };
    Ok(Config { replier, request_auth, durability, ..config })
}

/// Appends what a replica started from.
pub(super) fn encode_resume(resume: &Resume, w: &mut Writer<'_>) {
    match resume {
        Resume::Fresh { incarnation } => {
            w.u8(0);
            w.u64(*incarnation);
        }
        Resume::Amnesia { incarnation } => {
            w.u8(1);
            w.u64(*incarnation);
        }
        Resume::Restart(Restart { incarnation, records, checkpoint, clients, lives, time_ns }) => {
            w.u8(2);
            w.u64(*incarnation);
            w.u32(u32::try_from(records.len()).unwrap_or(u32::MAX));
            for record in records {
                w.blob(record);
            }
            w.u64(checkpoint.0.0);
            w.digest(&checkpoint.1);
            encode_clients(clients, w);
            encode_lives(lives, w);
            w.u64(*time_ns);
        }
    }
}

pub(super) fn decode_resume(r: &mut Reader<'_>) -> Decoded<Resume> {
    let kind = r.u8()?;
    let incarnation = r.u64()?;
    match kind {
        0 => Ok(Resume::Fresh { incarnation }),
        1 => Ok(Resume::Amnesia { incarnation }),
        2 => {
            let mut records = Vec::new();
            for _ in 0..count(r)? {
                records.push(r.blob(RECORD_BYTES_MAX)?.to_vec());
            }
            let checkpoint = (SeqNum(r.u64()?), r.digest()?);
            let (clients, lives, time_ns) = (decode_clients(r)?, decode_lives(r)?, r.u64()?);
            Ok(Resume::Restart(Restart { incarnation, records, checkpoint, clients, lives, time_ns }))
        }
        _ => Err(DecodeError::NotCanonical),
    }
}

/// Appends the last timestamps of clients.
pub(super) fn encode_clients(clients: &[(ClientId, Timestamp)], w: &mut Writer<'_>) {
    w.u32(u32::try_from(clients.len()).unwrap_or(u32::MAX));
    for (client, timestamp) in clients {
        w.u64(client.0);
        w.u64(timestamp.0);
    }
}

pub(super) fn decode_clients(r: &mut Reader<'_>) -> Decoded<Vec<(ClientId, Timestamp)>> {
    let mut clients = Vec::new();
    for _ in 0..count(r)? {
        clients.push((ClientId(r.u64()?), Timestamp(r.u64()?)));
    }
    Ok(clients)
}

/// Appends the lives of replicas.
pub(super) fn encode_lives(lives: &[(ReplicaId, Lives)], w: &mut Writer<'_>) {
    w.count8(lives.len());
    for (replica, lives) in lives {
        w.u16(replica.0);
        lives.encode(w);
    }
}

pub(super) fn decode_lives(r: &mut Reader<'_>) -> Decoded<Vec<(ReplicaId, Lives)>> {
    let mut lives = Vec::new();
    for _ in 0..r.count8(u8::try_from(REPLICAS_MAX).unwrap_or(u8::MAX))? {
        lives.push((ReplicaId(r.u16()?), Lives::decode(r)?));
    }
    Ok(lives)
}

fn count(r: &mut Reader<'_>) -> Decoded<u32> {
    let count = r.u32()?;
    if count > COUNT_MAX {
        return Err(DecodeError::TooMany { count: u64::from(count), max: u64::from(COUNT_MAX) });
    }
    Ok(count)
}

#[cfg(test)]
mod tests {
    use quorate_wire::life::Life;
    use quorate_wire::{Digest, ViewNum};

    use super::*;

    /// Every setting comes back, whatever its value.
    #[test]
    fn settings_and_past_come_back() {
        let mut config = Config::new(Cluster::tolerating(2).unwrap(), ClusterId([3; 32]));
        config.checkpoint_interval = 7;
        config.small_reply = 11;
        config.batching = false;
        config.piggyback = false;
        config.replier = Replier::Fixed(3);
        config.request_auth = RequestAuth::SigMac;
        config.durability = Durability::Async;
        config.seed = 99;
        let life = Life { timestamp: Timestamp(9), bits: 8 };
        let restart = Restart {
            incarnation: 5,
            records: alloc::vec![alloc::vec![1, 2, 3], alloc::vec![]],
            checkpoint: (SeqNum(8), Digest([4; 32])),
            clients: alloc::vec![(ClientId(70_000), Timestamp(6))],
            lives: alloc::vec![(ReplicaId(2), Lives::default().opened(life, ViewNum(4)))],
            time_ns: 77,
        };
        let mut bytes = Vec::new();
        let mut w = Writer::new(&mut bytes);
        encode_config(&config, &mut w);
        encode_resume(&Resume::Restart(restart), &mut w);
        let mut r = Reader::new(&bytes);
        let read = decode_config(&mut r).unwrap();
        assert_eq!(alloc::format!("{read:?}"), alloc::format!("{config:?}"));
        let Resume::Restart(restart) = decode_resume(&mut r).unwrap() else { panic!() };
        assert_eq!((restart.incarnation, restart.records.len(), restart.checkpoint.0), (5, 2, SeqNum(8)));
        assert_eq!((restart.clients, restart.time_ns), (alloc::vec![(ClientId(70_000), Timestamp(6))], 77));
        assert_eq!(restart.lives, [(ReplicaId(2), Lives::default().opened(life, ViewNum(4)))]);
        assert!(r.is_empty());
    }
}
