//! The processes of a cell, and the datagrams between them.

use std::collections::BTreeSet;

use quorate_node::{ClientProcess, Core, Event, MemoryProcess, Place, Transport};
use quorate_pbft::client::Path;
use quorate_pbft::{Now, Replica};
use quorate_quorum_sim::history::OperationKind;
use quorate_quorum_sim::machines::Payload;
use quorate_wire::codec::Reader;
use quorate_wire::frame::Frame;
use quorate_wire::message::Seal;
use quorate_wire::{Kind as FrameKind, Principal, Source};

use crate::bqs::register::Register;

/// A call that begins an operation; others run timers.
pub(in crate::bqs) const INVOKE: u64 = 0;
pub(in crate::bqs) const TIMER: u64 = 1;

/// A datagram.
#[derive(Debug)]
pub(in crate::bqs) struct Datagram(pub(in crate::bqs) Vec<u8>);

impl Payload for Datagram {
    fn bytes(&self) -> usize {
        self.0.len()
    }
}

/// What leaves a process in one go.
#[derive(Debug, Default)]
pub(in crate::bqs) struct Out(Vec<(usize, Vec<u8>)>);

impl Out {
    pub(in crate::bqs) fn datagrams(&self) -> &[(usize, Vec<u8>)] {
        &self.0
    }

    /// Returns what has left, and forgets it.
    pub(in crate::bqs) fn take(&mut self) -> Vec<(usize, Vec<u8>)> {
        std::mem::take(&mut self.0)
    }
}

impl Transport for Out {
    fn send(&mut self, to: Place, datagram: &[u8]) {
        self.0.push((to.index(), datagram.to_vec()));
    }
}

/// Calls `each` with every frame of a datagram.
pub(in crate::bqs) fn frames<'a>(datagram: &'a [u8], mut each: impl FnMut(Frame<'a>)) {
    let mut reader = Reader::new(datagram);
    while !reader.is_empty()
        && let Ok(frame) = Frame::take(&mut reader)
    {
        each(frame);
    }
}

pub(in crate::bqs) fn is_signed(kind: FrameKind) -> bool {
    kind.seal() == Seal::Signature
}

/// Returns how many frames the process `at` has signed for what it sends: one that goes to several is signed once.
pub(in crate::bqs) fn signed_by(at: usize, out: &Out) -> u64 {
    let mut made: BTreeSet<&[u8]> = BTreeSet::new();
    for (_, datagram) in out.datagrams() {
        frames(datagram, |frame| {
            let own = matches!(frame.sender, Principal::Replica(id) if id.index() == at);
            if own && is_signed(frame.kind) {
                made.insert(frame.bytes);
            }
        });
    }
    u64::try_from(made.len()).unwrap_or(u64::MAX)
}

/// Removes the proposals from what a leader sends.
pub(in crate::bqs) fn without_proposals(out: &mut Out) {
    for (_, datagram) in &mut out.0 {
        let mut kept = Vec::new();
        frames(datagram, |frame| {
            if frame.kind != FrameKind::PrePrepare {
                kept.extend_from_slice(frame.bytes);
            }
        });
        *datagram = kept;
    }
    out.0.retain(|(_, datagram)| !datagram.is_empty());
}

/// A replica or a client.
#[derive(Debug)]
pub(in crate::bqs) enum Process<C: Core> {
    Replica(Box<MemoryProcess<Register, C>>),
    Client(Box<ClientProcess>),
}

impl<C: Core> Process<C> {
    pub(in crate::bqs) fn receive(&mut self, now: Now, datagram: &[u8]) {
        match self {
            Self::Replica(process) => {
                let event = Event::Datagram { source: Source::UNKNOWN, bytes: datagram };
                process.step(now, event, &mut ());
            }
            Self::Client(drive) => drive.receive(now, datagram),
        }
    }

    pub(in crate::bqs) fn expire(&mut self, now: Now) {
        match self {
            Self::Replica(process) => _ = process.step(now, Event::Clock, &mut ()),
            Self::Client(drive) => drive.expire(now),
        }
    }

    pub(in crate::bqs) fn flush(&mut self, now: Now, out: &mut Out) {
        match self {
            Self::Replica(process) => process.flush(now, out, &mut ()),
            Self::Client(drive) => drive.flush(out),
        }
    }

    pub(in crate::bqs) fn due(&self) -> u64 {
        match self {
            Self::Replica(process) => process.due(),
            Self::Client(drive) => drive.due(),
        }
    }
}

/// What a client does in a loop; 0 operations: as long as the measured client runs.
#[derive(Clone, Copy, Debug)]
pub(in crate::bqs) struct Loop {
    pub(in crate::bqs) kind: OperationKind,
    pub(in crate::bqs) operations: usize,
}

/// A process on its machine.
#[derive(Debug)]
pub(in crate::bqs) struct Host<C: Core = Replica> {
    pub(in crate::bqs) process: Process<C>,
    /// It proposes nothing.
    pub(in crate::bqs) silent: bool,
    pub(in crate::bqs) job: Loop,
    /// When its operation began, and where in the history that is.
    pub(in crate::bqs) started: Option<(u64, usize)>,
    pub(in crate::bqs) finished: usize,
    pub(in crate::bqs) samples: Vec<(f64, Path)>,
    /// When its next timer call is.
    pub(in crate::bqs) timer_at: u64,
}

/// The monotonic clock at tick 0, in nanoseconds. A tick of these models is a nanosecond.
pub(in crate::bqs) const START_NS: u64 = 4_000_000_000;

pub(in crate::bqs) fn time(ticks: u64) -> Now {
    Now { mono_ns: START_NS + ticks, wall_ns: (1 << 60) + ticks }
}
