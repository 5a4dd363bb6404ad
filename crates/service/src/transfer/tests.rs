//! State transfer between executors, over a network that loses, doubles and reorders, from replicas that
//! lie.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;
use core::ops::Range;

use quorate_wire::{ClientId, Replies};

use super::*;
use crate::kv::{Kv, Operation};
use crate::options::Options;
use crate::testing::{Xorshift, batch, domains};
use crate::tree::Label;

/// The one that fetches.
const TARGET: usize = 0;

fn options() -> Options {
    Options { clients_max: 200, pages_max: 1 << 17, ..crate::testing::options() }
}

fn executor() -> Executor<Kv> {
    Executor::new(Kv, domains(), options())
}

/// How a replica answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Manner {
    Correct,
    /// Does not answer.
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

const MANNERS: [Manner; 6] =
    [Manner::Correct, Manner::Silent, Manner::Flips, Manner::Strays, Manner::Stale, Manner::Slow];

#[derive(Clone, Debug)]
enum Packet {
    Question(Fetch),
    Answer(Kind, Vec<u8>),
}

struct World {
    nodes: Vec<Executor<Kv>>,
    manners: Vec<Manner>,
    random: Xorshift,
    /// Of a thousand packets.
    lost: u64,
    doubled: u64,
    queue: BTreeMap<(u64, u64), (usize, usize, Packet)>,
    sent: u64,
    now: u64,
    questions: u64,
    pages: u64,
    lies: Vec<usize>,
    /// Every answer that node 0 got, with its sender.
    answers: Vec<(usize, Packet)>,
    installed: Option<(SeqNum, Digest)>,
    distrusted: bool,
}

impl World {
    fn new(seed: u64, manners: &[Manner]) -> Self {
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
        }
    }

    /// Executes a batch of puts at the nodes in `at`.
    fn execute(&mut self, at: Range<usize>, keys: &[u64], value: u8) {
        self.order(at, keys, |key, out| Operation::Put { key, value: &[value; 100] }.encode(out));
    }

    /// Executes a batch that removes keys at the nodes in `at`.
    fn remove(&mut self, at: Range<usize>, keys: &[u64]) {
        self.order(at, keys, |key, out| Operation::Del { key }.encode(out));
    }

    fn order(&mut self, at: Range<usize>, keys: &[u64], encode: impl Fn(&[u8], &mut Vec<u8>)) {
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

    /// Cuts a checkpoint at the nodes in `at` and returns it.
    fn cut(&mut self, at: Range<usize>) -> (SeqNum, Digest) {
        let cut: Vec<_> = self.nodes[at]
            .iter_mut()
            .map(|node| (node.last_executed(), node.checkpoint(node.last_executed())))
            .collect();
        assert!(cut.iter().all(|other| *other == cut[0]));
        cut[0]
    }

    /// Gives every node `count` keys and a checkpoint.
    fn populate(&mut self, at: Range<usize>, count: u64, value: u8) -> (SeqNum, Digest) {
        let keys: Vec<u64> = (0..count).collect();
        for keys in keys.chunks(100) {
            self.execute(at.clone(), keys, value);
        }
        self.cut(at)
    }

    fn fetch(&mut self, (seq, root): (SeqNum, Digest), check: bool) {
        let peers: Vec<ReplicaId> = (1..self.nodes.len()).map(ReplicaId::at).collect();
        let mut steps = Steps::new();
        self.nodes[TARGET].fetch(self.now, seq, root, check, &peers, &mut steps);
        self.perform(TARGET, &steps);
    }

    fn perform(&mut self, at: usize, steps: &Steps) {
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
                Step::Installed { seq, root } => self.installed = Some((seq, root)),
            }
        }
        assert!(self.nodes[TARGET].outstanding() <= OUTSTANDING_MAX);
    }

    fn send(&mut self, from: usize, to: usize, packet: &Packet) {
        let copies = 1 + u64::from(self.random.below(1000) < self.doubled);
        for _ in 0..copies {
            self.sent += 1;
            if self.random.below(1000) >= self.lost {
                let at = self.now + 50_000 + self.random.below(1_000_000);
                self.queue.insert((at, self.sent), (from, to, packet.clone()));
            }
        }
    }

    /// Delivers the next packet or lets the next deadline come. Says whether there was any.
    fn step(&mut self) -> bool {
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

    fn deliver(&mut self, from: usize, to: usize, packet: Packet, steps: &mut Steps) {
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

    /// Lets the transfer run to its end and checks what came.
    #[track_caller]
    fn finish(&mut self, target: (SeqNum, Digest)) {
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

    /// Node 0 goes on like node 1: same replies, same clients, same root.
    fn check_that_it_goes_on(&mut self) {
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
    fn outstanding(&self) -> usize {
        self.walk.as_ref().map_or(0, Walk::outstanding)
    }

    fn pages_held(&self) -> u64 {
        u64::try_from(self.state.pages_at(self.state.newest(), 0..u32::MAX).len()).unwrap()
    }
}

/// B12, B17: an empty replica gets everything, the clients' replies included, and goes on like the others.
#[test]
fn b12_an_empty_replica_gets_state_and_replies_together() {
    let mut world = World::new(1, &[Manner::Correct; 3]);
    let target = world.populate(1..4, 2000, 1);
    world.fetch(target, false);
    world.finish(target);
    assert_eq!(world.pages, world.nodes[1].pages_held(), "each page once");
    assert!(world.lies.is_empty());
    world.check_that_it_goes_on();
}

/// ST-2 [OSDI99 §4.4]: of a state of which 1 % has changed, not much more is sent.
#[test]
fn only_the_pages_that_differ_are_sent() {
    let mut world = World::new(2, &[Manner::Correct; 3]);
    world.populate(0..4, 24_000, 1);
    let pages = world.nodes[1].pages_held();
    let changed: Vec<u64> = (0..pages / 100 - 8).map(|at| at * 7919 % 24_000).collect();
    world.execute(1..4, &changed, 2);
    let target = world.cut(1..4);
    world.fetch(target, false);
    world.finish(target);
    assert!(pages > 5000, "{pages} pages");
    assert!(world.pages * 100 < 3 * pages, "{} of {pages} pages sent", world.pages);
    assert!(world.pages * 200 > pages, "{} of {pages} pages sent", world.pages);
    assert!(world.questions * 100 < 6 * pages, "{} questions for {pages} pages", world.questions);
    world.check_that_it_goes_on();
}

/// A replica that has executed further than its last checkpoint keeps what it has executed, where it is
/// what the others have.
#[test]
fn what_was_executed_since_the_last_checkpoint_is_not_sent() {
    let mut world = World::new(3, &[Manner::Correct; 2]);
    world.populate(0..3, 2000, 1);
    let keys: Vec<u64> = (0..2000).step_by(9).collect();
    world.execute(0..3, &keys, 2);
    world.execute(1..3, &[5], 3);
    let target = world.cut(1..3);
    world.fetch(target, false);
    world.finish(target);
    assert!(world.pages < 8, "{} pages sent", world.pages);
    world.check_that_it_goes_on();
}

/// The target may have fewer pages than we have, or none where we have many.
#[test]
fn a_state_can_shrink() {
    let mut world = World::new(4, &[Manner::Correct; 2]);
    world.populate(0..1, 3000, 1);
    let target = world.populate(1..3, 40, 2);
    assert!(world.nodes[TARGET].last_executed() > target.0, "going back needs a check (ST-8)");
    world.fetch(target, true);
    world.finish(target);
    assert_eq!(world.nodes[0].pages_held(), world.nodes[1].pages_held());
    world.check_that_it_goes_on();

    let mut world = World::new(5, &[Manner::Correct; 2]);
    world.populate(0..3, 3000, 1);
    world.remove(1..3, &(0..1000).collect::<Vec<_>>());
    world.remove(1..3, &(1000..2000).collect::<Vec<_>>());
    world.remove(1..3, &(2000..3000).collect::<Vec<_>>());
    let target = world.cut(1..3);
    world.fetch(target, false);
    world.finish(target);
    assert!(world.nodes[0].pages_held() < 60);
    assert!(world.pages < 60);
    world.check_that_it_goes_on();
}

/// K13, ST-2: one correct replica suffices, however the others lie and whatever the network loses.
#[test]
fn k13_one_correct_source_suffices() {
    for seed in 1..60 {
        let mut random = Xorshift::new(seed);
        let mut manners: Vec<Manner> =
            (0..=random.below(6)).map(|_| MANNERS[usize::try_from(random.below(6)).unwrap()]).collect();
        let place = usize::try_from(random.below(8)).unwrap() % manners.len();
        manners[place] = Manner::Correct;
        let count = manners.len();
        let mut world = World::new(seed, &manners);
        world.lost = random.below(250);
        world.doubled = random.below(250);
        world.populate(0..count + 1, 200, 1);
        world.populate(1..count + 1, 400, 2);
        let target = world.populate(1..count + 1, 300, 3);
        world.fetch(target, random.below(2) == 0);
        world.finish(target);
        for &liar in &world.lies {
            assert!(matches!(manners[liar - 1], Manner::Flips), "{:?} is no liar", manners[liar - 1]);
        }
        world.check_that_it_goes_on();
    }
}

/// ST-2: "liars are detected at the first message": from then on the others are asked.
#[test]
fn k13_a_liar_is_asked_once() {
    let mut world = World::new(7, &[Manner::Flips, Manner::Correct, Manner::Flips]);
    let target = world.populate(1..4, 3000, 1);
    world.fetch(target, false);
    world.finish(target);
    let first_batch = 2 * OUTSTANDING_MAX;
    assert!(!world.lies.is_empty() && world.lies.len() <= first_batch, "{} lies", world.lies.len());
}

/// B18: that several say the same proves nothing. Three liars agree, one tells the truth.
#[test]
fn b18_agreement_among_liars_is_not_believed() {
    let mut world = World::new(8, &[Manner::Correct, Manner::Correct, Manner::Correct, Manner::Correct]);
    let target = world.populate(1..2, 500, 1);
    let other = world.populate(2..5, 500, 2);
    assert_eq!(target.0, other.0);
    assert_ne!(target.1, other.1);
    world.fetch(target, false);
    world.finish(target);
    assert!(world.lies.iter().all(|liar| (2..5).contains(liar)) && !world.lies.is_empty());
}

/// ST-4: when the target moves, what has come is kept, and the walk ends although the state goes on.
#[test]
fn a_moving_target_is_reached() {
    for seed in 1..20 {
        let mut world = World::new(seed, &[Manner::Correct, Manner::Slow, Manner::Flips]);
        world.lost = 50;
        let mut target = world.populate(1..4, 3000, 1);
        let mut moved = 0;
        world.fetch(target, false);
        while world.installed.is_none() && moved < 12 {
            for _ in 0..world.random.below(400) {
                world.step();
            }
            if world.installed.is_some() {
                break;
            }
            moved += 1;
            let keys: Vec<u64> = (0..20).map(|_| world.random.below(3000)).collect();
            world.execute(1..4, &keys, u8::try_from(moved).unwrap());
            let more: Vec<u64> = (5000..5200).collect();
            if moved % 2 == 0 {
                world.remove(1..4, &more);
            } else {
                world.execute(1..4, &more, 9);
            }
            target = world.cut(1..4);
            world.nodes[1..].iter_mut().for_each(|node| node.discard(target.0));
            world.fetch(target, false);
            world.fetch(target, false);
        }
        world.finish(target);
        let pages = world.nodes[1].pages_held();
        assert!(moved > 2, "seed {seed}: it moved {moved} times");
        assert!(world.pages < 2 * pages, "seed {seed}: {} pages for {pages}, {moved} moves", world.pages);
        world.check_that_it_goes_on();
    }
}

/// B21, CK-6: pages that have changed behind our back are found and brought, and only these.
#[test]
fn b21_damaged_pages_are_found_and_brought() {
    for seed in 1..20 {
        let mut world = World::new(seed, &[Manner::Correct; 3]);
        let target = world.populate(0..4, 1500, 1);
        let damaged = 1 + world.random.below(5);
        for _ in 0..damaged {
            let choice = world.random.next();
            assert!(world.nodes[TARGET].damage(choice));
        }
        assert_ne!(world.nodes[TARGET].recompute(), target.1);
        // It goes on for a while with a state that is wrong, and may stumble.
        let keys: Vec<u64> = (0..20).map(|_| world.random.below(1500)).collect();
        world.execute(0..4, &keys, 2);
        let is_later = seed % 2 == 0;
        let target = if is_later { world.cut(1..4) } else { target };
        if is_later {
            world.nodes[TARGET].checkpoint(target.0);
        }
        world.fetch(target, true);
        world.finish(target);
        assert!(world.pages <= damaged + if is_later { 20 } else { 0 }, "{} pages", world.pages);
        world.check_that_it_goes_on();
    }
}

/// A tree that does not belong to its pages is noticed when the root does not come out; from then on no
/// page is trusted without its digest.
#[test]
fn b21_a_damaged_tree_is_noticed() {
    let mut world = World::new(9, &[Manner::Correct; 2]);
    world.populate(0..3, 1500, 1);
    world.execute(1..3, &[7], 2);
    let target = world.cut(1..3);
    let tree = world.nodes[TARGET].state.tree_mut();
    let wrong = Label { modified: SeqNum(1 << 40), ..tree.label(0, 3) };
    tree.set_label(0, 3, wrong);
    world.fetch(target, false);
    while world.step() {}
    assert!(core::mem::take(&mut world.distrusted));
    world.finish(target);
    world.check_that_it_goes_on();
}

/// B11: answers that come late, twice or after the end change nothing.
#[test]
fn b11_late_answers_are_refused() {
    let mut world = World::new(10, &[Manner::Correct; 3]);
    world.doubled = 1000;
    let target = world.populate(1..4, 500, 1);
    world.fetch(target, false);
    world.finish(target);
    let root = world.nodes[TARGET].recompute();
    let mut steps = Steps::new();
    for (from, answer) in core::mem::take(&mut world.answers) {
        world.deliver(from, TARGET, answer, &mut steps);
    }
    assert!(steps.list().len() > 20);
    for step in steps.list() {
        assert!(matches!(step, Step::Refused { why: Refusal::Unasked, .. }), "{step:?}");
    }
    assert_eq!(world.nodes[TARGET].recompute(), root);
    // "Replies with an old rid are ignored" (ST-3), whatever they say.
    world.queue.clear();
    let target = world.populate(1..4, 50, 2);
    world.fetch(target, false);
    let Some((_, (_, to, Packet::Question(question)))) = world.queue.pop_first() else {
        panic!("no question")
    };
    let mut answer = Steps::new();
    world.nodes[to].on_fetch(world.now, ReplicaId(0), &question, &mut answer);
    let Some(&Step::Answer { body, .. }) = answer.list().first() else { panic!("{answer:?}") };
    let mut answer = MetaData::decode(answer.bytes(body)).unwrap();
    for (rid, is_taken) in [(answer.rid - 1, false), (answer.rid + 1, false), (answer.rid, true)] {
        answer.rid = rid;
        steps.clear();
        world.nodes[TARGET].on_meta_data(world.now, ReplicaId::at(to), &answer, &mut steps);
        assert_eq!(!matches!(steps.list(), [Step::Refused { why: Refusal::Unasked, .. }]), is_taken);
    }
}

/// ST-3, ST-7: what is answered, and what is not.
#[test]
fn questions_are_answered_from_complete_checkpoints() {
    let mut world = World::new(11, &[Manner::Correct; 2]);
    let (seq, root) = world.populate(1..3, 100, 1);
    let height = world.nodes[1].state.tree().height();
    let question = |rid, level, index, checkpoint| Fetch { rid, level, index, checkpoint };
    let mut ask = |question: Fetch| {
        let mut steps = Steps::new();
        world.nodes[1].on_fetch(1, ReplicaId(0), &question, &mut steps);
        match steps.list() {
            [Step::Answer { kind, .. }] => Ok(*kind),
            [Step::Refused { why, .. }] => Err(*why),
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(ask(question(1, height, 0, seq)), Ok(Kind::MetaData));
    assert_eq!(ask(question(1, height, 0, seq)), Err(Refusal::Replay));
    assert_eq!(ask(question(2, 0, 0, seq)), Ok(Kind::Data));
    let not_held = [
        question(3, height, 1, seq),
        question(4, height + 1, 0, seq),
        question(5, 255, 0, seq),
        question(6, 1, 1 << 40, seq),
        question(7, 1, u64::from(u32::MAX), seq),
        question(8, 0, 100_000, seq),
        question(9, height, 0, seq.next()),
        question(10, height, 0, SeqNum(u64::MAX)),
    ];
    for question in not_held {
        assert_eq!(ask(question), Err(Refusal::NotHeld), "{question:?}");
    }
    // One that checks itself gives away nothing that may be wrong.
    let peers = [ReplicaId(2)];
    world.nodes[1].fetch(5, seq, Digest([1; 32]), true, &peers, &mut Steps::new());
    let mut steps = Steps::new();
    world.nodes[1].on_fetch(1, ReplicaId(0), &question(20, height, 0, seq), &mut steps);
    assert!(matches!(steps.list(), [Step::Refused { why: Refusal::NotHeld, .. }]));
    assert_ne!(root, Digest([1; 32]));
}

/// Without anyone to ask nothing happens, until a later call names someone.
#[test]
fn peers_may_come_later() {
    let mut world = World::new(12, &[Manner::Correct; 2]);
    let target = world.populate(1..3, 200, 1);
    let mut steps = Steps::new();
    world.nodes[TARGET].fetch(world.now, target.0, target.1, false, &[], &mut steps);
    assert!(steps.list().is_empty());
    assert!(world.nodes[TARGET].is_fetching());
    assert_eq!(world.nodes[TARGET].deadline(), None);
    assert!(!world.step());
    world.fetch(target, false);
    assert_eq!(world.nodes[TARGET].progress().map(|progress| progress.seq), Some(target.0));
    world.finish(target);
}
