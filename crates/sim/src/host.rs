//! A host: the machine that a replica runs on, and the process that runs there while it is up.

use std::collections::VecDeque;
use std::net::SocketAddr;

use quorate_pbft::recording::Recorder;
use quorate_process::Process;
use quorate_service::Service;
use quorate_wire::ReplicaId;

use crate::clock::Clock;
use crate::core::AnyCore;
use crate::disk::side::DiskSide;
use crate::disk::{Disk, Paged};
use crate::event::Event;
use crate::network::NodeId;
use crate::work::Jobs;

/// How many events a paused process finds waiting: its socket's buffer. At the bound frames are lost.
pub const MISSED_MAX: usize = 512;

/// A machine: its disk and clock outlive the process.
#[derive(Debug)]
#[allow(clippy::struct_excessive_bools, reason = "each is a fact of its own")]
pub struct Host<S: Service> {
    /// Which replica runs here. Two hosts with the same one are twins.
    pub id: ReplicaId,
    /// Its place in the network.
    pub node: NodeId,
    /// Its name in traces.
    pub name: String,
    /// It keeps to the protocol: neither a liar nor a second copy. A host may turn, and be healed.
    pub correct: bool,
    /// How often a process was started; what belongs to an earlier one is void.
    pub life: u32,
    /// Its clocks.
    pub clock: Clock,
    /// The time of its last NEW-KEY, kept beside its identity and not on the disk of its data: a clock set
    /// back must not make its new keys look old (KX-1, D8).
    pub key_time: u64,
    /// Its disk.
    pub disk: Disk,
    /// Until then its process executes something, where that keeps it from everything else.
    pub busy_until: u64,
    /// Since when it does not look at its input, where it is paused or executes something.
    pub away_since: u64,
    /// The process; none while it is down.
    pub process: Option<Box<HostProcess<S>>>,
    /// What belongs to this life of the process.
    pub life_of: Life,
    /// While paused, the missed events. At most [`MISSED_MAX`] frames.
    pub missed: Option<VecDeque<Event>>,
    /// It has an old disk and may not have found out yet. A crash now could hide that from it: each start
    /// raises the count of starts, until it is above the one that the others know.
    pub old_disk: bool,
    /// It counts toward `f`: it has lost its memory and not rejoined yet, or its disk does not know yet that it has, and no
    /// vote of it has left since.
    pub amnesic: bool,
    /// It counts toward `f`: the image on its disk is damaged, and there is no other yet.
    pub imageless: bool,
    /// The power goes within the next write of its log.
    pub dies_writing: bool,
    /// Where it listens.
    pub listens: Vec<SocketAddr>,
    /// Where its process sends to the replicas.
    pub book: Vec<SocketAddr>,
    /// It counts toward `f`: it has moved, and some correct replica may still send to another address.
    pub is_astray: bool,
}

impl<S: Service> Host<S> {
    /// Returns whether a process runs here, paused or not.
    pub fn is_up(&self) -> bool {
        self.process.is_some()
    }

    /// Returns whether the process is stopped for a while.
    pub fn is_paused(&self) -> bool {
        self.missed.is_some()
    }
}

/// The process of a host.
pub type HostProcess<S> = Process<S, Paged, DiskSide, AnyCore>;

/// What a world knows of one life of a process.
#[derive(Debug)]
pub struct Life {
    /// World time of the next event that wakes it, or the largest.
    pub wake_at: u64,
    /// Records every input, if anyone asked for it.
    pub recorder: Option<Recorder>,
    /// A deferred task is in progress.
    pub works: bool,
    /// How long that task takes, in nanoseconds.
    pub took_ns: u64,
    /// What the workers do.
    pub jobs: Jobs,
}

impl Default for Life {
    fn default() -> Self {
        Self { wake_at: u64::MAX, recorder: None, works: false, took_ns: 0, jobs: Jobs::default() }
    }
}
