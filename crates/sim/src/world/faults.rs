//! Faults of hosts, and their end: crashes, restarts, pauses, wrong clocks, damaged disks.

use std::collections::VecDeque;

use quorate_pbft::config::Durability;
use quorate_pbft::record::{self, Record};
use quorate_pbft::recording::Recorder;
use quorate_pbft::{Restart, Resume};
use quorate_process::INCARNATION_RANDOM_BITS;
use quorate_process::storage::io::DiskError;
use quorate_process::storage::recover::Past;
use quorate_service::Executor;
use quorate_wire::codec::Reader;
use quorate_wire::digest::Domains;
use quorate_wire::message::Request;
use quorate_wire::{Batch, ClientId, Digest, Principal, SeqNum, ViewNum, frame};

use super::watch::Watch;
use super::{Event, World};
use crate::app::App;
use crate::checker::Violation;
use crate::disk::files::Space;
use crate::disk::side::DiskSide;
use crate::disk::{Damage, Disk, Pace, Paged, PowerCut};
use crate::host::{HostProcess, Life};
use crate::rng::{Concern, Rng};
use crate::trace::What;

/// The longest recording, in bytes.
const RECORDING_BYTES_MAX: usize = 1 << 30;

/// When a start is tried again, in nanoseconds.
const RETRY_NS: u64 = 20_000_000;

/// More than one life can ask for: the next one's numbers begin that far above (ST-3).
const RIDS_PER_LIFE: u64 = 1_000_000;

impl<A: App> World<A> {
    /// Starts a process on host `h` from what its disk holds. If the disk cannot be written, or the power goes, it
    /// tries again later.
    pub(crate) fn start_host(&mut self, h: usize) {
        self.hosts[h].life += 1;
        if self.try_start(h).is_err() {
            self.counters.disk("starts failed");
            self.tell(h, || What::Fault("cannot start: its disk cannot be written".to_owned()));
            self.hosts[h].disk.give_up_start();
            self.restart_later(h, RETRY_NS);
        }
    }

    fn try_start(&mut self, h: usize) -> Result<(), DiskError> {
        let seconds = self.now(h).wall_ns / 1_000_000_000;
        let newest = self.hosts[h].disk.newest();
        let spoiled = self.hosts[h].disk.spoiled();
        let (mut storage, past) = self.hosts[h].disk.open(self.config.durability, seconds)?;
        let chance = self.keys_rng.bits() >> (64 - INCARNATION_RANDOM_BITS);
        let incarnation = (storage.starts() << INCARNATION_RANDOM_BITS) | chance;
        let first_rid = self.now(h).wall_ns.max(self.hosts[h].key_time + RIDS_PER_LIFE);
        let mut executor = self.executor(h, first_rid);
        let cut = matches!(past, Past::Log { cut: true, .. });
        let lost = if let Past::Lost(why) = &past { why.clone() } else { String::new() };
        let resume = storage.resume(past, incarnation, &mut executor)?;
        self.hosts[h].disk.begin(storage, &executor, &resume)?;
        match &resume {
            Resume::Fresh { .. } => {}
            Resume::Amnesia { .. } => {
                let waited = self.config.durability == Durability::Sync && !self.hosts[h].amnesic;
                self.check_lost(h, waited && !spoiled.log, &lost);
                self.lose_memory(h);
            }
            Resume::Restart(Restart { records, checkpoint, .. }) => {
                let found = self.hosts[h].disk.newest();
                if found.is_some() {
                    self.counters.disk("images read");
                }
                if found < newest {
                    self.counters.disk("images lost");
                    self.check_lost(h, !spoiled.pages, "the newest image cannot be loaded");
                }
                // Its disk may have come to know that it has rejoined while the power went.
                self.hosts[h].amnesic &= self.hosts[h].old_disk;
                self.hosts[h].imageless = found < newest || self.hosts[h].imageless && found.is_none();
                self.remember(h, checkpoint.0, records, cut);
            }
        }
        self.start_process(h, executor, resume);
        Ok(())
    }

    /// A start finds that something is lost: a disk that only crashes have changed loses nothing that was waited for
    /// (D1, D5).
    fn check_lost(&mut self, h: usize, waited: bool, why: &str) {
        let host = &self.hosts[h];
        if waited && host.correct {
            let text = format!("{} starts from a disk that only crashes have changed: {why}", host.id);
            self.checkers.note(Err(Violation::new("durable (D1, D5)", text, &[host.id])));
        }
    }

    fn start_process(&mut self, h: usize, executor: Executor<A::Service, Paged>, resume: Resume) {
        let host = &self.hosts[h];
        let (id, life) = (host.id, host.life);
        // The same secrets for a replica's second copy, new ones for each life.
        let entropy = Rng::nth(self.seed ^ (u64::from(life) << 32), Concern::Keys, id.index()).bytes();
        let wall_ns = self.now(h).wall_ns.max(self.hosts[h].key_time + 1);
        let mut door = self.keys.door(Principal::Replica(id), self.config.cluster, entropy, wall_ns);
        self.hosts[h].key_time = door.key_time();
        let recorder = self
            .recorded
            .contains(&id)
            .then(|| Recorder::new(id, &self.config_of(id), &resume, RECORDING_BYTES_MAX));
        let core = self.core(h, resume);
        if self.founders.is_some() {
            // Only the state says who may come in.
            for client in 1..=self.clients_max {
                door.remove_client(ClientId::new(u64::try_from(client).unwrap_or(u64::MAX), 0));
            }
        }
        let disk = DiskSide::new(&self.hosts[h].disk, self.log_bytes_max);
        let process: HostProcess<A::Service> =
            HostProcess::new(id, &self.config, core, door, self.directory.clone(), executor, disk);
        let keys = Box::new(self.keys.clone());
        let process = process.with_execution(self.work.execution()).with_keys(keys);
        let mut process = process.with_old_views().unpacked().with_image_pace(self.image_pace);
        if let Some(parallel) = self.work.parallel(id.index(), self.app.rules()) {
            process = match process.with_workers(parallel) {
                Ok(process) => process,
                Err(error) => unreachable!("the rules of a service are symmetric: {error}"),
            };
        }
        process.admit_clients(true);
        process.endpoint_mut().tick_from(self.hosts[h].clock.mono(self.at));
        let host = &mut self.hosts[h];
        host.process = Some(Box::new(process));
        host.life_of = Life { recorder, ..Life::default() };
        let node = self.hosts[h].node;
        self.schedule(self.at, node, Event::Start { life });
    }

    fn lose_memory(&mut self, h: usize) {
        let host = &mut self.hosts[h];
        (host.amnesic, host.imageless, host.old_disk) = (true, false, false);
        let id = host.id;
        if host.correct {
            self.checkers.forgot(id);
        }
        self.counters.fault("memory lost");
        self.tell(h, || What::Fault("has lost its memory".to_owned()));
    }

    /// Tells the checkers what a restarting replica knows.
    fn remember(&mut self, h: usize, checkpoint: SeqNum, records: &[Vec<u8>], cut: bool) {
        let host = &self.hosts[h];
        if !host.correct {
            return;
        }
        let domains = self.config.domains();
        let stable = records.iter().filter_map(|bytes| record::stable_of(bytes)).max().unwrap_or(checkpoint);
        let prepared: Vec<(SeqNum, ViewNum, Digest)> = records
            .iter()
            .filter_map(|bytes| match Record::decode(bytes) {
                Ok(Record::Prepared { view, seq, batch }) if seq > stable => {
                    Some((seq, view, batch_digest(batch, &domains)?))
                }
                Ok(Record::PreparedAgain { view, seq, digest }) if seq > stable => Some((seq, view, digest)),
                _ => None,
            })
            .collect();
        let view = records.iter().fold((ViewNum(0), true), |last, bytes| match Record::decode(bytes) {
            Ok(Record::ViewChange { view, .. }) if view > last.0 => (view, false),
            Ok(Record::NewView { view, .. }) if view >= last.0 => (view, true),
            _ => last,
        });
        self.checkers.restarted(host.id, (checkpoint, stable), view, &prepared);
        if let Some((promises, facts)) = self.checkers.disk(host.id) {
            promises.restarted(facts.id, checkpoint, records, &prepared);
        }
        if cut {
            self.counters.fault("torn tail");
        }
    }

    /// Kills the process on host `h`; what its disk had not made durable may be torn or gone.
    pub fn crash(&mut self, h: usize) {
        self.cut_power(h, PowerCut::Anytime);
    }

    /// Kills the process on host `h`; nothing of what its disk had not made durable is there any more.
    pub fn lose_power(&mut self, h: usize) {
        self.cut_power(h, PowerCut::BeforeWrite);
    }

    /// Kills the process on host `h` within the next write of its log, which is torn, and starts it again.
    pub fn die_writing(&mut self, h: usize) {
        self.hosts[h].dies_writing = self.hosts[h].is_up();
    }

    fn cut_power(&mut self, h: usize, how: PowerCut) {
        let host = &mut self.hosts[h];
        if host.process.take().is_none() {
            return;
        }
        host.life_of = Life::default();
        if host.disk.crash(how) {
            self.counters.disk("processes killed");
        }
        // Of an image with a damaged page, a start finds only a part.
        host.imageless |= host.disk.is_rotten();
        (host.missed, host.busy_until, host.dies_writing) = (None, 0, false);
        host.life += 1;
        // What nothing waited for is not trusted at the next start.
        host.amnesic |= self.config.durability != Durability::Sync;
        self.counters.fault("crash");
        self.tell(h, || What::Fault("crashes".to_owned()));
    }

    /// The process on host `h` ends: the power goes within a write, or its disk has failed. Then it stops, and never
    /// tries that again (GC-4). It starts again later.
    pub(super) fn die(&mut self, h: usize, how: PowerCut) {
        if how == PowerCut::Anytime {
            self.counters.disk("syncs failed");
            self.tell(h, || What::Fault("cannot write to its disk".to_owned()));
        }
        self.cut_power(h, how);
        self.restart_later(h, RETRY_NS);
    }

    /// Lets the power go within the next start of host `h`, which is tried again.
    pub fn cut_start(&mut self, h: usize) {
        if !self.hosts[h].is_up() {
            self.hosts[h].disk.cut_start();
            self.counters.fault("crash within a start");
        }
    }

    /// Lets the images of host `h` take `ns` nanoseconds each, or as long as its disk takes (H11).
    pub fn set_image_time(&mut self, h: usize, ns: Option<u64>) {
        self.hosts[h].disk.set_image_time(ns);
    }

    /// Starts the process on host `h` again, if it is down.
    pub fn restart(&mut self, h: usize) {
        if !self.hosts[h].is_up() {
            self.tell(h, || What::Fault("starts".to_owned()));
            self.start_host(h);
        }
    }

    /// Starts the process on host `h` again after `ns` nanoseconds.
    pub fn restart_later(&mut self, h: usize, ns: u64) {
        let node = self.hosts[h].node;
        self.schedule(self.at + ns, node, Event::Restart);
    }

    /// Stops the process on host `h` for `ns` nanoseconds, as SIGSTOP does (H2).
    pub fn pause(&mut self, h: usize, ns: u64) {
        let host = &mut self.hosts[h];
        if !host.is_up() || host.is_paused() {
            return;
        }
        (host.missed, host.away_since) = (Some(VecDeque::new()), self.at);
        let node = host.node;
        self.counters.fault("pause");
        self.tell(h, || What::Fault(format!("is paused for {} ms", ns / 1_000_000)));
        self.schedule(self.at + ns, node, Event::Resume);
    }

    /// Resumes a paused process, with everything that waits for it.
    pub fn resume(&mut self, h: usize) {
        let host = &mut self.hosts[h];
        let node = host.node;
        let Some(missed) = host.missed.take() else { return };
        host.clock.away(host.away_since, self.at);
        self.tell(h, || What::Fault("goes on".to_owned()));
        for event in missed {
            self.schedule(self.at, node, event);
        }
        self.rewake(h);
    }

    /// Ends the lies of host `h`: its machine has been cleaned, and its disk is as it was. It is to be started.
    pub fn clean(&mut self, h: usize) {
        let id = self.hosts[h].id;
        self.counters.lies += self.hosts[h].process.as_ref().map_or(0, |process| process.core().0.lies());
        self.crash(h);
        self.liars.remove(&id);
        self.hosts[h].correct = true;
        self.checkers.cleaned(id);
        self.counters.fault("cleaned");
        self.tell(h, || What::Fault("lies no more".to_owned()));
    }

    /// Crashes host `h` and takes its disk away (H6).
    pub fn wipe(&mut self, h: usize) {
        self.crash(h);
        self.hosts[h].disk.wipe();
        self.hosts[h].amnesic = true;
        self.counters.fault("disk lost");
    }

    /// Crashes host `h` and damages its disk (H4, H5). Returns whether there was something to damage.
    pub fn damage(&mut self, h: usize, how: Damage) -> bool {
        let of_pages = how == Damage::ImageRot;
        let rotted = of_pages && self.hosts[h].disk.damage(how);
        self.crash(h);
        let done = rotted || !of_pages && self.hosts[h].disk.damage(how);
        if done {
            self.hosts[h].imageless |= of_pages;
            self.hosts[h].amnesic |= !of_pages;
            self.counters.fault(match how {
                Damage::BitRot => "bit rot",
                Damage::Zeroed => "zeroed record",
                Damage::Misdirected => "misdirected record",
                Damage::Lost => "lost record",
                Damage::ImageRot => "rotten image",
            });
        }
        done
    }

    /// Returns a copy of the disk of host `h`, as a snapshot of its machine would.
    pub fn snapshot(&mut self, h: usize) -> Disk {
        self.hosts[h].disk.snapshot()
    }

    /// Crashes host `h` and puts an old disk in (H7). One of the same life can't be told from the one
    /// that was there: the count of starts is what gives it away.
    pub fn put_back(&mut self, h: usize, disk: Disk) {
        self.crash(h);
        self.hosts[h].disk = disk;
        self.hosts[h].amnesic = true;
        self.hosts[h].old_disk = true;
        self.checkers.misled(self.hosts[h].id);
        self.counters.fault("old disk");
        self.tell(h, || What::Fault("has an old disk put in".to_owned()));
    }

    /// Damages a page of the state on the disk of host `h`, which runs on (H4), unless it is about to crash. No page is
    /// damaged at two hosts at a time: the others have to have it.
    pub fn rot_page(&mut self, h: usize) {
        let others = self.hosts.iter().enumerate().filter(|(other, _)| *other != h);
        let spared = others.flat_map(|(_, host)| host.disk.rotten_pages()).collect();
        let host = &mut self.hosts[h];
        if !host.dies_writing && !host.disk.is_failing() && host.disk.rot_page(&spared) {
            self.counters.disk("pages rotted");
        }
    }

    /// Sets the time of day of host `h` wrong, and lets its clock run fast or slow (H8).
    pub fn disturb_clock(&mut self, h: usize, offset_ns: i64, rate: u64) {
        let at = self.at;
        let clock = &mut self.hosts[h].clock;
        clock.jump(offset_ns);
        clock.set_rate(at, rate);
        self.counters.fault("clock");
        self.tell(h, || What::Fault(format!("clock off by {} ms, rate {rate}", offset_ns / 1_000_000)));
        self.rewake(h);
    }

    /// Sets the disk of host `h` fast or slow (H11).
    pub fn set_disk(&mut self, h: usize, pace: Pace) {
        self.hosts[h].disk.set_pace(pace);
        if pace == Pace::SLOW {
            self.counters.fault("slow disk");
        }
    }

    /// Fills the disk of host `h`, or makes space (GC-4).
    pub fn fill_disk(&mut self, h: usize, space: Space) {
        self.hosts[h].disk.set_space(space);
        if space != Space::Enough {
            self.counters.fault("full disk");
        }
        self.settle(h);
    }

    /// The next sync of host `h` fails, and it starts again (GC-4).
    pub fn fail_sync(&mut self, h: usize) {
        self.counters.fault("failed sync");
        self.hosts[h].disk.set_failing(true);
    }

    /// Corrupts a page of the state of host `h` in memory (B21).
    pub fn damage_state(&mut self, h: usize, choice: u64) -> bool {
        let done = self.process(h).is_some_and(|process| process.executor_mut().damage(choice));
        if done {
            self.hosts[h].disk.note_wrong_memory();
            self.checkers.damaged(self.hosts[h].id);
            self.counters.fault("damaged page");
            self.tell(h, || What::Fault("has a page of its state damaged".to_owned()));
        }
        done
    }

    /// Returns whether the state of host `h` is still damaged, as far as can be seen.
    pub(crate) fn is_suspect(&self, h: usize) -> bool {
        self.checkers.facts(self.hosts[h].id).damaged
    }

    /// Gives host `h` new session keys (KX-2).
    pub fn renew_keys(&mut self, h: usize) {
        let (entropy, now) = (self.keys_rng.bytes(), self.now(h));
        if let Some(mut process) = self.hosts[h].process.take() {
            process.renew_keys(now, entropy, &mut Watch::new(self, h));
            self.hosts[h].key_time = process.endpoint().door().key_time();
            self.hosts[h].process = Some(process);
        }
        self.counters.fault("new keys");
        self.settle(h);
    }

    /// Ends every fault: the network works, paused processes continue, crashed ones start, clocks are right, disks
    /// are fast and have space. Byzantine replicas continue to lie.
    pub fn heal(&mut self) {
        self.network.heal();
        self.work.heal();
        for h in 0..self.hosts.len() {
            let at = self.at;
            self.resume(h);
            self.hosts[h].disk.set_pace(Pace::FAST);
            self.hosts[h].disk.set_space(Space::Enough);
            self.hosts[h].disk.set_failing(false);
            self.hosts[h].disk.set_image_time(None);
            self.hosts[h].dies_writing = false;
            if self.hosts[h].clock.is_wrong() {
                self.hosts[h].clock.repair(at);
                self.rewake(h);
            }
            self.restart(h);
            self.settle(h);
        }
    }

    /// Reschedules the next wake-up, after the clock has changed.
    fn rewake(&mut self, h: usize) {
        self.hosts[h].life_of.wake_at = u64::MAX;
        self.settle(h);
    }

    /// Gives every node everyone's session keys, without the network.
    pub(crate) fn introduce(&mut self) {
        loop {
            let mut letters = Vec::new();
            for h in 0..self.hosts.len() {
                let mono = self.now(h).mono_ns;
                if let Some(process) = self.process(h) {
                    let door = process.endpoint_mut().door_mut();
                    door.tick(mono, 0);
                    while let Some(letter) = door.take_outgoing() {
                        letters.push(letter);
                    }
                }
            }
            for client in &mut self.clients {
                client.door.tick(self.at, 0);
                while let Some(letter) = client.door.take_outgoing() {
                    letters.push(letter);
                }
            }
            if letters.is_empty() {
                return;
            }
            for (to, frame) in letters {
                self.introduce_one(to, &frame);
            }
        }
    }

    fn introduce_one(&mut self, to: Principal, bytes: &[u8]) {
        let Ok(frame) = quorate_wire::frame::Frame::decode(bytes) else { return };
        match to {
            Principal::Replica(id) => {
                for i in 0..self.addresses[id.index()].len() {
                    let h = self.addresses[id.index()][i].index();
                    let mono = self.now(h).mono_ns;
                    if let Some(process) = self.process(h) {
                        _ = process.endpoint_mut().door_mut().admit(mono, frame);
                    }
                }
            }
            Principal::Client(_) => {
                let at = self.at;
                let holder = to.key_holder();
                let mut clients = self.clients.iter_mut();
                if let Some(client) = clients.find(|client| client.door.own().key_holder() == holder) {
                    _ = client.door.admit(at, frame);
                }
            }
        }
    }
}

/// Returns the digest of a batch in a record, where it stands behind its length.
fn batch_digest(bytes: &[u8], domains: &Domains) -> Option<Digest> {
    let own = Reader::new(bytes).blob(frame::FRAME_BYTES_MAX).ok()?;
    let mut batch = Batch::default();
    let request = |bytes| Request::decode(&frame::Frame::decode(bytes)?, domains);
    batch.decode(&mut Reader::new(own), domains, request).ok()?;
    Some(batch.digest())
}
