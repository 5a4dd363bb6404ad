//! The network: delay, loss, duplication, reordering, corruption, replay, partitions and congestion (N1-N8).
//!
//! Links are directed: each direction has its own faults. The authenticator decides which frames are accepted, so a
//! frame may arrive at any node, at any time, more than once.

use std::collections::VecDeque;
use std::rc::Rc;

use quorate_wire::Kind;

pub use self::schedule::{Delay, Schedule};
use crate::rng::{Concern, Rng};

mod schedule;

/// A node's place in the world: replicas first, then second copies of replicas (twins), then clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u16);

impl NodeId {
    /// Returns the node at `index`. A world has fewer than 65,536 nodes.
    pub fn at(index: usize) -> Self {
        let Ok(id) = u16::try_from(index) else { unreachable!("a world has fewer than 65,536 nodes") };
        Self(id)
    }

    /// Returns the node's place in a vector with one entry a node.
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// How a network behaves while it is not told otherwise. Chances are per million frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Profile {
    /// The shortest and longest base delay of a link, drawn once for each direction, in nanoseconds.
    pub delay_ns: (u64, u64),
    /// The most that is added to the base delay of one frame, in nanoseconds.
    pub jitter_ns: u64,
    /// Frames lost.
    pub loss: u32,
    /// Frames that come twice.
    pub duplicate: u32,
    /// Frames held back.
    pub reorder: u32,
    /// The longest that a frame is held back, in nanoseconds.
    pub reorder_ns: u64,
    /// Frames whose bytes are damaged.
    pub corrupt: u32,
    /// Frames followed by an old one, on any link.
    pub replay: u32,
}

impl Profile {
    /// Every frame arrives after the same time, in order.
    pub fn fixed(delay_ns: u64) -> Self {
        Self {
            delay_ns: (delay_ns, delay_ns),
            jitter_ns: 0,
            loss: 0,
            duplicate: 0,
            reorder: 0,
            reorder_ns: 0,
            corrupt: 0,
            replay: 0,
        }
    }

    /// A local network on a good day.
    pub fn lan() -> Self {
        Self { delay_ns: (50_000, 200_000), jitter_ns: 50_000, ..Self::fixed(0) }
    }
}

/// A frame on its way. Copies for several receivers share the bytes.
pub type Frame = Rc<[u8]>;

/// Messages in flight, with their destinations and arrival times.
#[derive(Clone, Debug)]
pub struct Flight {
    /// When, in nanoseconds of world time.
    pub at: u64,
    /// The sender.
    pub from: NodeId,
    /// The receiver.
    pub to: NodeId,
    /// The bytes that arrive.
    pub frame: Frame,
}

/// Counts of the frames' fates, for the summary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Traffic {
    /// Frames handed over.
    pub sent: u64,
    /// Lost randomly.
    pub lost: u64,
    /// Lost on a cut link.
    pub cut: u64,
    /// Doubled.
    pub doubled: u64,
    /// Held back.
    pub reordered: u64,
    /// Damaged.
    pub damaged: u64,
    /// Old ones sent again.
    pub replayed: u64,
    /// Kept back by somebody who looks into them.
    pub held: u64,
}

/// How many old frames are kept for replays. At the bound the oldest goes.
const REPLAY_MAX: usize = 128;

/// The network of one world.
#[derive(Debug)]
pub struct Network {
    rng: Rng,
    profile: Profile,
    nodes: usize,
    /// One entry for each directed link.
    links: Vec<Link>,
    /// Kinds of frames that are lost on a link.
    muted: Vec<(NodeId, NodeId, u8)>,
    /// What somebody who looks into frames holds back.
    pub schedule: Schedule,
    /// Old frames, at most [`REPLAY_MAX`].
    old: VecDeque<Frame>,
    /// The counts so far.
    pub traffic: Traffic,
}

#[derive(Clone, Copy, Debug, Default)]
struct Link {
    base_ns: u64,
    cut: bool,
    /// Nothing arrives before this time.
    clogged_until: u64,
    /// Extra loss on this link, per million.
    loss: u32,
    /// Extra delay on this link, in nanoseconds.
    slow_ns: u64,
}

impl Network {
    /// Returns a network of `nodes` nodes.
    pub fn new(seed: u64, nodes: usize, profile: Profile) -> Self {
        let mut rng = Rng::new(seed, Concern::Network);
        let (low, high) = profile.delay_ns;
        let links =
            (0..nodes * nodes).map(|_| Link { base_ns: rng.between(low, high), ..Link::default() }).collect();
        Self {
            rng,
            profile,
            nodes,
            links,
            muted: Vec::new(),
            schedule: Schedule::default(),
            old: VecDeque::new(),
            traffic: Traffic::default(),
        }
    }

    /// Returns the profile.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// Changes everything of the profile but the links' base delays.
    pub fn set_profile(&mut self, profile: Profile) {
        self.profile = profile;
    }

    /// Cuts or mends one direction of a link.
    pub fn cut(&mut self, from: NodeId, to: NodeId, cut: bool) {
        self.link(from, to).cut = cut;
    }

    /// Cuts or mends a link.
    pub fn cut_both(&mut self, a: NodeId, b: NodeId, cut: bool) {
        self.cut(a, b, cut);
        self.cut(b, a, cut);
    }

    /// Returns whether frames get through from `from` to `to`.
    pub fn is_cut(&self, from: NodeId, to: NodeId) -> bool {
        self.links[from.index() * self.nodes + to.index()].cut
    }

    /// Cuts every link between nodes of different groups. Nodes in no group keep all their links.
    pub fn partition(&mut self, groups: &[&[NodeId]]) {
        for (i, group) in groups.iter().enumerate() {
            for other in &groups[i + 1..] {
                for &a in *group {
                    for &b in *other {
                        self.cut_both(a, b, true);
                    }
                }
            }
        }
    }

    /// Holds everything on a link until `until`; then it all arrives together.
    pub fn clog(&mut self, from: NodeId, to: NodeId, until: u64) {
        let link = self.link(from, to);
        link.clogged_until = link.clogged_until.max(until);
    }

    /// Loses every frame of this kind in one direction of a link: what an adversary can do that looks
    /// into frames.
    pub fn mute(&mut self, from: NodeId, to: NodeId, kind: Kind) {
        self.muted.push((from, to, kind.to_wire()));
    }

    /// Adds loss (per million) and delay (nanoseconds) to one direction of a link.
    pub fn worsen(&mut self, from: NodeId, to: NodeId, loss: u32, slow_ns: u64) {
        let link = self.link(from, to);
        link.loss = loss;
        link.slow_ns = slow_ns;
    }

    /// Ends every fault: all links whole, nothing lost, damaged or held back any more.
    pub fn heal(&mut self) {
        for link in &mut self.links {
            *link = Link { base_ns: link.base_ns, ..Link::default() };
        }
        let Profile { delay_ns, jitter_ns, .. } = self.profile;
        self.profile = Profile { delay_ns, jitter_ns, ..Profile::fixed(0) };
        self.old.clear();
        self.muted.clear();
        self.schedule.heal();
    }

    /// Takes a frame and says where and when it, or what is left of it, arrives.
    pub fn send(&mut self, now: u64, from: NodeId, to: NodeId, frame: &Frame, flights: &mut Vec<Flight>) {
        self.traffic.sent += 1;
        let profile = self.profile;
        if profile.replay > 0 {
            self.replay(now, from, frame, flights);
        }
        let link = *self.link(from, to);
        let muted = |kind: u8| self.muted.contains(&(from, to, kind));
        if link.cut || !self.muted.is_empty() && frame.get(3).is_some_and(|kind| muted(*kind)) {
            self.traffic.cut += 1;
            return;
        }
        if let Some(until) = self.schedule.holds(from, frame) {
            self.traffic.held += 1;
            return flights.push(Flight { at: until.max(now), from, to, frame: frame.clone() });
        }
        if self.rng.chance(profile.loss) || self.rng.chance(link.loss) {
            self.traffic.lost += 1;
            return;
        }
        let late = self.schedule.delays(from, frame);
        let copies = if self.rng.chance(profile.duplicate) { 2 } else { 1 };
        self.traffic.doubled += copies - 1;
        for _ in 0..copies {
            let mut at = now + link.base_ns + link.slow_ns + late;
            if profile.jitter_ns > 0 {
                at += self.rng.below(profile.jitter_ns);
            }
            if self.rng.chance(profile.reorder) {
                self.traffic.reordered += 1;
                at += self.rng.below(profile.reorder_ns);
            }
            let at = at.max(link.clogged_until);
            let frame = if self.rng.chance(profile.corrupt) {
                self.traffic.damaged += 1;
                self.damage(frame)
            } else {
                frame.clone()
            };
            flights.push(Flight { at, from, to, frame });
        }
    }

    /// Remembers `frame` and now and then sends an old one, from anyone to anyone (N5).
    fn replay(&mut self, now: u64, from: NodeId, frame: &Frame, flights: &mut Vec<Flight>) {
        if self.rng.one_in(8) {
            if self.old.len() == REPLAY_MAX {
                self.old.pop_front();
            }
            self.old.push_back(frame.clone());
        }
        if !self.rng.chance(self.profile.replay) {
            return;
        }
        let (index, to) = (self.rng.index(self.old.len()), NodeId::at(self.rng.index(self.nodes)));
        if let Some(old) = self.old.get(index)
            && !self.is_cut(from, to)
        {
            self.traffic.replayed += 1;
            flights.push(Flight { at: now + self.rng.below(1_000_000), from, to, frame: old.clone() });
        }
    }

    /// Returns a damaged copy: bits flipped, cut short, or grown (N4, N9).
    fn damage(&mut self, frame: &Frame) -> Frame {
        let mut bytes = frame.to_vec();
        match self.rng.below(6) {
            0 => bytes.truncate(self.rng.index(frame.len())),
            1 => {
                let more = self.rng.between(1, 40);
                bytes.extend((0..more).map(|_| self.rng.bits().to_le_bytes()[0]));
            }
            2 => {
                // A length or count field set to an extreme.
                let at = self.rng.index(bytes.len().saturating_sub(3));
                let extreme = self.rng.pick(&[0, 1, u32::MAX, u32::MAX >> 1, 1 << 31]).unwrap_or(0);
                if let Some(room) = bytes.get_mut(at..at + 4) {
                    room.copy_from_slice(&extreme.to_le_bytes());
                }
            }
            _ => {
                for _ in 0..self.rng.between(1, 3) {
                    let (at, bit) = (self.rng.index(bytes.len()), self.rng.below(8));
                    if let Some(byte) = bytes.get_mut(at) {
                        *byte ^= 1 << bit;
                    }
                }
            }
        }
        bytes.into()
    }

    fn link(&mut self, from: NodeId, to: NodeId) -> &mut Link {
        &mut self.links[from.index() * self.nodes + to.index()]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: NodeId = NodeId(0);
    const B: NodeId = NodeId(1);
    const C: NodeId = NodeId(2);

    fn send(network: &mut Network, from: NodeId, to: NodeId, count: usize) -> Vec<Flight> {
        let mut flights = Vec::new();
        for i in 0..count {
            let frame: Frame = vec![7; 40 + i % 7].into();
            network.send(0, from, to, &frame, &mut flights);
        }
        flights
    }

    #[test]
    fn a_cut_has_a_direction() {
        let mut network = Network::new(1, 3, Profile::lan());
        network.cut(A, B, true);
        assert_eq!(send(&mut network, A, B, 10).len(), 0);
        assert_eq!(send(&mut network, B, A, 10).len(), 10);
        network.heal();
        assert_eq!(send(&mut network, A, B, 10).len(), 10);
    }

    #[test]
    fn one_kind_may_be_muted() {
        let mut network = Network::new(1, 3, Profile::lan());
        network.mute(A, B, Kind::Commit);
        let mut flights = Vec::new();
        for kind in [Kind::Commit, Kind::Prepare] {
            let frame: Frame = vec![0x42, 0x51, 1, kind.to_wire(), 0].into();
            network.send(0, A, B, &frame, &mut flights);
        }
        assert_eq!(flights.len(), 1);
        network.heal();
        let frame: Frame = vec![0x42, 0x51, 1, Kind::Commit.to_wire(), 0].into();
        network.send(0, A, B, &frame, &mut flights);
        assert_eq!(flights.len(), 2);
    }

    #[test]
    fn a_partition_separates_groups_only() {
        let mut network = Network::new(1, 4, Profile::lan());
        network.partition(&[&[A], &[B, C]]);
        assert!(network.is_cut(A, B) && network.is_cut(C, A));
        assert!(!network.is_cut(B, C) && !network.is_cut(A, NodeId(3)));
    }

    /// N1-N5: each kind of trouble happens about as often as the profile says.
    #[test]
    fn chances_are_those_of_the_profile() {
        let tenth = 100_000;
        let profile = Profile {
            loss: tenth,
            duplicate: tenth,
            reorder: tenth,
            reorder_ns: 1_000_000_000,
            corrupt: tenth,
            replay: tenth,
            ..Profile::lan()
        };
        let mut network = Network::new(5, 3, profile);
        send(&mut network, A, B, 10_000);
        let t = network.traffic;
        for (what, count) in [
            ("lost", t.lost),
            ("doubled", t.doubled),
            ("reordered", t.reordered),
            ("damaged", t.damaged),
            ("replayed", t.replayed),
        ] {
            assert!((800..1300).contains(&count), "{what}: {count} of 10000");
        }
    }

    #[test]
    fn a_clogged_link_delivers_late_and_all_at_once() {
        let mut network = Network::new(1, 2, Profile::fixed(10));
        network.clog(A, B, 5000);
        assert!(send(&mut network, A, B, 3).iter().all(|flight| flight.at == 5000));
        assert!(send(&mut network, B, A, 3).iter().all(|flight| flight.at == 10));
    }
}
