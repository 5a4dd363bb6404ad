//! What the authenticator allocates: nothing in steady state, and never what a count merely claims.
#![allow(clippy::unwrap_used, clippy::panic, reason = "a test may panic")]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::collections::VecDeque;

use quorate_wire::batch::Batch;
use quorate_wire::codec::Writer;
use quorate_wire::digest::Domains;
use quorate_wire::frame::Frame;
use quorate_wire::message::{
    Commit, Prepare, Reply, RequestBody, RequestFlags, decode_any, encode_pre_prepare,
};
use quorate_wire::sign::{Signer, Verifier};
use quorate_wire::{
    Admitted, ClientId, Cluster, ClusterId, Door, Kind, Message, Principal, ReplicaId, SeqNum, Timestamp,
    ViewNum,
};

thread_local! {
    /// Allocations of this thread, and their bytes.
    static COUNT: Cell<(usize, usize)> = const { Cell::new((0, 0)) };
}

struct Counting;

#[allow(unsafe_code, reason = "a counting allocator forwards to the system's")]
// SAFETY: every call is passed on unchanged to the system's allocator.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        note(layout.size());
        // SAFETY: as above.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(block, layout) }
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        note(size);
        // SAFETY: as above.
        unsafe { System.realloc(block, layout, size) }
    }
}

fn note(bytes: usize) {
    let (count, total) = COUNT.get();
    COUNT.set((count + 1, total + bytes));
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Returns how often and how much `work` allocates.
fn allocations(work: impl FnOnce()) -> (usize, usize) {
    let (count, bytes) = COUNT.get();
    work();
    let (count_after, bytes_after) = COUNT.get();
    (count_after - count, bytes_after - bytes)
}

const CLUSTER: ClusterId = ClusterId([1; 32]);

/// r0, r1 and a client, among four replicas.
fn doors() -> [Door; 3] {
    let who = [ReplicaId(0).into(), ReplicaId(1).into(), Principal::Client(ClientId::new(1, 0))];
    let mut verifier = Verifier::default();
    for (seed, who) in (1..).zip(who) {
        verifier.insert(who, &Signer::Toy([seed; 32]).public());
    }
    let cluster = Cluster::new(4, 1).unwrap();
    let mut seed = 0;
    let mut doors = who.map(|who| {
        seed += 1;
        Door::new(who, cluster, CLUSTER, 0, Signer::Toy([seed; 32]), verifier.clone(), [seed; 32], 1)
    });
    for _ in 0..2 {
        for from in 0..3 {
            while let Some((to, frame)) = doors[from].take_outgoing() {
                if let Some(to) = who.iter().position(|who| *who == to) {
                    doors[to].admit(0, Frame::decode(&frame).unwrap()).unwrap();
                }
            }
        }
    }
    doors
}

/// Seals and admits the messages of one batch of one request, as r0 the primary, r1 a backup and the client.
fn one_batch(doors: &mut [Door; 3], batch: &mut Batch, buffers: &mut [Vec<u8>; 3], t: u64) {
    let lane = ClientId::new(1, 0);
    let [r0, r1, client] = doors;
    let [sealed, body, frame] = buffers;
    let mut send = |from: &mut Door, to: &mut Door, kind, write: &dyn Fn(&mut Writer<'_>)| {
        body.clear();
        frame.clear();
        write(&mut Writer::new(body));
        from.seal(kind, Some(to.own()), body, frame);
        assert!(matches!(to.admit(0, Frame::decode(frame).unwrap()), Ok(Admitted::Message(_))));
    };
    let (view, seq) = (ViewNum(0), SeqNum(t));
    let operation: &[u8] = b"put x 1";
    let flags = RequestFlags::default();
    let request = RequestBody { timestamp: Timestamp(t), flags, replier: None, operation };
    sealed.clear();
    client.seal_request(&request, lane, false, sealed);
    let admitted = r0.admit(0, Frame::decode(sealed).unwrap()).unwrap();
    let Admitted::Message(m) = admitted else { panic!() };
    let Message::Request(request) = m.message() else { panic!() };
    batch.clear();
    batch.push_inlined(request);
    batch.seal(r0.domains(), &[]);
    let digest = batch.digest();
    send(r0, r1, Kind::PrePrepare, &|w| encode_pre_prepare(view, seq, batch, &[(seq, digest)], w));
    send(r1, r0, Kind::Prepare, &|w| Prepare::encode(view, seq, &digest, &[], w));
    send(r1, r0, Kind::Commit, &|w| Commit { view, seq, digest }.encode(w));
    let result: &[u8] = b"ok";
    let digest = r1.domains().reply(lane.0, t, &digest, result);
    let reply =
        Reply { view, timestamp: Timestamp(t), client: lane, tentative: true, digest, result: Some(result) };
    send(r1, client, Kind::Reply, &|w| reply.encode(w));
}

#[test]
fn the_hot_path_allocates_nothing_in_steady_state() {
    let mut doors = doors();
    let (mut batch, mut buffers) = (Batch::default(), [const { Vec::new() }; 3]);
    for t in 1..50 {
        one_batch(&mut doors, &mut batch, &mut buffers, t);
    }
    let (count, bytes) = allocations(|| {
        for t in 50..150 {
            one_batch(&mut doors, &mut batch, &mut buffers, t);
        }
    });
    assert_eq!((count, bytes), (0, 0), "allocations and bytes in 100 batches");
}

/// The log holds a window of batches; their memory comes back in the order in which it went out.
#[test]
fn a_window_of_batches_is_used_again() {
    const WINDOW: usize = 256;
    let [mut r0, mut r1, _] = doors();
    let (mut body, mut frame, mut batch) = (Vec::new(), Vec::new(), Batch::default());
    batch.seal(r0.domains(), b"choice");
    encode_pre_prepare(ViewNum(0), SeqNum(1), &batch, &[], &mut Writer::new(&mut body));
    r0.seal(Kind::PrePrepare, None, &body, &mut frame);
    let mut log = VecDeque::with_capacity(WINDOW + 1);
    let mut admit = |times: usize| {
        for _ in 0..times {
            let admitted = r1.admit(0, Frame::decode(&frame).unwrap());
            let Ok(Admitted::Message(m)) = admitted else { panic!("{admitted:?}") };
            let Message::PrePrepare(m) = m.message() else { panic!("{m:?}") };
            log.push_back(m.batch.clone());
            if log.len() > WINDOW {
                log.pop_front();
            }
        }
    };
    admit(2 * WINDOW);
    assert_eq!(allocations(|| admit(2 * WINDOW)), (0, 0));
}

/// B36: a short body whose counts are at their maximum does not claim the memory for them.
#[test]
fn b36_counts_alone_claim_no_memory() {
    let domains = Domains::new(CLUSTER);
    for kind in Kind::ALL {
        for len in 0..300 {
            for fill in [0x00, 0x01, 0x0f, 0x10, 0x20, 0x40, 0xff] {
                let body = vec![fill; len];
                let (_, bytes) = allocations(|| drop(decode_any(kind, &body, &domains)));
                assert!(bytes < 8 << 10, "{} of {len} bytes {fill:02x}: {bytes} bytes", kind.name());
            }
        }
    }
}
