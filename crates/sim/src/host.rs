//! A host: the machine that a replica runs on, and the process that runs there while it is up.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use quorate_pbft::recording::Recorder;
use quorate_pbft::step::{Lsn, Recipient, SignatureCheck, Timer};
use quorate_service::{Executor, Queue, Service};
use quorate_wire::{ClientId, Digest, Door, Kind, ReplicaId, SeqNum};

use crate::clock::Clock;
use crate::core::Core;
use crate::disk::{Disk, Paged};
use crate::governed::Admission;
use crate::network::{Frame, NodeId};
use crate::world::Event;

/// How many events a paused process finds waiting: its socket's buffer. At the bound frames are lost.
pub const MISSED_MAX: usize = 512;

/// A machine: its disk and clock outlive the process.
#[derive(Debug)]
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
    /// How long the image of a checkpoint takes to be written, if that is not for the disk to say.
    pub image_ns: Option<u64>,
    /// The process; none while it is down.
    pub process: Option<Process<S>>,
    /// While paused, the missed events. At most [`MISSED_MAX`] frames.
    pub missed: Option<VecDeque<Event>>,
    /// It has an old disk and may not have found out yet. A crash now could hide that from it: each start
    /// raises the count of starts, until it is above the one that the others know.
    pub old_disk: bool,
    /// The image on its disk is damaged, and there is no other yet.
    pub imageless: bool,
    /// Sectors of its disk rot. It counts toward `f`.
    pub rots: bool,
    /// It counts toward `f`: it has lost its memory and not rejoined yet.
    pub amnesic: bool,
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

/// A running process.
#[derive(Debug)]
pub struct Process<S: Service> {
    /// Its authenticator.
    pub door: Door,
    /// The replica, or a liar in front of it.
    pub core: Box<dyn Core>,
    /// The service and its state.
    pub executor: Executor<S, Paged>,
    /// The clients that the authenticator knows.
    pub admission: Admission,
    /// When each timer runs out, on the monotonic clock.
    pub deadlines: [Option<u64>; Timer::COUNT],
    /// When the authenticator is to be told the time.
    pub door_at: u64,
    /// World time of the next event that wakes it, or the largest.
    pub wake_at: u64,
    /// Messages that wait for the disk, by the record that they wait for (GC-1).
    pub outbox: BTreeMap<(Lsn, u64), Parcel>,
    /// Up to where its records are on disk.
    pub durable: Lsn,
    /// The tasks of its service, in order.
    pub tasks: Queue<(ClientId, Arc<SignatureCheck>)>,
    /// Records every input, if anyone asked for it.
    pub recorder: Option<Recorder>,
    /// A task is in progress.
    pub busy: bool,
    /// The image of a checkpoint is being written.
    pub flushing: Option<(SeqNum, Digest)>,
    /// World time at which that is done.
    pub flushed_at: u64,
}

impl<S: Service> Process<S> {
    /// Returns when something is due, on the monotonic clock.
    pub fn due(&self) -> u64 {
        let timers = self.deadlines.iter().flatten().copied().min().unwrap_or(u64::MAX);
        let others = [self.executor.deadline(), self.core.due()].into_iter().flatten().min();
        timers.min(self.door_at).min(others.unwrap_or(u64::MAX))
    }
}

/// A sealed message on its way out.
#[derive(Debug)]
pub struct Parcel {
    /// For whom.
    pub to: Recipient,
    /// The kind of task.
    pub kind: Kind,
    /// The frame.
    pub frame: Frame,
}
