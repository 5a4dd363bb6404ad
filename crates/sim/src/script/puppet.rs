//! A faulty replica in a script: it follows the protocol until the script puts a Byzantine behaviour in front of it.

use std::cell::RefCell;
use std::rc::Rc;

use quorate_process::Place;
use quorate_wire::{Kind, Message, Principal};

use crate::adversary::{Answered, Fate, Liar, Lie, Said};
use crate::rng::Rng;

/// The liar that stands in front of the replica now, if any. Shared by all its lives.
#[derive(Clone, Default)]
pub(super) struct Puppet(Rc<RefCell<Option<Box<dyn Liar>>>>);

impl std::fmt::Debug for Puppet {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0.borrow().as_ref() {
            Some(liar) => liar.fmt(f),
            None => f.write_str("nothing now"),
        }
    }
}

impl Puppet {
    /// Puts a liar in front of the replica, or takes it away.
    pub(super) fn become_liar(&self, liar: Option<Box<dyn Liar>>) {
        *self.0.borrow_mut() = liar;
    }

    fn with<T>(&self, truth: T, act: impl FnOnce(&mut dyn Liar) -> T) -> T {
        match self.0.borrow_mut().as_mut() {
            Some(liar) => act(liar.as_mut()),
            None => truth,
        }
    }
}

impl Liar for Puppet {
    fn speak(&mut self, lie: &mut Lie<'_>, said: &Said<'_>) -> Fate {
        self.with(Fate::Keep, |liar| liar.speak(lie, said))
    }

    fn hear(&mut self, lie: &mut Lie<'_>, from: Principal, message: &Message<'_>) -> bool {
        self.with(true, |liar| liar.hear(lie, from, message))
    }

    fn overhear(&mut self, rng: &mut Rng, frame: &[u8]) {
        self.with((), |liar| liar.overhear(rng, frame));
    }

    fn idle(&mut self, lie: &mut Lie<'_>) {
        self.with((), |liar| liar.idle(lie));
    }

    fn answer(&mut self, rng: &mut Rng, kind: Kind, body: &mut Vec<u8>) -> Answered {
        self.with(Answered::Truth, |liar| liar.answer(rng, kind, body))
    }

    fn tamper(&mut self, rng: &mut Rng, to: Place, frame: &mut Vec<u8>) -> Answered {
        self.with(Answered::Truth, |liar| liar.tamper(rng, to, frame))
    }

    fn tampers(&self) -> bool {
        self.with(false, |liar| liar.tampers())
    }
}
