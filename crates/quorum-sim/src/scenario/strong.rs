//! Scenarios of the strong variants of BFT-BC (§6.7): nothing of a stopped client becomes visible
//! after two good writes that began after the stop.

use std::sync::Arc;

use quorate_quorum::cert::WriteCert;
use quorate_quorum::message::Predecessor;
use quorate_quorum::settings::Variant;
use quorate_quorum::step::Call;
use quorate_quorum::version::{Version, value_digest};
use quorate_quorum::{Body, Mutant, Protocol};
use quorate_wire::ClientId;

use super::named::Scenario;
use super::rogue::{Rogue, certificate, genesis, write};
use crate::hand::{Hand, Stage, client, value};

pub(super) const CHAIN: Scenario = Scenario {
    name: "strong-chain",
    source: "[ICDCS06]",
    about: "Colluders cannot chain certificates of writes that nobody completed (§6.7)",
    mutants: &[Mutant::PreparedPredecessor],
    play: chain,
};

pub(super) const TIME_BOMB: Scenario = Scenario {
    name: "strong-time-bomb",
    source: "[ICDCS06]",
    about: "A request that was signed before the stop, without a predecessor, is worth nothing later (H7)",
    mutants: &[Mutant::OptUnpreceded],
    play: time_bomb,
};

pub(super) const NAMED_BOMB: Scenario = Scenario {
    name: "strong-named-bomb",
    source: "[ICDCS06]",
    about: "To name the version of a live colluder before it exists is not enough (H7)",
    mutants: &[Mutant::NamedPredecessor],
    play: named_bomb,
};

/// Writes by good clients, each of which has to end.
fn good_writes(hand: &mut Hand, writer: ClientId, texts: &[&str]) -> Result<(), String> {
    for text in texts {
        hand.invoke(writer, Call::Write(value(text)));
        hand.exchange(writer, &[0, 1, 2]);
        hand.expect(writer, text)?;
    }
    Ok(())
}

fn judge(hand: &mut Hand, variant: Variant) -> Result<(), String> {
    let reader = client(2);
    hand.invoke(reader, Call::Read);
    hand.exchange(reader, &[0, 1, 2]);
    if hand.ended(reader) == 0 {
        return Err("hang: the read has not ended".to_string());
    }
    hand.check()?;
    crate::checker::lurking::check(&hand.history, variant)
}

/// Four clients prepare, each over the certificate of the one before, and complete nothing.
fn chain(stage: &mut Stage) -> Result<(), String> {
    let mut hand = Hand::new(Protocol::BftBc(Variant::Strong), stage, |_| {})?;
    let none = WriteCert { version: Version::GENESIS, signatures: Arc::new([]) };
    let mut last = None;
    for number in 0..4 {
        let mut rogue = Rogue::new(20 + number);
        let text = value(&format!("v{number}"));
        let version = rogue.version(number + 1, &text);
        let predecessor = match &last {
            None if number == 0 => Predecessor::Completed(none.clone()),
            None => genesis(),
            Some((pcert, _, _)) => Predecessor::Prepared(Clone::clone(pcert)),
        };
        let body = rogue.sign_prepare(&mut hand, predecessor, version);
        if let Some(pcert) = certificate(version, None, rogue.prepare(&mut hand, &body, &[0, 1, 2])) {
            last = Some((pcert, text, rogue.me));
        }
        rogue.stop(&mut hand);
    }
    good_writes(&mut hand, client(1), &["a", "b"])?;
    let Some((pcert, text, me)) = last else { return Err("not even the first was approved".to_string()) };
    write(&mut hand, me, &text, &pcert, &[0, 1, 2]);
    judge(&mut hand, Variant::Strong)
}

/// READ-TS-PREP without a predecessor, sent after three good writes.
fn time_bomb(stage: &mut Stage) -> Result<(), String> {
    bomb(stage, |_| None)
}

/// READ-TS-PREP that names what a colluder that lives on will write.
fn named_bomb(stage: &mut Stage) -> Result<(), String> {
    bomb(stage, |accomplice| {
        let version = Version { val: 3, client: accomplice, digest: value_digest(b"known") };
        Some(WriteCert { version, signatures: Arc::new([]) })
    })
}

fn bomb(stage: &mut Stage, predecessor: impl FnOnce(ClientId) -> Option<WriteCert>) -> Result<(), String> {
    let mut hand = Hand::new(Protocol::BftBc(Variant::StrongOptimized), stage, |_| {})?;
    let mut rogue = Rogue::new(9);
    let (writer, accomplice) = (client(1), client(3));
    let key = [5; 16];
    let text = value("bomb");
    let digest = value_digest(&text);
    let body: Body = rogue.sign_optimistic(&mut hand, digest, &key, predecessor(accomplice));
    rogue.stop(&mut hand);
    good_writes(&mut hand, writer, &["a", "b"])?;
    good_writes(&mut hand, accomplice, &["known"])?;
    let version = rogue.version(4, &text);
    let signatures = rogue.approvals(&mut hand, &body, &[0, 1, 2], |signed| signed == version);
    if let Some(pcert) = certificate(version, Some(key), signatures) {
        write(&mut hand, rogue.me, &text, &pcert, &[0, 1, 2]);
    }
    judge(&mut hand, Variant::StrongOptimized)
}
