//! Floods of what has to be checked with a signature, which costs 30 us (A5): how much of it is looked at, and what
//! comes through beside it.

use quorate_wire::frame::{Auth, Frame, HEADER_BYTES};
use quorate_wire::message::{AnyBody, RequestBody, RequestFlags, Suspect, SuspectReason};
use quorate_wire::sign::Signer;
use quorate_wire::{ClientId, DoorError, Kind, Principal, ReplicaId, Source, Timestamp, ViewNum};

use crate::samples::{VIEW, sample, suspect, view_change};
use crate::world::{C0, C1, World, encode, who};

/// What a node looks at, of what pays from one place, in the first second: 256 at once and 200 more.
const OF_A_PLACE: u64 = 456;
/// The same for everything without a right MAC, wherever it comes from.
const OF_STRANGERS: u64 = 2048 + 2000;

const R2: usize = 2;
const R3: usize = 3;
const ATTACKER: Source = Source { host: 66, port: 1 };
const ELSEWHERE: Source = Source { host: 7, port: 1 };

fn admit(world: &mut World, at_ns: u64, source: Source, frame: &[u8]) -> Result<(), DoorError> {
    world.doors[R3].admit_from(at_ns, source, &Frame::decode(frame).unwrap()).map(|_| ())
}

fn checked(world: &World) -> u64 {
    world.doors[R3].signatures_checked()
}

/// A frame with a wrong signature, which nobody needs a key for.
fn forged(frame: &[u8]) -> Vec<u8> {
    let mut frame = frame.to_vec();
    let at = HEADER_BYTES + Frame::decode(&frame).unwrap().body.len() + 1;
    frame[at + 5] ^= 1;
    frame
}

/// A REQUEST of a replica as a client.
fn request(world: &mut World, of: usize, timestamp: u64) -> Vec<u8> {
    let flags = RequestFlags { read_only: false, signed: true };
    let body = RequestBody { timestamp: Timestamp(timestamp), flags, replier: None, operation: b"recover" };
    let mut out = Vec::new();
    world.doors[of].seal_request(&body, who(of).as_client(), true, &mut out);
    out
}

/// A SUSPECT of r2 for a view, with MACs beside its signature or without them.
fn suspect_of_r2(world: &mut World, view: u64, escorted: bool) -> Vec<u8> {
    let body = Suspect { view: ViewNum(view), reason: SuspectReason::Timeout, signature: [0; 64] };
    let frame = world.seal(R2, R3, Kind::Suspect, &encode(&AnyBody::Suspect(body)));
    if !escorted {
        return frame;
    }
    let mut out = Vec::new();
    world.doors[R2].escort(None, &frame, &mut out);
    out
}

/// Every kind that is signed, in r2's or a client's name.
fn forged_frames(world: &mut World) -> Vec<Vec<u8>> {
    let mut frames: Vec<Vec<u8>> = [Kind::Suspect, Kind::ViewChange, Kind::NewView, Kind::NewKey]
        .map(|kind| forged(&sample(world, kind).frame))
        .into();
    let request = request(world, R2, 9);
    frames.push(forged(&request));
    frames
}

/// C2: a second of ten frames a millisecond of each kind, from one place and from everywhere.
#[test]
fn c2_of_a_flood_few_signatures_are_looked_at() {
    for (spread, most) in [(false, OF_A_PLACE), (true, OF_STRANGERS)] {
        let mut world = World::new();
        let frames = forged_frames(&mut world);
        let before = checked(&world);
        for i in 0..10_000_u64 {
            for frame in &frames {
                let source = if spread { Source { host: u128::from(i), port: 9 } } else { ATTACKER };
                let refused = admit(&mut world, i * 100_000, source, frame).unwrap_err();
                let expected = [DoorError::NotAuthentic(who(2)), DoorError::TooManySignatures(who(2))];
                let expected = expected.map(|error| core::mem::discriminant(&error));
                assert!(expected.contains(&core::mem::discriminant(&refused)), "{refused}");
            }
        }
        let looked_at = checked(&world) - before;
        assert!(
            (most - 50..=most + 1).contains(&looked_at),
            "{looked_at} checks take {} ms",
            looked_at * 30 / 1000
        );
    }
}

/// L12: frames in r2's name that are not r2's, from wherever they come, starve none that are; and those from one place
/// starve none that others pass on.
#[test]
fn l12_wrong_frames_in_a_name_starve_no_right_ones() {
    let mut world = World::new();
    let wrong = forged(&suspect_of_r2(&mut world, 70, false));
    for _ in 0..1_000 {
        let _ = admit(&mut world, 0, ATTACKER, &wrong);
    }
    let refused = admit(&mut world, 0, ATTACKER, &wrong);
    assert_eq!(refused, Err(DoorError::TooManySignatures(who(R2))));
    let passed_on = suspect_of_r2(&mut world, 71, false);
    assert_eq!(admit(&mut world, 0, ELSEWHERE, &passed_on), Ok(()));
    for host in 0..10_000 {
        let _ = admit(&mut world, 0, Source { host, port: 1 }, &wrong);
    }
    let passed_on = suspect_of_r2(&mut world, 72, false);
    let refused = admit(&mut world, 0, ELSEWHERE, &passed_on);
    assert_eq!(refused, Err(DoorError::TooManySignatures(who(R2))));
    let (own, recovery) = (suspect_of_r2(&mut world, 73, true), request(&mut world, R2, 9));
    assert_eq!(admit(&mut world, 0, ATTACKER, &own), Ok(()));
    assert_eq!(admit(&mut world, 0, ATTACKER, &recovery), Ok(()));
    // Its next keys, too: they are sent with a MAC of the ones before.
    world.doors[R2].refresh([9; 32], 1_700_000_000_000_000_000);
    let keys =
        std::iter::from_fn(|| world.doors[R2].take_outgoing()).find(|(to, _)| *to == who(R3)).unwrap().1;
    assert_eq!(admit(&mut world, 0, ATTACKER, &keys), Ok(()));
}

/// L12: what is right costs as much as what is wrong, so a replica that signs without end is bounded as well; and a
/// frame that was right before costs nothing.
#[test]
fn l12_right_signatures_count_and_are_looked_at_once() {
    let mut world = World::new();
    let before = checked(&world);
    let frame = suspect_of_r2(&mut world, 70, false);
    (0..1_000).for_each(|_| assert_eq!(admit(&mut world, 0, ATTACKER, &frame), Ok(())));
    assert_eq!(checked(&world), before + 1);
    // The same with MACs: the signature is the same.
    let frame = suspect_of_r2(&mut world, 70, true);
    assert_eq!(admit(&mut world, 0, ATTACKER, &frame), Ok(()));
    assert_eq!(checked(&world), before + 1);
    for i in 0..10_000 {
        let frame = suspect_of_r2(&mut world, 100 + i, true);
        let _ = admit(&mut world, i * 100_000, ELSEWHERE, &frame);
    }
    let looked_at = checked(&world) - before;
    assert!((OF_A_PLACE - 50..=OF_A_PLACE + 2).contains(&looked_at), "{looked_at}");
}

/// L12: wrong SUSPECTs inside of a VIEW-CHANGE whose own signature is right count, each of them.
#[test]
fn l12_bad_leave_certs_count() {
    let mut world = World::new();
    let mut m = view_change(&mut world);
    let left = ViewNum(m.view.0 - 1);
    m.leave.suspects = vec![suspect(&world, 0, left), suspect(&world, 1, left)];
    m.leave.suspects[1].1.signature[5] ^= 1;
    let frame = world.seal(R2, R3, Kind::ViewChange, &encode(&AnyBody::ViewChange(m)));
    let mut reasons = Vec::new();
    let before = checked(&world);
    for _ in 0..1_000 {
        reasons.push(admit(&mut world, 0, ATTACKER, &frame).unwrap_err());
    }
    // Its own and the right SUSPECT once, the wrong one again and again.
    assert_eq!(checked(&world) - before, 256);
    assert_eq!(reasons[..254], [DoorError::BadLeaveCert(ReplicaId(1)); 254]);
    assert_eq!(reasons[254..], vec![DoorError::TooManySignatures(who(1)); 746]);
}

/// L12: what was signed for a view that is over is not looked at; of this view and later ones it is.
#[test]
fn l12_old_views_are_turned_away_first() {
    let mut world = World::new();
    let frames =
        [Kind::Suspect, Kind::ViewChange, Kind::NewView].map(|kind| (kind, sample(&mut world, kind).frame));
    let before = checked(&world);
    // A SUSPECT is of the view that it is about, the others of the one that they begin.
    world.doors[R3].enter_view(ViewNum(VIEW.0 + 1));
    for (kind, frame) in &frames {
        assert_eq!(admit(&mut world, 0, ATTACKER, frame), Err(DoorError::OldView(kind.name())));
    }
    assert_eq!(checked(&world), before);
    world.doors[R3].enter_view(VIEW);
    for (_, frame) in &frames {
        assert_eq!(admit(&mut world, 0, ATTACKER, frame), Ok(()));
    }
}

/// C2: a client that starts is known at once, while NEW-KEYs in all names come from another place. They held a
/// start for 10 s.
#[test]
fn c2_forged_new_keys_hold_no_client_up() {
    let mut world = World::new();
    for at in [C0, C1, R2] {
        world.doors[at].refresh([u8::try_from(at).unwrap() + 40; 32], 1_700_000_000_000_000_000);
    }
    let keys = |at: usize, world: &mut World| {
        std::iter::from_fn(|| world.doors[at].take_outgoing()).find(|(to, _)| *to == who(R3)).unwrap().1
    };
    let frames = [C0, C1, R2].map(|at| keys(at, &mut world));
    for frame in &frames {
        for _ in 0..1_000 {
            let _ = admit(&mut world, 0, ATTACKER, &forged(frame));
        }
    }
    for frame in &frames {
        assert_eq!(admit(&mut world, 0, ELSEWHERE, frame), Ok(()));
    }
}

/// A MAC beside a signature is of this signature over this body: it pays for nothing else, and changes nothing about
/// what is kept.
#[test]
fn a_mac_beside_a_signature_pays_for_nothing_else() {
    let mut world = World::new();
    let (one, other) = (suspect_of_r2(&mut world, 70, true), suspect_of_r2(&mut world, 71, true));
    let plain = suspect_of_r2(&mut world, 70, false);
    let signed = plain.len();
    assert!(matches!(Frame::decode(&one).unwrap().auth, Auth::Both { .. }));
    assert_eq!(one[..signed - 65], plain[..signed - 65]);
    // Everything that a stranger may have looked at is used up.
    for host in 0..10_000 {
        let _ = admit(&mut world, 0, Source { host, port: 1 }, &forged(&plain));
    }
    let transplanted = [&one[..signed], &other[signed..]].concat();
    let refused = Err(DoorError::TooManySignatures(who(R2)));
    assert_eq!(admit(&mut world, 0, ELSEWHERE, &transplanted), refused);
    assert_eq!(admit(&mut world, 0, ELSEWHERE, &forged(&one)), refused);
    assert_eq!(admit(&mut world, 0, ELSEWHERE, &one), Ok(()));
    // Nobody escorts what another has signed, or what has MACs already.
    for frame in [&plain, &one] {
        let mut out = Vec::new();
        world.doors[1].escort(None, frame, &mut out);
        assert_eq!(out, *frame);
    }
}

/// What was right under a key is not right any more when the client has another one.
#[test]
fn a_signature_is_forgotten_with_its_key() {
    let mut world = World::new();
    let client = ClientId::new(1, 0);
    assert_eq!(who(C0), Principal::Client(client));
    world.doors[C0].refresh([8; 32], 1_700_000_000_000_000_000);
    let frame =
        std::iter::from_fn(|| world.doors[C0].take_outgoing()).find(|(to, _)| *to == who(R3)).unwrap().1;
    assert_eq!(admit(&mut world, 0, ELSEWHERE, &frame), Ok(()));
    world.doors[R3].remove_client(client);
    assert!(world.doors[R3].add_client(client, &Signer::Toy([99; 32]).public()));
    assert_eq!(admit(&mut world, 0, ELSEWHERE, &frame), Err(DoorError::NotAuthentic(who(C0))));
}
