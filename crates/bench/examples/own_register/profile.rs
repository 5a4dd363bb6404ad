//! The profile: a server that tires. After some messages it sends nothing any more.

use quorate_quorum::Message;
use quorate_quorum_sim::profile::{Behaviour, Scene};
use quorate_wire::Principal;

/// How many messages it sends.
const STRENGTH: u32 = 15;

struct Tired(u32);

/// What the tools are given.
pub(crate) fn tired() -> Box<dyn Behaviour + Send> {
    Box::new(Tired(0))
}

impl Behaviour for Tired {
    fn outgoing(&mut self, to: Principal, message: Message, scene: &mut Scene<'_>) {
        self.0 += 1;
        if self.0 <= STRENGTH {
            scene.send(to, message.object, message.body);
        }
    }
}
