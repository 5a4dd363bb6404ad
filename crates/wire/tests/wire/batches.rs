//! Batches, their bodies and their replies; and who is who.

use std::sync::Arc;

use quorate_wire::batch::{Batch, Body, StoredRequest};
use quorate_wire::codec::Writer;
use quorate_wire::frame::Frame;
use quorate_wire::message::{Kind, Request, encode_pre_prepare, pre_prepare_bytes_besides};
use quorate_wire::pool::BatchPool;
use quorate_wire::{ClientId, Digest, Principal, ReplicaId, SeqNum, ViewNum};

use crate::samples::digest;
use crate::world::{World, lane};

fn stored(world: &mut World, timestamp: u64, operation: &[u8]) -> Body {
    let frame = world.request(timestamp, operation, true);
    let request = Request::decode(&Frame::decode(&frame).unwrap(), &world.domains()).unwrap();
    Arc::new(StoredRequest::new(&request))
}

#[test]
fn a_stored_request_is_kept_as_received() {
    let mut world = World::new();
    let frame = world.request(7, b"put x 1", true);
    let mut body =
        StoredRequest::new(&Request::decode(&Frame::decode(&frame).unwrap(), &world.domains()).unwrap());
    assert_eq!((body.frame(), body.operation()), (&frame[..], &b"put x 1"[..]));
    assert_eq!(body.signature(), quorate_wire::frame::signature_of(&frame));
    let other = world.request(8, b"", false);
    body.replace(&Request::decode(&Frame::decode(&other).unwrap(), &world.domains()).unwrap());
    assert_eq!((body.frame(), body.operation(), body.signature()), (&other[..], &b""[..], None));
}

/// Execution order is inlined first, then separate (EX-1), and the digest is of that order.
#[test]
fn a_batch_is_complete_when_every_body_is_here() {
    let mut world = World::new();
    let domains = world.domains();
    let [a, b, c] = [(1, &b"a"[..]), (2, b"b"), (3, b"c")].map(|(t, op)| stored(&mut world, t, op));
    let mut batch = Batch::default();
    batch.push_stored(&a);
    batch.push_separate(b.digest, None);
    batch.push_separate(c.digest, Some(c.clone()));
    batch.seal(&domains, b"choice");
    assert_eq!(batch.missing().collect::<Vec<_>>(), [&b.digest]);
    assert!(!batch.is_complete());
    let mut other = batch.clone();
    other.complete(|digest| (*digest == b.digest).then(|| b.clone()));
    assert!(other.is_complete() && other.missing().next().is_none());
    assert_eq!(
        other.separate_bodies().map(|(_, body)| body.map(|b| b.digest)).collect::<Vec<_>>(),
        [Some(b.digest), Some(c.digest)]
    );
    assert!(!batch.supply(&a), "it is not asked for");
    assert!(batch.supply(&b));
    assert!(!batch.supply(&b), "it is here already");
    assert!(batch.is_complete());
    let operations: Vec<_> = batch.requests().map(|request| request.operation).collect();
    assert_eq!(operations, [b"a", b"b", b"c"]);
    let order = [a.digest, b.digest, c.digest];
    assert_eq!(batch.digest(), domains.batch(order.iter(), b"choice"));
    let other_order = [b.digest, a.digest, c.digest];
    assert_ne!(batch.digest(), domains.batch(other_order.iter(), b"choice"));
    assert_ne!(batch.digest(), domains.batch(order.iter(), b"choicf"));
}

/// A batch that is not used any more keeps no long request in memory.
#[test]
fn a_pool_of_batches_keeps_no_bodies() {
    let mut world = World::new();
    let body = stored(&mut world, 1, b"long");
    let mut pool = BatchPool::new(8);
    let batch = pool.fill(|batch| -> Result<(), ()> {
        batch.push_separate(body.digest, Some(body.clone()));
        Ok(())
    });
    assert_eq!(Arc::strong_count(&body), 2);
    drop(batch);
    assert_eq!(Arc::strong_count(&body), 1);
}

/// The digest is of the requests, not of how they travel: so a primary that has to send one apart
/// later proposes the same batch.
#[test]
fn inlined_or_separate_a_batch_has_the_same_digest() {
    let mut world = World::new();
    let domains = world.domains();
    let a = stored(&mut world, 1, b"a");
    let (mut inlined, mut separate) = (Batch::default(), Batch::default());
    inlined.push_stored(&a);
    separate.push_separate(a.digest, None);
    inlined.seal(&domains, &[]);
    separate.seal(&domains, &[]);
    assert_eq!(inlined.digest(), separate.digest());
}

#[test]
fn the_null_batch_is_the_one_of_nothing() {
    let world = World::new();
    let domains = world.domains();
    let mut batch = Batch::default();
    batch.seal(&domains, &[]);
    assert!(batch.is_null());
    assert_eq!(batch.digest(), domains.null_batch());
    batch.push_separate(digest(1), None);
    batch.seal(&domains, &[]);
    assert!(!batch.is_null());
    batch.clear();
    batch.seal(&domains, &[1]);
    assert!(!batch.is_null(), "a choice alone is something");
    assert_ne!(batch.digest(), Digest::ZERO);
}

#[test]
fn every_number_on_the_wire_names_one_principal() {
    for number in [0, 1, 0xffff, 0x1_0000, 0x1_0003, u64::MAX] {
        let principal = Principal::from_wire(number);
        assert_eq!(principal.to_wire(), number);
        assert_eq!(Principal::from(principal.as_client()), principal);
    }
    assert_eq!(Principal::from_wire(0xffff), Principal::Replica(ReplicaId(0xffff)));
    let (one, other) = (Principal::Client(lane()), Principal::Client(ClientId::new(1, 4)));
    assert_eq!(one.key_holder(), other.key_holder());
    assert_ne!(one.key_holder(), Principal::Client(ClientId::new(2, 3)).key_holder());
    assert_eq!([one.to_string(), Principal::from_wire(3).to_string()], ["c0.3", "r3"]);
}

/// The computed size of a PRE-PREPARE without its payload is that of the sealed frame.
#[test]
fn a_pre_prepare_is_as_long_as_is_said() {
    let mut world = World::new();
    let mut batch = Batch::default();
    batch.push_stored(&stored(&mut world, 1, b"a"));
    batch.seal(&world.domains(), &[1; 16]);
    for commits in [&[][..], &[(SeqNum(1), digest(1)), (SeqNum(2), digest(2))]] {
        let mut body = Vec::new();
        encode_pre_prepare(ViewNum(0), SeqNum(3), &batch, commits, &mut Writer::new(&mut body));
        let frame = world.seal(0, 1, Kind::PrePrepare, &body);
        let overhead = pre_prepare_bytes_besides(4, commits.len());
        assert_eq!(frame.len(), overhead + batch.payload().len());
    }
}
