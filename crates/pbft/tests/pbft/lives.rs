//! RC-11: what a replica said in a life that has ended does not count for what it says now.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test may panic")]

use crate::desk::{Desk, R0, R1, R2, R3, c, root};
use quorate_pbft::Milestone;
use quorate_pbft::step::Reject;
use quorate_wire::frame::Frame;
use quorate_wire::id::{ClientId, ReplicaId, SeqNum, Timestamp, ViewNum};
use quorate_wire::life::{Life, Lives, Recovery};
use quorate_wire::message::{Kind, NewView, ViewChange};

const R4: ReplicaId = ReplicaId(4);
const R5: ReplicaId = ReplicaId(5);
const R6: ReplicaId = ReplicaId(6);

fn life(t: u64, bits: u64) -> Life {
    Life { timestamp: Timestamp(t), bits }
}

/// A recovery request of `from` is executed at 1 and opens the life `(t, bits)`; the checkpoint at 4 is stable.
fn recover(desk: &mut Desk, from: ReplicaId, (t, bits): (u64, u64), floor: u64) {
    let mut operation = Vec::new();
    let before = Life::default();
    Recovery { bound: SeqNum(0), bits, floor: ViewNum(floor), before }.encode(&mut operation);
    order_first(desk, from, t, &operation);
    let me = desk.replica.id();
    for seq in 2..=4 {
        desk.order(seq, c(0), seq, b"x");
    }
    for from in [R0, R1, R2, R3].into_iter().filter(|r| *r != me) {
        desk.checkpoint(from, 4, root(SeqNum(4)), false);
    }
    assert_eq!(desk.replica.state().stable, SeqNum(4));
}

/// A request of `from` is executed at 1.
fn order_first(desk: &mut Desk, from: ReplicaId, t: u64, operation: &[u8]) {
    let frame = desk.request_frame_with(ClientId(u64::from(from.0)), t, operation, false, true);
    let (batch, me) = (desk.batch_of(&[frame]), desk.replica.id());
    desk.pre_prepare(R0, 0, 1, &batch);
    for from in [R1, R2, R3].into_iter().filter(|r| *r != me) {
        desk.prepare(from, 0, 1, batch.digest());
    }
    for from in [R0, R1, R2, R3].into_iter().filter(|r| *r != me) {
        desk.commit(from, 0, 1, batch.digest());
    }
}

/// L152, RC-10: a replica that has executed what a liar asked for expects no null batches, as one that has fetched that state
/// does not.
#[test]
fn l152_only_a_recovery_request_brings_null_batches() {
    let mut recovery = Vec::new();
    Recovery { bound: SeqNum(0), bits: 7, floor: ViewNum(0), before: Life::default() }.encode(&mut recovery);
    for (operation, brings) in [(&recovery[..], true), (b"nothing", false)] {
        let mut desk = Desk::new(R1);
        order_first(&mut desk, R2, 5, operation);
        let mut null = quorate_wire::Batch::default();
        null.seal(&desk.domains.clone(), &[]);
        desk.pre_prepare(R0, 0, 2, &null);
        assert_eq!(!desk.rejected(Reject::NullBatch), brings, "{operation:?}");
    }
}

/// Has the desk's replica hear a VIEW-CHANGE for `view` of `from`, in this life.
fn hear_view_change(desk: &mut Desk, from: ReplicaId, view: u64, life: Life) {
    let stable = desk.replica.state().stable;
    let checkpoints = vec![(stable, root(stable))];
    let m = ViewChange { life, stable, checkpoints, ..desk.empty_view_change(view) };
    let frame = desk.view_change(from, &m);
    desk.frame(&frame);
}

/// RC-11b: a VIEW-CHANGE of a life that has ended makes no new view; one of the new life does, and takes its place.
#[test]
fn rc11_a_new_view_is_not_made_of_an_ended_life() {
    let mut desk = Desk::new(R1);
    recover(&mut desk, R2, (5, 7), 0);
    desk.suspect(R2, 0);
    desk.suspect(R3, 0);
    hear_view_change(&mut desk, R3, 1, Life::default());
    hear_view_change(&mut desk, R2, 1, Life::default());
    assert!(desk.rejected(Reject::EndedLife));
    assert_eq!(desk.sent(Kind::NewView), 0, "r1, r3, and what r2 said before it lost its memory");
    // Of a life that nobody knows of: it may come, and this comes again then.
    hear_view_change(&mut desk, R2, 1, life(6, 8));
    assert!(desk.rejected(Reject::LaterLife));
    // The right timestamp is not enough: it can be guessed.
    desk.forget();
    hear_view_change(&mut desk, R2, 1, life(5, 8));
    assert!(desk.rejected(Reject::EndedLife));
    assert_eq!(desk.sent(Kind::NewView), 0);
    hear_view_change(&mut desk, R2, 1, life(5, 7));
    assert_eq!(desk.sent(Kind::NewView), 1);
}

/// RC-11b: what was kept is forgotten when the life that it is of ends.
#[test]
fn rc11_what_was_heard_before_counts_no_more() {
    let mut desk = Desk::new(R1);
    hear_view_change(&mut desk, R2, 4, Life::default());
    assert_eq!(desk.replica.view(), ViewNum(4), "it follows the LeaveCert");
    let mut other = Desk::new(R3);
    recover(&mut other, R2, (5, 7), 9);
    // Up to the floor of the new life the old one's statements are as true as ever.
    hear_view_change(&mut other, R2, 4, Life::default());
    assert!(!other.rejected(Reject::EndedLife));
    assert_eq!(other.replica.view(), ViewNum(4));
    hear_view_change(&mut other, R2, 10, Life::default());
    assert!(other.rejected(Reject::EndedLife));
    assert_eq!(other.replica.view(), ViewNum(4));
}

/// RC-11c: of two lives that count the newer one stays, also where it speaks of an earlier view.
#[test]
fn rc11c_a_newer_life_replaces_an_older_one() {
    let mut desk = Desk::new(R1);
    recover(&mut desk, R2, (5, 7), 9);
    desk.suspect(R2, 0);
    desk.suspect(R3, 0);
    hear_view_change(&mut desk, R3, 1, Life::default());
    hear_view_change(&mut desk, R2, 1, life(5, 7));
    assert_eq!(desk.sent(Kind::NewView), 1);
    desk.forget();
    hear_view_change(&mut desk, R2, 3, Life::default());
    assert!(desk.rejected(Reject::EndedLife), "of two that count");
    assert_eq!(desk.replica.view(), ViewNum(1));
}

/// The life that this replica itself is in is what the state says: its VIEW-CHANGE names it.
#[test]
fn rc11_a_view_change_names_its_senders_life() {
    let mut desk = Desk::new(R1);
    recover(&mut desk, R1, (5, 7), 0);
    desk.suspect(R2, 0);
    desk.suspect(R3, 0);
    let (_, frame) = desk.last_sent(Kind::ViewChange).unwrap();
    let own = ViewChange::decode(Frame::decode(&frame).unwrap().body).unwrap();
    assert_eq!(own.life, life(5, 7));
}

/// Seven replicas, r4 on the desk: it has executed nothing and enters view 1 by a NEW-VIEW that names a VIEW-CHANGE
/// which r5 signed before it lost its memory. Then it fetches the state at 20, in which r5's recovery is noted.
fn lagging(lives: &[(ReplicaId, Lives)]) -> Desk {
    let mut desk = Desk::with(R4, 7, 2, |_| {});
    for from in [R0, R1, R2] {
        desk.suspect(from, 0);
    }
    let (_, own) = desk.last_sent(Kind::ViewChange).unwrap();
    let leave = desk.leave_cert(0, &[R0, R1, R2]);
    let old = ViewChange { leave: leave.clone(), ..desk.empty_view_change(1) };
    let at = SeqNum(20);
    let ahead = ViewChange { stable: at, checkpoints: vec![(at, root(at))], ..old.clone() };
    let mut named = Vec::new();
    let mut frames = Vec::new();
    for (from, m) in
        [(R1, Some(&ahead)), (R2, Some(&ahead)), (R4, None), (R5, Some(&old)), (R6, Some(&ahead))]
    {
        let frame = m.map_or_else(|| own.clone(), |m| desk.view_change(from, m));
        named.push((from, desk.digest_of(&frame)));
        frames.extend(m.is_some().then_some(frame));
    }
    let new_view = NewView {
        view: ViewNum(1),
        life: Life::default(),
        view_changes: named,
        checkpoint: (at, root(at)),
        chosen: vec![],
    };
    frames.push(desk.new_view(R1, &new_view));
    for frame in frames {
        desk.frame(&frame);
    }
    // It cannot know better: the check at receipt passes.
    assert!(desk.said(|m| matches!(m, Milestone::ViewEntered { view: ViewNum(1), .. })));
    desk.fetched_with(20, lives);
    for from in [R0, R2, R3] {
        desk.checkpoint(from, 20, root(at), true);
    }
    assert!(desk.said(|m| matches!(m, Milestone::Stable { seq: SeqNum(20), .. })));
    let batch = desk.batch(c(0), 1, b"x");
    desk.pre_prepare(R1, 1, 21, &batch);
    desk
}

/// RC-11a: by the table as of its stable checkpoint the view rests on a life that has ended. r5, in its new life, may
/// have voted in view 0 for what this NEW-VIEW leaves out; so r4 votes for nothing in this view, and leaves it.
#[test]
fn rc11a_a_backup_that_lags_does_not_vote_in_a_view_that_rests_on_an_ended_life() {
    let desk = lagging(&[(R5, Lives::default().opened(life(5, 7), ViewNum(0)))]);
    assert_eq!(desk.sent(Kind::Prepare), 0);
    assert!(desk.said(|m| matches!(m, Milestone::Suspected { view: ViewNum(1), .. })));
}

/// The same, where r5's new life votes in no view below 1: nothing is left out that it could have voted for.
#[test]
fn rc11a_up_to_the_floor_of_the_new_life_the_view_is_good() {
    let desk = lagging(&[(R5, Lives::default().opened(life(5, 7), ViewNum(1)))]);
    assert_eq!(desk.sent(Kind::Prepare), 1);
    assert!(!desk.said(|m| matches!(m, Milestone::Suspected { .. })));
}

/// Nobody has rejoined: the view is good.
#[test]
fn rc11a_a_view_without_ended_lives_is_voted_in() {
    let desk = lagging(&[]);
    assert_eq!(desk.sent(Kind::Prepare), 1);
}
