//! [OSDI99 §4.2] Normal-case operation, clause by clause.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test may panic")]

use crate::desk::{Desk, Did, R0, R1, R2, R3, c};
use quorate_pbft::Milestone;
use quorate_pbft::step::{Input, Recipient, Reject};
use quorate_wire::Digest;
use quorate_wire::message::Kind;

/// "When the primary, p, receives a client request, m, it starts a three-phase protocol to atomically
/// multicast the request to the replicas."
#[test]
fn the_primary_proposes_a_request_at_once() {
    let mut desk = Desk::new(R0);
    desk.request(c(0), 1, b"x");
    assert!(matches!(desk.last_sent(Kind::PrePrepare), Some((Recipient::All, _))));
    assert_eq!(desk.sent(Kind::Prepare), 0, "its pre-prepare stands for its prepare");
}

/// "The primary starts the protocol immediately unless the number of messages for which the protocol is
/// in progress exceeds a given maximum. In this case, it buffers the request."
#[test]
fn beyond_the_maximum_in_progress_requests_are_buffered_and_go_as_a_group() {
    let mut desk = Desk::with(R0, 4, 1, |config| config.pipeline = 1);
    desk.request(c(0), 1, b"a");
    desk.request(c(1), 1, b"b");
    desk.request(c(2), 1, b"c");
    assert_eq!(desk.sent(Kind::PrePrepare), 1);
    let digest = desk.batch(c(0), 1, b"a").digest();
    for from in [R1, R2, R3] {
        desk.prepare(from, 0, 1, digest);
        desk.commit(from, 0, 1, digest);
    }
    assert_eq!(desk.sent(Kind::PrePrepare), 2, "the two that waited share one");
}

/// PR-9: a batch has a bounded number of bytes of separate requests, since the log keeps them; or one request.
#[test]
fn pr9_long_requests_share_a_batch_up_to_a_bound() {
    for (len, batches) in [(50 << 10, 1), (200 << 10, 3)] {
        let mut desk = Desk::new(R0);
        desk.bursts_end = false;
        (0..3).for_each(|client| desk.request(c(client), 1, &vec![7; len]));
        desk.input(Input::BurstEnd);
        assert_eq!(desk.sent(Kind::PrePrepare), batches, "{len} bytes each");
    }
}

/// PR-2: with workers, a batch is in progress until it has committed, so a service that hangs does not stop proposals.
/// Without, the primary waits for the results of W batches.
#[test]
fn pr2_with_workers_a_committed_batch_is_not_in_progress() {
    for (workers, proposed) in [(1, 4), (8, 8)] {
        let mut desk = Desk::with(R0, 4, 1, |config| (config.workers, config.tentative) = (workers, false));
        desk.hold_executions();
        for (seq, client) in (1..).zip(0..9) {
            desk.request(c(client), 1, b"x");
            if seq > proposed {
                break;
            }
            let digest = desk.batch(c(client), 1, b"x").digest();
            for from in [R1, R2, R3] {
                desk.prepare(from, 0, seq, digest);
                desk.commit(from, 0, seq, digest);
            }
        }
        assert_eq!(u64::try_from(desk.sent(Kind::PrePrepare)).unwrap(), proposed, "{workers} workers");
    }
}

/// "A backup accepts a pre-prepare message provided: [...]" and then "enters the prepare phase by
/// multicasting a PREPARE message to all other replicas".
#[test]
fn a_backup_answers_a_pre_prepare_with_a_prepare() {
    let mut desk = Desk::new(R1);
    let batch = desk.batch(c(0), 1, b"x");
    desk.pre_prepare(R0, 0, 1, &batch);
    assert!(matches!(desk.last_sent(Kind::Prepare), Some((Recipient::All, _))));
}

/// "it is in view v".
#[test]
fn a_pre_prepare_of_another_view_is_refused() {
    let mut desk = Desk::new(R2);
    let batch = desk.batch(c(0), 1, b"x");
    desk.pre_prepare(R1, 1, 1, &batch);
    assert!(desk.rejected(Reject::OtherView));
    assert_eq!(desk.sent(Kind::Prepare), 0);
}

/// In view v only its primary proposes (PP-1).
#[test]
fn a_pre_prepare_of_a_backup_is_refused() {
    let mut desk = Desk::new(R2);
    let batch = desk.batch(c(0), 1, b"x");
    desk.pre_prepare(R1, 0, 1, &batch);
    assert!(desk.rejected(Reject::NotFromPrimary));
    assert_eq!(desk.sent(Kind::Prepare), 0);
}

/// "it has not accepted a pre-prepare message for view v and sequence number n containing a different
/// digest".
#[test]
fn a_second_digest_for_a_number_is_refused_and_noted() {
    let mut desk = Desk::new(R1);
    let (a, b) = (desk.batch(c(0), 1, b"a"), desk.batch(c(1), 1, b"b"));
    desk.pre_prepare(R0, 0, 1, &a);
    desk.pre_prepare(R0, 0, 1, &b);
    assert!(desk.rejected(Reject::Conflicts));
    assert!(desk.said(|m| *m == Milestone::Equivocation { by: R0 }));
    assert_eq!(desk.sent(Kind::Prepare), 1);
}

/// "the sequence number in the pre-prepare message is between a low water mark, h, and a high water
/// mark, H".
#[test]
fn a_number_outside_the_water_marks_is_refused() {
    let mut desk = Desk::new(R1);
    let batch = desk.batch(c(0), 1, b"x");
    for seq in [0, 9, u64::MAX] {
        desk.forget();
        desk.pre_prepare(R0, 0, seq, &batch);
        assert!(desk.rejected(Reject::OutsideWatermarks), "n = {seq}");
        assert_eq!(desk.sent(Kind::Prepare), 0);
    }
    desk.pre_prepare(R0, 0, 8, &batch);
    assert_eq!(desk.sent(Kind::Prepare), 1, "H itself is inside");
}

/// "the signatures in the request [...] are correct": one that this backup cannot verify keeps it from
/// preparing the batch (PP-5), until f other backups vouch for it (AU-2).
#[test]
fn a_request_that_is_not_authentic_here_needs_vouchers() {
    let mut desk = Desk::new(R1);
    let mut frame = desk.request_frame(c(0), 1, b"x");
    let entry_of_r1 = frame.len() - 2 * 20 - 1; // entries of r0, r1, r2, r3; each 20 bytes, tag last
    frame[entry_of_r1 - 20] ^= 1;
    frame[entry_of_r1] ^= 1;
    let batch = desk.batch_of(&[frame]);
    desk.pre_prepare(R0, 0, 1, &batch);
    assert_eq!(desk.sent(Kind::Prepare), 0);
    desk.prepare(R2, 0, 1, batch.digest());
    assert_eq!(desk.sent(Kind::Prepare), 1);
}

/// L32, ND-2: a proposal that comes late has a time that is too old by now. A correct replica has found it right when it
/// was new, if f backups have prepared it, and a liar alone says nothing.
#[test]
fn l32_an_old_time_counts_if_others_have_prepared_it() {
    for (prepared, voted) in [(false, 0), (true, 1)] {
        let mut desk = Desk::new(R1);
        let batch = desk.batch(c(0), 1, b"x");
        desk.pass(desk.config.clock_skew_ns / crate::desk::MS + 1);
        if prepared {
            desk.prepare(R2, 0, 1, batch.digest());
        }
        desk.pre_prepare(R0, 0, 1, &batch);
        assert_eq!((desk.sent(Kind::Prepare), desk.rejected(Reject::BadChoice)), (voted, !prepared));
    }
}

/// A request that its client is past will not be executed, so its authenticator proves nothing that
/// matters: a new primary may propose what the others have executed, under keys that have been renewed.
#[test]
fn a_request_that_its_client_is_past_needs_no_authenticator() {
    let mut desk = Desk::new(R1);
    desk.order(1, c(0), 1, b"x");
    for (t, voted) in [(1, 1), (2, 0)] {
        desk.forget();
        let mut frame = desk.request_frame(c(0), t, b"y");
        let entry_of_r1 = frame.len() - 2 * 20 - 1;
        frame[entry_of_r1] ^= 1;
        let batch = desk.batch_of(&[frame]);
        desk.pre_prepare(R0, 0, 1 + t, &batch);
        assert_eq!(desk.sent(Kind::Prepare), voted, "t={t}");
    }
}

/// AU-5: what is held as authentic is not complained about, whatever its copy in the batch proves.
#[test]
fn a_request_that_is_held_is_not_rejected() {
    let mut desk = Desk::new(R1);
    let held = desk.request_frame(c(0), 1, b"x");
    desk.frame(&held);
    let other = desk.request_frame(c(1), 1, b"y");
    let frames = [held, other].map(|mut frame| {
        let entry_of_r1 = frame.len() - 2 * 20 - 1;
        frame[entry_of_r1] ^= 1;
        frame
    });
    let batch = desk.batch_of(&frames);
    desk.forget();
    desk.pre_prepare(R0, 0, 1, &batch);
    assert_eq!(desk.sent(Kind::Prepare), 0);
    desk.pass(50);
    assert_eq!(desk.sent_to(R0, Kind::ReqReject), 1, "of the one that is not");
}

/// "prepared(m, v, n, i) [is] true if and only if replica i has inserted in its log: the request m, a
/// pre-prepare for m in view v with sequence number n, and 2f prepares from different backups that match
/// the pre-prepare."
#[test]
fn prepared_needs_two_f_prepares_of_different_backups() {
    let mut desk = Desk::new(R1); // its own prepare is one of the two
    let batch = desk.batch(c(0), 1, b"x");
    let digest = batch.digest();
    let prepared = |m: &Milestone| matches!(m, Milestone::Prepared { .. });
    desk.pre_prepare(R0, 0, 1, &batch);
    assert!(!desk.said(prepared));
    desk.prepare(R2, 0, 1, Digest([7; 32]));
    assert!(!desk.said(prepared), "it does not match");
    desk.prepare(R2, 0, 1, digest);
    assert!(!desk.said(prepared), "the first of a replica counts (B1)");
    desk.prepare(R0, 0, 1, digest);
    assert!(desk.rejected(Reject::FromPrimary) && !desk.said(prepared), "the primary is not a backup");
    desk.prepare(R3, 0, 1, digest);
    assert!(desk.said(prepared));
}

/// Prepares may come before the pre-prepare: "We do not rely on ordered message delivery".
#[test]
fn the_order_of_arrival_does_not_matter() {
    let mut desk = Desk::new(R1);
    let batch = desk.batch(c(0), 1, b"x");
    let digest = batch.digest();
    for from in [R0, R2, R3] {
        desk.commit(from, 0, 1, digest);
    }
    desk.prepare(R2, 0, 1, digest);
    desk.prepare(R3, 0, 1, digest);
    assert_eq!(desk.executed(), []);
    desk.pre_prepare(R0, 0, 1, &batch);
    assert_eq!(desk.executed(), [(1, false)]);
}

/// "Replica i multicasts a COMMIT to the other replicas when prepared(m, v, n, i) becomes true."
#[test]
fn a_prepared_replica_commits_once() {
    let mut desk = Desk::new(R1);
    let batch = desk.batch(c(0), 1, b"x");
    desk.pre_prepare(R0, 0, 1, &batch);
    assert_eq!(desk.sent(Kind::Commit), 0);
    desk.prepare(R2, 0, 1, batch.digest());
    desk.prepare(R3, 0, 1, batch.digest());
    assert_eq!(desk.sent(Kind::Commit), 1);
}

/// "committed-local(m, v, n, i) is true if and only if prepared(m, v, n, i) is true and i has accepted
/// 2f + 1 commits (possibly including its own) from different replicas that match the pre-prepare".
#[test]
fn committed_local_needs_a_quorum_of_commits() {
    let mut desk = Desk::with(R1, 4, 1, |config| config.tentative = false);
    let batch = desk.batch(c(0), 1, b"x");
    let digest = batch.digest();
    desk.pre_prepare(R0, 0, 1, &batch);
    desk.prepare(R2, 0, 1, digest);
    desk.commit(R0, 0, 1, digest);
    desk.commit(R0, 0, 1, digest);
    assert_eq!(desk.executed(), [], "one replica is one vote (B1)");
    desk.commit(R2, 0, 1, digest);
    assert_eq!(desk.executed(), [(1, false)], "with its own that makes three");
}

/// "Each replica i executes the operation requested by m after committed-local(m, v, n, i) is true and
/// i's state reflects the sequential execution of all requests with lower sequence number."
#[test]
fn execution_is_in_order_whatever_commits_first() {
    let mut desk = Desk::with(R1, 4, 1, |config| config.tentative = false);
    let second = desk.order(2, c(1), 1, b"b");
    assert_eq!(desk.executed(), []);
    desk.order(1, c(0), 1, b"a");
    assert_eq!(desk.executed(), [(1, false), (2, false)]);
    assert_ne!(second, Digest::ZERO);
}

/// "After executing the requested operation, replicas send a reply to the client."
#[test]
fn a_reply_goes_straight_to_the_client() {
    let mut desk = Desk::new(R1);
    desk.order(1, c(0), 1, b"x");
    assert!(matches!(desk.last_sent(Kind::Reply), Some((Recipient::Client(client), _)) if client == c(0)));
}

/// "Replicas discard requests whose timestamp is lower than the timestamp in the last reply they sent to
/// the client to guarantee exactly-once semantics."
#[test]
fn an_older_request_is_discarded() {
    let mut desk = Desk::new(R1);
    desk.order(1, c(0), 5, b"x");
    desk.forget();
    desk.request(c(0), 4, b"y");
    assert!(desk.rejected(Reject::OldTimestamp));
    assert!(desk.did.iter().all(|d| !matches!(d, Did::Sent { kind: Kind::Request, .. })));
}

/// Prepares and commits of another view are not accepted.
#[test]
fn votes_of_another_view_do_not_count() {
    let mut desk = Desk::new(R1);
    let batch = desk.batch(c(0), 1, b"x");
    desk.pre_prepare(R0, 0, 1, &batch);
    desk.prepare(R2, 1, 1, batch.digest());
    desk.prepare(R3, 7, 1, batch.digest());
    assert!(desk.rejected(Reject::OtherView));
    assert!(!desk.said(|m| matches!(m, Milestone::Prepared { .. })));
}
