//! Faults that move: a replica that was correct lies from a moment on, and a liar is cleaned.

use super::World;
use crate::adversary::maker::LiarMaker;
use crate::app::App;
use crate::trace::What;

impl<A: App> World<A> {
    /// Lets the replica of host `h` lie from now on, with all that it knows. Says whether it runs, and was correct.
    pub fn turn(&mut self, h: usize, maker: LiarMaker) -> bool {
        let host = &mut self.hosts[h];
        let (id, alone) = (host.id, self.addresses[host.id.index()].len() == 1);
        if !host.correct || !alone {
            return false;
        }
        let Some(process) = host.process.take() else { return false };
        host.correct = false;
        let process = process.with_core(|core| self.lying(h, core.0.into_replica(), maker.make()));
        self.hosts[h].process = Some(Box::new(process));
        self.tell(h, || What::Fault(format!("lies from now on: {maker:?}")));
        self.liars.insert(id, maker);
        self.checkers.turned(id);
        self.counters.fault("turned liar");
        self.settle(h);
        true
    }

    /// Cleans the machine of a liar, after `ns` nanoseconds in which nothing runs there: its disk is new, its keys and
    /// its program are right. Its replica has to rejoin. Says whether a liar was there.
    pub fn cleanse(&mut self, h: usize, ns: u64) -> bool {
        let id = self.hosts[h].id;
        if !self.liars.contains_key(&id) {
            return false;
        }
        self.clean(h);
        self.wipe(h);
        self.checkers.forgot(id);
        self.restart_later(h, ns);
        true
    }
}
