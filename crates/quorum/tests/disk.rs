//! What a server keeps on its disk (§2.5), and when one that lost it is repaired (§15).
#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, reason = "a test may panic")]
#![allow(clippy::wildcard_enum_match_arm, reason = "a test looks for one variant")]

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use quorate_quorum::crypto::Keys;
use quorate_quorum::message::{Copy, Op, Proof, Rid};
use quorate_quorum::step::{Call, Failure, Outcome};
use quorate_quorum::version::value_digest;
use quorate_quorum::{
    Action, Body, Input, Message, ObjectId, Out, Past, Process, Protocol, ServerId, Settings, Thresholds,
    Timer, Value, Version,
};
use quorate_wire::sign::{Signer, Verifier};
use quorate_wire::{ClientId, ClusterId, Principal, ReplicaId};

type Node = Box<dyn Process + Send>;

const N: u16 = 4;
const ME: ServerId = ReplicaId(0);

fn object(number: u8) -> ObjectId {
    ObjectId([number; 32])
}

fn client() -> ClientId {
    ClientId::new(1, 0)
}

fn settings(protocol: Protocol) -> Arc<Settings> {
    Arc::new(Settings::new(Thresholds::tolerating(1).unwrap(), protocol))
}

fn signer(of: Principal) -> Signer {
    Signer::ed25519([u8::try_from(of.to_wire() % 251).unwrap() + 1; 32])
}

fn keys(of: Principal) -> Keys<impl FnMut() -> u128> {
    let mut verifier = Verifier::default();
    let everybody = (0..N).map(|id| ReplicaId(id).into()).chain([client().into()]);
    for one in everybody {
        assert!(verifier.insert(one, &signer(one).public()));
    }
    let mut random = 0;
    Keys::new(ClusterId([4; 32]), 1, signer(of), verifier, move || {
        random += 1;
        random
    })
}

fn server(protocol: Protocol, past: Past) -> Node {
    quorate_quorum::server(ME, settings(protocol), past)
}

/// Four servers and a client, with messages delivered at once and in order. What servers persist goes to disks.
struct World {
    nodes: BTreeMap<u64, Node>,
    disks: BTreeMap<(u64, ObjectId), Vec<u8>>,
    /// What is sent to this server is lost.
    down: Option<u64>,
}

impl World {
    fn new(protocol: Protocol) -> Self {
        let server = |id| quorate_quorum::server(ReplicaId(id), settings(protocol), Past::Whole);
        let mut nodes: BTreeMap<u64, Node> = (0..N).map(|id| (u64::from(id), server(id))).collect();
        nodes.insert(client().0, quorate_quorum::client(client(), 1, settings(protocol)));
        Self { nodes, disks: BTreeMap::new(), down: None }
    }

    fn step(&mut self, of: u64, input: Input<'_>) -> Vec<Action> {
        let mut out = Out::default();
        let node = self.nodes.get_mut(&of).unwrap();
        node.step(0, input, &mut keys(Principal::from_wire(of)), &mut out);
        for action in &out.actions {
            if let Action::Persist(object) = action {
                let mut saved = Vec::new();
                assert!(node.save(object, &mut saved), "persisted, and there is nothing");
                self.disks.insert((of, *object), saved);
            }
        }
        let late =
            out.actions.iter().any(|action| matches!(action, Action::SetTimer { timer: Timer::Late, .. }));
        if late {
            out.actions.extend(self.step(of, Input::Timer(Timer::Late)));
        }
        out.actions
    }

    fn call(&mut self, object: ObjectId, call: Call) -> Outcome {
        let begun = self.step(client().0, Input::Invoke { object, call });
        let mut done = self.follow(client().0, begun);
        for _ in 0..5 {
            // What was not answered is sent again.
            if done.is_none() {
                for server in 0..u64::from(N) {
                    let again = self.step(server, Input::Timer(Timer::Relays));
                    done = done.or(self.follow(server, again));
                }
                let again = self.step(client().0, Input::Timer(Timer::Operation(object)));
                done = done.or(self.follow(client().0, again));
            }
        }
        done.expect("the operation ends").unwrap()
    }

    /// Delivers what a node sends, and what follows from it. Returns the result of an operation.
    fn follow(&mut self, of: u64, actions: Vec<Action>) -> Option<Result<Outcome, Failure>> {
        let mut done = None;
        let mut queue: VecDeque<(u64, Action)> = actions.into_iter().map(|action| (of, action)).collect();
        while let Some((from, action)) = queue.pop_front() {
            match action {
                Action::Send { to, message } if Some(to.to_wire()) != self.down => {
                    let to = to.to_wire();
                    let input = Input::Message { from: Principal::from_wire(from), message: &message };
                    let acts = self.step(to, input);
                    queue.extend(acts.into_iter().map(|action| (to, action)));
                }
                Action::Done { result, .. } => done = Some(result),
                _ => {}
            }
        }
        done
    }

    /// What servers hold is on their disks.
    fn check_disks(&self, name: &str) {
        for ((of, object), saved) in &self.disks {
            let mut held = Vec::new();
            assert!(self.nodes[of].save(object, &mut held));
            assert_eq!(&held, saved, "{name}, server {of}");
        }
    }

    fn restart(&mut self, of: u16, protocol: Protocol) {
        let mut node = quorate_quorum::server(ReplicaId(of), settings(protocol), Past::Whole);
        for ((_, object), saved) in
            self.disks.range((u64::from(of), object(0))..(u64::from(of) + 1, object(0)))
        {
            node.load(*object, saved).unwrap();
        }
        self.nodes.insert(u64::from(of), node);
    }
}

/// After every operation all servers start again from their disks: nothing that they promised is gone, and
/// what they save then is what they loaded.
#[test]
fn a_server_comes_back_as_it_was() {
    for (protocol, name) in Protocol::ALL {
        let mut world = World::new(*protocol);
        for round in 0..6_u8 {
            let about = object(round % 2);
            let value: Value = vec![round; 5].into();
            let written = world.call(about, Call::Write(Arc::clone(&value)));
            world.check_disks(name);
            (0..N).for_each(|id| world.restart(id, *protocol));
            world.check_disks(name);
            let read = world.call(about, Call::Read);
            assert_eq!((read.version, read.value), (written.version, value), "{name}, round {round}");
        }
        assert_eq!(world.nodes[&0].objects(), 2, "{name}");
    }
}

/// Q14, §2.3: while one server is down, a client writes any number of objects, and keeps few values for it. When that server
/// is back, and another one is silent, each of them is read.
#[test]
fn q14_writes_go_on_while_a_server_is_down() {
    for (protocol, name) in Protocol::ALL {
        for (unacknowledged, unacknowledged_bytes) in [(4, usize::MAX), (usize::MAX, 4 * 100)] {
            let mut few = Settings::clone(&settings(*protocol));
            (few.limits.unacknowledged, few.limits.unacknowledged_bytes) =
                (unacknowledged, unacknowledged_bytes);
            let mut world = World::new(*protocol);
            world.nodes.insert(client().0, quorate_quorum::client(client(), 1, Arc::new(few)));
            world.down = Some(3);
            let written: Vec<Outcome> = (0..20)
                .map(|number| world.call(object(number), Call::Write(vec![number; 100].into())))
                .collect();
            assert!(world.nodes[&client().0].backlog() <= 5, "{name}");
            world.down = Some(2);
            for (number, written) in (0..).zip(written) {
                let read = world.call(object(number), Call::Read);
                assert_eq!((read.version, read.value), (written.version, written.value), "{name}, {number}");
            }
        }
    }
}

/// A write that no quorum has acknowledged is not forgotten: beyond the bound, others are refused.
#[test]
fn what_no_quorum_has_is_not_forgotten() {
    let mut few = Settings::clone(&settings(Protocol::MinimalF));
    few.limits.unacknowledged = 4;
    let mut node = quorate_quorum::client(client(), 1, Arc::new(few));
    let mut write = |number: u8| {
        let mut out = Out::default();
        let call = Call::Write(vec![number].into());
        node.step(0, Input::Invoke { object: object(number), call }, &mut keys(client().into()), &mut out);
        let op = Op { incarnation: 1, number: 1, phase: 1 };
        for server in 0..3 {
            let body = Body::Tsr { op, version: Version::GENESIS, signature: None };
            let message = Message { object: object(number), body };
            let from = ReplicaId(server).into();
            node.step(0, Input::Message { from, message: &message }, &mut keys(client().into()), &mut out);
        }
        out.actions.iter().any(|action| matches!(action, Action::Done { result: Err(Failure::Backlog), .. }))
    };
    assert_eq!((0..6).map(&mut write).collect::<Vec<_>>(), [false, false, false, false, true, true]);
}

/// Every cut and every trailing byte of what was saved is an error, and so is the form of another protocol.
#[test]
fn what_was_not_saved_is_not_loaded() {
    let mut all = Vec::new();
    for (protocol, _) in Protocol::ALL {
        let mut world = World::new(*protocol);
        world.call(object(1), Call::Write(vec![7; 9].into()));
        all.push((*protocol, world.disks[&(0, object(1))].clone()));
    }
    for (protocol, saved) in &all {
        let mut node = server(*protocol, Past::Whole);
        for len in 0..saved.len() {
            assert!(node.load(object(1), &saved[..len]).is_err(), "{protocol:?} {len}");
        }
        assert!(node.load(object(1), &[saved, &[0][..]].concat()).is_err());
        assert!(node.load(object(1), saved).is_ok());
    }
    assert!(server(Protocol::Phalanx, Past::Whole).load(object(1), &all[3].1).is_err());
    assert!(server(all[3].0, Past::Whole).load(object(1), &all[0].1).is_err());
}

fn copy(number: u8, val: u64) -> Copy {
    let value: Value = val.to_le_bytes().as_slice().into();
    let version = Version { val, client: client(), digest: value_digest(&value) };
    Copy { object: object(number), version, value, proof: Proof::default(), pcert: None, wcert: None }
}

/// Peer `from` answers a PULL with these objects, and has no more.
fn hear(node: &mut Node, from: u16, items: &[Copy]) {
    let body = Body::Copies { items: items.into(), more: false };
    let message = Message { object: object(0), body };
    let mut out = Out::default();
    let from = ReplicaId(from).into();
    node.step(0, Input::Message { from, message: &message }, &mut keys(ME.into()), &mut out);
}

fn start(node: &mut Node) {
    node.step(0, Input::Start, &mut keys(ME.into()), &mut Out::default());
}

fn held(node: &mut Node, number: u8) -> u64 {
    let read = Message {
        object: object(number),
        body: Body::Qts { op: Op { incarnation: 1, number: 1, phase: 1 } },
    };
    let mut out = Out::default();
    let from = client().into();
    node.step(0, Input::Message { from, message: &read }, &mut keys(ME.into()), &mut out);
    let said = out.actions.iter().find_map(|action| match action {
        Action::Send { message: Message { body: Body::Tsr { version, .. }, .. }, .. } => Some(version.val),
        _ => None,
    });
    said.unwrap()
}

/// Where answers prove themselves, two peers heard to the end are enough at f = 1: what the server promised was
/// promised by two others, none of which lies, and one of any two peers is among them.
#[test]
fn proofs_repair_with_two_peers() {
    for (protocol, name) in Protocol::ALL.iter().filter(|(protocol, _)| *protocol != Protocol::MinimalC) {
        let mut node = server(*protocol, Past::Lost);
        start(&mut node);
        assert!(!node.is_repaired(), "{name}");
        hear(&mut node, 1, &[]);
        hear(&mut node, 1, &[]);
        assert!(!node.is_repaired(), "{name}: one peer, twice");
        hear(&mut node, 2, &[]);
        assert!(node.is_repaired(), "{name}");
        for past in [Past::Whole, Past::Repaired] {
            assert!(server(*protocol, past).is_repaired(), "{name}");
        }
    }
}

/// MINIMAL-C has no proofs: it takes what two peers answer alike. While as many say that they hold more as are sure to
/// hold what this server promised, it waits, and asks again.
#[test]
fn without_proofs_it_waits_for_what_may_have_been_promised() {
    let mut node = server(Protocol::MinimalC, Past::Lost);
    start(&mut node);
    hear(&mut node, 1, &[copy(1, 5), copy(2, 3)]);
    hear(&mut node, 2, &[copy(1, 4), copy(2, 3)]);
    assert!(!node.is_repaired(), "two peers hold something larger for object 1");
    assert_eq!((held(&mut node, 1), held(&mut node, 2)), (0, 3), "only what two peers say alike");
    hear(&mut node, 3, &[copy(1, 4), copy(2, 3)]);
    assert_eq!(held(&mut node, 1), 4);
    assert!(node.is_repaired(), "one of three says 5: it may lie, and two others do not hold it");

    // All differ, as in the middle of writes: another round.
    let mut node = server(Protocol::MinimalC, Past::Lost);
    start(&mut node);
    for (peer, val) in [(1, 5), (2, 6), (3, 7)] {
        hear(&mut node, peer, &[copy(1, val)]);
    }
    assert!(!node.is_repaired());
    let mut out = Out::default();
    node.step(0, Input::Timer(Timer::Repair), &mut keys(ME.into()), &mut out);
    let pulls = out
        .actions
        .iter()
        .filter(|action| matches!(action, Action::Send { message, .. } if message.body == Body::Pull));
    assert_eq!(pulls.count(), 3, "every peer is asked again from the beginning");
    for peer in 1..4 {
        hear(&mut node, peer, &[copy(1, 7)]);
    }
    assert!(node.is_repaired() && held(&mut node, 1) == 7);
}

/// A BFT-BC server that was repaired has its values and not its lists: it still approves nothing (§15).
#[test]
fn what_a_lost_server_may_take_is_what_it_then_holds() {
    let rid = Rid { incarnation: 1, counter: 1 };
    let op = Op { incarnation: 1, number: 1, phase: 1 };
    let version = Version::GENESIS;
    let value: Value = Arc::from(&b""[..]);
    let may = [
        Body::Rc { rid },
        Body::Fack { version },
        Body::Fstore { version, value, proof: Proof::default() },
        Body::Copies { items: Arc::from([]), more: false },
    ];
    let may_not = [
        Body::Qts { op },
        Body::Rd { op },
        Body::Read { rid, attempt: 0 },
        Body::Pull,
        Body::BcRead { op, nonce: 1 },
    ];
    assert!(may.iter().all(Body::is_for_lost_server));
    assert!(!may_not.iter().any(Body::is_for_lost_server));
}
