//! Scenarios of MINIMAL-C and MINIMAL-F.

use quorate_quorum::cert::Evidence;
use quorate_quorum::crypto::Statement;
use quorate_quorum::message::{Op, Proof, Rid};
use quorate_quorum::settings::Ts;
use quorate_quorum::step::{Call, Failure};
use quorate_quorum::version::{Version, value_digest};
use quorate_quorum::{Body, Mutant, Protocol};
use quorate_wire::{ClientId, ReplicaId};

use super::named::Scenario;
use crate::hand::{Hand, Stage, client, server, value};

pub(super) const LOST_STORE: Scenario = Scenario {
    name: "minimal-c-lost-store",
    source: "[DISC02]",
    about: "A STORE that one server never got does not block readers when another one is silent (§4)",
    mutants: &[Mutant::NoReaderWriteBack, Mutant::StoreDropped, Mutant::StoreToQuorum],
    play: lost_store,
};

pub(super) const STOPPED_WRITER: Scenario = Scenario {
    name: "minimal-c-stopped-writer",
    source: "[DISC02]",
    about: "Outside its model MINIMAL-C fails as the theory says: a writer that stops half way blocks reads (§8)",
    mutants: &[],
    play: stopped_writer,
};

pub(super) const REFUSED_WRITER: Scenario = Scenario {
    name: "minimal-c-refused-writer",
    source: "[DISC02]",
    about: "Outside the model of MINIMAL-C, too: a writer that loses its right half way blocks reads while a server lies (§8, §15)",
    mutants: &[],
    play: refused_writer,
};

pub(super) const EVIDENCE_MAXIMUM: Scenario = Scenario {
    name: "minimal-f-evidence-maximum",
    source: "[DISC02]",
    about: "One server and one client cannot use up the counter where q equal answers prove it (§5, ts_evidence)",
    mutants: &[Mutant::EvidenceMaximum],
    play: evidence_maximum,
};

pub(super) const LOST_RELAY: Scenario = Scenario {
    name: "minimal-f-lost-relay",
    source: "[DISC02]",
    about: "An FSTORE that was lost is sent again (§2.3)",
    mutants: &[Mutant::RelayOnce, Mutant::NoRelay],
    play: lost_relay,
};

pub(super) const RESTARTED_RELAY: Scenario = Scenario {
    name: "minimal-f-restarted-relay",
    source: "[DISC02]",
    about: "A server that restarts relays its version again (§5)",
    mutants: &[Mutant::NoRelayAfterRestart, Mutant::NoRelay],
    play: restarted_relay,
};

/// Server 0 acknowledges and then is silent; 1 and 2 store t; STORE to 3 is lost. First the writer
/// lives on and repeats it; then another writer ends after q acknowledgements, and a reader mends it.
fn lost_store(stage: &mut Stage) -> Result<(), String> {
    for ends in [false, true] {
        let mut hand = Hand::new(Protocol::MinimalC, stage, |_| {})?;
        let (writer, reader) = (client(1), client(2));
        hand.invoke(writer, Call::Write(value("t")));
        hand.deliver(|packet| packet.between(writer, &[0, 1, 2]));
        hand.lose(|packet| packet.is_to(3));
        hand.expect(writer, "t")?;
        if ends {
            hand.end(writer);
        } else {
            hand.fire(writer);
            hand.lose(|packet| packet.is_to(0));
            hand.exchange(writer, &[1, 2, 3]);
        }
        hand.invoke(reader, Call::Read);
        for _ in 0..3 {
            hand.exchange(reader, &[1, 2, 3]);
            hand.fire(reader);
        }
        hand.exchange(reader, &[1, 2, 3]);
        hand.expect(reader, "t")?;
        hand.check()?;
    }
    Ok(())
}

fn stopped_writer(stage: &mut Stage) -> Result<(), String> {
    half_written(stage, |hand, writer| {
        hand.end(writer);
    })
    .map(drop)
}

/// When the fourth server is correct again, q servers have the old version.
fn refused_writer(stage: &mut Stage) -> Result<(), String> {
    let mut hand = half_written(stage, |hand, writer| {
        hand.revoke(1, writer);
        hand.revoke(2, writer);
        hand.exchange(writer, &[0, 1, 2]);
    })?;
    if hand.last(client(1)) != Some(&Err(Failure::NotAllowed)) {
        return Err(format!("the writer is not told: {:?}", hand.last(client(1))));
    }
    hand.exchange(client(2), &[0, 1, 2, 3]);
    hand.expect(client(2), "")
}

/// STORE reaches one correct server, and no other one accepts it; the fourth server answers a fake. No
/// version ever has q answers, and none but the old one has f + 1.
fn half_written(stage: &mut Stage, stop: impl FnOnce(&mut Hand, ClientId)) -> Result<Hand<'_>, String> {
    let mut hand = Hand::new(Protocol::MinimalC, stage, |_| {})?;
    let (writer, reader) = (client(1), client(2));
    hand.invoke(writer, Call::Write(value("half")));
    hand.deliver(|packet| packet.between(writer, &[0, 1, 2]) && packet.message.body.name() != "STORE");
    hand.deliver(|packet| packet.is_to(0) && packet.message.body.name() == "STORE");
    stop(&mut hand, writer);
    hand.lose(|packet| packet.from == writer.into());
    hand.invoke(reader, Call::Read);
    for attempt in 1..6 {
        let rid = Rid { incarnation: 1, counter: attempt };
        lie(&mut hand, reader, rid);
        hand.exchange(reader, &[0, 1, 2]);
        if hand.ended(reader) > 0 {
            return Err("the read ended, although its model is left".to_string());
        }
        hand.fire(reader);
    }
    Ok(hand)
}

/// Server 3 answers a read with a fake that is larger than everything.
fn lie(hand: &mut Hand, reader: quorate_wire::ClientId, rid: Rid) {
    let fake = value("fake");
    let version = Version { val: 99, client: client(7), digest: value_digest(&fake) };
    let body = Body::Val { rid, version, value: fake, forwarded: false, signature: None };
    hand.tell(server(3), reader.into(), body);
}

/// A client collects two honest answers and one of server 3 about a version next to the end.
fn evidence_maximum(stage: &mut Stage) -> Result<(), String> {
    let mut hand = Hand::new(Protocol::MinimalF, stage, |settings| {
        settings.evidence = true;
        settings.ts = Ts::Read;
    })?;
    let (first, rogue, good) = (client(1), client(9), client(2));
    hand.invoke(first, Call::Write(value("a")));
    hand.exchange(first, &[0, 1, 2]);
    hand.expect(first, "a")?;
    let Some(Ok(outcome)) = hand.last(first).cloned() else { return Err("no write".to_string()) };
    let honest = outcome.version;
    let forged = Version { val: u64::MAX - 1, ..honest };
    let answers = [(0, honest), (1, honest), (3, forged)].map(|(number, version)| {
        (ReplicaId(number), version, hand.sign(ReplicaId(number), &Statement::Answered(version)))
    });
    let last = value("last");
    let version = Version { val: u64::MAX, client: rogue, digest: value_digest(&last) };
    let signature = Some(hand.sign(rogue, &Statement::Written(version)));
    let proof = Proof { signature, evidence: Some(Evidence { answers: answers.into() }) };
    let op = Op { incarnation: 1, number: 1, phase: 2 };
    for number in 0..3 {
        let (value, proof) = (last.clone(), proof.clone());
        hand.tell(rogue, server(number), Body::Store { op, version, value, proof, write_back: false });
    }
    hand.invoke(good, Call::Write(value("b")));
    hand.exchange(good, &[0, 1, 2]);
    hand.expect(good, "b")
}

/// A client writes to server 0 only. Its FSTOREs are lost; then it sends them again.
fn lost_relay(stage: &mut Stage) -> Result<(), String> {
    relay(stage, |hand| {
        hand.lose(|packet| packet.message.body.name() == "FSTORE");
        hand.fire(server(0));
    })
}

/// The same, but server 0 crashes before they leave, and starts again.
fn restarted_relay(stage: &mut Stage) -> Result<(), String> {
    relay(stage, |hand| {
        hand.lose(|packet| packet.message.body.name() == "FSTORE");
        hand.restart(0);
    })
}

fn relay(stage: &mut Stage, between: impl FnOnce(&mut Hand)) -> Result<(), String> {
    let mut hand = Hand::new(Protocol::MinimalF, stage, |_| {})?;
    let (writer, reader) = (client(1), client(2));
    hand.invoke(writer, Call::Write(value("half")));
    hand.deliver(|packet| packet.between(writer, &[0, 1, 2]) && packet.message.body.name() != "STORE");
    hand.deliver(|packet| packet.is_to(0) && packet.message.body.name() == "STORE");
    hand.end(writer);
    hand.lose(|packet| packet.from == writer.into());
    hand.invoke(reader, Call::Read);
    lie(&mut hand, reader, Rid { incarnation: 1, counter: 1 });
    hand.exchange(reader, &[0, 1, 2]);
    if hand.ended(reader) > 0 {
        return Err("the read ended before the relay".to_string());
    }
    between(&mut hand);
    hand.deliver(|packet| matches!(packet.message.body.name(), "FSTORE" | "FACK"));
    hand.exchange(reader, &[0, 1, 2]);
    hand.expect(reader, "half")?;
    hand.check()
}
