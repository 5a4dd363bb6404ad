//! [OSDI99 §4.3] Garbage collection, clause by clause.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test may panic")]

use crate::desk::{Desk, Did, R0, R1, R2, R3, c, root};
use quorate_pbft::Milestone;
use quorate_pbft::step::{Input, Recipient, Reject};
use quorate_wire::Digest;
use quorate_wire::id::SeqNum;
use quorate_wire::message::{BodyFetch, BodyKind, BodyMessage, Checkpoint, Kind};

fn ordered_to(desk: &mut Desk, last: u64) {
    for t in 1..=last {
        desk.order(t, c(0), t, b"x");
    }
}

/// "they are generated periodically, when a request with a sequence number divisible by some constant
/// (e.g., 100) is executed"; "When a replica produces a checkpoint, it multicasts a CHECKPOINT message to
/// the other replicas, where n is the sequence number of the last request whose execution is reflected in
/// the state and d is the digest of the state".
#[test]
fn every_k_batches_a_checkpoint_is_taken_and_announced() {
    let mut desk = Desk::new(R1);
    ordered_to(&mut desk, 3);
    assert_eq!(desk.sent(Kind::Checkpoint), 0);
    desk.order(4, c(0), 4, b"x");
    let (to, bytes) = desk.last_sent(Kind::Checkpoint).unwrap();
    let said = Checkpoint::decode(&bytes).unwrap();
    assert_eq!(to, Recipient::All);
    assert_eq!((said.seq, said.digest), (SeqNum(4), root(SeqNum(4))));
}

/// TE-6, A14: a batch that has only prepared cuts no checkpoint.
#[test]
fn a_tentative_batch_cuts_no_checkpoint() {
    let mut desk = Desk::new(R1);
    ordered_to(&mut desk, 3);
    let batch = desk.batch(c(0), 4, b"x");
    desk.pre_prepare(R0, 0, 4, &batch);
    desk.prepare(R2, 0, 4, batch.digest());
    assert!(desk.executed().contains(&(4, true)));
    assert_eq!(desk.sent(Kind::Checkpoint), 0);
    desk.commit(R2, 0, 4, batch.digest());
    desk.commit(R3, 0, 4, batch.digest());
    assert_eq!(desk.sent(Kind::Checkpoint), 1);
}

/// "Each replica collects checkpoint messages in its log until it has 2f + 1 of them for sequence number n
/// with the same digest d signed by different replicas (including possibly its own such message)."
#[test]
fn a_checkpoint_is_stable_with_a_quorum_of_equal_statements() {
    let mut desk = Desk::new(R1);
    ordered_to(&mut desk, 4);
    let stable = |m: &Milestone| matches!(m, Milestone::Stable { .. });
    desk.checkpoint(R2, 4, root(SeqNum(4)), false);
    desk.checkpoint(R2, 4, root(SeqNum(4)), false);
    desk.checkpoint(R3, 4, Digest([9; 32]), false);
    assert!(!desk.said(stable), "one twice and one that differs are not 2f + 1");
    desk.checkpoint(R0, 4, root(SeqNum(4)), false);
    assert!(desk.said(stable));
}

/// "A checkpoint with a proof becomes stable and the replica discards all pre-prepare, prepare, and commit
/// messages with sequence number less than or equal to n from its log; it also discards all earlier
/// checkpoints and checkpoint messages."
#[test]
fn a_stable_checkpoint_discards_what_is_below() {
    let mut desk = Desk::new(R1);
    ordered_to(&mut desk, 4);
    for from in [R0, R2] {
        desk.checkpoint(from, 4, root(SeqNum(4)), false);
    }
    assert!(desk.did.iter().any(|d| matches!(d, Did::Discarded(SeqNum(4)))));
    let card = desk.replica.state();
    assert_eq!(card.stable, SeqNum(4));
    assert!(card.prepared.is_empty());
    desk.forget();
    desk.checkpoint(R3, 4, root(SeqNum(4)), false);
    assert!(desk.rejected(Reject::OutsideWatermarks));
}

/// "The checkpoint protocol is used to advance the low and high water marks": "H = h + k".
#[test]
fn the_window_moves_with_the_stable_checkpoint() {
    let mut desk = Desk::new(R1);
    let batch = desk.batch(c(1), 1, b"y");
    desk.pre_prepare(R0, 0, 9, &batch);
    assert!(desk.rejected(Reject::OutsideWatermarks));
    ordered_to(&mut desk, 4);
    for from in [R0, R2] {
        desk.checkpoint(from, 4, root(SeqNum(4)), false);
    }
    desk.forget();
    desk.pre_prepare(R0, 0, 9, &batch);
    assert_eq!(desk.sent(Kind::Prepare), 1);
}

/// B4, PP-8: what lies above the window is dropped, but not silently: a status asks for what is missing.
#[test]
fn b4_a_pre_prepare_above_the_window_calls_for_a_status() {
    let mut desk = Desk::new(R1);
    let batch = desk.batch(c(1), 1, b"y");
    desk.pass(200);
    desk.forget();
    desk.pre_prepare(R0, 0, 9, &batch);
    desk.pass(120);
    assert!(desk.sent(Kind::Status) > 0);
}

/// CK-4: others' statements alone never move the marks: the state has to be fetched.
#[test]
fn a_checkpoint_that_is_not_held_here_is_fetched() {
    let mut desk = Desk::new(R1);
    for from in [R0, R2] {
        desk.checkpoint(from, 64, Digest([5; 32]), true);
    }
    assert_eq!(desk.replica.state().stable, SeqNum(0));
    assert!(
        desk.did.iter().any(|d| matches!(d, Did::Fetches(SeqNum(64), digest) if *digest == Digest([5; 32])))
    );
}

/// K10, ST-1: one replica's word about a far checkpoint starts nothing.
#[test]
fn k10_one_word_for_a_future_checkpoint_is_not_enough() {
    let mut desk = Desk::new(R1);
    desk.checkpoint(R0, 1 << 40, Digest([5; 32]), true);
    desk.pass(1_000);
    assert!(desk.did.iter().all(|d| !matches!(d, Did::Fetches(..))));
}

/// B5, CK-6: a quorum certified another state: this one is wrong and is repaired.
#[test]
fn b5_a_state_that_a_quorum_contradicts_is_repaired() {
    let mut desk = Desk::new(R1);
    ordered_to(&mut desk, 4);
    let right = Digest([77; 32]);
    for from in [R0, R2, R3] {
        desk.checkpoint(from, 4, right, false);
    }
    assert!(desk.said(|m| *m == Milestone::Diverged { seq: SeqNum(4) }));
    assert!(desk.did.iter().any(|d| matches!(d, Did::Fetches(SeqNum(4), digest) if *digest == right)));
}

/// B21, CK-6: when no digest can reach a quorum any more, it says so and stops at the high water mark.
#[test]
fn b21_states_that_all_differ_raise_the_alarm() {
    let mut desk = Desk::new(R1);
    ordered_to(&mut desk, 4);
    for (from, byte) in [(R0, 75), (R2, 76), (R3, 77)] {
        desk.checkpoint(from, 4, Digest([byte; 32]), false);
    }
    assert!(desk.said(|m| *m == Milestone::Unrepairable { seq: SeqNum(4) }));
}

/// B18: values are counted, not senders.
#[test]
fn b18_two_checkpoints_that_differ_certify_nothing() {
    let mut desk = Desk::new(R1);
    desk.checkpoint(R0, 64, Digest([5; 32]), true);
    desk.checkpoint(R2, 64, Digest([6; 32]), true);
    desk.pass(1_000);
    assert!(desk.did.iter().all(|d| !matches!(d, Did::Fetches(..))));
}

#[test]
fn a_checkpoint_that_is_no_multiple_of_k_is_refused() {
    let mut desk = Desk::new(R1);
    desk.checkpoint(R0, 5, Digest([5; 32]), false);
    assert!(desk.rejected(Reject::NotACheckpoint));
}

/// ST-4, B19: under load a target may be gone before it has been fetched. Once a correct replica has
/// executed more than L beyond it, all have discarded it, and the next one is fetched at once.
#[test]
fn b19_a_target_that_nobody_holds_any_more_is_given_up_at_once() {
    let mut desk = Desk::new(R1);
    let later = |desk: &mut Desk, seq: u64| {
        for from in [R2, R3] {
            desk.checkpoint(from, seq, root(SeqNum(seq)), true);
        }
    };
    later(&mut desk, 12);
    assert_eq!(fetches(&desk), [12]);
    later(&mut desk, 16);
    later(&mut desk, 20);
    assert_eq!(fetches(&desk), [12], "those who have executed 20 may still hold 12: h is above n - L");
    later(&mut desk, 24);
    assert_eq!(fetches(&desk), [12, 24]);
}

/// CK-2, ST-6: what was fetched is stable when it comes, although those who stated it have gone on since; or the window
/// would stay where it was, and the next checkpoint would have to be fetched, and so on for as long as there is load.
#[test]
fn a_checkpoint_that_was_fetched_is_stable_although_the_others_have_gone_on() {
    let mut desk = Desk::new(R1);
    let state = |desk: &mut Desk, from, seq: u64| desk.checkpoint(from, seq, root(SeqNum(seq)), false);
    state(&mut desk, R2, 12);
    state(&mut desk, R3, 12);
    assert_eq!(fetches(&desk), [12]);
    for from in [R2, R3] {
        state(&mut desk, from, 16);
    }
    desk.fetched(12);
    assert_eq!(desk.replica.state().stable, SeqNum(12), "its own statement is the third");
    assert_eq!(fetches(&desk), [12], "16 is within the window now");
}

/// ST-4: a target that comes when a later one is being fetched is not it any more; the later one is stable when it comes.
#[test]
fn what_counts_is_what_was_said_of_the_last_target() {
    let mut desk = Desk::new(R1);
    for seq in [12, 24] {
        for from in [R2, R3] {
            desk.checkpoint(from, seq, root(SeqNum(seq)), false);
        }
    }
    assert_eq!(fetches(&desk), [12, 24]);
    for from in [R2, R3] {
        desk.checkpoint(from, 28, root(SeqNum(28)), false);
    }
    desk.fetched(12);
    assert_eq!(desk.replica.state().stable, SeqNum(0));
    desk.fetched(24);
    assert_eq!(desk.replica.state().stable, SeqNum(24));
}

/// The checkpoints that have been fetched.
fn fetches(desk: &Desk) -> Vec<u64> {
    desk.did
        .iter()
        .filter_map(|did| if let Did::Fetches(seq, _) = did { Some(seq.0) } else { None })
        .collect()
}

/// CK-5: two others have stopped at different numbers, far ahead, and agree on their stable checkpoint. What one of them
/// says of a later one does not displace that.
#[test]
fn l27_a_later_checkpoint_does_not_displace_the_stable_one() {
    let mut desk = Desk::new(R1);
    let at = |seq| root(SeqNum(seq));
    desk.checkpoint(R0, 12, at(12), true);
    desk.checkpoint(R0, 16, at(16), false);
    desk.checkpoint(R2, 12, at(12), true);
    assert!(
        desk.did
            .iter()
            .any(|d| matches!(d, Did::Fetches(seq, digest) if (*seq, *digest) == (SeqNum(12), at(12))))
    );
}

/// ST-5: a batch has committed, and this replica lacks it. The checkpoint before it becomes stable while the answer is on
/// its way: the batch is still wanted.
#[test]
fn l24_a_batch_is_still_wanted_after_a_checkpoint() {
    let mut desk = Desk::new(R1);
    ordered_to(&mut desk, 4);
    let batch = desk.batch(c(0), 5, b"x");
    for from in [R0, R2, R3] {
        desk.commit(from, 0, 5, batch.digest());
    }
    assert_eq!(desk.sent(Kind::BodyFetch), 1);
    for from in [R0, R2] {
        desk.checkpoint(from, 4, root(SeqNum(4)), false);
    }
    assert_eq!(desk.replica.state().stable, SeqNum(4));
    desk.hear(R3, Kind::Body, |w| BodyMessage::encode_batch(&batch, w));
    assert!(desk.executed().contains(&(5, false)));
    // And what nobody needs any more is asked for no longer.
    desk.forget();
    desk.pass(100);
    assert_eq!(desk.sent(Kind::BodyFetch), 0);
}

/// SM-2: the first copy of an executed batch is beyond the limit of bytes, also below the stable checkpoint.
#[test]
fn a_first_copy_of_an_old_batch_is_beyond_the_budget() {
    let mut desk = Desk::with(R1, 4, 1, |config| {
        (config.checkpoint_interval, config.window, config.pipeline) = (2, 4, 2);
        config.retransmit_bytes = 10;
    });
    let digests: Vec<Digest> = (1..=4).map(|seq| desk.order(seq, c(0), seq, b"x")).collect();
    for from in [R0, R2] {
        desk.checkpoint(from, 4, root(SeqNum(4)), false);
    }
    assert_eq!(desk.replica.state().stable, SeqNum(4));
    let ask = |desk: &mut Desk, digest: &Digest| {
        desk.hear(R3, Kind::BodyFetch, |w| BodyFetch::encode(BodyKind::Batch, &[*digest], w));
    };
    for digest in &digests {
        ask(&mut desk, digest);
        desk.pass(5);
    }
    assert_eq!(desk.sent_to(R3, Kind::Body), 4);
    desk.forget();
    for digest in &digests {
        ask(&mut desk, digest);
    }
    assert_eq!(desk.sent_to(R3, Kind::Body), 1, "again, within the limit");
}

/// ST-8: the next batch needs a page that cannot be read, and no other replica has it any more. The batches up to a
/// checkpoint that others certify wait for that page, so the checkpoint is fetched. Those above it are executed again.
#[test]
fn d3_a_state_with_a_page_that_nobody_has_is_replaced_by_a_later_one() {
    let mut desk = Desk::new(R1);
    ordered_to(&mut desk, 2);
    desk.hold_executions();
    desk.roots_wait = true; // a checkpoint is cut after the executions before it
    for n in 3..=6 {
        desk.order(n, c(0), n, b"x");
    }
    for from in [R0, R2] {
        desk.checkpoint(from, 4, root(SeqNum(4)), false);
    }
    desk.pass(300);
    assert!(fetches(&desk).is_empty(), "batches that were handed over are not overtaken");
    desk.input(Input::Unreadable { executed: SeqNum(0) });
    desk.input(Input::Unreadable { executed: SeqNum(0) });
    assert_eq!(fetches(&desk), [4]);
    desk.forget();
    desk.fetched(4);
    desk.end_executions();
    assert_eq!(desk.executed(), [(5, false), (6, false)]);
    assert_eq!(desk.replica.state().executed, SeqNum(6));
}

/// L66, ST-8: such a checkpoint is not fetched any more when the page has come and the batches up to it are executed. Of
/// the checkpoints that could be fetched, none is behind what the executor has executed already.
#[test]
fn l66_a_checkpoint_that_execution_has_reached_is_not_fetched() {
    let mut desk = Desk::new(R1);
    ordered_to(&mut desk, 2);
    desk.hold_executions();
    desk.roots_wait = true;
    for n in 3..=6 {
        desk.order(n, c(0), n, b"x");
    }
    for from in [R0, R2] {
        desk.checkpoint(from, 4, root(SeqNum(4)), false);
    }
    desk.input(Input::Unreadable { executed: SeqNum(5) });
    assert!(fetches(&desk).is_empty(), "the executor is past it");
    desk.input(Input::Unreadable { executed: SeqNum(2) });
    assert_eq!(fetches(&desk), [4]);
    desk.forget();
    desk.end_executions();
    for n in 7..=8 {
        desk.order(n, c(0), n, b"x");
    }
    desk.end_executions();
    assert_eq!(desk.replica.state().executed, SeqNum(8));
    assert!(fetches(&desk).is_empty());
}

/// D9, ST-8: the checkpoint that replaces such a state is replaced itself when the others have a later one, and may have
/// discarded it: that one, too, is within what was handed over.
#[test]
fn d9_a_state_that_replaces_another_is_replaced_by_a_later_one() {
    let mut desk = Desk::new(R1);
    ordered_to(&mut desk, 2);
    desk.hold_executions();
    desk.roots_wait = true;
    for n in 3..=8 {
        desk.order(n, c(0), n, b"x");
    }
    for from in [R0, R2] {
        desk.checkpoint(from, 4, root(SeqNum(4)), false);
    }
    desk.pass(300);
    desk.input(Input::Unreadable { executed: SeqNum(0) });
    assert_eq!(fetches(&desk), [4]);
    for from in [R0, R2] {
        desk.checkpoint(from, 8, root(SeqNum(8)), true);
    }
    desk.pass(300);
    assert_eq!(fetches(&desk), [4, 8]);
    desk.fetched(8);
    desk.end_executions();
    assert_eq!(desk.replica.state().executed, SeqNum(8));
}

/// L50, ST-4: nobody gives a part of the target, because one of the two replicas that stated it has lost its disk and the
/// other cannot read a page. An earlier checkpoint, which others hold, is fetched instead; the first target comes back
/// only when that one is not given, either.
#[test]
fn l50_a_target_that_nobody_gives_is_left_for_another() {
    let mut desk = Desk::new(R1);
    ordered_to(&mut desk, 2);
    for from in [R0, R3] {
        desk.checkpoint(from, 4, root(SeqNum(4)), false);
    }
    for from in [R2, R3] {
        desk.checkpoint(from, 8, root(SeqNum(8)), false);
    }
    desk.pass(300);
    assert_eq!(fetches(&desk), [8]);
    desk.input(Input::Unreadable { executed: SeqNum(0) });
    assert_eq!(fetches(&desk), [8, 4]);
    for from in [R2, R3] {
        desk.checkpoint(from, 8, root(SeqNum(8)), true);
    }
    desk.pass(300);
    assert_eq!(fetches(&desk), [8, 4], "that one has stalled");
    desk.input(Input::Unreadable { executed: SeqNum(0) });
    assert_eq!(fetches(&desk), [8, 4, 8]);
    desk.input(Input::Unreadable { executed: SeqNum(0) });
    desk.fetched(4);
    assert_eq!(desk.replica.state().executed, SeqNum(4));
    desk.pass(300);
    assert_eq!(fetches(&desk), [8, 4, 8, 4, 8], "from there on, it is the goal again");
}

/// Without another certified checkpoint, the target stays.
#[test]
fn a_target_that_nobody_gives_stays_without_another() {
    let mut desk = Desk::new(R1);
    ordered_to(&mut desk, 2);
    for from in [R2, R3] {
        desk.checkpoint(from, 8, root(SeqNum(8)), false);
    }
    desk.pass(300);
    desk.input(Input::Unreadable { executed: SeqNum(0) });
    assert_eq!(fetches(&desk), [8]);
}

/// Without a later checkpoint there is nothing to fetch.
#[test]
fn a_page_that_nobody_has_is_waited_for_without_a_later_state() {
    let mut desk = Desk::new(R1);
    ordered_to(&mut desk, 4);
    desk.input(Input::Unreadable { executed: SeqNum(0) });
    desk.checkpoint(R0, 8, root(SeqNum(8)), false);
    desk.input(Input::Unreadable { executed: SeqNum(0) });
    assert!(fetches(&desk).is_empty());
}
