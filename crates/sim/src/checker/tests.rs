//! Each watcher sees what it is there for.

use std::collections::BTreeMap;
use std::sync::Arc;

use quorate_pbft::step::Milestone;
use quorate_wire::batch::StoredRequest;
use quorate_wire::codec::Writer;
use quorate_wire::digest::{ClusterId, Domains};
use quorate_wire::frame::Frame;
use quorate_wire::life::Life;
use quorate_wire::message::{
    Commit, LeaveCert, Prepare, Request, RequestBody, RequestFlags, Suspect, SuspectReason, ViewChange,
};
use quorate_wire::reply::{Reply, ReplyOutcome};

use super::*;

const R0: ReplicaId = ReplicaId(0);
const R1: ReplicaId = ReplicaId(1);
const C0: ClientId = ClientId(1 << 16);

/// Counts: its results are `1`, `2`, ...
#[derive(Default)]
struct Counter(u8);

impl Double for Counter {
    fn execute(&mut self, _cx: &quorate_service::Context, _operation: &[u8]) -> Vec<u8> {
        self.0 += 1;
        vec![self.0]
    }
}

const OPERATION: &[u8] = b"op";

fn domains() -> Domains {
    Domains::new(ClusterId([1; 32]))
}

fn checkers() -> Checkers {
    let cluster = Cluster::tolerating(1).unwrap();
    let all: Vec<ReplicaId> = cluster.replicas().collect();
    Checkers::new(cluster, (4, 16), domains(), &all, (64, 32), Box::new(Counter::default()))
}

/// A batch with one request for each timestamp.
fn batch(timestamps: &[u64]) -> Arc<Batch> {
    let domains = domains();
    let mut batch = Batch::default();
    for t in timestamps {
        let body = RequestBody {
            timestamp: Timestamp(*t),
            flags: RequestFlags::default(),
            replier: None,
            operation: OPERATION,
        };
        let (mut bytes, mut frame) = (Vec::new(), Vec::new());
        body.encode(&mut Writer::new(&mut bytes));
        quorate_wire::frame::begin(Kind::Request, 0, C0.into(), &bytes, &mut frame);
        frame.extend_from_slice(&[2, 0, 0, 0, 0, 0]); // an authenticator without entries
        let request = Request::decode(&Frame::decode(&frame).unwrap(), &domains).unwrap();
        batch.push_stored(&StoredRequest::new(&request));
    }
    batch.seal(&domains, &1_u64.to_le_bytes());
    Arc::new(batch)
}

fn replies(results: &[(u64, ReplyOutcome, u8)]) -> Replies {
    let mut replies = Replies::new();
    for (t, outcome, result) in results {
        replies.push(Reply {
            client: C0,
            timestamp: Timestamp(*t),
            digest: domains().reply(C0.0, *t, &domains().request(C0.0, *t, OPERATION), &[*result]),
            replier: None,
            outcome: *outcome,
            result: Some(&[*result]),
        });
    }
    replies
}

fn rule(checkers: &Checkers) -> Option<&'static str> {
    checkers.violation().map(|violation| violation.rule)
}

fn run(checkers: &mut Checkers, id: ReplicaId, seq: u64, batch: &Arc<Batch>, replies: &Replies) {
    checkers.execute(id, SeqNum(seq), batch, false);
    checkers.executed(id, SeqNum(seq), batch.digest(), replies);
}

#[test]
fn equal_executions_are_no_violation() {
    let mut c = checkers();
    for id in [R0, R1] {
        run(&mut c, id, 1, &batch(&[1]), &replies(&[(1, ReplyOutcome::Executed, 1)]));
        // The second time it comes, it is answered from the table.
        run(&mut c, id, 2, &batch(&[1]), &replies(&[(1, ReplyOutcome::Repeated, 1)]));
    }
    c.accepted((C0, Timestamp(1)), OPERATION, &[1], true);
    c.finish();
    assert_eq!(c.violation(), None);
    assert_eq!((c.committed(), c.commands()), (SeqNum(2), 1));
}

/// I13: a request that takes effect a second time.
#[test]
fn a_request_executed_twice_is_seen() {
    let mut c = checkers();
    run(&mut c, R0, 1, &batch(&[1]), &replies(&[(1, ReplyOutcome::Executed, 1)]));
    run(&mut c, R0, 2, &batch(&[1]), &replies(&[(1, ReplyOutcome::Executed, 2)]));
    assert_eq!(rule(&c), Some("exactly once (I13)"));
}

/// I15: a service that gives another result than the double.
#[test]
fn a_wrong_result_at_a_replica_is_seen() {
    let mut c = checkers();
    run(&mut c, R0, 1, &batch(&[1]), &replies(&[(1, ReplyOutcome::Executed, 7)]));
    assert_eq!(rule(&c), Some("results (I15)"));
}

/// I15 on the tentative path: compared when the batch becomes final.
#[test]
fn a_wrong_tentative_result_is_seen_when_it_becomes_final() {
    let mut c = checkers();
    let one = batch(&[1]);
    c.execute(R0, SeqNum(1), &one, true);
    c.executed(R0, SeqNum(1), one.digest(), &replies(&[(1, ReplyOutcome::Executed, 7)]));
    assert_eq!(rule(&c), None);
    c.merge(R0, SeqNum(1));
    assert_eq!(rule(&c), Some("results (I15)"));
}

/// A service that takes its time gives the result of a tentative batch when that has been dropped, and
/// another batch has become final in its place: it is compared with nothing.
#[test]
fn a_late_result_of_a_dropped_batch_is_nobodys() {
    let mut c = checkers();
    let (dropped, kept) = (batch(&[1]), batch(&[2]));
    c.execute(R0, SeqNum(1), &dropped, true);
    c.undo(R0, SeqNum(0));
    c.execute(R0, SeqNum(1), &kept, false);
    c.executed(R0, SeqNum(1), dropped.digest(), &replies(&[(1, ReplyOutcome::Executed, 1)]));
    c.executed(R0, SeqNum(1), kept.digest(), &replies(&[(2, ReplyOutcome::Executed, 1)]));
    assert_eq!(c.violation(), None);
    // A replica that has it as final without saying so is not exempt.
    run(&mut c, R1, 1, &dropped, &replies(&[(1, ReplyOutcome::Executed, 1)]));
    assert_eq!(rule(&c), Some("agreement (I1)"));
}

/// B21: a page may be damaged behind where a repair has come: the replica stays faulty until the next one.
#[test]
fn damage_during_a_repair_outlasts_it() {
    let mut facts = Facts::new(R0, true);
    let (diverged, repaired) =
        (Milestone::Diverged { seq: SeqNum(8) }, Milestone::TransferFinished { seq: SeqNum(8) });
    facts.damage();
    for again in [true, false] {
        facts.milestone(&diverged).unwrap();
        if again {
            facts.damage();
        }
        facts.milestone(&repaired).unwrap();
        assert_eq!(facts.counts(), !again);
    }
}

/// I15 and I30: what a client has accepted, before or after, is what was executed; and was executed.
#[test]
fn a_wrong_or_lost_result_at_a_client_is_seen() {
    let executed =
        |c: &mut Checkers| run(c, R0, 1, &batch(&[1]), &replies(&[(1, ReplyOutcome::Executed, 1)]));
    let mut c = checkers();
    executed(&mut c);
    c.accepted((C0, Timestamp(1)), OPERATION, &[9], true);
    assert_eq!(rule(&c), Some("results (I15)"), "after");
    let mut c = checkers();
    c.accepted((C0, Timestamp(1)), OPERATION, &[9], true);
    executed(&mut c);
    assert_eq!(rule(&c), Some("results (I15)"), "before");
    let mut c = checkers();
    c.accepted((C0, Timestamp(1)), OPERATION, &[1], true);
    assert!(c.is_early());
    c.finish();
    assert_eq!(rule(&c), Some("results (I15)"), "never");
}

/// EX-1, TE-1: in order, without gaps, one tentative batch at a time.
#[test]
fn executions_out_of_order_are_seen() {
    let mut c = checkers();
    c.execute(R0, SeqNum(2), &batch(&[1]), false);
    assert_eq!(rule(&c), Some("order (I6, TE-1)"));
    let mut c = checkers();
    c.execute(R0, SeqNum(1), &batch(&[1]), true);
    c.execute(R0, SeqNum(2), &batch(&[2]), true);
    assert_eq!(rule(&c), Some("order (I6, TE-1)"));
    let mut c = checkers();
    c.execute(R0, SeqNum(1), &batch(&[1]), true);
    c.undo(R0, SeqNum(0));
    c.merge(R0, SeqNum(1));
    assert_eq!(rule(&c), Some("order (TE-2)"));
}

/// I16, I18.
#[test]
fn checkpoints_that_differ_or_cover_too_much_are_seen() {
    let mut c = checkers();
    c.root(R0, SeqNum(8), Digest([1; 32]), Root::Cut);
    c.root(R1, SeqNum(8), Digest([2; 32]), Root::Cut);
    assert_eq!(rule(&c), Some("checkpoint (I16)"));
    let mut c = checkers();
    c.execute(R0, SeqNum(1), &batch(&[1]), true);
    c.cut(R0, SeqNum(1));
    assert_eq!(rule(&c), Some("checkpoint (I18)"));
}

/// I16: a stable checkpoint is held by enough correct replicas.
#[test]
fn a_stable_checkpoint_that_nobody_else_holds_is_seen() {
    let stable = Milestone::Stable { seq: SeqNum(8), root: Digest([1; 32]) };
    for (holders, expected) in [(3, None), (2, Some("checkpoint (I16)"))] {
        let mut c = checkers();
        for id in (0..holders).map(ReplicaId) {
            c.root(id, SeqNum(8), Digest([1; 32]), Root::Cut);
        }
        c.milestone(R0, &stable);
        assert_eq!(rule(&c), expected, "{holders} hold it");
    }
}

fn prepare(view: u64, seq: u64, byte: u8) -> Vec<u8> {
    let mut body = Vec::new();
    let digest = Digest([byte; 32]);
    Prepare::encode(ViewNum(view), SeqNum(seq), &digest, &[], &mut Writer::new(&mut body));
    body
}

fn commit(view: u64, seq: u64, byte: u8) -> Vec<u8> {
    let mut body = Vec::new();
    Commit { view: ViewNum(view), seq: SeqNum(seq), digest: Digest([byte; 32]) }
        .encode(&mut Writer::new(&mut body));
    body
}

/// I5: one digest for each view and number, also after a restart.
#[test]
fn a_second_vote_is_seen_across_restarts() {
    let mut c = checkers();
    c.sends(R0, Kind::Prepare, &prepare(0, 1, 1));
    c.sends(R0, Kind::Prepare, &prepare(0, 1, 1));
    c.restarted(R0, (SeqNum(0), SeqNum(0)), (ViewNum(0), true), &[]);
    assert_eq!(rule(&c), None);
    c.sends(R0, Kind::Prepare, &prepare(0, 1, 2));
    assert_eq!(rule(&c), Some("votes (I5)"));
}

/// I5: no COMMIT for what has not prepared. I8: votes are of the current view, inside of the window.
#[test]
fn votes_out_of_place_are_seen() {
    let said = |kind, body: &[u8]| {
        let mut c = checkers();
        for id in [1, 2].map(ReplicaId) {
            c.sends(id, Kind::Prepare, &prepare(0, 1, 1));
        }
        c.milestone(R0, &Milestone::Prepared { seq: SeqNum(1), digest: Digest([1; 32]) });
        c.says(R0, kind, body);
        rule(&c)
    };
    assert_eq!(said(Kind::Commit, &commit(0, 1, 1)), None);
    assert_eq!(said(Kind::Commit, &commit(0, 2, 1)), Some("votes (I5)"));
    assert_eq!(said(Kind::Commit, &commit(0, 1, 2)), Some("votes (I5)"));
    assert_eq!(said(Kind::Prepare, &prepare(0, 16, 1)), None);
    assert_eq!(said(Kind::Prepare, &prepare(0, 17, 1)), Some("votes (I8)"));
    assert_eq!(said(Kind::Prepare, &prepare(0, 0, 1)), Some("votes (I8)"));
    assert_eq!(said(Kind::Prepare, &prepare(1, 1, 1)), Some("votes (I8)"));
}

/// RC-5: a replica that rejoins sends nothing that counts, and later no vote for a number that it may have voted for.
#[test]
fn what_a_rejoining_replica_says_is_seen() {
    let lost: [fn(&mut Checkers); 2] = [|c| c.forgot(R0), |c| c.forgets(R0)];
    for lose in lost {
        for (kind, seq) in [(Kind::Prepare, 6), (Kind::Commit, 6), (Kind::Checkpoint, 8), (Kind::Suspect, 0)]
        {
            let body = if kind == Kind::Commit { commit(0, seq, 1) } else { prepare(0, seq, 1) };
            let mut c = checkers();
            lose(&mut c);
            c.says(R0, kind, &body);
            assert_eq!(rule(&c), Some("votes (RC-5)"), "{kind:?} that is wanted");
            let mut c = checkers();
            lose(&mut c);
            c.sends(R0, kind, &body);
            assert_eq!(rule(&c), Some("votes (RC-5)"), "{kind:?} that had waited");
        }
        for (seq, expected) in [(6, None), (5, Some("votes (RC-5)"))] {
            let mut c = checkers();
            c.sends(R0, Kind::Prepare, &prepare(0, 5, 1));
            lose(&mut c);
            c.milestone(R0, &Milestone::Rejoined { seq: SeqNum(8) });
            c.sends(R0, Kind::Prepare, &prepare(0, seq, 1));
            assert_eq!(rule(&c), expected, "n={seq}");
        }
    }
}

/// I7: views never go back, and there is one VIEW-CHANGE for each. VC-5: it names its sender's stable checkpoint.
#[test]
fn views_that_go_back_and_second_view_changes_are_seen() {
    let mut c = checkers();
    c.milestone(R0, &Milestone::ViewChangeStarted { view: ViewNum(3) });
    c.milestone(R0, &Milestone::ViewEntered { view: ViewNum(2), last: SeqNum(0) });
    assert_eq!(rule(&c), Some("views (I7)"));
    let own = Suspect { view: ViewNum(0), reason: SuspectReason::Timeout, signature: [0; 64] };
    let view_change = |stable, named: &[u64]| {
        let body = ViewChange {
            view: ViewNum(1),
            stable: SeqNum(stable),
            life: Life::default(),
            checkpoints: named.iter().map(|seq| (SeqNum(*seq), Digest([7; 32]))).collect(),
            prepared: Vec::new(),
            pre_prepared: Vec::new(),
            leave: LeaveCert { suspects: vec![(R0, own)] },
        };
        let mut bytes = Vec::new();
        body.encode(&mut Writer::new(&mut bytes));
        bytes
    };
    let mut c = checkers();
    c.sends(R0, Kind::ViewChange, &view_change(0, &[0]));
    c.sends(R0, Kind::ViewChange, &view_change(0, &[0]));
    assert_eq!(rule(&c), None);
    c.sends(R0, Kind::ViewChange, &view_change(8, &[8]));
    assert_eq!(rule(&c), Some("views (I7)"));
    let mut c = checkers();
    c.sends(R0, Kind::ViewChange, &view_change(0, &[]));
    assert_eq!(rule(&c), Some("views (VC-5)"));
}

/// I19: no read in a view change, below the barrier, over a tentative batch, without a memory.
#[test]
fn reads_out_of_place_are_seen() {
    let cases: BTreeMap<&str, fn(&mut Checkers)> = BTreeMap::from([
        (
            "changing",
            (|c| c.milestone(R0, &Milestone::ViewChangeStarted { view: ViewNum(1) })) as fn(&mut Checkers),
        ),
        ("barrier", |c| c.milestone(R0, &Milestone::ViewEntered { view: ViewNum(1), last: SeqNum(5) })),
        ("tentative", |c| c.execute(R0, SeqNum(1), &batch(&[1]), true)),
        ("fetching", |c| c.milestone(R0, &Milestone::TransferStarted { seq: SeqNum(8) })),
        ("forgotten", |c| c.forgot(R0)),
    ]);
    for (name, set) in cases {
        let mut c = checkers();
        c.read(R0, C0, Timestamp(1));
        assert_eq!(rule(&c), None);
        set(&mut c);
        c.read(R0, C0, Timestamp(1));
        assert_eq!(rule(&c), Some("reads (I19)"), "{name}");
    }
}

/// I24: what still keeps correct replicas apart.
#[test]
fn what_is_open_is_named() {
    use progress::{Stuck, open};
    let facts = |change: fn(&mut Vec<Facts>)| {
        let mut facts: Vec<Facts> = (0..4).map(|id| Facts::new(ReplicaId(id), true)).collect();
        change(&mut facts);
        open(facts.iter(), 16)
    };
    assert_eq!(facts(|_| {}), None);
    assert_eq!(facts(|f| f[2].normal = false), Some(Stuck::Changing("r2".to_owned())));
    assert_eq!(facts(|f| f[1].remembers = false), Some(Stuck::Rejoining("r1".to_owned())));
    assert_eq!(facts(|f| f[1].transferring = true), Some(Stuck::Fetching("r1".to_owned())));
    assert_eq!(facts(|f| f[3].view = ViewNum(2)), Some(Stuck::Views { low: ViewNum(0), high: ViewNum(2) }));
    assert_eq!(
        facts(|f| f[3].executed = SeqNum(17)),
        Some(Stuck::Behind { low: SeqNum(0), high: SeqNum(17) })
    );
}

/// H7: a replica that had no memory gets an old disk and takes itself for a member. It is one of the f.
#[test]
fn a_replica_with_an_old_disk_may_read() {
    let mut facts = Facts::new(R0, true);
    facts.forget();
    assert!(invariants::may_read(&facts).is_err());
    facts.misled = true;
    assert_eq!(invariants::may_read(&facts), Ok(()));
    assert!(!facts.counts());
}

/// Counts what is executed; a read gives the count.
#[derive(Default)]
struct Tally(u8);

impl Double for Tally {
    fn execute(&mut self, _cx: &quorate_service::Context, _operation: &[u8]) -> Vec<u8> {
        self.0 += 1;
        vec![self.0]
    }

    fn read(&mut self, _cx: &quorate_service::Context, _operation: &[u8]) -> Vec<u8> {
        vec![self.0]
    }
}

/// Checks two writes and some reads: when each was asked and answered, under which number, and the answer.
fn in_order(calls: &[(u64, u64, u64, u8, bool)]) -> bool {
    let effects: Vec<Effect> =
        [1, 2].map(|t| Effect { batch: batch(&[t]), index: 0, seq: SeqNum(t), time_ns: t }).to_vec();
    let results: Vec<[u8; 1]> = calls.iter().map(|call| [call.3]).collect();
    let seen: Vec<order::Seen<'_>> = calls
        .iter()
        .zip(&results)
        .map(|((invoked, returned, t, _, ordered), result)| order::Seen {
            client: C0,
            timestamp: Timestamp(*t),
            invoked: *invoked,
            returned: *returned,
            operation: b"op",
            result,
            ordered: *ordered,
        })
        .collect();
    order::check(&effects, Box::new(Tally::default()), &seen).is_ok()
}

/// I14 with reads that are not ordered: each has seen some prefix that real time allows.
#[test]
fn reads_outside_of_the_order_are_seen() {
    let (one, two) = ((1, 2, 1, 1, true), (5, 8, 2, 2, true));
    let read = |invoked, returned, result| (invoked, returned, 9, result, false);
    assert!(in_order(&[one, two, read(3, 4, 1), read(9, 10, 2)]));
    assert!(in_order(&[one, two, read(6, 7, 1)]), "the second write is under way");
    assert!(in_order(&[one, two, read(6, 7, 2)]), "and may have happened");
    assert!(!in_order(&[one, two, read(3, 4, 0)]), "a stale read");
    assert!(!in_order(&[one, two, read(3, 4, 2)]), "a read of what was not asked for yet");
    assert!(!in_order(&[one, two, read(9, 10, 1)]), "a stale read of the last");
    assert!(
        !in_order(&[one, (5, 20, 2, 2, true), read(6, 7, 2), read(8, 9, 1)]),
        "two reads the wrong way round"
    );
    assert!(!in_order(&[(4, 6, 1, 1, true), (1, 2, 2, 2, true)]), "writes the wrong way round");
}
