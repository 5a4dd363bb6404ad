//! Every client has a share of the client table, and what is forgotten of a lane is never executed again.

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;

use super::tests::incr;
use super::*;
use crate::builtin::kv::Kv;
use crate::registry::{Client, RegistryOp, RegistryResult, Rights};
use crate::replies::shares::IDLE_NS;
use crate::testing::{Xorshift, batch, domains, options};

fn lane(principal: u64, lane: u16) -> ClientId {
    ClientId::new(principal, lane)
}

fn with(slots: u32, quota: u32) -> Executor<Kv> {
    Executor::new(Kv, domains(), Options { clients_max: slots, lanes_max: quota, ..options() })
}

/// Executes requests in one batch at an agreed time, and returns what became of them.
fn at(
    executor: &mut Executor<Kv>,
    time_ns: u64,
    requests: &[(ClientId, u64)],
    tentative: bool,
) -> Vec<ReplyOutcome> {
    let add = incr(b"n", 1);
    let requests: Vec<_> = requests.iter().map(|(client, t)| (*client, *t, &add[..])).collect();
    let mut replies = Replies::new();
    let seq = executor.last_executed().next();
    executor.execute(seq, &batch(&requests, time_ns), tentative, &mut replies).unwrap();
    for reply in replies.iter() {
        let refused = RegistryResult::decode(reply.result.unwrap_or(&[])) == Some(RegistryResult::NoLane);
        assert_eq!(
            refused,
            reply.outcome == ReplyOutcome::Refused,
            "who is refused is told so, and nobody else"
        );
    }
    replies.iter().map(|reply| reply.outcome).collect()
}

fn one(executor: &mut Executor<Kv>, time_ns: u64, client: ClientId, t: u64) -> ReplyOutcome {
    at(executor, time_ns, &[(client, t)], false)[0]
}

use ReplyOutcome::{Executed, Overtaken, Refused, Repeated};

/// L1: a client that uses lane after lane is refused beyond its quota, whatever room there is, and nobody else is.
#[test]
fn l1_a_client_has_its_quota() {
    let mut executor = with(40, 6);
    for l in 0..6 {
        assert_eq!(one(&mut executor, 1, lane(7, l), 100 + u64::from(l)), Executed);
    }
    assert_eq!(one(&mut executor, 2, lane(7, 6), 106), Refused);
    assert_eq!(one(&mut executor, 2, lane(8, 0), 1), Executed, "others have their own");
    assert_eq!(executor.lanes(), (7, 35));
    // A lane that was not used for a minute gives its place to another one of the same client.
    let later = IDLE_NS + 1_000;
    assert_eq!(one(&mut executor, later, lane(7, 6), 106), Refused, "what was refused stays so");
    assert_eq!(one(&mut executor, later, lane(7, 6), 107), Executed);
    assert_eq!(executor.lanes(), (7, 35));
    // That was the oldest, lane 0. What it had done is not done again, nor anything before it.
    assert_eq!(one(&mut executor, later, lane(7, 0), 100), Overtaken);
    assert_eq!(one(&mut executor, later, lane(7, 9), 99), Overtaken);
    assert_eq!(one(&mut executor, later, lane(7, 1), 101), Repeated);
    assert_eq!(one(&mut executor, later, lane(7, 0), 108), Executed, "in the place of lane 1");
    assert_eq!(one(&mut executor, later, lane(7, 1), 101), Overtaken);
    let lost = Cached { timestamp: Timestamp(101), digest: Digest::ZERO, result: None };
    assert_eq!(executor.cached(lane(7, 1)), Ok(Some(lost)), "L42: who asks again hears so");
    // Lane 6 and lane 0 were used just now.
    for l in 10..14 {
        assert_eq!(one(&mut executor, later, lane(7, l), 200 + u64::from(l)), Executed);
    }
    assert_eq!(one(&mut executor, later, lane(7, 14), 214), Refused);
}

/// L40: a replica has its lane, for its recovery requests, however few lanes a client can have.
#[test]
fn l40_replicas_have_lanes_whatever_the_quota_of_clients() {
    let mut executor = with(64, 1);
    for replica in 0..7 {
        assert_eq!(one(&mut executor, 1, ClientId(replica), 10), Executed, "r{replica}");
    }
}

/// L44, RC-6: administrators fill the table as far as they may, and replicas have lanes all the same.
#[test]
fn l44_administrators_leave_room_for_replicas() {
    let person = Client { rights: Rights::Admin, key: [1; 32], address: None };
    let founders: BTreeMap<u64, Client> = (1..=3).map(|admin| (admin, person)).collect();
    let mut executor = with(64, 64).governed(founders, 4); // 8 are reserved, 4 of them for replicas
    let mut taken = 0;
    for (admin, l) in (1..=3).flat_map(|admin| (0..28).map(move |l| (admin, l))) {
        taken += u32::from(one(&mut executor, 1, lane(admin, l), 10) == Executed);
    }
    for replica in 0..4 {
        assert_eq!(one(&mut executor, 1, ClientId(replica), 10), Executed, "r{replica}");
    }
    assert_eq!(taken, 60, "more than other clients, and not all");
}

/// L62: a request with timestamp 0 is not executed: its lane could never give its place away, because 0 means that nothing
/// was lost. A lane of a state from before that was so does give it away.
#[test]
fn l62_timestamp_0_takes_no_place() {
    let mut executor = with(16, 7); // 2 are reserved
    assert_eq!(one(&mut executor, 1, lane(7, 0), 0), ReplyOutcome::Superseded);
    assert_eq!(executor.lanes().0, 0);
    let mut view = executor.state.view(executor.reply_pages);
    let old = (lane(7, 0), Timestamp(0));
    executor.lanes.record(&mut view, old, 1, Digest::ZERO, b"").unwrap();
    for l in 0..13 {
        assert_eq!(one(&mut executor, 1, lane(8 + l, 0), 10), Executed);
    }
    assert_eq!(executor.lanes(), (14, 14));
    assert_eq!(one(&mut executor, IDLE_NS + 1_000, lane(50, 0), 10), Executed, "in the place of the oldest");
    assert_eq!(one(&mut executor, IDLE_NS + 1_000, lane(7, 0), 0), ReplyOutcome::Superseded);
    assert_eq!(executor.cached(lane(7, 0)), Ok(None));
}

/// L63, RC-6: no recovery request leaves its replica, or the others, without timestamps for later ones.
#[test]
fn l63_a_recovery_request_of_the_far_future_is_not_executed() {
    const DAY_NS: u64 = 24 * 3_600 * 1_000_000_000;
    let mut executor = with(16, 7);
    let (now, r3) = (1_000, ClientId(3));
    for t in [u64::MAX, now + DAY_NS + 1] {
        assert_eq!(one(&mut executor, now, r3, t), ReplyOutcome::Superseded);
    }
    assert_eq!(one(&mut executor, now + 1, r3, now + 1), Executed, "nothing of them is kept");
    assert_eq!(one(&mut executor, now + 2, r3, now + 2 + DAY_NS), Executed, "of a clock that is wrong");
    assert_eq!(one(&mut executor, now + 3, r3, now + 3 + DAY_NS), Executed, "a later one is always possible");
    assert_eq!(one(&mut executor, now + 4, lane(7, 0), u64::MAX), Executed, "that is the client's own");
}

/// L1: a table that is full lets replicas in, and comes free as lanes are not used any more. So does one that was
/// filled before clients had quotas.
#[test]
fn l1_a_full_table_comes_free() {
    let mut executor = with(40, 40); // 5 are reserved, and nobody has more than half of the rest
    for (principal, lanes) in [(1, 17), (2, 17), (3, 1)] {
        for l in 0..lanes {
            assert_eq!(one(&mut executor, 1, lane(principal, l), 10), Executed);
        }
        if lanes == 17 {
            assert_eq!(one(&mut executor, 1, lane(principal, 17), 11), Refused);
        }
    }
    assert_eq!(executor.lanes(), (35, 35));
    assert_eq!(one(&mut executor, 2, lane(4, 0), 10), Refused);
    for replica in 0..5 {
        assert_eq!(one(&mut executor, 2, ClientId(replica), 10), Executed);
    }
    assert_eq!(one(&mut executor, 2, ClientId(5), 10), Refused, "the reserve has an end, too");
    // The same state, under a smaller quota.
    let seq = executor.last_executed();
    let root = executor.checkpoint(seq);
    let mut image = Vec::new();
    assert!(executor.image(seq, &mut image));
    let mut smaller = with(40, 40);
    assert_eq!(smaller.restore(&image), Ok((seq, root)));
    smaller.lanes.set_quota(3);
    for executor in [&mut executor, &mut smaller] {
        let later = IDLE_NS + 1_000;
        assert_eq!(one(executor, later, lane(4, 0), 10), Refused);
        assert_eq!(one(executor, later, lane(4, 0), 11), Executed);
        assert_eq!(one(executor, later, lane(5, 0), 11), Executed);
        assert_eq!(executor.lanes(), (40, 35), "one has gone for each");
        assert_eq!(one(executor, later, lane(1, 0), 10), Overtaken, "the oldest ones");
    }
    assert_eq!(
        one(&mut smaller, IDLE_NS + 1_001, lane(2, 17), 12),
        Executed,
        "in the place of one of its own"
    );
    assert_eq!(smaller.lanes(), (40, 35));
}

/// L1: who is removed gives its lanes back at once.
#[test]
fn l1_a_removed_clients_lanes_are_free() {
    let person = |rights| Client { rights, key: [1; 32], address: None };
    let founders: BTreeMap<u64, Client> = [(1, person(Rights::Admin)), (2, person(Rights::Write))].into();
    let mut executor = with(40, 10).governed(founders, 4);
    for l in 0..10 {
        assert_eq!(one(&mut executor, 1, lane(2, l), 50), Executed);
    }
    assert_eq!(executor.lanes().0, 10);
    let mut order = Vec::new();
    RegistryOp::Remove(2).encode(&mut order);
    let remove = |executor: &mut Executor<Kv>, tentative| {
        let seq = executor.last_executed().next();
        let mut replies = Replies::new();
        executor.execute(seq, &batch(&[(lane(1, 0), 1, &order)], 2), tentative, &mut replies).unwrap();
        executor.lanes().0
    };
    assert_eq!(remove(&mut executor, true), 1);
    executor.undo(SeqNum(10));
    assert_eq!(executor.lanes().0, 10, "an order that was undone");
    assert_eq!(executor.cached(lane(2, 9)).unwrap().unwrap().timestamp, Timestamp(50));
    assert_eq!(remove(&mut executor, false), 1);
    assert_eq!(one(&mut executor, 3, lane(2, 4), 50), Overtaken, "nothing of it is done again");
}

/// Two executors go through the same batches, one of them with batches that are undone and restarts from images. No
/// request is executed twice, nor after it was refused; and both have one state all the time (EX-2, I13, I16, I17).
#[test]
fn l1_nothing_is_executed_twice_or_after_it_was_refused() {
    let (mut refusals, mut overtaken) = (0, 0);
    for seed in 1..30 {
        let mut random = Xorshift::new(seed);
        let (mut plain, mut winding) = (with(16, 4), with(16, 4));
        let (mut done, mut refused) = (BTreeSet::new(), BTreeSet::new());
        let (mut time, mut clock) = (1, 1);
        let draw = |random: &mut Xorshift, clock: u64| -> Vec<(ClientId, u64)> {
            (0..random.below(5))
                .map(|_| {
                    let lane = lane(1 + random.below(6), u16::try_from(random.below(7)).unwrap());
                    (lane, clock.saturating_sub(random.below(8)))
                })
                .collect()
        };
        for seq in (1..=120).map(SeqNum) {
            time += random.below(4) * (IDLE_NS / 4);
            clock += random.below(3);
            while random.below(4) == 0 {
                let other = draw(&mut random, clock);
                at(&mut winding, time + IDLE_NS, &other, true);
                winding.undo(SeqNum(seq.0 - 1));
            }
            let requests = draw(&mut random, clock);
            let outcomes = at(&mut plain, time, &requests, false);
            assert_eq!(at(&mut winding, time, &requests, true), outcomes, "seed {seed} {seq:?}");
            winding.merge(seq);
            for (request, outcome) in requests.iter().zip(outcomes) {
                match outcome {
                    Executed => {
                        assert!(done.insert(*request) && !refused.contains(request), "seed {seed} {seq:?}");
                    }
                    Refused => {
                        assert!(!done.contains(request), "refused although it was done: seed {seed} {seq:?}");
                        refused.insert(*request);
                        refusals += 1;
                    }
                    Overtaken => overtaken += 1,
                    Repeated => assert!(done.contains(request)),
                    ReplyOutcome::Superseded => {}
                }
            }
            assert_eq!(winding.lanes(), plain.lanes());
            if seq.0 % 6 == 0 {
                let root = plain.checkpoint(seq);
                assert_eq!(
                    (winding.checkpoint(seq), winding.recompute()),
                    (root, root),
                    "seed {seed} {seq:?}"
                );
                let mut image = Vec::new();
                if random.below(2) == 0 && plain.image(seq, &mut image) {
                    winding = with(16, 4);
                    assert_eq!(winding.restore(&image), Ok((seq, root)));
                }
            }
        }
    }
    assert!(refusals > 50 && overtaken > 20, "{refusals} refused, {overtaken} overtaken");
}
