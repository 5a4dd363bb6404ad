//! A network that looks into frames: it may hold any one of them back for as long as it likes, across restarts and
//! rejoins, and let those of one kind, or about some numbers, come late. Asynchrony is no more than that.

use quorate_wire::Kind;
use quorate_wire::frame::HEADER_BYTES;

use super::NodeId;

/// How many frames are waited for, and how many delays there are at most. At the bound the oldest goes.
const RULES_MAX: usize = 32;

/// Frames of a kind that come late.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delay {
    /// Of which kind.
    pub kind: Kind,
    /// Only those of this node.
    pub from: Option<NodeId>,
    /// Only those about numbers that leave this remainder when divided by that: (3, 8) are 3, 11, 19, ...
    pub numbers: Option<(u64, u64)>,
    /// How late, in nanoseconds.
    pub by_ns: u64,
}

/// What is held back.
#[derive(Clone, Debug, Default)]
pub struct Schedule {
    /// From whom, of which kind, how many frames, and until when.
    held: Vec<(NodeId, u8, usize, u64)>,
    delays: Vec<Delay>,
}

impl Schedule {
    /// Holds the next `frames` frames of this kind from `from` until world time `until`. A message to several is a
    /// frame for each.
    pub fn hold(&mut self, from: NodeId, kind: Kind, frames: usize, until: u64) {
        if self.held.len() == RULES_MAX {
            self.held.remove(0);
        }
        self.held.push((from, kind.to_wire(), frames, until));
    }

    /// Lets frames come late from now on.
    pub fn delay(&mut self, delay: Delay) {
        if self.delays.len() == RULES_MAX {
            self.delays.remove(0);
        }
        self.delays.push(delay);
    }

    /// Ends all that is to come. What is held already stays where it is.
    pub fn heal(&mut self) {
        self.held.clear();
        self.delays.clear();
    }

    /// Says until when a frame of `from` is held, if it is one that is waited for.
    pub(super) fn holds(&mut self, from: NodeId, frame: &[u8]) -> Option<u64> {
        let kind = *frame.get(3)?;
        let at = self.held.iter().position(|(of, wanted, ..)| (*of, *wanted) == (from, kind))?;
        let (_, _, left, until) = &mut self.held[at];
        let until = *until;
        *left -= 1;
        if *left == 0 {
            self.held.remove(at);
        }
        Some(until)
    }

    /// Says how late a frame comes, in nanoseconds.
    pub(super) fn delays(&self, from: NodeId, frame: &[u8]) -> u64 {
        if self.delays.is_empty() {
            return 0;
        }
        let Some(kind) = frame.get(3) else { return 0 };
        let fits = |delay: &&Delay| {
            let number = || number_of(delay.kind, frame);
            delay.kind.to_wire() == *kind
                && delay.from.is_none_or(|of| of == from)
                && delay.numbers.is_none_or(|(rest, by)| number().is_some_and(|n| n % by.max(1) == rest))
        };
        self.delays.iter().filter(fits).map(|delay| delay.by_ns).max().unwrap_or(0)
    }
}

/// The sequence number that a frame is about.
#[allow(clippy::wildcard_enum_match_arm, reason = "the others are about no number")]
fn number_of(kind: Kind, frame: &[u8]) -> Option<u64> {
    let at = match kind {
        // Behind the view.
        Kind::PrePrepare | Kind::Prepare | Kind::Commit | Kind::Committed => HEADER_BYTES + 8,
        Kind::Checkpoint => HEADER_BYTES,
        _ => return None,
    };
    Some(u64::from_le_bytes(frame.get(at..at + 8)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::super::{Flight, Frame, Network, Profile};
    use super::*;

    fn frame(kind: Kind, number: u64) -> Frame {
        let mut bytes = vec![0; HEADER_BYTES + 16];
        bytes[3] = kind.to_wire();
        bytes[HEADER_BYTES + 8..].copy_from_slice(&number.to_le_bytes());
        bytes.into()
    }

    fn arrivals(network: &mut Network, from: NodeId, frame: &Frame) -> Vec<u64> {
        let mut flights: Vec<Flight> = Vec::new();
        network.send(100, from, NodeId(2), frame, &mut flights);
        flights.iter().map(|flight| flight.at).collect()
    }

    /// The next frame of its kind, no other, and also behind the end of all faults.
    #[test]
    fn one_frame_is_held_and_comes_in_the_end() {
        let mut network = Network::new(1, 3, Profile::fixed(10));
        network.schedule.hold(NodeId(0), Kind::Prepare, 1, 5_000);
        let prepare = frame(Kind::Prepare, 7);
        assert_eq!(arrivals(&mut network, NodeId(0), &frame(Kind::Commit, 7)), [110]);
        assert_eq!(arrivals(&mut network, NodeId(1), &prepare), [110]);
        assert_eq!(arrivals(&mut network, NodeId(0), &prepare), [5_000]);
        assert_eq!(arrivals(&mut network, NodeId(0), &prepare), [110]);
        assert_eq!(network.traffic.held, 1);
    }

    #[test]
    fn what_is_about_some_numbers_comes_late() {
        let mut network = Network::new(1, 3, Profile::fixed(10));
        network.schedule.delay(Delay { kind: Kind::Commit, from: None, numbers: Some((3, 4)), by_ns: 1_000 });
        let at = |network: &mut Network, kind, n| arrivals(network, NodeId(0), &frame(kind, n));
        assert_eq!(at(&mut network, Kind::Commit, 7), [1_110]);
        assert_eq!(at(&mut network, Kind::Commit, 8), [110]);
        assert_eq!(at(&mut network, Kind::Prepare, 7), [110]);
        network.heal();
        assert_eq!(at(&mut network, Kind::Commit, 7), [110]);
    }
}
