//! Many requests at a time, and the seed picks among all steps that are possible: replies, client table and root are
//! those of sequential execution (PX-11).

use alloc::collections::{BTreeMap, BTreeSet};
use alloc::vec::Vec;
use std::format;
use std::string::String;

use quorate_wire::reply::ReplyOutcome;
use quorate_wire::{Batch, ClientId, Replies, SeqNum, Timestamp};

use crate::executor::Executor;
use crate::kv::{Command, Condition, Items, Kv, Operation};
use crate::options::Options;
use crate::parallel::tests::drawn::{elements, further, list};
use crate::parallel::tests::flaky::Flaky;
use crate::parallel::tests::stored::StoredKv;
use crate::parallel::*;
use crate::planted::plant;
use crate::registry::{Client, RegistryOp, Rights};
use crate::replies::shares::IDLE_NS;
use crate::service::{Context, Effort};
use crate::testing::{Xorshift, batch, domains, options};

pub(super) const KINDS: [EngineKind; 4] =
    [EngineKind::Sequential, EngineKind::Matrix, EngineKind::GroupIndex, EngineKind::Free];
const WORKERS: [usize; 4] = [1, 2, 4, 16];
const MS: u64 = 1_000_000;

/// How requests are made and run.
#[derive(Clone, Copy, Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub(super) struct Plan {
    pub(super) kind: EngineKind,
    pub(super) workers: usize,
    /// Keys that requests choose from.
    pub(super) keys: u64,
    pub(super) batches: u64,
    /// The state has as few pages as it can.
    pub(super) is_small: bool,
    /// Rules that leave out the keys of these operations.
    pub(super) hidden: Option<u8>,
    pub(super) drains: bool,
    /// Pages turn out to be away again and again.
    pub(super) faults: bool,
    /// More lanes than the client table has places, and administrators who change the client registry.
    pub(super) is_crowded: bool,
}

pub(super) const PLAN: Plan = Plan {
    kind: EngineKind::GroupIndex,
    workers: 4,
    keys: 10,
    batches: 30,
    is_small: false,
    hidden: None,
    drains: true,
    faults: false,
    is_crowded: false,
};

/// The rules of the key-value store, with an error if the plan wants one.
#[derive(Debug)]
pub(super) struct KvRules(pub(super) Option<u8>);

impl Rules for KvRules {
    fn matrices(&self) -> Result<Matrices, MatrixError> {
        KeyRules::new(Kv).matrices()
    }

    fn parse(&self, operation: &[u8], arguments: &mut Arguments) {
        if self.0.is_some() && operation.first().copied() == self.0 {
            arguments.begin(0);
        } else {
            KeyRules::new(Kv).parse(operation, arguments);
        }
    }
}

fn operation(random: &mut Xorshift, Plan { keys, is_small, .. }: Plan) -> Vec<u8> {
    let mut name = || [b'k', u8::try_from(random.below(keys)).unwrap()];
    let (key, other, third) = (name(), name(), name());
    let (key, other, third) = (&key[..], &other[..], &third[..]);
    let long = if is_small {
        1500
    } else if random.below(6) == 0 {
        900
    } else {
        9
    };
    let value = alloc::vec![b'v'; usize::try_from(random.below(long)).unwrap()];
    let value = &value[..];
    let ttl = 1 + random.below(60);
    let (mut out, mut buffer) = (Vec::new(), Vec::new());
    match random.below(30) {
        0..=2 => Operation::Get { key }.encode(&mut out),
        3..=5 => Operation::Put { key, value }.encode(&mut out),
        6 => Operation::Del { key }.encode(&mut out),
        7 => Operation::Cas { key, expected: None, value }.encode(&mut out),
        8..=11 => Operation::Incr { key, by: 1 }.encode(&mut out),
        12 => Operation::Append { key, suffix: value }.encode(&mut out),
        13 => Command::Set { key, value, condition: Some(Condition::Absent), ttl_ms: Some(ttl), get: false }
            .encode(&mut out),
        14 => {
            Command::Set { key, value: b"7", condition: None, ttl_ms: Some(ttl), get: true }.encode(&mut out);
        }
        15 => Command::GetDel { key }.encode(&mut out),
        16 => Command::Length { key }.encode(&mut out),
        17 => Command::Del(Items::keys([key, other], &mut buffer)).encode(&mut out),
        18 => Command::Exists(Items::keys([key, other, third], &mut buffer)).encode(&mut out),
        19 => Command::GetMany(Items::keys([key, other], &mut buffer)).encode(&mut out),
        20 => Command::SetMany(Items::pairs([key, value, other, b"5"], &mut buffer)).encode(&mut out),
        21 => Command::Expire { key, ttl_ms: i64::try_from(ttl).unwrap() - 3 }.encode(&mut out),
        22 => Command::Ttl { key }.encode(&mut out),
        23 => Command::Persist { key }.encode(&mut out),
        24 if random.below(4) == 0 && !is_small => Command::Clear.encode(&mut out),
        24 => Command::Count.encode(&mut out),
        25 => further(random, (key, other, value), ttl, &mut out),
        26 | 27 => elements(random, (key, other), &mut out),
        28 => list(random, (key, other), &mut out),
        _ if random.below(3) == 0 => out.extend_from_slice(b"?"),
        _ => {
            let (mut put, mut add) = (Vec::new(), Vec::new());
            Operation::Put { key, value }.encode(&mut put);
            Operation::Incr { key: other, by: 3 }.encode(&mut add);
            Command::Many(Items::operations([put, add], &mut buffer)).encode(&mut out);
        }
    }
    out
}

pub(super) fn batches(random: &mut Xorshift, plan: Plan) -> Vec<Batch> {
    let mut timestamps: BTreeMap<u64, u64> = BTreeMap::new();
    let mut time_ms = 1_000;
    (0..plan.batches)
        .map(|_| {
            // A primary's clock may stand still or go back.
            time_ms = if random.below(8) == 0 { time_ms - 10 } else { time_ms + random.below(30) };
            if plan.is_crowded && random.below(3) == 0 {
                time_ms += IDLE_NS / MS / 2;
            }
            let requests: Vec<(ClientId, u64, Vec<u8>)> = (0..random.below(7))
                .map(|_| {
                    let client = random.below(if plan.is_crowded { 40 } else { 14 });
                    let last = timestamps.entry(client).or_default();
                    // Now and then again, or an older one.
                    let timestamp =
                        if random.below(9) == 0 { last.saturating_sub(random.below(2)) } else { *last + 1 };
                    *last = timestamp.max(*last);
                    if plan.is_crowded {
                        let lane = ClientId::new(1 + client % 8, u16::try_from(client / 8).unwrap());
                        let timestamp = time_ms + timestamp;
                        return (lane, timestamp, governed(random, plan));
                    }
                    (ClientId::new(1 + client, 0), timestamp, operation(random, plan))
                })
                .collect();
            let requests: Vec<_> =
                requests.iter().map(|(client, t, operation)| (*client, *t, &operation[..])).collect();
            batch(&requests, time_ms * MS)
        })
        .collect()
}

pub(super) type Said = (ClientId, Timestamp, ReplyOutcome, Option<Vec<u8>>);

pub(super) fn said(replies: &Replies) -> Vec<Said> {
    replies
        .iter()
        .map(|reply| (reply.client, reply.timestamp, reply.outcome, reply.result.map(<[u8]>::to_vec)))
        .collect()
}

/// Returns an operation. Now and then one on the client registry.
fn governed(random: &mut Xorshift, plan: Plan) -> Vec<u8> {
    let principal = 3 + random.below(8);
    let mut out = Vec::new();
    match random.below(12) {
        0 => RegistryOp::Add(principal, person(principal, Rights::Write)).encode(&mut out),
        1 => RegistryOp::Remove(principal).encode(&mut out),
        _ => out = operation(random, plan),
    }
    out
}

fn person(principal: u64, rights: Rights) -> Client {
    Client { rights, key: [u8::try_from(principal).unwrap(); 32], address: None }
}

pub(super) fn executor(plan: Plan) -> Executor<StoredKv, Flaky> {
    let sized = |pages_max| Options { pages_max, ..options() };
    let smallest = || (1..4096).map(sized).find(|options| options.check().is_ok()).unwrap();
    let options = if plan.is_small { smallest() } else { options() };
    if !plan.is_crowded {
        return Executor::with_store(StoredKv::default(), domains(), options, Flaky::default());
    }
    let options = Options { clients_max: 16, lanes_max: 4, ..options };
    let rights = |principal| if principal < 4 { Rights::Admin } else { Rights::Write };
    let founders = (1..9).map(|principal| (principal, person(principal, rights(principal)))).collect();
    Executor::with_store(StoredKv::default(), domains(), options, Flaky::default()).governed(founders, 4)
}

/// What came of a comparison.
#[derive(Clone, Copy, Debug, Default)]
struct Comparison {
    counters: Counters,
    wrong: usize,
    wrong_early: usize,
    fulls: usize,
    /// Calls that met a page that was away.
    faults: usize,
    /// Lanes that were refused or have made room for others.
    lanes: usize,
}

/// Answers questions at once.
#[derive(Debug)]
struct Direct<'a>(&'a Runs<KvRules>, &'a Executor<StoredKv, Flaky>);

impl Questions for Direct<'_> {
    fn ask(&self, question: Question) -> Option<Answer> {
        self.0.answer(self.1, &question)
    }
}

/// Returns the last timestamp of each lane.
fn table(executor: &Executor<StoredKv, Flaky>) -> Vec<(ClientId, Timestamp)> {
    let mut clients = Vec::new();
    executor.clients(&mut clients);
    clients.sort_unstable();
    clients
}

/// Counts the early replies that were wrong. Each other one must have left after its operation was stored.
fn wrong_early(
    early: &[(Early, bool)],
    expected: &BTreeMap<Position, Said>,
    stored: &StoredKv,
) -> Result<usize, String> {
    let mut wrong = 0;
    for (reply, is_stored) in early {
        let (client, timestamp, outcome, result) = &expected[&reply.position];
        let is_same = (*client, *timestamp) == (reply.client, reply.timestamp)
            && *outcome == ReplyOutcome::Executed
            && result.as_ref() == Some(&reply.result);
        wrong += usize::from(!is_same);
        if is_same && !is_stored && !stored.times(reply.position).is_empty() {
            return Err(format!("{:?} was answered before it was stored", reply.position));
        }
    }
    Ok(wrong)
}

/// Runs the same batches sequentially and in parallel.
fn compare(plan: Plan, seed: u64) -> Result<Comparison, String> {
    let mut random = Xorshift::new(seed);
    let batches = batches(&mut random, plan);
    let (mut sequential, mut ahead) = (executor(plan), executor(plan));
    let mut runs = Runs::new(plan.kind, KvRules(plan.hidden), random.next(), true).unwrap();
    let mut found = Comparison::default();
    let mut expected: BTreeMap<Position, Said> = BTreeMap::new();
    let mut early: Vec<(Early, bool)> = Vec::new();
    let (mut inserted, mut waiting, mut done) = (0, Vec::<Job>::new(), Vec::<Done>::new());
    let mut replies = Replies::new();
    while ahead.last_executed().0 < plan.batches {
        let pick = |random: &mut Xorshift, len: usize| usize::try_from(random.below(len as u64)).unwrap();
        let away_in = if plan.faults && random.below(2) == 0 { 1 + random.below(25) } else { 0 };
        ahead.store().away_in(away_in);
        match random.below(10) {
            0 | 1 if inserted < batches.len() => {
                let seq = SeqNum(inserted as u64 + 1);
                if runs.insert(&mut ahead, seq, &batches[inserted]).is_ok() {
                    inserted += 1;
                }
            }
            2..=4 if waiting.len() + done.len() < plan.workers => waiting.extend(runs.start(&mut ahead)),
            5 if !waiting.is_empty() => {
                let job = waiting.swap_remove(pick(&mut random, waiting.len()));
                // On this thread, or as on another one, which asks for each cell.
                done.push(if random.below(2) == 0 {
                    let done = runs.run(&ahead, &job);
                    if job.effort() == Effort::Stored {
                        job.store(ahead.service(), &done);
                    }
                    done
                } else {
                    job.run(ahead.service(), &ahead.service_part(), &Direct(&runs, &ahead))
                });
            }
            6 if !done.is_empty() => {
                let reply = runs.finish(done.swap_remove(pick(&mut random, done.len())));
                early.extend(reply.map(|reply| {
                    let is_stored = !ahead.service().times(reply.position).is_empty();
                    (reply, is_stored)
                }));
            }
            7 if plan.drains && random.below(60) == 0 => {
                // A transfer, a rollback, a shutdown: no worker is waited for.
                runs.drain(&mut ahead);
                inserted = usize::try_from(ahead.last_executed().0).unwrap();
                replies.clear();
            }
            8 | 9 => {
                let settled = runs.settle(&mut ahead, &mut replies);
                ahead.store().away_in(0);
                assert!(plan.faults || settled.is_ok());
                found.faults += usize::from(settled.is_err());
                let Ok(Some(Settled::Batch(seq))) = settled else { continue };
                let at = usize::try_from(seq.0 - 1).unwrap();
                let mut expect = Replies::new();
                sequential.execute(seq, &batches[at], false, &mut expect).unwrap();
                let (left, right) = (said(&expect), said(&replies));
                if left != right {
                    return Err(format!("{seq:?}: {left:?} sequentially, {right:?} in parallel"));
                }
                for (index, said) in (0..).zip(left) {
                    found.fulls += usize::from(said.3.as_deref() == Some(&[3, 6]));
                    found.lanes +=
                        usize::from(matches!(said.2, ReplyOutcome::Refused | ReplyOutcome::Overtaken));
                    let place = Position { seq, index };
                    let is_once = !plan.drains && !plan.faults;
                    ahead.service().check(place, sequential.service(), is_once)?;
                    expected.insert(place, said);
                }
                replies.clear();
                if seq.0 % 4 == 0 {
                    if sequential.checkpoint(seq) != ahead.checkpoint(seq) {
                        return Err(format!("{seq:?}: the roots differ"));
                    }
                    sequential.discard(0, seq);
                    ahead.discard(0, seq);
                }
            }
            _ => {}
        }
    }
    ahead.store().away_in(0);
    if table(&sequential) != table(&ahead) {
        return Err("the client tables differ".into());
    }
    found.wrong_early = wrong_early(&early, &expected, sequential.service())?;
    if runs.versions() > 0 {
        return Err(format!("{} versions are left", runs.versions()));
    }
    found.counters = runs.counters();
    found.wrong = runs.wrong().len();
    for wrong in runs.wrong() {
        // The one that was missed came first, and the two share no key by their declarations.
        let keys = |declared: &Declared| declared.keys.clone().unwrap_or_default();
        let shared = keys(&wrong.request).into_iter().any(|key| keys(&wrong.other).contains(&key));
        if shared || wrong.other.position >= wrong.request.position {
            return Err(format!("{wrong}"));
        }
    }
    Ok(found)
}

fn sum(plan: Plan, seeds: core::ops::Range<u64>) -> Comparison {
    let mut all = Comparison::default();
    for seed in seeds {
        let found = compare(plan, seed).unwrap_or_else(|error| panic!("{plan:?} seed {seed}: {error}"));
        all.counters.runs += found.counters.runs;
        all.counters.again += found.counters.again;
        all.counters.early += found.counters.early;
        all.counters.on_pages += found.counters.on_pages;
        all.counters.most = all.counters.most.max(found.counters.most);
        all.wrong += found.wrong;
        all.wrong_early += found.wrong_early;
        all.fulls += found.fulls;
        all.faults += found.faults;
        all.lanes += found.lanes;
    }
    all
}

/// PX-3, PX-11, I28: whatever the engine, the number of workers and the schedule. PX-C: a reply that left early is the
/// one that settling gives.
#[test]
fn px11_every_schedule_gives_what_sequential_execution_gives() {
    for kind in KINDS {
        for workers in WORKERS {
            let found = sum(Plan { kind, workers, ..PLAN }, 0..25);
            std::println!("{kind:?} {workers}: {found:?}");
            assert_eq!((found.wrong, found.wrong_early), (0, 0), "{kind:?} {workers}");
            assert!(
                found.counters.runs > 600 && (found.counters.early > 200) == (kind != EngineKind::Free),
                "{found:?}"
            );
            if workers == 16 && kind != EngineKind::Sequential {
                assert!(found.counters.most > 5, "{found:?}");
            }
            if workers == 16 && kind == EngineKind::Free {
                assert!(found.counters.again > 150, "{found:?}");
            }
        }
    }
}

/// PX-D, a quota that every write reads: in a state that is nearly full, requests fail for want of room, some of them
/// only when they settle. No reply that left early promised something else.
#[test]
fn px_d_a_full_state_gives_no_wrong_reply() {
    for kind in [EngineKind::GroupIndex, EngineKind::Free] {
        let found = sum(Plan { kind, workers: 16, keys: 200, batches: 120, is_small: true, ..PLAN }, 0..30);
        std::println!("{kind:?}: {found:?}");
        assert!(found.fulls > 100, "{found:?}");
        assert_eq!((found.wrong, found.wrong_early), (0, 0), "{kind:?}");
    }
}

/// PX-B: a request that meets a page that is away while it settles is undone, and nothing else: neither the requests of
/// its batch that have settled before, nor what is kept in memory of clients (D6).
#[test]
fn px_b_a_page_that_is_away_undoes_one_request_only() {
    for kind in [EngineKind::Matrix, EngineKind::GroupIndex, EngineKind::Free] {
        for is_crowded in [false, true] {
            let plan = Plan { kind, workers: 16, faults: true, is_crowded, ..PLAN };
            let found = sum(plan, 0..80);
            std::println!("{kind:?}: {found:?}");
            assert_eq!((found.wrong, found.wrong_early), (0, 0), "{kind:?}");
            assert!(found.faults > 1000 && found.counters.runs > 500, "{found:?}");
            assert!(!is_crowded || found.lanes > 100, "{found:?}");
        }
    }
}

/// X1: requests that are declared independent and are not. The state is right all the same, and the detector names them.
#[test]
fn x1_a_wrong_rule_is_reported_and_splits_nobody() {
    const INCR: u8 = 5;
    for kind in [EngineKind::Matrix, EngineKind::GroupIndex] {
        let plan = Plan { kind, workers: 16, keys: 3, hidden: Some(INCR), drains: false, ..PLAN };
        let reported = (0..40).filter(|seed| compare(plan, *seed).unwrap().wrong > 0).count();
        std::println!("{kind:?}: the wrong rule is reported in {reported} of 40 seeds");
        assert!(reported > 20, "{kind:?}: {reported} of 40");
    }
}

/// Each of these errors in the order of settling, in versions and in early replies is found.
#[test]
fn wrong_versions_are_found() {
    let full = Plan { workers: 16, keys: 200, batches: 120, is_small: true, ..PLAN };
    for error in (21..=23).chain(25..=36) {
        plant(error);
        let is_found = |plan: Plan, seeds: u64| {
            let run = |seed| compare(plan, seed).map_or(true, |found| found.wrong + found.wrong_early > 0);
            let run = |seed| std::panic::catch_unwind(|| run(seed)).unwrap_or(true);
            (0..seeds).any(run)
        };
        let found = KINDS.iter().any(|kind| is_found(Plan { kind: *kind, workers: 16, ..PLAN }, 60))
            || [EngineKind::GroupIndex, EngineKind::Free]
                .iter()
                .any(|kind| is_found(Plan { kind: *kind, ..full }, 40))
            || is_found(Plan { workers: 16, keys: 3, kind: EngineKind::Free, drains: false, ..PLAN }, 40)
            || [false, true].iter().any(|crowded| {
                is_found(Plan { workers: 16, faults: true, is_crowded: *crowded, ..PLAN }, 100)
            });
        plant(0);
        std::println!("error {error}: {found}");
        assert!(found, "error {error} is not found");
    }
}

/// Scans, transactions and databases have no meaning on cells. They run on pages even if the rules are wrong, and
/// nobody is split.
#[test]
fn further_operations_run_on_pages_only() {
    let executor = executor(PLAN);
    let mut random = Xorshift::new(1);
    let cx = Context {
        client: ClientId::new(1, 0),
        timestamp: Timestamp(1),
        seq: SeqNum(1),
        index: 0,
        time_ns: MS,
        read_only: false,
    };
    let below = Unsettled::default();
    let mut codes = BTreeSet::new();
    for _ in 0..100 {
        let mut operation = Vec::new();
        further(&mut random, (b"a", b"b", b"c"), 9, &mut operation);
        assert!(executor.run_on_cells(cx, &operation, &below.below(0)).is_none(), "{operation:?}");
        codes.insert(operation[0]);
    }
    assert_eq!(codes.len(), 7);
    for code in codes {
        sum(Plan { workers: 16, hidden: Some(code), ..PLAN }, 0..10);
    }
}
