//! Scenarios of BFT-BC.

use std::sync::Arc;

use quorate_quorum::crypto::{Statement, lock_of};
use quorate_quorum::message::{Op, Predecessor};
use quorate_quorum::settings::Variant;
use quorate_quorum::step::Call;
use quorate_quorum::version::{Version, value_digest};
use quorate_quorum::{Body, Mutant, Protocol};
use quorate_wire::{Digest, Principal, ReplicaId};

use super::named::Scenario;
use super::rogue::{Rogue, certificate, genesis, write};
use crate::hand::{Hand, Stage, client, server, value};

pub(super) const SLOW_READERS: Scenario = Scenario {
    name: "bc-slow-readers",
    source: "[ICDCS06]",
    about: "Approvals at or below write_ver use up the slot: slow readers make no second version visible (H2)",
    mutants: &[Mutant::SignOld],
    play: slow_readers,
};

pub(super) const OPTIMISTIC_REPLAY: Scenario = Scenario {
    name: "bc-optimistic-replay",
    source: "[ICDCS06]",
    about: "Nobody else can complete the optimistic signatures of a client that went on to PREPARE (§6.4)",
    mutants: &[Mutant::NoLock],
    play: optimistic_replay,
};

pub(super) const UNTAGGED_THREE: Scenario = Scenario {
    name: "bc-untagged-three",
    source: "[ICDCS06]",
    about: "A certificate is all NORMAL or all OPT: two lurking writes, not three (H3)",
    mutants: &[Mutant::Untagged],
    play: untagged_three,
};

pub(super) const TWO_AHEAD: Scenario = Scenario {
    name: "bc-two-ahead",
    source: "[ICDCS06]",
    about: "One client gets two versions ahead, one optimistically and one normally, and no third (L3)",
    mutants: &[],
    play: two_ahead,
};

pub(super) const PRE_SIGNED: Scenario = Scenario {
    name: "bc-pre-signed",
    source: "[ICDCS06]",
    about: "Requests that were signed for several certificates before a stop are good for one (H2)",
    mutants: &[Mutant::NoH2],
    play: pre_signed,
};

pub(super) const OTHER_OBJECT: Scenario = Scenario {
    name: "bc-other-object",
    source: "[ICDCS06]",
    about: "A certificate for one object is none for another (§2.2)",
    mutants: &[Mutant::OtherObject],
    play: other_object,
};

pub(super) const TWO_PREPARED: Scenario = Scenario {
    name: "bc-two-prepared",
    source: "[ICDCS06]",
    about: "A client has one approval at a time: what it leaves behind is one write, not two (§6.1 c)",
    mutants: &[Mutant::NoPlist],
    play: two_prepared,
};

pub(super) const WIPED_LISTS: Scenario = Scenario {
    name: "bc-wiped-lists",
    source: "[ICDCS06]",
    about: "A server that lost its lists approves nothing in this epoch (§15)",
    mutants: &[Mutant::WipedSigns],
    play: wiped_lists,
};

/// Client c leaves PREPAREs of v0, v1, v2, all with val 1. Two readers are slow; v0 is written, and
/// overwritten twice; then v1 and v2 are prepared at last, and the liar answers the slow readers.
fn slow_readers(stage: &mut Stage) -> Result<(), String> {
    let mut hand = Hand::new(Protocol::BftBc(Variant::Base), stage, |_| {})?;
    let mut rogue = Rogue::new(9);
    let values = ["v0", "v1", "v2"].map(value);
    let asked: Vec<(Version, Body)> = values
        .iter()
        .map(|value| {
            let version = rogue.version(1, value);
            (version, rogue.sign_prepare(&mut hand, genesis(), version))
        })
        .collect();
    hand.history.rogues.push(crate::history::Rogue { client: rogue.me, stopped: Some(0) });
    let (reader, slow, writer) = (client(1), [client(2), client(3)], client(4));
    hand.invoke(reader, Call::Read);
    hand.exchange(reader, &[0, 1, 2]);
    hand.expect(reader, "")?;
    for slow in slow {
        hand.invoke(slow, Call::Read);
        hand.exchange(slow, &[0, 1]);
        hand.lose(|packet| packet.is_to(2) && packet.from == slow.into());
    }
    let mut certificates = Vec::new();
    for (index, (version, body)) in asked.iter().enumerate() {
        let signatures = rogue.prepare(&mut hand, body, &[0, 1, 2]);
        if let Some(pcert) = certificate(*version, None, signatures) {
            write(&mut hand, rogue.me, &values[index], &pcert, &[0, 1, 2]);
            certificates.push((pcert, Arc::clone(&values[index])));
        }
        if index == 0 {
            hand.invoke(reader, Call::Read);
            hand.exchange(reader, &[0, 1, 2]);
            hand.expect(reader, "v0")?;
            for text in ["a", "b"] {
                hand.invoke(writer, Call::Write(value(text)));
                hand.exchange(writer, &[0, 1, 2]);
                hand.expect(writer, text)?;
            }
        }
    }
    for (slow, (pcert, value)) in slow.into_iter().zip(certificates.iter().skip(1)) {
        let asks = hand.sent(slow, server(3));
        let Some(Body::BcRead { op, nonce }) = asks.first().cloned() else { continue };
        let (pcert, value) = (pcert.clone(), Arc::clone(value));
        let body = Body::BcReadReply { op, nonce, value, pcert, wsig: None, wcert: None };
        hand.tell(server(3), slow.into(), body);
        hand.exchange(slow, &[0, 1, 2]);
    }
    hand.check()?;
    let visible = hand.history.operations.iter().filter_map(|operation| operation.version);
    let mut visible: Vec<Version> = visible.filter(|version| version.client == rogue.me).collect();
    visible.sort_unstable();
    visible.dedup();
    if certificates.len() > 1 || visible.len() > 1 {
        return Err(format!(
            "{} certificates of a stopped client, {} of its versions were read; 1 may be",
            certificates.len(),
            visible.len()
        ));
    }
    Ok(())
}

/// The liar reads the wire and completes the two optimistic signatures of w with its own, after w
/// has gone on to PREPARE: one write would be visible under two versions.
#[allow(clippy::many_single_char_names, reason = "the names of the test plan")]
fn optimistic_replay(stage: &mut Stage) -> Result<(), String> {
    let zero = stage.mutant == Some(Mutant::NoLock);
    let mut hand = Hand::new(Protocol::BftBc(Variant::Optimized), stage, |_| {})?;
    let (d, e, reader, w) = (client(1), client(2), client(3), client(4));
    let (x, y) = (value("x"), value("y"));
    hand.invoke(w, Call::Write(Arc::clone(&x)));
    let to_two = hand.sent(w, server(2));
    hand.lose(|packet| packet.is_to(2) && packet.from == w.into());
    // What 0 and 1 sign for w, the liar sees as well.
    let version = Version { val: 1, client: w, digest: value_digest(&x) };
    let mut seen = Vec::new();
    for number in [0, 1] {
        hand.deliver(|packet| packet.from == w.into() && packet.is_to(number));
        for body in hand.sent(server(number), w.into()) {
            if let Body::ReadTsPrepReply { opt: Some((signed, signature)), .. } = body
                && signed == version
            {
                seen.push((ReplicaId(number), signature));
            }
        }
    }
    hand.exchange(w, &[0, 1]);
    hand.invoke(d, Call::Write(value("d")));
    hand.deliver(|packet| packet.between(d, &[0, 1, 2]) && packet.message.body.name() != "WRITE");
    hand.deliver(|packet| packet.is_to(2) && packet.message.body.name() == "WRITE");
    hand.end(d);
    hand.lose(|packet| packet.from == d.into());
    for body in to_two {
        hand.tell(w, server(2), body);
    }
    hand.deliver(|packet| packet.between(w, &[0, 1, 2]) && packet.message.body.name() != "WRITE");
    let lock = if zero { Digest::ZERO } else { lock_of(&[0; 16]) };
    seen.push((ReplicaId(3), hand.sign(ReplicaId(3), &Statement::Prepared(version, Some(lock)))));
    let forged = certificate(version, Some([0; 16]), seen).ok_or("two signatures were not made")?;
    let op = Op { incarnation: 1, number: 1, phase: 3 };
    for number in 0..3 {
        let body = Body::Write { op, value: Arc::clone(&x), pcert: forged.clone() };
        hand.tell(server(3), server(number), body);
    }
    let read = |hand: &mut Hand| {
        hand.invoke(reader, Call::Read);
        hand.exchange(reader, &[0, 1, 2]);
        if hand.last(reader).is_some() { Ok(()) } else { Err("hang: a read".to_string()) }
    };
    read(&mut hand)?;
    hand.invoke(e, Call::Write(Arc::clone(&y)));
    hand.exchange(e, &[0, 1, 2]);
    hand.expect(e, "y")?;
    read(&mut hand)?;
    hand.deliver(|packet| packet.between(w, &[0, 1, 2]));
    read(&mut hand)?;
    let by_versions = crate::checker::versions::check(&hand.history);
    let by_values = crate::checker::values::check(&hand.history);
    match (by_versions, by_values) {
        (Ok(()), Ok(())) => hand.expect(w, "x"),
        (Err(one), Err(two)) => Err(format!("{one}; {two}")),
        (one, two) => Err(format!("the checkers differ: {one:?}, {two:?}")),
    }
}

/// A on r0.opt and r1.opt, B on r0.plist and r2.plist, C on r1.plist and r2.opt, of one client; the
/// liar signs all three.
fn untagged_three(stage: &mut Stage) -> Result<(), String> {
    let mut hand = Hand::new(Protocol::BftBc(Variant::Optimized), stage, |_| {})?;
    let mut rogue = Rogue::new(9);
    let key = [5; 16];
    let values = ["A", "B", "C"].map(value);
    let versions = [0, 1, 2].map(|index: usize| rogue.version(1, &values[index]));
    let [a, b, c] = versions;
    let mut on_a = rogue.prepare_optimistically(&mut hand, &key, &[0, 1], a);
    let body = rogue.sign_prepare(&mut hand, genesis(), b);
    let mut on_b = rogue.prepare(&mut hand, &body, &[0, 2]);
    let body = rogue.sign_prepare(&mut hand, genesis(), c);
    let mut on_c = rogue.prepare(&mut hand, &body, &[1]);
    on_c.extend(rogue.prepare_optimistically(&mut hand, &key, &[2], c));
    let liar = ReplicaId(3);
    let lock = Some(lock_of(&key));
    on_a.push((liar, hand.sign(liar, &Statement::Prepared(a, lock))));
    on_b.push((liar, hand.sign(liar, &Statement::Prepared(b, None))));
    on_c.push((liar, hand.sign(liar, &Statement::Prepared(c, lock))));
    let mut accepted = Vec::new();
    for (index, (version, key, signatures)) in
        [(a, Some(key), on_a), (b, None, on_b), (c, Some(key), on_c)].into_iter().enumerate()
    {
        let pcert = certificate(version, key, signatures).ok_or("an approval is missing")?;
        let op = Op { incarnation: 1, number: 1, phase: 3 };
        let (text, value) = (["A", "B", "C"][index], Arc::clone(&values[index]));
        hand.tell(rogue.me, server(0), Body::Write { op, value, pcert });
        if !hand.sent(server(0), Principal::from(rogue.me)).is_empty() {
            accepted.push(text);
        }
        hand.lose(|packet| packet.to == Principal::from(rogue.me));
    }
    if accepted == ["A", "B"] { Ok(()) } else { Err(format!("certificates for {accepted:?}")) }
}

/// Nothing is completed: (1, c) optimistically at 0 and 1, then (2, c) normally over it.
fn two_ahead(stage: &mut Stage) -> Result<(), String> {
    let mut hand = Hand::new(Protocol::BftBc(Variant::Optimized), stage, |_| {})?;
    let mut rogue = Rogue::new(9);
    let key = [5; 16];
    let values = ["one", "two", "three"].map(value);
    let versions =
        [1, 2, 3].map(|val: u64| rogue.version(val, &values[usize::try_from(val - 1).unwrap_or(0)]));
    let [one, two, three] = versions;
    let mut signatures = rogue.prepare_optimistically(&mut hand, &key, &[0, 1], one);
    let liar = ReplicaId(3);
    signatures.push((liar, hand.sign(liar, &Statement::Prepared(one, Some(lock_of(&key))))));
    let first = certificate(one, Some(key), signatures).ok_or("no optimistic certificate")?;
    let body = rogue.sign_prepare(&mut hand, Predecessor::Prepared(first), two);
    let mut signatures = rogue.prepare(&mut hand, &body, &[0, 1, 2]);
    signatures.push((liar, hand.sign(liar, &Statement::Prepared(two, None))));
    let second = certificate(two, None, signatures).ok_or("no normal certificate over it")?;
    let body = rogue.sign_prepare(&mut hand, Predecessor::Prepared(second), three);
    let third = rogue.prepare(&mut hand, &body, &[0, 1, 2]);
    let again = rogue.prepare_optimistically(&mut hand, &key, &[0, 1, 2], three);
    if third.is_empty() && again.is_empty() {
        Ok(())
    } else {
        Err("a third version ahead of what is completed was approved".to_string())
    }
}

/// Before its stop c asks for two versions with the same counter. After it the liar, or anybody else, writes what was
/// approved, each after a read of what there was before.
fn two_prepared(stage: &mut Stage) -> Result<(), String> {
    let mut hand = Hand::new(Protocol::BftBc(Variant::Base), stage, |_| {})?;
    let mut rogue = Rogue::new(9);
    let mut left = ["v0", "v1"].map(|text| (rogue.version(1, &value(text)), text));
    left.sort_unstable();
    let mut approved = Vec::new();
    for (version, text) in left {
        let body = rogue.sign_prepare(&mut hand, genesis(), version);
        let signatures = rogue.prepare(&mut hand, &body, &[0, 1, 2]);
        approved.extend(certificate(version, None, signatures).map(|pcert| (pcert, text)));
    }
    rogue.stop(&mut hand);
    if approved.is_empty() {
        return Err("the one request that may be approved was refused".to_string());
    }
    let reader = client(1);
    hand.invoke(reader, Call::Read);
    hand.exchange(reader, &[0, 1, 2]);
    hand.expect(reader, "")?;
    for (pcert, text) in approved {
        write(&mut hand, rogue.me, &value(text), &pcert, &[0, 1, 2]);
        hand.invoke(reader, Call::Read);
        hand.exchange(reader, &[0, 1, 2]);
        hand.expect(reader, text)?;
    }
    hand.check()?;
    crate::checker::lurking::check(&hand.history, Variant::Base)
}

/// 0, 1, 2 approve v0. Disk 0, then disk 1 is lost and repaired from peers that hold GENESIS; then
/// v1 is sent to 0, 1 and 3. No server lies.
fn wiped_lists(stage: &mut Stage) -> Result<(), String> {
    let mut hand = Hand::new(Protocol::BftBc(Variant::Base), stage, |_| {})?;
    let mut rogue = Rogue::new(9);
    let (v0, v1) = (rogue.version(1, &value("v0")), rogue.version(1, &value("v1")));
    let body = rogue.sign_prepare(&mut hand, genesis(), v0);
    let first = certificate(v0, None, rogue.prepare(&mut hand, &body, &[0, 1, 2]));
    for number in [0, 1] {
        hand.wipe(number);
        hand.deliver(|packet| matches!(packet.message.body.name(), "PULL" | "COPIES"));
    }
    let body = rogue.sign_prepare(&mut hand, genesis(), v1);
    let second = certificate(v1, None, rogue.prepare(&mut hand, &body, &[0, 1, 3]));
    match (first.is_some(), second.is_some()) {
        (true, false) => Ok(()),
        (true, true) => Err("two certificates of one client, nothing completed".to_string()),
        (false, _) => Err("v0 was not approved".to_string()),
    }
}

/// Before its stop c signs a PREPARE over each of two certificates. The first is used; good writes
/// clear its slot; then the second is sent, while the next good write is under way.
fn pre_signed(stage: &mut Stage) -> Result<(), String> {
    let mut hand = Hand::new(Protocol::BftBc(Variant::Base), stage, |_| {})?;
    let mut rogue = Rogue::new(9);
    let (writer, reader) = (client(1), client(2));
    let mut asked = Vec::new();
    for (text, left) in [("a", "v0"), ("b", "v1")] {
        hand.invoke(writer, Call::Write(value(text)));
        hand.exchange(writer, &[0, 1, 2]);
        hand.expect(writer, text)?;
        hand.invoke(reader, Call::Read);
        hand.deliver(|packet| packet.from == reader.into() && packet.is_to(0));
        let held = hand.sent(server(0), reader.into());
        hand.exchange(reader, &[0, 1, 2]);
        let Some(Body::BcReadReply { pcert, .. }) = held.into_iter().next() else {
            return Err("server 0 did not answer".to_string());
        };
        let version = rogue.version(pcert.version.val + 1, &value(left));
        asked.push((version, rogue.sign_prepare(&mut hand, Predecessor::Prepared(pcert), version), left));
    }
    rogue.stop(&mut hand);
    let read = |hand: &mut Hand| {
        hand.invoke(reader, Call::Read);
        hand.exchange(reader, &[0, 1, 2]);
    };
    read(&mut hand);
    for (index, (version, body, text)) in asked.iter().enumerate() {
        if let Some(pcert) = certificate(*version, None, rogue.prepare(&mut hand, body, &[0, 1, 2])) {
            write(&mut hand, rogue.me, &value(text), &pcert, &[0, 1, 2]);
        } else if index == 0 {
            return Err("the one request that may be used was refused".to_string());
        }
        read(&mut hand);
        if index == 0 {
            hand.invoke(writer, Call::Write(value("d")));
            hand.exchange(writer, &[0, 1, 2]);
            hand.expect(writer, "d")?;
            hand.invoke(writer, Call::Write(value("e")));
            hand.deliver(|packet| {
                packet.between(writer, &[0, 1, 2]) && packet.message.body.name() != "WRITE"
            });
        }
    }
    hand.exchange(writer, &[0, 1, 2]);
    hand.expect(writer, "e")?;
    hand.check()?;
    crate::checker::lurking::check(&hand.history, Variant::Base)
}

/// A client prepares on one object and writes the certificate to another.
fn other_object(stage: &mut Stage) -> Result<(), String> {
    let mut hand = Hand::new(Protocol::BftBc(Variant::Base), stage, |_| {})?;
    let mut rogue = Rogue::new(9);
    let v = value("elsewhere");
    let version = rogue.version(1, &v);
    let mut object = crate::hand::OBJECT;
    object.0[0] ^= 1;
    let body = rogue.sign_prepare_about(&mut hand, object, genesis(), version);
    let mut signatures = Vec::new();
    for number in 0..3 {
        hand.tell_about(object, rogue.me, server(number), body.clone());
        for answer in hand.sent(server(number), Principal::from(rogue.me)) {
            if let Body::PrepareReply { signature, .. } = answer {
                signatures.push((ReplicaId(number), signature));
            }
        }
    }
    let pcert = certificate(version, None, signatures).ok_or("nothing was approved")?;
    write(&mut hand, rogue.me, &v, &pcert, &[0, 1, 2]);
    let reader = client(1);
    hand.invoke(reader, Call::Read);
    hand.exchange(reader, &[0, 1, 2]);
    hand.expect(reader, "")
}
