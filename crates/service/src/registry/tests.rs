//! Clients come and go at one point of the order, with everything else of the state.

use alloc::vec;

use quorate_wire::reply::ReplyOutcome;
use quorate_wire::{Replies, SeqNum};

use alloc::vec::Vec;

use super::*;
use crate::builtin::kv::{Kv, Operation};
use crate::executor::Executor;
use crate::testing::{batch, domains, options};

const ADMIN: ClientId = ClientId(1 << 16);
const WRITER: ClientId = ClientId(2 << 16);
const READER: ClientId = ClientId(3 << 16);
const NEW: ClientId = ClientId(9 << 16);

fn person(rights: Rights, key: u8) -> Client {
    Client { rights, key: [key; 32], address: "10.0.0.7:7014".parse().ok() }
}

fn founders() -> BTreeMap<u64, Client> {
    [(1, person(Rights::Admin, 1)), (2, person(Rights::Write, 2)), (3, person(Rights::Read, 3))].into()
}

fn executor() -> Executor<Kv> {
    Executor::new(Kv, domains(), options()).governed(founders())
}

fn add(principal: u64, person: Client) -> Vec<u8> {
    let mut bytes = Vec::new();
    RegistryOp::Add(principal, person).encode(&mut bytes);
    bytes
}

fn remove(principal: u64) -> Vec<u8> {
    let mut bytes = Vec::new();
    RegistryOp::Remove(principal).encode(&mut bytes);
    bytes
}

fn encoded(operation: &Operation<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    operation.encode(&mut bytes);
    bytes
}

fn incr() -> Vec<u8> {
    encoded(&Operation::Incr { key: b"n", by: 1 })
}

fn get() -> Vec<u8> {
    encoded(&Operation::Get { key: b"n" })
}

/// Executes the next batch.
fn execute(executor: &mut Executor<Kv>, tentative: bool, requests: &[(ClientId, &[u8])]) -> Vec<Vec<u8>> {
    let (mut replies, seq) = (Replies::new(), executor.last_executed().next());
    let stamp =
        |(index, (client, operation)): (u64, &(ClientId, _))| (*client, seq.0 * 100 + index, *operation);
    let stamped: Vec<(ClientId, u64, &[u8])> = (0..).zip(requests).map(stamp).collect();
    executor.execute(seq, &batch(&stamped, 0), tentative, &mut replies).unwrap();
    let result = |reply: quorate_wire::reply::Reply<'_>| {
        assert_eq!(
            reply.outcome,
            ReplyOutcome::Executed,
            "it consumes its timestamp, whatever comes of it (EX-3)"
        );
        reply.result.unwrap().to_vec()
    };
    replies.iter().map(result).collect()
}

fn answers(results: &[Vec<u8>]) -> Vec<Option<RegistryResult>> {
    results.iter().map(|result| RegistryResult::decode(result)).collect()
}

fn known(executor: &Executor<Kv>) -> Vec<u64> {
    let mut known = Vec::new();
    executor.registered(&mut |principal, _| known.push(principal));
    known.sort_unstable();
    known
}

/// EX-3: who may not ask is told so; what it asked for is not done.
#[test]
fn rights_are_kept() {
    use RegistryResult::{Done, NoClient, NoRight};
    let mut executor = executor();
    let results = execute(
        &mut executor,
        false,
        &[
            (WRITER, &incr()),
            (READER, &incr()),
            (READER, &get()),
            (NEW, &incr()),
            (WRITER, &add(9, person(Rights::Write, 9))),
            (ADMIN, &add(9, person(Rights::Write, 9))),
            (NEW, &incr()),
        ],
    );
    assert_eq!(
        answers(&results),
        [None, Some(NoRight), None, Some(NoClient), Some(NoRight), Some(Done), None]
    );
    assert_eq!((&results[2][1..], &results[6][1..]), (&b"1"[..], &b"2"[..]), "in their order");
    assert_eq!(known(&executor), [1, 2, 3, 9]);
}

/// From the point of its removal nothing that a client asks for is done, in the same batch already; reads that
/// are not ordered are refused as soon as it has committed.
#[test]
fn whoever_is_removed_is_out_from_there_on() {
    let mut executor = executor();
    let (incr, remove) = (incr(), remove(2));
    let results = execute(&mut executor, true, &[(WRITER, &incr), (ADMIN, &remove), (WRITER, &incr)]);
    assert_eq!(answers(&results), [None, Some(RegistryResult::Done), Some(RegistryResult::NoClient)]);
    let read = |executor: &Executor<Kv>| {
        let mut out = Vec::new();
        assert!(
            executor
                .read((WRITER, quorate_wire::Timestamp(99), &quorate_wire::Digest::ZERO), &get(), &mut out)
                .is_some()
        );
        RegistryResult::decode(&out)
    };
    assert_eq!((read(&executor), known(&executor)), (None, vec![1, 2, 3]), "it may still be undone");
    executor.merge(SeqNum(1));
    assert_eq!((read(&executor), known(&executor)), (Some(RegistryResult::NoClient), vec![1, 3]));
}

/// TE-4: an order that was executed tentatively and undone has not been given.
#[test]
fn what_is_undone_has_let_nobody_in() {
    let mut executor = executor();
    let (version, order) = (executor.registry_version(), add(9, person(Rights::Write, 9)));
    execute(&mut executor, true, &[(ADMIN, &order)]);
    executor.undo(SeqNum(0));
    assert_eq!((known(&executor), executor.registry_version()), (vec![1, 2, 3], version));
    let results = execute(&mut executor, false, &[(NEW, &incr())]);
    assert_eq!(answers(&results), [Some(RegistryResult::NoClient)]);
}

/// Orders can be given again, as somebody does who does not know what has become of the first.
#[test]
fn orders_are_idempotent_and_clear() {
    let mut executor = executor();
    let mut order = |bytes: Vec<u8>| answers(&execute(&mut executor, false, &[(ADMIN, &bytes)]))[0].unwrap();
    let nine = person(Rights::Write, 9);
    assert_eq!(order(add(9, nine)), RegistryResult::Done);
    assert_eq!(order(add(9, nine)), RegistryResult::AlreadySo);
    assert_eq!(order(add(9, person(Rights::Write, 8))), RegistryResult::OtherKey);
    assert_eq!(order(add(9, Client { rights: Rights::Read, ..nine })), RegistryResult::Done);
    assert_eq!(order(add(9, Client { address: None, ..nine })), RegistryResult::Done);
    assert_eq!(order(remove(9)), RegistryResult::Done);
    assert_eq!(order(remove(9)), RegistryResult::AlreadySo);
    assert_eq!(order(remove(8)), RegistryResult::NoClient);
    // The number may come back, with a key of its own.
    assert_eq!(order(add(9, person(Rights::Write, 8))), RegistryResult::Done);
    assert_eq!(order(remove(1)), RegistryResult::LastAdministrator);
    assert_eq!(order(add(1, person(Rights::Write, 1))), RegistryResult::LastAdministrator);
    assert_eq!(order(add(9, person(Rights::Admin, 8))), RegistryResult::Done);
    assert_eq!(order(remove(1)), RegistryResult::Done, "there is another one");
}

/// Any bytes behind the magic are an order or none; nothing panics.
#[test]
fn malformed_orders_are_told() {
    let mut executor = executor();
    let whole = add(9, person(Rights::Write, 9));
    for cut in MAGIC.len()..whole.len() {
        let results = execute(&mut executor, false, &[(ADMIN, &whole[..cut])]);
        assert_eq!(answers(&results), [Some(RegistryResult::Malformed)], "cut at {cut}");
    }
    for address in ["[2001:db8::1]:7000".parse().ok(), None, "10.0.0.1:1".parse().ok()] {
        let order = RegistryOp::Add(9, Client { address, ..person(Rights::Read, 9) });
        let mut bytes = Vec::new();
        order.encode(&mut bytes);
        assert_eq!(RegistryOp::decode(&bytes), Some(Ok(order)));
    }
    assert_eq!(RegistryOp::decode(b"anything else"), None);
}

/// The table is part of the state: a copy of the state knows the same clients, and what is not in it is no change.
#[test]
fn a_restored_state_knows_whom_its_owner_knew() {
    let (mut one, plain) = (executor(), Executor::new(Kv, domains(), options()));
    assert_eq!(one.root_at(SeqNum(0)), plain.root_at(SeqNum(0)), "without changes nothing is written");
    let before = one.checkpoint(SeqNum(0));
    let results = execute(
        &mut one,
        false,
        &[
            (ADMIN, &add(9, person(Rights::Write, 9))),
            (ADMIN, &remove(2)),
            (ADMIN, &add(7, person(Rights::Read, 7))),
        ],
    );
    assert_eq!(results.len(), 3);
    let root = one.checkpoint(SeqNum(1));
    assert_ne!(root, before);
    let mut image = Vec::new();
    assert!(one.image(SeqNum(1), &mut image));
    let mut other = executor();
    assert_eq!(other.restore(&image).unwrap(), (SeqNum(1), root));
    assert_eq!(known(&other), [1, 3, 7, 9]);
    let mut both = [&mut one, &mut other].map(|executor| {
        let results = execute(executor, false, &[(WRITER, &incr()), (NEW, &incr()), (ADMIN, &remove(7))]);
        executor.checkpoint(SeqNum(2));
        (results, executor.root_at(SeqNum(2)))
    });
    assert_eq!(answers(&both[0].0), [Some(RegistryResult::NoClient), None, Some(RegistryResult::Done)]);
    let (first, second) = both.split_at_mut(1);
    assert_eq!(first, second);
}

/// The table has a bound, and says so there.
#[test]
fn a_full_table_takes_no_more() {
    let mut executor = executor();
    for principal in 0..u64::from(ENTRIES_MAX) {
        let results =
            execute(&mut executor, false, &[(ADMIN, &add(10 + principal, person(Rights::Read, 5)))]);
        assert_eq!(answers(&results), [Some(RegistryResult::Done)]);
    }
    let results =
        execute(&mut executor, false, &[(ADMIN, &add(9, person(Rights::Read, 5))), (ADMIN, &remove(10))]);
    assert_eq!(answers(&results), [Some(RegistryResult::Full), Some(RegistryResult::Done)]);
}
