//! Requests in the authenticator: how each is proven, alone and inside of a batch.

use quorate_wire::batch::Batch;
use quorate_wire::codec::Writer;
use quorate_wire::frame::{ENTRY_BYTES, Frame, HEADER_BYTES, SIGNATURE_BYTES, signature_of};
use quorate_wire::message::{BodyMessage, Proof, Request, RequestBody, RequestFlags, encode_pre_prepare};
use quorate_wire::{Admitted, DoorError, Kind, Message, Principal, ReplicaId, SeqNum, Timestamp, ViewNum};

use crate::world::{Setting, World, lane, who};

/// Makes the entry of replica `at` wrong in a client's authenticator.
fn spoil(frame: &[u8], at: usize) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let entry = frame.len() - (4 - at) * ENTRY_BYTES;
    frame[entry + 7] ^= 1;
    frame
}

fn proof(world: &mut World, to: usize, frame: &[u8]) -> Result<Proof, DoorError> {
    world.admit(to, frame).map(|admitted| match admitted.message() {
        Message::Request(request) => request.proof,
        other => panic!("{other:?}"),
    })
}

#[test]
fn a_request_is_proven_by_this_replicas_entry() {
    let mut world = World::new();
    let plain = world.request(7, b"put x 1", false);
    let signed = world.request(8, b"put x 1", true);
    for replica in 0..4 {
        assert_eq!(proof(&mut world, replica, &plain), Ok(Proof::Mac));
        assert_eq!(proof(&mut world, replica, &signed), Ok(Proof::Mac));
    }
}

/// B31, C1: an authenticator that satisfies some replicas only. Where the entry is wrong nothing is
/// taken on trust, but a signature helps.
#[test]
fn c1_a_request_with_a_wrong_entry_needs_a_signature() {
    let mut world = World::new();
    let plain = spoil(&world.request(7, b"put x 1", false), 2);
    assert_eq!(proof(&mut world, 1, &plain), Ok(Proof::Mac));
    assert_eq!(proof(&mut world, 2, &plain), Err(DoorError::NotAuthentic(lane().into())));
    let signed = spoil(&world.request(7, b"put x 1", true), 2);
    assert_eq!(proof(&mut world, 2, &signed), Ok(Proof::Signed));
}

/// AU-1: a signature that was damaged on the way, or by the node that forwarded it, is not the client's fault:
/// the MAC covers it.
#[test]
fn c1_a_damaged_signature_makes_the_mac_wrong() {
    let mut world = World::new();
    let mut signed = world.request(7, b"put x 1", true);
    let signature = signed.len() - 4 * ENTRY_BYTES - 5 - SIGNATURE_BYTES;
    signed[signature + 40] ^= 1;
    assert_eq!(proof(&mut world, 1, &signed), Err(DoorError::NotAuthentic(lane().into())));
}

/// A signature costs 30 us to check: those who send wrong MACs get a hundred a second looked at.
#[test]
fn c6_signatures_behind_wrong_macs_are_looked_at_now_and_then() {
    let mut world = World::new();
    let signed = spoil(&world.request(7, b"put x 1", true), 2);
    let mut admitted = 0;
    for ms in 0..1000 {
        let frame = Frame::decode(&signed).unwrap();
        admitted += u32::from(world.doors[2].admit(ms * 1_000_000, frame).is_ok());
    }
    assert_eq!(admitted, 100);
}

#[test]
fn c1_a_wrong_signature_proves_nothing() {
    let mut world = World::new();
    let signed = world.request(7, b"put x 1", true);
    let mut forged = spoil(&signed, 2);
    let signature_at = HEADER_BYTES + 11 + 7 + 1;
    forged[signature_at + 9] ^= 1;
    assert_eq!(proof(&mut world, 2, &forged), Err(DoorError::NotAuthentic(lane().into())));
    // With the right entry it is admitted; that the client is faulty the core finds out (AU-1).
    let flags = RequestFlags { read_only: false, signed: true };
    let body = RequestBody { timestamp: Timestamp(7), flags, replier: None, operation: b"put x 1" };
    let mut own = Vec::new();
    world.doors[crate::world::C0].seal_request_with(&body, lane(), Some(&[7; 64]), &mut own);
    assert_eq!(proof(&mut world, 1, &own), Ok(Proof::Mac));
    let digest = world.domains().request(lane().0, 7, b"put x 1");
    let signature = signature_of(&signed).unwrap();
    assert!(world.doors[1].check_signature(lane(), &digest, &signature));
    assert!(!world.doors[1].check_signature(lane(), &digest, &signature_of(&forged).unwrap()));
    assert!(!world.doors[1].check_signature(lane(), &world.domains().null_batch(), &signature));
}

/// The signature covers client, timestamp and operation only, so a retransmission keeps it (spec §4.1).
#[test]
fn a_retransmission_keeps_its_signature() {
    let mut world = World::new();
    let mut sent = Vec::new();
    for (replier, read_only) in [(None, true), (Some(1), false)] {
        let flags = RequestFlags { read_only, signed: true };
        let body = RequestBody { timestamp: Timestamp(7), flags, replier, operation: b"get x" };
        let mut frame = Vec::new();
        world.doors[crate::world::C0].seal_request(&body, lane(), true, &mut frame);
        sent.push(signature_of(&frame));
    }
    assert_eq!(sent[0], sent[1]);
}

/// The flag in the body and the form of the authentication say the same.
#[test]
fn the_signed_flag_is_true() {
    let mut world = World::new();
    for signed in [false, true] {
        let mut frame = world.request(7, b"put x 1", signed);
        frame[HEADER_BYTES + 8] ^= 2;
        assert!(matches!(world.admit(1, &frame), Err(DoorError::Malformed(_))));
    }
}

fn recovery_request(world: &mut World, from: usize) -> Vec<u8> {
    let body = RequestBody {
        timestamp: Timestamp(1),
        flags: RequestFlags::default(),
        replier: None,
        operation: b"recovery",
    };
    let mut frame = Vec::new();
    let client = who(from).as_client();
    world.doors[from].seal_request(&body, client, false, &mut frame);
    frame
}

/// Requests of replicas are signed (AU-1), whatever their entries say.
#[test]
fn a_replicas_own_request_counts_by_its_signature() {
    let mut world = World::new();
    let frame = recovery_request(&mut world, 2);
    assert!(signature_of(&frame).is_some());
    for replica in [0, 1, 3] {
        assert_eq!(proof(&mut world, replica, &frame), Ok(Proof::Signed));
    }
    assert_eq!(proof(&mut world, 2, &frame), Err(DoorError::OwnIdentity));
    let mut forged = frame.clone();
    forged[HEADER_BYTES] ^= 1;
    assert_eq!(proof(&mut world, 0, &forged), Err(DoorError::NotAuthentic(who(2))));
}

fn pre_prepare(world: &mut World, requests: &[&[u8]]) -> Vec<u8> {
    let domains = world.domains();
    let mut batch = Batch::default();
    for request in requests {
        batch.push_inlined(&Request::decode(&Frame::decode(request).unwrap(), &domains).unwrap());
    }
    batch.seal(&domains, &[]);
    let mut body = Vec::new();
    encode_pre_prepare(ViewNum(0), SeqNum(1), &batch, &[], &mut Writer::new(&mut body));
    world.seal(0, 1, Kind::PrePrepare, &body)
}

fn proofs(world: &mut World, to: usize, frame: &[u8]) -> Vec<Proof> {
    let admitted = world.admit(to, frame).unwrap();
    let Message::PrePrepare(m) = admitted.message() else { panic!("{admitted:?}") };
    m.batch.inlined().iter().map(|inlined| inlined.proof).collect()
}

/// Inside of a batch a request that is not proven does not spoil the frame: what else may vouch for it
/// is for the core to say (AU-2, AU-5, SR-4).
#[test]
fn p10_each_request_of_a_batch_says_how_it_was_proven() {
    let mut world = World::new();
    let right = world.request(7, b"put x 1", false);
    let split = spoil(&world.request(8, b"put x 2", false), 3);
    let signed = spoil(&world.request(9, b"put x 3", true), 3);
    let recovery = recovery_request(&mut world, 3);
    let frame = pre_prepare(&mut world, &[&right, &split, &signed, &recovery]);
    assert_eq!(proofs(&mut world, 1, &frame), [Proof::Mac, Proof::Mac, Proof::Mac, Proof::Unproven]);
    let at_r3 = [Proof::Mac, Proof::Unproven, Proof::Unproven, Proof::Unproven];
    assert_eq!(proofs(&mut world, 3, &frame), at_r3);

    // Both signatures are there to be checked, r3's own among them.
    let admitted = world.admit(3, &frame).unwrap();
    let Message::PrePrepare(m) = admitted.message() else { panic!("{admitted:?}") };
    for at in [2, 3] {
        let inlined = &m.batch.inlined()[at];
        let signature = m.batch.signature(inlined).unwrap();
        assert!(world.doors[3].check_signature(inlined.client, &inlined.digest, &signature));
    }
    let operations: Vec<_> = m.batch.requests().map(|request| request.operation).collect();
    assert_eq!(operations, [&b"put x 1"[..], b"put x 2", b"put x 3", b"recovery"]);
}

/// B35, P10: the primary cannot change what a client asked for and keep the client's authenticator.
#[test]
fn p10_a_forged_request_in_a_batch_is_unproven() {
    let mut world = World::new();
    let right = world.request(7, b"put x 1", false);
    let mut forged = right.clone();
    forged[HEADER_BYTES + 11 + 6] = b'9';
    let frame = pre_prepare(&mut world, &[&right, &forged]);
    assert_eq!(proofs(&mut world, 3, &frame), [Proof::Mac, Proof::Unproven]);
    // Of another epoch, or of a client that is not known here: not proven either.
    let mut old = right.clone();
    old[4] ^= 1;
    let mut stranger = right.clone();
    stranger[12] ^= 0x40;
    let frame = pre_prepare(&mut world, &[&old, &stranger]);
    assert_eq!(proofs(&mut world, 3, &frame), [Proof::Unproven, Proof::Unproven]);
}

/// K16: what a client asked for in an old epoch is not proven in a new one, though the keys be the same.
#[test]
fn k16_a_request_of_another_epoch_in_a_batch_is_unproven() {
    let mut old = World::new();
    let mut new = World::of(Setting { epoch: old.setting.epoch + 1, ..old.setting });
    let (stale, fresh) = (old.request(7, b"put x 1", false), new.request(7, b"put x 1", false));
    let frame = pre_prepare(&mut new, &[&stale, &fresh]);
    assert_eq!(proofs(&mut new, 1, &frame), [Proof::Unproven, Proof::Mac]);
}

/// SR-2: a body is checked by digest, from any sender and with any authenticator.
#[test]
fn p12_a_body_has_the_digest_of_its_bytes() {
    let mut world = World::new();
    let right = world.request(7, b"put x 1", false);
    for (request, expected) in [(right.clone(), Proof::Mac), (spoil(&right, 3), Proof::Unproven)] {
        let mut body = Vec::new();
        BodyMessage::encode_request(&request, &mut Writer::new(&mut body));
        let frame = world.seal(1, 3, Kind::Body, &body);
        let admitted = world.admit(3, &frame).unwrap();
        let Message::Body(BodyMessage::Request(inner)) = admitted.message() else { panic!("{admitted:?}") };
        assert_eq!(inner.proof, expected);
        assert_eq!(inner.digest, world.domains().request(lane().0, 7, b"put x 1"));
    }
    // A body that holds something else than a REQUEST.
    let commit = crate::samples::sample(&mut world, Kind::Commit).frame;
    let mut body = Vec::new();
    BodyMessage::encode_request(&commit, &mut Writer::new(&mut body));
    let frame = world.seal(1, 3, Kind::Body, &body);
    assert!(matches!(world.admit(3, &frame), Err(DoorError::Malformed(_))));
}

/// A forwarded request is the client's, whatever the sender of the datagram.
#[test]
fn a_relayed_request_is_judged_by_its_own_authenticator() {
    let mut world = World::new();
    let frame = world.request(7, b"put x 1", false);
    let decoded = Frame::decode(&frame).unwrap();
    for replica in [ReplicaId(0), ReplicaId(3)] {
        let admitted = world.doors[replica.index()].admit(0, decoded).unwrap();
        let Admitted::Message(m) = admitted else { panic!() };
        assert_eq!(m.sender(), Principal::Client(lane()));
    }
}
