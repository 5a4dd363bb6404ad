//! Scenarios of the rules (§15): client 1 may write, every client may read. Client 9 lies, and server 3 helps it.

use quorate_quorum::access::{Rights, Rules, Who};
use quorate_quorum::crypto::Statement;
use quorate_quorum::message::{Op, Proof};
use quorate_quorum::settings::Variant;
use quorate_quorum::step::{Call, Failure};
use quorate_quorum::version::{Value, Version, value_digest};
use quorate_quorum::{Body, Mutant, Protocol, Settings};
use quorate_wire::ClientId;

use super::named::Scenario;
use super::rogue::{Rogue, certificate, genesis, write};
use crate::hand::{Hand, OBJECT, Stage, client, server, value};

pub(super) const PHALANX: Scenario = Scenario {
    name: "phalanx-unlisted-writer",
    source: "[SRDS98]",
    about: "A client that may not write cannot have its own value stored by writing it back (§15)",
    mutants: &[Mutant::RightsOfSender],
    play: phalanx,
};

pub(super) const MINIMAL_C: Scenario = Scenario {
    name: "minimal-c-unlisted-writer",
    source: "[DISC02]",
    about: "A client that may not write, with f servers, cannot have a value stored by writing it back (§4, §15)",
    mutants: &[Mutant::RightsOfSender],
    play: minimal_c,
};

pub(super) const MINIMAL_C_READER: Scenario = Scenario {
    name: "minimal-c-unlisted-reader",
    source: "[DISC02]",
    about: "The write-back of a reader that may not write mends what a STORE that was lost left (§4, §15)",
    mutants: &[Mutant::NoReaderWriteBack, Mutant::AccessOnRelays],
    play: minimal_c_reader,
};

pub(super) const MINIMAL_F: Scenario = Scenario {
    name: "minimal-f-unlisted-writer",
    source: "[DISC02]",
    about: "A server cannot bring in a value of a client that may not write, nor its counter (§15)",
    mutants: &[Mutant::RightsOfSender],
    play: minimal_f,
};

pub(super) const BFT_BC: Scenario = Scenario {
    name: "bc-unlisted-writer",
    source: "[ICDCS06]",
    about: "A client that may not write, with f servers, gets no certificate (§15)",
    mutants: &[Mutant::RightsIgnored],
    play: bft_bc,
};

pub(super) const FORMER_WRITER: Scenario = Scenario {
    name: "phalanx-former-writer",
    source: "[SRDS98]",
    about: "What a client wrote before it lost its right can still be written back (§15)",
    mutants: &[Mutant::AccessOnRelays],
    play: former_writer,
};

pub(super) const LOST_RIGHT: Scenario = Scenario {
    name: "phalanx-lost-right",
    source: "[SRDS98]",
    about: "A client that loses its right in the middle of a write is told so, and a liar alone stops nobody (§15)",
    mutants: &[Mutant::RefusedAskedOnce, Mutant::RefusedByFew],
    play: lost_right,
};

/// The rules: client 1 may write, client 4 could before, every client may read.
fn rules(settings: &mut Settings) {
    let rights = Rights {
        readers: Who::All,
        writers: Who::These([client(1).principal()].into()),
        former: [client(4).principal()].into(),
    };
    settings.rules = Rules { by: [(OBJECT.namespace(), rights)].into() };
}

fn op() -> Op {
    Op { incarnation: 1, number: 70, phase: 2 }
}

/// Returns a version that its writer has signed.
fn signed(hand: &mut Hand, writer: ClientId, val: u64, value: &Value) -> (Version, Proof) {
    let version = Version { val, client: writer, digest: value_digest(value) };
    let signature = Some(hand.sign(writer, &Statement::Written(version)));
    (version, Proof { signature, evidence: None })
}

/// Writes "a" and returns a hand.
fn written(protocol: Protocol, stage: &mut Stage) -> Result<Hand<'_>, String> {
    let mut hand = Hand::new(protocol, stage, rules)?;
    hand.invoke(client(1), Call::Write(value("a")));
    hand.exchange(client(1), &[0, 1, 2, 3]);
    hand.expect(client(1), "a")?;
    Ok(hand)
}

fn read(hand: &mut Hand, expected: &str) -> Result<(), String> {
    hand.invoke(client(2), Call::Read);
    hand.exchange(client(2), &[0, 1, 2]);
    hand.expect(client(2), expected)
}

/// Client 9 signs a version itself, and writes it back. Then server 3 answers a read and a write with it.
fn phalanx(stage: &mut Stage) -> Result<(), String> {
    let mut hand = written(Protocol::Phalanx, stage)?;
    let bad = value("bad");
    let (version, proof) = signed(&mut hand, client(9), u64::MAX - 1, &bad);
    for number in 0..3 {
        let (value, proof) = (bad.clone(), proof.clone());
        let body = Body::Store { op: op(), version, value, proof, write_back: true };
        hand.tell(client(9), server(number), body);
    }
    read(&mut hand, "a")?;
    hand.invoke(client(3), Call::Read);
    let first = Op { incarnation: 1, number: 1, phase: 1 };
    hand.tell(
        server(3),
        client(3).into(),
        Body::RdVal { op: first, version, value: bad, proof: proof.clone() },
    );
    hand.exchange(client(3), &[0, 1, 2]);
    hand.expect(client(3), "a")?;
    write_beside(hand, version, &proof)
}

/// Client 1 writes while server 3 answers it with a version that it must not believe.
fn write_beside(mut hand: Hand, version: Version, proof: &Proof) -> Result<(), String> {
    hand.invoke(client(1), Call::Write(value("b")));
    let second = Op { incarnation: 1, number: 2, phase: 1 };
    let answer = Body::Tsr { op: second, version, signature: proof.signature };
    hand.tell(server(3), client(1).into(), answer);
    hand.exchange(client(1), &[0, 1, 2]);
    hand.expect(client(1), "b")?;
    hand.check()
}

/// Client 9 writes back what nobody wrote, in its own name and in that of client 1. Server 3 says that it holds it.
fn minimal_c(stage: &mut Stage) -> Result<(), String> {
    let mut hand = written(Protocol::MinimalC, stage)?;
    let bad = value("bad");
    for writer in [client(9), client(1)] {
        let version = Version { val: u64::MAX - 1, client: writer, digest: value_digest(&bad) };
        for number in 0..3 {
            let (value, proof) = (bad.clone(), Proof::default());
            let body = Body::Store { op: op(), version, value, proof, write_back: true };
            hand.tell(client(9), server(number), body);
            for asked in hand.sent(server(number), server(3)) {
                if let Body::Qts { op } = asked {
                    hand.tell(server(3), server(number), Body::Tsr { op, version, signature: None });
                }
            }
        }
        hand.deliver(|packet| !packet.is_to(3) && matches!(packet.message.body.name(), "QTS" | "TSR"));
        read(&mut hand, "a")?;
    }
    hand.invoke(client(1), Call::Write(value("b")));
    hand.exchange(client(1), &[0, 1, 2]);
    hand.expect(client(1), "b")?;
    read(&mut hand, "b")?;
    hand.check()
}

/// Server 0 acknowledges and then is silent; 1 and 2 store t; STORE to 3 is lost, and the writer ends. The reader may
/// not write: server 3 believes servers 1 and 2, not the reader.
fn minimal_c_reader(stage: &mut Stage) -> Result<(), String> {
    let mut hand = Hand::new(Protocol::MinimalC, stage, rules)?;
    let (writer, reader) = (client(1), client(2));
    hand.invoke(writer, Call::Write(value("t")));
    hand.deliver(|packet| packet.between(writer, &[0, 1, 2]));
    hand.lose(|packet| packet.is_to(3));
    hand.expect(writer, "t")?;
    hand.end(writer);
    hand.invoke(reader, Call::Read);
    for _ in 0..3 {
        hand.exchange(reader, &[1, 2, 3]);
        hand.lose(|packet| packet.is_to(0));
        hand.deliver(|packet| matches!(packet.message.body.name(), "QTS" | "TSR"));
        hand.exchange(reader, &[1, 2, 3]);
        hand.fire(reader);
    }
    hand.expect(reader, "t")?;
    hand.check()
}

/// Server 3 relays a version that client 9 has signed, and answers a writer with it.
fn minimal_f(stage: &mut Stage) -> Result<(), String> {
    let mut hand = written(Protocol::MinimalF, stage)?;
    let bad = value("bad");
    let (version, proof) = signed(&mut hand, client(9), u64::MAX - 1, &bad);
    for number in 0..3 {
        let (value, proof) = (bad.clone(), proof.clone());
        hand.tell(server(3), server(number), Body::Fstore { version, value, proof });
    }
    read(&mut hand, "a")?;
    write_beside(hand, version, &proof)
}

/// Client 9 asks for approvals in both ways. The liar signs all that it is asked for.
fn bft_bc(stage: &mut Stage) -> Result<(), String> {
    let mut hand = Hand::new(Protocol::BftBc(Variant::Optimized), stage, rules)?;
    let mut rogue = Rogue::new(9);
    let bad = value("bad");
    let version = rogue.version(1, &bad);
    let body = rogue.sign_prepare(&mut hand, genesis(), version);
    let mut normal = rogue.prepare(&mut hand, &body, &[0, 1, 2]);
    normal.push((quorate_wire::ReplicaId(3), hand.sign(server(3), &Statement::Prepared(version, None))));
    let key = [5; 16];
    let optimistic = rogue.prepare_optimistically(&mut hand, &key, &[0, 1, 2], version);
    if let Some(pcert) = certificate(version, None, normal) {
        write(&mut hand, rogue.me, &bad, &pcert, &[0, 1, 2]);
    }
    if !optimistic.is_empty() {
        return Err("a server approved optimistically".to_string());
    }
    read(&mut hand, "")
}

/// A version of client 4, which could write before, is at server 0 only. A reader finds it and writes it back.
fn former_writer(stage: &mut Stage) -> Result<(), String> {
    let mut hand = written(Protocol::Phalanx, stage)?;
    let before = value("before");
    let (version, proof) = signed(&mut hand, client(4), 2, &before);
    let store = |write_back| {
        let (value, proof) = (before.clone(), proof.clone());
        Body::Store { op: op(), version, value, proof, write_back }
    };
    hand.tell(client(4), server(0), store(false));
    read(&mut hand, "a")?;
    hand.tell(client(2), server(0), store(true));
    read(&mut hand, "before")
}

/// Servers 0 and 1 acknowledge "b" of client 1. Server 2 has heard before that it may not write, and refuses. Server 3 is silent.
fn lost_right(stage: &mut Stage) -> Result<(), String> {
    let mut hand = written(Protocol::Phalanx, stage)?;
    let writer = client(1);
    hand.invoke(writer, Call::Write(value("b")));
    hand.deliver(|packet| {
        packet.between(writer, &[0, 1, 2]) && matches!(packet.message.body.name(), "QTS" | "TSR")
    });
    hand.revoke(2, writer);
    hand.exchange(writer, &[0, 1, 2]);
    hand.revoke(0, writer);
    hand.revoke(1, writer);
    hand.lose(|packet| packet.is_to(3));
    hand.fire(writer);
    hand.exchange(writer, &[0, 1, 2]);
    if hand.ended(writer) != 2 || hand.last(writer) != Some(&Err(Failure::NotAllowed)) {
        return Err(format!("the writer is not told: {:?}", hand.last(writer)));
    }
    read(&mut hand, "b")?;
    let reader = client(3);
    hand.invoke(reader, Call::Read);
    for _ in 0..2 {
        let first = Op { incarnation: 1, number: 1, phase: 1 };
        hand.tell(server(3), reader.into(), Body::Refused { op: first });
    }
    hand.exchange(reader, &[0, 1, 2]);
    hand.expect(reader, "b")?;
    hand.check()
}
