//! All decoders: what crosses the wire, what comes back from the write-ahead log, and operations on the client registry.
//!
//! The first byte of an input chooses the decoder. An input that decodes is encoded again and must give
//! the same bytes: the encoding is canonical (ADR 10).

use quorate_pbft::record::Record;
use quorate_service::registry::{MAGIC, RegistryOp, Setting, Table};
use quorate_wire::batch::Batch;
use quorate_wire::codec::{DecodeError, Reader, Writer};
use quorate_wire::digest::{ClusterId, Domains};
use quorate_wire::frame::{self, Frame};
use quorate_wire::life::Life;
use quorate_wire::message::{
    BodyMessage, Kind, LeaveCert, NewKey, PrePrepareHead, PrePrepared, Prepared, Reply, Request, RequestBody,
    RequestFlags, Suspect, SuspectReason, ViewChange, decode_any, encode_pre_prepare,
};
use quorate_wire::{ClientId, Digest, Principal, ReplicaId, SeqNum, Timestamp, ViewNum};

use crate::{Target, feature};

/// The target.
pub const TARGET: Target = Target {
    name: "decode",
    run,
    seeds,
    input_bytes_max: 64 << 10,
    memory_bytes_max: 1 << 20,
    millis_max: 1000,
};

/// What comes after the kinds of message: frames, requests, records and the client registry.
const KINDS: usize = Kind::ALL.len();
const DECODERS: usize = KINDS + 4;

fn run(input: &[u8]) -> u64 {
    let Some((choice, bytes)) = input.split_first() else { return 0 };
    let decoder = usize::from(*choice) % DECODERS;
    let domains = Domains::new(ClusterId([7; 32]));
    let outcome = match Kind::ALL.get(decoder) {
        Some(kind) => body(*kind, bytes, &domains),
        None if decoder == KINDS => datagram(bytes, &domains),
        None if decoder == KINDS + 1 => request(bytes, &domains),
        None if decoder == KINDS + 2 => record(bytes),
        None => registry(bytes),
    };
    feature(&[
        u64::try_from(decoder).unwrap_or(0),
        outcome,
        u64::from(bytes.len().checked_ilog2().unwrap_or(0)),
    ])
}

/// A body of one kind of message.
fn body(kind: Kind, bytes: &[u8], domains: &Domains) -> u64 {
    // A PRE-PREPARE whose batch is sound but whose digest is not would be refused for that alone:
    // give it the digest that it should have.
    let mended = (kind == Kind::PrePrepare).then(|| mended(bytes, domains)).flatten();
    let bytes = mended.as_deref().unwrap_or(bytes);
    match decode_any(kind, bytes, domains) {
        Err(error) => outcome_of(&error),
        Ok(decoded) => {
            let mut again = Vec::new();
            decoded.encode(&mut Writer::new(&mut again));
            assert_eq!(again, bytes, "{} is not canonical", kind.name());
            1
        }
    }
}

fn mended(bytes: &[u8], domains: &Domains) -> Option<Vec<u8>> {
    let head = PrePrepareHead::decode(bytes).ok()?;
    let mut batch = Batch::default();
    let request = |bytes| Request::decode(&Frame::decode(bytes)?, domains);
    batch.decode_payload(&mut Reader::new(head.payload), head.counts, head.choice, domains, request).ok()?;
    let at = bytes.windows(32).position(|window| window == head.digest.0)?;
    let mut mended = bytes.to_vec();
    mended[at..at + 32].copy_from_slice(&batch.digest().0);
    Some(mended)
}

/// A datagram: frames until it ends, each with its body.
fn datagram(bytes: &[u8], domains: &Domains) -> u64 {
    let mut reader = Reader::new(bytes);
    let mut seen = 2;
    while !reader.is_empty() {
        match Frame::take(&mut reader) {
            Err(error) => return feature(&[seen, outcome_of(&error)]),
            Ok(frame) => {
                seen = feature(&[u64::from(frame.kind.to_wire()), body(frame.kind, frame.body, domains)]);
            }
        }
    }
    seen
}

/// A client's request in its frame.
fn request(bytes: &[u8], domains: &Domains) -> u64 {
    match Frame::decode(bytes).and_then(|frame| Request::decode(&frame, domains)) {
        Err(error) => outcome_of(&error),
        Ok(request) => 3 + u64::from(request.flags.to_wire()),
    }
}

/// A record of the write-ahead log.
fn record(bytes: &[u8]) -> u64 {
    match Record::decode(bytes) {
        Err(error) => outcome_of(&error),
        Ok(record) => {
            let mut again = Vec::new();
            record.encode(&mut Writer::new(&mut again));
            assert_eq!(again, bytes, "a record is not canonical");
            1 + u64::from(bytes.first().copied().unwrap_or(0))
        }
    }
}

/// An operation on the client registry, or what is read of it, without the bytes that both begin with.
fn registry(bytes: &[u8]) -> u64 {
    let whole = [&MAGIC[..], bytes].concat();
    let mut again = Vec::new();
    if let Some(Ok(order)) = RegistryOp::decode(&whole) {
        order.encode(&mut again);
        // A client without an address may have had the bytes of one.
        let is_one = !matches!(order, RegistryOp::Add(..));
        assert!(!is_one || again == whole, "an order is not canonical");
        assert_eq!(RegistryOp::decode(&again), Some(Ok(order)), "an order that is encoded is another one");
        return 1;
    }
    let Some(table) = Table::decode(&whole) else { return 0 };
    table.encode(&mut again);
    assert_eq!(Table::decode(&again).as_ref(), Some(&table), "a table that is encoded is another one");
    2 + u64::try_from(table.replicas.len().min(8)).unwrap_or(0)
}

fn outcome_of(error: &DecodeError) -> u64 {
    match error {
        DecodeError::Truncated => 100,
        DecodeError::Trailing => 101,
        DecodeError::NotCanonical => 102,
        DecodeError::UnknownKind(_) => 103,
        DecodeError::OtherVersion(_) => 105,
        DecodeError::TooMany { max, .. } => 104 + max,
    }
}

/// For each decoder the runs of zeros that decode, and a few that do not.
fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for decoder in 0..u8::try_from(DECODERS).unwrap_or(u8::MAX) {
        for len in 0..=1024 {
            let mut input = vec![0; len + 1];
            input[0] = decoder;
            if len % 256 == 64 || decodes(&input) {
                seeds.push(input);
            }
        }
    }
    seeds.extend(orders());
    seeds.extend(bodies().into_iter().map(|(kind, body)| {
        let at = Kind::ALL.iter().position(|other| *other == kind).unwrap_or(0);
        [&[u8::try_from(at).unwrap_or(0)], &body[..]].concat()
    }));
    seeds
}

/// Operations on the client registry, and a table, behind the number of their decoder.
fn orders() -> Vec<Vec<u8>> {
    let at = ([10, 0, 0, 5], 7000).into();
    let orders = [
        RegistryOp::Remove(1),
        RegistryOp::Move(ReplicaId(1), Some(at)),
        RegistryOp::Move(ReplicaId(1), None),
        RegistryOp::Set(Setting::ClientLanesMax, 2),
    ];
    let mut seeds: Vec<Vec<u8>> = orders.iter().map(|order| written(|out| order.encode(out))).collect();
    let table =
        Table { replicas: [(ReplicaId(1), at)].into(), settings: [(Setting::ClientLanesMax, 2)].into() };
    seeds.push(written(|out| table.encode(out)));
    seeds
}

fn written(encode: impl Fn(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(&mut bytes);
    let decoder = u8::try_from(KINDS + 3).unwrap_or(u8::MAX);
    [&[decoder], bytes.strip_prefix(&MAGIC).unwrap_or(&bytes)].concat()
}

/// Bodies that no run of zeros is.
fn bodies() -> Vec<(Kind, Vec<u8>)> {
    let encode = |write: &dyn Fn(&mut Writer<'_>)| {
        let mut out = Vec::new();
        write(&mut Writer::new(&mut out));
        out
    };
    let (seq, digest) = (SeqNum(128), Digest([5; 32]));
    let suspect = Suspect { view: ViewNum(0), reason: SuspectReason::Timeout, signature: [6; 64] };
    let view_change = ViewChange {
        view: ViewNum(1),
        stable: seq,
        life: Life::default(),
        checkpoints: vec![(seq, digest)],
        prepared: vec![Prepared { seq: SeqNum(129), digest, view: ViewNum(0) }],
        pre_prepared: vec![PrePrepared { seq: SeqNum(129), claims: vec![(digest, ViewNum(0))] }],
        leave: LeaveCert { suspects: vec![(ReplicaId(1), suspect), (ReplicaId(2), suspect)] },
    };
    let request = request_frame();
    let mut batch = Batch::default();
    let domains = Domains::new(ClusterId([7; 32]));
    if let Ok(request) = Frame::decode(&request).and_then(|frame| Request::decode(&frame, &domains)) {
        batch.push_inlined(&request);
    }
    batch.push_separate(digest, None);
    batch.seal(&domains, &[1; 8]);
    let new_key = NewKey { time: 1, key_id: 1, share: [9; 32], settings: 2, want: true };
    let reply = reply_frame();
    vec![
        (Kind::Collect, encode(&|w| w.bytes(&[&reply[..], &reply[..]].concat()))),
        (Kind::NewKey, encode(&|w| new_key.encode(w))),
        (Kind::ViewChange, encode(&|w| view_change.encode(w))),
        (Kind::Body, encode(&|w| BodyMessage::encode_request(&request, w))),
        (Kind::Body, encode(&|w| BodyMessage::encode_batch(&batch, w))),
        (
            Kind::PrePrepare,
            encode(&|w| encode_pre_prepare(ViewNum(0), SeqNum(1), &batch, &[(seq, digest)], w)),
        ),
    ]
}

/// A replica's reply with one MAC.
fn reply_frame() -> Vec<u8> {
    let (client, digest) = (ClientId::new(1, 0), Digest([5; 32]));
    let (view, timestamp) = (ViewNum(0), Timestamp(1));
    let fields = Reply { view, timestamp, client, tentative: false, digest, result: Some(b"x") };
    let (mut body, mut out) = (Vec::new(), Vec::new());
    fields.encode(&mut Writer::new(&mut body));
    frame::begin(Kind::Reply, 0, Principal::Replica(ReplicaId(1)), &body, &mut out);
    out.push(frame::MAC);
    out.extend_from_slice(&[0; 4 + frame::ENTRY_BYTES]);
    out
}

/// A client's request with an empty authenticator and a signature.
fn request_frame() -> Vec<u8> {
    let mut body = Vec::new();
    let fields = RequestBody {
        timestamp: Timestamp(1),
        flags: RequestFlags { read_only: false, signed: true },
        replier: Some(1),
        operation: b"put x 1",
    };
    fields.encode(&mut Writer::new(&mut body));
    let mut out = Vec::new();
    frame::begin(Kind::Request, 0, Principal::Client(ClientId::new(1, 0)), &body, &mut out);
    out.push(frame::BOTH);
    out.extend_from_slice(&[4; 64]);
    out.extend_from_slice(&[0; 5]);
    out
}

fn decodes(input: &[u8]) -> bool {
    let domains = Domains::new(ClusterId([7; 32]));
    let kind = Kind::ALL.get(usize::from(input[0]));
    kind.is_some_and(|kind| decode_any(*kind, &input[1..], &domains).is_ok())
}

#[cfg(test)]
#[allow(clippy::unwrap_used, reason = "a test may panic")]
mod tests {
    use super::*;

    #[test]
    fn the_seeds_reach_the_decoders() {
        let reached: Vec<&str> = Kind::ALL
            .iter()
            .enumerate()
            .filter(|(at, _)| seeds().iter().any(|seed| usize::from(seed[0]) == *at && decodes(seed)))
            .map(|(_, kind)| kind.name())
            .collect();
        assert_eq!(reached.len(), Kind::ALL.len(), "{reached:?}");
    }
}
