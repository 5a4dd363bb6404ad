//! The registers: the decoders of their messages and notes, and a server that is told whatever the input says, by servers
//! and clients that hold their own keys only.
//!
//! The first byte chooses. Even: the rest is the body of a message of the kind in the second byte, and what decodes is
//! encoded to the same bytes. Odd: it also chooses a protocol, and the rest is a list of `from 1 | kind 1 | object 1 |
//! length 2 | fields`; a kind of 0 is a timer. Each step may answer, but not without bound.

use std::collections::VecDeque;
use std::sync::Arc;

use quorate_quorum::crypto::Keys;
use quorate_quorum::step::Call;
use quorate_quorum::{
    Action, Input, Message, ObjectId, Out, Past, Process, Protocol, Settings, Thresholds, Timer, Value,
};
use quorate_quorum_node::note::{NOTES, Note};
use quorate_wire::sign::{Signer, Verifier};
use quorate_wire::{ClientId, ClusterId, Principal, ReplicaId};

use crate::{Target, feature};

/// The target.
pub const TARGET: Target = Target {
    name: "registers",
    run,
    seeds,
    input_bytes_max: 16 << 10,
    memory_bytes_max: 4 << 20,
    millis_max: 2000,
};

/// The most that one step of this small server does: it answers, forwards to each listener, relays to each peer, and
/// takes the objects of one COPIES.
const ACTIONS_MAX: usize = 200;

fn run(input: &[u8]) -> u64 {
    let [choice, kind, rest @ ..] = input else { return 0 };
    if choice % 2 == 0 { decode(*kind, rest) } else { told(*choice / 2, input.get(1..).unwrap_or(&[])) }
}

fn decode(kind: u8, body: &[u8]) -> u64 {
    let mut again = Vec::new();
    let decoded = if NOTES.contains(&kind) {
        Note::decode(kind, body).map(|note| note.encode(counter(body), &mut again))
    } else {
        Message::decode(kind, body).map(|(counter, message)| message.encode(counter, &mut again))
    };
    if decoded.is_ok() {
        assert!(again == body, "kind {kind} is not canonical");
    }
    feature(&[
        u64::from(kind),
        u64::from(decoded.is_ok()),
        u64::from(body.len().checked_ilog2().unwrap_or(0)),
    ])
}

fn counter(body: &[u8]) -> u64 {
    body.first_chunk().map_or(0, |bytes| u64::from_le_bytes(*bytes))
}

fn signer(of: Principal) -> Signer {
    // Fast: what is fuzzed is not Ed25519.
    Signer::Toy([u8::try_from(of.to_wire() % 251).unwrap_or(0) + 1; 32])
}

fn keys(of: Principal) -> Keys<impl FnMut() -> u128> {
    let mut verifier = Verifier::default();
    for from in 0..8 {
        verifier.insert(principal(from), &signer(principal(from)).public());
    }
    let mut random = 0;
    Keys::new(ClusterId([4; 32]), 1, signer(of), verifier, move || {
        random += 1;
        random
    })
}

/// Servers 0 to 3, and four clients.
fn principal(from: u8) -> Principal {
    match from % 8 {
        server @ 0..4 => ReplicaId(u16::from(server)).into(),
        client => ClientId::new(u64::from(client) - 3, 0).into(),
    }
}

fn settings(protocol: Protocol) -> Arc<Settings> {
    let Ok(thresholds) = Thresholds::tolerating(1) else { unreachable!("four servers tolerate one") };
    let mut settings = Settings::new(thresholds, protocol);
    (settings.limits.objects, settings.limits.clients, settings.limits.seen) = (6, 3, 8);
    Arc::new(settings)
}

fn object(number: u8) -> ObjectId {
    ObjectId([number % 8; 32])
}

fn told(choice: u8, script: &[u8]) -> u64 {
    let (protocol, _) = Protocol::ALL[usize::from(choice) % Protocol::ALL.len()];
    let past = [Past::Whole, Past::Repaired, Past::Lost][usize::from(choice) / 16 % 3];
    let me = ReplicaId(0);
    let (mut server, mut keys) = (quorate_quorum::server(me, settings(protocol), past), keys(me.into()));
    let mut shown = vec![u64::from(choice)];
    let (mut now, mut rest) = (0, script);
    let mut out = Out::default();
    server.step(now, Input::Start, &mut keys, &mut out);
    while let [from, kind, about, low, high, tail @ ..] = rest {
        let len = usize::from(u16::from_le_bytes([*low, *high])).min(tail.len());
        let (fields, next) = tail.split_at(len);
        rest = next;
        now += 10_000;
        out.actions.clear();
        let from = principal(*from);
        if *kind == 0 {
            let timer = [Timer::Leases, Timer::Relays, Timer::Repair][usize::from(*about) % 3];
            server.step(now, Input::Timer(timer), &mut keys, &mut out);
        } else {
            let body = [&1_u64.to_le_bytes()[..], &object(*about).0, fields].concat();
            let Ok((_, message)) = Message::decode(*kind, &body) else { continue };
            // The link drops what is in this server's own name.
            if from != me.into() {
                server.step(now, Input::Message { from, message: &message }, &mut keys, &mut out);
            }
        }
        assert!(out.actions.len() <= ACTIONS_MAX, "{} actions", out.actions.len());
        assert!(server.objects() <= 6);
        keep(&*server, &out.actions);
        let sent = out.actions.iter().filter(|action| matches!(action, Action::Send { .. })).count();
        shown.push(u64::from(*kind) << 8 | u64::try_from(sent.min(9)).unwrap_or(0));
    }
    shown.sort_unstable();
    shown.dedup();
    feature(&shown)
}

/// What is persisted can be read again.
fn keep(server: &dyn Process, actions: &[Action]) {
    for action in actions {
        if let Action::Persist(object) = action {
            let mut saved = Vec::new();
            assert!(server.save(object, &mut saved), "persisted, and there is nothing");
        }
    }
}

/// What a server of each protocol is told in an ordinary run of a few operations.
fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = Vec::new();
    for (choice, (protocol, _)) in (0..).zip(Protocol::ALL) {
        let heard = ordinary(*protocol);
        let mut script = vec![choice * 2 + 1];
        for (from, message) in heard {
            let mut body = Vec::new();
            message.encode(1, &mut body);
            let kind = message.body.kind();
            seeds.push([&[0, kind][..], &body].concat());
            let fields = body.get(40..).unwrap_or(&[]);
            let Ok(len) = u16::try_from(fields.len()) else { continue };
            script.extend_from_slice(&[from, kind, message.object.0[0]]);
            script.extend_from_slice(&len.to_le_bytes());
            script.extend_from_slice(fields);
        }
        seeds.push(script);
    }
    let note = Note::Fetched(object(1), quorate_quorum::Version::GENESIS, Arc::from(&b"v"[..]));
    let mut body = Vec::new();
    note.encode(1, &mut body);
    seeds.push([&[0, note.kind()][..], &body].concat());
    seeds
}

/// Runs two writes and two reads, and returns what server 0 was told.
fn ordinary(protocol: Protocol) -> Vec<(u8, Message)> {
    let client = principal(4);
    let mut nodes: Vec<(Principal, Box<dyn Process + Send>)> = (0..4)
        .map(|id| {
            let id = ReplicaId(id);
            (id.into(), quorate_quorum::server(id, settings(protocol), Past::Whole))
        })
        .collect();
    nodes.push((client, quorate_quorum::client(client.as_client(), 1, settings(protocol))));
    let mut heard = Vec::new();
    for round in 0..4_u8 {
        let value: Value = vec![round; 3].into();
        let call = if round % 2 == 0 { Call::Write(value) } else { Call::Read };
        let mut queue = VecDeque::new();
        let mut out = Out::default();
        let input = Input::Invoke { object: object(1), call };
        nodes[4].1.step(0, input, &mut keys(client), &mut out);
        queue.extend(out.actions.into_iter().map(|action| (client, action)));
        while let Some((from, action)) = queue.pop_front() {
            let Action::Send { to, message } = action else { continue };
            if to == ReplicaId(0).into() {
                let number = (0..8).find(|number| principal(*number) == from).unwrap_or(4);
                heard.push((number, message.clone()));
            }
            let Some((_, node)) = nodes.iter_mut().find(|(who, _)| *who == to) else { continue };
            let mut out = Out::default();
            node.step(0, Input::Message { from, message: &message }, &mut keys(to), &mut out);
            queue.extend(out.actions.into_iter().map(|action| (to, action)));
        }
    }
    heard
}
