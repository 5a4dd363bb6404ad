//! Byzantine behaviours of a replica that collects replies (RP-6).

use quorate_process::endpoint::Place;
use quorate_wire::Kind;

use super::{Answered, Liar};
use crate::rng::Rng;

/// K5, K11: keeps the REPLYs that it should pass on to clients, or spoils them.
#[derive(Debug)]
pub struct BadCollector {
    /// Whether it keeps them.
    keeps: bool,
}

impl BadCollector {
    /// Returns one that keeps them.
    pub fn silent() -> Self {
        Self { keeps: true }
    }

    /// Returns one that spoils them.
    pub fn spoiling() -> Self {
        Self { keeps: false }
    }
}

impl Liar for BadCollector {
    fn tamper(&mut self, _rng: &mut Rng, _to: Place, frame: &mut Vec<u8>) -> Answered {
        if frame.get(3).copied() != Some(Kind::Reply.to_wire()) {
            return Answered::Truth;
        }
        if self.keeps {
            return Answered::Silence;
        }
        if let Some(last) = frame.last_mut() {
            *last ^= 1;
        }
        Answered::Lie
    }

    fn tampers(&self) -> bool {
        true
    }
}
