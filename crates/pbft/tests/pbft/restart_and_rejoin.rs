//! Spec §14: what a replica that starts again may and may not say.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test may panic")]

use crate::desk::{Desk, Did, R0, R1, R2, R3, c, root};
use quorate_pbft::config::Durability;
use quorate_pbft::step::{Recipient, Reject};
use quorate_pbft::{Milestone, Restart, Resume};
use quorate_wire::frame::Frame;
use quorate_wire::id::{ReplicaId, SeqNum, Timestamp, ViewNum};
use quorate_wire::life::{Life, Lives, Recovered, Recovery};
use quorate_wire::message::{
    Bitmap, Echoes, Kind, QueryStable, Reply, ReplyStable, ReqAck, RequestBody, Start, Status, ViewChange,
};

fn sync(config: &mut quorate_pbft::Config) {
    config.durability = Durability::Sync;
}

/// A STATUS that echoes `seen` as r1's incarnation.
fn status(desk: &mut Desk, from: ReplicaId, counter: u64, seen: u64) {
    status_at(desk, from, counter, seen, 0);
}

/// The same, of one whose stable checkpoint is at `stable`.
fn status_at(desk: &mut Desk, from: ReplicaId, counter: u64, seen: u64, stable: u64) {
    let echoes = desk.echoes(R1, seen);
    status_with(desk, from, counter, &echoes, stable);
}

fn status_with(desk: &mut Desk, from: ReplicaId, counter: u64, echoes: &[u8], stable: u64) {
    let desk_settings = desk.config.shared_settings();
    desk.hear(from, Kind::Status, |w| {
        Status {
            counter,
            view: ViewNum(0),
            stable: SeqNum(stable),
            executed: SeqNum(stable),
            start: Start { incarnation: 1 << 20, token: 0 },
            settings: desk_settings,
            echoes: Echoes::new(echoes),
            normal: true,
            has_new_view: false,
            prepared: Bitmap::new(&[]),
            committed: Bitmap::new(&[]),
            have: 0,
            wants: vec![],
        }
        .encode(w);
    });
}

fn restarted(id: ReplicaId, records: Vec<Vec<u8>>) -> Desk {
    Desk::recorded(id, records, 0, sync)
}

/// D1, GC-1: a PREPARE leaves after its record; nobody counts an own vote before it is durable (ADR 5).
#[test]
fn a_vote_waits_for_its_record() {
    let mut desk = Desk::with(R1, 4, 1, sync);
    desk.disk_is_fast = false;
    let batch = desk.batch(c(0), 1, b"x");
    desk.pre_prepare(R0, 0, 1, &batch);
    let waits =
        desk.did.iter().any(|d| matches!(d, Did::Sent { kind: Kind::Prepare, after, .. } if *after > 0));
    assert!(waits);
    desk.prepare(R2, 0, 1, batch.digest());
    assert!(!desk.said(|m| matches!(m, Milestone::Prepared { .. })), "its own prepare is not durable");
    desk.flush();
    assert!(desk.said(|m| matches!(m, Milestone::Prepared { .. })));
}

/// I5: across a restart, too, at most one digest for a view and number.
#[test]
fn a_restarted_replica_stands_by_its_vote() {
    let mut before = Desk::with(R1, 4, 1, sync);
    let a = before.batch(c(0), 1, b"a");
    before.pre_prepare(R0, 0, 1, &a);
    let mut desk = restarted(R1, before.records.clone());
    for from in [R0, R2, R3] {
        status(&mut desk, from, 1, 2 << 20);
    }
    let b = desk.batch(c(1), 1, b"b");
    desk.forget();
    desk.pre_prepare(R0, 0, 1, &b);
    assert!(desk.rejected(Reject::Conflicts));
    assert_eq!(desk.sent(Kind::Prepare), 0);
}

/// D2: what prepared is in P after a restart, with its batch.
#[test]
fn what_prepared_is_still_prepared() {
    let mut before = Desk::with(R1, 4, 1, sync);
    before.order(1, c(0), 1, b"x");
    let desk = restarted(R1, before.records.clone());
    let card = desk.replica.state();
    assert_eq!(card.prepared.len(), 1);
    assert_eq!(desk.executed(), [(1, false)], "COMMITTED was written: it executes at once");
}

/// I7: the view never decreases; one VIEW-CHANGE content for each view.
#[test]
fn a_restarted_replica_sends_the_same_view_change() {
    let mut before = Desk::with(R1, 4, 1, sync);
    before.order(1, c(0), 1, b"x");
    before.suspect(R2, 0);
    before.suspect(R3, 0);
    let said = before.last_sent(Kind::ViewChange).unwrap().1;
    let desk = restarted(R1, before.records.clone());
    assert_eq!(desk.replica.view(), ViewNum(1));
    assert_eq!(desk.last_sent(Kind::ViewChange).unwrap().1, said);
}

/// §14.3.3: a primary that starts again proposes nothing in its old view and hands it over.
#[test]
fn a_restarted_primary_hands_over() {
    let before = Desk::with(R0, 4, 1, sync);
    let mut desk = restarted(R0, before.records.clone());
    assert!(desk.sent(Kind::Suspect) > 0);
    desk.request(c(0), 1, b"x");
    assert_eq!(desk.sent(Kind::PrePrepare), 0);
}

/// §14.3.0: no vote before q - 1 others have confirmed the start.
#[test]
fn the_first_vote_after_a_restart_waits_for_echoes() {
    let mut desk = restarted(R1, vec![]);
    let batch = desk.batch(c(0), 1, b"x");
    desk.pre_prepare(R0, 0, 1, &batch);
    status(&mut desk, R0, 1, 2 << 20);
    assert_eq!(desk.sent(Kind::Prepare), 0);
    status(&mut desk, R2, 1, 2 << 20);
    let to_all = |d: &&Did| matches!(d, Did::Sent { kind: Kind::Prepare, to: Recipient::All, .. });
    assert_eq!(desk.did.iter().filter(to_all).count(), 1);
}

/// H7: an old disk was put back: the others have seen this replica start later than this. It must not vote
/// as if it knew.
#[test]
fn h7_an_old_disk_is_noticed() {
    let mut desk = restarted(R1, vec![]);
    let batch = desk.batch(c(0), 1, b"x");
    desk.pre_prepare(R0, 0, 1, &batch);
    status(&mut desk, R0, 1, 5 << 20);
    status(&mut desk, R2, 1, 5 << 20);
    assert!(desk.said(|m| matches!(m, Milestone::RejoinStarted { .. })));
    status(&mut desk, R3, 1, 2 << 20);
    assert_eq!(desk.sent(Kind::Prepare), 0);
    assert!(desk.sent(Kind::QueryStable) > 0);
}

/// L13, §14.3: one replica has seen the later start, and shows its token, which nobody else can make. That is enough,
/// also after this replica has begun to vote. A start that its clock cannot explain is no proof: somebody had its key.
#[test]
fn l13_one_replica_with_the_token_of_a_later_start_is_enough() {
    let began = |desk: &Desk| desk.said(|m| matches!(m, Milestone::RejoinStarted { .. }));
    let mut desk = restarted(R1, vec![]);
    status(&mut desk, R0, 1, 2 << 20);
    status(&mut desk, R2, 1, 2 << 20);
    desk.pass(300);
    let forged = Start { token: 1, ..desk.start(5 << 20) };
    for (counter, start) in [(1, forged), (2, desk.start(u64::MAX))] {
        let echoes = desk.echoes_of(R1, start);
        status_with(&mut desk, R3, counter, &echoes, 0);
        assert!(!began(&desk), "{start:?}");
        desk.pass(300);
    }
    let echoes = desk.echoes_of(R1, desk.start(5 << 20));
    status_with(&mut desk, R3, 3, &echoes, 0);
    assert!(began(&desk));
    assert!(desk.sent(Kind::QueryStable) > 0);
    desk.pass(300);
    let (_, body) = desk.last_sent(Kind::Status).unwrap();
    assert_eq!(Status::decode(&body).unwrap().start.incarnation >> 20, 6, "the next start is later than all");
}

/// A backup that has restarted, prepared number 1, and learns then that its disk is old. Its COMMIT waits for a carrier.
fn rejoins_while_it_votes() -> Desk {
    let mut desk = Desk::recorded(R1, vec![], 0, |config| {
        sync(config);
        config.piggyback = true;
    });
    for from in [R0, R2] {
        status(&mut desk, from, 1, 2 << 20);
    }
    let batch = desk.batch(c(0), 1, b"x");
    desk.pre_prepare(R0, 0, 1, &batch);
    desk.prepare(R2, 0, 1, batch.digest());
    assert!(desk.said(|m| matches!(m, Milestone::Prepared { .. })));
    assert_eq!((desk.sent(Kind::Prepare), desk.sent(Kind::Commit)), (1, 0));
    let echoes = desk.echoes_of(R1, desk.start(5 << 20));
    status_with(&mut desk, R3, 1, &echoes, 0);
    assert!(desk.said(|m| matches!(m, Milestone::RejoinStarted { .. })));
    desk
}

/// RC-5: a COMMIT that waits for a carrier when a rejoin begins does not leave, whatever would send it.
#[test]
fn l31_a_waiting_commit_does_not_leave_in_a_rejoin() {
    let mut desk = rejoins_while_it_votes();
    desk.pass(10);
    for t in [2, 3] {
        desk.request(c(0), t, b"y"); // a client waits (PB-4)
    }
    assert_eq!(desk.sent(Kind::Commit), 0);
}

/// RC-5: what it voted for before is not said again in a rejoin, to nobody who lacks it.
#[test]
fn l31_no_vote_is_said_again_in_a_rejoin() {
    let mut desk = rejoins_while_it_votes();
    let before = desk.sent(Kind::Prepare);
    for from in [R0, R2, R3] {
        desk.pass(300);
        status(&mut desk, from, 2, 5 << 20);
    }
    assert_eq!((desk.sent(Kind::Prepare), desk.sent(Kind::Commit)), (before, 0));
}

/// RC-5: nor is a SUSPECT.
#[test]
fn l31_no_suspicion_is_said_again_in_a_rejoin() {
    let mut desk = restarted(R1, vec![]);
    for from in [R0, R2] {
        status(&mut desk, from, 1, 2 << 20);
    }
    let digest = desk.batch(c(0), 1, b"x").requests().next().unwrap().digest;
    desk.request(c(0), 1, b"x");
    for from in [R2, R3] {
        desk.hear(from, Kind::ReqAck, |w| ReqAck { client: c(0), timestamp: Timestamp(1), digest }.encode(w));
    }
    desk.pass(3_000);
    assert!(desk.sent(Kind::Suspect) > 0);
    let echoes = desk.echoes_of(R1, desk.start(5 << 20));
    status_with(&mut desk, R3, 1, &echoes, 0);
    desk.forget();
    desk.pass(3_000);
    assert!(desk.sent(Kind::Status) > 0);
    assert_eq!(desk.sent(Kind::Suspect), 0);
}

/// The same counter with other random bits is a second start from one image, not this one (§14.3).
#[test]
fn h7_a_second_start_from_one_image_is_noticed() {
    let mut desk = restarted(R1, vec![]);
    status(&mut desk, R0, 1, (2 << 20) + 77);
    status(&mut desk, R2, 1, (2 << 20) + 77);
    assert!(desk.said(|m| matches!(m, Milestone::RejoinStarted { .. })));
}

/// H6, H8: with the disk the count of starts was lost, and the clock is behind. While it rejoins the replica
/// takes a higher count than the others know of, f + 1 of them: its next start would look like that of an
/// old disk otherwise, and cost it its memory again.
#[test]
fn h6_a_replica_without_memory_outgrows_its_earlier_starts() {
    let mut desk = Desk::resumed(R1, Resume::Amnesia { incarnation: 3 << 20 }, |_| {});
    let started = |desk: &Desk| -> Vec<u64> {
        let mut counts = Vec::new();
        for did in &desk.did {
            if let Did::Said(Milestone::RejoinStarted { incarnation }) = did {
                counts.push(incarnation >> 20);
            }
        }
        counts
    };
    status(&mut desk, R0, 1, 900 << 20);
    assert_eq!(started(&desk), [3], "one may lie");
    status(&mut desk, R2, 1, 5 << 20);
    assert_eq!(started(&desk), [3, 6], "two have seen the fifth start, or a later one");
    desk.pass(300);
    let (_, body) = desk.last_sent(Kind::Status).unwrap();
    assert_eq!(Status::decode(&body).unwrap().start.incarnation >> 20, 6);
}

/// RC-4 to RC-7: r1 has lost its memory, and its recovery request is executed at 11 by others, who are in `view`. `H_R` is
/// max(8 + L, 12 + L) = 20.
fn noted_by_others_in(view: ViewNum, change: impl FnOnce(&mut quorate_pbft::Config)) -> Desk {
    let mut desk = Desk::resumed(R1, Resume::Amnesia { incarnation: 3 << 20 }, change);
    let query = QueryStable::decode(&desk.last_sent(Kind::QueryStable).unwrap().1).unwrap();
    let answer = ReplyStable { nonce: query.nonce, checkpoint: SeqNum(8), prepared: SeqNum(10), view };
    desk.hear(R0, Kind::ReplyStable, |w| ReplyStable { nonce: query.nonce + 1, ..answer }.encode(w));
    assert!(desk.rejected(Reject::WrongNonce));
    for from in [R0, R2, R3] {
        desk.hear(from, Kind::ReplyStable, |w| answer.encode(w));
    }
    let (to, _) = desk.last_sent(Kind::Request).unwrap();
    assert_eq!(to, Recipient::All);
    let me = quorate_wire::ClientId(u64::from(R1.0));
    let timestamp = Timestamp(desk.now.wall_ns);
    let (_, frame) = desk.last_sent(Kind::Request).unwrap();
    let operation = RequestBody::decode(Frame::decode(&frame).unwrap().body).unwrap().operation.to_vec();
    let asked = Recovery::decode(&operation).unwrap();
    let mut result = Vec::new();
    let life = Life { timestamp, bits: asked.bits };
    Recovered { seq: SeqNum(11), life, floor: asked.floor }.encode(&mut result);
    let digest = desk.domains.reply(me.0, timestamp.0, &quorate_wire::Digest::ZERO, &result);
    for from in [R0, R2, R3] {
        let reply = Reply { view, timestamp, client: me, tentative: false, digest, result: Some(&result) };
        desk.hear(from, Kind::Reply, |w| reply.encode(w));
    }
    desk
}

/// A stable checkpoint comes, by a transfer.
fn fetches(desk: &mut Desk, stable: u64) {
    for from in [R0, R2] {
        desk.checkpoint(from, stable, root(SeqNum(stable)), true);
    }
    desk.pass(700); // batches do not come; state does
    desk.fetched(stable);
}

/// RC-4 to RC-9a: estimate, recovery request, stable checkpoint beyond the bound, here and at a quorum; no vote before.
#[test]
fn h6_a_replica_without_memory_rejoins_and_votes_only_then() {
    let mut desk = noted_by_others_in(ViewNum(0), |_| {});
    // State at 16 comes; it may still not vote: 16 < 20.
    for stable in [16, 20] {
        fetches(&mut desk, stable);
        let batch = desk.batch(c(0), stable, b"x");
        desk.pre_prepare(R0, 0, stable + 1, &batch);
        assert_eq!(desk.sent(Kind::Prepare), 0, "at {stable}");
    }
    // RC-9a: and only when a quorum is there, too. A replica that lags does not count.
    for (from, stable) in [(R0, 20), (R3, 16)] {
        status_at(&mut desk, from, 1, 3 << 20, stable);
        assert_eq!(desk.sent(Kind::Prepare), 0, "{from} is at {stable}");
    }
    status_at(&mut desk, R2, 1, 3 << 20, 20);
    assert!(desk.sent(Kind::Prepare) > 0);
    assert!(desk.said(|m| *m == Milestone::Rejoined { seq: SeqNum(20) }));
}

/// §14.4, L54: a CHECKPOINT that is said again after a rejoin waits until the disk knows that the rejoin has ended.
#[test]
fn l54_a_checkpoint_waits_for_the_end_of_the_rejoin() {
    let mut desk = noted_by_others_in(ViewNum(0), sync);
    fetches(&mut desk, 20);
    desk.disk_is_fast = false;
    for from in [R0, R2, R3] {
        status_at(&mut desk, from, 1, 3 << 20, 20);
    }
    assert!(desk.said(|m| *m == Milestone::Rejoined { seq: SeqNum(20) }));
    let mut said = |counter| {
        desk.forget();
        desk.pass(150);
        status_at(&mut desk, R3, counter, 3 << 20, 16);
        let said = desk.sent_to(R3, Kind::Checkpoint);
        desk.flush();
        said
    };
    assert_eq!([2, 3].map(&mut said), [0, 1]);
}

/// L151, RC-11c: a replica has rejoined in view 1, whose NEW-VIEW has not come, and restarts. It is in view 1 still, so it
/// votes in no view before. It is the primary of view 1 and may have sent a NEW-VIEW before it lost its memory: it sends
/// none, also after another restart, when it has sent a VIEW-CHANGE for view 1 in its new life.
#[test]
fn l151_a_restart_after_a_rejoin_stays_in_its_view() {
    let mut desk = noted_by_others_in(ViewNum(1), sync);
    fetches(&mut desk, 20);
    for from in [R0, R2, R3] {
        status_at(&mut desk, from, 1, 3 << 20, 20);
    }
    assert!(desk.said(|m| *m == Milestone::Rejoined { seq: SeqNum(20) }));
    let lives = Lives::default().opened(Life { timestamp: Timestamp(5), bits: 7 }, ViewNum(1));
    let mut records = Vec::new();
    for restart in 1..=2 {
        records.append(&mut desk.records);
        let resume = Resume::Restart(Restart {
            incarnation: 2 << 20,
            records: records.clone(),
            checkpoint: (SeqNum(20), root(SeqNum(20))),
            clients: vec![],
            lives: vec![(R1, lives)],
            time_ns: 0,
        });
        desk = Desk::resumed(R1, resume, sync);
        assert_eq!(desk.replica.view(), ViewNum(1), "restart {restart}");
        for from in [R0, R2, R3] {
            status_at(&mut desk, from, 1, 2 << 20, 20);
        }
        let batch = desk.batch(c(0), 1, b"x");
        desk.pre_prepare(R0, 0, 21, &batch);
        assert_eq!(desk.sent(Kind::Prepare), 0, "restart {restart}");
        let stable = SeqNum(20);
        let checkpoints = vec![(stable, root(stable))];
        let m = ViewChange { stable, checkpoints, ..desk.empty_view_change(1) };
        for from in [R0, R2, R3] {
            let frame = desk.view_change(from, &m);
            desk.frame(&frame);
        }
        assert_eq!(
            (desk.sent(Kind::ViewChange) > 0, desk.sent(Kind::NewView)),
            (true, 0),
            "restart {restart}"
        );
    }
}

/// L40, RC-6: a recovery request that the service has refused is never executed. The replica sends one with a later timestamp.
#[test]
fn l40_a_refused_recovery_request_is_replaced() {
    assert_eq!(replaces_its_request_after(&[(R0, b"no"), (R2, b"no")]), Life::default());
}

/// L63, RC-6: nor is one executed whose timestamp an earlier life has used: the answer to that has other bits. L125: the next
/// request names the life that a correct replica has told.
#[test]
fn l63_an_answer_to_an_earlier_life_is_none() {
    let (mut result, life) = (Vec::new(), Life { timestamp: Timestamp(6), bits: 7 });
    Recovered { seq: SeqNum(11), life, floor: ViewNum(0) }.encode(&mut result);
    assert_eq!(replaces_its_request_after(&[(R0, &result), (R2, &result)]), life);
}

/// L125, RC-6: f + 1 answers that say different things do not replace it: a liar's and a correct one are not enough to know the
/// present life, and the next request would be in vain, too.
#[test]
fn l125_answers_that_differ_replace_no_request() {
    let (mut result, life) = (Vec::new(), Life { timestamp: Timestamp(6), bits: 7 });
    Recovered { seq: SeqNum(11), life, floor: ViewNum(0) }.encode(&mut result);
    assert_eq!(replaces_its_request_after(&[(R0, b"no"), (R2, &result), (R3, &result)]), life);
}

/// Replicas answer one after the other, and the last answer replaces the request. Returns the life that the next one names.
fn replaces_its_request_after(answers: &[(ReplicaId, &[u8])]) -> Life {
    let mut desk = Desk::resumed(R1, Resume::Amnesia { incarnation: 3 << 20 }, |_| {});
    let query = QueryStable::decode(&desk.last_sent(Kind::QueryStable).unwrap().1).unwrap();
    let view = ViewNum(0);
    for from in [R0, R2, R3] {
        let answer = ReplyStable { nonce: query.nonce, checkpoint: SeqNum(8), prepared: SeqNum(10), view };
        desk.hear(from, Kind::ReplyStable, |w| answer.encode(w));
    }
    let asked = |desk: &Desk| {
        let (_, frame) = desk.last_sent(Kind::Request).unwrap();
        let request = RequestBody::decode(Frame::decode(&frame).unwrap().body).unwrap();
        (request.timestamp, Recovery::decode(request.operation).unwrap().before)
    };
    let (me, (first, before)) = (quorate_wire::ClientId(u64::from(R1.0)), asked(&desk));
    assert_eq!(before, Life::default());
    for (at, (from, result)) in answers.iter().enumerate() {
        let digest = desk.domains.reply(me.0, first.0, &quorate_wire::Digest::ZERO, result);
        let (client, result) = (me, Some(*result));
        let reply = Reply { view, timestamp: first, client, tentative: false, digest, result };
        desk.hear(*from, Kind::Reply, |w| reply.encode(w));
        desk.pass(150);
        assert_eq!(asked(&desk).0 > first, at + 1 == answers.len(), "{from}");
    }
    asked(&desk).1
}

/// L55, RC-10: a replica has rejoined long ago, and this one starts again from an image of now, in an idle cluster. It expects no
/// null batches, which the primary would not propose and others not accept. A state of an earlier version does not say when.
#[test]
fn l55_a_rejoin_of_long_ago_needs_no_null_batches() {
    for (noted, expected) in [(5, false), (9, true), (0, true)] {
        let lives = Lives { noted: SeqNum(noted), ..Lives::default() };
        let resume = Resume::Restart(Restart {
            incarnation: 2 << 20,
            records: vec![],
            checkpoint: (SeqNum(16), root(SeqNum(16))),
            clients: vec![],
            lives: vec![(R3, lives)],
            time_ns: 0,
        });
        let mut desk = Desk::resumed(R1, resume, sync);
        for from in [R0, R2, R3] {
            status_at(&mut desk, from, 1, 2 << 20, 16);
        }
        desk.pass(5_000);
        assert_eq!(desk.sent(Kind::Suspect) > 0, expected, "{noted}");
    }
}

/// RC-10, PR-6: null batches are accepted while a recovery needs them, and at no other time.
#[test]
fn a_null_batch_is_refused_unless_a_recovery_needs_it() {
    let mut desk = Desk::new(R1);
    let mut null = quorate_wire::Batch::default();
    null.seal(&desk.domains.clone(), &[]);
    desk.pre_prepare(R0, 0, 1, &null);
    assert!(desk.rejected(Reject::NullBatch));
    assert_eq!(desk.sent(Kind::Prepare), 0);
    assert!(ViewChange::decode(&[]).is_err());
}
