//! [OSDI99 §4.1] What a replica owes a client.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test may panic")]

use crate::desk::{Desk, Did, R0, R1, R2, R3, c, root};
use quorate_pbft::config::RequestAuth;
use quorate_pbft::step::{Input, ReadResult, Recipient, Reject, Ticket};
use quorate_pbft::{Milestone, Timer};
use quorate_wire::Digest;
use quorate_wire::id::{ClientId, Principal, ReplicaId, SeqNum, Timestamp, ViewNum};
use quorate_wire::life::Life;
use quorate_wire::message::{
    BodyMessage, Kind, NewView, PrePrepareHead, Reply, ReqAck, ReqReject, SuspectReason,
};

/// "Each message sent by the replicas to the client includes the current view number, allowing the client
/// to track the view"; "REPLY, v, t, c, i, r".
#[test]
fn a_reply_names_view_timestamp_and_client() {
    let mut desk = Desk::new(R1);
    desk.order(1, c(0), 7, b"x");
    let (_, bytes) = desk.last_sent(Kind::Reply).unwrap();
    let reply = Reply::decode(&bytes).unwrap();
    assert_eq!((reply.view, reply.timestamp, reply.client), (ViewNum(0), Timestamp(7), c(0)));
    assert_eq!(reply.result, Some(&b"ok"[..]));
}

/// "If the request has already been processed, the replicas simply re-send the reply; replicas remember
/// the last reply message they sent to each client."
#[test]
fn a_processed_request_is_answered_again_and_not_executed_again() {
    let mut desk = Desk::new(R1);
    desk.order(1, c(0), 1, b"x");
    desk.forget();
    desk.request(c(0), 1, b"x");
    assert_eq!(desk.sent(Kind::Reply), 1);
    assert_eq!(desk.executed(), []);
    // Not more often than a client can use (RP-2).
    desk.request(c(0), 1, b"x");
    assert!(desk.rejected(Reject::TooSoon));
    assert_eq!(desk.sent(Kind::Reply), 1);
}

/// "Otherwise, if the replica is not the primary, it relays the request to the primary."
#[test]
fn a_backup_relays_a_request_to_the_primary() {
    let mut desk = Desk::new(R1);
    desk.request(c(0), 1, b"x");
    assert!(matches!(desk.last_sent(Kind::Request), Some((Recipient::Replica(R0), _))));
}

/// "If the primary does not multicast the request to the group, it will eventually be suspected to be
/// faulty by enough replicas to cause a view change": once enough replicas hold the request (TM-2).
#[test]
fn a_primary_that_ignores_a_request_is_suspected() {
    let mut desk = Desk::new(R1);
    desk.request(c(0), 1, b"x");
    desk.pass(60);
    assert!(desk.sent(Kind::ReqAck) > 0, "it says that it holds the request");
    let digest = desk.domains.request(c(0).0, 1, b"x");
    desk.pass(500);
    assert!(!desk.said(|m| matches!(m, Milestone::Suspected { .. })), "nobody else vouches (B31)");
    assert!(desk.sent(Kind::ReqAck) <= 6, "it says so less and less often: {}", desk.sent(Kind::ReqAck));
    for from in [R2, R3] {
        vouch(&mut desk, from, c(0), digest);
    }
    desk.pass(150);
    let timed_out = |m: &Milestone| matches!(m, Milestone::Suspected { reason: SuspectReason::Timeout, .. });
    assert!(desk.said(timed_out));
    assert!(matches!(desk.last_sent(Kind::Request), Some((Recipient::All, _))), "and sends it to all");
}

/// B8, TM-1: the timer guards the oldest request, not some request: serving others does not help.
#[test]
fn b8_a_primary_that_serves_only_its_friends_is_suspected() {
    let mut desk = Desk::new(R1);
    desk.request(c(0), 1, b"ignored");
    let digest = desk.domains.request(c(0).0, 1, b"ignored");
    desk.pass(30);
    for from in [R2, R3] {
        vouch(&mut desk, from, c(0), digest);
    }
    for t in 1..=3 {
        desk.order(t, c(1), t, b"friend");
        desk.pass(60);
    }
    assert!(desk.said(|m| matches!(m, Milestone::Suspected { .. })));
}

/// C3, SR-5: two requests under one timestamp: the first stays.
#[test]
fn c3_a_second_request_under_one_timestamp_is_refused() {
    let mut desk = Desk::new(R1);
    desk.request(c(0), 1, b"a");
    desk.request(c(0), 1, b"b");
    assert!(desk.rejected(Reject::SameTimestamp));
}

/// "The client waits for one request to complete before sending the next one": a newer one replaces what
/// waits, and the timers of the old one end with it.
#[test]
fn a_clients_newer_request_takes_the_place_of_the_older() {
    let mut desk = Desk::new(R0);
    desk.request(c(0), 1, b"a");
    desk.request(c(0), 2, b"b");
    assert_eq!(desk.sent(Kind::PrePrepare), 2);
    desk.request(c(0), 1, b"a");
    assert!(desk.rejected(Reject::OldTimestamp));
}

/// RP-1: the replier returns the result, the others its digest, unless it is short.
#[test]
fn only_the_replier_sends_a_long_result() {
    let mut desk = Desk::with(R1, 4, 1, |config| config.small_reply = 1);
    desk.order(1, c(0), 1, b"x"); // the desk's clients name nobody: all send it
    let (_, bytes) = desk.last_sent(Kind::Reply).unwrap();
    assert!(Reply::decode(&bytes).unwrap().result.is_some());
    assert!([R2, R3].iter().all(|r| *r != desk.replica.id()));
    assert_eq!(Timer::COUNT, Timer::ALL.len());
}

/// AU-5: f + 1 backups could not authenticate a request, so its client has to sign, whichever lane it
/// comes with: the keys are the principal's.
#[test]
fn b31_a_client_that_deceived_the_primary_has_to_sign() {
    let mut desk = Desk::new(R0);
    let frame = desk.request_frame(c(0), 1, b"x");
    let digest = desk.batch_of(std::slice::from_ref(&frame)).requests().next().unwrap().digest;
    desk.frame(&frame);
    for from in [R1, R2] {
        let (view, seq, client, timestamp) = (ViewNum(0), SeqNum(1), c(0), Timestamp(1));
        desk.hear(from, Kind::ReqReject, |w| ReqReject { view, seq, client, timestamp, digest }.encode(w));
    }
    assert!(desk.said(|m| *m == Milestone::OnProbation { client: c(0) }));
    assert_eq!(desk.sent(Kind::Suspect), 1, "it hands its view over");
    let another_lane = ClientId::new(1, 7);
    desk.request(another_lane, 1, b"y");
    assert!(desk.rejected(Reject::OnProbation));
}

/// AU-5: a client that had to sign does, and its signed copy takes the place of the one that waits.
#[test]
fn a_signed_retransmission_takes_the_place_of_an_unsigned_request() {
    let mut desk = Desk::with(R0, 4, 1, |config| config.pipeline = 1);
    desk.request(c(1), 1, b"first"); // in flight, so that the next ones wait
    desk.request(c(0), 1, b"x");
    let signed = desk.request_frame_with(c(0), 1, b"x", false, true);
    desk.forget();
    desk.frame(&signed);
    let batch = desk.batch(c(1), 1, b"first");
    for from in [R1, R2] {
        desk.prepare(from, 0, 1, batch.digest());
        desk.commit(from, 0, 1, batch.digest());
    }
    let (_, body) = desk.last_sent(Kind::PrePrepare).unwrap();
    assert!(body.windows(signed.len()).any(|window| window == signed));
}

/// P12: a body that nobody has is the primary's doing. The clients of the other requests of that batch, which
/// are authentic here, keep their standing.
#[test]
fn p12_a_missing_body_costs_no_client_its_standing() {
    let mut desk = Desk::new(R1);
    let large = desk.request_frame(c(0), 1, &[7; 1000]);
    desk.frame(&large);
    let mut batch = desk.batch_of(&[]);
    batch.push_separate(desk.domains.request(c(0).0, 1, &[7; 1000]), None);
    batch.push_separate(Digest([9; 32]), None);
    batch.seal(&desk.domains, &desk.now.wall_ns.to_le_bytes());
    desk.pre_prepare(R0, 0, 1, &batch);
    desk.pass(60);
    assert!(desk.sent(Kind::BodyFetch) > 0 && desk.sent(Kind::ReqReject) == 0);
    assert!(!desk.said(|m| matches!(m, Milestone::OnProbation { .. })));
}

/// The primary of `view`, r1, has made a NEW-VIEW of these VIEW-CHANGEs, which are empty.
fn take_new_view(desk: &mut Desk, view: u64, named: Vec<(ReplicaId, Digest)>) {
    let new_view = NewView {
        view: ViewNum(view),
        life: Life::default(),
        view_changes: named,
        checkpoint: (SeqNum(0), root(SeqNum(0))),
        chosen: vec![],
    };
    let frame = desk.new_view(R1, &new_view);
    desk.frame(&frame);
}

/// Leads r0 into a later view, with a client on probation: f + 1 others have complained about what r0 had proposed of
/// another lane. Where r0 is a backup then, it holds an unsigned request of the client.
fn held_unsigned_and_on_probation(view: u64) -> (Desk, ClientId) {
    let leads = view.is_multiple_of(4);
    let mut desk = Desk::with(R0, 4, 1, |config| config.pipeline = if leads { 2 } else { 1 });
    let frame = desk.request_frame(c(0), 2, b"y");
    let digest = desk.batch_of(std::slice::from_ref(&frame)).requests().next().unwrap().digest;
    desk.frame(&frame);
    let lane = ClientId::new(1, 7);
    if !leads {
        desk.request(lane, 1, b"x");
    }
    for from in [R1, R2] {
        let (view, seq, client, timestamp) = (ViewNum(0), SeqNum(1), c(0), Timestamp(2));
        desk.hear(from, Kind::ReqReject, |w| ReqReject { view, seq, client, timestamp, digest }.encode(w));
    }
    assert!(desk.said(|m| matches!(m, Milestone::OnProbation { .. })));
    let empty = desk.empty_view_change(view);
    let mut named = vec![];
    for from in [R1, R2, R3] {
        let frame = desk.view_change(from, &empty);
        named.push((from, desk.digest_of(&frame)));
        desk.frame(&frame);
    }
    if !leads {
        let own = desk.last_sent(Kind::ViewChange).unwrap().1;
        named.push((R0, desk.digest_of(&own)));
        named.sort_unstable();
        take_new_view(&mut desk, view, named);
    }
    assert!(desk.said(|m| matches!(m, Milestone::ViewEntered { view: v, .. } if v.0 == view)));
    desk.forget();
    (desk, lane)
}

/// AU-5: the signed copy that a client on probation sends takes the place of the unsigned one that is held,
/// or the request would never be proposed.
#[test]
fn b31_a_signed_copy_takes_the_place_of_the_unsigned_one() {
    let (mut desk, lane) = held_unsigned_and_on_probation(4);
    desk.request(lane, 1, b"x");
    assert_eq!(desk.sent(Kind::PrePrepare), 0, "only when signed");
    let signed = desk.request_frame_with(lane, 1, b"x", false, true);
    desk.frame(&signed);
    assert_eq!(desk.sent(Kind::PrePrepare), 1);
    desk.frame(&signed);
    assert_eq!(desk.sent(Kind::PrePrepare), 1, "once");
}

/// AU-5: no correct primary proposes what has to be signed and is not, so none is timed for it.
#[test]
fn b31_nobody_is_timed_for_what_has_to_be_signed() {
    let (mut desk, lane) = held_unsigned_and_on_probation(1);
    desk.pass(1_000);
    assert!(!desk.said(|m| matches!(m, Milestone::Suspected { .. })));
    assert_eq!(desk.sent(Kind::ReqAck), 0);
    let signed = desk.request_frame_with(lane, 1, b"x", false, true);
    desk.frame(&signed);
    desk.pass(1_000);
    assert!(desk.said(|m| matches!(m, Milestone::Suspected { .. })));
}

/// AU-5, TM-2: f + 1 backups hold the unsigned request as authentic and would depose a primary that waits for a
/// signature; they are who will take it.
#[test]
fn b31_what_f_plus_1_others_vouch_for_need_not_be_signed() {
    let (mut desk, lane) = held_unsigned_and_on_probation(4);
    let frame = desk.request_frame(lane, 1, b"x");
    desk.frame(&frame);
    let digest = desk.domains.request(lane.0, 1, b"x");
    vouch(&mut desk, R1, lane, digest);
    vouch(&mut desk, R1, lane, digest);
    assert_eq!(desk.sent(Kind::BodyFetch), 0, "one of them may be a liar");
    vouch(&mut desk, R2, lane, digest);
    desk.hear(R2, Kind::Body, |w| BodyMessage::encode_request(&frame, w));
    assert_eq!(desk.sent(Kind::PrePrepare), 1);
}

/// AU-5, L129: what its client has to sign and has not signed keeps nothing out that may be proposed, whatever the timestamps.
#[test]
fn l129_an_unsigned_request_keeps_no_other_out() {
    for t in [50, 100] {
        let (mut desk, lane) = held_unsigned_and_on_probation(4);
        desk.request(lane, 100, b"unsigned");
        let signed = desk.request_frame_with(lane, t, b"x", false, true);
        desk.frame(&signed);
        assert_eq!(desk.sent(Kind::PrePrepare), 1, "t={t}");
    }
    let (mut desk, lane) = held_unsigned_and_on_probation(4);
    desk.request(lane, 1, b"unsigned");
    let digest = desk.domains.request(lane.0, 1, b"x");
    for from in [R1, R2] {
        vouch(&mut desk, from, lane, digest);
    }
    assert!(desk.sent(Kind::BodyFetch) > 0, "others vouch for another one");
}

/// A frame whose MACs are wrong.
fn with_wrong_macs(mut frame: Vec<u8>) -> Vec<u8> {
    let at = frame.len() - 4 * quorate_wire::frame::ENTRY_BYTES;
    frame[at..].iter_mut().for_each(|byte| *byte ^= 1);
    frame
}

fn vouch(desk: &mut Desk, from: ReplicaId, client: ClientId, digest: Digest) {
    desk.hear(from, Kind::ReqAck, |w| ReqAck { client, timestamp: Timestamp(1), digest }.encode(w));
}

/// AU-6, L65: a primary that cannot check a request asks those for it who vouch for it, and proposes it.
#[test]
fn l65_a_primary_proposes_what_others_vouch_for() {
    let mut desk = Desk::new(R0);
    let frame = desk.request_frame(c(0), 1, b"x");
    let frame = with_wrong_macs(frame);
    let read = desk.request_frame_with(c(0), 1, b"x", true, false);
    let digest = desk.domains.request(c(0).0, 1, b"x");
    let supply = |desk: &mut Desk, frame: &[u8]| {
        desk.forget();
        desk.hear(R3, Kind::Body, |w| BodyMessage::encode_request(frame, w));
        desk.sent(Kind::PrePrepare)
    };
    vouch(&mut desk, R1, c(0), digest);
    desk.pass(60);
    assert_eq!(desk.sent(Kind::BodyFetch), 0, "it may be a liar");
    assert_eq!(supply(&mut desk, &frame), 0);
    assert!(desk.rejected(Reject::Unwanted));
    vouch(&mut desk, R2, c(0), digest);
    desk.pass(30);
    assert!(desk.sent(Kind::BodyFetch) > 0);
    assert_eq!(supply(&mut desk, &read), 0, "backups would refuse a read");
    assert_eq!(supply(&mut desk, &frame), 1);
    assert_eq!(supply(&mut desk, &frame), 0, "once");
    desk.pass(60);
    assert_eq!(desk.sent(Kind::BodyFetch), 0);
}

/// Fills the share of the client with long requests, but for the lane of `c(0)`.
fn fill_share(desk: &mut Desk) {
    for lane in 1..=16 {
        desk.request(ClientId::new(1, lane), 1, &vec![7; 1 << 20]);
    }
    assert!(desk.rejected(Reject::OverQuota));
    desk.forget();
}

/// AU-6, L127: a primary without room for a request asks for it again when somebody vouches for it again, and not before.
#[test]
fn l127_a_primary_without_room_does_not_ask_on() {
    let mut desk = Desk::with(R0, 4, 1, |config| config.pipeline = 1);
    fill_share(&mut desk);
    let operation = vec![8; 1 << 20];
    let frame = with_wrong_macs(desk.request_frame(c(0), 1, &operation));
    let digest = desk.domains.request(c(0).0, 1, &operation);
    for from in [R1, R2] {
        vouch(&mut desk, from, c(0), digest);
    }
    assert_eq!(desk.sent(Kind::BodyFetch), 1);
    desk.hear(R2, Kind::Body, |w| BodyMessage::encode_request(&frame, w));
    assert!(desk.rejected(Reject::OverQuota));
    desk.pass(60);
    assert_eq!(desk.sent(Kind::BodyFetch), 1);
    vouch(&mut desk, R1, c(0), digest);
    assert_eq!(desk.sent(Kind::BodyFetch), 2);
}

/// SR-4, L127: a body that a batch names is taken, also where others vouch for the request and there is no room for it.
#[test]
fn l127_a_body_that_others_vouch_for_completes_its_batch() {
    let mut desk = Desk::new(R1);
    fill_share(&mut desk);
    let frame = with_wrong_macs(desk.request_frame(c(0), 1, &vec![8; 1 << 20]));
    let batch = desk.separate_batch_of(std::slice::from_ref(&frame));
    let digest = batch.separate()[0];
    for from in [R2, R3] {
        vouch(&mut desk, from, c(0), digest);
    }
    desk.pre_prepare(R0, 0, 1, &batch);
    desk.hear(R0, Kind::Body, |w| BodyMessage::encode_request(&frame, w));
    assert_eq!(desk.sent(Kind::Prepare), 1);
}

/// AU-6, L65: a backup that becomes the primary knows who vouches for what it cannot check.
#[test]
fn l65_a_new_primary_asks_for_what_others_vouch_for() {
    let mut desk = Desk::new(R1);
    let digest = desk.domains.request(c(0).0, 1, b"x");
    for from in [R2, R3] {
        vouch(&mut desk, from, c(0), digest);
    }
    desk.pass(60);
    assert_eq!(desk.sent(Kind::BodyFetch), 0, "another one is to propose it");
    let empty = desk.empty_view_change(1);
    for from in [R2, R3] {
        let frame = desk.view_change(from, &empty);
        desk.frame(&frame);
    }
    assert!(desk.said(|m| matches!(m, Milestone::ViewEntered { .. })));
    desk.pass(30);
    assert!(desk.sent(Kind::BodyFetch) > 0);
}

/// TM-2, L65: f of those who vouch may be liars, and have told the primary nothing. It has to know of 2f.
#[test]
fn l65_no_primary_is_timed_for_what_too_few_can_check() {
    let suspects = |mode, n, f, others: &[u16]| {
        let mut desk = Desk::with(R1, n, f, |config| config.request_auth = mode);
        desk.request(c(0), 1, b"x");
        let digest = desk.domains.request(c(0).0, 1, b"x");
        for id in others {
            vouch(&mut desk, ReplicaId(*id), c(0), digest);
        }
        desk.pass(1_000);
        desk.said(|m| matches!(m, Milestone::Suspected { .. }))
    };
    for mode in [RequestAuth::Adaptive, RequestAuth::Mac] {
        assert!(!suspects(mode, 4, 1, &[0, 2]), "a liar, the primary, and this one");
        assert!(suspects(mode, 4, 1, &[2, 3]));
        assert!(!suspects(mode, 7, 2, &[0, 2, 3, 4]));
    }
    assert!(!suspects(RequestAuth::Adaptive, 7, 2, &[0, 2, 3, 4, 5]), "the client signs, if it is correct");
    assert!(suspects(RequestAuth::Adaptive, 7, 2, &[2, 3, 4, 5, 6]));
    assert!(suspects(RequestAuth::Mac, 7, 2, &[2, 3, 4, 5]), "and here it never does");
}

/// AU-5, L131: those who have vouched for a request and have forgotten that are heard. If others still vouch for it, backups
/// accept it, and do not come to the primary.
#[test]
fn l131_those_who_vouched_may_complain() {
    let mut desk = Desk::new(R0);
    let digest = desk.domains.request(c(0).0, 1, b"x");
    for from in [R1, R2] {
        vouch(&mut desk, from, c(0), digest);
    }
    desk.request(c(0), 1, b"x");
    assert_eq!(desk.sent(Kind::PrePrepare), 1);
    for from in [R1, R2] {
        reject(&mut desk, from, c(0), digest);
    }
    assert!(desk.said(|m| matches!(m, Milestone::Suspected { reason: SuspectReason::SelfHandoff, .. })));
}

/// TM-2, L130: a REQ-ACK to the primary may be lost, and the primary may be unable to check the request: both are sent again.
#[test]
fn l130_a_request_is_passed_on_with_a_req_ack() {
    let mut desk = Desk::new(R1);
    desk.request(c(0), 1, b"x");
    let digest = desk.domains.request(c(0).0, 1, b"x");
    for from in [R2, R3] {
        vouch(&mut desk, from, c(0), digest);
    }
    desk.forget();
    desk.pass(60);
    assert_eq!((desk.sent_to(R0, Kind::Request), desk.sent_to(R0, Kind::ReqAck)), (1, 1));
}

/// AU-6, L65: a backup accepts what it has vouched for, also when its client has moved on to the next request.
#[test]
fn l65_a_backup_accepts_what_it_has_vouched_for() {
    let prepares = |moves_on: bool| {
        let mut desk = Desk::new(R1);
        let frame = with_wrong_macs(desk.request_frame(c(0), 1, b"x"));
        if moves_on {
            desk.request(c(0), 1, b"x");
            desk.request(c(0), 2, b"y");
        }
        desk.forget();
        let batch = desk.batch_of(&[frame]);
        desk.pre_prepare(R0, 0, 1, &batch);
        desk.sent(Kind::Prepare)
    };
    assert_eq!(prepares(false), 0);
    assert_eq!(prepares(true), 1);
}

/// AU-6, L131: so does one that got the request while it waited for its view, and passed it on to the new primary.
#[test]
fn l131_a_backup_accepts_what_it_has_passed_on() {
    let mut desk = Desk::new(R2);
    let empty = desk.empty_view_change(1);
    let mut named = vec![];
    for from in [R0, R1, R3] {
        let frame = desk.view_change(from, &empty);
        named.push((from, desk.digest_of(&frame)));
        desk.frame(&frame);
    }
    desk.request(c(0), 1, b"x");
    assert_eq!(desk.sent(Kind::Request), 0, "it waits for view 1");
    take_new_view(&mut desk, 1, named);
    assert_eq!(desk.sent_to(R1, Kind::Request), 1);
    desk.request(c(0), 2, b"y");
    let frame = with_wrong_macs(desk.request_frame(c(0), 1, b"x"));
    let batch = desk.batch_of(&[frame]);
    desk.pre_prepare(R1, 1, 1, &batch);
    assert_eq!(desk.sent(Kind::Prepare), 1);
}

/// AU-6, L131: what a primary cannot check goes when too few vouch for it, or when its view ends. It is wanted again if they
/// vouch.
#[test]
fn l131_what_is_taken_unchecked_goes_with_its_vouchers() {
    let taken = || {
        let mut desk = Desk::with(R0, 4, 1, |config| config.pipeline = 1);
        desk.request(c(1), 1, b"first"); // in flight, so that the next ones wait
        let frame = with_wrong_macs(desk.request_frame(c(0), 1, b"x"));
        let digest = desk.domains.request(c(0).0, 1, b"x");
        for from in [R1, R2] {
            vouch(&mut desk, from, c(0), digest);
        }
        desk.hear(R2, Kind::Body, |w| BodyMessage::encode_request(&frame, w));
        desk.forget();
        desk
    };
    let order_1 = |desk: &mut Desk, view, digest| {
        for from in [R1, R2] {
            desk.prepare(from, view, 1, digest);
            desk.commit(from, view, 1, digest);
        }
    };
    let mut desk = taken();
    vouch(&mut desk, R2, c(0), Digest([7; 32]));
    let batch = desk.batch(c(1), 1, b"first");
    order_1(&mut desk, 0, batch.digest());
    assert_eq!(desk.sent(Kind::PrePrepare), 0, "one of them says something else by now");
    desk.request(c(0), 1, b"another");
    assert_eq!(desk.sent(Kind::PrePrepare), 1, "it keeps no other request out");

    let mut desk = taken();
    let empty = desk.empty_view_change(4);
    for from in [R1, R2, R3] {
        let frame = desk.view_change(from, &empty);
        desk.frame(&frame);
    }
    let null = desk.domains.null_batch();
    order_1(&mut desk, 4, null);
    let (_, body) = desk.last_sent(Kind::PrePrepare).unwrap();
    assert_eq!(PrePrepareHead::decode(&body).unwrap().counts.0, 1, "the first one; the other is gone");
    desk.pass(30);
    assert!(desk.sent(Kind::BodyFetch) > 0);
}

/// A REQ-REJECT for a request at number 1 of view 0.
fn reject(desk: &mut Desk, from: ReplicaId, client: ClientId, digest: Digest) {
    let (view, seq, timestamp) = (ViewNum(0), SeqNum(1), Timestamp(1));
    desk.hear(from, Kind::ReqReject, |w| ReqReject { view, seq, client, timestamp, digest }.encode(w));
}

/// A backup of n replicas has a proposal with a request that it can check, and these clients' requests, which it cannot.
fn with_doubtful(n: u16, f: u16, doubtful: &[ClientId]) -> (Desk, Vec<Digest>, Digest) {
    let mut desk = Desk::with(R1, n, f, |_| {});
    let mut frames = vec![desk.request_frame(c(5), 1, b"right")];
    for client in doubtful {
        let mut frame = desk.request_frame(*client, 1, b"x");
        let entries = frame.len() - usize::from(n) * quorate_wire::frame::ENTRY_BYTES;
        frame[entries..].iter_mut().for_each(|byte| *byte ^= 1);
        frames.push(frame);
    }
    let batch = desk.batch_of(&frames);
    desk.pre_prepare(R0, 0, 1, &batch);
    let digests = doubtful.iter().map(|client| desk.domains.request(client.0, 1, b"x")).collect();
    (desk, digests, batch.digest())
}

/// AU-2, L128: others vouch for single requests of a batch, because each of them may lack another one.
#[test]
fn l128_backups_vouch_for_single_requests() {
    let (mut desk, digests, _) = with_doubtful(4, 1, &[c(0), c(1)]);
    desk.pass(25);
    assert_eq!(desk.sent_to(R2, Kind::ReqReject), 2, "the others are asked first");
    assert_eq!(desk.sent_to(R0, Kind::ReqReject), 0);
    desk.pass(20);
    assert_eq!((desk.sent_to(R2, Kind::ReqReject), desk.sent_to(R0, Kind::ReqReject)), (4, 2));
    vouch(&mut desk, R2, c(0), digests[0]);
    vouch(&mut desk, R0, c(1), digests[1]);
    assert_eq!(desk.sent(Kind::Prepare), 0, "the primary has said so already");
    desk.forget();
    desk.pass(20);
    assert_eq!(desk.sent_to(R3, Kind::ReqReject), 1, "the first one is authentic now");
    // Its client has the same backup vouch for its next request: that takes nothing back.
    vouch(&mut desk, R2, c(0), Digest([7; 32]));
    vouch(&mut desk, R3, c(1), digests[1]);
    assert_eq!(desk.sent(Kind::Prepare), 1);
}

/// AU-2, L128: a REQ-ACK of one backup and the PREPARE of another are two of them. So is what came before the proposal.
#[test]
fn l128_req_acks_and_prepares_count_together() {
    let (mut desk, digests, batch) = with_doubtful(7, 2, &[c(0)]);
    vouch(&mut desk, R2, c(0), digests[0]);
    desk.prepare(R2, 0, 1, batch);
    assert_eq!(desk.sent(Kind::Prepare), 0, "the same one");
    desk.prepare(R3, 0, 1, batch);
    assert_eq!(desk.sent(Kind::Prepare), 1);

    let mut desk = Desk::new(R1);
    let frame = with_wrong_macs(desk.request_frame(c(0), 1, b"x"));
    let batch = desk.batch_of(&[frame]);
    vouch(&mut desk, R2, c(0), batch.requests().next().unwrap().digest);
    desk.pre_prepare(R0, 0, 1, &batch);
    assert_eq!(desk.sent(Kind::Prepare), 1);
}

/// AU-5, L128: where clients have to sign, no other backup's word counts: it keeps nobody from complaining, and is not given.
#[test]
fn l128_only_signatures_count_where_clients_have_to_sign() {
    let mut desk = Desk::with(R1, 4, 1, |config| config.request_auth = RequestAuth::SigMac);
    let unsigned = desk.request_frame(c(0), 1, b"x");
    let signed = desk.request_frame_with(c(5), 1, b"right", false, true);
    let batch = desk.batch_of(&[unsigned, signed.clone()]);
    let digests: Vec<Digest> = batch.requests().map(|request| request.digest).collect();
    vouch(&mut desk, R2, c(0), digests[0]);
    desk.frame(&signed);
    desk.pre_prepare(R0, 0, 1, &batch);
    desk.pass(60);
    assert!(desk.sent_to(R0, Kind::ReqReject) > 0 && desk.sent(Kind::Prepare) == 0);
    desk.forget();
    reject(&mut desk, R2, c(5), digests[1]);
    assert_eq!(desk.sent_to(R2, Kind::ReqAck), 0);
}

/// AU-2, L128: a backup answers a complaint about a request that it can check, and no other; each complaint once, and not
/// without bound.
#[test]
fn l128_a_backup_vouches_to_those_who_complain() {
    let (mut desk, digests, _) = with_doubtful(4, 1, &[c(0)]);
    let right = desk.domains.request(c(5).0, 1, b"right");
    let mut answers = |client, digest| {
        desk.forget();
        reject(&mut desk, R2, client, digest);
        (desk.sent_to(R2, Kind::ReqAck), desk.sent(Kind::ReqAck))
    };
    assert_eq!(answers(c(5), right), (1, 1));
    assert_eq!(answers(c(0), digests[0]), (0, 0), "not authentic here");
    assert_eq!(answers(c(5), digests[0]), (0, 0), "not in the proposal");
    assert_eq!(answers(c(5), right), (1, 1), "the answer may have been lost");
    desk.forget();
    (0..20_000).for_each(|_| reject(&mut desk, R2, c(5), right));
    assert!(desk.rejected(Reject::TooSoon) && desk.sent(Kind::ReqAck) <= 8 * 1024);
    desk.forget();
    reject(&mut desk, R3, c(5), right);
    assert_eq!(desk.sent_to(R3, Kind::ReqAck), 1, "another backup has its own budget");
}

/// AU-5, L132: a REQ-REJECT may be lost, so it is repeated. All proposals together have a bound.
#[test]
fn l132_complaints_are_repeated() {
    let clients: Vec<ClientId> = (0..300).map(|lane| ClientId::new(1, lane)).collect();
    let (mut desk, ..) = with_doubtful(4, 1, &clients);
    let mut complaints = || {
        desk.forget();
        desk.pass(20);
        (desk.sent_to(R0, Kind::ReqReject), desk.sent_to(R2, Kind::ReqReject))
    };
    assert_eq!(complaints(), (0, 256));
    assert_eq!([complaints(), complaints()], [(256, 256); 2]);
}

/// AU-5, L137: a copy with a signature may be elsewhere, and the question or its answer may be lost. So it is asked again, but
/// not with each complaint: others send what they have, signed or not.
#[test]
fn l137_signed_copies_are_asked_for_again() {
    let (mut desk, ..) = with_doubtful(4, 1, &[c(0)]);
    let mut rounds = Vec::new();
    while desk.sent(Kind::Suspect) == 0 {
        let before = desk.sent(Kind::BodyFetch);
        desk.pass(20);
        rounds.push(desk.sent(Kind::BodyFetch) - before);
    }
    let asked = rounds.iter().filter(|asked| **asked == 2).count();
    assert!(asked >= 3 && asked < rounds.len(), "{rounds:?}");
}

/// AU-5, L4: what a primary says is a client's request says nothing of the client.
#[test]
fn l4_a_primary_puts_no_client_on_probation() {
    let mut desk = Desk::new(R1);
    desk.request(c(0), 1, b"x");
    let frame = desk.request_frame(c(0), 2, b"made up");
    let frame = with_wrong_macs(frame);
    let batch = desk.batch_of(&[frame]);
    desk.pre_prepare(R0, 0, 1, &batch);
    desk.pass(60);
    assert!(desk.rejected(Reject::UnprovenRequest));
    assert!(desk.sent_to(R0, Kind::ReqReject) > 0, "the primary is told");
    assert!(!desk.said(|m| matches!(m, Milestone::OnProbation { .. })));
    desk.forget();
    desk.request(c(0), 3, b"unsigned");
    assert!(!desk.rejected(Reject::OnProbation) && desk.sent(Kind::Request) == 1);
}

/// L34, RO-1: a signature says nothing of the flag *read-only*. A request whose MAC is wrong is no read.
#[test]
fn l34_a_signature_makes_no_read() {
    let mut desk = Desk::new(R1);
    let mut frame = desk.request_frame_with(c(0), 1, b"x", false, true);
    // Behind the timestamp.
    frame[quorate_wire::frame::HEADER_BYTES + 8] |= 1;
    desk.frame(&frame);
    assert!(desk.rejected(Reject::UnprovenRequest));
    assert_eq!(desk.sent(Kind::Reply), 0, "the client wants it ordered");
    let frame = desk.request_frame_with(c(0), 2, b"x", true, true);
    desk.frame(&frame);
    assert_eq!(desk.sent(Kind::Reply), 1);
}

/// L126, AU-1: nor of a replica's request, which nobody would order.
#[test]
fn l126_a_replicas_request_with_the_flag_is_refused() {
    for (at, proposed) in [(R0, 1), (R1, 0)] {
        let mut desk = Desk::new(at);
        let client = Principal::Replica(R3).as_client();
        let mut frame = desk.request_frame_with(client, 1, b"x", false, true);
        frame[quorate_wire::frame::HEADER_BYTES + 8] |= 1;
        desk.frame(&frame);
        assert!(desk.rejected(Reject::UnprovenRequest));
        frame[quorate_wire::frame::HEADER_BYTES + 8] ^= 1;
        desk.frame(&frame);
        assert_eq!(desk.sent(Kind::PrePrepare), proposed, "without the flag it is ordered");
    }
}

/// L6, SR-1: what one principal has waiting is bounded, in lanes and in bytes, and costs nobody else his.
#[test]
fn l6_one_clients_requests_are_bounded() {
    let mut desk = Desk::with(R1, 4, 1, |config| config.lanes_max = 40);
    let large = vec![7; 1 << 20];
    let mut taken = 0;
    for lane in 0..40 {
        desk.forget();
        desk.request(ClientId::new(1, lane), 1, &large);
        taken += u32::from(!desk.rejected(Reject::OverQuota));
    }
    assert_eq!(taken, 15, "16 MiB, with their headers");
    desk.forget();
    desk.request(ClientId::new(1, 0), 2, &large);
    assert!(!desk.rejected(Reject::OverQuota), "it takes the place of its lane's older one");
    desk.request(ClientId::new(1, 77), 1, b"small");
    assert!(!desk.rejected(Reject::OverQuota), "its lanes are those that wait for nothing");
    desk.request(ClientId::new(2, 0), 1, &large);
    assert!(!desk.rejected(Reject::OverQuota), "another client has its own");
}

/// L37, SR-1: a lane that has waited for room for longer takes the place of one that came later, so that a client's lanes
/// have their turns also where it has more than there is room for.
#[test]
fn l37_a_lane_that_was_turned_away_comes_first() {
    let mut desk = Desk::with(R1, 4, 1, |config| config.lanes_max = 40);
    let large = vec![7; 1 << 20];
    let is_kept = |desk: &mut Desk, lane| {
        desk.forget();
        desk.request(ClientId::new(1, lane), 1, &large);
        desk.pass(1);
        !desk.rejected(Reject::OverQuota)
    };
    assert!((0..15).all(|lane| is_kept(&mut desk, lane)));
    assert!(!is_kept(&mut desk, 15) && !is_kept(&mut desk, 16), "all that are here came earlier");
    desk.order(1, ClientId::new(1, 0), 1, &large);
    assert!(is_kept(&mut desk, 17), "there is room");
    assert!(!is_kept(&mut desk, 18) && !is_kept(&mut desk, 19));
    assert!(is_kept(&mut desk, 15), "it takes the place of 17");
    assert!(!is_kept(&mut desk, 17) && !is_kept(&mut desk, 16), "15 came before both");
    // Nobody takes the place of what is proposed.
    let batch = desk.batch(ClientId::new(1, 15), 1, &large);
    desk.pre_prepare(R0, 0, 2, &batch);
    assert!(!is_kept(&mut desk, 16));
}

/// L1, L6: the lanes of a principal are bounded; those with nothing outstanding give way.
#[test]
fn l6_lanes_of_one_client_are_bounded() {
    let mut desk = Desk::with(R1, 4, 1, |config| (config.lanes_max, config.clients_max) = (4, 16));
    for lane in 0..4 {
        desk.request(ClientId::new(1, lane), 1, b"x");
    }
    desk.request(ClientId::new(1, 4), 1, b"x");
    assert!(desk.rejected(Reject::OverQuota));
    desk.forget();
    desk.order(1, ClientId::new(1, 0), 1, b"x");
    desk.request(ClientId::new(1, 4), 1, b"x");
    assert!(!desk.rejected(Reject::OverQuota), "one has nothing outstanding any more");
    for principal in 2..9 {
        (0..4).for_each(|lane| desk.request(ClientId::new(principal, lane), 1, b"x"));
    }
    assert!(desk.rejected(Reject::OverQuota));
    assert_eq!(desk.replica.state().pending, 16, "in all");
}

/// L61, EX-2: the state has no entry for a lane whose request was refused, and so no reply to send again. The request is
/// ordered again.
#[test]
fn l61_a_refused_request_is_ordered_again() {
    let mut desk = Desk::new(R1);
    desk.is_full = true;
    desk.order(1, c(0), 1, b"x");
    desk.forget();
    for _ in 0..2 {
        desk.pass(20);
        desk.request(c(0), 1, b"x");
    }
    assert_eq!((desk.replica.state().pending, desk.sent_to(R0, Kind::Request)), (1, 1));
    // What the state said before it executed the lane's next request says nothing about that.
    desk.is_full = false;
    desk.order(2, c(0), 2, b"y");
    desk.input(Input::Cached { client: c(0), reply: None });
    desk.forget();
    desk.pass(20);
    desk.request(c(0), 2, b"y");
    assert_eq!((desk.replica.state().pending, desk.sent_to(R0, Kind::Request)), (0, 0));
}

/// L64, SR-1: requests that are never executed fill the table. Other clients find room all the same, each for as many lanes
/// as those have that have most, and replicas for their recovery requests.
#[test]
fn l64_lanes_that_wait_leave_room_for_others() {
    let mut desk = Desk::with(R1, 4, 1, |config| (config.lanes_max, config.clients_max) = (16, 16));
    let taken = |desk: &mut Desk, principal, lanes| {
        let mut taken = 0;
        for lane in 0..lanes {
            desk.forget();
            desk.request(ClientId::new(principal, lane), 1, b"x");
            desk.pass(1);
            taken += u32::from(!desk.rejected(Reject::OverQuota));
        }
        taken
    };
    assert_eq!(taken(&mut desk, 1, 12), 8, "half of all");
    assert_eq!(taken(&mut desk, 2, 12), 8);
    assert_eq!(taken(&mut desk, 3, 12), 5, "each of the others has one more, or as many");
    assert_eq!(taken(&mut desk, 4, 1), 1);
    // The youngest ones have gone.
    assert_eq!(desk.replica.state().pending, 16);
    assert_eq!(taken(&mut desk, 1, 1), 1, "its oldest is here");
    desk.request(ClientId::new(1, 11), 1, b"x");
    assert!(desk.rejected(Reject::OverQuota));
    for replica in [0, 2, 3] {
        desk.forget();
        let signed = desk.request_frame_with(ClientId(replica), 1, b"recover", false, true);
        desk.frame(&signed);
        assert!(!desk.rejected(Reject::OverQuota), "r{replica}");
    }
}

/// L6: one client's signatures under way leave room for others'.
#[test]
fn l6_signatures_of_one_client_are_bounded() {
    let mut desk = Desk::with(R1, 4, 1, |config| config.request_auth = RequestAuth::SigMac);
    desk.checks_wait = true;
    for lane in 0..70 {
        let signed = desk.request_frame_with(ClientId::new(1, lane), 1, b"x", false, true);
        desk.frame(&signed);
    }
    assert!(desk.rejected(Reject::OverQuota));
    desk.forget();
    let signed = desk.request_frame_with(c(1), 1, b"x", false, true);
    desk.frame(&signed);
    assert!(!desk.rejected(Reject::OverQuota));
}

/// AU-2, AU-5: where only signatures count, a primary neither holds nor proposes a request without one: no backup
/// would take it, and one view after the other would end.
#[test]
fn l26_a_primary_proposes_no_unsigned_request_where_all_must_sign() {
    let mut desk = Desk::with(R0, 4, 1, |config| config.request_auth = RequestAuth::SigMac);
    desk.request(c(0), 1, b"x");
    assert!(desk.rejected(Reject::OnProbation));
    assert_eq!(desk.sent(Kind::PrePrepare), 0);
    let signed = desk.request_frame_with(c(0), 1, b"x", false, true);
    desk.frame(&signed);
    assert_eq!(desk.sent(Kind::PrePrepare), 1);
}

/// AU-2: a backup that holds the request of a proposal without its signature does not take that for one.
#[test]
fn l26_a_backup_takes_no_unsigned_request_where_all_must_sign() {
    let mut desk = Desk::with(R1, 4, 1, |config| config.request_auth = RequestAuth::SigMac);
    desk.request(c(0), 1, b"x");
    let batch = desk.batch(c(0), 1, b"x");
    desk.pre_prepare(R0, 0, 1, &batch);
    desk.prepare(R2, 0, 1, batch.digest());
    desk.prepare(R3, 0, 1, batch.digest());
    assert_eq!(desk.sent(Kind::Prepare), 0);
}

/// L6, RO-3: reads of one client that wait are bounded, in lanes and in bytes.
#[test]
fn l6_reads_of_one_client_are_bounded() {
    let mut desk = Desk::new(R1);
    let batch = desk.batch(c(8), 1, b"x");
    desk.pre_prepare(R0, 0, 1, &batch);
    desk.prepare(R2, 0, 1, batch.digest()); // tentative: reads wait until it has committed
    let large = vec![7; 1 << 20];
    let mut taken = 0;
    for lane in 0..40 {
        desk.forget();
        let read = desk.request_frame_with(ClientId::new(1, lane), 1, &large, true, false);
        desk.frame(&read);
        taken += u32::from(!desk.rejected(Reject::ReadNotServed));
    }
    assert_eq!(taken, 15, "16 MiB, with their headers");
    desk.forget();
    let read = desk.request_frame_with(ClientId::new(2, 0), 1, &large, true, false);
    desk.frame(&read);
    assert!(desk.said(|m| matches!(m, Milestone::ReadQueued { .. })), "others wait beside it");
}

/// L46, L6: so are those under way where the executor has not done them yet. One of them does not count.
#[test]
fn l46_reads_of_one_client_under_way_are_bounded() {
    let mut desk = Desk::new(R1);
    desk.reads_wait = true;
    let mut read = |lane, t, operation: &[u8]| {
        let read = desk.request_frame_with(ClientId::new(1, lane), t, operation, true, false);
        desk.frame(&read);
        desk.did.iter().filter(|did| matches!(did, Did::Reads(_))).count()
    };
    assert_eq!((1..=20).map(|t| read(0, t, b"x")).max(), Some(2), "of one lane");
    let large = vec![7; 1 << 20];
    assert_eq!((1..=40).map(|lane| read(lane, 1, &large)).max(), Some(17), "16 MiB, with their headers");
}

/// L6, RO-3, PX-8: so are reads that the executor keeps, one of each lane. The next read of a lane waits for the one before
/// it.
#[test]
fn l6_reads_of_one_client_that_the_executor_keeps_are_bounded() {
    let mut desk = Desk::with(R1, 4, 1, |config| config.tentative = false);
    desk.reads_wait = true;
    let (large, reads) =
        (vec![7; 1 << 20], |desk: &Desk| desk.did.iter().filter(|did| matches!(did, Did::Reads(_))).count());
    for lane in 0..40 {
        let read = desk.request_frame_with(ClientId::new(1, lane), 1, &large, true, false);
        desk.frame(&read);
    }
    assert_eq!(reads(&desk), 15, "16 MiB, with their headers");
    let read = |desk: &mut Desk, t| {
        let read = desk.request_frame_with(c(2), t, b"x", true, false);
        desk.frame(&read);
    };
    (1..=3).for_each(|t| read(&mut desk, t));
    assert_eq!(reads(&desk), 16, "one of the lane");
    desk.reads_wait = false;
    let digest = Digest([1; 32]);
    desk.input(Input::Read { ticket: Ticket(15), result: ReadResult::Done { result: b"read", digest } });
    assert_eq!(reads(&desk), 17, "the last one");
    assert_eq!(desk.sent(Kind::Reply), 2);
}

/// PR-3, L6: principals take turns, whatever lanes they come with; and a lane waits once, however often it asks.
#[test]
fn l6_principals_take_turns() {
    let mut desk = Desk::with(R0, 4, 1, |config| (config.pipeline, config.batch_requests_max) = (1, 4));
    desk.request(c(8), 1, b"first"); // in flight, so that the next ones wait
    for t in 1..=50 {
        (0..20).for_each(|lane| desk.request(ClientId::new(1, lane), t, b"many"));
    }
    desk.request(c(1), 1, b"one");
    desk.request(c(2), 1, b"two");
    desk.forget();
    let batch = desk.batch(c(8), 1, b"first");
    for from in [R1, R2] {
        desk.prepare(from, 0, 1, batch.digest());
        desk.commit(from, 0, 1, batch.digest());
    }
    let (_, body) = desk.last_sent(Kind::PrePrepare).unwrap();
    let holds = |text: &[u8]| body.windows(text.len()).filter(|window| *window == text).count();
    assert_eq!((holds(b"many"), holds(b"one"), holds(b"two")), (2, 1, 1));
}
