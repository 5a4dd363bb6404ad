//! What replicas ask for: recovery requests, and the lives that they open.

use alloc::vec;
use alloc::vec::Vec;

use quorate_wire::life::{Life, Lives, Recovered, Recovery};
use quorate_wire::{ReplicaId, ViewNum};

use super::tests::{execute, executor};
use super::*;
use crate::testing::batch;

/// RC-6: a replica's request is a recovery request; its result is the life that it opens, and its number.
#[test]
fn a_recovery_request_returns_its_number() {
    let mut executor = executor();
    let replica = ClientId(2);
    assert!(replica.replica().is_some());
    execute(&mut executor, &[], false);
    let (operation, result) = (recovery(77, 3, Life::default()), recovered(2, life(7, 77), 3));
    let said = execute(&mut executor, &[(replica, 7, &operation)], false);
    assert_eq!(said, [(ReplyOutcome::Executed, Some(result.clone()))]);
    let said = execute(&mut executor, &[(replica, 7, &operation)], false);
    assert_eq!(said, [(ReplyOutcome::Repeated, Some(result))]);
    // Anything else that a replica asks for does nothing.
    let said = execute(&mut executor, &[(replica, 8, b"put x 1")], false);
    assert_eq!(said, [(ReplyOutcome::Executed, Some(Vec::new()))]);
    assert_eq!(executor.lives().unwrap().len(), 1);
}

/// The life that a recovery request with this timestamp and these bits opens.
fn life(t: u64, bits: u64) -> Life {
    Life { timestamp: Timestamp(t), bits }
}

/// A recovery request with these bits and floor, which names the life before it.
fn recovery(bits: u64, floor: u64, before: Life) -> Vec<u8> {
    let mut operation = Vec::new();
    Recovery { bound: SeqNum(0), bits, floor: ViewNum(floor), before }.encode(&mut operation);
    operation
}

/// The result of a recovery request: the life that its sender has, and the number that opened it.
fn recovered(seq: u64, life: Life, floor: u64) -> Vec<u8> {
    let mut result = Vec::new();
    Recovered { seq: SeqNum(seq), life, floor: ViewNum(floor) }.encode(&mut result);
    result
}

/// RC-11: the state notes the last two lives of each replica. They are undone with their batch, are in the digest, and
/// come with an image of the state.
#[test]
fn rc11_the_state_keeps_the_last_two_lives() {
    let mut executor = executor();
    let (id, last) = (ClientId(2), ClientId(63));
    assert_eq!(executor.lives(), Some(Vec::new()));
    let before = executor.recompute();
    let first = recovery(77, 3, Life::default());
    execute(&mut executor, &[(id, 7, &first)], true);
    executor.undo(SeqNum(0));
    assert_eq!(executor.lives(), Some(Vec::new()));
    execute(&mut executor, &[(id, 7, &first)], false);
    let (second, other) = (recovery(99, 5, life(7, 77)), recovery(1, 0, Life::default()));
    execute(&mut executor, &[(id, 9, &second), (last, 1, &other)], false);
    let two = Lives { life: life(9, 99), before: life(7, 77), floor: ViewNum(5), noted: SeqNum(2) };
    let one = Lives { life: life(1, 1), before: Life::default(), floor: ViewNum(0), noted: SeqNum(2) };
    let noted = Some(vec![(ReplicaId(2), two), (ReplicaId(63), one)]);
    assert_eq!(executor.lives(), noted);
    // One that comes too late opens nothing, and neither does one of a replica that no cluster can have.
    execute(&mut executor, &[(id, 8, &recovery(88, 0, life(9, 99))), (ClientId(64), 1, &other)], false);
    assert_eq!(executor.lives(), noted);
    let root = executor.checkpoint(SeqNum(3));
    assert_ne!(root, before);
    let mut image = Vec::new();
    assert!(executor.image(SeqNum(3), &mut image));
    let mut other = self::executor();
    assert_eq!(other.restore(&image), Ok((SeqNum(3), root)));
    assert_eq!(other.lives(), noted);
}

/// L125, RC-6: a recovery request that names another life than the present one opens none, whatever its timestamp. Its result
/// says which life there is.
#[test]
fn l125_an_earlier_recovery_request_opens_no_life() {
    let (mut executor, id) = (executor(), ClientId(2));
    let [earlier, later] = [11, 22].map(|bits| recovery(bits, 3, Life::default()));
    execute(&mut executor, &[(id, 7, &later)], false);
    let lives = executor.lives();
    let said = execute(&mut executor, &[(id, 9, &earlier)], false);
    assert_eq!(said, [(ReplyOutcome::Executed, Some(recovered(1, life(7, 22), 3)))]);
    assert_eq!(executor.lives(), lives);
    let said = execute(&mut executor, &[(id, 10, &recovery(33, 3, life(7, 22)))], false);
    assert_eq!(said, [(ReplyOutcome::Executed, Some(recovered(3, life(10, 33), 3)))]);
}

/// L150, RC-6: a replica can begin ten lives at once, and then one a minute of the agreed time. So it can always begin
/// another one in the end.
#[test]
fn l150_a_replica_begins_few_lives_in_a_minute() {
    let mut executor = executor();
    let (id, other, minute) = (ClientId(2), ClientId(3), 60_000_000_000);
    let (mut t, mut lives) = (0, [Life::default(); 4]);
    let mut begins = |client: ClientId, time_ns| {
        t += 1;
        let mut replies = Replies::new();
        let seq = executor.last_executed().next();
        let present = &mut lives[usize::try_from(client.0).unwrap()];
        let (operation, result) = (recovery(t, 0, *present), recovered(seq.0, life(t, t), 0));
        executor.execute(seq, &batch(&[(client, t, &operation[..])], time_ns), false, &mut replies).unwrap();
        let reply = replies.iter().next().unwrap();
        assert_eq!(reply.outcome, ReplyOutcome::Executed);
        let begun = reply.result == Some(&result[..]);
        assert!(begun || reply.result == Some(&[]));
        if begun {
            *present = life(t, t);
        }
        begun
    };
    let now = 1_000 * minute;
    let eleven = |from: u64| core::array::from_fn::<u64, 11, _>(|k| from + u64::try_from(k).unwrap());
    let ten_and_no_more = core::array::from_fn(|k| k < 10);
    assert_eq!(eleven(now).map(|at| begins(id, at)), ten_and_no_more);
    assert!(begins(other, now + 4), "each replica has its own");
    assert_eq!([now + minute - 1, now + minute + 20].map(|at| begins(id, at)), [false, true]);
    assert!(!begins(id, now + 2 * minute - 1));
    assert_eq!(eleven(now + 20 * minute).map(|at| begins(id, at)), ten_and_no_more);
}
