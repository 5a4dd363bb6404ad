//! What the authenticator rejects, one fault at a time.

use quorate_wire::codec::Writer;
use quorate_wire::frame::{ENTRY_BYTES, Frame, HEADER_BYTES};
use quorate_wire::message::{AnyBody, Reply, Seal, Statement};
use quorate_wire::{ClientId, ClusterId, Digest, DoorError, Kind, Message, Principal, ReplicaId};

use crate::samples::{Sample, batch, reply, sample, samples, statement, suspect, view_change};
use crate::world::{C0, C1, Setting, World, encode, lane, signer, who, with_epoch, with_kind, with_sender};

/// Puts another authentication behind the body of a frame.
fn with_auth(frame: &[u8], auth: &[u8]) -> Vec<u8> {
    let body = Frame::decode(frame).unwrap().body.len();
    [&frame[..HEADER_BYTES + body], auth].concat()
}

/// CR-4: nothing that claims to be ours comes from the network.
#[test]
fn k17_a_reflected_message_is_refused() {
    let mut world = World::new();
    for Sample { kind, from, to, frame } in samples(&mut world) {
        // But for a VIEW-CHANGE or PROOF: a node that has lost its memory may need its own as evidence.
        let reflected = world.admit(from, &frame).err();
        let evidence = matches!(kind, Kind::ViewChange | Kind::Proof);
        let expected = (!evidence).then_some(DoorError::OwnIdentity);
        assert_eq!(reflected, expected, "{}", kind.name());
        // Sent back in the name of the one who got it: the key is of the other direction.
        let turned = world.admit(from, &with_sender(&frame, who(to))).err();
        assert!(
            matches!(
                turned,
                Some(
                    DoorError::NotAuthentic(_)
                        | DoorError::NoKey(_)
                        | DoorError::WrongSeal(_)
                        | DoorError::WrongRole { .. }
                )
            ),
            "{}: {turned:?}",
            kind.name()
        );
    }
    // The same fields, the same pair, MACs of the same form, the other direction.
    let body = sample(&mut world, Kind::Committed).body().to_vec();
    let frame = world.seal(2, 3, Kind::Committed, &body);
    let turned = with_sender(&frame, who(3));
    assert_eq!(world.admit(2, &swap_generations(&turned)).err(), Some(DoorError::NotAuthentic(who(3))));
}

/// Exchanges the sender's and the receiver's key generation in a frame with one MAC, which makes the
/// keys known to whom it is sent back.
fn swap_generations(frame: &[u8]) -> Vec<u8> {
    let at = frame.len() - 4 - ENTRY_BYTES;
    let mut frame = frame.to_vec();
    frame[at..at + 8].rotate_left(4);
    frame
}

#[test]
fn k17_no_kind_passes_for_another() {
    let mut world = World::new();
    for Sample { kind, to, frame, .. } in samples(&mut world) {
        for other in Kind::ALL.into_iter().filter(|other| *other != kind) {
            let renamed = with_kind(&frame, other);
            let refused = world.doors[to].admit(0, Frame::decode(&renamed).unwrap());
            assert!(refused.is_err(), "a {} passes for a {}", kind.name(), other.name());
            // Also where the body is never looked at: the signature is of the kind.
            let evidence = [Kind::Suspect, Kind::ViewChange, Kind::NewView, Kind::Proof];
            if evidence.contains(&kind) && evidence.contains(&other) {
                assert!(matches!(refused, Err(DoorError::NotAuthentic(_))));
            }
        }
    }
    // These two have the same layout and the same kind of seal: the MAC alone tells them apart.
    let frame = sample(&mut world, Kind::Commit).frame;
    assert!(world.admit(3, &frame).is_ok());
    let refused = world.admit(3, &with_kind(&frame, Kind::ReqAck)).err();
    assert_eq!(refused, Some(DoorError::NotAuthentic(who(2))));
}

#[test]
fn k16_a_message_of_another_epoch_is_refused() {
    let mut old = World::new();
    let epoch = old.setting.epoch;
    let mut new = World::of(Setting { epoch: epoch + 1, ..old.setting });
    for Sample { kind, to, frame, .. } in samples(&mut old) {
        let refused = new.doors[to].admit(0, Frame::decode(&frame).unwrap()).err();
        assert_eq!(refused, Some(DoorError::WrongEpoch { epoch, own: epoch + 1 }), "{}", kind.name());
        // The keys are the same ones here, and yet it does not help to write the new epoch on it.
        let renamed = with_epoch(&frame, epoch + 1);
        let refused = new.doors[to].admit(0, Frame::decode(&renamed).unwrap()).err();
        assert!(matches!(refused, Some(DoorError::NotAuthentic(_))), "{}: {refused:?}", kind.name());
    }
}

#[test]
fn b28_a_message_of_another_cluster_is_refused() {
    let mut one = World::new();
    let mut other = World::of(Setting { cluster_id: ClusterId([0xc2; 32]), ..one.setting });
    for Sample { kind, to, frame, .. } in samples(&mut one) {
        let refused = other.doors[to].admit(0, Frame::decode(&frame).unwrap()).err();
        assert!(matches!(refused, Some(DoorError::NotAuthentic(_))), "{}: {refused:?}", kind.name());
    }
}

/// Keys are of pairs: a faulty replica that has all of its own cannot speak for another.
#[test]
fn b28_no_replica_can_make_anothers_mac() {
    let mut world = World::new();
    for Sample { kind, from, to, frame } in samples(&mut world) {
        for other in (0..=C1).filter(|other| *other != from && *other != to) {
            let renamed = with_sender(&frame, who(other));
            let refused = world.doors[to].admit(0, Frame::decode(&renamed).unwrap());
            assert!(refused.is_err(), "{} of {} passes for {}'s", kind.name(), who(from), who(other));
        }
    }
}

/// N5: a message for one receiver does not pass at another.
#[test]
fn n5_a_mac_for_one_receiver_is_refused_by_another() {
    let mut world = World::new();
    for Sample { kind, frame, .. } in samples(&mut world).into_iter().filter(|s| s.kind.seal() == Seal::Mac) {
        // Only clients take a STATEMENT at all.
        let others: &[usize] = if kind == Kind::Statement { &[C1] } else { &[0, 1] };
        for other in others {
            let refused = world.admit(*other, &frame).err();
            assert!(matches!(refused, Some(DoorError::NoKey(_))), "{}: {refused:?}", kind.name());
        }
    }
}

/// K15: each receiver looks at its own entry. What that means for the protocol is the core's affair.
#[test]
fn k15_a_partial_authenticator_is_refused_where_its_entry_is_wrong() {
    let mut world = World::new();
    let frame = sample(&mut world, Kind::Commit).frame; // of r2: entries for r0, r1, r3
    let entry = |at: usize| frame.len() - (3 - at) * ENTRY_BYTES;
    let mut partial = frame.clone();
    partial[entry(2) + 4..].fill(0);
    assert!(world.admit(0, &partial).is_ok());
    assert!(world.admit(1, &partial).is_ok());
    assert_eq!(world.admit(3, &partial).err(), Some(DoorError::NotAuthentic(who(2))));

    let mut swapped = frame.clone();
    swapped[entry(0)..entry(2)].rotate_left(ENTRY_BYTES);
    assert!(world.admit(0, &swapped).is_err());
    assert!(world.admit(1, &swapped).is_err());
    assert!(world.admit(3, &swapped).is_ok());
}

/// An authenticator is for all others: one with fewer or more entries was not made by a correct node.
#[test]
fn k15_an_authenticator_with_another_number_of_entries_is_refused() {
    let mut world = World::new();
    for kind in [Kind::Commit, Kind::Request] {
        let Sample { frame, to, .. } = sample(&mut world, kind);
        let entries = Frame::decode(&frame).unwrap();
        let quorate_wire::frame::Auth::Authenticator { entries, .. } = entries.auth else { panic!() };
        let count_at = frame.len() - entries.len() * ENTRY_BYTES - 1;
        let mut fewer = frame[..frame.len() - ENTRY_BYTES].to_vec();
        fewer[count_at] -= 1;
        assert_eq!(world.admit(to, &fewer).err(), Some(DoorError::WrongSeal(kind.name())));
        let mut more = [&frame[..], &[0; ENTRY_BYTES]].concat();
        more[count_at] += 1;
        assert_eq!(world.admit(to, &more).err(), Some(DoorError::WrongSeal(kind.name())));
    }
}

/// B27: leaving the proof out, or giving one of another form, never skips the check.
#[test]
fn b27_only_the_right_form_of_authentication_counts() {
    let mut world = World::new();
    let entry = [0; ENTRY_BYTES];
    for Sample { kind, to, frame, .. } in samples(&mut world) {
        let count = if matches!(kind, Kind::Request | Kind::Probe) { 4 } else { 3 };
        let entries = [&[9, 9, 9, 9, count][..], &entry.repeat(usize::from(count))].concat();
        let forms: [(u8, Vec<u8>); 4] = [
            (1, [&[1, 9, 9, 9, 9][..], &entry].concat()),
            (2, [&[2][..], &entries].concat()),
            (3, [&[3][..], &[0; 64]].concat()),
            (4, [&[4][..], &[0; 64], &entries].concat()),
        ];
        let right = match kind.seal() {
            Seal::Mac => 1,
            Seal::Authenticator => 2,
            Seal::Signature => 3,
        };
        for (form, auth) in &forms {
            let frame = with_auth(&frame, auth);
            let refused = world.doors[to].admit(0, Frame::decode(&frame).unwrap()).err();
            let of_this_form = matches!(refused, Some(DoorError::NoKey(_) | DoorError::NotAuthentic(_)));
            let of_another = match kind {
                // It has two forms, and says in a flag which: here, that it is not signed.
                Kind::Request if *form > 2 => matches!(refused, Some(DoorError::Malformed(_))),
                _ => refused == Some(DoorError::WrongSeal(kind.name())),
            };
            // What is signed may have MACs beside the signature.
            let is_right = *form == right || (kind.seal() == Seal::Signature && *form == 4);
            let expected = if is_right { of_this_form } else { of_another };
            assert!(expected, "{} with form {form}: {refused:?}", kind.name());
        }
    }
}

#[test]
fn b35_a_digest_that_is_not_its_payloads_is_refused() {
    let mut world = World::new();
    // The primary itself authenticates another digest than its batch has.
    let batch = batch(&mut world);
    let mut body = Vec::new();
    quorate_wire::message::encode_pre_prepare(
        crate::samples::VIEW,
        crate::samples::SEQ,
        &batch,
        &[],
        &mut Writer::new(&mut body),
    );
    let right = world.seal(1, 3, Kind::PrePrepare, &body);
    assert!(world.admit(3, &right).is_ok());
    body[16] ^= 1;
    let wrong = world.seal(1, 3, Kind::PrePrepare, &body);
    assert_eq!(world.admit(3, &wrong).err(), Some(DoorError::WrongDigest(Kind::PrePrepare.name())));

    // K12: a replica sends another result under the right digest.
    let lie = AnyBody::Reply(Reply { result: Some(b"ko"), ..reply(&world, None) });
    let wrong = world.seal(2, C0, Kind::Reply, &encode(&lie));
    assert_eq!(world.admit(C0, &wrong).err(), Some(DoorError::WrongDigest(Kind::Reply.name())));
}

#[test]
fn k11_a_reply_for_another_client_is_refused() {
    let mut world = World::new();
    let other = ClientId::new(2, 0);
    let lie = AnyBody::Reply(Reply { client: other, ..reply(&world, None) });
    let wrong = world.seal(2, C0, Kind::Reply, &encode(&lie));
    assert_eq!(world.admit(C0, &wrong).err(), Some(DoorError::OtherClient(other)));
    // All lanes of a client have one authenticator.
    for lane in [0, 3, u16::MAX] {
        let mine = AnyBody::Reply(Reply { client: ClientId::new(1, lane), ..reply(&world, None) });
        let frame = world.seal(2, C0, Kind::Reply, &encode(&mine));
        assert!(world.admit(C0, &frame).is_ok());
        // The lane is covered by the MAC although the principal is not.
        let mut moved = frame.clone();
        moved[HEADER_BYTES + 49] ^= 1;
        assert_eq!(world.admit(C0, &moved).err(), Some(DoorError::NotAuthentic(who(2))));
    }
}

#[test]
fn c6_strangers_are_refused() {
    let mut world = World::new();
    let frame = sample(&mut world, Kind::Commit).frame;
    for stranger in [ReplicaId(4).into(), ReplicaId(u16::MAX).into(), ClientId::new(9, 0).into()] {
        let refused = world.admit(3, &with_sender(&frame, stranger)).err();
        assert_eq!(refused, Some(DoorError::UnknownSender(stranger)));
    }
    let request = world.request(7, b"put x 1", false);
    world.doors[0].remove_client(lane());
    assert_eq!(world.admit(0, &request).err(), Some(DoorError::UnknownSender(lane().into())));
    assert!(world.admit(1, &request).is_ok());
    // It is let in again, and has to be told this replica's keys.
    assert!(world.doors[0].add_client(lane(), &signer(world.setting, C0).public()));
    assert_eq!(world.admit(0, &request).err(), Some(DoorError::NoKey(lane().into())));
    world.exchange_keys(0);
    assert!(world.admit(0, &request).is_ok());
}

/// A client may ask and a replica may answer; whatever else a client says is refused, and so is
/// whatever else a client is told.
#[test]
fn c6_clients_have_no_part_in_agreement() {
    let mut world = World::new();
    for Sample { kind, from, to, frame } in samples(&mut world) {
        if from != C0 && kind != Kind::NewKey {
            let refused = world.admit(3, &with_sender(&frame, who(C1))).err();
            assert_eq!(refused, Some(DoorError::WrongRole { kind: kind.name(), sender: who(C1) }));
        }
        if to != C0 && kind != Kind::NewKey {
            let sender = Frame::decode(&frame).unwrap().sender;
            let refused = world.admit(C1, &frame).err();
            let stranger = Some(DoorError::UnknownSender(sender)); // another client
            let expected =
                if from == C0 { stranger } else { Some(DoorError::WrongRole { kind: kind.name(), sender }) };
            assert_eq!(refused, expected);
        }
    }
    // Clients share no keys with each other.
    let new_key = sample(&mut world, Kind::NewKey).frame;
    let refused = world.doors[C1].admit(0, Frame::decode(&with_sender(&new_key, who(C0))).unwrap()).err();
    assert_eq!(refused, Some(DoorError::UnknownSender(who(C0))));
}

/// A forwarded signed message is verified by its own signature.
#[test]
fn k6_a_view_change_with_a_forged_leave_cert_is_refused() {
    let mut world = World::new();
    let right = view_change(&mut world);
    let mut admit = |m: &quorate_wire::message::ViewChange| {
        let frame = world.seal(2, 3, Kind::ViewChange, &encode(&AnyBody::ViewChange(m.clone())));
        world.admit(3, &frame).map(|admitted| admitted.message().kind())
    };
    assert_eq!(admit(&right), Ok(Kind::ViewChange));
    let mut forged = right.clone();
    forged.leave.suspects[1].1.signature[5] ^= 1;
    assert_eq!(admit(&forged), Err(DoorError::BadLeaveCert(ReplicaId(3))));
    // r0's SUSPECT in r1's name.
    let mut renamed = right.clone();
    renamed.leave.suspects[0].0 = ReplicaId(1);
    assert_eq!(admit(&renamed), Err(DoorError::BadLeaveCert(ReplicaId(1))));
    let mut stranger = right.clone();
    stranger.leave.suspects[1].0 = ReplicaId(40);
    assert_eq!(admit(&stranger), Err(DoorError::BadLeaveCert(ReplicaId(40))));
    // SUSPECTs of an older view: the view is not sent along, it is the one before the VIEW-CHANGE's.
    let mut later = right.clone();
    later.view = later.view.next();
    assert_eq!(admit(&later), Err(DoorError::BadLeaveCert(ReplicaId(0))));
}

/// A `LeaveCert` may well contain the SUSPECT of the one who receives it.
#[test]
fn own_signatures_inside_others_evidence_are_right() {
    let mut world = World::new();
    let mut m = view_change(&mut world);
    let left = quorate_wire::ViewNum(m.view.0 - 1);
    m.leave.suspects = vec![suspect(&world, 1, left), suspect(&world, 3, left)];
    let frame = world.seal(2, 3, Kind::ViewChange, &encode(&AnyBody::ViewChange(m)));
    let admitted = world.admit(3, &frame).unwrap();
    let Message::ViewChange(signed) = admitted.message() else { panic!("{admitted:?}") };
    assert_eq!(signed.frame(), frame);
    assert_eq!(signed.sender(), ReplicaId(2));
    assert_eq!(signed.digest(), world.domains().view_change(Frame::decode(&frame).unwrap().body));
}

/// The names are what metrics and scenarios count by.
#[test]
fn every_reason_has_a_name_and_says_what_was_wrong() {
    let reasons = [
        DoorError::Malformed(quorate_wire::codec::DecodeError::UnknownKind(77)),
        DoorError::OtherVersion(1),
        DoorError::WrongEpoch { epoch: 2, own: 3 },
        DoorError::UnknownSender(who(C1)),
        DoorError::OwnIdentity,
        DoorError::WrongRole { kind: Kind::Commit.name(), sender: who(C1) },
        DoorError::WrongSeal(Kind::Commit.name()),
        DoorError::NoKey(Principal::Replica(ReplicaId(1))),
        DoorError::NotAuthentic(who(2)),
        DoorError::WrongDigest(Kind::Reply.name()),
        DoorError::StaleKey(who(2)),
        DoorError::OtherClient(lane()),
        DoorError::TooManySignatures(who(2)),
        DoorError::OldView(Kind::Suspect.name()),
        DoorError::BadLeaveCert(ReplicaId(2)),
    ];
    assert_eq!(reasons.map(|reason| reason.name()), DoorError::NAMES);
    assert_eq!(reasons[2].to_string(), "of epoch 2, this one is 3");
    assert!(reasons.iter().all(|reason| !reason.to_string().is_empty()));
    assert_eq!(Digest::ZERO.to_string(), "0000");
}

/// A frame of another version of the format is refused under a reason of its own: who sees it counted knows that a
/// replica has another version of the program.
#[test]
fn a_frame_of_another_version_is_told_as_such() {
    let mut world = World::new();
    for Sample { frame, .. } in samples(&mut world) {
        let mut old = frame.clone();
        old[2] = 1;
        let refused = Frame::decode(&old).unwrap_err();
        assert_eq!(refused, quorate_wire::codec::DecodeError::OtherVersion(1));
        assert_eq!(DoorError::from(refused).name(), "other-version");
        old[2] = quorate_wire::frame::VERSION;
        assert!(Frame::decode(&old).is_ok());
        old[0] ^= 1;
        assert_eq!(DoorError::from(Frame::decode(&old).unwrap_err()).name(), "malformed", "not ours at all");
    }
}

/// RC-11: what is signed covers the epoch, so that no statement of one configuration counts in another.
#[test]
fn a_signature_covers_the_epoch() {
    let world = World::new();
    let sign = |epoch| {
        let body = [1; 9];
        quorate_wire::sign::signed_digest(&world.domains(), Kind::ViewChange, epoch, who(2), &body)
    };
    assert_ne!(sign(0), sign(1));
}

/// The settings of a statement stand at its end, if there are any; a flag says so, and says nothing else.
#[test]
fn a_statement_has_settings_or_not() {
    let encoded = |statement: &Statement| {
        let mut bytes = Vec::new();
        statement.encode(&mut Writer::new(&mut bytes));
        bytes
    };
    let (plain, with) = (statement(), Statement { settings: vec![7, 0xffff], ..statement() });
    assert_eq!(Statement::decode(&encoded(&with)).unwrap(), with);
    assert_eq!(encoded(&with).len(), encoded(&plain).len() + 5);
    // Behind four numbers, a checkpoint and two marks.
    let (mut none, flags) = (encoded(&plain), 32 + 40 + 16);
    none[flags] |= 64;
    none.push(0);
    assert!(Statement::decode(&none).is_err());
}
