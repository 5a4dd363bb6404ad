//! A process in a world: its events, what it sends, its tasks and its disk.

use quorate_pbft::step::{Actions, Now};
use quorate_process::storage::starts::LogState;
use quorate_process::{Directory, DiskEvent, Event as Happens, Place, Transport};
use quorate_service::Task;
use quorate_wire::Kind;

use super::World;
use super::watch::Watch;
use crate::app::App;
use crate::disk::{Ended, PowerCut};
use crate::event::Event;
use crate::network::{Frame, NodeId};

impl<A: App> World<A> {
    /// Passes an event to the process of host `h`, if there is one.
    pub(crate) fn feed(&mut self, h: usize, event: Happens<'_>) {
        let now = self.now(h);
        let Some(mut process) = self.hosts[h].process.take() else { return };
        process.step(now, event, &mut Watch::new(self, h));
        if let Some(table) = process.replica().lives() {
            let verdict = self.checkers.lives(self.hosts[h].id, table);
            self.checkers.note(verdict);
        }
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
        let now = self.now(h);
        let Some(mut process) = self.hosts[h].process.take() else { return };
        // Each event is a burst of its own.
        process.end_burst(now, &mut Watch::new(self, h));
        // A process that has not started yet announces its keys, too.
        process.send_keys(&mut Watch::new(self, h));
        process.send_out(&mut Wire { world: self, h });
        let host = &mut self.hosts[h];
        process.disk_mut().pour(&mut host.disk, host.correct);
        let mut jobs = Vec::new();
        // A job that waits for a worker begins with the others: the seed decides in any case when it reads.
        while let Some(job) = process.take_job() {
            let course = self.work.course();
            jobs.push((host.life_of.jobs.begin(job, course.panics), course));
        }
        let begins = process.has_work() && !host.life_of.works;
        let (node, life) = (host.node, host.life);
        let requests = process.queue().first().map_or(0, requests_of);
        host.process = Some(process);
        if begins {
            let took = self.work.task_ns(requests);
            (host.life_of.works, host.life_of.took_ns) = (true, took);
            if self.work.is_inline() {
                (host.away_since, host.busy_until) = (self.at, self.at + took);
            }
            self.schedule(self.at + took, node, Event::Ran { life, job: None });
        }
        for (job, course) in jobs {
            for (is_so, what) in [(course.panics, "worker panicked"), (course.hangs, "worker hung")] {
                if is_so {
                    self.counters.fault(what);
                }
            }
            for at in [self.at + course.reads_ns, self.at + course.ends_ns] {
                self.schedule(at, node, Event::Ran { life, job: Some(job) });
            }
        }
    }

    /// The task in progress is done, or a job goes on.
    pub(super) fn ran(&mut self, h: usize, job: Option<u64>) {
        let (inline, at) = (self.work.is_inline(), self.at);
        let host = &mut self.hosts[h];
        if let Some(job) = job {
            let Some(process) = &host.process else { return };
            if let Some(done) = host.life_of.jobs.go_on(job, |job| process.run_job(&job)) {
                self.feed(h, Happens::Ran(done));
            }
            return;
        }
        if inline {
            host.clock.away(host.away_since, at);
        }
        host.life_of.works = false;
        let took_ns = host.life_of.took_ns;
        self.feed(h, Happens::Work { took_ns });
    }

    /// The time of a job of the log's writer is over. Returns how the process ends, if it does.
    pub(super) fn synced(&mut self, h: usize, job: u64) -> Option<PowerCut> {
        let host = &mut self.hosts[h];
        let (node, life) = (host.node, host.life);
        let process = host.process.as_mut()?;
        if host.dies_writing && host.disk.is_behind() {
            return Some(PowerCut::WithinWrite);
        }
        match host.disk.end_log_job(job) {
            Ended::Void => {}
            Ended::Failed => return Some(PowerCut::Anytime),
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
                    Some(LogState::New | LogState::Clean | LogState::Unawaited) | None => {}
                }
                if done.is_cut {
                    self.counters.disk("logs cut");
                }
                if let Some(lsn) = done.durable {
                    self.feed(h, Happens::Disk(DiskEvent::Durable(lsn)));
                }
            }
        }
        None
    }

    /// The time of the writer of the pages is over. Returns how the process ends, if it does.
    pub(super) fn flushed(&mut self, h: usize) -> Option<PowerCut> {
        let host = &mut self.hosts[h];
        let (node, life) = (host.node, host.life);
        let process = host.process.as_mut()?;
        match host.disk.end_pages() {
            Ended::Void => {}
            Ended::Failed => return Some(PowerCut::Anytime),
            Ended::Full(ns) => {
                self.counters.disk("images on a full disk");
                self.schedule(self.at + ns, node, Event::Flushed { life });
            }
            Ended::Done(all) => {
                let seq = process.disk_mut().note_pages(all)?;
                host.imageless = false;
                self.counters.images += 1;
                let id = host.id;
                self.checkers.kept(id, seq);
                // The process looks whether an image has become durable.
                self.feed(h, Happens::Clock);
            }
        }
        None
    }

    /// Returns the time as host `h` sees it.
    pub(crate) fn now(&self, h: usize) -> Now {
        let clock = &self.hosts[h].clock;
        Now { mono_ns: clock.mono(self.at), wall_ns: clock.wall(self.at) }
    }

    /// Returns the nodes at a place of host `h`: who listens at the address that it has of a replica, or a client.
    fn nodes_at(&self, h: usize, place: Place) -> impl Iterator<Item = NodeId> + use<A> {
        let (index, replicas) = (place.index(), self.addresses.len());
        let hosts = self.hosts[h].book.get(index).map(|at| self.listening(*at));
        let client = index.checked_sub(replicas).and_then(|index| self.clients.get(index));
        hosts.into_iter().flatten().chain(client.map(|client| client.node))
    }
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

/// Says whether a frame is a vote.
fn is_vote(frame: &[u8]) -> bool {
    let kind = frame.get(3).and_then(|kind| Kind::from_wire(*kind).ok());
    kind.is_some_and(|kind| [Kind::PrePrepare, Kind::Prepare, Kind::Commit].contains(&kind))
}

/// The network, as the process of a host sees it.
struct Wire<'a, A: App> {
    world: &'a mut World<A>,
    h: usize,
}

impl<A: App> Transport for Wire<'_, A> {
    fn look_up(&mut self, directory: &Directory) {
        let book = &mut self.world.hosts[self.h].book;
        let now = directory.addresses().get(..book.len()).unwrap_or_default();
        if book != now {
            *book = now.to_vec();
        }
    }

    fn send(&mut self, to: Place, datagram: &[u8]) {
        self.send_group(&[to], datagram);
    }

    fn send_group(&mut self, to: &[Place], datagram: &[u8]) {
        let host = &mut self.world.hosts[self.h];
        // From its first vote after a rejoin on the others rely on it: no crash may take the rejoin back (L54).
        let is_back = host.correct && host.amnesic && self.world.checkers.facts(host.id).remembers;
        if is_back && is_vote(datagram) {
            host.amnesic = false;
        }
        let (from, frame): (NodeId, Frame) = (self.world.hosts[self.h].node, datagram.into());
        for place in to {
            for node in self.world.nodes_at(self.h, *place) {
                self.world.transmit(from, node, &frame);
            }
        }
    }

    fn send_long(&mut self, to: Place, frame: Vec<u8>) {
        self.send(to, &frame);
    }
}
