//! Execution: exactly once, in an overlay or not, and the state that comes out.

use alloc::vec::Vec;

use quorate_wire::message::{Proof, Request, RequestFlags};

use super::*;
use crate::builtin::kv::{Answer, Kv, Operation};
use crate::image::ImageError;
use crate::testing::{Xorshift, batch, domains, options};

pub(super) fn executor() -> Executor<Kv> {
    Executor::new(Kv, domains(), options())
}

pub(super) fn client(number: u64) -> ClientId {
    ClientId::new(1 + number, 0)
}

pub(super) fn encoded(operation: &Operation<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    operation.encode(&mut bytes);
    bytes
}

fn put(key: &[u8], value: &[u8]) -> Vec<u8> {
    encoded(&Operation::Put { key, value })
}

pub(super) fn incr(key: &[u8], by: i64) -> Vec<u8> {
    encoded(&Operation::Incr { key, by })
}

/// What became of a request: the outcome and the result.
/// The digest of some request.
const REQUEST: Digest = Digest([5; 32]);

pub(super) type Said = (ReplyOutcome, Option<Vec<u8>>);

/// Executes the next batch and returns what its replies say.
pub(super) fn execute(
    executor: &mut Executor<Kv>,
    requests: &[(ClientId, u64, &[u8])],
    tentative: bool,
) -> Vec<Said> {
    let mut replies = Replies::new();
    let seq = executor.last_executed().next();
    executor.execute(seq, &batch(requests, 0), tentative, &mut replies).unwrap();
    replies
        .iter()
        .zip(requests)
        .map(|(reply, &(client, timestamp, _))| {
            assert_eq!((reply.client, reply.timestamp), (client, Timestamp(timestamp)));
            if let (ReplyOutcome::Executed | ReplyOutcome::Repeated, Some(result)) =
                (reply.outcome, reply.result)
            {
                assert!(reply.digest.is_of_result(&domains().result(client.0, timestamp, result)));
            }
            (reply.outcome, reply.result.map(<[u8]>::to_vec))
        })
        .collect()
}

pub(super) fn value(text: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    Answer::Value(text).encode(&mut out);
    out
}

fn executed(text: &[u8]) -> Said {
    (ReplyOutcome::Executed, Some(value(text)))
}

fn repeated(text: &[u8]) -> Said {
    (ReplyOutcome::Repeated, Some(value(text)))
}

pub(super) fn get(executor: &Executor<Kv>, key: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    let digest =
        executor.read((client(0), Timestamp(9), &REQUEST), &encoded(&Operation::Get { key }), &mut out);
    assert_eq!(digest, Some(domains().reply(client(0).0, 9, &REQUEST, &out)));
    match Answer::decode(&out) {
        Ok(Answer::Value(value)) => Some(value.to_vec()),
        answer => {
            assert_eq!(answer, Ok(Answer::Nil));
            None
        }
    }
}

/// EX-2: an operation runs once, a repetition gets the reply that was kept, an older one gets nothing.
#[test]
fn a_request_runs_once() {
    let mut executor = executor();
    let (a, add) = (client(1), incr(b"n", 1));
    assert_eq!(execute(&mut executor, &[(a, 5, &add)], false), [executed(b"1")]);
    assert_eq!(
        execute(
            &mut executor,
            &[(a, 5, &add), (a, 4, &add), (a, 6, &add), (a, 6, &add), (a, 5, &add)],
            false
        ),
        [
            repeated(b"1"),
            (ReplyOutcome::Superseded, None),
            executed(b"2"),
            repeated(b"2"),
            (ReplyOutcome::Superseded, None),
        ]
    );
    assert_eq!(get(&executor, b"n").as_deref(), Some(&b"2"[..]));
    let cached = executor.cached(a).unwrap().unwrap();
    assert_eq!((cached.timestamp, cached.result), (Timestamp(6), Some(&value(b"2")[..])));
    assert_eq!(executor.cached(client(2)).unwrap(), None);
}

/// CL-4, SR-5: a second operation under one timestamp gets the first one's reply.
#[test]
fn c3_the_operation_ordered_first_counts() {
    let mut executor = executor();
    let (first, second) = (put(b"k", b"first"), put(b"k", b"second"));
    execute(&mut executor, &[(client(1), 1, &first), (client(1), 1, &second)], false);
    assert_eq!(get(&executor, b"k").as_deref(), Some(&b"first"[..]));
}

/// EX-3: a refused operation leaves its reply and its timestamp, and nothing else.
#[test]
fn a_refused_operation_keeps_nothing_but_its_reply() {
    /// Writes to every page it has been told and then refuses.
    #[derive(Debug)]
    struct Refuser;
    impl Service for Refuser {
        fn is_read_only(&self, _: &[u8]) -> bool {
            false
        }
        fn execute(
            &self,
            _: Context,
            op: &[u8],
            state: &mut View<'_>,
            out: &mut Vec<u8>,
        ) -> Result<(), Stop> {
            for page in &op[1..] {
                state.page_mut(u32::from(*page))?[0] += 1;
                state.write(u32::from(*page), 8, op)?;
            }
            out.extend_from_slice(op);
            if op[0] == 1 { Err(Stop::Refused) } else { Ok(()) }
        }
    }
    let mut with = Executor::new(Refuser, domains(), options());
    let mut without = Executor::new(Refuser, domains(), options());
    let mut replies = Replies::new();
    let good: &[u8] = &[0, 3, 4];
    let refused: &[u8] = &[1, 4, 5];
    with.execute(
        SeqNum(1),
        &batch(&[(client(1), 1, good), (client(1), 2, refused), (client(1), 3, good)], 7),
        false,
        &mut replies,
    )
    .unwrap();
    let said: Vec<_> =
        replies.iter().map(|reply| (reply.outcome, reply.result.map(<[u8]>::to_vec))).collect();
    assert_eq!(said[1], (ReplyOutcome::Executed, Some(refused.to_vec())));
    without
        .execute(SeqNum(1), &batch(&[(client(1), 1, good), (client(1), 3, good)], 7), false, &mut replies)
        .unwrap();
    assert_eq!(with.checkpoint(SeqNum(1)), without.checkpoint(SeqNum(1)));
    with.execute(SeqNum(2), &batch(&[(client(1), 9, refused)], 9), false, &mut replies).unwrap();
    assert_eq!(with.cached(client(1)).unwrap().unwrap().timestamp, Timestamp(9));
}

/// ND-2 [OSDI99 §4.6]: whatever the primary chooses, time advances, and all replicas agree on it.
#[test]
fn time_never_goes_back() {
    /// Answers with the agreed time.
    #[derive(Debug)]
    struct Clock;
    impl Service for Clock {
        fn is_read_only(&self, operation: &[u8]) -> bool {
            !operation.is_empty()
        }
        fn execute(&self, cx: Context, _: &[u8], _: &mut View<'_>, out: &mut Vec<u8>) -> Result<(), Stop> {
            out.extend_from_slice(&cx.time_ns.to_le_bytes());
            Ok(())
        }
    }
    let mut executor = Executor::new(Clock, domains(), options());
    let mut replies = Replies::new();
    let mut run = |executor: &mut Executor<Clock>, seq, choice, tentative| {
        let requests: [(ClientId, u64, &[u8]); 2] = [(client(seq % 3), seq, &[]), (client(4), seq, &[])];
        executor.execute(SeqNum(seq), &batch(&requests, choice), tentative, &mut replies).unwrap();
        let times: Vec<u64> = replies
            .iter()
            .map(|reply| u64::from_le_bytes(reply.result.unwrap().try_into().unwrap()))
            .collect();
        assert_eq!(times[0], times[1], "one time for a batch");
        times[0]
    };
    assert_eq!(run(&mut executor, 1, 100, false), 100);
    assert_eq!(run(&mut executor, 2, 40, false), 101);
    assert_eq!(run(&mut executor, 3, 5000, true), 5000);
    executor.undo(SeqNum(2));
    assert_eq!(run(&mut executor, 3, 0, true), 102, "a batch that was undone leaves no time behind");
    executor.merge(SeqNum(3));
    assert_eq!(run(&mut executor, 4, 200, false), 200);
    let mut out = Vec::new();
    executor.read((client(1), Timestamp(1), &REQUEST), &[1], &mut out);
    assert_eq!(out, 200_u64.to_le_bytes());

    let root = executor.checkpoint(SeqNum(4));
    let mut image = Vec::new();
    assert!(executor.image(SeqNum(4), &mut image));
    let mut other = Executor::new(Clock, domains(), options());
    assert_eq!(other.restore(&image), Ok((SeqNum(4), root)));
    assert_eq!(run(&mut other, 5, 0, false), 201, "the time is part of the state");
    assert_eq!(run(&mut executor, 5, u64::MAX, false), u64::MAX);
    assert_eq!(run(&mut executor, 6, 0, false), u64::MAX, "and ends without wrapping");
}

/// PR-6: the null batch changes nothing at all.
#[test]
fn a_null_batch_does_nothing() {
    let (mut with, mut without) = (executor(), executor());
    for executor in [&mut with, &mut without] {
        execute(executor, &[(client(1), 1, &put(b"k", b"v"))], false);
    }
    assert!(execute(&mut with, &[], true).is_empty());
    with.merge(SeqNum(2));
    let (a, b) = (with.checkpoint(SeqNum(2)), without.checkpoint(SeqNum(1)));
    assert_ne!(a, b, "the pages were modified at another checkpoint");
    let (mut with_image, mut without_image) = (Vec::new(), Vec::new());
    with.image(SeqNum(2), &mut with_image);
    without.image(SeqNum(1), &mut without_image);
    assert_eq!(with_image.len(), without_image.len());
}

/// RO-1, RO-2, I19: a read sees what is committed, and what the service does not call a read is not one.
#[test]
fn a_read_sees_the_committed_state_alone() {
    let mut executor = executor();
    execute(&mut executor, &[(client(1), 1, &put(b"k", b"old"))], false);
    execute(&mut executor, &[(client(1), 2, &put(b"k", b"new"))], true);
    assert_eq!(get(&executor, b"k").as_deref(), Some(&b"old"[..]));
    assert_eq!(
        executor.cached(client(1)).unwrap().unwrap().timestamp,
        Timestamp(1),
        "nor does a retransmission"
    );
    executor.merge(SeqNum(2));
    assert_eq!(get(&executor, b"k").as_deref(), Some(&b"new"[..]));
    let mut out = Vec::new();
    for operation in [put(b"k", b"x"), Vec::new(), alloc::vec![1]] {
        assert_eq!(executor.read((client(1), Timestamp(3), &REQUEST), &operation, &mut out), None);
    }
}

/// A service that calls a write a read is found out: the view refuses, and the client orders it.
#[test]
fn a_read_that_writes_needs_order() {
    #[derive(Debug)]
    struct Careless;
    impl Service for Careless {
        fn is_read_only(&self, _: &[u8]) -> bool {
            true
        }
        fn execute(&self, _: Context, op: &[u8], state: &mut View<'_>, _: &mut Vec<u8>) -> Result<(), Stop> {
            match op[0] {
                0 => state.write(0, 0, op),
                1 => state.page_mut(0).map(|_| ()),
                2 => state.put(0, op),
                _ => state.clear(0),
            }
        }
    }
    let executor = Executor::new(Careless, domains(), options());
    for op in 0..4 {
        assert_eq!(executor.read((client(1), Timestamp(1), &REQUEST), &[op], &mut Vec::new()), None);
    }
}

/// `RESULT_CACHE`: long results are kept up to a bound, and only their digest beyond it.
#[test]
fn long_results_are_kept_up_to_the_bound() {
    let mut executor = executor();
    let a = client(1);
    for (timestamp, len) in [(1, 191_usize), (2, 2047), (3, 5000), (4, 192), (5, 1500), (6, 0)] {
        let write = put(b"k", &alloc::vec![b'v'; len]);
        let read = encoded(&Operation::Get { key: b"k" });
        execute(&mut executor, &[(client(2), timestamp, &write)], false);
        let said = execute(&mut executor, &[(a, timestamp, &read)], false);
        assert_eq!(said, [executed(&alloc::vec![b'v'; len])]);
        let kept =
            Some(value(&alloc::vec![b'v'; len])).filter(|result| result.len() <= options().result_bytes_max);
        assert_eq!(
            execute(&mut executor, &[(a, timestamp, &read)], true),
            [(ReplyOutcome::Repeated, kept.clone())]
        );
        executor.merge(executor.tentative().unwrap());
        assert_eq!(executor.cached(a).unwrap().unwrap().result, kept.as_deref(), "{len} bytes");
    }
    let seq = executor.last_executed();
    assert_eq!(executor.checkpoint(seq), executor.recompute());
    assert!(executor.state.pages_at(SeqNum(0)).is_empty());
    let pages = executor.state.pages_at(seq);
    let of_replies = pages.iter().filter(|page| **page < executor.reply_pages.1).count();
    assert_eq!(of_replies, 1, "pages that a result does not need any more are given back");
}

/// §8.2, B37: clients beyond the bound are refused, at every replica alike; a lane that was undone takes
/// no room.
#[test]
fn b37_a_client_too_many_is_refused() {
    let small = Options { clients_max: 3, lanes_max: 3, ..options() };
    let mut executor = Executor::new(Kv, domains(), small);
    let add = incr(b"n", 1);
    execute(&mut executor, &[(client(1), 1, &add)], false);
    execute(&mut executor, &[(client(7), 1, &add), (client(8), 1, &add)], true);
    executor.undo(SeqNum(1));
    assert_eq!(executor.cached(client(7)).unwrap(), None);
    let said =
        execute(&mut executor, &[(client(2), 1, &add), (client(3), 1, &add), (client(4), 1, &add)], false);
    let mut refused = Vec::new();
    crate::registry::RegistryResult::NoLane.encode(&mut refused);
    assert_eq!(said[2], (ReplyOutcome::Refused, Some(refused)));
    assert_eq!(get(&executor, b"n").as_deref(), Some(&b"3"[..]));
    assert_eq!(execute(&mut executor, &[(client(1), 2, &add)], false), [executed(b"4")]);
    let mut clients = Vec::new();
    executor.clients(&mut clients);
    clients.sort_unstable();
    assert_eq!(clients, [(client(1), Timestamp(2)), (client(2), Timestamp(1)), (client(3), Timestamp(1))]);
}

/// L78, RP-2: a tentative batch gives the place of an unused lane to another one. Until the batch has committed, the
/// committed state has the old lane's reply there, which is no reply to the new lane.
#[test]
fn l78_a_lane_never_gets_the_reply_of_the_lane_before_it() {
    const MINUTE: u64 = 60_000_000_000;
    let mut executor = Executor::new(Kv, domains(), Options { clients_max: 4, lanes_max: 4, ..options() });
    let at = |executor: &mut Executor<Kv>, client, time_ns, tentative| {
        let (seq, operation) = (executor.last_executed().next(), incr(b"x", 1));
        let batch = batch(&[(client, 1, &operation[..])], time_ns);
        let mut replies = Replies::new();
        executor.execute(seq, &batch, tentative, &mut replies).unwrap();
        replies.iter().next().unwrap().outcome
    };
    let is_full = (0..5).any(|lane| at(&mut executor, client(lane), 1, false) == ReplyOutcome::Refused);
    assert!(is_full);
    let newcomer = client(99);
    assert_eq!(at(&mut executor, newcomer, 2 * MINUTE, true), ReplyOutcome::Executed);
    assert_eq!(executor.cached(newcomer).unwrap().and_then(|cached| cached.result), None);
}

/// I18, TE-6: what is not committed is in no checkpoint.
#[test]
#[should_panic(expected = "I18")]
fn a_checkpoint_of_a_tentative_state_is_not_cut() {
    let mut executor = executor();
    execute(&mut executor, &[(client(1), 1, &put(b"k", b"v"))], true);
    executor.checkpoint(SeqNum(0));
}

#[test]
#[should_panic(expected = "EX-1")]
fn batches_come_in_order() {
    let _ = executor().execute(SeqNum(2), &batch(&[], 0), false, &mut Replies::new());
}

/// SR-3: separate requests run after the inlined ones.
#[test]
fn separate_requests_run_in_their_order() {
    let mut executor = executor();
    let operations = [
        encoded(&Operation::Append { key: b"k", suffix: b"1" }),
        encoded(&Operation::Append { key: b"k", suffix: b"2" }),
    ];
    let requests: Vec<Request<'_>> = (1_u64..)
        .zip(&operations)
        .map(|(number, operation)| Request {
            client: client(number),
            timestamp: Timestamp(1),
            digest: domains().request(client(number).0, 1, operation),
            flags: RequestFlags::default(),
            replier: None,
            operation,
            operation_at: 0,
            frame: operation,
            proof: Proof::Mac,
        })
        .collect();
    let mut batch = Batch::default();
    batch.push_inlined(&requests[0]);
    let body = alloc::sync::Arc::new(quorate_wire::batch::StoredRequest::new(&requests[1]));
    batch.push_separate(requests[1].digest, Some(body));
    batch.seal(&domains(), &[]);
    executor.execute(SeqNum(1), &batch, false, &mut Replies::new()).unwrap();
    assert_eq!(get(&executor, b"k").as_deref(), Some(&b"12"[..]));
}

/// What a disk has changed is noticed, whatever it is, and nothing is lost by trying.
#[test]
fn a_changed_image_is_refused() {
    let mut random = Xorshift::new(4);
    let mut executor = executor();
    for number in 0..20 {
        execute(&mut executor, &[(client(number), 1, &put(&[7; 30], &[8; 60]))], false);
    }
    let (seq, mut image) = (executor.last_executed(), Vec::new());
    let root = executor.checkpoint(seq);
    assert!(!executor.image(SeqNum(3), &mut image));
    assert!(executor.image(seq, &mut image));
    let mut other = self::executor();
    for _ in 0..300 {
        let mut changed = image.clone();
        let at = usize::try_from(random.next() % 100_000).unwrap() % changed.len();
        changed[at] ^= 1 << random.below(8);
        assert!(other.restore(&changed).is_err(), "byte {at}");
        changed.truncate(at);
        assert!(other.restore(&changed).is_err(), "cut at {at}");
    }
    let mut missing = image.clone();
    missing.truncate(image.len() - 512 - 12);
    assert!(matches!(other.restore(&missing), Err(ImageError::WrongRoot { said, .. }) if said == root));
    let mut small = Executor::new(Kv, domains(), Options { clients_max: 39, ..options() });
    assert_eq!(small.restore(&image), Err(ImageError::OtherOptions));
    assert_eq!(other.last_executed(), SeqNum(0));
    assert_eq!(other.restore(&image), Ok((seq, root)));
}
