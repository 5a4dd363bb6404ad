//! [OSDI99 §5.1] Reducing communication: tentative execution, read-only requests; and batches' bodies
//! that travel apart [DSN01].
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test may panic")]

use crate::desk::{Desk, Did, R0, R1, R2, R3, c, root};
use quorate_pbft::Milestone;
use quorate_pbft::step::{Recipient, Reject};
use quorate_wire::codec::Writer;
use quorate_wire::frame::{ENTRY_BYTES, HEADER_BYTES, PACKED_BYTES_MAX};
use quorate_wire::id::SeqNum;
use quorate_wire::message::{BodyFetch, BodyKind, BodyMessage, Commit, Kind, PrePrepareHead, Prepare, Reply};
use quorate_wire::{Batch, ClientId, Digest};

fn tentative_reply(desk: &Desk) -> Option<bool> {
    desk.last_sent(Kind::Reply).map(|(_, bytes)| Reply::decode(&bytes).unwrap().tentative)
}

/// "Replicas execute a request tentatively as soon as the prepared predicate holds for the request, their
/// state reflects the execution of all requests with lower sequence number, and these requests are all
/// known to have committed. After executing the request, the replicas send tentative replies".
#[test]
fn a_prepared_batch_is_executed_tentatively_and_merged_when_it_commits() {
    let mut desk = Desk::new(R1);
    let batch = desk.batch(c(0), 1, b"x");
    let digest = batch.digest();
    desk.pre_prepare(R0, 0, 1, &batch);
    desk.prepare(R2, 0, 1, digest);
    assert_eq!(desk.executed(), [(1, true)]);
    assert_eq!(tentative_reply(&desk), Some(true));
    // The next one may not: its predecessor is not known to have committed.
    let next = desk.batch(c(1), 1, b"y");
    desk.pre_prepare(R0, 0, 2, &next);
    desk.prepare(R2, 0, 2, next.digest());
    assert_eq!(desk.executed(), [(1, true)]);
    desk.commit(R0, 0, 1, digest);
    desk.commit(R2, 0, 1, digest);
    assert!(desk.did.iter().any(|d| matches!(d, Did::Merged(SeqNum(1)))));
    assert_eq!(desk.executed(), [(1, true), (2, true)], "each batch is executed once");
}

/// "A request that has executed tentatively may abort if there is a view change" (TE-4).
#[test]
fn a_view_change_takes_a_tentative_execution_back() {
    let mut desk = Desk::new(R1);
    let batch = desk.batch(c(0), 1, b"x");
    desk.pre_prepare(R0, 0, 1, &batch);
    desk.prepare(R2, 0, 1, batch.digest());
    desk.suspect(R2, 0);
    desk.suspect(R3, 0);
    assert!(desk.did.iter().any(|d| matches!(d, Did::Undid(SeqNum(0)))));
    assert!(desk.said(|m| *m == Milestone::RolledBack { seq: SeqNum(1) }));
    assert_eq!(desk.replica.state().executed, SeqNum(0));
}

/// "A client multicasts a read-only request to all replicas. Replicas execute the request immediately".
#[test]
fn a_read_is_served_at_once() {
    let mut desk = Desk::new(R1);
    let frame = desk.request_frame_with(c(0), 1, b"get", true, false);
    desk.frame(&frame);
    assert!(desk.said(|m| *m == Milestone::ReadServed { client: c(0) }));
    assert_eq!(tentative_reply(&desk), Some(false));
}

/// "They send the reply only after all requests reflected in the tentative state have committed; this is
/// necessary to prevent the client from observing uncommitted state" (RO-2).
#[test]
fn a_read_waits_until_nothing_is_tentative() {
    let mut desk = Desk::new(R1);
    let batch = desk.batch(c(0), 1, b"x");
    let digest = batch.digest();
    desk.pre_prepare(R0, 0, 1, &batch);
    desk.prepare(R2, 0, 1, digest);
    let frame = desk.request_frame_with(c(1), 1, b"get", true, false);
    desk.frame(&frame);
    assert!(!desk.said(|m| matches!(m, Milestone::ReadServed { .. })));
    desk.commit(R0, 0, 1, digest);
    desk.commit(R2, 0, 1, digest);
    assert!(desk.said(|m| matches!(m, Milestone::ReadServed { .. })));
}

/// A commit rides on the next message to the same receivers (PB-1), and counts as one (PB-2).
#[test]
fn a_commit_rides_on_the_next_prepare() {
    let mut desk = Desk::with(R1, 4, 1, |config| config.piggyback = true);
    let (a, b) = (desk.batch(c(0), 1, b"a"), desk.batch(c(1), 1, b"b"));
    desk.pre_prepare(R0, 0, 1, &a);
    desk.prepare(R2, 0, 1, a.digest());
    assert_eq!(desk.sent(Kind::Commit), 0);
    desk.pre_prepare(R0, 0, 2, &b);
    let (_, bytes) = desk.last_sent(Kind::Prepare).unwrap();
    let carried: Vec<_> = Prepare::decode(&bytes).unwrap().piggyback.iter().collect();
    assert_eq!(carried, [(SeqNum(1), a.digest())]);
    // It waits 2 ms for a carrier and no longer.
    desk.prepare(R2, 0, 2, b.digest());
    desk.pass(3);
    assert_eq!(desk.sent(Kind::Commit), 1);
}

/// PB-4: without tentative execution the batch waits for its commits, and the client with it.
#[test]
fn a_commit_does_not_wait_for_a_carrier_if_the_execution_waits_for_it() {
    let mut desk = Desk::with(R1, 4, 1, |config| (config.piggyback, config.tentative) = (true, false));
    let a = desk.batch(c(0), 1, b"a");
    desk.pre_prepare(R0, 0, 1, &a);
    desk.prepare(R2, 0, 1, a.digest());
    assert_eq!(desk.sent(Kind::Commit), 1);
}

/// PB-4: a read waits for commits, and not only where it is queued. A replica with the others' commits is ready to
/// serve it, while these wait for the one that it still holds back.
#[test]
fn a_waiting_commit_leaves_when_a_read_comes_although_nothing_is_tentative_here() {
    let mut desk = Desk::with(R1, 4, 1, |config| config.piggyback = true);
    let digest = desk.order(1, c(0), 1, b"x");
    assert!(desk.did.iter().any(|d| matches!(d, Did::Merged(SeqNum(1)))));
    assert_eq!(desk.sent(Kind::Commit), 0);
    let frame = desk.request_frame_with(c(1), 1, b"get", true, false);
    desk.frame(&frame);
    assert!(desk.said(|m| *m == Milestone::ReadServed { client: c(1) }));
    let (_, bytes) = desk.last_sent(Kind::Commit).unwrap();
    assert_eq!(Commit::decode(&bytes).unwrap().digest, digest);
}

/// I8, PB-1: a commit that waits for a carrier leaves before a checkpoint above it is stable. A replica that has to
/// do without f faulty replicas needs it, and nobody would send it again.
#[test]
fn a_waiting_commit_leaves_before_its_number_is_collected() {
    let mut desk = Desk::with(R1, 4, 1, |config| config.piggyback = true);
    let batches: Vec<Batch> = (1..=4).map(|t| desk.batch(c(0), t, b"x")).collect();
    for (seq, batch) in (1..).zip(&batches) {
        desk.pre_prepare(R0, 0, seq, batch);
    }
    desk.prepare(R2, 0, 3, batches[2].digest());
    for (seq, batch) in (1..).zip(&batches) {
        for from in [R0, R2, R3] {
            desk.commit(from, 0, seq, batch.digest());
        }
    }
    assert_eq!(desk.sent(Kind::Commit), 0);
    for from in [R0, R2] {
        desk.checkpoint(from, 4, root(SeqNum(4)), false);
    }
    assert!(desk.said(|m| matches!(m, Milestone::Stable { .. })));
    assert_eq!(desk.sent(Kind::Commit), 1);
}

/// SR-3: a batch that names a request by digest is not prepared before its body is here; SR-2: the body is
/// asked for, and anyone may bring it.
#[test]
fn a_separate_request_is_fetched_before_the_batch_is_prepared() {
    let mut desk = Desk::new(R1);
    let frame = desk.request_frame(c(0), 1, &[7; 1000]);
    let digest = desk.domains.request(c(0).0, 1, &[7; 1000]);
    let mut batch = Batch::default();
    batch.push_separate(digest, None);
    batch.seal(&desk.domains.clone(), &desk.now.wall_ns.to_le_bytes());
    desk.pre_prepare(R0, 0, 1, &batch);
    assert_eq!(desk.sent(Kind::Prepare), 0);
    desk.pass(25);
    let asked: Vec<_> =
        BodyFetch::decode(&desk.last_sent(Kind::BodyFetch).unwrap().1).unwrap().digests().collect();
    assert_eq!(asked, [digest]);
    // SR-2: the primary and one other, each time.
    for _ in 0..10 {
        desk.forget();
        desk.pass(20);
        let asked = [R0, R2, R3].map(|id| desk.sent_to(id, Kind::BodyFetch));
        assert_eq!((asked[0], asked[1] + asked[2]), (1, 1), "{asked:?}");
    }
    desk.prepare(R2, 0, 1, batch.digest()); // f others vouch for it
    desk.hear(R3, Kind::Body, |w| BodyMessage::encode_request(&frame, w));
    assert_eq!(desk.sent(Kind::Prepare), 1);
}

/// K14: a replica that asks for what no one has is charged for it too, and does not use up the others' budget.
#[test]
fn k14_asking_for_what_nobody_has_is_charged() {
    let mut desk = Desk::new(R1);
    let batch = desk.batch(c(0), 1, b"x");
    let digest = *batch.digests().next().unwrap();
    desk.pre_prepare(R0, 0, 1, &batch);
    let ask = |desk: &mut Desk, from, digests: &[Digest]| {
        desk.hear(from, Kind::BodyFetch, |w| BodyFetch::encode(BodyKind::Request, digests, w));
    };
    let nobodys = [Digest([9; 32]); 64];
    for _ in 0..128 {
        ask(&mut desk, R3, &nobodys);
    }
    assert!(!desk.rejected(Reject::TooSoon));
    ask(&mut desk, R3, &[digest]);
    assert!(desk.rejected(Reject::TooSoon) && desk.sent(Kind::Body) == 0);
    ask(&mut desk, R2, &[digest]);
    assert_eq!(desk.sent_to(R2, Kind::Body), 1);
    desk.pass(100);
    ask(&mut desk, R3, &[digest]);
    assert_eq!(desk.sent_to(R3, Kind::Body), 1);
}

/// L70, SR-2: of a client with more long requests than replicas keep, each replica lacks other ones. What batches name is
/// given as fast as it is asked for, and once: after that there is a budget, and for what no batch names (K14).
#[test]
fn l70_long_bodies_that_batches_name_are_given_at_once() {
    let (mut desk, long) = (Desk::new(R1), vec![7; 100_000]);
    let digests: Vec<Digest> = (0..5)
        .map(|client| {
            desk.request(c(client), 1, &long);
            desk.domains.request(c(client).0, 1, &long)
        })
        .collect();
    for (seq, digest) in (1..).zip(&digests[..3]) {
        let mut batch = Batch::default();
        batch.push_separate(*digest, None);
        batch.seal(&desk.domains.clone(), &(desk.now.wall_ns + seq).to_le_bytes());
        desk.pre_prepare(R0, 0, seq, &batch);
    }
    // How many of them R3 is given when it asks for one after the other.
    let given = |desk: &mut Desk, digests: &[Digest]| {
        let before = desk.sent_to(R3, Kind::Body);
        for digest in digests {
            desk.hear(R3, Kind::BodyFetch, |w| BodyFetch::encode(BodyKind::Request, &[*digest], w));
        }
        desk.sent_to(R3, Kind::Body) - before
    };
    assert_eq!(given(&mut desk, &digests[3..]), 1, "no batch names them");
    assert_eq!(given(&mut desk, &digests[..3]), 3);
    assert_eq!(given(&mut desk, &digests[..3]), 0, "again");
    desk.pass(100);
    assert_eq!(given(&mut desk, &digests[..3]), 1);
}

/// L120, SR-2: bodies are asked for in the order of the batches that lack them, or none would be complete for long.
#[test]
fn l120_bodies_are_asked_for_in_the_order_of_batches() {
    let mut desk = Desk::new(R1);
    let digests: Vec<Digest> = (1..=4).rev().map(|byte| Digest([byte; 32])).collect();
    for (seq, digest) in (1..).zip(&digests) {
        let mut batch = Batch::default();
        batch.push_separate(*digest, None);
        batch.seal(&desk.domains.clone(), &(desk.now.wall_ns + seq).to_le_bytes());
        desk.pre_prepare(R0, 0, seq, &batch);
    }
    desk.pass(25);
    let (_, body) = desk.last_sent(Kind::BodyFetch).unwrap();
    let asked = BodyFetch::decode(&body).unwrap();
    assert_eq!(asked.digests().collect::<Vec<_>>(), digests);
}

/// L148, SR-2: that goes for batches that were fetched, too: the first one that can be executed comes first.
#[test]
fn l148_bodies_of_fetched_batches_are_asked_for_in_their_order() {
    let mut desk = Desk::new(R1);
    let digests = [Digest([2; 32]), Digest([1; 32])];
    let batches = digests.map(|digest| {
        let mut batch = Batch::default();
        batch.push_separate(digest, None);
        batch.seal(&desk.domains, &desk.now.wall_ns.to_le_bytes());
        batch
    });
    desk.pre_prepare(R0, 0, 2, &batches[1]);
    for from in [R0, R2, R3] {
        desk.commit(from, 0, 1, batches[0].digest());
    }
    let mut body = Vec::new();
    BodyMessage::encode_batch(&batches[0], &mut Writer::new(&mut body));
    desk.hear(R3, Kind::Body, |w| w.bytes(&body));
    desk.pass(25);
    let (_, body) = desk.last_sent(Kind::BodyFetch).unwrap();
    let asked = BodyFetch::decode(&body).unwrap();
    assert_eq!(asked.digests().collect::<Vec<_>>(), digests);
}

/// SR-2: a request that waits for a batch can be fetched like one that a batch names, also repeatedly.
#[test]
fn a_waiting_request_is_found_by_its_digest() {
    let mut desk = Desk::new(R1);
    desk.request(c(0), 1, b"x");
    let digest = desk.domains.request(c(0).0, 1, b"x");
    desk.hear(R3, Kind::BodyFetch, |w| BodyFetch::encode(BodyKind::Request, &[digest], w));
    assert_eq!(desk.sent_to(R3, Kind::Body), 1);
    desk.request(c(1), 1, b"y");
    let later = desk.domains.request(c(1).0, 1, b"y");
    desk.pass(25);
    desk.hear(R3, Kind::BodyFetch, |w| BodyFetch::encode(BodyKind::Request, &[later], w));
    assert_eq!(desk.sent_to(R3, Kind::Body), 2);
}

/// [DSN01] A large request reaches everyone from the client; the pre-prepare names it by digest.
#[test]
fn the_primary_names_a_large_request_by_its_digest() {
    let mut desk = Desk::new(R0);
    desk.request(c(0), 1, &[7; 1000]);
    let (to, bytes) = desk.last_sent(Kind::PrePrepare).unwrap();
    assert_eq!(to, Recipient::All);
    assert!(bytes.len() < 200, "{} bytes", bytes.len());
    assert_eq!(root(SeqNum(0)), root(SeqNum(0)));
}

/// `BATCH_BYTES`, PR-3: however many requests wait, a full PRE-PREPARE fits a datagram, with all that rides
/// on it.
#[test]
fn a_full_batch_fits_a_datagram() {
    let mut desk = Desk::with(R0, 4, 1, |config| {
        (config.pipeline, config.piggyback, config.lanes_max) = (1, true, 1024);
    });
    for client in 0..800 {
        desk.request(ClientId::new(1, client), 1, &[7; 100]);
    }
    let frame_bytes = |desk: &Desk| {
        let (_, body) = desk.last_sent(Kind::PrePrepare).unwrap();
        let requests = PrePrepareHead::decode(&body).unwrap().counts.0;
        (requests, HEADER_BYTES + body.len() + 6 + 3 * ENTRY_BYTES)
    };
    assert_eq!(frame_bytes(&desk).0, 1);
    let (_, body) = desk.last_sent(Kind::PrePrepare).unwrap();
    let digest = PrePrepareHead::decode(&body).unwrap().digest;
    for from in [R1, R2] {
        desk.prepare(from, 0, 1, digest);
        desk.commit(from, 0, 1, digest);
    }
    let (requests, bytes) = frame_bytes(&desk);
    assert!(requests > 100, "{requests} requests");
    assert!((PACKED_BYTES_MAX - 300..=PACKED_BYTES_MAX).contains(&bytes), "{bytes} bytes");
}

/// PX-C: a reply that is certain leaves before its batch is executed as a whole, and once. Of a batch that has not
/// committed nothing is certain.
#[test]
fn px_c_a_certain_reply_leaves_once() {
    for (tentative, early) in [(false, true), (true, false)] {
        let mut desk = Desk::with(R1, 4, 1, |config| config.tentative = tentative);
        desk.workers_reply = true;
        desk.order(1, c(0), 7, b"x");
        let sent = |d: &Did| matches!(d, Did::Sent { kind: Kind::Reply, .. });
        let done = |d: &Did| matches!(d, Did::Said(Milestone::Executed { .. }));
        assert_eq!(desk.sent(Kind::Reply), 1, "tentative: {tentative}");
        let (sent, done) = (desk.did.iter().position(sent), desk.did.iter().position(done));
        assert_eq!(sent < done, early, "tentative: {tentative}");
        // It is answered again like any other.
        desk.request(c(0), 7, b"x");
        assert_eq!(desk.sent(Kind::Reply), 2, "tentative: {tentative}");
    }
}
