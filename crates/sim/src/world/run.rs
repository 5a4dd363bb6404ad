//! A process in a world: its events, what it sends, its tasks and its disk.

use quorate_pbft::step::{Actions, Now};
use quorate_process::storage::starts::LogState;
use quorate_process::{DiskEvent, Event as Happens, Place, Transport};
use quorate_service::Task;
use quorate_wire::{Kind, Principal, Source};

use super::World;
use super::watch::Watch;
use crate::app::App;
use crate::disk::{Ended, PowerCut};
use crate::event::Event;
use crate::host::MISSED_MAX;
use crate::network::{Frame, NodeId};
use crate::trace::What;

/// When a process starts again that its disk has stopped, in nanoseconds.
const RESTART_NS: u64 = 20_000_000;

impl<A: App> World<A> {
    /// Something happens at a host.
    pub(super) fn on_host(&mut self, h: usize, event: Event) {
        let host = &mut self.hosts[h];
        if let Some(missed) = &mut host.missed
            && !matches!(event, Event::Resume | Event::Restart)
        {
            let room = !matches!(event, Event::Arrive(_)) || missed.len() < MISSED_MAX;
            if room {
                missed.push_back(event);
            } else {
                self.counters.overflowed += 1;
            }
            return;
        }
        if self.at < host.busy_until && !matches!(event, Event::Ran { .. } | Event::Resume | Event::Restart) {
            let (until, node) = (host.busy_until, host.node);
            return self.schedule(until, node, event);
        }
        let life = host.life;
        match event {
            Event::Start { life: of } if of == life => self.feed(h, Happens::Start),
            Event::Arrive(frame) => {
                self.heard = head_of(&frame);
                self.feed(h, Happens::Datagram { source: Source::UNKNOWN, bytes: &frame });
                self.heard = None;
            }
            Event::Wake => self.wake(h),
            Event::Synced { life: of, job } if of == life => self.synced(h, job),
            Event::Flushed { life: of } if of == life => self.flushed(h),
            Event::Ran { life: of } if of == life => self.ran(h),
            Event::Start { .. } | Event::Synced { .. } | Event::Flushed { .. } | Event::Ran { .. } => {}
            Event::Resume => self.resume(h),
            Event::Restart => self.restart(h),
        }
        self.settle(h);
    }

    /// Whatever has a deadline and is due.
    fn wake(&mut self, h: usize) {
        let life = &mut self.hosts[h].life_of;
        // Otherwise an earlier deadline has been moved since.
        if self.at >= life.wake_at {
            life.wake_at = u64::MAX;
            self.feed(h, Happens::Clock);
        }
    }

    /// After each event: what may leave leaves, jobs of the disk begin, and the next wake-up is scheduled.
    pub(crate) fn settle(&mut self, h: usize) {
        self.flush(h);
        let host = &mut self.hosts[h];
        let (node, life) = (host.node, host.life);
        let Some(process) = &mut host.process else { return };
        let due = process.due();
        let wake = (due != u64::MAX).then(|| host.clock.when(due));
        let wake = wake.filter(|at| *at < host.life_of.wake_at);
        if let Some(at) = wake {
            host.life_of.wake_at = at;
        }
        let (job, pages) = (host.disk.begin_log_job(), host.disk.begin_pages());
        if let Some(took) = pages {
            self.schedule(self.at + took, node, Event::Flushed { life });
        }
        if let Some(at) = wake {
            self.schedule(at, node, Event::Wake);
        }
        if let Some((job, took)) = job {
            self.schedule(self.at + took, node, Event::Synced { life, job });
        }
    }

    /// Passes an event to the process of host `h`, if there is one.
    pub(crate) fn feed(&mut self, h: usize, event: Happens<'_>) {
        let now = self.now(h);
        let Some(mut process) = self.hosts[h].process.take() else { return };
        process.step(now, event, &mut Watch::new(self, h));
        self.hosts[h].process = Some(process);
    }

    /// Lets a faulty process do what its core did not ask for: for scripts.
    pub(crate) fn inject(&mut self, h: usize, actions: &Actions) {
        if let Some(mut process) = self.hosts[h].process.take() {
            process.inject(actions, &mut Watch::new(self, h));
            self.hosts[h].process = Some(process);
            self.flush(h);
        }
    }

    /// After each event: what may leave leaves, the records come to the disk, and a deferred task begins.
    pub(super) fn flush(&mut self, h: usize) {
        let Some(mut process) = self.hosts[h].process.take() else { return };
        // A process that has not started yet announces its keys, too.
        process.send_keys(&mut Watch::new(self, h));
        process.flush(&mut Wire { world: self, h });
        let host = &mut self.hosts[h];
        process.disk_mut().pour(&mut host.disk, host.correct);
        let begins = process.has_work() && !host.life_of.works;
        let requests = process.queue().first().map_or(0, requests_of);
        host.process = Some(process);
        if begins {
            let ((low, high), node, life) = (self.task_time, host.node, host.life);
            let drawn = if high > 0 { self.task_rng.between(low, high) } else { 0 };
            let took = drawn + requests * self.request_ns;
            (host.life_of.works, host.life_of.took_ns) = (true, took);
            if self.inline {
                (host.away_since, host.busy_until) = (self.at, self.at + took);
            }
            self.schedule(self.at + took, node, Event::Ran { life });
        }
    }

    /// The task in progress is done.
    pub(super) fn ran(&mut self, h: usize) {
        let (inline, at) = (self.inline, self.at);
        let host = &mut self.hosts[h];
        if inline {
            host.clock.away(host.away_since, at);
        }
        host.life_of.works = false;
        let took_ns = host.life_of.took_ns;
        self.feed(h, Happens::Work { took_ns });
    }

    /// The time of a job of the log's writer is over.
    pub(super) fn synced(&mut self, h: usize, job: u64) {
        let host = &mut self.hosts[h];
        let (node, life) = (host.node, host.life);
        let Some(process) = &mut host.process else { return };
        if host.dies_writing && host.disk.is_behind() {
            host.dies_writing = false;
            self.cut_power(h, PowerCut::WithinWrite);
            return self.restart_later(h, RESTART_NS);
        }
        match host.disk.end_log_job(job) {
            Ended::Void => {}
            Ended::Failed => self.disk_failed(h),
            Ended::Full(ns) => {
                process.disk_mut().note_log(host.disk.log_bytes(), true);
                self.counters.disk("logs on a full disk");
                self.schedule(self.at + ns, node, Event::Synced { life, job });
            }
            Ended::Done(done) => {
                process.disk_mut().note_log(host.disk.log_bytes(), false);
                match done.state {
                    Some(LogState::None) => host.old_disk = false,
                    Some(LogState::Log) => host.amnesic = false,
                    Some(LogState::New | LogState::Clean) | None => {}
                }
                if done.is_cut {
                    self.counters.disk("logs cut");
                }
                if let Some(lsn) = done.durable {
                    self.feed(h, Happens::Disk(DiskEvent::Durable(lsn)));
                }
            }
        }
    }

    /// The time of the writer of the pages is over.
    pub(super) fn flushed(&mut self, h: usize) {
        let host = &mut self.hosts[h];
        let (node, life) = (host.node, host.life);
        let Some(process) = &mut host.process else { return };
        match host.disk.end_pages() {
            Ended::Void => {}
            Ended::Failed => self.disk_failed(h),
            Ended::Full(ns) => {
                self.counters.disk("images on a full disk");
                self.schedule(self.at + ns, node, Event::Flushed { life });
            }
            Ended::Done(all) => {
                let Some(seq) = process.disk_mut().note_pages(all) else { return };
                host.imageless = false;
                self.counters.images += 1;
                let id = host.id;
                self.checkers.kept(id, seq);
                // The process looks whether an image has become durable.
                self.feed(h, Happens::Clock);
            }
        }
    }

    /// A sync of host `h` has failed: the process stops, and never tries that again (GC-4).
    fn disk_failed(&mut self, h: usize) {
        self.counters.disk("syncs failed");
        self.tell(h, || What::Fault("cannot write to its disk".to_owned()));
        self.crash(h);
        self.restart_later(h, RESTART_NS);
    }

    /// Returns the time as host `h` sees it.
    pub(crate) fn now(&self, h: usize) -> Now {
        let clock = &self.hosts[h].clock;
        Now { mono_ns: clock.mono(self.at), wall_ns: clock.wall(self.at) }
    }

    /// Returns the nodes at a place: the hosts of a replica, or of a client.
    fn nodes_at(&self, place: Place) -> impl Iterator<Item = NodeId> + use<A> {
        let (index, replicas) = (place.index(), self.addresses.len());
        let hosts = self.addresses.get(index).cloned().unwrap_or_default();
        let client = index.checked_sub(replicas).and_then(|index| self.clients.get(index));
        hosts.into_iter().chain(client.map(|client| client.node))
    }
}

/// Returns the kind of a frame and who says that it is theirs.
fn head_of(frame: &[u8]) -> Option<(Kind, Principal)> {
    let kind = Kind::from_wire(*frame.get(3)?).ok()?;
    let sender = frame.get(8..16)?.try_into().ok()?;
    Some((kind, Principal::from_wire(u64::from_le_bytes(sender))))
}

/// Returns how many requests a task executes.
fn requests_of<C>(task: &Task<C>) -> u64 {
    match task {
        Task::Execute { batch, .. } => u64::try_from(batch.len()).unwrap_or(u64::MAX),
        Task::Read { .. } => 1,
        Task::Merge(_)
        | Task::Undo(_)
        | Task::Resend(_)
        | Task::Checkpoint(_)
        | Task::Discard(_)
        | Task::Fetch { .. }
        | Task::Check(_) => 0,
    }
}

/// The network, as the process of a host sees it.
struct Wire<'a, A: App> {
    world: &'a mut World<A>,
    h: usize,
}

impl<A: App> Transport for Wire<'_, A> {
    fn send(&mut self, to: Place, datagram: &[u8]) {
        self.send_group(&[to], datagram);
    }

    fn send_group(&mut self, to: &[Place], datagram: &[u8]) {
        let (from, frame): (NodeId, Frame) = (self.world.hosts[self.h].node, datagram.into());
        for place in to {
            for node in self.world.nodes_at(*place) {
                self.world.transmit(from, node, &frame);
            }
        }
    }

    fn send_long(&mut self, to: Place, frame: Vec<u8>) {
        self.send(to, &frame);
    }
}
