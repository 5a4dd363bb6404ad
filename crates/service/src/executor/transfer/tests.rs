//! State transfer from correct replicas, liars and the silent, to a replica that is behind, wrong or empty.

use alloc::vec::Vec;

use quorate_wire::Kind;
use quorate_wire::message::Fetch;

use super::world::{MANNERS, Manner, Packet, TARGET, World};
use super::*;
use crate::state::tree::Label;
use crate::testing::Xorshift;
use crate::transfer::{OUTSTANDING_MAX, Refusal, Step};

/// B12, B17: an empty replica gets everything, the clients' replies included, and continues like the others.
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
    assert!(world.nodes[0].pages_held() < 100);
    assert!(world.pages < 100);
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

/// L50, ST-4: a part of the target that nobody gives is reported again and again, and once somebody gives it, the walk
/// comes to its end. With a correct source, nothing is reported.
#[test]
fn l50_a_part_that_nobody_gives_is_reported() {
    let mut world = World::new(9, &[Manner::Silent; 3]);
    let target = world.populate(1..4, 300, 1);
    world.fetch(target, false);
    for _ in 0..100 {
        world.step();
    }
    assert!(
        world.stalled > 1 && world.questions / world.stalled >= 6,
        "{} of {}",
        world.stalled,
        world.questions
    );
    world.manners[1] = Manner::Correct;
    world.finish(target);

    let mut world = World::new(9, &[Manner::Silent, Manner::Correct, Manner::Silent]);
    let target = world.populate(1..4, 300, 1);
    world.fetch(target, false);
    world.finish(target);
    assert_eq!(world.stalled, 0);
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

/// ST-4: when the target moves, what has come is kept, and the walk ends although the state keeps changing.
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
            world.discard(1..4, target.0);
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

/// ST-4: under load checkpoints come faster than the parts of one can be asked for. The one that is being fetched is
/// held in that time, as long as there is room.
#[test]
fn what_is_being_fetched_is_held() {
    let mut world = World::new(11, &[Manner::Correct; 3]);
    let target = world.populate(1..4, 3000, 1);
    world.fetch(target, false);
    (0..100).for_each(|_| assert!(world.step()));
    for value in 2..4 {
        world.execute(1..4, &[7, 900, 1800], value);
        let newer = world.cut(1..4);
        world.discard(1..4, newer.0);
    }
    world.finish(target);
    for value in 4..40 {
        world.execute(1..4, &[7], value);
        let newer = world.cut(1..4);
        world.discard(1..2, newer.0);
    }
    let options = crate::testing::options();
    assert_eq!(world.nodes[1].checkpoints().count(), 1, "of {} at most", options.checkpoints_max);
}

/// ST-4: a checkpoint that was fetched once is not held for long. Until its number of checkpoints was reached, a replica
/// held all since then, and with them each version of each page.
#[test]
fn what_was_fetched_is_held_no_longer() {
    let mut world = World::new(13, &[Manner::Correct; 3]);
    let target = world.populate(1..4, 3000, 1);
    world.fetch(target, false);
    world.finish(target);
    world.now += 1_000_000_000;
    world.execute(1..4, &[7], 2);
    let newer = world.cut(1..4);
    world.discard(1..4, newer.0);
    assert!(world.nodes[1..].iter().all(|node| node.checkpoints().count() == 1));
}

/// ST-4: pages that were on their way when the target moved are kept until the walk comes by, however often it moves.
#[test]
fn what_is_on_its_way_when_the_target_moves_is_kept() {
    let mut world = World::new(12, &[Manner::Correct; 3]);
    let mut target = world.populate(1..4, 6000, 1);
    let hot: Vec<u64> = (0..2000).step_by(10).collect();
    let mut moved = 0;
    world.fetch(target, false);
    while world.installed.is_none() {
        (0..400).for_each(|_| _ = world.installed.is_none() && world.step());
        if world.installed.is_none() && moved < 6 {
            moved += 1;
            world.execute(1..4, &hot, moved);
            target = world.cut(1..4);
            world.discard(1..4, target.0);
            world.fetch(target, false);
        }
    }
    world.finish(target);
    let held = world.nodes[1].pages_held();
    assert_eq!(moved, 6);
    assert!(world.pages < held + 500, "{} pages for {held}, {moved} moves", world.pages);
}

/// ST-4: pages that change all the time are brought last, and once: a walk that brought them again with each move of the
/// target would, under enough load, bring nothing else and never end.
#[test]
fn what_changes_all_the_time_is_brought_last() {
    let mut world = World::new(13, &[Manner::Correct; 3]);
    let mut target = world.populate(1..4, 24_000, 1);
    let hot: Vec<u64> = (0..4000).step_by(4).collect();
    world.fetch(target, false);
    let mut moved = 0;
    while world.installed.is_none() && moved < 100 {
        let until = world.now + 80_000_000;
        while world.installed.is_none() && world.now < until {
            assert!(world.step());
        }
        if world.installed.is_none() {
            moved += 1;
            world.execute(1..4, &hot, moved);
            target = world.cut(1..4);
            world.discard(1..4, target.0);
            world.fetch(target, false);
        }
    }
    assert!((5..100).contains(&moved), "{moved} moves");
    world.finish(target);
    let (pages, held) = (world.pages, world.nodes[1].pages_held());
    assert!(pages < held + held / 4, "{pages} pages for {held}, {moved} moves");
    world.check_that_it_goes_on();
}

/// Section 9: a replica that fetches much leaves the others time for their clients; one that fetches little gets it
/// immediately, because otherwise it would never catch up.
#[test]
fn much_takes_its_time_and_little_does_not() {
    let mut world = World::new(14, &[Manner::Correct; 3]);
    let target = world.populate(1..4, 60_000, 1);
    let start = world.now;
    world.fetch(target, false);
    world.finish(target);
    let (ms, all) = ((world.now - start) / 1_000_000, world.questions);
    assert!(all > 10_000 && all < 8 * ms + 4096, "{all} questions in {ms} ms");
    let changed: Vec<u64> = (0..60_000).step_by(60).collect();
    world.execute(1..4, &changed, 2);
    let target = world.cut(1..4);
    let start = world.now;
    world.fetch(target, false);
    world.finish(target);
    let (ms, few) = ((world.now - start) / 1_000_000, world.questions - all);
    assert!(few > 1000 && few > 15 * ms, "{few} questions in {ms} ms");
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
        // It runs for a while with a wrong state, and may fail.
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

/// ST-4, CK-6: a repair that turns from a later checkpoint to an earlier one drops the pages that only the later one
/// has, also where its own nodes name all that the earlier one has.
#[test]
fn l25_a_repair_that_turns_back_drops_what_came_later() {
    let mut world = World::new(15, &[Manner::Correct; 3]);
    let early = world.populate(0..4, 40, 1);
    assert!(world.nodes[TARGET].damage(1));
    let added: Vec<u64> = (40..4000).collect();
    for keys in added.chunks(100) {
        world.execute(1..4, keys, 2);
    }
    let late = world.cut(1..4);
    world.fetch(late, true);
    for _ in 0..400 {
        world.step();
    }
    assert!(world.installed.is_none() && world.pages > 0);
    world.fetch(early, true);
    world.finish(early);
}

/// A tree that does not belong to its pages is noticed when the root does not come out; from then on no
/// page is trusted without its digest.
#[test]
fn b21_a_damaged_tree_is_noticed() {
    let mut world = World::new(9, &[Manner::Correct; 2]);
    world.populate(0..3, 3000, 1);
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

/// ST-2 for one page: a sender of another one, an older one or none is passed over, and what the page was is what
/// it is again.
#[test]
fn a_page_that_cannot_be_read_comes_from_whoever_has_it() {
    for liar in [Manner::Flips, Manner::Strays, Manner::Stale, Manner::Silent] {
        let mut world = World::new(23, &[liar, liar, Manner::Correct]);
        let (early, _) = world.populate(0..4, 500, 1);
        world.discard(0..4, early);
        let keys: Vec<u64> = (0..500).collect();
        world.execute(0..4, &keys, 2);
        let (_, root) = world.cut(0..4);
        let held = world.nodes[1].pages_held();
        for choice in [3, held / 2, held - 1] {
            assert!(world.nodes[TARGET].damage(choice));
            assert_ne!(world.nodes[TARGET].recompute(), root);
            let pages = world.nodes[1].state.pages_at(world.nodes[1].state.newest());
            world.repair(pages[usize::try_from(choice).unwrap()]);
            assert_eq!(world.nodes[TARGET].recompute(), root, "{liar:?}");
        }
        // Who answers another question is not heard at all.
        let heard = matches!(liar, Manner::Flips | Manner::Stale);
        assert!(world.lies.iter().all(|liar| [1, 2].contains(liar)), "{:?}", world.lies);
        assert_eq!(!world.lies.is_empty(), heard, "{liar:?}");
        world.check_that_it_goes_on();
    }
}
