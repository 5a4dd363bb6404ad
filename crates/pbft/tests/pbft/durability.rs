//! Spec §14.1: what is durable before what, and what a restart makes of it. Faults found in this code.
#![allow(clippy::unwrap_used, clippy::panic, missing_docs, reason = "a test may panic")]

use crate::desk::{Desk, Did, R0, R1, R2, R3, c, root};
use quorate_pbft::config::Durability;
use quorate_pbft::record::Record;
use quorate_pbft::step::{Input, Lsn, Recipient, Reject};
use quorate_pbft::{Milestone, Restart, Resume};
use quorate_wire::Digest;
use quorate_wire::codec::Writer;
use quorate_wire::id::{ClientId, ReplicaId, SeqNum, Timestamp, ViewNum};
use quorate_wire::life::{Life, Recovery};
use quorate_wire::message::{Bitmap, Echoes, Kind, QueryStable, Start, Status};
use quorate_wire::reply::{Reply, ReplyOutcome};

fn sync(config: &mut quorate_pbft::Config) {
    config.durability = Durability::Sync;
    config.tentative = false;
}

/// What a STATUS on this desk may differ in.
#[derive(Clone, Copy)]
struct Says {
    stable: u64,
    incarnation: u64,
    echo: u64,
}

const SAYS: Says = Says { stable: 0, incarnation: 1 << 20, echo: 2 << 20 };

fn status(desk: &mut Desk, from: ReplicaId, counter: u64, says: Says) {
    let settings = desk.config.shared_settings();
    let echoes = desk.echoes(R1, says.echo);
    desk.hear(from, Kind::Status, |w| {
        Status {
            counter,
            view: ViewNum(0),
            stable: SeqNum(says.stable),
            executed: SeqNum(says.stable),
            start: Start { incarnation: says.incarnation, token: 0 },
            settings,
            echoes: Echoes::new(&echoes),
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

fn restarted(records: Vec<Vec<u8>>, checkpoint: u64) -> Desk {
    let checkpoint = (SeqNum(checkpoint), root(SeqNum(checkpoint)));
    let resume = Resume::Restart(Restart {
        incarnation: 2 << 20,
        records,
        checkpoint,
        clients: vec![],
        lives: vec![],
        time_ns: 0,
    });
    Desk::resumed(R1, resume, sync)
}

/// The other replicas know of the start of r1.
pub(crate) fn confirmed(desk: &mut Desk) {
    for from in [R0, R2] {
        status(desk, from, 1, SAYS);
    }
}

fn record(record: &Record<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    record.encode(&mut Writer::new(&mut bytes));
    bytes
}

/// The number of records that the last message of a kind waits for.
fn waits_for(desk: &Desk, kind: Kind) -> usize {
    let after = desk.did.iter().rev().find_map(|d| {
        let Did::Sent { kind: sent, after, .. } = d else { return None };
        (*sent == kind).then_some(*after)
    });
    usize::try_from(after.unwrap()).unwrap()
}

fn read(desk: &mut Desk, client: u64, t: u64) -> bool {
    let frame = desk.request_frame_with(c(client), t, b"read", true, false);
    desk.forget();
    desk.frame(&frame);
    desk.did.iter().any(|d| matches!(d, Did::Reads(_)))
}

/// RO-4, §14.1: a replica never answers below what it has shown. The reply of a batch that it executed on others'
/// COMMITs waits for a record from which a restart knows of it; with exactly those records no read is served
/// before the batch has been executed again.
#[test]
fn s2_a_reply_waits_until_a_restart_would_know_of_its_batch() {
    let mut before = Desk::with(R1, 4, 1, sync);
    before.disk_is_fast = false;
    before.order(1, c(0), 1, b"x");
    assert_eq!(before.executed(), [(1, false)]);
    let records = waits_for(&before, Kind::Reply);
    assert!(records > 0, "it would leave before anything is on the disk");
    let mut after = restarted(before.records[..records].to_vec(), 0);
    confirmed(&mut after);
    let seen = after.executed().contains(&(1, false));
    assert!(seen || !read(&mut after, 1, 1), "a read of the state before");
}

/// The same for a read, and for a reply that is sent again: they reflect the last batch that was executed.
#[test]
fn s2_reads_and_cached_replies_wait_as_well() {
    let mut desk = Desk::with(R1, 4, 1, sync);
    desk.disk_is_fast = false;
    desk.order(1, c(0), 1, b"x");
    let records = waits_for(&desk, Kind::Reply);
    assert!(read(&mut desk, 1, 1));
    assert_eq!(waits_for(&desk, Kind::Reply), records);
    desk.forget();
    desk.request(c(0), 1, b"x");
    assert_eq!(waits_for(&desk, Kind::Reply), records);
}

/// L52, RC-7: a replica that rejoins goes to a view that f + 1 replies name, so each correct one names a view that a crash does
/// not take back. After a restart it names none before others have confirmed that: until then it records no new one.
#[test]
fn l52_a_replica_that_rejoins_hears_of_no_view_that_a_crash_takes_back() {
    let mut desk = Desk::with(R1, 4, 1, sync);
    let mut operation = Vec::new();
    let before = Life::default();
    Recovery { bound: SeqNum(0), bits: 7, floor: ViewNum(0), before }.encode(&mut operation);
    let frame = desk.request_frame_with(ClientId(u64::from(R3.0)), 1, &operation, false, true);
    let batch = desk.batch_of(core::slice::from_ref(&frame));
    desk.pre_prepare(R0, 0, 1, &batch);
    for from in [R2, R3] {
        desk.prepare(from, 0, 1, batch.digest());
        desk.commit(from, 0, 1, batch.digest());
    }
    assert_eq!(desk.sent(Kind::Reply), 1);
    let before = waits_for(&desk, Kind::Reply);
    desk.disk_is_fast = false;
    desk.suspect(R0, 0);
    assert_eq!(desk.replica.view(), ViewNum(1));
    desk.forget();
    desk.frame(&frame);
    let records = waits_for(&desk, Kind::Reply);
    assert!(records > before && records == desk.records.len(), "the record of its VIEW-CHANGE");
    let mut after = restarted(desk.records.clone(), 0);
    after.frame(&frame);
    assert_eq!(after.sent(Kind::Reply), 0);
    confirmed(&mut after);
    after.pass(200);
    after.frame(&frame);
    assert_eq!(after.sent(Kind::Reply), 1);
}

/// L104, RC-4: nor does the answer to its first question name a view that a crash takes back.
#[test]
fn l104_no_bound_names_a_view_that_a_crash_takes_back() {
    let mut desk = restarted(vec![], 0);
    desk.hear(R3, Kind::QueryStable, |w| QueryStable { nonce: 7 }.encode(w));
    assert_eq!(desk.sent(Kind::ReplyStable), 0);
    assert!(desk.rejected(Reject::Recovering));
    confirmed(&mut desk);
    desk.hear(R3, Kind::QueryStable, |w| QueryStable { nonce: 7 }.encode(w));
    assert_eq!(desk.sent(Kind::ReplyStable), 1);
}

/// L106, RC-9a: a replica that rejoins relies on the stable checkpoints that others announce. So a STATUS announces none that
/// a restart would not know of. It still says that no votes for these numbers are needed.
#[test]
fn l106_a_status_announces_no_stable_checkpoint_that_a_crash_takes_back() {
    let announced = |desk: &mut Desk| {
        desk.pass(300);
        let (_, body) = desk.last_sent(Kind::Status).unwrap();
        let status = Status::decode(&body).unwrap();
        (
            status.stable.0,
            (0..5).map(|k| (status.prepared.has(k), status.committed.has(k))).collect::<Vec<_>>(),
        )
    };
    let mut desk = Desk::with(R1, 4, 1, sync);
    desk.disk_is_fast = false;
    (1..=4).for_each(|seq| _ = desk.order(seq, c(0), seq, b"x"));
    let before = desk.records.len();
    for from in [R2, R3] {
        desk.checkpoint(from, 4, root(SeqNum(4)), false);
    }
    assert!(desk.said(|m| matches!(m, Milestone::Stable { seq: SeqNum(4), .. })));
    desk.input(Input::Durable(Lsn(u64::try_from(before).unwrap())));
    let (stable, has) = announced(&mut desk);
    assert_eq!((stable, &has[..4], has[4]), (0, &[(true, true); 4][..], (false, false)));
    let mut after = restarted(desk.records[..before].to_vec(), 0);
    assert_eq!(announced(&mut after).0, 0, "what a restart knows of");
    desk.input(Input::Durable(Lsn(u64::try_from(desk.records.len()).unwrap())));
    assert_eq!(announced(&mut desk).0, 4);
    let mut after = restarted(desk.records.clone(), 0);
    assert_eq!(announced(&mut after).0, 4);
}

/// RO-4: a state that was fetched may have been shown; a restart without it serves no reads below.
#[test]
fn s2_what_was_fetched_is_a_floor_after_a_restart() {
    let mut desk = Desk::with(R1, 4, 1, sync);
    for from in [R2, R3] {
        desk.checkpoint(from, 12, root(SeqNum(12)), false);
    }
    desk.disk_is_fast = false;
    desk.fetched(12);
    assert!(read(&mut desk, 1, 1));
    let records = waits_for(&desk, Kind::Reply);
    let mut after = restarted(desk.records[..records].to_vec(), 0);
    confirmed(&mut after);
    assert!(!read(&mut after, 1, 2));
    assert!(after.said(|m| matches!(m, Milestone::ReadQueued { .. })));
}

/// RO-4, PX-C: replies have left before their batches had settled, and a page is unreadable. The state of a checkpoint
/// below these batches serves no reads.
#[test]
fn ro_4_an_early_reply_is_a_floor_of_a_state_that_is_fetched() {
    let mut desk = Desk::with(R1, 4, 1, |config| {
        sync(config);
        config.workers = 2;
    });
    desk.hold_executions();
    desk.roots_wait = true;
    (1..=6).for_each(|seq| _ = desk.order(seq, c(0), seq, b"x"));
    let digest = Digest([6; 32]);
    let reply = Reply {
        client: c(0),
        timestamp: Timestamp(6),
        digest,
        replier: None,
        outcome: ReplyOutcome::Executed,
        result: Some(b"ok"),
    };
    desk.input(Input::Replied { seq: SeqNum(6), reply });
    assert_eq!(desk.sent(Kind::Reply), 1);
    for from in [R2, R3] {
        desk.checkpoint(from, 4, root(SeqNum(4)), false);
    }
    desk.input(Input::Unreadable { executed: SeqNum(0) });
    desk.fetched(4);
    assert!(!read(&mut desk, 1, 1), "a read below batch 6");
    assert_eq!(desk.replica.state().read_floor, SeqNum(6));
}

/// §14.3: an old disk does not know what its replica has shown. No read before the others have confirmed the start.
#[test]
fn s2_no_read_is_served_before_the_others_have_confirmed_a_start() {
    let mut desk = restarted(vec![], 0);
    assert!(!read(&mut desk, 1, 1));
    confirmed(&mut desk);
    assert!(desk.did.iter().any(|d| matches!(d, Did::Reads(_))), "it is served now");
}

/// D5, ST-6: nothing that lets others discard what is below is said of a state that was fetched before an image of
/// it is on the disk; nor of checkpoints that are taken from there on, which the log alone cannot bring back.
#[test]
fn d1_what_was_fetched_is_announced_when_it_is_on_the_disk() {
    let mut desk = Desk::with(R1, 4, 1, sync);
    for from in [R2, R3] {
        desk.checkpoint(from, 12, root(SeqNum(12)), false);
    }
    desk.disk_is_fast = false;
    desk.fetched(12);
    desk.flush();
    assert_eq!(desk.sent(Kind::Checkpoint), 0);
    assert_eq!(desk.replica.state().stable, SeqNum(0), "two and one that is not on a disk are no quorum");
    desk.input(Input::Kept { seq: SeqNum(8) });
    assert_eq!(desk.sent(Kind::Checkpoint), 0, "that is another image");
    desk.input(Input::Kept { seq: SeqNum(12) });
    assert_eq!(desk.replica.state().stable, SeqNum(12));
    assert!(desk.sent(Kind::Checkpoint) > 0);
}

/// The others' word alone is enough: they hold it on their disks. The window moves, and the image can take its time.
#[test]
fn d1_a_proof_of_others_makes_a_fetched_state_stable_at_once() {
    let mut desk = Desk::with(R1, 4, 1, sync);
    for from in [R2, R3] {
        desk.checkpoint(from, 12, root(SeqNum(12)), true);
    }
    desk.disk_is_fast = false;
    desk.fetched(12);
    desk.flush();
    assert_eq!(desk.replica.state().stable, SeqNum(12));
    assert_eq!(desk.sent(Kind::Checkpoint), 0);
}

/// D5: power was lost between the record of a stable checkpoint that was fetched and its image. The log cannot bring that
/// state back: it is fetched again, and nobody hears that it is held before it is on the disk.
#[test]
fn d1_a_stable_checkpoint_that_the_disk_lost_is_not_announced() {
    let stable = Record::Stable { seq: SeqNum(4), root: root(SeqNum(4)) };
    let mut desk = restarted(vec![record(&stable)], 0);
    assert!(desk.did.iter().any(|d| matches!(d, Did::Fetches(SeqNum(4), _))));
    confirmed(&mut desk);
    desk.pass(300);
    status(&mut desk, R0, 2, SAYS);
    assert_eq!(desk.sent(Kind::Checkpoint), 0, "it is not here");
    desk.disk_is_fast = false;
    desk.fetched(4);
    desk.flush();
    assert_eq!(desk.sent(Kind::Checkpoint), 0, "it is in memory only");
    desk.input(Input::Kept { seq: SeqNum(4) });
    assert!(desk.sent(Kind::Checkpoint) > 0);
}

/// §14.3: an image may be of a state that was fetched and is not known to be stable. The window stays where it was:
/// what was said of the numbers in it binds the replica.
#[test]
fn d1_an_image_above_the_stable_checkpoint_moves_no_window() {
    let stable = Record::Stable { seq: SeqNum(0), root: root(SeqNum(0)) };
    let vote = Record::PrePrepared { view: ViewNum(0), seq: SeqNum(5), digest: Digest([9; 32]) };
    let mut desk = restarted(vec![record(&stable), record(&vote)], 8);
    confirmed(&mut desk);
    let card = desk.replica.state();
    assert_eq!((card.stable, card.executed), (SeqNum(0), SeqNum(8)));
    let batch = desk.batch(c(0), 1, b"another");
    desk.forget();
    desk.pre_prepare(R0, 0, 5, &batch);
    assert!(desk.rejected(Reject::Conflicts));
}

/// CK-2, f > 1: the others have long gone on and say nothing of the checkpoint that was fetched, but that their stable one
/// is not below it: f + 1 of them, so a correct one, and f + 1 have stated this root.
#[test]
fn n_a_fetched_checkpoint_is_stable_by_what_the_others_statuses_say() {
    let mut desk = Desk::with(R1, 7, 2, sync);
    let stated = root(SeqNum(12));
    for from in [R2, R3, ReplicaId(4)] {
        desk.checkpoint(from, 12, stated, false);
    }
    desk.fetched(12);
    assert_eq!(desk.replica.state().stable, SeqNum(0), "four of seven");
    let said = Says { stable: 16, ..SAYS };
    for (from, stable) in [(R2, 0), (R3, 0), (ReplicaId(5), 12)] {
        status(&mut desk, from, 1, said);
        assert_eq!(desk.replica.state().stable, SeqNum(stable), "{from:?}");
    }
}

/// Each batch is written once, however many views it prepares in; a restart finds it in the newest.
#[test]
fn n_a_batch_that_prepares_again_is_not_written_again() {
    let mut desk = Desk::with(R1, 4, 1, sync);
    let digest = desk.order(1, c(0), 1, &[7; 5000]);
    let before: usize = desk.records.iter().map(Vec::len).sum();
    assert!(before > 5000);
    let took_over = take_over(&mut desk);
    assert!(took_over.contains(&digest));
    for from in [R2, R3] {
        desk.prepare(from, 1, 1, digest);
    }
    assert!(desk.said(|m| matches!(m, Milestone::Prepared { seq: SeqNum(1), .. })));
    let again = |bytes: &Vec<u8>| matches!(Record::decode(bytes), Ok(Record::PreparedAgain { .. }));
    assert!(desk.records.iter().any(again));
    let whole = |bytes: &&Vec<u8>| matches!(Record::decode(bytes), Ok(Record::Prepared { .. }));
    assert_eq!(desk.records.iter().filter(whole).count(), 1);
    let after = restarted(desk.records.clone(), 0);
    let prepared = after.replica.state().prepared;
    assert!(prepared.iter().any(|p| p.0 == SeqNum(1)), "{prepared:?}");
}

/// D1: NEW-VIEW counts as its maker's vote for all that it takes over. It leaves when Q has that on the disk.
#[test]
fn l8_a_new_view_waits_for_its_makers_votes() {
    let mut desk = Desk::with(R1, 4, 1, sync);
    let digest = desk.order(1, c(0), 1, b"x");
    desk.disk_is_fast = false;
    take_over(&mut desk);
    let durable = waits_for(&desk, Kind::NewView);
    let claimed = desk.records[..durable].iter().any(|bytes| {
        matches!(Record::decode(bytes), Ok(Record::PrePrepared { view: ViewNum(1), digest: d, .. }) if d == digest)
    });
    assert!(claimed, "a maker that starts again could not claim what the others prepared with its vote");
}

/// DP-7: power was lost between the record of its own NEW-VIEW and its votes for what that takes over. The NEW-VIEW goes
/// to the others all the same, so it records those votes, and claims them in the next view change.
#[test]
fn l8_a_maker_that_lost_its_votes_claims_what_its_new_view_took_over() {
    let mut before = Desk::with(R1, 4, 1, sync);
    let digest = before.order(1, c(0), 1, b"x");
    take_over(&mut before);
    let made =
        before.records.iter().position(|bytes| matches!(Record::decode(bytes), Ok(Record::NewView { .. })));
    let mut desk = restarted(before.records[..=made.unwrap()].to_vec(), 0);
    confirmed(&mut desk);
    desk.flush();
    let left = desk.records.iter().find_map(|bytes| match Record::decode(bytes) {
        Ok(Record::ViewChange { view: ViewNum(2), frame }) => Some(frame),
        _ => None,
    });
    let frame = quorate_wire::frame::Frame::decode(left.unwrap()).unwrap();
    let m = quorate_wire::message::ViewChange::decode(frame.body).unwrap();
    assert_eq!(m.pre_prepared[0].claims, [(digest, ViewNum(1))]);
}

/// r1 leaves view 0 with r2 and r3, who saw the same as it did, and makes the NEW-VIEW of view 1. Returns what it chose.
fn take_over(desk: &mut Desk) -> Vec<Digest> {
    use quorate_wire::message::{NewView, ViewChange};
    desk.suspect(R2, 0);
    desk.suspect(R3, 0);
    desk.flush();
    let (_, bytes) = desk.last_sent(Kind::ViewChange).unwrap();
    let frame = quorate_wire::frame::Frame::decode(&bytes).unwrap();
    let own = ViewChange::decode(frame.body).unwrap();
    for from in [R2, R3] {
        let frame = desk.view_change(from, &own);
        desk.frame(&frame);
    }
    let (_, bytes) = desk.last_sent(Kind::NewView).unwrap();
    let frame = quorate_wire::frame::Frame::decode(&bytes).unwrap();
    NewView::decode(frame.body).unwrap().chosen
}

/// §14.3: a count of starts that no clock and no number of starts explains is not believed. What a liar says of itself
/// would be kept against its replica when it is itself again.
#[test]
fn l18_a_count_of_starts_does_not_jump() {
    let mut desk = Desk::new(R1);
    status(&mut desk, R2, 1, Says { incarnation: u64::MAX, ..SAYS });
    assert!(desk.rejected(Reject::OldIncarnation));
    desk.forget();
    desk.pass(300);
    status(&mut desk, R2, 2, Says { incarnation: 7 << 20, ..SAYS });
    assert!(!desk.rejected(Reject::OldIncarnation));
    desk.pass(300);
    let (_, bytes) = desk.last_sent(Kind::Status).unwrap();
    assert_eq!(Status::decode(&bytes).unwrap().echoes.of(R2).incarnation, 7 << 20);
}

/// However far ahead f + 1 others are made to believe that it is, a replica without memory does not count past the end
/// of the numbers, and does not announce its loss again and again.
#[test]
fn l18_outgrowing_has_an_end() {
    let mut desk = Desk::resumed(R1, Resume::Amnesia { incarnation: 3 << 20 }, |_| {});
    for (counter, from) in [R0, R2, R0, R2].into_iter().enumerate() {
        let counter = u64::try_from(counter).unwrap() + 1;
        status(&mut desk, from, counter, Says { echo: u64::MAX, ..SAYS });
    }
    let started = |d: &&Did| matches!(d, Did::Said(Milestone::RejoinStarted { .. }));
    assert_eq!(desk.did.iter().filter(started).count(), 1);
}

/// CK-6, I6: while a wrong state is repaired a later checkpoint becomes stable. The repair goes on to that one, and does
/// not end below the window.
#[test]
fn l16_a_repair_does_not_end_below_the_window() {
    let mut desk = Desk::new(R1);
    for t in 1..=8 {
        desk.order(t, c(0), t, b"x");
    }
    let right = Digest([77; 32]);
    for from in [R0, R2, R3] {
        desk.checkpoint(from, 4, right, false);
    }
    assert!(desk.said(|m| *m == Milestone::Diverged { seq: SeqNum(4) }));
    for from in [R0, R2] {
        desk.checkpoint(from, 8, root(SeqNum(8)), false);
    }
    assert_eq!(desk.replica.state().stable, SeqNum(8));
    desk.input(Input::Fetched { seq: SeqNum(4), root: &right, clients: &[], lives: None, time_ns: 0 });
    let last = desk.did.iter().rev().find_map(|d| {
        let Did::Fetches(seq, _) = d else { return None };
        Some(seq.0)
    });
    assert_eq!(last, Some(8));
    desk.fetched(8);
    assert_eq!(desk.replica.state().executed, SeqNum(8));
}

/// L39, SM-3: what waits for the disk is not sent again: it leaves when the disk has its record.
#[test]
fn l39_held_proposals_are_not_sent_again() {
    let mut desk = Desk::with(R0, 4, 1, sync);
    desk.disk_is_fast = false;
    desk.request(c(0), 1, b"x");
    assert_eq!(desk.sent(Kind::PrePrepare), 1);
    let ask = |desk: &mut Desk, counter| {
        desk.pass(500);
        status(desk, R1, counter, SAYS);
        desk.sent_to(R1, Kind::PrePrepare)
    };
    let copies: Vec<usize> = (1..=5).map(|counter| ask(&mut desk, counter)).collect();
    assert_eq!(copies, [0; 5], "it waits here");
    desk.flush();
    assert_eq!(ask(&mut desk, 6), 1, "it may be lost");
    // While another record is on its way to the disk, this one needs not wait for that.
    desk.request(c(1), 1, b"y");
    assert_eq!(ask(&mut desk, 7), 2);
    let again = |d: &Did| {
        let Did::Sent { to: Recipient::Replica(_), kind: Kind::PrePrepare, after, .. } = d else {
            return None;
        };
        Some(*after)
    };
    let after: Vec<u64> = desk.did.iter().filter_map(again).collect();
    assert_eq!((after.len(), after[0]), (2, after[1]));
}

/// L43, SM-3: so it is with this replica's own VIEW-CHANGE and with the NEW-VIEW by which it entered its view.
#[test]
fn l43_held_view_changes_and_new_views_are_not_sent_again() {
    let mut desk = Desk::with(R1, 4, 1, sync);
    desk.disk_is_fast = false;
    desk.suspect(R0, 0);
    let empty = desk.empty_view_change(1);
    for from in [R2, R3] {
        let frame = desk.view_change(from, &empty);
        desk.frame(&frame);
    }
    assert_eq!((desk.sent(Kind::ViewChange), desk.sent(Kind::NewView)), (1, 1));
    let ask = |desk: &mut Desk, counter| {
        desk.pass(500);
        status(desk, R2, counter, SAYS);
        (desk.sent_to(R2, Kind::ViewChange), desk.sent_to(R2, Kind::NewView))
    };
    let copies: Vec<(usize, usize)> = (1..=5).map(|counter| ask(&mut desk, counter)).collect();
    assert_eq!(copies, [(0, 0); 5], "they wait here");
    desk.flush();
    let (view_changes, new_views) = ask(&mut desk, 6);
    assert!(view_changes > 0 && new_views == 1, "they may be lost");
}

/// GC-4, D8, L134: a liar starts again and again while the disk is full. One record of the starts waits; the next one follows
/// when that is on the disk, and has them all.
#[test]
fn l134_one_record_of_starts_waits_for_the_disk() {
    let mut desk = Desk::with(R1, 4, 1, sync);
    let seen = |desk: &Desk| {
        let is_seen = |bytes: &&Vec<u8>| matches!(Record::decode(bytes), Ok(Record::Seen { .. }));
        desk.records.iter().filter(is_seen).cloned().collect::<Vec<_>>()
    };
    let before = seen(&desk).len();
    desk.disk_is_fast = false;
    let starts = |desk: &mut Desk, count: u64| {
        desk.pass(300);
        status(desk, R3, count, Says { incarnation: count << 20, echo: 1 << 20, ..SAYS });
    };
    (2..=9).for_each(|count| starts(&mut desk, count));
    assert_eq!(seen(&desk).len(), before + 1, "the first one");
    desk.flush();
    status(&mut desk, R0, 2, Says { echo: 1 << 20, ..SAYS });
    let all = seen(&desk);
    assert_eq!(all.len(), before + 2);
    let Ok(Record::Seen { starts, .. }) = Record::decode(all.last().unwrap()) else { panic!() };
    assert_eq!(Echoes::new(starts).of(R3).incarnation, 9 << 20);
}

/// RC-4, L135: what waits for a slow disk has a bound, and the oldest is dropped. A liar that asks for the bound of a rejoin all
/// the time, or for CHECKPOINTs that have not left yet, must not drive votes out.
#[test]
fn l135_answers_do_not_pile_up_before_the_disk() {
    let mut desk = Desk::with(R1, 4, 1, sync);
    desk.disk_is_fast = false;
    (1..=4).for_each(|seq| _ = desk.order(seq, c(0), seq, b"x"));
    desk.forget();
    for nonce in 0..10 {
        desk.hear(R3, Kind::QueryStable, |w| QueryStable { nonce }.encode(w));
        desk.hear(R2, Kind::QueryStable, |w| QueryStable { nonce: 7 }.encode(w));
    }
    assert_eq!((desk.sent_to(R3, Kind::ReplyStable), desk.sent_to(R2, Kind::ReplyStable)), (2, 2));
    let ask = |desk: &mut Desk, counter| {
        desk.pass(150);
        status(desk, R3, counter, Says { echo: 1 << 20, ..SAYS });
        desk.sent_to(R3, Kind::Checkpoint)
    };
    assert_eq!([1, 2].map(|counter| ask(&mut desk, counter)), [0; 2], "it waits here");
    desk.hear(R3, Kind::QueryStable, |w| QueryStable { nonce: 7 }.encode(w));
    assert_eq!(desk.sent_to(R3, Kind::ReplyStable), 3);
    desk.flush();
    assert_eq!(ask(&mut desk, 3), 1, "it may be lost");
    // While later records are on their way to the disk, this one need not wait for them.
    let on_disk = desk.records.len();
    desk.order(5, c(0), 5, b"x");
    assert_eq!(ask(&mut desk, 4), 2);
    assert!(waits_for(&desk, Kind::Checkpoint) <= on_disk && desk.records.len() > on_disk);
}
