//! What a slot never allows.

use super::*;

const D: Digest = Digest([1; 32]);
const OTHER: Digest = Digest([2; 32]);

/// I5.
#[test]
#[should_panic(expected = "other == digest")]
fn i5_no_second_vote_in_a_view() {
    let mut slot = Slot::new(4);
    slot.vote(ViewNum(1), D);
    slot.vote(ViewNum(1), OTHER);
}

/// I5, in the log of an earlier life.
#[test]
#[should_panic(expected = "other == digest")]
fn i5_no_second_vote_in_the_log() {
    let mut slot = Slot::new(4);
    slot.restore_vote(ViewNum(1), D);
    slot.restore_vote(ViewNum(1), OTHER);
}

/// I1: what has committed stays committed.
#[test]
#[should_panic(expected = "committed == digest")]
fn one_digest_commits() {
    let mut slot = Slot::new(4);
    assert!(slot.commit(D));
    assert!(!slot.commit(D));
    slot.commit(OTHER);
}
