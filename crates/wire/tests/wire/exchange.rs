//! Session keys: lost, late, doubled, replayed and forged NEW-KEYs.

use std::collections::VecDeque;

use quorate_wire::codec::Writer;
use quorate_wire::exchange::{AHEAD_NS, CLIENTS_MAX, Exchange};
use quorate_wire::frame::{Frame, HEADER_BYTES, SIGNATURE_BYTES};
use quorate_wire::message::NewKey;
use quorate_wire::{Admitted, ClientId, Cluster, ClusterId, Door, DoorError, Kind, Principal, ReplicaId};

use crate::samples::{body, sample};
use crate::world::{C0, C1, N, Setting, WALL_NS, World, door, encode, signer, who};

const MS: u64 = 1_000_000;
const SECOND: u64 = 1000 * MS;

fn new_keys(door: &mut Door, mono_ns: u64) -> Vec<(Principal, Vec<u8>)> {
    door.tick(mono_ns, 0);
    std::iter::from_fn(|| door.take_outgoing()).collect()
}

fn for_whom(frames: &[(Principal, Vec<u8>)], to: usize) -> usize {
    frames.iter().filter(|(whom, _)| *whom == who(to)).count()
}

fn admit_keys(door: &mut Door, mono_ns: u64, frame: &[u8]) -> Result<(), DoorError> {
    match door.admit(mono_ns, Frame::decode(frame).unwrap())? {
        Admitted::Keys => Ok(()),
        Admitted::Message(m) => panic!("{m:?}"),
    }
}

/// Returns whether `to` admits a COMMIT that `from` seals now.
fn understands(doors: &mut [Door], to: usize, from: usize, mono_ns: u64) -> Result<(), DoorError> {
    let mut frame = Vec::new();
    doors[from].tick(mono_ns, 0);
    doors[from].seal(Kind::Commit, None, &[0; 48], &mut frame);
    doors[to].admit(mono_ns, Frame::decode(&frame).unwrap()).map(|_| ())
}

fn fresh_doors() -> Vec<Door> {
    (0..=C1).map(|at| door(Setting::default(), at, 1)).collect()
}

#[test]
fn two_messages_are_enough_for_a_pair() {
    let mut doors = fresh_doors();
    assert_eq!(understands(&mut doors, 1, 0, 0), Err(DoorError::NoKey(who(0))));
    let from_r0 = new_keys(&mut doors[0], 0);
    assert_eq!(from_r0.len(), N - 1);
    let (_, frame) = from_r0.iter().find(|(to, _)| *to == who(1)).unwrap();
    admit_keys(&mut doors[1], 0, frame).unwrap();
    for (to, frame) in new_keys(&mut doors[1], 0) {
        if to == who(0) {
            admit_keys(&mut doors[0], 0, &frame).unwrap();
        }
    }
    assert_eq!(understands(&mut doors, 1, 0, 0), Ok(()));
    assert_eq!(understands(&mut doors, 0, 1, 0), Ok(()));
}

/// KX-1, K16: an older NEW-KEY does not bring an older key back.
#[test]
fn k16_a_replayed_new_key_is_refused() {
    let mut world = World::new();
    let old = sample(&mut world, Kind::NewKey).frame;
    admit_keys(&mut world.doors[3], 0, &old).unwrap();
    world.doors[0].refresh([0x78; 32], 0); // the clock has gone back: still a later time
    let new = new_keys(&mut world.doors[0], 0).swap_remove(0).1;
    admit_keys(&mut world.doors[3], 0, &new).unwrap();
    assert_eq!(admit_keys(&mut world.doors[3], 0, &old), Err(DoorError::StaleKey(who(0))));
    // The newest one once more is no news, and no harm.
    assert_eq!(admit_keys(&mut world.doors[3], 0, &new), Ok(()));
}

/// KX-1, L121: a NEW-KEY of the far future is refused, or those of its sender would be too old forever. One that was taken
/// while the own clock was wrong gives way.
#[test]
fn l121_a_new_key_of_the_far_future_is_refused() {
    let mut world = World::new();
    let mut keys_of = |time: u64| {
        let mut start = door(world.setting, 0, 2);
        start.refresh([0x78; 32], time);
        new_keys(&mut start, 0).swap_remove(0).1
    };
    let far = [u64::MAX, WALL_NS + AHEAD_NS + 1].map(&mut keys_of);
    let [now, farthest] = [WALL_NS, WALL_NS + AHEAD_NS].map(&mut keys_of);
    let stale = Err(DoorError::StaleKey(who(0)));
    let receiver = &mut world.doors[3];
    for frame in &far {
        assert_eq!(admit_keys(receiver, 0, frame), stale);
    }
    assert_eq!(admit_keys(receiver, 0, &farthest), Ok(()));
    assert_eq!(admit_keys(receiver, 0, &now), stale);
    receiver.tick(0, WALL_NS - 1);
    assert_eq!(admit_keys(receiver, 0, &now), Ok(()));
    assert_eq!(admit_keys(receiver, 0, &farthest), stale);
    // A node that is told the time of day once knows it later, too.
    assert_eq!(admit_keys(receiver, 1, &farthest), Ok(()));
}

/// K16: replays of a NEW-KEY of a replica that asks for an answer get one each 100 ms, not one each.
#[test]
fn k16_replays_are_answered_ten_times_a_second() {
    let mut world = World::new();
    let mut stranger = door(world.setting, 3, 2); // r3 has started again: it lacks all shares
    let asks = new_keys(&mut stranger, 0).into_iter().find(|(to, _)| *to == who(0)).unwrap().1;
    let mut answers = 0;
    for ms in 0..5000 {
        admit_keys(&mut world.doors[0], ms * MS, &asks).unwrap();
        answers += for_whom(&new_keys(&mut world.doors[0], ms * MS), 3);
    }
    assert_eq!(answers, 50);
}

/// KX-2: a sender of wrong MACs in another's name makes us send at most one NEW-KEY a second to a client, and ten to a
/// replica.
#[test]
fn wrong_macs_bring_about_few_new_keys() {
    let mut world = World::new();
    for client in [false, true] {
        let mut frame = sample(&mut world, if client { Kind::Request } else { Kind::Commit }).frame;
        let (from, to) = if client { (C0, 0) } else { (2, 3) };
        let entry = frame.len() - (N - to) * 20 + 5;
        frame[entry] ^= 1;
        let mut sent = 0;
        for ms in 10_000..13_000 {
            let refused = world.doors[to].admit(ms * MS, Frame::decode(&frame).unwrap()).err();
            assert!(matches!(refused, Some(DoorError::NotAuthentic(_))));
            sent += for_whom(&new_keys(&mut world.doors[to], ms * MS), from);
        }
        assert_eq!(sent, if client { 3 } else { 30 });
    }
}

#[test]
fn k16_a_forged_new_key_is_refused() {
    let mut world = World::new();
    let frame = sample(&mut world, Kind::NewKey).frame;
    // Up to the end of the signature: what stands behind it are MACs, which it does not need.
    let signed = HEADER_BYTES + Frame::decode(&frame).unwrap().body.len() + 1 + SIGNATURE_BYTES;
    for at in 0..signed {
        let mut forged = frame.clone();
        forged[at] ^= 0x04;
        let Ok(decoded) = Frame::decode(&forged) else { continue };
        // One in 10 ms, so that each is looked at (A5).
        let now = u64::try_from(at).unwrap() * 10 * MS;
        let refused = world.doors[3].admit(now, decoded).err();
        assert!(refused.is_some(), "with byte {at} changed");
        assert!(!matches!(refused, Some(DoorError::TooManySignatures(_))), "with byte {at} changed");
    }
    // Nothing of it has stuck: the right one is still taken, and the old keys still work.
    assert_eq!(understands(&mut world.doors, 3, 0, 0), Ok(()));
    assert_eq!(admit_keys(&mut world.doors[3], 0, &frame), Ok(()));
}

/// A share of low order would give a key that everyone can compute.
#[test]
fn k16_a_share_of_low_order_gives_no_key() {
    let mut world = World::new();
    let share = NewKey { time: WALL_NS + MS, key_id: 5, share: [0; 32], settings: 0, want: false };
    let mut body = Vec::new();
    share.encode(&mut Writer::new(&mut body));
    let frame = world.seal(0, 3, Kind::NewKey, &body);
    assert_eq!(admit_keys(&mut world.doors[3], 0, &frame), Ok(()));
    let committed = encode(&self::body(&mut world, Kind::Committed));
    let sealed = world.seal(3, 0, Kind::Committed, &committed);
    assert!(sealed.ends_with(&[0; 20]), "no key, so an entry that proves nothing");
}

/// A key id of 0 stands for "no key" in an entry.
#[test]
fn a_new_key_has_a_key_id() {
    let body = NewKey { time: 1, key_id: 0, share: [1; 32], settings: 0, want: false };
    let mut bytes = Vec::new();
    body.encode(&mut Writer::new(&mut bytes));
    assert!(NewKey::decode(&bytes).is_err());
}

/// KX-4: both generations work for two seconds, then the old one is over.
#[test]
fn no_message_is_lost_while_keys_change() {
    let mut world = World::new();
    let mut late = Vec::new();
    world.doors[0].seal(Kind::Commit, None, &[0; 48], &mut late);
    world.doors[0].refresh([0x55; 32], 5);
    // The NEW-KEYs are in progress: 50 ms.
    let under_way = new_keys(&mut world.doors[0], 0);
    assert_eq!(under_way.len(), N - 1);
    for to in 1..N {
        assert_eq!(understands(&mut world.doors, to, 0, 10 * MS), Ok(()));
        assert_eq!(understands(&mut world.doors, 0, to, 10 * MS), Ok(()));
    }
    for (to, frame) in under_way {
        let to = (0..N).find(|at| who(*at) == to).unwrap();
        admit_keys(&mut world.doors[to], 50 * MS, &frame).unwrap();
    }
    for to in 1..N {
        assert_eq!(understands(&mut world.doors, to, 0, 60 * MS), Ok(()));
        assert_eq!(understands(&mut world.doors, 0, to, 60 * MS), Ok(()));
    }
    let admit = |door: &mut Door, ms| door.admit(ms * MS, Frame::decode(&late).unwrap()).map(|_| ());
    assert_eq!(admit(&mut world.doors[1], 1900), Ok(()));
    assert_eq!(admit(&mut world.doors[1], 2060), Err(DoorError::NoKey(who(0))));
}

/// What goes to a client alone stays with the generation that it has, until it has used the next.
#[test]
fn replies_reach_clients_while_keys_change() {
    let mut world = World::new();
    let reply = encode(&body(&mut world, Kind::Reply));
    let request = world.request(7, b"put x 1", false);
    assert!(world.admit(2, &request).is_ok());
    world.doors[2].refresh([0x55; 32], 5);
    let frame = world.seal(2, C0, Kind::Reply, &reply);
    assert!(world.admit(C0, &frame).is_ok(), "it has not heard of the new one");
    // It asks once more, is told, and uses the new one: that is what it gets from now on.
    assert!(world.admit(2, &request).is_ok());
    world.exchange_keys(SECOND);
    let request = world.request(8, b"put x 1", false);
    assert!(world.doors[2].admit(SECOND, Frame::decode(&request).unwrap()).is_ok());
    let frame = world.seal(2, C0, Kind::Reply, &reply);
    assert!(world.doors[C0].admit(10 * SECOND, Frame::decode(&frame).unwrap()).is_ok());
}

/// A peer whose new generation was missed, and which has stopped telling, is asked for it.
#[test]
fn n1_a_missed_new_key_is_asked_for() {
    let mut world = World::new();
    world.doors[0].refresh([0x55; 32], 5);
    for second in 0..100 {
        drop(new_keys(&mut world.doors[0], second * SECOND)); // all lost
    }
    let now = 100 * SECOND;
    assert_eq!(understands(&mut world.doors, 1, 0, now), Err(DoorError::NoKey(who(0))));
    let asked = new_keys(&mut world.doors[1], now).into_iter().find(|(to, _)| *to == who(0)).unwrap().1;
    admit_keys(&mut world.doors[0], now, &asked).unwrap();
    let answer =
        new_keys(&mut world.doors[0], now + SECOND).into_iter().find(|(to, _)| *to == who(1)).unwrap().1;
    admit_keys(&mut world.doors[1], now + SECOND, &answer).unwrap();
    assert_eq!(understands(&mut world.doors, 1, 0, now + SECOND), Ok(()));
}

/// A key id is random: one that comes twice must not bring back the keys of its first time.
#[test]
fn a_new_share_under_an_old_number_makes_new_keys() {
    let mut world = World::new();
    let committed = encode(&body(&mut world, Kind::Committed));
    let before = world.seal(3, 0, Kind::Committed, &committed);
    assert_eq!(before, world.seal(3, 0, Kind::Committed, &committed));
    let again =
        NewKey { time: 77, key_id: world.doors[0].key_id(), share: [9; 32], settings: 0, want: false };
    let mut bytes = Vec::new();
    again.encode(&mut Writer::new(&mut bytes));
    let frame = world.seal(0, 3, Kind::NewKey, &bytes);
    admit_keys(&mut world.doors[3], 0, &frame).unwrap();
    assert_ne!(before, world.seal(3, 0, Kind::Committed, &committed));
}

/// A client hears of a replica's new generation as soon as it uses the old one.
#[test]
fn a_client_is_told_of_a_new_generation_when_it_uses_the_old_one() {
    let mut world = World::new();
    world.doors[0].refresh([0x55; 32], 5);
    assert_eq!(for_whom(&new_keys(&mut world.doors[0], 0), C0), 0);
    let request = world.request(7, b"put x 1", false);
    assert!(world.admit(0, &request).is_ok());
    world.exchange_keys(SECOND);
    let request = world.request(8, b"put x 2", false);
    assert!(world.doors[0].admit(10 * SECOND, Frame::decode(&request).unwrap()).is_ok());
}

/// H1: a node that starts again has lost everyone's shares and its own secret.
#[test]
fn a_node_that_has_started_again_is_understood_after_one_round_trip() {
    for restarted in [1, C0] {
        let mut world = World::new();
        world.doors[restarted] = door(world.setting, restarted, 2);
        world.exchange_keys(SECOND);
        for other in (0..N).filter(|other| *other != restarted) {
            if restarted < N {
                assert_eq!(understands(&mut world.doors, other, restarted, SECOND), Ok(()));
                assert_eq!(understands(&mut world.doors, restarted, other, SECOND), Ok(()));
            }
        }
        let request = world.request(9, b"put x 1", false);
        for replica in (0..N).filter(|replica| *replica != restarted) {
            assert!(world.admit(replica, &request).is_ok());
        }
    }
}

/// A replica that starts again knows nothing of its clients' shares; the first request that it
/// cannot check makes it ask (KX-2, CL-3).
#[test]
fn a_restarted_replica_asks_a_client_for_its_share() {
    let mut world = World::new();
    world.doors[1] = door(world.setting, 1, 2);
    let request = world.request(7, b"put x 1", false);
    assert_eq!(world.admit(1, &request).err(), Some(DoorError::NoKey(crate::world::lane().into())));
    world.exchange_keys(0);
    let request = world.request(7, b"put x 1", false);
    assert!(world.admit(1, &request).is_ok());
}

/// L36, CL-11: a replica asks a client for its keys and sends its own with that. The client learns when they have come.
#[test]
fn l36_a_client_learns_that_a_replica_has_its_keys() {
    let mut world = World::new();
    for fresh in [1, C0] {
        world.doors[fresh] = door(world.setting, fresh, 2);
        new_keys(&mut world.doors[fresh], 0); // lost
    }
    let request = world.request(7, b"put x 1", false);
    assert!(world.admit(1, &request).is_err());
    assert_eq!(world.doors[C0].keys_missing(), N);
    world.exchange_keys(0);
    assert_eq!(world.doors[C0].keys_missing(), N - 1);
}

/// L38, CL-11: a replica that has started again lacks the keys of a client that it knew, and so all others may. The client asks
/// each of them, and the same replica brings that about once in a while only.
#[test]
fn l38_a_client_doubts_all_replicas_when_one_has_started_again() {
    let mut world = World::new();
    assert_eq!(world.doors[C0].keys_missing(), 0);
    for (start, missing, now) in [(2, N, 1_100), (3, 1, 3_000)] {
        world.doors[2] = door(world.setting, 2, start);
        new_keys(&mut world.doors[2], 0); // lost
        let request = world.request(7, b"put x 1", false);
        assert!(world.admit(2, &request).is_err());
        let letters = new_keys(&mut world.doors[2], now * MS);
        let (_, letter) = letters.into_iter().find(|(to, _)| *to == who(C0)).unwrap();
        admit_keys(&mut world.doors[C0], now * MS, &letter).unwrap();
        assert_eq!(world.doors[C0].keys_missing(), missing);
        world.exchange_keys((now + 100) * MS);
        assert_eq!(world.doors[C0].keys_missing(), 0);
    }
}

/// Any network: half of all messages are lost, the others doubled, late and out of order; nodes start
/// again and change keys. Once messages get through, everyone understands everyone within seconds.
#[test]
fn n1_n2_n3_both_ends_converge_once_messages_get_through() {
    for seed in 1..=20_u64 {
        let mut random = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        let mut draw = move |below: u64| {
            random ^= random << 13;
            random ^= random >> 7;
            random ^= random << 17;
            random % below
        };
        let mut doors = fresh_doors();
        let mut starts = [1_u8; C1 + 1];
        let mut network: VecDeque<(usize, Vec<u8>)> = VecDeque::new();
        let mut now = 0;
        for step in 0..400 {
            let healed = step >= 300;
            now += 50 * MS;
            if !healed && draw(20) == 0 {
                let at = usize::try_from(draw(6)).unwrap();
                starts[at] += 1;
                if draw(2) == 0 {
                    doors[at] = door(Setting::default(), at, starts[at]);
                } else {
                    doors[at].refresh([starts[at]; 32], u64::from(starts[at]));
                }
            }
            for (from, door) in doors.iter_mut().enumerate() {
                for (to, frame) in new_keys(door, now) {
                    let to = (0..=C1).find(|at| who(*at) == to).unwrap();
                    let copies = if healed { 1 } else { draw(4) / 2 + draw(2) };
                    network.extend((0..copies).map(|_| (to, frame.clone())));
                }
                // Agreement continues, and clients send requests: failures show what is missing where.
                let mut frame = Vec::new();
                if from < N {
                    door.seal(Kind::Commit, None, &[0; 48], &mut frame);
                } else {
                    let client = who(from).as_client();
                    let body = quorate_wire::message::RequestBody {
                        timestamp: quorate_wire::Timestamp(1),
                        flags: quorate_wire::message::RequestFlags::default(),
                        replier: None,
                        operation: b"op",
                    };
                    door.seal_request(&body, client, false, &mut frame);
                }
                for to in (0..N).filter(|to| *to != from) {
                    if healed || draw(2) == 0 {
                        network.push_back((to, frame.clone()));
                    }
                }
            }
            let deliver = if healed { network.len() } else { network.len() / 2 };
            for _ in 0..deliver {
                let pick = if healed { 0 } else { usize::try_from(draw(network.len() as u64)).unwrap() };
                let (to, frame) = network.remove(pick).unwrap();
                let _ = doors[to].admit(now, Frame::decode(&frame).unwrap());
            }
        }
        for from in 0..N {
            for to in (0..N).filter(|to| *to != from) {
                assert_eq!(understands(&mut doors, to, from, now), Ok(()), "seed {seed}: r{from} to r{to}");
            }
        }
        for client in [C0, C1] {
            let mut frame = Vec::new();
            let body = quorate_wire::message::RequestBody {
                timestamp: quorate_wire::Timestamp(2),
                flags: quorate_wire::message::RequestFlags::default(),
                replier: None,
                operation: b"op",
            };
            doors[client].seal_request(&body, who(client).as_client(), false, &mut frame);
            for (to, door) in doors.iter_mut().enumerate().take(N) {
                let admitted = door.admit(now, Frame::decode(&frame).unwrap());
                assert!(admitted.is_ok(), "seed {seed}: {} to r{to}: {admitted:?}", who(client));
            }
        }
    }
}

/// A replica that is down is told ever more rarely.
#[test]
fn a_silent_replica_is_told_ever_more_rarely() {
    let mut doors = fresh_doors();
    let sent = (0..9_000).map(|tenth| for_whom(&new_keys(&mut doors[0], tenth * 100 * MS), 3));
    let at: Vec<usize> = sent.enumerate().filter(|(_, count)| *count > 0).map(|(tenth, _)| tenth).collect();
    assert_eq!(
        at[..11],
        [0, 1, 3, 7, 15, 31, 63, 127, 255, 511, 831],
        "in tenths of a second; at last each 32 s"
    );
}

/// C6: there is room for the configured number of clients and no more.
#[test]
fn c6_key_holders_are_bounded() {
    let own = Principal::Replica(ReplicaId(0));
    let mut exchange = Exchange::new(own, Cluster::new(4, 1).unwrap(), ClusterId([9; 32]), &[1; 32], 1);
    let max = u64::try_from(CLIENTS_MAX).unwrap();
    for principal in 1..=max {
        assert!(exchange.add_client(ClientId::new(principal, 0).into()));
    }
    assert!(!exchange.add_client(ClientId::new(max + 1, 0).into()));
    assert!(exchange.add_client(ClientId::new(max, 5).into()), "the same client again");
    exchange.remove_client(ClientId::new(7, 0).into());
    assert!(exchange.add_client(ClientId::new(max + 1, 0).into()));
}

/// Replicas cannot be added as clients, and clients let nobody in.
#[test]
fn only_replicas_let_clients_in() {
    let mut world = World::new();
    let key = signer(world.setting, C1).public();
    assert!(!world.doors[C0].add_client(ClientId::new(9, 0), &key));
    assert!(!world.doors[0].add_client(ClientId(2), &key));
    assert!(world.doors[0].add_client(ClientId::new(9, 0), &key));
}

/// The digest of a replica's settings is sent with its keys, so that its peers detect a difference before it has an
/// effect. A missing digest is no difference.
#[test]
fn a_new_key_tells_the_settings() {
    let mut world = World::new();
    assert_eq!(world.doors[1].settings_of(who(0)), None);
    world.doors[0].state_settings(77);
    world.doors[0].refresh([0x55; 32], 5);
    world.exchange_keys(SECOND);
    assert_eq!(world.doors[1].settings_of(who(0)), Some(77));
    assert_eq!(world.doors[1].settings_of(who(2)), None);
}
