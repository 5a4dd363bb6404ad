//! Doors talking to each other.

use alloc::vec::Vec;

use super::*;
use crate::codec::Reader;
use crate::frame::Frame;
use crate::id::{ReplicaId, SeqNum, Timestamp, ViewNum};
use crate::message::{Commit, RequestBody, RequestFlags};
use crate::sign::Verifier;

pub(super) fn principals(n: u16) -> Vec<Principal> {
    let client = Principal::Client(ClientId::new(1, 0));
    (0..n).map(|id| Principal::Replica(ReplicaId(id))).chain([client]).collect()
}

pub(super) fn doors(n: u16) -> Vec<Door> {
    let all = principals(n);
    let signer = |at: usize| Signer::Toy([u8::try_from(at).unwrap() + 1; 32]);
    let mut verifier = Verifier::default();
    for (at, who) in all.iter().enumerate() {
        verifier.insert(*who, &signer(at).public());
    }
    all.iter()
        .enumerate()
        .map(|(at, who)| {
            let cluster = Cluster::new(n, 1).unwrap();
            let entropy = [u8::try_from(at).unwrap() + 101; 32];
            Door::new(*who, cluster, ClusterId([9; 32]), 0, signer(at), verifier.clone(), entropy, 1)
        })
        .collect()
}

/// Delivers all NEW-KEYs until nobody has one to send.
pub(super) fn settle(doors: &mut [Door], mono_ns: u64) {
    let mut quiet = false;
    while !quiet {
        quiet = true;
        for from in 0..doors.len() {
            doors[from].tick(mono_ns, 0);
            while let Some((to, frame)) = doors[from].take_outgoing() {
                quiet = false;
                let to = doors.iter_mut().find(|door| door.own.key_holder() == to.key_holder()).unwrap();
                let frame = Frame::decode(&frame).unwrap();
                assert!(matches!(to.admit(mono_ns, frame), Ok(Admitted::Keys)));
            }
        }
    }
}

#[test]
fn doors_that_have_exchanged_keys_understand_each_other() {
    let mut doors = doors(4);
    settle(&mut doors, 0);
    let commit = Commit { view: ViewNum(1), seq: SeqNum(2), digest: Digest([3; 32]) };
    let (mut body, mut out) = (Vec::new(), Vec::new());
    commit.encode(&mut Writer::new(&mut body));
    doors[0].seal(Kind::Commit, None, &body, &mut out);
    for door in &mut doors[1..4] {
        let frame = Frame::take(&mut Reader::new(&out)).unwrap();
        let Ok(Admitted::Message(m)) = door.admit(0, frame) else { panic!("refused") };
        assert!(matches!(m.message(), Message::Commit(c) if *c == commit));
    }
    let lane = ClientId::new(1, 7);
    let request = RequestBody {
        timestamp: Timestamp(5),
        flags: RequestFlags::default(),
        replier: None,
        operation: b"put x 1",
    };
    out.clear();
    doors[4].seal_request(&request, lane, false, &mut out);
    for door in &mut doors[..4] {
        let frame = Frame::take(&mut Reader::new(&out)).unwrap();
        let Ok(Admitted::Message(m)) = door.admit(0, frame) else { panic!("refused") };
        assert!(matches!(m.message(), Message::Request(r) if r.client == lane && r.operation == b"put x 1"));
    }
}
