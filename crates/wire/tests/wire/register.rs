//! Frames of the registers (ADR 14): one MAC for one receiver, over kind, epoch, sender, counter and body.

use quorate_wire::codec::{DecodeError, Reader};
use quorate_wire::frame::{AnyFrame, Frame, HEADER_BYTES, RegisterFrame};
use quorate_wire::{ClientId, DoorError, Kind, Principal};

use crate::samples::sample;
use crate::world::{C0, C1, Setting, World, door, who, with_epoch, with_sender};

const KIND: u8 = 70;

fn seal(world: &mut World, from: usize, to: usize, body: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    world.doors[from].seal_register(KIND, (who(from), who(to)), body, &mut out);
    out
}

fn frame(bytes: &[u8]) -> Result<RegisterFrame<'_>, DecodeError> {
    let mut reader = Reader::new(bytes);
    let taken = AnyFrame::take(&mut reader)?;
    reader.end()?;
    match taken {
        AnyFrame::Register(frame) => Ok(frame),
        AnyFrame::Agreement(frame) => panic!("{frame:?}"),
    }
}

fn admit(world: &mut World, to: usize, bytes: &[u8]) -> Result<(), DoorError> {
    world.doors[to].admit_register(0, &frame(bytes)?)
}

fn body(counter: u64, len: usize) -> Vec<u8> {
    [&counter.to_le_bytes()[..], &vec![7; len]].concat()
}

#[test]
fn a_frame_arrives_as_it_was_sent() {
    let mut world = World::new();
    for (from, to) in [(0, 1), (C0, 2), (3, C1)] {
        for len in [0, 1, 45, 2000] {
            let body = body(9, len);
            let bytes = seal(&mut world, from, to, &body);
            let taken = frame(&bytes).unwrap();
            assert_eq!(
                (taken.kind, taken.sender, taken.counter, taken.body),
                (KIND, who(from), 9, &body[..])
            );
            assert_eq!(admit(&mut world, to, &bytes), Ok(()));
        }
    }
    // A lane of a client sends under the client's keys.
    let lane = Principal::Client(ClientId::new(1, 5));
    let mut bytes = Vec::new();
    world.doors[C0].seal_register(KIND, (lane, who(0)), &body(1, 3), &mut bytes);
    assert_eq!(frame(&bytes).unwrap().sender, lane);
    assert_eq!(admit(&mut world, 0, &bytes), Ok(()));
}

/// Every bit counts, the counter's as well: a replay cannot be made new.
#[test]
fn no_bit_of_a_frame_can_be_changed() {
    let mut world = World::new();
    let good = seal(&mut world, C0, 2, &body(9, 50));
    for at in 0..good.len() {
        for bit in 0..8 {
            let mut bad = good.clone();
            bad[at] ^= 1 << bit;
            let is_agreement = at == 3 && bad[3] < 64;
            assert!(is_agreement || admit(&mut world, 2, &bad).is_err(), "bit {bit} of byte {at}");
        }
    }
    assert_eq!(admit(&mut world, 2, &good), Ok(()));
    for len in 0..good.len() {
        assert!(frame(&good[..len]).is_err(), "{len}");
    }
}

#[test]
fn a_frame_is_for_one_receiver_of_one_epoch_and_cluster() {
    let mut world = World::new();
    let bytes = seal(&mut world, 0, 1, &body(1, 8));
    assert!(admit(&mut world, 2, &bytes).is_err(), "another server's");
    assert_eq!(admit(&mut world, 0, &bytes), Err(DoorError::OwnIdentity), "reflected");
    let own = Setting::default().epoch;
    let moved = admit(&mut world, 1, &with_epoch(&bytes, own + 1));
    assert_eq!(moved, Err(DoorError::WrongEpoch { epoch: own + 1, own }));
    assert!(admit(&mut world, 1, &with_sender(&bytes, who(3))).is_err());
    let nobody = Principal::Client(ClientId::new(77, 0));
    assert_eq!(admit(&mut world, 1, &with_sender(&bytes, nobody)), Err(DoorError::UnknownSender(nobody)));
    // A client knows no other client.
    let mut to_client = Vec::new();
    world.doors[C0].seal_register(KIND, (who(C0), who(C1)), &body(1, 8), &mut to_client);
    assert_eq!(admit(&mut world, C1, &to_client), Err(DoorError::UnknownSender(who(C0))));
}

/// A receiver that started again has other keys: what was sent to it before counts no more, and keys are exchanged.
#[test]
fn a_restart_ends_a_session() {
    let mut world = World::new();
    let before = seal(&mut world, C0, 1, &body(1, 8));
    world.doors[1] = door(world.setting, 1, 2);
    assert_eq!(admit(&mut world, 1, &before), Err(DoorError::NoKey(who(C0))));
    world.exchange_keys(2_000_000_000);
    assert_eq!(admit(&mut world, 1, &before), Err(DoorError::NoKey(who(C0))));
    let after = seal(&mut world, C0, 1, &body(1, 8));
    assert_eq!(admit(&mut world, 1, &after), Ok(()));
}

/// The two protocols do not mix: neither takes the other's frame, nor one with another authentication.
#[test]
fn agreement_and_registers_are_apart() {
    let mut world = World::new();
    let bytes = seal(&mut world, 0, 1, &body(1, 8));
    assert!(Frame::decode(&bytes).is_err());
    let agreement = sample(&mut world, Kind::Prepare).frame;
    assert!(matches!(AnyFrame::take(&mut Reader::new(&agreement)), Ok(AnyFrame::Agreement(_))));
    let mut signed = bytes.clone();
    let at = HEADER_BYTES + 16;
    signed[at] = 3;
    signed.resize(at + 65, 0);
    assert_eq!(frame(&signed).err(), Some(DecodeError::NotCanonical));
    // Without room for a counter.
    let mut short = seal(&mut world, 0, 1, &body(1, 0));
    short.drain(HEADER_BYTES..HEADER_BYTES + 1);
    short[16] = 7;
    assert!(frame(&short).is_err());
}
