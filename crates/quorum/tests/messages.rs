//! The encoding of messages, and what certificates and servers refuse.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")]

use std::collections::HashSet;
use std::sync::Arc;

use quorate_quorum::access::{AccessList, SignedList, Who};
use quorate_quorum::cert::{Evidence, PrepareCert, WriteCert};
use quorate_quorum::crypto::{Crypto, Keys, Signature, Statement, lock_of};
use quorate_quorum::message::{Copy, Op, OptimisticRequest, Predecessor, PrepareRequest, Proof, Rid};
use quorate_quorum::settings::Variant;
use quorate_quorum::version::{Namespace, value_digest};
use quorate_quorum::{
    Action, Body, Input, Message, ObjectId, Out, Protocol, ServerId, Settings, Thresholds, Value, Version,
};
use quorate_wire::sign::{Signer, Verifier};
use quorate_wire::{ClientId, ClusterId, Digest, Principal, ReplicaId};

const OBJECT: ObjectId = ObjectId([1; 32]);

fn version(val: u64) -> Version {
    Version { val, client: ClientId::new(3, 0), digest: Digest([8; 32]) }
}

fn pcert(key: Option<[u8; 16]>) -> PrepareCert {
    let signatures = [(ReplicaId(0), [1; 64]), (ReplicaId(2), [2; 64])];
    PrepareCert { version: version(4), key, signatures: signatures.into() }
}

fn wcert() -> WriteCert {
    WriteCert { version: version(3), signatures: [(ReplicaId(1), [3; 64])].into() }
}

/// A message of every kind, with and without its options.
fn every_kind() -> Vec<Body> {
    let op = Op { incarnation: 1, number: 2, phase: 3 };
    let rid = Rid { incarnation: 1, counter: 9 };
    let value: Value = b"value".as_slice().into();
    let signature: Signature = [7; 64];
    let answers = [(ReplicaId(0), version(1), signature), (ReplicaId(3), version(1), signature)];
    let proof = Proof { signature: Some(signature), evidence: Some(Evidence { answers: answers.into() }) };
    let unsigned = Proof::default();
    let request = |predecessor, own| {
        Arc::new(PrepareRequest { client: ClientId::new(3, 0), predecessor, version: version(5), own })
    };
    let optimistic = |predecessor| {
        Arc::new(OptimisticRequest {
            client: ClientId::new(3, 0),
            digest: Digest([1; 32]),
            lock: Digest([2; 32]),
            own: Some(wcert()),
            predecessor,
        })
    };
    let copy = |object, pcert: Option<PrepareCert>, wcert| Copy {
        object: ObjectId([object; 32]),
        version: version(6),
        value: Arc::clone(&value),
        proof: unsigned.clone(),
        pcert,
        wcert,
    };
    let nonce = u128::MAX - 5;
    let v = version(2);
    let some = Who::These([3, 9].into());
    let spaces = [(Namespace([1; 8]), (Who::All, some.clone())), (Namespace([2; 8]), (some, Who::All))];
    let list = AccessList { number: 5, by: spaces.into() };
    vec![
        Body::Qts { op },
        Body::Tsr { op, version: v, signature: None },
        Body::Tsr { op, version: v, signature: Some(signature) },
        Body::Store { op, version: v, value: value.clone(), proof: proof.clone(), write_back: false },
        Body::Store { op, version: v, value: value.clone(), proof: unsigned.clone(), write_back: true },
        Body::Ack { op, version: v },
        Body::Rd { op },
        Body::RdVal { op, version: v, value: value.clone(), proof: proof.clone() },
        Body::Read { rid, attempt: 2 },
        Body::Val { rid, version: v, value: value.clone(), forwarded: true, signature: None },
        Body::Val { rid, version: v, value: value.clone(), forwarded: false, signature: Some(signature) },
        Body::Rc { rid },
        Body::Gone { rid },
        Body::Fstore { version: v, value: value.clone(), proof },
        Body::Fack { version: v },
        Body::ReadTs { op, nonce },
        Body::ReadTsReply { op, nonce, pcert: pcert(None) },
        Body::Prepare { op, request: request(Predecessor::Prepared(pcert(None)), None), auth: None },
        Body::Prepare {
            op,
            request: request(Predecessor::Completed(wcert()), Some(wcert())),
            auth: Some(signature),
        },
        Body::PrepareReply { op, version: v, signature },
        Body::Write { op, value: value.clone(), pcert: pcert(Some([5; 16])) },
        Body::WriteReply { op, version: v, signature },
        Body::BcRead { op, nonce },
        Body::BcReadReply { op, nonce, value: value.clone(), pcert: pcert(None), wsig: None, wcert: None },
        Body::BcReadReply {
            op,
            nonce,
            value: value.clone(),
            pcert: pcert(None),
            wsig: Some(signature),
            wcert: Some(wcert()),
        },
        Body::ReadTsPrep { op, nonce, request: optimistic(None), auth: None },
        Body::ReadTsPrep { op, nonce, request: optimistic(Some(wcert())), auth: Some(signature) },
        Body::ReadTsPrepReply { op, nonce, pcert: pcert(None), opt: None },
        Body::ReadTsPrepReply { op, nonce, pcert: pcert(None), opt: Some((v, signature)) },
        Body::Complete { wcert: wcert() },
        Body::Pull,
        Body::Copies {
            items: [copy(1, None, None), copy(2, Some(pcert(None)), Some(wcert()))].into(),
            more: true,
        },
        Body::Copies { items: [].into(), more: false },
        Body::Access { signed: Arc::new(SignedList { list, administrator: ClientId::new(4, 0), signature }) },
        Body::AccessRank { number: 7, digest: Digest([4; 32]) },
        Body::Refused { op },
    ]
}

/// What is encoded is decoded as it was; what is shorter, longer or another kind is refused; and
/// whatever decodes encodes to the same bytes.
#[test]
fn the_encoding_is_canonical() {
    let mut kinds = HashSet::new();
    let mut changed = 0;
    for body in every_kind() {
        kinds.insert(body.kind());
        let message = Message { object: OBJECT, body };
        let kind = message.body.kind();
        let mut bytes = Vec::new();
        message.encode(77, &mut bytes);
        assert_eq!(Message::decode(kind, &bytes), Ok((77, message.clone())));
        assert_eq!(message.encoded_len(), bytes.len());
        for end in 0..bytes.len() {
            assert!(Message::decode(kind, &bytes[..end]).is_err(), "{} of {end} bytes", message.body.name());
        }
        let mut longer = bytes.clone();
        longer.push(0);
        assert!(Message::decode(kind, &longer).is_err());
        for at in 0..bytes.len() {
            for bit in [1, 2, 0x80] {
                let mut other = bytes.clone();
                other[at] ^= bit;
                if let Ok((counter, decoded)) = Message::decode(kind, &other) {
                    let mut again = Vec::new();
                    decoded.encode(counter, &mut again);
                    assert_eq!(again, other, "{} at {at}", message.body.name());
                    assert!(decoded != message || counter != 77);
                    changed += 1;
                }
            }
        }
    }
    assert_eq!(kinds.len(), 28, "every kind");
    assert!(changed > 1000);
    for kind in (0..64).chain(89..100).chain(102..=255) {
        assert!(Message::decode(kind, &[0; 40]).is_err(), "{kind}");
    }
}

struct Cluster {
    settings: Settings,
    signers: Vec<Signer>,
    verifier: Verifier,
}

fn cluster() -> Cluster {
    let signers: Vec<Signer> = (0..4).map(|number| Signer::ed25519([number; 32])).collect();
    let mut verifier = Verifier::default();
    for (number, signer) in (0..).zip(&signers) {
        assert!(verifier.insert(Principal::Replica(ReplicaId(number)), &signer.public()));
    }
    let settings = Settings::new(Thresholds::tolerating(1).unwrap(), Protocol::BftBc(Variant::Base));
    Cluster { settings, signers, verifier }
}

impl Cluster {
    fn keys(&self, server: usize) -> Keys<impl FnMut() -> u128> {
        Keys::new(ClusterId([9; 32]), 1, self.signers[server].clone(), self.verifier.clone(), || 0)
    }

    fn sign(&self, server: usize, statement: &Statement) -> (ServerId, Signature) {
        (ServerId::at(server), self.keys(server).sign(&OBJECT, statement))
    }

    fn valid(&self, pcert: &PrepareCert, object: ObjectId) -> bool {
        pcert.is_valid(&self.settings, &mut self.keys(0), &object)
    }
}

/// §6, with real signatures: q distinct servers, one statement, this object.
#[test]
fn a_certificate_that_differs_in_anything_is_refused() {
    let cluster = cluster();
    let (v, key) = (version(4), [6; 16]);
    for key in [None, Some(key)] {
        let statement = Statement::Prepared(v, key.as_ref().map(lock_of));
        let signatures: Vec<_> = (0..3).map(|server| cluster.sign(server, &statement)).collect();
        let good = PrepareCert { version: v, key, signatures: signatures.clone().into() };
        assert!(cluster.valid(&good, OBJECT));
        assert!(!cluster.valid(&good, ObjectId([2; 32])), "another object");
        let refused = |version, key, signatures: Vec<(ServerId, Signature)>, why: &str| {
            let pcert = PrepareCert { version, key, signatures: signatures.into() };
            assert!(!cluster.valid(&pcert, OBJECT), "{why}");
        };
        let [a, b, c] = signatures[..] else { panic!("three") };
        refused(v, key, vec![a, b], "q - 1");
        refused(v, key, vec![a, b, b], "a signer twice");
        refused(v, key, vec![a, b, (ReplicaId(3), c.1)], "under another's name");
        refused(v, key, vec![a, b, (ReplicaId(9), c.1)], "not of the cluster");
        refused(Version { val: 5, ..v }, key, signatures.clone(), "another counter");
        refused(Version { client: ClientId::new(4, 0), ..v }, key, signatures.clone(), "another client");
        refused(Version { digest: Digest([9; 32]), ..v }, key, signatures.clone(), "another value");
        refused(v, if key.is_some() { None } else { Some([6; 16]) }, signatures.clone(), "another kind");
        refused(v, key.map(|_| [7; 16]).or(Some([0; 16])), signatures.clone(), "another key");
        let mut spoilt = c;
        spoilt.1[10] ^= 1;
        refused(v, key, vec![a, b, spoilt], "a bit");
        let stored = cluster.sign(2, &Statement::Stored(v));
        refused(v, key, vec![a, b, stored], "another statement");
        let normal = cluster.sign(2, &Statement::Prepared(v, None));
        if key.is_some() {
            refused(v, key, vec![a, b, normal], "kinds mixed (H3)");
        }
    }
    assert!(cluster.valid(&PrepareCert::genesis(), OBJECT));
}

/// One server of a register, with its bounds made small.
fn server(protocol: Protocol) -> (Box<dyn quorate_quorum::Process + Send>, Cluster) {
    let mut cluster = cluster();
    let mut settings = Settings::new(Thresholds::tolerating(1).unwrap(), protocol);
    settings.limits.objects = 4;
    settings.limits.clients = 3;
    cluster.settings = settings.clone();
    (quorate_quorum::server(ReplicaId(0), Arc::new(settings), quorate_quorum::Past::Whole), cluster)
}

fn ask(
    server: &mut Box<dyn quorate_quorum::Process + Send>,
    cluster: &Cluster,
    from: Principal,
    object: ObjectId,
    body: Body,
) -> Vec<Action> {
    let mut out = Out::default();
    let message = Message { object, body };
    server.step(0, Input::Message { from, message: &message }, &mut cluster.keys(0), &mut out);
    out.actions
}

fn answers(actions: &[Action]) -> usize {
    actions.iter().filter(|action| matches!(action, Action::Send { .. })).count()
}

/// A client fills the table of objects and the tables of listeners: what is beyond the bound is
/// refused, and what was there is served as before.
#[test]
fn the_tables_of_a_server_are_bounded() {
    let (mut server, cluster) = server(Protocol::MinimalC);
    let store = |number: u8| {
        let value: Value = [number].as_slice().into();
        let client = ClientId::new(1, 0);
        let version = Version { val: 1, client, digest: value_digest(&value) };
        let op = Op { incarnation: 1, number: 1, phase: 2 };
        Body::Store { op, version, value, proof: Proof::default(), write_back: false }
    };
    let writer = Principal::Client(ClientId::new(1, 0));
    for number in 0..10 {
        let actions = ask(&mut server, &cluster, writer, ObjectId([number; 32]), store(number));
        assert_eq!(answers(&actions) > 0, number < 4, "object {number}");
    }
    let rid = Rid { incarnation: 1, counter: 1 };
    for client in 1..10 {
        let reader = Principal::Client(ClientId::new(client, 0));
        let read = Body::Read { rid, attempt: 0 };
        let actions = ask(&mut server, &cluster, reader, ObjectId([0; 32]), read.clone());
        assert_eq!(answers(&actions) > 0, client <= 3, "client {client}");
        // An object that nobody has written is read all the same.
        let actions = ask(&mut server, &cluster, reader, ObjectId([99; 32]), read);
        assert_eq!(answers(&actions) > 0, client <= 3, "client {client}");
    }
}

/// Q8: a client that may only read asks for any number of objects that nobody has written. The server keeps a bounded
/// number of them, none for longer than the lease, and writers find room for as many objects as before.
#[test]
fn q8_a_reader_leaves_room_for_writers() {
    let (mut server, cluster) = server(Protocol::MinimalC);
    let reader = Principal::Client(ClientId::new(2, 0));
    let object = |number: u64| ObjectId::new(b"", &number.to_le_bytes());
    let rid = Rid { incarnation: 1, counter: 1 };
    let read = || Body::Read { rid, attempt: u8::MAX };
    for number in 0..10_000 {
        ask(&mut server, &cluster, reader, object(number), read());
    }
    assert_eq!(server.objects(), 4096);
    // A read that has ended leaves nothing.
    ask(&mut server, &cluster, reader, object(0), Body::Rc { rid });
    assert_eq!(server.objects(), 4095);
    assert!(answers(&ask(&mut server, &cluster, reader, object(20_000), read())) > 0);
    let client = ClientId::new(1, 0);
    let value: Value = b"value".as_slice().into();
    let version = Version { val: 1, client, digest: value_digest(&value) };
    for number in 1..5 {
        let op = Op { incarnation: 1, number, phase: 2 };
        let proof = Proof::default();
        let body = Body::Store { op, version, value: Arc::clone(&value), proof, write_back: false };
        ask(&mut server, &cluster, client.into(), object(number), body);
        assert_eq!(server.held(&object(number)), Some(version), "{number}");
    }
    // The leases of all end, also of those that asked for the longest.
    let mut out = Out::default();
    let timer = Input::Timer(quorate_quorum::Timer::Leases);
    server.step(1 << 50, timer, &mut cluster.keys(0), &mut out);
    assert_eq!(server.objects(), 4);
}

/// Returns how often this timer was set.
fn timers(actions: &[Action], wanted: quorate_quorum::Timer) -> usize {
    let set = |action: &&Action| matches!(action, Action::SetTimer { timer, .. } if *timer == wanted);
    actions.iter().filter(set).count()
}

/// A STORE of a client's first version.
fn first_store(client: ClientId, number: u64) -> Body {
    let value: Value = number.to_le_bytes().as_slice().into();
    let version = Version { val: 1, client, digest: value_digest(&value) };
    let op = Op { incarnation: 1, number, phase: 2 };
    Body::Store { op, version, value, proof: Proof::default(), write_back: false }
}

/// Q8, Q13: the objects of a client are counted in all its lanes together. The timer that ends leases is not set again by
/// each READ: then none would end as long as anybody reads.
#[test]
fn q13_leases_end_while_others_read() {
    let (mut server, cluster) = server(Protocol::MinimalC);
    let object = |number: u64| ObjectId::new(b"", &number.to_le_bytes());
    let read = || Body::Read { rid: Rid { incarnation: 1, counter: 1 }, attempt: 0 };
    let mut set = 0;
    for number in 0..10_000 {
        let reader = ClientId::new(2, u16::try_from(number % 50).unwrap());
        let actions = ask(&mut server, &cluster, reader.into(), object(number), read());
        set += timers(&actions, quorate_quorum::Timer::Leases);
    }
    assert_eq!((server.objects(), set), (4096, 1));
    let mut out = Out::default();
    server.step(1 << 50, Input::Timer(quorate_quorum::Timer::Leases), &mut cluster.keys(0), &mut out);
    assert_eq!((server.objects(), timers(&out.actions, quorate_quorum::Timer::Leases)), (0, 0));
    let actions = ask(&mut server, &cluster, ClientId::new(3, 0).into(), object(0), read());
    assert_eq!(timers(&actions, quorate_quorum::Timer::Leases), 1);
}

/// Q10: a client sends RCs in many lanes, of reads that it never began. Others can read all the same.
#[test]
fn q10_one_client_leaves_room_for_other_readers() {
    let (mut server, cluster) = server(Protocol::MinimalC);
    let writer = ClientId::new(1, 0);
    ask(&mut server, &cluster, writer.into(), OBJECT, first_store(writer, 1));
    let rid = Rid { incarnation: 1, counter: 1 };
    for lane in 0..100 {
        ask(&mut server, &cluster, ClientId::new(9, lane).into(), OBJECT, Body::Rc { rid });
    }
    let read = Body::Read { rid, attempt: 0 };
    assert!(answers(&ask(&mut server, &cluster, ClientId::new(2, 0).into(), OBJECT, read)) > 0);
}

/// Q11: what shows that nothing was written makes no object.
#[test]
fn q11_nobody_fills_a_server_with_objects_that_nobody_wrote() {
    let (mut server, cluster) = server(Protocol::BftBc(Variant::Base));
    let client = Principal::Client(ClientId::new(9, 0));
    let genesis = WriteCert { version: Version::GENESIS, signatures: [].into() };
    for number in 0..10_u8 {
        let object = ObjectId([number; 32]);
        let op = Op { incarnation: 1, number: 1, phase: 2 };
        let write = Body::Write { op, value: b"".as_slice().into(), pcert: PrepareCert::genesis() };
        ask(&mut server, &cluster, client, object, write);
        ask(&mut server, &cluster, client, object, Body::Complete { wcert: genesis.clone() });
    }
    assert_eq!(server.objects(), 0);
}

/// Q9: a peer that lists more objects than a server can have has not sent all that this server promised.
#[test]
fn q9_a_list_that_is_cut_off_repairs_nothing() {
    for protocol in [Protocol::MinimalC, Protocol::MinimalF] {
        let (_, cluster) = server(protocol);
        let lost = quorate_quorum::Past::Lost;
        let mut server = quorate_quorum::server(ReplicaId(0), Arc::new(cluster.settings.clone()), lost);
        server.step(0, Input::Start, &mut cluster.keys(0), &mut Out::default());
        let (version, value): (_, Value) = (Version::GENESIS, b"".as_slice().into());
        let proof = Proof::default();
        let copy = |number: u8| Copy {
            object: ObjectId([number; 32]),
            version,
            value: Arc::clone(&value),
            proof: proof.clone(),
            pcert: None,
            wcert: None,
        };
        let items: Vec<_> = (1..=5).map(copy).collect();
        for peer in 1..4 {
            let copies = Body::Copies { items: items.clone().into(), more: true };
            ask(&mut server, &cluster, ReplicaId(peer).into(), ObjectId([0; 32]), copies);
        }
        assert!(!server.is_repaired(), "{}", protocol.name());
        // What nobody has written is not in a list.
        let reader = Principal::Client(ClientId::new(2, 0));
        let rid = Rid { incarnation: 1, counter: 1 };
        ask(&mut server, &cluster, reader, OBJECT, Body::Read { rid, attempt: 0 });
        let listed = ask(&mut server, &cluster, ReplicaId(1).into(), ObjectId([0; 32]), Body::Pull);
        let is_empty = |action: &Action| matches!(action, Action::Send { message, .. } if matches!(&message.body, Body::Copies { items, .. } if items.is_empty()));
        assert!(listed.iter().any(is_empty), "{}", protocol.name());
    }
}

/// A server is no client: it can neither store nor write back nor listen (§2.1, §4).
#[test]
fn a_server_is_no_client() {
    for protocol in [Protocol::Phalanx, Protocol::MinimalC, Protocol::MinimalF] {
        let (mut server, cluster) = server(protocol);
        let liar = Principal::Replica(ReplicaId(3));
        let value: Value = b"x".as_slice().into();
        let version = Version { val: 1, client: liar.as_client(), digest: value_digest(&value) };
        let signature = Some(cluster.keys(3).sign(&OBJECT, &Statement::Written(version)));
        let op = Op { incarnation: 1, number: 1, phase: 2 };
        for write_back in [false, true] {
            let proof = Proof { signature, evidence: None };
            let body = Body::Store { op, version, value: value.clone(), proof, write_back };
            assert_eq!(answers(&ask(&mut server, &cluster, liar, OBJECT, body)), 0, "{}", protocol.name());
        }
        let proof = Proof { signature, evidence: None };
        let body = Body::Fstore { version, value: value.clone(), proof };
        assert_eq!(answers(&ask(&mut server, &cluster, liar, OBJECT, body)), 0, "{}", protocol.name());
        let reader = Principal::Client(ClientId::new(1, 0));
        let body = if protocol == Protocol::Phalanx {
            Body::Rd { op }
        } else {
            Body::Read { rid: Rid { incarnation: 1, counter: 1 }, attempt: 0 }
        };
        let said = ask(&mut server, &cluster, reader, OBJECT, body);
        let genesis = said.iter().any(|action| {
            let Action::Send { message, .. } = action else { return false };
            matches!(
                message.body,
                Body::RdVal { version, .. } | Body::Val { version, .. } if version.is_genesis()
            )
        });
        assert!(genesis, "{} kept a server's store", protocol.name());
    }
}

/// Digests and signed statements stay as they are: servers keep them on disk.
#[test]
fn vectors() {
    let object = ObjectId::new(b"ns", b"key");
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<Vec<_>>().concat();
    let statement =
        Statement::Written(Version { val: 1, client: ClientId::new(1, 0), digest: value_digest(b"v") });
    let digest = quorate_quorum::crypto::statement_digest(ClusterId([9; 32]), 1, &object, &statement);
    let mut bytes = Vec::new();
    let op = Op { incarnation: 1, number: 2, phase: 1 };
    Message { object: OBJECT, body: Body::Qts { op } }.encode(5, &mut bytes);
    let lines = [
        format!("object {}", hex(&object.0)),
        format!("value {}", hex(&value_digest(b"v").0)),
        format!("statement {}", hex(&digest.0)),
        format!("qts {}", hex(&bytes)),
    ];
    let document = include_str!("../../../docs/wire-format-registers.md");
    let missing: Vec<&String> = lines.iter().filter(|line| !document.contains(line.as_str())).collect();
    assert!(missing.is_empty(), "not in docs/wire-format-registers.md: {missing:#?}");
}

/// MINIMAL-F: a writer signs version after version while a reader listens: the versions that were handled are bounded, and
/// the reader is told to start again.
#[test]
fn the_versions_that_a_listener_may_need_are_bounded() {
    let mut cluster = cluster();
    let writer = ClientId::new(1, 0);
    let signer = Signer::ed25519([77; 32]);
    assert!(cluster.verifier.insert(writer.into(), &signer.public()));
    let mut settings = Settings::new(Thresholds::tolerating(1).unwrap(), Protocol::MinimalF);
    settings.limits.seen = 20;
    let mut server = quorate_quorum::server(ReplicaId(0), Arc::new(settings), quorate_quorum::Past::Whole);
    let mut keys = Keys::new(ClusterId([9; 32]), 1, signer, cluster.verifier.clone(), || 0);
    let reader = Principal::Client(ClientId::new(2, 0));
    let rid = Rid { incarnation: 1, counter: 1 };
    ask(&mut server, &cluster, reader, OBJECT, Body::Read { rid, attempt: 0 });
    let mut gone = 0;
    for val in 1..=60_u64 {
        let value: Value = val.to_le_bytes().as_slice().into();
        let version = Version { val, client: writer, digest: value_digest(&value) };
        let signature = Some(keys.sign(&OBJECT, &Statement::Written(version)));
        let proof = Proof { signature, evidence: None };
        let op = Op { incarnation: 1, number: val, phase: 2 };
        let body = Body::Store { op, version, value, proof, write_back: false };
        let actions = ask(&mut server, &cluster, writer.into(), OBJECT, body);
        let is_gone = |action: &Action| matches!(action, Action::Send { to, message } if *to == reader && matches!(message.body, Body::Gone { .. }));
        let told = actions.iter().any(is_gone);
        assert_eq!(told, val == 21, "version {val}");
        gone += usize::from(told);
    }
    assert_eq!(gone, 1);
}
