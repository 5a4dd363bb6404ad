//! Signatures that come after the acknowledgement (§6.4).

use quorate_quorum::settings::Variant;
use quorate_quorum::step::Call;
use quorate_quorum::{Body, Mutant, Protocol};

use super::named::Scenario;
use crate::hand::{Hand, Stage, client, server, value};

pub(super) const LATE_SIGNATURES: Scenario = Scenario {
    name: "bc-late-signatures",
    source: "[ICDCS06]",
    about: "A write ends with q acknowledgements; its signatures are asked for until there are q, and the next write shows them",
    mutants: &[Mutant::LateOnce],
    play: late_signatures,
};

/// Two servers and the liar acknowledge; the liar never signs, and the signatures of the two are lost.
fn late_signatures(stage: &mut Stage) -> Result<(), String> {
    let protocol = Protocol::BftBc(Variant::Optimized);
    let mut hand = Hand::new(protocol, stage, |settings| settings.late = true)?;
    let (writer, reader) = (client(1), client(2));
    hand.invoke(writer, Call::Write(value("a")));
    hand.deliver(|packet| packet.between(writer, &[0, 1, 2]) && packet.message.body.name() != "WRITE");
    hand.deliver(|packet| packet.between(writer, &[0, 1]));
    if hand.ended(writer) > 0 {
        return Err("the write ended with two servers".to_string());
    }
    for body in hand.sent(writer, server(3)) {
        if let Body::Write { op, pcert, .. } = body {
            hand.tell(server(3), writer.into(), Body::Ack { op, version: pcert.version });
        }
    }
    hand.expect(writer, "a")?;
    // A read that follows sees it: the third server of any quorum holds it.
    hand.invoke(reader, Call::Read);
    hand.exchange(reader, &[0, 1, 2]);
    hand.expect(reader, "a")?;
    hand.fire(server(0));
    hand.fire(server(1));
    hand.lose(|packet| packet.to == writer.into() || packet.from == writer.into());
    // The next write has to show the certificate, so it waits.
    hand.invoke(writer, Call::Write(value("b")));
    hand.exchange(writer, &[0, 1, 2]);
    if hand.ended(writer) > 1 {
        return Err("a write ended that cannot show what it follows".to_string());
    }
    for _ in 0..3 {
        hand.fire(writer);
        hand.exchange(writer, &[0, 1, 2]);
        (0..3).for_each(|number| hand.fire(server(number)));
        hand.exchange(writer, &[0, 1, 2]);
    }
    hand.expect(writer, "b")?;
    hand.check()
}
