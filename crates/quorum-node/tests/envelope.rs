//! Frames of the registers (ADR 14): one MAC for one receiver, over kind, epoch, sender, counter and body.
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")]

use quorate_node::TestKeys;
use quorate_quorum_node::envelope::{Packet, RegisterKind, Registers};
use quorate_wire::auth::{Admitted, AuthError, Authenticator};
use quorate_wire::envelope::frame::{Frame, HEADER_BYTES};
use quorate_wire::{ClientId, Cluster, Door, Kind, Principal, ReplicaId};

const KIND: u8 = 70;
/// Where the two clients are among the nodes.
const C0: usize = 4;
const C1: usize = 5;

struct World {
    keys: TestKeys,
    nodes: Vec<Authenticator<Registers>>,
}

fn who(at: usize) -> Principal {
    if at < C0 {
        ReplicaId::at(at).into()
    } else {
        Principal::Client(ClientId::new(u64::try_from(at - C0 + 1).unwrap(), 0))
    }
}

impl World {
    fn new() -> Self {
        let keys = TestKeys::new(1, Cluster::tolerating(1).unwrap(), 2);
        let nodes = (0..=C1).map(|at| keys.authenticator(who(at), 1)).collect();
        let mut world = Self { keys, nodes };
        world.exchange_keys(0);
        world
    }

    fn exchange_keys(&mut self, mono_ns: u64) {
        let mut count = 1;
        while count > 0 {
            count = 0;
            for from in 0..=C1 {
                self.nodes[from].tick(mono_ns, 0);
                while let Some((to, frame)) = self.nodes[from].take_outgoing() {
                    count += 1;
                    let to = (0..=C1).find(|at| who(*at) == to).unwrap();
                    let admitted = self.nodes[to].admit(mono_ns, Frame::decode(&frame).unwrap());
                    assert!(matches!(admitted, Ok(Admitted::Keys)), "{admitted:?}");
                }
            }
        }
    }

    fn seal(&mut self, from: usize, to: usize, body: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        self.nodes[from].seal_from(RegisterKind(KIND), who(from), Some(who(to)), body, &mut out);
        out
    }

    fn admit<'a>(&mut self, to: usize, bytes: &'a [u8]) -> Result<(Principal, Packet<'a>), AuthError> {
        match self.nodes[to].admit(0, Frame::decode(bytes)?)? {
            Admitted::Message(message) => Ok((message.sender(), *message.message())),
            Admitted::Keys => panic!("a NEW-KEY"),
        }
    }
}

fn body(counter: u64, len: usize) -> Vec<u8> {
    [&counter.to_le_bytes()[..], &vec![7; len]].concat()
}

fn with_epoch(frame: &[u8], epoch: u32) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[4..8].copy_from_slice(&epoch.to_le_bytes());
    frame
}

fn with_sender(frame: &[u8], sender: Principal) -> Vec<u8> {
    let mut frame = frame.to_vec();
    frame[8..16].copy_from_slice(&sender.to_wire().to_le_bytes());
    frame
}

#[test]
fn a_frame_arrives_as_it_was_sent() {
    let mut world = World::new();
    for (from, to) in [(0, 1), (C0, 2), (3, C1)] {
        for len in [0, 1, 45, 2000] {
            let body = body(9, len);
            let bytes = world.seal(from, to, &body);
            let (sender, packet) = world.admit(to, &bytes).unwrap();
            assert_eq!(
                (sender, packet.kind, packet.counter, packet.body),
                (who(from), KIND, 9, &body[..]),
                "{len} bytes from {from} to {to}"
            );
            assert_eq!(packet.key_id, world.nodes[from].key_id());
        }
    }
    // A lane of a client sends under the client's keys.
    let lane = Principal::Client(ClientId::new(1, 5));
    let mut bytes = Vec::new();
    world.nodes[C0].seal_from(RegisterKind(KIND), lane, Some(who(0)), &body(1, 3), &mut bytes);
    assert_eq!(world.admit(0, &bytes).map(|(sender, _)| sender), Ok(lane));
}

/// Every bit counts, the counter's as well: a replay cannot be made new.
#[test]
fn no_bit_of_a_frame_can_be_changed() {
    let mut world = World::new();
    let good = world.seal(C0, 2, &body(9, 50));
    for at in 0..good.len() {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[at] ^= 1 << bit;
            assert!(world.admit(2, &bad).is_err(), "bit {bit} of byte {at}");
        }
    }
    assert!(world.admit(2, &good).is_ok());
    for len in 0..good.len() {
        assert!(world.admit(2, &good[..len]).is_err(), "{len}");
    }
}

#[test]
fn a_frame_is_for_one_receiver_of_one_epoch_and_cluster() {
    let mut world = World::new();
    let bytes = world.seal(0, 1, &body(1, 8));
    let refused = |world: &mut World, to, bytes: &[u8]| world.admit(to, bytes).map(|_| ()).unwrap_err();
    assert!(world.admit(2, &bytes).is_err(), "another server's");
    assert_eq!(refused(&mut world, 0, &bytes), AuthError::OwnIdentity, "reflected");
    let own = world.nodes[1].epoch();
    let moved = refused(&mut world, 1, &with_epoch(&bytes, own + 1));
    assert_eq!(moved, AuthError::WrongEpoch { epoch: own + 1, own });
    assert!(world.admit(1, &with_sender(&bytes, who(3))).is_err());
    let nobody = Principal::Client(ClientId::new(77, 0));
    assert_eq!(refused(&mut world, 1, &with_sender(&bytes, nobody)), AuthError::UnknownSender(nobody));
    // A client knows no other client.
    let to_client = world.seal(C0, C1, &body(1, 8));
    assert_eq!(refused(&mut world, C1, &to_client), AuthError::UnknownSender(who(C0)));
}

/// A receiver that started again has other keys: what was sent to it before counts no more, and keys are exchanged.
#[test]
fn a_restart_ends_a_session() {
    let mut world = World::new();
    let before = world.seal(C0, 1, &body(1, 8));
    world.nodes[1] = world.keys.authenticator(who(1), 2);
    assert_eq!(world.admit(1, &before).map(|_| ()), Err(AuthError::NoKey(who(C0))));
    world.exchange_keys(2_000_000_000);
    assert_eq!(world.admit(1, &before).map(|_| ()), Err(AuthError::NoKey(who(C0))));
    let after = world.seal(C0, 1, &body(1, 8));
    assert!(world.admit(1, &after).is_ok());
}

/// The two protocols do not mix: neither takes the other's frame, nor one with another authentication.
#[test]
fn agreement_and_registers_are_apart() {
    let mut world = World::new();
    let bytes = world.seal(0, 1, &body(1, 8));
    assert!(quorate_wire::frame::Frame::decode(&bytes).is_err());
    // The same keys, so that it is the kind alone that tells them apart.
    let mut agreement = Vec::new();
    let mut replica: Door = world.keys.door(who(0), 1);
    replica.seal(Kind::Committed, Some(who(1)), &[0; 48], &mut agreement);
    let refused = world.admit(1, &agreement).map(|_| ()).unwrap_err();
    assert!(matches!(refused, AuthError::WrongRole { .. }), "{refused}");
    let mut signed = bytes.clone();
    let at = HEADER_BYTES + 16;
    signed[at] = 3;
    signed.resize(at + 65, 0);
    let refused = world.admit(1, &signed).map(|_| ()).unwrap_err();
    assert!(matches!(refused, AuthError::WrongSeal(_)), "{refused}");
    // Without room for a counter.
    let mut short = world.seal(0, 1, &body(1, 0));
    short.remove(HEADER_BYTES);
    short[16] = 7;
    assert!(matches!(world.admit(1, &short), Err(AuthError::Malformed(_))));
}
