//! One message of each kind, no list in it empty.

use std::sync::Arc;

use quorate_wire::batch::Batch;
use quorate_wire::frame::Frame;
use quorate_wire::life::Life;
use quorate_wire::message::{
    AnyBody, Bitmap, BodyFetch, BodyKind, BodyMessage, Checkpoint, Collect, Commit, Committed, Contradiction,
    Data, Echoes, Fetch, Keeps, LeaveCert, NewView, PrePrepared, Prepared, Probe, ProofMessage, QueryStable,
    Reply, ReplyStable, ReqAck, ReqReject, Request, Start, Statement, Status, Suspect, SuspectReason,
    TransferStats, VcFetch, ViewChange, Want, decode_any,
};
use quorate_wire::{Digest, Kind, ReplicaId, SeqNum, Timestamp, ViewNum};

use crate::world::{C0, World, encode, lane, signer};

/// A message: who sends it to whom, and its frame.
pub(crate) struct Sample {
    pub(crate) kind: Kind,
    pub(crate) from: usize,
    pub(crate) to: usize,
    pub(crate) frame: Vec<u8>,
}

impl Sample {
    pub(crate) fn body(&self) -> &[u8] {
        Frame::decode(&self.frame).unwrap().body
    }
}

/// One message of each kind, in the order of [`Kind::ALL`].
pub(crate) fn samples(world: &mut World) -> Vec<Sample> {
    Kind::ALL.into_iter().map(|kind| sample(world, kind)).collect()
}

pub(crate) const VIEW: ViewNum = ViewNum(5);
pub(crate) const SEQ: SeqNum = SeqNum(130);

pub(crate) fn digest(fill: u8) -> Digest {
    Digest([fill; 32])
}

/// A batch with an inlined request, a separate one and a choice.
pub(crate) fn batch(world: &mut World) -> Batch {
    let domains = world.domains();
    let request = world.request(7, b"put x 1", false);
    let mut batch = Batch::default();
    batch.push_inlined(&Request::decode(&Frame::decode(&request).unwrap(), &domains).unwrap());
    batch.push_separate(digest(0x5e), None);
    batch.seal(&domains, &1_700_000_000_u64.to_le_bytes());
    batch
}

/// A message of this kind from its usual sender: r1 is the primary of the view.
pub(crate) fn sample(world: &mut World, kind: Kind) -> Sample {
    let (from, to) = match kind {
        Kind::Request => (C0, 0),
        Kind::Reply | Kind::Statement => (2, C0),
        Kind::Probe => (C0, 3),
        Kind::PrePrepare | Kind::NewView => (1, 3),
        Kind::NewKey => (0, 3),
        _ => (2, 3),
    };
    let frame = match kind {
        Kind::Request => world.request(7, b"put x 1", false),
        Kind::NewKey => {
            world.doors[from].refresh([0x77; 32], 1_700_000_000_000_000_000);
            let mut frames = std::iter::from_fn(|| world.doors[from].take_outgoing());
            frames.next().unwrap().1
        }
        _ => {
            let body = encode(&body(world, kind));
            world.seal(from, to, kind, &body)
        }
    };
    Sample { kind, from, to, frame }
}

/// A body of this kind.
pub(crate) fn body(world: &mut World, kind: Kind) -> AnyBody<'static> {
    let d = batch(world).digest();
    match kind {
        Kind::Request | Kind::NewKey => panic!("made by the authenticator"),
        Kind::Reply => AnyBody::Reply(reply(world, Some(b"ok"))),
        Kind::PrePrepare => {
            let mut head = Vec::new();
            let commits = [(SeqNum(129), digest(0x12))];
            let batch = batch(world);
            let mut w = quorate_wire::codec::Writer::new(&mut head);
            quorate_wire::message::encode_pre_prepare(VIEW, SEQ, &batch, &commits, &mut w);
            decode_any(kind, head.leak(), &world.domains()).unwrap()
        }
        Kind::Prepare => {
            let mut bytes = Vec::new();
            let mut w = quorate_wire::codec::Writer::new(&mut bytes);
            quorate_wire::message::Prepare::encode(VIEW, SEQ, &d, &[(SeqNum(129), digest(0x12))], &mut w);
            decode_any(kind, bytes.leak(), &world.domains()).unwrap()
        }
        Kind::Commit => AnyBody::Commit(Commit { view: VIEW, seq: SEQ, digest: d }),
        Kind::Checkpoint => {
            AnyBody::Checkpoint(Checkpoint { seq: SeqNum(128), digest: digest(0xc4), stable: true })
        }
        Kind::Status => AnyBody::Status(Status {
            counter: 17,
            view: VIEW,
            stable: SeqNum(128),
            executed: SeqNum(129),
            start: Start { incarnation: 2, token: 0x1122_3344_5566_7788 },
            settings: 0x0a0b_0c0d_0e0f_1011,
            echoes: Echoes::new(&ECHOES),
            normal: true,
            has_new_view: false,
            prepared: Bitmap::new(&[0b101]),
            committed: Bitmap::new(&[0b001]),
            have: 0b1011,
            wants: vec![Want { seq: SEQ, digest: d, view: ViewNum(4) }],
        }),
        Kind::ViewChange => AnyBody::ViewChange(view_change(world)),
        Kind::NewView => AnyBody::NewView(NewView {
            view: VIEW,
            life: life(),
            view_changes: (0..3)
                .map(|id| (ReplicaId(id), digest(0xa0 + u8::try_from(id).unwrap())))
                .collect(),
            checkpoint: (SeqNum(128), digest(0xc4)),
            chosen: vec![world.domains().null_batch(), d],
        }),
        Kind::MetaData => AnyBody::MetaData(meta_data(world)),
        Kind::Data => {
            AnyBody::Data(Data { rid: 9, index: 77, modified: SeqNum(128), page: b"a page of the state" })
        }
        Kind::Fetch => AnyBody::Fetch(Fetch { rid: 9, level: 1, index: 2, checkpoint: SeqNum(128) }),
        Kind::QueryStable => AnyBody::QueryStable(QueryStable { nonce: 0x0102_0304_0506_0708 }),
        Kind::ReplyStable => AnyBody::ReplyStable(ReplyStable {
            nonce: 0x0102_0304_0506_0708,
            checkpoint: SeqNum(128),
            prepared: SEQ,
            view: VIEW,
        }),
        Kind::Suspect => {
            AnyBody::Suspect(Suspect { view: VIEW, reason: SuspectReason::Timeout, signature: [0; 64] })
        }
        Kind::BodyFetch => {
            let mut bytes = Vec::new();
            let mut w = quorate_wire::codec::Writer::new(&mut bytes);
            BodyFetch::encode(BodyKind::Batch, &[d, digest(0x5e)], &mut w);
            decode_any(kind, bytes.leak(), &world.domains()).unwrap()
        }
        Kind::Body => AnyBody::Body(BodyMessage::Batch(Arc::new(batch(world)))),
        Kind::Committed => AnyBody::Committed(Committed { view: VIEW, seq: SEQ, digest: d }),
        Kind::Proof => AnyBody::Proof(ProofMessage { seq: SEQ, digest: d, view: ViewNum(4) }),
        Kind::ReqAck => {
            AnyBody::ReqAck(ReqAck { client: lane(), timestamp: Timestamp(7), digest: digest(0x5e) })
        }
        Kind::VcFetch => AnyBody::VcFetch(VcFetch { view: VIEW, set: 0b0101 }),
        Kind::ReqReject => AnyBody::ReqReject(ReqReject {
            view: VIEW,
            seq: SEQ,
            client: lane(),
            timestamp: Timestamp(7),
            digest: digest(0x5e),
        }),
        Kind::Collect => AnyBody::Collect(Collect { frames: sample(world, Kind::Reply).frame.leak() }),
        Kind::Probe => AnyBody::Probe(Probe { nonce: 0x0102_0304_0506_0708 }),
        Kind::Statement => AnyBody::Statement(statement()),
    }
}

/// What r2 says of itself.
pub(crate) fn statement() -> Statement {
    Statement {
        nonce: 0x0102_0304_0506_0708,
        view: VIEW,
        executed: SeqNum(129),
        committed: SEQ,
        stable: (SeqNum(128), digest(0xc4)),
        low: SeqNum(128),
        high: SeqNum(384),
        in_view_change: false,
        transferring: true,
        rejoining: false,
        disk_full: true,
        checkpoints: vec![(SeqNum(0), digest(0xc0)), (SeqNum(128), digest(0xc4))],
        transfer: (4096, 8192),
        moved: Some(TransferStats {
            seq: SeqNum(128),
            pages: 1,
            bytes: 4176,
            of_pages: 90,
            of_bytes: 368_640,
            took_ms: 40,
            transfers: 2,
            since_start: (3, 12_500),
        }),
        workers: None,
        view_changes: 5,
        requests: 1000,
        memory_bytes: 1 << 24,
        disk: (1 << 30, 1 << 32),
        uptime_ms: 61_000,
        keeps: Keeps::Async,
        fsync_p99_us: 700,
        key_age_ms: 1500,
        recovered_ms: 60_000,
        rejected: vec![("duplicate".to_owned(), 3), ("not-authentic".to_owned(), 2)],
        contradictions: vec![Contradiction { by: ReplicaId(1), count: 2, age_ms: 900 }],
        clock_ms: 1_700_000_000_000,
        lanes: (3, 57_344),
        version: "0.1.0".to_owned(),
        settings: Vec::new(),
    }
}

static ECHOES: [u8; 64] = {
    let (mut bytes, mut at) = ([0; 64], 0);
    let starts: [u8; 4] = [1, 3, 2, 1];
    while at < 4 {
        bytes[16 * at] = starts[at];
        bytes[16 * at + 8] = 0xe0 + starts[at];
        at += 1;
    }
    bytes
};

/// A reply to the first client.
pub(crate) fn reply(world: &World, result: Option<&'static [u8]>) -> Reply<'static> {
    let digest = world.domains().reply(lane().0, 7, &Digest([9; 32]), b"ok");
    Reply { view: VIEW, timestamp: Timestamp(7), client: lane(), tentative: true, digest, result }
}

/// A SUSPECT of `from`, signed.
pub(crate) fn suspect(world: &World, from: u16, view: ViewNum) -> (ReplicaId, Suspect) {
    let mut suspect = Suspect { view, reason: SuspectReason::Timeout, signature: [0; 64] };
    let covered = suspect.signed_digest(&world.domains(), world.setting.epoch, ReplicaId(from));
    suspect.signature = signer(world.setting, usize::from(from)).sign(&covered);
    (ReplicaId(from), suspect)
}

/// The life of a message's sender.
fn life() -> Life {
    Life { timestamp: Timestamp(0x0102_0304), bits: 0x5152_5354_5556_5758 }
}

/// r2's VIEW-CHANGE for [`VIEW`], with a `LeaveCert` of r0 and r3.
pub(crate) fn view_change(world: &mut World) -> ViewChange {
    let left = ViewNum(VIEW.0 - 1);
    let d = batch(world).digest();
    ViewChange {
        view: VIEW,
        stable: SeqNum(128),
        life: life(),
        checkpoints: vec![(SeqNum(128), digest(0xc4))],
        prepared: vec![Prepared { seq: SEQ, digest: d, view: left }],
        pre_prepared: vec![PrePrepared { seq: SEQ, claims: vec![(d, left), (digest(0x0d), ViewNum(2))] }],
        leave: LeaveCert { suspects: vec![suspect(world, 0, left), suspect(world, 3, left)] },
    }
}

fn meta_data(world: &World) -> quorate_wire::message::MetaData<'static> {
    let question = Fetch { rid: 9, level: 1, index: 2, checkpoint: SeqNum(128) };
    let children = [(SeqNum(128), digest(0x31)), (SeqNum(0), digest(0x32))];
    let mut bytes = Vec::new();
    let mut w = quorate_wire::codec::Writer::new(&mut bytes);
    quorate_wire::message::MetaData::encode(&question, SeqNum(128), children.into_iter(), &mut w);
    match decode_any(Kind::MetaData, bytes.leak(), &world.domains()).unwrap() {
        AnyBody::MetaData(m) => m,
        other => panic!("{other:?}"),
    }
}
