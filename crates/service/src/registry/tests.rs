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
    Executor::new(Kv, domains(), options()).governed(founders(), 4)
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

fn bytes_of(order: RegistryOp) -> Vec<u8> {
    let mut bytes = Vec::new();
    order.encode(&mut bytes);
    bytes
}

fn at(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 5], port))
}

fn moved(replica: u16, port: u16) -> Vec<u8> {
    bytes_of(RegistryOp::Move(ReplicaId(replica), (port != 0).then(|| at(port))))
}

fn set(lanes: u64) -> Vec<u8> {
    bytes_of(RegistryOp::Set(Setting::ClientLanesMax, lanes))
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

/// ADR 23: an administrator says where a replica is, as often as needed. What is not so is refused.
#[test]
fn a_replica_moves_by_an_order() {
    use RegistryResult::{AlreadySo, Done, Malformed, NoRight};
    let mut executor = executor();
    let plain = executor.root_at(SeqNum(0));
    let results = execute(
        &mut executor,
        false,
        &[(WRITER, &moved(1, 7)), (ADMIN, &moved(1, 0)), (ADMIN, &moved(4, 7)), (ADMIN, &moved(1, 7))],
    );
    assert_eq!(answers(&results), [Some(NoRight), Some(AlreadySo), Some(Malformed), Some(Done)]);
    let version = executor.registry_version();
    let orders = [moved(1, 7), moved(1, 8), moved(3, 7)];
    let orders: Vec<_> = orders.iter().map(|order| (ADMIN, &order[..])).collect();
    assert_eq!(answers(&execute(&mut executor, false, &orders)), [Some(AlreadySo), Some(Done), Some(Done)]);
    assert_eq!(executor.table().replicas, [(ReplicaId(1), at(8)), (ReplicaId(3), at(7))].into());
    assert!(executor.registry_version() > version && plain.is_some());
    let result = execute(&mut executor, false, &[(ADMIN, &moved(1, 0))]);
    assert_eq!(answers(&result), [Some(Done)]);
    assert_eq!(executor.table().replicas, [(ReplicaId(3), at(7))].into(), "each node has its own again");
}

/// TE-4: a move that was undone has not happened, in the batch and in the request.
#[test]
fn a_move_that_is_undone_has_not_happened() {
    let mut executor = executor();
    execute(&mut executor, false, &[(ADMIN, &moved(2, 7))]);
    let (version, root) = (executor.registry_version(), executor.checkpoint(SeqNum(1)));
    execute(&mut executor, true, &[(ADMIN, &moved(2, 8)), (ADMIN, &moved(1, 8)), (ADMIN, &set(3))]);
    assert_eq!(executor.table().replicas, [(ReplicaId(2), at(7))].into(), "it may still be undone");
    executor.undo(SeqNum(1));
    assert_eq!(executor.registry_version(), version);
    assert_eq!((executor.table().replicas.len(), executor.table().settings.len()), (1, 0));
    assert_eq!(executor.recompute(), root);
}

/// The addresses and settings are a part of the state, and a copy of it has them. Without them, its digest is the one
/// that it always was.
#[test]
fn a_restored_state_knows_who_has_moved() {
    let mut one = executor();
    let orders = [moved(1, 7), moved(1, 0), moved(0, 9), set(9), remove(2), set(10)];
    let orders: Vec<_> = orders.iter().map(|order| (ADMIN, &order[..])).collect();
    execute(&mut one, false, &orders);
    let root = one.checkpoint(SeqNum(1));
    let mut image = Vec::new();
    assert!(one.image(SeqNum(1), &mut image));
    let mut other = executor();
    let version = other.registry_version();
    assert_eq!(other.restore(&image).unwrap(), (SeqNum(1), root));
    assert_eq!(other.table(), one.table());
    assert_eq!(other.table().settings, [(Setting::ClientLanesMax, 10)].into());
    assert_eq!((known(&other), other.registry_version() > version), (vec![1, 3], true));
    let mut both = [one, other].map(|mut executor| {
        execute(&mut executor, false, &[(ADMIN, &moved(1, 5)), (ADMIN, &moved(3, 5))]);
        executor.checkpoint(SeqNum(2))
    });
    both.sort_unstable();
    assert_eq!(both[0], both[1], "the next entries have the same places");
}

/// Any registered client reads the table, never by an ordered operation, which earlier versions would answer otherwise.
#[test]
fn the_table_is_read_and_never_ordered() {
    let mut executor = executor();
    execute(&mut executor, false, &[(ADMIN, &moved(1, 7)), (ADMIN, &set(3))]);
    let read = |executor: &Executor<Kv>, client| {
        let mut out = Vec::new();
        let digest = executor.read(
            (client, quorate_wire::Timestamp(99), &quorate_wire::Digest::ZERO),
            &Table::read(),
            &mut out,
        );
        digest.map(|_| out)
    };
    let table = read(&executor, READER).unwrap();
    assert_eq!((Table::decode(&table), RegistryResult::decode(&table)), (Some(executor.table()), None));
    assert_eq!(
        RegistryResult::decode(&read(&executor, NEW).unwrap()),
        Some(RegistryResult::NoClient),
        "who is not registered learns nothing"
    );
    let results = execute(&mut executor, false, &[(ADMIN, &Table::read()), (READER, &Table::read())]);
    assert_eq!(answers(&results), [Some(RegistryResult::Malformed), Some(RegistryResult::NoRight)]);
}

/// Any bytes are an order, a table, or none; an order and a table have one encoding.
#[test]
fn moves_settings_and_tables_are_canonical() {
    for order in [
        RegistryOp::Move(ReplicaId(1), None),
        RegistryOp::Move(ReplicaId(1), "[2001:db8::1]:7000".parse().ok()),
        RegistryOp::Move(ReplicaId(63), Some(at(1))),
        RegistryOp::Set(Setting::ClientLanesMax, 65_536),
    ] {
        let whole = bytes_of(order);
        assert_eq!(RegistryOp::decode(&whole), Some(Ok(order)));
        for cut in MAGIC.len()..whole.len() {
            assert_eq!(RegistryOp::decode(&whole[..cut]), Some(Err(RegistryResult::Malformed)), "{order:?}");
        }
        let longer = [&whole[..], &[0]].concat();
        assert_eq!(RegistryOp::decode(&longer), Some(Err(RegistryResult::Malformed)));
        for at in MAGIC.len()..whole.len() {
            let mut other = whole.clone();
            other[at] ^= 0x41;
            if let Some(Ok(read)) = RegistryOp::decode(&other) {
                assert_eq!(bytes_of(read), other, "{order:?} at {at}");
            }
        }
    }
    for value in [0, 65_537] {
        assert_eq!(RegistryOp::decode(&set(value)), Some(Err(RegistryResult::Malformed)));
    }
    let table = Table {
        replicas: [(ReplicaId(0), at(1)), (ReplicaId(2), "[::1]:2".parse().unwrap())].into(),
        settings: [(Setting::ClientLanesMax, 7)].into(),
    };
    let mut whole = Vec::new();
    table.encode(&mut whole);
    assert_eq!(Table::decode(&whole), Some(table));
    let ends = (MAGIC.len()..=whole.len()).filter(|end| Table::decode(&whole[..*end]).is_some());
    assert_eq!(ends.collect::<Vec<_>>(), [17, 38, 59, 70], "after each item");
}

/// ADR 23: a setting that was ordered counts from its place in the order on, and not if it is undone.
#[test]
fn lanes_of_a_client_are_set_by_an_order() {
    use RegistryResult::{AlreadySo, Done, NoLane, NoRight};
    let mut executor = executor();
    let lane = |lane| ClientId::new(2, lane);
    let answer = |executor: &mut Executor<Kv>, tentative, requests: &[(ClientId, &[u8])]| {
        let (mut replies, seq) = (Replies::new(), executor.last_executed().next());
        let stamped = (0..).zip(requests).map(|(i, (client, op))| (*client, seq.0 * 100 + i, *op));
        let stamped: Vec<(ClientId, u64, &[u8])> = stamped.collect();
        executor.execute(seq, &batch(&stamped, 0), tentative, &mut replies).unwrap();
        let result = |reply: quorate_wire::reply::Reply<'_>| reply.result.unwrap().to_vec();
        answers(&replies.iter().map(result).collect::<Vec<_>>())
    };
    let (two, three, incr) = (set(2), set(3), incr());
    let first = answer(&mut executor, false, &[(WRITER, &two), (ADMIN, &two), (ADMIN, &two)]);
    assert_eq!(first, [Some(NoRight), Some(Done), Some(AlreadySo)]);
    let asked = [(lane(1), &incr[..]), (lane(2), &incr)];
    assert_eq!(answer(&mut executor, false, &asked), [None, Some(NoLane)]);
    let asked = [(ADMIN, &three[..]), (lane(3), &incr)];
    assert_eq!(answer(&mut executor, true, &asked), [Some(Done), None], "in the same batch already");
    executor.undo(SeqNum(2));
    assert_eq!(answer(&mut executor, false, &[(lane(4), &incr[..])]), [Some(NoLane)], "it was undone");
}
