//! A process of a world: a server, a client, or one that follows a script.

use std::collections::BTreeMap;

use quorate_quorum::accusation::Collector;
use quorate_quorum::channel::{Incoming, Outgoing};
use quorate_quorum::step::Call;
use quorate_quorum::version::ObjectId;
use quorate_quorum::{Process, Timer};
use quorate_wire::Principal;

use crate::keys::Jobs;
use crate::profile::Behaviour;
use crate::rogue::Actor;

/// The next operations of a good client.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) calls: Vec<(ObjectId, Call)>,
    pub(super) next: usize,
    /// The operation that is running: its place in the history.
    pub(super) running: Option<usize>,
    pub(super) think: u64,
}

pub(super) enum Part {
    Process { process: Box<dyn Process + Send>, behaviour: Option<Box<dyn Behaviour>>, up: bool },
    Actor(Box<dyn Actor>),
}

pub(super) struct Host {
    pub(super) me: Principal,
    pub(super) part: Part,
    pub(super) timers: BTreeMap<Timer, u64>,
    pub(super) generation: u64,
    pub(super) plan: Plan,
    /// Servers: what was made durable, in the form of the disk.
    pub(super) disk: BTreeMap<ObjectId, Vec<u8>>,
    pub(super) outgoing: BTreeMap<usize, Outgoing>,
    pub(super) incoming: BTreeMap<u64, Incoming>,
    pub(super) jobs: Jobs,
    /// Servers: what it finds in what it verifies.
    pub(super) collector: Collector,
}
