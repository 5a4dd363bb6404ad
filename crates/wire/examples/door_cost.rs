//! Prints what the authenticator costs: nanoseconds for each frame admitted and sealed, n = 4.
//!
//! ```text
//! cargo run --release -p quorate-wire --example door_cost
//! ```
//!
//! The time is the least of many short rounds, so that a busy machine disturbs little.

use std::hint::black_box;
use std::time::Instant;

use quorate_wire::batch::Batch;
use quorate_wire::codec::Writer;
use quorate_wire::frame::Frame;
use quorate_wire::message::{Commit, Prepare, Reply, RequestBody, RequestFlags, encode_pre_prepare};
use quorate_wire::sign::{Signer, Verifier};
use quorate_wire::{
    Admitted, ClientId, Cluster, ClusterId, Digest, Door, Kind, Message, Principal, ReplicaId, SeqNum,
    Timestamp, ViewNum,
};

const ROUNDS: usize = 400;
const CALLS: usize = 200;
const CLIENT: usize = 4;

type Failed = Box<dyn std::error::Error>;

fn main() -> Result<(), Failed> {
    let mut doors = doors()?;
    exchange_keys(&mut doors)?;
    let [r0, r1, r2, _, client] = &mut doors[..] else { unreachable!("four replicas and a client") };
    let lane = ClientId::new(1, 3);
    let digest = Digest([7; 32]);

    println!("{:<28} {:>6} {:>8} {:>8}", "", "bytes", "seal ns", "admit ns");

    let request = RequestBody {
        timestamp: Timestamp(9),
        flags: RequestFlags::default(),
        replier: Some(1),
        operation: &[],
    };
    let mut frame = Vec::new();
    let seal = least(|| {
        frame.clear();
        client.seal_request(&request, lane, false, &mut frame);
    });
    report("REQUEST 0/0", &frame, seal, r0)?;

    let batch = batch_of(r0, &frame)?;
    let body = body(|w| encode_pre_prepare(ViewNum(1), SeqNum(2), &batch, &[], w));
    sealed("PRE-PREPARE of one 0/0", Kind::PrePrepare, None, &body, r1, r2)?;

    let plain = self::body(|w| Prepare::encode(ViewNum(1), SeqNum(2), &digest, &[], w));
    sealed("PREPARE", Kind::Prepare, None, &plain, r1, r2)?;
    let carrying = self::body(|w| Prepare::encode(ViewNum(1), SeqNum(2), &digest, &[(SeqNum(1), digest)], w));
    sealed("PREPARE with a commit", Kind::Prepare, None, &carrying, r1, r2)?;

    let commit = Commit { view: ViewNum(1), seq: SeqNum(2), digest };
    sealed("COMMIT", Kind::Commit, None, &self::body(|w| commit.encode(w)), r1, r2)?;

    let digest = r1.domains().reply(lane.0, 9, &digest, &[]);
    let reply = Reply {
        view: ViewNum(1),
        timestamp: Timestamp(9),
        client: lane,
        tentative: true,
        digest,
        result: Some(&[]),
    };
    sealed("REPLY 0/0", Kind::Reply, Some(lane.into()), &self::body(|w| reply.encode(w)), r1, client)
}

/// Measures a seal and the receiver's admission, and prints them.
fn sealed(
    what: &str,
    kind: Kind,
    to: Option<Principal>,
    body: &[u8],
    from: &mut Door,
    receiver: &mut Door,
) -> Result<(), Failed> {
    let mut frame = Vec::new();
    let seal = least(|| {
        frame.clear();
        from.seal(kind, to, body, &mut frame);
    });
    report(what, &frame, seal, receiver)
}

fn report(what: &str, frame: &[u8], seal: f64, receiver: &mut Door) -> Result<(), Failed> {
    admit(receiver, frame)?;
    let cost = least(|| {
        black_box(admit(receiver, black_box(frame))).ok();
    });
    println!("{what:<28} {:>6} {seal:>8.0} {cost:>8.0}", frame.len());
    Ok(())
}

fn admit<'a>(door: &mut Door, frame: &'a [u8]) -> Result<Admitted<'a>, Failed> {
    Ok(door.admit(1, Frame::decode(frame)?)?)
}

/// Returns the least time of one call, in nanoseconds.
fn least(mut call: impl FnMut()) -> f64 {
    let mut least = f64::INFINITY;
    for _ in 0..ROUNDS {
        let start = Instant::now();
        for _ in 0..CALLS {
            call();
        }
        least = least.min(start.elapsed().as_secs_f64());
    }
    least * 1e9 / f64::from(u32::try_from(CALLS).unwrap_or(u32::MAX))
}

fn body(write: impl FnOnce(&mut Writer<'_>)) -> Vec<u8> {
    let mut body = Vec::new();
    write(&mut Writer::new(&mut body));
    body
}

fn batch_of(primary: &mut Door, request: &[u8]) -> Result<Batch, Failed> {
    let mut batch = Batch::default();
    if let Admitted::Message(m) = admit(primary, request)?
        && let Message::Request(request) = m.message()
    {
        batch.push_inlined(request);
    }
    batch.seal(primary.domains(), &1_u64.to_le_bytes());
    Ok(batch)
}

/// Four replicas and a client.
fn doors() -> Result<Vec<Door>, Failed> {
    let everyone: Vec<(u8, Principal)> = (0_u8..)
        .zip((0..4).map(|id| ReplicaId(id).into()).chain([Principal::Client(ClientId::new(1, 0))]))
        .collect();
    let mut verifier = Verifier::default();
    for (seed, who) in &everyone {
        verifier.insert(*who, &Signer::ed25519([*seed; 32]).public());
    }
    let cluster = Cluster::new(4, 1)?;
    let door = |(seed, who)| {
        let signer = Signer::ed25519([seed; 32]);
        Door::new(who, cluster, ClusterId([9; 32]), 0, signer, verifier.clone(), [seed + 1; 32], 1)
    };
    Ok(everyone.into_iter().map(door).collect())
}

fn exchange_keys(doors: &mut [Door]) -> Result<(), Failed> {
    for from in 0..=CLIENT {
        while let Some((to, frame)) = doors[from].take_outgoing() {
            let to = doors.iter_mut().find(|door| door.own() == to).ok_or("nobody")?;
            admit(to, &frame)?;
        }
    }
    // Answers to those who asked before we had heard of them.
    for from in 0..=CLIENT {
        while let Some((to, frame)) = doors[from].take_outgoing() {
            let to = doors.iter_mut().find(|door| door.own() == to).ok_or("nobody")?;
            admit(to, &frame)?;
        }
    }
    Ok(())
}
