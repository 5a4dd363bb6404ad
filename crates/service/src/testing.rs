//! What the tests of several modules share.

use alloc::vec::Vec;

use quorate_wire::message::{Proof, Request, RequestFlags};
use quorate_wire::{Batch, ClientId, Timestamp};

use crate::options::Options;

/// A small generator of numbers that look random. Marsaglia's xorshift, 64 bits.
pub(crate) struct Xorshift(u64);

impl Xorshift {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1)
    }

    pub(crate) fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// Returns a number below `bound`.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        (self.next() >> 16) % bound
    }
}

/// Returns the digest domains of a cluster.
pub(crate) fn domains() -> quorate_wire::digest::Domains {
    quorate_wire::digest::Domains::new(quorate_wire::ClusterId([7; 32]))
}

/// Returns a batch of these requests with this choice of a time.
pub(crate) fn batch(requests: &[(ClientId, u64, &[u8])], time_ns: u64) -> Batch {
    let domains = domains();
    let mut batch = Batch::default();
    for &(client, timestamp, operation) in requests {
        batch.push_inlined(&Request {
            client,
            timestamp: Timestamp(timestamp),
            digest: domains.request(client.0, timestamp, operation),
            flags: RequestFlags::default(),
            replier: None,
            operation,
            operation_at: 0,
            frame: operation,
            proof: Proof::Mac,
        });
    }
    let choice = if requests.is_empty() { Vec::new() } else { time_ns.to_le_bytes().to_vec() };
    batch.seal(&domains, &choice);
    batch
}

/// Returns settings for small states.
pub(crate) fn options() -> Options {
    Options {
        page_bytes: 512,
        pages_max: 4096,
        clients_max: 40,
        result_bytes_max: 2048,
        ..Options::default()
    }
}
