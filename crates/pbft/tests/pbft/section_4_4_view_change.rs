//! [OSDI99 §4.4] View changes, clause by clause. What a new view takes over is decided by the pure
//! functions of `new_view.rs` and tested there.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test may panic")]

use crate::desk::{Desk, R0, R1, R2, R3, c, root};
use quorate_pbft::Milestone;
use quorate_pbft::config::Durability;
use quorate_pbft::step::{Input, Recipient, Reject};
use quorate_wire::frame::Frame;
use quorate_wire::id::{Principal, ReplicaId, SeqNum, Timestamp, ViewNum};
use quorate_wire::life::Life;
use quorate_wire::message::{
    Bitmap, Echoes, Kind, NewView, PrePrepareHead, PrePrepared, Prepare, ReqAck, Start, Status, ViewChange,
};

fn own_view_change(desk: &Desk) -> Option<ViewChange> {
    let (_, frame) = desk.last_sent(Kind::ViewChange)?;
    ViewChange::decode(Frame::decode(&frame).unwrap().body).ok()
}

fn left(desk: &Desk, view: u64) -> bool {
    desk.said(|m| *m == Milestone::ViewChangeStarted { view: ViewNum(view) })
}

/// Leads the desk's replica into view 1 (primary r1) on empty VIEW-CHANGEs of the others.
fn enter_view_1(desk: &mut Desk, from: &[ReplicaId]) {
    let me = desk.replica.id();
    for other in [R1, R2, R3].into_iter().filter(|r| *r != me).take(2) {
        desk.suspect(other, 0);
    }
    let empty = desk.empty_view_change(1);
    for r in from {
        let frame = desk.view_change(*r, &empty);
        desk.frame(&frame);
    }
}

/// "A faulty replica cannot cause a view change by sending a view-change message, because a view change
/// will happen only if at least f + 1 replicas send view-change messages."
#[test]
fn one_suspicion_is_not_enough_two_are() {
    let mut desk = Desk::new(R1);
    desk.suspect(R2, 0);
    desk.suspect(R2, 0);
    assert!(!left(&desk, 1));
    desk.suspect(R3, 0);
    assert!(left(&desk, 1));
}

/// VC-5: a VIEW-CHANGE names its sender's stable checkpoint. A replica that leaves view 0 before it knows the digest
/// of its initial state waits for it: without it nobody would accept the message, and it may not send another.
#[test]
fn l22_a_view_change_waits_for_the_digest_of_the_initial_state() {
    let mut desk = Desk::starting(R1);
    desk.suspect(R0, 0);
    assert!(left(&desk, 1));
    assert!(own_view_change(&desk).is_none());
    desk.input(Input::Checkpointed { seq: SeqNum(0), root: root(SeqNum(0)) });
    let sent = own_view_change(&desk).unwrap();
    assert_eq!(sent.checkpoints, [(SeqNum(0), root(SeqNum(0)))]);
}

/// LV-2: the primary's own suspicion hands the view over.
#[test]
fn a_primary_may_hand_its_view_over() {
    let mut desk = Desk::new(R1);
    desk.suspect(R0, 0);
    assert!(left(&desk, 1));
}

/// TM-2: a replica that has waited too long sends the request to all, so that every correct timer runs, and says
/// again that it is authentic here. A replica that was away when the others said so would stay alone
/// with the request otherwise, and the view would never end.
#[test]
fn an_overdue_request_takes_its_voucher_along() {
    let mut desk = Desk::new(R2);
    desk.request(c(0), 1, b"x");
    let digest = desk.domains.request(c(0).0, 1, b"x");
    let ack = ReqAck { client: c(0), timestamp: Timestamp(1), digest };
    for from in [R1, R3] {
        desk.hear(from, Kind::ReqAck, |w| ack.encode(w));
    }
    desk.pass(99);
    desk.forget();
    desk.pass(150);
    assert!(desk.said(|m| matches!(m, Milestone::Suspected { view: ViewNum(0), .. })));
    let to_all = |kind: Kind| desk.last_sent(kind).is_some_and(|(to, _)| to == Recipient::All);
    assert!(to_all(Kind::Request) && to_all(Kind::ReqAck));
}

/// "It stops accepting messages (other than checkpoint, view-change, and new-view messages)".
#[test]
fn a_replica_that_has_left_votes_no_more() {
    let mut desk = Desk::new(R2);
    let batch = desk.batch(c(0), 1, b"x");
    desk.suspect(R1, 0);
    desk.suspect(R3, 0);
    desk.forget();
    desk.pre_prepare(R0, 0, 1, &batch);
    desk.prepare(R3, 0, 1, batch.digest());
    assert!(desk.rejected(Reject::OtherView));
    assert_eq!(desk.sent(Kind::Prepare) + desk.sent(Kind::Commit), 0);
}

/// "multicasts a VIEW-CHANGE, v+1, n, C, P, i message [...] n is the sequence number of the last stable
/// checkpoint [...] P is a set containing a set `P_m` for each request m that prepared at i with a sequence
/// number higher than n."
#[test]
fn a_view_change_carries_checkpoints_and_what_prepared() {
    let mut desk = Desk::new(R1);
    for t in 1..=5 {
        desk.order(t, c(0), t, b"x");
    }
    for from in [R0, R2] {
        desk.checkpoint(from, 4, root(SeqNum(4)), false);
    }
    let half = desk.batch(c(1), 1, b"only pre-prepared");
    desk.pre_prepare(R0, 0, 6, &half);
    desk.suspect(R2, 0);
    desk.suspect(R3, 0);
    let m = own_view_change(&desk).unwrap();
    assert_eq!((m.view, m.stable), (ViewNum(1), SeqNum(4)));
    assert_eq!(m.checkpoints, [(SeqNum(4), root(SeqNum(4)))]);
    // VC-2: 5 is executed here and is in P all the same; 6 has not prepared and is in Q only.
    assert_eq!(m.prepared.iter().map(|p| p.seq.0).collect::<Vec<_>>(), [5]);
    assert_eq!(m.pre_prepared.iter().map(|q| q.seq.0).collect::<Vec<_>>(), [5, 6]);
    assert_eq!(m.leave.suspects.len(), 2);
}

/// "When the primary p of view v+1 receives 2f valid view-change messages for view v+1 from other
/// replicas, it multicasts a NEW-VIEW message to all other replicas [...] then it enters view v+1".
#[test]
fn the_new_primary_decides_with_a_quorum() {
    let mut desk = Desk::new(R1);
    enter_view_1(&mut desk, &[R2]);
    assert_eq!(desk.sent(Kind::NewView), 0);
    let empty = desk.empty_view_change(1);
    let frame = desk.view_change(R3, &empty);
    desk.frame(&frame);
    assert_eq!(desk.sent(Kind::NewView), 1);
    assert!(desk.said(|m| matches!(m, Milestone::ViewEntered { view: ViewNum(1), .. })));
    // I7: one NEW-VIEW for a view, even if others join (B14).
    let frame = desk.view_change(R0, &empty);
    desk.frame(&frame);
    assert_eq!(desk.sent(Kind::NewView), 1);
}

/// "A backup accepts a new-view message for view v+1 if it is signed properly, if the view-change messages
/// it contains are valid for view v+1, and if the set O is correct; [...] multicasts a prepare for each
/// message in O".
#[test]
fn a_backup_checks_the_new_view_and_votes_for_what_it_takes_over() {
    let mut desk = Desk::new(R2);
    let digest = desk.order(1, c(0), 1, b"x");
    desk.suspect(R1, 0);
    desk.suspect(R3, 0);
    let own = desk.last_sent(Kind::ViewChange).unwrap().1;
    // r1 saw the same as this replica; r3 saw nothing.
    let seen = own_view_change(&desk).unwrap();
    let (of_r1, of_r3) = (desk.view_change(R1, &seen), {
        let empty = desk.empty_view_change(1);
        desk.view_change(R3, &empty)
    });
    let named = vec![(R1, desk.digest_of(&of_r1)), (R2, desk.digest_of(&own)), (R3, desk.digest_of(&of_r3))];
    let right = NewView {
        life: Life::default(),
        view: ViewNum(1),
        view_changes: named,
        checkpoint: (SeqNum(0), root(SeqNum(0))),
        chosen: vec![digest],
    };
    let frame = desk.new_view(R1, &right);
    desk.frame(&frame);
    assert!(desk.sent(Kind::VcFetch) == 1, "what it names is asked for at once");
    desk.frame(&of_r1);
    desk.frame(&of_r3);
    assert!(desk.said(|m| matches!(m, Milestone::ViewEntered { view: ViewNum(1), last: SeqNum(1) })));
    let (_, prepare) = desk.last_sent(Kind::Prepare).unwrap();
    let prepare = Prepare::decode(&prepare).unwrap();
    assert_eq!((prepare.view, prepare.seq, prepare.digest), (ViewNum(1), SeqNum(1), digest));
    // "they avoid re-executing client requests".
    assert_eq!(desk.executed().len(), 1);
}

/// P15: a NEW-VIEW that picks null for a batch that may have committed is refused, and its author
/// suspected at once (VV-4).
#[test]
fn p15_a_new_view_that_drops_a_prepared_request_is_refused() {
    let mut desk = Desk::new(R2);
    desk.order(1, c(0), 1, b"x");
    desk.suspect(R1, 0);
    desk.suspect(R3, 0);
    let own = desk.last_sent(Kind::ViewChange).unwrap().1;
    let seen = own_view_change(&desk).unwrap();
    let (of_r1, of_r3) = (desk.view_change(R1, &seen), desk.view_change(R3, &seen));
    let named = vec![(R1, desk.digest_of(&of_r1)), (R2, desk.digest_of(&own)), (R3, desk.digest_of(&of_r3))];
    let null = desk.domains.null_batch();
    let wrong = NewView {
        life: Life::default(),
        view: ViewNum(1),
        view_changes: named,
        checkpoint: (SeqNum(0), root(SeqNum(0))),
        chosen: vec![null],
    };
    for frame in [of_r1, of_r3, desk.new_view(R1, &wrong)] {
        desk.frame(&frame);
    }
    assert!(desk.rejected(Reject::BadNewView));
    assert!(desk.said(|m| matches!(m, Milestone::Suspected { view: ViewNum(1), .. })));
    assert!(!desk.said(|m| matches!(m, Milestone::ViewEntered { .. })));
}

fn status(desk: &mut Desk, from: ReplicaId, counter: u64, normal: bool) {
    status_in(desk, from, counter, 1, normal);
}

fn status_in(desk: &mut Desk, from: ReplicaId, counter: u64, view: u64, normal: bool) {
    desk.hear(from, Kind::Status, |w| {
        Status {
            counter,
            view: ViewNum(view),
            stable: SeqNum(0),
            executed: SeqNum(0),
            start: Start { incarnation: 1 << 20, token: 0 },
            settings: 0,
            echoes: Echoes::default(),
            normal,
            has_new_view: normal,
            prepared: Bitmap::default(),
            committed: Bitmap::default(),
            have: 0,
            wants: Vec::new(),
        }
        .encode(w);
    });
}

/// L32, SM-2: what committed does not take the room of the NEW-VIEW, however far behind a replica is that waits for that.
#[test]
fn l32_a_replica_far_behind_is_sent_the_new_view_first() {
    let mut desk = Desk::with(R1, 4, 1, |config| {
        (config.checkpoint_interval, config.window, config.retransmit_bytes) = (128, 256, 8 << 10);
    });
    enter_view_1(&mut desk, &[R2, R3]);
    for t in 1..=100 {
        desk.request(c(0), t, b"x");
        let (_, body) = desk.last_sent(Kind::PrePrepare).unwrap();
        let head = PrePrepareHead::decode(&body).unwrap();
        for from in [R2, R3] {
            desk.prepare(from, 1, head.seq.0, head.digest);
            desk.commit(from, 1, head.seq.0, head.digest);
        }
    }
    desk.pass(200);
    desk.forget();
    status(&mut desk, R3, 1, false);
    assert_eq!((desk.sent_to(R3, Kind::NewView), desk.sent_to(R3, Kind::Committed)), (1, 100));
}

/// r2 in view 1 after a restart. Of the VIEW-CHANGEs that its NEW-VIEW names, one has room in an answer.
fn restarted_in_view_1(named: [ReplicaId; 3]) -> Desk {
    let change = |config: &mut quorate_pbft::Config| {
        (config.durability, config.retransmit_bytes) = (Durability::Sync, 300);
    };
    let mut before = Desk::with(R2, 4, 1, change);
    let empty = before.empty_view_change(1);
    let mut frames = Vec::new();
    for from in named.into_iter().filter(|from| *from != R2) {
        frames.push((from, before.view_change(from, &empty)));
    }
    for (_, frame) in &frames {
        before.frame(frame);
    }
    if named.contains(&R2) {
        frames.push((R2, before.last_sent(Kind::ViewChange).unwrap().1));
        frames.sort_by_key(|(from, _)| *from);
    }
    let new_view = NewView {
        view: ViewNum(1),
        life: Life::default(),
        view_changes: frames.iter().map(|(from, frame)| (*from, before.digest_of(frame))).collect(),
        checkpoint: (SeqNum(0), root(SeqNum(0))),
        chosen: vec![],
    };
    let frame = before.new_view(R1, &new_view);
    before.frame(&frame);
    let desk = Desk::restarted(&before, R2, change);
    assert!(desk.replica.state().normal && desk.replica.view() == ViewNum(1));
    desk
}

/// L56, SM-2: a replica that lags gets the own VIEW-CHANGE of each replica that answers, or else one after the other. If it
/// got the same one from all, it would not follow.
#[test]
fn l56_a_replica_that_lags_is_not_sent_the_same_view_change_by_all() {
    for (named, expected) in [([R0, R1, R2], vec![R2]), ([R0, R1, R3], vec![R0, R1, R3])] {
        let mut desk = restarted_in_view_1(named);
        let mut seen = Vec::new();
        for counter in 1..=50 {
            desk.pass(300);
            desk.forget();
            status_in(&mut desk, R3, counter, 0, true);
            let (_, frame) = desk.last_sent(Kind::ViewChange).unwrap();
            assert_eq!(desk.sent_to(R3, Kind::ViewChange), 1);
            let Principal::Replica(sender) = Frame::decode(&frame).unwrap().sender else {
                panic!("a client's")
            };
            seen.push(sender);
        }
        seen.sort_unstable();
        seen.dedup();
        assert_eq!(seen, expected);
    }
}

/// A message of the new view may overtake its NEW-VIEW and is rejected. A replica that enters the view says so
/// at once, and is sent at once what it has missed, however recently it was answered: or the view would
/// stall until the next status and be abandoned.
#[test]
fn what_overtook_the_new_view_is_sent_again_at_once() {
    let mut desk = Desk::new(R1);
    enter_view_1(&mut desk, &[R2]);
    status(&mut desk, R3, 1, false);
    let empty = desk.empty_view_change(1);
    let frame = desk.view_change(R3, &empty);
    desk.frame(&frame);
    assert!(desk.said(|m| matches!(m, Milestone::ViewEntered { view: ViewNum(1), .. })));
    desk.forget();
    desk.pass(0);
    assert_eq!(desk.sent(Kind::Status), 1, "it says that it has entered the view");
    desk.request(c(0), 1, b"x");
    desk.forget();
    // r3 was answered a moment ago, while it waited for the NEW-VIEW. Now it works in the view.
    status(&mut desk, R3, 2, true);
    let (to, _) = desk.last_sent(Kind::PrePrepare).unwrap();
    assert_eq!(to, Recipient::Replica(R3));
    desk.forget();
    status(&mut desk, R3, 3, true);
    assert!(desk.rejected(Reject::TooSoon) && desk.sent(Kind::PrePrepare) == 0, "once is enough");
}

/// PC-4: a replica that has executed a number need not have prepared it in this view, and the others may need
/// its COMMIT. Its STATUS says so, and it is sent what it lacks.
#[test]
fn what_is_executed_is_voted_for_again() {
    let mut desk = Desk::new(R2);
    desk.order(1, c(0), 1, b"x");
    let mut counter = 0;
    let mut hear = |desk: &mut Desk, prepared: &[u8]| {
        desk.pass(200);
        desk.forget();
        counter += 1;
        desk.hear(R3, Kind::Status, |w| {
            Status {
                counter,
                view: ViewNum(0),
                stable: SeqNum(0),
                executed: SeqNum(1),
                start: Start { incarnation: 1 << 20, token: 0 },
                settings: 0,
                echoes: Echoes::default(),
                normal: true,
                has_new_view: false,
                prepared: Bitmap::new(prepared),
                committed: Bitmap::new(&[1]),
                have: 0,
                wants: Vec::new(),
            }
            .encode(w);
        });
        (desk.sent_to(R3, Kind::Prepare), desk.sent_to(R3, Kind::Commit))
    };
    assert_eq!(hear(&mut desk, &[0]), (1, 0), "it has committed, and not prepared");
    assert_eq!(hear(&mut desk, &[1]), (0, 0));
    // What it says itself, after a view change in which nothing has prepared yet.
    enter_view_1(&mut desk, &[]);
    desk.pass(200);
    let (_, body) = desk.last_sent(Kind::Status).unwrap();
    let own = Status::decode(&body).unwrap();
    assert_eq!((own.executed, own.prepared.has(0), own.committed.has(0)), (SeqNum(1), false, true));
}

/// DP-5: behind every P entry there must be f + 1 correct replicas that can say so in Q, and a NEW-VIEW is its
/// author's vote. A new primary that has its low water mark below the others' and could not vote for all of
/// X, therefore waits until it can.
#[test]
fn a_new_primary_first_comes_to_the_checkpoint_that_it_starts_from() {
    let mut desk = Desk::new(R1);
    for t in 1..=8 {
        desk.order(t, c(0), t, b"x");
    }
    desk.suspect(R2, 0);
    desk.suspect(R3, 0);
    let own = own_view_change(&desk).unwrap();
    assert_eq!(own.stable, SeqNum(0));
    // r2 stands where this replica does; at r3, 8 is stable, and 9 has been proposed.
    let claims = vec![(root(SeqNum(99)), ViewNum(0))];
    let ahead = ViewChange {
        stable: SeqNum(8),
        checkpoints: vec![(SeqNum(8), root(SeqNum(8)))],
        prepared: vec![],
        pre_prepared: vec![PrePrepared { seq: SeqNum(9), claims }],
        ..own.clone()
    };
    for frame in [desk.view_change(R2, &own), desk.view_change(R3, &ahead)] {
        desk.frame(&frame);
    }
    assert_eq!(desk.sent(Kind::NewView), 0, "9 is above 0 + L = 8");
    for from in [R2, R3] {
        desk.checkpoint(from, 8, root(SeqNum(8)), false);
    }
    let (_, frame) = desk.last_sent(Kind::NewView).unwrap();
    let new_view = NewView::decode(Frame::decode(&frame).unwrap().body).unwrap();
    assert_eq!((new_view.checkpoint.0, new_view.last()), (SeqNum(8), SeqNum(9)));
}

/// P14: fewer VIEW-CHANGEs than a quorum begin no view.
#[test]
fn p14_a_new_view_on_too_few_view_changes_is_refused() {
    let mut desk = Desk::new(R2);
    enter_view_1(&mut desk, &[R3]);
    let own = desk.last_sent(Kind::ViewChange).unwrap().1;
    let named = vec![(R2, desk.digest_of(&own))];
    let few = NewView {
        life: Life::default(),
        view: ViewNum(1),
        view_changes: named,
        checkpoint: (SeqNum(0), root(SeqNum(0))),
        chosen: vec![],
    };
    let frame = desk.new_view(R1, &few);
    desk.frame(&frame);
    assert!(desk.rejected(Reject::BadNewView));
}

/// "waits for 2f + 1 view-change messages for view v+1 and then starts its timer to expire after some time
/// T. If the timer expires before it receives a valid new-view message [...] it starts the view change for
/// view v+2 but this time it will wait 2T".
#[test]
fn without_a_new_view_the_next_view_is_tried_after_twice_the_time() {
    let mut desk = Desk::new(R2);
    enter_view_1(&mut desk, &[]);
    desk.pass(5_000);
    assert!(!desk.said(|m| matches!(m, Milestone::Suspected { view: ViewNum(1), .. })), "no quorum left yet");
    let empty = desk.empty_view_change(1);
    for from in [R0, R3] {
        let frame = desk.view_change(from, &empty);
        desk.frame(&frame);
    }
    desk.pass(110);
    assert!(desk.said(|m| matches!(m, Milestone::Suspected { view: ViewNum(1), .. })));
    desk.suspect(R3, 1);
    assert!(left(&desk, 2));
    let mut empty = desk.empty_view_change(2);
    empty.leave = desk.leave_cert(1, &[R0, R3]);
    for from in [R0, R3] {
        let frame = desk.view_change(from, &empty);
        desk.frame(&frame);
    }
    // This replica is the primary of view 2 and needs no NEW-VIEW but its own.
    assert_eq!(desk.sent(Kind::NewView), 1);
}

/// "if a replica receives a set of f + 1 valid view-change messages from other replicas for views greater
/// than its current view, it sends a view-change message [...] even if its timer has not expired": here
/// one that carries a LeaveCert is enough, because that is what f + 1 replicas said (B22).
#[test]
fn a_view_change_with_a_leave_cert_takes_everyone_along() {
    let mut desk = Desk::new(R2);
    let mut m = desk.empty_view_change(4);
    m.leave = desk.leave_cert(3, &[R0, R1]);
    let frame = desk.view_change(R3, &m);
    desk.frame(&frame);
    assert!(left(&desk, 4));
}

/// K7: a storm of VIEW-CHANGEs without LeaveCerts moves nobody.
#[test]
fn k7_a_view_change_without_a_leave_cert_is_refused() {
    let mut desk = Desk::new(R2);
    for view in 1..100 {
        let mut m = desk.empty_view_change(view);
        m.leave = desk.leave_cert(view - 1, &[R3]);
        if u64::from(R3.0) == (view - 1) % 4 {
            continue; // its own view it may hand over
        }
        let frame = desk.view_change(R3, &m);
        desk.frame(&frame);
    }
    assert!(desk.rejected(Reject::BadLeaveCert));
    assert_eq!(desk.replica.view(), ViewNum(0));
}

/// VC-6: a second, different VIEW-CHANGE for the same view never replaces the first.
#[test]
fn a_second_version_of_a_view_change_is_refused() {
    let mut desk = Desk::new(R1);
    enter_view_1(&mut desk, &[R3]);
    let mut other = desk.empty_view_change(1);
    other.leave = desk.leave_cert(0, &[R0, R2]);
    let frame = desk.view_change(R3, &other);
    desk.frame(&frame);
    assert!(desk.rejected(Reject::SecondVersion));
    assert!(desk.said(|m| *m == Milestone::Equivocation { by: R3 }));
}

/// PP-2: numbers that the NEW-VIEW fixed cannot be proposed again.
#[test]
fn a_number_fixed_by_the_new_view_cannot_be_proposed_again() {
    let mut desk = Desk::new(R2);
    let digest = desk.order(1, c(0), 1, b"x");
    desk.suspect(R1, 0);
    desk.suspect(R3, 0);
    let own = desk.last_sent(Kind::ViewChange).unwrap().1;
    let seen = own_view_change(&desk).unwrap();
    let (of_r1, of_r3) = (desk.view_change(R1, &seen), desk.view_change(R3, &seen));
    let named = vec![(R1, desk.digest_of(&of_r1)), (R2, desk.digest_of(&own)), (R3, desk.digest_of(&of_r3))];
    let nv = NewView {
        life: Life::default(),
        view: ViewNum(1),
        view_changes: named,
        checkpoint: (SeqNum(0), root(SeqNum(0))),
        chosen: vec![digest],
    };
    for frame in [of_r1, of_r3, desk.new_view(R1, &nv)] {
        desk.frame(&frame);
    }
    desk.forget();
    let other = desk.batch(c(1), 1, b"other");
    desk.pre_prepare(R1, 1, 1, &other);
    assert!(desk.rejected(Reject::FixedByNewView));
    desk.pre_prepare(R1, 1, 2, &other);
    assert!(desk.sent(Kind::Prepare) == 1);
    assert_ne!(R0, R1);
}

/// K7: a liar that hands over views of its own that nobody is in moves nobody; f + 1 replicas that have
/// left move everyone.
#[test]
fn k7_a_hand_over_of_a_later_view_moves_nobody() {
    let mut desk = Desk::new(R2);
    desk.suspect(R3, 7);
    let mut m = desk.empty_view_change(8);
    m.leave = desk.leave_cert(7, &[R3]);
    let frame = desk.view_change(R3, &m);
    desk.frame(&frame);
    assert_eq!(desk.replica.view(), ViewNum(0));
    let frame = desk.view_change(R0, &m);
    desk.frame(&frame);
    assert!(left(&desk, 8), "two replicas have left, so a correct one has");
}

/// P16: a NEW-VIEW for a far view, which names VIEW-CHANGEs that do not exist, stands in nobody's way.
#[test]
fn p16_a_new_view_for_a_far_view_does_not_block_the_right_one() {
    let mut desk = Desk::new(R2);
    let named = [R0, R1, R3].map(|r| (r, root(SeqNum(1)))).to_vec();
    let far = NewView {
        life: Life::default(),
        view: ViewNum(103),
        view_changes: named,
        checkpoint: (SeqNum(0), root(SeqNum(0))),
        chosen: vec![],
    };
    let frame = desk.new_view(R3, &far);
    desk.frame(&frame);
    enter_view_1(&mut desk, &[]);
    let own = desk.last_sent(Kind::ViewChange).unwrap().1;
    let empty = desk.empty_view_change(1);
    let (of_r1, of_r3) = (desk.view_change(R1, &empty), desk.view_change(R3, &empty));
    let named = vec![(R1, desk.digest_of(&of_r1)), (R2, desk.digest_of(&own)), (R3, desk.digest_of(&of_r3))];
    let nv = NewView {
        life: Life::default(),
        view: ViewNum(1),
        view_changes: named,
        checkpoint: (SeqNum(0), root(SeqNum(0))),
        chosen: vec![],
    };
    for frame in [of_r1, of_r3, desk.new_view(R1, &nv)] {
        desk.frame(&frame);
    }
    assert!(desk.said(|m| matches!(m, Milestone::ViewEntered { view: ViewNum(1), .. })));
}
