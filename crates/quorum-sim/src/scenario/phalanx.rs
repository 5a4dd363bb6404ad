//! Scenarios of PHALANX.

use quorate_quorum::step::Call;
use quorate_quorum::{Mutant, Protocol};

use super::named::Scenario;
use crate::hand::{Hand, Stage, client, value};

pub(super) const LATE_WRITE_BACK: Scenario = Scenario {
    name: "phalanx-late-write-back",
    source: "[SRDS98]",
    about: "A reader that saw an unfinished write returns only after its write-back is acknowledged (§3)",
    mutants: &[Mutant::NoWriteBack, Mutant::WriteBackUnawaited],
    play: late_write_back,
};

/// A writer stops after WR(v) has reached server 0 only. R1 reads 0, 1, 2 and its write-back is late;
/// then R2 reads 1, 2, 3. No server lies.
fn late_write_back(stage: &mut Stage) -> Result<(), String> {
    let mut hand = Hand::new(Protocol::Phalanx, stage, |_| {})?;
    let (writer, first, second) = (client(1), client(2), client(3));
    hand.invoke(writer, Call::Write(value("v")));
    hand.deliver(|packet| {
        packet.between(writer, &[0, 1, 2]) && !matches!(packet.message.body.name(), "STORE")
    });
    hand.deliver(|packet| packet.is_to(0) && packet.message.body.name() == "STORE");
    hand.end(writer);
    hand.invoke(first, Call::Read);
    hand.deliver(|packet| packet.between(first, &[0, 1, 2]) && packet.message.body.name() != "WB");
    hand.invoke(second, Call::Read);
    hand.exchange(second, &[1, 2, 3]);
    hand.expect(second, "")?;
    hand.check()?;
    hand.exchange(first, &[0, 1, 2, 3]);
    hand.expect(first, "v")?;
    hand.invoke(second, Call::Read);
    hand.exchange(second, &[1, 2, 3]);
    hand.expect(second, "v")?;
    hand.check()
}
