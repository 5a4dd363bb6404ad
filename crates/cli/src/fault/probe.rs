//! A client that asks a cluster whether it still orders operations, while something is broken in it.

use std::time::{Duration, Instant};

use quorate_node::ClientNode;
use quorate_node::caller::{Caller, Options};
use quorate_service::kv::Operation;

use crate::local::Local;

/// The client whose identity it has: neither the door's nor that of `up`.
pub(crate) const PROBE: &str = "client-2";

/// How long one question may take before it counts as not answered yet.
const DEADLINE: Duration = Duration::from_secs(2);

/// A client of a cluster, for whoever breaks it.
#[derive(Debug)]
pub(crate) struct Probe(Caller);

impl Probe {
    /// Opens it, if the cluster has a client to spare and nobody else uses that now.
    pub(crate) fn open(local: &Local) -> Option<Self> {
        let options = Options { lanes: 1, deadline: DEADLINE };
        let node = ClientNode::open(&local.node(PROBE)).ok()?;
        let probe = Self(Caller::start(node.with_lanes(options.lanes), options).ok()?);
        // The first answer takes longer: keys are exchanged.
        probe.next(DEADLINE).map(|_| probe)
    }

    /// Waits up to `within` until an operation has been ordered, and says how long that took.
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
