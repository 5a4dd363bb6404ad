//! What comes late, or not at all: pages that were freed before they came, and parts that nobody gives.

use alloc::vec::Vec;

use super::world::{Manner, TARGET, World};
use super::*;
use crate::transfer::Step;

/// L85: a page that cannot be read is freed before it comes. A checkpoint that needs it gets it, and the state does not.
/// It is asked for only as long as there is such a checkpoint.
#[test]
fn l85_a_page_that_was_freed_comes_for_earlier_checkpoints_only() {
    for is_held in [false, true] {
        let mut world = World::new(29, &[Manner::Correct; 3]);
        let (early, _) = world.populate(0..4, 500, 1);
        let keys: Vec<u64> = (0..500).collect();
        world.remove(1..4, &keys);
        let (late, _) = world.cut(1..4);
        let [before, after] = [early, late].map(|seq| world.nodes[1].state.pages_at(seq));
        let freed = before.into_iter().find(|page| !after.contains(page)).unwrap();
        let peers: Vec<ReplicaId> = (1..4).map(ReplicaId::at).collect();
        // The first question is lost.
        world.nodes[TARGET].repair(world.now, PageFault { page: freed }, &peers, &mut Steps::new());
        world.remove(0..1, &keys);
        let (late, root) = world.cut(0..1);
        if !is_held {
            world.discard(0..1, late);
        }
        while world.restored.is_none() && world.missing < 9 && world.step() {}
        assert_eq!((world.restored, world.missing, world.pages), (Some(freed), 0, u64::from(is_held)));
        assert_eq!(world.nodes[TARGET].recompute(), root);
        assert!(
            world.nodes[TARGET].missing_page().is_none() && world.nodes[TARGET].begin_save(late).is_some()
        );
        assert_eq!(world.nodes[TARGET].deadline(), None);
    }
}

/// L107, ST-4: several parts of the target are given by nobody. That is reported once, or two targets would take turns
/// before either is asked for.
#[test]
fn l107_parts_that_stall_together_are_reported_once() {
    let mut world = World::new(31, &[Manner::Correct; 3]);
    let target = world.populate(1..4, 2000, 1);
    world.fetch(target, false);
    while world.nodes[TARGET].outstanding() < 8 {
        assert!(world.step());
    }
    world.manners.fill(Manner::Silent);
    world.queue.clear();
    let mut most = 0;
    for _ in 0..20 {
        // Long enough for every question to be late.
        world.now += 2_000_000_000;
        let mut steps = Steps::new();
        world.nodes[TARGET].on_deadline(world.now, &mut steps);
        most = most.max(steps.list().iter().filter(|step| matches!(step, Step::Stalled)).count());
    }
    assert_eq!(most, 1);
}

/// ST-4, L136: a liar that asks for a page of the oldest checkpoint again and again does not make it stay when the older
/// versions of pages have a quarter of the memory.
#[test]
fn l136_what_is_being_fetched_is_held_within_bounds() {
    let mut world = World::new(15, &[Manner::Correct; 3]);
    world.nodes[1].limit_transfer(100);
    let target = world.populate(1..4, 3000, 1);
    world.fetch(target, false);
    let mut most = [0; 2];
    for value in 2..12 {
        (0..20).for_each(|_| assert!(world.step()));
        let keys: Vec<u64> = (0..3000).step_by(90).collect();
        world.execute(1..4, &keys, value);
        let newer = world.cut(1..4);
        world.discard(1..4, newer.0);
        for (most, node) in most.iter_mut().zip(&world.nodes[1..]) {
            *most = node.pages_of_checkpoints().max(*most);
        }
    }
    assert!(most[0] <= 50 && most[1] > 50, "{most:?} pages with a limit and without");
}
