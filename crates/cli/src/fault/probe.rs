//! A client that checks whether a cluster still orders operations during a fault.

use std::time::{Duration, Instant};

use quorate_node::ClientNode;
use quorate_node::caller::{Caller, CallerOptions};
use quorate_service::kv::Operation;

use crate::local::Local;

/// The client that the probe runs as: not the gateway's, and not that of `up`.
pub(crate) const PROBE: &str = "client-2";

/// The deadline of one operation.
const DEADLINE: Duration = Duration::from_secs(2);

/// The client that `fault` measures with.
#[derive(Debug)]
pub(crate) struct Probe(Caller);

impl Probe {
    /// Opens it, if its client key is free.
    pub(crate) fn open(local: &Local) -> Option<Self> {
        let options = CallerOptions { lanes: 1, deadline: DEADLINE };
        let node = ClientNode::open(&local.node(PROBE)).ok()?;
        let probe = Self(Caller::start(node.with_lanes(options.lanes), options).ok()?);
        // The first answer takes longer: it includes the key exchange.
        probe.next(DEADLINE).map(|_| probe)
    }

    /// Waits up to `within` until an operation has been ordered, and returns how long that took.
    pub(crate) fn next(&self, within: Duration) -> Option<Duration> {
        let (mut bytes, begin) = (Vec::new(), Instant::now());
        Operation::Get { key: b"\0quorate watches" }.encode(&mut bytes);
        loop {
            if self.0.call(&bytes, false).is_ok() {
                return Some(begin.elapsed());
            }
            if begin.elapsed() > within {
                return None;
            }
        }
    }
}
