//! The processes of a cell, and the datagrams between them.

use quorate_node::{ClientDrive, Event, MemoryProcess, Place, Transport};
use quorate_pbft::Now;
use quorate_pbft::client::Path;
use quorate_quorum_sim::history::Kind;
use quorate_quorum_sim::machines::Payload;
use quorate_wire::codec::Reader;
use quorate_wire::frame::Frame;
use quorate_wire::message::Seal;
use quorate_wire::{Kind as FrameKind, Source};

use crate::bqs::register::Register;

/// A call that begins an operation; others run timers.
pub(super) const INVOKE: u64 = 0;
pub(super) const TIMER: u64 = 1;

/// A datagram.
#[derive(Debug)]
pub(super) struct Datagram(pub(super) Vec<u8>);

impl Payload for Datagram {
    fn bytes(&self) -> usize {
        self.0.len()
    }
}

/// What leaves a process in one go.
#[derive(Debug, Default)]
pub(super) struct Out(Vec<(usize, Vec<u8>)>);

impl Out {
    pub(super) fn datagrams(&self) -> &[(usize, Vec<u8>)] {
        &self.0
    }

    /// Returns what has left, and forgets it.
    pub(super) fn take(&mut self) -> Vec<(usize, Vec<u8>)> {
        std::mem::take(&mut self.0)
    }
}

impl Transport for Out {
    fn send(&mut self, to: Place, datagram: &[u8]) {
        self.0.push((to.index(), datagram.to_vec()));
    }
}

/// Calls `each` with every frame of a datagram.
pub(super) fn frames<'a>(datagram: &'a [u8], mut each: impl FnMut(Frame<'a>)) {
    let mut reader = Reader::new(datagram);
    while !reader.is_empty()
        && let Ok(frame) = Frame::take(&mut reader)
    {
        each(frame);
    }
}

pub(super) fn is_signed(kind: FrameKind) -> bool {
    kind.seal() == Seal::Signature
}

/// Removes the proposals from what a leader sends.
pub(super) fn without_proposals(out: &mut Out) {
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
pub(super) enum Process {
    Replica(Box<MemoryProcess<Register>>),
    Client(Box<ClientDrive>),
}

impl Process {
    pub(super) fn receive(&mut self, now: Now, datagram: &[u8]) {
        match self {
            Self::Replica(process) => {
                let event = Event::Datagram { source: Source::UNKNOWN, bytes: datagram };
                process.step(now, event, &mut ());
            }
            Self::Client(drive) => drive.receive(now, datagram),
        }
    }

    pub(super) fn expire(&mut self, now: Now) {
        match self {
            Self::Replica(process) => _ = process.step(now, Event::Clock, &mut ()),
            Self::Client(drive) => drive.expire(now),
        }
    }

    pub(super) fn flush(&mut self, out: &mut Out) {
        match self {
            Self::Replica(process) => process.flush(out),
            Self::Client(drive) => drive.flush(out),
        }
    }

    pub(super) fn due(&self) -> u64 {
        match self {
            Self::Replica(process) => process.due(),
            Self::Client(drive) => drive.due(),
        }
    }
}

/// What a client does in a loop; 0 operations: as long as the measured client runs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Loop {
    pub(super) kind: Kind,
    pub(super) operations: usize,
}

/// A process on its machine.
#[derive(Debug)]
pub(super) struct Host {
    pub(super) process: Process,
    /// It proposes nothing.
    pub(super) silent: bool,
    pub(super) job: Loop,
    /// When its operation began, and where in the history that is.
    pub(super) started: Option<(u64, usize)>,
    pub(super) finished: usize,
    pub(super) samples: Vec<(f64, Path)>,
    /// When its next timer call is.
    pub(super) timer_at: u64,
}

/// The monotonic clock at tick 0, in nanoseconds. A tick of these models is a nanosecond.
pub(super) const START_NS: u64 = 4_000_000_000;

pub(super) fn time(ticks: u64) -> Now {
    Now { mono_ns: START_NS + ticks, wall_ns: (1 << 60) + ticks }
}
