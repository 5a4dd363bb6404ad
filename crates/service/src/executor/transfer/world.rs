//! Executors on a network that loses, duplicates and reorders messages, for tests of state transfer.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use quorate_wire::message::Fetch;
use quorate_wire::{ClientId, Kind, Replies};

use super::*;
use crate::builtin::kv::{Kv, Operation};
use crate::options::Options;
use crate::page::PageFault;
use crate::testing::{Xorshift, batch, domains};
use crate::transfer::{OUTSTANDING_MAX, Refusal, Step};

/// The one that fetches.
pub(super) const TARGET: usize = 0;

fn options() -> Options {
    Options { clients_max: 200, pages_max: 1 << 17, ..crate::testing::options() }
}

fn executor() -> Executor<Kv> {
    Executor::new(Kv, domains(), options())
}

/// How a replica answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Manner {
    Correct,
    /// Sends no answers.
    Silent,
    /// Changes a bit of every answer.
    Flips,
    /// Answers with another part of its state.
    Strays,
    /// Answers from an earlier checkpoint.
    Stale,
    /// Answers correctly now and then, and not at all otherwise.
    Slow,
}

pub(super) const MANNERS: [Manner; 6] =
    [Manner::Correct, Manner::Silent, Manner::Flips, Manner::Strays, Manner::Stale, Manner::Slow];

#[derive(Clone, Debug)]
pub(super) enum Packet {
    Question(Fetch),
    Answer(Kind, Vec<u8>),
}

pub(super) struct World {
    pub(super) nodes: Vec<Executor<Kv>>,
    pub(super) manners: Vec<Manner>,
    pub(super) random: Xorshift,
    /// Of a thousand packets.
    pub(super) lost: u64,
    pub(super) doubled: u64,
    pub(super) queue: BTreeMap<(u64, u64), (usize, usize, Packet)>,
    sent: u64,
    pub(super) now: u64,
    pub(super) questions: u64,
    pub(super) pages: u64,
    pub(super) lies: Vec<usize>,
    /// Every answer that node 0 got, with its sender.
    pub(super) answers: Vec<(usize, Packet)>,
    pub(super) installed: Option<(SeqNum, Digest)>,
    pub(super) distrusted: bool,
    /// The page that was missing and came.
    pub(super) restored: Option<u32>,
    /// How often all others had been asked for a page, and none had it.
    pub(super) missing: usize,
    /// How often a part of the target was said to be given by nobody.
    pub(super) stalled: u64,
}

impl World {
    pub(super) fn new(seed: u64, manners: &[Manner]) -> Self {
        Self {
            nodes: (0..=manners.len()).map(|_| executor()).collect(),
            manners: manners.to_vec(),
            random: Xorshift::new(seed),
            lost: 0,
            doubled: 0,
            queue: BTreeMap::new(),
            sent: 0,
            now: 1_000_000_000,
            questions: 0,
            pages: 0,
            lies: Vec::new(),
            answers: Vec::new(),
            installed: None,
            distrusted: false,
            restored: None,
            missing: 0,
            stalled: 0,
        }
    }

    /// Executes a batch of puts at the nodes in `at`.
    pub(super) fn execute(&mut self, at: Range<usize>, keys: &[u64], value: u8) {
        self.order(at, keys, |key, out| Operation::Put { key, value: &[value; 100] }.encode(out));
    }

    /// Executes a batch that removes keys at the nodes in `at`.
    pub(super) fn remove(&mut self, at: Range<usize>, keys: &[u64]) {
        self.order(at, keys, |key, out| Operation::Del { key }.encode(out));
    }

    pub(super) fn order(&mut self, at: Range<usize>, keys: &[u64], encode: impl Fn(&[u8], &mut Vec<u8>)) {
        let mut operations = Vec::new();
        for key in keys {
            self.sent += 1;
            let mut operation = Vec::new();
            encode(alloc::format!("key {key:08}").as_bytes(), &mut operation);
            operations.push((ClientId::new(1 + self.random.below(150), 0), self.sent, operation));
        }
        let requests: Vec<_> =
            operations.iter().map(|(client, t, operation)| (*client, *t, &operation[..])).collect();
        let batch = batch(&requests, 5);
        for node in &mut self.nodes[at] {
            let seq = node.last_executed().next();
            node.execute(seq, &batch, false, &mut Replies::new()).unwrap();
        }
    }

    /// These replicas forget the checkpoints before `below`.
    pub(super) fn discard(&mut self, nodes: Range<usize>, below: SeqNum) {
        let now = self.now;
        self.nodes[nodes].iter_mut().for_each(|node| node.discard(now, below));
    }

    /// Cuts a checkpoint at the nodes in `at` and returns it.
    pub(super) fn cut(&mut self, at: Range<usize>) -> (SeqNum, Digest) {
        let cut: Vec<_> = self.nodes[at]
            .iter_mut()
            .map(|node| (node.last_executed(), node.checkpoint(node.last_executed())))
            .collect();
        assert!(cut.iter().all(|other| *other == cut[0]));
        cut[0]
    }

    /// Gives every node `count` keys and a checkpoint.
    pub(super) fn populate(&mut self, at: Range<usize>, count: u64, value: u8) -> (SeqNum, Digest) {
        let keys: Vec<u64> = (0..count).collect();
        for keys in keys.chunks(100) {
            self.execute(at.clone(), keys, value);
        }
        self.cut(at)
    }

    pub(super) fn fetch(&mut self, (seq, root): (SeqNum, Digest), check: bool) {
        let peers: Vec<ReplicaId> = (1..self.nodes.len()).map(ReplicaId::at).collect();
        let mut steps = Steps::new();
        self.nodes[TARGET].fetch(self.now, seq, root, check, &peers, &mut steps);
        self.perform(TARGET, &steps);
    }

    pub(super) fn perform(&mut self, at: usize, steps: &Steps) {
        for step in steps.list() {
            match *step {
                Step::Ask { to, question } => {
                    self.questions += 1;
                    self.send(at, to.index(), &Packet::Question(question));
                }
                Step::Answer { to, kind, body } => {
                    let mut body = steps.bytes(body).to_vec();
                    if self.manners[at - 1] == Manner::Flips {
                        // Behind the number of the question, or it would be no answer at all.
                        let byte =
                            17 + usize::try_from(self.random.next() % 4096).unwrap() % (body.len() - 17);
                        body[byte] ^= 1 << self.random.below(8);
                    }
                    self.send(at, to.index(), &Packet::Answer(kind, body));
                }
                Step::Refused { from, why: Refusal::Lie } => self.lies.push(from.index()),
                Step::Refused { .. } => {}
                Step::Distrusted => self.distrusted = true,
                Step::PageRestored { page } => self.restored = Some(page),
                Step::PageMissing { .. } => self.missing += 1,
                Step::Stalled => self.stalled += 1,
                Step::Installed { seq, root } => self.installed = Some((seq, root)),
            }
        }
        assert!(self.nodes[TARGET].outstanding() <= OUTSTANDING_MAX);
    }

    pub(super) fn send(&mut self, from: usize, to: usize, packet: &Packet) {
        let copies = 1 + u64::from(self.random.below(1000) < self.doubled);
        for _ in 0..copies {
            self.sent += 1;
            if self.random.below(1000) >= self.lost {
                let at = self.now + 50_000 + self.random.below(1_000_000);
                self.queue.insert((at, self.sent), (from, to, packet.clone()));
            }
        }
    }

    /// Delivers the next packet or lets the next deadline come. Returns whether there was any.
    pub(super) fn step(&mut self) -> bool {
        let mut steps = Steps::new();
        let deadline = self.nodes[TARGET].deadline();
        match self.queue.first_entry() {
            Some(entry) if deadline.is_none_or(|deadline| entry.key().0 <= deadline) => {
                let ((at, _), (from, to, packet)) = entry.remove_entry();
                self.now = self.now.max(at);
                self.deliver(from, to, packet, &mut steps);
                self.perform(to, &steps);
            }
            _ => {
                let Some(deadline) = deadline else { return false };
                self.now = self.now.max(deadline);
                self.nodes[TARGET].on_deadline(self.now, &mut steps);
                self.perform(TARGET, &steps);
            }
        }
        true
    }

    pub(super) fn deliver(&mut self, from: usize, to: usize, packet: Packet, steps: &mut Steps) {
        let (now, sender) = (self.now, ReplicaId::at(from));
        if to == TARGET {
            self.answers.push((from, packet.clone()));
        }
        match packet {
            Packet::Question(mut question) => {
                match self.manners[to - 1] {
                    Manner::Silent => return,
                    Manner::Slow if self.random.below(5) > 0 => return,
                    Manner::Strays => question.index ^= 1,
                    Manner::Stale => {
                        let oldest = self.nodes[to].checkpoints().next().unwrap();
                        question.checkpoint = oldest.0;
                    }
                    Manner::Correct | Manner::Flips | Manner::Slow => {}
                }
                self.nodes[to].on_fetch(now, sender, &question, steps);
            }
            Packet::Answer(Kind::Data, body) => {
                if let Ok(answer) = Data::decode(&body) {
                    self.pages += 1;
                    self.nodes[to].on_data(now, sender, &answer, steps);
                }
            }
            Packet::Answer(_, body) => {
                if let Ok(answer) = MetaData::decode(&body) {
                    self.nodes[to].on_meta_data(now, sender, &answer, steps);
                }
            }
        }
    }

    /// Fetches one page, and runs until that is finished.
    pub(super) fn repair(&mut self, page: u32) {
        let peers: Vec<ReplicaId> = (1..self.nodes.len()).map(ReplicaId::at).collect();
        let mut steps = Steps::new();
        self.nodes[TARGET].repair(self.now, PageFault { page }, &peers, &mut steps);
        self.perform(TARGET, &steps);
        for _ in 0..1000 {
            if self.restored.is_some() || !self.step() {
                break;
            }
        }
        assert_eq!(self.restored.take(), Some(page));
    }

    /// Runs the transfer until it is finished, and checks the result.
    #[track_caller]
    pub(super) fn finish(&mut self, target: (SeqNum, Digest)) {
        for _ in 0..200_000 {
            if self.installed.is_some() || !self.step() {
                break;
            }
        }
        assert_eq!(self.installed.take(), Some(target));
        let node = &self.nodes[TARGET];
        assert_eq!((node.last_executed(), node.recompute()), target);
        assert_eq!(node.root_at(target.0), Some(target.1));
        assert_eq!((node.deadline(), node.progress()), (None, None));
        assert!(!core::mem::take(&mut self.distrusted));
    }

    /// Node 0 continues like node 1: same replies, same clients, same root.
    pub(super) fn check_that_it_goes_on(&mut self) {
        let mut clients = [Vec::new(), Vec::new()];
        for (node, clients) in self.nodes.iter().zip(&mut clients) {
            node.clients(clients);
            clients.sort_unstable();
        }
        if self.nodes[0].last_executed() == self.nodes[1].last_executed() {
            assert_eq!(clients[0], clients[1]);
            self.execute(0..2, &[1, 2, 3, 99_999], 77);
            self.cut(0..2);
        }
    }
}

impl Executor<Kv> {
    pub(super) fn outstanding(&self) -> usize {
        self.transfer.outstanding()
    }

    pub(super) fn pages_held(&self) -> u64 {
        u64::try_from(self.state.pages_at(self.state.newest()).len()).unwrap()
    }
}
